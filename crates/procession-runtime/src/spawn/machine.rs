//! The start of a state machine.

use crate::machine::process::{MachineBody, Process};
use crate::mailbox::address::Address;
use crate::process::body::Body;
use crate::process::typed::TypedKind;
use crate::scheduler::owner::Scheduler;
use crate::scheduler::spawn_error::SpawnError;
use crate::spawn::join_handle::Child;
use crate::spawn::options::SpawnOptions;

impl SpawnOptions {
    /// Starts a state machine. See [`spawn_machine`](crate::machine::spawn_machine).
    ///
    /// # Errors
    /// Returns [`SpawnError`] as [`try_spawn`](Self::try_spawn) does, or if `init` refuses.
    #[track_caller]
    pub fn spawn_machine<P: Process>(
        self,
        process: P,
        method: &str,
        input: P::Input,
    ) -> Result<Child<P::Message, P::Output>, SpawnError<P>> {
        let location = crate::scheduler::owner::caller();
        let kind = TypedKind::<P::Message>::machine();
        let mut address = None;
        self.launch(kind.erased(), location, 1, process, |process, newborn| {
            address = Some(Address::new(kind.pin(newborn)));
            MachineBody::init(process, method, input).map(|body| body as Box<dyn Body>)
        })
        .map(|(share, monitor)| Child::new(address, share, monitor))
    }
}

impl Scheduler {
    /// Starts a state machine on this scheduler. See
    /// [`spawn_machine`](crate::machine::spawn_machine).
    ///
    /// # Errors
    /// [`SpawnError`], which holds the state machine.
    #[track_caller]
    pub fn spawn_machine<P: Process>(
        &self,
        process: P,
        method: &str,
        input: P::Input,
    ) -> Result<Child<P::Message, P::Output>, SpawnError<P>> {
        SpawnOptions::new().on(self).spawn_machine(process, method, input)
    }
}
