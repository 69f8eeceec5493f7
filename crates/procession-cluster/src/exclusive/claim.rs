//! The process of a claim: it asks for a name, waits for it, and makes it free again.

use std::convert::Infallible;
use std::error::Error;
use std::fmt;
use std::pin::pin;
use std::sync::{Arc, Weak};

use procession::process::{self, GroupEvent, Groups, OnCancel};
use procession::sync::{Notify, oneshot};
use procession::time::Instant;
use procession::{Pid, SpawnOptions, sleep, timeout};

use super::store::{Claimed, Fence, LeaseId};
use super::table::{Claim, Current, Names, Stage};
use super::watch::{WATCH_TIME, first_of};
use crate::term::NodePid;

/// The longest name, in bytes.
const NAME_MAX: usize = 1024;

/// A name that a process holds, until this is dropped or the process ends.
///
/// It stays with the process that has claimed the name: that process is killed if the lease is not
/// renewed in time. Let no other process work under the name, unless it is linked to that one.
#[derive(Debug)]
#[must_use = "the name is free again when this is dropped"]
pub struct ExclusiveName {
    name: Arc<str>,
    /// From its drop on, the process is not killed if the lease is lost.
    fence: Arc<Fence>,
    /// Tells the process of the claim that it is dropped.
    _held: oneshot::Sender<Infallible>,
}

impl ExclusiveName {
    /// Returns the name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the fence of the claim. See the [module](super#fences).
    pub fn fence(&self) -> Fence {
        *self.fence
    }
}

/// Why a process does not get a name.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ClaimError {
    /// No process of this program claims the name, but another thread.
    NoProcess,
    /// The name is empty, or longer than 1024 bytes.
    Name(String),
    /// The process holds the name already.
    Held(String),
    /// The node has stopped, or is about to.
    Stopped,
}

impl fmt::Display for ClaimError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoProcess => f.write_str("only a process can hold a name"),
            Self::Name(name) => {
                write!(f, "an exclusive name has 1 to {NAME_MAX} bytes, and not {}", name.len())
            }
            Self::Held(name) => write!(f, "this process holds the name {name:?} already"),
            Self::Stopped => f.write_str("the node has stopped"),
        }
    }
}

impl Error for ClaimError {}

/// Returns the text by which a store knows a claim of a process. No two claims have one text,
/// because a node gives each claim another number.
pub(super) fn holder_text(pid: &NodePid, claim: u64) -> String {
    format!("{} {} {} {} {claim}", pid.node.as_str(), pid.id, pid.serial, pid.creation)
}

/// A claim in the table, which its drop removes.
pub(super) struct Registered {
    asks: Asks,
    number: u64,
    pid: Pid,
    freed: Arc<Notify>,
    /// The greatest fence of the node before the first attempt that may still succeed.
    before: u64,
    /// What is to be made free again.
    tried: Option<Tried>,
}

/// What a claim asks the store for.
#[derive(Clone)]
struct Asks {
    names: Arc<Names>,
    name: Arc<str>,
    /// By which the store knows the claim.
    holder: String,
}

impl Registered {
    pub(super) fn new(
        names: &Arc<Names>,
        name: &Arc<str>,
        (pid, is_singleton): (Pid, bool),
    ) -> Result<Self, ClaimError> {
        if name.is_empty() || name.len() > NAME_MAX {
            return Err(ClaimError::Name((**name).to_owned()));
        }
        let own = names.node.node_pid(pid).ok_or(ClaimError::NoProcess)?;
        let is_leaving = names.node.is_leaving();
        let (number, freed) = (names.node.draw(), Arc::new(Notify::new()));
        let mut table = names.table.lock();
        if is_leaving || table.stage != Stage::Runs {
            return Err(ClaimError::Stopped);
        }
        let is_same = |claim: &Claim| claim.is_held() && claim.pid == pid && claim.name == *name;
        if table.claims.values().any(is_same) {
            return Err(ClaimError::Held((**name).to_owned()));
        }
        let (held, own_name) = (Weak::new(), Arc::clone(name));
        let claim = Claim { name: own_name, pid, is_singleton, held, freed: Arc::clone(&freed) };
        table.claims.insert(number, claim);
        let (names, name) = (Arc::clone(names), Arc::clone(name));
        let asks = Asks { names, name, holder: holder_text(&own, number) };
        Ok(Self { asks, number, pid, freed, before: 0, tried: None })
    }

    /// Claims the name for the receiver of `told`, until the receiver or the received name is
    /// dropped.
    pub(super) async fn pursue(mut self, mut told: oneshot::Sender<ExclusiveName>) {
        while let Some(lease) = self.lease(&mut told).await {
            let mut tried = Tried::again(self.tried, lease);
            if !tried.is_uncertain {
                self.before = self.asks.names.table.lock().newest;
            }
            // Until it is answered, it may arrive later.
            self.tried = Some(Tried { is_uncertain: true, ..tried });
            // It waits for the answer even if nobody else waits: a request that is given up may
            // still succeed, and then nobody would make the name free.
            let Asks { names, name, holder } = &self.asks;
            let answer =
                timeout(names.lease_time, names.ask(|store| store.claim(name, holder, lease)))
                    .await;
            tried.is_uncertain |= !matches!(answer, Ok(Ok(_)));
            self.tried = Some(tried);
            match answer {
                Ok(Ok(Claimed::Won(fence))) if fence.get() <= self.before => {
                    let why = format!("{fence} comes after {}", self.before);
                    names.report("the store has given a fence that is too small to a claim", why);
                    self.asks.release(tried).await;
                    self.pause(&mut told).await;
                }
                Ok(Ok(Claimed::Won(fence))) => {
                    if let Some(fence) = self.hold(fence, lease) {
                        let (held, dropped) = oneshot::channel();
                        let name = Arc::clone(name);
                        // If nobody takes it, it is dropped here. Otherwise, it is dropped later.
                        drop(told.send(ExclusiveName { name, fence, _held: held }));
                        first_of(dropped, ended(self.pid)).await;
                        self.let_go();
                        break;
                    }
                    // By the next lease, the name is not free before the last one has ended.
                    self.pause(&mut told).await;
                }
                Ok(Ok(Claimed::Taken(revision))) => {
                    if names.watch_from(revision) {
                        // If the watch has ended, nobody tells.
                        let freed = timeout(2 * WATCH_TIME, self.freed.notified());
                        first_of(told.closed(), freed).await;
                    }
                }
                Ok(Err(error)) => {
                    names.report("cannot claim a name", error);
                    self.pause(&mut told).await;
                }
                Err(_) => {}
            }
        }
        if let Some(tried) = self.tried {
            self.asks.release(tried).await;
            self.tried = None;
        }
    }

    /// Waits for the lease of the node. Returns `None` if nobody wants the name any more.
    async fn lease(&self, told: &mut oneshot::Sender<ExclusiveName>) -> Option<LeaseId> {
        loop {
            let mut changed = pin!(self.asks.names.changed.notified());
            changed.as_mut().enable();
            let (lease, stage) = {
                let table = self.asks.names.table.lock();
                (table.lease, table.stage)
            };
            if stage != Stage::Runs || told.is_closed() {
                return None;
            }
            if let Some(Current { id, .. }) = lease {
                return Some(id);
            }
            first_of(told.closed(), changed).await;
        }
    }

    async fn pause(&self, told: &mut oneshot::Sender<ExclusiveName>) {
        first_of(told.closed(), sleep(self.asks.names.pause())).await;
    }

    /// Notes that the process holds the name, unless the lease is lost or the names stop.
    fn hold(&self, fence: Fence, lease: LeaseId) -> Option<Arc<Fence>> {
        let mut table = self.asks.names.table.lock();
        let is_current = table.stage == Stage::Runs
            && table.lease.is_some_and(|own| own.id == lease && Instant::now() < own.deadline);
        let claim = table.claims.get_mut(&self.number).filter(|_| is_current)?;
        let held = Arc::new(fence);
        claim.held = Arc::downgrade(&held);
        table.newest = table.newest.max(fence.get());
        Some(held)
    }

    /// Notes that the process does not hold the name any more. Something may still keep the
    /// [`ExclusiveName`] of a process that has ended.
    fn let_go(&self) {
        if let Some(claim) = self.asks.names.table.lock().claims.get_mut(&self.number) {
            claim.held = Weak::new();
        }
    }
}

impl Asks {
    /// Makes the name free. Otherwise, the end of the lease does.
    async fn release(&self, Tried { lease, is_uncertain }: Tried) {
        let is_current = || self.names.table.lock().lease.is_some_and(|own| own.id == lease);
        while is_current() {
            let (name, holder) = (&self.name, &self.holder);
            let released = self.names.ask(|store| match is_uncertain {
                true => store.withdraw(name, holder, lease),
                false => store.release(name, holder),
            });
            match timeout(self.names.lease_time, released).await {
                Ok(Ok(())) => return,
                Ok(Err(error)) => self.names.report("cannot make a name free", error),
                Err(_) => {}
            }
            sleep(self.names.pause()).await;
        }
    }
}

/// What a claim has asked the store for.
#[derive(Clone, Copy)]
struct Tried {
    lease: LeaseId,
    /// Set if a claim by this lease was not answered, and may arrive later.
    is_uncertain: bool,
}

impl Tried {
    /// A claim by a lease that has ended cannot succeed any more.
    fn again(before: Option<Self>, lease: LeaseId) -> Self {
        before.filter(|before| before.lease == lease).unwrap_or(Self { lease, is_uncertain: false })
    }
}

/// If the process of the claim is killed, nothing else kills the holder when the lease is lost, or
/// makes the name free.
impl Drop for Registered {
    fn drop(&mut self) {
        let Asks { names, .. } = &self.asks;
        let claim = names.table.lock().claims.remove(&self.number);
        names.changed.notify_waiters();
        let Some((claim, tried)) = claim.zip(self.tried) else { return };
        let is_held = claim.is_held();
        if is_held {
            process::kill(claim.pid);
        }
        let asks = self.asks.clone();
        let release = async move {
            // The holder may be in a step.
            if is_held {
                ended(claim.pid).await;
            }
            asks.release(tried).await;
        };
        let label = format!("release of {}", self.asks.name);
        let options = SpawnOptions::new().label(label).on_cancel(OnCancel::Ask);
        // Ignored: at the end of a scheduler, the lease ends.
        let _ = names.within_node(|| options.try_spawn(release).is_ok());
    }
}

/// Waits for the end of a process. A monitor would report nothing to a process that was cancelled.
async fn ended(pid: Pid) {
    let watched = Groups::new();
    let (_, mut changes) = watched.monitor("");
    if watched.join("", pid).is_ok() {
        while let GroupEvent::Join { .. } = changes.recv().await {}
    }
}
