//! The functions of the user that a pool calls.

use std::any::Any;
use std::convert::identity;
use std::fmt;
use std::sync::Arc;

use procession_protocols::pool::state::outcome::Ended;

use crate::process::exit::Exiting;
use crate::process::unwind::{guarded, print_caught, print_text, text_of};

pub(super) type PoolHook = Arc<dyn Fn() + Send + Sync>;
type PanicHandler = Arc<dyn Fn(Box<dyn Any + Send>) + Send + Sync>;

/// The payload of a job's panic, unless the handle received the panic.
pub(super) type Panic = Option<Box<dyn Any + Send>>;

/// The rest of a job after its end: a panic that no handle receives.
pub(super) type Settled = Result<(), Panic>;

/// The functions of the user that a pool calls.
#[derive(Clone, Default)]
pub(super) struct Hooks {
    pub(super) start: Option<PoolHook>,
    pub(super) stop: Option<PoolHook>,
    pub(super) panic: Option<PanicHandler>,
}

impl Hooks {
    /// Calls the start or the stop hook, if there is one.
    pub(super) fn run(hook: Option<&PoolHook>) {
        if let Some(hook) = hook {
            // Ignored: a hook that panics has run, and its message was printed.
            drop(guarded(|| hook()));
        }
    }

    /// Returns `true` if a hook must run when a worker begins or leaves.
    pub(super) fn has_life(&self) -> bool {
        self.start.is_some() || self.stop.is_some()
    }

    /// Turns the outcome of a job into its end, and reports a panic that no handle receives.
    pub(super) fn ended(&self, outcome: Settled) -> Ended {
        match outcome {
            Ok(()) => Ended::Completed,
            Err(payload) => {
                if let Some(payload) = payload {
                    self.report(payload);
                }
                Ended::Panicked
            }
        }
    }

    fn report(&self, payload: Box<dyn Any + Send>) {
        // The reason of an exit, and not the private type that carries it.
        let exited = |exiting: Box<Exiting>| -> Box<dyn Any + Send> { Box::new(exiting.0) };
        let payload = payload.downcast().map_or_else(identity, exited);
        match &self.panic {
            Some(handler) => {
                print_text(text_of(&*payload));
                drop(guarded(|| handler(payload)));
            }
            None => print_caught(payload),
        }
    }
}

impl fmt::Debug for Hooks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Hooks(..)")
    }
}
