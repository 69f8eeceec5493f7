//! A server for tower services.

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
use crate::scheduler::current;
use crate::{Context, Waiting, start};

mod sealed {
    pub trait Sealed {}
    impl Sealed for crate::net::TcpListener {}
    impl Sealed for crate::net::UnixListener {}
}

/// Where [`serve`] gets its connections from: [`TcpListener`] and [`UnixListener`].
pub trait Listener: sealed::Sealed + Sync {
    /// A connection.
    type Stream: hyper::rt::Read + hyper::rt::Write + Send + Unpin + 'static;

    /// Waits for the next.
    ///
    /// # Errors
    /// Those of the listener's own `accept`.
    fn next(&self) -> impl Future<Output = io::Result<Self::Stream>> + Send;
}

impl Listener for TcpListener {
    type Stream = TcpStream;

    async fn next(&self) -> io::Result<TcpStream> {
        let (stream, _) = self.accept().await?;
        // hyper writes whole answers. Refused, they come a little later.
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

/// A tower service as hyper calls it: a clone for each request, asked whether it is ready first.
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

/// Serves a tower service over HTTP/1.1, each connection in a process of its own, until the listener fails, or the process that calls this is
/// cancelled.
///
/// A connection's process that is cancelled, as all are at a [`shutdown`](crate::Scheduler::shutdown), answers the request that it has begun,
/// and ends. One that fails, or whose service panics, ends alone. The number of connections is bounded by the descriptors of this program and by
/// the scheduler's limit of processes: what is beyond waits in the backlog, or is closed. A client has 30 s to send the head of a request.
///
/// Dropping the future stops accepting; the connections go on.
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
///         std::future::ready(Ok(Response::new(format!("hello from {}", request.uri().path()))))
///     }
/// }
///
/// procession::run(async {
///     let listener = TcpListener::bind("127.0.0.1:0").await?;
///     let client = TcpStream::connect(listener.local_addr()?).await?;
///     drop(procession::spawn(procession::http::serve(listener, Hello)));
///     client.write_all(b"GET /here HTTP/1.1\r\nhost: me\r\nconnection: close\r\n\r\n").await?;
///     let mut answer = Vec::new();
///     futures_lite::AsyncReadExt::read_to_end(&mut &client, &mut answer).await?;
///     let answer = String::from_utf8_lossy(&answer);
///     assert!(answer.starts_with("HTTP/1.1 200 OK") && answer.ends_with("hello from /here"));
///     Ok::<(), std::io::Error>(())
/// })?;
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// # Errors
/// Those of the listener. They are not about descriptors that are wanting, for which it waits.
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
        // Detached; refused, the connection is closed.
        drop(start(|cx: Context<Infallible>| async move {
            let mut builder = http1::Builder::new();
            // A client that sends no more still waits for its answer.
            builder.timer(Timer).half_close(true);
            let mut connection = pin!(builder.serve_connection(stream, service));
            let mut cancelled = pin!(cx.cancelled());
            let mut is_told = false;
            // Ignored: what goes wrong between a client and the service is the business of the two.
            let _ = poll_fn(|task| {
                if !is_told && cancelled.as_mut().poll(task).is_ready() {
                    is_told = true;
                    connection.as_mut().graceful_shutdown();
                }
                connection.as_mut().poll(task)
            })
            .await;
        }));
    }
    Ok(())
}

/// A cancel wakes a process, whatever it waits for.
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
