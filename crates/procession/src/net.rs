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
//! The test clock jumps to the next timer when nothing in the program can run. However, what is
//! outside the program has its own time, so the clock stands still while any process waits for a
//! descriptor. This has two consequences:
//!
//! - A read with a read timeout never times out, because its process waits for a descriptor as well
//!   as for a timer.
//! - A process waits for a socket until the socket is ready, even if a `select` of the process has
//!   polled the socket through one of the I/O traits and then taken another branch.
//!
//! To test a protocol in test time, connect both sides with something inside the program, such as a
//! [channel](crate::sync::channel).
//!
//! With a paused tokio runtime ([`Builder::tokio_threads`](crate::scheduler::Builder), feature
//! `tokio`), TCP connections within the program are not outside. If each socket that a process
//! waits for is a listener, or is connected with a socket of the same program, the clock stands
//! still only until the bytes between them have arrived. So you can test a client and a server
//! together, with timeouts of an hour.
//!
//! # Cancellation
//! Dropping the future of an operation before it completes leaves the socket unchanged, and no data
//! is lost. Methods for which this does not hold say so under *Cancellation*.

#[doc(inline)]
pub use procession_runtime::net::{
    Datagram, Host, PollFd, PollFlags, ReadHalf, Readiness, ReceivedFds, ReuniteError,
    SocketOptions, TcpListener, TcpStream, UCred, UdpSocket, UnixDatagram, UnixListener,
    UnixStream, WriteHalf, poll,
};

#[cfg(feature = "stream")]
#[doc(inline)]
pub use procession_runtime::stream::Incoming;
