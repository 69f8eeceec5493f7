//! One connection: its service, its protocol, its time limits and its end.
//!
//! # Rejected
//! `server::conn::auto` and `GracefulShutdown` of hyper-util, instead of `Protocol` and
//! `preface`:
//! - If a connection of `auto` is asked to end while it waits for the first bytes, it fails, so a
//!   request that is in its socket is lost. Here the request is answered.
//! - `auto` does not tell which protocol it has found. The time limits differ for the two, and so
//!   does what a response says at the end.
//! - `GracefulShutdown` is a `watch` of tokio, in every program that serves. A cancel of the
//!   process of a connection has the same effect, and also reaches a service that runs for long.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Poll, ready};
use std::time::Duration;

use hyper::body::{Body, Incoming};
use hyper::header::{CONNECTION, HOST, HeaderValue};
use hyper::rt::{Read, Write};
use hyper::server::conn::http1;
use hyper::{Request, Response, StatusCode, Version};
use procession_runtime::inner::{OwnProcess, poll_last};
use procession_runtime::process::Priority;
use procession_runtime::relations::kill;
use procession_runtime::request::scope;
use procession_runtime::time::{Instant, Sleep, sleep_until};
use procession_runtime::yield_now;
use tower_service::Service;

use super::body::{RequestBody, ResponseBody};
use super::limits::{RECEIVING_LOOK_EVERY, ServerLimits, farewell, grace};
use super::linger::linger;
use super::stream::SharedStream;
#[cfg(feature = "http2")]
use super::watch::StreamWork;
use super::watch::{Begun, ConnectionWatch};
use super::{BoxError, Peer, Settings, is_told};
use crate::{Error, Timer, trace};

/// A tower service in the form that hyper calls. Each request gets a clone of the service, which is
/// polled for readiness first.
pub(super) struct Called<S> {
    service: S,
    settings: Arc<Settings>,
    peer: Option<Peer>,
    watch: Arc<ConnectionWatch>,
}

impl<S, B> hyper::service::Service<Request<Incoming>> for Called<S>
where
    S: Service<Request<RequestBody>, Response = Response<B>> + Clone + Send + 'static,
    S::Future: Send,
    B: Body,
{
    type Response = Response<ResponseBody<B>>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, S::Error>> + Send>>;

    fn call(&self, request: Request<Incoming>) -> Self::Future {
        let mut begun = Begun::new(&self.watch);
        if !has_valid_host(&request) {
            return Box::pin(async { Ok(refusal(begun)) });
        }
        let watch = Arc::clone(&self.watch);
        let mut service = self.service.clone();
        let limits = &self.settings.limits;
        let mut request = request.map(|body| RequestBody::new(body, limits, &self.watch));
        let (info, peer) = (self.settings.connect_info.clone(), self.peer);
        let priority = self.settings.priority.clone();
        if !self.settings.upgrades {
            request.extensions_mut().remove::<hyper::upgrade::OnUpgrade>();
        }
        let context = trace::context(request.headers());
        let answered = async move {
            // The user's functions are called here, because their panic would end all requests of
            // an HTTP/2 connection in the process of the connection.
            let (mut head, body) = request.into_parts();
            if let (Some(info), Some(peer)) = (info, peer) {
                info(peer, &mut head.extensions);
            }
            let priority = priority.map_or(Priority::Normal, |of| of(&head));
            let request = Request::from_parts(head, body);
            if priority != Priority::Normal {
                begun.set_priority(priority);
                // The step that calls the service has the priority.
                yield_now().await;
            }
            poll_fn(|task| service.poll_ready(task)).await?;
            let mut response = service.call(request).await?;
            let stays = response.status() == StatusCode::SWITCHING_PROTOCOLS;
            if watch.is_ending() && !watch.is_multiplexed && !stays {
                response.headers_mut().append(CONNECTION, HeaderValue::from_static("close"));
            }
            Ok(response.map(|body| ResponseBody::new(body, begun)))
        };
        match context {
            Some(context) => Box::pin(scope(context, answered)),
            None => Box::pin(answered),
        }
    }
}

/// Returns `true` if a request names its host as RFC 9112 (section 3.2) demands: exactly once in
/// HTTP/1.1. HTTP/1.0 has no such field, and HTTP/2 names the host elsewhere, so there it may be
/// missing. A request with two hosts is refused, because two servers could each read a different
/// host, and treat the request in two ways.
fn has_valid_host(request: &Request<Incoming>) -> bool {
    let hosts = request.headers().get_all(HOST).iter().count();
    hosts == 1 || hosts == 0 && request.version() != Version::HTTP_11
}

/// Returns the answer to a request that is not valid. The bytes behind the request are not trusted
/// either, so the connection ends.
fn refusal<B>(begun: Begun) -> Response<ResponseBody<B>> {
    let is_multiplexed = begun.is_multiplexed();
    let mut response = Response::new(ResponseBody::empty(begun));
    *response.status_mut() = StatusCode::BAD_REQUEST;
    if !is_multiplexed {
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

/// A connection of one protocol of hyper.
trait Protocol: Future<Output = hyper::Result<()>> {
    /// Lets the connection end once the requests that have begun are answered.
    fn end(self: Pin<&mut Self>);
}

impl<I, S, B> Protocol for http1::UpgradeableConnection<I, S>
where
    S: hyper::service::HttpService<Incoming, ResBody = B>,
    S::Error: Into<BoxError>,
    I: Read + Write + Unpin + Send + 'static,
    B: Body + 'static,
    B::Error: Into<BoxError>,
{
    fn end(self: Pin<&mut Self>) {
        self.graceful_shutdown();
    }
}

#[cfg(feature = "http2")]
impl<I, S, B, E> Protocol for hyper::server::conn::http2::Connection<I, S, E>
where
    S: hyper::service::HttpService<Incoming, ResBody = B>,
    S::Error: Into<BoxError>,
    I: Read + Write + Unpin,
    B: Body + 'static,
    B::Error: Into<BoxError>,
    E: hyper::rt::bounds::Http2ServerConnExec<S::Future, B>,
{
    fn end(self: Pin<&mut Self>) {
        self.graceful_shutdown();
    }
}

/// Runs the futures of an HTTP/2 connection as processes, and counts them.
#[cfg(feature = "http2")]
#[derive(Clone)]
struct CountingExecutor {
    watch: Arc<ConnectionWatch>,
    connection: Option<OwnProcess>,
}

#[cfg(feature = "http2")]
impl<F> hyper::rt::Executor<F> for CountingExecutor
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    fn execute(&self, future: F) {
        let work = StreamWork::new(&self.watch, self.connection.clone());
        crate::Executor.execute(async move {
            let output = future.await;
            work.finish();
            output
        });
    }
}

/// Serves a connection until its end. `ahead` are bytes that were read from it already, since the
/// connection `began`.
pub(super) async fn converse<I, S, B>(
    settings: Arc<Settings>,
    stream: I,
    ahead: Vec<u8>,
    is_http2: bool,
    began: Instant,
    peer: Option<Peer>,
    service: S,
) -> Result<(), Error>
where
    I: Read + Write + Unpin + Send + 'static,
    S: Service<Request<RequestBody>, Response = Response<B>> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Into<BoxError>,
    B: Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<BoxError>,
{
    let watch = Arc::new(ConnectionWatch::new(is_http2));
    let stream = SharedStream::new(stream, ahead, Arc::clone(&watch), settings.limits.write);
    let ended = talk(&settings, &stream, &watch, began, peer, service).await;
    // There is nothing to say to a client after a timeout, or to a client that has had its answers
    // for long.
    let is_over = ended.as_ref().map_or_else(Error::is_timeout, |end| *end == ConnectionEnd::Quiet);
    if !is_over && let Some(stream) = stream.into_inner() {
        linger(stream).await;
    }
    ended.map(drop)
}

/// Reports to a shutdown which requests are lost if the process of a connection is ended.
struct CutOff<'a> {
    /// `None` once the connection has ended in its own way.
    own: Option<OwnProcess>,
    watch: &'a ConnectionWatch,
}

impl Drop for CutOff<'_> {
    fn drop(&mut self) {
        let unanswered = self.watch.cut_off();
        // A panic of the service is a separate failure, with its own report.
        if let Some(own) = &self.own
            && unanswered > 0
            && !std::thread::panicking()
        {
            own.note_cut_off(unanswered);
        }
    }
}

/// Runs the protocol of a connection until its end.
async fn talk<I, S, B>(
    settings: &Arc<Settings>,
    stream: &SharedStream<I>,
    watch: &Arc<ConnectionWatch>,
    began: Instant,
    peer: Option<Peer>,
    service: S,
) -> Result<ConnectionEnd, Error>
where
    I: Read + Write + Unpin + Send + 'static,
    S: Service<Request<RequestBody>, Response = Response<B>> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Into<BoxError>,
    B: Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<BoxError>,
{
    let limits = &settings.limits;
    let called = Called { service, settings: Arc::clone(settings), peer, watch: Arc::clone(watch) };
    #[cfg(feature = "http2")]
    if watch.is_multiplexed {
        let connection = OwnProcess::get();
        let executor = CountingExecutor { watch: Arc::clone(watch), connection };
        let mut builder = hyper::server::conn::http2::Builder::new(executor);
        let head_bytes = u32::try_from(limits.head_bytes).unwrap_or(u32::MAX);
        builder.timer(Timer).max_header_list_size(head_bytes);
        if settings.upgrades {
            builder.enable_connect_protocol();
        }
        let connection = builder.serve_connection(stream.share(), called);
        return run(connection, stream, watch, limits, began).await;
    }
    let mut builder = http1::Builder::new();
    builder
        .timer(Timer)
        // `PhaseClock` watches the time limit for a head. It sets no timer for each request.
        .header_read_timeout(None)
        .max_header_size(limits.head_bytes)
        // A client that has shut down its write direction still gets its response. hyper then does
        // not read while a request is under way, so `SharedStream::look` does.
        .half_close(true);
    let connection = builder.serve_connection(stream.share(), called).with_upgrades();
    run(connection, stream, watch, limits, began).await
}

/// What a connection waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// For the rest of the head of a request.
    Head,
    /// For a request.
    Idle,
    /// For the service, for the client to read the response, or for an upgraded stream of HTTP/2.
    Busy,
    /// The same for a client that has closed its half of the connection. It may be gone.
    HalfClosed,
    /// For the rest of the body of a request, after the response is complete.
    Receiving,
}

/// The progress of a connection towards its end, once it was asked to end or its idle time is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ending {
    Open,
    /// The server ends, and the next request is the last one.
    Grace,
    /// A request may have arrived that the connection does not know of.
    LastTry,
    /// A part of a head has arrived.
    Head,
    /// hyper ends the connection after the requests that have begun.
    Told,
}

/// How a connection has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ConnectionEnd {
    /// The client may still send something, or have an answer to read.
    Open,
    /// There was no request.
    Quiet,
}

/// The time limit of the present phase.
struct PhaseClock<'a> {
    watch: &'a ConnectionWatch,
    limits: &'a ServerLimits,
    /// When the connection began.
    began: Instant,
    phase: Option<Phase>,
    ending: Ending,
    /// The requests that had begun when the phase did.
    begun: u32,
    /// The bytes written when the phase began, or when the limit was reached the last time.
    written: u64,
    limit: Option<Duration>,
}

impl PhaseClock<'_> {
    fn phase(&self) -> Phase {
        let requests = self.watch.requests();
        if requests.active > 0 && self.watch.is_half_closed() {
            Phase::HalfClosed
        } else if requests.active > 0 || self.watch.is_unread() {
            Phase::Busy
        } else if self.watch.is_receiving() {
            Phase::Receiving
        } else if !self.watch.is_multiplexed && (self.watch.is_heard() || requests.begun == 0) {
            Phase::Head
        } else {
            Phase::Idle
        }
    }

    fn limit_of(&self, phase: Phase) -> Option<Duration> {
        let is_told = self.ending == Ending::Told;
        match phase {
            Phase::Head | Phase::Idle if self.ending == Ending::Grace => Some(grace()),
            Phase::Head if self.ending == Ending::Open => self.limits.head,
            Phase::Head => Some(self.limits.head.map_or(farewell(), |limit| limit.min(farewell()))),
            Phase::Idle if is_told && self.watch.is_multiplexed => Some(farewell()),
            // A stream that takes no bytes has the limit of writes.
            Phase::Idle if is_told => None,
            Phase::Idle => self.limits.idle,
            // The window of a response may be full while the stream takes bytes. The end of a
            // request does not wake the connection, so without that limit, it looks again as well.
            Phase::Busy if self.watch.is_multiplexed => self.limits.write.or(self.limits.idle),
            Phase::Busy => None,
            Phase::HalfClosed => self.limits.half_close,
            // The body has limits of its own.
            Phase::Receiving => Some(RECEIVING_LOOK_EVERY),
        }
    }

    /// Begins the time limit of a new phase or of the next request.
    fn look(&mut self, sleep: Pin<&mut Sleep>) {
        let (phase, begun) = (self.phase(), self.watch.requests().begun);
        // A further request does not restart the time of a response that nobody reads.
        if self.phase == Some(phase) && (phase == Phase::Busy || self.begun == begun) {
            return;
        }
        (self.phase, self.begun) = (Some(phase), begun);
        self.begin(phase, sleep);
    }

    fn begin(&mut self, phase: Phase, sleep: Pin<&mut Sleep>) {
        self.written = self.watch.written();
        self.limit = self.limit_of(phase);
        if let Some(limit) = self.limit {
            // The first bytes may have shown the version, and have taken a part of the time.
            let is_first = phase == Phase::Head && self.begun == 0 && self.ending == Ending::Open;
            sleep.reset(if is_first { self.began } else { Instant::now() } + limit);
        }
    }

    /// Decides what it means that the time limit was reached.
    fn reached(&mut self, sleep: Pin<&mut Sleep>) -> Result<(), Error> {
        let phase = self.phase();
        let is_next_head = phase == Phase::Head && self.begun != self.watch.requests().begun;
        if self.phase != Some(phase) || is_next_head {
            // A request of HTTP/2 has ended in its own process, or the last try has found the head.
            self.look(sleep);
            return Ok(());
        }
        match phase {
            Phase::Head | Phase::Idle if self.ending == Ending::Grace => self.try_last(),
            Phase::Head => return Err(Error::timed_out("the head of a request did not arrive")),
            // Whatever was written to the client meanwhile, such as answers to its pings.
            Phase::Idle if self.ending == Ending::Told => {
                return Err(Error::timed_out("the client did not end the connection"));
            }
            Phase::Idle => self.try_last(),
            Phase::Busy => {
                // If the process has ended, only the connection has the rest of the response.
                if let Some(limit) = self.limits.write
                    && !self.watch.take_unread(limit).into_iter().all(kill)
                {
                    return Err(Error::timed_out("the client did not read the response"));
                }
            }
            Phase::Receiving => {}
            // While the service reads a large body that the client has left, it cannot answer.
            Phase::HalfClosed => {
                let has_written = self.watch.written() > self.written;
                if !has_written && !self.watch.take_read() {
                    return Err(Error::timed_out("a half-closed client was not answered"));
                }
            }
        }
        if self.ending != Ending::LastTry {
            self.begin(phase, sleep);
        }
        Ok(())
    }

    /// Lets the connection end, unless a request has arrived. An HTTP/2 connection takes requests
    /// until its client has confirmed the end, so it needs no last try. A client that sends other
    /// frames without a pause would put that off.
    fn try_last(&mut self) {
        self.watch.end();
        self.ending = if self.watch.is_multiplexed { Ending::Head } else { Ending::LastTry };
        self.limit = None;
    }

    /// Begins the end of a connection after its process was asked to end.
    fn ask(&mut self) {
        if self.watch.is_multiplexed || self.watch.is_busy() {
            // The protocol announces the end to the client.
            return self.try_last();
        }
        self.watch.end();
        self.ending = Ending::Grace;
        self.phase = None;
    }
}

/// Polls a connection to its end. It ends in order if the running process is cancelled.
async fn run<I: Read + Unpin + 'static>(
    connection: impl Protocol,
    stream: &SharedStream<I>,
    watch: &ConnectionWatch,
    limits: &ServerLimits,
    began: Instant,
) -> Result<ConnectionEnd, Error> {
    let own = OwnProcess::get();
    let mut connection = pin!(connection);
    // Behind the connection, so that it is dropped while the requests still count.
    let mut cut_off = CutOff { own: own.clone(), watch };
    let mut sleep = pin!(sleep_until(Instant::NEVER));
    let (phase, ending) = (None, Ending::Open);
    let (begun, written, limit) = (0, 0, None);
    let mut clock = PhaseClock { watch, limits, began, phase, ending, begun, written, limit };
    let ended = poll_fn(|task| {
        // Asked first: the answer to a request that this poll finds says that it is the last one.
        if clock.ending == Ending::Open && own.as_ref().is_some_and(|own| own.is_cancelled()) {
            clock.ask();
        }
        let end =
            |ended: hyper::Result<()>, end| Poll::Ready(ended.map(|()| end).map_err(Error::from));
        if let Poll::Ready(ended) = connection.as_mut().poll(task) {
            return end(ended, ConnectionEnd::Open);
        }
        loop {
            if !watch.is_multiplexed && watch.requests().active > 0 {
                stream.look(task).map_err(|cause| Error::io("answer a request", cause))?;
            }
            if clock.ending == Ending::Open && is_told(own.as_ref(), task) {
                clock.ask();
            }
            if clock.ending == Ending::LastTry {
                let polled = poll_last(task, |task| connection.as_mut().poll(task));
                if let Some(ended) = ready!(polled) {
                    return end(ended, ConnectionEnd::Open);
                }
                clock.ending = Ending::Head;
                // From here on, the limits of a connection that ends hold.
                clock.phase = None;
            }
            let waits_for_head = watch.is_heard() && clock.phase() == Phase::Head;
            let is_begun = waits_for_head || watch.is_busy();
            if clock.ending == Ending::Grace && is_begun {
                clock.ending = Ending::Head;
                clock.phase = None;
            }
            if clock.ending == Ending::Head && !waits_for_head {
                clock.ending = Ending::Told;
                clock.phase = None;
                let is_quiet = !watch.is_multiplexed && !watch.is_busy();
                let kind = if is_quiet { ConnectionEnd::Quiet } else { ConnectionEnd::Open };
                connection.as_mut().end();
                if let Poll::Ready(ended) = connection.as_mut().poll(task) {
                    return end(ended, kind);
                }
            }
            clock.look(sleep.as_mut());
            if clock.limit.is_none() || sleep.as_mut().poll(task).is_pending() {
                return Poll::Pending;
            }
            if clock.phase() == Phase::Head {
                // The head may be there, and nothing has noted it yet.
                let polled = poll_last(task, |task| connection.as_mut().poll(task));
                if let Some(ended) = ready!(polled) {
                    return end(ended, ConnectionEnd::Open);
                }
            }
            clock.reached(sleep.as_mut())?;
        }
    })
    .await;
    cut_off.own = None;
    // If the stream was handed over, it belongs to another process.
    watch.upgrade();
    ended
}
