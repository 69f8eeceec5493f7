//! The start of supervisors, on their own and as children.

use std::future::Future;
use std::sync::Arc;

use super::description::{ChildSpec, Factory, Make, Request, Spawned, Started, Supervisor};
use super::error::{StartError, StartReason};
use super::policy::Stop;
use super::reference::{Running, SupervisorRef};
use super::supervise::supervise;
use crate::mailbox::call::pair;
use crate::process::exit::OnCancel;
use crate::process::slot::SlotRef;
use crate::process::unwind::DropGuarded;
use crate::process::wait_reason::Waiting;
use crate::report::supervisor_report::DEFAULT_LABEL;
use crate::scheduler::owner;
use crate::{Address, Context, SpawnOptions};

impl Supervisor {
    /// Starts the supervisor, and returns once all its children have started. The supervisor is not
    /// linked to the caller.
    ///
    /// # Errors
    /// [`StartError`]: there is a mistake in the description, a child did not start, or the
    /// scheduler takes no more processes.
    ///
    /// # Cancellation
    /// If it is dropped before it completes, the supervisor still starts and runs.
    #[track_caller]
    pub fn try_start(self) -> impl Future<Output = Result<Running, StartError>> + Send {
        self.try_start_with(SpawnOptions::new().label(DEFAULT_LABEL))
    }

    /// Starts the supervisor like [`try_start`](Self::try_start), as a process with these options.
    /// It can belong to another scheduler, have a name, or be [linked](SpawnOptions::link) to the
    /// caller, as with OTP's `start_link`. If the parent ends it through the link, the supervisor
    /// stops its children first.
    ///
    /// A cancel makes the supervisor stop its children and end, whatever
    /// [`on_cancel`](SpawnOptions::on_cancel) says. A bounded [mailbox](SpawnOptions::mailbox)
    /// bounds the requests of others. A request that it refuses or drops fails as if the supervisor
    /// had ended. What children report needs no room.
    ///
    /// # Errors
    /// Like [`try_start`](Self::try_start).
    ///
    /// # Cancellation
    /// Like [`try_start`](Self::try_start).
    #[track_caller]
    pub fn try_start_with(
        self,
        options: SpawnOptions,
    ) -> impl Future<Output = Result<Running, StartError>> + Send {
        // If a supervisor were dropped, only the links would end its children, and children that
        // trap exits would continue.
        let options = options.called_at(owner::caller()).on_cancel(OnCancel::Ask).expendable();
        async move {
            // Checked and started at the first poll, because the scheduler is the one on which the
            // future is awaited.
            self.check().map_err(StartError::Spec)?;
            let description = Arc::new(self);
            let (reply, caller) = pair();
            let child = options
                .try_start(move |cx: Context<Request>| {
                    supervise(cx, description, None, Some(reply))
                })
                .map_err(|error| StartError::Refused(StartReason::of(error.cause())))?;
            let (address, handle) = child.into_parts();
            caller.replied(Waiting::REPLY).await.unwrap_or(Err(StartError::Ended))?;
            Ok(Running::new(SupervisorRef::new(address), handle))
        }
    }
}

impl ChildSpec<SupervisorRef> {
    /// Describes a supervisor as a child. It has started once all its own children have started.
    #[track_caller]
    pub fn supervisor(id: impl Into<Arc<str>>, supervisor: Supervisor) -> Self {
        let nested = Arc::new(supervisor);
        let description = Arc::clone(&nested);
        let factory = move |options: SpawnOptions, started: Started| {
            let (description, report) = (Arc::clone(&description), started.into_report());
            let child = options
                .try_start(move |cx: Context<Request>| supervise(cx, description, report, None))
                .map_err(|error| StartReason::of(error.cause()))?;
            Ok(Spawned::of(child))
        };
        let factory = DropGuarded::new(Arc::new(factory) as Arc<Factory>);
        let make = Make { factory, reports_start: true, nested: Some(nested) };
        let reference = |process: SlotRef| match Address::of_pin(process) {
            Ok(address) => SupervisorRef::new(address),
            Err(process) => unreachable!("{} was started as a supervisor", process.pid()),
        };
        let mut child = Self::of(owner::caller(), make, reference).id(id);
        child.stop = Stop::Wait;
        child
    }
}

impl From<ChildSpec<SupervisorRef>> for ChildSpec {
    fn from(child: ChildSpec<SupervisorRef>) -> Self {
        child.untyped()
    }
}
