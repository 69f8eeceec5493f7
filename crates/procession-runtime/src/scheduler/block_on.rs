//! Block-on futures: futures that a thread waits for, and that are not processes.

mod noted;

use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll, Waker};

use self::noted::NotedWaits;
use crate::process::unwind::text_of;
use crate::scheduler::current;
use crate::scheduler::current::{Current, Entered};
use crate::scheduler::entries::EntriesTurn;
use crate::scheduler::frame::{SavedStep, SetAside, suspendable};
use crate::scheduler::handle_error::BlockOnError;
use crate::scheduler::local::Stay;
use crate::scheduler::root::{BlockOnFuture, BlockOnHold};
use crate::scheduler::section::Section;
use crate::scheduler::shared::Shared;
use crate::scheduler::thread_end::Visit;
use crate::scheduler::worker::sit;
use crate::sys::LentThread;
use crate::util::exclusive::Exclusive;

/// A caller that waits for the callers' seat. Its drop removes it from the list of waiting callers.
struct SeatCaller<'a> {
    shared: &'a Shared,
    /// The number of the caller, once it has waited.
    number: Option<u64>,
}

impl SeatCaller<'_> {
    fn wait(&mut self, waker: &Waker) {
        let number = *self.number.get_or_insert_with(|| self.shared.callers.number());
        self.shared.callers.wait_for_seat(number, waker);
    }
}

impl Drop for SeatCaller<'_> {
    fn drop(&mut self) {
        if let Some(number) = self.number {
            self.shared.callers.forget(number);
        }
    }
}

/// Returns `true` if this thread works for `shared`, or waits in it.
///
/// Not inlined: a coroutine may go on on another thread after a suspension, so the code around a
/// suspension must not hold the address of a thread-local.
#[inline(never)]
fn is_here(shared: &Arc<Shared>) -> bool {
    current::here().is_some_and(|own| Arc::ptr_eq(&own, shared))
}

/// Polls `future` until it is complete.
///
/// A coroutine that calls this is suspended until the future completes. Otherwise the thread waits,
/// which in a process is a blocking section. If callers drive the scheduler, the thread works for
/// it as soon as the callers' seat is free.
///
/// # Errors
/// The future, if no thread would be left to run what the future waits for.
pub(crate) fn try_block_on<F: Future>(
    shared: &Arc<Shared>,
    future: F,
) -> Result<F::Output, BlockOnError<F>> {
    let Some(coroutine) = suspendable() else {
        return try_block_thread_on(shared, future);
    };
    let elsewhere = !is_here(shared);
    if elsewhere && shared.callers.drive {
        // If the coroutine were suspended, possibly no thread would ever drive the scheduler.
        return try_block_thread_on(shared, future);
    }
    let mut future = pin!(future);
    Ok(coroutine.wait(pin!(poll_fn(|task| {
        // Processes that the future spawns belong to `shared`.
        let _entered = elsewhere.then(|| Entered::enter(Current::outside(Arc::clone(shared))));
        if elsewhere {
            shared.parts.enter(false, || future.as_mut().poll(task))
        } else {
            future.as_mut().poll(task)
        }
    }))))
}

fn try_block_thread_on<F: Future>(
    shared: &Arc<Shared>,
    future: F,
) -> Result<F::Output, BlockOnError<F>> {
    let section = Section::enter();
    let root = BlockOnHold(Arc::new(BlockOnFuture::new(shared)));
    let Some(_wait) = section.wait_for(&root.0) else {
        return Err(BlockOnError(Exclusive::new(future)));
    };
    Ok(poll_in_section(shared, &root.0, future))
}

/// Polls `future` on this thread until it is complete. No thread of a scheduler is needed for that,
/// so the wait is never refused. Nor is it registered, because a scheduler whose thread waits here
/// is not stuck.
pub(crate) fn block_on_helper<F: Future>(shared: &Arc<Shared>, future: F) -> F::Output {
    let _section = Section::enter();
    let root = BlockOnHold(Arc::new(BlockOnFuture::new(shared)));
    poll_in_section(shared, &root.0, future)
}

fn poll_in_section<F: Future>(
    shared: &Arc<Shared>,
    root: &Arc<BlockOnFuture>,
    future: F,
) -> F::Output {
    let _lent = LentThread;
    let mut future = pin!(future);
    let mut output = None;
    block_in_section(shared, root, &mut |task| match future.as_mut().poll(task) {
        Poll::Ready(value) => {
            output = Some(value);
            true
        }
        Poll::Pending => false,
    });
    output.expect("the future is complete")
}

/// Does the same as `try_block_on`, but panics instead of returning an error.
pub(crate) fn block_on<F: Future>(shared: &Arc<Shared>, future: F) -> F::Output {
    match try_block_on(shared, future) {
        Ok(output) => output,
        Err(refused) => panic!("{refused}"),
    }
}

/// Does the same as `block_on`, but on this thread even in a coroutine. While the thread panics,
/// the call is never refused: a second panic would end the program, and a thread from outside may
/// still run what the future waits for.
pub(crate) fn block_thread_on<F: Future>(shared: &Arc<Shared>, future: F) -> F::Output {
    match try_block_thread_on(shared, future) {
        Ok(output) => output,
        Err(refused) => panic!("{refused}"),
    }
}

/// Calls `poll` whenever `root` is woken, until it returns `true`.
///
/// A program has an instance of the callers of this for each future that a thread waits for, so
/// this knows nothing of the future's type.
fn block_in_section(
    shared: &Arc<Shared>,
    root: &Arc<BlockOnFuture>,
    poll: &mut dyn FnMut(&mut TaskContext<'_>) -> bool,
) {
    let waker = Waker::from(Arc::clone(root));
    let noted = NotedWaits::begin(root);
    // The future belongs to the code that runs here, perhaps a coroutine. The processes and timers
    // that this thread runs during the wait do not.
    let running = SavedStep::now();
    let _aside = SetAside::all();
    let mut poll = || {
        let _running = SetAside::for_running(running);
        let _turn = EntriesTurn::begin();
        match &noted {
            Some(noted) => noted.poll(poll),
            None => {
                let poll = AssertUnwindSafe(|| poll(&mut TaskContext::from_waker(&waker)));
                catch_unwind(poll).unwrap_or_else(|payload| {
                    if current::current().is_none() {
                        shared.parts.block_on_panicked(shared, text_of(&*payload));
                    }
                    resume_unwind(payload)
                })
            }
        }
    };
    let mut caller = SeatCaller { shared, number: None };
    loop {
        if let Some((seat, core)) = shared.workforce.take_callers_seat() {
            let visit = Visit(shared);
            sit(Arc::clone(shared), seat, core, false, Stay::BlockOn(root, &mut poll));
            drop(visit);
            if shared.must_be_drained() {
                drain(shared);
            }
            break;
        }
        let here = Current::Outside { shared: Arc::clone(shared), on_behalf_of: None, fires: true };
        let _entered = Entered::enter(here);
        let is_over = shared.parts.enter(false, || {
            if root.poll_if_ready(&mut poll) {
                return true;
            }
            shared.world.point();
            if shared.callers.drive {
                caller.wait(&waker);
                if shared.workforce.idle.has_absent(current::thread_number()) {
                    return false;
                }
            }
            // This thread itself fires the timers that threads other than workers have set,
            // whatever the workers do.
            if shared.fire(&shared.clock.outside) == 0 && !root.is_ready() {
                shared.world.park(&root.parker, shared.clock.outside.next());
            }
            false
        });
        if is_over {
            break;
        }
    }
}

/// Ends the processes of a scheduler that callers drive and to which no caller may come any more.
///
/// This happens on the calling thread, unless it is in a step of this scheduler, which would wait
/// for itself. In that case a new thread does it, if the callers' seat is free.
pub(crate) fn drain(shared: &Arc<Shared>) {
    if !shared.workforce.seats.has_this_thread() {
        run_until_idle(shared);
    } else if shared.workforce.idle.has_absent(current::thread_number()) {
        let drained = Arc::clone(shared);
        let drive = move || {
            run_until_idle(&drained);
        };
        // If the system refuses the thread, the processes that are bound to the callers' worker are
        // left. The other workers end the rest.
        drop(shared.world.start_thread(format!("{}-end", shared.name()), drive));
    }
}

/// Runs processes of a scheduler that callers drive on this thread until none can run. Returns
/// `true` if the seat was free.
pub(crate) fn run_until_idle(shared: &Arc<Shared>) -> bool {
    match shared.workforce.take_callers_seat() {
        Some((seat, core)) => {
            let _aside = SetAside::all();
            let _visit = Visit(shared);
            sit(Arc::clone(shared), seat, core, false, Stay::Idle);
            true
        }
        None => false,
    }
}

#[cfg(test)]
mod tests;
