//! The priority of a request, by its head.

use hyper::Request;
use procession::http::{RequestBody, Server};
use procession::process::{Priority, current_pid, priority};
use procession::{Scheduler, yield_now};
use procession_sync::Mutex;

use super::pipe::listen;
use super::{service, spawn_server};
use crate::home::mpsc;

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
