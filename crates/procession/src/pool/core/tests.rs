use std::io;
use std::sync::Arc;

use super::{Core, Ended, HOLES_MAX, Limits, Next, Refused};

fn core(capacity: usize, queue: usize) -> Core<u32> {
    Core::new(Limits { capacity, queue, waiting: usize::MAX, kept: 0, rests: false, threads: true })
}

fn refuse() -> io::Result<()> {
    Err(io::Error::other("no more"))
}

#[test]
fn a_job_whose_worker_is_refused_waits_for_those_there_are() {
    let core = core(3, 0);
    let mut first = None;
    core.enter(1, |job| job, &mut |seat| {
        first = Some(Arc::clone(seat));
        Ok(())
    })
    .0
    .expect("it starts");
    for job in [2, 3] {
        core.enter(job, |job| job, &mut |_| refuse()).0.expect("a worker is there");
    }
    assert_eq!((core.picture().live, core.picture().queued), (1, 2));
    let seat = first.expect("it started");
    for job in [2, 3] {
        let Next::Run(ticket, next) = core.finish(|| Arc::clone(&seat), u64::from(job) - 1, Ended::Completed, 0).0
        else {
            panic!("a job is queued");
        };
        assert_eq!((ticket, next), (u64::from(job), job));
    }
}

#[test]
fn a_worker_that_starts_late_takes_what_was_queued_first() {
    let core = core(2, 0);
    core.enter(1, |job| job, &mut |_| Ok(())).0.expect("it starts");
    core.enter(2, |job| job, &mut |_| refuse()).0.expect("a worker is there");
    core.resize(3, &mut |_| refuse()).1.wake();
    let mut late = None;
    core.enter(3, |job| job, &mut |seat| {
        late = Some(Arc::clone(seat));
        Ok(())
    })
    .0
    .expect("it starts");
    let order = late.expect("it started").take_order(std::task::Waker::noop());
    assert!(matches!(order, Some(super::Order::Run(2, 2))));
    assert_eq!(core.picture().queued, 1);
}

#[test]
fn without_any_worker_the_job_comes_back() {
    let core = core(1, 1);
    let (content, refused) = core.enter(1, |job| job, &mut |_| refuse()).0.expect_err("there is no worker");
    assert_eq!(content, 1);
    assert!(matches!(refused, Refused::Worker(_)));
    assert_eq!((core.picture().live, core.picture().queued, core.picture().totals.submitted), (0, 0, 0));
    let generation = core.try_reserve().expect("there is a place");
    assert!(core.enter_reserved(generation, 1, |job| job, &mut |_| refuse()).0.is_err());
    assert_eq!(core.picture().reserved, 0);
}

#[test]
fn holes_of_cancelled_jobs_do_not_pile_up() {
    let core = core(1, 1);
    core.enter(0, |job| job, &mut |_| Ok(())).0.expect("it starts");
    for n in 0..10_000 {
        let ticket = core.enter(n, |job| job, &mut |_| Ok(())).0.expect("the place is free again");
        assert_eq!(core.withdraw(ticket).0, Some(n));
        assert_eq!(core.withdraw(ticket).0, None);
        assert!(core.look(|state| state.queue.entries.len()) <= HOLES_MAX + 1);
    }
}

/// As `core`, of workers that rest; with as many as the capacity, which rest until their numbers, from 1.
fn resting(capacity: usize, kept: usize) -> (Core<u32>, Vec<Arc<super::Seat<u32>>>) {
    let core = Core::new(Limits { capacity, queue: 1, waiting: 0, kept, rests: true, threads: false });
    let mut seats = Vec::new();
    for job in 1..=capacity as u32 {
        let entered = core.enter(job, |job| job, &mut |seat| {
            seats.push(Arc::clone(seat));
            Ok(())
        });
        entered.0.expect("it starts");
    }
    for (seat, ticket) in seats.iter().zip(1..) {
        let next = core.finish(|| Arc::clone(seat), ticket, Ended::Completed, ticket).0;

        assert!(matches!(next, Next::Rest(_)));
    }
    (core, seats)
}

#[test]
fn a_worker_that_cannot_be_started_again_rests_on_and_its_job_comes_back() {
    let (core, seats) = resting(2, 0);
    let (content, refused) = core.enter(3, |job| job, &mut |_| refuse()).0.expect_err("nobody is busy");
    assert_eq!(content, 3);
    assert!(matches!(refused, Refused::Worker(_)));
    assert_eq!((core.picture().live, core.picture().idle), (2, 2));
    let mut again = None;
    let entered = core.enter(4, |job| job, &mut |seat| {
        again = Some(Arc::clone(seat));
        Ok(())
    });
    let ticket = entered.0.expect("it starts");
    assert!(Arc::ptr_eq(&again.expect("it started"), &seats[1]), "the one that became idle last");
    core.enter(5, |job| job, &mut |_| refuse()).0.expect("one is busy");
    assert_eq!((core.picture().queued, core.picture().idle, core.picture().totals.started), (1, 1, 2));
    assert!(matches!(core.finish(|| Arc::clone(&seats[1]), ticket, Ended::Completed, 9).0, Next::Run(_, 5)));
}

#[test]
fn those_who_have_rested_too_long_leave_and_the_next_is_known() {
    let (core, seats) = resting(4, 1);
    assert_eq!(core.reap(1).0, Some(2));
    assert_eq!(core.reap(2).0, Some(3));
    assert_eq!((core.picture().live, core.picture().totals.retired), (2, 2));
    // The keep-alive was lowered: who begins to rest now leaves before the other.
    core.expect_uneven();
    let ticket = core.enter(6, |job| job, &mut |_| Ok(())).0.expect("it starts");
    assert!(matches!(core.finish(|| Arc::clone(&seats[3]), ticket, Ended::Completed, 2).0, Next::Rest(Some(2))));
    assert_eq!(core.reap(2).0, None, "the other is kept");
    assert_eq!((core.picture().live, core.picture().idle), (1, 1));
    assert_eq!(core.reap(9).0, None);
    assert_eq!(core.picture().live, 1);
}

#[test]
fn a_retry_is_asked_for_once_and_again_when_nobody_will() {
    let (core, _seats) = resting(2, 0);
    core.enter(3, |job| job, &mut |_| Ok(())).0.expect("it starts");
    let starved = |wakes: super::Wakes<u32>| wakes.starved;
    let (entered, wakes) = core.enter(4, |job| job, &mut |_| refuse());
    assert!(entered.is_ok() && starved(wakes), "one is busy, and another could be");
    assert!(!starved(core.resize(3, &mut |_| refuse()).1), "somebody retries already");
    core.forget_retry();
    assert!(starved(core.resize(2, &mut |_| refuse()).1));
    assert!(starved(core.retry(&mut |_| refuse())), "there is still no room");
    assert!(!starved(core.retry(&mut |_| Ok(()))));
    assert_eq!((core.picture().queued, core.picture().idle), (0, 0));
}
