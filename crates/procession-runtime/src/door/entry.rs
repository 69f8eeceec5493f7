//! The methods by which a program opens its door, and finds it.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::{fmt, io};

use std::sync::Arc;

use super::access::Keys;
use super::part::DoorPart;
use super::settings::{DoorChoice, DoorOptions};
use crate::{Builder, Scheduler};

/// Available with the crate feature `door`.
impl Builder {
    /// Opens a [door](crate::door::Door) through which the scheduler can be observed from outside.
    /// It is closed when the last [`Scheduler`] handle is dropped. Default: no door, unless the
    /// environment variable `PROCESSION_DOOR` is 1.
    ///
    /// If the door cannot be opened, [`build`](Self::build) fails with
    /// [`BuildError::Door`](crate::scheduler::BuildError::Door).
    pub fn door(self, options: DoorOptions) -> Self {
        self.door_choice(DoorChoice::Given(options))
    }

    /// Opens no door, whatever the environment says.
    pub fn no_door(self) -> Self {
        self.door_choice(DoorChoice::None)
    }
}

/// Available with the crate feature `door`.
impl Scheduler {
    /// Returns the door of this scheduler, if it has one.
    pub fn door(&self) -> Option<Door> {
        DoorPart::look(self.shared(), |opened| Door {
            socket: opened.socket.path().to_owned(),
            tcp: opened.tcp,
            keys: Arc::clone(&opened.keys),
        })
    }
}

/// The address of a door, through which a scheduler is observed from outside. It does not keep the
/// door open.
///
/// Available with the crate feature `door`.
///
/// [`Builder::door`](crate::Builder::door) opens a *door*: a server at a Unix socket that
/// only the user of the program can connect to. The command `procession` reads it, and so does
/// every HTTP client:
///
/// ```sh
/// procession top                    # what runs, and what it waits for
/// curl --unix-socket "$XDG_RUNTIME_DIR"/procession/NAME.PID.*.sock http://localhost/metrics
/// ```
///
/// The server runs on an isolated scheduler with one worker. It therefore answers while all workers
/// of the observed scheduler are stalled, and does not show its own processes. It costs one thread,
/// which wakes each 2 s to keep the [history](#routes), and a few descriptors. Without a door there
/// is no thread and no descriptor.
///
/// The file of the socket is removed with the last handle of the scheduler, and when the program
/// ends in order: after `main`, or in [`exit`](std::process::exit). If the program is killed, the
/// next door in the same directory removes the file.
///
/// # Opening a door without a change of the program
/// If a program has the feature `door` and is started with the environment variable
/// `PROCESSION_DOOR=1`, each scheduler opens a door with the default settings, unless its
/// builder says otherwise. It is read-only and at a Unix socket, whatever else is set. The variable
/// is ignored in a program that runs with more rights than its caller (set-user-ID), and for
/// schedulers with a test clock. If the door cannot be opened, the program continues, and a line on
/// standard error states the reason.
///
/// # Routes
/// | request | answer |
/// |---|---|
/// | `GET /` | the page, for browsers |
/// | `GET /about` | the program, the scheduler, its sections, and what this door allows |
/// | `GET /metrics` | counters and gauges as OpenMetrics text; `docs/METRICS.md` lists them |
/// | `GET /view?sort=KEY&top=N&group=KEY&since=VIEW` | [rows and groups](crate::Scheduler::look) |
/// | `GET /processes?skip=N&count=M` | at most 1000 of all processes, in the order of their slots |
/// | `GET /process/PID` | one process, with its wait, links, monitors and children |
/// | `GET /process/PID/stack?seconds=N` | its [stacks](crate::Scheduler::stack) |
/// | `GET /process/PID/inspect` | names and values that it [shows](crate::Scheduler::inspect) |
/// | `GET /NAME` | a [section](crate::Context::show_section) that a library shows |
/// | `GET /tree` | the supervision tree |
/// | `GET /crashes` | the last 64 processes that failed |
/// | `GET /crash/NUMBER` | one crash, with its [backtrace](crate::report::CrashReport::backtrace) |
/// | `GET /cycles` | the last 16 [cycles of waits](crate::Scheduler::wait_cycles) |
/// | `GET /leaks` | processes that can [never continue](crate::Scheduler::leaks) |
/// | `GET /workers` | workers, queues, waits from wake-up to step, timers, descriptors |
/// | `GET /pools` | pools, added up by name |
/// | `GET /timeline?ms=N` | what each worker ran in the last N milliseconds, at most 10 000 |
/// | `GET /history?after=US` | points of the last ten minutes, one each 2 s, for plots |
/// | `GET /live?with=PARTS&interval=MS` | server-sent events |
/// | `GET /stalls` | what the watchdog has found |
/// | `GET /trace?seconds=N` | [events](crate::recorder::Trace), as a file for Perfetto |
/// | `POST /process/PID/cancel` | [cancels](crate::relations::cancel()) the process |
/// | `POST /process/PID/kill` | [ends](crate::relations::kill()) the process |
/// | `POST /process/PID/suspend?seconds=N` | [stops](crate::Scheduler::suspend_for) the process |
/// | `POST /process/PID/resume` | [ends](crate::Scheduler::resume) its suspension |
///
/// - `/view` takes the filters `pid`, `state`, `waiting`, `kind`, `label` and `location`. `since`
///   is the member `view` of an earlier answer. The door keeps the last 16 views to compare with.
/// - `/process/PID/stack` waits for N seconds, at most 10 and by default 1. The member `source` is
///   `wait` or `step`. The program takes one stack at a time.
/// - `/NAME` is the name of a section. For example, `/cluster` shows the nodes of
///   `procession-cluster`. The member `sections` of `/about` lists the names.
/// - `/timeline` shows the time as 300 columns, as far back as the
///   [recorder](crate::recorder::Trace) still has it. Each column names the location with the
///   processes that took most of its time.
/// - `/history` returns the points after the time `at_us` of an earlier point.
/// - `/live` sends a `view`, the `workers`, a point of the history, and the latest crash with each
///   event. The parameters of `/view` choose the view, and its window begins at the previous event.
///   PARTS is a list of `crashes`, `pools`, `sections`, `timeline` and `tree`. There are at most
///   four events a second, and fewer if all looking would otherwise take more than 1 % of the
///   processors; the members `share` and `interval_ms` show this. At most four connections follow
///   at the same time.
/// - `/trace` records for N seconds, at most 10. Without `seconds`, it returns the latest events.
///   The door makes one trace at a time, of at most 64 MiB.
/// - `/process/PID/suspend` stops the process for N seconds, at most 60 and by default 5.
///
/// The answers are JSON objects unless the table says otherwise. The member `version` is 1; readers
/// ignore members that they do not know.
///
/// If the process of a request has ended, the door answers with the status 404. If the process
/// cannot do what is asked, it answers with 409: the process shows nothing, has no stack, was asked
/// to end, or is not suspended. If the process does not answer in time, the door answers with 503.
///
/// # Limits
/// Each connection is for one request. A door answers up to 8 requests of its Unix socket and 8 of
/// TCP concurrently, and refuses further requests with the status 503. A request takes a place once
/// it has passed all checks. On each of the two ways, 32 connections may exist before their
/// requests have passed the checks. One more connection closes the oldest, so that silent
/// connections lock nobody out. The head of a request has at most 64 KiB and arrives within 5
/// seconds; the response is read within 5 seconds. An answer has at most 4 MiB; if rows are left
/// out, its member `truncated` is `true`. Texts of the program are cut to 120 characters.
///
/// # Security
/// - The directory of the socket belongs to the user, has the mode 0700 and is no symbolic link, or
///   the door is not opened. The socket has the mode 0600. The kernel reports the user of each peer
///   (`SO_PEERCRED`); only the user of the program and root are accepted.
/// - TCP is opened only if [`DoorOptions::tcp`](crate::door::DoorOptions::tcp) asks for it, and
///   only at a loopback address. A browser gets in by a [link](Door::link) that works once. It is
///   exchanged for a cookie, which the browser sends to no other site and for no request of another
///   site.
/// - `Host` must name this machine, and `Origin` the door itself, so that no web page can use the
///   browser to look in.
/// - Requests cannot change anything unless
///   [`DoorOptions::allow_actions`](crate::door::DoorOptions::allow_actions) was called.
/// - Messages are never shown, and of the states of processes only what the program
///   [decides to show](crate::machine::Process::inspect).
pub struct Door {
    socket: PathBuf,
    tcp: Option<SocketAddr>,
    keys: Arc<Keys>,
}

impl Door {
    /// Returns the path of the Unix socket.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// Returns the TCP address, if the door listens at one.
    pub fn tcp(&self) -> Option<SocketAddr> {
        self.tcp
    }

    /// Returns a link with which a browser gets in by TCP, or `None` if the door does not listen
    /// there.
    ///
    /// Each call returns another link, and each link works once. A browser exchanges it for a
    /// cookie. Of links that were not used, and of sessions, the last 8 are kept.
    ///
    /// # Errors
    /// Returns the system's error if it has no random bytes.
    pub fn link(&self) -> io::Result<Option<String>> {
        let Some(address) = self.tcp else { return Ok(None) };
        let token = self.keys.add_link()?;
        Ok(Some(format!("http://{address}/?token={token}")))
    }
}

impl fmt::Debug for Door {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Door")
            .field("socket", &self.socket())
            .field("tcp", &self.tcp)
            .finish_non_exhaustive()
    }
}
