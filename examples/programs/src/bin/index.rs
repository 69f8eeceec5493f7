//! A full-text index over HTTP: searches are answered at once while documents are indexed.

use std::error::Error;
use std::sync::{Arc, PoisonError, RwLock};
use std::thread::available_parallelism;
use std::time::Duration;

use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::routing::{get, post};
use axum::{Json, Router};
use procession::http::{HealthChecks, Server};
use procession::net::TcpListener;
use procession::pool::Pool;
use procession::{Context, start};
use procession_programs::index::{Document, Index};
use serde::Deserialize;

const WAITING: usize = 1000;

#[derive(Clone)]
struct Service {
    index: Arc<RwLock<Index>>,
    pool: Pool,
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
    let Ok(place) = service.pool.reserve().await else {
        return Err(StatusCode::SERVICE_UNAVAILABLE);
    };
    let parsed = place.submit(move || Document::parse(&text));
    let document = parsed.map_err(|_| StatusCode::SERVICE_UNAVAILABLE)?.await;
    let document = document.map_err(|_| StatusCode::INTERNAL_SERVER_ERROR)?;
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

#[procession::main(run_until_signal = Duration::from_secs(30))]
async fn main() -> Result<(), Box<dyn Error>> {
    let threads = available_parallelism()?.get().div_ceil(2);
    let pool = Pool::builder().capacity(threads).waiting(WAITING).build()?;
    let service = Service { index: Arc::default(), pool };
    let pages = Router::new()
        .route("/documents", post(add))
        .route("/search", get(search))
        .route("/count", get(count))
        .with_state(service);

    let listener = TcpListener::bind("127.0.0.1:0").await?;
    println!("index: listening on {}", listener.local_addr()?);
    let server = Server::new().serve(listener, HealthChecks::around(pages));
    start(move |_: Context<()>| server).await??;
    Ok(())
}
