//! Health checks, and a shared listener in a shutdown.

use std::convert::Infallible;
use std::future::{Future, Ready, ready};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::{Request, Response};
use procession::http::{HealthChecks, Listener, Peer, RequestBody, Server};
use procession::scheduler::Health;
use procession::supervisor::{ChildSpec, Supervisor};
use procession::time::{Instant, Sleep};
use procession::{sleep, spawn};
use procession_sync::atomic::AtomicU32;
use procession_sync::atomic::Ordering::Relaxed;
use tower_service::Service;

use super::pipe::{Door, Pipe, Pipes, listen};
use super::{Paths, service, spawn_server};
use crate::scene::driven;

const SECOND: Duration = Duration::from_secs(1);

/// Sends a request on a connection of its own. Returns the status and the body.
async fn ask(door: &Door, request: &str) -> (String, String) {
    let mut stream = door.connect();
    let head = format!("{request} HTTP/1.1\r\nhost: me\r\nconnection: close\r\n\r\n");
    stream.send(head.as_bytes()).await.expect("it is served");
    let answer = stream.receive_all().await;
    let (head, body) = answer.split_once("\r\n\r\n").expect("there is a head");
    let status = head.split(' ').nth(1).expect("there is a status").to_owned();
    (status, body.to_owned())
}

fn pair(status: &str, body: &str) -> (String, String) {
    (status.to_owned(), body.to_owned())
}

#[test]
fn checks_are_answered_before_the_service_and_all_else_by_it() {
    driven().block_on(async {
        let (door, listener) = listen();
        let server = spawn_server(Server::new().serve(listener, HealthChecks::around(Paths)));
        assert_eq!(ask(&door, "GET /healthz").await, pair("200", "ok\n"));
        assert_eq!(ask(&door, "GET /readyz").await, pair("200", "ready\n"));
        assert_eq!(ask(&door, "GET /readyz?verbose").await, pair("200", "ready\n"));
        assert_eq!(ask(&door, "HEAD /readyz").await, pair("200", ""));
        for path in ["/page", "/readyz/more"] {
            assert_eq!(ask(&door, &format!("GET {path}")).await, pair("200", path));
        }
        assert_eq!(ask(&door, "DELETE /readyz").await, pair("200", "/readyz"));

        let health = Health::here();
        let (cache, disk) = (health.not_ready("the cache is cold"), health.not_ready("no disk"));
        let reasons = pair("503", "the cache is cold\nno disk\n");
        assert_eq!(ask(&door, "GET /readyz").await, reasons);
        assert_eq!(ask(&door, "GET /healthz").await, pair("200", "ok\n"), "it lives");
        drop(cache);
        assert_eq!(ask(&door, "GET /readyz").await, pair("503", "no disk\n"));
        drop(disk);
        assert_eq!(ask(&door, "GET /readyz").await, pair("200", "ready\n"));
        server.cancel();
        server.await.expect("it does not panic").expect("it ends in order");
    });
}

#[test]
fn a_port_of_its_own_tells_of_another_scheduler() {
    let other = driven();
    let checks = HealthChecks::new().of(&other);
    driven().block_on(async {
        let (door, listener) = listen();
        let server = spawn_server(Server::new().serve(listener, checks));
        assert_eq!(ask(&door, "GET /readyz").await, pair("200", "ready\n"));
        assert_eq!(ask(&door, "GET /page").await, pair("404", "not found\n"));
        assert!(other.shutdown(Duration::from_secs(1)).await.is_empty());
        let ending = pair("503", "the program is ending\n");
        assert_eq!(ask(&door, "GET /readyz").await, ending);
        server.cancel();
        server.await.expect("it does not panic").expect("it ends in order");
    });
}

/// Gets ready in a second, and each clone anew.
#[derive(Default)]
struct Busy(Option<Pin<Box<Sleep>>>);

impl Clone for Busy {
    fn clone(&self) -> Self {
        Self::default()
    }
}

impl Service<Request<RequestBody>> for Busy {
    type Response = Response<String>;
    type Error = Infallible;
    type Future = Ready<Result<Response<String>, Infallible>>;

    fn poll_ready(&mut self, task: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        let wait = self.0.get_or_insert_with(|| Box::pin(sleep(SECOND)));
        wait.as_mut().poll(task).map(Ok)
    }

    fn call(&mut self, _: Request<RequestBody>) -> Self::Future {
        assert!(self.0.take().is_some_and(|wait| wait.is_elapsed()), "it is ready");
        ready(Ok(Response::new("page".to_owned())))
    }
}

#[test]
fn checks_do_not_wait_for_the_service_to_be_ready() {
    driven().block_on(async {
        let (door, listener) = listen();
        let checks = HealthChecks::around(Busy::default());
        let server = spawn_server(Server::new().serve(listener, checks));
        let begin = Instant::now();
        for (path, text) in [("/healthz", "ok\n"), ("/readyz", "ready\n")] {
            assert_eq!(ask(&door, &format!("GET {path}")).await, pair("200", text));
        }
        assert_eq!(Instant::now(), begin);
        assert_eq!(ask(&door, "GET /page").await, pair("200", "page"));
        assert_eq!(Instant::now() - begin, SECOND);
        server.cancel();
        server.await.expect("it does not panic").expect("it ends in order");
    });
}

/// Counts the requests to refuse connections.
struct Counting(Pipes, AtomicU32);

impl Listener for Counting {
    type Stream = Pipe;

    async fn next(&self) -> std::io::Result<(Pipe, Peer)> {
        self.0.next().await
    }

    fn refuse(&self) {
        self.1.fetch_add(1, Relaxed);
    }
}

/// Goal: a restarted server goes on with its listener, and a shutdown lets nobody connect in vain.
#[test]
fn a_shared_listener_refuses_connections_only_in_a_shutdown() {
    let scheduler = driven();
    scheduler.block_on(async {
        let (door, listener) = listen();
        let listener = Arc::new(Counting(listener, AtomicU32::new(0)));
        let shared = Arc::clone(&listener);
        let answers = service(|_: hyper::Request<RequestBody>| async { "answer".to_owned() });
        let http = ChildSpec::new("http", move |_: procession::Context<()>| {
            Server::new().serve(Arc::clone(&shared), answers.clone())
        });
        let tree = Supervisor::one_for_one().child(http).try_start().await.expect("it starts");
        tree.terminate_child("http").await.expect("it is there");
        assert_eq!(listener.1.load(Relaxed), 0, "only its supervisor has stopped it");
        tree.restart_child("http").await.expect("it is there");
        assert_eq!(ask(&door, "GET /").await, pair("200", "answer"));
        let own = scheduler.clone();
        let end = spawn(async move { own.shutdown(Duration::from_secs(30)).await.is_empty() });
        assert_eq!(end.await, Ok(true));
        assert_eq!(listener.1.load(Relaxed), 1);
    });
}
