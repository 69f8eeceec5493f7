//! Accepts connections, and copes with a system that has no file descriptors left.
//!
//! If the system refuses a descriptor for a connection, that connection stays in the backlog, and
//! the kernel reports no further event for it. The listener therefore waits until this program
//! closes a socket of the same scheduler. It also tries again every [`RETRY_NS`], because other
//! sockets and files may be closed elsewhere. Both are cheap. The listener continues as soon as it
//! gets a descriptor.
//!
//! A connection that was accepted may still be refused by the kernel's queue of events, because the
//! system bounds what a user may watch (`fs.epoll.max_user_watches`). This connection is closed,
//! and the listener waits in the same way before it accepts the next one.
//!
//! # Rejected
//! - To keep a connection that cannot be watched until it can: a cancel of the accept would lose it
//!   nevertheless, and the listener would have to wait for two things.
//! - A spare descriptor that is closed to accept one connection and close it, so that its client
//!   notices. A client that is reset tries again immediately, which increases the load, while a
//!   client in the backlog waits. When the backlog is full, the kernel refuses connections by
//!   itself. Two listeners that share the spare descriptor can also both find it gone.

use std::future::{Future, poll_fn};
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use procession_sync::atomic::Ordering::Relaxed;
use rustix::io::Errno;

use crate::process::wait_reason::Waiting;
use crate::scheduler::current;
use crate::scheduler::shared::Shared;
use crate::scheduler::starved::Starved;
use crate::sys::system::sockets;
use crate::time::sleep_on;

use super::io::{Io, IoResult, Side};
use super::simulated;

/// Longest time until a listener tries again. Fifty attempts per second cost less than a thousandth
/// of a CPU.
const RETRY_NS: u64 = 20_000_000;

/// Default length of the backlog. It equals the default limit of Linux, which truncates larger
/// values.
pub(super) const BACKLOG: i32 = 4096;

fn is_exhausted(error: &io::Error) -> bool {
    matches!(
        Errno::from_io_error(error),
        // The last one is the limit of what the kernel's queue of events watches.
        Some(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM | Errno::NOSPC)
    )
}

/// Returns `true` for an error of the connection that would have been accepted (`accept(2)`). That
/// connection is gone, and the next connection may be fine.
fn is_of_the_connection(error: &io::Error) -> bool {
    let Some(error) = Errno::from_io_error(error) else { return false };
    Some(error) == sockets::NO_NETWORK
        || matches!(
            error,
            Errno::CONNABORTED
                | Errno::PROTO
                | Errno::NOPROTOOPT
                | Errno::NETDOWN
                | Errno::HOSTDOWN
                | Errno::HOSTUNREACH
                | Errno::NETUNREACH
                | Errno::PERM
        )
}

/// Translates the error of a connection that was accepted. A listener returns the same errors if it
/// does not listen, but here they mean that the peer has reset the connection.
fn of_the_accepted(error: io::Error) -> io::Error {
    match Errno::from_io_error(&error) {
        Some(Errno::NOTCONN | Errno::INVAL) => Errno::CONNABORTED.into(),
        _ => error,
    }
}

/// Returns the next connection as `admit` returns it. `admit` gets its socket, in non-blocking
/// mode, and the address of its peer if that is one of the Internet. A connection that `admit`
/// cannot use is closed.
pub(super) async fn accept<T: AsFd, R>(
    io: &Io<T>,
    admit: impl Fn(OwnedFd, Option<SocketAddr>) -> io::Result<R>,
) -> io::Result<R> {
    let call = |listener: &T| {
        let (socket, peer) = match simulated::accept(listener) {
            Some(accepted) => accepted.map(|(socket, peer)| (socket, Some(peer)))?,
            None => {
                let (socket, peer) = sockets::accept(listener)?;
                (socket, peer.and_then(|peer| SocketAddr::try_from(peer).ok()))
            }
        };
        admit(socket, peer).map(IoResult::whole).map_err(of_the_accepted)
    };
    loop {
        match io.run_within(Side::Read, None, call).await {
            Err(error) if is_exhausted(&error) => {
                let starved = Starved::of(io.shared());
                starved.refused.fetch_add(1, Relaxed);
                let mut registration = None;
                let mut sleep = pin!(retry(io.shared()));
                let again = poll_fn(|task| {
                    if !crate::scheduler::budget::charge(task) {
                        return Poll::Pending;
                    }
                    if registration.is_some() {
                        return Poll::Ready(None);
                    }
                    registration =
                        Some(starved.register(crate::process::waker::another(task.waker())));
                    // Tries again, since a descriptor may have been closed before this waker was
                    // registered.
                    match io.try_once(Side::Read, call) {
                        Err(error) if is_exhausted(&error) => {}
                        result => return Poll::Ready(Some(result)),
                    }
                    current::note_waiting(Waiting::READABLE);
                    sleep.as_mut().poll(task).map(|()| None)
                })
                .await;
                match again {
                    Some(Err(error))
                        if error.kind() != io::ErrorKind::WouldBlock
                            && !is_of_the_connection(&error) =>
                    {
                        return Err(error);
                    }
                    Some(Ok(accepted)) => return Ok(accepted),
                    _ => {}
                }
            }
            Err(error) if is_of_the_connection(&error) => {}
            result => return result,
        }
    }
}

/// Waits until the next attempt. The test clock would jump to that time immediately, so on the test
/// clock the wait ends only when this program closes a descriptor.
async fn retry(shared: &Arc<Shared>) {
    if shared.world.is_test() {
        return std::future::pending().await;
    }
    sleep_on(Arc::clone(shared), shared.world.now().saturating_add(RETRY_NS)).await;
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::io;
    use std::net::{TcpListener as StdTcpListener, TcpStream as StdTcpStream};
    use std::task::Waker;

    use rustix::io::Errno;

    use super::accept;
    use crate::net::TcpListener;
    use crate::scheduler::starved::Starved;

    /// Goal: what goes wrong with a connection after it was accepted ends neither the accept nor
    /// the listener. Method: the first connection is refused with each of these errors.
    #[test]
    fn a_connection_that_cannot_be_used_makes_way_for_the_next() {
        crate::run(async {
            let listener = StdTcpListener::bind("127.0.0.1:0").expect("there are ports");
            let address = listener.local_addr().expect("it is bound");
            let listener = TcpListener::try_from(listener).expect("there are descriptors");
            let starved = Starved::of(listener.0.shared());
            for (errno, put_off) in
                [(Errno::NOSPC, 1), (Errno::NOMEM, 2), (Errno::NOTCONN, 2), (Errno::INVAL, 2)]
            {
                let clients =
                    [(); 2].map(|()| StdTcpStream::connect(address).expect("the backlog is long"));
                let errors = RefCell::new(vec![errno]);
                let admit = |socket, peer| match errors.borrow_mut().pop() {
                    Some(error) => Err(io::Error::from(error)),
                    None => Ok((StdTcpStream::from(socket), peer)),
                };
                let (_socket, peer) = accept(&listener.0, admit).await.expect("another waits");
                assert_eq!(peer, clients[1].local_addr().ok(), "after {errno}");
                assert_eq!(starved.refused(), put_off, "after {errno}");
            }
        });
    }

    #[test]
    fn a_listener_that_tries_again_leaves_nothing_behind() {
        let starved = Starved::default();
        for _ in 0..3 {
            let other = starved.register(Waker::noop().clone());
            drop(starved.register(Waker::noop().clone()));
            assert_eq!(starved.change(|listeners| listeners.wakers.len()), 1);
            drop(other);
        }
        assert_eq!(starved.change(|listeners| listeners.wakers.len()), 0);
    }
}
