//! Random sequences of operations against a list.

use procession_sync::Arc;
use proptest::prelude::*;

use super::{LIMIT, every};
use crate::time::timers::firing::FIRINGS_MAX;
use crate::time::timers::heap::{Heap, NEVER};
use crate::time::timers::{PORTION, TimerId, TimerRefused, Timers};

#[derive(Clone, Copy, Debug)]
enum Op {
    Add { after: u64, period: u64 },
    Delete { which: usize, locked: bool },
    Reset { which: usize, after: u64, locked: bool },
    Modify { which: usize, after: u64, period: u64 },
    Run { ahead: u64 },
    Clean,
    Adjust,
}

/// Nearby times, distant times, and the ends of the range. Sums with the present saturate.
fn time() -> impl Strategy<Value = u64> {
    prop_oneof![8 => 0..20u64, 3 => 0..5000u64, 1 => Just(400 * 24 * 3600 * 1_000_000_000), 1 => Just(u64::MAX - 1), 1 => Just(u64::MAX)]
}

fn period() -> impl Strategy<Value = u64> {
    prop_oneof![6 => Just(0), 2 => 1..30u64, 1 => Just(u64::MAX)]
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        8 => (time(), period()).prop_map(|(after, period)| Op::Add { after, period }),
        3 => (any::<usize>(), any::<bool>()).prop_map(|(which, locked)| Op::Delete { which, locked }),
        4 => (any::<usize>(), time(), any::<bool>()).prop_map(|(which, after, locked)| Op::Reset { which, after, locked }),
        2 => (any::<usize>(), time(), period()).prop_map(|(which, after, period)| Op::Modify { which, after, period }),
        3 => (0..15u64).prop_map(|ahead| Op::Run { ahead }),
        1 => time().prop_map(|ahead| Op::Run { ahead }),
        1 => Just(Op::Clean),
        1 => Just(Op::Adjust),
    ]
}

/// The expected state of a timer.
#[derive(Clone, Debug)]
struct Expected {
    id: TimerId,
    when: u64,
    period: u64,
    action: u32,
    is_pending: bool,
}

/// The timers as a list, in the order of creation.
#[derive(Default)]
struct List {
    timers: Vec<Expected>,
    now: u64,
}

impl List {
    fn pick(&mut self, which: usize) -> Option<&mut Expected> {
        let length = self.timers.len();
        // The youngest timers are picked often, because most old timers are stale.
        (length > 0).then(|| &mut self.timers[length - 1 - which % length.min(1 + which % 64)])
    }

    fn first(&mut self) -> Option<&mut Expected> {
        self.timers
            .iter_mut()
            .filter(|timer| timer.is_pending && timer.when != NEVER)
            .min_by_key(|timer| timer.when)
    }

    /// Returns the time before which nothing can be due.
    fn next(&mut self) -> u64 {
        self.first().map_or(NEVER, |timer| timer.when)
    }

    fn run(&mut self) -> Vec<u32> {
        let now = self.now;
        let mut fired = Vec::new();
        while fired.len() < FIRINGS_MAX as usize
            && let Some(first) = self.first().filter(|timer| timer.when <= now)
        {
            fired.push(first.action);
            first.is_pending = first.period != 0;
            while first.is_pending && first.when <= now && first.when != NEVER {
                // By the formula, because counting could take long.
                let periods = if now - first.when > 10_000 {
                    ((now - first.when) / first.period).saturating_add(1)
                } else {
                    1
                };
                first.when = first.when.saturating_add(first.period.saturating_mul(periods));
            }
        }
        fired
    }
}

fn follows_the_list(ops: &[Op], created: u32) {
    let timers = Timers::<(u32, Arc<()>)>::starting_at(LIMIT, 0, created);
    let alive = Arc::new(());
    let action = |number| (number, Arc::clone(&alive));
    let mut list = List::default();
    let mut actions = 0;
    for op in ops {
        match *op {
            Op::Add { after, period } => {
                let when = list.now.saturating_add(after);
                let id =
                    timers.add(when, every(period), action(actions)).expect("within the limit").id;
                list.timers.push(Expected { id, when, period, action: actions, is_pending: true });
                actions += 1;
            }
            Op::Delete { which, locked } => {
                let Some(timer) = list.pick(which) else { continue };
                let deleted =
                    if locked { timers.delete(timer.id) } else { timers.delete_apart(timer.id) };
                assert_eq!(
                    deleted.map(|action| action.0),
                    timer.is_pending.then_some(timer.action)
                );
                timer.is_pending = false;
            }
            Op::Reset { which, after, locked } => {
                let when = list.now.saturating_add(after);
                let Some(timer) = list.pick(which) else { continue };
                let reset = if locked {
                    timers.reset(timer.id, when)
                } else {
                    timers.reset_apart(timer.id, when)
                };
                assert_eq!(reset.is_some(), timer.is_pending);
                timer.when = when;
            }
            Op::Modify { which, after, period } => {
                let when = list.now.saturating_add(after);
                let Some(timer) = list.pick(which) else { continue };
                match timers.modify(timer.id, when, every(period), action(actions)) {
                    Ok(modified) => {
                        assert!(timer.is_pending);
                        assert_eq!(modified.replaced.0, timer.action);
                        *timer = Expected { when, period, action: actions, ..timer.clone() };
                    }
                    Err(TimerRefused(refused)) => {
                        assert!(!timer.is_pending);
                        assert_eq!(refused.0, actions);
                    }
                }
                actions += 1;
            }
            Op::Run { ahead } => {
                list.now = list.now.saturating_add(ahead);
                let mut fired = Vec::new();
                let ran = timers.run(list.now, &mut |action| fired.push(action.0));
                assert_eq!(fired, list.run());
                let is_due = list.next() <= list.now && list.next() != NEVER;
                assert!(ran.more || !is_due, "nothing due is forgotten");
            }
            Op::Clean => {
                if timers.clean() < PORTION {
                    assert_eq!(timers.next(), list.next(), "after cleaning, the time is exact");
                }
            }
            Op::Adjust => {
                timers.adjust();
            }
        }
        assert!(timers.next() <= list.next(), "nobody may sleep longer");
    }
    timers.adjust();
    timers.assert_sound();
    let counts = timers.counts();
    assert_eq!(counts.pending, list.timers.iter().filter(|timer| timer.is_pending).count() as u64);
    assert_eq!(counts.armed, list.timers.len() as u64);
    assert_eq!(counts.armed, counts.fired + counts.cancelled + counts.pending);
    drop(timers);
    assert_eq!(Arc::strong_count(&alive), 1, "each action was dropped");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_operations_do_as_on_a_list(ops in prop::collection::vec(op(), 0..200), created in prop_oneof![Just(0), Just(u32::MAX - 20)]) {
        follows_the_list(&ops, created);
    }

    #[test]
    fn a_heap_of_any_shape_is_sound(ops in prop::collection::vec((0..64u32, 0..40u64), 0..300)) {
        let mut heap = Heap::new(0);
        heap.track(64);
        let mut list = Vec::<(u64, u32, u32)>::new();
        for (slot, when) in ops {
            match heap.when_of(slot) {
                None => {
                    let sequence = heap.create();
                    heap.insert(when, sequence, slot);
                    list.push((when, sequence, slot));
                }
                Some(_) if when % 3 == 0 => {
                    heap.remove(slot);
                    list.retain(|entry| entry.2 != slot);
                }
                Some(_) => {
                    heap.change(slot, when);
                    list.iter_mut().filter(|entry| entry.2 == slot).for_each(|entry| entry.0 = when);
                }
            }
            heap.assert_sound();
            assert_eq!(heap.first().map(|key| (key.when(), key.slot())), list.iter().min().map(|entry| (entry.0, entry.2)));
        }
    }
}
