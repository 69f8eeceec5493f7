//! Messages that a guest sends later.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use procession::Pid;
use procession::time::{Timer, run_after};

use crate::account::{Account, Held};
use crate::limits::{Hold, Resource};
use crate::message::{self, Content};
use crate::permissions::Bounds;
use crate::program::Program;

/// The number of messages of a process that wait for their time.
const TIMERS_MAX: usize = 1 << 16;
/// The smallest number of timers at which the table is searched for fired timers.
const SWEEP_MIN: usize = 16;

/// The bytes that a timer takes in addition to the value of its message.
const TIMER_BYTES: usize = 512;

/// The charges for a timer and its message.
///
/// The timers of processes that have ended still fire, so a program and its limits count all
/// timers, whichever process has set them.
#[derive(Debug)]
pub(super) struct Charges {
    _timer: Hold,
    _limited: Hold,
    _program: Hold,
    _held: Held,
}

impl Charges {
    /// Charges for a timer with a message of `bytes`.
    ///
    /// # Errors
    /// If a limit would be exceeded, returns the refusal.
    pub(super) fn new(
        program: &Program,
        bounds: &Bounds,
        account: &Arc<Account>,
        bytes: usize,
    ) -> Result<Self, String> {
        let all = bytes.saturating_add(TIMER_BYTES);
        Ok(Self {
            _held: account.try_hold(bytes)?,
            _timer: bounds.limits.hold(Resource::Timers)?,
            _limited: bounds.limits.hold_amount(Resource::Later, all)?,
            _program: program.inner().later.hold_amount(Resource::Later, all)?,
        })
    }
}

/// The timers of a process, by number. They fire even if the process has ended.
#[derive(Debug, Default)]
pub(super) struct Timers {
    last: i64,
    /// Each with a reference that is dead once the timer has fired.
    set: BTreeMap<i64, (Timer, Weak<()>)>,
    /// The number of timers that the last sweep has left.
    kept: usize,
}

impl Timers {
    /// Sends a message after a delay. The charges for the timer and for its message end when it
    /// fires. From then on the message counts for its receiver. Returns the number of the timer.
    pub(super) fn send_after(
        &mut self,
        delay: Duration,
        to: Pid,
        content: Content,
        charges: Charges,
    ) -> Result<i64, String> {
        self.sweep();
        if self.set.len() >= TIMERS_MAX {
            return Err(format!("a process may have {TIMERS_MAX} timers at a time"));
        }
        let pending = Arc::new(());
        let fired = Arc::downgrade(&pending);
        let timer = run_after(delay, move || {
            drop((pending, charges));
            message::send_late(to, content);
        });
        let timer = timer.map_err(|error| error.to_string())?;
        self.last += 1;
        self.set.insert(self.last, (timer, fired));
        Ok(self.last)
    }

    /// Returns `true` if the timer had not fired yet. Its message is not sent then.
    pub(super) fn cancel(&mut self, number: i64) -> bool {
        self.set.remove(&number).is_some_and(|(timer, _)| timer.cancel())
    }

    /// Forgets the timers that have fired, if there may be many.
    fn sweep(&mut self) {
        let is_due = self.set.len() >= SWEEP_MIN.max(2 * self.kept);
        if is_due || self.set.len() >= TIMERS_MAX {
            self.set.retain(|_, (_, fired)| fired.strong_count() > 0);
            self.kept = self.set.len();
        }
    }
}
