//! How a supervisor treats its children: when it restarts, stops and waits.

use std::time::Duration;

/// What happens to the others when a child is restarted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Strategy {
    /// Nothing.
    OneForOne,
    /// They are stopped, in reverse, and all are started again.
    OneForAll,
    /// Those that were started after it are stopped, in reverse, and started again.
    RestForOne,
    /// Nothing. Children are added and removed at run time, any number, with or without ids, in no order.
    Dynamic,
}

/// When a child is restarted. See the [table](super#restarts).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Restart {
    /// Always.
    #[default]
    Permanent,
    /// When it failed.
    Transient,
    /// Never.
    Temporary,
}

/// How a child is ended by its supervisor. See [Stopping](super#stopping).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stop {
    /// It is terminated at once: OTP's `brutal_kill`.
    Kill,
    /// It is cancelled, and terminated if it has not ended after this time.
    Within(Duration),
    /// It is sent [`Exit::Shutdown`](crate::Exit::Shutdown), which ends it at once unless it traps exits, and terminated if it has not ended after this time.
    Signal(Duration),
    /// It is cancelled, and waited for as long as it takes. Meant for supervisors.
    Wait,
}

/// Whether a supervisor ends when significant children have ended by themselves, and are not restarted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum AutoShutdown {
    /// No.
    #[default]
    Never,
    /// When any of them has.
    AnySignificant,
    /// When the last of them has.
    AllSignificant,
}

/// How long a supervisor waits before it restarts a child, if that fails again and again.
///
/// The first restart waits for about `first`, each further one for twice as long as the one before, up to `most`. Each wait is drawn between a half and all of that,
/// by the scheduler's seed. A child that has run for longer than `most` begins anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BackOff {
    /// The first wait.
    pub first: Duration,
    /// The longest wait.
    pub most: Duration,
}
