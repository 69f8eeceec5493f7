//! Coroutines on stacks that are guarded, reused, and never freed without being unwound.
//!
//! A [`Coroutine`] is a function with a stack of its own, which can be left in the middle and entered again. The switch is
//! [corosensei](https://docs.rs/corosensei)'s. This crate adds the stacks ([`Stacks`]), and the rules for the ends that go wrong.
//!
//! ```
//! use procession_coroutine::{Coroutine, Resumed, Stacks};
//!
//! let stacks = Stacks::new()?;
//! let mut squares = Coroutine::new(stacks.take(64 << 10)?, |suspender, mut n: u64| {
//!     while n != 0 {
//!         n = suspender.suspend(n * n);
//!     }
//!     "done"
//! });
//! assert_eq!(squares.resume(3), Resumed::Suspended(9));
//! assert_eq!(squares.resume(4), Resumed::Suspended(16));
//! assert_eq!(squares.resume(0), Resumed::Returned("done"));
//! # Ok::<(), procession_coroutine::StackError>(())
//! ```
//!
//! # The residual rule
//!
//! A coroutine stays on its thread: it is not `Send`. That keeps thread-local addresses, `errno`, lock guards and values that are not
//! `Send` right. What it does not keep is the order in which scopes of one thread end. Code that puts a pointer to its own frame into a
//! thread-local, and restores the old one when the frame ends, takes for granted that frames of one thread end in the reverse order of
//! their beginnings. Two coroutines on one thread need not:
//!
//! ```text
//! a: SCOPED.set(&x, || suspend())      // SCOPED points to x, on the stack of a
//! b: SCOPED.set(&y, || suspend())      // SCOPED points to y; b remembers x
//! a ends                               // SCOPED is what it was before a; x is gone
//! b ends                               // SCOPED points to x again
//! ```
//!
//! Such code is safe by its signature (the crate `scoped-tls` is an example), so no type can keep it out of coroutines. The rule: *no code that
//! runs in a coroutine may hold a thread-local pointer that is scoped to a frame across a suspension.* Whoever makes coroutines of
//! code that is not his own answers for it.
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
//! look at it. For the same reason the thread stays: frames of the coroutine may have lent its thread-locals. (The main thread
//! ends with the program, and does not wait.)
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
