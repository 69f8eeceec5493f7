//! Look at [`server::tree`]: the data are owned by processes, one for each worker, and nobody locks anything. A connection reads what has come, asks
//! each shard once for all of it, and answers in order. It speaks the Redis protocol: GET, SET with EX, DEL, INCR, PING, also pipelined.
//!
//! With an address it serves until a signal: `cargo run --release --example 14_key_value -- 127.0.0.1:7001`, then `redis-cli -p 7001`. The first SIGINT
//! or SIGTERM lets it answer what has come, for 5 s at most; the second ends it at once. Without an address, it talks to itself a little.
#![expect(clippy::print_stdout, reason = "an example shows its output")]

mod server;

use std::error::Error;
use std::io;
use std::os::unix::net::UnixStream as StdStream;
use std::time::Duration;

use procession::Scheduler;
use procession::net::{TcpListener, TcpStream, UnixStream};
use procession_sync::Arc;
use procession_sync::atomic::AtomicBool;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::{flag, low_level::pipe};

const DEADLINE: Duration = Duration::from_secs(5);

/// Waits for the first SIGINT or SIGTERM. With the second the program exits, with 128 and the number of the signal.
async fn signal() -> io::Result<()> {
    let (told, tells) = StdStream::pair()?;
    let has_come = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        // In this order: the first finds the flag down.
        flag::register_conditional_shutdown(signal, 128 + signal, Arc::clone(&has_come))?;
        flag::register(signal, Arc::clone(&has_come))?;
        pipe::register(signal, tells.try_clone()?)?;
    }
    told.set_nonblocking(true)?;
    UnixStream::try_from(told)?.read(&mut [0]).await.map(drop)
}

/// Asks, and compares the answer.
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
    scheduler.block_on(async {
        let wanted = address.as_deref().unwrap_or("127.0.0.1:0");
        let bound = TcpListener::bind(wanted).await;
        let listener = bound.map_err(|error| format!("14_key_value: cannot listen on {wanted}: {error}"))?;
        let here = listener.local_addr()?;
        println!("listening on {here}");
        let _tree = server::tree(listener, scheduler.width()).start().await?;
        if address.is_some() {
            signal().await?;
        } else {
            let stream = TcpStream::connect(here).await?;
            check(&stream, "PING\r\n", "+PONG\r\n").await?;
            check(&stream, "SET a 1\r\nINCR a\r\nGET a\r\n", "+OK\r\n:2\r\n$1\r\n2\r\n").await?;
            check(&stream, "*3\r\n$3\r\nDEL\r\n$1\r\na\r\n$1\r\nb\r\n", ":1\r\n").await?;
            check(&stream, "*1\r\n$-5\r\n", "-ERR Protocol error: invalid bulk length\r\n").await?;
        }
        let unfinished = scheduler.shutdown(DEADLINE).await;
        if unfinished.is_empty() { Ok(()) } else { Err(format!("14_key_value: did not end: {unfinished:?}").into()) }
    })
}
