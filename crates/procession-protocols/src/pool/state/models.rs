mod loans;

use std::task::{Poll, Waker};

use crate::sync::wait_list::{Another, Place};
use procession_sync::{Arc, explore, thread};

use super::core::PoolCore;
use super::idle::{IdleWorker, Order, PoolSeat};
use super::lane::JobLane;
use super::mutation;
use super::outcome::{Ended, EnterError, Expired, Limits, Next, Quiescence, WatchResult};

/// A pool with one worker, which has job 1.
fn with_a_busy_worker<const MUTATION: u8>(
    queue: usize,
) -> (Arc<PoolCore<u32, MUTATION>>, Arc<PoolSeat<u32>>) {
    let core = PoolCore::new(Limits {
        capacity: 1,
        queue,
        waiting: 1,
        kept: 0,
        rests: false,
        threads: true,
    });
    let seat = PoolSeat::new();
    let (entered, wakes) = core
        .enter(None, JobLane::default(), 1_u32, &mut || Ok(IdleWorker::Parked(Arc::clone(&seat))));
    assert_eq!(entered.expect("there is a place"), 1);
    wakes.wake();
    assert!(matches!(seat.take_order(Waker::noop()), Some(Order::Run(1, 1))));
    (Arc::new(core), seat)
}

/// A pool with one worker, which has job 1 and rests when it is idle.
fn with_a_launched_worker<const MUTATION: u8>() -> Arc<PoolCore<u32, MUTATION>> {
    let core = PoolCore::new(Limits {
        capacity: 1,
        queue: 0,
        waiting: 1,
        kept: 0,
        rests: true,
        threads: false,
    });
    let (entered, mut wakes) =
        core.enter(None, JobLane::default(), 1_u32, &mut || Ok(IdleWorker::new_resting()));
    assert_eq!(entered.expect("there is a place"), 1);
    let launched: Vec<_> =
        wakes.launches.drain().map(|launch| (launch.ticket, launch.job)).collect();
    assert_eq!(launched, [(1, 1)]);
    wakes.wake();
    Arc::new(core)
}

fn parked(seat: &Arc<PoolSeat<u32>>) -> impl FnOnce() -> IdleWorker<u32> {
    let seat = Arc::clone(seat);
    || IdleWorker::Parked(seat)
}

/// Submits job 2. Returns whether it was taken, and how many workers were started for it.
fn submit<const MUTATION: u8>(core: &PoolCore<u32, MUTATION>) -> (bool, u32) {
    let rests = core.look(|state| state.limits.rests);
    let mut started = 0;
    let (entered, mut wakes) = core.enter(None, JobLane::default(), 2_u32, &mut || {
        started += 1;
        Ok(if rests { IdleWorker::new_resting() } else { IdleWorker::Parked(PoolSeat::new()) })
    });
    let launches = wakes.launches.drain().count() as u32;
    assert_eq!(launches, if rests { started } else { 0 });
    wakes.wake();
    (entered.is_ok(), started)
}

/// Waits for a place, to be reserved.
fn wait<const MUTATION: u8>(
    core: &PoolCore<u32, MUTATION>,
    place: &mut Option<Place>,
) -> Poll<Result<u64, EnterError>> {
    let start = &mut || panic!("nothing is started for a place");
    let (admitted, wakes) = core.admit::<u32>(place, None, start, &mut Another::none(), None);
    wakes.wake();
    admitted
}

fn has_order(seat: &PoolSeat<u32>) -> bool {
    matches!(seat.take_order(Waker::noop()), Some(Order::Run(..)))
}

fn claim_against_park<const MUTATION: u8>() {
    explore(|| {
        let (core, seat) = with_a_busy_worker::<MUTATION>(1);
        let submitter = {
            let core = Arc::clone(&core);
            thread::spawn(move || submit(&core))
        };
        let (next, wakes) = core.finish(parked(&seat), 1, Ended::Completed);
        wakes.wake();
        let (taken, started) = submitter.join().expect("it does not panic");
        assert!(taken && started == 0, "the worker is there, and the queue has room");
        let runs = matches!(next, Next::Run(2, 2)) || has_order(&seat);
        assert!(runs, "a job waits although a worker is idle");
    });
}

#[test]
fn a_job_that_comes_as_the_worker_parks_is_run() {
    claim_against_park::<{ mutation::SOUND }>();
}

#[test]
#[should_panic(expected = "a job waits although a worker is idle")]
fn canary_park_in_two() {
    claim_against_park::<{ mutation::PARK_IN_TWO }>();
}

fn claim_against_expire<const MUTATION: u8>() {
    explore(|| {
        let (core, seat) = with_a_busy_worker::<MUTATION>(0);
        let (next, wakes) = core.finish(parked(&seat), 1, Ended::Completed);
        wakes.wake();
        assert!(matches!(next, Next::Park));
        let submitter = {
            let core = Arc::clone(&core);
            thread::spawn(move || submit(&core))
        };
        let (expired, wakes) = core.expire(&seat);
        wakes.wake();
        let (taken, started) = submitter.join().expect("it does not panic");
        assert!(taken);
        let (claimed, another) = (has_order(&seat), started == 1);
        assert!(claimed != another, "a job has one worker");
        assert!(claimed == (expired == Expired::Claimed), "a job goes with a worker that leaves");
        assert_eq!(core.stats().live, 1);
    });
}

#[test]
fn a_job_that_comes_as_the_worker_expires_is_run() {
    claim_against_expire::<{ mutation::SOUND }>();
}

#[test]
#[should_panic(expected = "a job goes with a worker that leaves")]
fn canary_expire_blindly() {
    claim_against_expire::<{ mutation::EXPIRE_BLINDLY }>();
}

/// A job is submitted for a resting worker just as its rest ends.
fn claim_against_reap<const MUTATION: u8>() {
    explore(|| {
        let core = with_a_launched_worker::<MUTATION>();
        let (next, wakes) =
            core.finish(|| IdleWorker::Rests { until: 1, has_begun: false }, 1, Ended::Completed);
        wakes.wake();
        assert!(matches!(next, Next::Rest(Some(1))), "no reap is arranged yet");
        let submitter = {
            let core = Arc::clone(&core);
            thread::spawn(move || submit(&core))
        };
        let (_, wakes) = core.reap(1);
        wakes.wake();
        assert_eq!(
            submitter.join().expect("it does not panic"),
            (true, 1),
            "the worker is started again, or another"
        );
        let stats = core.stats();
        assert_eq!((stats.live, stats.idle), (1, 0), "a worker with a job has left");
        assert_eq!(stats.workers_started, 1 + stats.workers_retired);
    });
}

#[test]
fn a_job_that_comes_as_its_worker_is_reaped_has_one() {
    claim_against_reap::<{ mutation::SOUND }>();
}

#[test]
#[should_panic(expected = "a worker with a job has left")]
fn canary_reap_in_two() {
    claim_against_reap::<{ mutation::REAP_IN_TWO }>();
}

fn submit_against_close<const MUTATION: u8>() {
    explore(|| {
        let (core, seat) = with_a_busy_worker::<MUTATION>(1);
        let submitter = {
            let core = Arc::clone(&core);
            thread::spawn(move || submit(&core).0)
        };
        core.close().1.wake();
        let then = core.stats().submitted;
        let taken = submitter.join().expect("it does not panic");
        assert_eq!(core.stats().submitted, then, "a job was taken after the pool was closed");
        // A job that was taken before the close runs.
        let (next, wakes) = core.finish(parked(&seat), 1, Ended::Completed);
        wakes.wake();
        assert_eq!(matches!(next, Next::Run(2, 2)), taken);
        assert_eq!(matches!(next, Next::Leave), !taken);
    });
}

#[test]
fn nothing_is_taken_after_close_has_returned() {
    submit_against_close::<{ mutation::SOUND }>();
}

#[test]
#[should_panic(expected = "a job was taken after the pool was closed")]
fn canary_enter_in_two() {
    submit_against_close::<{ mutation::ENTER_IN_TWO }>();
}

/// All four at the same time: a worker that parks and expires, a submitter, and a close.
#[test]
fn claim_park_expire_and_close() {
    explore(|| {
        let (core, seat) = with_a_busy_worker::<{ mutation::SOUND }>(0);
        let submitter = {
            let core = Arc::clone(&core);
            thread::spawn(move || submit(&core))
        };
        let worker = {
            let (core, seat) = (Arc::clone(&core), Arc::clone(&seat));
            thread::spawn(move || {
                let (next, wakes) = core.finish(parked(&seat), 1, Ended::Completed);
                wakes.wake();
                match next {
                    Next::Park => {
                        let (expired, wakes) = core.expire(&seat);
                        wakes.wake();
                        // A claimed worker finds its order.
                        expired == Expired::Leave || seat.take_order(Waker::noop()).is_some()
                    }
                    Next::Leave => true,
                    Next::Run(..) | Next::Rest(_) => false,
                }
            })
        };
        core.close().1.wake();
        let (taken, started) = submitter.join().expect("it does not panic");
        assert!(worker.join().expect("it does not panic"), "a worker is told what to do");
        let stats = core.stats();
        assert!(taken || started == 0);
        assert_eq!(stats.live, usize::from(taken), "a live worker has the second job");
        assert_eq!((stats.idle, stats.queued), (0, 0));
        assert_eq!(stats.submitted, 1 + u64::from(taken));
    });
}

fn wait_against_resize<const MUTATION: u8>() {
    explore(|| {
        let (core, _seat) = with_a_busy_worker::<MUTATION>(0);
        let resizer = {
            let core = Arc::clone(&core);
            thread::spawn(move || {
                core.resize(2, &mut || Ok(IdleWorker::Parked(PoolSeat::new()))).1.wake()
            })
        };
        let mut place = None;
        let first = wait(&core, &mut place);
        resizer.join().expect("it does not panic");
        let last = if first.is_pending() { wait(&core, &mut place) } else { first };
        let granted = matches!(last, Poll::Ready(Ok(0)));
        assert!(granted, "a waiter waits for a place that is free");
        assert_eq!((core.stats().reserved, core.stats().waiting), (1, 0));
    });
}

#[test]
fn a_larger_capacity_lets_a_waiter_in() {
    wait_against_resize::<{ mutation::SOUND }>();
}

#[test]
#[should_panic(expected = "a waiter waits for a place that is free")]
fn canary_resize_silently() {
    wait_against_resize::<{ mutation::RESIZE_SILENTLY }>();
}

fn submit_against_resize<const MUTATION: u8>() {
    explore(|| {
        let (core, seat) = with_a_busy_worker::<MUTATION>(1);
        core.resize(2, &mut || Ok(IdleWorker::Parked(PoolSeat::new()))).1.wake();
        let submitter = {
            let core = Arc::clone(&core);
            thread::spawn(move || submit(&core))
        };
        core.resize(1, &mut || Ok(IdleWorker::Parked(PoolSeat::new()))).1.wake();
        let then = core.stats().live;
        let (taken, started) = submitter.join().expect("it does not panic");
        assert!(taken, "there is a worker for it, or room in the queue");
        assert_eq!(core.stats().live, then, "a worker was started beyond the capacity");
        // Either more workers are live than may be, or the job is queued for this one.
        let (next, wakes) = core.finish(parked(&seat), 1, Ended::Completed);
        wakes.wake();
        assert_eq!(matches!(next, Next::Leave), started == 1);
        assert_eq!(matches!(next, Next::Run(2, 2)), started == 0);
    });
}

#[test]
fn no_worker_is_started_once_the_capacity_is_smaller() {
    submit_against_resize::<{ mutation::SOUND }>();
}

#[test]
#[should_panic(expected = "a worker was started beyond the capacity")]
fn canary_start_in_two() {
    submit_against_resize::<{ mutation::START_IN_TWO }>();
}

/// At the same time, a queued job is run by a job that waits for it, withdrawn by its handle, and
/// taken by the worker.
fn help_against_withdraw_against_run<const MUTATION: u8>() {
    explore(|| {
        let (core, seat) = with_a_busy_worker::<MUTATION>(1);
        assert!(submit(&core).0);
        let worker = {
            let core = Arc::clone(&core);
            thread::spawn(move || {
                let (next, wakes) = core.finish(parked(&seat), 1, Ended::Completed);
                wakes.wake();
                matches!(next, Next::Run(2, 2))
            })
        };
        let canceller = {
            let core = Arc::clone(&core);
            thread::spawn(move || {
                let (job, wakes) = core.withdraw(2);
                wakes.wake();
                job.is_some()
            })
        };
        let (job, wakes) = core.take_inline(2);
        wakes.wake();
        let helped = job.is_some();
        let cancelled = canceller.join().expect("it does not panic");
        let ran = worker.join().expect("it does not panic");
        assert_eq!(
            [helped, cancelled, ran].into_iter().filter(|it| *it).count(),
            1,
            "one of them has the job"
        );
        let stats = core.stats();
        assert_eq!(stats.cancelled, u64::from(cancelled), "a job that ran is counted as cancelled");
        assert_eq!((stats.inline, stats.queued), (usize::from(helped), 0));
    });
}

#[test]
fn a_job_is_helped_cancelled_or_run() {
    help_against_withdraw_against_run::<{ mutation::SOUND }>();
}

#[test]
#[should_panic(expected = "a job that ran is counted as cancelled")]
fn canary_withdraw_in_two_with_help() {
    help_against_withdraw_against_run::<{ mutation::WITHDRAW_IN_TWO }>();
}

fn withdraw_against_run<const MUTATION: u8>() {
    explore(|| {
        let (core, seat) = with_a_busy_worker::<MUTATION>(1);
        assert!(submit(&core).0);
        let worker = {
            let core = Arc::clone(&core);
            thread::spawn(move || {
                let (next, wakes) = core.finish(parked(&seat), 1, Ended::Completed);
                wakes.wake();
                if let Next::Run(ticket, _) = next {
                    core.finish(parked(&seat), ticket, Ended::Completed).1.wake();
                }
            })
        };
        let (job, wakes) = core.withdraw(2);
        wakes.wake();
        worker.join().expect("it does not panic");
        let totals = core.stats();
        assert_eq!(totals.completed + totals.cancelled, 2, "a job ends once");
        assert_eq!(totals.cancelled == 1, job.is_some());
    });
}

#[test]
fn a_job_is_cancelled_or_run() {
    withdraw_against_run::<{ mutation::SOUND }>();
}

#[test]
#[should_panic(expected = "a job ends once")]
fn canary_withdraw_in_two() {
    withdraw_against_run::<{ mutation::WITHDRAW_IN_TWO }>();
}

/// If a waiter leaves after a place was granted to it, the place goes to the next waiter.
#[test]
fn leave_against_finish() {
    explore(|| {
        let (core, seat) = with_a_busy_worker::<{ mutation::SOUND }>(0);
        let mut place = None;
        assert!(wait(&core, &mut place).is_pending(), "the pool is full");
        let worker = {
            let core = Arc::clone(&core);
            thread::spawn(move || core.finish(parked(&seat), 1, Ended::Completed).1.wake())
        };
        core.leave_wait(place.expect("it waits")).wake();
        worker.join().expect("it does not panic");
        let stats = core.stats();
        assert_eq!((stats.reserved, stats.waiting, stats.idle), (0, 0, 1));
        assert!(submit(&core).0, "the place is free again");
    });
}

/// A job of the key of job 2 enters while job 2 ends.
fn hold_against_finish<const MUTATION: u8>() {
    explore(|| {
        let (core, seat) = with_a_busy_worker::<MUTATION>(2);
        let lane = JobLane::default().with_key("key");
        core.enter(None, lane, 2_u32, &mut || panic!("the capacity is reached")).1.wake();
        let (next, wakes) = core.finish(parked(&seat), 1, Ended::Completed);
        wakes.wake();
        assert!(matches!(next, Next::Run(2, 2)));
        let submitter = {
            let core = Arc::clone(&core);
            thread::spawn(move || {
                let start = &mut || panic!("the capacity is reached");
                let (entered, wakes) = core.enter(None, lane, 3_u32, start);
                wakes.wake();
                entered.is_ok()
            })
        };
        let (next, wakes) = core.finish(parked(&seat), 2, Ended::Completed);
        wakes.wake();
        assert!(submitter.join().expect("it does not panic"), "there is a place");
        let runs = matches!(next, Next::Run(3, 3)) || has_order(&seat);
        assert!(runs, "a job is held by a key without a turn");
    });
}

#[test]
fn a_job_that_comes_as_the_last_of_its_key_ends_is_run() {
    hold_against_finish::<{ mutation::SOUND }>();
}

#[test]
#[should_panic(expected = "a job is held by a key without a turn")]
fn canary_hold_in_two() {
    hold_against_finish::<{ mutation::HOLD_IN_TWO }>();
}

/// A worker is killed while the other worker finishes, and two jobs are queued.
fn die_against_finish<const MUTATION: u8>() {
    explore(|| {
        let core = PoolCore::<u32, MUTATION>::new(Limits {
            capacity: 2,
            queue: 2,
            waiting: 0,
            kept: 0,
            rests: false,
            threads: false,
        });
        let seats = [PoolSeat::new(), PoolSeat::new()];
        for (job, seat) in (1_u32..).zip(&seats) {
            let start = &mut || Ok(IdleWorker::Parked(Arc::clone(seat)));
            core.enter(None, JobLane::default(), job, start).1.wake();
            assert!(has_order(seat));
        }
        for job in [3_u32, 4] {
            core.enter(None, JobLane::default(), job, &mut || panic!("it is full")).1.wake();
        }
        let core = Arc::new(core);
        let killer = {
            let (core, seat) = (Arc::clone(&core), Arc::clone(&seats[0]));
            thread::spawn(move || {
                let mut successors = Vec::new();
                let (lost, wakes) = core.died(Some(&seat), Some(1), &mut || {
                    let seat = PoolSeat::new();
                    successors.push(Arc::clone(&seat));
                    Ok(IdleWorker::Parked(seat))
                });
                wakes.wake();
                assert!(lost.is_empty(), "the other worker is there");
                successors.iter().filter(|seat| has_order(seat)).count()
            })
        };
        let (next, wakes) = core.finish(parked(&seats[1]), 2, Ended::Completed);
        wakes.wake();
        let succeeded = killer.join().expect("it does not panic");
        assert!(matches!(next, Next::Run(..)), "a job is queued");
        assert_eq!(succeeded, 1, "the place of a killed worker is lost");
        assert_eq!((core.stats().live, core.stats().queued), (2, 0));
    });
}

#[test]
fn the_place_of_a_killed_worker_is_used_again() {
    die_against_finish::<{ mutation::SOUND }>();
}

#[test]
#[should_panic(expected = "the place of a killed worker is lost")]
fn canary_die_silently() {
    die_against_finish::<{ mutation::DIE_SILENTLY }>();
}

/// A waiter looks while the last worker of a closed pool leaves, and another waiter opens the pool
/// again.
fn watch_against_reopen<const MUTATION: u8>() {
    explore(|| {
        let (core, seat) = with_a_busy_worker::<MUTATION>(0);
        core.close().1.wake();
        let watch =
            |is_enlisted| core.watch(1, Quiescence::Drained, is_enlisted, Waker::noop().clone()).0;
        assert_eq!(watch(false), WatchResult::Waits);
        let worker = {
            let core = Arc::clone(&core);
            thread::spawn(move || {
                let (next, wakes) = core.finish(parked(&seat), 1, Ended::Completed);
                wakes.wake();
                assert!(matches!(next, Next::Leave));
                core.left().wake();
                assert!(core.reopen(), "the last worker has left");
            })
        };
        let early = watch(true);
        worker.join().expect("it does not panic");
        let is_told = early == WatchResult::Reached || watch(true) == WatchResult::Reached;
        assert!(is_told, "a waiter misses the end of the pool");
    });
}

#[test]
fn a_waiter_learns_of_the_end_of_a_pool_that_is_open_again() {
    watch_against_reopen::<{ mutation::SOUND }>();
}

#[test]
#[should_panic(expected = "a waiter misses the end of the pool")]
fn canary_watch_the_state() {
    watch_against_reopen::<{ mutation::WATCH_THE_STATE }>();
}
