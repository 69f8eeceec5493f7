//! Look at [`server::tree`]: processes own the data, one process for each worker, and nothing is
//! locked. A connection reads the requests that have arrived, asks each shard once for all of them,
//! and answers in order. The server speaks the Redis protocol: GET, SET with EX, DEL, INCR and
//! PING, with pipelining.
//!
//! With an address, it serves until a signal:
//!
//! ```text
//! cargo run -p procession --release --features signal --example 14_key_value -- 127.0.0.1:7001
//! redis-cli -p 7001
//! ```
//!
//! After the first SIGINT or SIGTERM, it answers the requests that have arrived, for at most 5 s.
//! The second signal ends it at once. Without an address, it sends itself a few requests.
#![expect(clippy::print_stdout, reason = "an example shows its output")]

mod server;

use std::error::Error;
use std::io;
use std::time::Duration;

use procession::Scheduler;
use procession::net::{TcpListener, TcpStream};
use procession::signal::end_request;

const DEADLINE: Duration = Duration::from_secs(5);

/// Sends a request, and compares the answer.
async fn check(stream: &TcpStream, request: &str, expected: &str) -> io::Result<()> {
    stream.write_all(request.as_bytes()).await?;
    let mut answer = vec![0; expected.len()];
    stream.read_exact(&mut answer).await?;
    println!("{request:?} -> {expected:?}");
    assert_eq!(String::from_utf8_lossy(&answer), expected);
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let scheduler = Scheduler::builder().name("kv").build()?;
    let address = std::env::args().nth(1);
    let end = end_request()?;
    scheduler.block_on(async {
        let wanted = address.as_deref().unwrap_or("127.0.0.1:0");
        let bound = TcpListener::bind(wanted).await;
        let listener =
            bound.map_err(|error| format!("14_key_value: cannot listen on {wanted}: {error}"))?;
        let local = listener.local_addr()?;
        println!("listening on {local}");
        let _tree = server::tree(listener, scheduler.worker_threads()).try_start().await?;
        if address.is_some() {
            end.asked().await;
        } else {
            let stream = TcpStream::connect(local).await?;
            check(&stream, "PING\r\n", "+PONG\r\n").await?;
            check(&stream, "SET a 1\r\nINCR a\r\nGET a\r\n", "+OK\r\n:2\r\n$1\r\n2\r\n").await?;
            check(&stream, "*3\r\n$3\r\nDEL\r\n$1\r\na\r\n$1\r\nb\r\n", ":1\r\n").await?;
            check(&stream, "*1\r\n$-5\r\n", "-ERR Protocol error: invalid bulk length\r\n").await?;
        }
        let unfinished = scheduler.shutdown(DEADLINE).await;
        if unfinished.is_empty() {
            Ok(())
        } else {
            Err(format!("14_key_value: did not end: {unfinished:?}").into())
        }
    })
}
