//! The errors of descriptions, starts and requests.

use std::error::Error;
use std::fmt;
use std::sync::Arc;

use crate::Pid;

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
    /// The supervisor has a template, but is not dynamic.
    Template,
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
    /// This child is a supervisor, but its mailbox is bounded.
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
            Self::Template => f.write_str("there is a template, but the supervisor is not dynamic"),
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
                write!(f, "child {id:?} is a supervisor, but its mailbox is bounded")
            }
            Self::Nested { child, error } => write!(f, "in child {child:?}: {error}"),
        }
    }
}

impl Error for SpecError {}

/// Why a supervisor did not start.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StartError {
    /// There is a mistake in its description.
    Spec(SpecError),
    /// Its process was refused, for this reason.
    Refused(Arc<str>),
    /// A child did not start. The children before it have been stopped.
    Child {
        /// The id of the child, or `#` and a number if it has none.
        id: Arc<str>,
        /// The reason.
        reason: Arc<str>,
    },
    /// The supervisor was ended before all its children had started.
    Ended,
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("cannot start the supervisor: ")?;
        match self {
            Self::Spec(error) => error.fmt(f),
            Self::Refused(reason) => f.write_str(reason),
            Self::Child { id, reason } => write!(f, "child {id:?} did not start: {reason}"),
            Self::Ended => f.write_str("it was ended before all its children had started"),
        }
    }
}

impl Error for StartError {}

/// The supervisor has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SupervisorGone;

impl fmt::Display for SupervisorGone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the supervisor has ended")
    }
}

impl Error for SupervisorGone {}

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
    /// The child did not start, for this reason. A new child is not kept then.
    Start(Arc<str>),
    /// There is a mistake in the description of the child.
    Spec(SpecError),
    /// The supervisor has no template.
    NoTemplate,
    /// The supervisor is ending, or has ended.
    Ended,
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
            Self::NoTemplate => f.write_str("the supervisor has no template"),
            Self::Ended => f.write_str("the supervisor has ended, or is ending"),
        }
    }
}

impl Error for ChildError {}

impl From<SupervisorGone> for ChildError {
    fn from(_: SupervisorGone) -> Self {
        Self::Ended
    }
}
