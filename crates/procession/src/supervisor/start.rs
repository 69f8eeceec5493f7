//! How supervisors start: by themselves, and as children.

use std::future::Future;
use std::sync::Arc;

use super::description::{ChildSpec, Make, Report, Request, Spawned, Started, Supervisor};
use super::error::StartError;
use super::policy::Stop;
use super::reference::{Running, SupervisorRef};
use super::supervise::supervise;
use crate::mailbox::call::pair;
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
        let options = options.called_at(crate::scheduler::owner::caller());
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
        let mut child = Self::made(crate::scheduler::owner::caller(), Make::Supervisor(Arc::new(supervisor))).id(id);
        child.stop = Stop::Wait;
        child
    }

    /// Starts it, as a child of the running process.
    pub(super) fn spawn(&self, report: Report) -> Result<Spawned, Arc<str>> {
        let mut options = SpawnOptions::new().link().monitor().supervised().called_at(self.location);
        if let Some(label) = self.label.as_ref().or(self.id.as_ref()) {
            options = options.label(&**label);
        }
        if let Some(name) = &self.name {
            options = options.name(Arc::clone(name));
        }
        if let Some((capacity, when_full)) = self.mailbox {
            options = options.mailbox(capacity, when_full);
        }
        if let Some(worker) = self.affinity {
            options = options.affinity(worker);
        }
        match &self.make {
            Make::Worker(factory, _) => factory(options, Started(Some(report))),
            Make::Supervisor(nested) => {
                let nested = Arc::clone(nested);
                let child = options
                    .try_start(move |cx: Context<Request>| supervise(cx, nested, Some(report), None))
                    .map_err(|error| Arc::from(error.to_string()))?;
                Ok((child.pid(), child.monitor_ref().expect("it was spawned with a monitor")))
            }
        }
    }
}
