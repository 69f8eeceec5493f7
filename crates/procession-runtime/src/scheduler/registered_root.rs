//! Root futures, as the protocol of wait cycles sees them (`scheduler/wait_cycle.rs` of the crate
//! `procession-protocols`): which root the thread of a seat waits for, among all schedulers.

use std::sync::Arc;

use procession_protocols::scheduler::seat_id::SeatId;
use procession_protocols::scheduler::wait_cycle::{RootWaits, ask, mutation};
use procession_sync::{Mutex, thread};

use crate::scheduler::root::{BlockOnFuture, Callers};
use crate::scheduler::shared::Shared;

/// The number of looks with a mere yield between them. Most roots stand still by then.
const YIELDS: u32 = 100;
/// The nanoseconds between two later looks.
const REST: u64 = 500_000;

/// The lock of the thread that asks.
static ASKING: Mutex<()> = Mutex::new(());

/// Keeps the root registered that the thread of a seat waits for, until it is dropped.
pub(crate) struct RegisteredRoot<'a> {
    callers: &'a Callers,
    seat: SeatId,
    /// The outer root, if its poll has begun to wait in turn.
    outer: Option<Arc<BlockOnFuture>>,
}

impl<'a> RegisteredRoot<'a> {
    /// `Register`.
    pub(crate) fn new(callers: &'a Callers, seat: SeatId, root: &Arc<BlockOnFuture>) -> Self {
        let outer = callers.replace_root(seat, Some(Arc::clone(root)));
        Self { callers, seat, outer }
    }
}

impl Drop for RegisteredRoot<'_> {
    fn drop(&mut self) {
        drop(self.callers.replace_root(self.seat, self.outer.take()));
    }
}

/// `Ask`, among all schedulers of the program.
pub(crate) fn ask_in_program<'a>(
    registered: RegisteredRoot<'a>,
    root: &Arc<BlockOnFuture>,
) -> Option<RegisteredRoot<'a>> {
    ask::<_, _, { mutation::BUILT }>(&ASKING, registered, root)
}

impl RootWaits for BlockOnFuture {
    type Scheduler = Shared;

    fn scheduler(&self) -> &Arc<Shared> {
        self.shared()
    }

    fn stands_still(&self) -> bool {
        self.stands_still()
    }

    fn set_asking(&self, asks: bool) {
        self.set_asking(asks);
    }

    fn pause(&self, look: u32) {
        match look {
            0..YIELDS => thread::yield_now(),
            _ => self.shared().world.rest(REST),
        }
    }

    fn all_in(shared: &Shared) -> Option<Vec<Arc<Self>>> {
        let rest = shared.workforce.rest();
        if rest.has_thread || rest.has_absent {
            return None;
        }
        rest.out.into_iter().map(|seat| shared.callers.root_of(seat)).collect()
    }
}
