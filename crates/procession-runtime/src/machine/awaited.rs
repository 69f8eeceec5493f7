//! The futures that a state machine awaits by commands.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context as TaskContext, Poll};

use crate::machine::value::{CommandError, CommandResult, Value};
use crate::process::unwind::{drop_guarded, guarded};

/// A future with an output of any type. The input of [`CommandId::ASYNC`].
///
/// [`CommandId::ASYNC`]: crate::machine::value::CommandId::ASYNC
pub(crate) struct AnyFuture(pub(crate) Pin<Box<dyn Future<Output = Value> + Send>>);

/// Room for more futures than this is released when no future is left.
const KEPT: usize = 4;

/// The futures that a state machine awaits, with the tags of their commands. They are polled in
/// steps of the process, so their work is charged to the process, and the end of the process drops
/// them.
#[derive(Default)]
pub(crate) struct AwaitedFutures(Vec<(u64, AnyFuture)>);

impl AwaitedFutures {
    pub(crate) fn push(&mut self, tag: u64, future: AnyFuture) {
        self.0.push((tag, future));
    }

    /// Polls all futures, the oldest first. If a future is complete, passes its result to
    /// `complete`.
    #[inline]
    pub(crate) fn poll(
        &mut self,
        task: &mut TaskContext<'_>,
        complete: &mut dyn FnMut(u64, CommandResult),
    ) {
        if !self.0.is_empty() {
            self.poll_each(task, complete);
        }
    }

    fn poll_each(
        &mut self,
        task: &mut TaskContext<'_>,
        complete: &mut dyn FnMut(u64, CommandResult),
    ) {
        let mut at = 0;
        while let Some((tag, future)) = self.0.get_mut(at) {
            let result = match guarded(|| future.0.as_mut().poll(task)) {
                Ok(Poll::Pending) => {
                    at += 1;
                    continue;
                }
                Ok(Poll::Ready(output)) => Ok(output),
                Err(exit) => Err(CommandError::Failed(exit.to_string().into())),
            };
            let tag = *tag;
            drop_guarded(self.0.remove(at));
            complete(tag, result);
        }
        if self.0.is_empty() && self.0.capacity() > KEPT {
            self.0 = Vec::new();
        }
    }

    /// Drops all futures, one by one.
    pub(crate) fn clear(&mut self) {
        while let Some(future) = self.0.pop() {
            drop_guarded(future);
        }
    }
}
