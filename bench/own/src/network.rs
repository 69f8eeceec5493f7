//! The workloads of sockets. Both ends are in this program.

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::time::Instant;

use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};

use super::meter::{cpu_time, more_descriptors, now};
use super::rt::{self, *};
use super::workload::{
    ECHO_BYTES, ECHO_CONNECTIONS, ECHO_ROUND_TRIPS, Failed, HTTP_BODY, HTTP_CONNECTIONS,
    HTTP_REQUEST, HTTP_REQUESTS, Outcome, Scale, check, each,
};

const ANYWHERE: &str = "127.0.0.1:0";

/// Serves `connections` connections, and waits for their clients. Returns the wall time and the CPU
/// time for each of `count`.
async fn serve<S, C>(
    connections: u64,
    count: u64,
    serve: impl Fn(TcpStream) -> S + Send + 'static,
    client: impl Fn(TcpStream) -> C,
) -> Result<[f64; 2], Failed>
where
    S: Future<Output = ()> + Send + 'static,
    C: Future<Output = io::Result<u64>> + Send + 'static,
{
    more_descriptors()?;
    let failed = |cause| Failed::System { act: "talk over a socket", cause };
    let listener = TcpListener::bind(ANYWHERE).await.map_err(failed)?;
    let address: SocketAddr = listener.local_addr().map_err(failed)?;
    let server = rt::spawn(async move {
        for _ in 0..connections {
            let (stream, _) = listener.accept().await?;
            stream.set_nodelay(true)?;
            rt::detach(rt::spawn(serve(stream)));
        }
        Ok::<(), io::Error>(())
    });
    let mut streams = Vec::new();
    for _ in 0..connections {
        let stream = TcpStream::connect(address).await.map_err(failed)?;
        stream.set_nodelay(true).map_err(failed)?;
        streams.push(stream);
    }
    server.await?.map_err(failed)?;
    let (start, cpu): (Instant, _) = (now(), cpu_time());
    let clients: Vec<_> = streams.into_iter().map(|stream| rt::spawn(client(stream))).collect();
    let mut done = 0;
    for client in clients {
        done += client.await?.map_err(failed)?;
    }
    let spent = (cpu_time() - cpu).as_nanos() as f64 / count as f64;
    let outcome = [each(start, count), spent];
    check("the answers", count, done)?;
    Ok(outcome)
}

pub(super) async fn echo(scale: Scale) -> Outcome {
    let mut outcome = Vec::new();
    for connections in ECHO_CONNECTIONS {
        let each = scale.of(ECHO_ROUND_TRIPS) / connections;
        let client = move |mut stream: TcpStream| async move {
            let (stream, mut bytes) = (&mut stream, [1; ECHO_BYTES]);
            for _ in 0..each {
                stream.write_all(&bytes).await?;
                stream.read_exact(&mut bytes).await?;
            }
            Ok(each)
        };
        outcome.extend(serve(connections, each * connections, send_back, client).await?);
    }
    Ok(outcome)
}

/// Sends back what the client has sent, until it closes the connection.
pub(super) async fn send_back(mut stream: TcpStream) {
    let (stream, mut bytes) = (&mut stream, [0; ECHO_BYTES]);
    while let Ok(count @ 1..) = stream.read(&mut bytes).await {
        if stream.write_all(&bytes[..count]).await.is_err() {
            return;
        }
    }
}

pub(super) async fn http(scale: Scale) -> Outcome {
    let each = scale.of(HTTP_REQUESTS) / HTTP_CONNECTIONS;
    let client = move |mut stream: TcpStream| async move {
        let (stream, mut answer) = (&mut stream, [0; 1024]);
        for _ in 0..each {
            stream.write_all(HTTP_REQUEST).await?;
            let mut length = 0;
            while !answer[..length].ends_with(HTTP_BODY.as_bytes()) {
                match stream.read(&mut answer[length..]).await? {
                    0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                    count => length += count,
                }
            }
        }
        Ok(each)
    };
    Ok(serve(HTTP_CONNECTIONS, each * HTTP_CONNECTIONS, answer, client).await?.to_vec())
}

async fn answer(stream: TcpStream) {
    // Ignored: the client checks that it got its answers.
    let _ = http1::Builder::new()
        .timer(rt::http_timer())
        .serve_connection(rt::http_io(stream), service_fn(body))
        .await;
}

/// Answers a request. A function, since the compiler sometimes fails to rebuild an async closure
/// here (1.95, incremental).
async fn body(_: Request<Incoming>) -> Result<Response<String>, Infallible> {
    Ok(Response::new(HTTP_BODY.to_owned()))
}
