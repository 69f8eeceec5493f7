//! A counter that Erlang and Elixir shells call. It is a process of this program.
//!
//! ```console
//! $ cargo run -p procession-cluster --example counter
//! shop@127.0.0.1 listens at 127.0.0.1:35673
//! $ iex --name me@127.0.0.1 --cookie procession
//! iex> GenServer.call({:counter, :"shop@127.0.0.1"}, :next)
//! 1
//! iex> :erpc.call(:"shop@127.0.0.1", :shop, :total, [[3, 4]])
//! 7
//! ```
//!
//! It ends with its standard input.

use std::error::Error;
use std::io::{Read, Write};
use std::net::Ipv4Addr;

use procession::Context;
use procession_cluster::{Cookie, Grants, Letter, Node, Term};

/// Adds prices, for other nodes: what they call returns a value. Another node may send anything, so
/// a price that is no integer of 64 bits and a sum that is none are errors of the caller.
async fn total(arguments: Vec<Term>) -> Result<Term, Term> {
    let [Term::List(prices)] = &arguments[..] else { return Err(Term::atom("badarg")) };
    let sum = prices.iter().try_fold(0_i64, |sum, price| sum.checked_add(price.as_integer()?));
    sum.map(Term::from).ok_or_else(|| Term::atom("badarg"))
}

/// Counts the calls.
async fn counter(mut cx: Context<Letter>) {
    let mut count = 0_u32;
    while let Some(letter) = cx.recv().await {
        if let Letter::Call { request, reply } = letter {
            let answer = match request.is_atom("next") {
                true => {
                    count += 1;
                    Term::from(count)
                }
                false => Term::tuple([Term::atom("error"), request]),
            };
            // A caller that is gone needs no reply.
            drop(reply.send(answer));
        }
    }
}

async fn serve() -> Result<(), Box<dyn Error + Send + Sync>> {
    let node = Node::builder("shop@127.0.0.1")
        .cookie(Cookie::new("procession").ok_or("a cookie is not empty")?)
        .listen((Ipv4Addr::LOCALHOST, 0).into())
        .grant("*@127.0.0.1", Grants::new().spawn("shop", "total"))
        .register()
        .start()
        .await?;
    node.export_function("shop", "total", 1, total);
    let counter = procession::start(counter);
    let member = node.attach(&counter.address().map(|letter| letter));
    node.register("counter", &member)?;
    if let Some(address) = node.local_addr() {
        writeln!(std::io::stdout(), "{} listens at {address}", node.name())?;
    }
    procession::spawn_blocking(|| std::io::stdin().read_to_end(&mut Vec::new())).await??;
    node.stop().await;
    Ok(())
}

fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    procession::run(serve())
}
