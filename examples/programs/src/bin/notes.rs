//! Notes over HTTP, in a file of SQLite.

use std::error::Error;
use std::net::SocketAddr;
use std::time::Duration;

use axum::extract::{ConnectInfo, Path, Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use procession::http::{HealthChecks, Server};
use procession::net::TcpListener;
use procession::signal::ShutdownOptions;
use procession::{Context, start};
use serde::{Deserialize, Serialize};
use sqlx::SqlitePool;
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous};
use tower_http::timeout::TimeoutLayer;

const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
const DEADLINE: Duration = Duration::from_secs(40);
const DELAY: Duration = Duration::from_secs(1);

const TABLE: &str = "CREATE TABLE IF NOT EXISTS notes
    (id INTEGER PRIMARY KEY AUTOINCREMENT, text TEXT NOT NULL, author TEXT NOT NULL)";

struct Failure(sqlx::Error);

impl From<sqlx::Error> for Failure {
    fn from(error: sqlx::Error) -> Self {
        Self(error)
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        match self.0 {
            sqlx::Error::RowNotFound => (StatusCode::NOT_FOUND, "no such note").into_response(),
            error => {
                tracing::error!(%error, "the database failed");
                StatusCode::INTERNAL_SERVER_ERROR.into_response()
            }
        }
    }
}

#[derive(Deserialize)]
struct Draft {
    text: String,
}

#[derive(Serialize, sqlx::FromRow)]
struct Note {
    id: i64,
    text: String,
    author: String,
}

#[derive(Deserialize)]
struct Page {
    #[serde(default)]
    after: i64,
    limit: Option<i64>,
}

#[derive(Serialize)]
struct Notes {
    notes: Vec<Note>,
    next: Option<i64>,
}

async fn create(
    State(pool): State<SqlitePool>,
    ConnectInfo(author): ConnectInfo<SocketAddr>,
    Json(draft): Json<Draft>,
) -> Result<(StatusCode, Json<Note>), Failure> {
    let insert = "INSERT INTO notes (text, author) VALUES (?, ?) RETURNING *";
    let insert = sqlx::query_as(insert).bind(draft.text).bind(author.ip().to_string());
    Ok((StatusCode::CREATED, Json(insert.fetch_one(&pool).await?)))
}

async fn list(
    State(pool): State<SqlitePool>,
    Query(page): Query<Page>,
) -> Result<Json<Notes>, Failure> {
    let limit = page.limit.unwrap_or(50).clamp(1, 200);
    let select = sqlx::query_as("SELECT * FROM notes WHERE id > ? ORDER BY id LIMIT ?");
    let notes: Vec<Note> = select.bind(page.after).bind(limit).fetch_all(&pool).await?;
    let next = notes.last().filter(|_| notes.len() as i64 == limit).map(|note| note.id);
    Ok(Json(Notes { notes, next }))
}

async fn show(State(pool): State<SqlitePool>, Path(id): Path<i64>) -> Result<Json<Note>, Failure> {
    let select = sqlx::query_as("SELECT * FROM notes WHERE id = ?").bind(id);
    Ok(Json(select.fetch_one(&pool).await?))
}

async fn remove(
    State(pool): State<SqlitePool>,
    Path(id): Path<i64>,
) -> Result<StatusCode, Failure> {
    let removed = sqlx::query("DELETE FROM notes WHERE id = ?").bind(id).execute(&pool).await?;
    match removed.rows_affected() {
        0 => Err(sqlx::Error::RowNotFound.into()),
        _ => Ok(StatusCode::NO_CONTENT),
    }
}

fn pages(pool: SqlitePool) -> Router {
    Router::new()
        .route("/notes", get(list).post(create))
        .route("/notes/{id}", get(show).delete(remove))
        .layer(TimeoutLayer::with_status_code(StatusCode::REQUEST_TIMEOUT, REQUEST_TIMEOUT))
        .with_state(pool)
}

#[procession::main(run_until_signal = ShutdownOptions::within(DEADLINE).delay(DELAY))]
async fn main() -> Result<(), Box<dyn Error>> {
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    let path = std::env::args_os().nth(1).ok_or("usage: notes FILE")?;
    let options = SqliteConnectOptions::new()
        .filename(path)
        .create_if_missing(true)
        .journal_mode(SqliteJournalMode::Wal)
        .synchronous(SqliteSynchronous::Normal)
        .busy_timeout(REQUEST_TIMEOUT);
    let pool = SqlitePoolOptions::new().max_connections(4).connect_with(options).await?;
    sqlx::query(TABLE).execute(&pool).await?;

    let listener = TcpListener::bind("127.0.0.1:0").await?;
    println!("notes: listening on {}", listener.local_addr()?);
    let server = Server::new().connect_info(|peer| ConnectInfo(peer.address().expect("it is TCP")));
    let server = server.serve(listener, HealthChecks::around(pages(pool.clone())));
    let service = start(async move |_: Context<()>| {
        let served = server.await;
        // After the last answer.
        pool.close().await;
        served
    });
    service.await??;
    Ok(())
}
