//! `poll` over several descriptors, in blocking style.
//!
//! A coroutine that has to wait creates a set for the duration of the call, which is a descriptor
//! of the system: of `epoll` on Linux. It adds the descriptors that it asks about to the set, and
//! registers only the set with its scheduler. The descriptors therefore keep their mode and their
//! registrations, and other callers may ask about them at the same time. Each time the set becomes
//! readable, the coroutine asks the kernel again with `poll` and returns its answer. The flags and
//! the count are thus the system's by construction.
//!
//! # Rejected
//! - Registering each descriptor with the scheduler's own poller. It refuses a descriptor that it
//!   already knows, such as the descriptor of a socket, and the flags would have to be derived from
//!   read and write readiness.

use std::io;
use std::time::Duration;

use procession_protocols::util::sorted_map::SortedMap;

use super::io::{Io, IoResult, Side};
use crate::coroutine;
pub use crate::sys::poll::{PollFd, PollFlags};
use crate::sys::poll::{PollSet, ask};

/// Waits until at least one of several descriptors is ready, for at most `timeout`.
///
/// `None` waits without a limit. Returns the number of descriptors with a report, which
/// [`PollFd::answer`] returns. Returns 0 if the timeout elapses first.
///
/// The rules are the same as for `poll(2)`. A descriptor that is not open is reported as
/// [`PollFlags::NVAL`]. A negative one is ignored. [`PollFlags::ERR`] and [`PollFlags::HUP`] are
/// reported even if they are not asked for. A list that is empty, or has only negative entries,
/// makes the call a sleep. The same descriptor may occur several times.
///
/// ```
/// use std::io::Write;
/// use std::os::fd::AsRawFd;
/// use std::os::unix::net::UnixStream;
/// use procession::net::{PollFd, PollFlags, poll};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// // SAFETY: the coroutine keeps the residual rule: no thread-local refers to its frames, no frame
/// // refers to a thread-local, and every frame can be unwound.
/// let scheduler = unsafe { procession::Scheduler::builder().enable_coroutines() }.build()?;
/// let (mut writer, reader) = UnixStream::pair()?;
/// let (_silent, other) = UnixStream::pair()?;
/// let options = procession::SpawnOptions::new().on(&scheduler);
/// let waits = options.try_start_coroutine(move |_: procession::coroutine::Context<()>| {
///     let mut both = [&reader, &other].map(|one| PollFd::new(one.as_raw_fd(), PollFlags::IN));
///     poll(&mut both, None).map(|count| (count, both.map(|one| one.answer())))
/// })?;
/// writer.write_all(b"!")?;
/// assert_eq!(waits.join()??, (1, [PollFlags::IN, PollFlags::EMPTY]));
/// # Ok(())
/// # }
/// ```
///
/// # Blocking
/// Suspends a coroutine. Everywhere else, and where a coroutine cannot be suspended, this is the
/// system's blocking call; in a process it runs as a [blocking section](crate::blocking). A
/// coroutine also makes the blocking call if the system has no file descriptor left to wait with.
///
/// # Cancellation
/// A coroutine that is cancelled or terminated unwinds from here. Nothing stays registered.
///
/// # Errors
/// Returns the system's error, such as `InvalidInput` if there are more descriptors than the system
/// allows. Outside of coroutines, returns `Interrupted` if a signal arrives. Returns an error if
/// the scheduler has ended.
pub fn poll(descriptors: &mut [PollFd], timeout: Option<Duration>) -> io::Result<usize> {
    if timeout == Some(Duration::ZERO) {
        return ask(descriptors, timeout);
    }
    if !coroutine::may_suspend() {
        return crate::blocking(|| ask(descriptors, timeout));
    }
    let count = ask_at_once(descriptors)?;
    if count > 0 {
        return Ok(count);
    }
    if descriptors.iter().all(|one| one.descriptor() < 0) {
        match timeout {
            Some(timeout) => coroutine::sleep(timeout),
            None => coroutine::wait(std::future::pending()),
        }
        return Ok(0);
    }
    // The timeout has not begun yet. So whatever the system refuses here, the blocking call can
    // still wait for the whole timeout.
    let Ok(set) = watch(descriptors).and_then(Io::new) else {
        return crate::blocking(|| ask(descriptors, timeout));
    };
    let answered = coroutine::wait(set.run_within(Side::Read, timeout, |set| {
        set.settle();
        match ask_at_once(descriptors)? {
            0 => Err(io::ErrorKind::WouldBlock.into()),
            count => Ok(IoResult::whole(count)),
        }
    }));
    match answered {
        Err(error) if error.kind() == io::ErrorKind::TimedOut => ask_at_once(descriptors),
        answered => answered,
    }
}

/// Asks without waiting. A signal can interrupt even that, and the coroutine asks again.
fn ask_at_once(descriptors: &mut [PollFd]) -> io::Result<usize> {
    loop {
        match ask(descriptors, Some(Duration::ZERO)) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            answered => return answered,
        }
    }
}

/// Returns a set that becomes readable once one of `descriptors` may have a report.
fn watch(descriptors: &[PollFd]) -> io::Result<PollSet> {
    let set = PollSet::open()?;
    // A descriptor that occurs several times is added once, with all flags that are asked for.
    let mut asked = SortedMap::<_, i16>::new();
    for one in descriptors.iter().filter(|one| one.descriptor() >= 0) {
        *asked.get_or_default(one.descriptor()) |= one.events().bits();
    }
    for (descriptor, events) in asked {
        set.add(descriptor, events)?;
    }
    Ok(set)
}
