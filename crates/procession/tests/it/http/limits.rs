//! Clients that send slowly, or nothing, and clients that never read. On the test clock.

use std::future::{Future, poll_fn};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream as StdUnixStream;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use procession::http::{Peer, RequestBody, Server};
use procession::net::UnixStream;
use procession::sync::channel::{self, Sender};
use procession::time::Instant;
use procession::{JoinHandle, Scheduler, sleep, spawn, timeout};

use super::pipe::{Door, Pipe, listen, pipe};
use super::{Answers, collect, service, spawn_server};
use crate::scene::{driven, threaded};

const SECOND: Duration = Duration::from_secs(1);
const MANY: u32 = 50;

/// Answers `/body` with the length of the body, or that it was late, `/large` with a megabyte, and
/// all else with `fine`.
fn answers() -> impl Answers {
    service(|request: hyper::Request<RequestBody>| async move {
        match request.uri().path() {
            "/body" => match collect(request.into_body()).await {
                Ok(body) => format!("{} bytes", body.len()),
                Err(error) => {
                    assert!(error.is_timeout(), "{error:?}");
                    "late".to_owned()
                }
            },
            "/large" => "x".repeat(1 << 20),
            _ => "fine".to_owned(),
        }
    })
}

/// Runs `clients` against a server with the limits of `server`.
fn with_server(server: Server, clients: impl AsyncFnOnce(&Scheduler, Door)) {
    let scheduler = driven();
    scheduler.block_on(async {
        let (door, listener) = listen();
        let server = spawn_server(server.serve(listener, answers()));
        clients(&scheduler, door).await;
        server.cancel();
        server.await.expect("it does not panic").expect("the listener does not fail");
    });
}

/// A client that asks once per second, from one connection, until `end`.
fn well(door: &Door, end: Instant) -> JoinHandle<u32> {
    let mut stream = door.connect();
    spawn(async move {
        let mut asked = 0;
        while Instant::now() < end {
            stream.send(b"GET / HTTP/1.1\r\nhost: me\r\n\r\n").await.expect("it is served");
            stream.receive_until("fine").await;
            asked += 1;
            sleep(SECOND).await;
        }
        asked
    })
}

/// Runs many clients beside one that is served meanwhile. Returns what each got, and when its
/// connection ended.
async fn many<C>(door: &Door, client: impl Fn(Pipe) -> C) -> Vec<(String, Duration)>
where
    C: Future<Output = String> + Send + 'static,
{
    let start = Instant::now();
    let clients: Vec<_> = (0..MANY)
        .map(|_| {
            let client = client(door.connect());
            spawn(async move { (client.await, Instant::now() - start) })
        })
        .collect();
    let well = well(door, start + SECOND * 40);
    assert_eq!(well.await.expect("it is served"), 40);
    let mut ended = Vec::new();
    for client in clients {
        ended.push(client.await.expect("it does not panic"));
    }
    ended
}

/// Sends the same part again and again until the server has ended. Returns what the server said.
pub(super) async fn send_until_the_end(stream: &mut Pipe, part: &[u8], every: Duration) -> String {
    let mut all = String::new();
    loop {
        stream.send(part).await.expect("the server takes it");
        let pause = Instant::now() + every;
        let left = || pause.saturating_duration_since(Instant::now());
        while let Ok(received) = timeout(left(), stream.receive(1024)).await {
            if received.is_empty() {
                return all;
            }
            all.push_str(&String::from_utf8_lossy(&received));
        }
    }
}

#[test]
fn slow_heads_are_dropped_at_their_limit() {
    with_server(Server::new(), async |_, door| {
        let ended = many(&door, |mut stream| async move {
            while stream.send(b"G").await.is_ok() {
                sleep(SECOND / 2).await;
            }
            stream.receive_all().await
        });
        for (answer, after) in ended.await {
            assert_eq!(answer, "");
            assert!((SECOND * 30..SECOND * 31).contains(&after), "{after:?}");
        }
    });
}

#[test]
fn clients_that_send_nothing_are_dropped() {
    with_server(Server::new().head_timeout(SECOND * 7), async |_, door| {
        for (answer, after) in
            many(&door, |mut stream| async move { stream.receive_all().await }).await
        {
            assert_eq!((answer.as_str(), after), ("", SECOND * 7));
        }
    });
}

/// The server reads the first bytes to find out the version.
#[test]
fn a_first_head_has_its_time_once_beside_http2() {
    with_server(Server::new().http2(), async |_, door| {
        let (mut stream, start) = (door.connect(), Instant::now());
        sleep(SECOND * 29).await;
        stream.send(b"G").await.expect("it is served");
        assert_eq!(stream.receive_all().await, "");
        assert_eq!(Instant::now() - start, SECOND * 30);
    });
}

#[test]
fn a_later_head_has_its_own_time() {
    let server = Server::new().head_timeout(SECOND * 5).idle_timeout(SECOND * 50);
    with_server(server, async |_, door| {
        let (mut stream, start) = (door.connect(), Instant::now());
        stream.send(b"GET / HTTP/1.1\r\nhost: me\r\n\r\n").await.expect("it is served");
        stream.receive_until("fine").await;
        sleep(SECOND * 20).await;
        stream.send(b"GET / HTTP/1.1\r\n").await.expect("it is idle for less than the limit");
        assert_eq!(stream.receive_all().await, "");
        assert_eq!(Instant::now() - start, SECOND * 25);
    });
}

#[test]
fn an_idle_connection_is_closed() {
    with_server(Server::new(), async |_, door| {
        let (mut stream, start) = (door.connect(), Instant::now());
        for round in 0..2 {
            stream.send(b"GET / HTTP/1.1\r\nhost: me\r\n\r\n").await.expect("it is served");
            stream.receive_until("fine").await;
            if round == 0 {
                sleep(SECOND * 59).await;
            }
        }
        assert_eq!(stream.receive_all().await, "");
        assert_eq!(Instant::now() - start, SECOND * 119);
    });
}

#[test]
fn slow_bodies_are_dropped_at_their_limit_while_others_are_served() {
    with_server(Server::new(), async |_, door| {
        let ended = many(&door, |mut stream| async move {
            let head = b"POST /body HTTP/1.1\r\nhost: me\r\ncontent-length: 100000\r\n\r\n";
            stream.send(head).await.expect("it is served");
            send_until_the_end(&mut stream, b"x", SECOND).await
        });
        for (answer, after) in ended.await {
            assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("late"), "{answer}");
            assert!((SECOND * 30..=SECOND * 32).contains(&after), "{after:?}");
        }
    });
}

#[test]
fn a_body_that_arrives_steadily_has_more_time() {
    with_server(Server::new(), async |_, door| {
        let mut stream = door.connect();
        let head = b"POST /body HTTP/1.1\r\nhost: me\r\ncontent-length: 122880\r\n\r\n";
        stream.send(head).await.expect("it is served");
        for _ in 0..120 {
            sleep(SECOND).await;
            stream.send(&[b'x'; 1024]).await.expect("it is served");
        }
        stream.receive_until("122880 bytes").await;
    });
}

/// Answers each request immediately, and hands its body over to a process, which tells the number
/// of its bytes, or how it was cut.
pub(super) fn hands_over(told: Sender<Result<usize, String>>) -> impl Answers {
    service(move |request: hyper::Request<RequestBody>| {
        let told = told.clone();
        drop(spawn(async move {
            let body = collect(request.into_body()).await;
            let length = body.map(|body| body.len()).map_err(|error| error.to_string());
            told.send(length).await.expect("the test listens");
        }));
        async { "fine".to_owned() }
    })
}

#[test]
fn a_body_may_arrive_long_after_its_answer() {
    for drains in [false, true] {
        driven().block_on(async {
            let (door, listener) = listen();
            let (told, tells) = channel::unbounded();
            let server = spawn_server(Server::new().serve(listener, hands_over(told)));
            let mut stream = door.connect();
            let head = b"POST / HTTP/1.1\r\nhost: me\r\ncontent-length: 102400\r\n\r\n";
            stream.send(head).await.expect("it is served");
            stream.receive_until("fine").await;
            if drains {
                server.cancel();
            }
            for _ in 0..100 {
                sleep(SECOND).await;
                stream.send(&[b'x'; 1024]).await.expect("the body is not complete");
            }
            assert_eq!(tells.recv().await, Some(Ok(102_400)));
            let complete = Instant::now();
            if !drains {
                // What follows has the usual limits.
                assert_eq!(stream.receive_all().await, "");
                let idle = Instant::now() - complete;
                assert!((SECOND * 60..=SECOND * 61).contains(&idle), "{idle:?}");
                server.cancel();
            }
            server.await.expect("it does not panic").expect("it ends in order");
            assert!(!drains || Instant::now() - complete < SECOND * 3);
        });
    }
}

#[test]
fn a_body_has_a_limit_as_a_whole() {
    let server = Server::new().body_stall_timeout(None).body_timeout(SECOND * 10);
    with_server(server, async |_, door| {
        let (mut stream, start) = (door.connect(), Instant::now());
        let head = b"POST /body HTTP/1.1\r\nhost: me\r\ntransfer-encoding: chunked\r\n\r\n";
        stream.send(head).await.expect("it is served");
        let answer = send_until_the_end(&mut stream, b"1\r\nx\r\n", SECOND / 4).await;
        assert!(answer.ends_with("late"), "{answer}");
        assert_eq!(Instant::now() - start, SECOND * 10);
    });
}

#[test]
fn clients_that_never_read_are_dropped_while_others_are_served() {
    with_server(Server::new(), async |_, door| {
        let ended = many(&door, |mut stream| async move {
            stream.send(b"GET /large HTTP/1.1\r\nhost: me\r\n\r\n").await.expect("it is served");
            while stream.send(b"GET / HTTP/1.1\r\n\r\n").await.is_ok() {
                sleep(SECOND / 4).await;
            }
            String::new()
        });
        for (_, after) in ended.await {
            assert!((SECOND * 30..=SECOND * 31).contains(&after), "{after:?}");
        }
    });
}

#[test]
fn a_client_that_reads_slowly_gets_everything() {
    with_server(Server::new(), async |_, door| {
        let (mut stream, start) = (door.connect(), Instant::now());
        stream
            .send(b"GET /large HTTP/1.1\r\nhost: me\r\nconnection: close\r\n\r\n")
            .await
            .expect("it is served");
        let mut length = 0;
        loop {
            match stream.receive(4096).await.len() {
                0 => break,
                count => length += count,
            }
            sleep(SECOND).await;
        }
        assert!(length > 1 << 20, "{length} bytes");
        assert!(Instant::now() - start > SECOND * 200, "it is slow");
    });
}

#[test]
fn limits_can_be_switched_off() {
    let server = Server::new()
        .head_timeout(None)
        .idle_timeout(None)
        .body_stall_timeout(None)
        .body_timeout(None)
        .write_timeout(None);
    with_server(server, async |_, door| {
        let day = SECOND * 86_400;
        let mut stream = door.connect();
        for part in ["POST /body HTT", "P/1.1\r\nhost: me\r\ncontent-length: 2\r\n\r\n", "a", "b"] {
            sleep(day).await;
            stream.send(part.as_bytes()).await.expect("it is served");
        }
        stream.receive_until("2 bytes").await;
        sleep(day).await;
        stream
            .send(b"GET /large HTTP/1.1\r\nhost: me\r\nconnection: close\r\n\r\n")
            .await
            .expect("it is served");
        sleep(day).await;
        assert!(stream.receive_all().await.len() > 1 << 20);
    });
}

#[test]
fn a_head_has_a_maximum_size() {
    with_server(Server::new().max_head_bytes(1000), async |_, door| {
        for (size, status) in [(500, "HTTP/1.1 200"), (2000, "HTTP/1.1 431")] {
            let mut stream = door.connect();
            let name = "x".repeat(size);
            let head = format!("GET / HTTP/1.1\r\nhost: {name}\r\nconnection: close\r\n\r\n");
            stream.send(head.as_bytes()).await.expect("it is served");
            let answer = stream.receive_all().await;
            assert!(answer.starts_with(status), "{answer}");
        }
    });
}

#[test]
fn further_connections_wait_for_a_place() {
    with_server(Server::new().max_connections(2), async |scheduler, door| {
        let open = || {
            scheduler
                .snapshot()
                .processes
                .iter()
                .filter(|process| process.label.as_deref() == Some("http local"))
                .count()
        };
        let mut streams: Vec<_> = (0..3).map(|_| door.connect()).collect();
        for stream in &mut streams {
            stream.send(b"GET / HTTP/1.1\r\nhost: me\r\n\r\n").await.expect("there is room");
        }
        for stream in &mut streams[..2] {
            stream.receive_until("fine").await;
        }
        sleep(SECOND).await;
        assert_eq!(open(), 2);
        drop(streams.remove(0));
        streams[1].receive_until("fine").await;
    });
}

/// Set in a child process, which may open few descriptors.
const CHILD: &str = "PROCESSION_TEST_FEW_DESCRIPTORS";

/// The streams are in memory and have no descriptors, so only the default limit holds them back.
#[test]
fn a_server_leaves_descriptors_to_its_services() {
    if std::env::var_os(CHILD).is_none() {
        let name = "http::limits::a_server_leaves_descriptors_to_its_services";
        let output = std::process::Command::new("sh")
            .args(["-c", r#"ulimit -n 64; exec "$0" "$@""#])
            .arg(std::env::current_exe().expect("a test knows itself"))
            .args(["--exact", name, "--nocapture"])
            .env(CHILD, "1")
            .output()
            .expect("there is room for a child");
        let told = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && told.contains("1 passed"), "{output:?}");
        return;
    }
    let scheduler = driven();
    scheduler.block_on(async {
        let (door, listener) = listen();
        let server = spawn_server(Server::new().serve(listener, answers()));
        let mut streams: Vec<_> = (0..64).map(|_| door.connect()).collect();
        sleep(SECOND).await;
        let all = scheduler.snapshot().processes;
        let open = all.iter().filter(|one| one.label.as_deref() == Some("http local"));
        let open: Vec<_> = open.collect();
        assert_eq!(open.len(), 48);
        // Reports of slow steps name the place where the program has called `serve`.
        assert!(open.iter().all(|one| one.location.file().ends_with("tests/it/http/limits.rs")));
        // Neither does a drain take all descriptors for the connections in the backlog.
        let mut waiting = streams.split_off(48);
        for stream in &mut waiting {
            stream.send(b"GET / HTTP/1.1\r\nhost: me\r\n\r\n").await.expect("there is room");
        }
        server.cancel();
        let mut answered = 0;
        for mut stream in waiting {
            answered += usize::from(stream.receive_all().await.ends_with("fine"));
        }
        assert_eq!(answered, 8);
        server.await.expect("it does not panic").expect("the listener does not fail");
        drop(streams);
    });
}

#[test]
fn one_connection_is_served_where_it_was_accepted() {
    driven().block_on(async {
        let (mut client, server) = pipe();
        let start = Instant::now();
        let served = spawn_server(Server::new().serve_connection(server, answers()));
        client.send(b"GET / HTTP/1.1\r\nhost: me\r\n\r\n").await.expect("it is served");
        client.receive_until("fine").await;
        client.send(b"G").await.expect("it is served");
        let error = served.await.expect("it does not panic").expect_err("the head has a limit");
        assert!(error.is_timeout(), "{error:?}");
        assert_eq!(error.to_string(), "the head of a request did not arrive within the time limit");
        assert_eq!(Instant::now() - start, SECOND * 30);

        let (mut client, server) = pipe();
        let served = spawn_server(procession::http::serve_connection(server, answers()));
        client.send(b"GET / HTTP/1.1\r\nhost: me\r\n\r\n").await.expect("it is served");
        client.receive_until("fine").await;
        served.cancel();
        assert_eq!(client.receive_all().await, "");
        served.await.expect("it does not panic").expect("it ends in order");
    });
}

/// Goal: a head that has come in time, and room that there is in time, count although nothing has
/// noted them. Method: nothing polls the kernel for the scheduler of the stream, which its callers
/// drive. So the limits are the only reason to look.
#[test]
fn what_is_there_at_the_limit_is_in_time() {
    let builder = Scheduler::builder().worker_threads(1).callers_drive();
    let asleep = builder.build().expect("it starts no thread");
    for server in [Server::new(), Server::new().http2()] {
        let pair = asleep.block_on(async { UnixStream::pair().expect("the system has sockets") });
        let mut client = StdUnixStream::try_from(pair.0).expect("it is a socket");
        client.set_nonblocking(true).expect("it is open");
        threaded(1).block_on(async {
            let limit = Duration::from_millis(20);
            let server = server.head_timeout(limit).write_timeout(limit);
            let mut served = pin!(server.serve_connection(pair.1, answers()));
            let waits = poll_fn(|task| Poll::Ready(served.as_mut().poll(task).is_pending()));
            assert!(waits.await);
            let request = b"GET /large HTTP/1.1\r\nhost: me\r\n\r\n";
            client.write_all(request).expect("there is room");
            let mut answer = Vec::new();
            poll_fn(|task| {
                let polled = served.as_mut().poll(task);
                let error = client.read_to_end(&mut answer).expect_err("the stream stays open");
                assert_eq!(error.kind(), ErrorKind::WouldBlock);
                if answer.len() > 1 << 20 {
                    return Poll::Ready(());
                }
                assert!(polled.is_pending(), "{polled:?} after {} bytes", answer.len());
                Poll::Pending
            })
            .await;
        });
    }
}

#[test]
fn a_peer_shows_its_address() {
    assert_eq!(Peer::LOCAL.to_string(), "local");
    let address = std::net::SocketAddr::from(([127, 0, 0, 1], 80));
    assert_eq!(Peer::from(address).to_string(), "127.0.0.1:80");
    assert_eq!(Peer::from(address).address(), Some(address));
    assert_eq!((Peer::from(address).ip(), Peer::LOCAL.ip()), (Some(address.ip()), None));
}
