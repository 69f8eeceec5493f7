//! The pass of a look over all processes.
//!
//! A look pins one process at a time, reads a few words of its slot, and keeps only what the answer
//! needs: the best candidates for the rows in a heap, and the sums of the groups. Rows are built
//! at the end, for the candidates that are left and that still exist.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::panic::Location;
use std::time::Duration;

use crate::observe::look::figure::ProcessFigures;
use crate::observe::look::groups::LookGroups;
use crate::observe::look::query::{Filter, LocationPattern, Query};
use crate::observe::look::rows::{self, find};
use crate::observe::look::view::{Baseline, Figures, ProcessKey, View};
use crate::observe::process_info::{MemoryUse, ProcessInfo, current_label, in_steps, state};
use crate::observe::process_state::ProcessState;
use crate::process::slot::Slot;
use crate::process::typed::COROUTINE;
use crate::process::wait_reason::Waiting;
use crate::scheduler::shared::Shared;
use crate::scheduler::stalls::samples::{SampleSum, SampleTable};
use crate::sys::nanoseconds;
use crate::time::Instant;
use crate::util::sort::sort;

/// The number of mailboxes that a look keeps for later differences. If more mailboxes hold
/// messages, the longest are kept.
const MAILBOXES_KEPT: usize = 4096;

/// Figures by process, read in the order of the processes.
struct InOrder<'a, T>(&'a [(ProcessKey, T)]);

impl<T: Copy + Default> InOrder<'_, T> {
    /// Returns the figure of a process, or zero if there is none. The processes must be asked for
    /// in their order.
    fn get(&mut self, key: ProcessKey) -> T {
        while let Some((&(first, figure), rest)) = self.0.split_first() {
            if first > key {
                break;
            }
            self.0 = rest;
            if first == key {
                return figure;
            }
        }
        T::default()
    }
}

/// The longest mailboxes that the pass has met, the shortest on top.
#[derive(Default)]
struct LongestMailboxes(BinaryHeap<Reverse<(u32, ProcessKey)>>);

impl LongestMailboxes {
    fn meet(&mut self, key: ProcessKey, length: u32) {
        if length == 0 {
            return;
        }
        if self.0.len() == MAILBOXES_KEPT {
            if self.0.peek().is_some_and(|Reverse((least, _))| *least >= length) {
                return;
            }
            self.0.pop();
        }
        self.0.push(Reverse((length, key)));
    }

    fn into_figures(self) -> Figures<u64> {
        let mut figures: Figures<u64> =
            self.0.into_iter().map(|Reverse((length, key))| (key, u64::from(length))).collect();
        sort(&mut figures);
        figures
    }
}

/// The best candidates for the rows, the worst candidate on top. Of equals, the first is better.
struct Top {
    heap: BinaryHeap<Reverse<(i64, Reverse<ProcessKey>)>>,
    max: usize,
}

impl Top {
    fn meet(&mut self, rank: i64, key: ProcessKey) {
        let candidate = Reverse((rank, Reverse(key)));
        if self.heap.len() < self.max {
            self.heap.push(candidate);
        } else if let Some(mut worst) = self.heap.peek_mut()
            && candidate < *worst
        {
            *worst = candidate;
        }
    }

    /// Returns the candidates, the best first.
    fn into_keys(self) -> impl Iterator<Item = ProcessKey> {
        self.heap.into_sorted_vec().into_iter().map(|Reverse((_, Reverse(key)))| key)
    }
}

/// The figures of a process that its slot does not hold.
#[derive(Clone, Copy, Default)]
struct KnownBefore {
    samples: SampleSum,
    samples_before: SampleSum,
    mailbox_before: u64,
}

/// What a look knows before it visits a process.
struct LookScan<'a> {
    shared: &'a Shared,
    now: u64,
    in_steps: Vec<u32>,
    before: Option<&'a Baseline>,
}

/// Answers a query.
pub(crate) fn look(shared: &Shared, query: &Query) -> View {
    let since = query.since.as_ref();
    let scan = LookScan::new(shared, since.map(|(_, before)| &**before));
    let at = Instant::from_nanoseconds(scan.now);
    let mut baseline = baseline(shared);
    let mut view = View {
        at: Some(at),
        window: since.and_then(|(before, _)| Some(at.saturating_duration_since((*before)?))),
        looks: baseline.looks - scan.before.map_or(0, |before| before.looks.min(baseline.looks)),
        ..View::default()
    };
    let keys = pass(shared, query, &scan, &mut view, &mut baseline);
    let sampled = (scan.sampled(view.window, &baseline), view.looks);
    for (index, generation) in keys {
        // It may have ended since.
        if let Some(slot) = shared.table().pin(index, generation)
            && let Some(figure) = scan.figure(&slot, scan.known(&baseline, (index, generation)))
        {
            view.rows.push(rows::row(&slot, &figure, sampled, scan.before));
        }
    }
    baseline.keep_rows(&view.rows);
    view.baseline = baseline.into();
    view
}

/// Returns the row of a pinned process, unless it has ended and is forgotten.
pub(crate) fn row(shared: &Shared, slot: &Slot) -> Option<ProcessInfo> {
    let scan = LookScan::new(shared, None);
    let baseline = baseline(shared);
    let key = (slot.index(), slot.pins.generation());
    let figure = scan.figure(slot, scan.known(&baseline, key))?;
    let sampled = (scan.sampled(None, &baseline), baseline.looks);
    Some(rows::row(slot, &figure, sampled, None))
}

/// Returns the number of messages in a mailbox of either kind.
pub(crate) fn mailbox_length(slot: &Slot) -> u32 {
    match slot.bounded() {
        None => slot.mailbox_length(),
        Some((length, ..)) => length,
    }
}

/// Returns a baseline with what the watchdog has counted.
fn baseline(shared: &Shared) -> Baseline {
    let (samples, began) = SampleTable::of(shared).all();
    Baseline {
        looks: shared.workforce.watchdog.counts().looks,
        began,
        samples,
        ..Baseline::default()
    }
}

/// Visits all processes, and returns the best candidates for the rows.
fn pass(
    shared: &Shared,
    query: &Query,
    scan: &LookScan<'_>,
    view: &mut View,
    baseline: &mut Baseline,
) -> impl Iterator<Item = ProcessKey> + use<> {
    let nothing = Baseline::default();
    let before = scan.before.unwrap_or(&nothing);
    let mut samples = InOrder(&baseline.samples);
    let mut samples_before = InOrder(&before.samples);
    let mut mailboxes_before = InOrder(&before.mailboxes);
    let mut top = Top { heap: BinaryHeap::with_capacity(query.top), max: query.top };
    let mut mailboxes = LongestMailboxes::default();
    let mut groups = query.group_by.map(LookGroups::new);
    for index in 0..shared.table().used() {
        let Some(slot) = shared.table().pin_any(index) else { continue };
        let key = (index, slot.pins.generation());
        let known = KnownBefore {
            samples: samples.get(key),
            samples_before: samples_before.get(key),
            mailbox_before: mailboxes_before.get(key),
        };
        let Some(figure) = scan.figure(&slot, known) else { continue };
        view.processes += 1;
        mailboxes.meet(key, figure.mailbox);
        if !matches(&query.filter, &slot, &figure) {
            continue;
        }
        view.matched += 1;
        top.meet(figure.rank(query.sort), key);
        if let Some(groups) = &mut groups {
            groups.add(&slot, &figure);
        }
    }
    if let Some(groups) = groups {
        (view.groups, view.left_off) = groups.into_sorted(query.sort, query.top);
    }
    baseline.mailboxes = mailboxes.into_figures();
    top.into_keys()
}

impl<'a> LookScan<'a> {
    fn new(shared: &'a Shared, before: Option<&'a Baseline>) -> Self {
        Self { shared, now: shared.world.now(), in_steps: in_steps(shared), before }
    }

    /// Returns the nanoseconds in which the samples were taken.
    fn sampled(&self, window: Option<Duration>, baseline: &Baseline) -> u64 {
        match window {
            Some(window) => nanoseconds(window),
            None => baseline.began.map_or(0, |began| self.now.saturating_sub(began)),
        }
    }

    /// Returns the figures of a process, unless it has ended and is forgotten.
    fn figure(&self, slot: &Slot, known: KnownBefore) -> Option<ProcessFigures> {
        let seen = slot.state.see();
        // A complete process without a handle is forgotten, even if it still has addresses.
        if seen.is_complete() && !seen.has_handle() {
            return None;
        }
        let state = state(slot, seen, &self.in_steps);
        let waits = matches!(state, ProcessState::Blocked | ProcessState::Idle);
        let mailbox = mailbox_length(slot);
        Some(ProcessFigures {
            state,
            waiting: waits.then(|| slot.waiting.get().shown()),
            waited_at: if waits { waited_at(slot) } else { None },
            mailbox,
            growth: i64::from(mailbox).saturating_sub_unsigned(known.mailbox_before),
            steps: slot.steps(),
            samples: known.samples.since(known.samples_before),
            memory: self.memory(slot, mailbox),
            at_least: Duration::from_nanos(
                self.shared.processes.stamp(slot, self.now).unwrap_or(0),
            ),
        })
    }

    fn memory(&self, slot: &Slot, mailbox: u32) -> MemoryUse {
        MemoryUse {
            body: slot.body_bytes(),
            mailbox: mailbox as usize * slot.kind().message_bytes,
            stack: if slot.bound.has_begun() && slot.kind().name == COROUTINE {
                self.shared.coroutines.stack_bytes
            } else {
                0
            },
        }
    }

    fn known(&self, baseline: &Baseline, key: ProcessKey) -> KnownBefore {
        KnownBefore {
            samples: find(&baseline.samples, key),
            samples_before: self
                .before
                .map(|before| find(&before.samples, key))
                .unwrap_or_default(),
            mailbox_before: self.before.map_or(0, |before| find(&before.mailboxes, key)),
        }
    }
}

/// Returns the location where a process waits. If nothing of the runtime is waited for, the
/// location belongs to an earlier wait, unless the process is a coroutine, because a coroutine
/// notes every wait.
fn waited_at(slot: &Slot) -> Option<&'static Location<'static>> {
    let is_noted =
        slot.waiting.get().shown() != Waiting::default() || slot.kind().name == COROUTINE;
    slot.waited_at.get().filter(|_| is_noted)
}

fn matches(filter: &Filter, slot: &Slot, figure: &ProcessFigures) -> bool {
    filter.pid.is_none_or(|pid| pid == slot.seen_pid())
        && filter.state.is_none_or(|state| state == figure.state)
        && filter
            .waiting_for
            .is_none_or(|reason| figure.waiting.is_some_and(|waiting| waiting.contains(reason)))
        && filter.kind.as_ref().is_none_or(|kind| kind == slot.kind().name)
        && filter.location.as_ref().is_none_or(|location| location.matches(slot.location()))
        && filter.label.as_ref().is_none_or(|text| {
            current_label(slot).is_some_and(|label| label.contains(text.as_str()))
        })
}

impl LocationPattern {
    fn matches(&self, location: &Location<'_>) -> bool {
        match self.line {
            None => location.file().contains(&self.file),
            Some(line) => location.line() == line && location.file().ends_with(&self.file),
        }
    }
}
