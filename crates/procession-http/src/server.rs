//! The HTTP server for tower services.

mod accept;
mod body;
mod connection;
mod limits;
mod linger;
#[cfg(feature = "http2")]
mod preface;
mod stream;
mod watch;

use std::error::Error as StdError;
use std::fmt;
#[cfg(any(feature = "http2", feature = "tls"))]
use std::future::poll_fn;
use std::future::{Future, pending};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::panic::Location;
#[cfg(any(feature = "http2", feature = "tls"))]
use std::pin::pin;
use std::sync::Arc;
use std::task::Context;
#[cfg(any(feature = "http2", feature = "tls"))]
use std::task::{Poll, ready};
use std::time::Duration;

use hyper::body::Body;
use hyper::http::Extensions;
use hyper::http::request::Parts;
use hyper::rt::{Read, Write};
use hyper::{Request, Response};
use procession_runtime::inner::OwnProcess;
#[cfg(any(feature = "http2", feature = "tls"))]
use procession_runtime::inner::poll_last;
use procession_runtime::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use procession_runtime::process::Priority;
use procession_runtime::time::Instant;
#[cfg(any(feature = "http2", feature = "tls"))]
use procession_runtime::time::sleep_until;
use tower_service::Service;

pub use self::body::RequestBody;
use self::limits::{Most, ServerLimits};
use crate::Error;

type BoxError = Box<dyn StdError + Send + Sync>;

/// A source of connections for a [`Server`]: [`TcpListener`], [`UnixListener`], or something else
/// that yields streams.
pub trait Listener: Sync {
    /// A connection.
    type Stream: Read + Write + Send + Unpin + 'static;

    /// Waits for the next connection, and returns it with its peer.
    ///
    /// # Errors
    /// Returns the errors of the listener. An error ends the server, so do not return the error of
    /// a single connection.
    ///
    /// # Cancellation
    /// If the future is dropped before it completes, no connection is lost.
    fn next(&self) -> impl Future<Output = io::Result<(Self::Stream, Peer)>> + Send;

    /// Refuses connections from now on. A server calls this if a shutdown of its scheduler ends it,
    /// after it has accepted the connections in the backlog. The call matters if the listener is
    /// [shared](Arc), because then the drop of the server does not close it.
    ///
    /// Default: does nothing.
    fn refuse(&self) {}
}

impl Listener for TcpListener {
    type Stream = TcpStream;

    async fn next(&self) -> io::Result<(TcpStream, Peer)> {
        let (stream, address) = self.accept().await?;
        // hyper writes complete responses, so holding data back gains nothing. If the system
        // refuses the option, responses arrive a little later.
        let _ = stream.set_nodelay(true);
        Ok((stream, address.into()))
    }

    fn refuse(&self) {
        self.refuse_connections();
    }
}

impl Listener for UnixListener {
    type Stream = UnixStream;

    async fn next(&self) -> io::Result<(UnixStream, Peer)> {
        self.accept().await.map(|(stream, _)| (stream, Peer::LOCAL))
    }

    fn refuse(&self) {
        self.refuse_connections();
    }
}

/// A listener that stays open when a server ends, for example because a restarted server uses it
/// again. If a shutdown of the scheduler ends the server, nothing restarts it, so the listener
/// [refuses](Listener::refuse) connections from then on.
///
/// A [`TcpListener`] or [`UnixListener`] that was converted from a listener of the standard library
/// stays open even after a shutdown. The reason is that another program may have bound it and
/// passed it on, and may still use it.
impl<L: Listener + Send> Listener for Arc<L> {
    type Stream = L::Stream;

    async fn next(&self) -> io::Result<(L::Stream, Peer)> {
        L::next(self).await
    }

    fn refuse(&self) {
        L::refuse(self);
    }
}

/// The client of a connection. Each request has it among its extensions if
/// [`connect_info`](Server::connect_info) puts it there.
///
/// It displays as its address, or as `local`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Peer(Option<SocketAddr>);

impl Peer {
    /// The address of a client on this machine without an address, for example at a Unix socket.
    pub const LOCAL: Self = Self(None);

    /// Returns the address of the client, if it has one.
    pub fn address(&self) -> Option<SocketAddr> {
        self.0
    }

    /// Returns the IP address of the client, if it has one. Behind a proxy, this is the address of
    /// the proxy.
    pub fn ip(&self) -> Option<IpAddr> {
        self.0.map(|address| address.ip())
    }
}

impl From<SocketAddr> for Peer {
    fn from(address: SocketAddr) -> Self {
        Self(Some(address))
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(address) => address.fmt(f),
            None => f.write_str("local"),
        }
    }
}

/// Adds what the program wants to know of a connection to the extensions of a request.
type ConnectInfo = Arc<dyn Fn(Peer, &mut Extensions) + Send + Sync>;

/// The priority of a request, by its head.
type PriorityOf = Arc<dyn Fn(&Parts) -> Priority + Send + Sync>;

/// What a server does, apart from where it listens.
#[derive(Clone, Default)]
struct Settings {
    limits: ServerLimits,
    connect_info: Option<ConnectInfo>,
    priority: Option<PriorityOf>,
    upgrades: bool,
    #[cfg(feature = "http2")]
    http2: bool,
    #[cfg(feature = "tls")]
    tls: Option<Arc<rustls::ServerConfig>>,
}

/// Serves a tower service, such as an axum `Router`, with one process for each connection.
///
/// ```
/// use std::convert::Infallible;
/// use std::future::{Ready, ready};
/// use std::task::{Context, Poll};
/// use std::time::Duration;
/// use hyper::{Request, Response};
/// use procession::http::{Peer, RequestBody, Server};
/// use procession::net::{TcpListener, TcpStream};
///
/// #[derive(Clone)]
/// struct Hello;
///
/// impl tower_service::Service<Request<RequestBody>> for Hello {
///     type Response = Response<String>;
///     type Error = Infallible;
///     type Future = Ready<Result<Response<String>, Infallible>>;
///
///     fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
///         Poll::Ready(Ok(()))
///     }
///
///     fn call(&mut self, request: Request<RequestBody>) -> Self::Future {
///         let is_known = request.extensions().get::<Peer>().is_some();
///         assert!(is_known);
///         ready(Ok(Response::new(format!("hello from {}", request.uri().path()))))
///     }
/// }
///
/// procession::run(async {
///     let listener = TcpListener::bind("127.0.0.1:0").await?;
///     let client = TcpStream::connect(listener.local_addr()?).await?;
///     let server = Server::new().connect_info(|peer| peer).body_timeout(Duration::from_secs(60));
///     drop(procession::spawn(server.serve(listener, Hello)));
///     client.write_all(b"GET /page HTTP/1.1\r\nhost: me\r\nconnection: close\r\n\r\n").await?;
///     let mut response = Vec::new();
///     futures_lite::AsyncReadExt::read_to_end(&mut &client, &mut response).await?;
///     let response = String::from_utf8_lossy(&response);
///     assert!(response.starts_with("HTTP/1.1 200 OK") && response.ends_with("hello from /page"));
///     Ok::<(), std::io::Error>(())
/// })?;
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// # Limits
///
/// The defaults withstand clients that send slowly, or nothing, and clients that never read. All
/// times are on the clock of the scheduler.
///
/// | limit | default | when it is reached |
/// |---|---|---|
/// | [`max_connections`] | 3/4 of the descriptors | further connections wait in the backlog |
/// | [`head_timeout`] | 30 s | the connection is closed |
/// | [`max_head_bytes`] | 64 KiB | the response is 431, and the connection is closed |
/// | [`idle_timeout`] | 60 s | the connection is closed in order |
/// | [`body_stall_timeout`] | 30 s, plus 1 s per 512 bytes received | the [`RequestBody`] fails |
/// | [`body_timeout`] | 1 h | the [`RequestBody`] fails |
/// | [`write_timeout`] | 30 s | the connection is closed |
/// | [`half_close_timeout`] | 5 s | the request and the connection are dropped |
/// | `handshake_timeout`, with TLS | 10 s | the connection is closed |
///
/// [`max_connections`]: Self::max_connections
/// [`head_timeout`]: Self::head_timeout
/// [`max_head_bytes`]: Self::max_head_bytes
/// [`idle_timeout`]: Self::idle_timeout
/// [`body_stall_timeout`]: Self::body_stall_timeout
/// [`body_timeout`]: Self::body_timeout
/// [`write_timeout`]: Self::write_timeout
/// [`half_close_timeout`]: Self::half_close_timeout
///
/// The system also limits the number of connections. Without a file descriptor, a connection waits
/// in the backlog. If the scheduler takes no more processes, the connection is closed. A service
/// may take as long as it likes for a response; limit that in the service.
///
/// # Clients that go away
///
/// If the client of an HTTP/1.1 connection resets it, the server immediately drops the future of
/// the service, or the body of the response. If the client ends its direction of the connection,
/// the system does not say whether the client has closed the connection or waits for the response
/// with its half closed. Such a client is answered as long as the
/// [`half_close_timeout`](Self::half_close_timeout) permits.
///
/// If a client has sent more than 16 KiB that the service does not read, the server notices a reset
/// and the end of the client up to a second later, because it asks the system once a second. The
/// server does so for TCP and Unix streams, with and without TLS. Behind another
/// [`Stream`](Listener::Stream), the request keeps its place until the service has answered it.
///
/// With HTTP/2, the server drops the requests of a connection that has ended, and each request that
/// the client cancels.
///
/// # Requests that are not valid
///
/// The server itself answers a request that hyper cannot read, and a request without a valid number
/// of `Host` fields: HTTP/1.1 demands one, and no version permits two. The response is 400, and the
/// service sees no such request.
///
/// # Closing
///
/// After the last response, the server shuts down its direction of the connection, and then reads
/// and discards what the client still sends, for example the rest of a body that the service did
/// not read. A connection that is closed without that is reset, and its client loses the part of
/// the response that it has not read. The server closes the connection once the client has done so,
/// once nothing has arrived for 2 s, after 64 MiB, or after 30 s (after 3 s if the server drains).
/// The connection counts until then.
///
/// # The end
///
/// If the process that serves is cancelled, or the future of [`serve_until`](Self::serve_until)
/// completes, the server *drains*:
///
/// 1. It accepts the connections that wait in the backlog, and drops the listener, which closes it
///    unless something else has it ([`Arc`]). In a shutdown of the scheduler, a shared listener
///    [refuses](Listener::refuse) connections as well. At [`max_connections`], an accepted
///    connection waits for a place, and the system resets connections beyond an eighth of the
///    descriptors.
/// 2. It cancels the process of each connection. Such a connection answers the requests that have
///    begun, including a request that has arrived in its socket, and closes. A body that a process
///    still reads arrives before, even if its request has been answered. The response of
///    HTTP/1.1 says `connection: close`. If an HTTP/1.1 connection has no request, its client may
///    send one within 1 s, because a request may be on its way; otherwise the connection closes
///    then. An HTTP/2 connection announces its end by GOAWAY, and closes without a grace. This
///    second, and the times of a closing connection, are shorter if a shutdown of the scheduler
///    leaves less than four times as much.
/// 3. It returns once all connections have ended.
///
/// So if a child of a supervisor serves, it ends after its last response. In a tree of *rest for
/// one*, the children before it run until then. A handler that runs for long, such as a stream of
/// events, learns of the cancel of its process. The server itself sets no limit for the drain. The
/// deadline of the shutdown is the limit, or the [`Stop`](procession_runtime::supervisor::Stop) of
/// the child. A request that the deadline cuts off is counted in
/// [`Unfinished::requests`](procession_runtime::snapshot::Unfinished::requests).
///
/// A client that *pipelines* sends further HTTP/1.1 requests before it has the first response. The
/// server answers only the request that is under way, and says `connection: close` unless the head
/// of that response was sent before. The client must send its further requests again, over a new
/// connection, as RFC 9112 (section 9.3.2) requires.
///
/// Only a process that is [asked](procession_runtime::OnCancel::Ask) to end can drain: a child of a
/// supervisor, a process of [`start`](procession_runtime::start()), or one of
/// [`on_cancel(Ask)`](procession_runtime::SpawnOptions::on_cancel). The future in a plain
/// [`spawn`](procession_runtime::spawn()) is dropped by a cancel.
///
/// If the server is terminated or dropped while it drains, it terminates the connections that are
/// left. If it is dropped before that, or the listener fails, the connections end as in a drain,
/// but nobody waits for them.
///
/// For example, `Scheduler::run_until_signal` drops its future. If that future serves, the shutdown
/// waits for the connections, but the system resets the connections that still wait in the backlog.
/// So let a process serve, for example by [`start`](procession_runtime::start()), and await that
/// process.
///
/// If [ids of requests](procession_runtime::request) travel in the scheduler, the service works for
/// the W3C trace context of each request that has a valid one, until it returns the response. The
/// body of the response belongs to no request.
///
/// A connection that fails, or runs a service that panics, ends without an effect on other
/// connections. The process of a connection is labelled with its peer, such as `http
/// 127.0.0.1:4711`. With HTTP/2, each request has its own process.
#[derive(Clone, Default)]
#[must_use = "a server does nothing unless it serves"]
pub struct Server {
    settings: Settings,
}

impl Server {
    /// Creates a server for HTTP/1.1 with the default limits.
    pub fn new() -> Self {
        Self::default()
    }

    fn limits(&mut self) -> &mut ServerLimits {
        &mut self.settings.limits
    }

    /// Sets how many connections may be open at the same time, at least 1. Further connections wait
    /// in the backlog of the listener. `None` is no limit.
    ///
    /// Default: three quarters of the descriptors that the program may open (`ulimit -n`) when the
    /// server begins to serve, so that services can open their own files and connections however
    /// many clients there are. If the system sets no limit, there is none. Each server counts only
    /// its own connections, even if a program has several servers.
    ///
    /// A stream that was [upgraded](Self::upgrades) from HTTP/1.1 does not count.
    ///
    /// # Panics
    /// Panics if the number is 0.
    pub fn max_connections(mut self, connections: impl Into<Option<usize>>) -> Self {
        let connections = connections.into();
        assert_ne!(connections, Some(0), "a server needs room for a connection");
        self.limits().connections = connections.map_or(Most::Any, Most::Number);
        self
    }

    /// Sets how long a client may take to send the head of a request, from its first byte on. For
    /// the first request, the time counts from the begin of the connection. `None` is no limit.
    /// Default: 30 s.
    ///
    /// An HTTP/2 connection without a request is [idle](Self::idle_timeout), even if other frames
    /// arrive.
    pub fn head_timeout(mut self, timeout: impl Into<Option<Duration>>) -> Self {
        self.limits().head = timeout.into();
        self
    }

    /// Sets the maximum size of the head of a request. Default: 64 KiB.
    pub fn max_head_bytes(mut self, bytes: usize) -> Self {
        self.limits().head_bytes = bytes;
        self
    }

    /// Sets how long a connection stays open without a request, after the first one. A request
    /// lasts until its response is complete and its body has been read or dropped. `None` is no
    /// limit. Default: 60 s.
    ///
    /// An HTTP/2 connection may notice the end of its last request late, by up to one
    /// [`write_timeout`](Self::write_timeout), and then stays open longer by this time.
    pub fn idle_timeout(mut self, timeout: impl Into<Option<Duration>>) -> Self {
        self.limits().idle = timeout.into();
        self
    }

    /// Sets how long a service may have to wait for the body of a request, as the sum of all its
    /// waits. Each 512 bytes that arrive add a second. `None` is no limit. Default: 30 s.
    ///
    /// The time counts only while the service waits for the body.
    pub fn body_stall_timeout(mut self, timeout: impl Into<Option<Duration>>) -> Self {
        self.limits().body_stall = timeout.into();
        self
    }

    /// Sets how long the body of a request may take to arrive as a whole. The time counts from the
    /// first time that the service has to wait for it. `None` is no limit. Default: 1 h.
    pub fn body_timeout(mut self, timeout: impl Into<Option<Duration>>) -> Self {
        self.limits().body = timeout.into();
        self
    }

    /// Sets how long a client may take to make room for a part of a response. Each byte that it
    /// takes restarts the time. `None` is no limit. Default: 30 s.
    ///
    /// An HTTP/2 connection carries several responses, so the server looks at each of them once in
    /// this time. If the service has added no part to a response since the last look, and the
    /// client has read at most 512 bytes of it per second, the server resets the stream and drops
    /// the body of the response. So the client has up to twice the time to read a part. The other
    /// requests of the connection continue. However, if the service has handed over the whole
    /// response before, the server closes the connection.
    pub fn write_timeout(mut self, timeout: impl Into<Option<Duration>>) -> Self {
        self.limits().write = timeout.into();
        self
    }

    /// Sets how long a request of HTTP/1.1 may take if its client has ended its direction of the
    /// connection. Each byte of the response that the client's system takes restarts the time.
    /// `None` is no limit. Default: 5 s.
    ///
    /// A client that has closed the connection, for example a browser after a reload of its page,
    /// looks the same as a client that has closed its half and waits. So this limits both: how long
    /// an abandoned request keeps its place, and how long a half-closed client may wait. When the
    /// time is over, the future of the service is dropped.
    pub fn half_close_timeout(mut self, timeout: impl Into<Option<Duration>>) -> Self {
        self.limits().half_close = timeout.into();
        self
    }

    /// Adds what `info` returns for the client of a connection to the extensions of each request.
    /// By default, nothing is added, because it costs three allocations for each request.
    ///
    /// With `connect_info(ConnectInfo)`, a handler of axum gets the client as `ConnectInfo<Peer>`.
    /// Some layers ask for a `ConnectInfo<SocketAddr>`, for example a limit for each address. For
    /// such a layer, return that type from `info`. With `connect_info(|peer| peer)`, the [`Peer`]
    /// itself is an extension.
    ///
    /// `info` is called for each request, on the process that answers it.
    /// [`serve_connection`](Self::serve_connection) knows no client, so it does not call `info`.
    pub fn connect_info<T>(mut self, info: impl Fn(Peer) -> T + Send + Sync + 'static) -> Self
    where
        T: Clone + Send + Sync + 'static,
    {
        self.settings.connect_info = Some(Arc::new(move |peer, extensions: &mut Extensions| {
            extensions.insert(info(peer));
        }));
        self
    }

    /// Sets the [priority](procession_runtime::process::Priority) of each request, by its head: of
    /// the step that calls the service, and of what follows until the response is sent. Default:
    /// [`Priority::Normal`].
    ///
    /// The head itself is read at [`Priority::Normal`], which the process of the connection has
    /// again after each request, whatever it had before. Processes that the service starts or calls
    /// have their own priorities. `of` is called on the process that answers the request, which is
    /// the process of the connection unless that is HTTP/2.
    ///
    /// ```
    /// use procession::http::Server;
    /// use procession::process::Priority;
    ///
    /// let server = Server::new().priority(|head| match head.uri.path() {
    ///     "/health" => Priority::High,
    ///     "/report" => Priority::Batch,
    ///     _ => Priority::Normal,
    /// });
    /// # drop(server);
    /// ```
    pub fn priority(mut self, of: impl Fn(&Parts) -> Priority + Send + Sync + 'static) -> Self {
        self.settings.priority = Some(Arc::new(of));
        self
    }

    /// Lets a service take over the stream of a request by
    /// [`hyper::upgrade::on`](https://docs.rs/hyper/1/hyper/upgrade/fn.on.html), for example for
    /// WebSockets. Default: off.
    ///
    /// With axum, the callback of `WebSocketUpgrade::on_upgrade` gets the socket in a task of
    /// tokio's. A shutdown does not wait for tasks, so the callback should
    /// [start](procession_runtime::start()) a process and move the socket into it. The program
    /// `examples/programs/src/bin/chat.rs` of the repository shows this.
    ///
    /// A stream that was taken over belongs to the process that has it. The server neither limits
    /// it nor waits for it when it drains. At its end the process should say goodbye and read
    /// until the client has closed, because a socket that is dropped with unread input is reset,
    /// and the client may lose what came last. With HTTP/2, the stream is a part of its connection,
    /// and counts as a request until the process drops it or shuts it down. So the server waits.
    pub fn upgrades(mut self) -> Self {
        self.settings.upgrades = true;
        self
    }

    /// Also serves HTTP/2. Default: off.
    ///
    /// A client chooses HTTP/2 by its first bytes ("prior knowledge"), or by ALPN with TLS.
    #[cfg(feature = "http2")]
    pub fn http2(mut self) -> Self {
        self.settings.http2 = true;
        self
    }

    /// Serves over TLS. Default: off.
    ///
    /// The handshake runs in the process of its connection, so a slow handshake delays no other
    /// connection. If `config` names no protocols (ALPN), the server offers the protocols that it
    /// speaks.
    #[cfg(feature = "tls")]
    pub fn tls(mut self, config: Arc<rustls::ServerConfig>) -> Self {
        self.settings.tls = Some(config);
        self
    }

    /// Sets how long a TLS handshake may take. `None` is no limit. Default: 10 s.
    #[cfg(feature = "tls")]
    pub fn handshake_timeout(mut self, timeout: impl Into<Option<Duration>>) -> Self {
        self.limits().handshake = timeout.into();
        self
    }

    /// Accepts connections until the process is cancelled, and then [drains](Self#the-end).
    /// Snapshots and reports name the place of this call as the place where the process of a
    /// connection was spawned.
    ///
    /// # Errors
    /// Returns the errors of the listener. A lack of file descriptors is not an error; the server
    /// waits until there is one.
    ///
    /// # Cancellation
    /// See [the end](Self#the-end).
    #[track_caller]
    pub fn serve<L, S, B>(self, listener: L, service: S) -> impl Future<Output = io::Result<()>>
    where
        L: Listener,
        S: Service<Request<RequestBody>, Response = Response<B>> + Clone + Send + 'static,
        S::Future: Send,
        S::Error: Into<Box<dyn StdError + Send + Sync>>,
        B: Body + Send + 'static,
        B::Data: Send,
        B::Error: Into<Box<dyn StdError + Send + Sync>>,
    {
        self.serve_until(listener, service, pending())
    }

    /// Like [`serve`](Self::serve), but also [drains](Self#the-end) once `until` completes.
    ///
    /// # Errors
    /// See [`serve`](Self::serve).
    #[track_caller]
    pub fn serve_until<L, S, B>(
        self,
        listener: L,
        service: S,
        until: impl Future<Output = ()>,
    ) -> impl Future<Output = io::Result<()>>
    where
        L: Listener,
        S: Service<Request<RequestBody>, Response = Response<B>> + Clone + Send + 'static,
        S::Future: Send,
        S::Error: Into<Box<dyn StdError + Send + Sync>>,
        B: Body + Send + 'static,
        B::Data: Send,
        B::Error: Into<Box<dyn StdError + Send + Sync>>,
    {
        accept::serve((self.share(), Location::caller()), listener, service, until)
    }

    /// Serves one connection, in the process that awaits this, until the connection has ended.
    ///
    /// If the process is cancelled, the connection [ends](Self#the-end) as in a drain. Requests
    /// have no information on the client among their extensions.
    ///
    /// # Errors
    /// Returns an error if the connection fails, if the service fails, or if a time limit of this
    /// server is reached.
    ///
    /// # Cancellation
    /// If the future is dropped before it completes, the connection is closed immediately.
    pub async fn serve_connection<I, S, B>(self, stream: I, service: S) -> Result<(), Error>
    where
        I: Read + Write + Send + Unpin + 'static,
        S: Service<Request<RequestBody>, Response = Response<B>> + Clone + Send + 'static,
        S::Future: Send,
        S::Error: Into<Box<dyn StdError + Send + Sync>>,
        B: Body + Send + 'static,
        B::Data: Send,
        B::Error: Into<Box<dyn StdError + Send + Sync>>,
    {
        serve_stream(self.share(), stream, None, service).await
    }

    #[cfg_attr(not(feature = "tls"), expect(unused_mut, reason = "TLS completes the settings"))]
    fn share(mut self) -> Arc<Settings> {
        #[cfg(feature = "tls")]
        if let Some(tls) = &mut self.settings.tls
            && tls.alpn_protocols.is_empty()
        {
            let tls = Arc::make_mut(tls);
            #[cfg(feature = "http2")]
            if self.settings.http2 {
                tls.alpn_protocols.push(b"h2".to_vec());
            }
            tls.alpn_protocols.push(b"http/1.1".to_vec());
        }
        Arc::new(self.settings)
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut server = f.debug_struct("Server");
        server
            .field("limits", &self.settings.limits)
            .field("connect_info", &self.settings.connect_info.is_some());
        server.field("upgrades", &self.settings.upgrades);
        #[cfg(feature = "http2")]
        server.field("http2", &self.settings.http2);
        #[cfg(feature = "tls")]
        server.field("tls", &self.settings.tls.is_some());
        server.finish()
    }
}

/// Returns `true` if a process is asked to end. Otherwise it is woken when that happens.
fn is_told(own: Option<&OwnProcess>, task: &Context<'_>) -> bool {
    own.is_some_and(|own| own.is_told(task))
}

/// Waits for the begin of a connection, for `limit` at most. Once the running process is cancelled,
/// the rest must not take longer than the end of a connection may.
#[cfg(any(feature = "http2", feature = "tls"))]
async fn begin<R>(
    limit: Option<Duration>,
    what: &'static str,
    begun: impl Future<Output = Result<R, Error>>,
) -> Result<R, Error> {
    let own = OwnProcess::get();
    let mut begun = pin!(begun);
    let mut end = limit.map_or(Instant::NEVER, |limit| Instant::now() + limit);
    let mut sleep = pin!(sleep_until(end));
    let mut was_told = false;
    poll_fn(|task| {
        if let Poll::Ready(result) = begun.as_mut().poll(task) {
            return Poll::Ready(result);
        }
        if !was_told && is_told(own.as_ref(), task) {
            was_told = true;
            end = end.min(Instant::now() + limits::farewell());
            sleep.as_mut().reset(end);
        }
        if end == Instant::NEVER {
            return Poll::Pending;
        }
        ready!(sleep.as_mut().poll(task));
        let last = ready!(poll_last(task, |task| begun.as_mut().poll(task)));
        Poll::Ready(last.unwrap_or_else(|| Err(Error::timed_out(what))))
    })
    .await
}

/// Finds out the protocol of a connection, and serves it.
async fn serve_stream<I, S, B>(
    settings: Arc<Settings>,
    stream: I,
    peer: Option<Peer>,
    service: S,
) -> Result<(), Error>
where
    I: Read + Write + Send + Unpin + 'static,
    S: Service<Request<RequestBody>, Response = Response<B>> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Into<BoxError>,
    B: Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<BoxError>,
{
    #[cfg(feature = "tls")]
    if let Some(tls) = &settings.tls {
        let handshake = crate::tls::accept(stream, tls);
        let what = "the TLS handshake was not complete";
        let stream = begin(settings.limits.handshake, what, handshake).await?;
        if stream.protocol() == Some(b"h2") {
            let (ahead, is_http2, began) = (Vec::new(), cfg!(feature = "http2"), Instant::now());
            return connection::converse(settings, stream, ahead, is_http2, began, peer, service)
                .await;
        }
        return serve_plain(settings, stream, peer, service).await;
    }
    serve_plain(settings, stream, peer, service).await
}

/// Finds out the protocol of a connection by its first bytes, and serves it.
#[cfg_attr(not(feature = "http2"), expect(unused_mut, reason = "nothing is read before"))]
async fn serve_plain<I, S, B>(
    settings: Arc<Settings>,
    mut stream: I,
    peer: Option<Peer>,
    service: S,
) -> Result<(), Error>
where
    I: Read + Write + Send + Unpin + 'static,
    S: Service<Request<RequestBody>, Response = Response<B>> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Into<BoxError>,
    B: Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<BoxError>,
{
    let began = Instant::now();
    #[cfg(feature = "http2")]
    if settings.http2 {
        let preface = preface::read(&mut stream);
        let what = "the head of a request did not arrive";
        let (ahead, is_http2) = begin(settings.limits.head, what, preface).await?;
        return connection::converse(settings, stream, ahead, is_http2, began, peer, service).await;
    }
    connection::converse(settings, stream, Vec::new(), false, began, peer, service).await
}

/// Serves a tower service over HTTP/1.1 with the default limits: [`Server::serve`].
///
/// # Errors
/// Returns the errors of the listener.
#[track_caller]
pub fn serve<L, S, B>(listener: L, service: S) -> impl Future<Output = io::Result<()>>
where
    L: Listener,
    S: Service<Request<RequestBody>, Response = Response<B>> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Into<Box<dyn StdError + Send + Sync>>,
    B: Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn StdError + Send + Sync>>,
{
    Server::new().serve(listener, service)
}

/// Serves one connection over HTTP/1.1 with the default limits: [`Server::serve_connection`].
///
/// # Errors
/// Returns an error if the connection fails or a limit is reached.
pub async fn serve_connection<I, S, B>(stream: I, service: S) -> Result<(), Error>
where
    I: Read + Write + Send + Unpin + 'static,
    S: Service<Request<RequestBody>, Response = Response<B>> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Into<Box<dyn StdError + Send + Sync>>,
    B: Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn StdError + Send + Sync>>,
{
    Server::new().serve_connection(stream, service).await
}
