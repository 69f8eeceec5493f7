//! A coroutine.
//!
//! ## Invariants
//! - `[own thread]` a coroutine is neither `Send` nor `Sync`: the thread that made it is the only one that ever runs it, unless who moves
//!   it answers for every frame on its stack.
//! - `[residual]` whoever makes a coroutine answers for what its frames share with the thread: see
//!   the crate's documentation.
//! - `[frames]` the stack goes back to its slab only when nothing lives on it: after the function has returned or unwound, or before it
//!   was entered.

use std::any::Any;
use std::error::Error;
use std::fmt;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::panic::{AssertUnwindSafe, Location, catch_unwind, resume_unwind};
use std::ptr::NonNull;

use corosensei::stack::StackPointer;
use corosensei::{CoroutineResult, Yielder};
use procession_sync::thread;

use crate::header::Header;
pub use crate::header::Tell;
use crate::stacks::Stack;
use crate::{keep, overflow};

/// How often a suspended coroutine is unwound that catches it and suspends again. Each costs a few microseconds; code that swallows more panics
/// than that swallows all of them.
pub const UNWINDINGS: u32 = 100;

/// What is written to the top of a stack before it is entered, at most; a larger closure is boxed.
const CLOSURE_MAX: usize = 1024;

/// What resuming a coroutine led to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resumed<Y, R> {
    /// It suspended itself.
    Suspended(Y),
    /// It has ended.
    Returned(R),
}

/// The panic payload with which a suspended coroutine is unwound. Who catches panics should let this one go on ([`resume_unwind`]).
#[derive(Debug)]
#[non_exhaustive]
pub struct Unwinding;

/// Why a coroutine could not be unwound in good order.
pub enum UnwindError {
    /// It has ended, but by a panic: this is the payload. The stack is free.
    Panicked(Box<dyn Any + Send>),
    /// It caught the unwinding and suspended again, [`UNWINDINGS`] times. Its frames are still there.
    Stuck,
    /// This program aborts on panics, so there is no unwinding. Its frames are still there.
    Aborts,
}

impl fmt::Debug for UnwindError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Panicked(_) => "Panicked(..)",
            Self::Stuck => "Stuck",
            Self::Aborts => "Aborts",
        })
    }
}

impl fmt::Display for UnwindError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Panicked(_) => "the coroutine panicked while it was unwound",
            Self::Stuck => "the coroutine catches its unwinding and suspends again",
            Self::Aborts => "this program aborts on panics, so a suspended coroutine cannot be unwound",
        })
    }
}

impl Error for UnwindError {}

/// What a coroutine is resumed with.
enum Order<I> {
    GoOn(I),
    Unwind,
}

// SAFETY: the slab guards every stack that it hands out, and none is smaller than 4096 bytes.
unsafe impl corosensei::stack::Stack for Stack {
    #[inline]
    fn base(&self) -> StackPointer {
        self.top()
    }

    #[inline]
    fn limit(&self) -> StackPointer {
        Stack::limit(self)
    }
}

/// What the function of a coroutine suspends itself with: it takes a `Y` out, and brings an `I` in.
pub struct Suspender<'a, I, Y>(&'a Yielder<Order<I>, Y>);

impl<I, Y> Suspender<'_, I, Y> {
    /// Suspends the coroutine: [`Coroutine::resume`] returns `out`, and the next one brings what this returns.
    ///
    /// # Panics
    /// If the thread is panicking ([`may_suspend`](Self::may_suspend)). And with [`Unwinding`], when the coroutine is dropped meanwhile.
    // A return between this and the coroutine's own loop is foreseen wrongly, since the last calls were made on another stack.
    #[inline(always)]
    pub fn suspend(&self, out: Y) -> I {
        assert!(self.may_suspend(), "a coroutine cannot be suspended while its thread is panicking");
        match self.0.suspend(out) {
            Order::GoOn(input) => input,
            Order::Unwind => unwind_now(),
        }
    }

    /// Whether the coroutine may be suspended now. Not while a panic unwinds its stack: that a thread panics is counted for the thread,
    /// so everything that ran on it meanwhile would be taken for part of the panic.
    #[inline]
    pub fn may_suspend(&self) -> bool {
        !thread::panicking()
    }
}

#[cold]
fn unwind_now() -> ! {
    // Not `panic!`: this is no error, and the hook would print it.
    resume_unwind(Box::new(Unwinding))
}

impl<I, Y> fmt::Debug for Suspender<'_, I, Y> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Suspender(..)")
    }
}

type Inner<I, Y, R> = corosensei::Coroutine<Order<I>, Y, R, Stack>;

/// A function with a stack of its own, which can suspend itself in the middle.
///
/// It stays on the thread that made it:
///
/// ```compile_fail,E0277
/// fn send<T: Send>() {}
/// send::<procession_coroutine::Coroutine<(), (), ()>>();
/// ```
///
/// Dropping it while it is suspended unwinds its stack first. See the [crate documentation](crate#ends) for ends of all kinds.
pub struct Coroutine<I: 'static, Y: 'static, R: 'static> {
    inner: ManuallyDrop<Inner<I, Y, R>>,
    /// What the overflow report calls it.
    name: Option<Box<Box<str>>>,
    /// Where the stack ends, in `inner`.
    end: NonNull<u8>,
    /// Whether it stays on its thread, which is then kept as long as it lives.
    stays: bool,
    own_thread: PhantomData<*mut ()>,
}

/// The captures of a coroutine that was not entered: dropped by corosensei, through which no panic may go.
struct Held<F>(Option<F>);

impl<F> Drop for Held<F> {
    fn drop(&mut self) {
        let held = self.0.take();
        drop_guarded(held);
    }
}

/// Drops something of the user's; a panic of its `Drop` ends here.
fn drop_guarded<T>(value: T) {
    // Bounded: a payload whose drop panics as well is leaked.
    if let Err(payload) = catch_unwind(AssertUnwindSafe(|| drop(value)))
        && let Err(second) = catch_unwind(AssertUnwindSafe(|| drop(payload)))
    {
        std::mem::forget(second);
    }
}

impl<I: 'static, Y: 'static, R: 'static> Coroutine<I, Y, R> {
    /// A coroutine that will run `function` on `stack`. The first resume enters it, with the input of that resume.
    ///
    /// ```compile_fail,E0133
    /// let stacks = procession_coroutine::Stacks::new().unwrap();
    /// procession_coroutine::Coroutine::<(), (), ()>::new(stacks.take(1 << 14).unwrap(), |_, ()| ());
    /// ```
    ///
    /// # Safety
    /// At each suspension, all frames on the coroutine's stack keep the three parts of the
    /// [residual rule](crate#the-residual-rule):
    ///
    /// 1. no thread-local, and no other stackful coroutine, holds a pointer to one of them that is
    ///    taken to be scoped to it;
    /// 2. none refers to a thread-local value, unless the coroutine ends before its thread does;
    /// 3. each can be unwound by a panic, unless the coroutine is not dropped before it has left
    ///    it.
    #[track_caller]
    pub unsafe fn new<F>(stack: Stack, function: F) -> Self
    where
        F: FnOnce(&Suspender<'_, I, Y>, I) -> R + 'static,
    {
        // SAFETY: by the caller.
        unsafe { Self::spawned_at(stack, Location::caller(), function) }
    }

    /// As [`new`](Self::new), spawned from a place that the caller names.
    ///
    /// # Safety
    /// As for [`new`](Self::new).
    pub unsafe fn spawned_at<F>(stack: Stack, location: &'static Location<'static>, function: F) -> Self
    where
        F: FnOnce(&Suspender<'_, I, Y>, I) -> R + 'static,
    {
        overflow::prepare_thread();
        stack.header().set_location(location);
        // As it is written there: with what says whether it has been taken.
        if size_of::<Held<F>>() > CLOSURE_MAX {
            let boxed = Box::new(function);
            Self::with(stack, move |suspender: &Suspender<'_, I, Y>, input| boxed(suspender, input))
        } else {
            Self::with(stack, function)
        }
    }

    fn with<F>(stack: Stack, function: F) -> Self
    where
        F: FnOnce(&Suspender<'_, I, Y>, I) -> R + 'static,
    {
        let end = stack.end();
        let held = Held(Some(function));
        let inner = Inner::with_stack(stack, move |yielder, order| {
            // The whole of it, so that its `Drop` comes along.
            let mut held = held;
            let function = held.0.take().expect("it is taken here only");
            match order {
                Order::GoOn(input) => function(&Suspender(yielder), input),
                Order::Unwind => unreachable!("what was not entered is not unwound"),
            }
        });
        Self { inner: ManuallyDrop::new(inner), name: None, end, stays: true, own_thread: PhantomData }
    }

    fn header(&self) -> &Header {
        // SAFETY: [header] the stack is in `inner`, which is there as long as this.
        unsafe { Header::at(self.end) }
    }

    /// Gives the coroutine a name, for the overflow report.
    pub fn set_name(&mut self, name: impl Into<Box<str>>) {
        let data = std::ptr::from_ref(&**self.name.insert(Box::new(name.into()))).cast();
        // SAFETY: the data is a boxed name; written to a buffer, it allocates nothing.
        let tell: Tell = |name, to| to.write_str(unsafe { &*name.cast::<Box<str>>() });
        // SAFETY: the name stays where it is until the stack forgets it.
        unsafe { self.describe_with(data, tell) };
    }

    /// Lets `tell` describe the coroutine in the overflow report, from `data`.
    ///
    /// # Safety
    /// `data` stays valid for `tell` as long as the coroutine can run. `tell` is called in a signal handler: it allocates nothing, takes no lock,
    /// and does not panic.
    pub unsafe fn describe_with(&mut self, data: *const (), tell: Tell) {
        self.header().set_tell(data, tell);
    }

    /// Lets the coroutine be resumed on other threads: no thread is kept for its sake.
    ///
    /// # Safety
    /// It was not entered yet. Whoever moves it to another thread answers for everything that lives on its stack at a suspension: nothing of that
    /// is bound to a thread, neither by its type, nor by an address of a thread-local, also one that the compiler keeps across a call, nor
    /// by a foreign library.
    pub unsafe fn let_migrate(&mut self) {
        self.stays = false;
    }

    /// Runs the coroutine until it suspends itself or ends. A panic in it goes on here.
    ///
    /// # Panics
    /// If it has ended before.
    #[inline]
    pub fn resume(&mut self, input: I) -> Resumed<Y, R> {
        assert!(!self.inner.done(), "a coroutine that has ended cannot be resumed");
        self.order(Order::GoOn(input))
    }

    // As a mere hint it was not: `co_switch` 5.1 instead of 3.3 ns.
    #[inline(always)]
    fn order(&mut self, order: Order<I>) -> Resumed<Y, R> {
        if self.stays && !self.inner.started() {
            keep::begin();
        }
        let ends = Ends { inner: &mut self.inner, stays: self.stays };
        match ends.inner.resume(order) {
            CoroutineResult::Yield(out) => Resumed::Suspended(out),
            CoroutineResult::Return(result) => Resumed::Returned(result),
        }
    }

    /// Whether it has ended.
    pub fn is_done(&self) -> bool {
        self.inner.done()
    }

    /// Whether it was entered.
    pub fn is_started(&self) -> bool {
        self.inner.started()
    }

    /// Unwinds the stack of a coroutine that is suspended, from its suspension; drops the function of one that was not entered. Does nothing to one
    /// that has ended.
    ///
    /// # Errors
    /// [`UnwindError`]: it panicked on the way, or cannot be unwound.
    pub fn unwind(&mut self) -> Result<(), UnwindError> {
        if self.inner.done() {
            return Ok(());
        }
        if !self.inner.started() {
            self.inner.force_unwind();
            return Ok(());
        }
        if cfg!(panic = "abort") {
            return Err(UnwindError::Aborts);
        }
        for _ in 0..UNWINDINGS {
            match catch_unwind(AssertUnwindSafe(|| self.order(Order::Unwind))) {
                Ok(Resumed::Suspended(out)) => drop_guarded(out),
                Ok(Resumed::Returned(result)) => {
                    drop_guarded(result);
                    return Ok(());
                }
                Err(payload) if payload.is::<Unwinding>() => return Ok(()),
                Err(payload) => return Err(UnwindError::Panicked(payload)),
            }
        }
        Err(UnwindError::Stuck)
    }

    /// Gives up a coroutine that cannot be unwound, as dropping it does, but without trying again: its stack is leaked, and its thread kept.
    pub fn leak(self) {
        let this = ManuallyDrop::new(self);
        this.header().clear_tell();
        if this.stays && this.inner.started() && !this.inner.done() {
            keep::stuck();
        }
    }

    /// Takes the stack of a coroutine that has ended, for another one.
    ///
    /// # Errors
    /// The coroutine, if it has not ended.
    pub fn into_stack(self) -> Result<Stack, Self> {
        if !self.inner.done() {
            return Err(self);
        }
        let mut this = ManuallyDrop::new(self);
        this.header().clear_tell();
        drop(this.name.take());
        // SAFETY: taken once, since `this` is never dropped.
        let inner = unsafe { ManuallyDrop::take(&mut this.inner) };
        Ok(inner.into_stack())
    }
}

/// Counts a coroutine as ended once it is, also if it ends by a panic.
struct Ends<'a, I: 'static, Y: 'static, R: 'static> {
    inner: &'a mut Inner<I, Y, R>,
    stays: bool,
}

impl<I: 'static, Y: 'static, R: 'static> Drop for Ends<'_, I, Y, R> {
    #[inline]
    fn drop(&mut self) {
        if self.stays && self.inner.done() {
            keep::end();
        }
    }
}

impl<I: 'static, Y: 'static, R: 'static> Drop for Coroutine<I, Y, R> {
    fn drop(&mut self) {
        match self.unwind() {
            Ok(()) => {}
            Err(UnwindError::Panicked(payload)) => drop_guarded(payload),
            // [frames] the stack, and with it the slab, is leaked.
            Err(UnwindError::Stuck | UnwindError::Aborts) => {
                self.header().clear_tell();
                if self.stays {
                    keep::stuck();
                }
                return;
            }
        }
        // SAFETY: [frames] it has ended, and is dropped once.
        unsafe { ManuallyDrop::drop(&mut self.inner) };
    }
}

impl<I: 'static, Y: 'static, R: 'static> fmt::Debug for Coroutine<I, Y, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let started = self.is_started();
        f.debug_struct("Coroutine").field("started", &started).field("done", &self.is_done()).finish_non_exhaustive()
    }
}
