//! What the library needs of the floor above: guests, which it starts without knowing them.

use std::fmt::Debug;

use procession::supervisor::ChildSpec;
use procession::{Pid, SpawnOptions};

use crate::entry::Entry;
use crate::program::Program;
use crate::value::Value;

/// The host of the functions of the library. All others that they need are in a [`Program`] and the
/// [`Bounds`](crate::permissions::Bounds) of a process.
pub(crate) trait Host: Debug + Sync {
    /// Starts a process of a program, and returns its PID.
    fn spawn(
        &self,
        program: &Program,
        entry: &Entry,
        options: SpawnOptions,
        arguments: Vec<Value>,
    ) -> Result<Pid, String>;

    /// Returns the child of a supervisor that runs the current version of a program. `input`
    /// returns the arguments of each start.
    fn child(
        &self,
        id: String,
        program: Program,
        entry: Entry,
        input: Box<dyn Fn() -> Vec<Value> + Send + Sync>,
    ) -> ChildSpec;
}
