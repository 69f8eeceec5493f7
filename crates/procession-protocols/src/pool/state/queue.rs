//! The jobs that wait for a worker, or for an earlier job of their key.

use crate::process::priority::Priority;
use crate::util::block_queue::BlockQueue;
use crate::util::sorted_map::SortedMap;

use super::lane::{JobLane, LEVELS};

/// The number of holes, beyond the number of jobs, at which a level is compacted.
pub(super) const HOLES_MAX: usize = 64;

/// The number of jobs of higher priorities that may be taken while a priority has jobs.
pub(super) const PASSED_MAX: u32 = 8;

/// The place of the default priority.
const NORMAL: usize = Priority::Normal as usize;

/// The jobs of one priority, in the order of their tickets.
#[derive(Debug)]
struct Level<J> {
    /// A withdrawn job leaves a hole, so that the remaining jobs keep their order.
    entries: BlockQueue<(u64, Option<J>)>,
    jobs: usize,
    /// The number of jobs of higher priorities that were taken since this level had its last turn.
    passed: u32,
}

impl<J> Level<J> {
    fn new() -> Self {
        Self { entries: BlockQueue::new(), jobs: 0, passed: 0 }
    }

    fn pop(&mut self) -> Option<(u64, J)> {
        while let Some((ticket, job)) = self.entries.pop_front() {
            if let Some(job) = job {
                self.jobs -= 1;
                return Some((ticket, job));
            }
        }
        None
    }

    /// Returns the number of entries with smaller tickets.
    fn place(&self, ticket: u64) -> usize {
        self.entries.partition_point(|entry| entry.0 < ticket)
    }

    fn contains(&self, ticket: u64) -> bool {
        let entry = self.entries.get(self.place(ticket));
        entry.is_some_and(|entry| entry.0 == ticket && entry.1.is_some())
    }

    /// Adds a job in the place of its ticket.
    fn insert(&mut self, ticket: u64, job: J) {
        self.entries.insert(self.place(ticket), (ticket, Some(job)));
        self.jobs += 1;
    }

    fn withdraw(&mut self, ticket: u64) -> Option<J> {
        let entry = self.entries.get_mut(self.place(ticket))?;
        let job = if entry.0 == ticket { entry.1.take()? } else { return None };
        self.jobs -= 1;
        if self.entries.len() > 2 * self.jobs + HOLES_MAX {
            let entries = std::mem::take(&mut self.entries);
            self.entries.extend(entries.into_iter().filter(|entry| entry.1.is_some()));
        }
        Some(job)
    }
}

/// A key with a job that is ready or runs, and the later jobs of the key, by ticket.
#[derive(Debug)]
struct KeyTurn<J> {
    ticket: u64,
    held: SortedMap<u64, (Priority, J)>,
}

/// The queued jobs. A job is *ready* if a worker may take it, or *held* behind an earlier job of
/// its key.
#[derive(Debug)]
pub(super) struct JobQueue<J> {
    levels: [Level<J>; LEVELS],
    /// The number of jobs, ready or held.
    pub(super) jobs: usize,
    /// The number of jobs that are ready.
    pub(super) ready: usize,
    /// The keys that have jobs which have not ended.
    turns: SortedMap<u64, KeyTurn<J>>,
    /// The key of each job that has one and has not ended, by ticket.
    keys: SortedMap<u64, u64>,
}

impl<J> JobQueue<J> {
    pub(super) fn new() -> Self {
        Self {
            levels: std::array::from_fn(|_| Level::new()),
            jobs: 0,
            ready: 0,
            turns: SortedMap::new(),
            keys: SortedMap::new(),
        }
    }

    /// Returns `true` if a job of this lane has to wait for an earlier one of its key.
    pub(super) fn holds(&self, lane: JobLane) -> bool {
        lane.key.is_some_and(|key| self.turns.contains_key(&key))
    }

    /// Adds a job behind the earlier jobs of its key.
    pub(super) fn hold(&mut self, lane: JobLane, ticket: u64, job: J) {
        let key = lane.key.expect("only a job with a key is held");
        let turn =
            self.turns.get_or_insert_with(key, || KeyTurn { ticket: 0, held: SortedMap::new() });
        turn.held.insert(ticket, (lane.priority, job));
        self.keys.insert(ticket, key);
        self.jobs += 1;
    }

    /// Notes that a job that was not held has the turn of its key.
    pub(super) fn begin(&mut self, lane: JobLane, ticket: u64) {
        if let Some(key) = lane.key {
            self.keys.insert(ticket, key);
            self.turns.insert(key, KeyTurn { ticket, held: SortedMap::new() });
        }
    }

    /// Adds a job that is ready, behind all others of its priority.
    pub(super) fn push(&mut self, priority: Priority, ticket: u64, job: J) {
        let level = &mut self.levels[priority as usize];
        level.entries.push_back((ticket, Some(job)));
        level.jobs += 1;
        self.jobs += 1;
        self.ready += 1;
    }

    /// Takes the next job that is ready.
    pub(super) fn pop(&mut self) -> Option<(u64, J)> {
        if self.ready == 0 {
            return None;
        }
        let level = self.next_level();
        let popped = self.levels[level].pop();
        debug_assert!(popped.is_some(), "jobs are counted");
        self.ready -= 1;
        self.jobs -= 1;
        popped
    }

    /// Returns the level that has the next turn, and counts the turn.
    fn next_level(&mut self) -> usize {
        let mut next = NORMAL;
        if self.levels[NORMAL].jobs < self.ready {
            let with_jobs = |level: &Level<J>| level.jobs > 0;
            let is_due = |level: &Level<J>| with_jobs(level) && level.passed >= PASSED_MAX;
            next = self
                .levels
                .iter()
                .position(is_due)
                .or_else(|| self.levels.iter().rposition(with_jobs))
                .expect("jobs are counted");
            for lower in self.levels[..next].iter_mut().filter(|level| level.jobs > 0) {
                lower.passed += 1;
            }
        }
        self.levels[next].passed = 0;
        next
    }

    /// Removes a job that is ready.
    pub(super) fn withdraw_ready(&mut self, ticket: u64) -> Option<J> {
        let job = self.levels.iter_mut().find_map(|level| level.withdraw(ticket))?;
        self.ready -= 1;
        self.jobs -= 1;
        Some(job)
    }

    /// Removes a job, ready or held.
    pub(super) fn withdraw(&mut self, ticket: u64) -> Option<J> {
        if let Some(job) = self.withdraw_ready(ticket) {
            return Some(job);
        }
        let turn = self.turns.get_mut(self.keys.get(&ticket)?)?;
        let (_, job) = turn.held.remove(&ticket)?;
        self.jobs -= 1;
        Some(job)
    }

    /// Removes the held jobs.
    pub(super) fn take_held(&mut self) -> impl Iterator<Item = (u64, J)> + use<J> {
        let mut held = SortedMap::new();
        for turn in self.turns.values_mut() {
            held.append(&mut turn.held);
        }
        self.jobs -= held.len();
        held.into_iter().map(|(ticket, (_, job))| (ticket, job))
    }

    /// Notes that a job has ended. If it had the turn of its key, the next job of the key is ready
    /// now, in the place of its ticket.
    pub(super) fn end(&mut self, ticket: u64) {
        // Most pools have no job with a key.
        if self.keys.is_empty() {
            return;
        }
        let Some(key) = self.keys.remove(&ticket) else {
            return;
        };
        let Some(turn) = self.turns.get_mut(&key).filter(|turn| turn.ticket == ticket) else {
            return;
        };
        let Some((next, (priority, job))) = turn.held.pop_first() else {
            self.turns.remove(&key);
            return;
        };
        turn.ticket = next;
        self.levels[priority as usize].insert(next, job);
        self.ready += 1;
    }

    /// Returns `true` if this job is queued, ready or held.
    pub(super) fn contains(&self, ticket: u64) -> bool {
        let turn = self.keys.get(&ticket).and_then(|key| self.turns.get(key));
        turn.is_some_and(|turn| turn.held.contains_key(&ticket)) || self.has_ready(ticket)
    }

    /// Returns the ready job that begins first if this queued job is to begin: the job itself, or
    /// the job that has the turn of its key. Returns `None` if the job with the turn has begun
    /// already.
    pub(super) fn ready_for(&self, ticket: u64) -> Option<u64> {
        if self.has_ready(ticket) {
            return Some(ticket);
        }
        let turn = self.turns.get(self.keys.get(&ticket)?)?;
        let is_held = turn.held.contains_key(&ticket);
        Some(turn.ticket).filter(|first| is_held && self.has_ready(*first))
    }

    /// Returns `true` if nothing is remembered of any key.
    #[cfg(all(test, not(procession_loom)))]
    pub(super) fn has_no_keys(&self) -> bool {
        self.turns.is_empty() && self.keys.is_empty()
    }

    /// Returns the number of entries, holes included.
    #[cfg(all(test, not(procession_loom)))]
    pub(super) fn entries(&self) -> usize {
        self.levels.iter().map(|level| level.entries.len()).sum()
    }

    /// Returns `true` if this job is ready.
    pub(super) fn has_ready(&self, ticket: u64) -> bool {
        self.levels.iter().any(|level| level.contains(ticket))
    }
}
