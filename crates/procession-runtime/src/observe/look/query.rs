//! The questions that a look answers.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use crate::Pid;
use crate::observe::look::view::{Baseline, View};
use crate::observe::process_state::ProcessState;
use crate::process::shown_waits::WaitReason;
use crate::time::Instant;
use crate::util::parse_error::ParseError;

/// The number of rows of a view, unless the query sets another.
const TOP_DEFAULT: usize = 50;
/// The largest number of rows and of groups that one view has. A thousand rows are more than any
/// screen shows, and take less than 1 MiB.
const TOP_MAX: usize = 1000;

/// A question to [`Scheduler::look`](crate::Scheduler::look): which processes, in which order, and
/// how many.
///
/// The filters of a query all have to match. By default, a query is about all processes, sorted by
/// their [samples](SortKey::Samples), and returns at most 50 processes, without groups.
///
/// ```
/// use procession::observe::{GroupKey, ProcessState, Query, SortKey, WaitReason};
/// use procession::Scheduler;
///
/// let scheduler = Scheduler::builder().test_clock().build()?;
/// for _ in 0..3 {
///     scheduler.start(|mut cx: procession::Context<u32>| async move { cx.recv().await });
/// }
/// scheduler.run_until_idle();
///
/// let query = Query::new()
///     .state(ProcessState::Idle)
///     .waiting_for(WaitReason::Message)
///     .sort(SortKey::Mailbox)
///     .top(2)
///     .group_by(GroupKey::Location);
/// let view = scheduler.look(&query);
/// assert_eq!((view.processes, view.matched, view.rows.len()), (3, 3, 2));
/// assert_eq!((view.groups.len(), view.groups[0].processes), (1, 3));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct Query {
    pub(crate) filter: Filter,
    pub(crate) sort: SortKey,
    pub(crate) top: usize,
    pub(crate) group_by: Option<GroupKey>,
    pub(crate) since: Option<(Option<Instant>, Arc<Baseline>)>,
}

/// The conditions that a process has to meet.
#[derive(Clone, Debug, Default)]
pub(crate) struct Filter {
    pub(crate) pid: Option<Pid>,
    pub(crate) state: Option<ProcessState>,
    pub(crate) waiting_for: Option<WaitReason>,
    pub(crate) kind: Option<String>,
    pub(crate) label: Option<String>,
    pub(crate) location: Option<LocationPattern>,
}

/// A part of the name of a file, and perhaps a line.
#[derive(Clone, Debug)]
pub(crate) struct LocationPattern {
    pub(crate) file: String,
    pub(crate) line: Option<u32>,
}

impl Default for Query {
    fn default() -> Self {
        Self::new()
    }
}

impl Query {
    /// Creates a query about all processes.
    pub fn new() -> Self {
        Self {
            filter: Filter::default(),
            sort: SortKey::Samples,
            top: TOP_DEFAULT,
            group_by: None,
            since: None,
        }
    }

    /// Returns only the process with this PID.
    pub fn pid(mut self, pid: Pid) -> Self {
        self.filter.pid = Some(pid);
        self
    }

    /// Returns only processes in this state.
    pub fn state(mut self, state: ProcessState) -> Self {
        self.filter.state = Some(state);
        self
    }

    /// Returns only processes that wait for this, perhaps among others.
    pub fn waiting_for(mut self, reason: WaitReason) -> Self {
        self.filter.waiting_for = Some(reason);
        self
    }

    /// Returns only processes of this kind: `async`, `local`, `machine` or `coroutine`.
    pub fn kind(mut self, kind: impl Into<String>) -> Self {
        self.filter.kind = Some(kind.into());
        self
    }

    /// Returns only processes with a label that contains this text.
    pub fn label(mut self, text: impl Into<String>) -> Self {
        self.filter.label = Some(text.into());
        self
    }

    /// Returns only processes that were spawned at this location: a part of the path of a file,
    /// such as `src/bank.rs`, or the end of the path with a line, such as `bank.rs:42`.
    pub fn location(mut self, location: &str) -> Self {
        let with_line = location
            .rsplit_once(':')
            .and_then(|(file, line)| Some((file.to_owned(), Some(line.parse().ok()?))));
        let (file, line) = with_line.unwrap_or_else(|| (location.to_owned(), None));
        self.filter.location = Some(LocationPattern { file, line });
        self
    }

    /// Sets the order of the rows. The default is [`SortKey::Samples`].
    pub fn sort(mut self, key: SortKey) -> Self {
        self.sort = key;
        self
    }

    /// Sets the maximum number of rows, and of groups. The default is 50, the maximum 1000; a
    /// larger number means the maximum. With 0, a view has only its totals.
    pub fn top(mut self, top: usize) -> Self {
        self.top = top.min(TOP_MAX);
        self
    }

    /// Adds the groups of the processes that the query is about. By default, there are none.
    pub fn group_by(mut self, key: GroupKey) -> Self {
        self.group_by = Some(key);
        self
    }

    /// Sorts by what has happened since an earlier view of the same scheduler, and returns the
    /// differences. See [`View::since`].
    pub fn since(mut self, earlier: &View) -> Self {
        self.since = Some((earlier.at, Arc::clone(&earlier.baseline)));
        self
    }
}

/// The figure by which the rows and the groups of a view are sorted, the largest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum SortKey {
    /// The processor time, by the samples of the watchdog.
    Samples,
    /// The number of dispatches.
    Steps,
    /// The number of messages that wait.
    Mailbox,
    /// The number of messages by which the mailbox has grown since the earlier view. Without one,
    /// this is the same as [`Mailbox`](Self::Mailbox).
    Growth,
    /// The time for which the process has waited at least.
    WaitAge,
    /// The bytes of memory that are known.
    Memory,
}

/// The property that the processes of a group share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum GroupKey {
    /// The location where they were spawned.
    Location,
    /// Their state.
    State,
    /// Everything that they wait for, and the location where.
    Waiting,
}

impl SortKey {
    /// All keys.
    pub const ALL: [Self; 6] =
        [Self::Samples, Self::Steps, Self::Mailbox, Self::Growth, Self::WaitAge, Self::Memory];

    /// Returns the name of the key, which [`FromStr`] reads.
    pub fn name(self) -> &'static str {
        match self {
            Self::Samples => "samples",
            Self::Steps => "steps",
            Self::Mailbox => "mailbox",
            Self::Growth => "growth",
            Self::WaitAge => "age",
            Self::Memory => "memory",
        }
    }
}

impl GroupKey {
    /// All keys.
    pub const ALL: [Self; 3] = [Self::Location, Self::State, Self::Waiting];

    /// Returns the name of the key, which [`FromStr`] reads.
    pub fn name(self) -> &'static str {
        match self {
            Self::Location => "location",
            Self::State => "state",
            Self::Waiting => "waiting",
        }
    }
}

impl FromStr for SortKey {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let found = Self::ALL.into_iter().find(|key| key.name() == text);
        let expected = "one of samples, steps, mailbox, growth, age, memory";
        found.ok_or_else(|| ParseError::new(text, expected))
    }
}

impl FromStr for GroupKey {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let found = Self::ALL.into_iter().find(|key| key.name() == text);
        found.ok_or_else(|| ParseError::new(text, "one of location, state, waiting"))
    }
}

impl FromStr for ProcessState {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let found = Self::ALL.into_iter().find(|state| state.name() == text);
        found.ok_or_else(|| ParseError::new(text, "one of ready, running, blocked, idle, complete"))
    }
}

impl FromStr for WaitReason {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let found = Self::ALL.into_iter().find(|reason| reason.name() == text);
        let expected = "one of message, timer, process, reply, completion, cancel, channel, lock, token, \
                        room, readable, writable, pool, stack, waker";
        found.ok_or_else(|| ParseError::new(text, expected))
    }
}

impl fmt::Display for SortKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Display for GroupKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
