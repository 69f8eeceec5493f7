//! Sockets, and the readiness of any file descriptor.
//!
//! [`TcpStream`], [`UdpSocket`], [`UnixStream`] and their relatives work like the types of the same
//! name in the standard library. The difference is what happens when the system has no data to read
//! or no room to write: an async method suspends the process, and its worker runs other processes
//! until then.
//!
//! ```
//! use procession::net::{TcpListener, TcpStream};
//!
//! procession::run(async {
//!     let listener = TcpListener::bind("127.0.0.1:0").await?;
//!     let client = TcpStream::connect(listener.local_addr()?).await?;
//!     let (server, _) = listener.accept().await?;
//!     client.write_all(b"ping").await?;
//!     let mut bytes = [0; 4];
//!     server.read_exact(&mut bytes).await?;
//!     assert_eq!(&bytes, b"ping");
//!     Ok::<(), std::io::Error>(())
//! })?;
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! An operation tries the system call first and waits only if that call would block. The workers
//! ask the kernel for readiness as part of their search for work, so there is no I/O thread.
//!
//! # Which scheduler a socket belongs to
//! A socket belongs to the scheduler on which it is created: the scheduler of the calling process
//! or thread, or the default scheduler if there is none. It can be used from every process and
//! thread until that scheduler ends. After that, an operation that has to wait returns an error.
//!
//! The first socket of a scheduler takes two more file descriptors for the scheduler itself. If the
//! system refuses them, the call that creates the socket returns that error.
//!
//! # On the test clock
//! The world outside the program has its own time. The test clock therefore stands still while any
//! process waits for a descriptor, even if that process also waits for a timer. This is the case
//! for a read with a read timeout. It is also the case for a `select` that has polled the socket
//! through one of the I/O traits and no longer does so. To test a protocol in test time, connect
//! both sides with something inside the program, such as a [channel](crate::sync::channel).
//!
//! With a paused tokio runtime ([`Builder::tokio_threads`](crate::Builder), feature `tokio`), TCP
//! sockets inside the program are not the outside: while all sockets that processes wait for
//! listen, or are connected with sockets of the same program, the clock stands still only until the
//! bytes between them have arrived. So a client and a server can be tested together, with timeouts
//! of an hour.
//!
//! # Cancellation
//! Dropping the future of an operation before it completes leaves the socket unchanged, and no data
//! is lost. Methods for which this does not hold say so under *Cancellation*.

pub(crate) mod accept;
mod attempts;
#[expect(unsafe_code, reason = "a socket option that no safe interface offers for all peers")]
pub(crate) mod credentials;
mod datagram;
mod descriptors;
mod half;
pub(crate) mod io;
mod options;
mod parts;
#[cfg(any(feature = "tokio-io", feature = "hyper"))]
#[expect(unsafe_code, reason = "buffers are received into before they are initialised")]
mod read_buf;
mod resolve;
mod several;
mod simulated;
mod stream;
mod tcp;
mod traits;
mod udp;
mod unix;

pub use credentials::UCred;
pub use datagram::Datagram;
pub use descriptors::ReceivedFds;
pub use half::{ReadHalf, ReuniteError, WriteHalf};
pub use io::Readiness;
pub use options::SocketOptions;
#[cfg(feature = "observe")]
pub(crate) use options::bind_before;
pub use resolve::Host;
pub use several::{PollFd, PollFlags, poll};
pub use tcp::{TcpListener, TcpStream};
pub use udp::UdpSocket;
pub use unix::{UnixDatagram, UnixListener, UnixStream};
