//! A coroutine.
//!
//! ## Invariants
//! - `[own thread]` a coroutine is neither `Send` nor `Sync`: only the thread that made it ever
//!   runs it. Code that moves it to another thread all the same is responsible for every frame on
//!   its stack.
//! - `[residual]` the caller that makes a coroutine is responsible for everything that its frames
//!   share with the thread: see the crate's documentation.
//! - `[frames]` the stack goes back to its slab only when nothing lives on it: after the function
//!   has returned or unwound, or before it was entered.

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
use crate::{overflow, thread_exit};

/// The number of times that a suspended coroutine is unwound if it keeps catching that and
/// suspending again. Each attempt costs a few microseconds. Code that catches even more panics is
/// taken to catch every panic.
pub const UNWINDINGS: u32 = 100;

/// The size in bytes of the largest closure that is written to the top of a stack. A larger closure
/// is boxed.
const CLOSURE_MAX: usize = 1024;

/// The result of resuming a coroutine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resumed<Y, R> {
    /// The coroutine suspended itself, with this value.
    Suspended(Y),
    /// The coroutine has ended, with this result.
    Returned(R),
}

/// The panic payload with which a suspended coroutine is unwound.
///
/// Code that catches panics should let this one continue, with [`resume_unwind`].
#[derive(Debug)]
#[non_exhaustive]
pub struct Unwinding;

/// The reason why a coroutine was not unwound in good order.
pub enum UnwindError {
    /// The coroutine has ended, but by a panic with this payload. Its stack is free.
    Panicked(Box<dyn Any + Send>),
    /// The coroutine caught the unwinding and suspended again, [`UNWINDINGS`] times. Its frames
    /// still exist.
    Stuck,
    /// This program aborts on panics, so there is no unwinding. The coroutine's frames still exist.
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
            Self::Aborts => {
                "this program aborts on panics, so a suspended coroutine cannot be unwound"
            }
        })
    }
}

impl Error for UnwindError {}

/// The value with which a coroutine is resumed.
enum Input<I> {
    Resume(I),
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

/// The handle with which the function of a coroutine suspends itself. A suspension passes a `Y`
/// out, and receives an `I`.
pub struct Suspender<'a, I, Y>(&'a Yielder<Input<I>, Y>);

impl<I, Y> Suspender<'_, I, Y> {
    /// Suspends the coroutine. [`Coroutine::resume`] returns `out`, and the input of the next
    /// `resume` is returned here.
    ///
    /// # Panics
    /// Panics if the thread is panicking (see [`may_suspend`](Self::may_suspend)). If the coroutine
    /// is dropped while it is suspended, panics with [`Unwinding`].
    // Always inlined: a return from here to the coroutine's own loop would be mispredicted, because
    // the last calls were made on another stack.
    #[inline(always)]
    pub fn suspend(&self, out: Y) -> I {
        assert!(
            self.may_suspend(),
            "a coroutine cannot be suspended while its thread is panicking"
        );
        match self.0.suspend(out) {
            Input::Resume(input) => input,
            Input::Unwind => unwind_now(),
        }
    }

    /// Returns `true` if the coroutine may be suspended now.
    ///
    /// It may not while a panic unwinds its stack. The panic is counted for the whole thread, so
    /// all other code that runs on the thread during the suspension would be treated as part of the
    /// panic.
    #[inline]
    pub fn may_suspend(&self) -> bool {
        !thread::panicking()
    }
}

#[cold]
fn unwind_now() -> ! {
    // Not `panic!`, because this is no error, and the hook would print it.
    resume_unwind(Box::new(Unwinding))
}

impl<I, Y> fmt::Debug for Suspender<'_, I, Y> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Suspender(..)")
    }
}

type Inner<I, Y, R> = corosensei::Coroutine<Input<I>, Y, R, Stack>;

/// A function with its own stack, which can suspend itself in the middle.
///
/// A coroutine stays on the thread that made it:
///
/// ```compile_fail,E0277
/// fn send<T: Send>() {}
/// send::<procession_coroutine::Coroutine<(), (), ()>>();
/// ```
///
/// If a suspended coroutine is dropped, its stack is unwound first. The [crate
/// documentation](crate#ends) describes every way in which a coroutine can end.
pub struct Coroutine<I: 'static, Y: 'static, R: 'static> {
    inner: ManuallyDrop<Inner<I, Y, R>>,
    /// The name in the overflow report.
    name: Option<Box<Box<str>>>,
    /// The end of the stack that is in `inner`.
    end: NonNull<u8>,
    /// If `true`, the coroutine stays on its thread, which then does not end before the coroutine.
    stays: bool,
    own_thread: PhantomData<*mut ()>,
}

/// The captures of a coroutine that was not entered. corosensei drops them, and no panic may pass
/// through it.
struct Held<F>(Option<F>);

impl<F> Drop for Held<F> {
    fn drop(&mut self) {
        let held = self.0.take();
        drop_guarded(held);
    }
}

/// Drops a value of the user. If its `Drop` panics, the panic ends here.
fn drop_guarded<T>(value: T) {
    // Bounded: if the drop of the payload panics as well, its payload is leaked.
    if let Err(payload) = catch_unwind(AssertUnwindSafe(|| drop(value)))
        && let Err(second) = catch_unwind(AssertUnwindSafe(|| drop(payload)))
    {
        std::mem::forget(second);
    }
}

impl<I: 'static, Y: 'static, R: 'static> Coroutine<I, Y, R> {
    /// Creates a coroutine that will run `function` on `stack`. The first `resume` enters the
    /// function and passes its input to it.
    ///
    /// ```compile_fail,E0133
    /// let stack = procession_coroutine::Stacks::new().unwrap().take(1 << 14).unwrap();
    /// procession_coroutine::Coroutine::<(), (), ()>::new(stack, |_, ()| ());
    /// ```
    ///
    /// # Safety
    /// At each suspension, all frames on the coroutine's stack keep the three parts of the
    /// [residual rule](crate#the-residual-rule):
    ///
    /// 1. No thread-local and no other stackful coroutine holds a pointer to a frame that is taken
    ///    to be scoped to the frame.
    /// 2. No frame refers to a thread-local value, unless the coroutine ends before its thread
    ///    does.
    /// 3. Each frame can be unwound by a panic, unless the coroutine leaves the frame before it is
    ///    dropped.
    #[track_caller]
    pub unsafe fn new<F>(stack: Stack, function: F) -> Self
    where
        F: FnOnce(&Suspender<'_, I, Y>, I) -> R + 'static,
    {
        // SAFETY: by the caller.
        unsafe { Self::spawned_at(stack, Location::caller(), function) }
    }

    /// Creates a coroutine like [`new`](Self::new), with a spawn location that the caller passes.
    ///
    /// # Safety
    /// The conditions of [`new`](Self::new) apply.
    pub unsafe fn spawned_at<F>(
        stack: Stack,
        location: &'static Location<'static>,
        function: F,
    ) -> Self
    where
        F: FnOnce(&Suspender<'_, I, Y>, I) -> R + 'static,
    {
        overflow::prepare_thread();
        stack.header().set_location(location);
        // `Held` is what is written to the stack: the function, and a flag that shows if it was
        // taken.
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
        let inner = Inner::with_stack(stack, move |yielder, input| {
            // The closure captures all of `held`, and so also its `Drop`.
            let mut held = held;
            let function = held.0.take().expect("the function is taken only here");
            match input {
                Input::Resume(input) => function(&Suspender(yielder), input),
                Input::Unwind => unreachable!("a coroutine that was not entered is not unwound"),
            }
        });
        Self {
            inner: ManuallyDrop::new(inner),
            name: None,
            end,
            stays: true,
            own_thread: PhantomData,
        }
    }

    fn header(&self) -> &Header {
        // SAFETY: [header] the stack is in `inner`, which exists as long as this coroutine.
        unsafe { Header::at(self.end) }
    }

    /// Sets the coroutine's name in the overflow report.
    pub fn set_name(&mut self, name: impl Into<Box<str>>) {
        let data = std::ptr::from_ref(&**self.name.insert(Box::new(name.into()))).cast();
        // SAFETY: the data is a boxed name; writing it to a buffer allocates nothing.
        let tell: Tell = |name, to| to.write_str(unsafe { &*name.cast::<Box<str>>() });
        // SAFETY: the name stays in place until the stack forgets it.
        unsafe { self.describe_with(data, tell) };
    }

    /// Makes `tell` describe the coroutine in the overflow report, with `data` as its argument.
    ///
    /// # Safety
    /// `data` must be valid for `tell` as long as the coroutine can run. `tell` is called in a
    /// signal handler, so it must not allocate, take a lock or panic.
    pub unsafe fn describe_with(&mut self, data: *const (), tell: Tell) {
        self.header().set_tell(data, tell);
    }

    /// Allows the coroutine to be resumed on other threads. No thread waits for it before it ends.
    ///
    /// # Safety
    /// The coroutine must not have been entered yet. Code that moves it to another thread is
    /// responsible for everything that lives on its stack at a suspension. Nothing there may be
    /// bound to a thread: neither by its type, nor by the address of a thread-local (even an
    /// address that the compiler keeps across a call), nor by a foreign library.
    pub unsafe fn let_migrate(&mut self) {
        self.stays = false;
    }

    /// Runs the coroutine until it suspends itself or ends. If it panics, the panic continues here.
    ///
    /// # Panics
    /// Panics if the coroutine has already ended.
    #[inline]
    pub fn resume(&mut self, input: I) -> Resumed<Y, R> {
        assert!(!self.inner.done(), "a coroutine that has ended cannot be resumed");
        self.resume_with(Input::Resume(input))
    }

    // Rejected: plain `#[inline]`, which the compiler did not follow. `co_switch` then took 5.1 ns
    // instead of 3.3 ns.
    #[inline(always)]
    fn resume_with(&mut self, input: Input<I>) -> Resumed<Y, R> {
        if self.stays && !self.inner.started() {
            thread_exit::begin();
        }
        let ends = Ends { inner: &mut self.inner, stays: self.stays };
        match ends.inner.resume(input) {
            CoroutineResult::Yield(out) => Resumed::Suspended(out),
            CoroutineResult::Return(result) => Resumed::Returned(result),
        }
    }

    /// Returns `true` if the coroutine has ended.
    pub fn is_done(&self) -> bool {
        self.inner.done()
    }

    /// Returns `true` if the coroutine was entered.
    pub fn is_started(&self) -> bool {
        self.inner.started()
    }

    /// Ends the coroutine by unwinding.
    ///
    /// If the coroutine is suspended, its stack is unwound from the suspension. If it was not
    /// entered, its function is dropped. If it has ended, nothing happens.
    ///
    /// Returns `Some` with the result if the coroutine catches the panic that unwinds it, and
    /// returns.
    ///
    /// # Errors
    /// Returns an [`UnwindError`] if the coroutine panicked during the unwinding, or if it cannot
    /// be unwound.
    pub fn unwind(&mut self) -> Result<Option<R>, UnwindError> {
        if self.inner.done() {
            return Ok(None);
        }
        if !self.inner.started() {
            self.inner.force_unwind();
            return Ok(None);
        }
        if cfg!(panic = "abort") {
            return Err(UnwindError::Aborts);
        }
        for _ in 0..UNWINDINGS {
            match catch_unwind(AssertUnwindSafe(|| self.resume_with(Input::Unwind))) {
                Ok(Resumed::Suspended(out)) => drop_guarded(out),
                Ok(Resumed::Returned(result)) => return Ok(Some(result)),
                Err(payload) if payload.is::<Unwinding>() => return Ok(None),
                Err(payload) => return Err(UnwindError::Panicked(payload)),
            }
        }
        Err(UnwindError::Stuck)
    }

    /// Abandons a coroutine that cannot be unwound. This does the same as dropping it, but without
    /// trying to unwind again: its stack is leaked, and its thread never ends.
    pub fn leak(self) {
        let this = ManuallyDrop::new(self);
        this.header().clear_tell();
        if this.stays && this.inner.started() && !this.inner.done() {
            thread_exit::stuck();
        }
    }

    /// Returns the stack of a coroutine that has ended, so that another coroutine can use it.
    ///
    /// # Errors
    /// If the coroutine has not ended, it is returned.
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

/// A guard that counts a coroutine as ended once it is, even if it ends by a panic.
struct Ends<'a, I: 'static, Y: 'static, R: 'static> {
    inner: &'a mut Inner<I, Y, R>,
    stays: bool,
}

impl<I: 'static, Y: 'static, R: 'static> Drop for Ends<'_, I, Y, R> {
    #[inline]
    fn drop(&mut self) {
        if self.stays && self.inner.done() {
            thread_exit::end();
        }
    }
}

impl<I: 'static, Y: 'static, R: 'static> Drop for Coroutine<I, Y, R> {
    fn drop(&mut self) {
        match self.unwind() {
            Ok(result) => drop_guarded(result),
            Err(UnwindError::Panicked(payload)) => drop_guarded(payload),
            // [frames] The stack is leaked, and the slab with it.
            Err(UnwindError::Stuck | UnwindError::Aborts) => {
                self.header().clear_tell();
                if self.stays {
                    thread_exit::stuck();
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
        f.debug_struct("Coroutine")
            .field("started", &started)
            .field("done", &self.is_done())
            .finish_non_exhaustive()
    }
}
