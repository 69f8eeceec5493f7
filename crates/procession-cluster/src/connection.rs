//! The process of a connection. It reads, writes, keeps the time, and carries out the operations of
//! the other node.
//!
//! It never awaits a write: it waits for the socket in both directions, for its queue and for its
//! timer at once. So it always reads, and two nodes that both write cannot wait for each other.

use std::collections::HashMap;
use std::io::ErrorKind;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use procession::Event;
use procession::mailbox::Recipient;
use procession::net::TcpStream;
use procession::relations::MonitorRef;
use procession::time::Instant;
use procession::{Context, Exit, relations, yield_now};

mod io;

use self::io::{Inbox, Outbox, ends, wait, write};
use crate::handshake::{Introduction, flags};
use crate::letter::{Letter, post, sort};
use crate::link::{Caller, Link, Order, count};
use crate::node::{Node, Spawned};
use crate::reason;
use crate::term::{Atom, NodePid, Reader, Reference, Term};
use crate::wire::control::{Control, SpawnRequest, Target};
use crate::wire::frame::Frames;

/// The bytes of messages in parts that are held.
const HELD_MAX: usize = 64 << 20;
/// The memory that the terms of one message may take.
const TERM_MEMORY_MAX: usize = 64 << 20;
/// The monitors and links that one other node may have with processes of this one.
const RELATIONS_MAX: usize = 1 << 20;

/// A process of this node that the other node watches.
#[derive(Debug)]
enum Watched {
    /// By a monitor.
    Monitor { watcher: NodePid, target: Target, monitor: Reference },
    /// By links, which the tables have.
    Links(u32),
}

/// The state of the process.
#[derive(Debug)]
struct Connection {
    node: Node,
    link: Arc<Link>,
    frames: Frames,
    watched: HashMap<MonitorRef, Watched>,
    by_reference: HashMap<Reference, MonitorRef>,
    /// The monitors of processes that are linked with the other side.
    linked: HashMap<u32, MonitorRef>,
    why: String,
}

/// Tells everybody of the end, also if the process is terminated.
impl Drop for Connection {
    fn drop(&mut self) {
        self.link.outbound.close();
        // First, so that a process that is told can connect again.
        self.node.forget(&self.link);
        let tables = self.link.close();
        for (monitor, watch) in tables.watches {
            watch.tell(monitor, Exit::NoConnection);
        }
        for (_, caller) in tables.calls {
            // Ignored: the caller may have given up.
            drop(caller.caller.send(Err(Exit::NoConnection)));
        }
        for (own, _) in tables.links {
            if let Some((pid, _)) = self.node.local(own) {
                relations::send_exit(pid, Exit::NoConnection);
            }
        }
        self.node.disconnected(&self.link, std::mem::take(&mut self.why));
    }
}

/// The reason why a connection ends.
pub(crate) type Ends = String;

/// Runs a connection until it ends.
pub(crate) async fn run(
    mut cx: Context<Order>,
    node: Node,
    stream: TcpStream,
    peer: Introduction,
    come: Vec<u8>,
) {
    let number = node.next_connection(&peer.name);
    let common = peer.flags & flags::OWN;
    let link = Arc::new(Link::new(peer, number, common, cx.address()));
    let frames = Frames::new(HELD_MAX);
    let mut this = Connection {
        node: node.clone(),
        link: Arc::clone(&link),
        frames,
        watched: HashMap::new(),
        by_reference: HashMap::new(),
        linked: HashMap::new(),
        why: "its process was terminated".to_owned(),
    };
    node.connected(&link);
    let Err(why) = this.serve(&mut cx, &stream, come).await;
    // The other side learns at once, even of bytes that it did not take.
    drop(stream.set_linger(Some(Duration::ZERO)));
    this.why = why;
}

impl Connection {
    async fn serve(
        &mut self,
        cx: &mut Context<Order>,
        stream: &TcpStream,
        come: Vec<u8>,
    ) -> Result<std::convert::Infallible, Ends> {
        let link = Arc::clone(&self.link);
        let patience = self.node.patience();
        let mut inbox = Inbox::new(come);
        let mut outbox = Outbox::default();
        let (mut heard, mut said) = (Instant::now(), Instant::now());
        // The handshake may have brought frames.
        self.read_frames(cx, &mut inbox)?;
        loop {
            let wrote = write(&link, stream, &mut outbox)?;
            let read = self.read(cx, stream, &mut inbox)?;
            let now = Instant::now();
            if read {
                heard = now;
            }
            if wrote {
                said = now;
            }
            if link.outbound.is_overrun() {
                return Err("too many signals wait for it".to_owned());
            }
            if now >= heard + patience {
                return Err(format!("nothing was heard of it for {} s", patience.as_secs_f32()));
            }
            if now >= said + patience / 4 {
                outbox.bytes.extend([0; 4]);
                said = now;
                continue;
            }
            if read || wrote {
                // A busy socket does not keep the mailbox waiting.
                while let Some(event) = io::ready_event(cx).await? {
                    self.event(cx, event)?;
                }
                yield_now().await;
                continue;
            }
            let deadline = (heard + patience).min(said + patience / 4);
            let has_more = !outbox.bytes.is_empty();
            if let Some(event) = wait(cx, stream, &link, has_more, deadline).await? {
                self.event(cx, event)?;
            }
            // If this process was not run for long, the other node may have ticked meanwhile, or
            // not. It gets a new patience.
            let late = Instant::now().saturating_duration_since(deadline);
            if late > patience / 2 {
                heard = Instant::now();
            }
        }
    }

    /// Reads what has come, and carries it out. Returns `true` if there was something.
    fn read(
        &mut self,
        cx: &mut Context<Order>,
        stream: &TcpStream,
        inbox: &mut Inbox,
    ) -> Result<bool, Ends> {
        match stream.try_read(inbox.room()) {
            Ok(0) => Err("it has closed the connection".to_owned()),
            Ok(count) => {
                inbox.to += count;
                crate::link::count(&self.link.counts.bytes_received, count as u64);
                self.read_frames(cx, inbox)?;
                Ok(true)
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(false),
            Err(error) if error.kind() == ErrorKind::Interrupted => Ok(true),
            Err(error) => Err(ends(&error)),
        }
    }

    fn read_frames(&mut self, cx: &mut Context<Order>, inbox: &mut Inbox) -> Result<(), Ends> {
        while let Some(frame) = inbox.next()? {
            self.frame(cx, &inbox.bytes[frame])?;
        }
        Ok(())
    }

    fn frame(&mut self, cx: &mut Context<Order>, frame: &[u8]) -> Result<(), Ends> {
        let has_headers = self.link.outbound.flags() & flags::HEADERS != 0;
        let wrong = |why: &dyn std::fmt::Debug| format!("it broke the protocol: {why:?}");
        let (control, message) = if has_headers {
            let Some(whole) = self.frames.read(frame).map_err(|why| wrong(&why))? else {
                return Ok(());
            };
            let mut reader = Reader::new(&whole.bytes, &whole.atoms, TERM_MEMORY_MAX);
            let control = Control::read(&mut reader).map_err(|why| wrong(&why))?;
            let message = match control.has_message() {
                true => Some(reader.term().map_err(|why| wrong(&why))?),
                false => None,
            };
            reader.end().map_err(|why| wrong(&why))?;
            (control, message)
        } else {
            if frame.is_empty() {
                return Ok(());
            }
            let Some(bytes) = frame.strip_prefix(b"p\x83") else { return Err(wrong(&"header")) };
            let mut reader = Reader::new(bytes, &[], TERM_MEMORY_MAX);
            let control = Control::read(&mut reader).map_err(|why| wrong(&why))?;
            let message = match (control.has_message(), reader.rest().split_first()) {
                (false, _) => None,
                (true, Some((131, rest))) => {
                    let mut reader = Reader::new(rest, &[], TERM_MEMORY_MAX);
                    Some(reader.term().map_err(|why| wrong(&why))?)
                }
                (true, _) => return Err(wrong(&"no message")),
            };
            (control, message)
        };
        self.operation(cx, control, message);
        Ok(())
    }

    fn event(&mut self, cx: &mut Context<Order>, event: Event<Order>) -> Result<(), Ends> {
        match event {
            Event::Message(Order::Watch(own)) => self.watch_linked(cx, own),
            Event::Message(Order::Close(why)) => return Err(why),
            Event::Down(down) => self.ended(down.monitor, &down.exit),
            _ => {}
        }
        Ok(())
    }

    /// Tells the other side of the end of a process of this one.
    fn ended(&mut self, monitor: MonitorRef, exit: &Exit) {
        match self.watched.remove(&monitor) {
            Some(Watched::Monitor { watcher, target, monitor }) => {
                self.by_reference.remove(&monitor);
                let lane = lane_of(&target);
                self.tell(lane, reason::to_term(exit), |reason| Control::Down {
                    from: target,
                    to: watcher,
                    monitor,
                    reason,
                });
            }
            Some(Watched::Links(own)) => {
                self.linked.remove(&own);
                let linked = self.link.tables(|tables| tables.take_links(own));
                let from = self.node.pid_of(own);
                for to in linked.unwrap_or_default() {
                    let from = from.clone();
                    self.tell(own.into(), reason::to_term(exit), |reason| Control::Exit {
                        from,
                        to,
                        reason,
                    });
                }
            }
            None => {}
        }
    }

    /// Sends a signal with a reason, which stands behind it if the other node can read that.
    fn tell(&self, lane: u64, reason: Term, signal: impl FnOnce(Option<Term>) -> Control) {
        if self.link.outbound.flags() & flags::EXIT_PAYLOAD != 0 {
            self.link.outbound.signal(lane, &signal(None), Some(&reason));
        } else {
            self.link.outbound.signal(lane, &signal(Some(reason)), None);
        }
    }

    /// Carries out an operation of the other node.
    fn operation(&mut self, cx: &mut Context<Order>, control: Control, message: Option<Term>) {
        match (control, message) {
            (Control::Send { from, to }, Some(term)) => {
                count(&self.link.counts.received, 1);
                self.deliver(from, &to, term);
            }
            (Control::AliasSend { .. }, _) => {
                // This node makes no aliases.
                count(&self.link.counts.received, 1);
                count(&self.link.counts.undelivered, 1);
            }
            (Control::Spawn(request), Some(arguments)) => self.spawn(cx, *request, arguments),
            (Control::Exit { from, to, reason }, message) => {
                let exit = reason::to_exit(&reason.or(message).unwrap_or(Term::atom("normal")));
                self.exited(cx, from, &to, exit);
            }
            (Control::Exit2 { to, reason, .. }, message) => {
                self.exit_sent(&to, &reason.or(message).unwrap_or(Term::atom("normal")));
            }
            (Control::Down { monitor, reason, .. }, message) => {
                let exit = reason::to_exit(&reason.or(message).unwrap_or(Term::atom("normal")));
                self.down(monitor, exit);
            }
            (Control::Link { from, to }, _) => self.link(cx, from, &to),
            (Control::Unlink { id, from, to }, _) => {
                if let Some(own) = self.node.number_of(&to) {
                    let pair = (own, from.clone());
                    self.link.tables(|tables| tables.links.remove(&pair));
                    self.unwatch_unlinked(cx, own);
                }
                let answer = Control::UnlinkAck { id, from: to, to: from };
                self.link.outbound.signal(0, &answer, None);
            }
            (Control::Monitor { from, to, monitor }, _) => self.monitor(cx, from, to, monitor),
            (Control::Demonitor { monitor, .. }, _) => {
                if let Some(own) = self.by_reference.remove(&monitor) {
                    self.watched.remove(&own);
                    cx.demonitor(own);
                }
            }
            // Nothing waits for an answer to an unlink: signals of links that are not there are
            // ignored. This node sends no requests to start processes.
            _ => {}
        }
    }

    /// Returns the number and the recipient of a process of this node.
    fn find(&self, target: &Target) -> Option<(u32, procession::Pid, Recipient<Letter>)> {
        let number = match target {
            Target::Pid(pid) => self.node.number_of(pid)?,
            Target::Name(name) => self.node.whereis(name)?,
        };
        let (pid, recipient) = self.node.local(number)?;
        Some((number, pid, recipient))
    }

    fn deliver(&mut self, from: Option<NodePid>, to: &Target, term: Term) {
        if is_kernel(to) {
            return self.ask_kernel(term);
        }
        if let Some(call) = self.node.answered_call(&term) {
            return self.replied(&call, term);
        }
        let Some((number, _, recipient)) = self.find(to) else {
            return count(&self.link.counts.undelivered, 1);
        };
        let letter = sort(&self.node, &self.node.pid_of(number), from, term);
        if !post(&recipient, letter) {
            count(&self.link.counts.undelivered, 1);
        }
    }

    /// Answers `net_adm:ping`, which asks the process that BEAM nodes have for it.
    fn ask_kernel(&mut self, term: Term) {
        let own = self.node.pid_of(0);
        if let Letter::Call { request, reply } = sort(&self.node, &own, None, term)
            && let Some([head, _]) = request.as_tuple()
            && head.is_atom("is_auth")
        {
            // Ignored: if the queue is full, the caller sees a time-out.
            drop(reply.send(Term::atom("yes")));
        } else {
            count(&self.link.counts.undelivered, 1);
        }
    }

    /// Completes a call of this node. A reply that comes too late finds no caller.
    fn replied(&mut self, call: &Reference, term: Term) {
        let Some(Some(caller)) = self.link.tables(|tables| tables.calls.remove(call)) else {
            return count(&self.link.counts.undelivered, 1);
        };
        let Caller { from, target, caller } = caller;
        let lane = from.id.into();
        let demonitor = Control::Demonitor { from, to: target, monitor: call.clone() };
        self.link.outbound.signal(lane, &demonitor, None);
        // Ignored: the caller may have given up.
        drop(caller.send(Ok(crate::letter::last(term))));
    }

    /// Handles the end of a process of the other node that is monitored or called.
    fn down(&mut self, monitor: Reference, exit: Exit) {
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

    fn monitor(
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
                self.watched.insert(own, Watched::Monitor { watcher, target, monitor });
            }
            Err(why) => self.tell(lane_of(&target), Term::atom(why), |reason| Control::Down {
                from: target,
                to: watcher,
                monitor,
                reason,
            }),
        }
    }

    fn link(&mut self, cx: &mut Context<Order>, from: NodePid, to: &NodePid) {
        let refusal = match self.node.number_of(to).filter(|&own| self.node.local(own).is_some()) {
            None => "noproc",
            Some(_) if !self.node.allows_exits() => {
                count(&self.link.counts.denied, 1);
                "not_allowed"
            }
            Some(_) if self.link.tables(|tables| tables.links.len()) >= Some(RELATIONS_MAX) => {
                "system_limit"
            }
            Some(own) => {
                self.link.tables(|tables| tables.links.insert((own, from)));
                return self.watch_linked(cx, own);
            }
        };
        self.tell(0, Term::atom(refusal), |reason| Control::Exit {
            from: to.clone(),
            to: from,
            reason,
        });
    }

    fn watch_linked(&mut self, cx: &mut Context<Order>, own: u32) {
        if self.linked.contains_key(&own) {
            return;
        }
        match self.node.local(own) {
            Some((pid, _)) => {
                let monitor = cx.monitor(pid);
                self.linked.insert(own, monitor);
                self.watched.insert(monitor, Watched::Links(own));
            }
            None => {
                // It has ended meanwhile.
                let linked = self.link.tables(|tables| tables.take_links(own));
                for to in linked.unwrap_or_default() {
                    let from = self.node.pid_of(own);
                    self.tell(own.into(), Term::atom("noproc"), |reason| Control::Exit {
                        from,
                        to,
                        reason,
                    });
                }
            }
        }
    }

    fn unwatch_unlinked(&mut self, cx: &mut Context<Order>, own: u32) {
        let least = NodePid { node: Atom::known(""), id: 0, serial: 0, creation: 0 };
        let is_linked = self.link.tables(|tables| {
            tables.links.range((own, least)..).next().is_some_and(|(first, _)| *first == own)
        });
        if is_linked == Some(false)
            && let Some(monitor) = self.linked.remove(&own)
        {
            self.watched.remove(&monitor);
            cx.demonitor(monitor);
        }
    }

    /// Handles the end of a linked process of the other node.
    fn exited(&mut self, cx: &mut Context<Order>, from: NodePid, to: &NodePid, exit: Exit) {
        let Some(own) = self.node.number_of(to) else { return };
        let was_linked = self.link.tables(|tables| tables.links.remove(&(own, from)));
        if was_linked == Some(true)
            && let Some((pid, _)) = self.node.local(own)
        {
            self.unwatch_unlinked(cx, own);
            relations::send_exit(pid, exit);
        }
    }

    /// Handles an exit signal that a process of the other node has sent.
    fn exit_sent(&mut self, to: &NodePid, reason: &Term) {
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
    fn spawn(&mut self, cx: &mut Context<Order>, request: SpawnRequest, arguments: Term) {
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
                    self.link.tables(|tables| tables.links.insert((number, from.clone())));
                    self.linked.insert(number, monitor);
                    self.watched.insert(monitor, Watched::Links(number));
                } else if request.monitors {
                    self.watch_spawned(monitor, &own, from, id);
                } else {
                    cx.demonitor(monitor);
                }
                if request.links && request.monitors {
                    let second = cx.monitor(recipient.pid());
                    self.watch_spawned(second, &own, from, id);
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
        self.watched.insert(own, Watched::Monitor { watcher, target, monitor });
    }
}

/// Returns `true` for the process that each BEAM node has, and that others ping.
fn is_kernel(target: &Target) -> bool {
    matches!(target, Target::Name(name) if name.as_str() == "net_kernel")
}

/// Returns the lane of the signals of a process of this node.
fn lane_of(target: &Target) -> u64 {
    match target {
        Target::Pid(pid) => pid.id.into(),
        Target::Name(_) => 0,
    }
}

#[cfg(test)]
mod tests;
