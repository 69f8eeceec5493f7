//! A queue of webhooks in SQLite: `jobs DATABASE`.
//!
//! `POST /jobs` with `{"url": .., "body": ..}` stores a job, and `GET /jobs/{id}` shows it. Workers
//! post each body to its URL. After a failure they try again, after a pause that doubles. What was
//! accepted is delivered at least once, even if the program is killed.

use std::env;
use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::routing::{get, post};
use axum::{Json, Router};
use procession::http::Server;
use procession::net::TcpListener;
use procession::process::until_cancelled;
use procession::supervisor::{ChildSpec, Supervisor};
use procession::sync::Notify;
use procession::{Context, sleep, timeout};
use reqwest::{Client, Response};
use serde::{Deserialize, Serialize};
use sqlx::FromRow;
use sqlx::sqlite::SqliteJournalMode::Wal;
use sqlx::sqlite::{SqliteConnectOptions, SqlitePool, SqliteSynchronous};
use tracing::{debug, error};

const WORKERS: usize = 8;
const ATTEMPTS: u32 = 5;
const BACK_OFF: Duration = Duration::from_millis(50);
const PATIENCE: Duration = Duration::from_secs(10);
/// How long a statement may wait for the lock of the database.
const BUSY: Duration = Duration::from_secs(1);

/// What was under way when the program ended is under way no more.
const SCHEMA: &str = "
    CREATE TABLE IF NOT EXISTS jobs (
        id INTEGER PRIMARY KEY,
        url TEXT NOT NULL,
        body TEXT NOT NULL,
        state TEXT NOT NULL DEFAULT 'queued',
        attempts INTEGER NOT NULL DEFAULT 0,
        due REAL NOT NULL DEFAULT (unixepoch('subsec'))
    );
    CREATE INDEX IF NOT EXISTS due ON jobs (state, due);
    UPDATE jobs SET state = 'queued' WHERE state = 'running'";
const SUBMIT: &str = "INSERT INTO jobs (url, body) VALUES (?, ?) RETURNING *";
const TAKE: &str = "
    UPDATE jobs SET state = 'running', attempts = attempts + 1
    WHERE id = (SELECT id FROM jobs WHERE state = 'queued' AND due <= unixepoch('subsec')
                ORDER BY due LIMIT 1)
    RETURNING *";
const PAUSE: &str = "SELECT min(due) - unixepoch('subsec') FROM jobs WHERE state = 'queued'";
const PUT: &str = "UPDATE jobs SET state = ?, due = unixepoch('subsec') + ? WHERE id = ?";

type Answer = Result<Json<Job>, StatusCode>;

#[derive(Clone)]
struct Jobs {
    pool: SqlitePool,
    /// Told of each job that is put into the queue.
    changed: Arc<Notify>,
    client: Client,
}

#[derive(Deserialize)]
struct NewJob {
    url: String,
    body: String,
}

#[derive(FromRow, Serialize)]
struct Job {
    id: i64,
    url: String,
    body: String,
    state: String,
    attempts: u32,
}

#[procession::main(run_until_signal = Duration::from_secs(25))]
async fn main() -> Result<(), Box<dyn Error>> {
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    let jobs = Jobs::open(&env::args().nth(1).ok_or("usage: jobs DATABASE")?).await?;
    let listener = Arc::new(TcpListener::bind("127.0.0.1:0").await?);
    println!("jobs: listening on {}", listener.local_addr()?);
    // All workers fail together when the database does, and again until it is back.
    let tree = Supervisor::one_for_one().intensity(1000, Duration::from_secs(60));
    let mut tree = tree.back_off(BACK_OFF, PATIENCE).stop_together();
    for number in 0..WORKERS {
        let jobs = jobs.clone();
        let work = move |_: Context<()>| jobs.clone().work();
        tree = tree.child(ChildSpec::new(format!("worker {number}"), work));
    }
    let pages = Router::new().route("/jobs", post(submit)).route("/jobs/{id}", get(show));
    let pages = pages.with_state(jobs);
    let web = move |_: Context<()>| Server::new().serve(listener.clone(), pages.clone());
    Err(tree.child(ChildSpec::new("web", web)).try_start().await?.await.into())
}

impl Jobs {
    async fn open(path: &str) -> Result<Jobs, sqlx::Error> {
        let options = SqliteConnectOptions::new().filename(path).create_if_missing(true);
        // In this mode, a commit survives the end of the program without a sync of the disk.
        let options = options.journal_mode(Wal).synchronous(SqliteSynchronous::Normal);
        let options = options.busy_timeout(BUSY);
        let pool = SqlitePool::connect_with(options).await?;
        sqlx::raw_sql(SCHEMA).execute(&pool).await?;
        let client = Client::builder().timeout(PATIENCE).build().expect("it needs no TLS");
        Ok(Jobs { pool, changed: Arc::default(), client })
    }

    /// Waits for a job that is due, and takes it.
    async fn next(&self) -> Result<Job, sqlx::Error> {
        loop {
            if let Some(job) = sqlx::query_as(TAKE).fetch_optional(&self.pool).await? {
                return Ok(job);
            }
            let pause: Option<f64> = sqlx::query_scalar(PAUSE).fetch_one(&self.pool).await?;
            let pause = Duration::from_secs_f64(pause.unwrap_or(3600.0).max(0.0));
            // Ignored: after either, a job may be due.
            let _ = timeout(pause, self.changed.notified()).await;
        }
    }

    async fn deliver(&self, job: Job) {
        let answer = self.client.post(&job.url).body(job.body).send().await;
        let (state, pause) = match answer.and_then(Response::error_for_status) {
            Ok(_) => ("done", 0.0),
            Err(error) => {
                debug!(job.id, job.attempts, %error, "a delivery has failed");
                let pause = BACK_OFF * 2_u32.pow(job.attempts - 1);
                (if job.attempts < ATTEMPTS { "queued" } else { "failed" }, pause.as_secs_f64())
            }
        };
        // Until it succeeds, because no worker takes a job that is under way.
        let put = || sqlx::query(PUT).bind(state).bind(pause).bind(job.id).execute(&self.pool);
        while let Err(error) = put().await {
            error!(job.id, %error, "the end of a delivery could not be noted");
            sleep(BACK_OFF).await;
        }
        self.changed.notify_one();
    }

    /// Finishes the job that it has when it is cancelled.
    async fn work(self) -> Result<(), sqlx::Error> {
        while let Some(job) = until_cancelled(self.next()).await {
            self.deliver(job?).await;
        }
        Ok(())
    }
}

async fn submit(State(jobs): State<Jobs>, Json(new): Json<NewJob>) -> Answer {
    let job = sqlx::query_as(SUBMIT).bind(new.url).bind(new.body).fetch_one(&jobs.pool).await;
    jobs.changed.notify_one();
    job.map(Json).map_err(internal)
}

async fn show(State(jobs): State<Jobs>, Path(id): Path<i64>) -> Answer {
    let job = sqlx::query_as("SELECT * FROM jobs WHERE id = ?").bind(id);
    let job = job.fetch_optional(&jobs.pool).await.map_err(internal)?;
    job.map(Json).ok_or(StatusCode::NOT_FOUND)
}

fn internal(error: sqlx::Error) -> StatusCode {
    error!(%error, "the database has failed");
    StatusCode::INTERNAL_SERVER_ERROR
}
