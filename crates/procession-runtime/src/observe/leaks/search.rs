//! The search for leaked processes.
//!
//! # Search
//!
//! Two passes over the table, on the calling thread. No worker stops: each look at a process pins
//! its slot, and takes no lock but that of its label.
//!
//! 1. `Gather`: for each process, what alone can end its wait (`scheduler/wait_graph.rs`), if that
//!    is known. The others have hope from outside.
//! 2. `Despair`: of the gathered, keep the largest set in which each waits for nothing, or only for
//!    members of the set. Each has at most one hope, so to follow the hopes once is enough.
//! 3. `Again`: look at each member again, and drop those whose wait is another one. Then `Despair`
//!    once more.
//!
//! All members have waited from their look in `Gather` until their look in `Again`, so all of them
//! waited at the moment between. At that moment, nothing could wake one without another having been
//! woken before. So none is ever woken.

use std::collections::VecDeque;
use std::panic::Location;
use std::time::Duration;

use procession_protocols::util::sorted_map::SortedMap;
use procession_sync::Mutex;

use crate::Pid;
use crate::observe::leaks::{Leak, LeakCause, LeakSign, Leaks, Suspicion};
use crate::observe::look::rows::short_label;
use crate::process::shown_waits::WaitReason;
use crate::process::slot::{OWN, SlotRef};
use crate::process::wait_edge::mutation;
use crate::process::wait_reason::Waiting;
use crate::scheduler::builder::Builder;
use crate::scheduler::owner::Scheduler;
use crate::scheduler::part::Part;
use crate::scheduler::shared::Shared;
use crate::scheduler::wait_graph::{LastHope, LastWait, SlotKey};
use crate::sys::nanoseconds;
use crate::util::sort::{sort, sort_by_key};

/// The maximum number of leaked processes that a report lists.
const LEAKED_MAX: usize = 1000;
/// The maximum number of groups that a report lists.
const SUSPECTED_MAX: usize = 100;
/// The number of groups by label. The processes of further labels are in groups by place alone,
/// because a program may give each process a label of its own.
const LABELS_MAX: usize = 1000;
/// The default time after which a wait is suspected, in nanoseconds.
const SUSPECT_DEFAULT: u64 = 60_000_000_000;
/// The number of counts that are kept. If there are more, every second one is dropped, so that they
/// reach ever further back.
const COUNTS_MAX: usize = 8;
/// The number of earlier counts, each less than the next, that make a growth.
const GROWTH_MIN: usize = 3;
/// The number of slots that are prefetched ahead.
const AHEAD: u32 = 8;

/// The label and the place of spawn of a group.
type SpawnGroup = (&'static Location<'static>, Option<String>);

/// The numbers of processes by group, at one time.
struct GroupCounts {
    at: u64,
    counts: SortedMap<SpawnGroup, u64>,
}

/// What a scheduler keeps from one search to the next.
pub(crate) struct LeakCounts {
    /// Nanoseconds after which a wait is suspected.
    suspect_after: u64,
    counts: Mutex<VecDeque<GroupCounts>>,
}

impl Default for LeakCounts {
    fn default() -> Self {
        Self { suspect_after: SUSPECT_DEFAULT, counts: Mutex::default() }
    }
}

impl Part for LeakCounts {}

impl LeakCounts {
    fn of(shared: &Shared) -> &Self {
        shared.parts.get().expect("`assembly.rs` gives each scheduler this part")
    }

    /// Returns the groups that have grown at each look, and keeps the counts.
    fn grown(&self, now: u64, counts: &SortedMap<SpawnGroup, u64>) -> Vec<Suspicion> {
        let mut kept = self.counts.lock();
        let grows = |key: &SpawnGroup, count: u64| {
            let known = |one: &GroupCounts| one.counts.get(key).copied().unwrap_or(0);
            let earlier = kept.iter().map(known).chain([count]);
            let later = earlier.clone().skip(1);
            let is_grown = kept.len() >= GROWTH_MIN && earlier.zip(later).all(|(a, b)| a < b);
            is_grown
                .then(|| (known(&kept[0]), Duration::from_nanos(now.saturating_sub(kept[0].at))))
        };
        let found = counts.iter().filter_map(|(key, &count)| {
            let (before, since) = grows(key, count)?;
            let (spawned_at, label) = key.clone();
            let sign = LeakSign::Growth;
            Some(Suspicion { label, spawned_at, count, sign, waiting: None, since, before })
        });
        let found = found.collect();
        let is_due =
            kept.back().is_none_or(|last| now.saturating_sub(last.at) >= self.suspect_after);
        if is_due {
            kept.push_back(GroupCounts { at: now, counts: counts.clone() });
            if kept.len() > COUNTS_MAX {
                let mut number = 0;
                kept.retain(|_| {
                    number += 1;
                    number % 2 == 1
                });
            }
        }
        found
    }
}

/// What the first pass finds.
#[derive(Default)]
struct Gathered {
    /// In the order of their slots.
    waits: Vec<LastWait>,
    /// The parents of processes that exist. Their children may ask for the PID at any time.
    parents: Vec<SlotKey>,
    groups: Vec<(SpawnGroup, u64)>,
    places: SortedMap<SpawnGroup, usize>,
    /// By group, the waits that are suspected: their number and the longest.
    long: SortedMap<(usize, u16), (u64, u64)>,
    /// The group of the last process.
    last: usize,
}

impl Gathered {
    /// Counts a process in its group. Returns the group.
    fn count(&mut self, slot: &SlotRef) -> usize {
        let spawned_at = slot.location();
        let label = short_label(slot);
        let is_last =
            |(key, _): &&mut (SpawnGroup, u64)| std::ptr::eq(key.0, spawned_at) && key.1 == label;
        if let Some((_, count)) = self.groups.get_mut(self.last).filter(is_last) {
            *count += 1;
            return self.last;
        }
        let mut key = (spawned_at, label);
        if self.groups.len() >= LABELS_MAX && !self.places.contains_key(&key) {
            key.1 = None;
        }
        let next = self.groups.len();
        let place = *self.places.get_or_insert_with(key.clone(), || next);
        if place == next {
            self.groups.push((key, 0));
        }
        self.groups[place].1 += 1;
        self.last = place;
        place
    }

    fn suspect(&mut self, group: usize, waiting: Waiting, age: u64) {
        let (count, longest) = self.long.get_or_default((group, waiting.bits()));
        *count += 1;
        *longest = age.max(*longest);
    }
}

/// Returns `true` if a long wait is worth a report. The slot is pinned once by the caller.
fn is_suspect(slot: &SlotRef, waiting: Waiting) -> bool {
    let is_ignored = mutation::is(mutation::BUILT, mutation::SUSPECT_NOTHING);
    if waiting.has(Waiting::TIMER) || is_ignored {
        return false;
    }
    let is_unused = slot.pins.count() <= OWN + 2 && slot.state.see().leaves_nothing();
    !waiting.has(Waiting::MESSAGE) || is_unused
}

/// `Gather`.
fn gather(shared: &Shared, suspect_after: u64, now: u64) -> Gathered {
    let mut found = Gathered::default();
    let table = shared.table();
    for index in 0..table.used() {
        table.prefetch(index + AHEAD);
        let Some(slot) = table.pin_any(index) else { continue };
        if slot.state.see().is_complete() {
            continue;
        }
        let parent = slot.parent_in_table().map(|(slot, generation)| (slot, generation.get()));
        // Most neighbours have the same parent.
        found.parents.extend(parent.filter(|parent| found.parents.last() != Some(parent)));
        let group = found.count(&slot);
        let Some(age) = shared.processes.stamp(&slot, now) else { continue };
        if let Some(wait) = shared.last_wait(&slot) {
            found.waits.push(wait);
        }
        let waiting = slot.waiting.get().shown();
        if age >= suspect_after && is_suspect(&slot, waiting) {
            found.suspect(group, waiting, age);
        }
    }
    sort(&mut found.parents);
    let Gathered { waits, parents, .. } = &mut found;
    waits.retain(|wait| {
        !matches!(wait.hope, LastHope::Nothing | LastHope::Owner(_))
            || parents.binary_search(&wait.waiter).is_err()
    });
    found
}

/// Returns the place of a process among waits in the order of their slots.
fn find(waits: &[LastWait], process: SlotKey) -> Option<usize> {
    waits.binary_search_by_key(&process, |wait| wait.waiter).ok()
}

/// Returns for each wait the wait that its end depends on: `Err(true)` if nothing ends it, and
/// `Err(false)` if something else may.
fn hopes(waits: &[LastWait]) -> Vec<Result<usize, bool>> {
    let hope_in = |process| find(waits, process).ok_or(false);
    let mut hopes: Vec<_> = waits
        .iter()
        .map(|wait| match wait.hope {
            LastHope::Process(process) | LastHope::End(process, _) => hope_in(process),
            LastHope::Nothing | LastHope::Holder(_) => Err(true),
            LastHope::Owner(_) => Err(false),
        })
        .collect();
    for (at, wait) in waits.iter().enumerate() {
        let LastHope::End(process, access) = wait.hope else { continue };
        let Some(place) = find(waits, process) else { continue };
        if waits[place].hope == LastHope::Owner(access) {
            hopes[place] = Ok(at);
        }
    }
    hopes
}

/// `Despair`: keeps the waits that only each other can end.
fn despair(waits: &mut Vec<LastWait>) {
    let hopes = hopes(waits);
    let in_vain = mutation::is(mutation::BUILT, mutation::HOPE_IN_VAIN);
    // Whether each is leaked, once it is known. A wait that is met again on its own path is in a
    // cycle of waits, which nothing ends.
    let mut known: Vec<Option<bool>> = vec![None; waits.len()];
    let mut path = Vec::new();
    for first in 0..waits.len() {
        let mut at = first;
        let is_leaked = loop {
            if let Some(is_leaked) = known[at] {
                break is_leaked;
            }
            known[at] = Some(true);
            path.push(at);
            match hopes[at] {
                Ok(next) => at = next,
                Err(is_leaked) => break is_leaked || in_vain,
            }
        };
        path.drain(..).for_each(|at| known[at] = Some(is_leaked));
    }
    let mut known = known.into_iter();
    waits.retain(|_| known.next().flatten().unwrap_or(false));
}

/// `Again`: keeps the waits that are still the same.
fn look_again(shared: &Shared, waits: &mut Vec<LastWait>) {
    waits.retain(|wait| {
        let slot = shared.table().pin(wait.waiter.0, wait.waiter.1);
        slot.is_some_and(|slot| shared.last_wait(&slot) == Some(*wait))
    });
}

/// Describes a leaked process, if it still exists. `owner` waits for its end, if there is one.
fn describe(shared: &Shared, wait: &LastWait, owner: Option<SlotKey>, now: u64) -> Option<Leak> {
    let pid = |(slot, generation): SlotKey| Pid::local(shared.id(), slot, generation);
    let slot = shared.table().pin(wait.waiter.0, wait.waiter.1)?;
    let (cause, other) = match wait.hope {
        LastHope::Process(process) | LastHope::End(process, _) => {
            (LeakCause::Process, Some(process))
        }
        LastHope::Nothing => (LeakCause::Unreachable, None),
        LastHope::Holder(process) => (LeakCause::HolderEnded, Some(process)),
        LastHope::Owner(_) => (LeakCause::Handle, owner),
    };
    let waiting = slot.waiting.get();
    Some(Leak {
        pid: pid(wait.waiter),
        label: short_label(&slot),
        spawned_at: slot.location(),
        reason: waiting.reasons().next()?,
        location: slot.waited_at.get().filter(|_| !waiting.contains(WaitReason::Waker)),
        cause,
        other: other.map(pid),
        at_least: Duration::from_nanos(shared.processes.stamp(&slot, now)?),
    })
}

/// Returns the leaks of a scheduler.
pub(crate) fn leaks(shared: &Shared) -> Leaks {
    let kept = LeakCounts::of(shared);
    let now = shared.world.now();
    let Gathered { mut waits, groups, long, .. } = gather(shared, kept.suspect_after, now);
    despair(&mut waits);
    look_again(shared, &mut waits);
    despair(&mut waits);
    let hopes = hopes(&waits);
    let described = waits.iter().zip(hopes).filter_map(|(wait, hope)| {
        describe(shared, wait, hope.ok().map(|at| waits[at].waiter), now)
    });
    let leaked = described.take(LEAKED_MAX).collect();
    let waited = long.into_iter().map(|((group, waiting), (count, longest))| {
        let (spawned_at, label) = groups[group].0.clone();
        let (waiting, since) = (Some(Waiting::from_bits(waiting)), Duration::from_nanos(longest));
        Suspicion { label, spawned_at, count, sign: LeakSign::LongWait, waiting, since, before: 0 }
    });
    let mut suspected: Vec<_> = waited.collect();
    suspected.extend(kept.grown(now, &groups.iter().cloned().collect()));
    sort_by_key(&mut suspected, |suspicion| std::cmp::Reverse(suspicion.count));
    suspected.truncate(SUSPECTED_MAX);
    Leaks { leaked, leaked_total: waits.len() as u64, suspected }
}

impl Scheduler {
    /// Looks for processes that can never continue.
    ///
    /// [`Leaks::leaked`] follows from what the runtime has recorded. A process is in this list if
    /// it waits only for one of these, and nothing else can end the wait but a
    /// [`kill`](crate::relations::kill()), a cancel or a shutdown:
    ///
    /// - messages, or a waker, while nothing refers to the process: no address, no clone of its
    ///   waker, no handle, no child that exists, and its PID has not left the runtime
    /// - a lock whose holder has ended without a release, for example because it has forgotten the
    ///   guard
    /// - a lock, the end, the down, room in the mailbox, or the reply to a call without a timeout,
    ///   if only one process can give it, and that process is in the list, or is the same process.
    ///   A handle that a process in the list waits for does not count as a reference.
    ///
    /// [`Leaks::suspected`] only looks so.
    ///
    /// # What it cannot know
    /// The runtime counts the addresses of a process, and the ends of a channel, but does not know
    /// their owners. So it does not find a process that keeps its own address and waits for
    /// messages, one that has the only sender of the channel that it receives from, or two
    /// processes that have only each other's addresses. To know the owner of each handle, each
    /// would need 16 bytes more and a list, and each clone, move and drop a lock. It knows nothing
    /// of a [`Reply`](crate::Reply) that was received and is never used, of permits of a semaphore,
    /// of locks with several readers or with a guard of `lock_owned`, and of state machines.
    ///
    /// A PID has left the runtime once a method has returned it to the program, because a program
    /// may send by PID. PIDs in looks, snapshots, records and texts do not count. A guard of a lock
    /// in a `static` counts as held by the process that has taken it. A handle that a process waits
    /// for counts as its own, even if a future polls the handle in place behind a lock.
    ///
    /// ```
    /// use procession::observe::LeakCause;
    /// use procession::{Context, Scheduler};
    ///
    /// let scheduler = Scheduler::builder().worker_threads(1).test_clock().build()?;
    /// let server = scheduler.start(|mut cx: Context<u32>| async move { cx.recv().await });
    /// scheduler.run_until_idle();
    /// assert!(scheduler.leaks().is_empty());
    ///
    /// // Nobody can send to it any more.
    /// drop(server);
    /// let leaks = scheduler.leaks();
    /// assert_eq!(leaks.leaked_total, 1);
    /// assert_eq!(leaks.leaked[0].cause, LeakCause::Unreachable);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Blocking
    /// Visits each process once, and each leaked process twice more. Workers are not stopped.
    pub fn leaks(&self) -> Leaks {
        leaks(self.shared())
    }
}

impl Builder {
    /// Sets the time after which a wait without a timeout is
    /// [suspected](crate::look::LeakSign::LongWait). Default: 60 s.
    ///
    /// [`Scheduler::leaks`] also keeps the numbers of processes by label and place that often, to
    /// see whether they grow.
    pub fn suspect_after(mut self, time: Duration) -> Self {
        let part = self.parts.get_mut::<LeakCounts>();
        let part = part.expect("`assembly.rs` gives each scheduler this part");
        part.suspect_after = nanoseconds(time);
        self
    }
}
