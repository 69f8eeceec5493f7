//! The queues beside a list of what each process should have.

use procession_sync::atomic::AtomicU64;
use procession_sync::atomic::Ordering::Relaxed;
use proptest::prelude::*;

use super::{Changed, Level, Levels, ProcessKey, lends_in, own_in, priority_in, word_of};
use crate::process::priority::Priority;
use crate::scheduler::seat_id::SeatId;

const PROCESSES: usize = 5;

#[derive(Clone, Copy, Debug)]
enum Action {
    Push(usize, Option<u32>),
    Pop(Option<u32>, Level),
    Change(usize, Priority),
    /// From a process to a later one, so that there is no cycle.
    Lend(usize, usize),
    /// All that a process has lent, or only what it has lent to another one.
    TakeBack(usize, Option<usize>),
}

/// The processes, as they should be.
struct Expected<'a> {
    levels: &'a Levels<usize>,
    words: &'a [AtomicU64],
    own: [Priority; PROCESSES],
    borrowers: [Option<usize>; PROCESSES],
    /// Place, level and process of each entry, oldest first.
    queued: Vec<(Option<u32>, Level, usize)>,
}

fn key(process: usize) -> ProcessKey {
    (process as u32, 1)
}

impl Expected<'_> {
    fn priority(&self, process: usize) -> Priority {
        let lenders = (0..process).filter(|&from| self.borrowers[from] == Some(process));
        lenders
            .map(|from| self.priority(from))
            .max()
            .unwrap_or(Priority::Batch)
            .max(self.own[process])
    }

    /// Changes a process, and those that borrow from it.
    fn change(&mut self, process: usize, own: Option<Priority>) -> Result<(), TestCaseError> {
        let before = priority_in(self.words[process].load(Relaxed));
        self.own[process] = own.unwrap_or(self.own[process]);
        let priority = self.priority(process);
        let (changed, next) = self.levels.change(key(process), own, || &self.words[process]);
        let at = self.queued.iter().position(|entry| entry.2 == process);
        match (at, Level::of(priority)) {
            _ if before == priority => prop_assert_eq!(changed, Changed::Later),
            (None, _) => prop_assert_eq!(changed, Changed::Later),
            (Some(at), None) => {
                self.queued.remove(at);
                prop_assert_eq!(changed, Changed::Released(process));
            }
            (Some(at), Some(level)) => {
                let (seat, ..) = self.queued.remove(at);
                self.queued.push((seat, level, process));
                prop_assert_eq!(changed, Changed::Moved);
            }
        }
        let expected = self.borrowers[process].filter(|_| before != priority);
        prop_assert_eq!(next, expected.map(key));
        expected.map_or(Ok(()), |next| self.change(next, None))
    }
}

fn action() -> impl Strategy<Value = Action> {
    let seat = || prop_oneof![Just(None), (0..2u32).prop_map(Some)];
    let level = prop_oneof![Just(Level::High), Just(Level::Batch)];
    let priority = proptest::sample::select(&Priority::ALL[..]);
    prop_oneof![
        (0..PROCESSES, seat()).prop_map(|(process, seat)| Action::Push(process, seat)),
        (seat(), level).prop_map(|(seat, level)| Action::Pop(seat, level)),
        (0..PROCESSES, priority).prop_map(|(process, priority)| Action::Change(process, priority)),
        (0..PROCESSES - 1, 1..PROCESSES)
            .prop_map(|(from, by)| Action::Lend(from, (from + by).min(PROCESSES - 1))),
        (0..PROCESSES, proptest::option::of(0..PROCESSES))
            .prop_map(|(from, to)| Action::TakeBack(from, to)),
    ]
}

proptest! {
    /// Each queue is first in, first out, and a change moves an entry to the end of its new queue.
    #[test]
    fn entries_are_where_their_priorities_are(
        actions in proptest::collection::vec(action(), 1..60),
    ) {
        let levels = Levels::<usize>::new(2);
        let words: Vec<_> = (0..PROCESSES).map(|_| AtomicU64::new(0)).collect();
        let mut all = Expected {
            levels: &levels,
            words: &words,
            own: [Priority::Normal; PROCESSES],
            borrowers: [None; PROCESSES],
            queued: Vec::new(),
        };
        for action in actions {
            match action {
                Action::Push(process, _) if all.queued.iter().any(|entry| entry.2 == process) => {}
                Action::Push(process, seat) => {
                    let mut forgets = false;
                    let pushed =
                        levels.push(&words[process], seat.map(SeatId), process, || forgets = true);
                    let priority = all.priority(process);
                    let is_plain = [priority, all.own[process]] == [Priority::Normal; 2];
                    prop_assert_eq!(forgets, is_plain && all.borrowers[process].is_none());
                    match Level::of(priority) {
                        None => prop_assert_eq!(pushed, Err(process)),
                        Some(level) => {
                            let same = |entry: &&_| matches!(entry, &&(at, of, _)
                                if at == seat && of == level);
                            prop_assert_eq!(pushed, Ok(all.queued.iter().find(same).is_none()));
                            all.queued.push((seat, level, process));
                        }
                    }
                }
                Action::Pop(seat, level) => {
                    let is_it = |entry: &(_, _, _)| (entry.0, entry.1) == (seat, level);
                    let at = all.queued.iter().position(is_it);
                    let expected = at.map(|at| all.queued.remove(at).2);
                    prop_assert_eq!(levels.pop(seat.map(SeatId), level), expected);
                }
                Action::Change(process, priority) => all.change(process, Some(priority))?,
                Action::Lend(from, to) => {
                    let is_first = all.borrowers[from].is_none();
                    prop_assert_eq!(levels.lend(key(from), key(to), || &words[from]), is_first);
                    if is_first {
                        all.borrowers[from] = Some(to);
                        all.change(to, None)?;
                    }
                }
                Action::TakeBack(from, only) => {
                    let is_meant = |to: &mut usize| only.is_none_or(|only| only == *to);
                    let to = all.borrowers[from].take_if(is_meant);
                    let taken = levels.take_back(key(from), &words[from], only.map(key));
                    prop_assert_eq!(taken, to.map(key));
                    to.map_or(Ok(()), |to| all.change(to, None))?;
                }
            }
            for (process, word) in words.iter().enumerate() {
                let word = word.load(Relaxed);
                prop_assert_eq!(priority_in(word), all.priority(process));
                prop_assert_eq!(own_in(word), all.own[process]);
                prop_assert_eq!(lends_in(word), all.borrowers[process].is_some());
            }
            for level in [Level::High, Level::Batch] {
                let count = all.queued.iter().filter(|entry| entry.1 == level).count();
                prop_assert_eq!(levels.len_everywhere(level), count);
            }
            prop_assert_eq!(levels.is_empty(), all.queued.is_empty());
        }
    }
}

#[test]
fn a_new_word_is_of_a_process_that_is_not_queued() {
    for (own, priority) in Priority::ALL.into_iter().zip([Priority::High; 3]) {
        let word = word_of(own, priority, true);
        assert_eq!((own_in(word), priority_in(word), lends_in(word)), (own, priority, true));
    }
}
