//! Accepting connections, also when the system has no descriptors left.
//!
//! A connection that cannot be given a descriptor stays in the backlog, and the kernel tells nothing more of it. So a listener
//! that is refused one waits until this program closes a socket of the same scheduler, and besides tries again every [`RETRY_NS`], for what is
//! closed elsewhere. Neither costs anything to speak of. As soon as there is a descriptor, it goes on.
//!
//! # Rejected
//! A descriptor in reserve, which is closed to accept one connection, so that it can be closed and its client told: a client that is
//! reset tries again at once, which makes the load worse, where one in the backlog waits; when the backlog is full, the kernel refuses
//! by itself. And two listeners that share the reserve can both find it gone.

use std::future::{Future, poll_fn};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use procession_sync::atomic::Ordering::Relaxed;
use rustix::io::Errno;
use rustix::net::{SocketAddrAny, SocketFlags, acceptfrom_with};

use crate::Waiting;
use crate::scheduler::current;
use crate::scheduler::shared::Shared;
use crate::time::sleep_on;

use super::io::{Done, Io, Side};

/// How long a listener waits at most before it tries again: fifty tries a second cost less than a thousandth of a CPU.
const RETRY_NS: u64 = 20_000_000;

/// Connections that wait to be accepted: as many as Linux allows by default, which cuts off more.
pub(super) const BACKLOG: i32 = 4096;

fn is_exhausted(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM))
}

/// Errors of the connection that would have been accepted (`accept(2)`): it is gone, and the next one may be better.
fn is_of_the_connection(error: &io::Error) -> bool {
    matches!(
        Errno::from_io_error(error),
        Some(
            Errno::CONNABORTED
                | Errno::PROTO
                | Errno::NOPROTOOPT
                | Errno::NETDOWN
                | Errno::HOSTDOWN
                | Errno::NONET
                | Errno::HOSTUNREACH
                | Errno::NETUNREACH
                | Errno::PERM
        )
    )
}

/// The next connection, in non-blocking mode, and its peer's address.
pub(super) async fn accept<T: AsFd>(io: &Io<T>) -> io::Result<(OwnedFd, Option<SocketAddrAny>)> {
    let call = |listener: &T| Ok(Done::whole(acceptfrom_with(listener, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC)?));
    loop {
        match io.run_within(Side::Read, None, call).await {
            Err(error) if is_exhausted(&error) => {
                let starved = &io.shared().poller.starved;
                starved.refused.fetch_add(1, Relaxed);
                let mut in_list = None;
                let mut sleep = pin!(retry(io.shared()));
                let again = poll_fn(|task| {
                    if !crate::scheduler::budget::charge(task) {
                        return Poll::Pending;
                    }
                    if in_list.is_some() {
                        return Poll::Ready(None);
                    }
                    in_list = Some(starved.leave(task.waker().clone()));
                    // Once more, for what was closed before this waker was there.
                    match io.try_once(Side::Read, call) {
                        Err(error) if is_exhausted(&error) => {}
                        result => return Poll::Ready(Some(result)),
                    }
                    current::note_waiting(Waiting::READABLE);
                    sleep.as_mut().poll(task).map(|()| None)
                })
                .await;
                match again {
                    Some(Err(error)) if error.kind() != io::ErrorKind::WouldBlock && !is_of_the_connection(&error) => {
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

/// Until the next try. On the test clock, which would jump there at once, only what this program closes counts.
async fn retry(shared: &Arc<Shared>) {
    if shared.world.is_test() {
        return std::future::pending().await;
    }
    sleep_on(Arc::clone(shared), shared.world.now().saturating_add(RETRY_NS)).await;
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use crate::io::starved::Starved;

    #[test]
    fn a_listener_that_tries_again_leaves_nothing_behind() {
        let starved = Starved::default();
        for _ in 0..3 {
            let other = starved.leave(Waker::noop().clone());
            drop(starved.leave(Waker::noop().clone()));
            assert_eq!(starved.change(|listeners| listeners.wakers.len()), 1);
            drop(other);
        }
        assert_eq!(starved.change(|listeners| listeners.wakers.len()), 0);
    }
}
