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
use std::task::{Poll, Waker};

use procession_sync::Mutex;
use procession_sync::atomic::Ordering::{Relaxed, SeqCst};
use procession_sync::atomic::{AtomicBool, AtomicU64, fence};
use rustix::io::Errno;
use rustix::net::{SocketAddrAny, SocketFlags, acceptfrom_with};

use super::io::{Done, Io, Side};
use crate::body::guarded;
use crate::shared::Shared;
use crate::time::sleep_on;
use crate::{Waiting, here};

/// How long a listener waits at most before it tries again: fifty tries a second cost less than a thousandth of a CPU.
const RETRY_NS: u64 = 20_000_000;

/// Connections that wait to be accepted: as many as Linux allows by default, which cuts off more.
pub(super) const BACKLOG: i32 = 4096;

/// Listeners for whose connections there are no descriptors.
#[derive(Default)]
pub(crate) struct Starved {
    /// Whether there may be wakers.
    any: AtomicBool,
    wakers: Mutex<Vec<Waker>>,
    /// How often a listener was refused a descriptor.
    refused: AtomicU64,
}

impl Starved {
    pub(crate) fn refused(&self) -> u64 {
        self.refused.load(Relaxed)
    }

    /// A descriptor was closed.
    #[inline]
    pub(crate) fn note_closed(&self) {
        // With the one in `leave`: either this sees the flag, or the listener's next try sees the descriptor. If the kernel orders it
        // otherwise, the listener tries again soon.
        fence(SeqCst);
        if self.any.load(Relaxed) {
            self.wake_all();
        }
    }

    #[cold]
    fn wake_all(&self) {
        self.any.store(false, Relaxed);
        let wakers = std::mem::take(&mut *self.wakers.lock().expect("nothing that can panic runs under this lock"));
        for waker in wakers {
            drop(guarded(|| waker.wake()));
        }
    }

    fn leave(&self, waker: Waker) {
        self.wakers.lock().expect("nothing that can panic runs under this lock").push(waker);
        self.any.store(true, Relaxed);
        fence(SeqCst);
    }
}

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
                let mut waited = false;
                let mut sleep = pin!(retry(io.shared()));
                let again = poll_fn(|task| {
                    if !here::charge(task) {
                        return Poll::Pending;
                    }
                    if std::mem::replace(&mut waited, true) {
                        return Poll::Ready(None);
                    }
                    starved.leave(task.waker().clone());
                    // Once more, for what was closed before this waker was there.
                    match io.try_once(Side::Read, call) {
                        Err(error) if is_exhausted(&error) => {}
                        result => return Poll::Ready(Some(result)),
                    }
                    here::note_waiting(Waiting::READABLE);
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
