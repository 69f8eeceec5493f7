//! A process runtime: millions of small, isolated, addressable processes on a scheduler that keeps
//! every core busy.
//!
//! # Concepts
//!
//! A **process** is an async function ([`spawn`], [`start`]), a state machine
//! ([`Process`](machine::Process)) or a [coroutine] that the runtime executes. It is a part of this
//! program, not a process of the operating system. Each process has a [`Pid`], and ends with a
//! result or an [`Exit`]. If one process panics, the others continue, because a process owns its
//! state.
//!
//! A process that is started with [`start`] has a **mailbox**. With its [`Address`], others
//! [`send`](Address::send) it messages, or [`call`](Address::call) it and await the answer. The
//! process handles one message at a time, so its state needs no lock.
//!
//! A **scheduler** runs processes on as many *workers* as there are CPUs. A process runs in
//! *steps*: each step lasts until the process awaits something that is not ready. If a step blocks
//! its thread, a watchdog hands the other processes of the worker to another thread. For code that
//! is known to block, use [`blocking`] or [`spawn_blocking`].
//!
//! **Links, monitors and supervisors** react to the end of a process. For example, a
//! [supervisor] restarts a child that failed, and gives up if the child fails too often.
//!
//! ```
//! use std::time::Duration;
//! use procession::{Context, Reply};
//!
//! enum Count {
//!     Add(u64),
//!     Get(Reply<u64>),
//! }
//!
//! fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     procession::run(async {
//!         let counter = procession::start(|mut cx: Context<Count>| async move {
//!             let mut n = 0;
//!             while let Some(message) = cx.recv().await {
//!                 match message {
//!                     Count::Add(k) => n += k,
//!                     Count::Get(reply) => reply.send(n),
//!                 }
//!             }
//!         });
//!         counter.send(Count::Add(2))?;
//!         let n = counter.call(Count::Get, Duration::from_secs(1)).await?;
//!         let doubled = procession::spawn(async move { n * 2 }).await?;
//!         assert_eq!(doubled, 4);
//!         Ok(())
//!     })
//! }
//! ```
//!
//! # Modules by task
//!
//! | you want to | use |
//! |---|---|
//! | run code concurrently and await its result | [`spawn`], [`JoinHandle`], [`process::JoinSet`] |
//! | own state and answer messages | [`start`], [`Context`], [`mailbox`], [`machine`] |
//! | restart what fails, in order | [`supervisor`], [`behaviour`] |
//! | find processes by name, key or group | [`process`] |
//! | wait, repeat, or limit the time of something | [`sleep`], [`timeout`], [`time`] |
//! | share values and signals between processes | [`sync`] |
//! | serve and connect | [`net`], [`http`], [`io`] |
//! | use files and programs of the system | [`fs`], [`os_process`] |
//! | call what blocks or computes for long | [`spawn_blocking`], [`pool`], [`coroutine`] |
//! | end in order at a signal | [`signal`], [`scheduler`] |
//! | set threads, clocks and limits | [`scheduler`] |
//! | look into a running program | [`observe`] |
//! | test without waiting | [`testing`] |
//!
//! The directory `docs` of the repository has a guide, from a first process to a supervised,
//! observed and tested service, and a cookbook.
//!
//! # What moves between threads
//!
//! A process may move from one worker to another, so its future and its messages are `Send`:
//!
//! ```compile_fail
//! let local = std::rc::Rc::new(1);
//! drop(procession::spawn(async move { *local }));
//! ```
//!
//! ```compile_fail
//! drop(procession::spawn(async {
//!     let held = std::rc::Rc::new(1);
//!     procession::yield_now().await;
//!     *held
//! }));
//! ```
//!
//! ```compile_fail,E0277
//! let child = procession::start(|mut cx: procession::Context<std::rc::Rc<u32>>| async move {
//!     cx.recv().await;
//! });
//! ```
//!
//! The future passed to [`run`] or [`Scheduler::block_on`] stays on its thread, so it need not be
//! `Send`. The same holds for a process that is started by [`SpawnOptions::spawn_local`].
//!
//! # Errors
//!
//! An error says what was refused. If a call that returns a `Result` took a message, a closure or a
//! value, its error returns it. Two errors are two types if a caller handles them in different
//! ways:
//!
//! | errors | of what | why a separate type |
//! |---|---|---|
//! | [`Exit`] | the end of a process | says how the process ended, and is sent to others |
//! | [`SendError`] | a message to a process | has the message |
//! | [`CallError`] | a call of a process | has the message, or reports a timeout or no reply |
//! | [`SendCause`], [`CallCause`] | the same | can be kept, copied and sent, without the value |
//! | [`SpawnError`] | a spawn | has the future or the closure |
//! | [`SpawnCause`] | the same | can be kept, copied and sent, without the value |
//! | [`RegisterError`] | a name that is taken, a group | names the owner, or the missing process |
//! | `RegistryError` | a key that is taken | names the owner, and has the value |
//! | `BroadcastError` | a message to a group | has the message, and counts accepting members |
//! | `ScopeError` | a scope | has the error of the first process that failed |
//! | [`ParseError`], [`OutOfRange`] | a text or a number | name what was expected |
//! | [`MisplacedCall`] | a call in the wrong place | is a defect of the caller |
//! | [`BuildError`] | a scheduler | is shown to an operator |
//! | `DoorError` | a door | is a cause of a `BuildError` |
//! | [`BlockOnError`] | blocking on a future | has the future |
//! | [`InitError`], [`CommandError`] | a state machine, a command | are made by the program |
//! | [`Interrupted`] | a wait below C | asks C code to return |
//! | [`RelayError`] | a parcel for another node | has the parcel |
//! | [`RelayCause`] | the same | can be kept, copied and sent, without the parcel |
//! | `AskError` | a question to a process | is about the process |
//! | `TraceError` | a trace | is about the recorder |
//! | `SpecError` | the description of a supervisor | is a mistake in the program |
//! | `StartError` | the start of a supervisor | names the child that failed |
//! | `StartReason` | the start of a child | says why, and names the owner of a taken name |
//! | `ChildError` | a request to a supervisor | says what the child does |
//! | `RefusedChild` | a child with a value | has the value |
//! | [`sync::SendError`], [`sync::RecvError`] | all kinds of channels | the first has the message |
//! | [`sync::AcquireError`] | a lock, or permits | says whether a later try can succeed |
//! | [`Elapsed`], [`TimerLimit`] | a timeout, a timer | the second has the closure |
//! | [`SubmitError`] | a job that did not begin | has the closure |
//! | [`JobError`] | a job that did not end | says how the job ended |
//! | [`WaitError`] | a wait for a pool | says why it ended early; the wait can be repeated |
//! | [`PoolError`] | building or changing a pool | is about the settings of the pool |
//! | `ReuniteError` | two halves of different streams | has the halves |
//! | `CompatError` | a future that needs tokio | has the future |
//! | `http::Error` | a connection | has the causes of hyper and rustls |
//!
//! The errors without a link need a feature.
//!
//! [`SendCause`]: mailbox::SendCause
//! [`CallCause`]: mailbox::CallCause
//! [`SpawnCause`]: process::SpawnCause
//! [`SpawnError`]: process::SpawnError
//! [`RegisterError`]: process::RegisterError
//! [`ParseError`]: process::ParseError
//! [`OutOfRange`]: scheduler::OutOfRange
//! [`MisplacedCall`]: scheduler::MisplacedCall
//! [`BuildError`]: scheduler::BuildError
//! [`BlockOnError`]: scheduler::BlockOnError
//! [`InitError`]: machine::InitError
//! [`CommandError`]: machine::CommandError
//! [`Interrupted`]: coroutine::Interrupted
//! [`RelayError`]: mailbox::relay::RelayError
//! [`RelayCause`]: mailbox::relay::RelayCause
//! [`Elapsed`]: time::Elapsed
//! [`TimerLimit`]: time::TimerLimit
//! [`SubmitError`]: pool::SubmitError
//! [`JobError`]: pool::JobError
//! [`WaitError`]: pool::WaitError
//! [`PoolError`]: pool::PoolError
//!
//! # Features
//!
//! The features `io`, `look`, `macros`, `pool`, `signal` and `supervision` are on by default. With
//! `default-features = false`, a program has the kernel: processes, mailboxes, links and monitors,
//! timers, channels and locks, coroutines, [`spawn_blocking`], snapshots and reports of failures.
//! Any other part is built only if the program names its feature. If a program uses an item of a
//! feature that is off, the compiler's message names the feature.
//!
//! | feature | what it adds |
//! |---|---|
//! | `full` | all features of this table. For a first look, because it takes longest to build |
//! | `io` | [`net`], [`fs`], [`io`], [`os_process`]: sockets, files, streams, child processes |
//! | `look` | questions to a scheduler and its processes, and traces, in [`observe`] |
//! | `pool` | [pools](pool) of processes, coroutines, functions and objects; scoped pools |
//! | `supervision` | [`supervisor`], [`behaviour`], and the groups and registries of [`process`] |
//! | `hyper` | `http::{Executor, Timer}`, and hyper's I/O traits for streams. Implies `io` |
//! | `serve` | `http::Server` for tower services. Implies `hyper` |
//! | `http2` | HTTP/2 for the server, and for the client if it is there. Implies `serve` |
//! | `tls` | TLS by rustls for the server, and for the client if it is there. Implies `serve` |
//! | `client` | `http::Connector` for the client of hyper-util. Implies `hyper` |
//! | `macros` | the attribute `main` for async functions and, with `look`, `testing::test` |
//! | `metrics` | `observe::MetricsPublisher`, for the crate `metrics`. Implies `look` |
//! | `door` | `observe::Door` and `Builder::door`. Implies `io` and `look` |
//! | `serde` | serde's traits for PIDs, exits and views; see [below](#serde). Implies `look` |
//! | `signal` | `signal`: signals of the system, and `Scheduler::run_until_signal` |
//! | `stream` | `Stream` and `Sink` for channels, mailboxes, intervals, listeners and signals |
//! | `tokio-io` | tokio's I/O traits for streams, without its runtime. Implies `io` |
//! | `tokio` | crates that need tokio; and `io::compat` for single futures. Implies `tokio-io` |
//! | `tracing` | a span for each process, and an event for each failure and each stall |
//!
//! - `pool`: scoped pools borrow from their caller. A pool of threads needs no feature.
//! - `tls`: the program chooses the cryptography of rustls.
//! - `door`: an HTTP server at a Unix socket, through which the command `procession top`, a browser
//!   or a scraper of metrics looks into the program.
//! - `tokio`: such crates run unchanged in processes, because each scheduler has a tokio runtime
//!   (`Builder::tokio_threads`), even on the test clock.
//! - `tracing`: what supervisors do is also an event.
//!
//! ## serde
//! With the feature `serde`, [`Pid`] and [`Exit`] can be serialized and deserialized. Processes,
//! snapshots and views of [`observe`] can be serialized. The types that describe supervisors
//! cannot. A new version may add fields, exits and names to these representations:
//!
//! | type | representation |
//! |---|---|
//! | [`Pid`] | its text, as `"p1.42.7"` |
//! | [`Exit`] | a name such as `"no_process"`, or for five variants `{"failed": "no disk"}` |
//! | structs | structs with all public fields, under their names |
//! | [`ProcessState`](observe::ProcessState) | the text that `name` returns |
//! | [`WaitReason`](observe::WaitReason) | the text that `name` returns |
//! | [`Waiting`](observe::Waiting) | a sequence of wait reasons |
//! | other enums | their names in the form `"drop_oldest"` |
//! | places in the source | texts such as `"src/main.rs:31:13"` |
//! | durations | as serde has them: `{"secs": 1, "nanos": 500}` |
//! | times | durations since the start of the clock |
//!
//! ## Spans
//! With the feature `tracing`, each process has a span `process` with the target `procession` and
//! the level `DEBUG`. Processes of async pools have none. The fields are the PID, the label and, in
//! the end, the [`Exit`]. If a subscriber takes the level `TRACE` for this target, the place of the
//! spawn, the kind and the parent are added. The span is a root that follows from the span of its
//! spawner, and is never a child of another span.
//!
//! If the ids of [requests](mailbox::request) travel with messages, each message of a request that
//! a process receives has its own span, inside the span of the process, at the level `INFO`.
//!
//! The span is entered for each step, and for jobs of [`spawn_blocking`] that the process submits.
//! It is closed when both have ended. Each [report](observe::Reporting) of a process that fails, or
//! of a supervisor, is an event in its span, unless a hook receives it. Each stall that is reported
//! to [`Builder::on_stall`](scheduler::Builder::on_stall) is also an event at the level `WARN`.
//!
//! # A small program
//!
//! The linker leaves out what a program does not use. For example, these are the sizes of the proxy
//! among the examples, with the default features and `strip = true`, on x86-64 with Rust 1.95. Each
//! row of the profile adds to the row before:
//!
//! | `[profile.release]` | size |
//! |---|---:|
//! | the defaults | 1715 kB |
//! | `lto = "fat"` and `codegen-units = 1` | 1286 kB |
//! | `opt-level = "s"` for the packages `procession-runtime` and `procession-protocols` | 1109 kB |
//! | `panic = "abort"` | 965 kB |
//!
//! With `opt-level = "s"`, messages and spawns take more time. With `panic = "abort"`, a panic ends
//! the program instead of one process.
#![cfg_attr(docsrs, feature(doc_cfg))]
#![forbid(unsafe_code)]

/// The program in the README is a test.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;

/// The programs of two pages are tests here, because they need more crates. `.ci/run docs` runs the
/// other pages.
#[cfg(all(doctest, feature = "serve"))]
#[doc = include_str!("../../../docs/guide/04_http.md")]
struct GuideToHttp;

#[cfg(all(doctest, feature = "tokio"))]
#[doc = include_str!("../../../docs/guide/09_tokio.md")]
struct GuideToTokio;

// What a feature adds to the root stands alone: if the feature is off, the compiler looks for the
// item here, and names the feature.

#[doc(inline)]
pub use procession_runtime::{
    Address, CallError, Child, Context, Exit, JoinHandle, Pid, Reply, Scheduler, SendError,
    SpawnOptions, blocking, checkpoint, run, sleep, spawn, spawn_blocking, start, timeout,
    yield_now,
};
#[doc(inline)]
pub use procession_runtime::{coroutine, pool, time};

#[cfg(feature = "signal")]
#[doc(inline)]
pub use procession_runtime::signal;
#[cfg(feature = "supervision")]
#[doc(inline)]
pub use procession_runtime::{behaviour, supervisor};
#[cfg(feature = "io")]
#[doc(inline)]
pub use procession_runtime::{fs, os_process};

#[cfg_attr(not(feature = "hyper"), doc(hidden))]
pub mod http;
#[cfg(feature = "io")]
pub mod io;
pub mod machine;
pub mod mailbox;
#[cfg(feature = "io")]
pub mod net;
pub mod observe;
pub mod process;
pub mod scheduler;
pub mod sync;
#[cfg(all(feature = "macros", feature = "look"))]
pub mod testing;

/// Makes an async function the main function of a program.
///
/// ```
/// #[procession::main]
/// async fn main() -> Result<(), procession::Exit> {
///     let sum = procession::spawn(async { 1 + 1 }).await?;
///     assert_eq!(sum, 2);
///     Ok(())
/// }
/// ```
///
/// The function runs on the main thread, as in [`run`], while the processes of the default
/// scheduler run on its workers. The function is not a process, so its future need not be `Send`.
/// It may return what any main function may. [`Scheduler::global`] says what happens to the
/// processes when the function returns.
///
/// # Options
/// With options, the program has its own scheduler instead. The options are the methods of
/// [`Builder`](crate::scheduler::Builder): `name = value` calls a method with a value, and `name`
/// one without. They are called in their order. The scheduler is dropped when the function returns,
/// which terminates the processes that are left.
///
/// ```
/// use procession::Scheduler;
///
/// #[procession::main(worker_threads = 2, name = "service")]
/// async fn main() {
///     let seen = procession::spawn(async { std::thread::current().name().map(str::to_owned) });
///     let seen = seen.await.expect("it does not panic").expect("workers have names");
///     assert!(seen.starts_with("service"));
/// }
/// ```
///
/// `run_until_signal = value` makes it the main function of a service, whatever the scheduler: it
/// ends in order at the first SIGINT or SIGTERM, as
/// [`run_until_signal`](Scheduler#method.run_until_signal) describes (feature `signal`). The value
/// is a deadline, or `signal::ShutdownOptions`. A program that loses something then exits with a
/// failure.
///
/// ```
/// # #[cfg(feature = "signal")] mod service {
/// use std::time::Duration;
///
/// #[procession::main(run_until_signal = Duration::from_secs(30))]
/// async fn main() -> std::io::Result<()> {
///     // Starts a supervisor, and waits for its end. Here, it has nothing to do.
///     Ok(())
/// }
/// # pub fn run() { drop(main()) }
/// # }
/// # #[cfg(feature = "signal")] fn main() { service::run() }
/// # #[cfg(not(feature = "signal"))] fn main() {}
/// ```
///
/// `unsafe(name)` calls a method that is unsafe, such as
/// [`enable_coroutines`](crate::scheduler::Builder::enable_coroutines), and makes its promise. A
/// value with commas that are not in parentheses or brackets needs parentheses. `crate = path` is
/// the path of this crate, if it has another name in the program.
///
/// # Panics
/// Panics if the scheduler cannot be built ([`BuildError`](crate::scheduler::BuildError)).
#[cfg(feature = "macros")]
pub use procession_macros::main;

// Without this, the compiler would only say that the root has no such attribute.
#[cfg(any())] // It is `#[procession::testing::test]`.
pub use crate::testing::test;

/// What `procession-sim` implements and looks at. No promise.
#[cfg(feature = "sim")]
#[doc(hidden)]
pub use procession_runtime::sim;
