//! The flight recorder: the latest events of each worker, and the traces that are made from these
//! events.
//!
//! Each worker keeps its latest events: the steps that it ran, the processes that it made ready,
//! its searches, thefts and parks, timers and descriptors. The recorder is always on, unless
//! [`Builder::recorder_events`](crate::Builder::recorder_events) turns it off. When something has
//! gone wrong, the events that led there are still present.
//!
//! | call | what it returns |
//! |---|---|
//! | [`Scheduler::dump`] | the latest events, with interpolated times |
//! | [`Scheduler::trace`] | the events of a window that begins now, with exact times |
//!
//! [`Scheduler::dump`]: crate::Scheduler::dump
//! [`Scheduler::trace`]: crate::Scheduler::trace
//!
//! A [`Trace`] is opened in the [viewer](https://ui.perfetto.dev) of Perfetto, or read event by
//! event. With the feature `observe`, its packets are compressed (`compressed_packets`), which
//! Perfetto's tools read. It has a track for each worker, on which each step is a slice with the
//! label of the process, or the place of its spawn. Arrows lead from the step that made a process
//! ready to the step that followed. The watchdog has a track for stalled steps, and counters:
//! processes in queues, workers that are awake, and messages per second. A trace never contains a
//! message.
//!
//! # Files
//! If the builder names a [directory](crate::Builder::dump_directory), the recorder is also written
//! to a file there when
//! - the watchdog finds a stalled step,
//! - a supervisor exceeds its restart limit,
//! - a [shutdown](crate::Scheduler::shutdown) has to terminate processes,
//! - a signal asks for it, if the program lets it (`Scheduler::dump_on_signal`, with the feature
//!   `signal`).
//!
//! Each scheduler writes at most one file in 60 seconds. A directory keeps at most 8 of these
//! files, which together have at most 64 MiB. Older files are removed, whichever program wrote
//! them. The name of each file is written to standard error. By default there is no directory, and
//! nothing is written.
//!
//! # Times
//! Reading a clock takes longer than many a step, so events carry no times. Workers record the time
//! when they read the clock anyway: when they park, fire timers, or serve queues for the first time
//! in a millisecond. The watchdog records every 2.5 ms how far each worker has come. Times between
//! these are interpolated, so the order of events of *different* workers may be off by as much. The
//! order of one worker's events is exact, and so is the arrow from a wake-up to its step.
//!
//! # What is missing
//! Threads that are no workers record nothing. A process that such a thread makes ready has no
//! arrow, and a process that another worker takes out of a LIFO slot has no arrow either. The end
//! of a step is not recorded either. A slice lasts until the next event that shows that the step is
//! over, so it includes the search for the next process. If a process has ended and the event of
//! its end was overwritten, its place is unknown. Labels of processes that have ended are unknown.

// | file | what it is about |
// |---|---|
// | `ring` | the latest words of one thread, and how others copy them |
// | `scheduler/log` | events in 8 bytes, the rings of a scheduler, and what workers record |
// | `collect` | copies of all rings, and the names of what they mention |
// | `timeline` | the times of events |
// | `trace` | what the user gets |
// | `flows` | which wake-up led to which step |
// | `protobuf`, `perfetto` | the format of Perfetto |
// | `dump` | traces that are written to files |
// | `snapshot` | the figures of the recorder |

#[cfg(feature = "look")]
pub(crate) mod collect;
pub(crate) mod dump;
#[cfg(feature = "look")]
mod files;
#[cfg(feature = "look")]
mod flows;
#[cfg(feature = "observe")]
pub(crate) mod lanes;
#[cfg(feature = "look")]
mod perfetto;
#[cfg(feature = "look")]
mod protobuf;
pub(crate) mod snapshot;
#[cfg(feature = "look")]
mod timeline;
#[cfg(feature = "look")]
pub(crate) mod trace;

pub use self::snapshot::RecorderSnapshot;
#[cfg(feature = "look")]
pub use self::trace::{Trace, TraceError, TraceEvent, TraceEventKind};
