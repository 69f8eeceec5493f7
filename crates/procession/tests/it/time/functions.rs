//! Timers that run functions or send messages: results, order and limits.

mod limits;
mod waits;

use crate::home::{mpsc, others_may_run, thread};
use std::sync::Arc;
use std::time::Duration;

use procession::time::{Elapsed, Instant, Timer, run_after, run_every, sleep_until};
use procession::{Context, Scheduler, sleep};
use procession_sync::Mutex;
use procession_sync::atomic::AtomicU32;
use procession_sync::atomic::Ordering::SeqCst;

use super::{HOUR, joined, on_test_clock, seconds, timers};
use crate::scene::soon_closed;

/// Returns a function that counts its calls, and a function that returns the count.
fn counting() -> (impl Fn() + Send + Sync + 'static, impl Fn() -> u32) {
    let count = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&count);
    let call = move || {
        counted.fetch_add(1, SeqCst);
    };
    (call, move || count.load(SeqCst))
}

fn set<T, E>(timer: Result<T, E>) -> T {
    timer.unwrap_or_else(|_| panic!("the limit is not reached"))
}

#[test]
fn a_function_runs_once_when_its_time_has_come() {
    let scheduler = on_test_clock(1);
    scheduler.block_on(async {
        let (call, calls) = counting();
        let timer = set(run_after(seconds(10), call));
        sleep(Duration::from_nanos(9_999_999_999)).await;
        assert_eq!(calls(), 0);
        sleep(Duration::from_nanos(1)).await;
        assert_eq!(calls(), 1);
        assert!(!timer.cancel() && !timer.reset(Instant::now() + HOUR), "it is over");
        sleep(HOUR * 2).await;
        assert_eq!(calls(), 1);
    });
    assert_eq!(timers(&scheduler).pending, 0);
}

#[test]
fn a_cancelled_function_never_runs() {
    let scheduler = on_test_clock(1);
    scheduler.block_on(async {
        let (call, calls) = counting();
        let held = Arc::new(());
        let timer = set(run_after(seconds(10), {
            let held = Arc::clone(&held);
            move || {
                call();
                drop(held);
            }
        }));
        let clone = timer.clone();
        sleep(seconds(9)).await;
        assert!(timer.cancel());
        assert_eq!(Arc::strong_count(&held), 1, "what the function held is free at once");
        assert!(
            !timer.cancel() && !clone.cancel() && !clone.reset(Instant::now() + HOUR),
            "cancelled once"
        );
        sleep(HOUR * 2).await;
        assert_eq!(calls(), 0);
    });
    let timers = timers(&scheduler);
    assert_eq!((timers.cancelled, timers.pending), (1, 0));
}

#[test]
fn a_reset_moves_a_function() {
    for (to, runs_at) in [(5, 5), (10, 10), (20, 20), (1, 2), (2, 2)] {
        on_test_clock(1).block_on(async {
            let start = Instant::now();
            let (ran, runs) = mpsc::channel();
            let timer = set(run_after(seconds(10), move || {
                ran.send(Instant::now()).expect("the test listens")
            }));
            sleep(seconds(2)).await;
            assert!(timer.reset(start + seconds(to)));
            drop(timer);
            sleep(seconds(100)).await;
            let runs: Vec<_> = runs.iter().collect();
            assert_eq!(runs, [start + seconds(runs_at)], "reset to {to}");
        });
    }
}

/// Other than Go's `Timer.Reset`, which keeps the function.
#[test]
fn a_reset_of_a_function_that_has_run_does_nothing() {
    let scheduler = on_test_clock(1);
    scheduler.block_on(async {
        let (call, calls) = counting();
        let timer = set(run_after(seconds(1), call));
        let clone = timer.clone();
        sleep(seconds(2)).await;
        assert_eq!(calls(), 1);
        for when in [Instant::now(), Instant::now() + seconds(1)] {
            assert!(!timer.reset(when) && !clone.reset(when));
        }
        sleep(HOUR).await;
        assert_eq!(calls(), 1);
        assert!(!timer.cancel());
    });
    let timers = timers(&scheduler);
    assert_eq!((timers.cancelled, timers.pending), (0, 0));
}

#[test]
fn a_periodic_function_keeps_phase_until_it_is_cancelled() {
    let scheduler = on_test_clock(1);
    scheduler.block_on(async {
        let start = Instant::now();
        let (ran, runs) = mpsc::channel();
        let ran = Mutex::new(ran);
        let log = move || {
            let second = (Instant::now() - start).as_secs();
            ran.lock().send(second).expect("the test listens");
        };
        let timer = set(run_every(seconds(10), log));
        sleep(seconds(35)).await;
        assert!(runs.try_iter().eq([10, 20, 30]));
        assert!(timer.reset(start + seconds(36)));
        sleep(seconds(30)).await;
        assert!(runs.try_iter().eq([36, 46, 56]), "the reset moves the phase");
        assert!(timer.cancel());
        assert!(!timer.cancel() && !timer.reset(Instant::now()));
        sleep(HOUR).await;
        assert!(runs.iter().eq([0; 0]), "the function is gone, too");
    });
    let timers = timers(&scheduler);
    assert_eq!((timers.cancelled, timers.pending), (1, 0));
}

#[test]
fn a_periodic_function_leaves_out_what_it_missed() {
    let scheduler = on_test_clock(1);
    let (call, calls) = counting();
    let timer = scheduler.block_on(async { set(run_every(seconds(10), call)) });
    scheduler.advance(seconds(45));
    scheduler.run_until_idle();
    assert_eq!(calls(), 1);
    scheduler.advance(seconds(4));
    scheduler.run_until_idle();
    assert_eq!(calls(), 1);
    scheduler.advance(seconds(1));
    scheduler.run_until_idle();
    assert_eq!(calls(), 2, "at second 50");
    assert!(timer.cancel());
}

#[test]
fn functions_with_one_deadline_run_in_the_order_of_their_making() {
    // More timers than fire in one pass, set by a process and by threads that are not workers.
    for inside in [true, false] {
        let scheduler = on_test_clock(1);
        let (ran, runs) = mpsc::channel();
        let start = scheduler.now();
        let deadline = start + seconds(10);
        let set_all = async move {
            let mut timers = Vec::new();
            for n in 0..1000 {
                let ran = ran.clone();
                timers.push(set(run_after(seconds(10), move || {
                    ran.send(n).expect("the test listens")
                })));
            }
            // Some of them are reset in between.
            for timer in timers.iter().step_by(3) {
                assert!(timer.reset(deadline + seconds(5)) && timer.reset(deadline));
            }
            for timer in timers.iter().step_by(5) {
                assert!(timer.reset(start + seconds(5)) && timer.reset(deadline));
            }
        };
        if inside {
            joined(scheduler.spawn(set_all));
        } else {
            crate::home::thread::scope(|scope| {
                // A second thread in `block_on`: the first one sits in the seat for callers.
                let (seated, is_seated) = mpsc::channel();
                let (over, is_over) = mpsc::channel::<()>();
                scope.spawn({
                    let scheduler = &scheduler;
                    move || {
                        scheduler.block_on(async move {
                            seated.send(()).expect("the test listens");
                            is_over.recv().expect_err("nothing is sent");
                        });
                    }
                });
                is_seated.recv().expect("the other thread sits");
                scheduler.block_on(set_all);
                drop(over);
            });
        }
        assert_eq!(timers(&scheduler).pending, 1000);
        scheduler.block_on(async { sleep_until(deadline).await });
        scheduler.run_until_idle();
        assert!(runs.iter().eq(0..1000), "inside: {inside}");
    }
}

#[test]
fn functions_fire_in_the_order_of_their_deadlines_in_one_advance() {
    let scheduler = on_test_clock(1);
    let (ran, runs) = mpsc::channel();
    scheduler.block_on(async {
        let mut delays: Vec<u64> = (1..=500).collect();
        fastrand::Rng::with_seed(1).shuffle(&mut delays);
        for delay in delays {
            let ran = ran.clone();
            set(run_after(seconds(delay), move || ran.send(delay).expect("the test listens")));
        }
    });
    scheduler.advance(seconds(400));
    scheduler.run_until_idle();
    assert!(runs.try_iter().eq(1..=400));
    scheduler.advance(seconds(100));
    scheduler.run_until_idle();
    assert!(runs.try_iter().eq(401..=500));
}

#[test]
fn a_function_that_panics_harms_nobody() {
    struct PanicsInDrop;
    impl Drop for PanicsInDrop {
        fn drop(&mut self) {
            panic!("dropped by a timer");
        }
    }
    for width in [1, 2] {
        let scheduler = on_test_clock(width);
        scheduler.block_on(async {
            let (call, calls) = counting();
            let (tick, ticks) = counting();
            set(run_after(seconds(1), || panic!("run by a timer")));
            let bomb = PanicsInDrop;
            set(run_after(seconds(1), move || drop(bomb)));
            set(run_after(seconds(1), call));
            let periodic = set(run_every(seconds(1), move || {
                tick();
                panic!("run by a periodic timer");
            }));
            sleep(seconds(5)).await;
            sleep(Duration::from_millis(500)).await;
            assert_eq!((calls(), ticks()), (1, 5), "width {width}");
            assert!(periodic.cancel());
        });
        assert_eq!(timers(&scheduler).pending, 0);
    }
}

#[test]
fn a_function_may_set_and_cancel_timers() {
    let scheduler = on_test_clock(1);
    scheduler.block_on(async {
        let start = Instant::now();
        let (ran, runs) = mpsc::channel();
        fn chain(left: u32, ran: mpsc::Sender<Instant>) {
            ran.send(Instant::now()).expect("the test listens");
            if left > 0 {
                set(run_after(seconds(1), move || chain(left - 1, ran)));
            }
        }
        set(run_after(seconds(1), move || chain(99, ran)));
        let (call, calls) = counting();
        let victim = set(run_after(seconds(50), call));
        set(run_after(seconds(49), move || assert!(victim.cancel())));
        sleep(seconds(101)).await;
        assert!(runs.iter().eq((1..=100).map(|n| start + seconds(n))));
        assert_eq!(calls(), 0);
    });
    assert_eq!(timers(&scheduler).pending, 0);
}

#[test]
fn a_function_may_set_timers_that_are_due_at_once() {
    let scheduler = on_test_clock(1);
    scheduler.block_on(async {
        let start = Instant::now();
        let (ended, has_ended) = mpsc::channel();
        fn chain(left: u32, ended: mpsc::Sender<Instant>) {
            if left > 0 {
                set(run_after(Duration::ZERO, move || chain(left - 1, ended)));
            } else {
                ended.send(Instant::now()).expect("the test listens");
            }
        }
        chain(1000, ended);
        sleep(seconds(1)).await;
        assert_eq!(has_ended.recv(), Ok(start));
    });
}

/// The place where a function finds its own timer.
type Own = Arc<Mutex<Option<Timer>>>;

fn own(timer: &Own) -> Timer {
    timer.lock().clone().expect("it is put there before the first firing")
}

#[test]
fn a_function_that_cancels_its_own_timer_is_not_prevented_any_more() {
    on_test_clock(1).block_on(async {
        let timer = Own::default();
        let (told, tells) = mpsc::channel();
        let itself = Arc::clone(&timer);
        let set_timer = set(run_after(seconds(1), move || {
            let itself = own(&itself);
            told.send((itself.cancel(), itself.reset(Instant::now()))).expect("the test listens");
        }));
        *timer.lock() = Some(set_timer);
        sleep(seconds(2)).await;
        assert!(tells.iter().eq([(false, false)]));
    });
}

#[test]
fn a_periodic_function_that_cancels_its_own_timer_runs_no_more() {
    let scheduler = on_test_clock(1);
    scheduler.block_on(async {
        let timer = Own::default();
        let (call, calls) = counting();
        let itself = Arc::clone(&timer);
        let set_timer = set(run_every(seconds(1), move || {
            call();
            if calls() == 3 {
                assert!(own(&itself).cancel());
            }
            assert!(calls() <= 3);
        }));
        *timer.lock() = Some(set_timer);
        sleep(seconds(10)).await;
        assert!(!own(&timer).cancel());
        // Breaks the cycle of the timer and its function.
        timer.lock().take();
    });
    let timers = timers(&scheduler);
    assert_eq!((timers.cancelled, timers.pending), (1, 0));
}

#[test]
fn a_periodic_function_may_reset_its_own_timer() {
    on_test_clock(1).block_on(async {
        let start = Instant::now();
        let timer = Own::default();
        let (ran, runs) = mpsc::channel();
        let ran = Mutex::new(ran);
        let itself = Arc::clone(&timer);
        let set_timer = set(run_every(seconds(10), move || {
            ran.lock().send((Instant::now() - start).as_secs()).expect("the test listens");
            if Instant::now() == start + seconds(20) {
                assert!(own(&itself).reset(start + seconds(21)));
            }
        }));
        *timer.lock() = Some(set_timer);
        sleep(seconds(45)).await;
        assert!(runs.try_iter().eq([10, 20, 21, 31, 41]));
        assert!(own(&timer).cancel());
    });
}

#[test]
fn delayed_messages_arrive_by_deadline_and_then_in_the_order_of_their_sending() {
    let scheduler = on_test_clock(1);
    let start = scheduler.now();
    let receiver = scheduler.start(|mut cx: Context<(u64, u32)>| async move {
        let mut log = Vec::new();
        while log.len() < 300 {
            let message = cx.recv().await.expect("it is not cancelled");
            log.push((Instant::now(), message));
        }
        log
    });
    for number in 0..100 {
        for delay in [30, 10, 20] {
            set(receiver.send_after(seconds(delay), (delay, number)));
        }
    }
    let log = receiver.join().expect("it does not panic");
    let wanted =
        [10, 20, 30].into_iter().flat_map(|delay| (0..100).map(move |number| (delay, number)));
    assert!(
        log.into_iter().eq(wanted.map(|(delay, number)| (start + seconds(delay), (delay, number))))
    );
}

#[test]
fn a_delayed_message_to_a_process_that_has_ended_is_dropped() {
    let scheduler = on_test_clock(1);
    let held = Arc::new(());
    let receiver = scheduler.start(|mut cx: Context<Arc<()>>| async move {
        cx.recv().await;
    });
    let address = receiver.address().clone();
    set(address.send_after(seconds(1), Arc::clone(&held)));
    set(address.send_after(seconds(2), Arc::clone(&held)));
    assert_eq!(receiver.join(), Ok(()));
    let refused = address.send_after(seconds(3), Arc::clone(&held)).expect_err("it has ended");
    assert!(refused.is_ended());
    drop(refused);
    assert!(Arc::strong_count(&held) > 1);
    scheduler.block_on(async { sleep(seconds(10)).await });
    assert_eq!(Arc::strong_count(&held), 1);
    let snapshot = scheduler.snapshot();
    assert_eq!(
        (snapshot.messages_sent, snapshot.timers.pending),
        (1, 0),
        "late ones count as never sent"
    );
}

#[test]
fn a_receive_with_timeout_gets_what_comes_in_time() {
    let scheduler = on_test_clock(1);
    let start = scheduler.now();
    let receiver = scheduler.start(move |mut cx: Context<u32>| async move {
        let address = cx.address();
        set(address.send_after(seconds(5), 1));
        assert_eq!(cx.recv_timeout(seconds(4)).await, Err(Elapsed));
        assert_eq!(Instant::now() - start, seconds(4));
        assert_eq!(cx.recv_timeout(seconds(4)).await, Ok(Some(1)));
        assert_eq!(Instant::now() - start, seconds(5));
        set(address.send_after(seconds(1), 2));
        assert_eq!(cx.recv_timeout(seconds(1)).await, Ok(Some(2)), "the message was due first");
        set(address.send_after(seconds(2), 3));
        for _ in 0..4 {
            assert_eq!(cx.recv_timeout(Duration::from_millis(400)).await, Err(Elapsed));
        }
        assert_eq!(cx.recv_timeout(HOUR).await, Ok(Some(3)), "it was not lost");
        assert_eq!(Instant::now() - start, seconds(8));
        set(address.send_after(seconds(1), 4));
        sleep(seconds(2)).await;
        assert_eq!(cx.recv_timeout(Duration::ZERO).await, Ok(Some(4)), "it is there already");
    });
    let pid = receiver.pid();
    assert_eq!(receiver.join(), Ok(()));
    assert!(!procession::process::cancel(pid));
    assert_eq!(timers(&scheduler).pending, 0);
}

#[test]
fn a_cancel_ends_a_receive_with_timeout() {
    let scheduler = on_test_clock(1);
    let receiver =
        scheduler.start(|mut cx: Context<()>| async move { cx.recv_timeout(HOUR).await });
    let start = scheduler.now();
    scheduler.run_until_idle();
    receiver.cancel();
    assert_eq!(receiver.join(), Ok(Ok(None)));
    assert_eq!(scheduler.now(), start);
}

/// Goal: a function that is set while its scheduler ends is refused, or dropped at the end. Method:
/// a thread sets functions until it is refused. The test keeps the scheduler, whose memory holds
/// what the end has missed.
#[test]
fn a_function_that_is_set_during_the_end_goes_with_the_scheduler() {
    for _ in 0..100 {
        let scheduler = Scheduler::builder().worker_threads(1).build().expect("it has threads");
        let held = Arc::new(());
        thread::scope(|scope| {
            scope.spawn(|| {
                scheduler.block_on(async {
                    loop {
                        let used = Arc::clone(&held);
                        if run_after(HOUR, move || drop(used)).is_err() {
                            break;
                        }
                        others_may_run();
                    }
                });
            });
            drop(scheduler.block_on(scheduler.shutdown(Duration::ZERO)));
        });
        assert_eq!(Arc::strong_count(&held), 1);
    }
}

#[test]
fn timers_that_are_pending_go_with_their_scheduler() {
    for (width, on_test_clock) in [(1, true), (1, false), (2, false)] {
        let (held, freed) = mpsc::channel::<()>();
        let builder = Scheduler::builder().worker_threads(width);
        let scheduler = if on_test_clock { builder.test_clock() } else { builder }
            .build()
            .expect("it has threads");
        let receiver = scheduler.start(|mut cx: Context<mpsc::Sender<()>>| async move {
            let own = cx.address();
            while let Some(message) = cx.recv().await {
                set(own.send_after(HOUR, message));
            }
        });
        receiver.send(held.clone()).expect("it is alive");
        set(receiver.send_after(HOUR, held.clone()));
        scheduler.block_on(async {
            let also_held = held.clone();
            set(run_after(HOUR, move || drop(also_held)));
            set(run_every(HOUR, move || held.send(()).expect("the test listens")));
        });
        scheduler.run_until_idle();
        assert_eq!(timers(&scheduler).pending, 4);
        drop((receiver, scheduler));
        soon_closed(&freed);
    }
}
