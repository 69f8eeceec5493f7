//! Programs that are replaced by new versions while their processes live.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use procession::Pid;
use procession::sync::channel::{self, Receiver};
use procession_sync::Mutex;

use crate::failure::Error;
use crate::message::Message;
use crate::program::{Link, Outcome, Program, Shared, State, Upgrade};
use crate::version::Version;

/// The time limit of a function `selftest`.
const SELFTEST_TIMEOUT: Duration = Duration::from_secs(5);

/// A program that can be replaced by a new version while its processes live.
///
/// Processes that are spawned from [`program`](Self::program), and their children, belong to the
/// deployment. After a [`replace`](Self::replace), new processes run the new version. Processes
/// that live are upgraded at their next `process.receive`, if the old program has a function
/// `upgrade`:
///
/// - `upgrade(version)` of the old program returns the state of the process, as a value that can be
///   copied. It may not wait.
/// - `resume_NAME(state)` of the new program continues the process, where `NAME` is the function
///   that the process was started with.
///
/// The process keeps its PID, messages, links, monitors and names. If one of the functions fails
/// before the new one waits for the first time, the process continues in its old state.
///
/// ```
/// use procession_lua::{Deployment, Message, Program, Value};
///
/// let old = "
///   function counter(n)
///     count = n
///     while true do
///       local _, call = process.receive()
///       count = count + 1
///       process.reply(call, count)
///     end
///   end
///   function upgrade() return count end
///   function ask(counter) return process.call(counter, true) end";
/// let new = old.replace("count + 1", "count + 100") + " resume_counter = counter";
/// procession::run(async {
///     let deployment = Deployment::new(Program::load("counter", old)?);
///     let counter = deployment.program().spawn("counter", [Value::Integer(0)])?.detach().pid();
///     let ask = async || {
///         let asking = deployment.program().spawn("ask", [counter.into()])?;
///         asking.await.map_err(procession_lua::Error::from)
///     };
///     assert_eq!(ask().await?, Value::Integer(1));
///     let replaced = deployment.replace(Program::load("counter", new)?).await?;
///     assert_eq!(replaced.upgraded, 1);
///     assert_eq!(ask().await?, Value::Integer(101));
///     Ok::<(), procession_lua::Error>(())
/// })?;
/// # Ok::<(), procession_lua::Error>(())
/// ```
#[derive(Clone)]
pub struct Deployment(Arc<Shared>);

/// The pace of a replacement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Rolling {
    /// The number of processes that are asked at a time. Default: 100.
    pub at_once: usize,
    /// The number of failed upgrades after which no more processes are asked. Default: 3.
    pub max_failures: usize,
    /// The time to wait for a process that computes, or waits for something else than a message. It
    /// is upgraded later, and counts as pending. Default: 1 s.
    pub patience: Duration,
}

impl Default for Rolling {
    fn default() -> Self {
        Self { at_once: 100, max_failures: 3, patience: Duration::from_secs(1) }
    }
}

/// The result of a replacement: the processes that lived at its start, by their fate.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Replaced {
    /// The number of processes that run the new version.
    pub upgraded: usize,
    /// The number of processes that continue with their version until they end, because their
    /// program has no function `upgrade`.
    pub kept: usize,
    /// The processes with a failed upgrade, and the causes. They continue in their old state.
    /// However, if the function `upgrade` had to be ended, the process ends, and the cause says so.
    pub failed: Vec<(Pid, String)>,
    /// The number of processes that ended first.
    pub ended: usize,
    /// The number of processes that are upgraded at their next receive.
    pub pending: usize,
    /// The number of processes that were not asked, because the limit of failures was reached.
    pub not_asked: usize,
    /// The number of processes that this replacement did not upgrade, because another replacement
    /// or a rollback came before. It may have been a replacement by the same version, which took
    /// over the request to the process.
    pub superseded: usize,
}

impl Deployment {
    /// Creates a deployment with `program` as its current version.
    pub fn new(program: Program) -> Self {
        Self(Arc::new_cyclic(|link| {
            let current = program.deployed(Link(link.clone()));
            Shared(Mutex::new(State { current, previous: None, members: BTreeMap::new() }))
        }))
    }

    /// Returns the current version of the program. Processes that are spawned from it belong to the
    /// deployment.
    pub fn program(&self) -> Program {
        self.0.0.lock().current.clone()
    }

    /// Returns the number of living processes of each version.
    pub fn versions(&self) -> BTreeMap<Version, usize> {
        let mut counts = BTreeMap::new();
        for version in self.0.0.lock().members.values() {
            *counts.entry(*version).or_insert(0) += 1;
        }
        counts
    }

    /// Returns the version that a process runs, if it belongs to the deployment and has begun.
    pub fn version_of(&self, pid: Pid) -> Option<Version> {
        self.0.0.lock().members.get(&pid).copied()
    }

    /// Replaces the program by `new`, at the pace of [`Rolling::default`].
    ///
    /// # Errors
    /// Returns an [`Error`] if [`replace_with`](Self::replace_with) does.
    pub async fn replace(&self, new: Program) -> Result<Replaced, Error> {
        self.replace_with(new, Rolling::default()).await
    }

    /// Replaces the program by `new`, and waits until the processes of the other versions have
    /// answered. Limits, commands and outputs of `new` apply to the processes that are upgraded.
    ///
    /// If another replacement or a rollback makes another version current in the meantime, this one
    /// asks no more processes. A process that has been asked continues with the version that is
    /// current when it receives.
    ///
    /// If `new` has a function `selftest`, it is called as a process first, and must return within
    /// five seconds.
    ///
    /// # Errors
    /// Returns an [`Error`] if the new program fails before one of its functions is called, or if
    /// its `selftest` fails. Nothing has changed then.
    ///
    /// # Cancellation
    /// If the future is dropped after the new version has become current, processes that have not
    /// been asked keep their version.
    pub async fn replace_with(&self, new: Program, pace: Rolling) -> Result<Replaced, Error> {
        selftest(&new).await?;
        let new = new.deployed_after(Link(Arc::downgrade(&self.0)), &self.program());
        let version = new.version();
        let behind: Vec<Pid> = {
            let mut state = self.0.0.lock();
            let before = std::mem::replace(&mut state.current, new.clone());
            if before.version() != version {
                state.previous = Some(before);
            }
            let others = state.members.iter().filter(|(_, other)| **other != version);
            others.map(|(pid, _)| *pid).collect()
        };
        Ok(Round { program: new, pace, replaced: Replaced::default() }.run(behind).await)
    }

    /// Replaces the program by the version before the current one. A second rollback undoes the
    /// first.
    ///
    /// # Errors
    /// Returns an [`Error`] if there is no version before, or if
    /// [`replace_with`](Self::replace_with) does.
    pub async fn rollback(&self) -> Result<Replaced, Error> {
        let (name, previous) = {
            let state = self.0.0.lock();
            (state.current.inner().name.clone(), state.previous.clone())
        };
        let cause = || "there is no version before the current one".to_owned();
        let previous = previous.ok_or_else(|| Error::Load { program: name, cause: cause() })?;
        self.replace(previous).await
    }
}

impl fmt::Debug for Deployment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Deployment").field("versions", &self.versions()).finish_non_exhaustive()
    }
}

/// Runs the function `selftest` of a program, if it has one.
async fn selftest(program: &Program) -> Result<(), Error> {
    if !program.has_function("selftest")? {
        return Ok(());
    }
    let failed = |cause: String| Error::Start {
        program: program.inner().name.clone(),
        function: "selftest".to_owned(),
        cause,
    };
    let (address, handle) = program.spawn("selftest", [])?.into_parts();
    let _ends = EndsWithTest(address.pid());
    match procession::timeout(SELFTEST_TIMEOUT, handle).await {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(exit)) => Err(failed(exit.to_string())),
        Err(_) => Err(failed(format!("it did not end within {SELFTEST_TIMEOUT:?}"))),
    }
}

/// Kills the process of a self test that is not waited for any more.
struct EndsWithTest(Pid);

impl Drop for EndsWithTest {
    fn drop(&mut self) {
        // Ignored: in most cases the process has ended.
        procession::process::kill(self.0);
    }
}

/// A replacement under way.
struct Round {
    program: Program,
    pace: Rolling,
    replaced: Replaced,
}

impl Round {
    async fn run(mut self, behind: Vec<Pid>) -> Replaced {
        let (sender, outcomes) = channel::unbounded();
        let mut left = behind.into_iter();
        // The processes that have been asked and are waited for.
        let mut asked = BTreeSet::new();
        loop {
            while asked.len() < self.pace.at_once.max(1)
                && self.replaced.failed.len() < self.pace.max_failures.max(1)
                && !self.is_superseded()
                && let Some(pid) = left.next()
            {
                let upgrade = Upgrade::new(pid, self.program.clone(), Some(sender.clone()));
                // Ignored: a message that is refused is dropped, which is an outcome.
                drop(procession::mailbox::send(pid, Message::Upgrade(upgrade)));
                asked.insert(pid);
            }
            if asked.is_empty() {
                break;
            }
            self.note(&outcomes, &mut asked).await;
        }
        match self.is_superseded() {
            true => self.replaced.superseded += left.count(),
            false => self.replaced.not_asked = left.count(),
        }
        self.replaced
    }

    /// Returns `true` if another version has become current.
    fn is_superseded(&self) -> bool {
        self.program.current().version() != self.program.version()
    }

    /// Waits for an outcome. If there is none for a while, the processes are not waited for any
    /// more.
    async fn note(&mut self, outcomes: &Receiver<(Pid, Outcome)>, asked: &mut BTreeSet<Pid>) {
        let received = procession::timeout(self.pace.patience, outcomes.recv()).await;
        let Ok(Some((pid, outcome))) = received else {
            self.replaced.pending += asked.len();
            asked.clear();
            return;
        };
        if !asked.remove(&pid) {
            self.replaced.pending -= 1;
        }
        match outcome {
            Outcome::Upgraded => self.replaced.upgraded += 1,
            Outcome::Kept => self.replaced.kept += 1,
            Outcome::Failed(cause) => self.replaced.failed.push((pid, cause)),
            Outcome::Ended => self.replaced.ended += 1,
            Outcome::Superseded => self.replaced.superseded += 1,
        }
    }
}
