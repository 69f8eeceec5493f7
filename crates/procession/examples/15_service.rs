//! Look at the order of the tree: the server is behind the store that it needs. When the program is
//! asked to end, the server answers the requests that have begun, and only then does the store end.
#![expect(clippy::print_stdout, reason = "an example shows its output")]

use std::convert::Infallible;
use std::error::Error;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll};
use std::time::Duration;

use hyper::{Request, Response};
use procession::http::{RequestBody, Server};
use procession::net::{TcpListener, TcpStream};
use procession::relations::Named;
use procession::supervisor::{ChildSpec, Supervisor};
use procession::{Context, Reply, Scheduler, sleep};
use tower_service::Service;

async fn store(mut cx: Context<Reply<u64>>) {
    let mut visits = 0;
    while let Some(reply) = cx.recv().await {
        visits += 1;
        reply.send(visits);
    }
}

#[derive(Clone)]
struct Visits;

impl Service<Request<RequestBody>> for Visits {
    type Response = Response<String>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<String>, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut TaskContext<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<RequestBody>) -> Self::Future {
        Box::pin(async {
            sleep(Duration::from_millis(100)).await;
            let visits = Named::<Reply<u64>>::new("store");
            let visits = visits.call(|reply| reply, Duration::from_secs(1)).await;
            Ok(Response::new(visits.map_or("no store".into(), |visits| format!("visit {visits}"))))
        })
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let scheduler = Scheduler::builder().name("service").build()?;
    scheduler.block_on(async {
        let listener = Arc::new(TcpListener::bind("127.0.0.1:0").await?);
        let client = TcpStream::connect(listener.local_addr()?).await?;
        // A restarted server goes on with the same listener.
        let http = ChildSpec::new("http", move |_: Context<()>| {
            let served = Server::new().max_connections(1000).serve(Arc::clone(&listener), Visits);
            async { served.await.expect("the listener does not fail") }
        });
        let store = ChildSpec::new("store", store).name("store");
        let _tree = Supervisor::rest_for_one().child(store).child(http).start().await?;
        client.write_all(b"GET / HTTP/1.1\r\nhost: me\r\n\r\n").await?;
        let unfinished = scheduler.shutdown(Duration::from_secs(5)).await;
        assert!(unfinished.is_empty(), "{unfinished:?}");
        let mut answer = [0; 512];
        let length = client.read(&mut answer).await?;
        let answer = String::from_utf8_lossy(&answer[..length]);
        println!("{answer}");
        assert!(answer.ends_with("visit 1"));
        Ok(())
    })
}
