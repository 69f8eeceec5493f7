//! Look at `Counter`: a tower service in which each request calls a process, which owns the numbers. hyper does the protocol, and each
//! connection is a process, too. Run it with `--features serve`.
//!
//! With an address it serves until SIGINT or SIGTERM: `-- 127.0.0.1:7000`, then `curl 127.0.0.1:7000/some/page`, or `wrk`. Without, it asks
//! itself a few times. Then it shuts down, which lets every connection finish.
#![expect(clippy::print_stdout, reason = "an example shows its output")]

use std::collections::BTreeMap;
use std::io;
use std::os::unix::net::UnixStream as StdStream;
use std::pin::Pin;
use std::task::{Context as TaskContext, Poll};
use std::time::Duration;

use hyper::body::Incoming;
use hyper::{Request, Response, StatusCode};
use procession::http::serve;
use procession::net::{TcpListener, TcpStream, UnixStream};
use procession::{Address, Context, Reply, Scheduler, spawn, start};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::low_level::pipe;
use tower_service::Service;

/// A page, and who wants to know how often it was asked for.
struct Visit(String, Reply<u64>);

async fn count(mut cx: Context<Visit>) {
    let mut visits = BTreeMap::new();
    while let Some(Visit(page, reply)) = cx.receive().await {
        let number = visits.entry(page).or_insert(0);
        *number += 1;
        reply.send(*number);
    }
}

#[derive(Clone)]
struct Counter(Address<Visit>);

impl Service<Request<Incoming>> for Counter {
    type Response = Response<String>;
    type Error = hyper::http::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Response<String>, hyper::http::Error>> + Send>>;

    fn poll_ready(&mut self, _: &mut TaskContext<'_>) -> Poll<Result<(), hyper::http::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Incoming>) -> Self::Future {
        let (counter, page) = (self.0.clone(), request.uri().path().to_owned());
        Box::pin(async move {
            let visits = counter.call(|reply| Visit(page.clone(), reply), Duration::from_secs(1)).await;
            match visits {
                Ok(number) => Ok(Response::new(format!("visit {number} of {page}\n"))),
                Err(error) => Response::builder().status(StatusCode::SERVICE_UNAVAILABLE).body(format!("{error}\n")),
            }
        })
    }
}

/// Asks for a page; the last line of the answer.
async fn ask(stream: &TcpStream, page: &str) -> io::Result<String> {
    stream.write_all(format!("GET {page} HTTP/1.1\r\nhost: me\r\n\r\n").as_bytes()).await?;
    let mut answer = Vec::new();
    while !answer.ends_with(format!("{page}\n").as_bytes()) {
        let mut part = [0; 256];
        let count = stream.read(&mut part).await?;
        answer.extend(&part[..count]);
    }
    Ok(String::from_utf8_lossy(&answer).lines().last().unwrap_or_default().to_owned())
}

/// Waits for the first SIGINT or SIGTERM.
async fn signal() -> io::Result<()> {
    let (told, tells) = StdStream::pair()?;
    for signal in [SIGINT, SIGTERM] {
        pipe::register(signal, tells.try_clone()?)?;
    }
    told.set_nonblocking(true)?;
    UnixStream::try_from(told)?.read(&mut [0]).await.map(drop)
}

fn main() -> io::Result<()> {
    let scheduler = Scheduler::builder().name("http").build().map_err(io::Error::other)?;
    let address = std::env::args().nth(1);
    scheduler.block_on(async {
        let listener = TcpListener::bind(address.as_deref().unwrap_or("127.0.0.1:0")).await?;
        let here = listener.local_addr()?;
        println!("listening on {here}");
        let counter = start(count);
        let service = Counter(counter.address().clone());
        drop(spawn(serve(listener, service)));
        if address.is_some() {
            signal().await?;
        } else {
            let stream = TcpStream::connect(here).await?;
            for number in 1..=3 {
                let answer = ask(&stream, "/page").await?;
                println!("{answer}");
                assert_eq!(answer, format!("visit {number} of /page"));
            }
        }
        // Idle connections are closed, the others answer first.
        let unfinished = scheduler.shutdown(Duration::from_secs(5)).await;
        assert!(unfinished.is_empty(), "{unfinished:?}");
        Ok(())
    })
}
