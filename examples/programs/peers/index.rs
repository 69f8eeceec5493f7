//! A full-text index over HTTP: searches are answered at once while documents are indexed.

use std::error::Error;
use std::sync::{Arc, PoisonError, RwLock};
use std::thread::available_parallelism;
use std::time::Duration;

use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::routing::{get, post};
use axum::{Json, Router};
use procession_programs::index::{Document, Index};
use rayon::{ThreadPool, ThreadPoolBuilder};
use serde::Deserialize;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{Semaphore, oneshot};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

const WAITING: usize = 1000;
const DEADLINE: Duration = Duration::from_secs(30);

#[derive(Clone)]
struct Service {
    index: Arc<RwLock<Index>>,
    pool: Arc<ThreadPool>,
    waiting: Arc<Semaphore>,
}

#[derive(Deserialize)]
struct Search {
    q: String,
    #[serde(default = "ten")]
    limit: usize,
}

fn ten() -> usize {
    10
}

async fn add(
    State(service): State<Service>,
    text: String,
) -> Result<(StatusCode, Json<usize>), StatusCode> {
    let Ok(_place) = service.waiting.try_acquire() else {
        return Err(StatusCode::SERVICE_UNAVAILABLE);
    };
    let (done, parsed) = oneshot::channel();
    service.pool.spawn(move || {
        // Ignored: the client is gone.
        let _ = done.send(Document::parse(&text));
    });
    let document = parsed.await.map_err(|_| StatusCode::INTERNAL_SERVER_ERROR)?;
    let mut index = service.index.write().unwrap_or_else(PoisonError::into_inner);
    Ok((StatusCode::CREATED, Json(index.add(document))))
}

async fn search(State(service): State<Service>, Query(search): Query<Search>) -> Json<Vec<usize>> {
    let index = service.index.read().unwrap_or_else(PoisonError::into_inner);
    Json(index.search(&search.q, search.limit))
}

async fn count(State(service): State<Service>) -> Json<usize> {
    Json(service.index.read().unwrap_or_else(PoisonError::into_inner).documents())
}

async fn asked_to_end() -> std::io::Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    tokio::select! {
        _ = terminate.recv() => Ok(()),
        _ = interrupt.recv() => Ok(()),
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let threads = available_parallelism()?.get().div_ceil(2);
    let pool = ThreadPoolBuilder::new()
        .num_threads(threads)
        .panic_handler(|_| eprintln!("index: a document could not be parsed"))
        .build()?;
    let waiting = Arc::new(Semaphore::new(threads + WAITING));
    let service = Service { index: Arc::default(), pool: Arc::new(pool), waiting };
    let pages = Router::new()
        .route("/documents", post(add))
        .route("/search", get(search))
        .route("/count", get(count))
        .route("/healthz", get(async || "ok"))
        .with_state(service);

    let listener = TcpListener::bind("127.0.0.1:0").await?;
    println!("index: listening on {}", listener.local_addr()?);
    let stop = CancellationToken::new();
    let server =
        axum::serve(listener, pages).with_graceful_shutdown(stop.clone().cancelled_owned());
    let deadline = async {
        asked_to_end().await?;
        stop.cancel();
        sleep(DEADLINE).await;
        Err("requests were cut off".into())
    };
    tokio::select! {
        ended = server.into_future() => Ok(ended?),
        cut_off = deadline => cut_off,
    }
}
