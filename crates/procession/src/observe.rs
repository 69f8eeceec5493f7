//! Looks into a running scheduler and its processes, traces of what its workers did, reports of
//! failures, and the door through which other programs look.
//!
//! | to learn | use | feature |
//! |---|---|---|
//! | the figures of all workers, processes and timers | [`Scheduler::snapshot`] | |
//! | what the watchdog has found | [`Scheduler::stalls`] | |
//! | which processes wait for one another | [`Scheduler::wait_cycles`]: a [`WaitCycle`] | |
//! | which processes can never continue | [`Scheduler::leaks`]: [`Leaks`] | `look` |
//! | what a shutdown could not finish | [`Unfinished`] | |
//! | which processes use the processor or wait | [`Scheduler::look`] with a [`Query`] | `look` |
//! | the relations of one process | [`detail`] | `look` |
//! | what a process shows of itself | [`Scheduler::inspect`] | `look` |
//! | the stack of a process | `Scheduler::stack` | `door` |
//! | what led to a moment | the flight recorder: a [`Trace`] | `look` |
//! | why a process failed | [`CrashReport`], [`ExitReport`], by the rules of [`Reporting`] | |
//! | why a child of a supervisor failed | [`SupervisorReport`] | |
//! | all this from outside | a [`Door`] | `door` |
//! | metrics in an exporter of the crate `metrics` | `MetricsPublisher` | `metrics` |
//!
//! A query returns a [`View`], which also says where each process waits and for what. The command
//! `procession top`, browsers and scrapers of metrics read a door.
//!
//! [`Scheduler::snapshot`]: crate::Scheduler::snapshot
//! [`Scheduler::stalls`]: crate::Scheduler::stalls
//! [`Scheduler::wait_cycles`]: crate::Scheduler::wait_cycles
//! [`Scheduler::leaks`]: crate::Scheduler::leaks
//! [`Scheduler::look`]: crate::Scheduler::look
//! [`Scheduler::inspect`]: crate::Scheduler::inspect
//!
//! Nothing needs to be enabled at run time, and workers are not stopped. A look visits every
//! process once and returns only the rows and groups that were asked for, so it is fit for
//! schedulers with millions of processes.

#[doc(inline)]
pub use procession_runtime::recorder::RecorderSnapshot;
#[doc(inline)]
pub use procession_runtime::report::{
    ChildExit, ChildFailure, CrashReport, ExitReport, ReportLevel, Reporting, SupervisorAnswer,
    SupervisorEvent, SupervisorReport, install_panic_hook,
};
#[doc(inline)]
pub use procession_runtime::snapshot::{
    CyclicWait, DescriptorSnapshot, DroppedProcesses, LevelSnapshot, MailboxSnapshot, ProcessInfo,
    ProcessState, Snapshot, Stall, StallKind, StallSnapshot, StuckCoroutine, TimerSnapshot,
    Unfinished, WaitCycle, Waiting, WorkerSnapshot,
};

#[cfg(feature = "door")]
#[doc(inline)]
pub use procession_runtime::door::{Door, DoorError, DoorOptions};
#[cfg(feature = "look")]
#[doc(inline)]
pub use procession_runtime::look::{
    AskError, DoorSection, GroupKey, Inspecting, Inspection, Leak, LeakCause, LeakSign, Leaks,
    MemoryUse, MessageDirection, PidList, ProcessGroup, ProcessRelations, ProcessWait, Query,
    Samples, SectionRow, ShownSection, SortKey, SupervisedRow, SupervisorRow, Suspicion,
    TracedMessage, View, WaitReason, detail, inspect, mailbox_length, resume, suspend_for,
};
#[cfg(feature = "door")]
#[doc(inline)]
pub use procession_runtime::look::{ProcessStack, StackFrame, StackSource};
#[cfg(feature = "metrics")]
#[doc(inline)]
pub use procession_runtime::metrics::MetricsPublisher;
#[cfg(feature = "look")]
#[doc(inline)]
pub use procession_runtime::recorder::{Trace, TraceError, TraceEvent, TraceEventKind};
