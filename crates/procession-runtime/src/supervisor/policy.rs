//! The policies by which a supervisor treats its children.

use std::time::Duration;

/// What happens to the other children when a child is restarted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Strategy {
    /// The other children continue.
    OneForOne,
    /// The other children are stopped in reverse order, and all children are started again.
    OneForAll,
    /// The children that were started after the restarted child are stopped in reverse order, and
    /// started again.
    RestForOne,
    /// The other children continue. Any number of children can be added and removed at run time,
    /// with or without ids. The children have no order.
    Dynamic,
}

/// When a child is restarted. See the [table](super#restarts).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Restart {
    /// Always.
    #[default]
    Permanent,
    /// If it failed.
    Transient,
    /// Never.
    Temporary,
}

/// The way in which a supervisor stops a child. See [Stopping](super#stopping).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Stop {
    /// Cancels the child, and terminates it if it has not ended in time. If the scheduler shuts
    /// down, the child has until the deadline of that shutdown. If only the supervisor stops it,
    /// for example for a restart, it has 5 s.
    #[default]
    Graceful,
    /// Terminates the child immediately, as OTP's `brutal_kill`.
    Kill,
    /// Cancels the child, and terminates it if it has not ended after this time, even if a
    /// shutdown of the scheduler would leave it more.
    Within(Duration),
    /// Sends the child [`Exit::Shutdown`](crate::Exit::Shutdown), which ends it immediately unless
    /// it traps exits. Terminates it if it has not ended after this time.
    Signal(Duration),
    /// Cancels the child, and waits until it has ended. Meant for supervisors.
    Wait,
}

/// The rule by which a supervisor ends once significant children have ended on their own and are
/// not restarted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum AutoShutdown {
    /// It does not end.
    #[default]
    Never,
    /// It ends when one significant child has ended.
    AnySignificant,
    /// It ends when the last significant child has ended. A child that waits for its start or its
    /// restart has not ended.
    AllSignificant,
}

/// The time that a supervisor waits before it restarts a child that fails repeatedly.
///
/// The first wait is about `first`. Each further wait is twice as long as the previous wait, up to
/// `most`. The actual time is drawn between half of the wait and the whole wait, from the
/// scheduler's seed. After a child has run for longer than `most`, its waits begin at `first`
/// again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct BackOff {
    /// The first wait.
    pub first: Duration,
    /// The longest wait.
    pub most: Duration,
}
