//! Monitors: exactly one down each, in order.

use crate::home::mpsc;
use std::time::Duration;

use procession::mailbox::Event;
use procession::{Context, Exit, JoinHandle, SpawnOptions, spawn, start, yield_now};

use super::{HOUR, ends, told, waits};
use crate::scene::{alive, assert_conserved, driven, threaded};

#[test]
fn every_end_is_told() {
    for (end, reason) in ends() {
        let scheduler = driven();
        let watcher = scheduler.start(move |mut cx: Context<()>| async move {
            let child = SpawnOptions::new().monitor().spawn(async move {
                yield_now().await;
                end();
            });
            let pid = child.pid();
            let monitors =
                [child.monitor_ref().expect("it was asked for"), cx.monitor(pid), cx.monitor(pid)];
            drop(child);
            assert!(monitors[0] != monitors[1] && monitors[1] != monitors[2], "each by itself");
            let mut told = Vec::new();
            for monitor in monitors.into_iter().rev() {
                let down = cx.down(monitor).await.expect("it is not cancelled");
                assert_eq!((down.monitor, down.pid), (monitor, pid));
                told.push(down.exit);
            }
            assert!(cx.recv_timeout(HOUR).await.is_err());
            told
        });
        assert_eq!(watcher.join(), Ok(vec![reason.clone(), reason.clone(), reason]));
    }
}

#[test]
fn nobody_is_down_at_once() {
    let scheduler = driven();
    let gone = scheduler.spawn(async {});
    let pid = gone.pid();
    assert_eq!(gone.join(), Ok(()));
    let watcher = scheduler.start(move |mut cx: Context<()>| async move {
        let monitor = cx.monitor(pid);
        cx.down(monitor).await.map(|down| down.exit)
    });
    assert_eq!(watcher.join(), Ok(Some(Exit::NoProcess)));
}

#[test]
fn a_process_that_has_demonitored_gets_no_down() {
    let scheduler = driven();
    let watcher = scheduler.start(|mut cx: Context<()>| async move {
        let mut given_up = Vec::new();
        for wait in [false, true] {
            let child = spawn(async { yield_now().await });
            let monitor = cx.monitor(child.pid());
            if wait {
                // The down is in the mailbox by then.
                child.await.expect("it ends");
            }
            given_up.push(cx.demonitor(monitor));
            assert!(!cx.demonitor(monitor), "once");
        }
        // A down that was seen and put aside.
        let child = start(|_: Context<()>| async {});
        let monitor = cx.monitor(child.pid());
        child.await.expect("it ends");
        assert!(cx.recv_timeout(HOUR).await.is_err());
        given_up.push(cx.demonitor(monitor));
        assert!(cx.recv_timeout(HOUR).await.is_err());
        given_up
    });
    assert_eq!(watcher.join(), Ok(vec![true, true, true]));
}

#[test]
fn an_end_comes_behind_the_messages_sent_before() {
    const WATCHERS: u32 = 8;
    const ENDS: u32 = 100_000;
    const MESSAGES: u32 = 3;
    let scheduler = threaded(2);
    let watchers: Vec<_> = (0..WATCHERS)
        .map(|_| {
            scheduler.start(|mut cx: Context<u32>| async move {
                for round in 0..ENDS / WATCHERS {
                    let to = cx.address();
                    let sends = SpawnOptions::new().monitor().spawn(async move {
                        for n in 0..MESSAGES {
                            to.send(n).expect("it waits");
                            if (n + round) % 7 == 0 {
                                yield_now().await;
                            }
                        }
                    });
                    drop(sends);
                    let mut next = 0;
                    loop {
                        match cx.recv_event().await {
                            Some(Event::Message(n)) => {
                                assert_eq!(n, next);
                                next += 1;
                            }
                            Some(Event::Down(_)) => break,
                            _ => unreachable!("nothing else was asked for"),
                        }
                    }
                    assert_eq!(next, MESSAGES, "the end has overtaken messages");
                }
            })
        })
        .collect();
    for watcher in watchers {
        assert_eq!(watcher.join(), Ok(()));
    }
    assert_conserved(&scheduler);
}

#[test]
fn every_end_of_200_000_killed_at_once_is_told_and_nobody_is_left() {
    const VICTIMS: usize = 200_000;
    let scheduler = threaded(2);
    let watcher = scheduler.start(move |mut cx: Context<()>| async move {
        let spawn = || SpawnOptions::new().monitor().spawn(std::future::pending::<()>());
        let victim =
            |child: JoinHandle<()>| (child.monitor_ref().expect("it was asked for"), child.pid());
        let victims: Vec<_> = (0..VICTIMS).map(|_| victim(spawn())).collect();
        for &(_, pid) in &victims {
            procession::process::kill(pid);
        }
        let mut downs = Vec::with_capacity(VICTIMS);
        for _ in 0..VICTIMS {
            let Some(Event::Down(down)) = cx.recv_event().await else {
                panic!("nothing else is told")
            };
            assert_eq!(down.exit, Exit::Killed);
            downs.push((down.monitor, down.pid));
        }
        downs.sort_unstable();
        (downs == victims, cx.try_recv().is_err())
    });
    assert_eq!(watcher.join(), Ok((true, true)));
    assert_conserved(&scheduler);
    assert_eq!(alive(&scheduler.snapshot()).count(), 0);
}

#[test]
fn a_receive_leaves_what_is_told_of_others() {
    let scheduler = driven();
    let watcher = scheduler.start(|mut cx: Context<u32>| async move {
        let to = cx.address();
        let child = SpawnOptions::new().monitor().spawn(async move {
            to.send(1).expect("it waits");
        });
        child.await.expect("it ends");
        cx.address().send(2).expect("it is there");
        let messages = (cx.recv().await, cx.recv().await);
        assert!(cx.recv_timeout(HOUR).await.is_err());
        cx.address().send(3).expect("it is there");
        assert_eq!(cx.recv_matching(|n| *n == 4).await, None, "it is cancelled below");
        (messages, told(&mut cx).await, told(&mut cx).await, told(&mut cx).await)
    });
    scheduler.block_on(procession::sleep(HOUR * 2));
    watcher.cancel();
    let down = String::from("down: the process ended normally");
    let end = String::from("end");
    assert_eq!(watcher.join(), Ok(((Some(1), Some(2)), down, String::from("message"), end)));
    assert_conserved(&scheduler);
}

#[test]
fn a_watcher_that_ends_leaves_nothing_behind() {
    let scheduler = driven();
    let watched = waits(&scheduler);
    let pid = watched.pid();
    for _ in 0..100 {
        let watcher = scheduler.start(move |mut cx: Context<()>| async move {
            cx.monitor(pid);
            cx.link(pid);
        });
        assert_eq!(watcher.join(), Ok(()));
    }
    scheduler.run_until_idle();
    assert!(!watched.is_finished());
    procession::process::kill(pid);
    assert_eq!(watched.join(), Err(Exit::Killed));
    assert_conserved(&scheduler);
}

#[test]
fn many_ends_at_once_are_all_told() {
    const WATCHED: usize = 20_000;
    let scheduler = threaded(2);
    let (started, starts) = mpsc::channel();
    let watcher = scheduler.start(move |mut cx: Context<()>| async move {
        let children: Vec<_> = (0..WATCHED)
            .map(|_| {
                SpawnOptions::new()
                    .monitor()
                    .start(|mut cx: Context<()>| async move { cx.recv().await })
            })
            .collect();
        started
            .send(children.iter().map(|child| child.pid()).collect::<Vec<_>>())
            .expect("the test listens");
        let mut killed = 0;
        for child in &children {
            let down = cx
                .down(child.monitor_ref().expect("it was asked for"))
                .await
                .expect("it is not cancelled");
            killed += usize::from(down.exit == Exit::Killed);
        }
        killed
    });
    let pids = starts.recv_timeout(Duration::from_secs(60)).expect("it starts them");
    for pid in pids {
        procession::process::kill(pid);
    }
    assert_eq!(watcher.join(), Ok(WATCHED));
    assert_conserved(&scheduler);
}

#[test]
fn a_flood_of_messages_does_not_delay_a_cancel_or_an_exit() {
    // The process counts what it receives. It is asked to end while a flood waits in its mailbox.
    const FLOOD: u64 = 1_000_000;
    for exits in [false, true] {
        let scheduler = driven();
        let flooded = scheduler.start(|mut cx: Context<u64>| async move {
            let mut seen = 0;
            while !cx.is_cancelled() {
                match cx.recv().await {
                    Some(_) => seen += 1,
                    None => break,
                }
                yield_now().await;
            }
            seen
        });
        for n in 0..FLOOD {
            flooded.send(n).expect("it is there");
        }
        if exits {
            procession::process::send_exit(flooded.pid(), Exit::failed("now"));
            assert_eq!(flooded.join(), Err(Exit::failed("now")));
        } else {
            flooded.cancel();
            assert_eq!(flooded.join(), Ok(0));
        }
        assert_conserved(&scheduler);
    }
}

/// Goal: a monitor that another thread makes is told of once, whenever the process ends.
#[test]
fn a_monitor_from_outside_is_told_once_beside_the_end() {
    const ROUNDS: usize = 500;
    let scheduler = threaded(2);
    let watcher = scheduler.start(|mut cx: Context<()>| async move {
        let mut told = Vec::new();
        for _ in 0..ROUNDS {
            match cx.recv_event().await {
                Some(Event::Down(down)) => told.push((down.monitor, down.pid)),
                other => panic!("{other:?} came"),
            }
        }
        assert!(cx.recv_timeout(Duration::from_millis(1)).await.is_err(), "once");
        told
    });
    let mut made = Vec::new();
    for _ in 0..ROUNDS {
        let ends = scheduler.spawn(async {});
        made.push((watcher.address().monitor(ends.pid()), ends.pid()));
        assert_eq!(ends.join(), Ok(()));
    }
    let mut told = watcher.join().expect("it does not panic");
    made.sort_unstable();
    told.sort_unstable();
    assert_eq!(told, made);
}

/// Goal: a process that ends while another thread makes it a watcher leaves nothing behind.
#[test]
fn a_watcher_that_ends_meanwhile_leaves_nothing() {
    let scheduler = threaded(2);
    let watched = scheduler.spawn(std::future::pending::<()>());
    for _ in 0..2000 {
        let watcher = scheduler.start(|_: Context<()>| async {});
        watcher.address().monitor(watched.pid());
        assert_eq!(watcher.join(), Ok(()));
    }
    let detail = scheduler.detail(watched.pid()).expect("it is alive").relations;
    let detail = detail.expect("a detail has them");
    assert_eq!(detail.monitors.total, 0, "{:?}", detail.monitors);
}
