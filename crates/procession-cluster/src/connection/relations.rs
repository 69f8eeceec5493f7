//! Monitors, links, exit signals and starts across a connection, as its process carries them out.

use procession::mailbox::relay::{
    RemoteSignal, draw_monitor, receive, receive_link, receive_monitor,
};
use procession::process::{MonitorRef, catch_panic};
use procession::{Context, Exit, Pid};

use crate::connection::Connection;
use crate::connection::watched::Watched;
use crate::link::{Asker, Order, StartRefusal, Teller, Watch, count};
use crate::node::ENDED;
use crate::node::exports::Spawned;
use crate::node::functions::Applied;
use crate::outbound::lane_of;
use crate::reason;
use crate::term::{Atom, NodePid, Reference, Term};
use crate::wire::control::{Control, SpawnRequest, Target};
use crate::wire::names::{is_answered_by_node, is_pulse};

/// The monitors that one other node may have of processes of this one, and as many links. With some
/// 600 bytes for each, they take at most about 300 MiB. A test makes as many as may be.
pub(super) const RELATIONS_MAX: usize = if cfg!(test) { 1 << 6 } else { 1 << 18 };

impl Connection {
    /// Reports the end of a process of this node to the other side.
    pub(super) fn ended(&mut self, monitor: MonitorRef, exit: &Exit) {
        if let Some(Watched { watcher, target, monitor, applied }) = self.watched.remove(monitor) {
            let lane = lane_of(&target);
            let reason = match applied {
                Some(applied) => applied.reason(exit),
                None => reason::to_term(exit),
            };
            self.link.tell(lane, reason, |reason| Control::Down {
                from: target,
                to: watcher,
                monitor,
                reason,
            });
        }
        if let Some((own, other)) = self.late_links.remove(&monitor) {
            self.link.tell_exit(&self.node, own, other, exit);
        }
        if let Some((own, to)) = self.half_links.remove(monitor) {
            let from = self.node.pid_of(own);
            let reason = reason::to_term(exit);
            self.link.tell(own, reason, |reason| Control::Exit { from, to, reason });
        }
    }

    /// Handles the end of a process of the other node that is monitored or called.
    pub(super) fn down(&mut self, monitor: Reference, reason: Term) {
        let gone =
            self.link.tables(|tables| (tables.take_watch(&monitor), tables.calls.remove(&monitor)));
        match gone {
            Some((Some(watch), _)) => watch.tell_reason(monitor, reason),
            Some((_, Some(caller))) => caller.waits.end(Err(reason::to_exit(&reason))),
            _ => {}
        }
    }

    pub(super) fn monitor(
        &mut self,
        cx: &mut Context<Order>,
        watcher: NodePid,
        target: Target,
        monitor: Reference,
    ) {
        if is_answered_by_node(&target) {
            // It ends with this connection.
            return;
        }
        if is_pulse(&target) {
            return self.answer(watcher, monitor);
        }
        // Otherwise the names of third nodes would be kept for it.
        if !self.is_of_peer(&watcher) || !self.has_made(&monitor) {
            return count(&self.link.counts.denied, 1);
        }
        let found = if !self.node.permits_monitor(&self.link.peer.name, &target) {
            count(&self.link.counts.denied, 1);
            Err("not_allowed")
        } else if self.watched.len() < RELATIONS_MAX {
            self.find(&target).ok_or("noproc")
        } else {
            Err("system_limit")
        };
        match found {
            Ok((_, pid, _)) => {
                let own = cx.monitor(pid);
                self.watched.insert(own, Watched { watcher, target, monitor, applied: None });
            }
            Err(why) => self.link.tell(lane_of(&target), Term::atom(why), |reason| Control::Down {
                from: target,
                to: watcher,
                monitor,
                reason,
            }),
        }
    }

    /// Makes a link of the other node, unless it is refused.
    ///
    /// A refusal takes the link away there. So no refusal is sent if the process here has made the
    /// same link, because the two links may have crossed. If the process makes the link later, the
    /// link must be queued behind the refusal. This holds because the refusal is queued in the lane
    /// of the process, under the lock of the tables, in which the process enters its link first.
    ///
    /// Without the grant, the link is half a link: the other process learns of the end of this one,
    /// as a monitor would, and its own end does no harm here.
    pub(super) fn link(&mut self, cx: &mut Context<Order>, from: NodePid, to: &NodePid) {
        let found = self.find_to_link(&from, to);
        let is_permitted = self.node.permits_exits(&self.link.peer.name);
        let may_watch = self.node.permits_monitor(&self.link.peer.name, &Target::Pid(to.clone()));
        let has_room = self.half_links.len() < RELATIONS_MAX;
        let link = (to.number(), from.clone());
        let refuse = |why| {
            self.link.tell(to.number(), Term::atom(why), |reason| Control::Exit {
                from: to.clone(),
                to: from.clone(),
                reason,
            });
            None
        };
        let entered = self.link.tables(|tables| {
            if found.is_some() && tables.links.contains(&link) {
                return found;
            }
            // First, so that a node without the grant does not learn which processes there are.
            if !is_permitted && !may_watch {
                count(&self.link.counts.denied, 1);
                return refuse("not_allowed");
            }
            match found {
                None => refuse("noproc"),
                Some(pid) if !is_permitted && has_room => Some(pid),
                Some(_) if !is_permitted => refuse("system_limit"),
                Some(_) if tables.links.len() >= RELATIONS_MAX => refuse("system_limit"),
                Some(pid) => {
                    // Otherwise the process ignores it.
                    if !tables.unlinking.contains_key(&link) {
                        tables.links.insert(link.clone());
                    }
                    Some(pid)
                }
            }
        });
        match entered {
            Some(Some(pid)) if is_permitted => {
                // If the process has ended, the relay of the other node is notified.
                receive(RemoteSignal::Link { from: self.node.pid(&from), to: pid });
            }
            Some(Some(pid)) => self.half_links.insert(link, || cx.monitor(pid)),
            _ => {}
        }
    }

    /// Ends half a link. Returns `false` if there was none.
    fn end_half_link(&mut self, cx: &mut Context<Order>, own: u64, other: &NodePid) -> bool {
        let monitor = self.half_links.remove_link(own, other);
        monitor.is_some_and(|monitor| {
            cx.demonitor(monitor);
            true
        })
    }

    /// Returns the process of this node that one of the other node links to.
    fn find_to_link(&self, from: &NodePid, to: &NodePid) -> Option<Pid> {
        let own = self.node.number_of(to).filter(|_| self.is_of_peer(from))?;
        self.node.local(own).map(|(pid, _)| pid)
    }

    /// Ends a link on behalf of the other side, and acknowledges it.
    pub(super) fn unlink(&mut self, cx: &mut Context<Order>, id: u64, from: NodePid, to: NodePid) {
        let own = self.node.number_of(&to);
        let local = own.and_then(|own| Some((own, self.node.local(own)?.0)));
        let Some((own, pid)) = local.filter(|_| self.is_of_peer(&from)) else {
            let answer = Control::UnlinkAck { id, from: to, to: from };
            return self.link.outbound.signal(0, &answer, None);
        };
        self.end_half_link(cx, own, &from);
        self.link.tables(|tables| tables.links.remove(&(own, from.clone())));
        receive(RemoteSignal::Unlink { from: self.node.pid(&from), to: pid, id });
    }

    /// Handles the answer to an unlink.
    pub(super) fn unlinked(&mut self, id: u64, from: &NodePid) {
        let known = self.link.tables(|tables| {
            let pair = tables.unlinks.remove(&id)?;
            if tables.unlinking.get(&pair) == Some(&id) {
                tables.unlinking.remove(&pair);
            }
            Some(pair)
        });
        let known = known.flatten();
        if let Some((own, _)) = known
            && let Some((to, _)) = self.node.local(own)
        {
            receive(RemoteSignal::UnlinkAck { from: self.node.pid(from), to, id });
        }
    }

    /// Ends a monitor on behalf of the other side. Returns what it was.
    pub(super) fn demonitor(
        &mut self,
        cx: &mut Context<Order>,
        monitor: &Reference,
    ) -> Option<Watched> {
        let (own, watched) = self.watched.remove_by_reference(monitor)?;
        if !self.late_links.contains_key(&own) {
            cx.demonitor(own);
        }
        Some(watched)
    }

    /// Reports to a caller that there will be no reply: the monitor of the call ends, so that the
    /// caller does not wait for its time limit.
    pub(super) fn refuse_call(&mut self, cx: &mut Context<Order>, call: &Reference, why: &str) {
        let Some(watched) = self.demonitor(cx, call) else { return };
        let Watched { watcher, target, monitor, .. } = watched;
        self.link.tell(lane_of(&target), Term::atom(why), |reason| Control::Down {
            from: target,
            to: watcher,
            monitor,
            reason,
        });
    }

    /// Handles the end of a linked process of the other node.
    pub(super) fn exited(
        &mut self,
        cx: &mut Context<Order>,
        from: NodePid,
        to: &NodePid,
        exit: Exit,
    ) {
        let Some(own) = self.node.number_of(to) else { return };
        if self.end_half_link(cx, own, &from) {
            count(&self.link.counts.denied, 1);
        }
        let was_linked = self.link.tables(|tables| tables.links.remove(&(own, from.clone())));
        if was_linked == Some(true)
            && let Some((to, _)) = self.node.local(own)
        {
            receive(RemoteSignal::Exit { from: self.node.pid(&from), to, exit });
        }
    }

    /// Handles an exit signal that a process of the other node has sent.
    pub(super) fn exit_sent(&self, from: &NodePid, to: &NodePid, reason: &Term) {
        if !self.node.permits_exits(&self.link.peer.name) {
            return count(&self.link.counts.denied, 1);
        }
        let Some((_, to, _)) = self.find(&Target::Pid(to.clone())) else { return };
        let from = self.is_of_peer(from).then(|| self.node.pid(from));
        receive(if reason.is_atom("kill") {
            RemoteSignal::Kill { from, to }
        } else {
            RemoteSignal::SendExit { from, to, exit: reason::to_exit(reason) }
        });
    }

    /// Starts a process for the other node, by an exported function.
    pub(super) fn spawn(
        &mut self,
        cx: &mut Context<Order>,
        mut request: SpawnRequest,
        arguments: Term,
    ) {
        let open = self.node.open_call();
        let has_made = |tag: &Reference| self.has_made(tag);
        let (arguments, applied) = Applied::read(&mut request, arguments, has_made, open);
        let started = self.start(&request, arguments, applied.as_ref());
        let SpawnRequest { id, from, links, monitors, .. } = request;
        let started = match started {
            Ok(started) => Ok((self.node.attach_number(&started.recipient), started)),
            Err(why) => Err((why, applied.as_ref().filter(|_| monitors && !links))),
        };
        let (number, result) = match &started {
            Ok((number, _)) => (*number, Ok(self.node.pid_of(*number))),
            // A call that is refused fails in a process that has ended already.
            Err((_, Some(_))) if self.is_of_peer(&from) => (ENDED, Ok(self.node.pid_of(ENDED))),
            Err((why, _)) => (0, Err(Atom::known(why))),
        };
        let is_made = result.is_ok();
        let reply = Control::SpawnReply {
            id: id.clone(),
            to: from.clone(),
            links: is_made && links,
            monitors: is_made && monitors,
            result,
        };
        // In the lane of the process, so that the other node receives it before the end of the
        // process.
        self.link.outbound.signal(number, &reply, None);
        match started {
            Ok((_, Spawned { recipient, monitor: Some(monitor) })) => {
                let is_late = links && !self.link_spawned(number, &from, recipient.pid());
                if is_late {
                    self.late_links.insert(monitor, (number, from.clone()));
                }
                if monitors {
                    self.watch_spawned(monitor, number, from, id, applied);
                } else if !is_late {
                    // It was made before the process could end.
                    cx.demonitor(monitor);
                }
            }
            Err((why, Some(applied))) if is_made => {
                let target = Target::Pid(self.node.pid_of(number));
                let reason = applied.failure(Term::atom(why));
                self.link.tell(number, reason, |reason| Control::Down {
                    from: target,
                    to: from,
                    monitor: id,
                    reason,
                });
            }
            _ => {}
        }
    }

    /// Starts the process that is asked for, unless it is refused.
    fn start(
        &self,
        request: &SpawnRequest,
        arguments: Term,
        applied: Option<&Applied>,
    ) -> Result<Spawned, &'static str> {
        if self.node.is_leaving() {
            return Err("leaving");
        }
        // First, so that a node without the grant does not learn what is exported.
        let may_start = self.node.permits_spawn(&self.link.peer.name, request);
        let may_look = self.node.permits_looks(&self.link.peer.name);
        let looking = self.node.looking(request).filter(|_| may_look && applied.is_some());
        if !may_start && looking.is_none() {
            count(&self.link.counts.denied, 1);
            return Err("not_allowed");
        }
        let exported = self.node.exported(request).filter(|_| may_start).or(looking);
        // What returns nothing cannot be called.
        match (exported.filter(|export| export.returns || applied.is_none()), arguments) {
            (None, _) => {
                count(&self.link.counts.denied, 1);
                Err("undef")
            }
            // A process of a third node would get a PID here.
            (Some(_), _) if !self.is_of_peer(&request.from) => Err("badarg"),
            (Some(_), _) if !self.has_made(&request.id) => Err("badarg"),
            (Some(_), _) if self.watched.len() >= RELATIONS_MAX => Err("system_limit"),
            (Some(export), Term::List(arguments)) if arguments.len() as i64 == request.arity => {
                let returned = applied.map(|applied| applied.returned.clone());
                // The function makes a future, which is code of the user.
                let start = || (export.start)(arguments, returned);
                catch_panic(start).flatten().ok_or("system_limit")
            }
            (Some(_), _) => Err("badarg"),
        }
    }

    /// Returns `true` for a process of the other node. Only these get PIDs here by what it sends.
    fn is_of_peer(&self, pid: &NodePid) -> bool {
        self.link.is_of_peer(&pid.into())
    }

    /// Returns `true` for a reference of the other node. Only these are kept.
    pub(super) fn has_made(&self, reference: &Reference) -> bool {
        let peer = &self.link.peer;
        reference.creation == peer.creation && reference.node == peer.name
    }

    /// Links a process that was started for another process. Returns `false` if it has ended
    /// already.
    fn link_spawned(&self, number: u64, other: &NodePid, pid: Pid) -> bool {
        self.link.tables(|tables| tables.links.insert((number, other.clone())));
        receive_link(self.node.pid(other), pid)
    }

    fn watch_spawned(
        &mut self,
        own: MonitorRef,
        number: u64,
        watcher: NodePid,
        monitor: Reference,
        applied: Option<Applied>,
    ) {
        let target = Target::Pid(self.node.pid_of(number));
        self.watched.insert(own, Watched { watcher, target, monitor, applied });
    }

    /// Handles the answer to a request of this node to start a process. The relations are entered
    /// before anything that the process does can arrive.
    pub(super) fn started(
        &mut self,
        id: &Reference,
        to: &NodePid,
        links: bool,
        monitors: bool,
        result: Result<NodePid, Atom>,
    ) {
        let Some(Some(asker)) = self.link.tables(|tables| tables.starts.remove(id)) else {
            // The caller of a function has given up, and needs no monitor any more.
            if let Ok(process) = result
                && monitors
            {
                self.link.tell_demonitor(to, &Target::Pid(process), id);
            }
            return;
        };
        let process = match result {
            Ok(process) if self.is_of_peer(&process) => process,
            Ok(_) => return asker.refuse(StartRefusal::Refused(Atom::known("noproc"))),
            Err(reason) => return asker.refuse(StartRefusal::Refused(reason)),
        };
        match asker {
            Asker::Start { owner, asked, caller } => {
                // The other node can neither link nor monitor what has not asked for it.
                let (links, monitors) = (links && asked.links, monitors && asked.monitors);
                let monitor = owner.and_then(|(own, pid)| {
                    if links {
                        self.link_started(own, pid, &process);
                    }
                    if monitors { self.monitor_started(own, pid, &process, id) } else { None }
                });
                // Ignored: the caller may have given up.
                drop(caller.send(Ok((process, monitor))));
            }
            Asker::Apply(caller) => {
                let (process, teller) = (process.into(), Teller::Apply(caller));
                let watch = Watch { process, watcher: 0, teller };
                self.link.tables(|tables| tables.watches.insert(id.clone(), watch));
            }
        }
    }

    /// Links the process that has asked for a start with the new one, which has the link already.
    fn link_started(&self, own: u64, pid: Pid, process: &NodePid) {
        self.link.tables(|tables| tables.links.insert((own, process.clone())));
        if !receive_link(self.node.pid(process), pid) {
            // It has ended, and nobody else notifies the new process.
            self.link.tell_exit(&self.node, own, process.clone(), &Exit::NoProcess);
        }
    }

    fn monitor_started(
        &self,
        own: u64,
        pid: Pid,
        process: &NodePid,
        id: &Reference,
    ) -> Option<MonitorRef> {
        let (far, monitor) = (self.node.pid(process), draw_monitor());
        let teller = Teller::Signal { from: far, to: pid, monitor, held: None };
        let watch = Watch { process: process.into(), watcher: own, teller };
        // Before the process can end, which would end the monitor.
        self.link.tables(|tables| {
            tables.references.insert(monitor, id.clone());
            tables.watches.insert(id.clone(), watch);
        });
        if receive_monitor(monitor, far, pid) {
            return Some(monitor);
        }
        self.link.tables(|tables| tables.take_watch(id));
        self.link.tell_demonitor(&self.node.pid_of(own), &Target::Pid(process.clone()), id);
        None
    }
}
