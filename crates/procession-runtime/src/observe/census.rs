//! The census: processes by state and kind, counted in one pass without a row for each.

use procession_protocols::util::sorted_map::SortedMap;

use crate::observe::process_info;
use crate::process::slot::SlotRef;
use crate::scheduler::shared::Shared;

/// Numbers of processes, and sums over all processes.
#[derive(Debug, Default)]
pub(crate) struct Census {
    /// The processes of each state and kind.
    pub(crate) processes: SortedMap<(&'static str, &'static str), u64>,
    /// Messages received by processes that have not ended.
    pub(crate) received: u64,
    /// Messages in the mailboxes.
    pub(crate) waiting: u64,
    /// The length of the longest mailbox.
    pub(crate) longest: u32,
}

/// Returns the processes that are not forgotten, one after the other. A complete process without a
/// handle is forgotten, even if it still has addresses.
pub(crate) fn each(shared: &Shared) -> impl Iterator<Item = SlotRef> {
    let all = (0..shared.table().used()).filter_map(|index| shared.table().pin_any(index));
    all.filter(|slot| {
        let seen = slot.state.see();
        !seen.is_complete() || seen.has_handle()
    })
}

/// Counts the processes that are not forgotten, as snapshots do.
pub(crate) fn take(shared: &Shared) -> Census {
    let in_steps = process_info::in_steps(shared);
    let mut census = Census::default();
    for slot in each(shared) {
        let seen = slot.state.see();
        let state = process_info::state(&slot, seen, &in_steps).name();
        *census.processes.get_or_default((state, slot.kind().name)) += 1;
        if !seen.is_complete() {
            census.received += u64::from(slot.received());
        }
        let length = slot.bounded().map_or_else(|| slot.mailbox_length(), |(length, ..)| length);
        census.waiting += u64::from(length);
        census.longest = census.longest.max(length);
    }
    census
}
