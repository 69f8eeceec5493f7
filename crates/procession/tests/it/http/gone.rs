//! Clients that go away, that have closed their half, and that have not read the answer yet.
#![expect(clippy::disallowed_methods, reason = "clients are threads of the test")]

use std::future::poll_fn;
use std::io::{self, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpStream as StdStream};
use std::os::unix::net::UnixStream as StdUnixStream;
use std::pin::Pin;
use std::time::Duration;

use hyper::body::Body;
use procession::http::{RequestBody, Server};
use procession::net::{TcpListener, TcpStream, UnixStream};
use procession::process::Outcome as _;
use procession::time::Instant;
use procession::{JoinHandle, Scheduler, sleep};
use rustls::{ClientConnection, StreamOwned};

use super::pipe::{listen, pipe};
use super::protocols::{client_config, server_config};
use super::{Answers, collect, service, spawn_server};
use crate::home::{mpsc, thread};
use crate::scene::{TIMEOUT, driven, soon, threaded};

const SECOND: Duration = Duration::from_secs(1);
/// More than a socket holds.
const LARGE: usize = 2 << 20;

/// Answers with many bytes, and does not read the body.
fn ignores_bodies() -> impl Answers {
    service(|_: hyper::Request<RequestBody>| async { "x".repeat(LARGE) })
}

/// Serves on a scheduler of its own.
fn serving(server: Server, answers: impl Answers) -> (Scheduler, SocketAddr) {
    let scheduler = threaded(2);
    let address = scheduler.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("there are free ports");
        let address = listener.local_addr().expect("it is bound");
        drop(spawn_server(server.serve(listener, answers)));
        address
    });
    (scheduler, address)
}

fn connect(address: SocketAddr) -> StdStream {
    let stream = StdStream::connect(address).expect("the listener is open");
    stream.set_read_timeout(Some(TIMEOUT)).expect("it is valid");
    stream
}

/// Sends the whole request before it reads anything. Returns everything until the end.
fn send_then_read(stream: &mut (impl io::Read + io::Write), request: &[u8]) -> Vec<u8> {
    stream.write_all(request).expect("the server takes the whole request");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).expect("the connection is not reset");
    answer
}

fn post(body: usize, is_last: bool) -> Vec<u8> {
    let close = if is_last { "connection: close\r\n" } else { "" };
    let head = format!("POST / HTTP/1.1\r\nhost: me\r\n{close}content-length: {body}\r\n\r\n");
    [head.as_bytes(), &vec![b'b'; body]].concat()
}

#[test]
fn an_answer_to_a_body_that_nobody_reads_arrives_whole() {
    let (_plain, plain) = serving(Server::new(), ignores_bodies());
    let (_tls, tls) = serving(Server::new().tls(server_config()), ignores_bodies());
    for (body, is_last) in [(300_000, false), (300_000, true), (4_000_000, false)] {
        let answer = send_then_read(&mut connect(plain), &post(body, is_last));
        assert!(answer.starts_with(b"HTTP/1.1 200") && answer.len() > LARGE, "{}", answer.len());

        let name = "localhost".try_into().expect("it is a name");
        let session = ClientConnection::new(client_config(&[]), name).expect("it is valid");
        let mut stream = StreamOwned::new(session, connect(tls));
        let answer = send_then_read(&mut stream, &post(body, is_last));
        assert!(answer.starts_with(b"HTTP/1.1 200") && answer.len() > LARGE, "{}", answer.len());
    }
}

/// The refusal of a request, which no service has seen, has more bytes behind it.
#[test]
fn a_refusal_arrives_though_more_was_sent() {
    let (_scheduler, address) = serving(Server::new().http2(), ignores_bodies());
    let junk = vec![b'j'; 300_000];
    let request = [b"not HTTP at all\r\n\r\n", &junk[..]].concat();
    let answer = send_then_read(&mut connect(address), &request);
    assert!(answer.starts_with(b"HTTP/1.1 400"), "{}", String::from_utf8_lossy(&answer));

    // A settings frame, and a frame of a size that is not permitted.
    let settings = [0, 0, 0, 4, 0, 0, 0, 0, 0];
    let request = [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", &settings[..], &[0xff; 9], &junk].concat();
    let answer = send_then_read(&mut connect(address), &request);
    const GOAWAY: u8 = 7;
    assert_eq!(last_frame(&answer), Some(GOAWAY), "{answer:?}");
}

/// Returns the type of the last frame of HTTP/2.
fn last_frame(mut bytes: &[u8]) -> Option<u8> {
    let mut last = None;
    while let [high, middle, low, kind, ..] = *bytes {
        last = Some(kind);
        bytes = bytes.get(9 + u32::from_be_bytes([0, high, middle, low]) as usize..)?;
    }
    last
}

/// Serves one connection on the test clock.
fn serve_pipe(server: Server, answers: impl Answers) -> (super::pipe::Pipe, JoinHandle<bool>) {
    let (client, stream) = pipe();
    let served = async { server.serve_connection(stream, answers).await.is_ok() };
    (client, spawn_server(served))
}

#[test]
fn a_client_that_neither_ends_nor_sends_is_waited_for_shortly() {
    driven().block_on(async {
        let answers = || service(|_: hyper::Request<RequestBody>| async { "answer".to_owned() });
        let ask =
            b"POST / HTTP/1.1\r\nhost: me\r\nconnection: close\r\ncontent-length: 99999\r\n\r\n";
        // Each sends a byte per second until a time. `true` if the server is asked to end.
        for (sends, asked, expected) in
            [(0, false, 2..=2), (10, false, 11..=12), (60, false, 29..=30), (60, true, 3..=4)]
        {
            let (mut client, served) = serve_pipe(Server::new(), answers());
            client.send(ask).await.expect("it is served");
            client.receive_until("answer").await;
            let start = Instant::now();
            assert_eq!(client.receive_all().await, "", "the answer is complete at once");
            assert_eq!(Instant::now(), start);
            if asked {
                served.cancel();
            }
            for _ in 0..sends {
                sleep(SECOND).await;
                if client.send(b"b").await.is_err() {
                    break;
                }
            }
            assert!(served.await.expect("it does not panic"), "such an end is no error");
            let after = (Instant::now() - start).as_secs();
            assert!(expected.contains(&after), "{sends} bytes: {after} s");
        }
    });
}

/// Such a client is reported at the level of clients that leave.
#[test]
fn a_client_that_resets_its_connection_is_no_failure() {
    let scheduler = threaded(1);
    let ended = scheduler.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("there are free ports");
        let client = connect(listener.local_addr().expect("it is bound"));
        let (stream, _) = listener.accept().await.expect("it is connected");
        let client = socket2::Socket::from(client);
        client.set_linger(Some(Duration::ZERO)).expect("it is a stream");
        client.send(b"GET / HTTP/1.1\r\n").expect("there is room");
        drop(client);
        Server::new().serve_connection(stream, ignores_bodies()).await
    });
    let exit = ended.failure().expect("the connection was reset");
    assert!(exit.is_disconnect() && exit.to_string().contains("os error"), "{exit}");
}

/// Tells when it is dropped.
struct Tells(mpsc::Sender<()>);

impl Drop for Tells {
    fn drop(&mut self) {
        // Ignored: the test may have failed.
        let _ = self.0.send(());
    }
}

#[test]
fn a_reset_drops_the_handler() {
    let (begins, begun) = mpsc::channel();
    let (drops, dropped) = mpsc::channel();
    let never = service(move |request: hyper::Request<RequestBody>| {
        let (begins, tells) = (begins.clone(), Tells(drops.clone()));
        async move {
            begins.send(()).expect("the test waits");
            std::future::pending::<()>().await;
            // Both live as long as the handler.
            drop((request, tells));
            String::new()
        }
    });
    let (_scheduler, address) = serving(Server::new().half_close_timeout(None), never);
    let requests = [
        &b"GET / HTTP/1.1\r\nhost: me\r\n\r\n"[..],
        // Pipelined, and with a body that the handler does not read.
        b"GET / HTTP/1.1\r\nhost: me\r\n\r\nGET / HTTP/1.1\r\nhost: me\r\n\r\n",
        b"POST / HTTP/1.1\r\nhost: me\r\ncontent-length: 5\r\n\r\nhello",
        b"POST / HTTP/1.1\r\nhost: me\r\ncontent-length: 9\r\n\r\nhello",
    ];
    for request in requests {
        let client = threaded(1);
        client.block_on(async {
            let stream = TcpStream::connect(address).await.expect("the listener is open");
            stream.write_all(request).await.expect("it is connected");
            soon(&begun);
            stream.set_linger(Some(Duration::ZERO)).expect("it is a socket");
        });
        soon(&dropped);
    }
}

/// Goal: a client that leaves is noticed behind a body that the handler does not read. Method: the
/// client resets the connection, or closes it.
#[test]
fn a_client_that_leaves_behind_a_large_body_drops_the_handler() {
    let (begins, begun) = mpsc::channel();
    let (drops, dropped) = mpsc::channel();
    let never = service(move |request: hyper::Request<RequestBody>| {
        let (begins, tells) = (begins.clone(), Tells(drops.clone()));
        async move {
            begins.send(()).expect("the test waits");
            std::future::pending::<()>().await;
            drop((request, tells));
            String::new()
        }
    });
    let soon_after = || Server::new().half_close_timeout(Duration::from_millis(1));
    let (_plain, plain) = serving(soon_after(), never.clone());
    let (_tls, tls) = serving(soon_after().tls(server_config()), never);
    let request = &post(100_000, false)[..60_000];
    for resets in [false, true] {
        let leave = |stream: &StdStream| {
            soon(&begun);
            let linger = resets.then_some(Duration::ZERO);
            rustix::net::sockopt::set_socket_linger(stream, linger).expect("it is a socket");
        };
        let mut stream = connect(plain);
        stream.write_all(request).expect("it is connected");
        leave(&stream);
        drop(stream);
        soon(&dropped);

        let name = "localhost".try_into().expect("it is a name");
        let session = ClientConnection::new(client_config(&[]), name).expect("it is valid");
        let mut stream = StreamOwned::new(session, connect(tls));
        stream.write_all(request).expect("it is connected");
        stream.flush().expect("it is connected");
        leave(&stream.sock);
        drop(stream);
        soon(&dropped);
    }
}

/// The system says the same of a client that has closed the connection as of one that waits.
#[test]
fn a_half_closed_client_has_a_limit() {
    driven().block_on(async {
        let answers = || {
            service(|request: hyper::Request<RequestBody>| async move {
                if request.uri().path() == "/large" {
                    return "x".repeat(1 << 20);
                }
                sleep(SECOND * 4).await;
                drop(collect(request.into_body()).await);
                sleep(SECOND * 8).await;
                "late".to_owned()
            })
        };
        // The handler is dropped.
        let (mut client, served) = serve_pipe(Server::new(), answers());
        let start = Instant::now();
        client.send(b"GET / HTTP/1.1\r\nhost: me\r\n\r\n").await.expect("it is served");
        client.close_half();
        assert_eq!(client.receive_all().await, "");
        assert!(!served.await.expect("it does not panic"), "the limit is an error");
        assert_eq!(Instant::now() - start, SECOND * 5);

        // The limit is a setting, and a body that ends too early ends nothing before.
        for (limit, is_answered) in [(SECOND * 13, true), (SECOND * 11, false)] {
            let server = Server::new().half_close_timeout(limit);
            let (mut client, served) = serve_pipe(server, answers());
            let ask = b"POST / HTTP/1.1\r\nhost: me\r\ncontent-length: 9\r\n\r\nhello";
            client.send(ask).await.expect("it is served");
            client.close_half();
            assert_eq!(client.receive_all().await.ends_with("late"), is_answered);
            drop(served.await);
        }

        // A client that reads on gets everything.
        let (mut client, served) = serve_pipe(Server::new(), answers());
        client.send(b"GET /large HTTP/1.1\r\nhost: me\r\n\r\n").await.expect("it is served");
        client.close_half();
        let mut length = 0;
        while let count @ 1.. = client.receive(4096).await.len() {
            length += count;
            sleep(SECOND).await;
        }
        assert!(length > 1 << 20, "{length} bytes");
        assert!(served.await.expect("it does not panic"));
    });
}

/// Goal: a half-closed client is answered as long as the service goes on with its body, however
/// slowly. Method: the client has sent everything before the server looks, so that no process waits
/// for the socket and the test clock moves. Behind so many bytes, only the system knows of the end.
#[test]
fn a_half_closed_client_is_answered_while_its_body_is_read_slowly() {
    /// More than the server reads ahead, and less than the socket holds.
    const BODY: usize = 96 * 1024;
    let reads_slowly = service(|request: hyper::Request<RequestBody>| async move {
        let pause = if request.uri().path() == "/stops" { SECOND * 20 } else { SECOND * 4 };
        let (mut body, mut length) = (request.into_body(), 0);
        loop {
            sleep(pause).await;
            let Some(frame) = poll_fn(|task| Pin::new(&mut body).poll_frame(task)).await else {
                return format!("{length} bytes.");
            };
            length += frame.expect("the body is whole").into_data().map_or(0, |data| data.len());
        }
    });
    for (path, is_answered) in [("/", true), ("/stops", false)] {
        let (mut client, stream) = StdUnixStream::pair().expect("there are enough descriptors");
        let head = format!("POST {path} HTTP/1.1\r\nhost: me\r\ncontent-length: {BODY}\r\n\r\n");
        client.write_all(&[head.as_bytes(), &[b'b'; BODY]].concat()).expect("there is room");
        client.shutdown(Shutdown::Write).expect("it is connected");
        client.set_read_timeout(Some(TIMEOUT)).expect("it is valid");
        let answers = reads_slowly.clone();
        let (is_served, lasted) = driven().block_on(async move {
            let stream = UnixStream::try_from(stream).expect("there are enough descriptors");
            let start = Instant::now();
            let served = async { Server::new().serve_connection(stream, answers).await.is_ok() };
            let is_served = spawn_server(served).await.expect("it does not panic");
            (is_served, Instant::now() - start)
        });
        assert_eq!(is_served, is_answered, "{path}");
        let mut answer = String::new();
        // Ignored: a connection that is closed behind unread bytes is reset.
        let _ = client.read_to_string(&mut answer);
        assert_eq!(answer.ends_with(&format!("\r\n{BODY} bytes.")), is_answered, "{answer}");
        // The limit is five seconds. It begins with a look, of which there is one each second.
        let lasts = if is_answered { SECOND * 10..SECOND * 3600 } else { SECOND * 5..SECOND * 8 };
        assert!(lasts.contains(&lasted), "{path}: {lasted:?}");
    }
}

#[test]
fn abandoned_requests_give_their_places_back() {
    driven().block_on(async {
        let (door, listener) = listen();
        let answers = service(|request: hyper::Request<RequestBody>| async move {
            if request.uri().path() == "/slow" {
                sleep(SECOND * 3600).await;
            }
            "answer".to_owned()
        });
        let server = Server::new().max_connections(10);
        drop(spawn_server(server.serve(listener, answers)));
        for _ in 0..10 {
            let mut client = door.connect();
            let ask = b"GET /slow HTTP/1.1\r\nhost: me\r\n\r\n";
            client.send(ask).await.expect("it is served");
        }
        let start = Instant::now();
        let mut client = door.connect();
        client.send(b"GET / HTTP/1.1\r\nhost: me\r\n\r\n").await.expect("it waits");
        client.receive_until("answer").await;
        assert_eq!(Instant::now() - start, SECOND * 5);
    });
}

/// What a client has pipelined is not lost by a look at the client.
#[test]
fn pipelined_requests_are_answered_behind_one_that_takes_long() {
    driven().block_on(async {
        let slow = service(|request: hyper::Request<RequestBody>| async move {
            sleep(SECOND).await;
            let body = collect(request.into_body()).await.expect("it is sent");
            format!("{} bytes.", body.len())
        });
        let (mut client, served) = serve_pipe(Server::new(), slow);
        let mut requests = Vec::new();
        for size in [5, 40_000, 0, 16 * 1024, 1] {
            requests.extend(post(size, size == 1));
        }
        client.send(&requests).await.expect("it is served");
        client.close_half();
        let answers = client.receive_all().await;
        for size in [5, 40_000, 0, 16 * 1024, 1] {
            assert!(answers.contains(&format!("\r\n{size} bytes.")), "{size}: {answers}");
        }
        assert!(served.await.expect("it does not panic"));
    });
}

/// A client that keeps its connection does not know that the server ends.
#[test]
fn a_request_on_its_way_is_answered_when_a_server_ends() {
    driven().block_on(async {
        let (door, listener) = listen();
        let answers = service(|request: hyper::Request<RequestBody>| async move {
            if request.uri().path() == "/slow" {
                sleep(SECOND * 5).await;
            }
            "answer".to_owned()
        });
        let server = spawn_server(Server::new().serve(listener, answers));
        let mut clients = Vec::new();
        for path in ["/", "/slow", "/new", "/never", "/never"] {
            let mut client = door.connect();
            if path != "/new" {
                client.send(b"GET / HTTP/1.1\r\nhost: me\r\n\r\n").await.expect("it is served");
                let answer = client.receive_until("answer").await;
                assert!(!answer.contains("connection: close"), "{answer}");
            }
            clients.push((path, client));
        }
        clients.push(("/never", door.connect()));
        sleep(SECOND).await;
        server.cancel();
        let start = Instant::now();
        sleep(SECOND / 2).await;
        for (path, client) in clients.iter_mut().filter(|(path, _)| *path != "/never") {
            let ask = format!("GET {path} HTTP/1.1\r\nhost: me\r\n\r\n");
            client.send(ask.as_bytes()).await.expect("the connection is open");
        }
        let (silent, asking): (Vec<_>, Vec<_>) =
            clients.into_iter().partition(|(path, _)| *path == "/never");
        for (_, mut client) in silent {
            assert_eq!(client.receive_all().await, "");
            assert_eq!(Instant::now() - start, SECOND);
        }
        for (path, mut client) in asking {
            let answer = client.receive_all().await;
            assert!(answer.contains("connection: close"), "{path}: {answer}");
            assert!(answer.ends_with("answer"), "{path}: {answer}");
        }
        server.await.expect("it does not panic").expect("it ends in order");
        assert_eq!(Instant::now() - start, SECOND * 11 / 2);
    });
}

/// The same over sockets, with clients that ask without a pause.
#[test]
fn clients_that_keep_their_connections_learn_of_the_end() {
    let answers = service(|_: hyper::Request<RequestBody>| async { "answer".to_owned() });
    let (scheduler, address) = serving(Server::new(), answers);
    let (warms, warm) = mpsc::channel();
    let clients: Vec<_> = (0..20)
        .map(|_| {
            let warms = warms.clone();
            thread::spawn(move || {
                let mut stream = connect(address);
                for number in 0.. {
                    let ask = b"GET / HTTP/1.1\r\nhost: me\r\n\r\n";
                    stream.write_all(ask).expect("the connection is open");
                    let mut answer = Vec::new();
                    while !answer.ends_with(b"answer") {
                        let mut part = [0; 1024];
                        let count = stream.read(&mut part).expect("the connection is not reset");
                        assert_ne!(count, 0, "request {number} is not answered");
                        answer.extend(&part[..count]);
                    }
                    if String::from_utf8_lossy(&answer).contains("connection: close") {
                        return;
                    }
                    if number == 3 {
                        warms.send(()).expect("the test waits");
                    }
                }
            })
        })
        .collect();
    for _ in &clients {
        soon(&warm);
    }
    assert!(driven().block_on(scheduler.shutdown(TIMEOUT)).is_empty());
    for client in clients {
        client.join().expect("each request is answered");
    }
}

#[test]
fn a_request_names_its_host_once() {
    let (_scheduler, address) = serving(
        Server::new(),
        service(|_: hyper::Request<RequestBody>| async { "served".to_owned() }),
    );
    for (request, is_valid) in [
        ("GET / HTTP/1.1\r\nhost: me\r\n\r\n", true),
        ("GET http://me/ HTTP/1.1\r\nhost: me\r\n\r\n", true),
        ("GET / HTTP/1.1\r\nhost:\r\n\r\n", true),
        ("GET / HTTP/1.0\r\n\r\n", true),
        ("GET / HTTP/1.0\r\nhost: me\r\n\r\n", true),
        ("GET / HTTP/1.1\r\n\r\n", false),
        ("GET http://me/ HTTP/1.1\r\n\r\n", false),
        ("GET / HTTP/1.1\r\nhost: me\r\nhost: me\r\n\r\n", false),
        ("GET / HTTP/1.1\r\nHost: me\r\nhost: you\r\n\r\n", false),
        ("GET / HTTP/1.0\r\nhost: me\r\nhost: you\r\n\r\n", false),
    ] {
        let mut stream = connect(address);
        stream.write_all(request.as_bytes()).expect("it is connected");
        if is_valid {
            stream.shutdown(Shutdown::Write).expect("it is connected");
        }
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("the connection is closed in order");
        assert_eq!(answer.contains(" 200 OK\r\n"), is_valid, "{request:?}: {answer}");
        assert_eq!(answer.ends_with("served"), is_valid, "{request:?}: {answer}");
        if !is_valid {
            assert!(answer.contains(" 400 Bad Request\r\n"), "{answer}");
            assert!(answer.contains("connection: close"), "{answer}");
        }
    }
}
