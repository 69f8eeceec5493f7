//! The priority of a request, by its head.

use hyper::Request;
use hyper::client::conn::http2;
use procession::http::{Executor, RequestBody, Server};
use procession::process::{Priority, current_pid, priority};
use procession::{Scheduler, spawn, yield_now};
use procession_sync::Mutex;

use super::pipe::listen;
use super::{collect, service, spawn_server};
use crate::home::mpsc;
use crate::scene::{driven, panic_quietly};

/// Answers with the priority of the running process, as it is at first and after a wait.
async fn own(_: Request<RequestBody>) -> String {
    let own = || current_pid().and_then(priority).map_or("none", Priority::name);
    let first = own();
    yield_now().await;
    format!("<{first} {}>", own())
}

#[test]
fn each_request_of_a_connection_has_its_priority() {
    let scheduler = Scheduler::builder().worker_threads(1).test_clock().build();
    scheduler.expect("it builds").block_on(async {
        let (door, listener) = listen();
        let (report, pids) = mpsc::channel();
        let report = Mutex::new(report);
        let server = Server::new().priority(move |head| {
            report.lock().send(current_pid()).expect("the test looks");
            match head.uri.path() {
                "/high" => Priority::High,
                "/batch" => Priority::Batch,
                _ => Priority::Normal,
            }
        });
        let server = spawn_server(server.serve(listener, service(own)));
        let mut stream = door.connect();
        for name in ["high", "batch", "normal", "high"] {
            let head = format!("GET /{name} HTTP/1.1\r\nhost: me\r\n\r\n");
            stream.send(head.as_bytes()).await.expect("it is served");
            assert!(stream.receive_until(">").await.ends_with(&format!("<{name} {name}>")));
            yield_now().await;
            let connection = pids.recv().expect("it was asked").expect("it is a process");
            assert_eq!(priority(connection), Some(Priority::Normal), "the response is complete");
        }
        drop(stream);
        server.cancel();
        server.await.expect("it does not panic").expect("it ends in order");
    });
}

/// The function for priorities and the function for clients.
#[test]
fn a_panic_in_a_function_of_the_server_ends_one_request_of_http2() {
    let priority = || {
        Server::new().priority(|head| match head.uri.path() {
            "/ill" => panic_quietly("asked to"),
            _ => Priority::High,
        })
    };
    let calls = Mutex::new(0);
    let client = Server::new().connect_info(move |_| {
        *calls.lock() += 1;
        if *calls.lock() == 1 {
            panic_quietly("the first time");
        }
    });
    for server in [priority(), client] {
        driven().block_on(async {
            let (door, listener) = listen();
            drop(spawn(server.http2().serve(listener, service(own))));
            let (mut sender, connection) =
                http2::handshake(Executor, door.connect()).await.expect("the server answers");
            drop(spawn(connection));
            let mut ask = async |path: &str| {
                let request = Request::get(format!("http://localhost{path}")).body(String::new());
                sender.send_request(request.expect("it is valid")).await
            };
            assert!(ask("/ill").await.is_err());
            let answer = ask("/well").await.expect("the connection goes on");
            collect(answer.into_body()).await.expect("it is served");
        });
    }
}
