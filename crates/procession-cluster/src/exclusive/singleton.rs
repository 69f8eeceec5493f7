//! Children of supervisors that run once in the cluster.

use std::sync::Arc;
use std::time::Duration;

use procession::process::{Returns, cancelled, exit, until_cancelled};
use procession::supervisor::{ChildSpec, Restart, Stop, Supervisor, SupervisorRef};
use procession::{Context, Exit};

use super::claim::ClaimError;
use super::names::ExclusiveNames;
use super::store::Fence;

/// The restarts of a singleton that its supervisor tolerates: more than the restarts that follow
/// from lost leases, of which there are at most 2 in this time.
const INTENSITY: (u32, Duration) = (3, Duration::from_secs(5));

/// A child of a supervisor that runs on one node of the cluster at a time.
///
/// Give it to supervisors on several nodes. On each, a process is started that claims an
/// [exclusive name](super). The first one to get the name runs `process` with its [`Fence`], and
/// the others wait. If the process ends, or its node stops, dies or freezes, the name moves to one
/// of the waiting processes, which then runs.
///
/// ```
/// use procession::supervisor::Supervisor;
/// use procession::sync::oneshot;
/// use procession::{Context, Exit};
/// use procession_cluster::exclusive::{ExclusiveNames, Fence, Singleton};
/// use procession_cluster::{Cookie, Node};
/// use std::sync::Mutex;
///
/// # type Error = Box<dyn std::error::Error + Send + Sync>;
/// # fn main() -> Result<(), Error> {
/// procession::run(async {
///     let node = Node::builder("shop@127.0.0.1").cookie(Cookie::random()?).start().await?;
///     let names = ExclusiveNames::builder(&node).start();
///     let (runs, running) = oneshot::channel();
///     let runs = Mutex::new(Some(runs));
///     let bills = Singleton::new(&names, "bills", move |mut cx: Context<()>, fence: Fence| {
///         if let Some(runs) = runs.lock().expect("nobody panics").take() {
///             drop(runs.send(fence)); // Ignored: nobody may wait.
///         }
///         async move { while cx.recv().await.is_some() {} }
///     });
///     let tree = Supervisor::one_for_one().child(bills).try_start().await?;
///     let fence = running.await?;
///     let holder = names.holder("bills").await?;
///     assert_eq!(holder.map(|holder| holder.fence), Some(fence));
///     tree.cancel();
///     assert_eq!(tree.await, Exit::Shutdown);
///     Ok::<(), Error>(())
/// })?;
/// # Ok(())
/// # }
/// ```
///
/// It is a supervisor with one child, so that a lost lease uses up no restart of the supervisor
/// above. By default, it tolerates 3 restarts in 5 seconds.
///
/// Other processes find the running process by [`ExclusiveNames::holder`]. To receive messages of
/// other nodes, it [attaches](crate::Node::attach) itself.
#[derive(Clone, Debug)]
#[must_use = "a description does nothing; give it to a supervisor"]
pub struct Singleton {
    name: Arc<str>,
    process: ChildSpec,
    intensity: (u32, Duration),
}

impl Singleton {
    /// Describes a singleton by its exclusive name, which is also the id of the child. `process` is
    /// called whenever this node gets the name.
    #[track_caller]
    pub fn new<M, F, P>(names: &ExclusiveNames, name: impl Into<Arc<str>>, process: F) -> Self
    where
        M: Send + 'static,
        F: Fn(Context<M>, Fence) -> P + Send + Sync + 'static,
        P: Future + Send + 'static,
        P::Output: Send + 'static,
        fn() -> P::Output: Returns,
    {
        let (names, name, process) = (names.clone(), name.into(), Arc::new(process));
        let claimed = Arc::clone(&name);
        let process = ChildSpec::new(Arc::clone(&name), move |cx: Context<M>| {
            let (names, name, process) =
                (names.clone(), Arc::clone(&claimed), Arc::clone(&process));
            async move {
                let held = match until_cancelled(names.claim_as(name, true)).await {
                    Some(Ok(held)) => held,
                    Some(Err(ClaimError::Stopped)) => {
                        // A failure would count as a restart.
                        cancelled().await;
                        exit(Exit::Shutdown)
                    }
                    Some(Err(error)) => exit(Exit::failed(error.to_string())),
                    None => exit(Exit::Shutdown),
                };
                process(cx, held.fence()).await
            }
        });
        Self { name, process: process.untyped(), intensity: INTENSITY }
    }

    /// Sets when the process is restarted on this node. Default: [`Restart::Permanent`].
    pub fn restart(mut self, restart: Restart) -> Self {
        self.process = self.process.restart(restart);
        self
    }

    /// Sets how the process is stopped. Default: [`Stop::Graceful`].
    pub fn stop(mut self, stop: Stop) -> Self {
        self.process = self.process.stop(stop);
        self
    }

    /// Sets how many restarts are tolerated, lost leases included. See [`Supervisor::intensity`].
    pub fn intensity(mut self, restarts: u32, period: Duration) -> Self {
        self.intensity = (restarts, period);
        self
    }

    /// Returns the child for a supervisor, to set more. [`Supervisor::child`] also takes the
    /// singleton itself.
    pub fn child(self) -> ChildSpec<SupervisorRef> {
        let Self { name, process, intensity: (restarts, period) } = self;
        let supervisor = Supervisor::one_for_one().intensity(restarts, period);
        ChildSpec::supervisor(name, supervisor.child(process))
    }
}

impl From<Singleton> for ChildSpec {
    fn from(singleton: Singleton) -> Self {
        singleton.child().untyped()
    }
}
