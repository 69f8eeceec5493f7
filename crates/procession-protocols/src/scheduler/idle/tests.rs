use super::parking::places::Remaining;
use super::parking::{LATE, TakenBack};
use super::{Idle, SeatId};

fn idle_with_all_awake(seats: u32) -> Idle {
    let idle = Idle::new(seats, seats, false);
    while let Some(seat) = idle.claim() {
        assert!(idle.come(seat), "it was claimed");
        idle.stop_searching();
    }
    idle
}

#[test]
fn the_last_to_park_is_woken_first() {
    let idle = idle_with_all_awake(3);
    assert!(!idle.announce(SeatId(2), false));
    assert!(!idle.announce(SeatId(0), false));
    assert_eq!(idle.claim_one(), Some(SeatId(0)));
    assert_eq!(idle.claim_one(), None, "the one that was woken searches for all");
    assert!(idle.stop_searching());
    assert_eq!(idle.claim_one(), Some(SeatId(2)));
}

#[test]
fn an_absent_seat_is_not_woken_and_does_not_run() {
    let idle: Idle = Idle::new(1, 1, true);
    assert!(idle.all_parked_and(|| true));
    assert_eq!(idle.claim_one(), None);
    assert_eq!(idle.claim_absent(1), Some(SeatId(0)));
    assert_eq!(idle.claim_absent(1), None, "one caller sits there");
    assert!(!idle.all_parked_and(|| true));
    assert!(idle.leave(SeatId(0), true, 0).all_parked);
    assert_eq!(idle.claim_absent(1), Some(SeatId(0)));
}

#[test]
fn only_seats_that_are_awake_have_a_permit() {
    let idle: Idle = Idle::new(5, 5, true);
    let claimed = [1, 2, 3].map(SeatId);
    for seat in claimed {
        assert!(idle.claim_this(seat));
    }
    idle.give_back(SeatId(2));
    idle.announce(SeatId(3), false);
    let absent_out_parked_and_vacant = [0, 2, 3, 4].map(SeatId);
    assert_eq!(idle.without_permit((0..5).map(SeatId)), absent_out_parked_and_vacant);
}

#[test]
fn half_of_those_awake_search() {
    let idle = idle_with_all_awake(4);
    assert!(idle.start_searching());
    assert!(idle.start_searching());
    assert!(!idle.start_searching());
    assert!(!idle.stop_searching());
    assert!(idle.stop_searching());
}

#[test]
fn a_seat_that_nobody_took_is_woken_first_to_last() {
    let idle: Idle = Idle::new(2, 2, false);
    assert_eq!(idle.claim_one(), Some(SeatId(0)));
    assert_eq!(idle.claim(), Some(SeatId(1)));
    assert_eq!(idle.claim(), None);
    assert_eq!(idle.counts(), (2, 2, 0));
    assert!(!idle.announce(SeatId(0), true));
    assert!(idle.announce(SeatId(1), true), "all are parked");
    assert_eq!(idle.take_back(SeatId(0), false), TakenBack::Yes);
    assert_eq!(idle.take_back(SeatId(0), false), TakenBack::ByWaker);
}

#[test]
fn no_more_are_woken_than_there_are_permits() {
    let idle: Idle = Idle::new(4, 2, false);
    assert_eq!(idle.reach(), 2);
    assert_eq!(
        (idle.claim(), idle.claim(), idle.claim()),
        (Some(SeatId(0)), Some(SeatId(1)), None)
    );
    assert!(!idle.give_back(SeatId(0)), "another is awake");
    assert_eq!(
        (idle.claim(), idle.claim()),
        (Some(SeatId(2)), None),
        "one for the one that blocks"
    );
    assert_eq!(idle.reach(), 3);
    assert!(!idle.regain(SeatId(0), false), "there is no permit to come back to");
    assert!(idle.is_revoked(SeatId(0)));
    assert!(!idle.announce(SeatId(0), false));
    assert_eq!(idle.take_back(SeatId(0), false), TakenBack::NoPermit);
    assert_eq!(idle.counts().2, 0, "it is parked, but none may wake it");
    assert!(!idle.announce(SeatId(2), true));
    assert_eq!(idle.counts().2, 1);
    assert!(!idle.retire(SeatId(1)), "it is awake");
    assert!(idle.retire(SeatId(2)));
    assert_eq!(
        idle.leave(SeatId(2), false, 0),
        Remaining { all_parked: false, nobody_awake: false }
    );
    idle.lower_reach(2, |_| true);
    assert_eq!(idle.reach(), 2);
    assert!(!idle.retire(SeatId(0)), "no more threads are left than may run");
}

#[test]
fn one_thread_stays_beside_those_that_block() {
    let idle: Idle = Idle::new(3, 1, false);
    for seat in [SeatId(0), SeatId(1), SeatId(2)] {
        assert_eq!(idle.claim(), Some(seat));
        assert!(idle.give_back(seat));
    }
    assert!(!idle.announce(SeatId(2), true));
    assert!(!idle.retire(SeatId(2)), "nobody else could keep the time");
    assert!(!idle.announce(SeatId(1), false));
    assert!(idle.retire(SeatId(2)));
    assert!(!idle.retire(SeatId(1)), "the other is on its way out");
    assert_eq!(
        idle.leave(SeatId(2), false, 0),
        Remaining { all_parked: false, nobody_awake: true }
    );
}

#[test]
fn what_only_one_seat_can_do_costs_another_its_permit() {
    let idle: Idle = Idle::new(3, 1, false);
    assert_eq!(idle.claim(), Some(SeatId(0)));
    assert!(idle.claim_this(SeatId(2)));
    assert!(idle.is_revoked(SeatId(0)));
    assert!(!idle.is_revoked(SeatId(2)));
    assert_eq!(idle.counts().1, 1);
    assert!(!idle.claim_this(SeatId(0)), "it is out, and looks itself when it comes back");
    assert!(idle.regain(SeatId(0), true));
    assert!(idle.is_revoked(SeatId(2)));
    assert_eq!(idle.counts().1, 1);
}

#[test]
fn the_width_can_be_changed_while_all_run() {
    let idle: Idle = Idle::new(4, 4, false);
    while idle.claim().is_some() {}
    idle.set_worker_threads(1);
    assert_eq!(idle.counts(), (4, 1, 0));
    assert_eq!((0..4).filter(|&seat| idle.is_revoked(SeatId(seat))).count(), 3);
    idle.set_worker_threads(3);
    let back = (0..4).filter(|&seat| idle.regain(SeatId(seat), false)).count();
    assert_eq!(back, 3);
}

#[test]
fn those_that_are_late_are_not_counted_until_they_come() {
    let idle = Idle::<0>::new(4, 4, false);
    let first = idle.claim_one().expect("all are vacant");
    assert_eq!(idle.claim_one(), None, "it searches");
    assert_eq!(idle.write_off_if_late(|| u64::MAX - 1), 0, "it is not being woken yet");
    idle.note_waking(first, 1000);
    assert_eq!((idle.write_off_if_late(|| 999 + LATE), idle.write_off(999 + LATE)), (0, 0));
    assert_eq!(idle.write_off_if_late(|| 1000 + LATE), 1);
    let second = idle.claim_one().expect("nobody searches");
    idle.note_waking(second, 1000 + LATE);
    assert_eq!(idle.write_off(999 + 2 * LATE), 0, "the first is not late twice");
    assert_eq!(idle.write_off(1000 + 2 * LATE), 1, "both are late at once");
    let third = idle.claim_one().expect("nobody searches");
    idle.note_waking(third, 1000 + 2 * LATE);
    assert_eq!(idle.counts(), (1, 3, 1));
    for seat in [first, second, third] {
        assert!(idle.come(seat), "it was claimed");
    }
    assert_eq!(idle.counts(), (3, 3, 1), "each is counted once");
    assert_eq!(idle.write_off_if_late(|| unreachable!("none is on the way")), 0);
    idle.announce(third, true);
    assert!(!idle.come(third), "it is parked");
}

#[test]
fn one_whose_claimer_does_not_come_to_wake_it_is_late_all_the_same() {
    let idle = Idle::<0>::new(2, 2, false);
    assert!(idle.claim_one().is_some());
    assert_eq!(idle.write_off(5), 0, "the time begins");
    assert_eq!(idle.write_off(4 + LATE), 0);
    assert_eq!(idle.write_off(5 + LATE), 1);
}

#[test]
fn one_that_is_late_for_long_loses_its_permit_and_may_be_declined() {
    let idle = Idle::<0>::new(3, 1, false);
    let first = idle.claim_one().expect("all are vacant");
    idle.note_waking(first, 0);
    assert_eq!(idle.revoke_late(1000 * LATE, 0), 0, "it is not late");
    assert_eq!(idle.write_off(LATE), 1);
    assert_eq!(idle.revoke_late(2 * LATE, 3 * LATE), 0, "not for so long");
    assert_eq!(idle.revoke_late(3 * LATE, 3 * LATE), 1);
    assert_eq!(idle.revoke_late(3 * LATE, 3 * LATE), 0, "it has none any more");
    assert_eq!(idle.first_unblocked(first.0, 3), Some(first), "it does not block");
    let second = idle.claim_one().expect("there is a permit");
    idle.decline(first);
    assert_eq!(idle.counts(), (1, 1, 0), "the second searches");
    idle.decline(second);
    assert_eq!(idle.counts(), (0, 0, 1));
}

#[test]
fn an_announcement_that_a_waker_took_is_counted_though_it_was_late() {
    let idle = idle_with_all_awake(2);
    idle.announce(SeatId(1), false);
    assert_eq!(idle.claim_one(), Some(SeatId(1)));
    idle.note_waking(SeatId(1), 0);
    assert_eq!(idle.write_off(LATE), 1);
    assert_eq!(idle.counts().0, 0);
    assert_eq!(idle.take_back(SeatId(1), false), TakenBack::ByWaker);
    assert_eq!(idle.counts().0, 1);
}

/// Goal: a claim ends when its worker runs, so the claimer that is slow to wake it starts no thread
/// for the seat later. Method: the worker runs, parks, and leaves its seat vacant before the
/// claimer continues; then another thread claims the seat.
#[test]
fn a_claim_that_is_over_starts_no_thread() {
    let idle: Idle = Idle::new(3, 1, false);
    for seat in [1, 2, 0].map(SeatId) {
        assert!(idle.claim_this(seat) && idle.come(seat));
        idle.announce(seat, true);
    }
    assert_eq!(idle.claim(), Some(SeatId(0)));
    assert!(idle.come(SeatId(0)), "it was claimed");
    idle.announce(SeatId(0), true);
    assert!(idle.retire(SeatId(0)), "there are too many threads");
    idle.leave(SeatId(0), false, 0);
    assert!(!idle.begin_start(SeatId(0)), "the claim is over");
    assert!(idle.claim_this(SeatId(0)));
    assert!(idle.begin_start(SeatId(0)), "it is claimed again");
    assert!(!idle.begin_start(SeatId(0)), "a thread is being started");
    idle.decline(SeatId(0));
    assert_eq!(idle.counts().0, 0, "what the claims have counted is taken back");
    assert!(!idle.begin_start(SeatId(0)), "the system has refused the thread");
}

#[test]
fn batch_processes_leave_one_permit_and_come_back_within_the_limit() {
    let idle = idle_with_all_awake(3);
    assert!(idle.begin_batch(SeatId(0), false));
    assert!(idle.begin_batch(SeatId(1), false));
    assert!(idle.begin_batch(SeatId(1), false), "it has begun");
    assert!(!idle.begin_batch(SeatId(2), false), "one permit is for others");
    assert!(!idle.has_batch_permit());
    // The step of the first blocks. Then another may begin, and the first gets no permit.
    idle.give_back(SeatId(0));
    assert!(idle.begin_batch(SeatId(2), false));
    assert!(!idle.regain(SeatId(0), false), "two others run batch processes");
    assert_eq!(idle.batch(), 2);
    idle.end_batch(SeatId(1));
    assert!(idle.regain(SeatId(0), false));
    assert_eq!(idle.batch(), 2, "it counts again");
    // The watchdog takes the permit, and the worker goes on with other processes.
    assert!(idle.revoke(SeatId(0)));
    assert_eq!(idle.batch(), 1);
    idle.end_batch(SeatId(0));
    assert!(idle.regain(SeatId(0), false));
    assert_eq!(idle.batch(), 1, "it runs others now");
}

#[test]
fn seats_that_wait_for_a_batch_permit_get_it_in_turn() {
    let idle = idle_with_all_awake(4);
    idle.limit_batch(Some(1));
    assert!(idle.begin_batch(SeatId(0), true));
    assert!(!idle.begin_batch(SeatId(1), true));
    assert!(!idle.begin_batch(SeatId(2), true));
    assert_eq!(idle.next_for_batch(), None);
    idle.end_batch(SeatId(0));
    assert!(!idle.has_batch_permit(), "it is promised");
    assert!(!idle.begin_batch(SeatId(3), false));
    assert!(!idle.must_try_batch(SeatId(2)), "another waits longer");
    assert_eq!(idle.next_for_batch(), Some(SeatId(1)));
    idle.stop_waiting_for_batch(SeatId(1));
    assert_eq!(idle.next_for_batch(), Some(SeatId(2)));
    assert!(idle.begin_batch(SeatId(2), true));
    assert!(idle.must_try_batch(SeatId(1)), "it would not be woken if it parked");
    assert!(!idle.begin_batch(SeatId(1), true) && !idle.must_try_batch(SeatId(1)));
    // The watchdog takes a step for a stall, which has just ended.
    assert!(!idle.announce(SeatId(1), false) && !idle.revoke(SeatId(1)));
    idle.end_batch(SeatId(2));
    assert_eq!(idle.next_for_batch(), Some(SeatId(1)), "a parked worker still waits");
    idle.stop_waiting_for_batch(SeatId(1));
    assert!(idle.begin_batch(SeatId(3), true) && !idle.begin_batch(SeatId(2), true));
    idle.give_back(SeatId(2));
    assert!(!idle.is_batch_wanted(), "a step that blocks keeps nobody waiting");
}

#[test]
fn a_smaller_width_leaves_no_more_batch_permits_than_its_limit() {
    let idle = idle_with_all_awake(3);
    assert!(idle.begin_batch(SeatId(0), false) && idle.begin_batch(SeatId(1), false));
    assert!(!idle.announce(SeatId(2), false));
    idle.set_worker_threads(2);
    assert_eq!(idle.batch(), 1, "the other permit is for others");
    assert!(
        idle.is_revoked(SeatId(1)),
        "no more permits are held than the width, but one is batch"
    );
    // After its step.
    idle.end_batch(SeatId(1));
    assert!(idle.regain(SeatId(1), false), "it runs others now");
    assert!(!idle.begin_batch(SeatId(1), false));
}

#[test]
fn the_limit_follows_the_width_and_is_never_zero() {
    let idle = idle_with_all_awake(1);
    assert!(idle.begin_batch(SeatId(0), false), "the only worker may");
    let idle = idle_with_all_awake(3);
    idle.limit_batch(Some(0));
    assert!(idle.begin_batch(SeatId(0), false));
    assert!(!idle.begin_batch(SeatId(1), false));
    idle.limit_batch(Some(9));
    assert!(idle.begin_batch(SeatId(1), false));
    assert!(idle.begin_batch(SeatId(2), false));
}
