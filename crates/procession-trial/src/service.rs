//! The service on trial: HTTP/1.1, with one process for each connection under a supervisor, and one
//! process that owns the count of requests.

use std::convert::Infallible;
use std::future::poll_fn;
use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::Duration;

use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use procession::net::{TcpListener, TcpStream};
use procession::observe::{DoorOptions, ExitReport};
use procession::process::{Named, exit, whereis};
use procession::supervisor::{
    ChildError, ChildSpec, Running, Stop, Supervisor, SupervisorRef, Template,
};
use procession::{CallError, Context, Exit, Reply, Scheduler};
use procession_sync::Arc;
use std::task::Poll;

use crate::door::build_with_door;
use crate::error::TrialError;
use crate::faults;

/// The request that the clients send, and the request that the service does not foresee.
pub(crate) const WORK: &str = "/work";
pub(crate) const FAULT: &str = "/fault";

const COUNTER: &str = "counter";
const CONNECTIONS: &str = "connections";

/// The time that a request waits for its number, before the client receives the answer that the
/// service is not available. The answer takes microseconds.
const NUMBER_TIMEOUT: Duration = Duration::from_secs(5);
/// The time that a client may take to send the head of its request.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);

/// Numbers of requests that have begun, counted by the process that owns them.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Begun {
    /// Requests for work.
    pub(crate) work: u64,
    /// Requests that panic.
    pub(crate) faults: u64,
    /// All other requests to the address.
    pub(crate) others: u64,
}

impl Begun {
    fn all(self) -> u64 {
        self.work + self.faults + self.others
    }
}

enum Kind {
    Work,
    Fault,
    Other,
}

struct Visit(Kind, Reply<u64>);

pub(crate) struct Service {
    pub(crate) scheduler: Scheduler,
    pub(crate) address: SocketAddr,
    /// Receives the count when the counter ends.
    begun: Receiver<Begun>,
    _tree: Running,
}

impl Service {
    /// Starts the service, on its own scheduler.
    pub(crate) fn start(
        listen: &str,
        max_threads: usize,
        timeout: Duration,
    ) -> Result<Self, TrialError> {
        let builder = || {
            let builder = Scheduler::builder().name("service").max_threads(max_threads);
            builder.on_exit(report_unexpected)
        };
        let scheduler = build_with_door(builder, DoorOptions::default().tcp(0));
        let scheduler =
            scheduler.map_err(|cause| TrialError::runtime("start a scheduler", cause))?;
        let cannot_bind = |cause| TrialError::System { act: format!("listen on {listen}"), cause };
        let listener = scheduler.block_on(TcpListener::bind(listen)).map_err(cannot_bind)?;
        let address = listener.local_addr().map_err(cannot_bind)?;
        let (tells, begun) = mpsc::channel();
        let tree = scheduler.block_on(tree(listener, tells, timeout).try_start());
        let tree = tree.map_err(|cause| TrialError::runtime("start the service", cause))?;
        Ok(Self { scheduler, address, begun, _tree: tree })
    }

    /// Returns the count of the counter. Call it after the counter has ended.
    pub(crate) fn begun(&self) -> Option<Begun> {
        self.begun.try_iter().last()
    }
}

/// Reports a process that fails, unless the trial intends the failure. There are thousands of
/// intended failures, and the ledger counts them.
fn report_unexpected(report: &ExitReport) {
    if !matches!(&report.exit, Exit::Panicked(text) if text.starts_with(faults::FAILURE)) {
        // Ignored: the exit code must do if standard error is closed.
        drop(writeln!(io::stderr(), "procession: {report}"));
    }
}

/// The tree ends in reverse order: first the acceptor of connections, then the open connections,
/// then the counter that they ask.
fn tree(listener: TcpListener, tells: Sender<Begun>, timeout: Duration) -> Supervisor {
    let listener = Arc::new(listener);
    let counter = ChildSpec::new(COUNTER, move |cx| count(cx, tells.clone())).name(COUNTER);
    let connections = ChildSpec::supervisor(CONNECTIONS, Supervisor::dynamic()).name(CONNECTIONS);
    let acceptor = ChildSpec::new("acceptor", move |cx| accept(cx, Arc::clone(&listener), timeout));
    Supervisor::rest_for_one().child(counter).child(connections).child(acceptor)
}

async fn count(mut cx: Context<Visit>, tells: Sender<Begun>) {
    let mut begun = Begun::default();
    while let Some(Visit(kind, reply)) = cx.recv().await {
        match kind {
            Kind::Work => begun.work += 1,
            Kind::Fault => begun.faults += 1,
            Kind::Other => begun.others += 1,
        }
        reply.send(begun.all());
    }
    // Ignored: if the receiver is gone, the trial has ended.
    let _ = tells.send(begun);
}

async fn accept(cx: Context<Infallible>, listener: Arc<TcpListener>, timeout: Duration) {
    let Some(connections) = whereis(CONNECTIONS).and_then(SupervisorRef::of) else {
        exit(Exit::failed("there is no supervisor of connections"))
    };
    let template = Template::new(serve).label("connection").stop(Stop::Within(timeout));
    let mut cancelled = pin!(cx.cancelled());
    loop {
        let mut next = pin!(listener.accept());
        let accepted = poll_fn(|task| {
            if cancelled.as_mut().poll(task).is_ready() {
                return Poll::Ready(None);
            }
            next.as_mut().poll(task).map(Some)
        });
        let stream = match accepted.await {
            Some(Ok((stream, _))) => stream,
            Some(Err(error)) => exit(Exit::failed(format!("cannot accept a connection: {error}"))),
            None => return,
        };
        // hyper writes whole answers. If the system refuses the option, answers arrive a little
        // later.
        let _ = stream.set_nodelay(true);
        match connections.add_another(&template, stream).await {
            Ok(_) => {}
            // A connection without a process is closed, so its client sees the refusal.
            Err(refused) if matches!(refused.cause(), ChildError::Start(_)) => {}
            Err(_) => return,
        }
    }
}

/// Serves until the client goes, or until the process is cancelled and has answered the request
/// that had begun.
async fn serve(cx: Context<Infallible>, stream: TcpStream) {
    let mut builder = http1::Builder::new();
    builder.timer(procession::http::Timer).header_read_timeout(HEAD_TIMEOUT);
    let mut connection = pin!(builder.serve_connection(stream, service_fn(answer)));
    let mut cancelled = pin!(cx.cancelled());
    let mut is_told = false;
    // Ignored: the client sees and counts everything that goes wrong on a connection.
    let _ = poll_fn(|task| {
        if !is_told && cancelled.as_mut().poll(task).is_ready() {
            is_told = true;
            connection.as_mut().graceful_shutdown();
        }
        connection.as_mut().poll(task)
    })
    .await;
}

async fn answer(request: Request<Incoming>) -> Result<Response<String>, io::Error> {
    let kind = match request.uri().path() {
        WORK => Kind::Work,
        FAULT => Kind::Fault,
        _ => Kind::Other,
    };
    let is_fault = matches!(kind, Kind::Fault);
    let number: Result<u64, CallError<Visit>> =
        Named::new(COUNTER).call(|reply| Visit(kind, reply), NUMBER_TIMEOUT).await;
    match number {
        Ok(number) if is_fault => faults::fail(number),
        Ok(number) => {
            let process =
                procession::process::current_pid().map(|pid| pid.to_string()).unwrap_or_default();
            Ok(Response::new(format!("request {number}, answered by {process}\n")))
        }
        Err(error) => {
            let mut response = Response::new(format!("{error}\n"));
            *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
            Ok(response)
        }
    }
}
