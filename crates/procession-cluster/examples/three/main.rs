//! A cluster of three nodes: a till and a stock in Rust, and a ledger in Erlang.
//!
//! ```console
//! $ cargo run -p procession-cluster --example three
//! ```
//!
//! Each node is a program of the system. The till starts the other nodes, so that one command is
//! enough. It needs `erl` and `epmd`. `output.txt` has what it prints.

use std::error::Error;
use std::io::{self, Read, Write};
use std::net::Ipv4Addr;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use procession::process::OnCancel;
use procession::{Context, SpawnOptions};
use procession_cluster::{Cookie, Letter, Member, Node, NodeBuilder, Remote, Term};

const TILL: &str = "three_till@127.0.0.1";
const STOCK: &str = "three_stock@127.0.0.1";
const LEDGER: &str = "three_ledger@127.0.0.1";
const COOKIE: &str = "three";
const LIMIT: Duration = Duration::from_secs(30);

type AnyError = Box<dyn Error + Send + Sync>;

fn builder(name: &str) -> Result<NodeBuilder, AnyError> {
    let cookie = Cookie::new(COOKIE).ok_or("a cookie is not empty")?;
    Ok(Node::builder(name).cookie(cookie).listen((Ipv4Addr::LOCALHOST, 0).into()).register())
}

/// Sells what is there: the process `stock`.
async fn stock(mut cx: Context<Letter>, mut pears: u32) {
    while let Some(letter) = cx.recv().await {
        if let Letter::Call { reply, .. } = letter {
            let answer = match pears.checked_sub(1) {
                Some(left) => {
                    pears = left;
                    Term::tuple([Term::atom("ok"), Term::from(left)])
                }
                None => Term::atom("sold_out"),
            };
            // A caller that is gone needs no reply.
            drop(reply.send(answer));
        }
    }
}

/// The node of the stock. It ends with its standard input.
async fn serve_stock() -> Result<(), AnyError> {
    let node = builder(STOCK)?.start().await?;
    let process = procession::start(|cx| stock(cx, 2));
    let member = node.attach(&process.address().map(|letter| letter));
    node.register("stock", &member)?;
    procession::spawn_blocking(|| io::stdin().read_to_end(&mut Vec::new())).await??;
    Ok(())
}

/// A program of the system, which ends when this is dropped.
struct Program(Child);

impl Drop for Program {
    fn drop(&mut self) {
        // Ignored: it may have ended.
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

fn start_stock() -> io::Result<Program> {
    let mut command = Command::new(std::env::current_exe()?);
    Ok(Program(command.arg("stock").stdin(Stdio::piped()).spawn()?))
}

fn start_ledger() -> io::Result<Program> {
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/three/ledger.erl");
    let compile = format!("{{ok, M, C}} = compile:file({source:?}, [binary]), ");
    let start = "{module, M} = code:load_binary(M, \"ledger\", C), {ok, _} = ledger:start()";
    let mut erl = Command::new("erl");
    erl.args(["-noinput", "-hidden", "-name", LEDGER, "-setcookie", COOKIE]);
    erl.args(["-kernel", "prevent_overlapping_partitions", "false"]);
    Ok(Program(erl.arg("-eval").arg(compile + start).stdin(Stdio::null()).spawn()?))
}

/// Connects to a node, and waits until a process has its name there.
async fn reach(own: &Member, name: &str, node: &str) -> Result<Remote, AnyError> {
    let process = Remote::named(name, node);
    let ready = async {
        loop {
            if own.node().connect(node).await.is_ok() {
                let monitor = own.monitor(process.clone());
                // A round trip later, a process without the name would be reported.
                let pinged = own.node().call(Remote::named("net_kernel", node), is_auth(), LIMIT);
                if pinged.await.is_ok() && own.demonitor(process.clone(), &monitor) {
                    return process;
                }
            }
            procession::sleep(Duration::from_millis(50)).await;
        }
    };
    procession::timeout(LIMIT, ready).await.map_err(|_| format!("{node} does not start").into())
}

/// The request of a ping.
fn is_auth() -> Term {
    Term::tuple([Term::atom("is_auth"), Term::atom("three")])
}

fn say(text: &str) -> io::Result<()> {
    writeln!(io::stdout(), "{text}")
}

/// Sells pears until there are none, and then ends the node of the stock.
async fn till(mut cx: Context<Letter>, node: Node, stock: Program) -> Result<(), AnyError> {
    let own = node.attach(&cx.address().map(|letter| letter));
    let (shelf, ledger) =
        (reach(&own, "stock", STOCK).await?, reach(&own, "ledger", LEDGER).await?);
    loop {
        let taken = own.call(shelf.clone(), Term::atom("take"), LIMIT).await?;
        let Some([_, left]) = taken.as_tuple() else { break };
        say(&format!("{STOCK} has sold a pear, {left} left"))?;
        let sold = Term::tuple([Term::atom("sold"), Term::from("pear")]);
        let count = own.call(ledger.clone(), sold, LIMIT).await?;
        say(&format!("{LEDGER} has noted {count}"))?;
    }
    say("sold out")?;
    let monitor = own.monitor(shelf);
    // Its node also connects to the node of the stock.
    own.call(ledger, Term::tuple([Term::atom("watch"), own.pid().into()]), LIMIT).await?;
    drop(stock);
    say("the program of the stock was killed")?;
    let (mut seen_here, mut seen_there) = (None, None);
    while seen_here.is_none() || seen_there.is_none() {
        match cx.recv().await {
            // Reports of earlier monitors are about a name that nobody had yet.
            Some(Letter::Down(down)) if down.monitor == monitor => seen_here = Some(down.exit),
            Some(Letter::Message { term, .. }) => seen_there = Some(term),
            Some(_) => {}
            None => return Err("the till was cancelled".into()),
        }
    }
    say(&format!("{TILL} has seen: {}", seen_here.ok_or("it was seen")?))?;
    say(&format!("{LEDGER} has seen: {}", seen_there.ok_or("it was seen")?))?;
    Ok(())
}

async fn serve_till() -> Result<(), AnyError> {
    if !Command::new("epmd").arg("-daemon").status()?.success() {
        return Err("cannot start epmd".into());
    }
    let node = builder(TILL)?.start().await?;
    let (stock, _ledger) = (start_stock()?, start_ledger()?);
    let options = SpawnOptions::new().on_cancel(OnCancel::Drop);
    options.start(move |cx| till(cx, node, stock)).await??;
    Ok(())
}

fn main() -> Result<(), AnyError> {
    match std::env::args().nth(1).as_deref() {
        Some("stock") => procession::run(serve_stock()),
        _ => procession::run(serve_till()),
    }
}
