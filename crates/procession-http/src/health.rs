//! The endpoints that a load balancer or an orchestrator asks.

use std::convert::Infallible;
use std::fmt;
use std::future::{self, Future, Ready};
use std::pin::Pin;
use std::task::{self, Poll, ready};

use hyper::body::{Body, Buf, Bytes, Frame, SizeHint};
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::{Method, Request, Response, StatusCode};
use pin_project_lite::pin_project;
use procession_runtime::Scheduler;
use procession_runtime::scheduler::Health;
use tower_service::Service;

/// A tower service that answers health checks, and passes all other requests to the service that it
/// wraps.
///
/// | request | answer |
/// |---|---|
/// | `GET /healthz` | 200 and `ok`, as long as the program can answer at all |
/// | `GET /readyz` | 200 and `ready`, or 503 and the reasons, one in each line |
///
/// [`Health::is_ready`] decides whether the program is ready. `HEAD` is answered like `GET`. In
/// Kubernetes, use `/healthz` as the path of a `livenessProbe`, and `/readyz` as the path of a
/// `readinessProbe`.
///
/// [`around`](Self::around) puts the checks before the service of a [`Server`](super::Server), such
/// as an axum `Router`. [`new`](Self::new) answers only the checks: use it on a separate port, or
/// as `route_service` of an axum `Router` that another server serves.
///
/// ```
/// use procession::http::{HealthChecks, Server};
/// use procession::net::{TcpListener, TcpStream};
///
/// procession::run(async {
///     let listener = TcpListener::bind("127.0.0.1:0").await?;
///     let client = TcpStream::connect(listener.local_addr()?).await?;
///     drop(procession::spawn(Server::new().serve(listener, HealthChecks::new())));
///     client.write_all(b"GET /readyz HTTP/1.1\r\nhost: me\r\nconnection: close\r\n\r\n").await?;
///     let mut response = Vec::new();
///     futures_lite::AsyncReadExt::read_to_end(&mut &client, &mut response).await?;
///     let response = String::from_utf8_lossy(&response);
///     assert!(response.starts_with("HTTP/1.1 200 OK") && response.ends_with("ready\n"));
///     Ok::<(), std::io::Error>(())
/// })?;
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct HealthChecks<S = NotFound> {
    service: S,
    /// `None` is the scheduler that serves the request.
    health: Option<Health>,
}

impl HealthChecks {
    /// Creates a service that answers health checks, and 404 to everything else.
    pub fn new() -> Self {
        Self::around(NotFound)
    }
}

impl Default for HealthChecks {
    fn default() -> Self {
        Self::new()
    }
}

impl<S> HealthChecks<S> {
    /// Puts health checks before a service. The service does not see their requests, and need not
    /// be ready for them.
    pub fn around(service: S) -> Self {
        Self { service, health: None }
    }

    /// Sets the scheduler that the checks report on. Default: the scheduler of the process or
    /// thread that serves the request.
    #[must_use]
    pub fn of(mut self, scheduler: &Scheduler) -> Self {
        self.health = Some(scheduler.health());
        self
    }

    /// Returns the answer to a health check, or `None` if the request is not a health check.
    fn answer<B, R>(&self, request: &Request<B>) -> Option<Response<HealthBody<R>>> {
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            return None;
        }
        let (status, text) = match request.uri().path() {
            "/healthz" => (StatusCode::OK, "ok".to_owned()),
            "/readyz" => {
                let health = self.health.clone().unwrap_or_else(Health::here);
                let reasons = health.reasons();
                match reasons.is_empty() {
                    true => (StatusCode::OK, "ready".to_owned()),
                    false => (StatusCode::SERVICE_UNAVAILABLE, reasons.join("\n")),
                }
            }
            _ => return None,
        };
        let text = Some(Bytes::from(text + "\n"));
        let mut response = Response::new(HealthBody::Text { text });
        *response.status_mut() = status;
        let plain = HeaderValue::from_static("text/plain; charset=utf-8");
        response.headers_mut().insert(CONTENT_TYPE, plain);
        Some(response)
    }
}

impl<S, B, R> Service<Request<B>> for HealthChecks<S>
where
    S: Service<Request<B>, Response = Response<R>> + Clone,
{
    type Response = Response<HealthBody<R>>;
    type Error = S::Error;
    type Future = HealthFuture<S, B, R>;

    /// Always ready, because a check must be answered even if the service is not ready.
    fn poll_ready(&mut self, _: &mut task::Context<'_>) -> Poll<Result<(), S::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        match self.answer(&request) {
            Some(response) => HealthFuture::Answer { response: Some(response) },
            None => HealthFuture::Waits { service: self.service.clone(), request: Some(request) },
        }
    }
}

pin_project! {
    /// The future of [`HealthChecks`].
    #[project = HealthFutureProjected]
    #[must_use = "futures do nothing unless awaited"]
    pub enum HealthFuture<S, B, R>
    where
        S: Service<Request<B>>,
    {
        #[doc(hidden)]
        Answer {
            // `None` once it was returned.
            response: Option<Response<HealthBody<R>>>,
        },
        // For the service to be ready.
        #[doc(hidden)]
        Waits {
            service: S,
            // `None` once the service has it.
            request: Option<Request<B>>,
        },
        #[doc(hidden)]
        Service {
            #[pin]
            future: S::Future,
        },
    }
}

impl<S, B, R> Future for HealthFuture<S, B, R>
where
    S: Service<Request<B>, Response = Response<R>>,
{
    type Output = Result<Response<HealthBody<R>>, S::Error>;

    fn poll(mut self: Pin<&mut Self>, task: &mut task::Context<'_>) -> Poll<Self::Output> {
        loop {
            let future = match self.as_mut().project() {
                HealthFutureProjected::Answer { response } => {
                    // A future that is polled after its end may do anything but unsound things.
                    return response
                        .take()
                        .map_or(Poll::Pending, |response| Poll::Ready(Ok(response)));
                }
                HealthFutureProjected::Waits { service, request } => {
                    ready!(service.poll_ready(task))?;
                    let Some(request) = request.take() else { return Poll::Pending };
                    service.call(request)
                }
                HealthFutureProjected::Service { future } => {
                    return future.poll(task).map(|result| {
                        result.map(|response| response.map(|body| HealthBody::Service { body }))
                    });
                }
            };
            self.set(HealthFuture::Service { future });
        }
    }
}

impl<S: Service<Request<B>>, B, R> fmt::Debug for HealthFuture<S, B, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HealthFuture").finish_non_exhaustive()
    }
}

pin_project! {
    /// The body of a response of [`HealthChecks`]: a text, or the answer of the service.
    #[project = HealthBodyProjected]
    pub enum HealthBody<R> {
        #[doc(hidden)]
        Text {
            // `None` once it was taken.
            text: Option<Bytes>,
        },
        #[doc(hidden)]
        Service {
            #[pin]
            body: R,
        },
    }
}

impl<R: Body> Body for HealthBody<R> {
    type Data = Bytes;
    type Error = R::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        task: &mut task::Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, R::Error>>> {
        match self.project() {
            HealthBodyProjected::Text { text } => Poll::Ready(text.take().map(Frame::data).map(Ok)),
            // Without a copy if the parts are `Bytes` already.
            HealthBodyProjected::Service { body } => body.poll_frame(task).map(|frame| {
                let bytes = |mut data: R::Data| data.copy_to_bytes(data.remaining());
                frame.map(|result| result.map(|frame| frame.map_data(bytes)))
            }),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Text { text } => text.is_none(),
            Self::Service { body } => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Text { text } => {
                SizeHint::with_exact(text.as_ref().map_or(0, |text| text.len() as u64))
            }
            Self::Service { body } => body.size_hint(),
        }
    }
}

impl<R> fmt::Debug for HealthBody<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HealthBody").finish_non_exhaustive()
    }
}

/// The service that knows no page: it answers 404.
#[derive(Clone, Copy, Debug, Default)]
pub struct NotFound;

impl<B> Service<Request<B>> for NotFound {
    type Response = Response<String>;
    type Error = Infallible;
    type Future = Ready<Result<Response<String>, Infallible>>;

    fn poll_ready(&mut self, _: &mut task::Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<B>) -> Self::Future {
        let mut response = Response::new("not found\n".to_owned());
        *response.status_mut() = StatusCode::NOT_FOUND;
        future::ready(Ok(response))
    }
}
