//! The TCP proxy for tokio.

use std::env;
use std::error::Error;
use std::io;
use std::process::ExitCode;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{Notify, Semaphore};
use tokio::time::{sleep, timeout};
use tokio_util::task::TaskTracker;

const CONNECT: Duration = Duration::from_secs(5);
const BUFFER: usize = 16 * 1024;

fn argument<T: FromStr>(number: usize, default: T) -> Result<T, T::Err> {
    env::args().nth(number).map_or(Ok(default), |text| text.parse())
}

#[tokio::main]
async fn main() -> Result<ExitCode, Box<dyn Error>> {
    let upstream =
        env::args().nth(1).ok_or("usage: proxy UPSTREAM [LIMIT [IDLE_MS [DRAIN_MS]]]")?;
    let (limit, idle, drain) = (argument(2, 10_000)?, argument(3, 60_000)?, argument(4, 20_000)?);
    let (idle, drain) = (Duration::from_millis(idle), Duration::from_millis(drain));
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    println!("proxy: listening on {}", listener.local_addr()?);

    let connections = TaskTracker::new();
    tokio::select! {
        () = accept(&listener, upstream, limit, idle, &connections) => {}
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    drop(listener);
    connections.close();
    if timeout(drain, connections.wait()).await.is_err() {
        eprintln!("proxy: {} connections were cut off", connections.len());
        return Ok(ExitCode::FAILURE);
    }
    Ok(ExitCode::SUCCESS)
}

async fn accept(
    listener: &TcpListener,
    upstream: String,
    limit: usize,
    idle: Duration,
    connections: &TaskTracker,
) {
    let permits = Arc::new(Semaphore::new(limit));
    loop {
        let permit = permits.clone().acquire_owned().await;
        let (client, peer) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                // For example, no descriptor is left.
                eprintln!("proxy: cannot accept: {error}");
                sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let upstream = upstream.clone();
        connections.spawn(async move {
            let _permit = permit;
            if let Err(error) = relay(client, upstream, idle).await {
                eprintln!("proxy: {peer}: {error}");
            }
        });
    }
}

async fn relay(mut client: TcpStream, upstream: String, idle: Duration) -> io::Result<()> {
    let mut server = timeout(CONNECT, TcpStream::connect(upstream)).await??;
    let (moved, (from_client, to_client)) = (Notify::new(), client.split());
    let (from_server, to_server) = server.split();
    let there = copy(from_client, to_server, &moved);
    let back = copy(from_server, to_client, &moved);
    let mut both = std::pin::pin!(async { tokio::try_join!(there, back) });
    loop {
        tokio::select! {
            copied = &mut both => return copied.map(|_| ()),
            moved = timeout(idle, moved.notified()) => moved?,
        }
    }
}

/// Copies in one direction, and tells when data moves.
async fn copy(mut from: ReadHalf<'_>, mut to: WriteHalf<'_>, moved: &Notify) -> io::Result<()> {
    let mut buffer = vec![0; BUFFER];
    loop {
        let count = from.read(&mut buffer).await?;
        moved.notify_one();
        if count == 0 {
            return to.shutdown().await;
        }
        to.write_all(&buffer[..count]).await?;
    }
}
