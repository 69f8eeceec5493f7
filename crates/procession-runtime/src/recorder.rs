//! The flight recorder: the latest events of each worker, and the traces that are made from these
//! events.

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
#[cfg(feature = "door")]
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
