//! Look at `Counter`: a tower service in which each request asks a process, which owns the numbers. hyper does the protocol, and each
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
use procession::channel::{Receiver, Sender};
use procession::http::serve;
use procession::net::{TcpListener, TcpStream, UnixStream};
use procession::{Scheduler, channel, spawn};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::low_level::pipe;
use tower_service::Service;

/// A page, and where the answer goes.
struct Visit(String, Sender<u64>);

/// Ends with the last of those who may ask. A mailbox would end with the shutdown, and a connection may have a request to answer then.
async fn count(visits: Receiver<Visit>) {
    let mut numbers = BTreeMap::new();
    while let Some(Visit(page, answer)) = visits.receive().await {
        let number = numbers.entry(page).or_insert(0);
        *number += 1;
        // Refused, the client has gone.
        let _ = answer.try_send(*number);
    }
}

#[derive(Clone)]
struct Counter(Sender<Visit>);

impl Counter {
    async fn visit(&self, page: &str) -> Option<u64> {
        let (answer, number) = channel::bounded(1);
        self.0.send(Visit(page.to_owned(), answer)).await.ok()?;
        number.receive().await
    }
}

impl Service<Request<Incoming>> for Counter {
    type Response = Response<String>;
    type Error = hyper::http::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Response<String>, hyper::http::Error>> + Send>>;

    fn poll_ready(&mut self, _: &mut TaskContext<'_>) -> Poll<Result<(), hyper::http::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Incoming>) -> Self::Future {
        let (counter, page) = (self.clone(), request.uri().path().to_owned());
        Box::pin(async move {
            match counter.visit(&page).await {
                Some(number) => Ok(Response::new(format!("visit {number} of {page}\n"))),
                None => Response::builder().status(StatusCode::SERVICE_UNAVAILABLE).body(String::new()),
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
        let (asks, visits) = channel::unbounded();
        drop(spawn(count(visits)));
        drop(spawn(serve(listener, Counter(asks))));
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
