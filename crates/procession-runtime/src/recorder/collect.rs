//! Copies of all rings, and the names of what they mention.

use std::collections::VecDeque;
use std::panic::Location;
use std::sync::Arc;

use procession_protocols::recorder::ring::{Copied, EventRing};
use procession_protocols::scheduler::seat_id::SeatId;
use procession_protocols::util::sorted_map::SortedMap;

use crate::Pid;
use crate::observe::process_info::label;
use crate::scheduler::log::record::stamp;
use crate::scheduler::log::{EventWord, WordKind};
use crate::scheduler::shared::Shared;
use crate::sys::World;
use crate::util::bounded_text::cut;
use crate::util::sort::sort;

/// The maximum number of words that are collected. Most become less than 10 bytes of a trace, and
/// none more than 60. If there are more, the oldest are dropped.
const COLLECTED_MAX: usize = 1 << 20;
/// A label that is longer than this many bytes is cut.
const LABEL_MAX: usize = 120;

/// What was copied of the rings of a scheduler.
#[derive(Clone, Debug)]
pub(crate) struct Recording {
    /// The name of the scheduler.
    pub(crate) name: String,
    /// The words of each worker, by number.
    pub(crate) workers: Vec<Chunks>,
    pub(crate) watchdog: Chunks,
    pub(crate) stamps: Stamps,
    pub(crate) names: TracedNames,
}

/// The words of one ring. If words were lost between two chunks, their numbers have a gap.
#[derive(Clone, Debug, Default)]
pub(crate) struct Chunks {
    /// The number of the first word that was asked for.
    pub(crate) begin: u64,
    pub(crate) copied: VecDeque<Copied>,
    /// The number of the next word to copy.
    next: u64,
}

impl Chunks {
    /// Creates a collection that begins at the present position of a ring.
    fn from_now(ring: Option<&Arc<EventRing>>) -> Self {
        let begin = ring.map_or(0, |ring| ring.position());
        Self { begin, copied: VecDeque::new(), next: begin }
    }

    /// Copies what was recorded since the last call.
    fn add(&mut self, ring: &EventRing) {
        let copied = ring.copy_since(self.next);
        self.next = copied.end();
        if !copied.words.is_empty() {
            self.copied.push_back(copied);
        }
    }

    /// Returns all words.
    fn words(&self) -> impl Iterator<Item = EventWord> {
        self.copied.iter().flat_map(|chunk| &chunk.words).map(|&word| EventWord(word))
    }

    /// Returns the number of words.
    fn len(&self) -> usize {
        self.copied.iter().map(|chunk| chunk.words.len()).sum()
    }

    /// Drops some of the oldest words. Returns their number.
    fn drop_some(&mut self) -> usize {
        match self.copied.front_mut() {
            Some(only) if self.next - only.first == only.words.len() as u64 => {
                let half = only.words.len().div_ceil(2);
                only.words.drain(..half);
                only.first += half as u64;
                half
            }
            _ => self.copied.pop_front().map_or(0, |chunk| chunk.words.len()),
        }
    }
}

/// How the numbers in stamps become times: they run at one rate between two moments.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stamps {
    /// A stamp, and its time in nanoseconds.
    pub(crate) begin: (u64, u64),
    pub(crate) end: (u64, u64),
}

impl Stamps {
    fn now(world: &World) -> (u64, u64) {
        (stamp(world), world.now())
    }

    /// Returns the time of a stamp.
    pub(crate) fn time(&self, word: EventWord) -> u64 {
        let ((from, begin), (to, end)) = (self.begin, self.end);
        let passed = i128::from(word.time(to)) - i128::from(from);
        let time = match i128::from(to) - i128::from(from) {
            0 => i128::from(end),
            span => i128::from(begin) + passed * (i128::from(end) - i128::from(begin)) / span,
        };
        u64::try_from(time).unwrap_or(0)
    }
}

/// A process that is named in words.
#[derive(Clone, Debug)]
pub(crate) struct TracedProcess {
    pub(crate) pid: Pid,
    pub(crate) label: Option<String>,
    /// `None` if the process had ended, and its end is not among the words.
    pub(crate) location: Option<&'static Location<'static>>,
}

/// The processes that are named in words, by slot and the low bits of the generation.
#[derive(Clone, Debug, Default)]
pub(crate) struct TracedNames(pub(crate) SortedMap<(u32, u16), TracedProcess>);

impl TracedNames {
    pub(crate) fn of(&self, word: EventWord) -> Option<&TracedProcess> {
        self.0.get(&(word.slot(), word.generation()))
    }

    /// TracedNames the processes in these words.
    fn find<'a>(shared: &Shared, workers: impl Iterator<Item = &'a Chunks> + Clone) -> Self {
        let words = || workers.clone().flat_map(Chunks::words);
        let named = words().filter(|word| names_process(*word));
        let mut named: Vec<_> = named.map(|word| (word.slot(), word.generation())).collect();
        sort(&mut named);
        named.dedup();
        let found = |(slot, low): (u32, u16)| {
            let place = shared.table().slot(slot)?;
            // A generation never falls, and words are older than this.
            let now = place.pins.generation();
            let generation = now.wrapping_sub(u32::from((now as u16).wrapping_sub(low)));
            if generation == 0 {
                return None;
            }
            let pid = Pid::local(shared.id(), slot, generation);
            let (label, location) = match shared.table().pin(slot, generation) {
                Some(slot) => (label(&slot).map(shortened), Some(slot.location())),
                None => (None, None),
            };
            Some(((slot, low), TracedProcess { pid, label, location }))
        };
        // The list is sorted, so each entry is added at the end of the map.
        let mut names = Self(named.into_iter().filter_map(found).collect());
        names.find_ended(shared, workers);
        names
    }

    /// Finds the locations of processes that have ended: the end of each is recorded after its last
    /// step.
    fn find_ended<'a>(&mut self, shared: &Shared, workers: impl Iterator<Item = &'a Chunks>) {
        let locations = shared.recorder.places.all();
        for chunks in workers {
            let mut last = None;
            for word in chunks.words() {
                match word.kind() {
                    Some(WordKind::Step | WordKind::NextStep) => {
                        last = Some((word.slot(), word.generation()))
                    }
                    Some(WordKind::End | WordKind::Fail) => {
                        let location = (word.argument() as usize).checked_sub(1);
                        let named = last.filter(|last| last.0 == word.slot());
                        if let Some(named) = named.and_then(|named| self.0.get_mut(&named)) {
                            named.location = named
                                .location
                                .or(location.and_then(|at| locations.get(at).copied()));
                        }
                    }
                    _ => {}
                }
            }
        }
    }
}

/// Returns `true` if the word has the slot and the generation of a process.
pub(crate) fn names_process(word: EventWord) -> bool {
    use WordKind::{Call, NextStep, Rouse, Sample, Spawn, Step, Wake};
    matches!(word.kind(), Some(Step | NextStep | Wake | Rouse | Spawn | Call | Sample))
}

/// Cuts a label that exceeds the limit.
fn shortened(mut label: String) -> String {
    if label.len() > LABEL_MAX {
        label.truncate(cut(&label, LABEL_MAX).len());
    }
    label
}

/// Copies the rings of a scheduler, once or again and again.
pub(crate) struct Collector<'a> {
    shared: &'a Shared,
    workers: Vec<Chunks>,
    watchdog: Chunks,
    begin: (u64, u64),
}

impl<'a> Collector<'a> {
    /// Collects from the oldest words that are there.
    pub(crate) fn from_oldest(shared: &'a Shared) -> Self {
        let (workers, watchdog) = (Vec::new(), Chunks::default());
        Self { shared, workers, watchdog, begin: Stamps::now(&shared.world) }
    }

    /// Collects from the present on.
    pub(crate) fn from_now(shared: &'a Shared) -> Self {
        let workers = (0..shared.workforce.seats.len() as u32)
            .map(|seat| shared.workforce.seats.made(SeatId(seat)).and_then(|seat| seat.ring.get()))
            .map(Chunks::from_now)
            .collect();
        let watchdog = Chunks::from_now(shared.recorder.watchdog.get());
        Self { workers, watchdog, ..Self::from_oldest(shared) }
    }

    /// Copies what was recorded since the last call.
    pub(crate) fn collect(&mut self) {
        // The watchdog first: a position that it has recorded is not after the end of the copy.
        if let Some(ring) = self.shared.recorder.watchdog.get() {
            self.watchdog.add(ring);
        }
        self.workers.resize(self.shared.workforce.seats.len(), Chunks::default());
        for (number, chunks) in self.workers.iter_mut().enumerate() {
            let seat = self.shared.workforce.seats.made(SeatId(number as u32));
            if let Some(ring) = seat.and_then(|seat| seat.ring.get()) {
                chunks.add(ring);
            }
        }
        self.drop_oldest();
    }

    fn drop_oldest(&mut self) {
        let mut total: usize = self.workers.iter().map(Chunks::len).sum();
        while total > COLLECTED_MAX {
            let Some(longest) = self.workers.iter_mut().max_by_key(|chunks| chunks.len()) else {
                return;
            };
            total -= longest.drop_some();
        }
    }

    /// Ends the collection.
    pub(crate) fn finish(mut self) -> Recording {
        self.collect();
        let stamps = Stamps { begin: self.begin, end: Stamps::now(&self.shared.world) };
        Recording {
            name: self.shared.name().to_owned(),
            names: TracedNames::find(self.shared, self.workers.iter().chain([&self.watchdog])),
            workers: self.workers,
            watchdog: self.watchdog,
            stamps,
        }
    }
}
