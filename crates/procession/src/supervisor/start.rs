//! How supervisors start: by themselves, and as children.

use std::future::Future;
use std::sync::Arc;

use super::description::{ChildSpec, Make, Request, Started, Supervisor};
use super::error::StartError;
use super::policy::Stop;
use super::reference::{Running, SupervisorRef};
use super::supervise::supervise;
use crate::mailbox::call::pair;
use crate::scheduler::owner;
use crate::{Context, SpawnOptions, Waiting};

impl Supervisor {
    /// Starts the supervisor, and returns once all its children have started. It is not linked to the caller.
    ///
    /// # Errors
    /// [`StartError`]: the description is wrong, a child did not start, or the scheduler takes no more processes.
    ///
    /// # Cancellation
    /// Dropped before it is complete, it leaves the supervisor to start and run by itself.
    #[track_caller]
    pub fn start(self) -> impl Future<Output = Result<Running, StartError>> + Send {
        self.start_with(SpawnOptions::new().label("supervisor"))
    }

    /// As [`start`](Self::start), as a process with these options: of another scheduler, [linked](SpawnOptions::link) to the caller (OTP's
    /// `start_link`), with a name. When its parent ends it by the link, it stops its children first.
    ///
    /// # Errors
    /// As for [`start`](Self::start).
    ///
    /// # Cancellation
    /// As for [`start`](Self::start).
    #[track_caller]
    pub fn start_with(self, options: SpawnOptions) -> impl Future<Output = Result<Running, StartError>> + Send {
        let options = options.called_at(owner::caller());
        async move {
            // Here, so that the scheduler is that of who awaits this.
            self.check().map_err(StartError::Spec)?;
            let description = Arc::new(self);
            let (reply, caller) = pair();
            let child = options
                .try_start(move |cx: Context<Request>| supervise(cx, description, None, Some(reply)))
                .map_err(|error| StartError::Refused(error.to_string().into()))?;
            let (address, handle) = child.into_parts();
            caller.replied(Waiting::REPLY).await.unwrap_or(Err(StartError::Ended))?;
            Ok(Running::new(SupervisorRef::new(address), handle))
        }
    }
}

impl ChildSpec {
    /// A supervisor, with children of its own. It has started when they have.
    #[track_caller]
    pub fn supervisor(id: impl Into<Arc<str>>, supervisor: Supervisor) -> Self {
        let nested = Arc::new(supervisor);
        let description = Arc::clone(&nested);
        let factory = move |options: SpawnOptions, started: Started| {
            let (description, report) = (Arc::clone(&description), started.into_report());
            let child = options
                .try_start(move |cx: Context<Request>| supervise(cx, description, report, None))
                .map_err(|error| Arc::from(error.to_string()))?;
            Ok((child.pid(), child.monitor_ref().expect("it was spawned with a monitor")))
        };
        let make = Make { factory: Arc::new(factory), reports_start: true, nested: Some(nested) };
        let mut child = Self::of(owner::caller(), make).id(id);
        child.stop = Stop::Wait;
        child
    }
}
