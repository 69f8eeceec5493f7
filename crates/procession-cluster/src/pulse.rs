//! The time of a connection: when the other node is asked whether it is there, and when it counts
//! as unreachable.
//!
//! A node is asked by a monitor of a process that no node has. A node of the BEAM answers from its
//! runtime that there is no such process, whatever its `net_ticktime`, and no process of that node
//! takes part. A node of this crate answers with the number of messages that it has received, which
//! confirms them.
//!
//! # Rules
//! - Any byte counts as a sign of life. A node is asked once nothing has arrived from it for a
//!   quarter of the patience, and is given up one patience after that.
//! - A node that confirms is asked four times in the patience while messages are unconfirmed.
//! - If nothing was said for a quarter of the patience, a tick says that this node is there.
//! - Two nodes of this crate take turns: the node that was asked last asks next. Its peer waits
//!   longer by a sixteenth of the patience. So if both are idle, one asks, which is a sign of life
//!   for both, and the peer need not ask. If both have asked at the same time, the node with the
//!   greater name waits longer. So an idle node wakes three times in half of the patience for each
//!   peer: when it is asked, when it asks, and when the answer arrives.
//! - The connections of a node ask at the same moments ([`Beat`]), up to an eighth of the patience
//!   early, so that the node wakes once for all connections.
//! - A node that takes no monitors, such as a program in C with Erlang's library, cannot be asked.
//!   It answers ticks while it waits for messages. It is given up after 60 s of silence, or later
//!   if the patience is longer.
//! - If bytes have waited for a node and the system takes some, that is a sign of life as well: a
//!   question waits behind what was sent before it, so a slow node may answer late.
//! - A node is also given up if the system takes no byte for as long as a node may be silent,
//!   although bytes wait. The time limit of the system (`TCP_USER_TIMEOUT`) is no help: it ends
//!   connections to nodes that read slowly, because it counts until the window has room for all of
//!   the next segment.
//! - A node that was late itself, because it was stopped or had no processor, does not know whether
//!   the other node was silent. It begins a new patience.

use std::time::Duration;

use procession::time::Instant;
use procession_sync::Mutex;

use crate::term::{Reference, Term};

/// The least patience with a node that cannot be asked.
const UNASKED_PATIENCE: Duration = Duration::from_secs(48);

/// Returns the answer of a node of this crate: the number of messages that it has received.
pub(crate) fn received(count: u64) -> Term {
    Term::tuple([Term::atom("received"), Term::from(count as i64)])
}

/// Returns the number in such an answer.
pub(crate) fn received_of(answer: &Term) -> Option<i64> {
    match answer.as_tuple() {
        Some([word, count]) if word.is_atom("received") => count.as_integer(),
        _ => None,
    }
}

/// The next moment at which connections of a node ask.
#[derive(Debug, Default)]
pub(crate) struct Beat(Mutex<Option<Instant>>);

impl Beat {
    /// Returns the moment at which others ask, if it is at most `early` before `latest`, or else
    /// that.
    fn meet(&self, early: Duration, latest: Instant) -> Instant {
        let mut next = self.0.lock();
        match *next {
            Some(next) if next <= latest && next + early >= latest => next,
            _ => *next.insert(latest),
        }
    }
}

/// What a connection does next for the sake of time.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Nothing until [`Pulse::until`].
    Wait,
    /// It says that it is there.
    Tick,
    /// It asks whether the other node is there.
    Ask,
    /// It ends, because the other node is silent or takes nothing. Says so.
    GiveUp(&'static str),
}

#[derive(Debug)]
pub(crate) struct Pulse {
    patience: Duration,
    /// `true` if the other node answers questions.
    asks: bool,
    /// The time without a byte after which a node is asked, or a tick is sent.
    pause: Duration,
    heard: Instant,
    said: Instant,
    /// The latest turn in which bytes were taken, or none waited.
    taken: Instant,
    /// The latest turn in which bytes were taken that had waited.
    moved: Instant,
    /// Bytes wait until the system takes them.
    waits: bool,
    asked: Option<Instant>,
    /// When the connection asks together with others.
    beat: Option<Instant>,
    /// Set if the other node has asked while a question was not answered.
    has_crossed: bool,
    /// The latest turn of the connection's loop.
    turned: Instant,
    /// The question that is not answered.
    question: Option<Reference>,
}

impl Pulse {
    /// Begins with a node that takes monitors, or not.
    pub(crate) fn new(patience: Duration, asks: bool, now: Instant) -> Self {
        let patience = if asks { patience } else { patience.max(UNASKED_PATIENCE) };
        Self {
            patience,
            asks,
            pause: patience / 4,
            heard: now,
            said: now,
            taken: now,
            moved: now,
            waits: false,
            asked: None,
            beat: None,
            has_crossed: false,
            turned: now,
            question: None,
        }
    }

    /// Notes that the other node has asked: the next turn is that of this node, or of the first of
    /// the two if both have asked at the same time.
    pub(crate) fn was_asked(&mut self, is_first: bool) {
        self.has_crossed = self.question.is_some();
        self.wait_for_question(self.has_crossed && !is_first);
    }

    /// Lets the other node ask next, or not.
    fn wait_for_question(&mut self, waits: bool) {
        let longer = if waits { self.patience / 16 } else { Duration::ZERO };
        self.pause = self.patience / 4 + longer;
    }

    /// Returns the time of silence after which the node is given up.
    pub(crate) fn limit(&self) -> Duration {
        self.patience + self.patience / 4
    }

    /// Notes a turn of the connection's loop, in which it read something or not, and in which the
    /// system took something or not. `waits` says that bytes wait until the system takes them.
    pub(crate) fn turn(&mut self, read: bool, took: bool, waits: bool, now: Instant) {
        // It turns at least three times in the patience.
        let is_late = now.saturating_duration_since(self.turned) > self.patience / 2;
        self.turned = now;
        if read || is_late {
            self.heard = now;
        }
        if took {
            self.said = now;
        }
        if took || !waits || is_late {
            self.taken = now;
        }
        if took && self.waits {
            self.moved = now;
        }
        self.waits = waits;
    }

    /// Returns when the other node is given up if it gives no sign of life.
    fn end(&self) -> Instant {
        self.heard.max(self.moved) + self.limit()
    }

    /// Returns what to do next. `confirms` says that there are messages that the other node would
    /// confirm.
    pub(crate) fn next(&self, confirms: bool, now: Instant) -> Next {
        if now >= self.end() {
            return Next::GiveUp("nothing was heard of it");
        }
        if now >= self.taken + self.limit() {
            return Next::GiveUp("it took nothing");
        }
        let ask = self.ask_at(confirms, now);
        let is_early = now + self.early() >= ask && self.beat.is_some_and(|beat| now >= beat);
        if now >= ask || is_early {
            return Next::Ask;
        }
        if now >= self.said + self.pause { Next::Tick } else { Next::Wait }
    }

    /// Returns until when there is nothing to do, if there is nothing now.
    pub(crate) fn until(&mut self, confirms: bool, beat: &Beat, now: Instant) -> Instant {
        let ask = self.ask_at(confirms, now);
        let end = self.end();
        self.beat = (ask < end).then(|| beat.meet(self.early(), ask));
        self.beat.unwrap_or(end).min(self.taken + self.limit()).min(self.said + self.pause)
    }

    /// Returns the time by which a question may be early.
    fn early(&self) -> Duration {
        self.patience / 8
    }

    /// Returns when the other node is asked at the latest.
    fn ask_at(&self, confirms: bool, now: Instant) -> Instant {
        // Its kind is not known before it has answered once.
        match (&self.question, self.asked) {
            _ if !self.asks => Instant::NEVER,
            (Some(_), _) => Instant::NEVER,
            (None, None) => now,
            (None, Some(asked)) if confirms => asked + self.patience / 4,
            (None, Some(asked)) => self.heard.max(asked) + self.pause,
        }
    }

    pub(crate) fn ticked(&mut self, now: Instant) {
        self.said = now;
    }

    pub(crate) fn asked(&mut self, question: Reference, now: Instant) {
        self.asked = Some(now);
        self.question = Some(question);
        self.has_crossed = false;
    }

    /// Takes an answer, of a node that confirms messages or of another. Returns the time since the
    /// question, or `None` if it answers another question.
    pub(crate) fn answered(
        &mut self,
        question: &Reference,
        confirms: bool,
        now: Instant,
    ) -> Option<Duration> {
        if self.question.as_ref() != Some(question) {
            return None;
        }
        self.question = None;
        if confirms && !self.has_crossed {
            self.wait_for_question(true);
        }
        self.asked.map(|asked| now.saturating_duration_since(asked))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use procession::time::Instant;

    use super::{Beat, Next, Pulse};
    use crate::term::{Atom, Reference};

    const PATIENCE: Duration = Duration::from_secs(4);

    fn question(number: u32) -> Reference {
        Reference::new(Atom::known("a@127.0.0.1"), 7, &[number]).expect("it has a word")
    }

    /// Turns without a byte from the other side until the next action is neither a wait nor a tick.
    /// Returns that action and its time.
    fn silent(pulse: &mut Pulse, mut now: Instant) -> (Next, Instant) {
        let beat = Beat::default();
        loop {
            pulse.turn(false, false, false, now);
            match pulse.next(false, now) {
                Next::Wait => now = pulse.until(false, &beat, now),
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
        assert_eq!(
            (next, at - start),
            (Next::GiveUp("nothing was heard of it"), Duration::from_secs(60))
        );
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
        assert_eq!(pulse.answered(&question(2), true, answered), None);
        let round_trip = pulse.answered(&question(1), false, answered);
        assert_eq!(round_trip, Some(Duration::from_millis(3)));
        pulse.turn(true, false, false, answered);
        let (next, at) = silent(&mut pulse, answered);
        assert_eq!((next, at), (Next::Ask, answered + PATIENCE / 4));
        pulse.asked(question(3), at);
        let (next, end) = silent(&mut pulse, at);
        assert_eq!((next, end), (Next::GiveUp("nothing was heard of it"), at + PATIENCE));
        assert_eq!(end, answered + pulse.limit());
    }

    /// Two idle nodes, in which nothing takes time. Returns their wake-ups in a minute, and checks
    /// that each hears of the other in time. The second one may be late with what it does.
    fn wake_ups_of_two(late: Duration) -> [u32; 2] {
        let start = Instant::now();
        let mut pulses = [(); 2].map(|()| Pulse::new(PATIENCE, true, start));
        let (beats, mut wake_ups) = ([Beat::default(), Beat::default()], [0; 2]);
        let (mut now, mut number) = (start, 0);
        while now < start + Duration::from_secs(60) {
            let questions: Vec<_> =
                (0..2).filter(|&node| pulses[node].next(false, now) == Next::Ask).collect();
            for &node in &questions {
                number += 1;
                pulses[node].asked(question(number), now);
                wake_ups[node] += 1;
            }
            for &node in &questions {
                let other = 1 - node;
                let heard = now.saturating_duration_since(pulses[other].heard);
                assert!(heard <= PATIENCE / 4 + late, "{heard:?}");
                pulses[other].was_asked(other == 0);
                pulses[other].turn(true, true, false, now);
                wake_ups[other] += 1;
            }
            for &node in &questions {
                let asked = pulses[node].question.clone().expect("it has asked");
                assert_eq!(pulses[node].answered(&asked, true, now), Some(Duration::ZERO));
                pulses[node].turn(true, true, false, now);
                wake_ups[node] += 1;
            }
            let until = [0, 1].map(|node| {
                assert_eq!(pulses[node].next(false, now), Next::Wait, "it has just spoken");
                pulses[node].until(false, &beats[node], now)
            });
            now = until[0].min(until[1] + late);
        }
        wake_ups
    }

    #[test]
    fn two_idle_nodes_take_turns() {
        for late in [0, 3] {
            for wake_ups in wake_ups_of_two(Duration::from_millis(late)) {
                assert!((88..=96).contains(&wake_ups), "{wake_ups} in a minute");
            }
        }
    }

    #[test]
    fn idle_connections_ask_at_the_same_moment() {
        let (start, beat) = (Instant::now(), Beat::default());
        // They were made one after the other, within a second.
        let mut pulses: Vec<_> = (0..100)
            .map(|number| {
                let begins = start + number * Duration::from_millis(10);
                let mut pulse = Pulse::new(PATIENCE, true, begins);
                pulse.asked(question(number), begins);
                assert!(pulse.answered(&question(number), false, begins).is_some());
                pulse.turn(true, true, false, begins);
                pulse
            })
            .collect();
        let mut now = start + Duration::from_secs(1);
        let mut moments = 0;
        while now < start + Duration::from_secs(61) {
            moments += 1;
            let mut until = now + PATIENCE;
            for pulse in &mut pulses {
                if pulse.next(false, now) == Next::Ask {
                    pulse.asked(question(1000), now);
                    assert!(pulse.answered(&question(1000), false, now).is_some());
                    pulse.turn(true, true, false, now);
                }
                assert_eq!(pulse.next(false, now), Next::Wait);
                until = until.min(pulse.until(false, &beat, now));
            }
            now = until;
        }
        assert!(moments <= 60 * 4, "{moments} moments in a minute");
    }

    #[test]
    fn a_node_that_was_late_itself_begins_a_new_patience() {
        let start = Instant::now();
        let mut pulse = Pulse::new(PATIENCE, true, start);
        pulse.asked(question(1), start);
        // It was stopped for ten times the patience.
        let late = start + 10 * PATIENCE;
        pulse.turn(false, false, false, late);
        assert_eq!(pulse.next(false, late), Next::Tick);
        let (next, end) = silent(&mut pulse, late);
        assert_eq!((next, end), (Next::GiveUp("nothing was heard of it"), late + pulse.limit()));
    }

    #[test]
    fn a_node_that_takes_nothing_is_given_up_although_it_talks() {
        let start = Instant::now();
        let mut pulse = Pulse::new(PATIENCE, true, start);
        pulse.asked(question(1), start);
        let second = Duration::from_secs(1);
        // It takes a little in each second, then nothing.
        for passed in 1..=8 {
            pulse.turn(true, passed <= 3, true, start + passed * second);
            let next = pulse.next(false, start + passed * second);
            let is_over = passed == 8;
            assert_eq!(next == Next::GiveUp("it took nothing"), is_over, "{passed}: {next:?}");
        }
        // It need not take anything if nothing waits for it.
        pulse.turn(true, false, false, start + 9 * second);
        assert_eq!(pulse.next(false, start + 9 * second), Next::Tick);
    }

    #[test]
    fn a_node_that_reads_is_kept_while_the_question_waits() {
        let start = Instant::now();
        let mut pulse = Pulse::new(PATIENCE, true, start);
        pulse.asked(question(1), start);
        let second = Duration::from_secs(1);
        for passed in 1..=20 {
            pulse.turn(false, true, true, start + passed * second);
            assert_eq!(pulse.next(true, start + passed * second), Next::Wait, "{passed}");
        }
        // All bytes were taken, and are on their way. Bytes that did not wait are no sign of life.
        for passed in 21..=26 {
            pulse.turn(false, true, false, start + passed * second);
            let next = pulse.next(true, start + passed * second);
            let is_over = passed == 26;
            assert_eq!(
                next == Next::GiveUp("nothing was heard of it"),
                is_over,
                "{passed}: {next:?}"
            );
        }
    }

    #[test]
    fn unconfirmed_messages_are_asked_for_although_bytes_come() {
        let start = Instant::now();
        let mut pulse = Pulse::new(PATIENCE, true, start);
        pulse.asked(question(1), start);
        pulse.answered(&question(1), false, start);
        let now = start + PATIENCE / 4;
        pulse.turn(true, true, false, now);
        assert_eq!(pulse.next(true, now), Next::Ask);
        assert_eq!(pulse.next(false, now), Next::Wait);
        assert_eq!(pulse.until(false, &Beat::default(), now), now + PATIENCE / 4);
    }
}
