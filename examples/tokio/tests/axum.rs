//! axum, served by processes and by itself.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, ChildStderr, Command, Stdio};
use std::time::Duration;

use axum::Router;
use axum::routing::get;
use procession::http::HealthChecks;
use procession::process::Named;
use procession::scheduler::Health;
use procession::{Context, Reply, Scheduler, SpawnOptions, spawn};

/// Longer than any of these tests takes.
const PATIENCE: Duration = Duration::from_secs(60);

const ASK: &[u8] = b"GET /page HTTP/1.1\r\nhost: me\r\nconnection: close\r\n\r\n";

/// The example `service`, as a program.
struct Service {
    program: Child,
    log: BufReader<ChildStderr>,
    address: String,
}

impl Service {
    /// Starts it with its times in seconds.
    fn start(deadline: u32, delay: u32) -> Self {
        let mut program = Command::new(env!("CARGO_BIN_EXE_service"))
            .envs([("DEADLINE", deadline.to_string()), ("DELAY", delay.to_string())])
            .stderr(Stdio::piped())
            .spawn()
            .expect("there is room for a process");
        let mut log = BufReader::new(program.stderr.take().expect("it is piped"));
        let mut line = String::new();
        log.read_line(&mut line).expect("it is text");
        let (_, address) = line.trim().rsplit_once(' ').expect("the service names its address");
        Self { program, log, address: address.to_owned() }
    }

    fn connect(&self) -> io::Result<TcpStream> {
        let client = TcpStream::connect(&self.address)?;
        client.set_read_timeout(Some(PATIENCE))?;
        Ok(client)
    }

    fn terminate(&self) {
        let number = self.program.id().cast_signed();
        let pid = rustix::process::Pid::from_raw(number).expect("it has a number");
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("it runs");
    }

    /// Asks for a page, and returns the answer.
    fn ask(&self, path: &str) -> io::Result<String> {
        let mut client = self.connect()?;
        write!(client, "GET {path} HTTP/1.1\r\nhost: me\r\nconnection: close\r\n\r\n")?;
        let mut answer = String::new();
        client.read_to_string(&mut answer)?;
        Ok(answer)
    }

    /// Begins to send a note, and returns once the service waits for the rest of it.
    fn begin_note(&self) -> TcpStream {
        let mut client = self.connect().expect("it listens");
        let head = "POST /page HTTP/1.1\r\nhost: me\r\nexpect: 100-continue\r\n";
        let head = format!("{head}content-length: {}\r\n\r\n", NOTE.len());
        client.write_all(head.as_bytes()).expect("it is connected");
        let mut goes_on = [0; GO_ON.len()];
        client.read_exact(&mut goes_on).expect("the service asks for the note");
        assert_eq!(goes_on, GO_ON);
        client.write_all(&NOTE[..5]).expect("it is connected");
        client
    }

    /// Waits for the end. Returns the exit code, and what the service has logged.
    fn end(mut self) -> (Option<i32>, String) {
        let code = self.program.wait().expect("it is ours").code();
        let mut log = String::new();
        self.log.read_to_string(&mut log).expect("it is text");
        (code, log)
    }
}

const NOTE: &[u8] = b"a note that takes long";
const GO_ON: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

#[test]
fn a_sigterm_ends_the_service_after_its_requests() {
    let service = Service::start(50, 0);
    let mut clients: Vec<_> = (0..10).map(|_| service.connect().expect("it listens")).collect();
    for client in &mut clients {
        client.write_all(ASK).expect("it is connected");
    }
    service.terminate();
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
    let (code, log) = service.end();
    assert_eq!(code, Some(0), "{log}");
    assert_eq!(log.matches("visit page=").count(), 10, "{log}");
}

/// The request is under way when the signal comes, and for as long as the client likes. Meanwhile,
/// nobody else can connect.
#[test]
fn a_sigterm_refuses_clients_and_answers_a_request_that_takes_long() {
    let service = Service::start(50, 0);
    let mut client = service.begin_note();
    service.terminate();
    // A connection that comes before the service has closed its listener is closed later.
    let refused = loop {
        match service.connect() {
            Ok(early) => drop(early),
            Err(error) => break error,
        }
    };
    assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
    client.write_all(&NOTE[5..]).expect("the service waits for it");
    let mut answer = String::new();
    client.read_to_string(&mut answer).expect("the answer is not cut");
    assert!(answer.ends_with("visit 1 of page: a note that takes long"), "{answer}");
    let (code, log) = service.end();
    assert_eq!(code, Some(0), "{log}");
    assert!(!log.contains("cut off"), "{log}");
}

#[test]
fn a_request_that_the_deadline_cuts_off_fails_the_service_and_is_told() {
    let service = Service::start(1, 0);
    let mut client = service.begin_note();
    service.terminate();
    let mut answer = Vec::new();
    // Ignored: the connection may be reset.
    let _ = client.read_to_end(&mut answer);
    assert_eq!(answer, b"");
    let (code, log) = service.end();
    assert_eq!(code, Some(1), "{log}");
    // On a busy machine, the time for the termination may be too short. That is told as well.
    let is_told = log.contains("1 request was cut off") || log.contains("had not ended: ");
    assert!(is_told && log.contains("http"), "{log}");
}

#[test]
fn a_service_is_not_ready_and_serves_on_until_its_delay_is_over() {
    let service = Service::start(7200, 3600);
    let answer = service.ask("/readyz").expect("it listens");
    assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("ready\n"), "{answer}");
    service.terminate();
    let answer = loop {
        match service.ask("/readyz").expect("it listens in the delay") {
            ready if ready.starts_with("HTTP/1.1 200") => {}
            answer => break answer,
        }
    };
    assert!(answer.starts_with("HTTP/1.1 503"), "{answer}");
    assert!(answer.ends_with("the program is ending\n"), "{answer}");
    let answer = service.ask("/page").expect("it serves in the delay");
    assert!(answer.ends_with("visit 1 of page"), "{answer}");
    assert!(service.ask("/healthz").expect("it lives").ends_with("ok\n"));
    // The second signal does not wait.
    service.terminate();
    assert_eq!(service.end().0, Some(143));
}

/// The checks are a service of tower, so that any server can have them.
#[test]
fn axum_serve_has_health_checks() {
    let scheduler = Scheduler::builder().name("checks").build().expect("it is valid");
    let answer = scheduler.block_on(async {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("free ports");
        let address = listener.local_addr().expect("it is bound");
        let app = Router::new().route_service("/readyz", HealthChecks::new());
        let _warming = Health::here().not_ready("the cache is cold");
        drop(spawn(async move { axum::serve(listener, app).await }));
        ask(address, b"GET /readyz HTTP/1.1\r\nhost: me\r\nconnection: close\r\n\r\n").await
    });
    assert!(answer.starts_with("HTTP/1.1 503"), "{answer}");
    assert!(answer.ends_with("the cache is cold\n"), "{answer}");
}

/// Sends a request, and returns the answer.
async fn ask(address: SocketAddr, request: &[u8]) -> String {
    let client = procession::net::TcpStream::connect(address).await.expect("it listens");
    client.write_all(request).await.expect("it is connected");
    let (mut answer, mut part) = (Vec::new(), [0; 1024]);
    loop {
        match client.read(&mut part).await.expect("no answer is cut") {
            0 => break String::from_utf8_lossy(&answer).into_owned(),
            count => answer.extend(&part[..count]),
        }
    }
}

/// axum spawns by tokio. What it runs belongs to the scheduler that the bridge belongs to.
#[test]
fn axum_serve_finds_the_names_of_its_scheduler() {
    async fn ask_store() -> String {
        let store = Named::<Reply<&str>>::new("store").call(|reply| reply, PATIENCE).await;
        store.unwrap_or("no store").to_owned()
    }
    let scheduler = Scheduler::builder().name("names").build().expect("it is valid");
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
        ask(address, ASK).await
    });
    assert!(answer.ends_with("found"), "{answer}");
}
