//! Three nodes of the example `chat` that are restarted one after another by SIGTERM, while 100
//! clients write lines into rooms by HTTP. No line that was answered may be missing or doubled, so
//! the rooms must move with their states. Options are passed on to the nodes, except for
//! `--other=PATH`, the example `chat` of another release: each restart then takes that release, and
//! after the last node a second round takes this one again.
//!
//! ```console
//! $ cargo build -p procession-cluster --features etcd,serde --examples
//! $ etcd &
//! $ cargo run -p procession-cluster --example rolling -- --etcd=http://127.0.0.1:2379
//! 12021 lines by 100 clients in 20 rooms: 0 lost, 0 doubled
//! requests that came back: 0 behind the load balancer, 1395 without it
//! 38 reports by 4 writers, one after the other
//! ```
//!
//! Half of the clients are behind a load balancer, which sends requests only to nodes that are
//! ready. The others find out which node takes connections. A node must answer each request that it
//! has accepted, whatever moves at that time.

use std::collections::BTreeMap;
use std::env;
use std::error::Error;
use std::future::poll_fn;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::process::{Child, Command};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use procession::net::TcpStream;
use procession::sync::CancellationToken;
use procession::{sleep, spawn, spawn_blocking, timeout};
use procession_sync::Mutex;
use rustix::process::{Pid, Signal, kill_process};

const HOSTS: [&str; 3] = ["127.0.0.1", "127.0.0.2", "127.0.0.3"];
/// Below the ports that the system gives to connections.
const PORT: u16 = 24370;
const HTTP: u16 = 28080;
const CLIENTS: usize = 100;
const ROOMS: usize = 20;
/// The time between two restarts, in which the clients write.
const BETWEEN: Duration = Duration::from_millis(500);
/// The time between two looks of the load balancer, and how long the nodes wait for it.
const LOOK_EVERY: Duration = Duration::from_millis(50);
const DELAY: &str = "--delay=1";
const LIMIT: Duration = Duration::from_secs(30);

type AnyError = Box<dyn Error + Send + Sync>;

/// A program of a node, which ends when this is dropped.
struct Program(Child);

impl Drop for Program {
    fn drop(&mut self) {
        // Ignored: it may have ended.
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// The option with the program of another release.
const OTHER: &str = "--other=";

fn start(chat: &Path, host: &str, cookie: &Path) -> io::Result<Program> {
    let mut command = Command::new(chat);
    command.arg(format!("--name=chat@{host}")).arg(format!("--listen={host}:{PORT}"));
    command.arg(format!("--http={host}:{HTTP}")).args(["--report=0.2", DELAY]);
    command.arg(format!("--cookie-file={}", cookie.display()));
    command.args(HOSTS.map(|peer| format!("--peer=chat@{peer}:{PORT}")));
    command.args(env::args().skip(1).filter(|option| !option.starts_with(OTHER)));
    Ok(Program(command.spawn()?))
}

/// Ends a program in order.
fn end(mut program: Program) -> io::Result<()> {
    kill_process(Pid::from_child(&program.0), Signal::TERM)?;
    let status = program.0.wait()?;
    if status.success() { Ok(()) } else { Err(io::Error::other(status.to_string())) }
}

/// A request that has no answer.
#[derive(Debug)]
enum Failure {
    /// The node takes no connections, so it has not accepted the request.
    Returned,
    Lost(String),
}

/// Connections to the nodes, which are kept between requests.
#[derive(Default)]
struct Connections([Option<TcpStream>; HOSTS.len()]);

impl Connections {
    /// Sends a request to a node, and returns the status and the text of the answer.
    async fn ask(&mut self, node: usize, request: &str) -> Result<(u16, String), Failure> {
        let kept = self.0[node].take();
        let stream = match kept {
            Some(stream) if !has_ended(&stream).await => stream,
            _ => {
                let stream = TcpStream::connect((HOSTS[node], HTTP)).await;
                stream.map_err(|_| Failure::Returned)?
            }
        };
        let answer = timeout(LIMIT, exchange(&stream, request)).await;
        let answer = answer.map_err(io::Error::other).and_then(|answer| answer);
        let (head, text) = answer.map_err(|error| Failure::Lost(error.to_string()))?;
        if !head.contains("connection: close") {
            self.0[node] = Some(stream);
        }
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
        Ok((status.unwrap_or_default(), text))
    }

    /// Reads a room, and returns its lines with their numbers.
    async fn read(&mut self, node: usize, room: &str) -> Result<Vec<(u64, String)>, Failure> {
        let request = format!("GET /rooms/{room} HTTP/1.1\r\nhost: me\r\n\r\n");
        let (_, text) = self.ask(node, &request).await?;
        let line = |line: &str| {
            let (number, line) = line.split_once(' ')?;
            Some((number.parse().ok()?, line.to_owned()))
        };
        Ok(text.lines().filter_map(line).collect())
    }
}

/// Returns `true` if the other side has closed a connection.
async fn has_ended(stream: &TcpStream) -> bool {
    let mut byte = [0];
    let mut read = pin!(stream.read(&mut byte));
    poll_fn(|task| Poll::Ready(read.as_mut().poll(task).is_ready())).await
}

async fn exchange(stream: &TcpStream, request: &str) -> io::Result<(String, String)> {
    stream.write_all(request.as_bytes()).await?;
    let mut answer = Vec::new();
    loop {
        let mut part = [0; 4096];
        let count = stream.read(&mut part).await?;
        if count == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        answer.extend(&part[..count]);
        let text = String::from_utf8_lossy(&answer);
        let Some((head, text)) = text.split_once("\r\n\r\n") else { continue };
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
        if length.and_then(|length| length.parse().ok()) == Some(text.len()) {
            return Ok((head.to_owned(), text.to_owned()));
        }
    }
}

/// What the load balancer knows of the nodes.
#[derive(Default)]
struct Balancer {
    ready: Mutex<[bool; HOSTS.len()]>,
    /// How often a node that was ready has said that it is not.
    unready: Mutex<usize>,
}

impl Balancer {
    /// Looks whether a node is ready, again and again.
    async fn look(&self, node: usize) {
        let mut connections = Connections::default();
        loop {
            let request = "GET /readyz HTTP/1.1\r\nhost: me\r\n\r\n";
            let status = connections.ask(node, request).await.map_or(0, |(status, _)| status);
            let was_ready = std::mem::replace(&mut self.ready.lock()[node], status == 200);
            *self.unready.lock() += usize::from(was_ready && status == 503);
            sleep(LOOK_EVERY).await;
        }
    }

    async fn until_ready(&self, node: usize) -> Result<(), AnyError> {
        let ready = async {
            while !self.ready.lock()[node] {
                sleep(LOOK_EVERY).await;
            }
        };
        timeout(LIMIT, ready).await.map_err(|_| format!("{} does not start", HOSTS[node]).into())
    }
}

/// What the clients have written.
#[derive(Default)]
struct Written {
    /// The lines that were answered with a number, by room and number.
    lines: Mutex<BTreeMap<(usize, u64), String>>,
    /// Lines with the number of another line of the room.
    doubled: Mutex<Vec<String>>,
    /// The requests that came back, to the load balancer and to other clients.
    returned: Mutex<[usize; 2]>,
    lost: Mutex<Vec<String>>,
}

impl Written {
    fn note(&self, room: usize, number: u64, line: String) {
        if let Some(other) = self.lines.lock().insert((room, number), line.clone()) {
            self.doubled.lock().push(format!("room {room}: {number} is {other:?} and {line:?}"));
        }
    }
}

/// Writes lines into all rooms, by all nodes. A line that comes back is for the next node.
async fn client(
    (own, balancer, written): (usize, Arc<Balancer>, Arc<Written>),
    done: CancellationToken,
) {
    let mut connections = Connections::default();
    let mut nodes = (0..HOSTS.len()).cycle().skip(own);
    for count in 0.. {
        let (room, line) = ((own + count) % ROOMS, format!("line {count} of client {own}"));
        let length = line.len();
        let request = format!(
            "POST /rooms/{room} HTTP/1.1\r\nhost: me\r\ncontent-length: {length}\r\n\r\n{line}"
        );
        loop {
            if done.is_cancelled() {
                return;
            }
            let node = nodes.next().expect("it has no end");
            if own % 2 == 0 && !balancer.ready.lock()[node] {
                procession::yield_now().await;
                continue;
            }
            match connections.ask(node, &request).await {
                Ok((200, number)) => match number.trim().parse() {
                    Ok(number) => break written.note(room, number, line),
                    Err(_) => break written.lost.lock().push(format!("{number:?} is no number")),
                },
                Err(Failure::Returned) => written.returned.lock()[own % 2] += 1,
                Ok((status, _)) => break written.lost.lock().push(format!("{status}: {line}")),
                Err(Failure::Lost(why)) => {
                    break written.lost.lock().push(format!("{why}: {line}"));
                }
            }
        }
    }
}

/// Compares the rooms of all nodes with what was written, and prints the counts. `unready` is how
/// often a node has said that it ends, and `restarts` how often one was ended.
async fn check(written: &Written, unready: usize, restarts: usize) -> Result<(), AnyError> {
    let failed = |error: Failure| format!("a room cannot be read: {error:?}");
    let (lost, doubled) = (written.lost.lock().clone(), written.doubled.lock().clone());
    let lines = written.lines.lock().clone();
    let mut connections = Connections::default();
    let mut wrong: Vec<_> = lost.iter().chain(&doubled).take(10).cloned().collect();
    for room in 0..ROOMS {
        let noted: Vec<_> = lines.range((room, 0)..=(room, u64::MAX)).collect();
        // If each has its own number, and the last number is their count, none is missing.
        let last = noted.last().map_or(0, |((_, number), _)| *number);
        if noted.len() as u64 != last {
            wrong.push(format!("room {room} has {} lines, and the number {last}", noted.len()));
        }
        for (node, host) in HOSTS.into_iter().enumerate() {
            let latest = connections.read(node, &room.to_string()).await.map_err(failed)?;
            let is_noted =
                |(number, line): &(u64, String)| lines.get(&(room, *number)) == Some(line);
            if latest.last().map(|(number, _)| *number) != Some(last)
                || !latest.iter().all(is_noted)
            {
                wrong.push(format!("room {room} by {host} ends with {:?}", latest.last()));
            }
        }
    }
    let reports = connections.read(0, "news").await.map_err(failed)?;
    let mut writers: Vec<_> = reports.iter().map(|(_, line)| line.split(' ').next()).collect();
    writers.dedup();
    let [balanced, direct] = *written.returned.lock();
    let mut out = io::stdout();
    let (count, lost, doubled) = (lines.len(), lost.len(), doubled.len());
    writeln!(
        out,
        "{count} lines by {CLIENTS} clients in {ROOMS} rooms: {lost} lost, {doubled} doubled\n\
        requests that came back: {balanced} behind the load balancer, {direct} without it\n\
        {} reports by {} writers, one after the other",
        reports.len(),
        writers.len(),
    )?;
    if balanced > 0 {
        wrong.push("the load balancer has sent requests to nodes that do not take them".to_owned());
    }
    if unready != restarts {
        wrong.push(format!("{unready} of {restarts} nodes have said that they end"));
    }
    if lines.is_empty() || writers.len() < 2 {
        wrong.push("nothing was written, or the writer of reports has not moved".to_owned());
    }
    wrong.iter().try_for_each(|what| writeln!(io::stderr(), "{what}"))?;
    if wrong.is_empty() { Ok(()) } else { Err("not all is as the clients have written it".into()) }
}

async fn restart_all(cookie: PathBuf) -> Result<(), AnyError> {
    let own = env::current_exe()?.with_file_name("chat");
    let other = env::args().find_map(|option| option.strip_prefix(OTHER).map(PathBuf::from));
    let (balancer, written) = (Arc::new(Balancer::default()), Arc::new(Written::default()));
    let mut programs = Vec::new();
    for (node, host) in HOSTS.into_iter().enumerate() {
        programs.push(start(&own, host, &cookie)?);
        let balancer = Arc::clone(&balancer);
        drop(spawn(async move { balancer.look(node).await }));
    }
    for node in 0..HOSTS.len() {
        balancer.until_ready(node).await?;
    }
    let done = CancellationToken::new();
    let client =
        |own| spawn(client((own, Arc::clone(&balancer), Arc::clone(&written)), done.clone()));
    let clients: Vec<_> = (0..CLIENTS).map(client).collect();
    let rounds: Vec<_> = other.into_iter().chain([own]).collect();
    for chat in &rounds {
        for (node, host) in HOSTS.into_iter().enumerate() {
            sleep(BETWEEN).await;
            let program = programs.remove(0);
            spawn_blocking(move || end(program)).await??;
            programs.push(start(chat, host, &cookie)?);
            balancer.until_ready(node).await?;
        }
    }
    sleep(BETWEEN).await;
    done.cancel();
    for client in clients {
        client.await?;
    }
    let unready = *balancer.unready.lock();
    check(&written, unready, rounds.len() * HOSTS.len()).await?;
    for program in programs {
        spawn_blocking(move || end(program)).await??;
    }
    Ok(())
}

fn main() -> Result<(), AnyError> {
    let cookie = env::temp_dir().join(format!("rolling-{}.cookie", std::process::id()));
    let restarted = procession::run(restart_all(cookie.clone()));
    // Ignored: no node may have made it.
    drop(std::fs::remove_file(cookie));
    restarted
}
