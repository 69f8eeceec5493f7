//! Connections that end before they are made.

use std::io::ErrorKind;
use std::process::Command;
use std::time::Duration;

use procession::net::{SocketOptions, TcpStream};
use procession::time::Instant;
use procession_sim::{Check, Fault, Faults, Sim};
use procession_sync::atomic::AtomicU32;
use procession_sync::atomic::Ordering::Relaxed;

use super::{is_reset, listen};

/// What is sent overtakes what was sent before.
fn slow() -> Check {
    Check::new().seeds(0..200).faults(Faults::none().with(Fault::SlowNetwork))
}

/// Reads until the end, which arrives in any case: nothing else ends a wait here.
async fn read_all(stream: std::io::Result<TcpStream>) -> Result<usize, ErrorKind> {
    let read = async {
        let (stream, mut all, mut part) = (stream?, 0, [0; 100]);
        loop {
            match stream.read(&mut part).await? {
                0 => return Ok(all),
                count => all += count,
            }
        }
    };
    read.await.map_err(|error: std::io::Error| error.kind())
}

#[test]
fn a_reset_may_overtake_the_answer() {
    slow().run(|sim| async move {
        sim.host("rude", || async {
            let listener = listen(1).await;
            while let Ok((stream, _)) = listener.accept().await {
                stream.set_linger(Some(Duration::ZERO)).expect("it is an option");
            }
        });
        sim.settle().await;
        for _ in 0..4 {
            let read = read_all(TcpStream::connect("rude:1").await).await;
            sim.always("the client sees a reset", read == Err(ErrorKind::ConnectionReset));
        }
    });
}

#[test]
fn a_greeting_and_the_end_may_overtake_the_answer() {
    slow().run(|sim| async move {
        sim.host("brief", || async {
            let listener = listen(1).await;
            while let Ok((stream, _)) = listener.accept().await {
                let _ = stream.write_all(b"hello").await;
            }
        });
        sim.settle().await;
        for _ in 0..4 {
            let read = read_all(TcpStream::connect("brief:1").await).await;
            sim.always("the client reads the greeting, and the end", read == Ok(5));
        }
    });
}

#[test]
fn a_greeting_may_be_reset() {
    let faults = Faults::none().with(Fault::SlowNetwork).with(Fault::Reset);
    slow().faults(faults).run(|sim| async move {
        sim.host("brief", || async {
            let listener = listen(1).await;
            while let Ok((stream, _)) = listener.accept().await {
                let _ = stream.write_all(b"hello").await;
                procession::spawn(async move { stream.read(&mut [0]).await }).detach();
            }
        });
        sim.settle().await;
        for _ in 0..8 {
            let read = async { TcpStream::connect("brief:1").await?.read_exact(&mut [0; 5]).await };
            let read = read.await;
            let is_known = read.as_ref().map_or_else(is_reset, |()| true);
            sim.always("the client reads the greeting, or sees a reset", is_known);
        }
    });
}

#[test]
fn a_host_may_crash_while_a_client_connects() {
    slow().run(|sim| async move {
        let starts = AtomicU32::new(0);
        sim.host("db", move || {
            let is_first = starts.fetch_add(1, Relaxed) == 0;
            async move {
                if is_first {
                    let (_stream, _) = listen(1).await.accept().await.expect("it listens");
                    std::future::pending::<()>().await;
                }
            }
        });
        sim.settle().await;
        let client = sim.spawn(async { read_all(TcpStream::connect("db:1").await).await });
        procession::sleep(Duration::from_micros(sim.choose(0..200))).await;
        match sim.choose(0..2) {
            0 => sim.crash("db"),
            _ => sim.restart("db"),
        }
        let read = client.await.expect("it ends");
        sim.sometimes("the connection was reset", read == Err(ErrorKind::ConnectionReset));
        sim.sometimes("it was refused", read == Err(ErrorKind::ConnectionRefused));
        sim.always("nothing was sent", read.is_err());
    });
}

#[test]
fn a_listener_may_be_closed_while_connections_wait() {
    slow().run(|sim| async move {
        sim.host("db", || async {
            let listener = listen(1).await;
            procession::sleep(Duration::from_micros(150)).await;
            drop(listener);
            std::future::pending::<()>().await;
        });
        sim.settle().await;
        let read = read_all(TcpStream::connect("db:1").await).await;
        sim.sometimes("the connection was reset", read == Err(ErrorKind::ConnectionReset));
        sim.sometimes("it was refused", read == Err(ErrorKind::ConnectionRefused));
        sim.always("nothing was sent", read.is_err());
    });
}

/// A server has accepted a connection, but the client never learns that.
#[test]
fn a_client_may_never_hear_the_answer() {
    let check = Check::new().seeds(0..40).faults(Faults::none());
    check.run(|sim| async move {
        let served = std::sync::Arc::new(procession_sync::Mutex::new(None));
        let noted = std::sync::Arc::clone(&served);
        sim.host("db", move || {
            let noted = std::sync::Arc::clone(&noted);
            async move {
                let stream = listen(1).await.accept().await.map(|(stream, _)| stream);
                let read = read_all(stream).await;
                *noted.lock() = Some(read);
            }
        });
        sim.settle().await;
        sim.cut("db", "program");
        let connected = read_all(TcpStream::connect("db:1").await).await;
        sim.always("the client gives up", connected == Err(ErrorKind::TimedOut));
        procession::sleep(Duration::from_secs(1)).await;
        let read = served.lock().take();
        sim.always("the server does, too", read == Some(Err(ErrorKind::TimedOut)));
    });
}

/// Listens, and accepts nothing for a time. Then accepts all, and keeps the connections.
async fn accept_late(backlog: u32, wait: Duration) {
    let listener = SocketOptions::new().backlog(backlog).listen("0.0.0.0:1").await;
    let listener = listener.expect("it is free");
    procession::sleep(wait).await;
    let mut kept = Vec::new();
    while let Ok((stream, _)) = listener.accept().await {
        kept.push(stream);
    }
}

/// Connects so many times, and returns for how long each attempt lasts.
async fn connect_all(sim: &Sim, count: usize) -> Vec<Duration> {
    let began = Instant::now();
    let clients: Vec<_> = (0..count)
        .map(|_| {
            sim.spawn(async move {
                let stream = TcpStream::connect("db:1").await.expect("there will be room");
                (Instant::now().saturating_duration_since(began), stream)
            })
        })
        .collect();
    let mut waits = Vec::new();
    for client in clients {
        waits.push(client.await.expect("it ends").0);
    }
    waits
}

#[test]
fn a_request_that_finds_a_full_backlog_is_repeated() {
    let check = Check::new().seeds(0..20).faults(Faults::none());
    check.run(|sim| async move {
        sim.host("db", || accept_late(2, Duration::from_secs(2)));
        sim.settle().await;
        let waits = connect_all(&sim, 5).await;
        let count = |few: std::ops::Range<u64>| {
            waits.iter().filter(|wait| few.contains(&wait.as_secs())).count()
        };
        // Linux admits one more than was asked for. The remaining clients ask again after 1 s and
        // after 3 s.
        sim.always("three are admitted at once", count(0..1) == 3);
        sim.always("two are admitted at the second repetition", count(3..4) == 2);
    });
}

#[test]
fn a_request_that_finds_a_full_backlog_is_given_up_after_two_minutes() {
    let check = Check::new().seeds(0..10).faults(Faults::none());
    check.run(|sim| async move {
        sim.host("db", || accept_late(1, Duration::from_secs(1000)));
        sim.settle().await;
        let _admitted = connect_all(&sim, 2).await;
        let began = Instant::now();
        let client = sim.spawn(async { TcpStream::connect("db:1").await });
        procession::sleep(Duration::from_secs(10)).await;
        // It repeats the request, and changes nothing else.
        sim.mend("program", "db");
        let connected = client.await.expect("it ends").map_err(|error| error.kind());
        let took = Instant::now().saturating_duration_since(began).as_secs();
        sim.always("it is given up", connected.is_err_and(|kind| kind == ErrorKind::TimedOut));
        sim.always("after two minutes", (127..160).contains(&took));
    });
}

#[test]
fn many_connections_may_wait_to_be_accepted() {
    let check = Check::new().seeds(0..2).faults(Faults::none());
    check.run(|sim| async move {
        sim.host("db", || accept_late(4096, Duration::from_millis(500)));
        sim.settle().await;
        let waits = connect_all(&sim, 400).await;
        sim.always("all are admitted", waits.iter().all(|wait| *wait < Duration::from_secs(1)));
    });
}

#[test]
fn a_request_without_an_answer_succeeds_after_heal() {
    let check = Check::new().seeds(0..60).faults(Faults::none().with(Fault::NoAnswer));
    check.run(|sim| async move {
        sim.host("db", || accept_late(4096, Duration::ZERO));
        sim.settle().await;
        let client = || async {
            let connected = TcpStream::connect("db:1").await.is_ok();
            (connected, Instant::now())
        };
        let clients: Vec<_> = (0..20).map(|_| sim.spawn(client())).collect();
        procession::sleep(Duration::from_secs(5)).await;
        let healed = Instant::now();
        sim.heal();
        for client in clients {
            let (connected, at) = client.await.expect("it ends");
            sim.always("it is connected", connected);
            sim.sometimes("it had no answer before", at > healed);
            let took = at.saturating_duration_since(healed);
            sim.always("it is connected soon", took < Duration::from_millis(10));
        }
    });
}

/// Goal: a connection that is over keeps no descriptor of the real system. Method: a child process
/// runs this test alone, and counts its descriptors.
#[test]
fn connections_that_are_over_keep_no_descriptor() {
    const ATTEMPTS: usize = 300;
    const ALONE: &str = "PROCESSION_SIM_TEST_ALONE";
    if std::env::var_os(ALONE).is_none() {
        let name = std::thread::current().name().expect("a test has a name").to_owned();
        let mut child = Command::new(std::env::current_exe().expect("it is known"));
        let status = child.args(["--exact", &name]).env(ALONE, "1").status();
        assert!(status.expect("it starts").success(), "the child fails");
        return;
    }
    let descriptors = || std::fs::read_dir("/proc/self/fd").expect("the system has it").count();
    let check = Check::new().seeds(0..1).faults(Faults::none());
    check.run(move |sim| async move {
        sim.host("rude", || async {
            let listener = listen(1).await;
            while let Ok((stream, _)) = listener.accept().await {
                stream.set_linger(Some(Duration::ZERO)).expect("it is an option");
            }
        });
        sim.settle().await;
        let before = descriptors();
        for _ in 0..ATTEMPTS {
            let refused = TcpStream::connect("rude:2").await.map_err(|error| error.kind());
            let is_right = refused.is_err_and(|kind| kind == ErrorKind::ConnectionRefused);
            sim.always("nobody listens there", is_right);
        }
        sim.always("a refused attempt keeps none", descriptors() < before + 20);
        for _ in 0..ATTEMPTS {
            let connected = TcpStream::connect("rude:1").await;
            if let Ok(stream) = &connected {
                let _ = stream.set_nodelay(true);
            }
            let read = read_all(connected).await;
            sim.always("the client sees a reset", read == Err(ErrorKind::ConnectionReset));
        }
        sim.always("a reset keeps none", descriptors() < before + 20);
        for _ in 0..ATTEMPTS {
            let connected = TcpStream::connect("rude:1").await;
            procession::sleep(Duration::from_millis(1)).await;
            drop(connected.map(std::net::TcpStream::try_from));
        }
        procession::sleep(Duration::from_millis(1)).await;
        sim.always("a socket of std keeps none", descriptors() < before + 20);
    });
}

/// A program may ask about a connection that is broken.
#[test]
fn a_broken_connection_has_addresses_and_options() {
    let check = Check::new().seeds(0..10).faults(Faults::none());
    check.run(|sim| async move {
        sim.host("db", || async {
            let (_stream, _) = listen(1).await.accept().await.expect("it listens");
            std::future::pending::<()>().await;
        });
        sim.settle().await;
        let stream = TcpStream::connect("db:1").await.expect("it listens");
        let (own, peer) = (stream.local_addr().ok(), stream.peer_addr().ok());
        sim.crash("db");
        let read = stream.read(&mut [0]).await;
        sim.always("the client sees a reset", read.is_err_and(|error| is_reset(&error)));
        sim.always("its address is known", own.is_some() && stream.local_addr().ok() == own);
        sim.always("that of the peer, too", peer.is_some() && stream.peer_addr().ok() == peer);
        sim.always("options can be set", stream.set_nodelay(true).is_ok());
        sim.always("the end comes", matches!(stream.read(&mut [0]).await, Ok(0)));
    });
}
