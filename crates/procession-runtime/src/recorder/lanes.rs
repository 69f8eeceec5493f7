//! The steps of each worker over the last seconds, in columns of equal width, for a picture.

use std::panic::Location;

use crate::Pid;
use crate::recorder::collect::{Collector, Recording, TracedProcess};
use crate::recorder::timeline;
use crate::scheduler::log::{EventWord, WordKind};
use crate::scheduler::shared::Shared;
use crate::util::sort::sort_by_key;

/// The number of columns.
pub(crate) const COLUMNS: u64 = 300;
/// The maximum number of workers in a picture.
const LANES_MAX: usize = 16;

/// A location in the source. `None` stands for processes that are gone without a trace.
type LaneLocation = Option<&'static Location<'static>>;

/// The steps of all workers in a window of time.
#[derive(Clone, Debug)]
pub(crate) struct Lanes {
    /// The begin of the window, in nanoseconds of the scheduler's clock.
    pub(crate) from: u64,
    /// The end of the window.
    pub(crate) to: u64,
    /// The locations, ordered by their time, the longest first, and the nanoseconds of all workers.
    pub(crate) locations: Vec<(LaneLocation, u64)>,
    pub(crate) workers: Vec<WorkerLane>,
}

/// The steps of one worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct WorkerLane {
    /// The time of the first event that is still there. What was before is not known.
    pub(crate) since: u64,
    pub(crate) slices: Vec<LaneSlice>,
}

/// Columns in which most of the time in steps went to processes of one location.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LaneSlice {
    pub(crate) column: u64,
    /// The number of columns.
    pub(crate) count: u64,
    /// The number of the location in `Lanes::locations`.
    pub(crate) location: usize,
    /// The part of the time in which steps of any location ran, in percent.
    pub(crate) busy: u64,
    /// The process with the longest step of that location.
    pub(crate) pid: Option<Pid>,
}

/// Returns the steps of the last `length` nanoseconds.
pub(crate) fn of_last(shared: &Shared, length: u64) -> Lanes {
    let recording = Collector::from_oldest(shared).finish();
    let to = recording.stamps.end.1;
    of_window(&recording, to.saturating_sub(length), to)
}

/// A step, as far as it is in the window.
struct LaneStep {
    begin: u64,
    end: u64,
    word: EventWord,
}

/// The time of one location in one column.
struct LocationTime {
    location: usize,
    time: u64,
    longest: u64,
    pid: Option<Pid>,
}

fn of_window(recording: &Recording, from: u64, to: u64) -> Lanes {
    let mut locations: Vec<(LaneLocation, u64)> = Vec::new();
    let mut workers = Vec::new();
    for worker in 0..recording.workers.len().min(LANES_MAX) {
        let moments = timeline::of_worker(recording, worker);
        let Some(first) = moments.first() else { continue };
        let mut columns: Vec<Vec<LocationTime>> = Vec::new();
        columns.resize_with(COLUMNS as usize, Vec::new);
        for step in steps(&moments, from, to) {
            let process = recording.names.of(step.word);
            let location = number_of(&mut locations, process.and_then(|process| process.location));
            locations[location].1 += step.end - step.begin;
            spread(&mut columns, from, to, &step, (location, process));
        }
        let since = if first.follows_gap || first.at > from { first.at.max(from) } else { from };
        workers.push(WorkerLane { since, slices: slices(&columns, to - from) });
    }
    sort_locations(&mut locations, &mut workers);
    Lanes { from, to, locations, workers }
}

/// Returns the steps of a worker. A step lasts until the next step, or until the worker searches or
/// parks.
fn steps(moments: &[timeline::Moment], from: u64, to: u64) -> Vec<LaneStep> {
    let mut steps = Vec::new();
    let mut open: Option<(u64, EventWord)> = None;
    let mut close = |open: Option<(u64, EventWord)>, end: u64| {
        if let Some((begin, word)) = open
            && end > from
        {
            steps.push(LaneStep { begin: begin.max(from), end: end.min(to), word });
        }
    };
    for moment in moments {
        match moment.word.kind() {
            Some(WordKind::Step | WordKind::NextStep) => {
                close(open.replace((moment.at, moment.word)), moment.at);
            }
            Some(WordKind::Search | WordKind::Park) => close(open.take(), moment.at),
            _ if moment.follows_gap => close(open.take(), moment.at),
            _ => {}
        }
    }
    close(open, to);
    steps
}

/// Returns the number of a location. There are few, so that a search is fast enough.
fn number_of(locations: &mut Vec<(LaneLocation, u64)>, location: LaneLocation) -> usize {
    locations.iter().position(|known| known.0 == location).unwrap_or_else(|| {
        locations.push((location, 0));
        locations.len() - 1
    })
}

/// Adds a step to the columns that it touches.
fn spread(
    columns: &mut [Vec<LocationTime>],
    from: u64,
    to: u64,
    step: &LaneStep,
    (location, process): (usize, Option<&TracedProcess>),
) {
    let edge = |column: u64| from + column * (to - from) / COLUMNS;
    let at = |time: u64| ((time - from) * COLUMNS / (to - from).max(1)).min(COLUMNS - 1);
    let pid = process.map(|process| process.pid);
    let length = step.end - step.begin;
    for column in at(step.begin)..=at(step.end.saturating_sub(1).max(step.begin)) {
        let part = edge(column + 1).min(step.end).saturating_sub(edge(column).max(step.begin));
        let times = &mut columns[column as usize];
        match times.iter_mut().find(|time| time.location == location) {
            Some(time) => {
                time.time += part;
                if length > time.longest {
                    (time.longest, time.pid) = (length, pid);
                }
            }
            None => times.push(LocationTime { location, time: part, longest: length, pid }),
        }
    }
}

/// Returns the columns with steps. Neighbours that are the same become one slice.
fn slices(columns: &[Vec<LocationTime>], window: u64) -> Vec<LaneSlice> {
    let width = (window / COLUMNS).max(1);
    let mut slices: Vec<LaneSlice> = Vec::new();
    for (column, times) in columns.iter().enumerate() {
        let Some(most) = times.iter().max_by_key(|time| time.time) else { continue };
        let sum: u64 = times.iter().map(|time| time.time).sum();
        let busy = (sum * 100).div_ceil(width).min(100);
        let (column, location, pid) = (column as u64, most.location, most.pid);
        match slices.last_mut() {
            Some(last)
                if last.column + last.count == column
                    && (last.location, last.busy, last.pid) == (location, busy, pid) =>
            {
                last.count += 1;
            }
            _ => slices.push(LaneSlice { column, count: 1, location, busy, pid }),
        }
    }
    slices
}

/// Sorts the locations by their time, the longest first.
fn sort_locations(locations: &mut Vec<(LaneLocation, u64)>, workers: &mut [WorkerLane]) {
    let mut order: Vec<_> = (0..locations.len()).collect();
    sort_by_key(&mut order, |&location| std::cmp::Reverse(locations[location].1));
    let mut rank = vec![0; order.len()];
    order.iter().enumerate().for_each(|(new, &old)| rank[old] = new);
    *locations = order.iter().map(|&old| locations[old]).collect();
    for slice in workers.iter_mut().flat_map(|lane| &mut lane.slices) {
        slice.location = rank[slice.location];
    }
}

#[cfg(test)]
mod tests {
    use super::{COLUMNS, LaneSlice, slices, spread, steps};
    use crate::recorder::lanes::LaneStep;
    use crate::recorder::timeline::Moment;
    use crate::scheduler::log::{EventWord, WordKind};

    fn moment(at: u64, kind: WordKind, slot: u32) -> Moment {
        Moment { at, word: EventWord::of_step(kind, slot, 1, 0), follows_gap: false }
    }

    #[test]
    fn a_step_lasts_until_the_next_one_or_until_the_worker_has_none() {
        let moments = [
            moment(10, WordKind::Step, 1),
            moment(15, WordKind::Wake, 9),
            moment(20, WordKind::NextStep, 2),
            moment(40, WordKind::Search, 0),
            moment(50, WordKind::Park, 0),
            moment(70, WordKind::Step, 3),
        ];
        let found = |from, to| -> Vec<_> {
            let steps = steps(&moments, from, to);
            steps.iter().map(|step| (step.begin, step.end, step.word.slot())).collect()
        };
        assert_eq!(found(0, 100), [(10, 20, 1), (20, 40, 2), (70, 100, 3)]);
        assert_eq!(found(30, 100), [(30, 40, 2), (70, 100, 3)], "cut at the begin");
    }

    #[test]
    fn a_column_is_of_the_place_with_the_most_time() {
        let (from, to) = (1000, 1000 + 100 * COLUMNS);
        let mut columns: Vec<_> = (0..COLUMNS).map(|_| Vec::new()).collect();
        let mut add = |begin, end, location| {
            let word = EventWord::of_step(WordKind::Step, 0, 0, 0);
            let step = LaneStep { begin: from + begin, end: from + end, word };
            spread(&mut columns, from, to, &step, (location, None));
        };
        add(0, 30, 0);
        add(30, 70, 1);
        add(150, 400, 2);
        add(100 * COLUMNS - 1, 100 * COLUMNS, 0);
        let slice =
            |column, count, location, busy| LaneSlice { column, count, location, busy, pid: None };
        let expected =
            [slice(0, 1, 1, 70), slice(1, 1, 2, 50), slice(2, 2, 2, 100), slice(299, 1, 0, 1)];
        assert_eq!(slices(&columns, to - from), expected);
    }
}
