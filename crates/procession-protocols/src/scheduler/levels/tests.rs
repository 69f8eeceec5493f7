//! The queues beside a list of what each process should have.

use procession_sync::atomic::AtomicU64;
use procession_sync::atomic::Ordering::Relaxed;
use proptest::prelude::*;

use super::{Changed, Level, Levels, priority_in, word_of};
use crate::process::priority::Priority;
use crate::scheduler::seat_id::SeatId;

const PROCESSES: usize = 5;

#[derive(Clone, Copy, Debug)]
enum Action {
    Push(usize, Option<u32>),
    Pop(Option<u32>, Level),
    Change(usize, Priority),
}

fn action() -> impl Strategy<Value = Action> {
    let seat = || prop_oneof![Just(None), (0..2u32).prop_map(Some)];
    let level = prop_oneof![Just(Level::High), Just(Level::Batch)];
    let priority = proptest::sample::select(&Priority::ALL[..]);
    prop_oneof![
        (0..PROCESSES, seat()).prop_map(|(process, seat)| Action::Push(process, seat)),
        (seat(), level).prop_map(|(seat, level)| Action::Pop(seat, level)),
        (0..PROCESSES, priority).prop_map(|(process, priority)| Action::Change(process, priority)),
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
        // Place, level and process of each entry, oldest first.
        let mut queued: Vec<(Option<u32>, Level, usize)> = Vec::new();
        let mut priorities = [Priority::Normal; PROCESSES];
        for action in actions {
            match action {
                Action::Push(process, _) if queued.iter().any(|entry| entry.2 == process) => {}
                Action::Push(process, seat) => {
                    let pushed = levels.push(&words[process], seat.map(SeatId), process);
                    match Level::of(priorities[process]) {
                        None => prop_assert_eq!(pushed, Err(process)),
                        Some(level) => {
                            let same = |entry: &&_| matches!(entry, &&(at, of, _)
                                if at == seat && of == level);
                            prop_assert_eq!(pushed, Ok(queued.iter().find(same).is_none()));
                            queued.push((seat, level, process));
                        }
                    }
                }
                Action::Pop(seat, level) => {
                    let at = queued.iter().position(|entry| (entry.0, entry.1) == (seat, level));
                    let expected = at.map(|at| queued.remove(at).2);
                    prop_assert_eq!(levels.pop(seat.map(SeatId), level), expected);
                }
                Action::Change(process, priority) => {
                    let changed = levels.change(priority, || &words[process]);
                    let before = std::mem::replace(&mut priorities[process], priority);
                    let at = queued.iter().position(|entry| entry.2 == process);
                    match (at, Level::of(priority)) {
                        _ if before == priority => prop_assert_eq!(changed, Changed::Later),
                        (None, _) => prop_assert_eq!(changed, Changed::Later),
                        (Some(at), None) => {
                            queued.remove(at);
                            prop_assert_eq!(changed, Changed::Released(process));
                        }
                        (Some(at), Some(level)) => {
                            let (seat, ..) = queued.remove(at);
                            queued.push((seat, level, process));
                            prop_assert_eq!(changed, Changed::Moved);
                        }
                    }
                }
            }
            for (word, priority) in words.iter().zip(priorities) {
                prop_assert_eq!(priority_in(word.load(Relaxed)), priority);
            }
            for level in [Level::High, Level::Batch] {
                let count = queued.iter().filter(|entry| entry.1 == level).count();
                prop_assert_eq!(levels.len_everywhere(level), count);
            }
            prop_assert_eq!(levels.is_empty(), queued.is_empty());
        }
    }
}

#[test]
fn a_new_word_is_of_a_process_that_is_not_queued() {
    for priority in Priority::ALL {
        assert_eq!(priority_in(word_of(priority)), priority);
    }
}
