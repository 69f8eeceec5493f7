//! The processes of this program that other nodes know.

use std::collections::hash_map::Entry;
use std::sync::Arc;

use procession::Pid;
use procession::mailbox::Recipient;

use crate::error::RegisterError;
use crate::guarded::Guarded;
use crate::letter::Letter;
use crate::node::member::Member;
use crate::node::{Inlet, Local, Node};
use crate::term::Atom;
use crate::wire::names::STATUS_NAME;

impl Node {
    /// Makes a process reachable for other nodes. Returns its membership, by which it sends.
    ///
    /// A process has one PID in the cluster, so that attaching it again returns the same
    /// membership. It ends with the process.
    pub fn attach(&self, recipient: &Recipient<Letter>) -> Member {
        Member::new(self.clone(), self.attach_number(recipient))
    }

    pub(crate) fn attach_number(&self, recipient: &Recipient<Letter>) -> u64 {
        let inlet = || Inlet::Letters(Guarded::new(recipient.clone()));
        self.number_for(recipient.pid(), Some(&inlet))
    }

    /// Returns the number by which other nodes know a process, and makes one if there is none.
    pub(crate) fn number_for(&self, pid: Pid, inlet: Option<&dyn Fn() -> Inlet>) -> u64 {
        let number = {
            let mut locals = self.0.locals.lock();
            let locals = &mut *locals;
            match locals.by_pid.entry(pid) {
                Entry::Occupied(known) => {
                    if let Some(local) = locals.by_number.get_mut(known.get())
                        && local.inlet.is_none()
                    {
                        local.inlet = inlet.map(|make| make());
                    }
                    return *known.get();
                }
                Entry::Vacant(new) => {
                    locals.last += 1;
                    new.insert(locals.last);
                    let local = Local { pid, inlet: inlet.map(|make| make()), watches: false };
                    locals.by_number.insert(locals.last, local);
                    locals.last
                }
            }
        };
        self.notice_end(pid);
        number
    }

    /// Registers an attached process under a name, by which other nodes reach it. A process may
    /// have several names.
    ///
    /// # Errors
    /// [`RegisterError`]: another process has the name, the name is longer than allowed or reserved
    /// for nodes, or the process has ended or is a member of another node.
    pub fn register(&self, name: &str, member: &Member) -> Result<(), RegisterError> {
        let atom = Atom::new(name).ok_or_else(|| RegisterError::TooLong(name.to_owned()))?;
        if name.starts_with(STATUS_NAME) {
            return Err(RegisterError::Reserved(name.to_owned()));
        }
        let number = member.number();
        let mut locals = self.0.locals.lock();
        // Under the lock, so that the end of the process takes the name with it.
        let is_member =
            Arc::ptr_eq(&self.0, &member.node().0) && locals.by_number.contains_key(&number);
        if !is_member {
            return Err(RegisterError::NotAttached(name.to_owned()));
        }
        match *locals.by_name.entry(atom).or_insert(number) {
            owner if owner == number => Ok(()),
            _ => Err(RegisterError::Taken(name.to_owned())),
        }
    }

    /// Takes a name back. Returns `true` if a process had it.
    pub fn unregister(&self, name: &str) -> bool {
        Atom::new(name).is_some_and(|name| {
            let mut locals = self.0.locals.lock();
            let had_process = locals.by_name.remove(&name).is_some();
            self.note_loss();
            had_process
        })
    }

    /// Makes the keeper detach a process when it ends. Without a keeper, the node has stopped.
    pub(super) fn notice_end(&self, pid: Pid) {
        if let Some(keeper) = self.keeper() {
            keeper.monitor(pid);
        }
    }

    pub(crate) fn local(&self, number: u64) -> Option<(Pid, Option<Inlet>)> {
        let locals = self.0.locals.lock();
        locals.by_number.get(&number).map(|local| (local.pid, local.inlet.clone()))
    }

    /// Forgets a process that has ended.
    pub(crate) fn detach(&self, pid: Pid) {
        let (number, local, subscriber) = {
            let mut locals = self.0.locals.lock();
            self.note_loss();
            let number = locals.by_pid.remove(&pid);
            if let Some(number) = number {
                locals.by_name.retain(|_, owner| *owner != number);
            }
            let local = number.and_then(|number| locals.by_number.remove(&number));
            (number, local, locals.subscribers.remove(&pid))
        };
        if let Some(number) = number.filter(|_| local.as_ref().is_some_and(|local| local.watches)) {
            self.end_watches_of(number);
        }
        // User code may run here, so it runs outside of the lock.
        drop((local, subscriber));
    }

    /// Notes that a process has monitors that receive letters. Returns `false` if it has ended.
    pub(super) fn note_watch(&self, number: u64) -> bool {
        let mut locals = self.0.locals.lock();
        let local = locals.by_number.get_mut(&number);
        local.map(|local| local.watches = true).is_some()
    }

    /// Ends the monitors of a process that has ended, if they receive letters. Other monitors end
    /// with the relations of the process.
    pub(super) fn end_watches_of(&self, number: u64) {
        let links: Vec<_> = self.0.peers.lock().links().cloned().collect();
        for link in links {
            let gone = link.tables(|tables| tables.take_watches_of(number)).unwrap_or_default();
            for (monitor, watch) in gone {
                link.tell_demonitor(&self.pid_of(number), &watch.process.target(), &monitor);
            }
        }
    }
}
