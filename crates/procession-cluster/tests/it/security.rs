//! What is refused.

use std::io::Write as _;
use std::net::{Ipv4Addr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use procession::{Context, Exit, Scheduler, SpawnOptions, process, start};
use procession_cluster::{
    ConnectError, Cookie, Find, Found, Grants, HandshakeError, Letter, Node, NodeBuilder, NodePid,
    StartError, StatusError,
};

use crate::{PATIENCE, attach, connect, cookie, listens, next, pair, run, until};

#[test]
fn a_wrong_cookie_or_name_is_refused_with_the_reason() {
    run(async {
        let b = listens("b@127.0.0.1").start().await.expect("it starts");
        let address = b.local_addr().expect("it listens");
        let other = Cookie::new("other").expect("it has a text");
        let a = Node::builder("a@127.0.0.1").cookie(other).start().await.expect("it starts");
        let refused = a.connect_at("b@127.0.0.1", address).await.expect_err("it is refused");
        // The acceptor finds it first, and closes.
        assert!(matches!(refused, ConnectError::Lost(_)), "{refused}");
        assert!(refused.to_string().contains("different cookies"), "{refused}");
        assert!(b.peers().is_empty() && a.peers().is_empty());
        let a = Node::builder("a@127.0.0.1").cookie(cookie()).start().await.expect("it starts");
        let refused = a.connect_at("c@127.0.0.1", address).await.expect_err("it is another");
        let ConnectError::Handshake(HandshakeError::Name(name)) = refused else {
            panic!("{refused}")
        };
        assert_eq!(name, "b@127.0.0.1");
        for wrong in ["b", "@host", "b@", "a b@host", "a@127.0.0.1"] {
            let refused = a.connect_at(wrong, address).await.expect_err("it is no name");
            assert!(matches!(refused, ConnectError::Name(_)), "{refused}");
        }
        // None of this hinders the right cookie.
        a.connect_at("b@127.0.0.1", address).await.expect("it is right");
    });
}

/// Goal: what a node refuses is counted by cause, and reported once in a while. A program that only
/// looks whether the port is open is no news.
#[test]
fn refused_handshakes_are_counted_and_reported() {
    let (reports, reported) = std::sync::mpsc::channel();
    let builder = Scheduler::builder().worker_threads(2);
    let builder = builder.on_exit(move |report| drop(reports.send(report.to_string())));
    builder.build().expect("it can be built").block_on(async {
        let b = listens("b@127.0.0.1").start().await.expect("it starts");
        let address = b.local_addr().expect("it listens");
        let other = Cookie::new("other").expect("it has a text");
        let a = Node::builder("a@127.0.0.1").cookie(other).start().await.expect("it starts");
        for _ in 0..3 {
            a.connect_at("b@127.0.0.1", address).await.expect_err("it is refused");
        }
        drop(TcpStream::connect(address).expect("it listens"));
        let mut garbage = TcpStream::connect(address).expect("it listens");
        garbage.write_all(b"GET / HTTP/1.1\r\n\r\n").expect("it reads");
        let expected =
            [("closed", 1), ("cookie", 3), ("protocol", 1)].map(|(cause, n)| (cause.to_owned(), n));
        until(|| b.status().refusals == expected).await;
    });
    let mut reports: Vec<_> = reported.iter().collect();
    reports.sort();
    let [cookie, protocol] = &*reports else { panic!("{reports:?}") };
    assert!(cookie.contains("was refused") && cookie.contains("different cookies"), "{cookie}");
    assert!(protocol.contains("version 6 of the protocol"), "{protocol}");
}

/// Goal: a node that looks for others in the background says that their cookie is another one.
#[test]
fn a_connection_in_the_background_that_fails_is_reported() {
    let (reports, reported) = std::sync::mpsc::channel();
    let builder = Scheduler::builder().worker_threads(2);
    let builder = builder.on_exit(move |report| drop(reports.send(report.to_string())));
    builder.build().expect("it can be built").block_on(async {
        let b = listens("b@127.0.0.1").start().await.expect("it starts");
        let addresses = vec![b.local_addr().expect("it listens")];
        let other = Cookie::new("other").expect("it has a text");
        let gone = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0));
        let gone = gone.expect("there is a port").local_addr().expect("it is bound");
        let named = |name: &str, addresses| Found { name: name.into(), addresses };
        let nodes = vec![named("c@127.0.0.1", vec![gone]), named("b@127.0.0.1", addresses)];
        let find = Find::by(move || std::future::ready(Ok(nodes.clone())));
        let a = Node::builder("a@127.0.0.1").cookie(other).find(find);
        let a = a.start().await.expect("it starts");
        until(|| b.status().refusals.iter().any(|(cause, n)| cause == "cookie" && *n >= 2)).await;
        a.stop();
    });
    let reports: Vec<_> = reported.iter().collect();
    let of_dials: Vec<_> = reports.iter().filter(|it| it.contains("cannot connect to")).collect();
    let [report] = &*of_dials else { panic!("{reports:?}") };
    assert!(report.contains("b@127.0.0.1") && report.contains("different cookies"), "{report}");
}

#[test]
fn plain_text_stays_on_this_machine_unless_it_is_accepted() {
    run(async {
        let wide = |builder: NodeBuilder| builder.listen((Ipv4Addr::UNSPECIFIED, 0).into());
        let refused = wide(Node::builder("a@127.0.0.1").cookie(cookie())).start().await;
        assert!(matches!(refused, Err(StartError::PlainText(_))));
        let accepted = wide(Node::builder("a@127.0.0.1").cookie(cookie())).accept_plain_text();
        accepted.start().await.expect("it was accepted");
        let none = Node::builder("a@127.0.0.1").start().await;
        assert!(matches!(none, Err(StartError::NoCookie)));
    });
}

#[test]
fn garbage_and_silence_hold_nobody_up() {
    run(async {
        let b = listens("b@127.0.0.1").start().await.expect("it starts");
        let address = b.local_addr().expect("it listens");
        let silent: Vec<_> =
            (0..20).map(|_| TcpStream::connect(address).expect("it listens")).collect();
        for garbage in [&b"GET / HTTP/1.1\r\n\r\n"[..], &[255; 100], &[0, 5, b'N', 1, 2, 3, 4]] {
            let mut stream = TcpStream::connect(address).expect("it listens");
            stream.write_all(garbage).expect("it reads");
        }
        let a = Node::builder("a@127.0.0.1").cookie(cookie()).start().await.expect("it starts");
        a.connect_at("b@127.0.0.1", address).await.expect("it is not held up");
        drop(silent);
    });
}

#[test]
fn exits_of_others_are_refused_unless_they_are_allowed() {
    run(async {
        // The second allows them, and the first does not.
        let (a, b) = pair().await;
        let target =
            start(|mut cx: Context<Letter>| async move { while cx.recv().await.is_some() {} });
        let member = a.attach(&target.address().map(|letter| letter));
        let far = b.pid(&member.pid());
        let attacker = start(move |_: Context<Letter>| async move {
            assert!(process::send_exit(far, Exit::Killed));
            assert!(process::link(far));
            Exit::failed("its end goes to the linked process")
        });
        attacker.await.expect("it ends by itself");
        until(|| a.peers()[0].denied == 2).await;
        // The link tells the end of the process that it cannot end.
        let linked = start(move |mut cx: Context<Letter>| async move {
            cx.trap_exits(true);
            assert!(process::link(far));
            match cx.recv_event().await {
                Some(procession::mailbox::Event::Exit(signal)) => signal.exit,
                other => panic!("{other:?} came"),
            }
        });
        target.cancel();
        target.await.expect("it was not ended");
        let told = linked.await.expect("it ends");
        // The link may come after the end.
        assert!(matches!(told, Exit::Normal | Exit::NoProcess), "{told}");
        assert_eq!(a.peers()[0].denied, 2);
    });
}

/// Returns `true` when a process of another node has ended.
async fn ends(
    own: &procession_cluster::Member,
    cx: &mut Context<Letter>,
    target: &NodePid,
) -> bool {
    own.monitor(target);
    matches!(next(cx).await, Letter::Down(_))
}

/// Goal: a grant is to one node, has an effect immediately, and ends when it is revoked. A PID that
/// was known before permits nothing.
#[test]
fn grants_are_checked_at_each_operation() {
    run(async {
        let (a, b) = pair().await;
        let c = listens("c@127.0.0.1").start().await.expect("it starts");
        connect(&c, &a).await;
        let waits = |mut cx: Context<Letter>| async move { while cx.recv().await.is_some() {} };
        let targets = [start(waits), start(waits)];
        let [first, second] =
            [0, 1].map(|n| a.attach(&targets[n].address().map(|letter| letter)).pid());
        let attacker = start({
            let a = a.clone();
            move |mut cx: Context<Letter>| async move {
                let of_b = attach(&b, &cx);
                let of_c = attach(&c, &cx);
                let denied = |name: &str| {
                    let peers = a.peers();
                    peers.iter().find(|peer| peer.name.as_str() == name).map(|peer| peer.denied)
                };
                assert!(process::send_exit(b.pid(&first), Exit::Killed));
                until(|| denied("b@127.0.0.1") == Some(1)).await;
                // To another one, which does not help this one.
                a.grant("c@127.0.0.1", Grants::new().exits()).expect("it names a node");
                assert!(process::send_exit(b.pid(&first), Exit::Killed));
                until(|| denied("b@127.0.0.1") == Some(2)).await;
                assert!(process::send_exit(c.pid(&first), Exit::Killed));
                assert!(ends(&of_c, &mut cx, &first).await);
                assert!(a.revoke("c@127.0.0.1") && !a.revoke("c@127.0.0.1"));
                assert!(process::send_exit(c.pid(&second), Exit::Killed));
                until(|| denied("c@127.0.0.1") == Some(1)).await;
                // All nodes of a host.
                a.grant("*@127.0.0.1", Grants::new().exits()).expect("it names nodes");
                assert!(process::send_exit(b.pid(&second), Exit::Killed));
                assert!(ends(&of_b, &mut cx, &second).await);
            }
        });
        attacker.await.expect("it ends");
    });
}

#[test]
fn the_status_is_told_to_those_that_may_look() {
    run(async {
        let (a, b) = pair().await;
        let process = start(|mut cx: Context<Letter>| async move { cx.recv().await.is_some() });
        let member = b.attach(&process.address().map(|letter| letter));
        b.register("worker", &member).expect("the name is free");
        let refused = a.status_of("b@127.0.0.1", PATIENCE).await;
        assert!(matches!(refused, Err(StatusError::Denied)), "{refused:?}");
        b.grant("a@127.0.0.1", Grants::new().look()).expect("it names a node");
        let status = a.status_of("b@127.0.0.1", PATIENCE).await.expect("it is permitted");
        assert_eq!(status.name.as_str(), "b@127.0.0.1");
        assert_eq!(status.attached, 1);
        assert_eq!(status.names[0].as_str(), "worker");
        let [peer] = &*status.peers else { panic!("{status:?} has other peers") };
        assert_eq!((peer.name.as_str(), peer.denied, peer.received), ("a@127.0.0.1", 1, 2));
        assert_eq!(peer.creation, a.status().creation);
        let unknown = a.status_of("nobody@127.0.0.1", PATIENCE).await;
        assert!(matches!(unknown, Err(StatusError::Call(_))), "{unknown:?}");
        process.cancel();
    });
}

#[test]
fn a_cookie_that_others_can_read_is_refused() {
    let path = format!("{}/cookie", env!("CARGO_TARGET_TMPDIR"));
    std::fs::write(&path, " secret\n").expect("the folder is there");
    let allow = |mode| {
        let permissions = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(&path, permissions).expect("it is ours");
    };
    allow(0o644);
    let refused = Cookie::read(&path).expect_err("others can read it");
    assert!(refused.to_string().contains("644"), "{refused}");
    allow(0o600);
    assert_eq!(Cookie::read(&path).expect("it is secret"), cookie());
    assert!(!format!("{:?}", cookie()).contains("secret"));
}

#[test]
fn a_cookie_is_created_once() {
    let path = format!("{}/created.cookie", env!("CARGO_TARGET_TMPDIR"));
    // Ignored: the file may be there from an earlier run.
    drop(std::fs::remove_file(&path));
    let cookie = Cookie::read_or_create(&path).expect("the folder is there");
    let mode = std::fs::metadata(&path).expect("it was created").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    assert_eq!(Cookie::read_or_create(&path).expect("it is there"), cookie);
    assert_ne!(Cookie::random().expect("there is chance"), cookie);
}

/// Goal: if nodes create the file at the same time, none finds a part of the file.
#[test]
fn a_cookie_is_created_whole() {
    let folder = format!("{}/cookies", env!("CARGO_TARGET_TMPDIR"));
    // Ignored: it may be there, or not, from an earlier run.
    drop(std::fs::remove_dir_all(&folder));
    std::fs::create_dir(&folder).expect("the folder around it is there");
    for round in 0..100 {
        let path = format!("{folder}/{round}");
        let barrier = std::sync::Barrier::new(4);
        let cookies = std::thread::scope(|scope| {
            let create = || {
                barrier.wait();
                Cookie::read_or_create(&path).expect("it is whole")
            };
            [(); 4].map(|()| scope.spawn(create)).map(|thread| thread.join().expect("it ends"))
        });
        assert!(cookies.iter().all(|cookie| *cookie == cookies[0]), "round {round}");
    }
    let files = std::fs::read_dir(&folder).expect("it is there").count();
    assert_eq!(files, 100, "no draft is left");
    assert!(Cookie::read_or_create(&folder).is_err(), "a folder is no cookie");
}

#[test]
fn both_may_connect_at_once() {
    run(async {
        for _ in 0..20 {
            let a = listens("a@127.0.0.1").start().await.expect("it starts");
            let b = listens("b@127.0.0.1").start().await.expect("it starts");
            let (at_a, at_b) = (a.local_addr(), b.local_addr());
            let (first, second) = (a.clone(), b.clone());
            let one = procession::spawn(async move {
                first.connect_at("b@127.0.0.1", at_b.expect("it listens")).await
            });
            let other = procession::spawn(async move {
                second.connect_at("a@127.0.0.1", at_a.expect("it listens")).await
            });
            one.await.expect("it ends").expect("they are connected");
            other.await.expect("it ends").expect("they are connected");
            assert_eq!((a.peers().len(), b.peers().len()), (1, 1));
            a.stop();
            b.stop();
        }
    });
}

#[test]
fn a_scheduler_without_room_refuses_a_connection() {
    let theirs = Scheduler::builder().worker_threads(1).build().expect("it can be built");
    let b = theirs.block_on(listens("b@127.0.0.1").start()).expect("it starts");
    let full = Scheduler::builder().worker_threads(1).max_processes(8).build();
    full.expect("it can be built").block_on(async {
        let a = Node::builder("a@127.0.0.1").cookie(cookie()).start().await.expect("it starts");
        let mut others = Vec::new();
        while let Ok(other) = SpawnOptions::new().try_spawn(std::future::pending::<()>()) {
            others.push(other);
        }
        let address = b.local_addr().expect("it listens");
        let refused = a.connect_at("b@127.0.0.1", address).await;
        assert!(matches!(refused, Err(ConnectError::Process(_))), "{refused:?}");
        let room = others.pop().expect("there was room");
        room.cancel();
        room.await.ok();
        a.connect_at("b@127.0.0.1", address).await.expect("there is room again");
        others.iter().for_each(|other| other.cancel());
    });
}

/// A machine that drops what arrives, like a machine that is down.
#[test]
fn reaching_a_machine_has_a_time_limit() {
    run(async {
        let silent =
            std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("there is a port");
        let address = silent.local_addr().expect("it is bound");
        // The system makes one more connection, and then answers no more.
        rustix::net::listen(&silent, 0).expect("it is a socket");
        let first = TcpStream::connect(address).expect("it has room for one");
        let a = Node::builder("a@127.0.0.1").cookie(cookie());
        let a = a.connect_timeout(Duration::from_millis(50)).start().await.expect("it starts");
        let refused = procession::timeout(PATIENCE, a.connect_at("b@127.0.0.1", address)).await;
        let Ok(Err(ConnectError::Reach(error))) = refused else { panic!("{refused:?}") };
        assert_eq!(error.kind(), std::io::ErrorKind::TimedOut);
        drop((first, silent));
    });
}

/// A port mapper that never answers counts towards the time limit of the dial.
#[test]
fn finding_a_node_has_a_time_limit() {
    run(async {
        let silent =
            std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("there is a port");
        let epmd = silent.local_addr().expect("it is bound");
        let a = Node::builder("a@127.0.0.1").cookie(cookie()).epmd(epmd);
        let a = a.connect_timeout(Duration::from_millis(50)).start().await.expect("it starts");
        let refused = procession::timeout(PATIENCE, a.connect("b@127.0.0.1")).await;
        let Ok(Err(ConnectError::Find(error))) = refused else { panic!("{refused:?}") };
        assert_eq!(error.kind(), std::io::ErrorKind::TimedOut);
    });
}

#[test]
fn a_patience_is_from_one_second_to_a_minute() {
    run(async {
        for wrong in [999, 60_001] {
            let a = Node::builder("a@127.0.0.1").cookie(cookie());
            let refused = a.patience(Duration::from_millis(wrong)).start().await;
            assert!(matches!(refused, Err(StartError::Patience(_))));
        }
    });
}
