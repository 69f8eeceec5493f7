//! Waits for sets of descriptors: `select` and `pselect`.

use std::ffi::{c_int, c_ulong};
use std::time::Duration;

use libc::{FD_SETSIZE, fd_set, sigset_t, timespec, timeval};
use procession::time::Instant;

use super::poll::{Together, ask_after_pass, sleep_until};
use super::{deadline_in, duration_of};
use crate::wait::{block, is_possible, may_wait, uninterrupted};
use crate::{errno, real};

/// The three sets of a call. A set may be missing.
#[derive(Clone, Copy)]
struct Sets {
    read: *mut fd_set,
    write: *mut fd_set,
    except: *mut fd_set,
}

/// The sets of a call, as they were when it was made: the system overwrites them. A set of the
/// caller may be smaller than `fd_set`, so only the words that the count covers are read and
/// written.
struct Asked {
    count: c_int,
    sets: [Option<fd_set>; 3],
}

/// The unit in which the system reads and writes sets, in bits.
const WORD_BITS: usize = c_ulong::BITS as usize;

impl Asked {
    /// # Safety
    /// The sets are valid or null.
    unsafe fn of(count: c_int, sets: Sets) -> Self {
        let words = (count as usize).div_ceil(WORD_BITS);
        let copy = |set: *mut fd_set| {
            // SAFETY: a set is plain memory.
            let mut own: fd_set = unsafe { std::mem::zeroed() };
            let (from, to) = (set.cast::<c_ulong>(), (&raw mut own).cast::<c_ulong>());
            // SAFETY: by the caller, the set has these words. An `fd_set` has more.
            unsafe { std::ptr::copy_nonoverlapping(from, to, words) };
            own
        };
        let copy = |set: *mut fd_set| (!set.is_null()).then(|| copy(set));
        Self { count, sets: [copy(sets.read), copy(sets.write), copy(sets.except)] }
    }

    /// Writes the sets back.
    ///
    /// # Safety
    /// `sets` are the sets that `self` was copied from.
    unsafe fn restore(&self, sets: Sets) {
        let words = (self.count as usize).div_ceil(WORD_BITS);
        for (to, from) in [sets.read, sets.write, sets.except].into_iter().zip(&self.sets) {
            if let Some(from) = from {
                let from = (&raw const *from).cast::<c_ulong>();
                // SAFETY: by the caller, the set has these words.
                unsafe { std::ptr::copy_nonoverlapping(from, to.cast(), words) };
            }
        }
    }

    /// Writes the sets back, and asks the system without waiting.
    ///
    /// # Safety
    /// `sets` are the sets that `self` was copied from.
    unsafe fn ask(&self, sets: Sets) -> c_int {
        uninterrupted(|| {
            // SAFETY: by the caller.
            unsafe { self.restore(sets) };
            let Sets { read, write, except } = sets;
            let mut at_once = timeval { tv_sec: 0, tv_usec: 0 };
            // SAFETY: by the caller.
            unsafe { real::select(self.count, read, write, except, &raw mut at_once) }
        })
    }

    /// Returns the events of `epoll` that a descriptor is asked for.
    fn events(&self, fd: c_int) -> u32 {
        let flags = [libc::EPOLLIN, libc::EPOLLOUT, libc::EPOLLPRI];
        self.sets.iter().zip(flags).fold(0, |events, (set, flag)| {
            // SAFETY: the number is less than the size of a set.
            let asked = set.as_ref().is_some_and(|set| unsafe { libc::FD_ISSET(fd, set) });
            events | if asked { flag as u32 } else { 0 }
        })
    }

    /// Waits. `None`: the plain call has to do it.
    ///
    /// # Safety
    /// `sets` are the sets that `self` was copied from.
    unsafe fn wait(&self, sets: Sets, deadline: Option<Instant>) -> Option<c_int> {
        let events = |fd| (fd, self.events(fd));
        let mut asked = (0..self.count).map(events).filter(|&(_, events)| events != 0).peekable();
        if asked.peek().is_none() {
            return Some(sleep_until(deadline));
        }
        // SAFETY: by the caller.
        let ask = || unsafe { self.ask(sets) };
        let answer = ask_after_pass(ask);
        if answer != 0 {
            return Some(answer);
        }
        let together = Together::new()?;
        for (fd, events) in asked {
            together.add(fd, events)?;
        }
        Some(together.ask(deadline, ask))
    }
}

/// # Safety
/// The contract of `select(2)`.
unsafe fn select_until(
    count: c_int,
    sets: Sets,
    deadline: Option<Instant>,
    plain: impl FnOnce() -> c_int,
) -> c_int {
    let entry = errno::get();
    // SAFETY: by the caller.
    let asked = unsafe { Asked::of(count, sets) };
    // SAFETY: by the caller.
    let answer = unsafe { asked.ask(sets) };
    if answer != 0 {
        return answer;
    }
    // SAFETY: by the caller.
    let waited = if may_wait() { unsafe { asked.wait(sets, deadline) } } else { None };
    match waited {
        Some(answer) => {
            if answer >= 0 {
                errno::set(entry);
            } else {
                // A call that fails leaves the sets as they were.
                // SAFETY: by the caller.
                unsafe { asked.restore(sets) };
            }
            answer
        }
        None => {
            // The question above has emptied the sets.
            // SAFETY: by the caller.
            unsafe { asked.restore(sets) };
            block(plain)
        }
    }
}

/// # Safety
/// The contract of `select(2)`. As on Linux, the timeout is lowered to the time that is left.
#[unsafe(no_mangle)]
unsafe extern "C" fn select(
    count: c_int,
    read: *mut fd_set,
    write: *mut fd_set,
    except: *mut fd_set,
    timeout: *mut timeval,
) -> c_int {
    // SAFETY: by the caller.
    let plain = || unsafe { real::select(count, read, write, except, timeout) };
    if !(0..=FD_SETSIZE as c_int).contains(&count) || !is_possible() {
        return plain();
    }
    // SAFETY: by the caller.
    let limit = match unsafe { timeout.as_ref() }.map(|time| (time.tv_sec, time.tv_usec)) {
        None => None,
        // More than a second in microseconds is allowed.
        Some((seconds @ 0.., micros @ 0..)) if (seconds, micros) != (0, 0) => Some(
            Duration::from_secs(seconds as u64)
                .saturating_add(Duration::from_micros(micros as u64)),
        ),
        Some(_) => return plain(),
    };
    let deadline = limit.and_then(deadline_in);
    let sets = Sets { read, write, except };
    // SAFETY: by the caller.
    let answer = unsafe { select_until(count, sets, deadline, plain) };
    // SAFETY: by the caller.
    if let (Some(deadline), Some(timeout)) = (deadline, unsafe { timeout.as_mut() }) {
        let left = deadline.saturating_duration_since(Instant::now());
        *timeout =
            timeval { tv_sec: left.as_secs() as i64, tv_usec: i64::from(left.subsec_micros()) };
    }
    answer
}

/// # Safety
/// The contract of `pselect(2)`.
#[unsafe(no_mangle)]
unsafe extern "C" fn pselect(
    count: c_int,
    read: *mut fd_set,
    write: *mut fd_set,
    except: *mut fd_set,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    // SAFETY: by the caller.
    let plain = || unsafe { real::pselect(count, read, write, except, timeout, mask) };
    if !(0..=FD_SETSIZE as c_int).contains(&count) || !is_possible() {
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
    unsafe { select_until(count, Sets { read, write, except }, deadline, plain) }
}

/// # Safety
/// The contract of `select(2)`. An alias that the C library exports.
#[unsafe(no_mangle)]
unsafe extern "C" fn __select(
    count: c_int,
    read: *mut fd_set,
    write: *mut fd_set,
    except: *mut fd_set,
    timeout: *mut timeval,
) -> c_int {
    // SAFETY: by the caller.
    unsafe { select(count, read, write, except, timeout) }
}
