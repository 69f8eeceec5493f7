//! Look at `main` and `tree`: a whole service. Its pages are an axum `Router`, and the server is
//! behind the store that it needs. SIGINT or SIGTERM ends it in order: the server answers every
//! request that it began, and only then does the store end.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::Path;
use axum::http::StatusCode;
use axum::routing::get;
use procession::http::Server;
use procession::net::TcpListener;
use procession::relations::Named;
use procession::signal::Stopped;
use procession::supervisor::{ChildSpec, Supervisor};
use procession::{Context, Reply, Scheduler, sleep};

/// Owns the state of the service. If it fails, the supervisor restarts it and the server.
async fn store(mut cx: Context<Reply<u64>>) {
    let mut visits = 0;
    while let Some(reply) = cx.recv().await {
        visits += 1;
        reply.send(visits);
    }
}

async fn visit(Path(page): Path<String>) -> Result<String, StatusCode> {
    sleep(Duration::from_millis(100)).await;
    let visit = Named::<Reply<u64>>::new("store").call(|reply| reply, Duration::from_secs(1)).await;
    let number = visit.map_err(|_| StatusCode::SERVICE_UNAVAILABLE)?;
    tracing::info!(page, number, "visit");
    Ok(format!("visit {number} of {page}"))
}

fn tree(listener: TcpListener) -> Supervisor {
    // A restarted server goes on with the same listener.
    let (listener, pages) = (Arc::new(listener), Router::new().route("/{page}", get(visit)));
    let http = ChildSpec::new("http", move |_: Context<()>| {
        Server::new().serve(Arc::clone(&listener), pages.clone())
    });
    Supervisor::rest_for_one().child(ChildSpec::new("store", store).name("store")).child(http)
}

fn main() -> io::Result<Stopped<io::Result<()>>> {
    // Failures, restarts and late stops are events of `tracing`, too.
    tracing_subscriber::fmt().with_writer(io::stderr).init();
    let scheduler = Scheduler::builder().name("service").build().map_err(io::Error::other)?;
    scheduler.run_until_signal(Duration::from_secs(10), async {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        tracing::info!("listening on {}", listener.local_addr()?);
        let tree = tree(listener).start().await.map_err(io::Error::other)?;
        Err(io::Error::other(format!("the tree has ended: {}", tree.await)))
    })
}
