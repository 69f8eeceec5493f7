//! The groups of a look.

use std::cmp::Reverse;
use std::panic::Location;
use std::time::Duration;

use procession_protocols::util::sorted_map::SortedMap;

use crate::observe::look::figure::ProcessFigures;
use crate::observe::look::query::{GroupKey, SortKey};
use crate::observe::look::view::ProcessGroup;
use crate::process::slot::Slot;
use crate::util::sort::sort_by_key;

/// The number of groups that a look keeps apart. A program has fewer locations than this, so the
/// limit only bounds the memory.
const GROUPS_MAX: usize = 4096;

/// The property of a group: the address of a location, the state, and the bits of what is waited
/// for. Two addresses may be the same location; such groups are joined in the end.
type Property = (usize, u8, u16);

/// The sums of the groups, during a pass.
pub(crate) struct LookGroups {
    key: GroupKey,
    numbers: SortedMap<Property, usize>,
    groups: Vec<ProcessGroup>,
    /// The last property and its group. Neighbours are often alike.
    last: Option<(Property, usize)>,
    /// The number of processes in groups that did not fit.
    left_off: u64,
}

impl LookGroups {
    pub(crate) fn new(key: GroupKey) -> Self {
        Self { key, numbers: SortedMap::new(), groups: Vec::new(), last: None, left_off: 0 }
    }

    /// Adds a process to its group.
    pub(crate) fn add(&mut self, slot: &Slot, figure: &ProcessFigures) {
        let address = |location: &'static Location<'static>| std::ptr::from_ref(location).addr();
        let property = match self.key {
            GroupKey::Location => (address(slot.location()), 0, 0),
            GroupKey::State => (0, figure.state as u8, 0),
            GroupKey::Waiting => (
                figure.waited_at.map_or(0, address),
                u8::from(figure.waiting.is_some()),
                figure.waiting.map_or(0, |waiting| waiting.bits()),
            ),
        };
        let Some(number) = self.number(property, slot, figure) else {
            self.left_off += 1;
            return;
        };
        let group = &mut self.groups[number];
        group.processes += 1;
        group.samples += figure.samples.count;
        group.time += Duration::from_nanos(figure.samples.time);
        group.steps += u64::from(figure.steps);
        group.mailbox += u64::from(figure.mailbox);
        group.growth += figure.growth;
        group.memory += figure.memory.total() as u64;
        group.oldest_wait = group.oldest_wait.max(figure.at_least);
    }

    /// Returns the number of a group. Makes the group if it is new and there is room.
    fn number(
        &mut self,
        property: Property,
        slot: &Slot,
        figure: &ProcessFigures,
    ) -> Option<usize> {
        if let Some((last, number)) = self.last
            && last == property
        {
            return Some(number);
        }
        let number = match self.numbers.get(&property) {
            Some(&number) => number,
            None if self.groups.len() == GROUPS_MAX => return None,
            None => {
                self.groups.push(self.empty(slot, figure));
                self.numbers.insert(property, self.groups.len() - 1);
                self.groups.len() - 1
            }
        };
        self.last = Some((property, number));
        Some(number)
    }

    fn empty(&self, slot: &Slot, figure: &ProcessFigures) -> ProcessGroup {
        ProcessGroup {
            location: match self.key {
                GroupKey::Location => Some(slot.location()),
                GroupKey::State => None,
                GroupKey::Waiting => figure.waited_at,
            },
            state: (self.key == GroupKey::State).then_some(figure.state),
            waiting: figure.waiting.filter(|_| self.key == GroupKey::Waiting),
            processes: 0,
            samples: 0,
            time: Duration::ZERO,
            steps: 0,
            mailbox: 0,
            growth: 0,
            memory: 0,
            oldest_wait: Duration::ZERO,
        }
    }

    /// Returns the largest groups by this key, and the number of processes in the remaining groups.
    pub(crate) fn into_sorted(self, key: SortKey, top: usize) -> (Vec<ProcessGroup>, u64) {
        let mut groups = joined(self.groups);
        // Stable: equal groups stay in the order of their locations.
        sort_by_key(&mut groups, |group| Reverse((group.rank(key), group.processes)));
        let cut = groups.iter().skip(top).map(|group| group.processes).sum::<u64>();
        groups.truncate(top);
        (groups, self.left_off + cut)
    }
}

/// Joins the groups of one property, and sorts them by their locations.
fn joined(mut groups: Vec<ProcessGroup>) -> Vec<ProcessGroup> {
    let property = |group: &ProcessGroup| {
        let location =
            group.location.map(|location| (location.file(), location.line(), location.column()));
        (
            location,
            group.state.map(|state| state as u8),
            group.waiting.map(|waiting| waiting.bits()),
        )
    };
    sort_by_key(&mut groups, property);
    groups.dedup_by(|other, one| {
        let is_same = property(one) == property(other);
        if is_same {
            one.processes += other.processes;
            one.samples += other.samples;
            one.time += other.time;
            one.steps += other.steps;
            one.mailbox += other.mailbox;
            one.growth += other.growth;
            one.memory += other.memory;
            one.oldest_wait = one.oldest_wait.max(other.oldest_wait);
        }
        is_same
    });
    groups
}

impl ProcessGroup {
    /// Returns the figure that groups are sorted by.
    fn rank(&self, key: SortKey) -> i64 {
        let whole = |figure: u64| i64::try_from(figure).unwrap_or(i64::MAX);
        let nanoseconds = |time: Duration| i64::try_from(time.as_nanos()).unwrap_or(i64::MAX);
        match key {
            SortKey::Samples => nanoseconds(self.time),
            SortKey::Steps => whole(self.steps),
            SortKey::Mailbox => whole(self.mailbox),
            SortKey::Growth => self.growth,
            SortKey::WaitAge => nanoseconds(self.oldest_wait),
            SortKey::Memory => whole(self.memory),
        }
    }
}
