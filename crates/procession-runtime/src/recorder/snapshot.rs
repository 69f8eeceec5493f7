//! The figures of the flight recorder.

/// The figures of the flight recorder of a scheduler.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RecorderSnapshot {
    /// Size of the rings of all workers and of the watchdog, in bytes. The system allocates their
    /// pages only when they are first written.
    pub bytes: u64,
    /// Number of files that were written to the [directory](crate::Builder::dump_directory).
    pub dumps: u64,
    /// Number of files that could not be written.
    pub dumps_failed: u64,
}
