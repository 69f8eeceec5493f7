//! The schedulers of this program, by number.

use std::sync::{Arc, Weak};

use procession_protocols::util::sorted_map::SortedMap;
use procession_sync::Mutex;

use crate::Pid;
use crate::mailbox::parcel::Relay;
use crate::process::slot::SlotRef;
use crate::scheduler::current;
use crate::scheduler::current::Hold;
use crate::scheduler::shared::Shared;

/// The schedulers that may still be reached by PID.
static REACHABLE: Mutex<SortedMap<u32, Weak<Shared>>> = Mutex::new(SortedMap::new());

/// Makes a scheduler reachable by PID.
pub(crate) fn make_reachable(shared: &Arc<Shared>) {
    let mut reachable = REACHABLE.lock();
    reachable.retain(|_, shared| shared.strong_count() > 0);
    reachable.insert(shared.id(), Arc::downgrade(shared));
}

/// Pins the process of a PID, if it is on this node and has not ended.
pub(crate) fn find(pid: Pid) -> Option<SlotRef> {
    if pid.node() != 0 {
        return None;
    }
    let shared = reach(pid.scheduler())?;
    shared.table().pin(pid.slot(), pid.generation()).filter(|slot| !slot.state.see().is_complete())
}

/// Returns the scheduler with this number, if it still exists.
pub(crate) fn reach(id: u32) -> Option<Hold> {
    let here = current::here().filter(|shared| shared.id() == id);
    here.or_else(|| {
        let reachable = REACHABLE.lock();
        reachable.get(&id)?.upgrade().map(Hold::Shared)
    })
}

/// Returns the relay of this thread's scheduler for a message to `pid`, unless `pid` belongs to
/// that scheduler or there is no relay.
pub(crate) fn relay_to(pid: Pid) -> Option<Arc<dyn Relay>> {
    let here = current::here()?;
    if pid.node() == 0 && pid.scheduler() == here.id() {
        None
    } else {
        here.extensions.relay.clone()
    }
}
