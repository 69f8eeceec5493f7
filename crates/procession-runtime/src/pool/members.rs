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

/// Returns the member that gets the next job.
pub(super) fn pick<J: Send + 'static>(members: &[PoolOwner<J>]) -> &Arc<Inner<J>> {
    let [first, _, ..] = members else { return &members[0].0 };
    // Relaxed: the numbers only have to differ.
    let turn = first.0.turns.fetch_add(1, Relaxed) % members.len();
    match first.0.balance {
        Balance::RoundRobin => &members[turn].0,
        Balance::LeastLoaded => least_loaded(members),
    }
}

pub(super) fn least_loaded<J: Send + 'static>(members: &[PoolOwner<J>]) -> &Arc<Inner<J>> {
    // Among equals, the choice rotates with the turns. Otherwise all threads that look at the same
    // time would choose the same member. It takes no turn, because the choice of a member for a
    // job that another one has refused would make the turns uneven.
    let turn = members[0].0.turns.load(Relaxed) % members.len();
    let (before, after) = members.split_at(turn);
    let least = after.iter().chain(before).min_by_key(|member| load(&member.0.stats()));
    &least.expect("there is at least one").0
}

/// Returns the member that gets all jobs of this key.
pub(super) fn of_key<J: Send + 'static>(members: &[PoolOwner<J>], key: u64) -> &Arc<Inner<J>> {
    let place = key % members.len() as u64;
    &members[usize::try_from(place).expect("there are at most 1024")].0
}
