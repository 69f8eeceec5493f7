//! Random choices of code that may run on any thread.

use std::sync::Arc;

use procession_sync::atomic::AtomicU64;
use procession_sync::atomic::Ordering::Relaxed;

use crate::scheduler::current::with_local;
use crate::sys::os;
use crate::util::generator::Generator;

/// Returns a number below `count`, drawn from the generator of the worker that this thread is.
/// Other threads draw in turn, since their order is not the scheduler's choice.
pub(crate) fn chance(count: usize) -> usize {
    if count < 2 {
        return 0;
    }
    with_local(|local| match local {
        Some(local) => local.queues.draw(count),
        None => Generator::with_seed(next_turn()).below(count),
    })
}

/// Returns how many numbers threads without a worker have drawn before, in this program or in a
/// simulated one.
fn next_turn() -> u64 {
    static TURN: AtomicU64 = AtomicU64::new(0);
    let turn = |turn: &AtomicU64| turn.fetch_add(1, Relaxed);
    let Some(os) = os::here() else { return turn(&TURN) };
    let own = os.local("chance", &|| Arc::new(AtomicU64::new(0)));
    own.downcast_ref().map_or(0, turn)
}
