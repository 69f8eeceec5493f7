//! A TCP proxy: `proxy UPSTREAM [LIMIT [IDLE_MS [DRAIN_MS]]]`.
//!
//! It holds at most LIMIT connections. Further ones wait in the backlog. A connection in which
//! nothing moves for IDLE_MS is closed. At SIGTERM the proxy accepts no more, and goes on with the
//! connections that it has, for at most DRAIN_MS.

use std::env;
use std::error::Error;
use std::io;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use procession::net::{TcpListener, TcpStream};
use procession::process::OnCancel;
use procession::signal::Stopped;
use procession::sync::Semaphore;
use procession::{Scheduler, SpawnOptions};

const CONNECT: Duration = Duration::from_secs(5);

fn argument<T: FromStr>(number: usize, default: T) -> Result<T, T::Err> {
    env::args().nth(number).map_or(Ok(default), |text| text.parse())
}

fn main() -> Result<Stopped<io::Result<()>>, Box<dyn Error>> {
    let upstream =
        env::args().nth(1).ok_or("usage: proxy UPSTREAM [LIMIT [IDLE_MS [DRAIN_MS]]]")?;
    let (limit, idle, drain) = (argument(2, 10_000)?, argument(3, 60_000)?, argument(4, 20_000)?);
    let proxy = proxy(upstream, limit, Duration::from_millis(idle));
    Ok(Scheduler::global().run_until_signal(Duration::from_millis(drain), proxy)?)
}

async fn proxy(upstream: String, limit: usize, idle: Duration) -> io::Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    println!("proxy: listening on {}", listener.local_addr()?);
    let permits = Arc::new(Semaphore::new(limit));
    loop {
        let permit = permits.clone().acquire_owned(1).await;
        let (client, peer) = listener.accept().await?;
        let upstream = upstream.clone();
        // Asked, and not dropped, so that a connection outlives the signal.
        let options = SpawnOptions::new().label(peer.to_string()).on_cancel(OnCancel::Ask);
        let connection = options.spawn_fallible(async move {
            let _permit = permit;
            relay(client, upstream, idle).await
        });
        connection.detach();
    }
}

async fn relay(mut client: TcpStream, upstream: String, idle: Duration) -> io::Result<()> {
    let mut server = TcpStream::connect_timeout(upstream, CONNECT).await?;
    procession::io::copy_bidirectional(&mut client, &mut server).idle_timeout(idle).await?;
    Ok(())
}
