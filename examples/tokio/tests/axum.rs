//! axum, served by processes and by itself.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::time::Duration;

use axum::Router;
use axum::routing::get;
use procession::relations::Named;
use procession::{Context, Reply, Scheduler, SpawnOptions, spawn};

/// Longer than any of these tests takes.
const PATIENCE: Duration = Duration::from_secs(60);

const ASK: &[u8] = b"GET /page HTTP/1.1\r\nhost: me\r\nconnection: close\r\n\r\n";

#[test]
fn a_sigterm_ends_the_service_after_its_requests() {
    let mut service = Command::new(env!("CARGO_BIN_EXE_service"))
        .stderr(Stdio::piped())
        .spawn()
        .expect("there is room for a process");
    let mut log = BufReader::new(service.stderr.take().expect("it is piped"));
    let mut line = String::new();
    log.read_line(&mut line).expect("it is text");
    let (_, address) = line.trim().rsplit_once(' ').expect("the service names its address");
    let mut clients: Vec<_> =
        (0..10).map(|_| TcpStream::connect(address).expect("it listens")).collect();
    for client in &mut clients {
        client.set_read_timeout(Some(PATIENCE)).expect("it is valid");
        client.write_all(ASK).expect("it is connected");
    }
    let pid = rustix::process::Pid::from_raw(service.id().cast_signed()).expect("it has a number");
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("it runs");
    let mut visits = Vec::new();
    for mut client in clients {
        let mut answer = String::new();
        client.read_to_string(&mut answer).expect("no answer is cut");
        let (_, visit) = answer.split_once("\r\n\r\n").expect("there is a body");
        visits.push(visit.to_owned());
    }
    visits.sort_unstable();
    let mut expected: Vec<_> = (1..=10).map(|number| format!("visit {number} of page")).collect();
    expected.sort_unstable();
    assert_eq!(visits, expected);
    assert!(service.wait().expect("it is ours").success());
    line.clear();
    log.read_to_string(&mut line).expect("it is text");
    assert_eq!(line.matches("visit page=").count(), 10, "{line}");
}

/// axum spawns by tokio. What it runs belongs to the scheduler that the bridge belongs to.
#[test]
fn axum_serve_finds_the_names_of_its_scheduler() {
    async fn ask_store() -> String {
        let store = Named::<Reply<&str>>::new("store").call(|reply| reply, PATIENCE).await;
        store.unwrap_or("no store").to_owned()
    }
    let scheduler = Scheduler::builder().name("names").tokio().build().expect("it is valid");
    let answer = scheduler.block_on(async {
        let _store = SpawnOptions::new().name("store").start(
            async |mut cx: Context<Reply<&'static str>>| {
                while let Some(reply) = cx.recv().await {
                    reply.send("found");
                }
            },
        );
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("free ports");
        let address = listener.local_addr().expect("it is bound");
        let app = Router::new().route("/page", get(ask_store));
        drop(spawn(async move { axum::serve(listener, app).await }));
        let client = procession::net::TcpStream::connect(address).await.expect("it listens");
        client.write_all(ASK).await.expect("it is connected");
        let (mut answer, mut part) = (Vec::new(), [0; 1024]);
        loop {
            match client.read(&mut part).await.expect("no answer is cut") {
                0 => break String::from_utf8_lossy(&answer).into_owned(),
                count => answer.extend(&part[..count]),
            }
        }
    });
    assert!(answer.ends_with("found"), "{answer}");
}
