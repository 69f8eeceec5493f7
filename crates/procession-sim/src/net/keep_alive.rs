//! Keep-alive: a stream looks whether its peer is there although neither says anything.
//!
//! A probe that is answered changes nothing that a program sees. So there are probes only while the
//! peer is silent: a way is cut, its host has no power, or knows nothing of the connection.

use rustix::io::Errno;

use crate::net::Net;
use crate::net::cargo::Cargo;
use crate::net::moment::Moment;
use crate::net::patience::{KeepAlive, Patience, user_timeout};
use crate::net::sockets::Phase;

impl Net {
    /// Takes note of the options that programs have changed, and begins to probe silent peers.
    pub(super) fn keep_alive(&mut self, now: u64) {
        for id in std::mem::take(&mut self.changed_options) {
            let Some(stream) = self.stream(id) else { continue };
            let options = stream.options.as_deref();
            stream.patience.user_timeout = options.and_then(user_timeout);
            stream.patience.keep_alive = options.and_then(KeepAlive::of);
            if stream.patience.keep_alive.is_some() {
                self.keeping_alive.insert(id);
            }
        }
        for id in self.keeping_alive.clone() {
            let Some(stream) = self.stream(id) else {
                self.keeping_alive.remove(&id);
                continue;
            };
            let Patience { keep_alive, heard_at, is_probing, .. } = stream.patience;
            let Some(KeepAlive { idle, .. }) = keep_alive else {
                self.keeping_alive.remove(&id);
                continue;
            };
            if stream.phase == Phase::Connected && !is_probing && self.is_silent(id, now) {
                self.probe_at(id, 0, heard_at.saturating_add(idle).max(now));
            }
        }
    }

    fn probe_at(&mut self, of: u64, count: u32, due: u64) {
        let Some((own, _)) = self.way(of) else { return };
        if let Some(stream) = self.stream(of) {
            stream.patience.is_probing = true;
            self.follow((own, own), Cargo::Probe { of, count }, due);
        }
    }

    /// Returns `true` if the peer would not confirm that the connection exists.
    fn is_silent(&mut self, id: u64, now: u64) -> bool {
        let Some(stream) = self.stream(id) else { return false };
        let (peer, has_heard_end) = (stream.peer, stream.has_heard_end());
        let is_known = has_heard_end
            || peer.and_then(|peer| self.stream(peer)).is_some_and(|peer| !peer.is_broken());
        !is_known || self.is_out_of_reach(id, now)
    }

    /// Returns `true` if no answer of the peer's host would arrive.
    fn is_out_of_reach(&self, id: u64, now: u64) -> bool {
        let way = self.way(id);
        way.is_some_and(|(own, other)| self.is_cut(own, other, now) || self.is_cut(other, own, now))
    }

    /// A stream sends the probe after `count` earlier probes, and knows whether they had an answer.
    pub(super) fn probe(&mut self, moment: &Moment<'_>, id: u64, count: u32) {
        let now = moment.now;
        let is_silent = self.is_silent(id, now);
        let is_out_of_reach = self.is_out_of_reach(id, now);
        let has_sent = self.has_sent(id);
        let Some(stream) = self.stream(id) else { return };
        let patience = &mut stream.patience;
        let Some(keep_alive) = patience.keep_alive.filter(|_| is_silent) else {
            (patience.is_probing, patience.heard_at) = (false, now);
            return;
        };
        let is_over = match patience.user_timeout {
            Some(limit) => count > 0 && now - patience.heard_at >= limit,
            None => count >= keep_alive.probes,
        };
        if !is_out_of_reach {
            // Its host says that it knows of no such connection.
            return self.break_stream(id, Errno::CONNRESET);
        }
        if has_sent {
            // Data that is sent again also acts as a probe.
            self.probe_at(id, count, now.saturating_add(keep_alive.interval));
        } else if is_over {
            self.break_stream(id, Errno::TIMEDOUT);
        } else {
            self.probe_at(id, count + 1, now.saturating_add(keep_alive.interval));
        }
    }

    /// Returns for how long what a stream has sent may still be repeated, if the program has said
    /// so. `is_first` is the first repetition.
    pub(super) fn time_left(&mut self, from: u64, is_first: bool, now: u64) -> Option<u64> {
        let patience = &mut self.stream(from)?.patience;
        if is_first {
            patience.repeats_since = now;
        }
        Some((patience.repeats_since + patience.user_timeout?).saturating_sub(now))
    }
}
