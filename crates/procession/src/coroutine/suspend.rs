//! Suspensions that somebody else ends.

use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll, Waker};
use std::time::Duration;

use procession_sync::Mutex;
use procession_sync::atomic::AtomicU32;
use procession_sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use crate::coroutine::frame::{Sleeper, frame};
use crate::coroutine::wait;
use crate::process::unwind::drop_guarded;
use crate::process::wait_reason::Waiting;
use crate::scheduler::current;
use crate::time;

/// What wakes one suspension of a coroutine: see [`suspend`].
#[derive(Clone)]
pub struct Token {
    sleeper: Arc<Sleeper>,
    number: u32,
}

impl Sleeper {
    fn number(&self) -> u32 {
        // Relaxed: only the coroutine itself goes on to the next.
        self.word.load(Relaxed) >> 1
    }

    fn is_woken(&self) -> bool {
        // Ordering: Acquire pairs with the Release of `wake`.
        self.word.load(Acquire) & 1 != 0
    }

    fn change_waker(&self, waker: Option<Waker>) -> Option<Waker> {
        std::mem::replace(&mut *self.waker.lock(), waker)
    }
}

/// The token of the next suspension of the coroutine that runs here. Give it to who is to end that,
/// and call [`suspend`].
///
/// # Errors
/// [`NoCoroutine`] outside of coroutines.
pub fn token() -> Result<Token, NoCoroutine> {
    let frame = frame().ok_or(NoCoroutine)?;
    let new = || Arc::new(Sleeper { word: AtomicU32::new(0), waker: Mutex::new(None) });
    let sleeper = Arc::clone(frame.sleeper.get_or_init(new));
    let number = sleeper.number();
    Ok(Token { sleeper, number })
}

/// Suspends the coroutine until its [`token`] is used, or until `timeout` is over, if there is
/// one. Says whether it was woken: also if the token was used before.
///
/// # Errors
/// [`NoCoroutine`] outside of coroutines.
///
/// # Blocking, panics, cancellation
/// As of [`wait`]. A suspension that is unwound is over: its tokens do nothing.
///
/// ```
/// # let scheduler = unsafe { procession::Scheduler::builder().enable_coroutines() }.build()?;
/// use procession::coroutine;
/// use procession::coroutine::spawn_coroutine;
///
/// let woken = scheduler.block_on(async {
///     let sleeps = spawn_coroutine(|_: coroutine::Context<()>| {
///         let token = coroutine::token()?;
///         let stale = token.clone();
///         std::thread::spawn(move || token.wake());
///         let woken = coroutine::suspend(None)?;
///         Ok::<_, coroutine::NoCoroutine>((woken, stale.wake()))
///     });
///     sleeps.expect("they are enabled").await
/// });
/// assert_eq!(woken, Ok(Ok((true, false))));
/// # Ok::<(), procession::scheduler::BuildError>(())
/// ```
pub fn suspend(timeout: Option<Duration>) -> Result<bool, NoCoroutine> {
    let Token { sleeper, number } = token()?;
    /// The suspension is over, however: its tokens are stale.
    struct Over<'a>(&'a Sleeper, u32);
    impl Drop for Over<'_> {
        fn drop(&mut self) {
            // Ordering: as in `wake`.
            self.0.word.store(self.1.wrapping_add(1) << 1, Release);
            drop_guarded(self.0.change_waker(None));
        }
    }
    let over = Over(&sleeper, number);
    let woken = std::future::poll_fn(|task: &mut TaskContext<'_>| {
        if !crate::scheduler::budget::charge(task) {
            return Poll::Pending;
        }
        if !sleeper.is_woken() {
            drop_guarded(sleeper.change_waker(Some(task.waker().clone())));
            // Once more: the token may have been used before the waker was there.
            if !sleeper.is_woken() {
                current::note_waiting(Waiting::TOKEN);
                return Poll::Pending;
            }
        }
        Poll::Ready(())
    });
    match timeout {
        None => wait(woken),
        // Whether it was woken is asked below: both may have happened.
        Some(timeout) => drop(wait(time::timeout(timeout, woken))),
    }
    // Before the word goes on: from then on the token is refused.
    let was_woken = sleeper.word.fetch_or(1, AcqRel) & 1 != 0;
    drop(over);
    Ok(was_woken)
}

impl Token {
    /// Wakes the coroutine out of the suspension that this is of, or keeps it from beginning. Says
    /// whether it did: not if that was woken before, or is over.
    pub fn wake(&self) -> bool {
        let waiting = self.number << 1;
        // Ordering: Release pairs with the Acquire of `is_woken`; Acquire for form.
        if self.sleeper.word.compare_exchange(waiting, waiting | 1, AcqRel, Relaxed).is_err() {
            return false;
        }
        if let Some(waker) = self.sleeper.change_waker(None) {
            waker.wake();
        }
        true
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Token").field(&self.number).finish()
    }
}

/// Something for coroutines was called where none runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoCoroutine;

impl fmt::Display for NoCoroutine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("no coroutine runs here")
    }
}

impl Error for NoCoroutine {}
