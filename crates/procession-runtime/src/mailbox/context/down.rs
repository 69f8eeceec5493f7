//! Waits for the answer of a monitor.

use std::future::poll_fn;
use std::task::Context as TaskContext;

use super::{Context, Event};
use crate::process::wait_edge::{WaitProof, mutation};
use crate::process::wait_reason::{WaitTarget, Waiting};
use crate::process::waker;
use crate::relations::monitors;
use crate::relations::signal::{Down, MonitorRef, Signal};
use crate::scheduler::current;

impl<M: Send + 'static> Context<M> {
    pub(super) async fn recv_down(&mut self, monitor: MonitorRef) -> Option<Down> {
        let mut looks_aside = true;
        let mut pick = |context: &mut Self| {
            let left = std::mem::take(&mut looks_aside).then(|| context.take_down_aside(monitor));
            left.flatten().or_else(|| context.pick_down(monitor))
        };
        let mut recv = self.recv();
        poll_fn(|task| {
            let before = recv.context.slot.waiting.get();
            let polled = recv.poll_mailbox(task, false, &mut pick);
            if polled.is_pending() && recv.waits {
                recv.context.note_wait_for(monitor, before, task);
            }
            polled
        })
        .await
    }

    /// Takes the answer, if it was put aside.
    fn take_down_aside(&mut self, monitor: MonitorRef) -> Option<Down> {
        self.pass_mark();
        let is_it =
            |signal: &Signal| matches!(signal, Signal::Down(down) if down.monitor == monitor);
        let signals = &mut self.aside()?.signals;
        let place = signals.iter().position(|(_, signal)| is_it(signal))?;
        let (_, Signal::Down(down)) = signals.remove(place)? else { return None };
        self.note_answered(monitor);
        Some(down)
    }

    fn pick_down(&mut self, monitor: MonitorRef) -> Option<Down> {
        if self.marked().is_some_and(|marked| marked.since <= monitor) {
            return self.pick_down_behind_mark(monitor);
        }
        while let Some(event) = self.take_charged() {
            match event {
                Event::Down(down) if down.monitor == monitor => return Some(down),
                other => self.put_aside(other),
            }
        }
        None
    }

    /// Notes that the process waits for the end of the process that it monitors. `before` are the
    /// reasons that its step had noted before.
    fn note_wait_for(&self, monitor: MonitorRef, before: Waiting, task: &TaskContext<'_>) {
        let is_message = mutation::is(mutation::BUILT, mutation::MESSAGE_ENDS_DOWN);
        if before == Waiting::default() && !is_message {
            // A message wakes the process, but does not end the wait.
            self.slot.waiting.forget(Waiting::MESSAGE);
        }
        // Without a target, the monitor is not pending, and nothing but a cancel ends the wait.
        let target = monitors::target(&self.slot, monitor).unwrap_or(WaitTarget::UNKNOWN);
        let proof = WaitProof::Monitor(monitor.low_bits());
        current::note_waiting_for(waker::lender(task.waker()), Waiting::PROCESS, target, proof);
    }
}
