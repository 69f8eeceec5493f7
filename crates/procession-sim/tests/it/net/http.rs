//! The HTTP server of hyper against the client of hyper, over a network that resets connections and
//! delivers bytes one at a time.

use std::convert::Infallible;
use std::error::Error;
use std::future::{Ready, poll_fn, ready};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::body::{Body, Buf};
use hyper::{Request, Response, Uri};
use hyper_util::client::legacy::Client;
use procession::http::{Connector, Executor, RequestBody, Server, Timer};
use procession_sim::{Check, Fault, Faults, Sim};
use procession_sync::atomic::AtomicU64;
use procession_sync::atomic::Ordering::Relaxed;
use tower_service::Service;

use super::{listen, seeds};

/// Answers with the path of the request.
#[derive(Clone)]
struct Paths(Arc<AtomicU64>);

impl Service<Request<RequestBody>> for Paths {
    type Response = Response<String>;
    type Error = Infallible;
    type Future = Ready<Result<Response<String>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<RequestBody>) -> Self::Future {
        self.0.fetch_add(1, Relaxed);
        ready(Ok(Response::new(format!("you asked for {}", request.uri().path()))))
    }
}

async fn collect<B: Body + Unpin>(mut body: B) -> Result<Vec<u8>, B::Error> {
    let mut bytes = Vec::new();
    while let Some(frame) = poll_fn(|task| Pin::new(&mut body).poll_frame(task)).await {
        if let Ok(mut data) = frame?.into_data() {
            let (begin, count) = (bytes.len(), data.remaining());
            bytes.resize(begin + count, 0);
            data.copy_to_slice(&mut bytes[begin..]);
        }
    }
    Ok(bytes)
}

type HttpClient = Client<Connector, String>;

/// Asks for a path, and compares the answer.
async fn get(sim: &Sim, client: &HttpClient, number: u64) -> Result<(), Box<dyn Error>> {
    let uri: Uri = format!("http://web:80/{number}").parse()?;
    let response = client.request(Request::get(uri).body(String::new())?).await?;
    let body = collect(response.into_body()).await?;
    let expected = format!("you asked for /{number}");
    sim.always("an answer is that of its request", body == expected.as_bytes());
    Ok(())
}

async fn program(sim: Sim) {
    let served = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&served);
    sim.host("web", move || {
        let service = Paths(Arc::clone(&counted));
        async move {
            let server = Server::new().head_timeout(Duration::from_secs(30));
            // The listener may have no descriptor for a connection. That is no error.
            let _ = server.serve(listen(80).await, service).await;
        }
    });
    let clients: Vec<_> = (0..2)
        .map(|one| {
            let own = sim.clone();
            sim.spawn(async move {
                let client = Client::builder(Executor).pool_timer(Timer).build(Connector::new());
                let mut answered = 0;
                for number in 0..3 {
                    let asked = get(&own, &client, 100 * one + number);
                    let asked = procession::time::timeout(Duration::from_secs(60), asked).await;
                    answered += u64::from(matches!(asked, Ok(Ok(()))));
                }
                answered
            })
        })
        .collect();
    let mut answered = 0;
    for client in clients {
        answered += client.await.expect("it ends");
    }
    sim.sometimes("all requests are answered", answered == 6);
    sim.sometimes("some request is not", answered < 6);
    sim.always("what was answered was served", served.load(Relaxed) >= answered);
    sim.heal();
    let client = Client::builder(Executor).pool_timer(Timer).build(Connector::new());
    // The server may still wait for a descriptor.
    procession::sleep(Duration::from_millis(50)).await;
    let last = get(&sim, &client, 7).await;
    sim.always(&format!("a healthy network serves: {last:?}"), last.is_ok());
}

#[test]
fn hyper_serves_hyper_over_a_bad_network() {
    let check = Check::new().seeds(seeds(60)).time_limit(Duration::from_secs(7200));
    check.run(program);
}

#[test]
fn hyper_serves_hyper_one_byte_at_a_time_and_with_resets() {
    let faults = [Fault::SmallReads, Fault::ShortWrite, Fault::Reset, Fault::Interrupted];
    let faults = faults.into_iter().fold(Faults::none(), Faults::with);
    let check = Check::new().faults(faults).time_limit(Duration::from_secs(7200));
    check.seeds(seeds(60)).run(program);
}
