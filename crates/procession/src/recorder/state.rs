//! The recorder of a scheduler: its rings, and whether events carry times.

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use procession_protocols::recorder::ring::EventRing;
use procession_sync::atomic::AtomicU64;
use procession_sync::atomic::Ordering::Relaxed;
use procession_sync::{Condvar, Mutex};

use crate::recorder::places::PlaceTable;
use crate::recorder::word::{EventWord, WordKind};

/// The default number of words that a worker keeps: half a mebibyte, and the last milliseconds of a
/// worker that does nothing but switch between processes.
pub(crate) const WORDS_DEFAULT: usize = 1 << 16;
/// The maximum number of words.
pub(crate) const WORDS_MAX: usize = 1 << 24;
/// The minimum number of words, unless nothing is recorded.
const WORDS_MIN: usize = 1 << 8;
/// A thread that takes over from a blocked one keeps this many times fewer words: there may be many
/// of these threads, and each runs for a short time.
const EXTRA_PART: usize = 16;

/// The recorder of a scheduler.
pub(crate) struct Recorder {
    /// The number of words that a worker keeps: a power of two, or 0 if nothing is recorded.
    words: usize,
    /// The ring of threads that record nothing.
    off: Arc<EventRing>,
    /// The ring of the watchdog, once it has started.
    pub(crate) watchdog: RingPlace,
    /// Set while events carry times. Rings are made under the lock, so that none misses a change.
    is_fine: Mutex<bool>,
    pub(crate) places: PlaceTable,
    /// The memory of all rings.
    bytes: AtomicU64,
    pub(crate) dumps: Dumps,
}

/// A ring, once a thread has first recorded there.
pub(crate) type RingPlace = OnceLock<Arc<EventRing>>;

impl Recorder {
    /// Creates a recorder of at least `words` words for each worker, or one that records nothing.
    pub(crate) fn new(words: usize) -> Self {
        Self {
            words: if words == 0 { 0 } else { words.max(WORDS_MIN).next_power_of_two() },
            off: Arc::new(EventRing::new(0, false)),
            watchdog: RingPlace::new(),
            is_fine: Mutex::new(false),
            places: PlaceTable::default(),
            bytes: AtomicU64::new(0),
            dumps: Dumps { state: Mutex::default(), written: Condvar::default() },
        }
    }

    /// Returns `true` if anything is recorded.
    pub(crate) fn is_on(&self) -> bool {
        self.words > 0
    }

    /// Returns the figures of the recorder.
    pub(crate) fn snapshot(&self) -> RecorderSnapshot {
        let dumps = self.dumps.state.lock();
        RecorderSnapshot {
            // Relaxed: statistics.
            bytes: self.bytes.load(Relaxed),
            dumps: dumps.written,
            dumps_failed: dumps.failed,
        }
    }

    /// Returns the ring in a place for the thread that works there, and makes it if this is the
    /// first one. The ring then begins with the time.
    pub(crate) fn ring(
        &self,
        place: &RingPlace,
        is_extra: bool,
        now: impl Fn() -> u64,
    ) -> Arc<EventRing> {
        if let Some(ring) = place.get() {
            return Arc::clone(ring);
        }
        if !self.is_on() {
            return Arc::clone(&self.off);
        }
        let is_fine = self.is_fine.lock();
        let words = if is_extra { (self.words / EXTRA_PART).max(WORDS_MIN) } else { self.words };
        let ring = Arc::new(EventRing::new(words, *is_fine));
        ring.push(EventWord::of_time(WordKind::Clock, now()).0);
        self.bytes.fetch_add((words * size_of::<u64>()) as u64, Relaxed);
        // No other thread can make it: there is one in the seat.
        Arc::clone(place.get_or_init(|| ring))
    }

    /// Lets the threads with rings in these places record times, or not. Returns `false` if they
    /// do already.
    pub(crate) fn set_fine<'a>(
        &self,
        places: impl Iterator<Item = &'a RingPlace>,
        is_fine: bool,
    ) -> bool {
        let mut before = self.is_fine.lock();
        let changes = *before != is_fine;
        *before = is_fine;
        for ring in places.filter_map(OnceLock::get) {
            ring.set_fine(is_fine);
        }
        changes
    }
}

/// The figures of the flight recorder of a scheduler.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RecorderSnapshot {
    /// Size of the rings of all workers and of the watchdog, in bytes. The system makes pages of
    /// them only when they are first written.
    pub bytes: u64,
    /// Number of files that were written to the [directory](crate::Builder::dump_directory).
    pub dumps: u64,
    /// Number of files that could not be written.
    pub dumps_failed: u64,
}

/// The reason for a dump.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DumpCause {
    Stall,
    GaveUp,
    Shutdown,
    #[cfg(feature = "signal")]
    Signal,
}

impl DumpCause {
    /// Returns the word for it in the name of the file.
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Stall => "stall",
            Self::GaveUp => "give-up",
            Self::Shutdown => "shutdown",
            #[cfg(feature = "signal")]
            Self::Signal => "signal",
        }
    }
}

impl fmt::Display for DumpCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Stall => "a step is stalled",
            Self::GaveUp => "a supervisor gave up",
            Self::Shutdown => "a shutdown has to terminate processes",
            #[cfg(feature = "signal")]
            Self::Signal => "a signal asked for it",
        })
    }
}

/// The dumps of a scheduler to files.
pub(crate) struct Dumps {
    state: Mutex<DumpState>,
    /// Wakes the threads that wait for the end of a dump.
    written: Condvar,
}

#[derive(Default)]
struct DumpState {
    /// The time of the last dump.
    last: Option<u64>,
    is_writing: bool,
    written: u64,
    failed: u64,
}

impl Dumps {
    /// Begins a dump, unless the last one began less than `apart` ago.
    pub(crate) fn begin(&self, now: u64, apart: u64) -> bool {
        let mut state = self.state.lock();
        if state.is_writing || state.last.is_some_and(|last| now.saturating_sub(last) < apart) {
            return false;
        }
        (state.last, state.is_writing) = (Some(now), true);
        true
    }

    /// Ends the dump that is being written.
    pub(crate) fn end(&self, is_written: bool) {
        let mut state = self.state.lock();
        state.is_writing = false;
        state.written += u64::from(is_written);
        state.failed += u64::from(!is_written);
        self.written.notify_all();
    }

    pub(crate) fn is_writing(&self) -> bool {
        self.state.lock().is_writing
    }

    /// Waits until no dump is being written, for at most `timeout`.
    pub(crate) fn settle(&self, timeout: Duration) {
        let state = self.state.lock();
        drop(self.written.wait_timeout_while(state, timeout, |state| state.is_writing));
    }
}

#[cfg(test)]
mod tests {
    use super::Recorder;

    #[test]
    fn dumps_are_one_at_a_time_and_apart() {
        let dumps = Recorder::new(0).dumps;
        assert!(dumps.begin(5, 10), "the first may come at any time");
        assert!(dumps.is_writing() && !dumps.begin(50, 10));
        dumps.end(true);
        assert!(!dumps.is_writing() && !dumps.begin(14, 10) && dumps.begin(15, 10));
    }
}
