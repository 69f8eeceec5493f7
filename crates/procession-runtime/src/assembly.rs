//! The assembly of a scheduler: the one place that knows all parts that are built around the kernel
//! (`scheduler/part.rs`).

#[cfg(feature = "tokio")]
use crate::bridge::part::TokioPart;
#[cfg(feature = "door")]
use crate::door::part::DoorPart;
#[cfg(feature = "look")]
use crate::observe::leaks::search::LeakCounts;
#[cfg(any(feature = "door", feature = "metrics"))]
use crate::observe::pool_figures::PoolRegistry;
#[cfg(feature = "look")]
use crate::observe::section::Sections;
use crate::recorder::dump::Dumps;
use crate::report::kept::Reports;
use crate::scheduler::builder::Builder;
use crate::scheduler::clock::timekeeper::Timekeeper;
use crate::scheduler::handles::Handles;
use crate::scheduler::health::state::HealthState;
use crate::scheduler::helpers::Helpers;
use crate::scheduler::owner::Scheduler;
use crate::scheduler::part::Parts;
use crate::scheduler::stalls::samples::SampleTable;
use crate::scheduler::starved::Starved;
use crate::watchdog::cycles::WaitCycles;
use crate::watchdog::hook::StallHook;

impl Scheduler {
    /// Returns a builder with the defaults.
    pub fn builder() -> Builder {
        let parts = Parts::default()
            .with(Reports::default())
            .with(Dumps::default())
            .with(SampleTable::default())
            .with(StallHook::default())
            .with(WaitCycles::default())
            .with(Helpers::default())
            .with(Handles::default())
            .with(HealthState::default())
            .with(Starved::default())
            .with(Timekeeper::default());
        #[cfg(feature = "hyper")]
        crate::process::exit::outputs::know_errors(|any| {
            any.downcast_ref::<hyper::Error>().map(|error| error as _)
        });
        #[cfg(feature = "look")]
        let parts = parts.with(Sections::default()).with(LeakCounts::default());
        #[cfg(any(feature = "door", feature = "metrics"))]
        let parts = parts.with(PoolRegistry::default());
        #[cfg(feature = "tokio")]
        let parts = parts.with(TokioPart::default());
        // The last part, because the door shows the parts before it.
        #[cfg(feature = "door")]
        let parts = parts.with(DoorPart::default());
        Builder::with_parts(parts)
    }
}
