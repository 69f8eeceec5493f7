//! Look at `serve`: each connection has its own process, so a connection that waits delays no
//! other.
//!
//! With an address, it serves until it is stopped:
//!
//! ```text
//! cargo run -p procession --example 07_echo_server -- 127.0.0.1:7000
//! nc 127.0.0.1 7000
//! ```
//!
//! Without an address, it connects a few clients to itself, one of which never sends anything, and
//! ends.
#![expect(clippy::print_stdout, reason = "an example shows its output")]

use std::io;
use std::time::Duration;

use procession::net::{TcpListener, TcpStream};
use procession::{Scheduler, spawn};

/// A client that is silent for this long is disconnected.
const CLIENT_TIMEOUT: Duration = Duration::from_secs(60);

async fn echo(stream: TcpStream) -> io::Result<u64> {
    stream.set_read_timeout(Some(CLIENT_TIMEOUT))?;
    let mut buffer = [0; 4096];
    let mut total = 0;
    loop {
        match stream.read(&mut buffer).await? {
            0 => return Ok(total),
            count => {
                // If the client does not read, only this process waits.
                stream.write_all(&buffer[..count]).await?;
                total += count as u64;
            }
        }
    }
}

async fn serve(listener: TcpListener) -> io::Result<()> {
    loop {
        let (stream, peer) = listener.accept().await?;
        drop(spawn(async move {
            match echo(stream).await {
                Ok(total) => println!("{peer}: {total} bytes"),
                Err(error) => println!("{peer}: {error}"),
            }
        }));
    }
}

async fn client(stream: TcpStream, text: String) -> io::Result<String> {
    stream.write_all(text.as_bytes()).await?;
    let mut back = vec![0; text.len()];
    stream.read_exact(&mut back).await?;
    Ok(String::from_utf8_lossy(&back).into_owned())
}

fn main() -> io::Result<()> {
    let scheduler = Scheduler::builder().name("echo").build().map_err(io::Error::other)?;
    let address = std::env::args().nth(1);
    scheduler.block_on(async {
        let listener = TcpListener::bind(address.as_deref().unwrap_or("127.0.0.1:0")).await?;
        let local = listener.local_addr()?;
        println!("listening on {local}");
        if address.is_some() {
            return serve(listener).await;
        }
        drop(spawn(serve(listener)));
        let _silent = TcpStream::connect(local).await?;
        for number in 1..=3 {
            let text = format!("client {number}");
            let back = client(TcpStream::connect(local).await?, text.clone()).await?;
            assert_eq!(back, text);
        }
        let sockets = scheduler.snapshot().descriptors.registered;
        println!("{sockets} sockets are open, and no thread waits for any of them");
        Ok(())
    })
}
