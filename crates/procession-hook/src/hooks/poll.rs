//! Waits for several descriptors: `poll` and `epoll_wait`.
//!
//! A coroutine that has to wait makes an `epoll` descriptor, adds the descriptors that it asks
//! about, and waits until the `epoll` descriptor is readable. Most libraries ask about a single
//! descriptor in one direction. The coroutine waits for such a descriptor directly. The system's
//! own call then produces the answer.

use std::ffi::c_int;
use std::os::fd::AsRawFd;
use std::slice;
use std::time::Duration;

use libc::{epoll_event, nfds_t, pollfd, sigset_t, size_t, timespec};
use procession::coroutine::{self, HeldFd, Interest};
use procession::time::Instant;

use super::{deadline_in, duration_of};
use crate::wait::{self, Refused, block, is_possible, may_wait, uninterrupted};
use crate::{errno, real};

/// Calls `ask` until it has an answer, and waits for `fd` between the calls. `ask` neither waits
/// nor is interrupted, and gets a descriptor of the same file. At the deadline, returns the answer
/// of the last call.
///
/// Before the first wait, other processes that are ready run.
fn ask_when_ready(
    fd: c_int,
    interest: Interest,
    deadline: Option<Instant>,
    mut ask: impl FnMut(c_int) -> c_int,
) -> c_int {
    let mut held = HeldFd::default();
    if let Err(Refused) = wait::pass(&mut held, fd) {
        return errno::fail(libc::ECANCELED);
    }
    match ask(held.get().map_or(fd, |held| held.as_raw_fd())) {
        0 => ask_after_waits(held, fd, interest, deadline, ask),
        answer => answer,
    }
}

/// Like [`ask_when_ready`], but waits before the first call of `ask`.
fn ask_after_waits(
    mut held: HeldFd,
    fd: c_int,
    interest: Interest,
    deadline: Option<Instant>,
    mut ask: impl FnMut(c_int) -> c_int,
) -> c_int {
    let mut idle = 0;
    loop {
        let waited = wait::ready(&mut held, fd, interest, deadline);
        let fd = held.get().map_or(fd, |held| held.as_raw_fd());
        match waited {
            None => match ask(fd) {
                0 => {
                    // Perhaps another thread was faster.
                    idle += 1;
                    if idle > 2
                        && let Some(libc::ECANCELED) = wait::pause(deadline)
                    {
                        return errno::fail(libc::ECANCELED);
                    }
                }
                answer => return answer,
            },
            Some(libc::EAGAIN) => return ask(fd),
            Some(number) => return errno::fail(number),
        }
    }
}

/// Returns the direction in which a descriptor is ready if any of these events happens, unless
/// there are two.
fn direction_of(events: i16) -> Option<Interest> {
    const READ: i16 = libc::POLLIN | libc::POLLRDNORM | libc::POLLRDHUP;
    // These are reported even if nothing asks for them.
    let events = events & !(libc::POLLERR | libc::POLLHUP | libc::POLLNVAL);
    if events == libc::POLLOUT {
        Some(Interest::Write)
    } else if events & libc::POLLIN != 0 && events & !READ == 0 {
        Some(Interest::Read)
    } else {
        None
    }
}

/// Several descriptors that are waited for together.
pub(super) struct Together(c_int);

impl Drop for Together {
    fn drop(&mut self) {
        // SAFETY: it is this value's own.
        unsafe { libc::close(self.0) };
    }
}

impl Together {
    /// Returns `None` if the system has no descriptor left.
    pub(super) fn new() -> Option<Self> {
        // SAFETY: it has no preconditions.
        let fd = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
        (fd >= 0).then_some(Self(fd))
    }

    /// Adds a descriptor. Returns `None` if it cannot be waited for.
    pub(super) fn add(&self, fd: c_int, events: u32) -> Option<()> {
        // Each report comes once: `epoll` always reports a hang-up, for which nothing may ask.
        let mut event = epoll_event { events: events | libc::EPOLLET as u32, u64: 0 };
        // SAFETY: the event is there for the call.
        let result = unsafe { libc::epoll_ctl(self.0, libc::EPOLL_CTL_ADD, fd, &raw mut event) };
        (result == 0).then_some(())
    }

    /// Calls `ask` until it has an answer, like [`ask_after_waits`].
    pub(super) fn ask(&self, deadline: Option<Instant>, mut ask: impl FnMut() -> c_int) -> c_int {
        ask_after_waits(HeldFd::default(), self.0, Interest::Read, deadline, |_| {
            self.settle();
            ask()
        })
    }

    /// Takes the reports up to now, before the descriptors are asked about.
    fn settle(&self) {
        const BATCH_MAX: c_int = 16;
        let mut events = [epoll_event { events: 0, u64: 0 }; BATCH_MAX as usize];
        // SAFETY: there is room for the events.
        while unsafe { real::epoll_wait(self.0, events.as_mut_ptr(), BATCH_MAX, 0) } == BATCH_MAX {}
    }
}

/// Lets other processes that are ready run, and asks again. Often there is an answer then, and
/// there is no need to wait for the descriptors. Returns 0 if there is none.
pub(super) fn ask_after_pass(ask: impl FnOnce() -> c_int) -> c_int {
    match coroutine::try_wait(procession::yield_now()) {
        Ok(()) => ask(),
        Err(_) => errno::fail(libc::ECANCELED),
    }
}

/// A sleep, as a wait for nothing.
pub(super) fn sleep_until(deadline: Option<Instant>) -> c_int {
    match wait::sleep_until(deadline) {
        Ok(()) => 0,
        Err(Refused) => errno::fail(libc::ECANCELED),
    }
}

/// Returns the deadline of a timeout in milliseconds. Negative is none.
fn deadline_in_ms(timeout: c_int) -> Option<Instant> {
    u64::try_from(timeout).ok().and_then(|timeout| deadline_in(Duration::from_millis(timeout)))
}

/// Asks about all entries without waiting.
fn ask_all(entries: &mut [pollfd]) -> c_int {
    // SAFETY: these are the entries.
    uninterrupted(|| unsafe { real::poll(entries.as_mut_ptr(), entries.len() as nfds_t, 0) })
}

/// Waits for entries, none of which has a report now. `None`: the plain call has to do it.
fn wait_for(entries: &mut [pollfd], deadline: Option<Instant>) -> Option<c_int> {
    if entries.iter().all(|entry| entry.fd < 0) {
        return Some(sleep_until(deadline));
    }
    if let [pollfd { fd, events, .. }] = *entries
        && let Some(interest) = direction_of(events)
    {
        return Some(ask_when_ready(fd, interest, deadline, |fd| {
            let mut entry = [pollfd { fd, events, revents: 0 }];
            let answer = ask_all(&mut entry);
            entries[0].revents = entry[0].revents;
            answer
        }));
    }
    let answer = ask_after_pass(|| ask_all(entries));
    if answer != 0 {
        return Some(answer);
    }
    let together = Together::new()?;
    for (number, entry) in entries.iter().enumerate().filter(|(_, entry)| entry.fd >= 0) {
        let same = |other: &&pollfd| other.fd == entry.fd;
        if entries[..number].iter().any(|other| same(&other)) {
            // It was added with what all of its entries ask for.
            continue;
        }
        let all = entries.iter().filter(same).fold(0, |all, other| all | other.events);
        together.add(entry.fd, all as u16 as u32)?;
    }
    Some(together.ask(deadline, || ask_all(entries)))
}

/// `poll` with a timeout that is neither zero nor, with `None`, any.
///
/// # Safety
/// The contract of `poll(2)`.
unsafe fn poll_until(
    entries: *mut pollfd,
    count: nfds_t,
    deadline: Option<Instant>,
    plain: impl FnOnce() -> c_int,
) -> c_int {
    let entry = errno::get();
    // SAFETY: by the caller.
    let answer = uninterrupted(|| unsafe { real::poll(entries, count, 0) });
    if answer != 0 {
        return answer;
    }
    if !may_wait() {
        return block(plain);
    }
    let waited = if count == 0 {
        Some(sleep_until(deadline))
    } else {
        // SAFETY: by the caller. The system has just read and written them.
        wait_for(unsafe { slice::from_raw_parts_mut(entries, count as usize) }, deadline)
    };
    match waited {
        Some(answer) => {
            if answer >= 0 {
                errno::set(entry);
            }
            answer
        }
        None => block(plain),
    }
}

/// # Safety
/// The contract of `poll(2)`.
#[unsafe(no_mangle)]
unsafe extern "C" fn poll(entries: *mut pollfd, count: nfds_t, timeout: c_int) -> c_int {
    // SAFETY: by the caller.
    let plain = || unsafe { real::poll(entries, count, timeout) };
    if timeout == 0 || !is_possible() {
        return plain();
    }
    // SAFETY: by the caller.
    unsafe { poll_until(entries, count, deadline_in_ms(timeout), plain) }
}

/// # Safety
/// The contract of `ppoll(2)`.
#[unsafe(no_mangle)]
unsafe extern "C" fn ppoll(
    entries: *mut pollfd,
    count: nfds_t,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    // SAFETY: by the caller.
    let plain = || unsafe { real::ppoll(entries, count, timeout, mask) };
    if !is_possible() {
        return plain();
    }
    if !mask.is_null() {
        // With other signals blocked, nothing else may run on this thread.
        return block(plain);
    }
    // SAFETY: by the caller.
    let deadline = match unsafe { timeout.as_ref() }.map(duration_of) {
        None => None,
        Some(None | Some(Duration::ZERO)) => return plain(),
        Some(Some(duration)) => deadline_in(duration),
    };
    // SAFETY: by the caller.
    unsafe { poll_until(entries, count, deadline, plain) }
}

/// # Safety
/// The contract of `epoll_wait(2)`.
#[unsafe(no_mangle)]
unsafe extern "C" fn epoll_wait(
    fd: c_int,
    events: *mut epoll_event,
    count: c_int,
    timeout: c_int,
) -> c_int {
    // SAFETY: by the caller.
    let ask = |fd, timeout| unsafe { real::epoll_wait(fd, events, count, timeout) };
    if timeout == 0 || !is_possible() {
        return ask(fd, timeout);
    }
    let entry = errno::get();
    let ask_at_once = |fd| uninterrupted(|| ask(fd, 0));
    let answer = ask_at_once(fd);
    if answer != 0 {
        return answer;
    }
    if !may_wait() {
        return block(|| ask(fd, timeout));
    }
    let answer = ask_when_ready(fd, Interest::Read, deadline_in_ms(timeout), ask_at_once);
    if answer >= 0 {
        errno::set(entry);
    }
    answer
}

/// # Safety
/// The contract of `epoll_pwait(2)`.
#[unsafe(no_mangle)]
unsafe extern "C" fn epoll_pwait(
    fd: c_int,
    events: *mut epoll_event,
    count: c_int,
    timeout: c_int,
    mask: *const sigset_t,
) -> c_int {
    if mask.is_null() {
        // SAFETY: by the caller.
        return unsafe { epoll_wait(fd, events, count, timeout) };
    }
    // SAFETY: by the caller.
    let plain = || unsafe { real::epoll_pwait(fd, events, count, timeout, mask) };
    if is_possible() { block(plain) } else { plain() }
}

/// # Safety
/// The contract of `poll(2)`. Compilers with `_FORTIFY_SOURCE` call this.
#[unsafe(no_mangle)]
unsafe extern "C" fn __poll_chk(
    entries: *mut pollfd,
    count: nfds_t,
    timeout: c_int,
    room: size_t,
) -> c_int {
    if room / size_of::<pollfd>() < count as usize {
        // SAFETY: it ends the program.
        return unsafe { real::__poll_chk(entries, count, timeout, room) };
    }
    // SAFETY: by the caller.
    unsafe { poll(entries, count, timeout) }
}

/// # Safety
/// The contract of `ppoll(2)`. Compilers with `_FORTIFY_SOURCE` call this.
#[unsafe(no_mangle)]
unsafe extern "C" fn __ppoll_chk(
    entries: *mut pollfd,
    count: nfds_t,
    timeout: *const timespec,
    mask: *const sigset_t,
    room: size_t,
) -> c_int {
    if room / size_of::<pollfd>() < count as usize {
        // SAFETY: it ends the program.
        return unsafe { real::__ppoll_chk(entries, count, timeout, mask, room) };
    }
    // SAFETY: by the caller.
    unsafe { ppoll(entries, count, timeout, mask) }
}

/// # Safety
/// The contract of `poll(2)`. An alias that the C library exports.
#[unsafe(no_mangle)]
unsafe extern "C" fn __poll(entries: *mut pollfd, count: nfds_t, timeout: c_int) -> c_int {
    // SAFETY: by the caller.
    unsafe { poll(entries, count, timeout) }
}
