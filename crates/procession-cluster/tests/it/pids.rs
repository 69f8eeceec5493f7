//! Processes of other nodes as PIDs of this program.

use procession::mailbox::relay::RelayCause;
use procession::mailbox::{Event, send};
use procession::sync::oneshot;
use procession::{Context, Exit, Pid, Scheduler, process, start, timeout, yield_now};
use procession_cluster::{Grants, Letter, Node, Term};

use crate::{PATIENCE, connect, listens, next, pair, run, seen_by, until};

/// Waits until it is cancelled.
async fn waits(mut cx: Context<Letter>) {
    while cx.recv().await.is_some() {}
}

#[test]
fn a_term_is_sent_by_pid() {
    run(async {
        let (a, b) = pair().await;
        let far = start(|mut cx: Context<Letter>| async move {
            match next(&mut cx).await {
                Letter::Message { from, term } => (from, term),
                other => panic!("{other:?} came"),
            }
        });
        let member = b.attach(&far.address().map(|letter| letter));
        let there = a.pid(&member.pid());
        assert_ne!(there.node(), 0);
        assert_eq!(a.pid(&member.pid()), there, "it has one PID");
        assert_eq!(a.node_pid(there), Some(member.pid()));
        assert_eq!(b.pid(&member.pid()), far.pid(), "it is of this node");
        let near = start({
            let a = a.clone();
            move |cx: Context<()>| async move {
                let wrong = send(there, 7_u32).expect_err("it is no term");
                assert_eq!(wrong.relay_cause(), Some(RelayCause::NotPortable));
                assert_eq!(wrong.into_inner(), 7);
                send(there, Term::from(7)).expect("it is connected");
                a.node_pid(cx.pid())
            }
        });
        let own = near.await.expect("it ends");
        assert!(own.is_some());
        assert_eq!(far.await, Ok((own, Term::from(7))));
        b.stop();
        until(|| a.peers().is_empty()).await;
        let back = send(there, Term::from(8)).expect_err("it is gone");
        assert!(back.is_no_connection(), "{back}");
        assert_eq!(back.into_inner(), Term::from(8));
        let unknown: Pid = "p4294967295@1.2.3".parse().expect("it is a PID");
        assert_eq!(a.node_pid(unknown), None);
    });
}

#[test]
fn monitors_and_links_name_the_process() {
    run(async {
        let (a, b) = pair().await;
        let far = start(|mut cx: Context<Letter>| async move {
            next(&mut cx).await;
            Exit::failed("enough")
        });
        let member = b.attach(&far.address().map(|letter| letter));
        let near = start({
            let a = a.clone();
            move |mut cx: Context<()>| async move {
                cx.trap_exits(true);
                let there = a.pid(&member.pid());
                let ended = cx.monitor(there);
                assert!(cx.demonitor(ended));
                let monitor = cx.monitor(there);
                assert!(process::link(there));
                send(there, Term::from(1)).expect("it is connected");
                let (mut down, mut exit) = (None, None);
                while down.is_none() || exit.is_none() {
                    match cx.recv_event().await {
                        Some(Event::Down(told)) => down = Some(told),
                        Some(Event::Exit(told)) => exit = Some(told),
                        other => panic!("{other:?} came"),
                    }
                }
                let (down, exit) = (down.expect("it came"), exit.expect("it came"));
                assert_eq!((down.pid, down.monitor), (there, monitor));
                assert_eq!(exit.from, Some(there));
                assert_eq!(
                    (down.exit, exit.exit),
                    (Exit::failed("enough"), Exit::failed("enough"))
                );
                // And an ended process.
                let late = cx.monitor(there);
                assert_eq!(cx.down(late).await.map(|down| down.exit), Some(Exit::NoProcess));
                assert!(process::link(there));
                match cx.recv_event().await {
                    Some(Event::Exit(told)) => told.exit,
                    other => panic!("{other:?} came"),
                }
            }
        });
        assert_eq!(near.await, Ok(Exit::NoProcess));
        far.await.expect("it has ended");
    });
}

/// Goal: a link ends with the incarnation that it leads to, even if the next incarnation is
/// connected before the end of the first is noticed.
#[test]
fn a_link_ends_when_another_incarnation_takes_the_place() {
    run(async {
        let (a, b) = pair().await;
        let far = start(waits);
        let member = b.attach(&far.address().map(|letter| letter));
        let (links, is_linked) = oneshot::channel();
        let near = start({
            let a = a.clone();
            move |mut cx: Context<()>| async move {
                cx.trap_exits(true);
                let there = a.pid(&member.pid());
                assert!(process::link(there));
                links.send(()).expect("the test waits for it");
                match cx.recv_event().await {
                    Some(Event::Exit(told)) => (told.from == Some(there), told.exit),
                    other => panic!("{other:?} came"),
                }
            }
        });
        is_linked.await.expect("it links");
        let next = listens("b@127.0.0.1").start().await.expect("it starts");
        connect(&next, &a).await;
        let told = timeout(PATIENCE, near).await.expect("it is told");
        assert_eq!(told, Ok((true, Exit::NoConnection)));
        // Its side of the link may have ended it.
        far.cancel();
        drop(far.await);
    });
}

#[test]
fn an_exit_signal_names_its_sender() {
    run(async {
        // The second grants exits.
        let (a, b) = pair().await;
        let (traps, is_trapping) = oneshot::channel();
        let far = start(|mut cx: Context<Letter>| async move {
            cx.trap_exits(true);
            traps.send(()).expect("the test waits for it");
            match cx.recv_event().await {
                Some(Event::Exit(told)) => (told.from, told.exit),
                other => panic!("{other:?} came"),
            }
        });
        is_trapping.await.expect("it traps exits");
        let member = b.attach(&far.address().map(|letter| letter));
        let near = start({
            let a = a.clone();
            move |cx: Context<()>| async move {
                assert!(process::send_exit(a.pid(&member.pid()), Exit::failed("please")));
                a.node_pid(cx.pid()).expect("it is of this node")
            }
        });
        let own = near.await.expect("it ends");
        let (from, exit) = far.await.expect("it traps");
        assert_eq!(exit, Exit::failed("please"));
        assert_eq!(from.and_then(|from| b.node_pid(from)), Some(own));
    });
}

#[test]
fn the_end_of_a_connection_ends_links_and_monitors_once() {
    run(async {
        let (a, b) = pair().await;
        let far = start(waits);
        let member = b.attach(&far.address().map(|letter| letter));
        let (heard, hears) = oneshot::channel();
        let near = start({
            let a = a.clone();
            move |mut cx: Context<()>| async move {
                cx.trap_exits(true);
                let there = a.pid(&member.pid());
                let monitor = cx.monitor(there);
                assert!(process::link(there));
                heard.send(()).expect("the test waits for it");
                let mut told = [0; 2];
                while let Some(event) = cx.recv_event().await {
                    match event {
                        Event::Down(down) => {
                            assert_eq!((down.monitor, down.exit), (monitor, Exit::NoConnection));
                            told[0] += 1;
                        }
                        Event::Exit(exit) => {
                            assert_eq!((exit.from, exit.exit), (Some(there), Exit::NoConnection));
                            told[1] += 1;
                        }
                        other => panic!("{other:?} came"),
                    }
                    if told == [1, 1] {
                        // Nothing follows.
                        let late = cx.monitor(there);
                        let down = cx.down(late).await.expect("it is not cancelled");
                        assert_eq!(down.exit, Exit::NoConnection);
                        break;
                    }
                }
                told
            }
        });
        hears.await.expect("it is linked");
        b.stop();
        assert_eq!(near.await, Ok([1, 1]));
        far.cancel();
    });
}

/// Goal: if two processes link and unlink one another at the same time, both are linked at the end,
/// or neither is.
#[test]
fn links_and_unlinks_of_both_sides_agree() {
    let scheduler = Scheduler::builder().worker_threads(2).build().expect("it can be built");
    let links = {
        let scheduler = scheduler.clone();
        move |pid| scheduler.detail(pid).and_then(|found| Some(found.relations?.links.total))
    };
    scheduler.block_on(async move {
        let [a, b] = ["a@127.0.0.1", "b@127.0.0.1"]
            .map(|name| listens(name).grant("*@127.0.0.1", Grants::new().exits()).start());
        let (a, b) = (a.await.expect("it starts"), b.await.expect("it starts"));
        crate::connect(&a, &b).await;
        seen_by(&b, &a).await;
        let mut linked = [0; 2];
        for round in 0..200_u32 {
            let relates = |node: Node, turns: u32| {
                let (settles, settled) = oneshot::channel();
                let process = start(move |mut cx: Context<Letter>| async move {
                    cx.trap_exits(true);
                    let Letter::Message { from: Some(from), .. } = next(&mut cx).await else {
                        panic!("it has no sender")
                    };
                    let other = node.pid(&from);
                    for turn in 0..8 {
                        if (turns >> turn) & 1 == 0 {
                            assert!(process::link(other));
                        } else {
                            assert!(process::unlink(other));
                        }
                        yield_now().await;
                    }
                    // All signals of the other process arrive before its message.
                    send(other, Term::atom("done")).expect("it is connected");
                    next(&mut cx).await;
                    settles.send(()).expect("the test waits for it");
                    while cx.recv().await.is_some() {}
                });
                (process, settled)
            };
            let (near, near_settled) = relates(a.clone(), round);
            let (far, far_settled) = relates(b.clone(), round.wrapping_mul(0x9e37_79b9) >> 8);
            let own = a.attach(&near.address().map(|letter| letter));
            let other = b.attach(&far.address().map(|letter| letter));
            own.send(other.pid(), Term::from(1)).expect("it is connected");
            other.send(own.pid(), Term::from(1)).expect("it is connected");
            for settled in [near_settled, far_settled] {
                settled.await.expect("it settles");
            }
            let (one, two) = (links(near.pid()), links(far.pid()));
            assert_eq!(one, two, "round {round}");
            linked[one.expect("it lives").min(1)] += 1;
            near.cancel();
            far.cancel();
            near.await.expect("it ends");
            far.await.expect("it ends");
        }
        assert!(linked.iter().all(|&rounds| rounds > 20), "both happen: {linked:?}");
    });
}
