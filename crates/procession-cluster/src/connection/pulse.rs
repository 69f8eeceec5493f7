//! The time of a connection: when the other node is asked whether it is there, and when it counts
//! as unreachable.
//!
//! A node is asked by a monitor of a process that no node has. A node of the BEAM answers from its
//! runtime that there is no such process, without a process of its own and whatever its
//! `net_ticktime`. A node of this crate answers with the number of messages that it has received,
//! which confirms them.
//!
//! # Rules
//! - Any byte counts as a sign of life. A node is asked once nothing was heard of it for a quarter
//!   of the patience, and given up one patience after that.
//! - A node that confirms is asked four times in the patience while messages are unconfirmed.
//! - If nothing was said for a quarter of the patience, a tick says that this node is there.
//! - A node that takes no monitors, such as a program in C with Erlang's library, cannot be asked.
//!   It answers ticks while it waits for messages. It is given up after 60 s of silence, or later
//!   if the patience is longer.
//! - A node that was late itself, because it was stopped or had no processor, cannot tell whether
//!   the other one was silent. It begins a new patience.

use std::time::Duration;

use procession::time::Instant;

use crate::term::Reference;

/// The least patience with a node that cannot be asked.
const UNASKED_PATIENCE: Duration = Duration::from_secs(48);

/// What a connection does next for the sake of time.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// Nothing until then.
    Wait(Instant),
    /// It says that it is there.
    Tick,
    /// It asks whether the other node is there.
    Ask,
    /// It ends, since the other node is silent.
    GiveUp,
}

#[derive(Debug)]
pub(super) struct Pulse {
    patience: Duration,
    /// `true` if the other node answers questions.
    asks: bool,
    heard: Instant,
    said: Instant,
    asked: Option<Instant>,
    /// The latest turn of the connection's loop.
    turned: Instant,
    /// The question that is not answered.
    question: Option<Reference>,
}

impl Pulse {
    /// Begins with a node that takes monitors, or not.
    pub(super) fn new(patience: Duration, asks: bool, now: Instant) -> Self {
        let patience = if asks { patience } else { patience.max(UNASKED_PATIENCE) };
        Self { patience, asks, heard: now, said: now, asked: None, turned: now, question: None }
    }

    /// Returns the time of silence after which the node is given up.
    pub(super) fn limit(&self) -> Duration {
        self.patience + self.patience / 4
    }

    /// Notes a turn of the connection's loop, in which it read or wrote something or not.
    pub(super) fn turn(&mut self, read: bool, wrote: bool, now: Instant) {
        // It turns at least four times in the patience.
        let is_late = now.saturating_duration_since(self.turned) > self.patience / 2;
        self.turned = now;
        if read || is_late {
            self.heard = now;
        }
        if wrote {
            self.said = now;
        }
    }

    /// Returns what to do next. `confirms` says that there are messages that the other node would
    /// confirm.
    pub(super) fn next(&self, confirms: bool, now: Instant) -> Next {
        let quarter = self.patience / 4;
        let end = self.heard + self.limit();
        if now >= end {
            return Next::GiveUp;
        }
        // Its kind is not known before it has answered once.
        let ask = match (&self.question, self.asked) {
            _ if !self.asks => end,
            (Some(_), _) => end,
            (None, None) => now,
            (None, Some(asked)) if confirms => asked + quarter,
            (None, Some(asked)) => self.heard.max(asked) + quarter,
        };
        if now >= ask {
            return Next::Ask;
        }
        let tick = self.said + quarter;
        if now >= tick { Next::Tick } else { Next::Wait(tick.min(ask).min(end)) }
    }

    pub(super) fn ticked(&mut self, now: Instant) {
        self.said = now;
    }

    pub(super) fn asked(&mut self, question: Reference, now: Instant) {
        self.asked = Some(now);
        self.question = Some(question);
    }

    /// Takes an answer. Returns the time since the question, or `None` if it answers another one.
    pub(super) fn answered(&mut self, question: &Reference, now: Instant) -> Option<Duration> {
        if self.question.as_ref() != Some(question) {
            return None;
        }
        self.question = None;
        self.asked.map(|asked| now.saturating_duration_since(asked))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use procession::time::Instant;

    use super::{Next, Pulse};
    use crate::term::{Atom, Reference};

    const PATIENCE: Duration = Duration::from_secs(4);

    fn question(number: u32) -> Reference {
        Reference::new(Atom::known("a@127.0.0.1"), 7, &[number]).expect("it has a word")
    }

    /// Turns without a byte from the other side until something else than waiting or a tick comes
    /// next. Returns that and its time.
    fn silent(pulse: &mut Pulse, mut now: Instant) -> (Next, Instant) {
        loop {
            pulse.turn(false, false, now);
            match pulse.next(false, now) {
                Next::Wait(until) => now = until,
                Next::Tick => pulse.ticked(now),
                next => return (next, now),
            }
        }
    }

    #[test]
    fn a_node_that_takes_no_monitors_is_not_asked() {
        let start = Instant::now();
        let mut pulse = Pulse::new(PATIENCE, false, start);
        let (next, at) = silent(&mut pulse, start);
        assert_eq!((next, at - start), (Next::GiveUp, Duration::from_secs(60)));
        let mut patient = Pulse::new(Duration::from_secs(60), false, start);
        assert_eq!(silent(&mut patient, start).1 - start, Duration::from_secs(75));
    }

    #[test]
    fn a_silent_node_is_asked_and_given_up_a_patience_later() {
        let start = Instant::now();
        let mut pulse = Pulse::new(PATIENCE, true, start);
        assert_eq!(silent(&mut pulse, start), (Next::Ask, start), "its kind is not known");
        pulse.asked(question(1), start);
        let answered = start + Duration::from_millis(3);
        assert_eq!(pulse.answered(&question(2), answered), None);
        assert_eq!(pulse.answered(&question(1), answered), Some(Duration::from_millis(3)));
        pulse.turn(true, false, answered);
        let (next, at) = silent(&mut pulse, answered);
        assert_eq!((next, at), (Next::Ask, answered + PATIENCE / 4));
        pulse.asked(question(3), at);
        let (next, end) = silent(&mut pulse, at);
        assert_eq!((next, end), (Next::GiveUp, at + PATIENCE));
        assert_eq!(end, answered + pulse.limit());
    }

    #[test]
    fn a_node_that_was_late_itself_begins_a_new_patience() {
        let start = Instant::now();
        let mut pulse = Pulse::new(PATIENCE, true, start);
        pulse.asked(question(1), start);
        // It was stopped for ten times the patience.
        let late = start + 10 * PATIENCE;
        pulse.turn(false, false, late);
        assert_eq!(pulse.next(false, late), Next::Tick);
        let (next, end) = silent(&mut pulse, late);
        assert_eq!((next, end), (Next::GiveUp, late + pulse.limit()));
    }

    #[test]
    fn unconfirmed_messages_are_asked_for_although_bytes_come() {
        let start = Instant::now();
        let mut pulse = Pulse::new(PATIENCE, true, start);
        pulse.asked(question(1), start);
        pulse.answered(&question(1), start);
        let now = start + PATIENCE / 4;
        pulse.turn(true, true, now);
        assert_eq!(pulse.next(true, now), Next::Ask);
        assert_eq!(pulse.next(false, now), Next::Wait(now + PATIENCE / 4));
    }
}
