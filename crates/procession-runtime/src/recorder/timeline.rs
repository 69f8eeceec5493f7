//! The times of events. Most events carry none: a time between two that are known is interpolated.

use std::collections::VecDeque;

use crate::recorder::collect::{Chunks, Recording};
use crate::scheduler::log::{EventWord, WordKind};
use crate::util::sort::sort_by_key;

/// An event with its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Moment {
    /// In nanoseconds of the scheduler's clock.
    pub(crate) at: u64,
    pub(crate) word: EventWord,
    /// Set if events were lost immediately before this moment.
    pub(crate) follows_gap: bool,
}

/// The time at which a ring had a position.
type Point = (u64, u64);

/// Returns the events of a worker.
pub(crate) fn of_worker(recording: &Recording, worker: usize) -> Vec<Moment> {
    let chunks = &recording.workers[worker];
    let Some(last) = chunks.copied.back() else { return Vec::new() };
    let mut points = own_points(recording, chunks);
    points.extend(marks(recording, worker as u32, last.end()));
    points.push((last.end(), recording.stamps.end.1));
    // At one position, a worker's own time is before the time of the watchdog, which looks later.
    sort_by_key(&mut points, |point| point.0);
    let mut latest = 0;
    for (_, time) in &mut points {
        latest = latest.max(*time);
        *time = latest;
    }
    let mut points = Points { before: None, after: points.into() };
    let is_event =
        |word: EventWord| !matches!(word.kind(), None | Some(WordKind::Clock | WordKind::Stamp));
    each(chunks)
        .filter(|(_, word, _)| is_event(*word))
        .map(|(position, word, follows_gap)| Moment {
            at: points.time(position),
            word,
            follows_gap,
        })
        .collect()
}

/// Returns the events of the watchdog, each of which follows a time.
pub(crate) fn of_watchdog(recording: &Recording) -> Vec<Moment> {
    let mut at = None;
    let mut moments = Vec::new();
    for (_, word, follows_gap) in each(&recording.watchdog) {
        match (word.kind(), at) {
            (Some(WordKind::Clock), _) => at = Some(word.time(recording.stamps.end.1)),
            (Some(WordKind::Position) | None, _) | (_, None) => {}
            (_, Some(at)) => moments.push(Moment { at, word, follows_gap }),
        }
    }
    moments
}

/// Returns all words with their numbers. The last value is set for the first event after a gap, or
/// in a ring that has lost its beginning.
fn each(chunks: &Chunks) -> impl Iterator<Item = (u64, EventWord, bool)> {
    let mut end = chunks.begin;
    chunks.copied.iter().flat_map(move |chunk| {
        let mut is_lost = chunk.first != std::mem::replace(&mut end, chunk.end());
        (chunk.first..).zip(&chunk.words).map(move |(position, &word)| {
            let word = EventWord(word);
            let is_time = matches!(word.kind(), Some(WordKind::Clock | WordKind::Stamp));
            let follows_gap = if is_time { false } else { std::mem::take(&mut is_lost) };
            (position, word, follows_gap)
        })
    })
}

/// Returns the times that a worker recorded itself.
fn own_points(recording: &Recording, chunks: &Chunks) -> Vec<Point> {
    let stamps = &recording.stamps;
    each(chunks)
        .filter_map(|(position, word, _)| match word.kind()? {
            WordKind::Clock => Some((position, word.time(stamps.end.1))),
            // The time of the word after it.
            WordKind::Stamp => Some((position + 1, stamps.time(word))),
            _ => None,
        })
        .collect()
}

/// Returns the times at which the watchdog saw the ring of a worker, which ends at `end`.
fn marks(recording: &Recording, worker: u32, end: u64) -> Vec<Point> {
    let mut at = None;
    let mut points = Vec::new();
    for (_, word, _) in each(&recording.watchdog) {
        match word.kind() {
            Some(WordKind::Clock) => at = Some(word.time(recording.stamps.end.1)),
            Some(WordKind::Position) if word.argument() == worker => {
                // Only the low half was recorded. The position is not after the end.
                let behind = (end as u32).wrapping_sub(word.slot());
                if let (Some(position), Some(at)) = (end.checked_sub(behind.into()), at) {
                    points.push((position, at));
                }
            }
            _ => {}
        }
    }
    points
}

/// Interpolates between points. The positions that are asked for never fall.
struct Points {
    before: Option<Point>,
    after: VecDeque<Point>,
}

impl Points {
    fn time(&mut self, position: u64) -> u64 {
        while let Some(next) = self.after.front().copied().filter(|next| next.0 <= position) {
            self.before = Some(next);
            self.after.pop_front();
        }
        match (self.before, self.after.front()) {
            (Some((from, begin)), Some(&(to, end))) => {
                begin + part(position - from, to - from, end - begin)
            }
            // Before all known times: as late as it can have been.
            (None, Some(&(_, time))) | (Some((_, time)), None) => time,
            (None, None) => 0,
        }
    }
}

/// Returns `whole * part / parts`, which is at most `whole`. A product that fits is divided several
/// times faster.
fn part(part: u64, parts: u64, whole: u64) -> u64 {
    match whole.checked_mul(part) {
        Some(product) => product / parts,
        None => (u128::from(whole) * u128::from(part) / u128::from(parts)) as u64,
    }
}
