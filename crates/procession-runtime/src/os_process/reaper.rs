//! The thread that asks for the status of children without handles.
//!
//! It waits for the exit handles of all children and for a bell, which rings when another child is
//! added. If the system has no descriptor for the bell, it looks for other children at intervals.
//! It ends when no children are left.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::process::Child as StdChild;
use std::sync::Arc;

use procession_sync::Mutex;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::sys::World;
use crate::sys::system::bell::Bell;

/// Interval between two looks at children without a handle, and for others without a bell. It only
/// decides for how long such a child stays a zombie.
const LOOK: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };

static ORPHANS: Mutex<Orphans> =
    Mutex::new(Orphans { children: Vec::new(), has_thread: false, bell: None });

struct Orphans {
    children: Vec<Orphan>,
    has_thread: bool,
    /// Wakes the thread, unless the system has refused it.
    bell: Option<Arc<Bell>>,
}

struct Orphan {
    child: StdChild,
    handle: Option<Arc<OwnedFd>>,
}

/// Takes a child that has not ended yet. If the system refuses the thread, the child waits until
/// another child is taken.
pub(super) fn adopt(child: StdChild, handle: Option<OwnedFd>) {
    let mut orphans = ORPHANS.lock();
    orphans.children.push(Orphan { child, handle: handle.map(Arc::new) });
    if orphans.has_thread {
        if let Some(bell) = &orphans.bell {
            bell.ring();
        }
        return;
    }
    let bell = Bell::open().ok().map(Arc::new);
    orphans.has_thread = true;
    orphans.bell.clone_from(&bell);
    drop(orphans);
    let reaps = move || while reap(bell.as_deref()) {};
    if World::real(Some(0)).start_thread("procession-reaper".to_owned(), reaps).is_err() {
        ORPHANS.lock().has_thread = false;
    }
}

/// Asks for the status of all that have ended, and waits for others. Returns `false` if there are
/// none.
fn reap(bell: Option<&Bell>) -> bool {
    let mut orphans = ORPHANS.lock();
    // An error means that other code has asked for the status.
    orphans.children.retain_mut(|orphan| matches!(orphan.child.try_wait(), Ok(None)));
    if orphans.children.is_empty() {
        (orphans.has_thread, orphans.bell) = (false, None);
        return false;
    }
    let handles: Vec<_> =
        orphans.children.iter().filter_map(|orphan| orphan.handle.clone()).collect();
    let looks = bell.is_none() || handles.len() < orphans.children.len();
    drop(orphans);
    let waited = handles.iter().map(|handle| handle.as_fd()).chain(bell.map(Bell::as_fd));
    let mut events: Vec<_> = waited.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
    if poll(&mut events, looks.then_some(&LOOK))
        .is_err_and(|error| error != rustix::io::Errno::INTR)
    {
        // The kernel has no memory for the wait. Look again later.
        let _: io::Result<usize> = poll(&mut [], Some(&LOOK)).map_err(io::Error::from);
    }
    let reported: Vec<_> =
        events[..handles.len()].iter().map(|event| !event.revents().is_empty()).collect();
    // A debugger that traces a child gets its status first. Until then, the handle would report the
    // end again and again. So a child whose handle has reported is looked at without it.
    let mut orphans = ORPHANS.lock();
    let watched = orphans.children.iter_mut().filter(|orphan| orphan.handle.is_some());
    for (orphan, is_reported) in watched.zip(reported) {
        if is_reported {
            orphan.handle = None;
        }
    }
    drop(orphans);
    if let Some(bell) = bell {
        // Emptied before the next look, so that a child that is added after that look rings again.
        bell.silence();
    }
    true
}
