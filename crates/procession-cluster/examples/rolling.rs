//! Three nodes that are restarted one after another by SIGTERM, while 100 clients call them. Each
//! call that a node has accepted is answered. A call that comes back goes to the next node.
//!
//! ```console
//! $ cargo run -p procession-cluster --example rolling
//! ```
//!
//! Each node is a program of the system, which the program of the clients starts. It needs `epmd`.

use std::env;
use std::error::Error;
use std::io::{self, BufRead, BufReader, Write};
use std::net::Ipv4Addr;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use procession::supervisor::{ChildSpec, Supervisor};
use procession::sync::CancellationToken;
use procession::{Context, Scheduler, sleep, spawn, spawn_blocking};
use procession_cluster::{CallTermError, Cookie, Letter, Node, NodeBuilder, Remote, Term};
use rustix::process::{Pid, Signal, kill_process};

const SERVERS: [&str; 3] = ["rolling_a@127.0.0.1", "rolling_b@127.0.0.1", "rolling_c@127.0.0.1"];
const CLIENTS: usize = 100;
/// The time between two restarts, in which the clients call.
const BETWEEN: Duration = Duration::from_millis(500);
const LIMIT: Duration = Duration::from_secs(10);

type AnyError = Box<dyn Error + Send + Sync>;

fn builder(name: &str) -> Result<NodeBuilder, AnyError> {
    let cookie = Cookie::new("rolling").ok_or("a cookie is not empty")?;
    Ok(Node::builder(name).cookie(cookie).listen((Ipv4Addr::LOCALHOST, 0).into()).register())
}

/// Answers each call after a moment, so that calls wait.
async fn answer(mut cx: Context<Letter>, node: Node) -> Result<(), AnyError> {
    let member = node.attach(&cx.address().map(|letter| letter));
    node.register("server", &member)?;
    writeln!(io::stdout(), "ready")?;
    while let Some(letter) = cx.recv().await {
        if let Letter::Call { request, reply } = letter {
            sleep(Duration::from_millis(1)).await;
            // A caller that is gone needs no reply.
            drop(reply.send(request));
        }
    }
    Ok(())
}

/// The program of a server. Its children end in reverse order, so that the node has left the
/// cluster before the process that answers calls ends.
async fn serve(name: String) -> Result<(), AnyError> {
    let node = builder(&name)?.start().await?;
    let of_answers = node.clone();
    let answers = ChildSpec::new("answers", move |cx| answer(cx, of_answers.clone()));
    let leaves = ChildSpec::new("leaves", move |cx: Context<()>| {
        let node = node.clone();
        async move {
            cx.cancelled().await;
            node.drain(LIMIT).await;
        }
    });
    Supervisor::one_for_one().child(answers).child(leaves).try_start().await?.await;
    Ok(())
}

/// A program of a server, which ends when this is dropped.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        // Ignored: it may have ended.
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// Starts a server, and waits until it takes calls.
fn start(name: &str) -> io::Result<Server> {
    let mut child = Command::new(env::current_exe()?).arg(name).stdout(Stdio::piped()).spawn()?;
    let out = child.stdout.take();
    let server = Server(child);
    match out.map(|out| BufReader::new(out).read_line(&mut String::new())).transpose()? {
        Some(1..) => Ok(server),
        _ => Err(io::Error::other(format!("{name} does not start"))),
    }
}

/// Ends a server in order.
fn end(mut server: Server) -> io::Result<()> {
    kill_process(Pid::from_child(&server.0), Signal::TERM)?;
    let status = server.0.wait()?;
    if status.success() { Ok(()) } else { Err(io::Error::other(status.to_string())) }
}

/// The calls of a client.
#[derive(Default)]
struct Calls {
    answered: u64,
    /// No node has accepted them.
    returned: u64,
    lost: u64,
}

/// Calls one server after the other, until it is done.
async fn client(node: Node, first: usize, done: CancellationToken) -> Calls {
    let mut calls = Calls::default();
    let mut servers = SERVERS.iter().cycle().skip(first);
    while !done.is_cancelled() {
        let server = Remote::named("server", servers.next().expect("it has no end"));
        match node.call(server, Term::from(7), LIMIT).await {
            Ok(_) => calls.answered += 1,
            Err(CallTermError::Send(_)) => calls.returned += 1,
            Err(_) => calls.lost += 1,
        }
    }
    calls
}

async fn restart_all() -> Result<(), AnyError> {
    if !Command::new("epmd").arg("-daemon").status()?.success() {
        return Err("cannot start epmd".into());
    }
    let node = builder("rolling_clients@127.0.0.1")?.start().await?;
    let mut servers = Vec::new();
    for name in SERVERS {
        servers.push((name, spawn_blocking(move || start(name)).await??));
        node.connect(name).await?;
    }
    let done = CancellationToken::new();
    let clients = (0..CLIENTS).map(|first| spawn(client(node.clone(), first, done.clone())));
    let clients: Vec<_> = clients.collect();
    for (name, server) in std::mem::take(&mut servers) {
        sleep(BETWEEN).await;
        spawn_blocking(move || end(server)).await??;
        servers.push((name, spawn_blocking(move || start(name)).await??));
        node.connect(name).await?;
    }
    sleep(BETWEEN).await;
    done.cancel();
    let mut all = Calls::default();
    for client in clients {
        let Calls { answered, returned, lost } = client.await?;
        all.answered += answered;
        all.returned += returned;
        all.lost += lost;
    }
    let Calls { answered, returned, lost } = all;
    writeln!(io::stdout(), "{answered} calls answered, {returned} sent again, {lost} lost")?;
    if answered == 0 || lost > 0 { Err("calls were lost".into()) } else { Ok(()) }
}

fn main() -> Result<(), AnyError> {
    match env::args().nth(1) {
        Some(name) => {
            let stopped = Scheduler::global().run_until_signal(LIMIT, serve(name))?;
            stopped.into_output().unwrap_or(Ok(()))
        }
        None => procession::run(restart_all()),
    }
}
