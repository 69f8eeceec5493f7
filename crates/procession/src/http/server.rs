//! The HTTP server for tower services.

use std::convert::Infallible;
use std::error::Error;
use std::future::{Future, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::task::Poll;

use hyper::body::{Body, Incoming};
use hyper::server::conn::http1;
use hyper::{Request, Response};
use tower_service::Service;

use super::Timer;
use crate::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use crate::process::wait_reason::Waiting;
use crate::scheduler::current;
use crate::{Context, start};

mod sealed {
    pub trait Sealed {}
    impl Sealed for crate::net::TcpListener {}
    impl Sealed for crate::net::UnixListener {}
}

/// A source of connections for [`serve`]: [`TcpListener`] or [`UnixListener`].
pub trait Listener: sealed::Sealed + Sync {
    /// A connection.
    type Stream: hyper::rt::Read + hyper::rt::Write + Send + Unpin + 'static;

    /// Waits for the next connection.
    ///
    /// # Errors
    /// Returns the errors of the listener's `accept`.
    fn next(&self) -> impl Future<Output = io::Result<Self::Stream>> + Send;
}

impl Listener for TcpListener {
    type Stream = TcpStream;

    async fn next(&self) -> io::Result<TcpStream> {
        let (stream, _) = self.accept().await?;
        // hyper writes complete responses, so holding data back gains nothing. If the system
        // refuses the option, responses arrive a little later.
        let _ = stream.set_nodelay(true);
        Ok(stream)
    }
}

impl Listener for UnixListener {
    type Stream = UnixStream;

    async fn next(&self) -> io::Result<UnixStream> {
        self.accept().await.map(|(stream, _)| stream)
    }
}

/// A tower service in the form that hyper calls. Each request gets a clone of the service, which is
/// polled for readiness first.
struct Called<S>(S);

impl<S, B> hyper::service::Service<Request<Incoming>> for Called<S>
where
    S: Service<Request<Incoming>, Response = Response<B>> + Clone + Send + 'static,
    S::Future: Send,
{
    type Response = Response<B>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Response<B>, S::Error>> + Send>>;

    fn call(&self, request: Request<Incoming>) -> Self::Future {
        let mut service = self.0.clone();
        Box::pin(async move {
            poll_fn(|task| service.poll_ready(task)).await?;
            service.call(request).await
        })
    }
}

/// Serves a tower service over HTTP/1.1, with one process per connection.
///
/// Returns once the listener fails or the calling process is asked to end. If the future is
/// dropped, as by a cancel of a process that was started by [`spawn`](crate::spawn()), no further
/// connections are accepted, and the open connections continue.
///
/// If the process of a connection is cancelled, it answers the request that it has begun and then
/// ends. A [`shutdown`](crate::Scheduler::shutdown) does this for all connections. A connection
/// that fails, or runs a service that panics, ends without an effect on others.
///
/// The number of connections is limited by the file descriptors of the program and by the process
/// limit of the scheduler. Without a descriptor, a connection waits in the backlog. Without a
/// process, it is closed. A client has 30 s to send the head of a request.
///
/// ```
/// use std::convert::Infallible;
/// use std::task::{Context, Poll};
/// use hyper::{Request, Response, body::Incoming};
/// use procession::net::{TcpListener, TcpStream};
///
/// #[derive(Clone)]
/// struct Hello;
///
/// impl tower_service::Service<Request<Incoming>> for Hello {
///     type Response = Response<String>;
///     type Error = Infallible;
///     type Future = std::future::Ready<Result<Response<String>, Infallible>>;
///
///     fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
///         Poll::Ready(Ok(()))
///     }
///
///     fn call(&mut self, request: Request<Incoming>) -> Self::Future {
///         let path = request.uri().path();
///         std::future::ready(Ok(Response::new(format!("hello from {path}"))))
///     }
/// }
///
/// procession::run(async {
///     let listener = TcpListener::bind("127.0.0.1:0").await?;
///     let client = TcpStream::connect(listener.local_addr()?).await?;
///     drop(procession::spawn(procession::http::serve(listener, Hello)));
///     client.write_all(b"GET /page HTTP/1.1\r\nhost: me\r\nconnection: close\r\n\r\n").await?;
///     let mut response = Vec::new();
///     futures_lite::AsyncReadExt::read_to_end(&mut &client, &mut response).await?;
///     let response = String::from_utf8_lossy(&response);
///     assert!(response.starts_with("HTTP/1.1 200 OK") && response.ends_with("hello from /page"));
///     Ok::<(), std::io::Error>(())
/// })?;
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// # Errors
/// Returns the errors of the listener. A lack of file descriptors is not an error; `serve` waits
/// until there is one.
pub async fn serve<L, S, B>(listener: L, service: S) -> io::Result<()>
where
    L: Listener,
    S: Service<Request<Incoming>, Response = Response<B>> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Into<Box<dyn Error + Send + Sync>>,
    B: Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    while let Some(stream) = next_unless_cancelled(&listener).await? {
        let service = Called(service.clone());
        // The process is detached. If it is refused, the connection is closed.
        drop(start(|cx: Context<Infallible>| async move {
            let mut builder = http1::Builder::new();
            // A client that has shut down its write direction still gets its response.
            builder.timer(Timer).half_close(true);
            let mut connection = pin!(builder.serve_connection(stream, service));
            let mut cancelled = pin!(cx.cancelled());
            let mut was_told = false;
            // Ignored: an error of one connection concerns only its client and the service.
            let _ = poll_fn(|task| {
                if !was_told && cancelled.as_mut().poll(task).is_ready() {
                    was_told = true;
                    connection.as_mut().graceful_shutdown();
                }
                connection.as_mut().poll(task)
            })
            .await;
        }));
    }
    Ok(())
}

/// Returns the next connection, or `None` once this process is cancelled. A cancel wakes a process
/// no matter what it waits for.
async fn next_unless_cancelled<L: Listener>(listener: &L) -> io::Result<Option<L::Stream>> {
    let mut next = pin!(listener.next());
    poll_fn(|task| {
        if current::current().is_some_and(|slot| slot.state.is_cancelled()) {
            return Poll::Ready(Ok(None));
        }
        let polled = next.as_mut().poll(task);
        current::note_waiting(Waiting::CANCEL);
        polled.map_ok(Some)
    })
    .await
}
