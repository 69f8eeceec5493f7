//! The errors of descriptions, starts and requests.

use std::error::Error;
use std::fmt;
use std::sync::Arc;

use crate::Pid;
use crate::relations::names::RegisterError;
use crate::scheduler::spawn_error::SpawnCause;
use crate::util::exclusive::Exclusive;

/// The mistake in the description of a supervisor.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SpecError {
    /// Two children have this id.
    DuplicateId(Arc<str>),
    /// Two children have this name.
    DuplicateName(Arc<str>),
    /// The child with this number, counted from 0, has no id, but the supervisor is not dynamic.
    NoId(usize),
    /// This child is significant, but `auto_shutdown` is `Never`.
    SignificantForNothing(Arc<str>),
    /// This child is significant, but permanent, so it never ends for good.
    SignificantPermanent(Arc<str>),
    /// The period of the intensity is zero.
    ZeroPeriod,
    /// The back-off begins at zero, or above its end.
    BackOff,
    /// The mailbox of this child has no room for a message.
    Mailbox(Arc<str>),
    /// This child is a supervisor, but its mailbox is bounded or kept.
    SupervisorMailbox(Arc<str>),
    /// This child is a supervisor with a mistake in its description.
    Nested {
        /// The child.
        child: Arc<str>,
        /// The mistake.
        error: Box<Self>,
    },
}

impl fmt::Display for SpecError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::DuplicateId(id) => write!(f, "two children have the id {id:?}"),
            Self::DuplicateName(name) => write!(f, "two children have the name {name:?}"),
            Self::NoId(place) => {
                write!(f, "child number {place} has no id, but the supervisor is not dynamic")
            }
            Self::SignificantForNothing(id) => {
                write!(f, "child {id:?} is significant, but auto_shutdown is never")
            }
            Self::SignificantPermanent(id) => {
                write!(f, "child {id:?} is significant, but permanent, so it never ends for good")
            }
            Self::ZeroPeriod => f.write_str("the period is 0, but must be longer"),
            Self::BackOff => f.write_str("the back-off begins at 0, or above its end"),
            Self::Mailbox(id) => write!(
                f,
                "the capacity of the mailbox of child {id:?} is 0, but must be at least 1"
            ),
            Self::SupervisorMailbox(id) => {
                write!(f, "child {id:?} is a supervisor, but its mailbox is bounded or kept")
            }
            Self::Nested { child, error } => write!(f, "in child {child:?}: {error}"),
        }
    }
}

impl Error for SpecError {}

/// Why the process of a child or of a supervisor did not start.
///
/// ```
/// use procession::supervisor::{ChildError, ChildSpec, Supervisor};
/// use procession::{Context, process};
///
/// procession::run(async {
///     let tree = Supervisor::dynamic().try_start().await?;
///     let audit = ChildSpec::new("audit", |mut cx: Context<()>| async move { cx.recv().await });
///     let first = tree.add_child(audit.clone().name("audit")).await?;
///     let Err(ChildError::Start(reason)) =
///         tree.add_child(audit.name("audit").id("second")).await
///     else {
///         panic!("the name is taken");
///     };
///     let taken = reason.register_error().expect("it is the reason");
///     assert_eq!((taken.name(), taken.owner()), ("audit", Some(first.pid())));
///     let text = format!("cannot start a process: `audit` is taken by {}", first.pid());
///     assert_eq!(reason.to_string(), text);
///     Ok::<(), Box<dyn std::error::Error>>(())
/// })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StartReason {
    text: Arc<str>,
    name: Option<RegisterError>,
}

impl StartReason {
    pub(super) fn of(cause: &SpawnCause) -> Self {
        Self { text: cause.to_string().into(), name: cause.register_error().cloned() }
    }

    /// The reason of a child that has dropped its report.
    pub(super) fn not_reported() -> Self {
        "it did not report that it is ready".into()
    }

    /// Returns the error of the registration, if the name or the key of a registry was refused.
    pub fn register_error(&self) -> Option<&RegisterError> {
        self.name.as_ref()
    }

    pub(super) fn text(&self) -> Arc<str> {
        Arc::clone(&self.text)
    }
}

impl From<Arc<str>> for StartReason {
    fn from(text: Arc<str>) -> Self {
        Self { text, name: None }
    }
}

impl From<String> for StartReason {
    fn from(text: String) -> Self {
        Arc::<str>::from(text).into()
    }
}

impl From<&str> for StartReason {
    fn from(text: &str) -> Self {
        Arc::<str>::from(text).into()
    }
}

impl Error for StartReason {}

impl fmt::Display for StartReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Why a supervisor did not start.
///
/// Its `Debug` form is its text, because that is what a `main` that returns the error prints.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum StartError {
    /// There is a mistake in its description.
    Spec(SpecError),
    /// Its process was refused, for this reason.
    Refused(StartReason),
    /// A child did not start. The children before it have been stopped.
    Child {
        /// The id of the child, or `#` and a number if it has no id.
        id: Arc<str>,
        /// The reason.
        reason: StartReason,
    },
    /// The supervisor was ended before all its children had started.
    Ended,
}

impl fmt::Debug for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("cannot start the supervisor: ")?;
        match self {
            Self::Spec(error) => error.fmt(f),
            Self::Refused(reason) => reason.fmt(f),
            Self::Child { id, reason } => write!(f, "child {id:?} did not start: {reason}"),
            Self::Ended => f.write_str("it was ended before all its children had started"),
        }
    }
}

impl Error for StartError {}

/// Why a supervisor did not fulfil a request.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ChildError {
    /// The supervisor has no such child.
    NotFound,
    /// There is a child with this id already. This is its process.
    AlreadyStarted(Pid),
    /// There is a child with this id already. It is stopped.
    AlreadyPresent,
    /// The child runs, starts or stops. This is its process.
    Running(Pid),
    /// The child waits for its restart.
    Restarting,
    /// The child did not start, for this reason. If the child was new, the supervisor forgets it.
    Start(StartReason),
    /// There is a mistake in the description of the child.
    Spec(SpecError),
    /// The supervisor is ending, or has ended.
    Ended,
}

impl ChildError {
    /// Returns the process that stands in the way of the new child: it has the same id, or the name
    /// or the key that the new child was to get.
    pub fn owner(&self) -> Option<Pid> {
        match self {
            Self::AlreadyStarted(pid) => Some(*pid),
            Self::Start(reason) => reason.register_error()?.owner(),
            _ => None,
        }
    }
}

impl fmt::Display for ChildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotFound => f.write_str("there is no such child"),
            Self::AlreadyStarted(pid) => write!(f, "there is already a child with this id: {pid}"),
            Self::AlreadyPresent => {
                f.write_str("there is already a child with this id, which is stopped")
            }
            Self::Running(pid) => write!(f, "the child runs: {pid}"),
            Self::Restarting => f.write_str("the child waits for its restart"),
            Self::Start(reason) => write!(f, "the child did not start: {reason}"),
            Self::Spec(error) => error.fmt(f),
            Self::Ended => f.write_str("the supervisor has ended, or is ending"),
        }
    }
}

impl Error for ChildError {}

/// The error of a child that was made from a value and did not start. It holds the value, and the
/// [`ChildError`].
pub struct RefusedChild<V> {
    value: Exclusive<Option<V>>,
    cause: ChildError,
}

impl<V> RefusedChild<V> {
    pub(super) fn new(value: Option<V>, cause: ChildError) -> Self {
        Self { value: Exclusive::new(value), cause }
    }

    /// Returns the value: the closure or function of an [`OnceSpec`](super::OnceSpec), or the
    /// argument for a [`Template`](super::Template). Returns `None` if the value has moved into a
    /// process that did not start, for example into a server with an `init` that failed.
    pub fn into_inner(self) -> Option<V> {
        self.value.into_inner()
    }

    /// Returns the value, as [`into_inner`](Self::into_inner) does, and the cause.
    pub fn into_parts(self) -> (Option<V>, ChildError) {
        (self.value.into_inner(), self.cause)
    }

    /// Returns the cause, which is `Send`, `Sync` and `'static` whatever the value is.
    pub fn cause(&self) -> &ChildError {
        &self.cause
    }
}

impl<V> fmt::Debug for RefusedChild<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RefusedChild").field("cause", &self.cause).finish_non_exhaustive()
    }
}

impl<V> fmt::Display for RefusedChild<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.cause.fmt(f)
    }
}

impl<V> Error for RefusedChild<V> {}

impl<V> From<RefusedChild<V>> for ChildError {
    fn from(error: RefusedChild<V>) -> Self {
        error.cause
    }
}
