//! Coroutines on stacks that are guarded, reused, and never freed without being unwound.
//!
//! A [`Coroutine`] is a function with its own stack. It can suspend itself in the middle, and be
//! resumed there later. [corosensei](https://docs.rs/corosensei) provides the switch between
//! stacks. This crate adds the stacks ([`Stacks`]), and rules for coroutines that do not end
//! normally.
//!
//! ```
//! use procession_coroutine::{Coroutine, Resumed, Stacks};
//!
//! let stacks = Stacks::new()?;
//! let stack = stacks.take(64 << 10)?;
//! // SAFETY: when it suspends, the function holds a number and nothing else.
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
//! A coroutine stays on its thread: it is not `Send`. Thread-local addresses, `errno`, lock guards
//! and values that are not `Send` therefore stay valid. A lock stays locked while its holder is
//! suspended, so another coroutine that asks for it blocks the thread that alone can resume the
//! holder. The frames of a coroutine still differ from the frames of an ordinary stack in three
//! ways:
//!
//! - They do not always end in the reverse order of their beginnings.
//! - The locals of the thread may be destroyed before they end.
//! - They can be ended from outside, by unwinding.
//!
//! Code that relies on an ordinary stack can have a safe signature, so no type can keep it out of
//! coroutines. For that reason [`Coroutine::new`] is `unsafe`, and this rule is its contract. The
//! code that runs in the coroutine must keep the rule at each suspension, for all frames that are
//! on the stack at that time.
//!
//! The caller of `Coroutine::new` is responsible even for code of other authors. If some code may
//! break the rule, do not suspend inside that code.
//!
//! ## 1. No thread-local points to a frame
//!
//! Some code puts a pointer to its own frame into a thread-local, and restores the old pointer when
//! the frame ends. The crate `scoped-tls` is an example. Such code assumes that frames of one
//! thread end in the reverse order of their beginnings. Two coroutines on one thread can end in
//! another order:
//!
//! ```text
//! a: SCOPED.set(&x, || suspend())      // SCOPED points to x, on the stack of a
//! b: SCOPED.set(&y, || suspend())      // SCOPED points to y; b remembers x
//! a ends                               // SCOPED is what it was before a; x is gone
//! b ends                               // SCOPED points to x again
//! ```
//!
//! The same holds for code that measures the thread's stack with such a pointer, or with the stack
//! bounds that the system reports. Examples are a limit on recursion, and a garbage collector that
//! scans the stack.
//!
//! It also holds for other libraries that run code on separate stacks. If a coroutine of such a
//! library is suspended inside a coroutine of this crate, it may be resumed after the outer
//! coroutine has ended, with pointers to its frames.
//!
//! ## 2. No frame refers to a thread-local that is destroyed first
//!
//! `LocalKey::with` passes a reference that is valid until the thread destroys the value. On an
//! ordinary stack, the frame has ended by then. A suspended frame stays where it is while its
//! thread ends:
//!
//! ```text
//! LOCAL.with(|value| suspend())   // the frame refers to value, and the coroutine is forgotten,
//!                                 // or kept in a thread-local
//! the thread ends                 // value is destroyed, but the frame still reads it, or a scoped
//!                                 // thread to which the frame has lent it
//! ```
//!
//! So either no such reference is held across a suspension, or the coroutine ends before its thread
//! does. A coroutine ends by returning, by a panic, or by being dropped. A coroutine that is
//! forgotten, leaked or stuck has not ended. The destructors of the thread's locals are part of the
//! thread's end.
//!
//! This crate helps, but only to a degree. If a thread has coroutines that have not ended, the
//! thread waits in the destructor of one of this crate's locals. Locals that were first used after
//! the thread's first coroutine began are destroyed before that, and the main thread does not wait.
//!
//! ## 3. All frames can be unwound
//!
//! If a coroutine is dropped while it is suspended, it is unwound by a panic that begins in the
//! suspension. A frame of a function with an ABI other than Rust's stops the panic. If the function
//! is written in Rust (`extern "C" fn`), the program aborts. If it is written in another language,
//! anything may happen, unless it was compiled for unwinding.
//!
//! ```text
//! qsort(array, count, size, compare)   // C
//! extern "C" fn compare(a, b)          // calls suspend(); if the coroutine is dropped then,
//!                                      // the program aborts here
//! ```
//!
//! So either no code suspends above such a frame, or the coroutine is resumed until it has left the
//! frame.
//!
//! # Ends
//!
//! | event | result |
//! |---|---|
//! | the coroutine panics | its stack is unwound; the panic continues in the caller of `resume` |
//! | it is dropped while suspended | its stack is unwound, by the silent panic [`Unwinding`] |
//! | it catches that panic and suspends again | it is unwound again, at most [`UNWINDINGS`] times |
//! | it is still suspended after that | its stack is leaked, and its thread never ends |
//! | it is dropped while suspended, but panics abort | as above |
//! | it is forgotten while suspended | as above |
//! | it overflows its stack | a report names it and its spawn location; the program aborts |
//! | a destructor panics while the stack is unwound | the program aborts, as everywhere in Rust |
//!
//! A thread that never ends still runs to the end of its function. It then waits forever, instead
//! of destroying its locals.
//!
//! A stack is neither reused nor unmapped while anything on it lives, because a scoped thread may
//! still look at it. The thread stays for the same reason: frames of the coroutine may have lent
//! its thread-locals. Do not rely on that, because it does not cover every case, see [the second
//! rule](#2-no-frame-refers-to-a-thread-local-that-is-destroyed-first).
// Models build no coroutines: loom's types cannot be used in a signal handler.
#![cfg(unix)]

mod coroutine;
mod error;
mod guard;
mod header;
mod overflow;
mod stacks;
mod thread_exit;

/// The example in the README is a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

pub use coroutine::{Coroutine, Resumed, Suspender, Tell, UNWINDINGS, UnwindError, Unwinding};
pub use error::StackError;
pub use stacks::{Builder, Expiry, Guards, Stack, StackCache, StackStats, Stacks};
