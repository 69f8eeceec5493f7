//! The values that the running process passes on to the processes that it spawns, or a thread that
//! runs no process. `within.rs` changes them.

pub(crate) mod within;

use std::cell::RefCell;

use crate::process::handling::Inherited;
use crate::process::slot::Slot;
use crate::scheduler::current::{drive_depth, with_local};
use crate::scheduler::local::LocalWorker;

thread_local! {
    /// The values of a thread that runs no process.
    static OUTSIDE: RefCell<OutsideValues> = const { RefCell::new((0, None)) };
}

/// Values, and the depth of the schedulers that the thread drives at which they are visible. What a
/// thread runs in a drive, for example the function of a timer, is no part of what it ran before.
type OutsideValues = (u32, Option<Inherited>);

/// Returns the values that are inherited from here.
pub(crate) fn present() -> Option<Inherited> {
    with_local(|local| local.map_or_else(outside, of_worker))
}

fn of_worker(local: &LocalWorker) -> Option<Inherited> {
    local.step.inherited().unwrap_or_else(outside)
}

fn outside() -> Option<Inherited> {
    let visible = |outside: &RefCell<OutsideValues>| match &*outside.borrow() {
        (depth, Some(values)) if *depth == drive_depth() => Some(values.clone()),
        _ => None,
    };
    // `Err` if the thread ends.
    OUTSIDE.try_with(visible).ok().flatten()
}

/// Replaces the values of a process, or of this thread.
fn replace(process: Option<&Slot>, values: OutsideValues) -> OutsideValues {
    match process {
        Some(slot) => {
            let (depth, values) = values;
            (depth, slot.extra_or_default().replace_inherited(values))
        }
        None => OUTSIDE.try_with(|place| place.replace(values)).unwrap_or_default(),
    }
}
