//! Schedulers that come, go and are dropped.

use crate::home::{Barrier, mpsc};
use std::cell::RefCell;

use procession::machine::{CommandId, Completion, Value};
use procession::{Address, Context, Exit, JoinHandle, Pid, Scheduler, SpawnOptions};
use procession_sync::Mutex;
use procession_sync::atomic::AtomicU64;
use procession_sync::atomic::Ordering::Relaxed;

use super::HOUR;
use crate::scene::{assert_conserved, driven, soon, soon_closed, threaded};

#[test]
fn schedulers_message_each_other() {
    const PAIRS: u32 = 20;
    const ROUNDS: u32 = 500;
    for (left_width, right_width) in [(1, 1), (2, 1), (2, 2)] {
        let [left, right] = [threaded(left_width), threaded(right_width)];
        let handles: Vec<_> = (0..PAIRS)
            .map(|_| {
                let echo = right.start(|mut cx: Context<(u32, Pid)>| async move {
                    let mut echoed = 0;
                    while let Some((n, back)) = cx.recv().await {
                        procession::mailbox::send(back, n + 1).expect("it waits for this");
                        echoed += 1;
                    }
                    echoed
                });
                let to = echo.address().clone();
                let caller = left.start(move |mut cx: Context<u32>| async move {
                    let mut n = 0;
                    while n < ROUNDS {
                        to.send((n, cx.pid())).expect("it serves");
                        n = cx.recv().await.expect("it is not cancelled");
                    }
                    n
                });
                (caller, echo)
            })
            .collect();
        for (caller, echo) in handles {
            // A process of the other scheduler waits for each.
            assert_eq!(right.spawn(caller).join(), Ok(Ok(ROUNDS)));
            echo.cancel();
            assert_eq!(left.spawn(echo).join(), Ok(Ok(ROUNDS)));
        }
        for scheduler in [&left, &right] {
            assert_conserved(scheduler);
            assert_eq!(scheduler.snapshot().messages_received, u64::from(PAIRS * ROUNDS));
        }
    }
}

#[test]
fn run_until_idle_lists_what_each_process_waits_for_on_every_scheduler() {
    for scheduler in [driven(), threaded(1), threaded(4)] {
        let child = scheduler.start(|mut cx: Context<()>| async move { cx.recv().await });
        let (address, handle) = child.into_parts();
        let server = scheduler.start(|mut cx: Context<procession::Reply<()>>| async move {
            let _kept = cx.recv().await;
            std::future::pending::<()>().await;
        });
        let server_address = server.address().clone();
        let options = |label: &str| SpawnOptions::new().on(&scheduler).label(label);
        let (tell, told) = mpsc::channel();
        drop(options("a sleeper").spawn(procession::time::sleep_until(scheduler.now() + HOUR)));
        drop(options("a joiner").spawn(handle));
        drop(
            options("a caller")
                .spawn(async move { server_address.call(|reply| reply, HOUR).await }),
        );
        drop(
            options("a patient one")
                .start(|mut cx: Context<()>| async move { cx.recv_timeout(HOUR).await.is_ok() }),
        );
        drop(
            options("one to be cancelled")
                .start(|cx: Context<()>| async move { cx.cancelled().await }),
        );
        drop(options("a dreamer").spawn(std::future::pending::<()>()));
        drop(options("one that ends").spawn(async move { tell.send(()) }));
        let waiting = scheduler.run_until_idle();
        soon(&told);
        let mut listed: Vec<_> = waiting
            .iter()
            .filter_map(|waits| Some((waits.label.as_deref()?, waits.waiting.to_string())))
            .collect();
        listed.sort();
        let expected = [
            ("a caller", "timer, reply"),
            ("a dreamer", "a waker"),
            ("a joiner", "end of a process"),
            ("a patient one", "message, timer"),
            ("a sleeper", "timer"),
            ("one to be cancelled", "cancel"),
        ];
        assert_eq!(listed, expected.map(|(label, waiting)| (label, waiting.to_owned())));
        assert_eq!(waiting.len(), 8);
        assert!(waiting.iter().all(|waits| waits.location.file() == file!()));
        address.send(()).expect("it lives");
        assert!(
            !scheduler
                .run_until_idle()
                .iter()
                .any(|waits| waits.label.as_deref() == Some("a joiner"))
        );
    }
}

#[test]
fn several_threads_wait_until_all_is_idle() {
    for round in 0..200 {
        let scheduler = if round % 2 == 0 { threaded(2) } else { driven() };
        let begin = Barrier::new(4);
        let ended = AtomicU64::new(0);
        crate::home::thread::scope(|scope| {
            let (tell, told) = mpsc::channel();
            for _ in 0..3 {
                let (begin, scheduler, ended, tell) = (&begin, &scheduler, &ended, tell.clone());
                scope.spawn(move || {
                    begin.wait();
                    scheduler.run_until_idle();
                    // The processes that were spawned before the barrier have run.
                    tell.send(ended.load(Relaxed).max(scheduler.snapshot().ended))
                        .expect("the test waits");
                });
            }
            let chain = |depth: u64| async move {
                for _ in 0..depth {
                    procession::spawn(procession::yield_now()).await.expect("it ends");
                }
            };
            let handles: Vec<_> = (0..4).map(|depth| scheduler.spawn(chain(depth * 5))).collect();
            begin.wait();
            for _ in 0..3 {
                assert_eq!(soon(&told), 4 + 30, "in round {round}");
            }
            assert!(handles.iter().all(JoinHandle::is_finished));
        });
    }
}

/// Dropped when its thread ends.
struct ThreadEnd(#[expect(dead_code, reason = "its drop is the message")] mpsc::Sender<()>);

thread_local! {
    static THREAD_ENDS: RefCell<Vec<ThreadEnd>> = const { RefCell::new(Vec::new()) };
}

/// Creates a scheduler on which something happens. It reports when its last thread has ended, and
/// when it is freed.
fn observed(width: usize, driven: bool) -> (Scheduler, mpsc::Receiver<()>, mpsc::Receiver<()>) {
    let (held_by_scheduler, freed) = mpsc::channel::<()>();
    let (held_by_threads, threads_ended) = mpsc::channel();
    let held_by_scheduler = Mutex::new(held_by_scheduler);
    let builder = Scheduler::builder().worker_threads(width).handler(
        CommandId::new(256),
        move |_: Value, _: Completion| {
            drop(held_by_scheduler.lock());
        },
    );
    let builder = if driven { builder.callers_drive() } else { builder };
    let scheduler = builder.build().expect("the system has threads");
    for worker in 0..width as u32 {
        let ends = ThreadEnd(held_by_threads.clone());
        if driven && worker == 0 {
            // That worker is this thread.
            continue;
        }
        let bound = SpawnOptions::new().on(&scheduler).affinity(worker).spawn(async move {
            THREAD_ENDS.with_borrow_mut(|all| all.push(ends));
        });
        assert_eq!(bound.join(), Ok(()));
    }
    (scheduler, threads_ended, freed)
}

#[test]
fn schedulers_come_and_go() {
    for round in 0..200_usize {
        let width = [1, 2, 4][round % 3];
        let (scheduler, threads_ended, freed) = observed(width, round % 2 == 1);
        let (held, processes_ended) = mpsc::channel::<()>();
        // Some wait for messages, some sleep, some keep themselves ready.
        let mut children: Vec<_> = (0..5_u32)
            .map(|kind| {
                let held = held.clone();
                scheduler.start(move |mut cx: Context<u32>| async move {
                    let _held = held;
                    match kind {
                        0 => drop(cx.recv().await),
                        1 => procession::sleep(HOUR).await,
                        2 => loop {
                            procession::yield_now().await;
                        },
                        3 => cx.cancelled().await,
                        _ => std::future::pending().await,
                    }
                })
            })
            .collect();
        drop(held);
        if round % 4 < 2 {
            // Lets them begin. One keeps itself ready, so the scheduler is never idle.
            assert_eq!(scheduler.spawn(procession::yield_now()).join(), Ok(()));
        }
        let keeps = round % 5 < 2;
        let mut kept: Vec<Address<u32>> = Vec::new();
        if keeps {
            kept.extend(children.iter().map(|child| child.address().clone()));
        }
        if round % 7 == 0 {
            children.clear();
        }
        drop(scheduler);
        soon_closed(&processes_ended);
        soon_closed(&threads_ended);
        for child in children {
            let address = child.address().clone();
            // A process in a step at that moment may see that it must end, and return.
            assert!(matches!(child.join(), Ok(()) | Err(Exit::Killed)));
            assert!(!address.is_alive());
        }
        for address in kept {
            assert_eq!(address.send(7).expect_err("it has been terminated").into_inner(), 7);
            assert!(
                procession::mailbox::send(address.pid(), 7_u32)
                    .expect_err("it has been terminated")
                    .is_ended()
            );
            assert!(!address.is_alive());
        }
        soon_closed(&freed);
    }
}

#[test]
fn a_scheduler_is_dropped_by_one_of_its_own_processes() {
    for round in 0..60_usize {
        let width = [1, 2, 4][round % 3];
        let (scheduler, threads_ended, freed) = observed(width, round % 2 == 1);
        let (held, processes_ended) = mpsc::channel::<()>();
        for _ in 0..10 {
            let held = held.clone();
            drop(scheduler.start(move |mut cx: Context<()>| async move {
                let _held = held;
                cx.recv().await;
            }));
        }
        drop(held);
        let (last, go) = scheduler
            .start(|mut cx: Context<Scheduler>| async move {
                let scheduler = cx.recv().await;
                let refused = |scheduler: Option<&Scheduler>| {
                    let options = scheduler.map_or_else(SpawnOptions::new, |scheduler| {
                        SpawnOptions::new().on(scheduler)
                    });
                    options.try_spawn(async {}).is_err_and(|error| error.is_closing())
                };
                let before = refused(scheduler.as_ref());
                drop(scheduler);
                // Its own step goes on to its end, and is the last one.
                (before, refused(None))
            })
            .into_parts();
        last.send(scheduler).expect("it lives");
        assert_eq!(go.join(), Ok((false, true)));
        soon_closed(&processes_ended);
        soon_closed(&threads_ended);
        assert!(!last.is_alive());
        drop(last);
        soon_closed(&freed);
    }
}

/// The scheduler is never driven, so its seat for callers stays free. One process is bound to that
/// seat.
#[test]
fn a_process_on_a_thread_of_its_own_drops_its_scheduler() {
    let scheduler = Scheduler::builder()
        .worker_threads(2)
        .callers_drive()
        .build()
        .expect("the system has threads");
    let (held, all_ended) = mpsc::channel::<()>();
    let (bound, holds) = (SpawnOptions::new().on(&scheduler).affinity(0), held.clone());
    drop(bound.start(move |mut cx: Context<()>| async move {
        cx.recv().await;
        drop(holds);
    }));
    let other = SpawnOptions::new().on(&scheduler).affinity(1).start(
        move |mut cx: Context<Scheduler>| async move {
            drop(cx.recv().await);
            drop(held);
        },
    );
    other.send(scheduler).expect("it lives");
    soon_closed(&all_ended);
    // Complete, or about to be: it drops what it holds within its last step.
    assert_eq!(other.join(), Ok(()));
}
