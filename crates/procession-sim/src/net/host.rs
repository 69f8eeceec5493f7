//! Hosts, and the starts of their programs.

use std::net::Ipv4Addr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Waker;

use procession::Scheduler;

/// The program of a host.
pub(crate) type HostProgram = dyn Fn() -> Pin<Box<dyn Future<Output = ()>>> + Send + Sync;

/// A host.
pub(crate) struct Place {
    pub(crate) name: String,
    pub(crate) address: Ipv4Addr,
    /// `false` while the machine has no power: nothing answers.
    pub(crate) has_power: bool,
    /// The number of the start of its program that runs now.
    pub(crate) home: Option<usize>,
    /// `None` for the host of the check itself.
    pub(crate) program: Option<Arc<HostProgram>>,
    pub(crate) next_port: u16,
}

/// One start of the program of a host.
pub(crate) struct Home {
    pub(crate) host: usize,
    /// The waker of its main future, until the program is to end.
    pub(crate) root: Option<Waker>,
    pub(crate) scheduler: Option<Scheduler>,
    /// Set once the program is to end, whatever it does.
    pub(crate) is_stopped: bool,
}

/// What is left to do without the lock when a program is to end.
pub(crate) struct Stopped {
    pub(crate) scheduler: Option<Scheduler>,
    pub(crate) root: Option<Waker>,
}

impl Stopped {
    pub(crate) fn carry_out(self) {
        if let Some(scheduler) = &self.scheduler {
            procession::sim::terminate_all(scheduler);
        }
        if let Some(root) = self.root {
            root.wake();
        }
    }
}
