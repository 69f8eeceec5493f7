//! The process of a connection. It reads, writes, keeps the time, and carries out the operations of
//! the other node.
//!
//! It never awaits a write. Instead it waits for the socket in both directions, for its queue and
//! for its timer together. Therefore it always reads, and two nodes that both write cannot block
//! one another.

use std::collections::HashMap;
use std::io::ErrorKind;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use procession::mailbox::Event;
use procession::mailbox::request::with;
use procession::process::MonitorRef;
use procession::time::{Instant, sleep_until};
use procession::{Context, timeout, yield_now};

mod farewell;
mod io;
mod over;
mod relations;
mod signs;
mod stage;
mod system;
mod watched;

use self::io::{CLOSED, Ends, Inbox, Outbox, ends, given_up, unless, wait, write};
use self::stage::{Farewell, Left};
use self::watched::{HalfLinks, WatchedProcesses};
use crate::carrier::Carrier;
use crate::grants::Reach;
use crate::handshake::{Introduction, flags};
use crate::letter::{Letter, TermReply, post, sort};
use crate::link::{Caller, Link, Order, count};
use crate::node::admission::Attempt;
use crate::node::{Inlet, Node};
use crate::pulse::{Next, Pulse};
use crate::reason;
use crate::term::{Atom, NodePid, Reference, Term};
use crate::wire;
use crate::wire::calls::{Kind, Request, last};
use crate::wire::control::{Control, Target};
use crate::wire::frame::Frames;
use crate::wire::names::{is_grants, is_kernel, is_pulse, is_status};

/// The bytes that the system may hold and has not sent yet. Fragments wait in the queue instead,
/// where the messages of other senders pass them.
#[cfg(target_os = "linux")]
const UNSENT_MAX: u32 = 2 * crate::wire::frame::FRAGMENT_LEN as u32;

/// The reads after a failed write. A socket holds less, unless the other node continues to write.
const RESTS_MAX: usize = 64;

/// The turns in a row that read or write before other processes have theirs.
const BUSY_TURNS: u32 = 2;

/// The receiver of the latest message, and most likely of the next message.
#[derive(Debug)]
struct Receiver {
    target: Target,
    own: NodePid,
    inlet: Inlet,
    /// The [losses](Node::losses) before it was found.
    losses: u64,
    /// `false` if a function has found it, because the function may find another process next time.
    is_kept: bool,
}

/// The state of the process.
#[derive(Debug)]
struct Connection {
    node: Node,
    link: Arc<Link>,
    frames: Frames,
    watched: WatchedProcesses,
    /// Links that were made by a start, with processes that had ended by then: the number of each,
    /// and the process on the other side. Their monitors report how they have ended.
    late_links: HashMap<MonitorRef, (u64, NodePid)>,
    /// The links of a node that may not end processes of this one.
    half_links: HalfLinks,
    /// The names of the two nodes, which are in each received PID, and the latest name of a
    /// receiver.
    names: [Atom; 3],
    latest: Option<Receiver>,
    pulse: Pulse,
    /// The other node is of this crate, so it receives statements of what this node permits.
    listens: bool,
    /// The latest statement that it has received.
    told: Option<Reach>,
    /// Set once this node ends the connection in order.
    farewell: Option<Farewell>,
    /// The scheduler shuts down, and this node leaves the cluster first.
    is_cancelled: bool,
    /// The other node leaves, and is told when all calls and starts were sent.
    owes_settled: bool,
    /// The other node ends the connection in order, and has sent everything.
    is_other_done: bool,
    /// Set once it has ended, unless its process is terminated.
    why: Option<Ends>,
}

/// Runs a connection until it ends. If this node ends it in order and messages are left, that is
/// the failure of the process.
pub(crate) async fn run(
    mut cx: Context<Order>,
    node: Node,
    mut carrier: Carrier,
    peer: Introduction,
    mut come: Vec<u8>,
    attempt: Attempt,
) -> Result<(), Left> {
    let orders = cx.address();
    let given_up = given_up(&mut cx, &mut carrier, &mut come);
    let connected = unless(given_up, node.connected(&attempt, &peer, &orders));
    // The notifications about the end of the previous connection may block. Then the nodes try
    // again later.
    let admitted = timeout(node.connect_timeout(), connected).await;
    let Ok(Ok(Ok(link))) = admitted else { return Ok(()) };
    drop(attempt);
    let shown = Arc::clone(&link);
    let _inspecting = cx.inspect_with(move |out| shown.show(out));
    let pulse = Pulse::new(node.patience(), link.takes_monitors(), Instant::now());
    // Ignored: without it, what the system has taken and not sent is in front of small messages.
    #[cfg(target_os = "linux")]
    drop(socket2::SockRef::from(&carrier.stream).set_tcp_notsent_lowat(UNSENT_MAX));
    let frames = Frames::new(node.0.message_limit);
    let mut this = Connection {
        node: node.clone(),
        link: Arc::clone(&link),
        frames,
        watched: WatchedProcesses::default(),
        late_links: HashMap::new(),
        half_links: HalfLinks::default(),
        names: [link.peer.name.clone(), node.name().clone(), node.name().clone()],
        latest: None,
        pulse,
        listens: false,
        told: None,
        farewell: None,
        is_cancelled: false,
        owes_settled: false,
        is_other_done: false,
        why: None,
    };
    // The socket waits: if it has ended, earlier operations are carried out first.
    let Err(why) = match this.until_up(&mut cx).await {
        Ok(()) => this.serve(&mut cx, &mut carrier, come).await,
        Err(why) => Err(why),
    };
    // The other side learns of the end immediately, even if it has not read all bytes.
    drop(carrier.stream.set_linger(Some(Duration::ZERO)));
    let left = this.left(&why);
    this.why = Some(this.farewell.take().map_or(why, Farewell::why));
    left
}

impl Connection {
    async fn serve(
        &mut self,
        cx: &mut Context<Order>,
        carrier: &mut Carrier,
        come: Vec<u8>,
    ) -> Result<std::convert::Infallible, Ends> {
        let link = Arc::clone(&self.link);
        crate::link::count(&link.counts.bytes_received, come.len() as u64);
        let mut inbox = Inbox::new(come, self.frames.limit());
        let mut outbox = Outbox::default();
        // One timer for all waits. If each had its own, the parked worker that waits for the
        // earliest deadline would be woken for it.
        let mut time = pin!(sleep_until(Instant::now()));
        let (mut busy_turns, mut taken) = (0, carrier.taken());
        // The handshake and the wait after it may have brought frames.
        self.read_frames(cx, &mut inbox)?;
        loop {
            if link.permitted.is_due() {
                self.tell_grants();
            }
            self.settle();
            let wrote = match write(&link, carrier, &mut outbox) {
                Ok(wrote) => wrote,
                Err(why) => return Err(self.read_rest(cx, carrier, &mut inbox, why)),
            };
            let read = self.read(cx, carrier, &mut inbox)?;
            if link.outbound.is_overrun() {
                return Err("too many signals wait for it".to_owned());
            }
            let now = Instant::now();
            self.end_if_over(outbox.is_empty() && !carrier.has_more(), &carrier.stream, now)?;
            let has_more = !outbox.is_empty() || carrier.has_more();
            let took = std::mem::replace(&mut taken, carrier.taken()) != taken;
            self.pulse.turn(read, took, has_more, now);
            let confirms = link.awaits_confirmation();
            match self.pulse.next(confirms, now) {
                Next::Wait => {}
                Next::Ask => {
                    self.ask(now);
                    continue;
                }
                // The answer to the received bytes says the same.
                Next::Tick if read => {}
                Next::Tick => {
                    outbox.bytes.extend([0; 4]);
                    self.pulse.ticked(now);
                    continue;
                }
                Next::GiveUp(why) => {
                    return Err(format!("{why} for {} s", self.pulse.limit().as_secs_f32()));
                }
            }
            if read || wrote {
                // A busy socket does not keep the mailbox waiting.
                loop {
                    match io::ready_event(cx).await {
                        Ok(Some(event)) => self.event(cx, event)?,
                        Ok(None) => break,
                        Err(why) => {
                            self.cancelled(why);
                            break;
                        }
                    }
                }
                busy_turns += 1;
                // Not after each turn: a process that is ready again lets another worker be woken
                // for it.
                if busy_turns == BUSY_TURNS {
                    busy_turns = 0;
                    yield_now().await;
                }
                continue;
            }
            self.forget_lost();
            let until = self.pulse.until(confirms, self.node.beat(), now);
            let end = self.farewell.as_ref().map_or(Instant::NEVER, |farewell| farewell.until);
            time.as_mut().reset(until.min(end).min(self.looks_again(now)));
            let looks = (has_more, self.farewell.is_some() || self.is_cancelled);
            match wait(cx, &carrier.stream, &link, looks, time.as_mut()).await {
                Ok((event, has_waited)) => {
                    if has_waited {
                        busy_turns = 0;
                    }
                    if let Some(event) = event {
                        self.event(cx, event)?;
                    }
                }
                Err(why) => self.cancelled(why),
            }
        }
    }

    /// Reads the received bytes, and carries out their operations. Returns `true` if there was
    /// something.
    fn read(
        &mut self,
        cx: &mut Context<Order>,
        carrier: &mut Carrier,
        inbox: &mut Inbox,
    ) -> Result<bool, Ends> {
        match carrier.try_read(inbox.room()) {
            Ok(0) => Err(CLOSED.to_owned()),
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

    /// Carries out what the other node has sent before it ended the connection, such as its answer.
    /// Returns the reason for the end.
    fn read_rest(
        &mut self,
        cx: &mut Context<Order>,
        carrier: &mut Carrier,
        inbox: &mut Inbox,
        why: Ends,
    ) -> Ends {
        for _ in 0..RESTS_MAX {
            if !matches!(self.read(cx, carrier, inbox), Ok(true)) {
                break;
            }
        }
        why
    }

    fn read_frames(&mut self, cx: &mut Context<Order>, inbox: &mut Inbox) -> Result<(), Ends> {
        while let Some(frame) = inbox.next()? {
            self.frame(cx, &inbox.bytes[frame])?;
        }
        Ok(())
    }

    fn frame(&mut self, cx: &mut Context<Order>, frame: &[u8]) -> Result<(), Ends> {
        let has_headers = self.link.outbound.flags() & flags::HEADERS != 0;
        let read = wire::read(&mut self.frames, has_headers, &self.names, frame);
        if let Some((control, message)) = read.map_err(|why| why.why(self.frames.limit()))? {
            self.operation(cx, control, message)?;
        }
        Ok(())
    }

    fn event(&mut self, cx: &mut Context<Order>, event: Event<Order>) -> Result<(), Ends> {
        match event {
            Event::Message(Order::End(why)) => self.end_in_order(why),
            Event::Message(Order::Close(why)) => return Err(why),
            Event::Message(Order::Refuse(call, why)) => self.refuse_call(cx, &call, why),
            Event::Down(down) => self.ended(down.monitor, &down.exit),
            _ => {}
        }
        Ok(())
    }

    /// Carries out an operation of the other node.
    fn operation(
        &mut self,
        cx: &mut Context<Order>,
        control: Control,
        message: Option<Term>,
    ) -> Result<(), Ends> {
        match (control, message) {
            (Control::Send { from, to, request }, Some(term)) => {
                count(&self.link.counts.received, 1);
                let from = from.filter(|from| from.node == self.link.peer.name);
                match request {
                    Some(request) => with(request, || self.deliver(cx, from, &to, term)),
                    None => self.deliver(cx, from, &to, term),
                }
            }
            (Control::AliasSend { .. }, _) => {
                // This node makes no aliases.
                count(&self.link.counts.received, 1);
                count(&self.link.counts.undelivered, 1);
            }
            (Control::Spawn(mut start), Some(arguments)) => match start.request.take() {
                Some(request) => with(request, || self.spawn(cx, *start, arguments)),
                None => self.spawn(cx, *start, arguments),
            },
            (Control::Exit { from, to, reason }, message) => {
                let exit = reason::to_exit(&reason.or(message).unwrap_or(Term::atom("normal")));
                self.exited(cx, from, &to, exit);
            }
            (Control::Exit2 { from, to, reason }, message) => {
                let reason = reason.or(message).unwrap_or(Term::atom("normal"));
                self.exit_sent(&from, &to, &reason);
            }
            // Not the end of a monitor that this node has made of a process with that name: a
            // statement has a reference of the other node.
            (Control::Down { from, monitor, reason, .. }, message)
                if is_grants(&from) && self.has_made(&monitor) =>
            {
                let told = reason.or(message).and_then(|told| Reach::from_term(&told));
                self.link.permitted.told(told);
            }
            (Control::Down { from, monitor, reason, .. }, message)
                if is_pulse(&from) && self.has_made(&monitor) =>
            {
                self.other_told(reason.or(message).as_ref());
            }
            (Control::Down { monitor, reason, .. }, message) => {
                let reason = reason.or(message).unwrap_or(Term::atom("normal"));
                if !self.answered(&monitor, &reason)? {
                    self.down(monitor, reason);
                }
            }
            (Control::Link { from, to }, _) => self.link(cx, from, &to),
            (Control::Unlink { id, from, to }, _) => self.unlink(cx, id, from, to),
            (Control::UnlinkAck { id, from, .. }, _) => self.unlinked(id, &from),
            (Control::Monitor { from, to, monitor }, _) => self.monitor(cx, from, to, monitor),
            (Control::Demonitor { monitor, .. }, _) => drop(self.demonitor(cx, &monitor)),
            (Control::SpawnReply { id, to, links, monitors, result }, _) => {
                self.started(&id, &to, links, monitors, result);
            }
            _ => {}
        }
        Ok(())
    }

    /// Returns the number and the recipient of a process of this node.
    fn find(&self, target: &Target) -> Option<(u64, procession::Pid, Option<Inlet>)> {
        let number = match target {
            Target::Pid(pid) => self.node.number_of(pid)?,
            Target::Name(name) => self.node.whereis(name)?.0,
        };
        let (pid, recipient) = self.node.local(number)?;
        Some((number, pid, recipient))
    }

    fn deliver(&mut self, cx: &mut Context<Order>, from: Option<NodePid>, to: &Target, term: Term) {
        if is_kernel(to) {
            return self.ask_kernel(term);
        }
        if is_status(to) {
            return self.ask_status(term);
        }
        if let Some(call) = self.node.answered_call(&term) {
            return self.replied(&call, term);
        }
        if !self.find_receiver(to) {
            return count(&self.link.counts.denied, 1);
        }
        let Some(Receiver { own, inlet, .. }) = &self.latest else {
            return count(&self.link.counts.undelivered, 1);
        };
        // The reply to a caller that waits until the mailbox has an event.
        let mut told = None;
        let term = match Request::read(term) {
            Err(term) => term,
            Ok(Request { caller, tag, kind }) => {
                let reply = TermReply::new(self.node.replies(), own.clone(), caller, tag);
                if !self.is_answerable(&reply) {
                    return count(&self.link.counts.denied, 1);
                }
                match kind {
                    Kind::Event(event) => {
                        told = Some(reply);
                        event
                    }
                    Kind::System(request) => {
                        if let Some((pid, _)) = self.node.local(own.number()) {
                            self.answer_system(request, reply, own.clone(), pid);
                        }
                        return;
                    }
                }
            }
        };
        let taken = match inlet {
            Inlet::Letters(recipient) => {
                post(recipient, sort(|| self.node.replies(), own, from, term))
            }
            // The drop of a right to reply already notifies the caller.
            Inlet::Typed(typed) => {
                typed.take(&self.node, own, &self.link.peer.name, term).then_some(()).ok_or(None)
            }
        };
        match (taken, told) {
            (Ok(()), None) => {}
            // Ignored: if the queue is full, the caller sees a time-out.
            (Ok(()), Some(told)) => drop(told.send(Term::atom("ok"))),
            (Err(call), told) => {
                count(&self.link.counts.undelivered, 1);
                let call = call.or_else(|| told.and_then(|told| told.reference().cloned()));
                if let Some(call) = call {
                    self.refuse_call(cx, &call, "system_limit");
                }
            }
        }
    }

    /// Makes the receiver of a message the latest one, or none if there is no such process. Returns
    /// `false` if the other node may not send to it.
    fn find_receiver(&mut self, to: &Target) -> bool {
        let losses = self.node.losses();
        let is_same =
            |latest: &Receiver| latest.is_kept && latest.losses == losses && latest.target == *to;
        if self.latest.as_ref().is_some_and(is_same) {
            return true;
        }
        // First, so that a node without the grant does not learn which processes there are.
        if !self.node.permits_send(&self.link.peer.name, to) {
            return false;
        }
        let found = match to {
            Target::Pid(pid) => self.node.number_of(pid).map(|number| (number, true)),
            Target::Name(name) => self.node.whereis(name),
        };
        self.latest = found.and_then(|(number, is_kept)| {
            let inlet = self.node.local(number)?.1?;
            let (target, own) = (to.clone(), self.node.pid_of(number));
            Some(Receiver { target, own, inlet, losses, is_kept })
        });
        if let (Target::Name(name), Some(_)) = (to, &self.latest) {
            self.names[2] = name.clone();
        }
        true
    }

    /// Forgets the latest receiver if it may have ended, so that this cache does not keep it alive.
    fn forget_lost(&mut self) {
        let losses = self.node.losses();
        self.latest.take_if(|latest| latest.losses != losses);
    }

    /// Answers `net_adm:ping`, which asks the process that BEAM nodes have for it.
    fn ask_kernel(&mut self, term: Term) {
        let Some((request, reply)) = self.asked(term) else { return };
        match request.as_tuple() {
            // Ignored: if the queue is full, the caller sees a time-out.
            Some([head, _]) if head.is_atom("is_auth") => drop(reply.send(Term::atom("yes"))),
            _ => count(&self.link.counts.undelivered, 1),
        }
    }

    /// Answers a call for the status of this node.
    fn ask_status(&mut self, term: Term) {
        let Some((request, reply)) = self.asked(term) else { return };
        let is_permitted = self.node.permits_looks(&self.link.peer.name);
        if !is_permitted {
            count(&self.link.counts.denied, 1);
        }
        // Ignored: if the queue is full, the caller sees a time-out.
        drop(reply.send(self.node.answer_status(&request, is_permitted)));
    }

    /// Returns a call of the node itself. Its reply must go to a process of the other node, by a
    /// reference of that node. Otherwise the other node would choose a message that this one sends
    /// to a third one, with the grants of this one.
    fn asked(&self, term: Term) -> Option<(Term, TermReply)> {
        let own = self.node.pid_of(0);
        let Letter::Call { request, reply } = sort(|| self.node.replies(), &own, None, term) else {
            count(&self.link.counts.undelivered, 1);
            return None;
        };
        if !self.is_answerable(&reply) {
            count(&self.link.counts.denied, 1);
            return None;
        }
        Some((request, reply))
    }

    /// Returns `true` if the connection itself may send this reply: to a process of the other node,
    /// by a reference of that node.
    fn is_answerable(&self, reply: &TermReply) -> bool {
        self.link.is_of_peer(&reply.caller().into())
            && reply.reference().is_some_and(|reference| self.has_made(reference))
    }

    /// Completes a call of this node. A late reply finds no caller.
    fn replied(&mut self, call: &Reference, term: Term) {
        let Some(Some(caller)) = self.link.tables(|tables| tables.calls.remove(call)) else {
            return count(&self.link.counts.undelivered, 1);
        };
        let Caller { from, target, waits } = caller;
        self.link.tell_demonitor(&from, &target, call);
        waits.end(Ok(last(term)));
    }
}

#[cfg(test)]
mod tests;
