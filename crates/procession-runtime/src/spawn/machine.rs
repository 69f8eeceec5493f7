//! The start of a state machine.

use crate::machine::process::{MachineBody, Process};
use crate::mailbox::address::Address;
use crate::process::body::Body;
use crate::process::typed::TypedKind;
use crate::scheduler::spawn_error::SpawnError;
use crate::spawn::join_handle::Child;
use crate::spawn::options::SpawnOptions;

impl SpawnOptions {
    /// Starts a state machine by the entry point `method`.
    ///
    /// ```
    /// use procession::SpawnOptions;
    /// use procession::machine::{Events, InitError, Process, Status, WaitingFor, Yields};
    /// use procession::mailbox::Event;
    ///
    /// /// Adds numbers up until it gets a zero.
    /// struct Sum(u32);
    ///
    /// impl Process for Sum {
    ///     type Input = ();
    ///     type Message = u32;
    ///     type Output = u32;
    ///
    ///     fn init(&mut self, method: &str, (): ()) -> Result<(), InitError> {
    ///         if method == "sum" { Ok(()) } else { Err(InitError::unknown_method(method)) }
    ///     }
    ///
    ///     fn step(
    ///         &mut self,
    ///         events: &mut Events<u32>,
    ///         _: &mut Yields<'_>,
    ///     ) -> Result<Status<u32>, Box<dyn std::error::Error + Send + Sync>> {
    ///         for event in events {
    ///             match event {
    ///                 Event::Message(0) | Event::Cancel => return Ok(Status::Done(self.0)),
    ///                 Event::Message(n) => self.0 += n,
    ///                 _ => {}
    ///             }
    ///         }
    ///         Ok(Status::Wait(WaitingFor::Messages))
    ///     }
    /// }
    ///
    /// procession::run(async {
    ///     let sum = SpawnOptions::new().try_start_machine(Sum(0), "sum", ())?;
    ///     for n in [1, 2, 3, 0] {
    ///         sum.send(n).expect("it has not got its zero yet");
    ///     }
    ///     assert_eq!(sum.await, Ok(6));
    ///     let error = SpawnOptions::new().try_start_machine(Sum(0), "average", ()).unwrap_err();
    ///     assert_eq!(error.to_string(), "cannot start a process: it has no method \"average\"");
    ///     Ok::<(), procession::process::SpawnError<Sum>>(())
    /// })?;
    /// # Ok::<(), procession::process::SpawnError<Sum>>(())
    /// ```
    ///
    /// # Errors
    /// [`SpawnError`] returns the process if the scheduler takes no more processes or `init`
    /// refuses.
    #[track_caller]
    pub fn try_start_machine<P: Process>(
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
