//! The key-value example through its sockets: valid and invalid requests of clients.

use std::time::Duration;

use futures_lite::AsyncReadExt;
use procession::Scheduler;
use procession::net::{TcpListener, TcpStream};

#[path = "../../examples/14_key_value/server.rs"]
mod server;

/// Sends each part by itself. Returns what the connection answers until it is closed.
async fn talk(to: std::net::SocketAddr, parts: &[&[u8]]) -> String {
    let stream = TcpStream::connect(to).await.expect("it listens");
    for part in parts {
        // Refused once the connection was closed because of an earlier part.
        let _ = stream.write_all(part).await;
        procession::yield_now().await;
    }
    let _ = stream.shutdown(std::net::Shutdown::Write);
    let mut answer = Vec::new();
    let _ = (&stream).read_to_end(&mut answer).await;
    String::from_utf8_lossy(&answer).into_owned()
}

fn check(cases: &[(&[&[u8]], &str)]) {
    let scheduler = Scheduler::builder()
        .name("kv")
        .worker_threads(2)
        .build()
        .expect("the system gives threads");
    scheduler.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("the system gives a port");
        let here = listener.local_addr().expect("it is bound");
        let _tree = server::tree(listener, 2).try_start().await.expect("the tree starts");
        for (parts, answer) in cases {
            assert_eq!(
                talk(here, parts).await,
                *answer,
                "{:?}",
                String::from_utf8_lossy(&parts.concat())
            );
        }
        assert!(scheduler.shutdown(Duration::from_secs(60)).await.is_empty());
    });
}

#[test]
fn commands_do_what_those_of_redis_do() {
    check(&[
        (&[b"PING\r\nping hello\r\n\r\n"], "+PONG\r\n$5\r\nhello\r\n"),
        (
            &[b"SET a 1\r\nGET a\r\nINCR a\r\nINCR b\r\nDEL a b c\r\nGET a\r\n"],
            "+OK\r\n$1\r\n1\r\n:2\r\n:1\r\n:2\r\n$-1\r\n",
        ),
        (
            &[b"SET t 1 EX 100\r\nINCR t\r\nSET e 1 EX 0\r\nSET e 1 EX -1\r\nSET e 1 EX x\r\nSET e 1 PX 1\r\n"],
            "+OK\r\n:2\r\n-ERR invalid expire time in 'set' command\r\n-ERR invalid expire time in 'set' command\r\n\
             -ERR value is not an integer or out of range\r\n-ERR syntax error\r\n",
        ),
        (
            &[b"SET n x\r\nINCR n\r\nSET n 9223372036854775807\r\nINCR n\r\n"],
            "+OK\r\n-ERR value is not an integer or out of range\r\n+OK\r\n\
             -ERR increment or decrement would overflow\r\n",
        ),
        (
            &[b"GET\r\nNONSENSE a\r\n"],
            "-ERR wrong number of arguments for 'get' command\r\n-ERR unknown command 'NONSENSE'\r\n",
        ),
        (&[b"*3\r\n$3\r\nSET\r\n$2\r\n\r\n\r\n$0\r\n\r\n*2\r\n$3\r\nGET\r\n$2\r\n\r\n\r\n"], "+OK\r\n$0\r\n\r\n"),
    ]);
}

#[test]
fn requests_may_come_in_any_pieces_and_many_at_once() {
    let request: &[u8] =
        b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$5\r\nv\r\nv2\r\n*2\r\n$3\r\nGET\r\n$1\r\nk\r\n";
    let bytes: Vec<&[u8]> = request.chunks(1).collect();
    let many = b"INCR n\r\n".repeat(1000);
    let counted: String = (1..=1000).map(|n| format!(":{n}\r\n")).collect();
    check(&[(&bytes, "+OK\r\n$5\r\nv\r\nv2\r\n"), (&[&many], &counted)]);
}

#[test]
fn what_is_not_the_protocol_is_told_and_ends_that_connection_alone() {
    let long = [b'a'; 70_000];
    check(&[
        (&[b"*-1\r\nPING\r\n"], "-ERR Protocol error: invalid multibulk length\r\n"),
        (&[b"*99999999999999999999\r\n"], "-ERR Protocol error: invalid multibulk length\r\n"),
        (&[b"*2000\r\n"], "-ERR Protocol error: invalid multibulk length\r\n"),
        (
            &[b"*1111111111111111111111111111111"],
            "-ERR Protocol error: invalid multibulk length\r\n",
        ),
        (&[b"PING\r\n*1\r\n$-1\r\n"], "+PONG\r\n-ERR Protocol error: invalid bulk length\r\n"),
        (&[b"*2\r\n$3\r\nGET\r\n$1073741824\r\n"], "-ERR Protocol error: invalid bulk length\r\n"),
        (&[b"*1\r\n$+4\r\nPING\r\n"], "-ERR Protocol error: invalid bulk length\r\n"),
        (&[b"*1\r\n$4\r\nPINGxx"], "-ERR Protocol error: invalid bulk length\r\n"),
        (&[b"*1\r\n:4\r\n"], "-ERR Protocol error: expected '$', got ':'\r\n"),
        (&[&long], "-ERR Protocol error: too big inline request\r\n"),
        // Half a request is neither a request nor a mistake.
        (&[b"*2\r\n$3\r\nGET\r\n$5\r\nab"], ""),
        (&[b"PING\r\n"], "+PONG\r\n"),
    ]);
}
