//! Accepts connections, and copes with a system that has no file descriptors left.
//!
//! If the system refuses a descriptor for a connection, that connection stays in the backlog, and
//! the kernel reports no further event for it. The listener therefore waits until this program
//! closes a socket of the same scheduler. It also tries again every [`RETRY_NS`], because other
//! sockets and files may be closed elsewhere. Both are cheap. The listener continues as soon as it
//! gets a descriptor.
//!
//! # Rejected
//! A spare descriptor that is closed to accept one connection and close it, so that its client
//! notices. A client that is reset tries again immediately, which increases the load, while a
//! client in the backlog waits. When the backlog is full, the kernel refuses connections by itself.
//! Two listeners that share the spare descriptor can also both find it gone.

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
        Some(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM)
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

/// Returns the next connection, in non-blocking mode, and the address of its peer if that is one of
/// the Internet.
pub(super) async fn accept<T: AsFd>(io: &Io<T>) -> io::Result<(OwnedFd, Option<SocketAddr>)> {
    let call = |listener: &T| {
        if let Some(accepted) = simulated::accept(listener) {
            return accepted.map(|(socket, peer)| IoResult::whole((socket, Some(peer))));
        }
        let (socket, peer) = sockets::accept(listener)?;
        Ok(IoResult::whole((socket, peer.and_then(|peer| SocketAddr::try_from(peer).ok()))))
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
    use std::task::Waker;

    use crate::scheduler::starved::Starved;

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
