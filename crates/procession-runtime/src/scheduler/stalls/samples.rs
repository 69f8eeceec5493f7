//! The processor time of processes, by samples.
//!
//! Each look of the watchdog finds which process each worker runs, and adds the time since the
//! previous look to that process. No clock is read in any step. The table is bounded: if more
//! processes were sampled than fit, the processes with the least time are forgotten.

use procession_protocols::util::sorted_map::SortedMap;
use procession_sync::Mutex;

use crate::scheduler::part::Part;
use crate::scheduler::shared::Shared;
use crate::util::sort::sort;

/// The maximum number of processes in the table, about 200 KiB.
const SAMPLED_MAX: usize = 4096;

/// The slot and the generation of a process.
type SampledProcess = (u32, u32);

/// The samples of one process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SampleSum {
    /// Number of looks that found it running.
    pub(crate) count: u64,
    /// The time between these looks and the looks before them, in nanoseconds.
    pub(crate) time: u64,
}

impl SampleSum {
    /// Returns the difference to an earlier sum. If the process was forgotten in between, the sum
    /// began again, and is the difference itself.
    pub(crate) fn since(self, earlier: Self) -> Self {
        match (self.count.checked_sub(earlier.count), self.time.checked_sub(earlier.time)) {
            (Some(count), Some(time)) => Self { count, time },
            _ => self,
        }
    }
}

/// The samples of a scheduler.
#[derive(Debug, Default)]
pub(crate) struct SampleTable(Mutex<SampledTimes>);

#[derive(Debug, Default)]
struct SampledTimes {
    sums: SortedMap<SampledProcess, SampleSum>,
    /// When the first look was.
    began: Option<u64>,
}

impl Part for SampleTable {}

impl SampleTable {
    pub(crate) fn of(shared: &Shared) -> &Self {
        shared.parts.get().expect("`assembly.rs` gives each scheduler this part")
    }

    /// Adds one look at `now`, which found these processes running, and `passed` nanoseconds.
    pub(crate) fn add(&self, now: u64, passed: u64, running: &[SampledProcess]) {
        let mut times = self.0.lock();
        times.began.get_or_insert(now);
        for &process in running {
            if times.sums.len() >= SAMPLED_MAX && !times.sums.contains_key(&process) {
                times.forget_least();
            }
            let sum = times.sums.get_or_default(process);
            sum.count += 1;
            sum.time += passed;
        }
    }

    /// Returns the samples of all processes in the table, by process, and when the first look was.
    pub(crate) fn all(&self) -> (Vec<(SampledProcess, SampleSum)>, Option<u64>) {
        let times = self.0.lock();
        (times.sums.iter().map(|(&process, &sum)| (process, sum)).collect(), times.began)
    }
}

impl SampledTimes {
    /// Forgets the quarter of the processes with the least time.
    fn forget_least(&mut self) {
        let mut times: Vec<_> = self.sums.values().map(|sum| sum.time).collect();
        let quarter = times.len() / 4;
        sort(&mut times);
        let limit = times[quarter];
        let mut left = quarter + 1;
        self.sums.retain(|_, sum| {
            let goes = sum.time <= limit && left > 0;
            left -= usize::from(goes);
            !goes
        });
    }
}

#[cfg(test)]
mod tests {
    use super::{SAMPLED_MAX, SampleSum, SampleTable};

    #[test]
    fn a_process_gets_the_time_of_each_look_that_finds_it() {
        let table = SampleTable::default();
        table.add(100, 10, &[(1, 1), (2, 1)]);
        table.add(120, 20, &[(2, 1)]);
        table.add(140, 20, &[]);
        let (sums, began) = table.all();
        let sum = |count, time| SampleSum { count, time };
        assert_eq!(sums, [((1, 1), sum(1, 10)), ((2, 1), sum(2, 30))]);
        assert_eq!(began, Some(100));
    }

    #[test]
    fn the_processes_with_the_least_time_are_forgotten() {
        let table = SampleTable::default();
        for slot in 0..SAMPLED_MAX as u32 {
            table.add(0, if slot % 2 == 0 { 1 } else { 1000 }, &[(slot, 1)]);
        }
        table.add(0, 1, &[(u32::MAX, 1)]);
        let (sums, _) = table.all();
        assert_eq!(sums.len(), SAMPLED_MAX - SAMPLED_MAX / 4);
        let busy = sums.iter().filter(|(_, sum)| sum.time == 1000).count();
        assert_eq!(busy, SAMPLED_MAX / 2, "none of the busy ones is forgotten");
    }
}
