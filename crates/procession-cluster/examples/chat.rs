//! A chat that runs on several nodes, as the beginning of a service: rooms that are found by their
//! names, a report that one node writes, an HTTP server, health checks, and an end in order.
//!
//! ```console
//! $ chat="cargo run -p procession-cluster --features etcd,serde --example chat --"
//! $ $chat --name=chat@127.0.0.1 --listen=127.0.0.1:4370 --http=127.0.0.1:8080 \
//!       --cookie-file=cookie --peer=chat@127.0.0.2:4370 &
//! $ $chat --name=chat@127.0.0.2 --listen=127.0.0.2:4370 --http=127.0.0.2:8080 \
//!       --cookie-file=cookie --peer=chat@127.0.0.1:4370 &
//! $ curl -d hello 127.0.0.1:8080/rooms/lobby
//! 1
//! $ curl 127.0.0.2:8080/rooms/lobby
//! 1 hello
//! ```
//!
//! A room has one process in the cluster. When a node ends in order, its rooms continue on the
//! other nodes with their lines. When a node dies, the lines of its rooms are lost, because nothing
//! is written to a disk.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::error::Error;
use std::fmt::Display;
use std::future::poll_fn;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::pin::Pin;
use std::process::{ExitCode, Termination};
use std::str::FromStr;
use std::sync::Arc;
use std::task::{self, Poll};
use std::time::Duration;

use hyper::body::Body;
use hyper::{Method, Request, Response, StatusCode};
use procession::http::{HealthChecks, RequestBody, Server};
use procession::net::TcpListener;
use procession::signal::ShutdownOptions;
use procession::supervisor::{ChildSpec, Supervisor};
use procession::time::Instant;
use procession::{Context, Reply, Scheduler, sleep, timeout};
use procession_cluster::exclusive::{Etcd, ExclusiveNames, Fence, Singleton};
use procession_cluster::serialize::reply;
use procession_cluster::shards::{CallKeyError, KeyContext, Shards};
use procession_cluster::{Cookie, Find, Node, Tls};
use serde::{Deserialize, Serialize};
use tower_service::Service;

/// The options, each as `--option=value`.
const OPTIONS: &[(&str, &str)] = &[
    ("--name", "the name of this node, such as chat@127.0.0.1"),
    ("--listen", "the address for other nodes, such as 127.0.0.1:4370"),
    ("--peer", "another node and its port, such as chat@127.0.0.2:4370; may be repeated"),
    ("--cookie-file", "a file with the secret of the cluster, which is created if it is missing"),
    ("--tls-cert", "the certificate of this node, if nodes are on several machines"),
    ("--tls-key", "its key"),
    ("--tls-ca", "the authority of all certificates"),
    ("--http", "the address for HTTP, such as 127.0.0.1:8080"),
    ("--etcd", "a URL of etcd, if there are several nodes; may be repeated"),
    ("--report", "the seconds between two reports; 60 by default"),
    ("--delay", "how many seconds this node serves after SIGTERM; 0 by default"),
    ("--deadline", "the seconds after SIGTERM within which this node ends; 25 by default"),
];
/// How long a node waits for the other ones before it begins: some may be down.
const JOIN_LIMIT: Duration = Duration::from_secs(5);
/// A room without requests forgets its lines after this time.
const IDLE: Duration = Duration::from_secs(3600);
/// The lines that a room keeps.
const LINES: usize = 100;
/// The longest name of a room, and the longest line, in bytes.
const NAME_MAX: usize = 255;
const LINE_MAX: usize = 4096;
/// How long a request may take, and the pause before it is sent to a room again.
const LIMIT: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(10);

type AnyError = Box<dyn Error + Send + Sync>;
type Rooms = Shards<String, Ask>;

/// What a room receives.
#[derive(Serialize, Deserialize)]
enum Ask {
    /// Adds a line, and returns its number.
    Say(String, #[serde(with = "reply")] Reply<u64>),
    /// Returns the latest lines.
    Lines(#[serde(with = "reply")] Reply<Vec<(u64, String)>>),
    /// Adds a report, with the fence of its writer.
    Report(u64, String),
}

/// The state of a room, which moves with the room to other nodes.
#[derive(Default, Serialize, Deserialize)]
struct Room {
    said: u64,
    lines: VecDeque<(u64, String)>,
    /// The greatest fence of all reports.
    fence: u64,
}

impl Room {
    fn add(&mut self, line: String) -> u64 {
        self.said += 1;
        self.lines.push_back((self.said, line));
        if self.lines.len() > LINES {
            self.lines.pop_front();
        }
        self.said
    }
}

/// The process of a room. It ends when the room moves or is idle.
async fn room(mut cx: KeyContext<String, Ask, Room>) -> Option<Room> {
    let mut room = cx.take_state().unwrap_or_default();
    while let Some(ask) = cx.recv().await {
        match ask {
            Ask::Say(line, reply) => reply.send(room.add(line)),
            Ask::Lines(reply) => reply.send(room.lines.iter().cloned().collect()),
            Ask::Report(fence, line) if fence >= room.fence => {
                room.fence = fence;
                room.add(line);
            }
            // Another node writes the reports already.
            Ask::Report(..) => {}
        }
    }
    Some(room)
}

/// Writes a report into the room `news` now and then, on one node of the cluster.
async fn report(cx: Context<()>, (node, rooms): (Node, Rooms), every: Duration, fence: Fence) {
    while timeout(every, cx.cancelled()).await.is_err() {
        let line = format!("{fence} {} says: {} nodes", node.name(), node.peers().len() + 1);
        // Ignored: the next report follows.
        drop(rooms.send(&"news".to_owned(), Ask::Report(fence.get(), line)));
    }
}

/// The pages.
#[derive(Clone)]
struct Pages(Rooms);

impl Pages {
    async fn answer(&self, request: Request<RequestBody>) -> Result<String, StatusCode> {
        let room = request.uri().path().strip_prefix("/rooms/").unwrap_or_default().to_owned();
        if room.is_empty() || room.len() > NAME_MAX {
            return Err(StatusCode::NOT_FOUND);
        }
        match *request.method() {
            Method::POST => {
                let line = read_line(request.into_body()).await?;
                let number = self.ask(&room, |reply| Ask::Say(line.clone(), reply)).await?;
                Ok(format!("{number}\n"))
            }
            Method::GET => {
                let lines = self.ask(&room, Ask::Lines).await?;
                Ok(lines.iter().map(|(number, line)| format!("{number} {line}\n")).collect())
            }
            _ => Err(StatusCode::METHOD_NOT_ALLOWED),
        }
    }

    /// Asks a room, wherever it is. While it moves, it may refuse.
    async fn ask<T>(&self, room: &String, ask: impl Fn(Reply<T>) -> Ask) -> Result<T, StatusCode>
    where
        T: Send + 'static,
    {
        let until = Instant::now() + LIMIT;
        loop {
            match self.0.call(room, &ask, LIMIT).await {
                Ok(answer) => return Ok(answer),
                // No process has received it, so it may be sent again.
                Err(CallKeyError::Refused(_)) if Instant::now() < until => sleep(PAUSE).await,
                Err(CallKeyError::Refused(_)) => return Err(StatusCode::SERVICE_UNAVAILABLE),
                // The room may have received it, so that is for the client to decide.
                Err(_) => return Err(StatusCode::GATEWAY_TIMEOUT),
            }
        }
    }
}

async fn read_line(mut body: RequestBody) -> Result<String, StatusCode> {
    let mut bytes = Vec::new();
    while let Some(frame) = poll_fn(|task| Pin::new(&mut body).poll_frame(task)).await {
        let frame = frame.map_err(|_| StatusCode::REQUEST_TIMEOUT)?;
        bytes.extend(frame.into_data().unwrap_or_default());
        if bytes.len() > LINE_MAX {
            return Err(StatusCode::PAYLOAD_TOO_LARGE);
        }
    }
    let line = String::from_utf8(bytes).ok().filter(|line| !line.contains(char::is_control));
    line.ok_or(StatusCode::BAD_REQUEST)
}

impl Service<Request<RequestBody>> for Pages {
    type Response = Response<String>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<String>, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut task::Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<RequestBody>) -> Self::Future {
        let pages = self.clone();
        Box::pin(async move {
            let answer = pages.answer(request).await;
            let (status, text) = match answer {
                Ok(text) => (StatusCode::OK, text),
                Err(status) => (status, format!("{status}\n")),
            };
            let mut response = Response::new(text);
            *response.status_mut() = status;
            Ok(response)
        })
    }
}

/// Starts the node, and waits until it is connected to the other ones.
async fn join(options: &Options, tls: Option<Tls>) -> Result<Node, AnyError> {
    let name: String = options.need("--name")?;
    let cookie = Cookie::read_or_create(options.need::<PathBuf>("--cookie-file")?)?;
    let mut builder = Node::builder(name.as_str()).cookie(cookie).listen(options.need("--listen")?);
    let mut others = 0;
    for peer in options.all("--peer") {
        let parts = peer.rsplit_once(':').and_then(|(node, port)| Some((node, port.parse().ok()?)));
        let (node, port) = parts.ok_or_else(|| format!("--peer={peer}: say NODE:PORT"))?;
        others += usize::from(node != name);
        builder = builder.find(Find::nodes_at([node], port));
    }
    if let Some(tls) = tls {
        builder = builder.tls(tls);
    }
    let node = builder.start().await?;
    let connected = async {
        while node.peers().len() < others {
            sleep(PAUSE).await;
        }
    };
    // Ignored: the others are down, and are connected once they are there.
    let _ = timeout(JOIN_LIMIT, connected).await;
    Ok(node)
}

async fn serve(options: Options) -> Result<(), AnyError> {
    let tls = options.tls()?;
    let every = options.seconds("--report", 60)?;
    let urls: Vec<_> = options.all("--etcd").collect();
    let http: SocketAddr = options.need("--http")?;

    let node = join(&options, tls.clone()).await?;
    // After that, so that a room on another node is asked there.
    let rooms = Shards::builder("rooms").idle(IDLE).start(&node, room)?;

    let names = ExclusiveNames::builder(&node);
    let names = match (&urls[..], tls) {
        ([], _) => names,
        (urls, Some(tls)) => names.store(Etcd::new(urls)?.tls(tls)),
        (urls, None) => names.store(Etcd::new(urls)?),
    };
    let reports = (node.clone(), rooms.clone());
    let report = Singleton::new(&names.start(), "report", move |cx, fence| {
        report(cx, reports.clone(), every, fence)
    });

    let listener = Arc::new(TcpListener::bind(http).await?);
    let pages = HealthChecks::around(Pages(rooms));
    let name = node.name().clone();
    let http = ChildSpec::new("http", move |_: Context<()>| {
        let (node, listener, pages) = (node.clone(), Arc::clone(&listener), pages.clone());
        async move {
            // The node stays until the last request is answered, because its room may be elsewhere.
            let _held = node.hold();
            Server::new().serve(listener, pages).await
        }
    });
    let tree = Supervisor::one_for_one().child(report).child(http).try_start().await?;
    writeln!(io::stdout(), "{name} is ready")?;
    Err(format!("the tree has ended: {}", tree.await).into())
}

/// The options of the command line.
struct Options(Vec<(String, String)>);

impl Options {
    fn read(arguments: impl Iterator<Item = String>) -> Result<Self, String> {
        let read = |argument: String| match argument.split_once('=') {
            Some((name, value)) if OPTIONS.iter().any(|(known, _)| *known == name) => {
                Ok((name.to_owned(), value.to_owned()))
            }
            Some((name, _)) => Err(format!("there is no option {name}")),
            None => Err(format!("{argument}: say --OPTION=VALUE")),
        };
        arguments.map(read).collect::<Result<_, _>>().map(Self)
    }

    fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.0.iter().filter(move |(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    fn get<T: FromStr<Err: Display>>(&self, name: &str) -> Result<Option<T>, String> {
        let read = |value: &str| value.parse().map_err(|error| format!("{name}={value}: {error}"));
        self.all(name).last().map(read).transpose()
    }

    fn need<T: FromStr<Err: Display>>(&self, name: &str) -> Result<T, String> {
        self.get(name)?.ok_or_else(|| format!("{name} is missing"))
    }

    fn seconds(&self, name: &str, default: u32) -> Result<Duration, String> {
        let seconds = self.get(name)?.unwrap_or(f64::from(default));
        Duration::try_from_secs_f64(seconds).map_err(|error| format!("{name}={seconds}: {error}"))
    }

    fn tls(&self) -> Result<Option<Tls>, AnyError> {
        let file = |name| self.get::<PathBuf>(name);
        match (file("--tls-cert")?, file("--tls-key")?, file("--tls-ca")?) {
            (Some(cert), Some(key), Some(authority)) => Ok(Some(Tls::read(cert, key, authority)?)),
            (None, None, None) => Ok(None),
            _ => Err("--tls-cert, --tls-key and --tls-ca belong together".into()),
        }
    }
}

fn run(options: Options) -> Result<ExitCode, AnyError> {
    let shutdown = ShutdownOptions::within(options.seconds("--deadline", 25)?)
        .delay(options.seconds("--delay", 0)?);
    let served = async { serve(options).await.map_or_else(failed, |()| ExitCode::SUCCESS) };
    // After SIGTERM, this is the exit code that says whether something was lost.
    Ok(Scheduler::global().run_until_signal(shutdown, served)?.report())
}

fn failed(error: AnyError) -> ExitCode {
    // Ignored: nobody reads it.
    drop(writeln!(io::stderr(), "chat: {error}"));
    ExitCode::FAILURE
}

fn main() -> ExitCode {
    if std::env::args().any(|argument| argument == "--help") {
        let lines = OPTIONS.iter().map(|(name, text)| format!("  {name:<14}{text}\n"));
        // Ignored: nobody reads it.
        drop(write!(io::stdout(), "{}", lines.collect::<String>()));
        return ExitCode::SUCCESS;
    }
    let options = Options::read(std::env::args().skip(1)).map_err(AnyError::from);
    options.and_then(run).unwrap_or_else(failed)
}
