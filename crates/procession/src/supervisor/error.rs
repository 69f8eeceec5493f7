//! What can be wrong with a supervisor, its start, and what is asked of it.

use std::error::Error;
use std::fmt;
use std::sync::Arc;

use crate::Pid;

/// What is wrong with the description of a supervisor.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SpecError {
    /// Two children have this id.
    DuplicateId(Arc<str>),
    /// Two children have this name.
    DuplicateName(Arc<str>),
    /// A child has no id, and the supervisor is not dynamic; counted from 0.
    NoId(usize),
    /// There is a template, and the supervisor is not dynamic.
    Template,
    /// This child is significant, but `auto_shutdown` is `Never`.
    SignificantForNothing(Arc<str>),
    /// This child is significant, but permanent: it never ends for good.
    SignificantPermanent(Arc<str>),
    /// The period of the intensity is zero.
    ZeroPeriod,
    /// The back-off begins with nothing, or above its end.
    BackOff,
    /// The mailbox of this child has room for no message.
    Mailbox(Arc<str>),
    /// This child is a supervisor, whose mailbox is not to be bounded.
    SupervisorMailbox(Arc<str>),
    /// This child is a supervisor, and its description is wrong.
    Nested {
        /// The child.
        child: Arc<str>,
        /// What is wrong.
        error: Box<Self>,
    },
}

impl fmt::Display for SpecError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::DuplicateId(id) => write!(f, "two children have the id {id:?}"),
            Self::DuplicateName(name) => write!(f, "two children have the name {name:?}"),
            Self::NoId(place) => write!(f, "child number {place} has no id, and the supervisor is not dynamic"),
            Self::Template => f.write_str("there is a template, but the supervisor is not dynamic"),
            Self::SignificantForNothing(id) => {
                write!(f, "child {id:?} is significant, but auto_shutdown is never")
            }
            Self::SignificantPermanent(id) => {
                write!(f, "child {id:?} is significant, but permanent, so it never ends for good")
            }
            Self::ZeroPeriod => f.write_str("the period is 0, but must be more"),
            Self::BackOff => f.write_str("the back-off begins with 0, or above its end"),
            Self::Mailbox(id) => write!(f, "the capacity of the mailbox of child {id:?} is 0, but must be at least 1"),
            Self::SupervisorMailbox(id) => {
                write!(f, "the mailbox of child {id:?} is bounded, but that is a supervisor")
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
    /// Its description is wrong.
    Spec(SpecError),
    /// It could not be made a process; the text says why.
    Refused(Arc<str>),
    /// A child did not start. Those before it have been stopped.
    Child {
        /// The child; `#` and a number if it has no id.
        id: Arc<str>,
        /// Why.
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
            Self::Ended => f.write_str("it was ended"),
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

/// Why a supervisor did not do what it was asked.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ChildError {
    /// It has no such child.
    NotFound,
    /// A child of this id is there already, as this process.
    AlreadyStarted(Pid),
    /// A child of this id is there already, stopped.
    AlreadyPresent,
    /// The child runs, starts or stops.
    Running(Pid),
    /// The child waits for its restart.
    Restarting,
    /// The child did not start; the text says why. It is not kept, if it was to be a new one.
    Start(Arc<str>),
    /// The description of the child is wrong.
    Spec(SpecError),
    /// There is no template.
    NoTemplate,
    /// The supervisor is ending, or has ended.
    Ended,
}

impl fmt::Display for ChildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotFound => f.write_str("there is no such child"),
            Self::AlreadyStarted(pid) => write!(f, "there is a child of this id already: {pid}"),
            Self::AlreadyPresent => f.write_str("there is a child of this id already, which is stopped"),
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
