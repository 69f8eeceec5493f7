//! hyper on processes, and the I/O traits of other crates.

mod drain;
mod gone;
mod health;
mod held;
mod limits;
mod pipe;
mod priorities;
mod protocols;
#[cfg(feature = "client")]
mod trace;

use crate::home::mpsc;
use std::convert::Infallible;
use std::future::{Future, Ready, poll_fn, ready};
use std::io;
use std::net::Shutdown;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_lite::AsyncReadExt;
use hyper::body::{Body, Buf};
use hyper::rt::{Executor as _, Timer as _};
use hyper::{Request, Response};
use procession::http::{Executor, RequestBody, Timer, serve};
use procession::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use procession::process::{OnCancel, current_pid};
use procession::time::Instant;
use procession::{JoinHandle, Scheduler, SpawnOptions, yield_now};
use tower_service::Service;

use crate::scene::{driven, panic_quietly, soon, threaded};

/// A service that answers with the path. A request for `/panic` panics.
#[derive(Clone)]
struct Paths;

impl Service<Request<RequestBody>> for Paths {
    type Response = Response<String>;
    type Error = Infallible;
    type Future = Ready<Result<Response<String>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<RequestBody>) -> Self::Future {
        match request.uri().path() {
            "/panic" => panic_quietly("asked to"),
            path => ready(Ok(Response::new(path.to_owned()))),
        }
    }
}

/// A service for requests of a [`Server`](procession::http::Server).
trait Answers:
    Service<Request<RequestBody>, Response = Response<String>, Error = Infallible, Future: Send>
    + Clone
    + Send
    + 'static
{
}

/// A service that is a function.
#[derive(Clone)]
struct Function<F>(F);

/// The future of a [`Function`].
type Answering = Pin<Box<dyn Future<Output = Result<Response<String>, Infallible>> + Send>>;

/// Spawns a server that drains if it is cancelled.
fn spawn_server<F>(server: F) -> JoinHandle<F::Output>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    SpawnOptions::new().on_cancel(OnCancel::Ask).spawn(server)
}

fn service<F, A>(function: F) -> impl Answers<Future = Answering>
where
    F: Fn(Request<RequestBody>) -> A + Clone + Send + 'static,
    A: Future<Output = String> + Send + 'static,
{
    Function(function)
}

impl<F, A> Service<Request<RequestBody>> for Function<F>
where
    F: Fn(Request<RequestBody>) -> A + Clone + Send + 'static,
    A: Future<Output = String> + Send + 'static,
{
    type Response = Response<String>;
    type Error = Infallible;
    type Future = Answering;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<RequestBody>) -> Self::Future {
        let answer = (self.0)(request);
        Box::pin(async move { Ok(Response::new(answer.await)) })
    }
}

impl<F, A> Answers for Function<F>
where
    F: Fn(Request<RequestBody>) -> A + Clone + Send + 'static,
    A: Future<Output = String> + Send + 'static,
{
}

/// Returns the bytes of a body.
async fn collect<B: Body + Unpin>(mut body: B) -> Result<Vec<u8>, B::Error> {
    let mut bytes = Vec::new();
    while let Some(frame) = poll_fn(|task| Pin::new(&mut body).poll_frame(task)).await {
        if let Ok(mut data) = frame?.into_data() {
            let count = data.remaining();
            data.copy_to_slice({
                bytes.resize(bytes.len() + count, 0);
                let begin = bytes.len() - count;
                &mut bytes[begin..]
            });
        }
    }
    Ok(bytes)
}

async fn serving(scheduler: &Scheduler) -> std::net::SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("there are free ports");
    let address = listener.local_addr().expect("it is bound");
    drop(scheduler.spawn(serve(listener, Paths)));
    address
}

/// Asks for a path. Returns the answer, head and body.
async fn ask(stream: &TcpStream, path: &str) -> io::Result<String> {
    stream.write_all(format!("GET {path} HTTP/1.1\r\nhost: me\r\n\r\n").as_bytes()).await?;
    let mut answer = Vec::new();
    while !answer.ends_with(path.as_bytes()) {
        let mut part = [0; 256];
        match stream.read(&mut part).await? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            count => answer.extend(&part[..count]),
        }
    }
    Ok(String::from_utf8_lossy(&answer).into_owned())
}

#[test]
fn a_tower_service_is_served_on_any_scheduler() {
    for scheduler in [threaded(2), driven()] {
        scheduler.block_on(async {
            let address = serving(&scheduler).await;
            let clients: Vec<_> = (0..20)
                .map(|client| {
                    scheduler.spawn(async move {
                        let stream =
                            TcpStream::connect(address).await.expect("the listener is open");
                        for request in 0..10 {
                            let path = format!("/{client}/{request}");
                            let answer = ask(&stream, &path).await.expect("it is answered");
                            assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
                        }
                    })
                })
                .collect();
            for client in clients {
                client.await.expect("it does not panic");
            }
        });
    }
}

#[test]
fn a_panic_of_the_service_ends_one_connection() {
    threaded(2).block_on(async {
        let scheduler = threaded(2);
        let address = serving(&scheduler).await;
        let (well, ill) = (TcpStream::connect(address).await, TcpStream::connect(address).await);
        let (well, ill) = (well.expect("the listener is open"), ill.expect("the listener is open"));
        ask(&ill, "/panic").await.expect_err("it is closed");
        ask(&well, "/well").await.expect("it is answered");
    });
}

/// Answers after other processes had their turn, so that the connection has seen the end of its
/// input by then.
#[derive(Clone)]
struct Late;

impl Service<Request<RequestBody>> for Late {
    type Response = Response<String>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<String>, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<RequestBody>) -> Self::Future {
        Box::pin(async {
            for _ in 0..20 {
                yield_now().await;
            }
            Ok(Response::new("late".to_owned()))
        })
    }
}

#[test]
fn a_client_that_has_closed_its_half_is_answered() {
    threaded(1).block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("there are free ports");
        let address = listener.local_addr().expect("it is bound");
        drop(procession::spawn(serve(listener, Late)));
        for _ in 0..20 {
            let mut stream = TcpStream::connect(address).await.expect("the listener is open");
            stream.write_all(b"GET / HTTP/1.1\r\nhost: me\r\n\r\n").await.expect("it is connected");
            stream.shutdown(Shutdown::Write).expect("it is connected");
            let mut answer = String::new();
            stream.read_to_string(&mut answer).await.expect("it is answered");
            assert!(answer.ends_with("late"), "{answer}");
        }
    });
}

#[test]
fn a_shutdown_ends_connections_that_ask_nothing() {
    let (server, client) = (threaded(2), threaded(1));
    let stream = client.block_on(async {
        let address = serving(&server).await;
        let stream = TcpStream::connect(address).await.expect("the listener is open");
        ask(&stream, "/before").await.expect("it is answered");
        stream
    });
    // No process must be terminated, for which the shutdown would keep back the last 100 ms.
    let hour = Duration::from_secs(3600);
    assert!(client.block_on(server.shutdown(hour)).is_empty());
    assert_eq!(client.block_on(stream.read(&mut [0])).expect("it was closed in order"), 0);
}

#[test]
fn hyper_runs_on_processes_and_in_test_time() {
    let scheduler = driven();
    let (told, tells) = mpsc::channel();
    scheduler.block_on(async {
        Executor.execute(async move { told.send(current_pid()).expect("the test listens") });
        let start = Instant::now();
        let mut sleep = Timer.sleep(Duration::from_secs(60));
        let began = Timer.now();
        Timer.reset(&mut sleep, began + Duration::from_secs(90));
        sleep.await;
        assert_eq!(Instant::now() - start, Duration::from_secs(90));
        assert_eq!(Timer.now() - began, Duration::from_secs(90));
        Timer.sleep_until(began + Duration::from_secs(100)).await;
        assert_eq!(Instant::now() - start, Duration::from_secs(100));
    });
    assert!(soon(&tells).is_some(), "it is a process");
}

#[test]
fn unix_streams_are_served_too() {
    let path = std::env::temp_dir().join(format!("procession-http-{}", std::process::id()));
    threaded(1).block_on(async {
        let listener = UnixListener::bind(&path).expect("the path is free");
        drop(procession::spawn(serve(listener, Paths)));
        let mut stream = UnixStream::connect(&path).await.expect("the listener is open");
        let request = b"GET /unix HTTP/1.1\r\nhost: me\r\nconnection: close\r\n\r\n";
        stream.write_all(request).await.expect("it is connected");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.expect("it is answered");
        assert!(answer.ends_with("/unix"), "{answer}");
    });
    std::fs::remove_file(&path).expect("it is there");
}

/// Written by hand, since tokio's extension traits belong to features of its runtime.
#[test]
fn streams_have_the_traits_of_tokio() {
    use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

    threaded(1).block_on(async {
        let (mut one, mut other) = UnixStream::pair().expect("the system has descriptors");
        assert!(one.is_write_vectored());
        let mut written = 0;
        while written < 6 {
            let rest = &b"tokio!"[written..];
            written += poll_fn(|task| AsyncWrite::poll_write(Pin::new(&mut one), task, rest))
                .await
                .expect("there is room");
        }
        poll_fn(|task| AsyncWrite::poll_flush(Pin::new(&mut one), task))
            .await
            .expect("nothing is held back");
        poll_fn(|task| AsyncWrite::poll_shutdown(Pin::new(&mut one), task))
            .await
            .expect("it is connected");
        let mut memory = [std::mem::MaybeUninit::uninit(); 64];
        let mut buffer = ReadBuf::uninit(&mut memory);
        loop {
            let before = buffer.filled().len();
            poll_fn(|task| AsyncRead::poll_read(Pin::new(&mut other), task, &mut buffer))
                .await
                .expect("it is connected");
            if buffer.filled().len() == before {
                break;
            }
        }
        assert_eq!(buffer.filled(), b"tokio!");
    });
}
