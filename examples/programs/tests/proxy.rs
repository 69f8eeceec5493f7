//! The proxy holds thousands of connections, and ends each in order.

use std::io::ErrorKind;
use std::net::SocketAddr;

use procession_programs::Program;
use rustix::process::{Resource, Signal, getrlimit};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

type Error = Box<dyn std::error::Error + Send + Sync>;

const CONNECTIONS: u64 = 2000;
/// The connections that are opened at once. More would not fit into the backlogs.
const BURST: u64 = 500;
const PROXIES: [&str; 2] = [env!("CARGO_BIN_EXE_proxy"), env!("CARGO_BIN_EXE_proxy_tokio")];

/// As many connections as the descriptors permit: a test has both ends of each.
fn connections() -> u64 {
    let descriptors = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    CONNECTIONS.min((descriptors - 100) / 2)
}

/// Starts a server that sends everything back.
async fn echo() -> Result<SocketAddr, Error> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let (mut from, mut to) = stream.split();
                let _ = tokio::io::copy(&mut from, &mut to).await;
            });
        }
    });
    Ok(address)
}

async fn start(
    path: &str,
    limit: u64,
    idle_ms: u64,
    drain_ms: u64,
) -> Result<(Program, SocketAddr), Error> {
    let upstream = echo().await?.to_string();
    let limits = [limit, idle_ms, drain_ms].map(|limit| limit.to_string());
    let mut proxy = Program::start(path, &[&upstream, &limits[0], &limits[1], &limits[2]]);
    let address = proxy.address();
    Ok((proxy, address))
}

/// Sends a number, and waits until it has come back.
async fn round_trip(stream: &mut TcpStream, number: u64) -> Result<(), Error> {
    stream.write_u64(number).await?;
    assert_eq!(stream.read_u64().await?, number);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn every_connection_is_served_until_it_ends() -> Result<(), Error> {
    for path in PROXIES {
        let count = connections();
        let (proxy, address) = start(path, count, 60_000, 60_000).await?;
        let mut streams = Vec::new();
        while (streams.len() as u64) < count {
            let from = streams.len() as u64;
            let mut opening = JoinSet::new();
            for number in from..count.min(from + BURST) {
                opening.spawn(async move {
                    let mut stream = TcpStream::connect(address).await?;
                    round_trip(&mut stream, number).await?;
                    Ok::<_, Error>(stream)
                });
            }
            for stream in opening.join_all().await {
                streams.push(stream?);
            }
        }

        // One more waits until another one has ended.
        let mut late = TcpStream::connect(address).await?;
        drop(streams.pop());
        round_trip(&mut late, count).await?;

        // After the signal, the proxy accepts no more and goes on with those that it has.
        proxy.signal(Signal::TERM);
        while TcpStream::connect(address).await.is_ok() {}
        for (stream, number) in streams.iter_mut().zip(0..) {
            round_trip(stream, number).await?;
        }
        drop((streams, late));
        assert_eq!(proxy.wait().code, Some(0), "{path}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_silent_connection_is_closed() -> Result<(), Error> {
    for path in PROXIES {
        let (proxy, address) = start(path, 10, 100, 60_000).await?;
        let mut stream = TcpStream::connect(address).await?;
        match stream.read_u64().await {
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => {}
            other => panic!("{path}: {other:?}"),
        }
        assert_eq!(proxy.terminate().code, Some(0), "{path}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_that_does_not_end_is_cut_off_and_the_program_says_so() -> Result<(), Error> {
    for path in PROXIES {
        let (proxy, address) = start(path, 10, 60_000, 300).await?;
        let mut stream = TcpStream::connect(address).await?;
        round_trip(&mut stream, 1).await?;
        assert_eq!(proxy.terminate().code, Some(1), "{path}");
    }
    Ok(())
}
