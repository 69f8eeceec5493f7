//! What a handle can do besides await its process: it waits on a plain thread, and changes the
//! priority.

use std::time::Duration;

use crate::Exit;
use crate::process::priority::{Priority, set_priority};
use crate::scheduler::block_on;
use crate::scheduler::settle::SettledOutput;
use crate::spawn::join_handle::JoinHandle;
use crate::time;

impl<T: Send + 'static> JoinHandle<T> {
    /// Waits for the result on a plain thread.
    ///
    /// It then waits for [writes](crate::fs#at-the-end) that the scheduler accepted during the
    /// call, for at most 10 s, as [`block_on`](crate::Scheduler::block_on) does. These may be
    /// writes of other processes. [`join_timeout`](Self::join_timeout) does not wait for writes,
    /// because its caller has limited the time.
    ///
    /// # Errors
    /// Returns the [`Exit`] of a process that ended without a result.
    ///
    /// # Panics
    /// Panics if the result was taken before, by polling the handle.
    ///
    /// # Blocking
    /// Blocks the thread. In a process, await the handle instead; there, this is
    /// [`Scheduler::block_on`](crate::Scheduler::block_on).
    pub fn join(self) -> Result<T, Exit> {
        match self.shared() {
            Some(shared) => {
                let _settled = SettledOutput::of(&shared);
                block_on::block_on(&shared, self)
            }
            None => Err(Exit::Refused),
        }
    }

    /// Waits for the result on a plain thread, for at most `timeout`.
    ///
    /// # Errors
    /// Returns the handle if the timeout is over before the process has ended.
    ///
    /// # Panics
    /// Panics if the result was taken before, by polling the handle.
    ///
    /// # Blocking
    /// Blocks the thread, like [`join`](Self::join).
    pub fn join_timeout(mut self, timeout: Duration) -> Result<Result<T, Exit>, Self> {
        let Some(shared) = self.shared() else {
            return Ok(Err(Exit::Refused));
        };
        match block_on::block_on(&shared, async { time::timeout(timeout, &mut self).await }) {
            Ok(result) => Ok(result),
            Err(_) => Err(self),
        }
    }

    /// Changes the priority of the process. Returns `true` if it exists. See
    /// [`process::set_priority`](crate::process::set_priority()).
    pub fn set_priority(&self, priority: Priority) -> bool {
        set_priority(self.pid(), priority)
    }
}
