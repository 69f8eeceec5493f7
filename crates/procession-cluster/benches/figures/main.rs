//! Figures of two nodes in two programs of this machine, with two workers each: round trips,
//! calls of keys, messages in a row, round trips together with large messages, a node that is
//! frozen or killed, and an idle connection. Then a group with many members on three nodes, and
//! many keys. `bench/cluster` has the same for other systems.
//!
//! `cargo bench -p procession-cluster --features serde --bench figures`, with `-- --tiny` to try
//! it, with `-- --groups` or `-- --keys` for the last two alone, and with `-- --idle` for idle
//! connections alone: it fails if a node wakes more often than allowed.

use std::collections::BTreeMap;
use std::error::Error;
use std::ffi::{OsStr, OsString};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use procession::time::Instant;
use procession::{Context, Exit, Reply, Scheduler, start};
use procession_cluster::{Cookie, Letter, Member, Node, NodeBuilder, Remote, Term, Tls};
use serde::{Deserialize, Serialize};

mod groups;
mod keys;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

type Failed = Box<dyn Error + Send + Sync>;

const SERVER: &str = "server@127.0.0.1";
const LIMIT: Duration = Duration::from_secs(60);
const PAYLOAD: usize = 100;
/// Just below the longest message.
const LARGE: usize = (16 << 20) - 256;

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Job {
    Echo(
        #[serde(with = "serde_bytes_like")] Vec<u8>,
        #[serde(with = "procession_cluster::serialize::reply")] Reply<u64>,
    ),
}

/// Bytes as a binary.
mod serde_bytes_like {
    use serde::{Deserialize, Deserializer, Serializer};

    pub(crate) fn serialize<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(bytes)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<u8>, D::Error> {
        Vec::deserialize(from)
    }
}

#[derive(Clone, Copy)]
struct Counts {
    round_trips: usize,
    messages: i64,
    kills: usize,
    idle: Duration,
    members: usize,
    groups: usize,
    keys: u64,
}

const FULL: Counts = Counts {
    round_trips: 20_000,
    messages: 2_000_000,
    kills: 5,
    idle: Duration::from_secs(10),
    members: 10_000,
    groups: 5,
    keys: 1_000_000,
};
const TINY: Counts = Counts {
    round_trips: 100,
    messages: 2_000,
    kills: 1,
    idle: Duration::from_secs(1),
    members: 30,
    groups: 1,
    keys: 1_000,
};

fn main() -> Result<(), Failed> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let has = |word: &str| arguments.iter().any(|argument| argument == word);
    let scheduler = Scheduler::builder().worker_threads(2).build()?;
    if has("--serve") {
        return scheduler.block_on(serve(has("--tls")));
    }
    if has("--members") {
        let [_, own, total, rest @ ..] = &*arguments else { return Err("no numbers".into()) };
        let first = rest.first().map(|first| first.parse()).transpose()?;
        return scheduler.block_on(groups::serve(own.parse()?, total.parse()?, first));
    }
    if has("--peers") {
        return scheduler.block_on(serve_idle());
    }
    if has("--idle") {
        return [1, 10, 100].into_iter().try_for_each(|peers| idle_peers(&scheduler, peers));
    }
    let counts = if has("--tiny") { TINY } else { FULL };
    let is_whole = !has("--groups") && !has("--keys");
    for is_secure in [false, true].into_iter().filter(|_| is_whole) {
        scheduler.block_on(async move {
            let measured = start(move |cx| measure(cx, counts, is_secure));
            measured.await?.map_err(Failed::from)
        })?;
    }
    if is_whole || has("--groups") {
        groups::measure(&scheduler, counts.members, counts.groups)?;
    }
    if is_whole || has("--keys") {
        scheduler.block_on(keys::measure(counts.keys))?;
    }
    Ok(())
}

fn builder(name: &str, is_secure: bool) -> Result<NodeBuilder, Failed> {
    let mut builder = Node::builder(name).cookie(Cookie::new("figures").ok_or("no cookie")?);
    if is_secure {
        builder = builder.tls(tls(name)?);
    }
    Ok(builder)
}

/// Returns the certificates of the tests. The key has to be secret.
fn tls(name: &str) -> Result<Tls, Failed> {
    let folder = format!("{}/tests/tls", env!("CARGO_MANIFEST_DIR"));
    let key =
        std::env::temp_dir().join(format!("procession-figures-{name}-{}", std::process::id()));
    std::fs::copy(format!("{folder}/node.key"), &key)?;
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o600))?;
    let tls = Tls::read(format!("{folder}/node.crt"), &key, format!("{folder}/authority.crt"));
    std::fs::remove_file(&key)?;
    Ok(tls?)
}

// The program that is measured with.

async fn serve(is_secure: bool) -> Result<(), Failed> {
    let listens = builder(SERVER, is_secure)?.listen((Ipv4Addr::LOCALHOST, 0).into());
    let node = listens.start().await?;
    let echoes = node.clone();
    let echo = start(move |cx| echo(cx, echoes));
    node.register("echo", &node.attach(&echo.address().map(|letter| letter)))?;
    let counts = node.clone();
    let sink = start(move |cx| sink(cx, counts));
    node.register("sink", &node.attach(&sink.address().map(|letter| letter)))?;
    let typed = start(|mut cx: Context<Job>| async move {
        while let Some(Job::Echo(bytes, reply)) = cx.recv().await {
            reply.send(bytes.len() as u64);
        }
    });
    node.register("typed", &node.attach_as(typed.address()))?;
    keys::serve(&node, true)?;
    until_input_ends(&node).await
}

/// Prints the address of a node, and waits until the other program ends.
async fn until_input_ends(node: &Node) -> Result<(), Failed> {
    let address = node.local_addr().ok_or("it does not listen")?;
    writeln!(std::io::stdout(), "{address}")?;
    drop(procession::spawn_blocking(|| std::io::stdin().read(&mut [0])).await);
    Ok(())
}

fn attach(node: &Node, cx: &Context<Letter>) -> Member {
    node.attach(&cx.address().map(|letter| letter))
}

async fn echo(mut cx: Context<Letter>, node: Node) {
    let own = attach(&node, &cx);
    while let Some(letter) = cx.recv().await {
        if let Letter::Message { from: Some(from), term } = letter {
            // Ignored: the other node may be gone.
            drop(own.send_wait(from, term).await);
        }
    }
}

/// Reports when it has received as many messages as it was asked to expect.
async fn sink(mut cx: Context<Letter>, node: Node) {
    let own = attach(&node, &cx);
    while let Some(letter) = cx.recv().await {
        let Letter::Message { from: Some(from), term } = letter else { continue };
        let Some(count) = term.as_integer() else { continue };
        for _ in 0..count {
            cx.recv().await;
        }
        drop(own.send_wait(from, Term::atom("done")).await);
    }
}

// The program that measures.

struct Server(Child);

impl Server {
    fn start(is_secure: bool) -> Result<(Self, SocketAddr), Failed> {
        Self::start_with(if is_secure { &["--serve", "--tls"] } else { &["--serve"] })
    }

    /// Starts this program once more. It prints the address of its node.
    fn start_with(arguments: &[impl AsRef<OsStr>]) -> Result<(Self, SocketAddr), Failed> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut server = Self(command.spawn()?);
        let mut line = String::new();
        let out = server.0.stdout.take().ok_or("no output")?;
        BufReader::new(out).read_line(&mut line)?;
        Ok((server, line.trim().parse()?))
    }

    fn signal(&self, name: &str) -> Result<(), Failed> {
        let id = self.0.id().to_string();
        let sent = Command::new("kill").arg(format!("-{name}")).arg(id).status()?;
        if sent.success() { Ok(()) } else { Err("the signal was not sent".into()) }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Ignored: it may have ended.
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

fn print(is_secure: bool, what: &str, value: f64, unit: &str) {
    let way = if is_secure { "tls" } else { "plain" };
    // Ignored: without an output, nobody reads the figures.
    let _ = writeln!(std::io::stdout(), "{way:5} {what:28} {value:12.1} {unit}");
}

async fn measure(mut cx: Context<Letter>, counts: Counts, is_secure: bool) -> Result<(), String> {
    let run = async {
        let node = builder("driver@127.0.0.1", is_secure)?.start().await?;
        let own = attach(&node, &cx);
        let (server, address) = Server::start(is_secure)?;
        node.connect_at(SERVER, address).await?;
        round_trips(&mut cx, &own, counts.round_trips, is_secure).await?;
        keys::calls(&node, counts.round_trips, is_secure).await?;
        messages(&mut cx, &own, &server, counts.messages, is_secure).await?;
        beside_large(&mut cx, &own, is_secure).await?;
        idle(&server, counts.idle, is_secure).await?;
        frozen(&mut cx, &own, &server, is_secure).await?;
        drop(server);
        killed(&mut cx, &own, counts.kills, is_secure).await?;
        node.stop();
        Ok::<_, Failed>(())
    };
    run.await.map_err(|error| error.to_string())
}

fn percentile(sorted: &[Duration], part: f64) -> f64 {
    sorted[((sorted.len() - 1) as f64 * part) as usize].as_nanos() as f64 / 1000.0
}

async fn one_round_trip(cx: &mut Context<Letter>, own: &Member) -> Result<Duration, Failed> {
    let payload = Term::from(vec![7; PAYLOAD]);
    let begin = Instant::now();
    own.send(Remote::named("echo", SERVER), payload)?;
    match cx.recv().await {
        Some(Letter::Message { .. }) => Ok(Instant::now() - begin),
        other => Err(format!("{other:?} came").into()),
    }
}

async fn round_trips(
    cx: &mut Context<Letter>,
    own: &Member,
    count: usize,
    is_secure: bool,
) -> Result<(), Failed> {
    for _ in 0..count / 10 {
        one_round_trip(cx, own).await?;
    }
    let mut all = Vec::with_capacity(count);
    for _ in 0..count {
        all.push(one_round_trip(cx, own).await?);
    }
    all.sort();
    print(is_secure, "round trip p50", percentile(&all, 0.5), "us");
    print(is_secure, "round trip p99", percentile(&all, 0.99), "us");
    Ok(())
}

/// Returns the processor time of a program, which the kernel counts in hundredths of a second.
fn processor_time(id: u32) -> Result<Duration, Failed> {
    let stat = std::fs::read_to_string(format!("/proc/{id}/stat"))?;
    let (_, fields) = stat.rsplit_once(')').ok_or("no end of the name")?;
    let ticks = fields.split_whitespace().skip(11).take(2).map(str::parse::<u64>);
    Ok(Duration::from_millis(10 * ticks.sum::<Result<u64, _>>()?))
}

async fn messages(
    cx: &mut Context<Letter>,
    own: &Member,
    server: &Server,
    count: i64,
    is_secure: bool,
) -> Result<(), Failed> {
    let sink = Remote::named("sink", SERVER);
    let both =
        || Ok::<_, Failed>(processor_time(std::process::id())? + processor_time(server.0.id())?);
    let (begin, used) = (Instant::now(), both()?);
    own.send_wait(sink.clone(), Term::from(count)).await?;
    let payload = Term::from(vec![7; PAYLOAD]);
    for _ in 0..count {
        own.send_wait(sink.clone(), payload.clone()).await?;
    }
    if cx.recv().await.is_none() {
        return Err("it was cancelled".into());
    }
    let (took, used) = (Instant::now() - begin, both()? - used);
    print(is_secure, "messages", count as f64 / took.as_secs_f64() / 1000.0, "thousand/s");
    let each = used.as_nanos() as f64 / count as f64 / 1000.0;
    print(is_secure, "processor time per message", each, "us");
    Ok(())
}

async fn beside_large(
    cx: &mut Context<Letter>,
    own: &Member,
    is_secure: bool,
) -> Result<(), Failed> {
    let node = own.node().clone();
    let mut large = start(move |mut cx: Context<Letter>| async move {
        let own = attach(&node, &cx);
        let sink = Remote::named("sink", SERVER);
        let payload = Term::from(vec![7; LARGE]);
        let sends = async {
            own.send_wait(sink.clone(), Term::from(4)).await?;
            for _ in 0..4 {
                own.send_wait(sink.clone(), payload.clone()).await?;
            }
            Ok::<_, Failed>(())
        };
        let sent = sends.await.map_err(|error| error.to_string());
        cx.recv().await;
        sent
    });
    let mut all = Vec::new();
    let mut is_done = false;
    while !is_done {
        all.push(one_round_trip(cx, own).await?);
        is_done = !large.address().is_alive();
    }
    (&mut large).await??;
    all.sort();
    print(is_secure, "beside 64 MiB, p99", percentile(&all, 0.99), "us");
    print(is_secure, "beside 64 MiB, longest", percentile(&all, 1.0), "us");
    Ok(())
}

/// Returns the number of times that each thread of a program has waited, and whether it is the
/// watchdog.
fn waits(id: u32) -> Result<BTreeMap<OsString, (u64, bool)>, Failed> {
    let mut all = BTreeMap::new();
    for thread in std::fs::read_dir(format!("/proc/{id}/task"))? {
        let thread = thread?;
        let status = std::fs::read_to_string(thread.path().join("status"))?;
        let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        let count = line.ok_or("no such line")?.trim().parse()?;
        let name = std::fs::read_to_string(thread.path().join("comm"))?;
        all.insert(thread.file_name(), (count, name.starts_with("watch-")));
    }
    Ok(all)
}

/// Returns the number of waits in a second of the workers of a program and of its watchdog.
fn wake_ups(id: u32, time: Duration) -> Result<[f64; 2], Failed> {
    let before = waits(id)?;
    #[expect(clippy::disallowed_methods, reason = "a timer would wake a worker")]
    std::thread::sleep(time);
    let mut counts = [0; 2];
    for (thread, (count, is_watchdog)) in waits(id)? {
        // A thread that has begun during the measurement has waited since then.
        let since = count.saturating_sub(before.get(&thread).map_or(0, |(count, _)| *count));
        // The main thread has slept here.
        if id != std::process::id() || thread != *id.to_string() {
            counts[usize::from(is_watchdog)] += since;
        }
    }
    Ok(counts.map(|count| count as f64 / time.as_secs_f64()))
}

async fn idle(server: &Server, time: Duration, is_secure: bool) -> Result<(), Failed> {
    procession::sleep(Duration::from_millis(500)).await;
    let id = server.0.id();
    let counted = procession::spawn_blocking(move || wake_ups(id, time)).await?;
    let [workers, watchdog] = counted?;
    print(is_secure, "idle: wake-ups of workers", workers, "/s");
    print(is_secure, "idle: wake-ups of watchdog", watchdog, "/s");
    Ok(())
}

/// The wake-ups in a second of an idle node with one other node. There are 1.2 on a quiet machine.
const WAKE_UPS_MAX: f64 = 2.0;
/// The same for each other node, if there are ten or more.
const WAKE_UPS_OF_MANY_MAX: f64 = 1.0;

/// Runs as many nodes as are asked for, which connect to the node that asks.
async fn serve_idle() -> Result<(), Failed> {
    let (mut nodes, mut line) = (Vec::new(), String::new());
    std::io::stdin().read_line(&mut line)?;
    let (address, count) = line.trim().split_once(' ').ok_or("not two words")?;
    for number in 0..count.parse::<u32>()? {
        let node = builder(&format!("idle{number}@127.0.0.1"), false)?.start().await?;
        node.connect_at(SERVER, address.parse()?).await?;
        nodes.push(node);
        // They begin one after the other, so that nothing but the nodes brings their questions
        // together.
        procession::sleep(Duration::from_millis(37)).await;
    }
    writeln!(std::io::stdout(), "connected")?;
    drop(procession::spawn_blocking(|| std::io::stdin().read(&mut [0])).await);
    Ok(())
}

/// Counts the wake-ups of this program, a node with so many others.
fn idle_peers(scheduler: &Scheduler, peers: u32) -> Result<(), Failed> {
    let node = scheduler.block_on(async {
        let listens = builder(SERVER, false)?.listen((Ipv4Addr::LOCALHOST, 0).into());
        Ok::<_, Failed>(listens.start().await?)
    })?;
    let address = node.local_addr().ok_or("it does not listen")?;
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("--peers").stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut others = Server(command.spawn()?);
    writeln!(others.0.stdin.as_mut().ok_or("no input")?, "{address} {peers}")?;
    let out = others.0.stdout.take().ok_or("no output")?;
    BufReader::new(out).read_line(&mut String::new())?;
    // Until the watchdog has slept once, and all connections ask together.
    wake_ups(std::process::id(), Duration::from_secs(6))?;
    let limit = if peers == 1 { WAKE_UPS_MAX } else { WAKE_UPS_OF_MANY_MAX * f64::from(peers) };
    let mut least = f64::INFINITY;
    // The least of ten, because other programs that take the processors make a short step long.
    for _ in 0..10 {
        let [workers, watchdog] = wake_ups(std::process::id(), Duration::from_secs(8))?;
        print(false, &format!("idle with {peers}, all threads"), workers + watchdog, "/s");
        print(false, &format!("idle with {peers}, watchdog"), watchdog, "/s");
        least = least.min(workers + watchdog);
        if least <= limit {
            break;
        }
    }
    node.stop();
    if least > limit {
        return Err(format!("a node with {peers} others wakes {least} times in a second").into());
    }
    Ok(())
}

async fn frozen(
    cx: &mut Context<Letter>,
    own: &Member,
    server: &Server,
    is_secure: bool,
) -> Result<(), Failed> {
    own.monitor(Remote::named("echo", SERVER));
    one_round_trip(cx, own).await?;
    let payload = Term::from(vec![7; PAYLOAD]);
    let begin = Instant::now();
    server.signal("STOP")?;
    let mut all = Vec::new();
    loop {
        for _ in 0..16 {
            let before = Instant::now();
            // Ignored: the queue is full after some time.
            drop(own.send(Remote::named("sink", SERVER), payload.clone()));
            all.push(Instant::now() - before);
        }
        match cx.recv_timeout(Duration::from_millis(1)).await {
            Err(_) => {}
            Ok(Some(Letter::Down(down))) if down.exit == Exit::NoConnection => break,
            Ok(other) => return Err(format!("{other:?} came").into()),
        }
    }
    let took = (Instant::now() - begin).as_secs_f64();
    all.sort();
    print(is_secure, "frozen to down", took, "s");
    print(is_secure, "send to a frozen node p99.9", percentile(&all, 0.999), "us");
    Ok(())
}

async fn killed(
    cx: &mut Context<Letter>,
    own: &Member,
    count: usize,
    is_secure: bool,
) -> Result<(), Failed> {
    let mut all = Vec::new();
    for _ in 0..count {
        let (mut server, address) = Server::start(is_secure)?;
        own.node().connect_at(SERVER, address).await?;
        own.monitor(Remote::named("echo", SERVER));
        one_round_trip(cx, own).await?;
        let begin = Instant::now();
        server.0.kill()?;
        match cx.recv().await {
            Some(Letter::Down(down)) if down.exit == Exit::NoConnection => {}
            other => return Err(format!("{other:?} came").into()),
        }
        all.push(Instant::now() - begin);
    }
    all.sort();
    print(is_secure, "killed to down", percentile(&all, 0.5) / 1000.0, "ms");
    Ok(())
}
