//! Look at `main` and `tree`: a whole service. Its pages are an axum `Router`, and the server is
//! behind the store that it needs. SIGINT or SIGTERM ends it in order: the server answers every
//! request that it began, and only then does the store end. If the deadline cuts a request off, the
//! program says so and exits with 1.

use std::sync::Arc;
use std::time::Duration;
use std::{env, io};

use axum::Router;
use axum::extract::Path;
use axum::http::StatusCode;
use axum::routing::get;
use procession::http::{HealthChecks, Server};
use procession::net::TcpListener;
use procession::process::Named;
use procession::signal::ShutdownOptions;
use procession::supervisor::{ChildSpec, Supervisor};
use procession::{Context, Reply, sleep};

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

/// Takes as long as its client takes to send the note.
async fn note(page: Path<String>, note: String) -> Result<String, StatusCode> {
    Ok(format!("{}: {note}", visit(page).await?))
}

fn tree(listener: TcpListener) -> Supervisor {
    let pages = Router::new().route("/{page}", get(visit).post(note));
    // `/healthz` and `/readyz`, for the load balancer.
    let pages = HealthChecks::around(pages);
    // A restarted server goes on with the same listener.
    let listener = Arc::new(listener);
    let http = ChildSpec::new("http", move |_: Context<()>| {
        Server::new().serve(Arc::clone(&listener), pages.clone())
    });
    Supervisor::rest_for_one().child(ChildSpec::new("store", store).name("store")).child(http)
}

/// The environment may set both in seconds. Behind a load balancer, `DELAY=5` gives it time to
/// notice that the service is not ready any more.
fn shutdown() -> ShutdownOptions {
    let seconds = |name: &str, default: u64| {
        let set = env::var(name).map(|text| text.parse().expect("it is a number of seconds"));
        Duration::from_secs(set.unwrap_or(default))
    };
    ShutdownOptions::within(seconds("DEADLINE", 25)).delay(seconds("DELAY", 0))
}

#[procession::main(name = "service", run_until_signal = shutdown())]
async fn main() -> io::Result<()> {
    // Failures, restarts and late stops are events of `tracing`, too.
    tracing_subscriber::fmt().with_writer(io::stderr).init();
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    tracing::info!("listening on {}", listener.local_addr()?);
    let tree = tree(listener).try_start().await.map_err(io::Error::other)?;
    Err(io::Error::other(format!("the tree has ended: {}", tree.await)))
}
