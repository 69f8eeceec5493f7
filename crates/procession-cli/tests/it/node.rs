//! Nodes of a cluster as programs of the system: they are stopped, killed, flooded and sent
//! garbage.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::unix::fs::OpenOptionsExt;
use std::process::{Child, ChildStderr, ChildStdout, Command, Stdio};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use procession::process::Groups;
use procession::supervisor::Supervisor;
use procession::sync::oneshot;
use procession::time::Instant;
use procession::{Context, Scheduler, net, spawn, spawn_blocking, yield_now};
use procession_cluster::exclusive::{ExclusiveNames, Singleton};
use procession_cluster::{Cookie, Grants};
use procession_sync::Mutex;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::{check, procession};

const PROGRAM: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/node.lua");
/// Longer than anything here takes.
const LIMIT: Duration = Duration::from_secs(30);
/// The default of `NodeBuilder::patience`.
const PATIENCE: Duration = Duration::from_secs(4);
/// What scheduling may add to a bound on a machine with other work.
const SLACK: Duration = Duration::from_secs(4);

/// Checks that a node that is silent was given up in time.
fn check_given_up(silent: Instant) {
    let passed = Instant::now() - silent;
    let bounds = PATIENCE..PATIENCE * 5 / 4 + SLACK;
    assert!(bounds.contains(&passed), "it was given up after {passed:?}");
}

/// The path of a file with the cookie of all nodes here.
static COOKIE: LazyLock<String> = LazyLock::new(|| {
    let path = format!("{}/node-cookie-{}", env!("CARGO_TARGET_TMPDIR"), std::process::id());
    let mut options = std::fs::OpenOptions::new();
    let file = options.write(true).create(true).truncate(true).mode(0o600).open(&path);
    let mut file = file.expect("the folder is there");
    file.write_all(b"a cookie of these tests").expect("there is room");
    path
});

/// A node that runs the program. It ends when it is dropped.
struct Node {
    child: Child,
    out: BufReader<ChildStdout>,
    /// Its reports, which are few.
    err: BufReader<ChildStderr>,
    name: &'static str,
    address: SocketAddr,
}

impl Node {
    fn start(name: &'static str, options: &[&str], task: &str) -> Self {
        Self::start_by("PROCESSION_FIRST", name, options, task)
    }

    /// Starts a node by the program that the variable names, which may be of another release.
    fn start_by(program: &str, name: &'static str, options: &[&str], task: &str) -> Self {
        let own = env!("CARGO_BIN_EXE_procession");
        let mut command = Command::new(std::env::var(program).as_deref().unwrap_or(own));
        command
            .args(["node", "--no-epmd", "--name", name, "--cookie-file", &COOKIE])
            .args(options)
            .args([PROGRAM, task]);
        let command = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("it can be started");
        let mut line = String::new();
        let mut err = BufReader::new(child.stderr.take().expect("it is piped"));
        err.read_line(&mut line).expect("it says where it listens");
        let address = line.trim().rsplit(' ').next().and_then(|address| address.parse().ok());
        let address = address.unwrap_or_else(|| panic!("it must say where it listens: {line}"));
        let out = BufReader::new(child.stdout.take().expect("it is piped"));
        Self { child, out, err, name, address }
    }

    /// Starts a node that stays connected to this one.
    fn start_peer(&self, name: &'static str, task: &str) -> Self {
        let peer = format!("--peer={}@{}", self.name, self.address);
        Self::start_by("PROCESSION_PEER", name, &[&peer], task)
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.out.read_line(&mut line).expect("it prints text");
        line.trim_end().to_owned()
    }

    fn expect(&mut self, line: &str) {
        assert_eq!(self.line(), line, "of {}", self.name);
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("it runs");
    }

    /// Returns the memory of the program, in KiB.
    fn memory(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id()));
        let status = status.expect("it runs");
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let count = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
        count.expect("the system tells it")
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        // Ignored: it may have ended.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

#[test]
fn nodes_call_each_other_and_tell_their_status() {
    let mut shop = Node::start("shop@127.0.0.1", &["--grant-look=*"], "");
    let mut till = shop.start_peer("till@127.0.0.1", "call");
    till.expect("up shop@127.0.0.1");
    till.expect("reply two");
    shop.expect("up till@127.0.0.1");

    let status = |flags: &str| {
        let mut command = procession("cluster status --cookie-file");
        command.arg(&*COOKIE).args(flags.split_whitespace());
        command.arg(format!("shop@127.0.0.1@{}", shop.address)).output().expect("it is started")
    };
    let output = status("--json");
    let text = String::from_utf8(output.stdout).expect("it is text");
    let told: Value = serde_json::from_str(&text).expect("it is JSON");
    assert_eq!(told["name"], "shop@127.0.0.1");
    let peers = told["peers"].as_array().expect("it has peers");
    let till_info = peers.iter().find(|peer| peer["name"] == "till@127.0.0.1");
    let till_info = till_info.unwrap_or_else(|| panic!("till is a peer: {text}"));
    assert_eq!((&till_info["queued_bytes"], &till_info["refused"]), (&0.into(), &0.into()));
    assert!(till_info["received"].as_u64().is_some_and(|count| count >= 1), "{text}");
    // The first one has asked, and has gone. Its end is counted once its connection has noticed it.
    let text = loop {
        let text = String::from_utf8(status("").stdout).expect("it is text");
        if text.contains(" connections ended: ") {
            break text;
        }
    };
    assert!(text.starts_with("shop@127.0.0.1: "), "{text}");
    assert!(text.contains("till@127.0.0.1 "), "{text}");

    // The same in the views of the node's door: the process of each connection shows it.
    let number = shop.child.id().to_string();
    let looked = |arguments: &str| {
        let mut command = procession(arguments);
        let output = command.arg(&number).output().expect("it is started");
        String::from_utf8(output.stdout).expect("it is text")
    };
    let listed = looked("ps --json --top 1000");
    let listed: Value = serde_json::from_str(&listed).expect("it is JSON");
    let processes = listed["rows"].as_array().expect("it has processes");
    let pid = |label: &str| {
        let found = processes.iter().find(|process| process["label"] == label);
        let found = found.unwrap_or_else(|| panic!("no process is {label}: {listed}"));
        found["pid"].as_str().expect("it has a PID").to_owned()
    };
    let shown = looked(&format!("inspect {}", pid("connection to till@127.0.0.1")));
    assert!(shown.contains("round trip") && shown.contains("refused"), "{shown}");
    let shown = looked(&format!("inspect {}", pid("node shop@127.0.0.1")));
    assert!(shown.contains("till@127.0.0.1") && shown.contains("ended"), "{shown}");

    // `till` permits nothing.
    let mut command = procession("cluster status --cookie-file");
    command.arg(&*COOKIE).arg(format!("till@127.0.0.1@{}", till.address));
    let output = command.output().expect("it is started");
    let error = String::from_utf8(output.stderr).expect("it is text");
    assert_eq!(
        error,
        "procession: cannot ask till@127.0.0.1: the node does not permit this one to look\n"
    );
    assert_eq!(output.status.code(), Some(1));

    shop.signal(Signal::INT);
    assert_eq!(shop.child.wait().expect("it is a child").code(), Some(0));
    // Before that it has seen the node that asked for its status.
    let mut lines = std::iter::repeat_with(|| till.line());
    let down = lines.find(|line| !line.contains("status-")).expect("it has lines");
    assert!(down.starts_with("down shop@127.0.0.1: "), "{down}");
}

#[test]
fn a_call_that_was_accepted_is_answered_after_a_signal() {
    let mut shop = Node::start("shop@127.0.0.1", &[], "slow");
    let mut till = shop.start_peer("till@127.0.0.1", "waits");
    till.expect("up shop@127.0.0.1");
    let mut lines = [shop.line(), shop.line()];
    lines.sort();
    assert_eq!(lines, ["asked", "up till@127.0.0.1"]);
    shop.signal(Signal::TERM);
    till.expect("reply late");
    assert_eq!(shop.child.wait().expect("it is a child").code(), Some(0));
}

/// Goal: groups, names and singletons are seen from outside. Method: a node in this program.
#[test]
fn the_status_lists_groups_and_names() {
    let scheduler = Scheduler::builder().worker_threads(2).build().expect("it can be built");
    let text = scheduler.block_on(async {
        let cookie = Cookie::read(&*COOKIE).expect("it is there");
        let node = procession_cluster::Node::builder("names@127.0.0.1").cookie(cookie);
        let node = node.listen((Ipv4Addr::LOCALHOST, 0).into());
        let node = node.grant("*", Grants::new().look()).start().await.expect("it starts");
        let groups = Groups::new();
        node.share_groups("pg", &groups).expect("the name is free");
        let names = node.share_names("names").expect("the name is free");
        let exclusive = ExclusiveNames::builder(&node).start();
        let (runs, running) = oneshot::channel();
        let runs = Mutex::new(Some(runs));
        let bills = Singleton::new(&exclusive, "bills", move |mut cx: Context<()>, fence| {
            if let Some(runs) = runs.lock().take() {
                runs.send((cx.pid(), fence)).expect("the test waits");
            }
            async move { while cx.recv().await.is_some() {} }
        });
        let tree = Supervisor::one_for_one().child(bills).try_start().await.expect("it starts");
        let (pid, fence) = running.await.expect("it runs");
        groups.join("lobby", pid).expect("it runs");
        names.claim("counter", pid).expect("the name is free");
        let waits = spawn(async move { exclusive.claim("bills").await.map(drop) });
        while node.status().exclusive_names.len() < 2 {
            yield_now().await;
        }
        let address = node.local_addr().expect("it listens");
        let asked = spawn_blocking(move || {
            let mut command = procession("cluster status --cookie-file");
            command.arg(&*COOKIE).arg(format!("names@127.0.0.1@{address}"));
            command.output().expect("it is started").stdout
        });
        let text = String::from_utf8(asked.await.expect("it ends")).expect("it is text");
        let [own, other] = [pid, waits.pid()].map(|pid| node.node_pid(pid).expect("it runs"));
        let lines: Vec<_> = text.lines().rev().take(4).collect();
        assert_eq!(
            lines,
            [
                format!("exclusive name bills: {other} waits"),
                format!("singleton bills: {own} has it with fence {fence}"),
                format!("name counter of names: {own}"),
                "group lobby of pg: 1 members, 1 of this node".to_owned(),
            ]
        );
        waits.cancel();
        tree.cancel();
        node.stop().await;
        text
    });
    assert!(text.starts_with("names@127.0.0.1: "), "{text}");
}

#[test]
fn a_node_permits_what_its_options_grant() {
    let mut shop = Node::start("shop@127.0.0.1", &["--grant-send=till@127.0.0.1=echo"], "");
    let mut till = shop.start_peer("till@127.0.0.1", "call");
    till.expect("up shop@127.0.0.1");
    till.expect("reply two");
    let mut desk = shop.start_peer("desk@127.0.0.1", "call");
    desk.expect("up shop@127.0.0.1");
    let refused = desk.line();
    // Whether it has been told by then or not.
    let is_refusal = refused.contains("not_allowed") || refused.contains("does not permit");
    assert!(is_refusal, "{refused}");
    shop.expect("up till@127.0.0.1");
    shop.expect("up desk@127.0.0.1");
}

#[test]
fn a_node_that_is_stopped_for_5_seconds_is_given_up_and_comes_back() {
    let mut shop = Node::start("shop@127.0.0.1", &[], "");
    let mut till = shop.start_peer("till@127.0.0.1", "");
    shop.expect("up till@127.0.0.1");
    till.expect("up shop@127.0.0.1");
    let stopped = Instant::now();
    till.signal(Signal::STOP);
    let down = shop.line();
    check_given_up(stopped);
    assert!(down.starts_with("down till@127.0.0.1: nothing was heard"), "{down}");
    // Five seconds in all. There is no other event to wait for.
    let silent = TcpStream::connect(shop.address).expect("it listens");
    let left = Duration::from_secs(5).saturating_sub(Instant::now() - stopped);
    silent.set_read_timeout(Some(left.max(Duration::from_millis(1)))).expect("it is not zero");
    drop((&silent).read(&mut [0]));
    till.signal(Signal::CONT);
    shop.expect("up till@127.0.0.1");
    assert!(till.line().starts_with("down shop@127.0.0.1: "));
    till.expect("up shop@127.0.0.1");
}

#[test]
fn a_node_that_is_killed_is_gone_at_once() {
    let mut shop = Node::start("shop@127.0.0.1", &[], "");
    let till = shop.start_peer("till@127.0.0.1", "");
    shop.expect("up till@127.0.0.1");
    drop(till);
    let down = shop.line();
    // By the end of its connection, and not by its silence.
    assert!(down.starts_with("down till@127.0.0.1: ") && !down.contains("nothing"), "{down}");
}

#[test]
fn a_node_that_does_not_read_costs_a_queue_and_no_more() {
    let mut shop = Node::start("shop@127.0.0.1", &["--allow-net=127.0.0.1"], "flood");
    let till = shop.start_peer("till@127.0.0.1", "");
    shop.expect("up till@127.0.0.1");
    let before = shop.memory();
    let stopped = Instant::now();
    till.signal(Signal::STOP);
    let mut input = shop.child.stdin.take().expect("it is piped");
    input.write_all(b"go\n").expect("it reads");
    let refused = shop.line();
    assert!(refused == "refused: the queue of the connection is full", "{refused}");
    let sent = shop.line();
    let count: u64 = sent.strip_prefix("sent ").and_then(|count| count.parse().ok()).expect(&sent);
    // Half of 4 MiB, which one sender may have, and what the sockets take.
    assert!(count > 2000, "{count} were sent");
    let grown = shop.memory().saturating_sub(before);
    assert!(grown < 64 * 1024, "the program has grown by {grown} KiB");
    let down = shop.line();
    check_given_up(stopped);
    assert!(down.starts_with("down till@127.0.0.1: "), "{down}");
}

/// Passes one connection on to a node, and the answers a byte at a time. Returns its address, and
/// the scheduler that does it until it is dropped.
fn slow_way(to: SocketAddr) -> (SocketAddr, Scheduler) {
    let scheduler = Scheduler::builder().worker_threads(1).build().expect("it can be built");
    let address = scheduler.block_on(async move {
        let listener = net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await;
        let listener = listener.expect("there is a port");
        let address = listener.local_addr().expect("it listens");
        procession::spawn(async move {
            let (near, _) = listener.accept().await.expect("the node connects");
            // The window of a small buffer opens again after a few KiB.
            let small = net::SocketOptions::new().recv_buffer_size(1 << 13);
            let far = small.connect(to).await.expect("the node listens");
            let (near, far) = (Arc::new(near), Arc::new(far));
            procession::spawn(pass(Arc::clone(&near), Arc::clone(&far))).detach();
            pass_slowly(&far, &near).await;
        })
        .detach();
        address
    });
    (address, scheduler)
}

/// Passes the bytes of one direction on.
async fn pass(from: Arc<net::TcpStream>, to: Arc<net::TcpStream>) {
    let mut bytes = vec![0; 1 << 16];
    while let Ok(read @ 1..) = from.read(&mut bytes).await
        && to.write_all(&bytes[..read]).await.is_ok()
    {}
}

/// The same, a byte at a time, and at most 100 bytes in a millisecond. A busy machine catches up
/// later, because a node abandons a peer if the system takes no byte for the patience.
async fn pass_slowly(from: &net::TcpStream, to: &net::TcpStream) {
    let (begun, mut passed) = (Instant::now(), 0);
    let mut byte = [0];
    while let Ok(1) = from.read(&mut byte).await
        && to.write_all(&byte).await.is_ok()
    {
        passed += 1;
        while passed > 100 * (Instant::now() - begun).as_millis() {
            procession::sleep(Duration::from_millis(1)).await;
        }
    }
}

/// A node that reads a byte at a time, for long: it costs a queue, and the other nodes continue.
#[test]
fn a_slow_node_costs_a_queue_and_holds_up_no_other() {
    let mut shop = Node::start("shop@127.0.0.1", &["--allow-net=127.0.0.1"], "floods");
    let mut desk = shop.start_peer("desk@127.0.0.1", "calls");
    shop.expect("up desk@127.0.0.1");
    let (address, way) = slow_way(shop.address);
    let till = Node::start("till@127.0.0.1", &[&format!("--peer=shop@127.0.0.1@{address}")], "");
    shop.expect("up till@127.0.0.1");
    let before = shop.memory();
    let mut floods = shop.child.stdin.take().expect("it is piped");
    let mut calls = desk.child.stdin.take().expect("it is piped");
    desk.expect("up shop@127.0.0.1");
    let begun = Instant::now();
    let (mut sent, mut rounds) = (0, 0);
    // Twice as long as a silent node is kept.
    while Instant::now() - begun < 2 * PATIENCE * 5 / 4 || rounds < 10 {
        rounds += 1;
        floods.write_all(b"go\n").expect("it reads");
        shop.expect("refused: the queue of the connection is full");
        let line = shop.line();
        let count: Option<u64> = line.strip_prefix("sent ").and_then(|count| count.parse().ok());
        sent += count.expect(&line);
        // What waits for the slow one would take longer than this.
        let asked = Instant::now();
        calls.write_all(b"go\n").expect("it reads");
        desk.expect("reply 7");
        let took = Instant::now() - asked;
        assert!(took < PATIENCE, "another node was held up for {took:?}");
        let grown = shop.memory().saturating_sub(before);
        assert!(grown < 64 * 1024, "the program has grown by {grown} KiB");
    }
    assert!(sent > 2000, "{sent} messages were sent in {rounds} rounds");
    // It was kept until now.
    drop((floods, way));
    let down = shop.line();
    assert!(down.starts_with("down till@127.0.0.1: ") && !down.contains("nothing"), "{down}");
    drop(till);
}

/// Reads until the other side has closed the connection. Returns the number of bytes.
fn drain(mut stream: &TcpStream) -> usize {
    stream.set_read_timeout(Some(LIMIT)).expect("it is not zero");
    let mut count = 0;
    loop {
        match stream.read(&mut [0; 512]) {
            Ok(0) => return count,
            Ok(more) => count += more,
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => return count,
            Err(error) => panic!("the connection was not closed: {error}"),
        }
    }
}

#[test]
fn garbage_and_silence_before_the_handshake_end_soon() {
    let mut shop = Node::start("shop@127.0.0.1", &[], "");
    drop(garble(&shop));
    // Its threads and tables are there now, so growth after that would have no end.
    let before = shop.memory();
    let waited = garble(&shop).iter().map(drain).sum::<usize>();
    assert_eq!(waited, 0, "nothing is said to silent ones");
    let grown = shop.memory().saturating_sub(before);
    assert!(grown < 16 * 1024, "the program has grown by {grown} KiB");
    // It continues.
    let mut till = shop.start_peer("till@127.0.0.1", "call");
    till.expect("up shop@127.0.0.1");
    till.expect("reply two");
    shop.expect("up till@127.0.0.1");
}

/// Goal: failures of the node's own processes are printed, as failures of a program are.
#[test]
fn a_refused_handshake_is_reported() {
    let mut shop = Node::start("shop@127.0.0.1", &[], "");
    let mut stream = TcpStream::connect(shop.address).expect("it listens");
    let own = stream.local_addr().expect("it is connected");
    stream.write_all(&[0; 100]).expect("it reads");
    let mut line = String::new();
    shop.err.read_line(&mut line).expect("it reports");
    assert!(line.starts_with("procession: "), "{line}");
    assert!(line.contains(&format!("the handshake with {own} was refused")), "{line}");
}

/// Connects 200 times with garbage, and 100 times in silence. Returns the silent connections, of
/// which at most 32 are still open.
fn garble(shop: &Node) -> Vec<TcpStream> {
    for round in 0..200_u32 {
        let garbage: Vec<u8> =
            (0..2000_u32).map(|n| ((n * 7919) ^ (round * 104_729)) as u8).collect();
        let mut stream = TcpStream::connect(shop.address).expect("it listens");
        // Ignored: it may be closed already.
        drop(stream.write_all(&garbage));
        assert!(drain(&stream) < 64, "garbage was answered");
    }
    // As many as may be in a handshake at a time, and others, which are closed immediately.
    let begun = Instant::now();
    let silent: Vec<_> =
        (0..100).map(|_| TcpStream::connect(shop.address).expect("it listens")).collect();
    let is_closed = |stream: &&TcpStream| {
        stream.set_nonblocking(true).expect("it is a socket");
        let closed = match (&mut &**stream).read(&mut [0]) {
            Ok(count) => {
                assert_eq!(count, 0, "nothing is said to silent ones");
                true
            }
            Err(error) => error.kind() != std::io::ErrorKind::WouldBlock,
        };
        stream.set_nonblocking(false).expect("it is a socket");
        closed
    };
    // Which connections are in a handshake depends on the end of the previous handshake.
    while silent.iter().filter(is_closed).count() < silent.len() - 32 {
        std::thread::yield_now();
    }
    assert!(Instant::now() - begun < Duration::from_secs(5), "those were not closed at once");
    silent
}

#[test]
fn mistakes_of_nodes_are_told() {
    check(
        "node x.lua",
        "procession: no name given: set --name WORD@HOST; see node --help\nexit code: 2\n",
    );
    check("node --name a@b", "procession: no program given: see run --help\nexit code: 2\n");
    check("cluster", "procession: it is cluster status NODE: see cluster --help\nexit code: 2\n");
    check("cluster start a@b", "procession: unexpected word 'start': see --help\nexit code: 2\n");
    check(
        "cluster status nobody",
        "procession: unexpected word 'nobody': see --help\nexit code: 2\n",
    );
    let cookie = &*COOKIE;
    check(
        &format!("cluster status --cookie-file {cookie} nobody@127.0.0.1:1"),
        "procession: cannot connect to nobody@127.0.0.1: the node was not reached: Connection refused (os error 111)\nexit code: 1\n",
    );
    check(
        &format!("node --name a@127.0.0.1 --cookie-file {cookie} --tls-cert x {PROGRAM}"),
        "procession: --tls-cert, --tls-key and --tls-ca go together\nexit code: 1\n",
    );
    check(
        &format!("node --name a@127.0.0.1 --cookie-file {cookie} --listen 0.0.0.0:0 {PROGRAM}"),
        "procession: cannot start the node: 0.0.0.0:0 can be reached from other machines, the node has no certificate, and plain text was not accepted\nexit code: 1\n",
    );
}
