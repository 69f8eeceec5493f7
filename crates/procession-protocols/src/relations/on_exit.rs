//! Entries that others leave with a process, to be settled when it ends: links, monitors, a name.
//!
//! # On-exit protocol
//!
//! ## Problem
//! A watcher monitors a process while it ends. The end has already looked for watchers, so it sends
//! no down, and the watcher waits forever. Or the end sends a down, and the watcher, which finds
//! the process ended, also sends a down: it arrives twice.
//!
//! ## States
//! The entries are under a lock. The bit `RELATED` of the state word (`process/state.rs`) is set if
//! there may be entries.
//!
//! ## Steps
//! To leave an entry:
//! - `Enter` the entry under the lock.
//! - `Mark` the state word with one read-modify-write, `relate`.
//! - If `Mark` finds the process complete, `Withdraw` the entry under the lock. If it was still
//!   there, the process that left it settles it.
//!
//! The end:
//! - `Complete`, one read-modify-write of the same word. If it finds `RELATED`, it fails once. The
//!   end then takes out the name and the tables of the process, notes under the lock that the
//!   process enters no others (`Release`), and repeats `Complete`.
//! - If it finds `RELATED`, `Settle`: take all entries out under the lock, and signal each.
//!
//! A relation of two processes is an entry on each side, each under its own lock: first on the side
//! of the process that asks for it, then on the other side. Another thread may ask on behalf of a
//! process, which then may end between the two. So the thread looks at the first entry once more
//! after it has made the second (`LookAgain`). If the first entry is gone, it withdraws the second.
//! If the process has ended, and the second entry was still there, it signals the other side.
//!
//! The two locks are never held together. An end that takes out one side signals the other only if
//! it finds itself there, and removes that entry in the same critical section. Both entries of a
//! link have its number. `Unlink` removes its own entries first, and then the entries of the other
//! side that have the same numbers.
//!
//! ## Why it works
//! `Mark` and `Complete` change one word, so either is first. If it is `Mark`, `Complete` sees
//! `RELATED`, and `Settle` finds the entry, which was made before. If it is `Complete`, `Mark` sees
//! the end. `Settle` may run all the same, because of the mark of another entry. Because of the
//! lock, exactly one of `Withdraw` and `Settle` then gets the entry.
//!
//! The other side of a link is signalled by the operation that finds the link there: exactly one of
//! an end, an unlink and a failed link of the same two processes. A `Settle` that has taken the
//! first entry either finds the second entry, or was before it. In the latter case, `LookAgain`
//! finds the first entry gone, and sees the end: the lock of the first side orders them. Between
//! the two halves of an `Unlink`, the other process may unlink and link again. The new link has
//! another number and stays whole.
//!
//! Nobody finds a name of a process that has ended. The name was entered before `Release`, which is
//! before `Complete`, or it is refused. If the `Mark` of a name follows a `Complete` that has found
//! no `RELATED`, the name is withdrawn under the lock of the names, which `whereis` takes.
//!
//! ## Allowed
//! The row of a table is inserted before the process enters the table. If another thread inserts a
//! row while the process ends, lookups may find the row until that thread removes it.
//!
//! A process that is `RELATED` but has no entries left takes its lock once at its end.
//!
//! ## Rejected
//! Looking for entries at every end, behind a fence. Most processes have no relations, and would
//! pay for both.
//!
//! ## Checked by
//! `models::leave_against_end`, `models::canary_mark_before_enter`, `models::link_against_end`,
//! `models::both_ends_of_a_link_end`, `models::canary_link_told_without_looking`,
//! `models::unlink_against_unlink_and_link`, `models::canary_links_without_numbers`,
//! `models::link_against_own_end`, `models::canary_link_without_looking_again`,
//! `models::name_against_end`, `models::canary_release_after_complete`,
//! `models::canary_name_after_release`.

use procession_sync::Mutex;

use crate::process::state::{Seen, State};

/// The defects that canary models plant, one at a time.
pub mod mutation {
    pub use crate::util::mutant::is;

    /// No defect.
    pub const SOUND: u8 = 0;
    /// The code that is built: sound, unless the build has mutants.
    pub const BUILT: u8 = crate::util::mutant::planted("on_exit", SOUND);
    /// `Mark` is before `Enter`.
    pub const MARK_BEFORE_ENTER: u8 = 1;
    /// `Release` is after `Complete`.
    pub const RELEASE_AFTER_COMPLETE: u8 = 2;
}

/// The result of leaving an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Left {
    /// The end of the process settles the entry, or has settled it.
    There,
    /// The process has ended. The entry was withdrawn before anything else saw it.
    TooLate,
}

/// The entries of a process, under their lock.
#[derive(Debug, Default)]
pub struct OnExitHooks<T, const MUTATION: u8 = { mutation::BUILT }>(Mutex<T>);

impl<T: Default, const MUTATION: u8> OnExitHooks<T, MUTATION> {
    /// Accesses the entries. `access` runs no user code.
    pub fn with<R>(&self, access: impl FnOnce(&mut T) -> R) -> R {
        access(&mut self.0.lock())
    }

    /// `Enter`, `Mark` and, if the process has ended, `Withdraw`. `withdraw` returns `true` if the
    /// entry was there.
    pub fn leave(
        &self,
        state: &State,
        enter: impl FnOnce(&mut T),
        withdraw: impl FnOnce(&mut T) -> bool,
    ) -> Left {
        let ended = if mutation::is(MUTATION, mutation::MARK_BEFORE_ENTER) {
            let ended = state.relate().is_complete();
            self.with(enter);
            ended
        } else {
            self.with(enter);
            state.relate().is_complete()
        };
        if ended && self.with(withdraw) { Left::TooLate } else { Left::There }
    }

    /// `Complete`. If there may be entries, calls `release` before, which does `Release`.
    #[inline]
    pub fn complete(state: &State, mut release: impl FnMut()) -> Seen {
        let mut released = mutation::is(MUTATION, mutation::RELEASE_AFTER_COMPLETE);
        loop {
            if let Some(seen) = state.complete(released) {
                if mutation::is(MUTATION, mutation::RELEASE_AFTER_COMPLETE) {
                    release();
                }
                return seen;
            }
            release();
            released = true;
        }
    }

    /// `Settle`: takes all entries out, for the end to signal.
    pub fn settle(&self) -> T {
        self.with(std::mem::take)
    }
}

#[cfg(all(test, procession_loom))]
mod models {
    use std::cell::Cell;

    use procession_sync::{Arc, Mutex, explore, thread};

    use super::{Left, OnExitHooks, mutation};
    use crate::process::state::State;

    /// A process: its state word, and the numbers of the processes that its end signals.
    struct Process<const MUTATION: u8> {
        state: State,
        on_exit: OnExitHooks<Vec<u32>, MUTATION>,
    }

    fn process<const MUTATION: u8>() -> Process<MUTATION> {
        let process = Process { state: State::vacant(), on_exit: OnExitHooks::default() };
        process.state.renew();
        process
    }

    fn end<const MUTATION: u8>(process: &Process<MUTATION>) -> Vec<u32> {
        if process.state.complete(true).expect("its names are released").is_related() {
            process.on_exit.settle()
        } else {
            Vec::new()
        }
    }

    fn take_out(entries: &mut Vec<u32>, who: u32) -> bool {
        let place = entries.iter().position(|&entry| entry == who);
        place.map(|place| entries.remove(place)).is_some()
    }

    fn leave<const MUTATION: u8>(process: &Process<MUTATION>, who: u32) -> Left {
        process.on_exit.leave(
            &process.state,
            |entries| entries.push(who),
            |entries| take_out(entries, who),
        )
    }

    fn watch<const MUTATION: u8>() {
        explore(|| {
            let watched = Arc::new(process::<MUTATION>());
            let _ = watched.state.start();
            // Another entry, so that the end settles in any case.
            assert_eq!(leave(&watched, 2), Left::There);
            let watcher = {
                let watched = Arc::clone(&watched);
                thread::spawn(move || u32::from(leave(&watched, 1) == Left::TooLate))
            };
            let told = end(&watched).iter().filter(|&&who| who == 1).count() as u32;
            let told = told + watcher.join().expect("the watcher does not panic");
            assert_eq!(told, 1, "exactly one tells the watcher");
        });
    }

    #[test]
    fn leave_against_end() {
        watch::<{ mutation::SOUND }>();
    }

    #[test]
    #[should_panic(expected = "exactly one tells the watcher")]
    fn canary_mark_before_enter() {
        watch::<{ mutation::MARK_BEFORE_ENTER }>();
    }

    /// The entries of a process that may have a name.
    #[derive(Default)]
    struct Named {
        is_named: bool,
        is_released: bool,
    }

    /// A process that may have a name, and the table of names.
    #[derive(Default)]
    struct NamedProcess<const MUTATION: u8> {
        on_exit: OnExitHooks<Named, MUTATION>,
        is_in_table: Mutex<bool>,
    }

    /// A thread names a process that ends. Another thread, which sees the end, looks the name up.
    fn name<const MUTATION: u8, const REFUSES: bool, const IS_RELATED: bool>() {
        explore(|| {
            let named = Arc::new((State::vacant(), NamedProcess::<MUTATION>::default()));
            named.0.renew();
            let _ = named.0.start();
            if IS_RELATED {
                let _ = named.0.relate();
            }
            let namer = {
                let named = Arc::clone(&named);
                thread::spawn(move || {
                    let (state, process) = &*named;
                    let mut table = process.is_in_table.lock();
                    *table = true;
                    let is_late = Cell::new(false);
                    let left = process.on_exit.leave(
                        state,
                        |entries| {
                            is_late.set(REFUSES && entries.is_released);
                            entries.is_named = !is_late.get();
                        },
                        |entries| std::mem::take(&mut entries.is_named),
                    );
                    if is_late.get() || left == Left::TooLate {
                        *table = false;
                    }
                })
            };
            let looker = {
                let named = Arc::clone(&named);
                thread::spawn(move || {
                    let is_over = named.0.see().is_complete();
                    assert!(!is_over || !*named.1.is_in_table.lock(), "the name is of no process");
                })
            };
            let (state, process) = &*named;
            let _ = OnExitHooks::<Named, MUTATION>::complete(state, || {
                let was_named = process.on_exit.with(|entries| {
                    entries.is_released = true;
                    std::mem::take(&mut entries.is_named)
                });
                if was_named {
                    *process.is_in_table.lock() = false;
                }
            });
            namer.join().expect("the namer does not panic");
            looker.join().expect("the name is of no process");
        });
    }

    #[test]
    fn name_against_end() {
        name::<{ mutation::SOUND }, true, true>();
        name::<{ mutation::SOUND }, true, false>();
    }

    #[test]
    #[should_panic(expected = "the name is of no process")]
    fn canary_release_after_complete() {
        name::<{ mutation::RELEASE_AFTER_COMPLETE }, true, true>();
    }

    #[test]
    #[should_panic(expected = "the name is of no process")]
    fn canary_name_after_release() {
        name::<{ mutation::SOUND }, false, true>();
    }

    /// Process 1 links to process 2 while process 2 ends.
    #[test]
    fn link_against_end() {
        explore(|| {
            let pair = Arc::new([process::<{ mutation::SOUND }>(), process()]);
            let _ = pair[1].state.start();
            let ending = {
                let pair = Arc::clone(&pair);
                thread::spawn(move || {
                    let peers = end(&pair[1]);
                    u32::from(
                        peers.contains(&1) && pair[0].on_exit.with(|entries| take_out(entries, 2)),
                    )
                })
            };
            pair[0].on_exit.with(|entries| entries.push(2));
            let late = leave(&pair[1], 1) == Left::TooLate;
            let told = u32::from(late && pair[0].on_exit.with(|entries| take_out(entries, 2)));
            assert_eq!(
                told + ending.join().expect("the end does not panic"),
                1,
                "exactly one signal"
            );
        });
    }

    /// A thread links process 1 to process 2, and process 1 ends.
    fn links_for_another<const LOOKS_AGAIN: bool>() {
        explore(|| {
            let pair = Arc::new([process::<{ mutation::SOUND }>(), process()]);
            let _ = pair[0].state.start();
            let ending = {
                let pair = Arc::clone(&pair);
                thread::spawn(move || {
                    let peers = end(&pair[0]);
                    u32::from(
                        peers.contains(&2) && pair[1].on_exit.with(|entries| take_out(entries, 1)),
                    )
                })
            };
            pair[0].on_exit.with(|entries| entries.push(2));
            let told = if pair[0].state.relate().is_complete() {
                1
            } else {
                assert_eq!(leave(&pair[1], 1), Left::There);
                let is_there = pair[0].on_exit.with(|entries| entries.contains(&2));
                u32::from(
                    LOOKS_AGAIN
                        && !is_there
                        && pair[1].on_exit.with(|entries| take_out(entries, 1))
                        && pair[0].state.see().is_complete(),
                )
            };
            let told = told + ending.join().expect("the end does not panic");
            assert_eq!(told, 1, "exactly one signal");
        });
    }

    #[test]
    fn link_against_own_end() {
        links_for_another::<true>();
    }

    #[test]
    #[should_panic(expected = "exactly one signal")]
    fn canary_link_without_looking_again() {
        links_for_another::<false>();
    }

    /// Two linked processes end at the same time.
    fn ends<const LOOKS: bool>() {
        explore(|| {
            let pair = Arc::new([process::<{ mutation::SOUND }>(), process()]);
            for (own, other) in [(0, 2), (1, 1)] {
                let _ = pair[own].state.start();
                assert_eq!(leave(&pair[own], other), Left::There);
            }
            let told = |own: usize, pair: &[Process<{ mutation::SOUND }>; 2]| {
                let other = 1 - own;
                let linked = !end(&pair[own]).is_empty();
                let there = pair[other].on_exit.with(|entries| take_out(entries, own as u32 + 1));
                u32::from(linked && (there || !LOOKS))
            };
            let second = {
                let pair = Arc::clone(&pair);
                thread::spawn(move || told(1, &pair))
            };
            let told = told(0, &pair) + second.join().expect("the end does not panic");
            assert!(told <= 1, "of two that end, at most one is told, by the first");
        });
    }

    #[test]
    fn both_ends_of_a_link_end() {
        ends::<true>();
    }

    #[test]
    #[should_panic(expected = "at most one is told")]
    fn canary_link_told_without_looking() {
        ends::<false>();
    }

    /// Two linked processes unlink, and one process links again at the same time.
    fn unlinks<const NUMBERS: bool>() {
        explore(|| {
            // The numbers of the links that each side has with the other.
            let sides: Arc<[OnExitHooks<Vec<u32>>; 2]> =
                Arc::new([OnExitHooks::default(), OnExitHooks::default()]);
            sides.iter().for_each(|side| side.with(|links| links.push(1)));
            let unlink = |sides: &[OnExitHooks<Vec<u32>>; 2], own: usize| {
                let taken = sides[own].with(std::mem::take);
                sides[1 - own].with(|links| links.retain(|link| NUMBERS && !taken.contains(link)));
            };
            let other = {
                let sides = Arc::clone(&sides);
                thread::spawn(move || unlink(&sides, 1))
            };
            unlink(&sides, 0);
            sides[0].with(|links| links.push(2));
            sides[1].with(|links| links.push(2));
            other.join().expect("unlinking does not panic");
            let [first, second] = [0, 1].map(|side: usize| sides[side].with(|links| links.clone()));
            assert_eq!(first, second, "both have the link, or neither");
        });
    }

    #[test]
    fn unlink_against_unlink_and_link() {
        unlinks::<true>();
    }

    #[test]
    #[should_panic(expected = "both have the link, or neither")]
    fn canary_links_without_numbers() {
        unlinks::<false>();
    }
}
