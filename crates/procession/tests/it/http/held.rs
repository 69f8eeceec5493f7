//! Clients that hold a connection or a response, although other bytes move on the connection.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::io::{self, Write as _};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use hyper::body::{Body, Bytes, Frame};
use hyper::client::conn::http2;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper::{Request, Response};
use procession::http::{Executor, RequestBody, Server};
use procession::sync::{Select, channel};
use procession::time::{Instant, Sleep};
use procession::{sleep, spawn, yield_now};
use procession_sync::Mutex;
use rustls::ClientConnection;
use tower_service::Service;

use super::limits::{hands_over, send_until_the_end};
use super::pipe::{Pipe, listen};
use super::protocols::{client_config, server_config};
use super::{collect, service, spawn_server};
use crate::scene::driven;

const SECOND: Duration = Duration::from_secs(1);

/// The first bytes of an HTTP/2 client: the preface, and settings that change nothing.
const BEGIN: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
const PING: &[u8] = b"\0\0\x08\x06\0\0\0\0\0whatever";
const GOAWAY: u8 = 7;

/// A client without requests neither confirms the end of its connection nor closes it.
#[test]
fn pings_hold_neither_a_connection_nor_a_drain() {
    for drains in [false, true] {
        driven().block_on(async {
            let (door, listener) = listen();
            let answers = service(|_: Request<RequestBody>| async { String::new() });
            let server = spawn_server(Server::new().http2().serve(listener, answers));
            let mut stream = door.connect();
            stream.send(BEGIN).await.expect("it is served");
            sleep(SECOND).await;
            if drains {
                server.cancel();
            }
            let start = Instant::now();
            send_until_the_end(&mut stream, PING, SECOND * 2).await;
            let after = Instant::now() - start;
            let expected = if drains { SECOND * 3 } else { SECOND * 62 };
            assert_eq!(after, expected, "drains: {drains}");
        });
    }
}

/// A client that has sent so many pings that a step cannot read all of them. Notes the types of the
/// frames that the server has written.
struct Pings {
    next: &'static [u8],
    frames: Arc<Mutex<Vec<u8>>>,
}

impl Read for Pings {
    fn poll_read(
        mut self: Pin<&mut Self>,
        task: &mut Context<'_>,
        mut buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        // Charges the step, as a socket does.
        ready!(pin!(Select::new().or_else(|| ())).poll(task));
        let (part, rest) = self.next.split_at(self.next.len().min(buffer.remaining()));
        buffer.put_slice(part);
        self.next = if rest.is_empty() { PING } else { rest };
        Poll::Ready(Ok(()))
    }
}

impl Write for Pings {
    fn poll_write(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let mut frames = bytes;
        while let [high, middle, low, kind, ..] = *frames {
            self.frames.lock().push(kind);
            let size = u32::from_be_bytes([0, high, middle, low]) as usize;
            frames = frames.get(9 + size..).unwrap_or_default();
        }
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

#[test]
fn a_flood_of_pings_does_not_keep_the_server_from_ending() {
    driven().block_on(async {
        let frames = Arc::default();
        let pings = Pings { next: BEGIN, frames: Arc::clone(&frames) };
        let answers = service(|_: Request<RequestBody>| async { String::new() });
        let served = spawn_server(async {
            drop(Server::new().http2().serve_connection(pings, answers).await);
        });
        for round in 0..20 {
            if round == 10 {
                served.cancel();
            }
            yield_now().await;
        }
        procession::process::kill(served.pid());
        assert!(served.await.is_err(), "it was terminated");
        assert!(frames.lock().contains(&GOAWAY), "the client was told");
    });
}

/// A body that has a part after each pause. Notes the time at which it is dropped.
struct Parts {
    count: u32,
    size: usize,
    pause: Sleep,
    pauses: Duration,
    dropped: Dropped,
}

type Dropped = Arc<Mutex<Option<Instant>>>;

impl Parts {
    fn new(count: u32, size: usize, pauses: Duration, dropped: &Dropped) -> Self {
        let dropped = Arc::clone(dropped);
        Self { count, size, pause: sleep(pauses), pauses, dropped }
    }
}

impl Body for Parts {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        task: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if self.count == 0 {
            return Poll::Ready(None);
        }
        ready!(Pin::new(&mut self.pause).poll(task));
        self.pause = sleep(self.pauses);
        self.count -= 1;
        Poll::Ready(Some(Ok(Frame::data(vec![b'x'; self.size].into()))))
    }
}

impl Drop for Parts {
    fn drop(&mut self) {
        *self.dropped.lock() = Some(Instant::now());
    }
}

/// Answers `/none` without a body, and all else with parts without end.
#[derive(Clone)]
struct AnswersParts {
    size: usize,
    pauses: Duration,
    dropped: Dropped,
}

impl Service<Request<RequestBody>> for AnswersParts {
    type Response = Response<Parts>;
    type Error = Infallible;
    type Future = Ready<Result<Response<Parts>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<RequestBody>) -> Self::Future {
        let parts = match request.uri().path() {
            "/none" => Parts::new(0, 0, self.pauses, &Arc::default()),
            _ => Parts::new(u32::MAX, self.size, self.pauses, &self.dropped),
        };
        ready(Ok(Response::new(parts)))
    }
}

/// Goal: a response that nobody reads is dropped, and other requests of its connection are served.
/// Method: the client leaves one response, and makes requests all the time.
#[test]
fn a_response_that_nobody_reads_is_dropped_beside_others_by_http2() {
    driven().block_on(async {
        let (door, listener) = listen();
        let dropped = Dropped::default();
        let answers =
            AnswersParts { size: 1 << 14, pauses: Duration::ZERO, dropped: Arc::clone(&dropped) };
        drop(spawn(Server::new().http2().serve(listener, answers)));
        let (mut sender, connection) =
            http2::handshake(Executor, door.connect()).await.expect("the server answers");
        drop(spawn(connection));
        let mut ask = async |path: &str| {
            let request = Request::get(format!("http://localhost{path}")).body(String::new());
            let answer = sender.send_request(request.expect("it is valid")).await;
            answer.expect("the connection is open")
        };
        let start = Instant::now();
        let left = ask("/parts").await;
        for _ in 0..20 {
            sleep(SECOND * 5).await;
            collect(ask("/none").await.into_body()).await.expect("it is served");
        }
        let dropped = dropped.lock().expect("it is dropped") - start;
        assert!((SECOND * 30..=SECOND * 60).contains(&dropped), "{dropped:?}");
        assert!(collect(left.into_body()).await.is_err(), "it was cut");
    });
}

#[test]
fn a_response_that_is_read_slowly_is_not_dropped_by_http2() {
    driven().block_on(async {
        let (door, listener) = listen();
        let dropped = Dropped::default();
        // A part takes minutes.
        let answers =
            AnswersParts { size: 1 << 18, pauses: Duration::ZERO, dropped: Arc::clone(&dropped) };
        drop(spawn(Server::new().http2().serve(listener, answers)));
        let mut client = http2::Builder::new(Executor);
        client.initial_stream_window_size(16 << 10);
        let (mut sender, connection) =
            client.handshake(door.connect()).await.expect("the server answers");
        drop(spawn(connection));
        let request = Request::get("http://localhost/parts").body(String::new());
        let answer = sender.send_request(request.expect("it is valid")).await;
        let mut body = answer.expect("it is served").into_body();
        for _ in 0..50 {
            let frame = std::future::poll_fn(|task| Pin::new(&mut body).poll_frame(task)).await;
            frame.expect("it has no end").expect("it goes on");
            sleep(SECOND * 10).await;
        }
        assert_eq!(*dropped.lock(), None);
    });
}

#[test]
fn a_body_may_arrive_long_after_its_answer_by_http2() {
    for drains in [false, true] {
        driven().block_on(async {
            let (door, listener) = listen();
            let (told, tells) = channel::unbounded();
            let server = spawn_server(Server::new().http2().serve(listener, hands_over(told)));
            let (mut sender, connection) =
                http2::handshake(Executor, door.connect()).await.expect("the server answers");
            drop(spawn(connection));
            let body = Parts::new(100, 1024, SECOND, &Arc::default());
            let request = Request::post("http://localhost/").body(body).expect("it is valid");
            let answer = sender.send_request(request).await.expect("it is served");
            assert_eq!(collect(answer.into_body()).await.expect("it is sent"), b"fine");
            if drains {
                server.cancel();
            }
            assert_eq!(tells.recv().await, Some(Ok(102_400)));
            let complete = Instant::now();
            server.cancel();
            server.await.expect("it does not panic").expect("it ends in order");
            assert!(Instant::now() - complete < SECOND * 3);
        });
    }
}

/// Makes a TLS session on a connection to the server.
async fn shake_hands(stream: &mut Pipe) -> ClientConnection {
    let name = "localhost".try_into().expect("it is a name");
    let mut tls = ClientConnection::new(client_config(&[]), name).expect("it is valid");
    while tls.is_handshaking() {
        send(stream, &mut tls).await;
        if tls.is_handshaking() {
            let part = stream.receive(4096).await;
            tls.read_tls(&mut &part[..]).expect("it takes the bytes");
            tls.process_new_packets().expect("the server is trusted");
        }
    }
    tls
}

/// Sends what a session has to send.
async fn send(stream: &mut Pipe, tls: &mut ClientConnection) {
    let mut bytes = Vec::new();
    while tls.wants_write() {
        tls.write_tls(&mut bytes).expect("memory takes all");
    }
    stream.send(&bytes).await.expect("the server takes it");
}

/// Goal: what a TLS session takes is no progress of its client. Method: a small part arrives more
/// often than the limit, and nobody reads.
#[test]
fn a_client_that_never_reads_is_dropped_behind_tls() {
    driven().block_on(async {
        let (door, listener) = listen();
        let dropped = Dropped::default();
        let answers =
            AnswersParts { size: 1000, pauses: SECOND * 10, dropped: Arc::clone(&dropped) };
        drop(spawn(Server::new().tls(server_config()).serve(listener, answers)));
        let mut stream = door.connect();
        let mut tls = shake_hands(&mut stream).await;
        let ask = b"GET /parts HTTP/1.1\r\nhost: me\r\n\r\n";
        tls.writer().write_all(ask).expect("memory takes all");
        send(&mut stream, &mut tls).await;
        let start = Instant::now();
        sleep(SECOND * 100).await;
        // The pipe holds four parts.
        let dropped = dropped.lock().expect("it is dropped") - start;
        assert!((SECOND * 60..SECOND * 90).contains(&dropped), "{dropped:?}");
    });
}
