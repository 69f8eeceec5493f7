//! The body of a local process: a future that is not `Send`, and stays on one thread.
//!
//! A closure, which is `Send`, makes the future in the first step. Until then any worker may take
//! the process; from then on it is bound to the thread like a coroutine that has begun.

use std::any::Any;
use std::future::Future;
use std::marker::PhantomData;
use std::mem;
use std::pin::Pin;
use std::task::{Context as TaskContext, Poll};

use crate::Exit;
use crate::process::body::{Body, Step};
use crate::process::exit::Judge;
use crate::process::residence::{Begin, Residence, ResidentKind};
use crate::process::slot::Slot;
use crate::scheduler::current;

/// The body of a local process. `J` decides how the process ends once it has an output.
///
/// ## Invariants
/// - `[own thread]` The future is made, polled and dropped by the thread that runs the first step.
///   The process is bound to that thread's seat, and a seat for callers is given to no other thread
///   while such processes live there. The thread ends them before it ends itself
///   (`scheduler/thread_end.rs`).
pub(crate) struct LocalBody<C, F: Future, J> {
    stage: LocalStage<C, F>,
    residence: Residence,
    judge: PhantomData<fn() -> J>,
}

enum LocalStage<C, F: Future> {
    Fresh(C),
    Runs(F),
    Ended(Result<F::Output, Exit>),
    Taken,
}

// SAFETY: [own thread] for the future; a closure that has not run and a result are `Send`.
unsafe impl<C: Send, F: Future, J> Send for LocalBody<C, F, J> where F::Output: Send {}

impl<C, F: Future, J> LocalBody<C, F, J> {
    pub(crate) fn new(make: C) -> Self {
        Self {
            stage: LocalStage::Fresh(make),
            residence: Residence::new(ResidentKind::Local),
            judge: PhantomData,
        }
    }
}

impl<C, F, J> LocalBody<C, F, J>
where
    C: FnOnce() -> F,
    F: Future,
{
    /// Makes the future, if this is where the process begins.
    #[cold]
    fn begin(&mut self, slot: &Slot) -> Begin {
        let begin = current::with_local(|local| {
            let local = local.expect("[seat] processes run on workers");
            let begin = self.residence.choose(slot, local);
            if begin == Begin::Here {
                self.residence.begin(slot, local);
            }
            begin
        });
        if begin == Begin::Here
            && let LocalStage::Fresh(make) = mem::replace(&mut self.stage, LocalStage::Taken)
        {
            self.stage = LocalStage::Runs(make());
        }
        begin
    }
}

impl<C, F, J> Body for LocalBody<C, F, J>
where
    C: FnOnce() -> F + Send + 'static,
    F: Future + 'static,
    F::Output: Send + 'static,
    J: Judge<F::Output> + 'static,
{
    fn step(&mut self, slot: &Slot, task: &mut TaskContext<'_>) -> Step {
        if let LocalStage::Fresh(_) = self.stage
            && self.begin(slot) == Begin::Later
        {
            return Step::GoesOn;
        }
        let LocalStage::Runs(future) = &mut self.stage else {
            return Step::Ended(None);
        };
        self.residence.assert_here();
        // SAFETY: [in place]
        match unsafe { Pin::new_unchecked(future) }.poll(task) {
            Poll::Ready(output) => {
                // The assignment drops the future in place.
                self.stage = LocalStage::Ended(Ok(output));
                self.residence.leave(slot);
                match &self.stage {
                    // If this panics, `end` replaces the output.
                    LocalStage::Ended(Ok(output)) => Step::judged(J::judge(output)),
                    _ => Step::Ended(None),
                }
            }
            Poll::Pending => Step::Waits(slot.waiting.get().wait_phase()),
        }
    }

    fn end(&mut self, slot: &Slot, exit: Exit) {
        if let LocalStage::Runs(_) = self.stage {
            self.residence.assert_here();
        }
        /// Releases the thread. A panic of the `Drop` of the future does not prevent this.
        struct Leaves<'a>(&'a mut Residence, &'a Slot);

        impl Drop for Leaves<'_> {
            fn drop(&mut self) {
                self.0.leave(self.1);
            }
        }

        let _leaves = Leaves(&mut self.residence, slot);
        self.stage = LocalStage::Ended(Err(exit));
    }

    fn take_result(&mut self, result: &mut dyn Any) {
        if let LocalStage::Ended(ended) = mem::replace(&mut self.stage, LocalStage::Taken)
            && let Some(result) = result.downcast_mut::<Option<Result<F::Output, Exit>>>()
        {
            *result = Some(ended);
        }
    }
}

impl<C, F: Future, J> Drop for LocalBody<C, F, J> {
    fn drop(&mut self) {
        // A body is dropped after its end, and then has no future.
        if let LocalStage::Runs(_) = self.stage {
            self.residence.assert_here();
        }
    }
}
