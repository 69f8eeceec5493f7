//! The recorder of a scheduler: its rings, and whether events carry times.

use std::sync::{Arc, OnceLock};

use procession_protocols::recorder::ring::EventRing;
use procession_sync::Mutex;
use procession_sync::atomic::AtomicU64;
use procession_sync::atomic::Ordering::Relaxed;

use crate::scheduler::log::places::PlaceTable;
use crate::scheduler::log::word::{EventWord, WordKind};

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
}

/// A ring, once a thread has first recorded there.
pub(crate) type RingPlace = OnceLock<Arc<EventRing>>;

impl Recorder {
    /// Creates a recorder of at least `words` words for each worker, or a recorder that records
    /// nothing.
    pub(crate) fn new(words: usize) -> Self {
        Self {
            words: if words == 0 { 0 } else { words.max(WORDS_MIN).next_power_of_two() },
            off: Arc::new(EventRing::new(0, false)),
            watchdog: RingPlace::new(),
            is_fine: Mutex::new(false),
            places: PlaceTable::default(),
            bytes: AtomicU64::new(0),
        }
    }

    /// Returns `true` if anything is recorded.
    pub(crate) fn is_on(&self) -> bool {
        self.words > 0
    }

    /// Returns the size of all rings in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        // Relaxed: statistics.
        self.bytes.load(Relaxed)
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
