//! W3C trace contexts, from a request to a server through its processes to a request of a client.

use std::future::{Ready, ready};
use std::task::{Context as TaskContext, Poll};

use hyper::Request;
use procession::http::{RequestBody, Server, TracedClient};
use procession::mailbox::request::{self, RequestContext};
use procession::{Scheduler, spawn, yield_now};
use tower_service::Service;

use super::pipe::{Door, listen};
use super::{service, spawn_server};

const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

/// A client that returns the headers of its requests.
#[derive(Clone)]
struct Echo;

impl Service<Request<()>> for Echo {
    type Response = String;
    type Error = ();
    type Future = Ready<Result<String, ()>>;

    fn poll_ready(&mut self, _: &mut TaskContext<'_>) -> Poll<Result<(), ()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<()>) -> Self::Future {
        let value = |name| request.headers().get(name).and_then(|value| value.to_str().ok());
        let values = ["traceparent", "tracestate"].map(|name| value(name).unwrap_or("none"));
        ready(Ok(values.join(" ")))
    }
}

/// Asks a client in a process that the process of the connection has spawned.
async fn forward(_: Request<RequestBody>) -> String {
    yield_now().await;
    let asked = spawn(async { TracedClient::new(Echo).call(Request::new(())).await });
    asked.await.expect("it does not panic").expect("it answers")
}

async fn ask(door: &Door, headers: &str) -> String {
    let mut stream = door.connect();
    let head = format!("GET / HTTP/1.1\r\nhost: me\r\nconnection: close\r\n{headers}\r\n");
    stream.send(head.as_bytes()).await.expect("it is served");
    let answer = stream.receive_all().await;
    answer.split_once("\r\n\r\n").expect("there is a head").1.to_owned()
}

fn on(request_ids: bool) -> Scheduler {
    let builder = Scheduler::builder().worker_threads(1).test_clock().request_ids(request_ids);
    builder.build().expect("it builds")
}

#[test]
fn a_trace_context_travels_from_a_server_to_a_client() {
    on(true).block_on(async {
        let (door, listener) = listen();
        let server = spawn_server(Server::new().serve(listener, service(forward)));
        let full = format!("traceparent: {PARENT}\r\ntracestate: a=1\r\nTraceState: b=2,c=3\r\n");
        assert_eq!(ask(&door, &full).await, format!("{PARENT} a=1,b=2,c=3"));
        // A request without a context is not of the request before.
        assert_eq!(ask(&door, "").await, "none none");
        let later = PARENT.replace("00-0a", "cc-0a") + "-more";
        assert_eq!(
            ask(&door, &format!("traceparent: {later}\r\n")).await,
            format!("{PARENT} none")
        );
        let bad_state =
            format!("traceparent: {PARENT}\r\ntracestate: a=1\r\ntracestate: nothing\r\n");
        assert_eq!(ask(&door, &bad_state).await, format!("{PARENT} none"));
        for bad in [
            format!("traceparent: {}\r\ntracestate: a=1\r\n", PARENT.replace("00-", "ff-")),
            format!("traceparent: {PARENT}\r\ntraceparent: {PARENT}\r\n"),
            format!("traceparent: {PARENT}, {PARENT}\r\n"),
            "tracestate: a=1\r\n".to_owned(),
        ] {
            assert_eq!(ask(&door, &bad).await, "none none", "{bad:?}");
        }
        server.cancel();
        server.await.expect("it does not panic").expect("it ends in order");
    });
}

#[test]
fn without_ids_of_requests_no_context_travels() {
    on(false).block_on(async {
        let (door, listener) = listen();
        let server = spawn_server(Server::new().serve(listener, service(forward)));
        assert_eq!(ask(&door, &format!("traceparent: {PARENT}\r\n")).await, "none none");
        server.cancel();
        server.await.expect("it does not panic").expect("it ends in order");
    });
}

#[test]
fn a_client_keeps_the_context_that_a_request_has() {
    on(true).block_on(async {
        let own = PARENT.replace("b7", "a7");
        let request = Request::builder().header("traceparent", &own).header("tracestate", "x=1");
        let context: RequestContext = PARENT.parse().expect("it is valid");
        let request = request.body(()).expect("the headers are valid");
        let answer = request::with(context.clone(), || TracedClient::new(Echo).call(request)).await;
        assert_eq!(answer, Ok(format!("{own} x=1")));
        // A state without a context of its own is not mixed with another context.
        let request = Request::builder().header("tracestate", "x=1").body(());
        let request = request.expect("the headers are valid");
        let answer = request::with(context, || TracedClient::new(Echo).call(request)).await;
        assert_eq!(answer, Ok(format!("{PARENT} none")));
    });
}
