use std::io;
use std::sync::Arc;
use std::task::Poll;

use crate::sync::wait_list::Another;

use super::busy::{Busy, Lender};
use super::core::PoolCore;
use super::idle::{IdleWorker, Order, PoolSeat};
use super::lane::JobLane;
use super::outcome::{Ended, EnterError, Limits, Next, Wakes};
use super::queue::HOLES_MAX;
use super::synced::Start;
use crate::process::priority::Priority;

fn core(capacity: usize, queue: usize) -> PoolCore<u32> {
    PoolCore::new(Limits {
        capacity,
        queue,
        waiting: usize::MAX,
        kept: 0,
        rests: false,
        threads: true,
    })
}

type Started = io::Result<IdleWorker<u32>>;

fn start() -> Started {
    Ok(IdleWorker::Parked(PoolSeat::new()))
}

fn start_resting() -> Started {
    Ok(IdleWorker::new_resting())
}

fn refuse() -> Started {
    Err(io::Error::other("no more"))
}

/// Starts a worker and keeps its seat.
fn start_in(kept: &mut Option<Arc<PoolSeat<u32>>>) -> Started {
    let seat = kept.insert(PoolSeat::new());
    Ok(IdleWorker::Parked(Arc::clone(seat)))
}

#[test]
fn a_job_whose_worker_is_refused_waits_for_those_there_are() {
    let core = core(3, 0);
    let mut first = None;
    core.enter(None, JobLane::default(), 1_u32, &mut || start_in(&mut first)).0.expect("it starts");
    for job in [2_u32, 3] {
        core.enter(None, JobLane::default(), job, &mut refuse).0.expect("a worker is there");
    }
    assert_eq!((core.stats().live, core.stats().queued), (1, 2));
    let seat = first.expect("it started");
    for job in [2_u32, 3] {
        let parked = || IdleWorker::Parked(Arc::clone(&seat));
        let Next::Run(ticket, next) = core.finish(parked, u64::from(job) - 1, Ended::Completed).0
        else {
            panic!("a job is queued");
        };
        assert_eq!((ticket, next), (u64::from(job), job));
    }
}

#[test]
fn a_worker_that_starts_late_takes_what_was_queued_first() {
    let core = core(2, 0);
    core.enter(None, JobLane::default(), 1_u32, &mut start).0.expect("it starts");
    core.enter(None, JobLane::default(), 2_u32, &mut refuse).0.expect("a worker is there");
    core.resize(3, &mut refuse).1.wake();
    let mut late = None;
    core.enter(None, JobLane::default(), 3_u32, &mut || start_in(&mut late)).0.expect("it starts");
    let order = late.expect("it started").take_order(std::task::Waker::noop());
    assert!(matches!(order, Some(Order::Run(2, 2))));
    assert_eq!(core.stats().queued, 1);
}

#[test]
fn without_any_worker_the_job_comes_back() {
    let core = core(1, 1);
    let (content, refused) =
        core.enter(None, JobLane::default(), 1_u32, &mut refuse).0.expect_err("there is no worker");
    assert_eq!(content, 1);
    assert!(matches!(refused, EnterError::Worker(_)));
    assert_eq!((core.stats().live, core.stats().queued, core.stats().submitted), (0, 0, 0));
    let generation = core.try_reserve().expect("there is a place");
    assert!(core.enter(Some(generation), JobLane::default(), 1_u32, &mut refuse).0.is_err());
    assert_eq!(core.stats().reserved, 0);
}

#[test]
fn holes_of_cancelled_jobs_do_not_pile_up() {
    let core = core(1, 1);
    core.enter(None, JobLane::default(), 0_u32, &mut start).0.expect("it starts");
    for n in 0..10_000_u32 {
        let ticket =
            core.enter(None, JobLane::default(), n, &mut start).0.expect("the place is free again");
        assert_eq!(core.withdraw(ticket).0, Some(n));
        assert_eq!(core.withdraw(ticket).0, None);
        assert!(core.look(|state| state.queue.entries()) <= HOLES_MAX + 1);
    }
}

fn rests(until: u64, has_begun: bool) -> IdleWorker<u32> {
    IdleWorker::Rests { until, has_begun }
}

/// Returns a pool of resting workers, as many as its capacity. They rest until the times 1, 2 and
/// so on. Only the start hook of the last one was called.
fn resting(capacity: usize, kept: usize) -> PoolCore<u32> {
    let core =
        PoolCore::new(Limits { capacity, queue: 1, waiting: 9, kept, rests: true, threads: false });
    for job in 1..=capacity as u32 {
        core.enter(None, JobLane::default(), job, &mut start_resting).0.expect("it starts");
    }
    for ticket in 1..=capacity as u64 {
        let next =
            core.finish(|| rests(ticket, ticket == capacity as u64), ticket, Ended::Completed).0;
        assert!(matches!(next, Next::Rest(_)));
    }
    core
}

#[test]
fn a_worker_that_cannot_be_started_again_rests_on_and_its_job_comes_back() {
    let core = resting(2, 0);
    let (content, refused) =
        core.enter(None, JobLane::default(), 3_u32, &mut refuse).0.expect_err("no worker is busy");
    assert_eq!(content, 3);
    assert!(matches!(refused, EnterError::Worker(_)));
    assert_eq!((core.stats().live, core.stats().idle), (2, 2));
    let (entered, mut wakes) = core.enter(None, JobLane::default(), 4_u32, &mut start_resting);
    let ticket = entered.expect("it starts");
    let launched: Vec<_> = wakes
        .launches
        .drain()
        .map(|launch| (launch.ticket, launch.job, launch.has_begun))
        .collect();
    assert_eq!(launched, [(ticket, 4, true)], "the one that became idle last");
    core.enter(None, JobLane::default(), 5_u32, &mut refuse).0.expect("one is busy");
    assert_eq!((core.stats().queued, core.stats().idle, core.stats().workers_started), (1, 1, 2));
    assert!(matches!(core.finish(|| rests(9, true), ticket, Ended::Completed).0, Next::Run(_, 5)));
}

#[test]
fn workers_that_have_rested_too_long_leave_and_the_next_reap_is_known() {
    let core = resting(4, 1);
    assert_eq!(core.reap(1).0, Some(2));
    assert_eq!(core.reap(2).0, Some(3));
    assert_eq!((core.stats().live, core.stats().workers_retired), (2, 2));
    // After the keep-alive was lowered, a worker that begins to rest now leaves before the other
    // worker.
    core.expect_uneven();
    let ticket =
        core.enter(None, JobLane::default(), 6_u32, &mut start_resting).0.expect("it starts");
    assert!(matches!(
        core.finish(|| rests(2, true), ticket, Ended::Completed).0,
        Next::Rest(Some(2))
    ));
    assert_eq!(core.reap(2).0, None, "the other is kept");
    assert_eq!((core.stats().live, core.stats().idle), (1, 1));
    assert_eq!(core.reap(9).0, None);
    assert_eq!(core.stats().live, 1);
}

#[test]
fn a_retry_is_asked_for_once_and_again_after_it_was_forgotten() {
    let core = resting(2, 0);
    core.enter(None, JobLane::default(), 3_u32, &mut start_resting).0.expect("it starts");
    let starved = |wakes: Wakes<u32>| wakes.starved;
    let (entered, wakes) = core.enter(None, JobLane::default(), 4_u32, &mut refuse);
    assert!(entered.is_ok() && starved(wakes), "one is busy, and another could be");
    assert!(!starved(core.resize(3, &mut refuse).1), "a retry is arranged already");
    core.forget_retry();
    assert!(starved(core.resize(2, &mut refuse).1));
    assert!(starved(core.retry(&mut refuse)), "there is still no room");
    assert!(!starved(core.retry(&mut start_resting)));
    assert_eq!((core.stats().queued, core.stats().idle), (0, 0));
}

type Waited = Poll<Result<u64, EnterError>>;

/// Enters three jobs, of which two run. The first of these waits for a place, behind another
/// waiter. `end` ends it.
fn deadlock_after(end: impl FnOnce(&PoolCore<u32>, u64)) -> (Waited, Waited) {
    let core = resting(2, 0);
    let tickets = [5_u32, 6, 7].map(|job| {
        core.enter(None, JobLane::default(), job, &mut start_resting).0.expect("there is a place")
    });
    let wait = |place: &mut _, own| {
        core.admit::<u32>(place, None, &mut start_resting, &mut Another::none(), own).0
    };
    let wait_in = |ticket| wait(&mut None, Some(Busy::with_job(ticket)));
    let mut first = None;
    assert!(wait(&mut first, None).is_pending() && wait_in(tickets[0]).is_pending(), "it is full");
    end(&core, tickets[0]);
    // The queued job runs in its place, and the first waiter has the place of the queued job.
    let Poll::Ready(Ok(generation)) = wait(&mut first, None) else {
        panic!("there was a place for the first");
    };
    core.enter(Some(generation), JobLane::default(), 8_u32, &mut start_resting)
        .0
        .expect("it has a place");
    (wait_in(tickets[2]), wait_in(tickets[1]))
}

#[test]
fn a_wait_that_outlives_its_job_blocks_nobody() {
    let waits = deadlock_after(|core, ticket| {
        assert!(matches!(
            core.finish(|| rests(9, true), ticket, Ended::Completed).0,
            Next::Run(_, 7)
        ));
    });
    assert!(
        matches!(waits, (Poll::Pending, Poll::Ready(Err(EnterError::WouldDeadlock)))),
        "both of those that run wait then: {waits:?}"
    );
}

#[test]
fn a_wait_that_outlives_a_killed_worker_blocks_nobody() {
    let waits = deadlock_after(|core, ticket| {
        let (lost, wakes) = core.died(None, Some(ticket), &mut start_resting);
        assert_eq!((lost.len(), wakes.starved), (0, false));
    });
    assert!(
        matches!(waits, (Poll::Pending, Poll::Ready(Err(EnterError::WouldDeadlock)))),
        "both of those that run wait then: {waits:?}"
    );
}

#[test]
fn only_workers_that_have_begun_run_their_hook_when_they_leave() {
    let core = resting(3, 0);
    let (next, wakes) = core.reap(9);
    assert_eq!((next, wakes.leavers, core.stats().live), (None, 1, 0));
}

/// Goal: the next job of a key gets a worker although the job before ran in a job that waited for
/// it. Method: the worker of the first job of the key was refused, and the next one is not.
#[test]
fn a_job_that_no_worker_ran_passes_the_turn_of_its_key_to_one_with_a_worker() {
    let core = core(2, 9);
    let lane = JobLane::default().with_key("key");
    core.enter(None, JobLane::default(), 1_u32, &mut start).0.expect("it starts");
    for job in [2_u32, 3] {
        core.enter(None, lane, job, &mut refuse).0.expect("a worker is there");
    }
    assert_eq!(core.take_inline(2).0, Some(2));
    let mut seat = None;
    core.finish_inline(2, Ended::Completed, &mut || start_in(&mut seat)).1.wake();
    let order = seat.expect("it started").take_order(std::task::Waker::noop());
    assert!(matches!(order, Some(Order::Run(3, 3))));
}

fn own(ticket: u64) -> Lender {
    Lender::Own(Busy::with_job(ticket))
}

/// Returns a pool of two resting workers with two jobs, and the tickets of these jobs. The first
/// job waits for a third one, with this key, which begins as soon as it may.
fn lending(lane: JobLane) -> (PoolCore<u32>, [u64; 3]) {
    let core = PoolCore::new(Limits {
        capacity: 2,
        queue: 9,
        waiting: 0,
        kept: 0,
        rests: true,
        threads: false,
    });
    let enter = |lane, job: u32, start: Start<'_, u32>| {
        core.enter(None, lane, job, start).0.expect("there is a place")
    };
    let lender = enter(JobLane::default(), 1, &mut start_resting);
    let other = enter(lane, 2, &mut start_resting);
    let awaited = enter(lane, 3, &mut || panic!("the capacity is reached"));
    assert!(core.lend(own(lender), awaited, &|| false, &mut start_resting).0);
    (core, [lender, other, awaited])
}

/// Goal: a worker that rests is used only if not more are live than may be. Method: two rest,
/// because they could not be started again for a queued job, and the capacity is lowered.
#[test]
fn a_worker_that_rests_is_not_used_beyond_a_lowered_capacity() {
    for (capacity, live, queued) in [(1, 2, 1), (3, 3, 0)] {
        let core = resting(4, 0);
        for job in [5_u32, 6] {
            core.enter(None, JobLane::default(), job, &mut start_resting).0.expect("it runs");
        }
        core.enter(None, JobLane::default(), 7_u32, &mut refuse).0.expect("others are busy");
        assert_eq!((core.stats().live, core.stats().idle), (4, 2));
        drop(core.resize(capacity, &mut start_resting));
        assert_eq!((core.stats().live, core.stats().queued), (live, queued));
        assert_eq!(core.stats().idle, 0);
    }
}

/// Goal: a job lends its place to one job until that job has ended, even if it then awaits another
/// job. Method: it takes its place back. The job in it lends the place as well, and ends.
#[test]
fn a_lent_place_stays_lent_until_the_job_in_it_has_ended() {
    let (core, [lender, other, awaited]) = lending(JobLane::default());
    core.take_back(own(lender), awaited);
    for job in [4_u32, 5] {
        core.enter(None, JobLane::default(), job, &mut refuse).0.expect("there is a place");
    }
    let lend = |lender, ticket| {
        assert!(core.lend(own(lender), ticket, &|| false, &mut start_resting).0);
        core.stats().live
    };
    assert_eq!(lend(lender, 5), 3, "its place is lent");
    assert_eq!(lend(awaited, 4), 4, "the awaited job lends the same place");
    let finish = |ticket| core.finish(|| rests(9, true), ticket, Ended::Completed).0;
    assert!(matches!(finish(awaited), Next::Leave));
    assert_eq!((core.stats().live, core.stats().queued), (3, 1));
    assert!(matches!(finish(4), Next::Run(5, 5)), "the place is free");
    assert!(matches!(finish(lender), Next::Leave));
    assert!(matches!(finish(5), Next::Rest(_)));
    assert!(matches!(finish(other), Next::Rest(None)));
}

/// Goal: an awaited job begins once its key lets it, although the worker that has ended the earlier
/// job of the key takes another job. Method: that job is older.
#[test]
fn a_job_that_its_key_held_gets_the_lent_place() {
    let (core, [_, other, _]) = lending(JobLane::default().with_key("key"));
    assert_eq!(core.stats().live, 2, "the awaited job is held");
    let urgent = JobLane { priority: Priority::High, key: None };
    core.enter(None, urgent, 4_u32, &mut refuse).0.expect("there is a place");
    let (next, wakes) = core.finish(|| rests(9, true), other, Ended::Completed);
    assert!(matches!(next, Next::Run(_, 4)) && wakes.understaffed, "a worker is asked for");
    let mut wakes = core.employ(&mut start_resting);
    assert!(wakes.launches.drain().map(|launch| launch.job).eq([3]));
}
