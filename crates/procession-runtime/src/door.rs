//! Looking into a running program from outside: an HTTP server that belongs to a scheduler.
//!
//! [`Builder::observe`](crate::Builder::observe) opens a *door*: a server at a Unix socket that
//! only the user of the program can connect to. The command `procession` reads it, and so does
//! every HTTP client:
//!
//! ```sh
//! procession top                    # what runs, and what it waits for
//! curl --unix-socket "$XDG_RUNTIME_DIR"/procession/NAME.PID.*.sock http://localhost/metrics
//! ```
//!
//! The server runs on an isolated scheduler with one worker. It therefore answers while all workers
//! of the observed scheduler are stalled, and does not show its own processes. It costs one thread,
//! which sleeps, and a few descriptors. Without a door there is no thread and no descriptor.
//!
//! # Opening a door without a change of the program
//! If a program has the feature `observe` and is started with the environment variable
//! `PROCESSION_OBSERVE=1`, each scheduler opens a door with the default settings, unless its
//! builder says otherwise. It is read-only and at a Unix socket, whatever else is set. The variable
//! is ignored in a program that runs with more rights than its caller (set-user-ID), and for
//! schedulers with a test clock. If the door cannot be opened, the program continues, and a line on
//! standard error states the reason.
//!
//! # Routes
//! | request | answer |
//! |---|---|
//! | `GET /` | the page, for browsers |
//! | `GET /about` | the program, the scheduler, and what this door allows |
//! | `GET /metrics` | counters and gauges as OpenMetrics text; `docs/METRICS.md` lists them |
//! | `GET /view?sort=KEY&top=N&group=KEY&since=VIEW` | a [look](crate::look): rows and groups of processes. Filters: `pid`, `state`, `waiting`, `kind`, `label`, `place`. `since` is the member `view` of an earlier answer; the door keeps the last 16 |
//! | `GET /processes?skip=N&count=M` | a part of the list of all processes, in the order of their slots, at most 1000 |
//! | `GET /process/PID` | one process, with its wait, links, monitors and children |
//! | `GET /process/PID/stack?seconds=N` | its [stacks](crate::Scheduler::stack): the member `source` is `wait` or `step`. It gives up after N seconds, at most 10; by default 1. One at a time in the program |
//! | `GET /process/PID/inspect` | what the process [shows of itself](crate::Scheduler::inspect), as a list of names and values |
//! | `GET /NAME` | a [section](crate::Context::show_section) that a library shows, such as `/cluster` for the nodes of `procession-cluster`. The member `sections` of `/about` lists them |
//! | `GET /tree` | the supervision tree |
//! | `GET /crashes` | the last 64 processes that failed |
//! | `GET /crash/NUMBER` | one of these, with its [backtrace](crate::report::CrashReport::backtrace) |
//! | `GET /workers` | workers, queues, timers, descriptors |
//! | `GET /pools` | pools, added up by name |
//! | `GET /timeline?ms=N` | what each worker ran in the last N milliseconds, at most 10 000, as far as the [recorder](crate::recorder) still has it: 300 columns, each with the place whose processes had the most of it |
//! | `GET /live?with=PARTS&interval=MS` | server-sent events, each with a `view`, the `workers` and the latest crash. The parameters of `/view` choose the view, whose window begins at the event before. PARTS is a list of `crashes`, `pools`, `sections`, `timeline` and `tree`. There are at most four events a second, and as few as keep all looking under 1 % of the processors; `share` and `interval_ms` tell. Four connections may follow at once |
//! | `GET /stalls` | what the watchdog has found |
//! | `GET /trace?seconds=N` | the [events](crate::recorder) of the next N seconds, at most 10, as a file for Perfetto; without `seconds`, the latest events. One at a time, at most 64 MiB |
//! | `POST /process/PID/cancel` | cancels the process: [`Scheduler::cancel`](crate::Scheduler::cancel) |
//! | `POST /process/PID/terminate` | ends the process: [`Scheduler::terminate`](crate::Scheduler::terminate) |
//! | `POST /process/PID/suspend?seconds=N` | stops the process for N seconds, at most 60; by default 5: [`Scheduler::suspend_for`](crate::Scheduler::suspend_for) |
//! | `POST /process/PID/resume` | ends its suspension: [`Scheduler::resume`](crate::Scheduler::resume) |
//!
//! The answers are JSON objects unless the table says otherwise. The member `version` is 1; readers
//! ignore members that they do not know.
//!
//! A request about a process that has ended is answered with the status 404. If the process cannot
//! do what is asked, because it shows nothing, has no stack, was told to end or is not suspended,
//! the status is 409. If it does not answer in time, it is 503.
//!
//! # Limits
//! Each connection is for one request. A door answers up to 8 requests of its Unix socket and 8 of
//! TCP concurrently, and refuses further requests with the status 503. A request takes a place once
//! it has passed all checks. On each of the two ways, 32 connections may exist before their
//! requests have passed the checks. One more connection closes the oldest, so that silent
//! connections lock nobody out. The head of a request has at most 64 KiB and arrives within 5
//! seconds; the response is read within 5 seconds. An answer has at most 4 MiB; if rows are left
//! out, its member `truncated` is `true`. Texts of the program are cut to 120 characters.
//!
//! # Security
//! - The directory of the socket belongs to the user, has the mode 0700 and is no symbolic link, or
//!   the door is not opened. The socket has the mode 0600. The kernel reports the user of each peer
//!   (`SO_PEERCRED`); only the user of the program and root are accepted.
//! - TCP is opened only if [`Observe::tcp`] asks for it, and only at a loopback address. A browser
//!   gets in by a [link](Door::link) that works once. It is exchanged for a cookie, which the
//!   browser sends to no other site and for no request of another site.
//! - `Host` must name this machine, and `Origin` the door itself, so that no web page can use the
//!   browser to look in.
//! - Requests cannot change anything unless [`Observe::allow_actions`] was called.
//! - Messages are never shown, and of the states of processes only what the program
//!   [decides to show](crate::machine::Process::inspect).

mod access;
mod actions;
mod activity;
mod answers;
mod asks;
mod details;
mod entry;
mod json;
mod labels;
mod live;
mod metrics;
pub(crate) mod open;
pub(crate) mod opened;
mod page;
pub(crate) mod part;
mod places;
mod request;
mod response;
mod routes;
mod sections;
mod serve;
pub(crate) mod settings;
mod socket;
mod traces;
mod views;

pub use crate::scheduler::error::ObserveError;
pub use entry::Door;
pub use settings::Observe;
