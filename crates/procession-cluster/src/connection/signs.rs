//! What the connection itself asks, answers and states: whether the other node is there, what it
//! permits, and what its release is.

use procession::time::Instant;
use procession_sync::atomic::Ordering::Relaxed;

use crate::connection::Connection;
use crate::connection::io::Ends;
use crate::node::refusals;
use crate::outbound::PULSE_LANE;
use crate::pulse;
use crate::release::{OLDEST, Statement};
use crate::term::{Atom, NodePid, Reference, Term};
use crate::wire::control::{Control, Target};
use crate::wire::names::{GRANTS_NAME, PULSE};

impl Connection {
    /// Asks the other node whether it is there, and how many messages it has received. Returns the
    /// reference of the question.
    pub(super) fn ask(&mut self, now: Instant) -> Reference {
        let question = self.node.question();
        let (from, to) = (self.node.pid_of(0), Target::Name(Atom::known(PULSE)));
        let control = Control::Monitor { from, to, monitor: question.clone() };
        self.link.outbound.signal(PULSE_LANE, &control, None);
        self.pulse.asked(question.clone(), now);
        question
    }

    /// Answers the question of the other node.
    pub(super) fn answer(&mut self, watcher: NodePid, monitor: Reference) {
        self.pulse.was_asked(*self.node.name() < self.link.peer.name);
        // Only a node of this crate asks so.
        let listened = std::mem::replace(&mut self.listens, true);
        if !listened {
            self.node.state(&self.link, &Statement::release());
        }
        let received = self.link.counts.received.load(Relaxed);
        let from = Target::Name(Atom::known(PULSE));
        self.link.tell(PULSE_LANE, pulse::received(received), |reason| Control::Down {
            from,
            to: watcher,
            monitor,
            reason,
        });
        if !listened {
            self.link.permitted.make_due();
        }
    }

    /// Sends a statement of the permitted receivers to a node of this crate, unless it has the
    /// current one. If a signal of this node waits in the queue, for example the previous
    /// statement, a later turn does so. Therefore the queue holds one statement, however often the
    /// grants change.
    pub(super) fn tell_grants(&mut self) {
        if !self.listens || self.link.outbound.has_waiting(PULSE_LANE) {
            return;
        }
        self.link.permitted.take_due();
        let reach = self.node.reach_of(&self.link.peer.name);
        if let Some(permitted) = reach.as_ref().filter(|_| reach != self.told) {
            let (to, monitor) = (self.link.peer_pid(), self.node.question());
            self.link.tell(PULSE_LANE, permitted.to_term(), |reason| Control::Down {
                from: Target::Name(Atom::known(GRANTS_NAME)),
                to,
                monitor,
                reason,
            });
            self.told = reach;
        }
    }

    /// Takes the answer of the other node. Returns `false` if it is none.
    pub(super) fn answered(&mut self, question: &Reference, reason: &Term) -> Result<bool, Ends> {
        let received = pulse::received_of(reason);
        let round_trip = self.pulse.answered(question, received.is_some(), Instant::now());
        let Some(round_trip) = round_trip else { return Ok(false) };
        if let Some(farewell) = &mut self.farewell {
            farewell.answered(question);
        }
        self.link.answered(round_trip, received.and_then(|count| u64::try_from(count).ok()));
        if received.is_some() {
            self.check_release()?;
        }
        // Its kind may not have been known before.
        self.node.tell_if_leaving(&self.link);
        Ok(true)
    }

    /// `Refuse` of [`release`](crate::release).
    fn check_release(&self) -> Result<(), Ends> {
        let protocol = self.link.protocol();
        if protocol >= OLDEST {
            return Ok(());
        }
        let why = format!("its release has protocol {protocol}, and {OLDEST} is the oldest known");
        let what = || format!("the connection to {}", self.link.peer.name);
        refusals::tell_apart(self.node.0.refusals.report("release", what, &why));
        Err(why)
    }
}
