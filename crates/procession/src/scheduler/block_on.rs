//! Futures that threads wait for, and which are no processes.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll, Wake as StdWake, Waker};

use procession_sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use procession_sync::atomic::{AtomicBool, AtomicU8};

use crate::coroutine::{self, Resuming, Running};
use crate::scheduler::current::{self, Entered, Here, Section};
use crate::scheduler::handle::BlockOnError;
use crate::scheduler::shared::Shared;
use crate::scheduler::worker::{Stay, sit};
use crate::sys::{LentThread, Parker};

/// What wakes a root future: a future that a thread waits for, and which is no process.
///
/// A root that is `READY` is counted by its scheduler from its wake-up until it has been polled: the test clock stands still for it, also
/// while its thread has not woken up yet.
pub(crate) struct Root {
    shared: Arc<Shared>,
    state: AtomicU8,
    /// Whether its thread asks whether it may wait (`scheduler/wait_cycle.rs`).
    asks: AtomicBool,
    /// Whether it is being polled, or was complete then.
    polls: AtomicBool,
    /// Where the thread parks while it has no seat.
    parker: Parker,
}

mod phase {
    pub(super) const WAITS: u8 = 0;
    /// Woken, and to be polled; counted.
    pub(super) const READY: u8 = 1;
    /// Complete: nobody polls it any more.
    pub(super) const GONE: u8 = 2;
}

impl Root {
    fn new(shared: &Arc<Shared>) -> Self {
        shared.count_ready_root();
        Self {
            shared: Arc::clone(shared),
            state: AtomicU8::new(phase::READY),
            asks: AtomicBool::new(false),
            polls: AtomicBool::new(false),
            parker: Parker::default(),
        }
    }

    /// The scheduler that runs what it waits for.
    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Whether its thread waits for it, or is about to, and nothing has woken it.
    pub(crate) fn stands_still(&self) -> bool {
        // Ordering: Acquire pairs with the Release of `poll_if_ready`, twice: whoever finds it taken finds it being polled, and whoever finds that
        // over finds the wake-up that came meanwhile. That of `asks` pairs with `set_asking`.
        self.asks.load(Acquire)
            || !self.polls.load(Acquire) && self.state.load(Acquire) == phase::WAITS && !self.polls.load(Acquire)
    }

    /// Its thread asks whether it may wait, or does so no more.
    pub(crate) fn set_asking(&self, asks: bool) {
        // Ordering: Release pairs with the Acquire of `stands_still`.
        self.asks.store(asks, Release);
    }

    #[inline]
    pub(crate) fn is_ready(&self) -> bool {
        // Ordering: Acquire pairs with the Release of `wake`.
        self.state.load(Acquire) == phase::READY
    }

    /// Polls the future if it was woken; says whether it is complete.
    #[inline]
    pub(crate) fn poll_if_ready(&self, poll: &mut dyn FnMut() -> bool) -> bool {
        // Ordering: Acquire pairs with the Release of `wake`. A load first: this is looked at before every dispatch.
        if !self.is_ready() {
            return false;
        }
        // Relaxed: published by the Release of the exchange, which pairs with the Acquire of `stands_still`.
        self.polls.store(true, Relaxed);
        if self.state.compare_exchange(phase::READY, phase::WAITS, AcqRel, Relaxed).is_err() {
            self.polls.store(false, Relaxed);
            return false;
        }
        let _counted = Counted(&self.shared);
        let is_complete = poll();
        // Ordering: Release pairs with the Acquire of `stands_still`.
        self.polls.store(is_complete, Release);
        is_complete
    }
}

/// A caller that waits for the seat: when it goes, it is forgotten.
struct Caller<'a> {
    shared: &'a Shared,
    /// Once it has waited.
    number: Option<u64>,
}

impl Caller<'_> {
    fn wait(&mut self, waker: &Waker) {
        let number = *self.number.get_or_insert_with(|| self.shared.number_caller());
        self.shared.wait_for_seat(number, waker);
    }
}

impl Drop for Caller<'_> {
    fn drop(&mut self) {
        if let Some(number) = self.number {
            self.shared.forget_caller(number);
        }
    }
}

/// A root that is counted as ready while it is polled, also if the poll panics.
struct Counted<'a>(&'a Shared);

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.uncount_ready_root();
    }
}

/// The thread's own hold of the root: when it goes, the root is `GONE`.
struct RootHold(Arc<Root>);

impl Drop for RootHold {
    fn drop(&mut self) {
        if self.0.state.swap(phase::GONE, AcqRel) == phase::READY {
            self.0.shared.uncount_ready_root();
        }
    }
}

impl StdWake for Root {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        // Before it is seen to be ready, so that the count is never too small.
        self.shared.count_ready_root();
        // Ordering: Release pairs with the Acquire of `poll_if_ready`.
        if self.state.compare_exchange(phase::WAITS, phase::READY, AcqRel, Acquire).is_err() {
            return self.shared.uncount_ready_root();
        }
        self.parker.unpark();
        if self.shared.callers_drive() {
            // It may be this thread that sits there.
            self.shared.wake_caller();
        }
    }
}

/// Whether this thread works for `shared`, or waits in it. Not inlined: beside a suspension, after which a coroutine may be on another thread, there
/// must be no address of a thread's words.
#[inline(never)]
fn is_here(shared: &Arc<Shared>) -> bool {
    current::here().is_some_and(|own| Arc::ptr_eq(&own, shared))
}

/// Polls `future` until it is complete: in a coroutine, which is suspended meanwhile, or on this thread. If the scheduler is driven by its
/// callers, the thread works there meanwhile, as soon as the seat is free. In a process this is a blocking section.
///
/// # Errors
/// The future itself, if nobody would be left who could run what it waits for.
pub(crate) fn try_block_on<F: Future>(shared: &Arc<Shared>, future: F) -> Result<F::Output, BlockOnError<F>> {
    if !coroutine::may_suspend() {
        return try_block_thread_on(shared, future);
    }
    if is_here(shared) {
        return Ok(coroutine::wait(future));
    }
    if shared.callers_drive() {
        // Nobody else may ever drive it.
        return try_block_thread_on(shared, future);
    }
    // What the future starts goes to the scheduler that was named.
    let mut future = pin!(future);
    Ok(coroutine::wait(poll_fn(|task| {
        let _entered = Entered::enter(Here::Outside(Arc::clone(shared)));
        #[cfg(feature = "tokio")]
        let _context = crate::bridge::enter(shared.bridge.as_deref());
        future.as_mut().poll(task)
    })))
}

fn try_block_thread_on<F: Future>(shared: &Arc<Shared>, future: F) -> Result<F::Output, BlockOnError<F>> {
    let section = Section::enter();
    let root = RootHold(Arc::new(Root::new(shared)));
    let Some(_wait) = section.wait_for(&root.0) else { return Err(BlockOnError(future)) };
    Ok(block_in_section(shared, future, &root.0))
}

/// As `try_block_on`; panics if that refuses: for interfaces whose results have no room for it.
pub(crate) fn block_on<F: Future>(shared: &Arc<Shared>, future: F) -> F::Output {
    match try_block_on(shared, future) {
        Ok(output) => output,
        Err(refused) => panic!("{refused}"),
    }
}

/// As `block_on`, on this thread. While the thread panics it is not refused: a second panic would end the program, and somebody from outside
/// may come.
pub(crate) fn block_thread_on<F: Future>(shared: &Arc<Shared>, future: F) -> F::Output {
    match try_block_thread_on(shared, future) {
        Ok(output) => output,
        Err(refused) => panic!("{refused}"),
    }
}

fn block_in_section<F: Future>(shared: &Arc<Shared>, future: F, root: &Arc<Root>) -> F::Output {
    let _lent = LentThread;
    let mut future = pin!(future);
    let mut output = None;
    let waker = Waker::from(Arc::clone(root));
    // The future belongs to what runs here, perhaps a coroutine. The processes and timers that this
    // thread runs meanwhile do not.
    let running = Running::now();
    let _turned = Resuming::with(Running::NOTHING);
    let mut poll = || {
        let _resuming = Resuming::with(running);
        match future.as_mut().poll(&mut TaskContext::from_waker(&waker)) {
            Poll::Ready(value) => {
                output = Some(value);
                true
            }
            Poll::Pending => false,
        }
    };
    let mut caller = Caller { shared, number: None };
    loop {
        if let Some((seat, core)) = shared.take_callers_seat() {
            sit(Arc::clone(shared), seat, core, false, Stay::Root(root, &mut poll));
            if shared.must_be_drained() {
                drain(shared);
            }
            break;
        }
        let _entered = Entered::enter(Here::Outside(Arc::clone(shared)));
        #[cfg(feature = "tokio")]
        let _context = crate::bridge::enter(shared.bridge.as_deref());
        if root.poll_if_ready(&mut poll) {
            break;
        }
        if shared.callers_drive() {
            caller.wait(&waker);
            if shared.has_free_seat() {
                continue;
            }
        }
        // This thread fires the timers of threads that are no workers itself, whatever the workers do.
        if shared.fire(&shared.outside) == 0 && !root.is_ready() {
            shared.world.park(&root.parker, shared.outside.next());
        }
    }
    output.expect("the loop ends when the future is complete")
}

/// Ends the processes of a scheduler that is driven by its callers, and which none may come to any more. On this thread, unless that is in a
/// step of this scheduler, which would wait for itself: then on one of its own, if the seat is free.
pub(crate) fn drain(shared: &Arc<Shared>) {
    if !shared.is_worked_for_here() {
        run_until_idle(shared);
    } else if shared.has_free_seat() {
        let drained = Arc::clone(shared);
        let drive = move || {
            run_until_idle(&drained);
        };
        // If the system refuses the thread, what is bound to the callers' worker is left; the others end the rest.
        drop(shared.world.start_thread(format!("{}-end", shared.name()), drive));
    }
}

/// Runs processes on this thread until none can run; the scheduler is driven by its callers. Says whether the seat was free.
pub(crate) fn run_until_idle(shared: &Arc<Shared>) -> bool {
    match shared.take_callers_seat() {
        Some((seat, core)) => {
            let _turned = Resuming::with(Running::NOTHING);
            sit(Arc::clone(shared), seat, core, false, Stay::Idle);
            true
        }
        None => false,
    }
}

#[cfg(test)]
mod tests;
