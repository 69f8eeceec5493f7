//! Coroutines: processes written as straight-line code that blocks.
//!
//! A coroutine has a stack of its own. Where it waits, its stack is left as it is and its worker runs others. All that processes can await, a
//! coroutine can [`wait`] for: messages, sleeps, channels, locks, calls, the ends of other processes.
//!
//! ```
//! use std::time::Duration;
//! use procession::{Reply, Scheduler, co};
//!
//! enum Count {
//!     Add(u64),
//!     Get(Reply<u64>),
//! }
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // SAFETY: none of the coroutines holds a thread-local pointer that is scoped to a frame across a suspension.
//! let scheduler = unsafe { Scheduler::builder().enable_coroutines() }.build()?;
//! let total = scheduler.block_on(async {
//!     let counter = procession::spawn_coroutine(|mut cx: co::Context<Count>| {
//!         let mut n = 0;
//!         while let Some(message) = cx.receive() {
//!             match message {
//!                 Count::Add(k) => n += k,
//!                 Count::Get(reply) => reply.send(n),
//!             }
//!         }
//!     })?;
//!     let address = counter.address().clone();
//!     let asks = procession::spawn_coroutine(move |cx: co::Context<()>| {
//!         for k in 1..=10 {
//!             cx.sleep(Duration::from_micros(1));
//!             address.send(Count::Add(k)).expect("it is there");
//!         }
//!         cx.call(&address, Count::Get, Duration::from_secs(1))
//!     })?;
//!     Ok::<_, Box<dyn std::error::Error>>(asks.await??)
//! })?;
//! assert_eq!(total, 55);
//! # Ok(())
//! # }
//! ```
//!
//! # Where coroutines run
//!
//! One that has not begun is a closure in a queue, without a stack, and any worker may take it. The worker that first resumes it keeps it: so
//! addresses of thread-locals, values that are not `Send`, `errno` and lock guards stay right on its stack. A worker that has many more
//! of them than another gives new ones away before they begin; one that has some to go on with, which no other can, leaves new ones to those that
//! have none, for a while. What is bound to a worker that computes or blocks for long waits.
//!
//! The [residual rule](procession_coroutine#the-residual-rule) in its three parts cannot be
//! checked, and is what
//! [`Builder::enable_coroutines`](crate::Builder::enable_coroutines) makes you promise.
//!
//! # Ends
//!
//! | what happens | what becomes of the coroutine |
//! |---|---|
//! | it returns | its result, as of every process |
//! | it panics | its stack is unwound, [`Exit::Panicked`] |
//! | it is cancelled or terminated below a frame that cannot be unwound, as one of C | the program aborts: keep such frames in [`no_suspend`] |
//! | it is cancelled | [`receive`](Context::receive) answers `None` once the mailbox is empty; where it waits for anything else, or comes to, its stack is unwound, on its worker: [`Exit::Shutdown`]. Inside [`shield`] it is not |
//! | it is terminated, also by the end of a shutdown's patience or because its scheduler was dropped | its stack is unwound, on its worker, whatever it waits for but [`blocking`]: [`Exit::Killed`] |
//! | it catches the unwinding and waits again | it is unwound again, a hundred times; then its stack is leaked and its worker's thread never ends: [`Exit::Killed`] |
//! | it is unwound in a program that aborts on panics | likewise leaked, when terminated; when cancelled, it goes on until it returns or is terminated (`examples/aborting`) |
//! | it overflows its stack | a report names it and where it was spawned, and the program aborts |
//!
//! Code that catches panics should let those that [`is_unwinding`] names go on.
//!
//! # Where a coroutine cannot be suspended
//!
//! While it panics or is unwound, inside [`no_suspend`] and [`blocking`](crate::blocking()), while
//! it drives another scheduler ([`callers_drive`](crate::Builder::callers_drive)), and inside the
//! `poll` of a future that it waits for, what would suspend it blocks
//! its worker's thread instead: the frames below count on nothing else running on that thread meanwhile. Anything it waits for there has to come
//! from another thread. If all threads that the scheduler may have are blocked already, waiting there panics.
//!
//! What runs in another scheduler that a coroutine drives runs outside of the coroutine.
//!
//! Called outside of coroutines, the functions of this module do what comes nearest: [`wait`], [`sleep`] and [`yield_now`] block or
//! yield the thread, [`Local`] is thread-local, [`no_suspend`], [`shield`] and [`blocking`] just call, and [`suspend`] says that there is
//! nothing to suspend.

mod count;
#[expect(unsafe_code, reason = "the frame lies on the stack of the coroutine")]
pub(crate) mod frame;
pub(crate) mod helpers;

use std::any::Any;
use std::cell::{Cell, OnceCell, RefCell};
use std::error::Error;
use std::future::Future;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::{Pin as StdPin, pin};
use std::ptr::NonNull;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll, Waker};
use std::time::Duration;
use std::{fmt, ptr};

use procession_coroutine::{Coroutine, Resumed, Suspender, UnwindError, Unwinding};
use procession_sync::atomic::AtomicU32;
use procession_sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use procession_sync::{Mutex, thread};

use crate::coroutine::frame::{
    Counted, Frame, NOTHING, Out, Quiet, Resuming, Sleeper, current_step, frame, set_current, suspendable,
};
use crate::coroutine::helpers::Job;
use crate::mailbox::call::CallError;
use crate::mailbox::context::Address;
use crate::mailbox::reply::Reply;
use crate::process::body::{Body, Step};
use crate::process::exit::Exiting;
use crate::process::slot::Slot;
use crate::process::unwind::drop_guarded;
use crate::process::waker;
use crate::relations::signal::{Down, MonitorRef};
use crate::scheduler::seat_id::SeatId;
use crate::scheduler::shared::Shared;
use crate::scheduler::{block_on, current};
use crate::time::timeout;
use crate::variance::Typed;
use crate::{Elapsed, Event, Exit, Waiting};

/// The end of a coroutine's function, by return or panic: its locals go while it still is what runs.
struct Root<'a>(&'a Frame);

/// Rounds in which the destructors of locals may make new ones; then those are leaked with what they hold.
const LOCAL_ROUNDS: usize = 5;

impl Drop for Root<'_> {
    fn drop(&mut self) {
        for _ in 0..LOCAL_ROUNDS {
            drop_locals(&self.0.locals);
        }
        std::mem::forget(self.0.locals.take());
        set_current(NOTHING);
    }
}

fn drop_locals(locals: &RefCell<Vec<(usize, Rc<dyn Any>)>>) {
    for local in locals.take() {
        drop_guarded(local);
    }
}

/// A coroutine in its slot.
pub(crate) struct CoBody<F, T: 'static> {
    stage: Stage<F, T>,
    bytes: usize,
    pinned: bool,
    /// The thread that it stays on, once it has begun.
    thread: u64,
    /// The seat that it is counted for: once it is to begin there.
    seat: Option<SeatId>,
    /// How often it could have begun.
    put_off: u8,
}

/// How often a new coroutine is put off in favour of workers with less to do. Once more each time all that is ready has had a turn, so it begins soon even
/// where nobody comes; enough for others to wake up and take it meanwhile.
const PUT_OFF_MAX: u8 = 16;

enum Stage<F, T: 'static> {
    Fresh(F),
    Runs(Coroutine<(), Out, T>),
    Ended(Result<T, Exit>),
    Taken,
}

// SAFETY: [own thread]; a function that has not begun, and a result, are Send.
unsafe impl<F: Send, T: Send> Send for CoBody<F, T> {}

/// Describes a process to the overflow report.
///
/// # Safety
/// `slot` is that of a process that runs.
unsafe fn tell(slot: *const (), to: &mut dyn fmt::Write) -> fmt::Result {
    // SAFETY: by the caller.
    let slot = unsafe { &*slot.cast::<Slot>() };
    write!(to, "process {}", slot.pid())?;
    match slot.extra().and_then(|extra| extra.label.as_deref()) {
        Some(label) => write!(to, " {label:?}"),
        None => Ok(()),
    }
}

/// What became of the attempt to begin.
enum Begun {
    Runs,
    /// It is bound to another worker now.
    Elsewhere,
    /// It is left to any worker, and behind all others.
    PutOff,
    /// There is no stack at present.
    Waits,
    /// There never will be one.
    Refused(Exit),
}

impl<F, T> CoBody<F, T>
where
    F: FnOnce() -> T + Send + 'static,
    T: Send + 'static,
{
    /// # Safety
    /// If it is not `pinned`, what [`spawn_migratable`](crate::SpawnOptions::spawn_migratable) asks for.
    pub(crate) unsafe fn new(function: F, bytes: usize, pinned: bool) -> Self {
        Self { stage: Stage::Fresh(function), bytes, pinned, thread: 0, seat: None, put_off: 0 }
    }

    #[cold]
    fn begin(&mut self, slot: &Slot, task: &TaskContext<'_>) -> Begun {
        current::with_local(|local| {
            let local = local.expect("[seat] processes run on workers");
            let shared = slot.shared();
            if self.pinned
                && slot.bound_to().is_none()
                && let Some(other) = local.seat_for_coroutine()
            {
                slot.bind(other);
                // At once: until it has begun there, others would be sent after it.
                self.seat = Some(other);
                shared.count_coroutine(self.seat);
                return Begun::Elsewhere;
            }
            if self.pinned && slot.bound_to().is_none() && self.put_off < PUT_OFF_MAX && local.puts_coroutines_off() {
                self.put_off += 1;
                return Begun::PutOff;
            }
            let stack = match local.take_stack(self.bytes) {
                Ok(stack) => stack,
                Err(error) if error.is_limit() || error.is_exhausted() && shared.has_coroutines() => {
                    shared.wait_for_stack(task.waker().clone());
                    // Once more, for one that came back before this waker was there.
                    match local.take_stack(self.bytes) {
                        Ok(stack) => stack,
                        Err(_) => return Begun::Waits,
                    }
                }
                Err(error) => return Begun::Refused(Exit::failed(error.to_string())),
            };
            let Stage::Fresh(function) = std::mem::replace(&mut self.stage, Stage::Taken) else {
                unreachable!("only what is fresh begins")
            };
            let pin = NonNull::from(slot);
            let entry = move |suspender: &Suspender<'_, (), Out>, ()| {
                let frame = Frame {
                    suspender: ptr::from_ref(suspender).cast(),
                    slot: pin,
                    quiet: Cell::new(0),
                    shields: Cell::new(0),
                    polls: Cell::new(false),
                    unwound: Cell::new(0),
                    locals: RefCell::new(Vec::new()),
                    sleeper: OnceCell::new(),
                };
                frame.enter();
                let _root = Root(&frame);
                function()
            };
            // SAFETY: [residual] promised by who enabled coroutines.
            let mut coroutine = unsafe { Coroutine::spawned_at(stack, slot.location(), entry) };
            // SAFETY: the slot is there as long as its process; `tell` only formats numbers and copies text.
            unsafe { coroutine.describe_with(ptr::from_ref(slot).cast(), tell) };
            let was_counted = self.seat.is_some();
            if self.pinned {
                slot.bind(local.seat);
                self.thread = current::thread_number();
                self.seat = Some(local.seat);
            } else {
                // SAFETY: by who spawned it.
                unsafe { coroutine.let_migrate() };
            }
            if !was_counted {
                shared.count_coroutine(self.seat);
            }
            self.stage = Stage::Runs(coroutine);
            Begun::Runs
        })
    }

    /// Takes the coroutine out, and puts its result in. Only after it has ended, or if it never will.
    fn finish(&mut self, slot: &Slot, result: Result<T, Exit>) {
        let before = std::mem::replace(&mut self.stage, Stage::Ended(result));
        let Stage::Runs(coroutine) = before else {
            // It was sent elsewhere, and did not begin there.
            if self.seat.is_some() {
                slot.shared().uncount_coroutine(self.seat);
            }
            return drop_guarded(before);
        };
        match coroutine.into_stack() {
            Ok(stack) => {
                current::with_local(|local| match local {
                    Some(local) => local.put_stack(stack),
                    None => drop(stack),
                });
                slot.shared().note_stack_room();
            }
            Err(stuck) => stuck.leak(),
        }
        slot.shared().uncount_coroutine(self.seat);
    }

    /// Before anything on the coroutine's stack runs.
    fn assert_own_thread(&self) {
        if self.pinned && self.thread != current::thread_number() {
            // [own thread] is broken: nothing that could be done here is sound.
            std::process::abort();
        }
    }
}

impl<F, T> Body for CoBody<F, T>
where
    F: FnOnce() -> T + Send + 'static,
    T: Send + 'static,
{
    fn step(&mut self, slot: &Slot, task: &mut TaskContext<'_>) -> Step {
        if let Stage::Fresh(_) = self.stage {
            match self.begin(slot, task) {
                Begun::Runs => {}
                Begun::Elsewhere | Begun::PutOff => return Step::GoesOn,
                Begun::Waits => {
                    slot.note_waiting(Waiting::STACK);
                    return Step::Waits(slot.waiting().wait_for());
                }
                Begun::Refused(exit) => {
                    self.finish(slot, Err(exit.clone()));
                    return Step::ended(exit);
                }
            }
        }
        self.assert_own_thread();
        let Stage::Runs(coroutine) = &mut self.stage else {
            return Step::Ended(None);
        };
        let resuming = Resuming::begin(task);
        let resumed = coroutine.resume(());
        drop(resuming);
        match resumed {
            Resumed::Suspended(Out::Waits) => Step::Waits(slot.waiting().wait_for()),
            Resumed::Suspended(Out::Stuck) => {
                self.end(slot, Exit::Killed);
                Step::ended(Exit::Killed)
            }
            Resumed::Returned(value) => {
                self.finish(slot, Ok(value));
                Step::Ended(None)
            }
        }
    }

    fn end(&mut self, slot: &Slot, exit: Exit) {
        let suspended = matches!(&self.stage, Stage::Runs(coroutine) if !coroutine.is_done());
        if suspended {
            self.assert_own_thread();
        }
        if suspended && let Stage::Runs(coroutine) = &mut self.stage {
            let waker = waker::borrowed(slot);
            let mut task = TaskContext::from_waker(&waker);
            let resuming = Resuming::begin(&mut task);
            let unwound = coroutine.unwind();
            drop(resuming);
            if let Err(UnwindError::Panicked(payload)) = unwound {
                // The first exit stands.
                drop_guarded(payload);
            }
        }
        self.finish(slot, Err(exit));
    }

    fn take_result(&mut self, result: &mut dyn Any) {
        if let Stage::Ended(ended) = std::mem::replace(&mut self.stage, Stage::Taken)
            && let Some(result) = result.downcast_mut::<Option<Result<T, Exit>>>()
        {
            *result = Some(ended);
        }
    }
}

/// Waits for a future, in the way of whoever calls: in a coroutine, it is suspended meanwhile; a plain thread is parked.
///
/// # Blocking
/// Where a coroutine [cannot be suspended](self#where-a-coroutine-cannot-be-suspended), and in async processes and state machines, this blocks
/// the worker.
///
/// # Panics
/// With what the future panics with; and where this would block the last thread that the scheduler may have
/// ([`Builder::threads_max`](crate::Builder::threads_max)).
///
/// # Cancellation
/// A coroutine that was cancelled unwinds from here, if the future is not complete. One that is terminated unwinds from here, too; the future is
/// dropped by that.
#[inline]
pub fn wait<F: Future>(future: F) -> F::Output {
    // First of all: it is made where it is polled then, and not copied (`co_channel_1`: 77 ns instead of 96). Where the thread
    // blocks, it is dropped after the blocking section.
    let future = pin!(future);
    match suspendable() {
        Some(frame) => frame.wait(future),
        None => block(future),
    }
}

/// Not inlined, as `current`.
#[cold]
#[inline(never)]
fn block<F: Future>(future: StdPin<&mut F>) -> F::Output {
    block_on::block_thread_on(&crate::scheduler::owner::here(), future)
}

/// Whether a coroutine runs here.
pub fn is_coroutine() -> bool {
    frame().is_some()
}

/// Whether a coroutine runs here that can be suspended now.
pub fn may_suspend() -> bool {
    suspendable().is_some()
}

/// Waits for `duration`. Blocks, panics, and unwinds as [`wait`] does.
pub fn sleep(duration: Duration) {
    wait(crate::sleep(duration));
}

/// Gives way: all that is ready on this worker runs before the coroutine goes on. Unwinds as [`wait`] does; where the coroutine cannot be suspended, and
/// outside of coroutines, the thread gives way to others of the system.
#[inline(always)]
pub fn yield_now() {
    match suspendable() {
        Some(frame) => {
            frame.give_way();
            frame.unwind_if_cancelled();
            frame.suspend(Out::Waits);
        }
        None => thread::yield_now(),
    }
}

/// Calls `function`, in which nothing suspends the coroutine: what would, blocks the thread. For code that keeps a thread-local pointer to
/// its own frame, and for locks of `std` around something that may wait.
///
/// ```
/// # let scheduler = unsafe { procession::Scheduler::builder().enable_coroutines() }.build()?;
/// use procession::{co, spawn_coroutine};
///
/// let child = scheduler.block_on(async {
///     spawn_coroutine(|_: co::Context<()>| co::no_suspend(co::may_suspend)).expect("they are enabled").await
/// });
/// assert_eq!(child, Ok(false));
/// # Ok::<(), procession::BuildError>(())
/// ```
pub fn no_suspend<R>(function: impl FnOnce() -> R) -> R {
    let _quiet = Quiet::begin();
    function()
}

/// Calls `function`, in which a cancel does not unwind the coroutine: for cleaning up that has to wait. It can still be terminated. A cancel that came
/// meanwhile unwinds the coroutine where it waits next.
pub fn shield<R>(function: impl FnOnce() -> R) -> R {
    let _shield = frame().map(|frame| Counted::up(&frame.shields));
    function()
}

/// Whether a panic payload is no error but the unwinding of a process that ends: it should go on
/// ([`resume_unwind`]).
pub fn is_unwinding(payload: &(dyn Any + Send)) -> bool {
    payload.is::<Exiting>() || payload.is::<Unwinding>()
}

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
        std::mem::replace(&mut *self.waker.lock().expect("nothing that can panic runs under this lock"), waker)
    }
}

/// The token of the next suspension of the coroutine that runs here. Give it to who is to end that, and call [`suspend`].
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

/// Suspends the coroutine until its [`token`] is used, or until `patience` is over, if there is one. Says whether it was woken: also if the token was used
/// before.
///
/// # Errors
/// [`NoCoroutine`] outside of coroutines.
///
/// # Blocking, panics, cancellation
/// As of [`wait`]. A suspension that is unwound is over: its tokens do nothing.
///
/// ```
/// # let scheduler = unsafe { procession::Scheduler::builder().enable_coroutines() }.build()?;
/// use procession::{co, spawn_coroutine};
///
/// let woken = scheduler.block_on(async {
///     let sleeps = spawn_coroutine(|_: co::Context<()>| {
///         let token = co::token()?;
///         let stale = token.clone();
///         std::thread::spawn(move || token.wake());
///         let woken = co::suspend(None)?;
///         Ok::<_, co::NoCoroutine>((woken, stale.wake()))
///     });
///     sleeps.expect("they are enabled").await
/// });
/// assert_eq!(woken, Ok(Ok((true, false))));
/// # Ok::<(), procession::BuildError>(())
/// ```
pub fn suspend(patience: Option<Duration>) -> Result<bool, NoCoroutine> {
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
    match patience {
        None => wait(woken),
        // Whether it was woken is asked below: both may have happened.
        Some(patience) => drop(wait(timeout(patience, woken))),
    }
    // Before the word goes on: from then on the token is refused.
    let was_woken = sleeper.word.fetch_or(1, AcqRel) & 1 != 0;
    drop(over);
    Ok(was_woken)
}

impl Token {
    /// Wakes the coroutine out of the suspension that this is of, or keeps it from beginning. Says whether it did: not if that was woken
    /// before, or is over.
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

/// A value of each coroutine's own; in threads that run none, of each thread's own. It is made when first asked for, and dropped when the
/// coroutine ends, on its stack.
///
/// ```
/// # let scheduler = unsafe { procession::Scheduler::builder().enable_coroutines() }.build()?;
/// use std::cell::Cell;
/// use procession::{co, spawn_coroutine};
///
/// static DEPTH: co::Local<Cell<u32>> = co::Local::new(|| Cell::new(0));
///
/// scheduler.block_on(async {
///     for _ in 0..2 {
///         let child = spawn_coroutine(|_: co::Context<()>| {
///             co::yield_now();
///             DEPTH.with(|depth| depth.replace(depth.get() + 1))
///         });
///         assert_eq!(child.expect("they are enabled").await, Ok(0));
///     }
/// });
/// # Ok::<(), procession::BuildError>(())
/// ```
pub struct Local<T: 'static> {
    make: fn() -> T,
    value: Typed<T>,
}

impl<T: 'static> Local<T> {
    /// `make` makes the value. Put it into a `static`: it is told from others by its address.
    pub const fn new(make: fn() -> T) -> Self {
        Self { make, value: PhantomData }
    }

    /// Calls `function` with the value of the coroutine, or thread, that runs here.
    pub fn with<R>(&'static self, function: impl FnOnce(&T) -> R) -> R {
        let key = ptr::from_ref(self).addr();
        let value = match frame() {
            Some(frame) => self.find(key, &frame.locals),
            None => LOCALS.with(|locals| self.find(key, locals)),
        };
        function(&value)
    }

    fn find(&self, key: usize, locals: &RefCell<Vec<(usize, Rc<dyn Any>)>>) -> Rc<T> {
        let of_key = |locals: &RefCell<Vec<(usize, Rc<dyn Any>)>>| {
            let locals = locals.borrow();
            let (_, value) = locals.iter().find(|(other, _)| *other == key)?;
            Rc::clone(value).downcast().ok()
        };
        if let Some(value) = of_key(locals) {
            return value;
        }
        // The user's code: it may ask for others, or for this.
        let made: Rc<T> = Rc::new((self.make)());
        if let Some(value) = of_key(locals) {
            return value;
        }
        locals.borrow_mut().push((key, Rc::<T>::clone(&made)));
        made
    }
}

impl<T> fmt::Debug for Local<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Local(..)")
    }
}

/// Calls `function`, which may block, on another thread, while the coroutine is suspended and its worker runs others. The function may borrow from the
/// coroutine's stack, so nothing unwinds the coroutine meanwhile: a cancel, and even a terminate, waits until the function has returned. Where the
/// coroutine cannot be suspended, and outside of coroutines, it is called here.
///
/// # Errors
/// The function, if the system refuses a thread for it.
///
/// # Panics
/// With what the function panics with.
pub fn blocking<F, R>(function: F) -> Result<R, F>
where
    F: FnOnce() -> R + Send,
    R: Send,
{
    let Some(frame) = frame().filter(|frame| frame.may_suspend()) else { return Ok(function()) };
    let job = Arc::new(Lent(Mutex::new(Loan { function: Some(function), result: None, waker: None })));
    let runs: Arc<dyn Job + '_> = Arc::clone(&job) as Arc<dyn Job + '_>;
    // SAFETY: [lent] what the function borrows stays borrowed: from here on this is left, by return or unwinding, only when the function was run,
    // or was refused. What the helper keeps after that holds neither the function nor its result.
    let runs: Arc<dyn Job + 'static> = unsafe { std::mem::transmute(runs) };
    let shared = frame.slot().shared();
    shared.begin_outstanding();
    if shared.helpers.run(&shared.world, shared.name(), runs).is_err() {
        shared.end_outstanding();
        let function = job.change(|loan| loan.function.take());
        return Err(function.expect("a job that was refused was not run"));
    }
    let until = Until(&job, shared);
    let _shield = Counted::up(&frame.shields);
    frame.wait(pin!(std::future::poll_fn(|task: &mut TaskContext<'_>| job.poll(task))));
    drop(until);
    match job.change(|loan| loan.result.take()).expect("it was run") {
        Ok(result) => Ok(result),
        Err(payload) => resume_unwind(payload),
    }
}

/// A function that is lent to a helper.
///
/// ## Invariants
/// - `[lent]` it is dropped by who runs it before there is a result, and the result is taken by who lent it. So whoever drops the last share, and
///   when, drops nothing of the borrower's.
struct Lent<F, R>(Mutex<Loan<F, R>>);

struct Loan<F, R> {
    function: Option<F>,
    result: Option<std::thread::Result<R>>,
    waker: Option<Waker>,
}

impl<F, R> Lent<F, R> {
    fn change<A>(&self, change: impl FnOnce(&mut Loan<F, R>) -> A) -> A {
        change(&mut self.0.lock().expect("nothing that can panic runs under this lock"))
    }

    fn poll(&self, task: &TaskContext<'_>) -> Poll<()> {
        let new = task.waker().clone();
        let (done, old) = self.change(|loan| (loan.result.is_some(), loan.waker.replace(new)));
        drop_guarded(old);
        if done {
            return Poll::Ready(());
        }
        current::note_waiting(Waiting::COMPLETION);
        Poll::Pending
    }
}

impl<F, R> Job for Lent<F, R>
where
    F: FnOnce() -> R + Send,
    R: Send,
{
    fn run(&self) {
        let Some(function) = self.change(|loan| loan.function.take()) else { return };
        let result = catch_unwind(AssertUnwindSafe(function));
        let waker = self.change(|loan| {
            loan.result = Some(result);
            loan.waker.take()
        });
        if let Some(waker) = waker {
            // The lender may be gone by now.
            drop(crate::process::unwind::guarded(|| waker.wake()));
        }
    }
}

/// Left only when the function was run: who is unwound meanwhile, because it is terminated, blocks its thread until then.
struct Until<'a, F: FnOnce() -> R + Send, R: Send>(&'a Lent<F, R>, &'a Shared);

impl<F: FnOnce() -> R + Send, R: Send> Drop for Until<'_, F, R> {
    fn drop(&mut self) {
        if self.0.change(|loan| loan.result.is_none()) {
            block_on::block_thread_on(
                &self.1.arc(),
                std::future::poll_fn(|task: &mut TaskContext<'_>| self.0.poll(task)),
            );
        }
        self.1.end_outstanding();
        if thread::panicking() {
            drop_guarded(self.0.change(|loan| loan.result.take()));
        }
    }
}

/// What a coroutine works with: its mailbox, its relations to others, and what it is. It is a [`Context`](crate::Context), whose waiting methods wait here in
/// blocking style.
///
/// It belongs to its coroutine: receiving elsewhere panics. What waits here blocks, panics, and unwinds as [`wait`] does; those that receive answer a
/// cancel with `None` instead.
#[derive(Debug)]
pub struct Context<M: Send + 'static>(crate::Context<M>);

impl<M: Send + 'static> Context<M> {
    pub(crate) fn new(context: crate::Context<M>) -> Self {
        Self(context)
    }

    /// Receives the next message, the oldest first. `None` only after this coroutine was cancelled, once its mailbox is empty.
    #[inline]
    pub fn receive(&mut self) -> Option<M> {
        wait(self.0.receive())
    }

    /// Receives the next message if it comes within `patience`.
    ///
    /// # Errors
    /// [`Elapsed`] if none came.
    pub fn receive_timeout(&mut self, patience: Duration) -> Result<Option<M>, Elapsed> {
        wait(self.0.receive_timeout(patience))
    }

    /// As [`Context::receive_event`](crate::Context::receive_event).
    pub fn receive_event(&mut self) -> Option<Event<M>> {
        wait(self.0.receive_event())
    }

    /// As [`Context::receive_matching`](crate::Context::receive_matching).
    pub fn receive_matching(&mut self, wanted: impl FnMut(&M) -> bool) -> Option<M> {
        wait(self.0.receive_matching(wanted))
    }

    /// As [`Context::down`](crate::Context::down).
    pub fn down(&mut self, monitor: MonitorRef) -> Option<Down> {
        wait(self.0.down(monitor))
    }

    /// Sends a message with a [`Reply`] in it to another process, and waits for the reply, at most for `patience`.
    ///
    /// # Errors
    /// As for [`Address::call`].
    pub fn call<N, T>(
        &self,
        address: &Address<N>,
        message: impl FnOnce(Reply<T>) -> N,
        patience: Duration,
    ) -> Result<T, CallError<N>>
    where
        N: Send + 'static,
        T: Send + 'static,
    {
        wait(address.call(message, patience))
    }

    /// As [`sleep`].
    pub fn sleep(&self, duration: Duration) {
        sleep(duration);
    }

    /// As [`yield_now`].
    #[inline(always)]
    pub fn yield_now(&self) {
        yield_now();
    }

    /// As [`wait`]: for anything that processes can await.
    #[inline]
    pub fn wait<F: Future>(&self, future: F) -> F::Output {
        wait(future)
    }

    /// The context as async code has it: for futures that receive, as arms of a [`Select`](crate::Select).
    pub fn as_async(&mut self) -> &mut crate::Context<M> {
        &mut self.0
    }
}

impl<M: Send + 'static> Deref for Context<M> {
    type Target = crate::Context<M>;

    fn deref(&self) -> &crate::Context<M> {
        &self.0
    }
}

impl<M: Send + 'static> DerefMut for Context<M> {
    fn deref_mut(&mut self) -> &mut crate::Context<M> {
        &mut self.0
    }
}

impl Frame {
    /// Asks for the step to be followed by another. Not inlined, as `poll`.
    #[inline(never)]
    fn give_way(&self) {
        // SAFETY: [frame] it is the step's, which is suspended below.
        crate::scheduler::budget::give_way(unsafe { &*current_step().task });
    }
}

thread_local! {
    static LOCALS: RefCell<Vec<(usize, Rc<dyn Any>)>> = const { RefCell::new(Vec::new()) };
}
