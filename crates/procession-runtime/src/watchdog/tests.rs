use std::cell::Cell;
use std::sync::Arc;
use std::task::Waker;

use procession_protocols::scheduler::seat_id::SeatId;
use procession_sync::atomic::Ordering::Relaxed;

use super::{LOOK_EVERY, NEVER, Pause, QUIET_LOOKS, StallKind, VISITS_QUIET, Watch, Woken};
use crate::Scheduler;
use crate::sys::RunState::{Runs, Stopped, Waits};
use crate::time::action::Action;
use crate::watchdog::judge::judge;

const SECOND: u64 = 1_000_000_000;
const PASSED: u64 = 7_500_000;

/// A scheduler without threads, for scripted looks.
fn scripted() -> Scheduler {
    let builder = Scheduler::builder().worker_threads(1).max_threads(4).test_clock();
    builder.build().expect("it starts no thread")
}

/// Looks 20 times at a scheduler in which nothing runs, and returns the number of pauses with
/// an end. Each is roused if it can be.
fn pauses_with_an_end(watch: &mut Watch) -> usize {
    let shared = Arc::clone(&watch.shared);
    let ends = (1..=20).map(|round| {
        let quiet = watch.look(round * SECOND);
        let pause = watch.pause(round * SECOND, quiet);
        let is_short = pause == Pause { until: round * SECOND + LOOK_EVERY, parks: false };
        assert_eq!(is_short, round == 1, "{pause:?}");
        shared.workforce.rouse_watchdog();
        assert_eq!(
            shared.workforce.watchdog.park.end(),
            if pause.parks { Woken::Roused } else { Woken::InTime }
        );
        pause.until != NEVER
    });
    ends.collect::<Vec<_>>().into_iter().filter(|&has_end| has_end).count()
}

#[test]
fn a_worker_that_becomes_awake_ends_every_longer_pause() {
    let scheduler = scripted();
    let shared = scheduler.shared();
    let mut watch = Watch::new(Arc::clone(shared));
    assert_eq!(pauses_with_an_end(&mut watch), 1, "two looks find all there is");
    assert!(shared.workforce.idle.claim_absent(1).is_some(), "one is awake");
    let quiet = watch.look(21 * SECOND);
    assert!(!watch.pause(21 * SECOND, quiet).parks);
}

#[test]
fn a_timer_without_a_driver_and_many_processes_are_looked_at_for_longer() {
    let scheduler = scripted();
    let shared = scheduler.shared();
    let far = 1000 * SECOND;
    let action = Action::Wake(Waker::noop().clone().into());
    let armed = shared.clock.outside.add(far, None, action).expect("there is room");
    let mut watch = Watch::new(Arc::clone(shared));
    assert_eq!(pauses_with_an_end(&mut watch), QUIET_LOOKS as usize);
    drop(shared.clock.outside.delete(armed.id));

    // Only the test looks. All processes wait, one more than a look visits.
    let builder = Scheduler::builder().worker_threads(1).test_clock().watchdog(false);
    let scheduler = builder.build().expect("it starts no thread");
    for _ in 0..=VISITS_QUIET {
        drop(scheduler.spawn(std::future::pending::<()>()));
    }
    scheduler.run_until_idle();
    let used = scheduler.shared().table().used();
    assert!(used > VISITS_QUIET && used <= 2 * VISITS_QUIET, "{used}");
    let mut watch = Watch::new(Arc::clone(scheduler.shared()));
    assert_eq!(pauses_with_an_end(&mut watch), 2);
}

/// Nothing wakes the watchdog for a process that waits since the end of a look, and the process may
/// be in a cycle of waits.
#[test]
fn what_begins_to_wait_during_a_look_is_visited_by_another() {
    let builder = Scheduler::builder().worker_threads(1).test_clock().watchdog(false);
    let scheduler = builder.build().expect("it starts no thread");
    let mut watch = Watch::new(Arc::clone(scheduler.shared()));
    for round in 1..=3 {
        let quiet = watch.look(round * SECOND);
        if round == 2 {
            drop(scheduler.spawn(std::future::pending::<()>()));
            scheduler.run_until_idle();
        }
        let pause = watch.pause(round * SECOND, quiet);
        assert_eq!(pause, Pause { until: round * SECOND + LOOK_EVERY, parks: false });
    }
    let quiet = watch.look(4 * SECOND);
    assert_eq!(watch.pause(4 * SECOND, quiet), Pause { until: NEVER, parks: true });
}

#[test]
fn a_stall_is_judged_by_all_that_the_system_tells() {
    let all = Some(PASSED);
    assert_eq!(judge(Some(0), Some(Waits), PASSED), Some(StallKind::Blocked));
    assert_eq!(judge(Some(PASSED * 2 / 3), Some(Waits), PASSED), Some(StallKind::Computing));
    assert_eq!(judge(all, Some(Runs), PASSED), Some(StallKind::Computing));
    assert_eq!(judge(Some(LOOK_EVERY), Some(Runs), 20 * LOOK_EVERY), Some(StallKind::Computing));
    assert_eq!(judge(Some(0), Some(Runs), PASSED), None, "the system lets it wait");
    assert_eq!(judge(all, Some(Stopped), PASSED), None);
}

#[test]
fn a_stall_is_never_overlooked_for_want_of_knowledge() {
    // No state: no descriptors, or no `/proc`.
    assert_eq!(judge(Some(0), None, PASSED), Some(StallKind::Blocked));
    assert_eq!(judge(Some(PASSED / 5), None, PASSED), Some(StallKind::Blocked));
    assert_eq!(judge(Some(PASSED / 2), None, PASSED), Some(StallKind::Computing));
    // No processor time.
    assert_eq!(judge(None, Some(Waits), PASSED), Some(StallKind::Blocked));
    assert_eq!(judge(None, Some(Runs), PASSED), Some(StallKind::Computing));
    assert_eq!(judge(None, Some(Stopped), PASSED), None);
    assert_eq!(judge(None, None, PASSED), Some(StallKind::Blocked));
}

/// A worker that parks soon puts the alarm off. Much later, one look is made in any case, and
/// so is one after many short steps.
#[test]
fn short_steps_are_looked_at_once_in_a_while() {
    let scheduler = scripted();
    let shared = scheduler.shared();
    let (park, alarm) = (&shared.workforce.watchdog.park, Cell::new(0));
    let set = |when| alarm.set(when);
    assert!(park.begin(NEVER, || true, set));
    assert_eq!((alarm.get(), park.end()), (NEVER, Woken::InTime));
    assert!(park.begin(NEVER, || true, set));
    let mut put_off = 0;
    for now in (0..1000).map(|round| round * SECOND / 1000) {
        park.rouse(|| now, set);
        assert_eq!(alarm.get(), now + 1_000_000, "it looks if the step lasts");
        park.put_off(|| false, || now, set);
        assert_eq!(alarm.get(), now + 1_000_000, "another worker is awake");
        park.put_off(|| true, || now, set);
        if alarm.get() == now + 1_000_000 {
            break;
        }
        put_off += 1;
        assert_eq!(alarm.get(), 5 * SECOND);
    }
    assert_eq!((put_off, park.end()), (64, Woken::Roused));
    assert!(park.begin(NEVER, || true, set));
    park.rouse(|| 0, set);
    park.put_off(|| true, || 0, set);
    let mut watch = Watch::new(Arc::clone(shared));
    watch.resume(Pause { until: NEVER, parks: true }, 5 * SECOND);
    let quiet = watch.look(5 * SECOND);
    assert_eq!(watch.pause(5 * SECOND, quiet), Pause { until: NEVER, parks: true }, "one look");
}

#[test]
fn a_thread_that_wakes_a_caller_rouses_the_watchdog() {
    let scheduler = scripted();
    let shared = scheduler.shared();
    let seat = shared.workforce.take_callers_seat();
    assert!(seat.is_some(), "a caller sits there");
    shared.workforce.idle.announce(SeatId(0), false);
    assert!(shared.workforce.watchdog.park.begin(NEVER, || true, |_| {}));
    shared.workforce.wake_this(SeatId(0));
    let woken = shared.workforce.watchdog.park.end();
    assert_eq!(woken, Woken::Roused, "it sleeps beside a worker that may be late");
}

/// All threads block, and the only timer is far off. A thread that sets an earlier timer must
/// wake the watchdog.
#[test]
fn while_all_block_it_sleeps_until_the_next_deadline() {
    let scheduler = scripted();
    let shared = scheduler.shared();
    let mut watch = Watch::new(Arc::clone(shared));
    assert!(shared.workforce.idle.claim_absent(1).is_some());
    shared.workforce.idle.give_back(SeatId(0));
    for seat in (1..4).map(SeatId) {
        assert!(shared.workforce.idle.claim_this(seat) && shared.workforce.idle.come(seat));
        shared.workforce.idle.stop_searching();
        shared.workforce.idle.give_back(seat);
    }
    assert_eq!(shared.workforce.idle.counts(), (0, 0, 0), "no worker is left to be woken");
    let far = 1000 * SECOND;
    let armed = shared
        .clock
        .outside
        .add(far, None, Action::Wake(Waker::noop().clone().into()))
        .expect("there is room");
    let mut pauses = (1..=20).map(|round| {
        let quiet = watch.look(round);
        let pause = watch.pause(round, quiet);
        let _ = shared.workforce.watchdog.park.end();
        pause
    });
    let last = pauses.by_ref().last();
    assert_eq!(last, Some(Pause { until: far, parks: true }));
    assert!(shared.workforce.watchdog.park.begin(NEVER, || true, |_| {}));
    shared.outside_timer_set(SECOND);
    let woken = shared.workforce.watchdog.park.end();
    assert_eq!(woken, Woken::Roused, "nothing else looks after the earlier timer");
    drop(shared.clock.outside.delete(armed.id));
}

/// A seat in which no thread works does not keep the watchdog awake. Scripted looks at a
/// scheduler without threads. The test takes and leaves its seats.
#[test]
fn a_watchdog_finds_quiet_whatever_seats_were_used_before() {
    let scheduler = scripted();
    let shared = scheduler.shared();
    let mut watch = Watch::new(Arc::clone(shared));
    // The last seat is used; the seats before it are never made.
    assert!(shared.workforce.idle.claim_this(SeatId(3)) && shared.workforce.idle.come(SeatId(3)));
    shared.workforce.idle.stop_searching();
    let seat = shared.workforce.seat(SeatId(3));
    for (now, step) in [(10, 0), (20, 1), (30, 1)] {
        seat.thread.store(1, Relaxed);
        seat.step.store(step, Relaxed);
        assert!(!watch.look(now), "one is awake");
    }
    shared.workforce.idle.announce(SeatId(3), false);
    assert!(!watch.look(40), "a step lasts");
    seat.step.store(2, Relaxed);
    assert!(watch.look(50), "it is parked, and the others were never used");
    seat.step.store(3, Relaxed);
    assert!(watch.look(60) && !watch.look(70), "another step lasts");
    // Its thread leaves within it.
    seat.thread.store(0, Relaxed);
    assert!(watch.look(80), "no thread works there");
    seat.thread.store(1, Relaxed);
    assert!(!watch.look(90), "it does again, and is in its step");
    assert_eq!(watch.looks.len(), 4);
    shared.workforce.idle.leave(SeatId(3), false, 0);
    shared.workforce.idle.lower_reach(1, |_| true);
    assert!(watch.look(100), "the seat is out of reach");
    assert_eq!(watch.looks.len(), 1);
}
