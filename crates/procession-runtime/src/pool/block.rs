//! Waits of plain threads, on the clock of pools that belong to no scheduler.

use std::sync::{Arc, OnceLock};
use std::task::{Context as TaskContext, Poll, Wake, Waker};
use std::time::Duration;

use procession_protocols::scheduler::seat_id::NEVER;

use crate::sys::{Parker, World, nanoseconds};

/// Returns the clock and the threads of pools that belong to no scheduler.
pub(super) fn world() -> &'static World {
    static WORLD: OnceLock<World> = OnceLock::new();
    WORLD.get_or_init(|| World::real(None))
}

/// The waker of a parked thread.
#[derive(Default)]
pub(super) struct ThreadWaker(Parker);

impl Wake for ThreadWaker {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.0.unpark();
    }
}

impl ThreadWaker {
    pub(super) fn park_until(&self, deadline: u64) {
        world().park(&self.0, deadline);
    }
}

/// Returns the deadline of a wait that begins now.
pub(super) fn deadline_after(timeout: Option<Duration>) -> u64 {
    timeout.map_or(NEVER, |timeout| world().now_here().saturating_add(nanoseconds(timeout)))
}

/// Polls on this thread until there is a result. Returns `None` after the timeout.
pub(super) fn block<T>(
    timeout: Option<Duration>,
    mut poll: impl FnMut(&mut TaskContext<'_>) -> Poll<T>,
) -> Option<T> {
    let deadline = deadline_after(timeout);
    let thread = Arc::new(ThreadWaker::default());
    let waker = Waker::from(Arc::clone(&thread));
    let mut task = TaskContext::from_waker(&waker);
    loop {
        if let Poll::Ready(result) = poll(&mut task) {
            return Some(result);
        }
        if deadline != NEVER && world().now_here() >= deadline {
            // Polls once more, because the result may have come since.
            return match poll(&mut task) {
                Poll::Ready(result) => Some(result),
                Poll::Pending => None,
            };
        }
        thread.park_until(deadline);
    }
}
