//! Look at `Counter`: a tower service in which each request asks one process, which owns the
//! counts. hyper speaks the protocol, and each connection is a process, too.
//!
//! With an address, it serves until SIGINT or SIGTERM:
//!
//! ```text
//! cargo run -p procession --features serve,signal --example 09_http_service -- 127.0.0.1:7000
//! curl 127.0.0.1:7000/some/page
//! ```
//!
//! Without an address, it sends itself a few requests. Then it shuts down, which lets every
//! connection finish its request.
#![expect(clippy::print_stdout, reason = "an example shows its output")]

use std::collections::BTreeMap;
use std::io;
use std::pin::Pin;
use std::task::{Context as TaskContext, Poll};
use std::time::Duration;

use hyper::{Request, Response, StatusCode};
use procession::http::{RequestBody, serve};
use procession::net::{TcpListener, TcpStream};
use procession::process::OnCancel;
use procession::signal::end_request;
use procession::sync::channel::{self, Receiver, Sender};
use procession::{Scheduler, SpawnOptions};
use tower_service::Service;

/// A page, and the channel for the answer.
struct Visit(String, Sender<u64>);

/// Ends once all senders are dropped, whatever asks it to end: a connection may still have a
/// request to answer.
async fn count(visits: Receiver<Visit>) {
    let mut numbers = BTreeMap::new();
    while let Some(Visit(page, answer)) = visits.recv().await {
        let number = numbers.entry(page).or_insert(0);
        *number += 1;
        // Ignored: the client is gone.
        let _ = answer.try_send(*number);
    }
}

#[derive(Clone)]
struct Counter(Sender<Visit>);

impl Counter {
    async fn visit(&self, page: &str) -> Option<u64> {
        let (answer, number) = channel::bounded(1);
        self.0.send(Visit(page.to_owned(), answer)).await.ok()?;
        number.recv().await
    }
}

impl Service<Request<RequestBody>> for Counter {
    type Response = Response<String>;
    type Error = hyper::http::Error;
    type Future =
        Pin<Box<dyn Future<Output = Result<Response<String>, hyper::http::Error>> + Send>>;

    fn poll_ready(&mut self, _: &mut TaskContext<'_>) -> Poll<Result<(), hyper::http::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<RequestBody>) -> Self::Future {
        let (counter, page) = (self.clone(), request.uri().path().to_owned());
        Box::pin(async move {
            match counter.visit(&page).await {
                Some(number) => Ok(Response::new(format!("visit {number} of {page}\n"))),
                None => {
                    Response::builder().status(StatusCode::SERVICE_UNAVAILABLE).body(String::new())
                }
            }
        })
    }
}

/// Requests a page, and returns the last line of the response.
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

fn main() -> io::Result<()> {
    let scheduler = Scheduler::builder().name("http").build().map_err(io::Error::other)?;
    let address = std::env::args().nth(1);
    let end = end_request()?;
    scheduler.block_on(async {
        let listener = TcpListener::bind(address.as_deref().unwrap_or("127.0.0.1:0")).await?;
        let local = listener.local_addr()?;
        println!("listening on {local}");
        let (asks, visits) = channel::unbounded();
        // A shutdown asks both. It would drop a process of `spawn`, and requests with it.
        let asked = || SpawnOptions::new().on_cancel(OnCancel::Ask);
        drop(asked().spawn(count(visits)));
        drop(asked().spawn(serve(listener, Counter(asks))));
        if address.is_some() {
            end.asked().await;
        } else {
            let stream = TcpStream::connect(local).await?;
            for number in 1..=3 {
                let answer = ask(&stream, "/page").await?;
                println!("{answer}");
                assert_eq!(answer, format!("visit {number} of /page"));
            }
        }
        // Closes idle connections. The others answer their request first.
        let unfinished = scheduler.shutdown(Duration::from_secs(5)).await;
        assert!(unfinished.is_empty(), "{unfinished:?}");
        Ok(())
    })
}
