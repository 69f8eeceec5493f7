//! The log of events: what each worker records about its steps, in its own ring. The room
//! `recorder` makes traces from the log.
//!
//! # Words
//!
//! An event takes 8 bytes: `slot:32 | argument:24 | kind:8`. A word about a step or a wake-up has
//! `generation:16 | steps:8` as its argument: the low bits of the process's generation and of the
//! number of the step. They name the step that a wake-up leads to, so a reader needs no times to
//! find it.
//!
//! A word about the end of a process has no room for the address of the place where the process was
//! spawned, so places have numbers. Each worker remembers the last few that it used, and takes the
//! lock of the table only for others.

pub(crate) mod record;

use std::cell::Cell;
use std::panic::Location;
use std::ptr;
use std::sync::{Arc, OnceLock};

use procession_protocols::recorder::ring::EventRing;
use procession_protocols::util::sorted_map::SortedMap;
use procession_sync::Mutex;
use procession_sync::atomic::AtomicU64;
use procession_sync::atomic::Ordering::Relaxed;

/// An event, or a part of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EventWord(pub(crate) u64);

/// The kinds of words, which are written as their numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum WordKind {
    /// A step of a process begins.
    Step = 1,
    /// A step begins of a process that the step before made ready.
    NextStep,
    /// The running step, or the last one, made a process ready that does not run next.
    Wake,
    /// The worker made a process ready between two steps, for a timer or a descriptor.
    Rouse,
    /// A process was started. The argument belongs to its first wake-up.
    Spawn,
    /// The process that ran the last step has ended. The argument is the number of its place.
    End,
    /// Like `End`, with a failure.
    Fail,
    /// The process of the running step called a process, and waits for its reply.
    Call,
    /// The worker took processes from the seat in the argument. The slot is the slot of the first
    /// process.
    Steal,
    /// The worker found nothing in its own queues, and looks elsewhere.
    Search,
    Park,
    Unpark,
    /// Timers fired; the low half is their number.
    Timers,
    /// Descriptors became ready; the low half is the number of events.
    Descriptors,
    /// The running step enters a blocking section.
    Block,
    /// The running step leaves a blocking section.
    Unblock,
    /// The watchdog found a stalled step. The argument is the seat, the low half the slot.
    Stall,
    /// The low 56 bits of the time in nanoseconds.
    Clock,
    /// The low 56 bits of the time of the next word: the counter of the processor, or nanoseconds
    /// where that is of no use.
    Stamp,
    /// Of the watchdog: the low half of the position of the ring of the seat in the argument, at
    /// the time before it.
    Position,
    /// Of the watchdog: the number of processes in queues.
    Queued,
    /// Of the watchdog: the number of workers that are awake.
    Awake,
    /// Of the watchdog: the low half of the number of messages sent so far.
    Sent,
    /// Of the watchdog: the process is in a step. The argument has the low bits of its generation,
    /// as in a word about a step.
    Sample,
}

impl WordKind {
    const ALL: [Self; 24] = [
        Self::Step,
        Self::NextStep,
        Self::Wake,
        Self::Rouse,
        Self::Spawn,
        Self::End,
        Self::Fail,
        Self::Call,
        Self::Steal,
        Self::Search,
        Self::Park,
        Self::Unpark,
        Self::Timers,
        Self::Descriptors,
        Self::Block,
        Self::Unblock,
        Self::Stall,
        Self::Clock,
        Self::Stamp,
        Self::Position,
        Self::Queued,
        Self::Awake,
        Self::Sent,
        Self::Sample,
    ];
}

/// The number of bits of a kind, which is in the low bits: small numbers are cheap there.
const KIND: u32 = 8;
/// The bits of a time.
const TIME: u64 = u64::MAX >> KIND;

impl EventWord {
    #[inline]
    pub(crate) const fn new(kind: WordKind, argument: u32, slot: u32) -> Self {
        Self((slot as u64) << 32 | (argument << KIND) as u64 | kind as u64)
    }

    /// A word about the step with this number.
    #[inline]
    pub(crate) const fn of_step(kind: WordKind, slot: u32, generation: u32, step: u32) -> Self {
        let argument = generation << 16 | (step as u8 as u32) << KIND;
        Self((slot as u64) << 32 | argument as u64 | kind as u64)
    }

    /// A word with a time, of which the high bits are lost.
    #[inline]
    pub(crate) const fn of_time(kind: WordKind, time: u64) -> Self {
        Self(time << KIND | kind as u64)
    }

    /// Returns the kind, or `None` if this is no word that was written.
    pub(crate) fn kind(self) -> Option<WordKind> {
        WordKind::ALL.get(usize::from(self.0 as u8).checked_sub(1)?).copied()
    }

    pub(crate) const fn argument(self) -> u32 {
        self.0 as u32 >> KIND
    }

    pub(crate) const fn slot(self) -> u32 {
        (self.0 >> 32) as u32
    }

    /// Returns the low bits of the generation.
    pub(crate) const fn generation(self) -> u16 {
        (self.0 as u32 >> 16) as u16
    }

    /// Returns everything but the kind.
    pub(crate) const fn target(self) -> u64 {
        self.0 >> KIND
    }

    /// Returns the time, given a time that is not before it and less than two years after it.
    pub(crate) const fn time(self, later: u64) -> u64 {
        later.wrapping_sub(later.wrapping_sub(self.0 >> KIND) & TIME)
    }
}

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

type SpawnPlace = &'static Location<'static>;

/// The number of places that a worker remembers. If more places are in use, and their processes end
/// all the time, the worker takes a lock for some places.
const REMEMBERED: usize = 64;

/// Numbers fit into the argument of a word. 0 is no place.
const NUMBERS: usize = 1 << 24;

#[derive(Default)]
pub(crate) struct PlaceTable(Mutex<Numbered>);

#[derive(Default)]
struct Numbered {
    numbers: SortedMap<usize, u32>,
    places: Vec<SpawnPlace>,
}

impl PlaceTable {
    /// Returns the number of a place, and assigns a number if the place does not have one yet.
    /// Returns 0 if all numbers are taken.
    #[cold]
    fn number(&self, place: SpawnPlace) -> u32 {
        let mut numbered = self.0.lock();
        let Numbered { numbers, places } = &mut *numbered;
        if places.len() + 1 >= NUMBERS {
            return numbers.get(&address(place)).copied().unwrap_or(0);
        }
        *numbers.get_or_insert_with(address(place), || {
            places.push(place);
            places.len() as u32
        })
    }

    /// Returns all places; the first has the number 1.
    pub(crate) fn all(&self) -> Vec<SpawnPlace> {
        self.0.lock().places.clone()
    }
}

fn address(place: SpawnPlace) -> usize {
    ptr::from_ref(place).addr()
}

/// The places that a worker used last.
pub(crate) struct PlaceCache(Box<[Cell<(usize, u32)>; REMEMBERED]>);

impl Default for PlaceCache {
    fn default() -> Self {
        Self(Box::new([const { Cell::new((0, 0)) }; REMEMBERED]))
    }
}

impl PlaceCache {
    #[inline]
    pub(crate) fn number(&self, table: &PlaceTable, place: SpawnPlace) -> u32 {
        let address = address(place);
        // Locations are aligned to words, and each takes three words.
        let remembered = &self.0[(address >> 3) % REMEMBERED];
        let (known, number) = remembered.get();
        if known == address {
            return number;
        }
        let number = table.number(place);
        remembered.set((address, number));
        number
    }
}

#[cfg(test)]
mod tests {
    use std::panic::Location;

    use super::{EventWord, PlaceCache, PlaceTable, WordKind};

    #[track_caller]
    fn here() -> &'static Location<'static> {
        Location::caller()
    }

    #[test]
    fn places_keep_their_numbers() {
        let (table, one, two) =
            (PlaceTable::default(), PlaceCache::default(), PlaceCache::default());
        let places = [here(), here(), here()];
        for _ in 0..2 {
            for (at, place) in places.into_iter().enumerate() {
                assert_eq!(one.number(&table, place), at as u32 + 1);
                assert_eq!(two.number(&table, place), at as u32 + 1);
            }
        }
        assert_eq!(table.all(), places);
    }

    #[test]
    fn words_keep_what_they_are_made_of() {
        for (at, kind) in WordKind::ALL.into_iter().enumerate() {
            assert_eq!(kind as usize, at + 1, "the numbers are the order");
            let word = EventWord::new(kind, 0xab_cdef, 0x1234_5678);
            assert_eq!(
                (word.kind(), word.argument(), word.slot()),
                (Some(kind), 0xab_cdef, 0x1234_5678)
            );
        }
        let word = EventWord::of_step(WordKind::Wake, 7, 0xabc_1234, 0x5_06);
        assert_eq!((word.generation(), word.argument() & 0xff, word.slot()), (0x1234, 0x06, 7));
        assert_eq!(EventWord(0).kind(), None);
        assert_eq!(EventWord(u64::MAX).kind(), None);
    }

    #[test]
    fn times_are_found_again_behind_their_high_bits() {
        for now in [5, 1 << 55, (1 << 56) + 3, (9 << 56) + 1] {
            for before in [0, 1, 4, 1 << 50] {
                let time = u64::saturating_sub(now, before);
                assert_eq!(EventWord::of_time(WordKind::Clock, time).time(now), time);
            }
        }
    }
}
