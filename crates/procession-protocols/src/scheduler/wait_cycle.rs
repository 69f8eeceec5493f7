//! The detection of schedulers that wait for one another.
//!
//! # Protocol of the refused wait
//!
//! ## Problem
//! A process may block its thread until a future is complete (`block_on`). If that was the last
//! thread that its scheduler may have, no thread is left there to run what the future waits for.
//! Two schedulers can also hang together: the last thread of one waits for the other, and the last
//! thread of the other waits for the first. Longer cycles hang in the same way. The thread that
//! would close the cycle must get an error instead.
//!
//! ## States
//! For each seat, under a lock of its scheduler: the innermost root future that the thread of the
//! seat waits for. The root names the scheduler that runs what it needs. A root *stands still* if
//! it was polled and nothing has woken it since, or while its thread *asks*. One lock for the whole
//! program is held by the thread that asks.
//!
//! ## Steps
//! A thread that is about to wait in a process:
//!
//! 1. `GiveBack` its permit (`scheduler/idle/permits.rs`).
//! 2. `Register` its root at its seat.
//! 3. Look whether its scheduler has a thread left that runs, is parked, or can be started (and
//!    start it). If so, wait.
//! 4. If it would wait for its own scheduler: wait if a thread has no permit and is in no section,
//!    and refuse otherwise. Such a thread was woken and is late, runs a step from which the
//!    watchdog has taken the permit, or is about to leave its section.
//! 5. Otherwise `Ask`.
//!
//! `Ask`, under the lock of the program: `Follow` from the scheduler that is waited for. Does it
//! have a thread left, or a thread that has given its permit back for anything other than a root,
//! or a seat for callers that is free? If not, continue with the schedulers that its threads wait
//! for.
//!
//! - Such a thread was found: stop asking, and wait.
//! - None was found, and every root stands still: `Withdraw` the root, and refuse.
//! - None was found, but a root that does not stand still: its thread is about to continue. Release
//!   the lock, pause, and ask again.
//!
//! ## Why it works
//! A scheduler is stuck if every thread that it may have waits for a stuck scheduler. `Follow`
//! visits all schedulers that can be reached, and finds a cycle only if no such scheduler has any
//! other thread. Of the threads of a cycle, take the thread that is last to look at its own
//! scheduler after it has registered. By then, all other threads of the cycle have returned their
//! permits and registered, so it finds no thread left, and asks. The lock orders threads that ask
//! at the same time: the first that refuses has withdrawn before the next one follows. A thread
//! with a woken root will continue, and might serve the thread that asks. So no wait is refused
//! because of such a root.
//!
//! Of the threads of one scheduler that wait for it, one finds all others in sections: each sets
//! the flag of its section and then looks at the seats under their lock. The lock shows the flags
//! of all that have looked before.
//!
//! ## Allowed
//! - A root may be woken by something from outside at any moment. A wait is refused nevertheless if
//!   all threads stand still.
//! - After `LOOKS` looks at a root with a long poll, its thread counts as a thread that runs. If it
//!   then waits after all, the cycle is not found. A thread that has asked has not polled its own
//!   future yet, which may be complete, so it must not ask for as long as another thread polls.
//! - Two threads of one scheduler that begin to wait for it at the same moment may both be
//!   refused.
//! - Nothing is refused in a future that an outside thread polls (`block_on`, not in a process), or
//!   while the thread panics.
//!
//! ## Rejected
//! - To treat every wait for a scheduler without threads as a cycle: a thread of that scheduler may
//!   return from a section, or from a wait for another scheduler.
//! - To `Ask` also before a wait for the own scheduler, so that a thread in a section counts as a
//!   thread that will return. What the section waits for may need this scheduler, and then neither
//!   ends.
//! - To yield between all looks: a thousand take less than a millisecond, and a thread that the
//!   system does not run for a time slice was taken for one with a long poll.
//! - To count vacant seats as threads: on a system that refuses threads, the wait never ended.
//!
//! ## Checked by
//! `it::blocked`; `models::the_last_threads_of_two_schedulers`, `models::canary_asking_unseen`,
//! `models::canary_withdraw_late`; `models::the_last_threads_of_one_scheduler`,
//! `models::canary_look_without_the_lock`.

use procession_sync::{Arc, Mutex};

/// The defects that canary models plant, one at a time.
pub mod mutation {
    pub use crate::util::mutant::is;

    /// No defect.
    pub const SOUND: u8 = 0;
    /// The code that is built: sound, unless the build has mutants.
    pub const BUILT: u8 = crate::util::mutant::planted("wait_cycle", SOUND);
    /// Other threads do not see that a thread asks.
    pub const ASKING_UNSEEN: u8 = 1;
    /// The root is withdrawn after the lock was released.
    pub const WITHDRAW_LATE: u8 = 2;
}

/// The number of times that a thread which asks looks at roots that do not stand still. With the
/// pauses, some 50 ms in all: more than a poll takes that does not block, and than the system keeps
/// a thread waiting for a processor. In a model, more often than a thread can be interrupted.
const LOOKS: u32 = if cfg!(procession_loom) { 5 } else { 200 };

/// A root future, as this protocol sees it. There is one real implementation, and one for models.
pub trait RootWaits: Sized {
    /// The scheduler of a root.
    type Scheduler;

    /// Returns the scheduler that runs what the root waits for.
    fn scheduler(&self) -> &Arc<Self::Scheduler>;

    /// Returns `true` if its thread waits for it and nothing has woken it, or if its thread asks.
    fn stands_still(&self) -> bool;

    /// Sets whether the thread of the root asks.
    fn set_asking(&self, asks: bool);

    /// Lets other threads run, after the look with this number.
    fn pause(&self, look: u32);

    /// Returns the roots that the threads of a scheduler wait for, or `None` if a thread does not
    /// wait, or another thread could run there.
    fn all_in(scheduler: &Self::Scheduler) -> Option<Vec<Arc<Self>>>;
}

/// Step 4: returns `true` if one of the threads without a permit will come back to its scheduler.
/// The caller has set the flag of the section that it is in, and after that has found the seats of
/// these threads under the lock of the seats.
pub fn one_returns<S>(out: impl IntoIterator<Item = S>, is_in_section: impl Fn(S) -> bool) -> bool {
    !out.into_iter().all(is_in_section)
}

/// The result of `Follow`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Found {
    /// A thread that runs, or may run.
    Somebody,
    /// Only threads that wait for one another.
    Nobody,
    /// Threads that wait for one another, while one of these threads is about to continue.
    Unsettled,
}

/// `Ask`, with a root that `registered` keeps registered. Returns `None` if the wait is refused. No
/// user code runs under the lock.
pub fn ask<W: RootWaits, R, const MUTATION: u8>(
    lock: &Mutex<()>,
    registered: R,
    root: &Arc<W>,
) -> Option<R> {
    for look in 0..LOOKS {
        // Dropped after the lock is released: each may be the last to hold its scheduler.
        let mut roots = vec![Arc::clone(root)];
        let asking = lock.lock();
        root.set_asking(!mutation::is(MUTATION, mutation::ASKING_UNSEEN));
        match follow(&mut roots) {
            Found::Somebody => {
                root.set_asking(false);
                return Some(registered);
            }
            Found::Nobody if mutation::is(MUTATION, mutation::WITHDRAW_LATE) => {
                drop(asking);
                drop(registered);
                return None;
            }
            Found::Nobody => {
                // `Withdraw`, before the next one asks. The caller holds the root.
                drop(registered);
                drop(asking);
                return None;
            }
            Found::Unsettled => {}
        }
        drop(asking);
        root.pause(look);
    }
    root.set_asking(false);
    Some(registered)
}

/// `Follow`, from the first of the roots, which is the caller's own. Adds the roots that it finds.
fn follow<W: RootWaits>(roots: &mut Vec<Arc<W>>) -> Found {
    let mut found = Found::Nobody;
    let mut at = 0;
    while let Some(root) = roots.get(at) {
        let scheduler = Arc::clone(root.scheduler());
        let is_new = roots[..at].iter().all(|before| !Arc::ptr_eq(before.scheduler(), &scheduler));
        at += 1;
        if is_new && let Some(waiting) = W::all_in(&scheduler) {
            if !waiting.iter().all(|root| root.stands_still()) {
                found = Found::Unsettled;
            }
            roots.extend(waiting);
        } else if is_new {
            return Found::Somebody;
        }
    }
    found
}

#[cfg(all(test, procession_loom))]
mod models {
    use procession_sync::atomic::AtomicBool;
    use procession_sync::atomic::Ordering::{Acquire, Relaxed, Release};
    use procession_sync::{Arc, Mutex, explore, thread};

    use super::{RootWaits, ask, mutation, one_returns};

    /// A scheduler of one thread: whether the thread has given its permit back, and the root that
    /// it waits for.
    #[derive(Default)]
    struct One {
        out: Mutex<bool>,
        waits_for: Mutex<Option<Arc<BlockOnFuture>>>,
    }

    struct BlockOnFuture {
        scheduler: Arc<One>,
        asks: AtomicBool,
        waits: AtomicBool,
    }

    impl RootWaits for BlockOnFuture {
        type Scheduler = One;

        fn scheduler(&self) -> &Arc<One> {
            &self.scheduler
        }

        fn stands_still(&self) -> bool {
            self.asks.load(Acquire) || self.waits.load(Acquire)
        }

        fn set_asking(&self, asks: bool) {
            self.asks.store(asks, Release);
        }

        fn pause(&self, _: u32) {
            thread::yield_now();
        }

        fn all_in(one: &One) -> Option<Vec<Arc<Self>>> {
            let out = *one.out.lock();
            let root = one.waits_for.lock().clone();
            if out { root.map(|root| vec![root]) } else { None }
        }
    }

    struct RegisteredRoot<'a>(&'a One);

    impl Drop for RegisteredRoot<'_> {
        fn drop(&mut self) {
            drop(self.0.waits_for.lock().take());
        }
    }

    /// Lets the thread of `own` wait for `other`. Returns `true` if the wait is refused.
    fn is_refused<const MUTATION: u8>(lock: &Mutex<()>, own: &One, other: &Arc<One>) -> bool {
        *own.out.lock() = true;
        let root = BlockOnFuture {
            scheduler: Arc::clone(other),
            asks: AtomicBool::new(false),
            waits: AtomicBool::new(false),
        };
        let root = Arc::new(root);
        *own.waits_for.lock() = Some(Arc::clone(&root));
        match ask::<_, _, MUTATION>(lock, RegisteredRoot(own), &root) {
            Some(registered) => {
                // The root is polled. In this model it then waits to the end.
                root.waits.store(true, Release);
                std::mem::forget(registered);
                false
            }
            None => {
                *own.out.lock() = false;
                true
            }
        }
    }

    /// The last threads of two schedulers are about to wait for one another's scheduler.
    fn wait_for_each_other<const MUTATION: u8>() {
        explore(|| {
            let lock = Arc::new(Mutex::new(()));
            let [one, other] = [Arc::new(One::default()), Arc::new(One::default())];
            let thread = {
                let (lock, one, other) = (Arc::clone(&lock), Arc::clone(&one), Arc::clone(&other));
                thread::spawn(move || is_refused::<MUTATION>(&lock, &other, &one))
            };
            let refused = [
                is_refused::<MUTATION>(&lock, &one, &other),
                thread.join().expect("it does not panic"),
            ];
            assert_ne!(refused, [false; 2], "they wait for each other");
            assert_ne!(refused, [true; 2], "one was refused that could have waited");
            // A root that waits holds the other scheduler, and the root that waits there.
            drop([&one, &other].map(|one| one.waits_for.lock().take()));
        });
    }

    #[test]
    fn the_last_threads_of_two_schedulers() {
        wait_for_each_other::<{ mutation::SOUND }>();
    }

    #[test]
    #[should_panic(expected = "they wait for each other")]
    fn canary_asking_unseen() {
        wait_for_each_other::<{ mutation::ASKING_UNSEEN }>();
    }

    #[test]
    #[should_panic(expected = "one was refused that could have waited")]
    fn canary_withdraw_late() {
        wait_for_each_other::<{ mutation::WITHDRAW_LATE }>();
    }

    /// A scheduler of two threads: which threads have no permit, and which threads are in sections.
    struct Pair {
        out: Mutex<[bool; 2]>,
        in_section: [AtomicBool; 2],
    }

    /// Lets a thread wait for its own scheduler. Returns `true` if the wait is refused. The defect
    /// is that a thread without its permit looks without the lock.
    fn is_refused_by_own<const LOCKS: bool>(pair: &Pair, own: usize, was_out: bool) -> bool {
        pair.in_section[own].store(true, Relaxed);
        if LOCKS || !was_out {
            pair.out.lock()[own] = true;
            if *pair.out.lock() != [true; 2] {
                // The other thread runs.
                return false;
            }
        }
        !one_returns([0, 1], |seat: usize| pair.in_section[seat].load(Relaxed))
    }

    /// The two threads of a scheduler are about to wait for it, with permits or without.
    fn wait_for_the_own<const LOCKS: bool>() {
        for were_out in [[false; 2], [false, true], [true; 2]] {
            explore(move || {
                let pair = Arc::new(Pair {
                    out: Mutex::new(were_out),
                    in_section: [AtomicBool::new(false), AtomicBool::new(false)],
                });
                let other = Arc::clone(&pair);
                let thread =
                    thread::spawn(move || is_refused_by_own::<LOCKS>(&other, 1, were_out[1]));
                let refused = is_refused_by_own::<LOCKS>(&pair, 0, were_out[0]);
                let refused = [refused, thread.join().expect("it does not panic")];
                assert_ne!(refused, [false; 2], "no thread is left to run what they wait for");
            });
        }
    }

    #[test]
    fn the_last_threads_of_one_scheduler() {
        wait_for_the_own::<true>();
    }

    #[test]
    #[should_panic(expected = "no thread is left to run what they wait for")]
    fn canary_look_without_the_lock() {
        wait_for_the_own::<false>();
    }
}
