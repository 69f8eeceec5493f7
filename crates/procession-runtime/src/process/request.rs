//! The requests to processes and their answers: what a process shows of itself, the stacks of a
//! step, and the headers of messages.

use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;

use procession_protocols::process::request_table::{RequestTable, TableRequest};
use procession_protocols::util::sorted_map::SortedMap;
use procession_sync::Mutex;

use crate::Pid;
use crate::mailbox::header::RequestId;
#[cfg(feature = "door")]
use crate::process::stack_notes::StackNotes;
use crate::time::action::Armed;
use crate::util::bounded_text::{bounded_text, cut};

/// The answer to a request to inspect. The error is the text of a panic.
pub(crate) type InspectAnswer = Box<dyn FnOnce(Result<Inspection, String>) + Send>;

/// The requests of all processes. `E` is the entry of a ready process.
pub(crate) type ProcessRequests<E> = RequestTable<ProcessRequest, E, Armed>;

/// A request, with the function that takes the answer. It must not block or panic.
pub(crate) enum ProcessRequest {
    /// To note the stacks of the next step that waits.
    #[cfg(feature = "door")]
    Stack(StackRequest),
    /// To show what the process shows of itself.
    Inspect(InspectAnswer),
    /// To trace the headers of the messages, in each step until the trace is over.
    Trace(TraceRequest),
}

/// A request for the headers of messages. Its drop notifies the caller that the trace is over.
pub(crate) struct TraceRequest {
    pub(crate) log: Arc<MessageLog>,
    /// Refers to something while the caller waits for the end of the trace.
    pub(crate) caller: Weak<()>,
}

impl TraceRequest {
    /// Returns `true` if the trace is over.
    pub(crate) fn is_over(&self) -> bool {
        self.caller.strong_count() == 0 || self.log.is_full()
    }
}

impl Drop for TraceRequest {
    fn drop(&mut self) {
        self.log.finish();
    }
}

/// A request for the stacks of a step.
#[cfg(feature = "door")]
pub(crate) struct StackRequest {
    /// Takes the stacks.
    pub(crate) answer: Box<dyn FnOnce(StackNotes) + Send>,
    /// Refers to something while the caller waits for the answer.
    pub(crate) caller: Weak<()>,
}

#[cfg(feature = "door")]
impl StackRequest {
    /// Returns `true` if the caller has given up.
    pub(crate) fn is_given_up(&self) -> bool {
        self.caller.strong_count() == 0
    }
}

impl TableRequest for ProcessRequest {
    fn waits_for_step(&self) -> bool {
        match self {
            #[cfg(feature = "door")]
            Self::Stack(_) => true,
            Self::Trace(_) => true,
            Self::Inspect(_) => false,
        }
    }
}

/// The direction of a message, as the traced process sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum MessageDirection {
    /// The process has received the message.
    Received,
    /// The process has sent the message.
    Sent,
}

impl MessageDirection {
    /// Returns `received` or `sent`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Received => "received",
            Self::Sent => "sent",
        }
    }
}

/// What a trace shows of a message. See
/// [`Scheduler::trace_messages`](crate::Scheduler::trace_messages).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TracedMessage {
    /// The time since the beginning of the trace.
    pub after: Duration,
    /// Its direction.
    pub direction: MessageDirection,
    /// The sender of a received message, if a process has sent it; the receiver of a sent one.
    pub other: Option<Pid>,
    /// The name of its type.
    pub type_name: &'static str,
    /// The size of its type in bytes. Memory that the message owns on the heap does not count.
    pub bytes: usize,
    /// The [request](crate::request) that it belongs to, if ids of requests travel.
    pub request: Option<RequestId>,
}

/// Calls this when the trace is over.
type TraceDone = Box<dyn FnOnce() + Send>;

/// The messages that a trace has recorded.
pub(crate) struct MessageLog {
    /// The time on the clock of the scheduler at which the trace began.
    began: u64,
    max: usize,
    messages: Mutex<Vec<TracedMessage>>,
    done: Mutex<Option<TraceDone>>,
}

impl MessageLog {
    /// Creates a log of at most `max` messages. `done` must not panic.
    pub(crate) fn new(began: u64, max: usize, done: TraceDone) -> Self {
        let messages = Mutex::new(Vec::with_capacity(max));
        Self { began, max, messages, done: Mutex::new(Some(done)) }
    }

    /// Records a message that is received or sent at the time `now`, unless the log is full.
    pub(crate) fn record(&self, now: u64, mut message: TracedMessage) {
        message.after = Duration::from_nanos(now.saturating_sub(self.began));
        let is_full = {
            let mut messages = self.messages.lock();
            if messages.len() < self.max {
                messages.push(message);
            }
            messages.len() == self.max
        };
        if is_full {
            self.finish();
        }
    }

    pub(crate) fn is_full(&self) -> bool {
        self.messages.lock().len() == self.max
    }

    /// Notifies the caller that nothing more will be recorded.
    pub(crate) fn finish(&self) {
        let done = self.done.lock().take();
        if let Some(done) = done {
            done();
        }
    }

    /// Takes the messages.
    pub(crate) fn take(&self) -> Vec<TracedMessage> {
        std::mem::take(&mut *self.messages.lock())
    }
}

/// The maximum number of fields.
const FIELDS_MAX: usize = 64;
/// The maximum length of a name in bytes.
const NAME_MAX: usize = 64;
/// The maximum length of a value in bytes.
pub(crate) const VALUE_MAX: usize = 1024;

/// The fields that a process shows of itself. See
/// [`Scheduler::inspect`](crate::Scheduler::inspect).
///
/// It has at most 64 fields, with names of at most 64 bytes and values of at most 1024 bytes. The
/// rest is cut off.
///
/// ```
/// use procession::observe::Inspection;
///
/// let mut shown = Inspection::default();
/// shown.field("balance", 120).field("owner", format_args!("{:?}", "ann"));
/// let fields: Vec<_> = shown.fields().collect();
/// assert_eq!(fields, [("balance", "120"), ("owner", "\"ann\"")]);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Inspection {
    fields: Vec<(String, String)>,
    truncated: bool,
}

impl crate::Outcome for Inspection {}

impl Inspection {
    /// Adds a field.
    pub fn field(&mut self, name: &str, value: impl fmt::Display) -> &mut Self {
        if self.fields.len() == FIELDS_MAX {
            self.truncated = true;
            return self;
        }
        let (text, is_whole) = bounded_text(value, VALUE_MAX);
        let short = cut(name, NAME_MAX);
        self.truncated |= !is_whole || short.len() < name.len();
        self.fields.push((short.to_owned(), text));
        self
    }

    /// Returns the fields, each a name and a value, in the order in which they were added.
    pub fn fields(&self) -> impl Iterator<Item = (&str, &str)> {
        self.fields.iter().map(|(name, value)| (&**name, &**value))
    }

    /// Returns `true` if there are no fields.
    pub fn is_empty(&self) -> bool {
        self.fields.is_empty()
    }

    /// Returns `true` if something was cut off.
    pub fn is_truncated(&self) -> bool {
        self.truncated
    }
}

/// A closure that shows a process.
pub(crate) type Inspector = Arc<dyn Fn(&mut Inspection) + Send + Sync>;

/// The closures of all processes, by slot and generation.
#[derive(Default)]
pub(crate) struct Inspectors(Mutex<InspectorTable>);

#[derive(Default)]
struct InspectorTable {
    /// In the order in which they were added.
    by_process: SortedMap<(u32, u32, u64), Inspector>,
    last: u64,
}

impl Inspectors {
    /// Adds a closure of a process. Returns its number.
    pub(crate) fn add(&self, slot: u32, generation: u32, inspector: Inspector) -> u64 {
        let mut table = self.0.lock();
        table.last += 1;
        let number = table.last;
        table.by_process.insert((slot, generation, number), inspector);
        number
    }

    /// Takes a closure out, to be dropped.
    pub(crate) fn remove(&self, slot: u32, generation: u32, number: u64) -> Option<Inspector> {
        self.0.lock().by_process.remove(&(slot, generation, number))
    }

    /// Returns the closures of a process.
    pub(crate) fn of(&self, slot: u32, generation: u32) -> Vec<Inspector> {
        let table = self.0.lock();
        let range = (slot, generation, 0)..=(slot, generation, u64::MAX);
        table.by_process.range(range).map(|(_, inspector)| Arc::clone(inspector)).collect()
    }

    /// Takes all closures out, to be dropped.
    pub(crate) fn take_all(&self) -> impl Iterator<Item = Inspector> + use<> {
        std::mem::take(&mut self.0.lock().by_process).into_values()
    }
}
