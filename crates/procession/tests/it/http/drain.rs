//! The end of a server: no request that has begun is lost.
#![expect(
    clippy::disallowed_methods,
    clippy::print_stdout,
    reason = "clients of a child process are threads, and the child tells its address"
)]

use std::io::{Read as _, Write as _};
use std::net::TcpStream as StdStream;
use std::sync::Arc;
use std::time::Duration;

use procession::http::{RequestBody, Server};
use procession::net::TcpListener;
use procession::process::Named;
use procession::supervisor::{ChildSpec, Stop, Supervisor};
use procession::sync::channel;
use procession::time::Instant;
use procession::{Context, Exit, Reply, sleep, spawn, timeout, yield_now};
use procession_sync::Mutex;
use procession_sync::atomic::AtomicU32;
use procession_sync::atomic::Ordering::Relaxed;

use super::pipe::{Door, Pipe, Pipes, listen};
use super::{Answers, service, spawn_server};
use crate::scene::{driven, panic_quietly, threaded};

const SECOND: Duration = Duration::from_secs(1);
const ASK: &[u8] = b"GET / HTTP/1.1\r\nhost: me\r\n\r\n";

struct Number(Reply<u32>);

/// Waits for `delay`, and then asks the store. Without it, the answer is `no store`.
fn asks_store(delay: Duration) -> impl Answers {
    service(move |request: hyper::Request<RequestBody>| async move {
        match request.uri().path() {
            "/panic" => {
                sleep(SECOND).await;
                panic_quietly("asked to")
            }
            "/never" => std::future::pending().await,
            _ => {}
        }
        sleep(delay).await;
        match Named::new("store").call(Number, SECOND).await {
            Ok(number) => format!("number {number}."),
            Err(_) => "no store.".to_owned(),
        }
    })
}

/// A tree with a store, and a server that needs it.
fn tree(listener: Pipes, stop: Stop) -> Supervisor {
    tree_of(listener, stop, SECOND * 2)
}

/// The same, with a server that takes `delay` for an answer.
fn tree_of(listener: Pipes, stop: Stop, delay: Duration) -> Supervisor {
    let store = ChildSpec::new("store", |mut cx: Context<Number>| async move {
        let mut number = 0;
        while let Some(Number(reply)) = cx.recv().await {
            number += 1;
            reply.send(number);
        }
    });
    let listener = Arc::new(Mutex::new(Some(listener)));
    let http = ChildSpec::new("http", move |_: Context<()>| {
        let listener = listener.lock().take().expect("it starts once");
        async move {
            Server::new().serve(listener, asks_store(delay)).await.expect("it never fails");
        }
    });
    Supervisor::rest_for_one().child(store.name("store")).child(http.stop(stop))
}

/// Waits until nothing but timers is left to do.
async fn settle() {
    sleep(Duration::from_millis(1)).await;
}

async fn begun(door: &Door, path: &str) -> Pipe {
    let mut stream = door.connect();
    let head = format!("GET {path} HTTP/1.1\r\nhost: me\r\n\r\n");
    stream.send(head.as_bytes()).await.expect("it is served");
    stream
}

#[test]
fn a_store_lives_until_the_last_request_is_answered() {
    driven().block_on(async {
        let (door, listener) = listen();
        let tree = tree(listener, Stop::Within(SECOND * 5)).try_start().await.expect("it starts");
        let mut idle = begun(&door, "/").await;
        idle.receive_until("number 1.").await;
        let mut busy = Vec::new();
        for _ in 0..20 {
            busy.push(begun(&door, "/").await);
        }
        let mut half = door.connect();
        half.send(b"GET / HTT").await.expect("it is served");
        settle().await;

        let cancelled = Instant::now();
        tree.cancel();
        // These are in the backlog when the server is told.
        let mut late = Vec::new();
        for _ in 0..3 {
            late.push(begun(&door, "/").await);
        }
        half.send(b"P/1.1\r\nhost: me\r\n\r\n").await.expect("it is served");
        settle().await;
        assert!(door.try_connect().is_none(), "the listener is closed");
        assert_eq!(idle.receive_all().await, "");
        assert_eq!(Instant::now() - cancelled, SECOND, "an idle connection has a short grace");
        for mut stream in busy.into_iter().chain(late).chain([half]) {
            let answer = stream.receive_all().await;
            assert!(answer.contains("\r\nnumber "), "{answer}");
            assert!(answer.contains("connection: close"), "{answer}");
        }
        assert_eq!(tree.await, Exit::Shutdown);
        assert!(Instant::now() - cancelled < SECOND * 3);
    });
}

#[test]
fn a_shutdown_answers_the_requests_that_have_begun() {
    let scheduler = driven();
    scheduler.block_on(async {
        let (door, listener) = listen();
        let _tree = tree(listener, Stop::Within(SECOND * 5)).try_start().await.expect("it starts");
        let mut busy = begun(&door, "/").await;
        settle().await;
        assert!(scheduler.shutdown(SECOND * 60).await.is_empty());
        let answer = busy.receive_all().await;
        assert!(answer.ends_with("number 1."), "{answer}");
    });
}

#[test]
fn a_shutdown_leaves_its_whole_deadline_to_requests() {
    let scheduler = driven();
    scheduler.block_on(async {
        let (door, listener) = listen();
        let _tree =
            tree_of(listener, Stop::default(), SECOND * 7).try_start().await.expect("it starts");
        let mut busy = begun(&door, "/").await;
        settle().await;
        let unfinished = scheduler.shutdown(SECOND * 30).await;
        assert_eq!(unfinished.to_string(), "");
        let answer = busy.receive_all().await;
        assert!(answer.ends_with("number 1."), "{answer}");
    });
}

#[test]
fn a_shutdown_counts_the_requests_that_its_deadline_cuts_off() {
    let scheduler = driven();
    scheduler.block_on(async {
        let (door, listener) = listen();
        let _tree = tree(listener, Stop::default()).try_start().await.expect("it starts");
        let (mut never, mut other) = (begun(&door, "/never").await, begun(&door, "/").await);
        let mut pair = begun(&door, "/never").await;
        // Pipelined, and not begun.
        pair.send(ASK).await.expect("it is served");
        settle().await;
        let unfinished = scheduler.shutdown(SECOND * 30).await;
        assert!(other.receive_all().await.ends_with("number 1."));
        for cut in [&mut never, &mut pair] {
            assert_eq!(cut.receive_all().await, "");
        }
        assert_eq!((unfinished.requests, unfinished.stopped_requests), (2, 0));
        let labels = unfinished.terminated.iter().map(|process| process.label.as_deref());
        assert!(labels.eq([Some("store"), Some("http")]), "{unfinished}");
        assert!(unfinished.to_string().ends_with("2 requests were cut off"), "{unfinished}");
        assert!(!unfinished.is_empty());
    });
}

#[test]
fn a_request_that_ends_with_its_child_as_its_stop_asks_is_no_loss() {
    let scheduler = driven();
    scheduler.block_on(async {
        let (door, listener) = listen();
        let tree = tree(listener, Stop::Within(SECOND * 5));
        let _tree = tree.try_start().await.expect("it starts");
        let mut never = begun(&door, "/never").await;
        settle().await;
        let unfinished = scheduler.shutdown(SECOND * 30).await;
        assert_eq!(never.receive_all().await, "");
        assert_eq!((unfinished.stopped, unfinished.stopped_requests), (1, 1));
        assert!(unfinished.is_empty(), "{unfinished}");
        let text = "request ended with its child";
        assert!(unfinished.to_string().contains(text), "it is said: {unfinished}");
    });
}

/// Connections that have nothing to lose leave a server before a deadline that is shorter than
/// their usual times.
#[test]
fn a_short_shutdown_loses_no_idle_connection() {
    let scheduler = driven();
    scheduler.block_on(async {
        let (door, listener) = listen();
        let _tree = tree(listener, Stop::default()).try_start().await.expect("it starts");
        let (never_asked, mut idle) = (door.connect(), begun(&door, "/").await);
        idle.receive_until("number 1.").await;
        let mut half = door.connect();
        half.send(b"GET / HTT").await.expect("it is served");
        settle().await;
        let unfinished = scheduler.shutdown(SECOND / 2).await;
        assert_eq!(unfinished.to_string(), "");
        drop((never_asked, half));
    });
}

/// The service has made the whole answer, and the client has not read it.
#[test]
fn an_answer_that_waits_for_its_client_is_cut_off() {
    let scheduler = driven();
    scheduler.block_on(async {
        let (door, listener) = listen();
        let answers = service(|_: hyper::Request<RequestBody>| async { "a".repeat(1 << 16) });
        let server = spawn_server(Server::new().serve(listener, answers));
        let slow = begun(&door, "/").await;
        settle().await;
        let unfinished = scheduler.shutdown(SECOND).await;
        assert_eq!(unfinished.requests, 1, "{unfinished}");
        drop((slow, server));
    });
}

#[test]
fn connections_end_with_a_server_that_is_terminated() {
    driven().block_on(async {
        let (door, listener) = listen();
        let tree = tree(listener, Stop::Within(SECOND)).try_start().await.expect("it starts");
        let (mut never, mut other) = (begun(&door, "/never").await, begun(&door, "/").await);
        settle().await;
        let cancelled = Instant::now();
        tree.cancel();
        assert_eq!(tree.await, Exit::Shutdown);
        assert_eq!(Instant::now() - cancelled, SECOND);
        assert_eq!(never.receive_all().await, "");
        assert_eq!(other.receive_all().await, "");
        assert_eq!(Instant::now() - cancelled, SECOND);
    });
}

#[test]
fn a_panic_in_a_drain_ends_one_connection() {
    driven().block_on(async {
        let (door, listener) = listen();
        let tree = tree(listener, Stop::Within(SECOND * 5)).try_start().await.expect("it starts");
        let (mut ill, mut well) = (begun(&door, "/panic").await, begun(&door, "/").await);
        settle().await;
        tree.cancel();
        assert_eq!(ill.receive_all().await, "");
        let answer = well.receive_all().await;
        assert!(answer.ends_with("number 1."), "{answer}");
        assert_eq!(tree.await, Exit::Shutdown);
    });
}

/// A service that answers after a second.
fn late() -> impl Answers {
    service(|_: hyper::Request<RequestBody>| async {
        sleep(SECOND).await;
        "late".to_owned()
    })
}

#[test]
fn a_server_that_is_dropped_tells_its_connections() {
    driven().block_on(async {
        let (door, listener) = listen();
        let served = timeout(SECOND, Server::new().serve(listener, late()));
        let mut streams = Vec::new();
        let clients = async {
            sleep(SECOND / 2).await;
            streams.push(begun(&door, "/").await);
            std::future::pending::<()>().await;
        };
        futures_lite::future::or(async { drop(served.await) }, clients).await;
        let answer = streams[0].receive_all().await;
        assert!(answer.ends_with("late"), "{answer}");
        assert!(answer.contains("connection: close"), "{answer}");
    });
}

#[test]
fn the_error_of_a_listener_ends_the_server_and_no_request() {
    driven().block_on(async {
        let (door, listener) = listen();
        let server = spawn_server(Server::new().serve(listener, late()));
        let mut busy = begun(&door, "/").await;
        settle().await;
        door.break_listener();
        let error = server.await.expect("it does not panic").expect_err("the listener failed");
        assert_eq!(error.kind(), std::io::ErrorKind::AddrInUse);
        let answer = busy.receive_all().await;
        assert!(answer.ends_with("late"), "{answer}");
    });
}

#[test]
fn a_server_ends_when_its_signal_comes() {
    driven().block_on(async {
        let (door, listener) = listen();
        let (signal, signalled) = channel::bounded::<()>(1);
        let until = async move {
            let _ = signalled.recv().await;
        };
        let server = Server::new().serve_until(listener, late(), until);
        let client = spawn(async move {
            let mut busy = begun(&door, "/").await;
            settle().await;
            signal.send(()).await.expect("the server waits for it");
            busy.receive_all().await
        });
        server.await.expect("the listener does not fail");
        let answer = client.await.expect("it does not panic");
        assert!(answer.ends_with("late"), "{answer}");
    });
}

#[test]
fn connections_without_a_place_are_served_in_a_drain() {
    driven().block_on(async {
        let (door, listener) = listen();
        let server = spawn_server(Server::new().max_connections(1).serve(listener, late()));
        let mut streams = Vec::new();
        for _ in 0..3 {
            streams.push(begun(&door, "/").await);
        }
        settle().await;
        server.cancel();
        settle().await;
        assert!(door.try_connect().is_none(), "the listener is closed");
        for (index, mut stream) in (1..).zip(streams) {
            let answer = stream.receive_all().await;
            assert!(answer.ends_with("late"), "{index}: {answer}");
            assert!(answer.contains("connection: close"), "{index}: {answer}");
        }
        server.await.expect("it does not panic").expect("it ends in order");
    });
}

/// The kernel has the request, and no worker knows of it when the server is told to end.
#[test]
fn a_request_in_the_socket_is_answered() {
    for is_first in [true, false] {
        let scheduler = driven();
        let (server, client) = scheduler.block_on(async {
            let listener = TcpListener::bind("127.0.0.1:0").await.expect("there are free ports");
            let address = listener.local_addr().expect("it is bound");
            let answers = service(|_: hyper::Request<RequestBody>| async { "answer".to_owned() });
            let server = spawn_server(Server::new().serve(listener, answers));
            let mut client = StdStream::connect(address).expect("the listener is open");
            client.set_read_timeout(Some(crate::scene::TIMEOUT)).expect("it is valid");
            if !is_first {
                client.write_all(ASK).expect("it is connected");
                client.set_nonblocking(true).expect("it is possible");
                let mut answer = Vec::new();
                while !answer.ends_with(b"answer") {
                    let mut part = [0; 256];
                    match client.read(&mut part) {
                        Ok(count) => answer.extend(&part[..count]),
                        Err(_) => yield_now().await,
                    }
                }
                client.set_nonblocking(false).expect("it is possible");
            }
            // Nothing runs between these two.
            client.write_all(ASK).expect("it is connected");
            server.cancel();
            (server, client)
        });
        // The test clock stands still for a socket, so the server ends once the client does.
        let reads = crate::home::thread::spawn(move || {
            let (mut client, mut answer) = (client, String::new());
            client.read_to_string(&mut answer).expect("it is closed in order");
            answer
        });
        scheduler.block_on(server).expect("it does not panic").expect("it ends in order");
        let answer = reads.join().expect("the answer comes");
        assert!(answer.ends_with("answer"), "first: {is_first}, {answer}");
    }
}

#[test]
fn a_pipelined_request_is_not_begun_in_a_drain() {
    driven().block_on(async {
        let (door, listener) = listen();
        let begun = Arc::new(AtomicU32::new(0));
        let counts = Arc::clone(&begun);
        let answers = service(move |_: hyper::Request<RequestBody>| {
            counts.fetch_add(1, Relaxed);
            async {
                sleep(SECOND).await;
                "answer".to_owned()
            }
        });
        let server = spawn_server(Server::new().serve(listener, answers));
        let mut client = door.connect();
        client.send(&ASK.repeat(2)).await.expect("it is served");
        settle().await;
        server.cancel();
        let answers = client.receive_all().await;
        assert_eq!(answers.matches("HTTP/1.1 200").count(), 1, "{answers}");
        assert!(answers.contains("connection: close"), "{answers}");
        assert_eq!(begun.load(Relaxed), 1);
        server.await.expect("it does not panic").expect("it ends in order");
    });
}

/// Set in a child process, which serves until SIGTERM.
const CHILD: &str = "PROCESSION_TEST_DRAIN";

/// Serves under a supervisor that also has what the service needs. Prints the address, and in the
/// end how many requests had begun.
fn serve_until_sigterm() {
    let asked = procession::signal::terminate();
    let scheduler = threaded(2);
    let count = Arc::new(AtomicU32::new(0));
    let counts = Arc::clone(&count);
    scheduler.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("there are free ports");
        println!("\naddress {}", listener.local_addr().expect("it is bound"));
        let listener = Arc::new(Mutex::new(Some(listener)));
        let store = ChildSpec::new("store", |mut cx: Context<Number>| async move {
            while let Some(Number(reply)) = cx.recv().await {
                reply.send(1);
            }
        });
        let http = ChildSpec::new("http", move |_: Context<()>| {
            let listener = listener.lock().take().expect("it starts once");
            let counts = Arc::clone(&counts);
            let answers = service(move |_: hyper::Request<RequestBody>| {
                counts.fetch_add(1, Relaxed);
                async {
                    sleep(Duration::from_millis(3)).await;
                    let number = Named::new("store").call(Number, SECOND).await;
                    if number.is_ok() { "stored".to_owned() } else { "no store".to_owned() }
                }
            });
            async move { drop(Server::new().serve(listener, answers).await) }
        });
        let tree = Supervisor::rest_for_one().child(store.name("store")).child(http);
        let _tree = tree.try_start().await.expect("it starts");
        asked.await.expect("the system has descriptors");
        assert!(scheduler.shutdown(SECOND * 20).await.is_empty());
    });
    println!("begun {}", count.load(Relaxed));
}

/// Asks until the server ends the connection. Returns how many requests were answered.
fn ask_until_the_end(address: &str) -> u32 {
    let mut answered = 0;
    while let Ok(mut stream) = StdStream::connect(address) {
        stream.set_read_timeout(Some(crate::scene::TIMEOUT)).expect("it is valid");
        loop {
            if stream.write_all(ASK).is_err() {
                break;
            }
            let mut answer = Vec::new();
            let mut part = [0; 1024];
            while !answer.ends_with(b"stored") {
                match stream.read(&mut part) {
                    Ok(count @ 1..) => answer.extend(&part[..count]),
                    Ok(0) | Err(_) => break,
                }
            }
            if answer.is_empty() {
                // The server closed the connection before the request came.
                break;
            }
            let text = String::from_utf8_lossy(&answer);
            assert!(text.starts_with("HTTP/1.1 200") && text.ends_with("stored"), "{text}");
            answered += 1;
            if text.contains("connection: close") {
                break;
            }
        }
    }
    answered
}

#[test]
fn no_request_is_lost_by_a_sigterm_under_load() {
    use std::io::{BufRead, BufReader};
    use std::process::{Command, Stdio};

    if std::env::var_os(CHILD).is_some() {
        return serve_until_sigterm();
    }
    let name = "http::drain::no_request_is_lost_by_a_sigterm_under_load";
    let mut child = Command::new(std::env::current_exe().expect("a test knows itself"))
        .args(["--exact", name, "--nocapture"])
        .env(CHILD, "1")
        .stdout(Stdio::piped())
        .spawn()
        .expect("there is room for a child");
    let mut lines = BufReader::new(child.stdout.take().expect("it is piped")).lines();
    let mut value = |name: &str| loop {
        let line = lines.next().expect("the child goes on").expect("it is text");
        if let Some(value) = line.strip_prefix(name) {
            return value.trim().to_owned();
        }
    };
    let address = value("address ");
    let pid = rustix::process::Pid::from_raw(child.id() as i32).expect("a child has a number");
    let (warm, is_warm) = crate::home::mpsc::channel();
    let clients: Vec<_> = (0..20)
        .map(|_| {
            let (address, warm) = (address.clone(), warm.clone());
            crate::home::thread::spawn(move || {
                drop(StdStream::connect(&address));
                warm.send(()).expect("the test waits");
                ask_until_the_end(&address)
            })
        })
        .collect();
    for _ in &clients {
        is_warm.recv().expect("they connect");
    }
    // Some requests are under way by then.
    let mut probe = StdStream::connect(&address).expect("the listener is open");
    for _ in 0..20 {
        probe.write_all(ASK).expect("it is served");
        let mut answer = [0; 1024];
        let count = probe.read(&mut answer).expect("it is served");
        assert!(answer[..count].ends_with(b"stored"));
    }
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("it runs");
    let answered: u32 =
        clients.into_iter().map(|client| client.join().expect("no answer is cut")).sum();
    let begun: u32 = value("begun ").parse().expect("it is a number");
    assert!(child.wait().expect("it is ours").success());
    assert!(answered > 20, "{answered} requests");
    assert_eq!(begun, answered + 20);
}
