//! Monitors, links, exit signals, starts, and the end of a connection.

use procession::sync::oneshot;
use procession::{Context, Exit, process, start};
use procession_cluster::{Letter, Node, RegisterError, Remote, RemoteDown, Term};

use crate::{PATIENCE, attach, connect, listens, next, pair, run, seen_by, until};

/// Waits until it is cancelled.
async fn waits(mut cx: Context<Letter>) {
    while cx.recv().await.is_some() {}
}

async fn down(cx: &mut Context<Letter>) -> RemoteDown {
    match next(cx).await {
        Letter::Down(down) => down,
        other => panic!("{other:?} came"),
    }
}

#[test]
fn a_monitor_tells_the_end_once() {
    run(async {
        let (a, b) = pair().await;
        let ends = [
            (Exit::Normal, "normal"),
            (Exit::failed("no room"), "failed"),
            (Exit::Shutdown, "shutdown"),
        ];
        for (exit, name) in ends {
            let watched = start({
                let exit = exit.clone();
                |mut cx: Context<Letter>| async move {
                    next(&mut cx).await;
                    exit
                }
            });
            let member = b.attach(&watched.address().map(|letter| letter));
            b.register(name, &member).expect("the name is free");
            let watcher = start({
                let a = a.clone();
                move |mut cx: Context<Letter>| async move {
                    let own = attach(&a, &cx);
                    let by_pid = own.monitor(member.pid());
                    let by_name = own.monitor(Remote::named(name, "b@127.0.0.1"));
                    let ended = own.monitor(member.pid());
                    assert!(own.demonitor(member.pid(), &ended));
                    own.send(member.pid(), Term::atom("end")).expect("it is connected");
                    let mut downs = [down(&mut cx).await, down(&mut cx).await];
                    downs.sort_by_key(|down| down.monitor != by_pid);
                    assert_eq!(downs[1].monitor, by_name);
                    // It has ended, so a new monitor reports that.
                    own.monitor(member.pid());
                    let late = down(&mut cx).await;
                    assert!(cx.try_recv().is_err());
                    (downs.map(|down| down.exit), late.exit)
                }
            });
            let (exits, late) = watcher.await.expect("it ends");
            assert_eq!(exits, [exit.clone(), exit]);
            assert_eq!(late, Exit::NoProcess);
        }
    });
}

#[test]
fn the_end_of_the_connection_is_told_to_all() {
    run(async {
        let (a, b) = pair().await;
        let far = start(waits);
        let member = b.attach(&far.address().map(|letter| letter));
        let watcher = start({
            let a = a.clone();
            move |mut cx: Context<Letter>| async move {
                a.subscribe(&cx.address().map(|letter| letter));
                let Letter::NodeUp { connection: 1, .. } = next(&mut cx).await else {
                    panic!("what is connected is told")
                };
                let own = attach(&a, &cx);
                let monitor = own.monitor(member.pid());
                // It is a call that nobody answers.
                let call = own.call(member.pid(), Term::from(1), PATIENCE);
                let cut = async {
                    until(|| b.peers().iter().any(|peer| peer.received == 1)).await;
                    assert!(b.disconnect("a@127.0.0.1"));
                    std::future::pending::<()>().await;
                };
                let failed = futures_lite_or(call, cut).await;
                assert!(failed.is_err_and(|error| error.to_string().contains("no connection")));
                let told = down(&mut cx).await;
                assert_eq!((told.monitor, told.exit), (monitor, Exit::NoConnection));
                let Letter::NodeDown { node, connection: 1, .. } = next(&mut cx).await else {
                    panic!("the end is told")
                };
                assert_eq!(node.as_str(), "b@127.0.0.1");
                // Without a connection, a monitor is answered immediately.
                own.monitor(member.pid());
                assert_eq!(down(&mut cx).await.exit, Exit::NoConnection);
                // The nodes can be connected again, and the PID is still the same process.
                connect(&a, &b).await;
                let Letter::NodeUp { connection: 2, .. } = next(&mut cx).await else {
                    panic!("the connection is told")
                };
                seen_by(&b, &a).await;
                own.monitor(member.pid());
                far.cancel();
                // The monitor may come after the end.
                let exit = down(&mut cx).await.exit;
                assert!(matches!(exit, Exit::Normal | Exit::NoProcess), "{exit}");
            }
        });
        watcher.await.expect("it ends");
    });
}

/// Returns the output of the first future. The second one never ends.
async fn futures_lite_or<T>(first: impl Future<Output = T>, second: impl Future<Output = ()>) -> T {
    let (mut first, mut second) = (std::pin::pin!(first), std::pin::pin!(second));
    std::future::poll_fn(|task| {
        let _ = second.as_mut().poll(task);
        first.as_mut().poll(task)
    })
    .await
}

#[test]
fn links_end_both_sides() {
    run(async {
        let (a, b) = pair().await;
        // The linking process ends, and takes the other process with it.
        let far = start(waits);
        let member = b.attach(&far.address().map(|letter| letter));
        let near = start({
            let (a, far) = (a.clone(), member.pid());
            move |mut cx: Context<Letter>| async move {
                assert!(process::link(a.pid(&far)));
                next(&mut cx).await;
                Exit::failed("enough")
            }
        });
        let own = a.attach(&near.address().map(|letter| letter));
        // Behind the link, in the same lane of the other direction's process.
        until(|| b.peers().iter().any(|peer| peer.bytes_received > 0)).await;
        let other = start(waits);
        let helper = b.attach(&other.address().map(|letter| letter));
        helper.send(own.pid(), Term::atom("end")).expect("it is connected");
        assert_eq!(near.await.expect("it ends"), Exit::failed("enough"));
        assert_eq!(far.await.expect_err("it is ended"), Exit::failed("enough"));
        // The other way round, with a process that traps the exit.
        let far = start(waits);
        let member = b.attach(&far.address().map(|letter| letter));
        let near = start({
            let (a, far) = (a.clone(), member.pid());
            move |mut cx: Context<Letter>| async move {
                cx.trap_exits(true);
                assert!(process::link(a.pid(&far)));
                match cx.recv_event().await {
                    Some(procession::mailbox::Event::Exit(signal)) => signal.exit,
                    other => panic!("{other:?} came"),
                }
            }
        });
        process::kill(far.pid());
        assert!(matches!(near.await.expect("it ends"), Exit::Killed | Exit::NoProcess));
        other.cancel();
    });
}

/// Goal: the other side learns the reason of an end that follows a link immediately.
#[test]
fn a_link_and_an_end_at_once_tell_the_reason() {
    run(async {
        let (a, b) = pair().await;
        for _ in 0..50 {
            let (traps, is_trapping) = oneshot::channel();
            let far = start(|mut cx: Context<Letter>| async move {
                cx.trap_exits(true);
                traps.send(()).expect("the test waits for it");
                match cx.recv_event().await {
                    Some(procession::mailbox::Event::Exit(signal)) => signal.exit,
                    other => panic!("{other:?} came"),
                }
            });
            is_trapping.await.expect("it traps exits");
            let member = b.attach(&far.address().map(|letter| letter));
            let (a, far_pid) = (a.clone(), member.pid());
            let near = start(move |_: Context<Letter>| async move {
                assert!(process::link(a.pid(&far_pid)));
                Exit::failed("enough")
            });
            near.await.expect("it ends by itself");
            let seen = far.await.expect("it traps the exit");
            assert!(seen.to_string().contains("enough"), "{seen}");
        }
    });
}

#[test]
fn an_ended_process_gets_no_name() {
    run(async {
        let (a, b) = pair().await;
        let ended = start(waits);
        let member = b.attach(&ended.address().map(|letter| letter));
        ended.cancel();
        ended.await.expect("it ends");
        // Its end is noticed by another process.
        until(|| {
            let refused = b.register("late", &member);
            // The name is gone already if the end of the process has been noticed by now.
            assert!(!b.unregister("late") || refused.is_ok());
            refused == Err(RegisterError::NotAttached("late".to_owned()))
        })
        .await;
        // Nor is a member of one node one of another.
        let process = start(waits);
        let member = b.attach(&process.address().map(|letter| letter));
        let refused = a.register("name", &member);
        assert_eq!(refused, Err(RegisterError::NotAttached("name".to_owned())));
        // Nodes use these names among themselves.
        for name in ["$procession", "$procession_grants"] {
            let reserved = Err(RegisterError::Reserved(name.to_owned()));
            assert_eq!(b.register(name, &member), reserved);
        }
        b.register("name", &member).expect("it is a member");
        process.cancel();
    });
}

#[test]
fn an_unlinked_process_does_not_learn_the_end() {
    run(async {
        let (a, b) = pair().await;
        let far = start(waits);
        let member = b.attach(&far.address().map(|letter| letter));
        let near = start({
            let a = a.clone();
            move |mut cx: Context<Letter>| async move {
                let own = attach(&a, &cx);
                let far = a.pid(&member.pid());
                assert!(process::link(far));
                assert!(process::unlink(far));
                own.monitor(member.pid());
                assert!(process::send_exit(far, Exit::Killed));
                assert_eq!(down(&mut cx).await.exit, Exit::Killed);
                assert!(!cx.is_cancelled());
            }
        });
        near.await.expect("it is not ended by the link");
        assert_eq!(far.await, Err(Exit::Killed));
    });
}

#[test]
fn another_incarnation_is_another_node() {
    run(async {
        let (a, b) = pair().await;
        let far = start(waits);
        let member = b.attach(&far.address().map(|letter| letter));
        let old = member.pid();
        b.stop();
        until(|| a.peers().is_empty()).await;
        let new = listens("b@127.0.0.1").start().await.expect("it starts");
        connect(&a, &new).await;
        let watcher = start(move |mut cx: Context<Letter>| async move {
            let own = attach(&a, &cx);
            assert!(own.send(&old, Term::from(1)).is_err());
            own.monitor(&old);
            down(&mut cx).await.exit
        });
        assert_eq!(watcher.await, Ok(Exit::NoConnection));
        far.cancel();
        drop::<Node>(new);
    });
}

/// Goal: code of a user that panics in the process of a connection does not end the connection.
#[test]
fn a_recipient_that_panics_harms_no_other() {
    run(async {
        let (a, b) = pair().await;
        let broken = start(waits);
        let member = b.attach(&broken.address().map(|_: Letter| -> Letter { panic!("broken") }));
        let healthy = start(|mut cx: Context<Letter>| async move {
            match next(&mut cx).await {
                Letter::Message { term, .. } => term,
                other => panic!("{other:?} came"),
            }
        });
        let other = b.attach(&healthy.address().map(|letter| letter));
        a.send(member.pid(), Term::from(1)).expect("it is connected");
        a.send(other.pid(), Term::from(2)).expect("it is connected");
        assert_eq!(healthy.await, Ok(Term::from(2)));
        assert_eq!(b.peers()[0].undelivered, 1);
        broken.cancel();
    });
}

/// Goal: code of a user that panics when it is dropped harms neither the connection nor the node.
#[test]
fn a_recipient_that_panics_in_its_drop_harms_no_other() {
    struct Bomb;

    impl Drop for Bomb {
        fn drop(&mut self) {
            assert!(std::thread::panicking(), "dropped");
        }
    }

    run(async {
        let (a, b) = pair().await;
        for number in 1..=2 {
            let broken = start(|mut cx: Context<Letter>| async move {
                cx.recv().await;
            });
            let bomb = Bomb;
            let recipient = broken.address().map(move |letter| {
                let _kept = &bomb;
                letter
            });
            let member = b.attach(&recipient);
            drop(recipient);
            // The first is dropped by the connection, which has it as its latest receiver. The
            // connection does not know the other process.
            if number == 1 {
                a.send(member.pid(), Term::from(number)).expect("it is connected");
            } else {
                broken.cancel();
            }
            drop(broken.await);
            until(|| b.status().attached == 0).await;
            let healthy = start(|mut cx: Context<Letter>| async move {
                match next(&mut cx).await {
                    Letter::Message { term, .. } => term,
                    other => panic!("{other:?} came"),
                }
            });
            let other = b.attach(&healthy.address().map(|letter| letter));
            a.send(other.pid(), Term::from(number)).expect("it is connected");
            assert_eq!(healthy.await, Ok(Term::from(number)));
            until(|| b.status().attached == 0).await;
        }
        assert!(b.status().ends.is_empty());
    });
}
