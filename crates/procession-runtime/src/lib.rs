//! The processes, the scheduler and everything around them.
//!
//! This is an inner crate of `procession`, and makes no promise of stability: any version may
//! change or remove any item. Depend on `procession` instead, which has the same items and their
//! documentation.
// The pages of `procession` show a label only for what has the cfg itself, and not for what a
// module with a cfg contains. So these items and `impl` blocks have labels of their own.
#![cfg_attr(docsrs, feature(doc_cfg))]
#![deny(unsafe_code)]
#![cfg_attr(
    not(all(feature = "io", feature = "look", feature = "pool", feature = "supervision")),
    expect(dead_code, reason = "the kernel has what all features need, and some are off")
)]

#[cfg(not(any(target_os = "linux", target_os = "macos")))]
compile_error!("procession supports Linux and macOS; docs/PLATFORMS.md says what a port needs");

mod assembly;
#[cfg(feature = "supervision")]
pub mod behaviour;
#[cfg(feature = "tokio")]
mod bridge;
#[expect(unsafe_code, reason = "coroutines run on stacks of their own")]
pub mod coroutine;
#[cfg(feature = "door")]
pub mod door;
#[cfg(feature = "io")]
pub mod fs;
#[cfg(feature = "supervision")]
pub mod group;
#[cfg(feature = "hyper")]
#[doc(hidden)]
pub mod inner;
#[cfg(feature = "io")]
pub mod io;
pub mod machine;
pub mod mailbox;
mod missing_features;
#[cfg(feature = "io")]
pub mod net;
mod observe;
#[cfg(feature = "io")]
pub mod os_process;
pub mod pool;
pub mod process;
mod reactor;
pub mod recorder;
pub mod relations;
pub mod report;
pub mod scheduler;
#[cfg(feature = "serde")]
mod serialize;
#[cfg(feature = "signal")]
pub mod signal;
mod spawn;
#[cfg(feature = "io")]
mod stdio;
#[cfg(feature = "stream")]
pub mod stream;
#[cfg(feature = "supervision")]
pub mod supervisor;
pub mod sync;
mod sys;
#[cfg(all(feature = "macros", feature = "look"))]
pub mod testing;
pub mod time;
mod util;
#[cfg(doctest)]
mod variance;
mod watchdog;

mod api;
pub use api::*;

// What a feature adds to the root stands here, not in `api`: if the feature is off, the compiler
// looks for the item here, and names the feature.

#[cfg(feature = "tokio")]
pub mod compat {
    //! Single futures that need tokio, in processes of any scheduler.

    pub use crate::bridge::{Compat, CompatError, compat};
}

#[cfg(feature = "supervision")]
pub use crate::group::join_set::JoinSet;

#[cfg(feature = "look")]
pub mod look {
    //! Looks at the processes of a running scheduler: which use the processor, which wait, where
    //! and for what.
    //!
    //! [`Scheduler::look`](crate::Scheduler::look) answers a [`Query`] with a [`View`]. It visits
    //! every process once and returns only the rows and groups that were asked for, so it is fit
    //! for schedulers with millions of processes. Nothing needs to be enabled, and workers are not
    //! stopped.

    pub use crate::mailbox::context::inspecting::Inspecting;
    pub use crate::observe::ask::AskError;
    pub use crate::observe::leaks::{Leak, LeakCause, LeakSign, Leaks, Suspicion};
    pub use crate::observe::look::detail::{detail, inspect, mailbox_length, resume, suspend_for};
    pub use crate::observe::look::query::{GroupKey, Query, SortKey};
    pub use crate::observe::look::tree::{SupervisedRow, SupervisorRow};
    pub use crate::observe::look::view::{ProcessGroup, View};
    pub use crate::observe::process_info::{MemoryUse, ProcessRelations, ProcessWait, Samples};
    pub use crate::observe::section::{DoorSection, SectionRow};
    pub use crate::observe::showing::ShownSection;
    #[cfg(feature = "door")]
    pub use crate::observe::stack::{ProcessStack, StackSource};
    #[cfg(feature = "door")]
    pub use crate::observe::symbols::StackFrame;
    pub use crate::process::request::{Inspection, MessageDirection, TracedMessage};
    pub use crate::process::shown_waits::WaitReason;
    pub use crate::process::wait_reason::Waiting;
    pub use crate::relations::entries::PidList;
}

#[cfg(feature = "metrics")]
pub mod metrics {
    //! The metrics of a scheduler for the exporters of the crate [`metrics`].
    //!
    //! A [`MetricsPublisher`] hands them over. With the feature `door`, a door serves the same
    //! metrics as text, and needs no exporter.

    pub use crate::observe::facade::MetricsPublisher;
}

/// Makes an async function the main function of a program. `procession` documents it.
#[cfg(feature = "macros")]
#[doc(hidden)]
pub use procession_macros::main;

/// What `procession-sim` implements and looks at. No promise.
#[cfg(feature = "sim")]
#[doc(hidden)]
pub mod sim {
    pub use crate::sys::datagram::DatagramAddress;
    pub use crate::sys::os::{
        CallFault, Demand, EnteredSystem, MessageNumber, Network, Os, RunState, SharedLocal,
        Subject, ThreadBody, WaitSource, enter,
    };

    /// Binds the calling thread to the processor that it runs on. Threads that it starts from now
    /// on are bound to the same processor.
    ///
    /// # Errors
    /// The system refuses.
    pub fn bind_to_one_processor() -> std::io::Result<()> {
        crate::sys::Cpus::bind_to_one()
    }

    /// Calls `act` as if the calling thread were a worker of no scheduler. Processes that it wakes
    /// are left to other workers, because this worker may be about to park.
    pub fn as_outsider<R>(act: impl FnOnce() -> R) -> R {
        crate::scheduler::current::as_outsider(act)
    }

    /// Ends a process between two steps. Returns `true` if it exists.
    pub fn terminate(pid: crate::Pid) -> bool {
        crate::scheduler::reach::find(pid)
            .map(|slot| crate::process::wake::terminate(&slot))
            .is_some()
    }

    /// Ends all processes of a scheduler between two steps, permanently: a process that is spawned
    /// later on that scheduler ends as well.
    pub fn terminate_all(scheduler: &crate::Scheduler) {
        scheduler.shared().terminate_all(None);
    }

    /// Names a process. Its scheduler is left out: the number of a scheduler differs between two
    /// runs in one program.
    pub fn name(pid: crate::Pid) -> String {
        format!("process {}.{}", pid.slot(), pid.generation())
    }

    /// Lets a process have a step. Returns `true` if it exists.
    pub fn wake(pid: crate::Pid) -> bool {
        crate::scheduler::reach::find(pid).map(|slot| crate::process::wake::wake(&slot)).is_some()
    }
}
