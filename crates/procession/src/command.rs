//! Commands: what state machines yield, and who serves them.

use std::any::Any;
use std::collections::BTreeMap;
use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use procession_sync::Mutex;

use crate::BuildError;
use crate::action::Action;
use crate::body::{System, drop_guarded, guarded};
use crate::slot::{Pin, Slot};
use crate::time::{Armed, arm};
use crate::world::nanoseconds;

/// What goes into and comes out of a command, and into a state machine's start: any value, to be downcast.
pub type Value = Box<dyn Any + Send>;

/// What came of a command.
pub type CommandResult = Result<Value, CommandError>;

/// The number of a kind of command. Those below 256 belong to the runtime.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CommandId(pub u16);

impl CommandId {
    /// Completes after a [`Duration`], with `()`.
    pub const SLEEP: Self = Self(1);

    /// The first number that users may give to commands of their own.
    pub const FIRST_FREE: Self = Self(256);
}

impl fmt::Display for CommandId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "command {}", self.0)
    }
}

/// Why a command gave no value.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CommandError {
    /// No handler is registered for it.
    Unknown(CommandId),
    /// Its handler dropped the completion, or panicked before it gave one.
    Dropped,
    /// Its input is not of the type that its handler wants; the text names that type.
    WrongInput(&'static str),
    /// The scheduler has no timer left for it.
    TimerLimit,
    /// Its handler failed.
    Failed(Arc<str>),
}

impl fmt::Display for CommandError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown(id) => write!(f, "no handler is registered for {id}"),
            Self::Dropped => f.write_str("the handler dropped the completion"),
            Self::WrongInput(wanted) => write!(f, "the command's input is not of type {wanted}"),
            Self::TimerLimit => f.write_str("the scheduler has reached its limit of timers"),
            Self::Failed(text) => write!(f, "the command failed: {text}"),
        }
    }
}

impl Error for CommandError {}

/// What serves a command. Closures of two arguments are handlers.
pub trait Handler: Send + Sync + 'static {
    /// Serves one command. This runs on the worker of the process that yielded it, so it must not block; the completion may be used at
    /// once, or kept and used from any thread.
    fn handle(&self, input: Value, completion: Completion);
}

impl<F: Fn(Value, Completion) + Send + Sync + 'static> Handler for F {
    fn handle(&self, input: Value, completion: Completion) {
        self(input, completion);
    }
}

impl fmt::Debug for dyn Handler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Handler")
    }
}

/// The right to complete one command, once. Dropping it completes the command with [`CommandError::Dropped`]. If the process has ended
/// meanwhile, nothing happens.
#[derive(Debug)]
pub struct Completion {
    slot: Pin,
    tag: u64,
    done: bool,
}

impl Completion {
    fn new(slot: &Slot, tag: u64) -> Self {
        slot.shared().begin_outstanding();
        Self { slot: Pin::again(slot), tag, done: false }
    }

    /// Completes the command.
    pub fn complete(mut self, result: CommandResult) {
        self.finish(result);
    }

    fn finish(&mut self, result: CommandResult) {
        if !std::mem::replace(&mut self.done, true) {
            // Ignored: a process that has ended wants no completion.
            self.slot.push_system(Box::new(System::Completion { tag: self.tag, result }));
            self.slot.shared().end_outstanding();
        }
    }
}

impl Drop for Completion {
    fn drop(&mut self) {
        self.finish(Err(CommandError::Dropped));
    }
}

/// The handlers of a scheduler, fixed when it is built.
#[derive(Debug)]
pub(crate) struct Registry(BTreeMap<CommandId, Arc<dyn Handler>>);

impl Registry {
    pub(crate) fn new(handlers: Vec<(CommandId, Arc<dyn Handler>)>) -> Result<Self, BuildError> {
        let mut registry = Self(BTreeMap::new());
        for (id, handler) in handlers {
            if id < CommandId::FIRST_FREE {
                return Err(BuildError::Invalid(format!("{id} has a handler, but those below 256 are the runtime's")));
            }
            if registry.0.insert(id, handler).is_some() {
                return Err(BuildError::DuplicateCommand(id));
            }
        }
        Ok(registry)
    }

    /// Has a command served for the process in `slot`; a sleep's timer is the process's to cancel.
    pub(crate) fn dispatch(&self, slot: &Slot, id: CommandId, tag: u64, input: Value) -> Option<Armed> {
        if id == CommandId::SLEEP {
            return match sleep(slot, tag, input) {
                Ok(timer) => Some(timer),
                Err(error) => {
                    slot.push_system(Box::new(System::Completion { tag, result: Err(error) }));
                    None
                }
            };
        }
        let completion = Completion::new(slot, tag);
        match self.0.get(&id) {
            // A panic drops the completion, which completes the command with an error.
            Some(handler) => drop(guarded(|| handler.handle(input, completion))),
            None => {
                drop_guarded(input);
                completion.complete(Err(CommandError::Unknown(id)));
            }
        }
        None
    }
}

fn sleep(slot: &Slot, tag: u64, input: Value) -> Result<Armed, CommandError> {
    let duration = input.downcast::<Duration>().map_err(|input| {
        drop_guarded(input);
        CommandError::WrongInput("Duration")
    })?;
    let shared = slot.shared();
    let when = shared.world.now().saturating_add(nanoseconds(*duration));
    let sleeper = Pin::again(slot);
    // Which timer it is, is known once it is set; it cannot fire before, since only this worker looks at its own heap meanwhile, or
    // finds the cell locked.
    let timer = Arc::new(Mutex::new(None));
    let set = Arc::clone(&timer);
    let mut timer = timer.lock().expect("nothing that can panic runs under this lock");
    let fire = Action::Call(Arc::new(move || {
        if let Some(timer) = *set.lock().expect("nothing that can panic runs under this lock") {
            sleeper.push_system(Box::new(System::Slept { tag, timer }));
        }
    }));
    let armed = arm(shared, when, None, fire).map_err(|_| CommandError::TimerLimit)?;
    *timer = Some(armed);
    Ok(armed)
}
