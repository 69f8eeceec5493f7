//! The rows of a view.

use std::time::Duration;

use procession_protocols::process::state::ProcessPhase;

use crate::Pid;
use crate::observe::look::figure::ProcessFigures;
use crate::observe::look::view::{Baseline, Figures, ProcessKey, View};
use crate::observe::process_info::{
    ProcessInfo, ProcessWait, Samples, current_label, is_suspended,
};
use crate::process::slot::Slot;
use crate::process::wait_reason::Waiting;
use crate::scheduler::stalls::samples::SampleSum;
use crate::sys::nanoseconds;
use crate::util::sort::sort;

/// The number of characters of a label that a row shows.
const LABEL_MAX: usize = 120;

/// Returns the figure of a process, or zero if there is none.
pub(crate) fn find<T: Copy + Default>(figures: &Figures<T>, key: ProcessKey) -> T {
    let at = figures.binary_search_by_key(&key, |&(key, _)| key);
    at.map(|at| figures[at].1).unwrap_or_default()
}

impl Samples {
    /// Returns the processor time of a process in `of` nanoseconds, in which there were `looks`.
    fn new(sum: SampleSum, (of, looks): (u64, u64)) -> Self {
        let time = Duration::from_nanos(sum.time);
        if of == 0 || looks == 0 {
            return Self { count: sum.count, time, ..Self::default() };
        }
        let share = sum.time as f64 / of as f64;
        let within = share.min(1.0);
        let looks = looks as f64;
        // Binomial. If no look or every look has found the process, this is the share that one look
        // stands for.
        let error = (within * (1.0 - within) / looks).sqrt().max(1.0 / looks);
        Self { count: sum.count, time, share, error }
    }
}

/// Builds the row of a pinned process.
pub(crate) fn row(
    slot: &Slot,
    figure: &ProcessFigures,
    sampled: (u64, u64),
    before: Option<&Baseline>,
) -> ProcessInfo {
    let key = (slot.index(), slot.pins.generation());
    let row_before = before.and_then(|before| before.row(key));
    let info = ProcessInfo::of(slot, figure.state);
    ProcessInfo {
        label: short_label(slot),
        suspended: is_suspended(slot),
        waiting: figure.waiting.unwrap_or_default(),
        wait: figure.waiting.map(|reasons| ProcessWait {
            reasons,
            location: figure.waited_at,
            target: slot.target(),
            at_least: figure.at_least,
            in_cycle: waits_for_itself(slot),
        }),
        mailbox: figure.mailbox,
        growth: if before.is_some() { figure.growth } else { 0 },
        received_in_window: row_before.map(|(before, _)| info.received.wrapping_sub(before)),
        steps: figure.steps,
        steps_in_window: row_before.map(|(_, before)| figure.steps.wrapping_sub(before)),
        samples: Some(Samples::new(figure.samples, sampled)),
        memory: Some(figure.memory),
        ..info
    }
}

/// The number of processes that the search for a cycle follows.
const CYCLE_MAX: usize = 1000;

/// Returns `true` if a process waits for another process, which waits for a third, and so on, until
/// a process waits for the first, and if each can continue only by a timeout or a cancel.
fn waits_for_itself(first: &Slot) -> bool {
    let table = first.shared().table();
    let mut at = stuck_behind(first);
    for _ in 0..CYCLE_MAX {
        let Some(pid) = at else { return false };
        if pid == first.seen_pid() {
            return true;
        }
        at = table.pin(pid.slot(), pid.generation()).and_then(|slot| stuck_behind(&slot));
    }
    false
}

/// Returns the process that another process waits for, if that process waits only for it, a timeout
/// or a cancel.
fn stuck_behind(slot: &Slot) -> Option<Pid> {
    let is_stuck = slot.state.see().phase() == ProcessPhase::Blocked
        && slot.waiting.get().shown().only(Waiting::FOR_ANOTHER.or_end())
        && slot.waits_once();
    slot.target().filter(|_| is_stuck)
}

/// Returns the label of a process, cut.
pub(crate) fn short_label(slot: &Slot) -> Option<String> {
    Some(current_label(slot)?.chars().take(LABEL_MAX).collect())
}

impl Baseline {
    /// Returns the received messages and the steps of a process, if the view had a row for the
    /// process.
    fn row(&self, key: ProcessKey) -> Option<(u32, u32)> {
        let at = self.rows.binary_search_by_key(&key, |&(key, _)| key).ok()?;
        Some(self.rows[at].1)
    }

    /// Keeps the figures of the rows.
    pub(crate) fn keep_rows(&mut self, rows: &[ProcessInfo]) {
        let kept = rows.iter().map(|row| (key_of(row), (row.received, row.steps)));
        self.rows = kept.collect();
        sort(&mut self.rows);
    }
}

fn key_of(row: &ProcessInfo) -> ProcessKey {
    (row.pid.slot(), row.pid.generation())
}

impl View {
    /// Returns this view with the differences to an earlier view of the same scheduler.
    ///
    /// The rows and groups stay in their order. The samples and the growth are counted in the
    /// window between the two views. They are exact for processes that one of the two views has
    /// met: each view remembers the samples of 4096 processes and the lengths of 4096 mailboxes,
    /// the largest of each. [`Query::since`](super::query::Query::since) sorts by the differences.
    ///
    /// The figures of groups are not changed.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let before = &*earlier.baseline;
        let mut view = self.clone();
        view.looks = self.baseline.looks.saturating_sub(before.looks);
        view.window =
            self.at.zip(earlier.at).map(|(at, before)| at.saturating_duration_since(before));
        let sampled = view.window.map_or(0, nanoseconds);
        for row in &mut view.rows {
            let key = key_of(row);
            let samples = find(&self.baseline.samples, key).since(find(&before.samples, key));
            row.samples = Some(Samples::new(samples, (sampled, view.looks)));
            let mailbox = find(&before.mailboxes, key);
            row.growth = i64::from(row.mailbox).saturating_sub_unsigned(mailbox);
            let known = before.row(key);
            row.received_in_window = known.map(|(received, _)| row.received.wrapping_sub(received));
            row.steps_in_window = known.map(|(_, steps)| row.steps.wrapping_sub(steps));
        }
        view
    }
}
