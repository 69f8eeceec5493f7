//! Models of the loans of places, each with a canary.

use procession_sync::{Arc, explore, thread};

use super::super::busy::{Busy, Lender};
use super::super::core::PoolCore;
use super::super::idle::{IdleWorker, PoolSeat};
use super::super::lane::JobLane;
use super::super::mutation;
use super::super::outcome::{Ended, Limits, Next};
use super::{has_order, parked};

/// A pool of processes for one worker. Job 1 lends its place to job 2, and job 3 is in the queue.
/// Job 2 runs in the other seat.
fn with_a_lent_place<const MUTATION: u8>() -> (Arc<PoolCore<u32, MUTATION>>, Arc<PoolSeat<u32>>) {
    let core = of_processes(1);
    let seats = [PoolSeat::new(), PoolSeat::new()];
    enter(&core, 1, Some(&seats[0]));
    enter(&core, 2, None);
    assert!(lend(&core, own(1), 2, Some(&seats[1])));
    assert!(has_order(&seats[1]), "the awaited job begins");
    enter(&core, 3, None);
    let [_, borrower] = seats;
    (core, borrower)
}

fn of_processes<const MUTATION: u8>(capacity: usize) -> Arc<PoolCore<u32, MUTATION>> {
    Arc::new(PoolCore::new(Limits {
        capacity,
        queue: 2,
        waiting: 0,
        kept: 0,
        rests: false,
        threads: false,
    }))
}

/// Enters a job. Its worker starts in `seat`; without one, the job is queued.
fn enter<const MUTATION: u8>(
    core: &PoolCore<u32, MUTATION>,
    job: u32,
    seat: Option<&Arc<PoolSeat<u32>>>,
) {
    let start = &mut || Ok(IdleWorker::Parked(Arc::clone(seat.expect("the capacity is reached"))));
    let (entered, wakes) = core.enter(None, JobLane::default(), job, start);
    assert_eq!(entered.expect("there is a place"), u64::from(job));
    wakes.wake();
    assert!(seat.is_none_or(|seat| has_order(seat)));
}

fn own(ticket: u64) -> Lender {
    Lender::Own(Busy::with_job(ticket))
}

/// The lender awaits the job of this ticket, whose worker starts in `seat`.
fn lend<const MUTATION: u8>(
    core: &PoolCore<u32, MUTATION>,
    lender: Lender,
    ticket: u64,
    seat: Option<&Arc<PoolSeat<u32>>>,
) -> bool {
    let start = &mut || Ok(IdleWorker::Parked(seat.map_or_else(PoolSeat::new, Arc::clone)));
    let (waits, wakes) = core.lend(lender, ticket, &|| false, start);
    wakes.wake();
    waits
}

/// A job begins to wait for a queued job, which another worker takes as it ends its own.
fn lend_against_finish<const MUTATION: u8>() {
    explore(|| {
        let core = of_processes::<MUTATION>(2);
        let seats = [PoolSeat::new(), PoolSeat::new(), PoolSeat::new()];
        enter(&core, 1, Some(&seats[0]));
        enter(&core, 2, Some(&seats[1]));
        enter(&core, 3, None);
        let worker = {
            let (core, seat) = (Arc::clone(&core), Arc::clone(&seats[1]));
            thread::spawn(move || {
                let (next, wakes) = core.finish(parked(&seat), 2, Ended::Completed);
                wakes.wake();
                matches!(next, Next::Run(3, 3))
            })
        };
        assert!(lend(&core, own(1), 3, Some(&seats[2])), "the job has not ended");
        let is_taken = worker.join().expect("it does not panic");
        assert_eq!(has_order(&seats[2]), !is_taken, "an awaited job has one worker");
        let live = core.stats().live;
        assert_eq!(live, 2 + usize::from(!is_taken), "a worker has started without a job");
        let blocked = core.look(|state| state.blocked.count());
        assert_eq!(blocked, 1, "job 1 waits");
    });
}

#[test]
fn a_job_is_lent_a_place_or_taken() {
    lend_against_finish::<{ mutation::SOUND }>();
}

#[test]
#[should_panic(expected = "a worker has started without a job")]
fn canary_lend_in_two() {
    lend_against_finish::<{ mutation::LEND_IN_TWO }>();
}

/// A job of another pool begins to wait for a queued job, which a worker takes as it ends its own,
/// or which the waiter has begin.
fn guest_against_finish<const MUTATION: u8>() {
    explore(|| {
        let core = of_processes::<MUTATION>(1);
        let seats = [PoolSeat::new(), PoolSeat::new()];
        enter(&core, 1, Some(&seats[0]));
        enter(&core, 2, None);
        let worker = {
            let (core, seat) = (Arc::clone(&core), Arc::clone(&seats[0]));
            thread::spawn(move || {
                let (next, wakes) = core.finish(parked(&seat), 1, Ended::Completed);
                wakes.wake();
                matches!(next, Next::Run(2, 2))
            })
        };
        let guest = Lender::Guest(1, Busy::with_job(1));
        assert!(lend(&core, guest, 2, Some(&seats[1])), "the job has not ended");
        let is_taken = worker.join().expect("it does not panic");
        assert_eq!(has_order(&seats[1]), !is_taken, "an awaited job has one worker");
        let live = core.stats().live;
        assert_eq!(live, 1 + usize::from(!is_taken), "a worker has started without a job");
        assert_eq!(core.look(|state| state.blocked.count()), 0, "no job of this pool waits");
        core.take_back(guest, 2);
        let seat = &seats[usize::from(!is_taken)];
        let (next, wakes) = core.finish(parked(seat), 2, Ended::Completed);
        wakes.wake();
        drop(next);
        let (live, lent) = core.look(|state| (state.live, state.loans.lent()));
        assert_eq!((live, lent), (1, 0), "a place is lent for no job");
    });
}

#[test]
fn a_job_that_another_pool_awaits_is_lent_a_place_or_taken() {
    guest_against_finish::<{ mutation::SOUND }>();
}

#[test]
#[should_panic(expected = "a worker has started without a job")]
fn canary_lend_to_a_guest_in_two() {
    guest_against_finish::<{ mutation::LEND_IN_TWO }>();
}

/// A job begins to wait for another job, as the job in its place ends, and as the handle of that
/// one is dropped elsewhere.
fn lend_against_take_back<const MUTATION: u8>() {
    explore(|| {
        let (core, borrower) = with_a_lent_place::<MUTATION>();
        let dropper = {
            let core = Arc::clone(&core);
            thread::spawn(move || core.take_back(own(1), 2))
        };
        let worker = {
            let core = Arc::clone(&core);
            thread::spawn(move || {
                let (next, wakes) = core.finish(parked(&borrower), 2, Ended::Completed);
                wakes.wake();
                matches!(next, Next::Run(3, 3))
            })
        };
        let seat = PoolSeat::new();
        lend(&core, own(1), 3, Some(&seat));
        dropper.join().expect("it does not panic");
        let is_taken = worker.join().expect("it does not panic");
        assert!(is_taken || has_order(&seat), "an awaited job does not begin");
        let stats = core.stats();
        assert_eq!((stats.queued, stats.live, stats.peak), (0, 2, 2));
    });
}

#[test]
fn a_lent_place_is_passed_on_as_it_is_taken_back() {
    lend_against_take_back::<{ mutation::SOUND }>();
}

#[test]
#[should_panic(expected = "an awaited job does not begin")]
fn canary_take_back_in_two() {
    lend_against_take_back::<{ mutation::TAKE_BACK_IN_TWO }>();
}

/// The job in a lent place ends as its handle is dropped. Its worker takes no job then, because job
/// 1 waits for no other.
#[test]
fn the_end_of_a_loan_is_counted_once() {
    explore(|| {
        let (core, seat) = with_a_lent_place::<{ mutation::SOUND }>();
        let borrower = {
            let core = Arc::clone(&core);
            thread::spawn(move || {
                let (next, wakes) = core.finish(parked(&seat), 2, Ended::Completed);
                wakes.wake();
                matches!(next, Next::Leave)
            })
        };
        core.take_back(own(1), 2);
        assert!(borrower.join().expect("it does not panic"), "too many workers are live");
        let stats = core.stats();
        assert_eq!((stats.queued, stats.live), (1, 1));
        let blocked = core.look(|state| state.blocked.count_with(Busy::with_job(9)));
        assert_eq!(blocked, 1, "only the other one would wait");
    });
}
