//! Schedulers that wait for one another.
//!
//! # Protocol of the refused wait
//!
//! ## Problem
//! A process may block its thread until a future is complete (`block_on`). If that was the last thread that its scheduler may have, nobody is
//! left there to run what the future waits for. Two schedulers can do the same to each other: the last thread of one waits for the other,
//! whose last thread waits for the first. Longer cycles hang in the same way. The thread that would close the cycle must get an
//! error instead.
//!
//! ## States
//! For each seat, under a lock of its own: the innermost root future that the thread of the seat waits for, which names the scheduler that
//! runs what it needs. A root *stands still* if it was polled and nothing has woken it since; it also does while its thread *asks*.
//! One lock of the whole program, for the one that asks.
//!
//! ## Steps
//! A thread that is about to wait in a process: `GiveBack` its permit (`idle.rs`) · `Register` its root at its seat · look whether its
//! scheduler has a thread left that runs, is parked, or can be started (and start it): then wait · else refuse, if it is its own
//! scheduler that it would wait for · else `Ask`.
//! `Ask`, under the lock of the program: `Follow` from the scheduler that is waited for: does it have a thread left, or a thread that has
//! given its permit back for anything else than a root, or a seat for callers that is free? Else go on with the schedulers that its threads
//! wait for. Found such a thread: ask no more, and wait. Found none, and every root stands still: `Withdraw` the root, and
//! refuse. Found none, but a root that does not stand still: its thread is about to go on; give the lock back, yield, and ask again.
//!
//! ## Why it works
//! A scheduler is stuck if every thread that it may have waits for one that is stuck. `Follow` visits all that can be reached,
//! and finds a cycle only if none of them has anybody else. Of the threads of a cycle, take the one that is last to look at its own
//! scheduler after it has registered. All others have given their permits back and registered by then, so it finds nobody
//! left, and asks. The lock orders those that ask at once: the first that refuses has withdrawn before the next one follows.
//! A thread whose root was woken goes on, and might serve the one that asks; so nobody is refused because of it.
//!
//! ## Allowed
//! - A root may be woken by something from outside at any moment. A wait is refused all the same if all threads stand still.
//! - After [`LOOKS`] looks at a root whose poll takes long, its thread counts as one that runs. If it then waits after all, the cycle is not
//!   found.
//! - In a future that a thread outside polls (`block_on`, not in a process), and while the thread panics, nothing is refused.
//!
//! ## Rejected
//! - To take every wait for a scheduler without threads for a cycle: a thread of it may return from a section, or from a wait for
//!   another scheduler.
//! - To count vacant seats as threads: a system that refuses threads left the wait without an end.
//!
//! ## Checked by
//! `it::blocked`.

use std::sync::Arc;

use procession_sync::{Mutex, thread};

use crate::root::Root;
use crate::shared::{Seat, Shared};

/// How often a thread that asks looks at roots that do not stand still. Picked out of thin air: some milliseconds in all, far more than a poll
/// takes that does not block.
const LOOKS: u32 = 1000;

/// Held by the one that asks. No user's code runs under it.
static ASKING: Mutex<()> = Mutex::new(());

/// The root that the thread of a seat waits for, while this is there.
pub(crate) struct Registered<'a> {
    seat: &'a Seat,
    /// Around it, if its poll has begun to wait in turn.
    outer: Option<Arc<Root>>,
}

impl<'a> Registered<'a> {
    /// `Register`.
    pub(crate) fn new(seat: &'a Seat, root: &Arc<Root>) -> Self {
        let outer =
            seat.waits_for.lock().expect("nothing that can panic runs under this lock").replace(Arc::clone(root));
        Self { seat, outer }
    }
}

impl Drop for Registered<'_> {
    fn drop(&mut self) {
        let mut waits_for = self.seat.waits_for.lock().expect("nothing that can panic runs under this lock");
        let own = std::mem::replace(&mut *waits_for, self.outer.take());
        drop(waits_for);
        drop(own);
    }
}

/// What `Follow` has found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Found {
    /// A thread that runs, or may.
    Somebody,
    /// Only threads that wait for one another.
    Nobody,
    /// Threads that wait for one another, of which one is about to go on.
    Unsettled,
}

/// `Ask`. Returns `None` if the wait is refused.
pub(crate) fn ask<'a>(registered: Registered<'a>, root: &Arc<Root>) -> Option<Registered<'a>> {
    for _ in 0..LOOKS {
        // Dropped after the lock is given back: each may be the last to hold its scheduler.
        let mut roots = vec![Arc::clone(root)];
        let asking = ASKING.lock().expect("nothing that can panic runs under this lock");
        root.set_asking(true);
        match follow(&mut roots) {
            Found::Somebody => {
                root.set_asking(false);
                return Some(registered);
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
        thread::yield_now();
    }
    root.set_asking(false);
    Some(registered)
}

/// `Follow`, from the first of the roots, which is the caller's own. Adds those that it finds.
fn follow(roots: &mut Vec<Arc<Root>>) -> Found {
    let mut found = Found::Nobody;
    let mut at = 0;
    while let Some(root) = roots.get(at) {
        let shared = Arc::clone(root.shared());
        let is_new = roots[..at].iter().all(|before| !Arc::ptr_eq(before.shared(), &shared));
        at += 1;
        if is_new && let Some(waiting) = waits_in(&shared) {
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

/// Returns what the threads of a scheduler wait for, or `None` if one of them does not wait, or somebody else could run there.
fn waits_in(shared: &Shared) -> Option<Vec<Arc<Root>>> {
    let rest = shared.rest();
    if rest.has_thread || rest.has_absent {
        return None;
    }
    let waits_for =
        |seat| shared.seat(seat).waits_for.lock().expect("nothing that can panic runs under this lock").clone();
    rest.out.into_iter().map(waits_for).collect()
}
