//! Monitors, links, exit signals and starts across a connection, as its process carries them out.

use std::panic::{AssertUnwindSafe, catch_unwind};

use procession::relations::MonitorRef;
use procession::{Context, Exit, relations};

use crate::connection::{Connection, Watched, is_kernel, lane_of};
use crate::link::{Order, count};
use crate::node::Spawned;
use crate::reason;
use crate::term::{Atom, NodePid, Reference, Term};
use crate::wire::control::{Control, SpawnRequest, Target};

/// The monitors and links that one other node may have with processes of this one.
const RELATIONS_MAX: usize = 1 << 20;

impl Connection {
    /// Tells the other side of the end of a process of this one.
    pub(super) fn ended(&mut self, monitor: MonitorRef, exit: &Exit) {
        if let Some(Watched { watcher, target, monitor }) = self.watched.remove(&monitor) {
            self.by_reference.remove(&monitor);
            let lane = lane_of(&target);
            self.tell(lane, reason::to_term(exit), |reason| Control::Down {
                from: target,
                to: watcher,
                monitor,
                reason,
            });
        }
        let links = self.link.tables(|tables| tables.take_ended(monitor)).flatten();
        let Some((own, others)) = links else { return };
        for to in others {
            let from = self.node.pid_of(own);
            self.tell(own.into(), reason::to_term(exit), |reason| Control::Exit {
                from,
                to,
                reason,
            });
        }
    }

    /// Handles the end of a process of the other node that is monitored or called.
    pub(super) fn down(&mut self, monitor: Reference, exit: Exit) {
        let gone = self
            .link
            .tables(|tables| (tables.watches.remove(&monitor), tables.calls.remove(&monitor)));
        match gone {
            Some((Some(watch), _)) => watch.tell(monitor, exit),
            // Ignored: the caller may have given up.
            Some((_, Some(caller))) => drop(caller.caller.send(Err(exit))),
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
        if is_kernel(&target) {
            // It ends with this connection.
            return;
        }
        let found = match self.watched.len() < RELATIONS_MAX {
            true => self.find(&target).ok_or("noproc"),
            false => Err("system_limit"),
        };
        match found {
            Ok((_, pid, _)) => {
                let own = cx.monitor(pid);
                self.by_reference.insert(monitor.clone(), own);
                self.watched.insert(own, Watched { watcher, target, monitor });
            }
            Err(why) => self.tell(lane_of(&target), Term::atom(why), |reason| Control::Down {
                from: target,
                to: watcher,
                monitor,
                reason,
            }),
        }
    }

    pub(super) fn link(&mut self, cx: &mut Context<Order>, from: NodePid, to: &NodePid) {
        let known = self.node.number_of(to).and_then(|own| Some((own, self.node.local(own)?.0)));
        let refusal = match known {
            None => "noproc",
            Some(_) if !self.node.allows_exits() => {
                count(&self.link.counts.denied, 1);
                "not_allowed"
            }
            Some((own, pid)) => {
                let entered = self.link.tables(|tables| {
                    let has_room = tables.link_count() < RELATIONS_MAX;
                    has_room.then(|| tables.link(own, from.clone(), || cx.monitor(pid)))
                });
                match entered {
                    Some(None) => "system_limit",
                    // The connection has ended, or they are linked now.
                    _ => return,
                }
            }
        };
        self.tell(0, Term::atom(refusal), |reason| Control::Exit {
            from: to.clone(),
            to: from,
            reason,
        });
    }

    /// Ends a link on behalf of the other side. Returns `true` if there was one.
    pub(super) fn unlink(&mut self, cx: &mut Context<Order>, own: u32, other: NodePid) -> bool {
        let (was_linked, unneeded) = self
            .link
            .tables(|tables| (tables.unlink(own, other), tables.take_unneeded(own)))
            .unwrap_or_default();
        if let Some(monitor) = unneeded
            && !self.watched.contains_key(&monitor)
        {
            cx.demonitor(monitor);
        }
        was_linked
    }

    /// Ends a monitor on behalf of the other side.
    pub(super) fn demonitor(&mut self, cx: &mut Context<Order>, monitor: &Reference) {
        let Some(own) = self.by_reference.remove(monitor) else { return };
        self.watched.remove(&own);
        if self.link.tables(|tables| tables.is_of_link(own)) != Some(true) {
            cx.demonitor(own);
        }
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
        if self.unlink(cx, own, from)
            && let Some((pid, _)) = self.node.local(own)
        {
            relations::send_exit(pid, exit);
        }
    }

    /// Handles an exit signal that a process of the other node has sent.
    pub(super) fn exit_sent(&mut self, to: &NodePid, reason: &Term) {
        let Some((_, pid, _)) = self.find(&Target::Pid(to.clone())) else { return };
        if !self.node.allows_exits() {
            return count(&self.link.counts.denied, 1);
        }
        if reason.is_atom("kill") {
            relations::kill(pid);
        } else {
            relations::send_exit(pid, reason::to_exit(reason));
        }
    }

    /// Starts a process for the other node, by an exported function.
    pub(super) fn spawn(
        &mut self,
        cx: &mut Context<Order>,
        request: SpawnRequest,
        arguments: Term,
    ) {
        let SpawnRequest { id, from, .. } = &request;
        let started = match (self.node.exported(&request), arguments) {
            (None, _) => {
                count(&self.link.counts.denied, 1);
                Err("undef")
            }
            (Some(_), _) if self.watched.len() >= RELATIONS_MAX => Err("system_limit"),
            (Some(start), Term::List(arguments)) if arguments.len() as i64 == request.arity => {
                // The function makes a future, which is code of the user.
                let started = catch_unwind(AssertUnwindSafe(|| start(arguments)));
                started.unwrap_or(None).ok_or("system_limit")
            }
            (Some(_), _) => Err("badarg"),
        };
        let result = started.map(|Spawned { recipient, monitor }| {
            let number = self.node.attach_number(&recipient);
            let own = self.node.pid_of(number);
            // The monitor was made before the process could end.
            if let Some(monitor) = monitor {
                if request.links {
                    self.link.tables(|tables| tables.link(number, from.clone(), || monitor));
                }
                if request.monitors {
                    self.watch_spawned(monitor, &own, from, id);
                }
                if !request.links && !request.monitors {
                    cx.demonitor(monitor);
                }
            }
            own
        });
        let result = result.map_err(Atom::known);
        let is_made = result.is_ok();
        let reply = Control::SpawnReply {
            id: id.clone(),
            to: from.clone(),
            links: is_made && request.links,
            monitors: is_made && request.monitors,
            result,
        };
        self.link.outbound.signal(0, &reply, None);
    }

    fn watch_spawned(&mut self, own: MonitorRef, pid: &NodePid, from: &NodePid, id: &Reference) {
        let (watcher, target, monitor) = (from.clone(), Target::Pid(pid.clone()), id.clone());
        self.by_reference.insert(monitor.clone(), own);
        self.watched.insert(own, Watched { watcher, target, monitor });
    }
}
