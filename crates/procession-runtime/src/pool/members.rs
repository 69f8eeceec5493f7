//! The members of a pool: one, or several that share the work.

use std::sync::Arc;

use procession_protocols::pool::state::outcome::PoolStats;
use procession_sync::atomic::Ordering::Relaxed;

use super::builder::Balance;
use super::engine::Inner;
use crate::process::unwind::guarded;

/// The most members. Each member is asked for its load to find the least loaded one.
pub(super) const MEMBERS_MAX: usize = 1024;

/// Shared by the handles of a pool. When the last handle is dropped, the pool is closed.
pub(super) struct PoolOwner<J: Send + 'static>(pub(super) Arc<Inner<J>>);

impl<J: Send + 'static> Drop for PoolOwner<J> {
    fn drop(&mut self) {
        drop(guarded(|| self.0.close()));
    }
}

fn load(stats: &PoolStats) -> usize {
    stats.busy + stats.queued + stats.reserved + stats.waiting
}

fn turn<J: Send + 'static>(members: &[PoolOwner<J>]) -> usize {
    // Relaxed: the numbers only have to differ.
    members[0].0.turns.fetch_add(1, Relaxed) % members.len()
}

/// Returns the member that gets the next job.
pub(super) fn pick<J: Send + 'static>(members: &[PoolOwner<J>]) -> &Arc<Inner<J>> {
    match (members, members[0].0.balance) {
        ([only], _) => &only.0,
        (_, Balance::RoundRobin) => &members[turn(members)].0,
        (_, Balance::LeastLoaded) => least_loaded(members),
    }
}

pub(super) fn least_loaded<J: Send + 'static>(members: &[PoolOwner<J>]) -> &Arc<Inner<J>> {
    // Among equals, the choice rotates. Otherwise all threads that look at the same time would
    // choose the same member.
    let (before, after) = members.split_at(turn(members));
    let least = after.iter().chain(before).min_by_key(|member| load(&member.0.stats()));
    &least.expect("there is at least one").0
}

/// Returns the member that gets all jobs of this key.
pub(super) fn of_key<J: Send + 'static>(members: &[PoolOwner<J>], key: u64) -> &Arc<Inner<J>> {
    let place = key % members.len() as u64;
    &members[usize::try_from(place).expect("there are at most 1024")].0
}
