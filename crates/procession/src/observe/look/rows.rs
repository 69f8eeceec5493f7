//! The rows of a view.

use crate::observe::look::figure::ProcessFigures;
use crate::observe::look::view::{
    Baseline, Figures, ProcessKey, ProcessRow, ProcessWait, Samples, View,
};
use crate::observe::snapshot::label;
use crate::process::slot::Slot;

/// The number of characters of a label that a row shows.
const LABEL_MAX: usize = 120;

/// Returns the figure of a process, or 0 if there is none.
pub(crate) fn find(figures: &Figures, key: ProcessKey) -> u64 {
    figures.binary_search_by_key(&key, |&(key, _)| key).map_or(0, |at| figures[at].1)
}

impl Samples {
    /// Returns the share of a process that `count` of `looks` found running, with its error by the
    /// binomial distribution.
    pub(crate) fn new(count: u64, looks: u64) -> Self {
        if looks == 0 {
            return Self { count, ..Self::default() };
        }
        let share = count as f64 / looks as f64;
        let within = share.min(1.0);
        let error = (within * (1.0 - within) / looks as f64).sqrt();
        // A count of 0 or of all looks does not mean that there is no error: this is the share that
        // one look stands for.
        Self { count, share, error: error.max(1.0 / looks as f64) }
    }
}

impl ProcessRow {
    /// Builds the row of a pinned process.
    pub(crate) fn new(
        slot: &Slot,
        figure: &ProcessFigures,
        looks: u64,
        before: Option<&Baseline>,
    ) -> Self {
        let key = (slot.index(), slot.pins.generation());
        let row_before = before.and_then(|before| before.row(key));
        let received = slot.received();
        Self {
            pid: slot.pid(),
            parent: slot.parent(),
            label: label(slot).map(|label| cut(&label)),
            place: slot.location(),
            kind: slot.kind().name,
            state: figure.state,
            wait: figure.waiting.map(|reasons| ProcessWait {
                reasons,
                place: figure.waited_at,
                target: None,
                at_least: figure.at_least,
                in_cycle: false,
            }),
            mailbox: figure.mailbox,
            growth: if before.is_some() { figure.growth } else { 0 },
            mailbox_high_water: match slot.bounded() {
                None => slot.high_water(),
                Some((_, high_water, _)) => high_water,
            },
            received,
            received_in_window: row_before.map(|(before, _)| received.wrapping_sub(before)),
            steps: figure.steps,
            steps_in_window: row_before.map(|(_, before)| figure.steps.wrapping_sub(before)),
            samples: Samples::new(figure.samples, looks),
            memory: figure.memory,
        }
    }
}

fn cut(label: &str) -> String {
    label.chars().take(LABEL_MAX).collect()
}

impl Baseline {
    /// Returns the received messages and the steps of a process, if the view had a row of it.
    fn row(&self, key: ProcessKey) -> Option<(u32, u32)> {
        let at = self.rows.binary_search_by_key(&key, |&(key, _)| key).ok()?;
        Some(self.rows[at].1)
    }

    /// Keeps the figures of the rows.
    pub(crate) fn keep_rows(&mut self, rows: &[ProcessRow]) {
        let kept = rows.iter().map(|row| (key_of(row), (row.received, row.steps)));
        self.rows = kept.collect();
        self.rows.sort_unstable();
    }
}

fn key_of(row: &ProcessRow) -> ProcessKey {
    (row.pid.slot(), row.pid.generation())
}

impl View {
    /// Returns this view with the differences to an earlier view of the same scheduler.
    ///
    /// The rows and groups stay in their order. The samples and the growth are those of the window
    /// between the two. They are exact for processes that one of the two views has met: each view
    /// remembers the samples of 4096 processes and the lengths of 4096 mailboxes, the largest of
    /// each. [`Query::since`](super::query::Query::since) sorts by the differences.
    ///
    /// The figures of groups are not changed.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let before = &*earlier.baseline;
        let mut view = self.clone();
        view.looks = self.baseline.looks.saturating_sub(before.looks);
        view.window =
            self.at.zip(earlier.at).map(|(at, before)| at.saturating_duration_since(before));
        for row in &mut view.rows {
            let key = key_of(row);
            let samples = find(&self.baseline.samples, key);
            let samples = samples.saturating_sub(find(&before.samples, key));
            row.samples = Samples::new(samples, view.looks);
            let mailbox = find(&before.mailboxes, key);
            row.growth = i64::from(row.mailbox).saturating_sub_unsigned(mailbox);
            let known = before.row(key);
            row.received_in_window = known.map(|(received, _)| row.received.wrapping_sub(received));
            row.steps_in_window = known.map(|(_, steps)| row.steps.wrapping_sub(steps));
        }
        view
    }
}
