//! A session of TLS on a socket.

use std::future::poll_fn;
use std::io::{self, Read, Write};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use procession::net::TcpStream;
use procession::sync::Notify;
use procession_sync::Mutex;
use rustls::{AlertDescription, CertificateError, Connection, Error};

use crate::account::{Account, Held};

/// The bytes that a session holds for a socket that takes no more.
const UNSENT_MAX: usize = 32 * 1024;
/// The number of times that one call reads or writes. A fast peer would otherwise keep the thread.
const TIMES_MAX: usize = 32;

/// The bytes for which a session is charged. With all buffers full, it takes about as many.
const SESSION_BYTES: usize = 2 * UNSENT_MAX;

/// A session of TLS. Its users take turns for short times.
#[derive(Debug)]
pub(crate) struct Session(Box<Shared>);

#[derive(Debug)]
struct Shared {
    connection: Mutex<Connection>,
    /// Notified when bytes are taken from the socket. Their content may be for another reader than
    /// the reader that took them, and the socket does not notify that other reader.
    taken: Notify,
    held: Mutex<Held>,
}

/// Charges for a session.
///
/// # Errors
/// If the account of `held` is full.
pub(super) fn reserve(held: &mut Held) -> io::Result<()> {
    held.set(SESSION_BYTES);
    match held.fits() {
        true => Ok(()),
        false => Err(io::Error::other("the process has no memory for a session of TLS")),
    }
}

/// A socket as a session writes to it.
struct Socket<'a>(&'a TcpStream);

impl Write for Socket<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.try_write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Read for Socket<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.try_read(buffer)
    }
}

/// The progress of a handshake.
enum Shaken {
    Done,
    /// It waits for something to read.
    Reads,
    /// It is done once the socket has taken the rest. Until then, bytes that the socket has
    /// received stay there, and must not end the wait.
    Sends,
    /// It has read for long, and continues when other processes have had a turn.
    Later,
}

impl Session {
    /// Creates a session. `held` is its charge, which [`reserve`] has made.
    pub(super) fn new(mut connection: Connection, held: Held) -> Self {
        connection.set_buffer_limit(Some(UNSENT_MAX));
        let (connection, taken) = (Mutex::new(connection), Notify::new());
        Self(Box::new(Shared { connection, taken, held: Mutex::new(held) }))
    }

    /// Charges the session to another account, if that has room.
    pub(crate) fn charge_to(&self, account: &Arc<Account>) {
        self.0.held.lock().move_to(account);
    }

    /// Uses the connection. `act` sets the flag if it takes bytes from the socket. Then the waiting
    /// readers are notified.
    fn turn<R>(&self, act: impl FnOnce(&mut Connection, &mut bool) -> R) -> R {
        let mut has_taken = false;
        let result = act(&mut self.0.connection.lock(), &mut has_taken);
        if has_taken {
            self.0.taken.notify_waiters();
        }
        result
    }

    /// Waits until a reader may find something, in the session or in the socket, or until the
    /// socket takes what the session has to send.
    pub(crate) async fn readable(&self, socket: &TcpStream) -> io::Result<()> {
        // It is made before the look, so that it misses nothing that is taken after that.
        let mut taken = pin!(self.0.taken.notified());
        let (state, sends) = self.turn(|session, _| {
            let state = session.process_new_packets();
            (state, session.wants_write())
        });
        // The reader learns why a session has failed.
        let Ok(state) = state else { return Ok(()) };
        if state.plaintext_bytes_to_read() > 0 || state.peer_has_closed() {
            return Ok(());
        }
        let mut readable = pin!(socket.readable());
        let mut writable = pin!(socket.writable());
        poll_fn(|task| {
            if let Poll::Ready(result) = readable.as_mut().poll(task) {
                return Poll::Ready(result);
            }
            if sends && let Poll::Ready(result) = writable.as_mut().poll(task) {
                return Poll::Ready(result);
            }
            taken.as_mut().poll(task).map(Ok)
        })
        .await
    }

    /// Reads without waiting: bytes of the session, or else bytes that `from` has. Zero bytes are
    /// the end. Also takes part in the handshake.
    pub(crate) fn try_read(
        &self,
        socket: &TcpStream,
        from: &mut dyn Read,
        buffer: &mut [u8],
    ) -> io::Result<usize> {
        self.turn(|session, has_taken| {
            for _ in 0..TIMES_MAX {
                match session.reader().read(buffer) {
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                        return Err(cut());
                    }
                    result => return result,
                }
                if !advance(session, socket)? {
                    take(session, from)?;
                    *has_taken = true;
                }
            }
            // `readable` looks at what was taken last before it waits.
            Err(io::ErrorKind::WouldBlock.into())
        })
    }

    /// Writes without waiting. Returns `None` if the socket has taken everything, and otherwise the
    /// number of bytes that the session has taken.
    pub(crate) fn try_write(&self, socket: &TcpStream, bytes: &[u8]) -> io::Result<Option<usize>> {
        self.turn(|session, _| {
            if session.is_handshaking() || !flush(session, socket)? {
                return Ok(Some(0));
            }
            let mut written = 0;
            for _ in 0..TIMES_MAX {
                written += session.writer().write(&bytes[written..])?;
                if !flush(session, socket)? {
                    break;
                }
                if written == bytes.len() {
                    return Ok(None);
                }
            }
            Ok(Some(written))
        })
    }

    /// Writes all bytes, and waits until the socket has taken them.
    pub(crate) async fn write_all(&self, socket: &TcpStream, mut bytes: &[u8]) -> io::Result<()> {
        self.handshake(socket).await?;
        while let Some(written) = self.try_write(socket, bytes)? {
            bytes = &bytes[written..];
            socket.writable().await?;
        }
        Ok(())
    }

    /// Completes the handshake.
    pub(crate) async fn handshake(&self, socket: &TcpStream) -> io::Result<()> {
        loop {
            match self.try_handshake(socket)? {
                Shaken::Done => return Ok(()),
                Shaken::Reads => self.readable(socket).await?,
                Shaken::Sends => socket.writable().await?,
                Shaken::Later => procession::yield_now().await,
            }
        }
    }

    fn try_handshake(&self, socket: &TcpStream) -> io::Result<Shaken> {
        self.turn(|session, has_taken| {
            for _ in 0..TIMES_MAX {
                advance(session, socket)?;
                if !session.is_handshaking() {
                    return Ok(if session.wants_write() { Shaken::Sends } else { Shaken::Done });
                }
                match take(session, &mut Socket(socket)) {
                    Ok(0) => return Err(cut()),
                    Ok(_) => *has_taken = true,
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                        return Ok(Shaken::Reads);
                    }
                    Err(error) => return Err(error),
                }
            }
            Ok(Shaken::Later)
        })
    }

    /// Sends the peer the statement that nothing is missing, if the socket takes it now.
    pub(crate) fn end(&self, socket: &TcpStream) {
        self.turn(|session, _| {
            session.send_close_notify();
            // Ignored: the peer may have closed the connection.
            drop(flush(session, socket));
        });
        // A server sends tickets that nobody asked for. If they were left unread, the kernel would
        // reset the connection when it is closed, and drop what was written last. Read from the
        // descriptor itself: `try_read` finds nothing before the scheduler has seen the event.
        let mut unread = [0; 4096];
        for _ in 0..TIMES_MAX {
            if rustix::io::read(socket, &mut unread).unwrap_or(0) == 0 {
                break;
            }
        }
    }
}

/// Takes what the session has read, and sends its answers, such as an alert. Returns `true` if
/// there is something for the reader.
fn advance(session: &mut Connection, socket: &TcpStream) -> io::Result<bool> {
    let taken = session.process_new_packets();
    let sent = flush(session, socket);
    let state = taken.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, text(&error)))?;
    sent?;
    Ok(state.plaintext_bytes_to_read() > 0 || state.peer_has_closed())
}

/// Reads from the socket.
fn take(session: &mut Connection, mut from: &mut dyn Read) -> io::Result<usize> {
    loop {
        match session.read_tls(&mut from) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}

/// Writes what the session has. Returns `false` if the socket takes no more.
fn flush(session: &mut Connection, socket: &TcpStream) -> io::Result<bool> {
    while session.wants_write() {
        match session.write_tls(&mut Socket(socket)) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            result => drop(result?),
        }
    }
    Ok(true)
}

/// Returns the error of a connection that ends without the notice of TLS: bytes may be missing.
fn cut() -> io::Error {
    io::Error::new(io::ErrorKind::UnexpectedEof, "the peer cut the connection of TLS off")
}

/// Returns the cause of a failed session.
fn text(error: &Error) -> String {
    let cause = match error {
        Error::InvalidMessage(_) => "it does not speak TLS",
        Error::InvalidCertificate(cause) => match cause {
            CertificateError::UnknownIssuer => "its certificate is of an unknown authority",
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
                "its certificate is for another name"
            }
            CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
                "its certificate has expired"
            }
            CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
                "its certificate is not valid yet"
            }
            CertificateError::Other(cause) => {
                return format!("the certificate of the peer is refused: {cause}");
            }
            other => return format!("the certificate of the peer is refused: {other}"),
        },
        Error::NoApplicationProtocol
        | Error::AlertReceived(AlertDescription::NoApplicationProtocol) => {
            "it has none of the protocols"
        }
        Error::AlertReceived(alert) => return format!("the peer ends TLS: {alert:?}"),
        other => return format!("TLS fails: {other}"),
    };
    format!("the peer is refused: {cause}")
}

#[cfg(test)]
mod tests {
    use std::io::{self, Read};
    use std::pin::pin;
    use std::sync::Arc;
    use std::task::{Context, Poll, Wake, Waker};

    use procession::net::{TcpListener, TcpStream};
    use procession::yield_now;
    use procession_sync::atomic::{AtomicUsize, Ordering::Relaxed};
    use rcgen::{CertifiedKey, generate_simple_self_signed};
    use rustls::pki_types::{PrivatePkcs8KeyDer, ServerName};
    use rustls::{ClientConfig, ClientConnection, RootCertStore, ServerConfig, ServerConnection};

    use super::Session;
    use crate::account::Account;
    use crate::owner::Owner;

    /// Counts how often it is woken.
    #[derive(Default)]
    struct Woken(AtomicUsize);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Relaxed);
        }
    }

    impl Woken {
        fn new() -> (Arc<Self>, Waker) {
            let woken = Arc::new(Self::default());
            (Arc::clone(&woken), Waker::from(woken))
        }

        fn count(&self) -> usize {
            self.0.load(Relaxed)
        }
    }

    /// One side of a connection.
    struct Side {
        socket: TcpStream,
        session: Session,
    }

    impl Side {
        fn new(socket: TcpStream, session: impl Into<rustls::Connection>) -> Self {
            let held = Account::new(1, 1 << 20, Owner::alone()).hold();
            Self { socket, session: Session::new(session.into(), held) }
        }

        async fn handshake(&self) {
            self.session.handshake(&self.socket).await.expect("they know each other");
        }

        /// Takes what has arrived from the socket, which the reactor knows then.
        async fn take_raw(&self) -> Vec<u8> {
            self.socket.readable().await.expect("it is open");
            let mut raw = vec![0; 1 << 16];
            let count = self.socket.try_read(&mut raw).expect("something has arrived");
            raw.truncate(count);
            assert!(self.socket.try_read(&mut [0]).is_err(), "that was everything");
            raw
        }

        fn try_read(&self, mut from: impl Read, buffer: &mut [u8]) -> std::io::Result<usize> {
            self.session.try_read(&self.socket, &mut from, buffer)
        }
    }

    /// Returns the sides of a server and of its client after the handshake.
    async fn connected() -> (Side, Side) {
        let CertifiedKey { cert, signing_key } =
            generate_simple_self_signed(["server".to_owned()]).expect("there is entropy");
        let mut roots = RootCertStore::empty();
        roots.add(cert.der().clone()).expect("it is a certificate");
        let provider = crate::tls::provider();
        let server = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .expect("there are some")
            .with_no_client_auth()
            .with_single_cert(
                vec![cert.der().clone()],
                PrivatePkcs8KeyDer::from(signing_key.serialize_der()).into(),
            );
        let mut server = server.expect("they fit");
        server.send_tls13_tickets = 0;
        let client = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("there are some")
            .with_root_certificates(roots)
            .with_no_client_auth();
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("there is a port");
        let address = listener.local_addr().expect("it is bound");
        let socket = TcpStream::connect(address).await.expect("it listens");
        let name = ServerName::try_from("server").expect("it is a name");
        let client = ClientConnection::new(Arc::new(client), name).expect("it is complete");
        let client = Side::new(socket, client);
        let (socket, _) = listener.accept().await.expect("it connects");
        let server = ServerConnection::new(Arc::new(server)).expect("it is complete");
        let server = Side::new(socket, server);
        let client = procession::spawn(async move {
            client.handshake().await;
            client
        });
        server.handshake().await;
        (server, client.await.expect("it has not panicked"))
    }

    fn run(test: impl Future<Output = ()> + Send + 'static) {
        procession::Scheduler::builder().build().expect("there are threads").block_on(test);
    }

    #[test]
    fn a_writer_does_not_spin_because_its_peer_sends() {
        run(async {
            let (server, client) = connected().await;
            client.socket.try_write(b"x").expect("there is room");
            server.socket.readable().await.expect("it is open");
            let text = vec![0; 1 << 16];
            while server.session.try_write(&server.socket, &text).expect("it is open") != Some(0) {}
            let mut written = pin!(server.session.write_all(&server.socket, &text));
            let (woken, waker) = Woken::new();
            assert!(written.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
            for _ in 0..100 {
                yield_now().await;
            }
            assert_eq!(woken.count(), 0, "the socket takes nothing");
        });
    }

    #[test]
    fn what_another_user_has_taken_wakes_a_reader() {
        run(async {
            let (server, client) = connected().await;
            client.session.write_all(&client.socket, &[1; 100]).await.expect("it is open");
            let raw = server.take_raw().await;
            let mut readable = pin!(server.session.readable(&server.socket));
            let (woken, waker) = Woken::new();
            let mut task = Context::from_waker(&waker);
            assert!(readable.as_mut().poll(&mut task).is_pending());
            assert_eq!(server.try_read(&raw[..], &mut [0; 10]).expect("they are there"), 10);
            assert_eq!(woken.count(), 1);
            assert!(matches!(readable.as_mut().poll(&mut task), Poll::Ready(Ok(()))));
            // Nor does a later reader wait.
            let mut readable = pin!(server.session.readable(&server.socket));
            assert!(matches!(readable.as_mut().poll(&mut task), Poll::Ready(Ok(()))));
            assert_eq!(server.try_read(&[][..], &mut [0; 100]).expect("the rest is there"), 90);
        });
    }

    #[test]
    fn what_was_taken_last_is_read_without_a_new_byte() {
        /// Returns the last bytes one by one.
        struct Slow<'a>(&'a [u8], usize);

        impl Read for Slow<'_> {
            fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
                let count = self.0.len().saturating_sub(self.1).max(1);
                self.0.read(&mut buffer[..count])
            }
        }

        run(async {
            let (server, client) = connected().await;
            client.session.write_all(&client.socket, &[1; 100]).await.expect("it is open");
            let raw = server.take_raw().await;
            // The read ends after the read that completes the record.
            let read = server.try_read(Slow(&raw, super::TIMES_MAX - 1), &mut [0; 100]);
            assert_eq!(read.expect_err("it gives up").kind(), std::io::ErrorKind::WouldBlock);
            server.session.readable(&server.socket).await.expect("there is something");
            assert_eq!(server.try_read(&[][..], &mut [0; 100]).expect("they are there"), 100);
        });
    }

    #[test]
    fn a_session_counts_as_memory_of_its_process() {
        let [account, other, small] = [super::SESSION_BYTES, super::SESSION_BYTES, 1]
            .map(|bytes| Account::new(1, bytes, Owner::alone()));
        let config = ClientConfig::builder_with_provider(crate::tls::provider())
            .with_safe_default_protocol_versions()
            .expect("there are some")
            .with_root_certificates(RootCertStore::empty())
            .with_no_client_auth();
        let config = Arc::new(config);
        let session = || {
            let name = ServerName::try_from("server").expect("it is a name");
            let session = ClientConnection::new(Arc::clone(&config), name);
            let mut held = account.hold();
            super::reserve(&mut held)?;
            Ok::<_, io::Error>(Session::new(session.expect("it is complete").into(), held))
        };
        let first = session().expect("there is room");
        session().expect_err("there is no room for two");
        first.charge_to(&small);
        assert_eq!((account.held_bytes(), small.held_bytes()), (super::SESSION_BYTES, 0));
        first.charge_to(&other);
        assert_eq!((account.held_bytes(), other.held_bytes()), (0, super::SESSION_BYTES));
        session().expect("there is room again");
        drop(first);
        assert_eq!((account.held_bytes(), other.held_bytes()), (0, 0));
    }
}
