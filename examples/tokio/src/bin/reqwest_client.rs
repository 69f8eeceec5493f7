//! Look at `visit`: `reqwest`, which needs tokio, runs unchanged in processes. The server runs on
//! the same scheduler and does not use tokio. The feature `tokio` is all that is needed.
#![expect(clippy::print_stdout, reason = "an example shows its output")]

use std::convert::Infallible;
use std::error::Error;
use std::future::{Ready, ready};
use std::net::SocketAddr;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::{Request, Response};
use procession::http::{RequestBody, serve};
use procession::net::TcpListener;
use procession::{Scheduler, spawn, timeout};
use reqwest::Client;
use tower_service::Service;

const CLIENTS: usize = 20;
const REQUESTS: usize = 50;

/// A service that answers with the path.
#[derive(Clone)]
struct Paths;

impl Service<Request<RequestBody>> for Paths {
    type Response = Response<String>;
    type Error = Infallible;
    type Future = Ready<Result<Response<String>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<RequestBody>) -> Self::Future {
        ready(Ok(Response::new(request.uri().path().to_owned())))
    }
}

/// Requests pages over a pool of connections that all processes share.
async fn visit(client: Client, server: SocketAddr, number: usize) -> reqwest::Result<usize> {
    for request in 0..REQUESTS {
        let path = format!("/{number}/{request}");
        let answer =
            client.get(format!("http://{server}{path}")).send().await?.error_for_status()?;
        assert_eq!(answer.text().await?, path);
    }
    Ok(REQUESTS)
}

fn main() -> Result<(), Box<dyn Error>> {
    let scheduler = Scheduler::builder().name("visits").build()?;
    scheduler.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let server = spawn(serve(listener, Paths));
        let client = Client::builder().timeout(Duration::from_secs(30)).build()?;
        let clients: Vec<_> =
            (0..CLIENTS).map(|number| spawn(visit(client.clone(), address, number))).collect();
        let mut answers = 0;
        for client in clients {
            answers += client.await??;
        }
        assert_eq!(answers, CLIENTS * REQUESTS);
        println!("{CLIENTS} processes had {answers} answers from {address}");

        // No process accepts here. Both kinds of timeouts work: reqwest's own, by tokio's clock,
        // and the scheduler's.
        let silent = TcpListener::bind("127.0.0.1:0").await?;
        let url = format!("http://{}/", silent.local_addr()?);
        let late = client.get(&url).timeout(Duration::from_millis(20)).send().await;
        assert!(late.expect_err("nobody answers").is_timeout());
        timeout(Duration::from_millis(20), client.get(&url).send())
            .await
            .expect_err("nobody answers");

        drop(server);
        let unfinished = scheduler.shutdown(Duration::from_secs(10)).await;
        assert!(unfinished.is_empty(), "{unfinished:?}");
        Ok(())
    })
}

#[test]
fn processes_use_reqwest() {
    main().expect("the server is local");
}
