//! Sockets, and the readiness of any descriptor.
//!
//! Each operation is tried first. Only if the kernel has nothing to give, or no room, the process waits, and its worker runs others. Waiting
//! is part of the workers' own search for work: there is no thread beside them.
//!
//! A socket belongs to the scheduler in which it was made, and works in every process and thread as long as that scheduler has not
//! ended. The first one takes two descriptors more for the scheduler. If the system refuses them, that is the error of the call that
//! makes the socket.
//!
//! # On the test clock
//! The outside has its own time. So the test clock stands still while anybody waits for a descriptor, also if he waits for a timer beside it: with a
//! read timeout, or in a `select` that polls the socket through one of the I/O traits and has stopped doing so. To test protocols in test time,
//! talk over something inside the program.
//!
//! # Cancellation
//! Dropping the future of an operation before it is complete leaves the socket as it was: no data are lost. The exceptions are named where they are.

pub(crate) mod accept;
mod half;
mod io;
mod options;
mod parts;
mod resolve;
/// ## Invariants
/// - `[transparent]` a [`PollFd`] is laid out as the system's `pollfd`.
#[expect(unsafe_code, reason = "descriptors that need not be open are asked about by number")]
mod several;
mod stream;
mod tcp;
#[cfg_attr(
    any(feature = "tokio-io", feature = "hyper"),
    expect(unsafe_code, reason = "buffers are received into before they are initialised")
)]
mod traits;
mod udp;
mod unix;

pub use half::{ReadHalf, ReuniteError, WriteHalf};
pub use io::Readiness;
pub use options::SocketOptions;
pub use resolve::Host;
pub use several::{PollFd, PollFlags, poll};
pub use tcp::{TcpListener, TcpStream};
pub use udp::UdpSocket;
pub use unix::{UnixDatagram, UnixListener, UnixStream};
