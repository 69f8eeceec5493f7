//! The protocols of Procession: state machines without I/O that loom checks.
//!
//! This is an inner crate of `procession`, and makes no promise of stability: any version may
//! change or remove any item. Depend on `procession` instead.
//!
//! The threads of a scheduler agree on few things, for example which thread runs, which thread
//! sleeps and which waiter is served next. Each module has one such agreement, and describes it
//! under fixed headings, from *Problem* to *Checked by*. A protocol does no I/O, starts no thread,
//! and leaves wakers and values of the user to its caller, which wakes and drops them outside of
//! all locks. Therefore the models under the private cfg `procession_loom` build the same code as a
//! program does.
//!
//! The rooms have the names of the rooms of `procession` that use them:
//!
//! | room | what its protocols are about |
//! |---|---|
//! | [`util`] | locks, fences, shared values and queues that know no process |
//! | [`process`] | the state word of a process, its references, its requests and its result |
//! | [`relations`] | what others leave with a process until its end |
//! | [`mailbox`] | bounded mailboxes, and the answer to a call |
//! | [`scheduler`] | which threads run, sleep and drive the poller, and how a scheduler ends |
//! | [`sync`] | the lists of waiters, and channels, semaphores and tokens that use them |
//! | [`pool`] | which job of a pool runs next, on which worker, and which process waits |
//! | [`time`] | timers |
//! | [`io`] | the readiness of descriptors |
//! | [`sys`], [`signal`] | what a signal handler hands to a thread |
//! | [`recorder`] | the ring of the flight recorder |
//! | [`watchdog`] | the sleep of the watchdog |
//!
//! A const parameter `MUTATION` plants a defect. Only canaries set it, which are models that pass
//! if loom finds the defect. Its default is the sound protocol.
// Models have cells of their own, which the protocol under test guards.
#![cfg_attr(not(procession_loom), deny(unsafe_code))]
#![expect(
    clippy::len_without_is_empty,
    clippy::new_without_default,
    reason = "the items are for one user, which needs no more than they have"
)]

pub mod io;
pub mod mailbox;
pub mod pool;
pub mod process;
pub mod recorder;
pub mod relations;
pub mod scheduler;
pub mod signal;
pub mod sync;
pub mod sys;
pub mod time;
pub mod util;
pub mod watchdog;
