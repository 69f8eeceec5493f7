//! The network of a run, and the faults of calls.

use procession::sim::CallFault;

use super::{Engine, ME, State, Status};
use crate::faults::{Fault, Faults};
use crate::net::moment::Moment;
use crate::net::{Net, PROGRAM};

impl State {
    /// Returns the classes of faults of calls that exist in this run.
    pub(super) fn call_faults(&mut self) -> Faults {
        if let Some(faults) = self.call_faults {
            return faults;
        }
        let allowed = self.setup.allowed.iter().filter(|fault| fault.is_of_calls());
        let exist = allowed.filter(|_| self.chance.io_setup()).fold(Faults::none(), Faults::with);
        *self.call_faults.insert(exist)
    }

    /// Returns the classes that may happen now.
    fn possible_faults(&mut self) -> Faults {
        let exist = self.call_faults();
        if self.has_faults && !self.is_over { exist } else { Faults::none() }
    }

    /// Returns a fault of a call, if one happens: one of the values except the first.
    pub(super) fn call_fault(&mut self, fault: Fault, values: &[u64]) -> Option<u64> {
        if !self.possible_faults().contains(fault) {
            return None;
        }
        let value = self.chance.io_fault(fault, values.len() as u32) as usize;
        (value > 0).then(|| values[value])
    }

    /// Lets the network do what is due.
    pub(super) fn pump(&mut self, now: u64) {
        if self.net.is_some() {
            let faults = self.possible_faults();
            let Self { net: Some(net), chance, story, .. } = self else { return };
            net.pump(&mut Moment { now, chance, story, faults });
        }
    }

    fn with_net<R>(
        &mut self,
        now: u64,
        call: impl FnOnce(&mut Net, &mut Moment<'_>) -> R,
    ) -> Option<R> {
        let faults = self.possible_faults();
        let Self { net, chance, story, .. } = self;
        let mut moment = Moment { now, chance, story, faults };
        net.as_mut().map(|net| call(net, &mut moment))
    }

    /// Returns the names of the hosts that the schedulers belong to, except for the name of the
    /// check's host.
    pub(super) fn names_of_hosts(&self) -> Vec<Option<String>> {
        let name = |&home: &usize| {
            let net = self.net.as_ref().filter(|_| home != PROGRAM)?;
            Some(net.name_of_home(home).to_owned())
        };
        self.homes.iter().map(name).collect()
    }

    /// Returns for how long a thread is to be preempted, if the program has asked for that.
    pub(super) fn take_stall(&mut self, thread: usize) -> Option<u64> {
        let name = &self.threads[thread].name;
        let at = self.to_stall.iter().position(|(stalled, _)| stalled == name)?;
        Some(self.to_stall.swap_remove(at).1)
    }
}

impl Engine {
    /// Returns the start of a host that the calling thread belongs to.
    pub(crate) fn home(&self) -> usize {
        let me = ME.get() as usize;
        me.checked_sub(1).map_or(PROGRAM, |me| self.state().threads[me].home)
    }

    /// Calls the network, which the first call creates.
    ///
    /// # Errors
    /// The real system has no descriptor left.
    pub(crate) fn with_net<R>(
        &self,
        call: impl FnOnce(&mut Net, &mut Moment<'_>) -> R,
    ) -> std::io::Result<R> {
        let now = self.time();
        let mut state = self.state();
        if state.net.is_none() {
            state.net = Some(Net::new()?);
        }
        Ok(state.with_net(now, call).expect("it is there"))
    }

    /// Calls the network, if it was used before.
    pub(crate) fn with_net_if_any<R>(
        &self,
        call: impl FnOnce(&mut Net, &mut Moment<'_>) -> R,
    ) -> Option<R> {
        let now = self.time();
        self.state().with_net(now, call)
    }

    /// Calls the network.
    ///
    /// # Panics
    /// If the real system has no descriptor left.
    pub(crate) fn net<R>(&self, call: impl FnOnce(&mut Net, &mut Moment<'_>) -> R) -> R {
        self.with_net(call).expect("the real system has descriptors")
    }

    /// Draws whether a fault happens in a call of the runtime.
    pub(super) fn call_fault(&self, fault: CallFault, count: u32) -> u32 {
        let class = match fault {
            CallFault::Interrupted => Fault::Interrupted,
            CallFault::Events => Fault::Events,
            CallFault::ShortWrite => Fault::ShortWrite,
            CallFault::Descriptor => Fault::NoDescriptor,
            CallFault::Stack => Fault::StackRefused,
            CallFault::Child => Fault::ChildRefused,
        };
        let now = self.time();
        let mut state = self.state();
        // The system has descriptors for a program that uses no network.
        let is_possible = fault != CallFault::Descriptor || state.net.is_some();
        if !is_possible || !state.possible_faults().contains(class) {
            return 0;
        }
        let value = state.chance.io_fault(class, count);
        if value > 0 {
            state.story.tell(now, || match fault {
                CallFault::Interrupted => "a signal interrupts a call".to_owned(),
                CallFault::Events => "the kernel reports events in another way".to_owned(),
                CallFault::ShortWrite => "a write takes a part of the bytes".to_owned(),
                CallFault::Descriptor => "the system refuses a descriptor".to_owned(),
                CallFault::Stack => "the system refuses a stack".to_owned(),
                CallFault::Child => "the child of a supervisor does not start".to_owned(),
            });
        }
        value
    }

    /// Lets a thread be preempted after its next step. Returns `true` if there is such a thread.
    pub(crate) fn stall_next(&self, name: &str, length: u64) -> bool {
        let mut state = self.state();
        let is_there = state
            .threads
            .iter()
            .any(|thread| thread.name == name && thread.status != Status::Ended);
        if is_there {
            state.to_stall.push((name.to_owned(), length));
        }
        is_there
    }

    /// Returns the classes of faults that existed in the run.
    pub(crate) fn classes(&self) -> Faults {
        self.setup.faults.or(self.state().call_faults.unwrap_or(Faults::none()))
    }

    /// Ends the programs of all hosts except the check's host.
    pub(crate) fn stop_hosts(&self) {
        let stopped = self.with_net_if_any(|net, _| {
            let homes = 1..net.homes.len();
            homes.map(|home| net.stop(home)).collect::<Vec<_>>()
        });
        for stopped in stopped.into_iter().flatten() {
            // In order, because the check may then use what the processes release.
            if let Some(root) = stopped.root {
                root.wake();
            }
        }
    }
}
