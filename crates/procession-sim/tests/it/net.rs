//! The network between hosts.

mod faults;
mod handshakes;
mod hosts;
mod http;
mod keep_alive;
mod key_value;
mod streams;
mod udp;

use std::io::{self, ErrorKind};
use std::ops::Range;
use std::time::Duration;

use procession::net::{TcpListener, TcpStream};
use procession::time::timeout;
use procession_sim::Sim;

/// Returns the seeds of a long test: so many, or as many as `SIM_NET_SEEDS` says, from `SIM_FIRST`
/// on.
fn seeds(usual: u64) -> Range<u64> {
    let number = |name| std::env::var(name).ok().map(|text| text.parse().expect("a number"));
    let first: u64 = number("SIM_FIRST").unwrap_or(0);
    first..first + number("SIM_NET_SEEDS").unwrap_or(usual)
}

/// Sends back what clients send, until they end. Retries if the system has no descriptor.
async fn echo(port: u16) {
    let listener = listen(port).await;
    loop {
        let Ok((stream, _)) = listener.accept().await else { return };
        procession::spawn(async move {
            // An error of a connection concerns its client.
            let _ = serve(&stream).await;
        })
        .detach();
    }
}

async fn listen(port: u16) -> TcpListener {
    loop {
        match TcpListener::bind(("0.0.0.0", port)).await {
            Ok(listener) => return listener,
            Err(_) => procession::sleep(Duration::from_millis(10)).await,
        }
    }
}

async fn serve(stream: &TcpStream) -> io::Result<()> {
    let mut bytes = [0; 1000];
    loop {
        let count = stream.read(&mut bytes).await?;
        if count == 0 {
            return Ok(());
        }
        stream.write_all(&bytes[..count]).await?;
    }
}

/// Connects, sends bytes, and compares what is returned.
async fn ask(sim: &Sim, host: &str, length: usize) -> io::Result<()> {
    let stream = TcpStream::connect(host).await?;
    let bytes: Vec<_> = (0..length).map(|at| at as u8).collect();
    stream.write_all(&bytes).await?;
    let mut answer = vec![0; length];
    stream.read_exact(&mut answer).await?;
    sim.always("the echo is right", answer == bytes);
    Ok(())
}

/// Asks until that succeeds.
async fn ask_until_answered(sim: &Sim, host: &str) {
    let limit = Duration::from_secs(5);
    // A server that was switched off knows nothing of a connection, and sends nothing.
    while !matches!(timeout(limit, ask(sim, host, 10)).await, Ok(Ok(()))) {
        procession::sleep(Duration::from_millis(20)).await;
    }
}

fn is_reset(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::ConnectionReset | ErrorKind::BrokenPipe)
}
