//! The figures of all pools, by name.

use std::sync::{Arc, Weak};

use procession_protocols::pool::state::outcome::PoolStats;
use procession_protocols::util::sorted_map::SortedMap;
use procession_sync::Mutex;

use crate::scheduler::part::Part;
use crate::scheduler::shared::Shared;

/// The maximum number of names that are shown apart. A program may make a pool for each customer.
const NAMES_MAX: usize = 50;
/// Stands for the pools with names that came later.
const OTHERS: &str = "(others)";

/// A pool, as a registry knows it.
pub(crate) trait PoolSource: Send + Sync {
    /// Returns the figures of now.
    fn figures(&self) -> PoolStats;
}

/// The place of a pool in its registry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct PoolNumber(u64);

struct KnownPool {
    name: String,
    source: Weak<dyn PoolSource>,
    /// The figures that were seen last. A pool that is being dropped cannot be asked.
    last: PoolStats,
}

/// The pools of a scheduler, or all pools of threads.
#[derive(Default)]
pub(crate) struct PoolRegistry(Mutex<KnownPools>);

#[derive(Default)]
struct KnownPools {
    next: u64,
    pools: SortedMap<PoolNumber, KnownPool>,
    /// The counts of pools that are gone, for each name that there ever was.
    gone: SortedMap<String, PoolStats>,
}

/// The pools of threads. They belong to no scheduler.
pub(crate) static THREAD_POOLS: PoolRegistry = PoolRegistry::new();

impl Part for PoolRegistry {}

impl PoolRegistry {
    /// Returns the pools of a scheduler.
    pub(crate) fn of(shared: &Shared) -> &Self {
        shared.parts.get().expect("`assembly.rs` gives each scheduler this part")
    }

    pub(crate) const fn new() -> Self {
        Self(Mutex::new(KnownPools { next: 0, pools: SortedMap::new(), gone: SortedMap::new() }))
    }

    /// Registers a pool.
    pub(crate) fn add(&self, name: &str, source: Weak<dyn PoolSource>) -> PoolNumber {
        let mut known = self.0.lock();
        let is_apart = known.gone.contains_key(name) || known.gone.len() < NAMES_MAX;
        let name = if is_apart { name } else { OTHERS }.to_owned();
        known.gone.get_or_default(name.clone());
        let number = PoolNumber(known.next);
        known.next += 1;
        known.pools.insert(number, KnownPool { name, source, last: PoolStats::default() });
        number
    }

    /// Removes a pool with its last figures. Its counts stay in the sums of its name.
    pub(crate) fn remove(&self, number: PoolNumber, last: PoolStats) {
        let mut known = self.0.lock();
        let removed = known.pools.remove(&number);
        if let Some(pool) = &removed {
            let gone = known.gone.get_or_default(pool.name.clone());
            *gone = gone.plus_totals(last);
        }
        drop(known);
        drop(removed);
    }

    /// Adds the figures of all pools to the sums of their names.
    pub(crate) fn add_to(&self, sums: &mut SortedMap<String, PoolStats>) {
        let mut held: Vec<Arc<dyn PoolSource>> = Vec::new();
        let mut known = self.0.lock();
        let KnownPools { pools, gone, .. } = &mut *known;
        for (name, gone) in gone.iter() {
            let sum = sums.get_or_default(name.clone());
            *sum = sum.plus(*gone);
        }
        for pool in pools.values_mut() {
            if let Some(source) = pool.source.upgrade() {
                pool.last = source.figures();
                // Dropped after the lock is released: this may be the last reference.
                held.push(source);
            }
            let sum = sums.get_or_default(pool.name.clone());
            *sum = sum.plus(pool.last);
        }
        drop(known);
        drop(held);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Weak};

    use super::{NAMES_MAX, OTHERS, PoolRegistry, PoolSource, PoolStats, SortedMap};

    struct Fixed(PoolStats);

    impl PoolSource for Fixed {
        fn figures(&self) -> PoolStats {
            self.0
        }
    }

    fn stats(busy: usize, completed: u64) -> PoolStats {
        let mut stats = PoolStats::default();
        (stats.busy, stats.completed) = (busy, completed);
        stats
    }

    fn fixed(busy: usize, completed: u64) -> Arc<Fixed> {
        Arc::new(Fixed(stats(busy, completed)))
    }

    fn figures(registry: &PoolRegistry) -> SortedMap<String, PoolStats> {
        let mut sums = SortedMap::new();
        registry.add_to(&mut sums);
        sums
    }

    fn weak(pool: &Arc<Fixed>) -> Weak<dyn PoolSource> {
        let weak: Weak<Fixed> = Arc::downgrade(pool);
        weak
    }

    #[test]
    fn counts_of_one_name_add_up_and_outlive_the_pools() {
        let registry = PoolRegistry::default();
        let (one, other) = (fixed(1, 10), fixed(2, 20));
        let number = registry.add("resize", weak(&one));
        registry.add("resize", weak(&other));
        assert_eq!(figures(&registry)["resize"], stats(3, 30));
        drop(one);
        assert_eq!(figures(&registry)["resize"], stats(3, 30), "it is being dropped");
        registry.remove(number, stats(0, 11));
        assert_eq!(figures(&registry)["resize"], stats(2, 31));
    }

    #[test]
    fn names_without_end_are_shown_together() {
        let registry = PoolRegistry::default();
        let pools: Vec<_> = (0..NAMES_MAX as u64 + 3).map(|_| fixed(1, 1)).collect();
        for (number, pool) in pools.iter().enumerate() {
            registry.add(&number.to_string(), weak(pool));
        }
        let figures = figures(&registry);
        assert_eq!(figures.len(), NAMES_MAX + 1);
        assert_eq!(figures[OTHERS].busy, 3);
    }
}
