//! Coroutines on stacks that are guarded, reused, and never freed without being unwound.
//!
//! A [`Coroutine`] is a function with a stack of its own, which can be left in the middle and entered again. The switch is
//! [corosensei](https://docs.rs/corosensei)'s. This crate adds the stacks ([`Stacks`]), and the rules for the ends that go wrong.
//!
//! ```
//! use procession_coroutine::{Coroutine, Resumed, Stacks};
//!
//! let stacks = Stacks::new()?;
//! let stack = stacks.take(64 << 10)?;
//! // SAFETY: at its suspension the function holds a number and nothing else.
//! let mut squares = unsafe {
//!     Coroutine::new(stack, |suspender, mut n: u64| {
//!         while n != 0 {
//!             n = suspender.suspend(n * n);
//!         }
//!         "done"
//!     })
//! };
//! assert_eq!(squares.resume(3), Resumed::Suspended(9));
//! assert_eq!(squares.resume(4), Resumed::Suspended(16));
//! assert_eq!(squares.resume(0), Resumed::Returned("done"));
//! # Ok::<(), procession_coroutine::StackError>(())
//! ```
//!
//! # The residual rule
//!
//! A coroutine stays on its thread: it is not `Send`. That keeps thread-local addresses, `errno`, lock guards and values that are not
//! `Send` right. Its frames still break three habits of a thread's stack: they need not end in the
//! reverse order of their beginnings, they can be outlived by the thread's locals, and they are
//! ended by an unwinding from outside. Code that relies on these habits can be safe by its
//! signature, so no type can keep it out of coroutines. [`Coroutine::new`] is `unsafe` for that
//! reason, and this is its contract. The code that runs in the coroutine keeps it at each
//! suspension, with all frames that are on the stack then.
//!
//! Whoever makes coroutines of code that is not his own answers for it. Code that may break a rule
//! is kept apart by not suspending inside of it.
//!
//! ## 1. No thread-local points to a frame
//!
//! Code that puts a pointer to its own frame into a thread-local, and restores the old one when the
//! frame ends (the crate `scoped-tls` is an example), takes for granted that frames of one thread
//! end in the reverse order of their beginnings. Two coroutines on one thread need not:
//!
//! ```text
//! a: SCOPED.set(&x, || suspend())      // SCOPED points to x, on the stack of a
//! b: SCOPED.set(&y, || suspend())      // SCOPED points to y; b remembers x
//! a ends                               // SCOPED is what it was before a; x is gone
//! b ends                               // SCOPED points to x again
//! ```
//!
//! The same holds for what measures the thread's stack by such a pointer, or by the bounds that the
//! system knows: a limit on recursion, or a collector that scans the stack. It holds for other
//! libraries with stacks of their own, too: one of their coroutines that is suspended inside of
//! this one may be resumed after this one has ended, with pointers to its frames.
//!
//! ## 2. No frame refers to a thread-local that is destroyed first
//!
//! A reference that `LocalKey::with` gives is valid until the thread destroys the value. On an
//! ordinary stack that is after the frame has ended. A suspended frame stays where it is, and the
//! thread goes on to its end:
//!
//! ```text
//! LOCAL.with(|value| suspend())        // the frame refers to value; the coroutine is forgotten, or kept in a thread-local
//! the thread ends                      // value is destroyed; the frame, or a scoped thread that it has lent value to, still reads it
//! ```
//!
//! Either no such reference is held across a suspension, or the coroutine ends before its thread
//! does. It ends by returning, by a panic, or by being dropped. The destructors of the thread's
//! locals are part of the thread's end. A coroutine that is forgotten, leaked, or stuck has not
//! ended. The crate helps, but cannot do it all: a thread with coroutines that have not ended waits
//! when it comes to destroy a local of this crate. Locals that were first touched after the
//! thread's first coroutine had begun are destroyed before that, and the main thread does not wait.
//!
//! ## 3. All frames can be unwound
//!
//! A coroutine that is dropped while it is suspended is unwound, by a panic that begins in the
//! suspension. A frame of a function with another ABI than Rust's does not let it through: one in
//! Rust (`extern "C" fn`) aborts the program; one in another language may do anything, unless it
//! was compiled for that.
//!
//! ```text
//! qsort(array, count, size, compare)   // C
//! extern "C" fn compare(a, b)          // calls suspend(): a drop of the coroutine aborts the program here
//! ```
//!
//! Either there is no suspension above such a frame, or the coroutine is resumed until it has left
//! it.
//!
//! # Ends
//!
//! | what happens | what becomes of it |
//! |---|---|
//! | the coroutine panics | its stack is unwound; the panic goes on in who resumed it |
//! | it is dropped while suspended | its stack is unwound first, from the suspension, without a message ([`Unwinding`]) |
//! | it catches that, and suspends again | it is unwound again from there, [`UNWINDINGS`] times at most |
//! | that many were not enough, or panics abort | its stack is leaked, and its thread, once it wants to end, waits for ever instead |
//! | it is forgotten while suspended | likewise |
//! | it overflows its stack | a report names it and where it was made; then the program aborts |
//! | a destructor panics while the stack is unwound for another panic | the program aborts, as everywhere in Rust |
//!
//! A stack is never used again, nor unmapped, while anything on it lives: a thread that was started in a scope may still
//! look at it. For the same reason the thread stays: frames of the coroutine may have lent its
//! thread-locals. This is a net, and not to be relied on: see [the second
//! rule](#2-no-frame-refers-to-a-thread-local-that-is-destroyed-first).
// Models build no coroutines: what loom replaces has no place in a signal handler.
#![cfg(all(unix, not(procession_loom)))]

mod coroutine;
mod guard;
mod header;
mod keep;
mod overflow;
mod stacks;

pub use coroutine::{Coroutine, Resumed, Suspender, Tell, UNWINDINGS, UnwindError, Unwinding};
pub use stacks::{Builder, Guards, Stack, StackCache, StackError, StackStats, Stacks};
