//! Tests of a service on the test clock, which `docs/TESTING.md` explains: hours pass in no time.

use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use axum::extract::{ConnectInfo, Path, State};
use axum::http::StatusCode;
use axum::routing::get;
use procession::http::{Peer, Server};
use procession::net::TcpListener;
use procession::testing::test;
use procession::time::Instant;
use procession::{Context, sleep, spawn, start};
use sqlx::Row as _;
use sqlx::sqlite::{SqlitePool, SqlitePoolOptions};
use tower_http::timeout::TimeoutLayer;

const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(60 * 60);

type Error = Box<dyn std::error::Error>;

/// Counts the visits of a page in the database.
async fn visit(
    State(pool): State<SqlitePool>,
    Path(page): Path<String>,
) -> Result<String, StatusCode> {
    let statement = "INSERT INTO pages VALUES (?, 1) ON CONFLICT (name) \
                     DO UPDATE SET visits = visits + 1 RETURNING visits";
    let row = sqlx::query(statement).bind(&page).fetch_one(&pool).await;
    let visits: i64 = row.map_err(|_| StatusCode::SERVICE_UNAVAILABLE)?.get(0);
    Ok(format!("visit {visits} of {page}"))
}

/// A report that takes as many minutes.
async fn report(Path(minutes): Path<u32>) -> String {
    sleep(minutes * MINUTE).await;
    format!("it took {minutes} minutes")
}

async fn client(ConnectInfo(peer): ConnectInfo<Peer>) -> String {
    peer.address().map(|address| address.ip().to_string()).unwrap_or_default()
}

/// The service: what takes longer than an hour ends with 408.
fn pages(pool: SqlitePool) -> Router {
    Router::new()
        .route("/visit/{page}", get(visit))
        .route("/report/{minutes}", get(report))
        .route("/client", get(client))
        .layer(TimeoutLayer::with_status_code(StatusCode::REQUEST_TIMEOUT, HOUR))
        .with_state(pool)
}

async fn database() -> Result<SqlitePool, sqlx::Error> {
    // A database in memory belongs to its connection, so there is one, which is never closed.
    let options = SqlitePoolOptions::new().max_connections(1);
    let pool = options.idle_timeout(None).max_lifetime(None).connect("sqlite::memory:").await?;
    sqlx::query("CREATE TABLE pages (name TEXT PRIMARY KEY, visits INTEGER)")
        .execute(&pool)
        .await?;
    Ok(pool)
}

/// Starts the service on a port of its own.
async fn service() -> Result<SocketAddr, Error> {
    let (listener, pages) = (TcpListener::bind("127.0.0.1:0").await?, pages(database().await?));
    let address = listener.local_addr()?;
    let server = Server::new().connect_info(ConnectInfo).serve(listener, pages);
    drop(start(move |_: Context<()>| server));
    Ok(address)
}

#[test(tokio_threads = 1)]
async fn pages_count_their_visits() -> Result<(), Error> {
    let (address, client) = (service().await?, reqwest::Client::new());
    let visits = (0..20).map(|_| {
        let request = client.get(format!("http://{address}/visit/home"));
        spawn(async move { request.send().await?.error_for_status()?.text().await })
    });
    let mut answers = Vec::new();
    for visit in visits.collect::<Vec<_>>() {
        answers.push(visit.await??);
    }
    answers.sort_unstable_by_key(String::len);
    assert!(answers.contains(&"visit 1 of home".to_owned()), "{answers:?}");
    assert!(answers.contains(&"visit 20 of home".to_owned()), "{answers:?}");
    let answer = client.get(format!("http://{address}/client")).send().await?;
    assert_eq!(answer.text().await?, "127.0.0.1");
    Ok(())
}

#[test(tokio_threads = 1)]
async fn a_report_may_take_an_hour() -> Result<(), Error> {
    let (address, client, begin) = (service().await?, reqwest::Client::new(), Instant::now());
    let answer = client.get(format!("http://{address}/report/59")).send().await?;
    assert_eq!(answer.text().await?, "it took 59 minutes");
    assert!(Instant::now() - begin < HOUR);
    let answer = client.get(format!("http://{address}/report/61")).send().await?;
    assert_eq!(answer.status(), StatusCode::REQUEST_TIMEOUT);
    assert!(Instant::now() - begin >= HOUR + 59 * MINUTE);
    Ok(())
}

#[test(tokio_threads = 1)]
async fn a_client_gives_up_before_the_service() -> Result<(), Error> {
    let (address, begin) = (service().await?, Instant::now());
    let client = reqwest::Client::builder().timeout(30 * MINUTE).build()?;
    let late = client.get(format!("http://{address}/report/45")).send().await;
    assert!(late.expect_err("the report takes longer").is_timeout());
    assert_eq!((Instant::now() - begin).as_secs(), (30 * MINUTE).as_secs());
    Ok(())
}

#[test(tokio_threads = 1)]
async fn a_pool_without_a_free_connection_is_an_error_after_a_while() -> Result<(), Error> {
    let pool = database().await?;
    let (kept, begin) = (pool.acquire().await?, Instant::now());
    let refused = pool.acquire().await;
    assert!(matches!(refused, Err(sqlx::Error::PoolTimedOut)), "{refused:?}");
    assert_eq!((Instant::now() - begin).as_secs(), 30, "the default of sqlx");
    drop(kept);
    drop(pool.acquire().await?);
    Ok(())
}

/// `axum::serve` runs in tasks of tokio, and is tested in the same way.
#[test(tokio_threads = 1)]
async fn the_server_of_axum_runs_on_the_same_clock() -> Result<(), Error> {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let pages = Router::new().route("/report/{minutes}", get(report));
    let server = tokio::spawn(async move { axum::serve(listener, pages).await });
    let (client, begin) = (reqwest::Client::new(), Instant::now());
    let answer = client.get(format!("http://{address}/report/600")).send().await?;
    assert_eq!(answer.text().await?, "it took 600 minutes");
    assert_eq!((Instant::now() - begin).as_secs(), (10 * HOUR).as_secs());
    server.abort();
    Ok(())
}

/// The page shows what is tested here.
#[test]
fn the_page_shows_these_tests() {
    let (page, here) = (include_str!("../../../docs/TESTING.md"), include_str!("testing.rs"));
    let blocks = page.split("```").skip(1).step_by(2).filter_map(|it| it.strip_prefix("rust\n"));
    let missing = blocks.filter(|block| !here.contains(block.trim_end())).collect::<Vec<_>>();
    assert!(missing.is_empty() && page.contains("```rust"), "{missing:#?}");
}
