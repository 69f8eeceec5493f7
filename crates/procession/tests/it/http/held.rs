//! Clients that hold a connection or a response, although other bytes move on the connection.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::io::Write as _;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use hyper::body::{Body, Bytes, Frame};
use hyper::client::conn::http2;
use hyper::{Request, Response};
use procession::http::{Executor, RequestBody, Server};
use procession::sync::channel;
use procession::time::{Instant, Sleep};
use procession::{sleep, spawn};
use procession_sync::Mutex;
use rustls::ClientConnection;
use tower_service::Service;

use super::limits::hands_over;
use super::pipe::{Pipe, listen};
use super::protocols::{client_config, server_config};
use super::{collect, spawn_server};
use crate::scene::driven;

const SECOND: Duration = Duration::from_secs(1);

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
