//! A job that was accepted is done at least once, even if the program is killed.

use std::collections::BTreeMap;
use std::fs::remove_file;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::post;
use procession_programs::Program;
use reqwest::Client;
use serde_json::{Value, json};
use sqlx::ConnectOptions;
use sqlx::sqlite::SqliteConnectOptions;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

type Error = Box<dyn std::error::Error + Send + Sync>;

const SUBMITTERS: u64 = 8;
/// The program is killed after as many deliveries.
const BEFORE_THE_KILL: usize = 100;
/// So long that only a lost job reaches it.
const PATIENCE: Duration = Duration::from_secs(50);

/// How often each body has come.
type Seen = BTreeMap<String, u32>;

/// Refuses the body `never`, and each tenth body twice.
async fn receive(State(seen): State<Arc<watch::Sender<Seen>>>, body: String) -> StatusCode {
    let mut count = 0;
    seen.send_modify(|seen| {
        let times = seen.entry(body.clone()).or_default();
        *times += 1;
        count = *times;
    });
    let refuses = body == "never" || body.ends_with('0') && count <= 2;
    if refuses { StatusCode::SERVICE_UNAVAILABLE } else { StatusCode::OK }
}

/// Submits jobs until the program is killed. Returns the ids and bodies of those it has accepted.
async fn submit(jobs: String, hook: String, from: u64) -> Vec<(i64, String)> {
    let (client, mut accepted) = (Client::new(), Vec::new());
    for number in (from..).step_by(SUBMITTERS as usize) {
        let job = json!({"url": hook, "body": format!("job {number}")});
        let Ok(answer) = client.post(&jobs).json(&job).send().await else { break };
        let Ok(job) = answer.json::<Value>().await else { break };
        let id = job["id"].as_i64().expect("an accepted job has an id");
        accepted.push((id, format!("job {number}")));
    }
    accepted
}

/// Waits until the job is neither queued nor running. Returns its state and its attempts.
async fn ended(jobs: &str, id: i64) -> Result<(String, u64), Error> {
    loop {
        let job: Value = reqwest::get(format!("{jobs}/{id}")).await?.json().await?;
        let state = job["state"].as_str().ok_or("a job has a state")?;
        if state != "queued" && state != "running" {
            return Ok((state.to_owned(), job["attempts"].as_u64().ok_or("they are counted")?));
        }
        // The program tells nobody of the end of a job.
        sleep(Duration::from_millis(10)).await;
    }
}

/// Serves the URL of jobs, and returns it.
async fn serve(receiver: Router) -> Result<String, Error> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let hook = format!("http://{}/", listener.local_addr()?);
    tokio::spawn(async move { axum::serve(listener, receiver).await });
    Ok(hook)
}

/// Returns the path of a database that does not exist.
fn database(name: &str) -> String {
    let database = format!("{}/{name}.sqlite", env!("CARGO_TARGET_TMPDIR"));
    for suffix in ["", "-wal", "-shm"] {
        // Ignored: it is there only if the test ran before.
        let _ = remove_file(format!("{database}{suffix}"));
    }
    database
}

async fn check(path: &str, name: &str) -> Result<(), Error> {
    let (seen, mut sees) = watch::channel(Seen::new());
    let hook = serve(Router::new().route("/", post(receive)).with_state(Arc::new(seen))).await?;
    let database = database(name);
    let mut program = Program::start(path, &[&database]);
    let jobs = format!("http://{}/jobs", program.address());
    let mut submitters = JoinSet::new();
    for from in 0..SUBMITTERS {
        submitters.spawn(submit(jobs.clone(), hook.clone(), from));
    }
    sees.wait_for(|seen| seen.len() >= BEFORE_THE_KILL).await?;
    program.kill();
    let accepted = submitters.join_all().await.concat();

    let mut program = Program::start(path, &[&database]);
    let jobs = format!("http://{}/jobs", program.address());
    for (id, body) in &accepted {
        let (state, attempts) = ended(&jobs, *id).await?;
        assert_eq!(state, "done", "{body}");
        assert!(u64::from(sees.borrow()[body]) <= attempts, "{body}");
        assert!(!body.ends_with('0') || attempts >= 3, "{body}");
    }

    let never = json!({"url": hook, "body": "never"});
    let never: Value = Client::new().post(&jobs).json(&never).send().await?.json().await?;
    let id = never["id"].as_i64().ok_or("it is accepted")?;
    assert_eq!(ended(&jobs, id).await?, ("failed".to_owned(), 5));
    assert_eq!(sees.borrow()["never"], 5);
    assert_eq!(program.terminate().code, Some(0));
    Ok(())
}

/// Goal: a database that fails for a while ends nothing, and loses no job. Method: another program
/// has its lock while a delivery ends, and while workers look for jobs. Each round of requests
/// fails after the time that a statement waits for the lock.
async fn check_a_locked_database(path: &str, name: &str) -> Result<(), Error> {
    let (locked, is_locked) = watch::channel(false);
    let (comes, mut came) = watch::channel(false);
    let answer = async move || {
        comes.send_replace(true);
        // Ignored: the test has ended.
        let _ = is_locked.clone().wait_for(|is| *is).await;
    };
    let hook = serve(Router::new().route("/", post(answer))).await?;
    let database = database(name);
    let mut program = Program::start(path, &[&database]);
    let jobs = format!("http://{}/jobs", program.address());
    let submit = || {
        let job = json!({"url": hook, "body": ""});
        Client::new().post(&jobs).json(&job).send()
    };
    let first: Value = submit().await?.json().await?;
    came.wait_for(|has| *has).await?;
    let options = SqliteConnectOptions::new().filename(&database);
    let mut lock = options.busy_timeout(PATIENCE).connect().await?;
    sqlx::raw_sql("BEGIN EXCLUSIVE").execute(&mut lock).await?;
    locked.send_replace(true);
    for _ in 0..3 {
        for refused in [submit(), submit(), submit()].map(tokio::spawn) {
            assert_eq!(refused.await??.status(), StatusCode::INTERNAL_SERVER_ERROR);
        }
    }
    sqlx::raw_sql("ROLLBACK").execute(&mut lock).await?;
    let next: Value = submit().await?.json().await?;
    for job in [first, next] {
        let id = job["id"].as_i64().ok_or("it is accepted")?;
        assert_eq!(ended(&jobs, id).await?.0, "done");
    }
    assert_eq!(program.terminate().code, Some(0));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_locked_database_ends_nothing() -> Result<(), Error> {
    let (own, peer) = (env!("CARGO_BIN_EXE_jobs"), env!("CARGO_BIN_EXE_jobs_tokio"));
    let checks = tokio::join!(
        timeout(PATIENCE, check_a_locked_database(own, "jobs_locked")),
        timeout(PATIENCE, check_a_locked_database(peer, "jobs_tokio_locked")),
    );
    checks.0?.and(checks.1?)
}

#[tokio::test(flavor = "multi_thread")]
async fn no_accepted_job_is_lost() -> Result<(), Error> {
    timeout(PATIENCE, check(env!("CARGO_BIN_EXE_jobs"), "jobs")).await?
}

#[tokio::test(flavor = "multi_thread")]
async fn the_counterpart_loses_none_either() -> Result<(), Error> {
    timeout(PATIENCE, check(env!("CARGO_BIN_EXE_jobs_tokio"), "jobs_tokio")).await?
}
