//! The state of a node as a section of the door of its scheduler.

use procession::observe::DoorSection;

use crate::node::Node;
use crate::node::status::PeerInfo;
use crate::release::{PROTOCOL, VERSION};

impl Node {
    /// Shows the state in the door of the scheduler.
    pub(crate) fn show_section(&self, section: &mut DoorSection) {
        let (node, creation) = (&self.0.own.name, self.0.own.creation);
        let attached = self.0.locals.lock().by_number.len();
        let names = self.names().len();
        let (ends, lost) = {
            let peers = self.0.peers.lock();
            (peers.ends(), peers.lost())
        };
        let (peers, refusals) = (self.peers(), self.0.refusals.counts());
        section.row("node", |row| {
            row.label("node", node.as_str())
                .gauge("creation", "The incarnation of the node.", u64::from(creation))
                .gauge("attached", "Processes that other nodes know.", attached as u64)
                .gauge("names", "Names of processes.", names as u64)
                .gauge("connections", "Connected nodes.", peers.len() as u64)
                .counter("lost", "Messages that ended connections have lost, at most.", lost);
        });
        for (cause, count) in &ends {
            section.row("end", |row| {
                row.label("node", node.as_str()).label("cause", cause);
                row.counter("count", "Ended connections, by cause.", *count);
            });
        }
        for (cause, count) in &refusals {
            section.row("refusal", |row| {
                row.label("node", node.as_str()).label("cause", cause);
                row.counter("count", "Refused handshakes, by cause.", *count);
            });
        }
        for peer in &peers {
            section.row("peer", |row| {
                row.label("node", node.as_str()).label("peer", peer.name.as_str());
                peer.show(row);
            });
        }
        // The last rows, because a section has at most 1000.
        let own = (node, VERSION, PROTOCOL);
        let peers_releases = peers.iter().filter_map(|peer| {
            Some((&peer.name, peer.release.as_deref().unwrap_or_default(), peer.protocol?))
        });
        for (of, release, protocol) in [own].into_iter().chain(peers_releases) {
            section.row("release", |row| {
                row.label("node", node.as_str()).label("peer", of.as_str());
                row.label("release", release);
                row.gauge("protocol", "The protocol of a node's release.", u64::from(protocol));
            });
        }
    }
}

impl PeerInfo {
    fn show(&self, row: &mut procession::observe::SectionRow) {
        row.gauge("creation", "The incarnation of the connected node.", u64::from(self.creation))
            .time("age", "How long the node has been connected.", self.age)
            .gauge("queued_bytes", "Queued bytes.", self.queued_bytes as u64)
            .time(
                "oldest_wait",
                "How long the oldest bytes that wait have waited.",
                self.oldest_wait,
            )
            .counter("sent", "Sent messages.", self.sent)
            .counter("received", "Received messages.", self.received)
            .counter("refused", "Messages that found the queue full, and came back.", self.refused)
            .counter(
                "not_allowed",
                "Messages that the other node does not permit.",
                self.not_allowed,
            )
            .counter(
                "undelivered",
                "Received messages without a receiver that accepts them.",
                self.undelivered,
            )
            .counter("denied", "Refused operations.", self.denied)
            .gauge("calls", "Calls that wait for a reply.", self.calls as u64)
            .counter("bytes_sent", "Sent bytes.", self.bytes_sent)
            .counter("bytes_received", "Received bytes.", self.bytes_received)
            .time("round_trip", "The time that the latest answer took.", self.round_trip)
            .gauge("unconfirmed", "Unconfirmed messages.", self.unconfirmed);
    }
}
