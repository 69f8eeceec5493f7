//! Messages that are sent after a delay.

use std::sync::Arc;
use std::time::Duration;

use crate::mailbox::address::{Address, send};
use crate::mailbox::dead_letter;
use crate::mailbox::dead_letter::DeadCause;
use crate::mailbox::request;
use crate::mailbox::send_error::{SendError, SendErrorKind};
use crate::scheduler::owner;
use crate::sys::nanoseconds;
use crate::time::action::Action;
use crate::time::arm::arm_function;

impl<M: Send + 'static> Address<M> {
    /// Sends the message after `delay`, counted from now. If it is refused then, it becomes a [dead
    /// letter](crate::mailbox::dead_letter::DeadLetter). The timer belongs to the scheduler of the
    /// receiver. For a process of another node, the timer belongs to the scheduler of the caller,
    /// or to the default scheduler if the calling thread belongs to none, and the message carries
    /// no request id. The timer is not cancelled when the calling process ends.
    ///
    /// # Errors
    /// [`SendError`] returns the message if the process has ended, or the scheduler has reached its
    /// limit of timers.
    pub fn send_after(&self, delay: Duration, message: M) -> Result<(), SendError<M>> {
        let pid = self.pid();
        let here;
        let (shared, far, request) = match self.slot() {
            Some(slot) if !slot.state.see().is_complete() => {
                let request = slot.bound.has_headers().then(request::context).flatten();
                (slot.shared(), None, request)
            }
            None if self.far_process().is_some() => {
                here = owner::here();
                (&**here, Some(self.clone()), None)
            }
            _ => return Err(SendError::ended(message, pid)),
        };
        let when = shared.world.now().saturating_add(nanoseconds(delay));
        let message = Arc::new(procession_sync::Mutex::new(Some(message)));
        let fired = Arc::clone(&message);
        let take = |cell: &procession_sync::Mutex<Option<M>>| cell.lock().take();
        let me = shared.identity.me.clone();
        // By PID, because a pin in the timer would keep the scheduler that holds the timer.
        let send_now = move |message| match &far {
            Some(address) => address.send(message),
            None => request::within(request.clone(), || send(pid, message)),
        };
        let action = Action::Call(Arc::new(move || {
            if let Some(message) = take(&fired)
                && let Err(error) = send_now(message)
                && let Some(shared) = me.upgrade()
            {
                dead_letter::bury(
                    shared.extensions.dead_letters(),
                    pid,
                    DeadCause::Late,
                    error.into_inner(),
                );
            }
        }));
        match arm_function(shared, when, None, action) {
            Ok(_) => Ok(()),
            Err(_) => {
                let message = take(&message).expect("the timer was refused, so it has not fired");
                Err(SendError::new(message, pid, SendErrorKind::TimerLimit))
            }
        }
    }
}
