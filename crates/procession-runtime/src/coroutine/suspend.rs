//! Suspensions that a token ends.

use std::fmt;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll, Waker};
use std::time::Duration;

use procession_sync::Mutex;
use procession_sync::atomic::AtomicU32;
use procession_sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use crate::coroutine::wait;
use crate::process::unwind::drop_guarded;
use crate::process::wait_reason::Waiting;
use crate::scheduler::current;
use crate::scheduler::frame::{Sleeper, frame};
use crate::scheduler::handle_error::MisplacedCall;
use crate::time;

/// The right to wake one suspension of a coroutine. See [`suspend`].
#[derive(Clone)]
pub struct Token {
    sleeper: Arc<Sleeper>,
    number: u32,
}

impl Sleeper {
    fn number(&self) -> u32 {
        // Relaxed: only the coroutine itself advances the number.
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

/// Returns the token of the next suspension of the running coroutine. Hand it to the code that is
/// to end the suspension, and call [`suspend`].
///
/// # Errors
/// [`MisplacedCall`] outside of coroutines.
pub fn token() -> Result<Token, MisplacedCall> {
    let frame = frame().ok_or(MisplacedCall::OutsideCoroutine)?;
    let new = || Arc::new(Sleeper { word: AtomicU32::new(0), waker: Mutex::new(None) });
    let sleeper = Arc::clone(frame.sleeper.get_or_init(new));
    let number = sleeper.number();
    Ok(Token { sleeper, number })
}

/// Suspends the coroutine until its [`token`] is used, or for at most `timeout`, if there is one.
/// Returns `true` if the token was used, even if that was before this call.
///
/// # Errors
/// [`MisplacedCall`] outside of coroutines.
///
/// # Blocking, panics, cancellation
/// Like [`wait`]. A suspension that is unwound is over, and its tokens have no effect.
///
/// ```
/// # let scheduler = unsafe { procession::Scheduler::builder().enable_coroutines() }.build()?;
/// use procession::{SpawnOptions, coroutine};
///
/// let woken = scheduler.block_on(async {
///     let sleeps = SpawnOptions::new().try_start_coroutine(|_: coroutine::Context<()>| {
///         let token = coroutine::token()?;
///         let stale = token.clone();
///         std::thread::spawn(move || token.wake());
///         let woken = coroutine::suspend(None)?;
///         Ok::<_, procession::scheduler::MisplacedCall>((woken, stale.wake()))
///     });
///     sleeps.expect("they are enabled").await
/// });
/// assert_eq!(woken, Ok(Ok((true, false))));
/// # Ok::<(), procession::scheduler::BuildError>(())
/// ```
#[track_caller]
pub fn suspend(timeout: Option<Duration>) -> Result<bool, MisplacedCall> {
    let Token { sleeper, number } = token()?;
    /// Ends the suspension in every case, so that its tokens are stale.
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
            drop_guarded(sleeper.change_waker(Some(crate::process::waker::another(task.waker()))));
            // Once more: the token may have been used before the waker was registered.
            if !sleeper.is_woken() {
                current::note_waiting(Waiting::TOKEN);
                return Poll::Pending;
            }
        }
        Poll::Ready(())
    });
    match timeout {
        None => wait(woken),
        // Whether it was woken is read below: both may have happened.
        Some(timeout) => drop(wait(time::timeout(timeout, woken))),
    }
    // Before the number advances: after that, the token is refused.
    let was_woken = sleeper.word.fetch_or(1, AcqRel) & 1 != 0;
    drop(over);
    Ok(was_woken)
}

impl crate::Outcome for Token {}

impl Token {
    /// Wakes the coroutine from the suspension of this token, or keeps that suspension from
    /// beginning. Returns `false` if it was woken before or is over.
    pub fn wake(&self) -> bool {
        let waiting = self.number << 1;
        // Ordering: Release pairs with the Acquire of `is_woken`. The Acquire is not needed.
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
