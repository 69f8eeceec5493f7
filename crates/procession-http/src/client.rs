//! The connector for the client of hyper-util.

use std::fmt;
use std::future::Future;
use std::io::{self, IoSlice};
use std::pin::Pin;
#[cfg(feature = "tls")]
use std::sync::Arc;
use std::task::{Context, Poll};

use hyper::Uri;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::client::legacy::connect;
use procession_runtime::net::{Host, TcpStream};
use tower_service::Service;

use crate::Error;
#[cfg(feature = "tls")]
use crate::tls::{self, TlsStream};

/// Connects the client of hyper-util by the sockets of this crate.
///
/// Also pass the [`Executor`](super::Executor) and the [`Timer`](super::Timer) of this module to
/// the client. Each connection is then a process. The client keeps connections to use them again.
///
/// ```
/// use std::convert::Infallible;
/// use std::future::{Ready, ready};
/// use std::task::{Context, Poll};
/// use hyper::{Request, Response};
/// use hyper_util::client::legacy::Client;
/// use procession::http::{Connector, Executor, RequestBody, Timer, serve};
/// use procession::net::TcpListener;
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
///     fn call(&mut self, _: Request<RequestBody>) -> Self::Future {
///         ready(Ok(Response::new("hello".to_owned())))
///     }
/// }
///
/// procession::run(async {
///     let listener = TcpListener::bind("127.0.0.1:0").await?;
///     let uri = format!("http://{}/", listener.local_addr()?).parse()?;
///     drop(procession::spawn(serve(listener, Hello)));
///     let client = Client::builder(Executor).pool_timer(Timer).build(Connector::new());
///     let request = Request::get::<hyper::Uri>(uri).body(String::new())?;
///     assert_eq!(client.request(request).await?.status(), 200);
///     Ok::<(), Box<dyn std::error::Error>>(())
/// })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Default)]
pub struct Connector {
    #[cfg(feature = "tls")]
    tls: Option<Arc<rustls::ClientConfig>>,
}

impl Connector {
    /// Creates a connector for `http`.
    pub fn new() -> Self {
        Self::default()
    }

    /// Also connects to `https`, by TLS with `config`.
    ///
    /// The client uses HTTP/2 on a connection if `config` names the protocol `h2` (ALPN) and the
    /// server chooses it.
    #[cfg(feature = "tls")]
    #[must_use]
    pub fn tls(mut self, config: Arc<rustls::ClientConfig>) -> Self {
        self.tls = Some(config);
        self
    }

    async fn connect(self, uri: Uri) -> Result<Connected, Error> {
        let invalid = |text: &str| {
            Error::io("connect", io::Error::new(io::ErrorKind::InvalidInput, text.to_owned()))
        };
        let name = uri.host().ok_or_else(|| invalid("the URI has no host"))?;
        // The type of a URI keeps a port that is no number, and then says that there is no port.
        let host_and_port = uri
            .authority()
            .map_or("", |authority| authority.as_str().rsplit('@').next().unwrap_or_default());
        let port_text = host_and_port.get(name.len()..).unwrap_or_default();
        if port_text.len() > 1 && uri.port_u16().is_none() {
            return Err(invalid("the port of the URI is no number from 0 to 65535"));
        }
        // An IPv6 address is in brackets.
        let name = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name);
        let port = |default: u16| uri.port_u16().unwrap_or(default);
        match uri.scheme_str() {
            Some("http") | None => {
                open((name, port(80))).await.map(|io| Connected(ConnectorStream::Plain(io)))
            }
            #[cfg(feature = "tls")]
            Some("https") => {
                let config = self.tls.ok_or_else(|| invalid("the connector has no TLS"))?;
                let server = rustls::pki_types::ServerName::try_from(name.to_owned())
                    .map_err(|_| invalid("the host is no name for TLS"))?;
                let io = open((name, port(443))).await?;
                let stream = tls::connect(io, &config, server).await?;
                Ok(Connected(ConnectorStream::Tls(Box::new(stream))))
            }
            Some(_) => Err(invalid("the scheme of the URI is not known")),
        }
    }
}

async fn open(host: impl Into<Host>) -> Result<TcpStream, Error> {
    let stream = TcpStream::connect(host).await.map_err(|cause| Error::io("connect", cause))?;
    // hyper writes complete requests, so holding data back gains nothing. If the system refuses the
    // option, requests arrive a little later.
    let _ = stream.set_nodelay(true);
    Ok(stream)
}

impl fmt::Debug for Connector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut connector = f.debug_struct("Connector");
        #[cfg(feature = "tls")]
        connector.field("tls", &self.tls.is_some());
        connector.finish()
    }
}

impl Service<Uri> for Connector {
    type Response = Connected;
    type Error = Error;
    type Future = Pin<Box<dyn Future<Output = Result<Connected, Error>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Error>> {
        Poll::Ready(Ok(()))
    }

    /// Connects to the host of a URI. The system resolves its name.
    fn call(&mut self, uri: Uri) -> Self::Future {
        Box::pin(self.clone().connect(uri))
    }
}

/// A connection of a [`Connector`].
pub struct Connected(ConnectorStream);

enum ConnectorStream {
    Plain(TcpStream),
    #[cfg(feature = "tls")]
    Tls(Box<TlsStream<TcpStream>>),
}

impl fmt::Debug for Connected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Connected").field(self.tcp()).finish()
    }
}

impl Connected {
    fn tcp(&self) -> &TcpStream {
        match &self.0 {
            ConnectorStream::Plain(stream) => stream,
            #[cfg(feature = "tls")]
            ConnectorStream::Tls(stream) => stream.get_ref(),
        }
    }
}

/// Calls a method of the stream that is there.
macro_rules! forward {
    ($self:ident.$method:ident($($argument:expr),*)) => {
        match &mut $self.0 {
            ConnectorStream::Plain(stream) => Pin::new(stream).$method($($argument),*),
            #[cfg(feature = "tls")]
            ConnectorStream::Tls(stream) => Pin::new(&mut **stream).$method($($argument),*),
        }
    };
}

impl Read for Connected {
    fn poll_read(
        mut self: Pin<&mut Self>,
        task: &mut Context<'_>,
        buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        forward!(self.poll_read(task, buffer))
    }
}

impl Write for Connected {
    fn poll_write(
        mut self: Pin<&mut Self>,
        task: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        forward!(self.poll_write(task, bytes))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        task: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        forward!(self.poll_write_vectored(task, parts))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<io::Result<()>> {
        forward!(self.poll_flush(task))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<io::Result<()>> {
        forward!(self.poll_shutdown(task))
    }
}

impl connect::Connection for Connected {
    fn connected(&self) -> connect::Connected {
        let connected = connect::Connected::new();
        #[cfg(feature = "tls")]
        if let ConnectorStream::Tls(stream) = &self.0
            && stream.protocol() == Some(b"h2")
        {
            return connected.negotiated_h2();
        }
        connected
    }
}
