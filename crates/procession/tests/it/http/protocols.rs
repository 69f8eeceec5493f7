//! HTTP/2, TLS, upgrades, and the connector for the client of hyper-util.

use std::future::{pending, poll_fn};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use hyper::body::Body;
use hyper::client::conn::{http1, http2};
use hyper::ext::Protocol;
use hyper::rt::{Read, ReadBuf, Write};
use hyper::upgrade::Upgraded;
use hyper::{Method, Request, StatusCode, Version};
use hyper_util::client::legacy::Client;
use procession::http::{Connector, Executor, Peer, RequestBody, Server, Timer};
use procession::net::{TcpListener, TcpStream};
use procession::time::Instant;
use procession::{Scheduler, sleep, spawn};
use procession_sync::Mutex;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore, ServerConfig};

use super::pipe::{Door, Pipe, listen};
use super::{Answers, collect, service, spawn_server};
use crate::scene::{driven, threaded};

const SECOND: Duration = Duration::from_secs(1);

/// Answers with the version, the peer and the body of a request.
fn echo() -> impl Answers {
    service(|request: Request<RequestBody>| async {
        let peer = request.extensions().get::<Peer>().copied();
        let version = request.version();
        let body = collect(request.into_body()).await.expect("the client sends it");
        let body = String::from_utf8_lossy(&body);
        match peer {
            Some(peer) => format!("{version:?} from {peer}: {body}"),
            None => format!("{version:?}: {body}"),
        }
    })
}

async fn serving(server: Server, service: impl Answers) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("there are free ports");
    let address = listener.local_addr().expect("it is bound");
    drop(spawn(server.connect_info(|peer| peer).serve(listener, service)));
    address
}

fn post(path: &str, body: &str) -> Request<String> {
    let uri = format!("http://localhost{path}");
    Request::post(uri).body(body.to_owned()).expect("it is valid")
}

async fn text<B: Body + Unpin>(body: B) -> String
where
    B::Error: std::fmt::Debug,
{
    String::from_utf8(collect(body).await.expect("it is sent")).expect("it is text")
}

#[test]
fn a_request_has_its_peer_if_the_server_is_told_to() {
    for (server, expected) in [
        (Server::new(), "HTTP/1.1: "),
        (Server::new().connect_info(|peer| peer), "HTTP/1.1 from local: "),
    ] {
        driven().block_on(async {
            let (door, listener) = listen();
            drop(spawn(server.serve(listener, echo())));
            let mut client = door.connect();
            let ask = b"GET / HTTP/1.1\r\nhost: me\r\nconnection: close\r\n\r\n";
            client.send(ask).await.expect("it is served");
            let answer = client.receive_all().await;
            assert!(answer.ends_with(expected), "{answer}");
        });
    }
}

#[test]
fn http2_is_found_by_its_first_bytes_beside_http1() {
    threaded(2).block_on(async {
        let address = serving(Server::new().http2(), echo()).await;
        let stream = TcpStream::connect(address).await.expect("the listener is open");
        let own = stream.local_addr().expect("it is connected");
        let (mut sender, connection) =
            http2::handshake(Executor, stream).await.expect("the server answers");
        drop(spawn(connection));
        for number in 0..10 {
            let body = format!("{number}").repeat(1000);
            let answer = sender.send_request(post("/", &body)).await.expect("it is served");
            assert_eq!(answer.version(), Version::HTTP_2);
            assert_eq!(text(answer.into_body()).await, format!("HTTP/2.0 from {own}: {body}"));
        }
        let stream = TcpStream::connect(address).await.expect("the listener is open");
        let (mut sender, connection) = http1::handshake(stream).await.expect("the stream is open");
        drop(spawn(connection));
        for body in ["one", "two"] {
            let request = Request::post("/").header("host", "me").body(body.to_owned());
            sender.ready().await.expect("the connection is open");
            let answer = sender.send_request(request.expect("it is valid")).await;
            let answer = text(answer.expect("it is served").into_body()).await;
            assert!(answer.starts_with("HTTP/1.1 from 127.0.0.1") && answer.ends_with(body));
        }
    });
}

/// Connects by HTTP/2 to a server on the test clock, which ends with the door.
async fn http2_client(server: Server, answers: impl Answers) -> (Door, http2::SendRequest<String>) {
    let (door, listener) = listen();
    drop(spawn(server.http2().serve(listener, answers)));
    let mut client = http2::Builder::new(Executor);
    // A client has more room by default than the answers need.
    client.initial_stream_window_size(65_535);
    let (sender, connection) = client.handshake(door.connect()).await.expect("the server answers");
    drop(spawn(connection));
    (door, sender)
}

#[test]
fn http2_has_the_limits_too() {
    let answers = || {
        service(|request: Request<RequestBody>| async move {
            if request.uri().path() == "/large" {
                return "x".repeat(1 << 20);
            }
            let body = collect(request.into_body()).await;
            body.map_or_else(|_| "late".to_owned(), |body| format!("{} bytes", body.len()))
        })
    };
    driven().block_on(async {
        let (_door, mut sender) = http2_client(Server::new(), answers()).await;
        let answer = sender.send_request(post("/", "")).await.expect("it is served");
        assert_eq!(text(answer.into_body()).await, "0 bytes");
        let answered = Instant::now();
        sender.ready().await.expect("the connection is open");
        assert_eq!(Instant::now(), answered);
        let answer = sender.send_request(post("/large", "")).await.expect("it is served");
        // The client does not read the body, so its window is full.
        let start = Instant::now();
        while !sender.is_closed() {
            sleep(SECOND).await;
        }
        let after = Instant::now() - start;
        // The server has handed the whole body over, so the connection counts as idle.
        assert!((SECOND * 60..=SECOND * 70).contains(&after), "{after:?}");
        let rest = collect(answer.into_body()).await;
        assert!(rest.is_err(), "the server has closed the connection");

        // A client without requests.
        let (_door, mut sender) = http2_client(Server::new(), answers()).await;
        let start = Instant::now();
        let answer = sender.send_request(post("/", "")).await.expect("it is served");
        assert_eq!(text(answer.into_body()).await, "0 bytes");
        while sender.ready().await.is_ok() {
            sleep(SECOND).await;
        }
        let after = Instant::now() - start;
        assert!((SECOND * 60..SECOND * 95).contains(&after), "{after:?}");
    });
}

/// The server has handed the whole body over, so the connection counts as idle. It goes on as long
/// as the client reads.
#[test]
fn a_client_that_reads_slowly_by_http2_gets_everything() {
    driven().block_on(async {
        let answers = service(|_: Request<RequestBody>| async { "x".repeat(1 << 20) });
        let server = Server::new().idle_timeout(SECOND * 5);
        let (_door, mut sender) = http2_client(server, answers).await;
        let answer = sender.send_request(post("/", "")).await.expect("it is served");
        let (mut body, start, mut length) = (answer.into_body(), Instant::now(), 0);
        while let Some(frame) = poll_fn(|task| Pin::new(&mut body).poll_frame(task)).await {
            let frame = frame.expect("the server goes on");
            length += frame.data_ref().map_or(0, |data| data.len());
            sleep(SECOND).await;
        }
        assert_eq!(length, 1 << 20);
        assert!(Instant::now() - start > SECOND * 50, "it is slow");
    });
}

#[test]
fn http2_drains() {
    driven().block_on(async {
        let (door, listener) = listen();
        let late = service(|_: Request<RequestBody>| async {
            sleep(SECOND * 5).await;
            "late".to_owned()
        });
        let server = spawn_server(Server::new().http2().serve(listener, late));
        let (mut sender, connection) =
            http2::handshake(Executor, door.connect()).await.expect("the server answers");
        drop(spawn(connection));
        let (_, idle) = http2::handshake::<_, _, String>(Executor, door.connect())
            .await
            .expect("the server answers");
        let idle = spawn(idle);
        let answer = spawn(sender.send_request(post("/", "")));
        sleep(SECOND).await;
        server.cancel();
        let told = Instant::now();
        idle.await.expect("it does not panic").expect("it is closed in order");
        assert_eq!(Instant::now(), told);
        let answer = answer.await.expect("it does not panic").expect("it is served");
        assert_eq!(text(answer.into_body()).await, "late");
        server.await.expect("it does not panic").expect("it ends in order");
        assert_eq!(Instant::now() - told, SECOND * 4);
    });
}

#[test]
fn a_client_that_stops_in_the_preface_is_dropped() {
    driven().block_on(async {
        let (door, listener) = listen();
        drop(spawn(Server::new().http2().serve(listener, echo())));
        let (mut stream, start) = (door.connect(), Instant::now());
        stream.send(b"PRI * HTTP/2.0\r\n").await.expect("it is open");
        assert_eq!(stream.receive_all().await, "");
        assert_eq!(Instant::now() - start, SECOND * 30);
    });
}

/// A certificate of `localhost` and `127.0.0.1` that is good until 2126, and its key.
const CERTIFICATE: &[u8] = include_bytes!("localhost.crt");
const KEY: &[u8] = include_bytes!("localhost.key");

pub(super) fn server_config() -> Arc<ServerConfig> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("ring has all versions")
        .with_no_client_auth()
        .with_single_cert(
            vec![CertificateDer::from(CERTIFICATE)],
            PrivateKeyDer::try_from(KEY).expect("it is a key"),
        );
    Arc::new(config.expect("they fit"))
}

pub(super) fn client_config(protocols: &[&str]) -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from(CERTIFICATE)).expect("it is a certificate");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("ring has all versions")
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
    Arc::new(config)
}

#[test]
fn tls_is_served_and_the_protocol_is_agreed_on() {
    threaded(2).block_on(async {
        let server = Server::new().http2().tls(server_config());
        let address = serving(server, echo()).await;
        for (protocols, version) in
            [(&["h2", "http/1.1"][..], "HTTP/2.0"), (&["http/1.1"], "HTTP/1.1"), (&[], "HTTP/1.1")]
        {
            let connector = Connector::new().tls(client_config(protocols));
            let client = Client::builder(Executor).build::<_, String>(connector);
            for size in [0, 10, 1 << 20] {
                let body = "x".repeat(size);
                let uri = format!("https://localhost:{}/", address.port());
                let request = Request::post(uri).body(body.clone()).expect("it is valid");
                let answer = client.request(request).await.expect("it is served");
                let answer = text(answer.into_body()).await;
                assert!(answer.starts_with(version), "{}", &answer[..20]);
                assert!(answer.ends_with(&format!(": {body}")), "{size}");
            }
        }
    });
}

#[test]
fn a_slow_handshake_delays_nobody_and_is_dropped() {
    driven().block_on(async {
        let (door, listener) = listen();
        drop(spawn(Server::new().tls(server_config()).serve(listener, echo())));
        let start = Instant::now();
        let mut silent = door.connect();
        let mut other = door.connect();
        other.send(b"GET / HTTP/1.1\r\n\r\n").await.expect("it is open");
        // An alert: this is no TLS.
        let alert = other.receive_all().await;
        assert!(!alert.is_empty() && !alert.contains("HTTP"));
        assert_eq!(Instant::now(), start);
        assert_eq!(silent.receive_all().await, "");
        assert_eq!(Instant::now() - start, SECOND * 10);
    });
}

#[test]
fn a_handshake_does_not_hold_a_drain_up() {
    driven().block_on(async {
        let (door, listener) = listen();
        let server = spawn_server(Server::new().tls(server_config()).serve(listener, echo()));
        let silent = door.connect();
        sleep(SECOND).await;
        let cancelled = Instant::now();
        server.cancel();
        server.await.expect("it does not panic").expect("it ends in order");
        assert_eq!(Instant::now() - cancelled, SECOND * 3);
        drop(silent);
    });
}

/// The client does not trust the certificate.
#[test]
fn a_failed_handshake_is_an_error_of_the_client() {
    threaded(2).block_on(async {
        let address = serving(Server::new().tls(server_config()), echo()).await;
        let uri = |scheme: &str| format!("{scheme}://127.0.0.1:{}/", address.port());
        let untrusting = {
            let provider = Arc::new(rustls::crypto::ring::default_provider());
            ClientConfig::builder_with_provider(provider)
                .with_safe_default_protocol_versions()
                .expect("ring has all versions")
                .with_root_certificates(RootCertStore::empty())
                .with_no_client_auth()
        };
        for connector in [Connector::new().tls(Arc::new(untrusting)), Connector::new()] {
            let client = Client::builder(Executor).build::<_, String>(connector);
            let uri = uri("https").parse().expect("it is valid");
            assert!(client.get(uri).await.expect_err("it is not trusted").is_connect());
        }
        // Others are served.
        let connector = Connector::new().tls(client_config(&[]));
        let client = Client::builder(Executor).build::<_, String>(connector);
        let uri = uri("https").parse().expect("it is valid");
        assert_eq!(client.get(uri).await.expect("it is served").status(), StatusCode::OK);
    });
}

/// A wrong port must not become the port of the scheme, where a stranger may listen.
#[test]
fn a_connector_refuses_a_port_that_is_no_number() {
    driven().block_on(async {
        for uri in ["http://127.0.0.1:99999/", "http://a:b@127.0.0.1:x/", "http://[::1]:65536/"] {
            let client = Client::builder(Executor).build::<_, String>(Connector::new());
            let error = client.get(uri.parse().expect("the type takes it")).await;
            let error = error.expect_err("the port is wrong");
            let act = std::error::Error::source(&error).expect("it has a cause");
            let cause = act.source().expect("it has a cause");
            assert!(cause.to_string().contains("port of the URI"), "{uri}: {cause}");
        }
    });
}

fn labels(scheduler: &Scheduler) -> Vec<String> {
    let snapshot = scheduler.snapshot();
    crate::scene::alive(&snapshot)
        .filter_map(|process| process.label.as_deref().map(str::to_owned))
        .collect()
}

#[test]
fn the_client_of_hyper_util_keeps_its_connections() {
    let scheduler = threaded(2);
    scheduler.block_on(async {
        let address = serving(Server::new(), echo()).await;
        let client =
            Client::builder(Executor).pool_timer(Timer).build::<_, String>(Connector::new());
        // The client opens another connection if the last one is not back yet.
        let mut peers: Vec<String> = Vec::new();
        let peer = loop {
            let number = peers.len();
            assert!(number < 1000, "no connection is used twice");
            let request = Request::post(format!("http://{address}/")).body(number.to_string());
            let answer = client.request(request.expect("it is valid")).await.expect("it is served");
            let answer = text(answer.into_body()).await;
            let (peer, body) = answer.rsplit_once(": ").expect("it is an echo");
            assert_eq!(body, number.to_string());
            if peers.iter().any(|known| known == peer) {
                break peer.to_owned();
            }
            peers.push(peer.to_owned());
        };
        let peer = peer.strip_prefix("HTTP/1.1 from ").expect("it is an echo");
        assert!(labels(&scheduler).contains(&format!("http {peer}")));

        let nobody = client.get("http://127.0.0.1:1/".parse().expect("it is valid")).await;
        assert!(nobody.expect_err("nobody listens").is_connect());
        let unknown = client.get("ftp://127.0.0.1/".parse().expect("it is valid")).await;
        assert!(unknown.is_err());
    });
}

/// Answers that the protocol changes, and sends back in upper case what the client sends on the
/// stream.
fn shouts(told: Arc<Mutex<Vec<String>>>) -> impl Answers + use<> {
    Switches(service(move |mut request: Request<RequestBody>| {
        let told = Arc::clone(&told);
        let upgrade = hyper::upgrade::on(&mut request);
        drop(spawn_server(async move {
            let mut stream = match upgrade.await {
                Ok(stream) => stream,
                Err(error) => return told.lock().push(error.to_string()),
            };
            loop {
                let mut memory = [0; 64];
                let mut part = hyper::rt::ReadBuf::new(&mut memory);
                let read = std::future::poll_fn(|task| {
                    hyper::rt::Read::poll_read(
                        std::pin::Pin::new(&mut stream),
                        task,
                        part.unfilled(),
                    )
                });
                read.await.expect("the client is there");
                let bytes = part.filled().to_ascii_uppercase();
                if bytes.is_empty() {
                    return told.lock().push("end".to_owned());
                }
                let write = std::future::poll_fn(|task| {
                    hyper::rt::Write::poll_write(std::pin::Pin::new(&mut stream), task, &bytes)
                });
                assert_eq!(write.await.expect("the client is there"), bytes.len());
            }
        }));
        async { String::new() }
    }))
}

/// Makes the answers those to an upgrade.
#[derive(Clone)]
struct Switches<S>(S);

impl<S: Answers<Future = super::Answering>> tower_service::Service<Request<RequestBody>>
    for Switches<S>
{
    type Response = hyper::Response<String>;
    type Error = std::convert::Infallible;
    type Future = super::Answering;

    fn poll_ready(
        &mut self,
        task: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Result<(), Self::Error>> {
        self.0.poll_ready(task)
    }

    fn call(&mut self, request: Request<RequestBody>) -> Self::Future {
        let is_http2 = request.version() == Version::HTTP_2;
        let answer = self.0.call(request);
        Box::pin(async move {
            let mut answer = answer.await?;
            if is_http2 {
                return Ok(answer);
            }
            *answer.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
            answer
                .headers_mut()
                .insert("upgrade", hyper::header::HeaderValue::from_static("shout"));
            Ok(answer)
        })
    }
}

impl<S: Answers<Future = super::Answering>> Answers for Switches<S> {}

const UPGRADE: &[u8] =
    b"GET / HTTP/1.1\r\nhost: me\r\nconnection: upgrade\r\nupgrade: shout\r\n\r\n";

async fn upgraded(stream: &mut Pipe) -> String {
    stream.send(UPGRADE).await.expect("it is served");
    stream.receive_until("\r\n\r\n").await
}

#[test]
fn an_upgraded_stream_outlives_the_server_and_its_limits() {
    driven().block_on(async {
        let told = Arc::new(Mutex::new(Vec::new()));
        let (door, listener) = listen();
        let server =
            spawn_server(Server::new().upgrades().serve(listener, shouts(Arc::clone(&told))));
        let mut stream = door.connect();
        assert!(upgraded(&mut stream).await.starts_with("HTTP/1.1 101"));
        for _ in 0..3 {
            stream.send(b"hello").await.expect("it is open");
            stream.receive_until("HELLO").await;
            sleep(SECOND * 1000).await;
        }
        server.cancel();
        let cancelled = Instant::now();
        server.await.expect("it does not panic").expect("it ends in order");
        assert_eq!(Instant::now(), cancelled, "the server does not wait for it");
        stream.send(b"still").await.expect("it is open");
        stream.receive_until("STILL").await;
        assert!(told.lock().is_empty());
        drop(stream);
        sleep(SECOND).await;
        assert_eq!(*told.lock(), ["end"]);
    });
}

#[test]
fn without_upgrades_a_service_gets_no_stream() {
    driven().block_on(async {
        let told = Arc::new(Mutex::new(Vec::new()));
        let (door, listener) = listen();
        drop(spawn(Server::new().serve(listener, shouts(Arc::clone(&told)))));
        let mut stream = door.connect();
        upgraded(&mut stream).await;
        assert_eq!(stream.receive_all().await, "");
        sleep(SECOND).await;
        assert_eq!(told.lock().len(), 1);
    });
}

/// Upgrades a stream of a new HTTP/2 connection (RFC 8441).
async fn tunnel(door: &Door) -> (http2::SendRequest<String>, Upgraded) {
    let (mut sender, connection) =
        http2::handshake(Executor, door.connect()).await.expect("the server answers");
    drop(spawn_server(connection));
    // The client must know the settings of the server.
    sleep(SECOND).await;
    let request = Request::connect("http://localhost/").extension(Protocol::from_static("shout"));
    let answer = sender.send_request(request.body(String::new()).expect("it is valid")).await;
    let stream = hyper::upgrade::on(answer.expect("it is served")).await;
    (sender, stream.expect("it is upgraded"))
}

async fn shout(stream: &mut Upgraded) {
    let sent = poll_fn(|task| Write::poll_write(Pin::new(&mut *stream), task, b"hello")).await;
    assert_eq!(sent.expect("it is open"), 5);
    let mut memory = [0; 64];
    let mut part = ReadBuf::new(&mut memory);
    let read = poll_fn(|task| Read::poll_read(Pin::new(&mut *stream), task, part.unfilled()));
    read.await.expect("it is open");
    assert_eq!(part.filled(), b"HELLO");
}

#[test]
fn a_stream_upgraded_by_http2_keeps_its_connection() {
    driven().block_on(async {
        let told = Arc::new(Mutex::new(Vec::new()));
        let (door, listener) = listen();
        let server = Server::new().http2().upgrades();
        let server = spawn_server(server.serve(listener, shouts(Arc::clone(&told))));
        let (sender, mut stream) = tunnel(&door).await;
        for _ in 0..3 {
            shout(&mut stream).await;
            sleep(SECOND * 1000).await;
        }
        server.cancel();
        sleep(SECOND * 1000).await;
        shout(&mut stream).await;
        assert!(told.lock().is_empty());
        drop(stream);
        let dropped = Instant::now();
        server.await.expect("it does not panic").expect("it ends in order");
        assert_eq!(Instant::now(), dropped);
        drop(sender);
        sleep(SECOND).await;
        assert_eq!(*told.lock(), ["end"]);
    });
}

/// A request of HTTP/2 and the stream of an upgrade have processes of their own, which the
/// shutdown terminates as well.
#[test]
fn a_shutdown_counts_what_its_deadline_cuts_off_by_http2() {
    let scheduler = driven();
    scheduler.block_on(async {
        let (door, listener) = listen();
        let holds = service(|mut request: Request<RequestBody>| {
            let upgrade = hyper::upgrade::on(&mut request);
            async move {
                if request.method() == Method::CONNECT {
                    drop(spawn_server(async {
                        let _stream = upgrade.await;
                        pending::<()>().await;
                    }));
                    return String::new();
                }
                pending().await
            }
        });
        let server = Server::new().http2().upgrades();
        let _server = spawn_server(server.serve(listener, holds));
        let (mut sender, _stream) = tunnel(&door).await;
        let (mut other, _other_stream) = tunnel(&door).await;
        for sender in [&mut sender, &mut other] {
            drop(spawn_server(sender.send_request(post("/", ""))));
        }
        sleep(SECOND).await;
        let unfinished = scheduler.shutdown(SECOND * 30).await;
        assert_eq!((unfinished.requests, unfinished.stopped_requests), (4, 0), "{unfinished}");
    });
}
