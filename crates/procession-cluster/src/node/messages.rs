//! Messages and calls of this node to others.

use std::sync::Arc;
use std::time::Duration;

use procession::Exit;
use procession::mailbox::request::context;
use procession::sync::oneshot;

use crate::error::{CallTermError, SendTermError};
use crate::handshake::flags;
use crate::letter::{AwaitedRoom, Replies};
use crate::link::{Caller, Link, Order, Waits};
use crate::node::{CALL_KIND, Inner, Node};
use crate::outbound::{Lane, Unqueued};
use crate::remote::Remote;
use crate::term::{NodePid, Reference, Term};
use crate::wire::calls::{alias_of, last, reference_of};
use crate::wire::control::{Control, Target};

/// The reply of a process of a node of this crate that has dropped its right to reply.
pub(crate) const NO_REPLY: &str = "$procession_no_reply";

impl Node {
    /// Sends a term to a process of another node. The sender is the node itself.
    ///
    /// It never blocks, and never connects. A process that sends on its own behalf uses
    /// [`Member::send`](crate::Member::send).
    ///
    /// # Errors
    /// [`SendTermError`] returns the term.
    pub fn send(&self, to: impl Into<Remote>, term: Term) -> Result<(), SendTermError> {
        self.send_from(0, &to.into(), term)
    }

    pub(crate) fn send_from(
        &self,
        number: u64,
        to: &Remote,
        term: Term,
    ) -> Result<(), SendTermError> {
        let Some(link) = self.link_of(to) else {
            return Err(SendTermError::new(term, Unqueued::Closed));
        };
        let to = to.target();
        let permitted = link.check_permitted(&to);
        let control = Control::Send { from: Some(self.pid_of(number)), to, request: context() };
        let control = readable(control, &link);
        match permitted.and_then(|()| link.outbound.send(number, &control, &term)) {
            Ok(()) => Ok(()),
            Err(why) => Err(SendTermError::new(term, why)),
        }
    }

    /// Calls a process of another node, as `GenServer.call` and `gen_server:call` do, and waits for
    /// the reply.
    ///
    /// # Errors
    /// [`CallTermError`] says whether the request was not sent, the called process has ended, or
    /// `timeout` has passed.
    ///
    /// # Cancellation
    /// If the future is dropped, the request may have been sent, and its reply is dropped.
    pub async fn call(
        &self,
        to: impl Into<Remote>,
        request: Term,
        timeout: Duration,
    ) -> Result<Term, CallTermError> {
        self.call_from(0, to.into(), request, timeout).await
    }

    pub(crate) async fn call_from(
        &self,
        number: u64,
        to: Remote,
        request: Term,
        timeout: Duration,
    ) -> Result<Term, CallTermError> {
        let no_connection = |term| CallTermError::Send(SendTermError::new(term, Unqueued::Closed));
        let Some(link) = self.link_of(&to) else { return Err(no_connection(request)) };
        let call = self.reference(CALL_KIND);
        let (from, target) = (self.pid_of(number), to.target());
        // A monitor is never refused, so the monitor of a call without room would take room from
        // other monitors.
        let permitted = link.check_permitted(&target);
        if let Err(why) = permitted.and_then(|()| link.outbound.check_call(number)) {
            return Err(CallTermError::Send(SendTermError::new(request, why)));
        }
        let (sender, receiver) = oneshot::channel();
        let caller =
            Caller { from: from.clone(), target: target.clone(), waits: Waits::Call(sender) };
        if link.tables(|tables| tables.calls.insert(call.clone(), caller)).is_none() {
            return Err(no_connection(request));
        }
        // Forgets the call if this future is dropped, or the time limit passes.
        let pending = Pending { link: &link, call: &call, from: &from, target: &target };
        let monitor =
            Control::Monitor { from: from.clone(), to: target.clone(), monitor: call.clone() };
        if link.takes_monitors() {
            link.outbound.signal(number, &monitor, None);
        }
        let message = Term::tuple([
            Term::atom("$gen_call"),
            Term::tuple([from.clone().into(), call.clone().into()]),
            request,
        ]);
        let control =
            Control::Send { from: Some(from.clone()), to: target.clone(), request: context() };
        if let Err(why) = link.outbound.call(number, &readable(control, &link), &message) {
            let term = last(message);
            return Err(CallTermError::Send(SendTermError::new(term, why)));
        }
        let reply = procession::timeout(timeout, receiver).await;
        drop(pending);
        match reply {
            Ok(Ok(Ok(reply))) if reply.is_atom(NO_REPLY) => Err(CallTermError::NoReply),
            Ok(Ok(Ok(reply))) => Ok(reply),
            Ok(Ok(Err(exit))) => Err(CallTermError::Ended(exit)),
            Ok(Err(_)) => Err(CallTermError::Ended(Exit::NoConnection)),
            Err(_) => Err(CallTermError::TimedOut),
        }
    }

    /// Returns what sends replies.
    pub(crate) fn replies(&self) -> Arc<dyn Replies> {
        Arc::<Inner>::clone(&self.0)
    }

    /// Replies to a message with a right to reply in it. `None` is that this was dropped: only a
    /// node of this crate understands it. Replies to the node that has sent the message
    /// (`is_to_sender`) have a room of their own. Returns `false` if the reply cannot be sent.
    #[cfg(feature = "serde")]
    pub(crate) fn reply_typed(
        &self,
        from: &NodePid,
        to: &NodePid,
        tag: &Term,
        reply: Option<Term>,
        is_to_sender: bool,
    ) -> bool {
        let Some(link) = self.link_of(&to.into()) else { return false };
        if reply.is_none() && !link.is_of_own_kind() {
            return false;
        }
        let control = readable(reply_control(from, to, tag), &link);
        let message = |reply| Term::tuple([tag.clone(), reply]);
        let (lane, outbound) = (from.number(), &link.outbound);
        let no_reply = || {
            let none = message(Term::atom(NO_REPLY));
            match is_to_sender {
                true => outbound.no_reply(lane, &control, &none),
                false => outbound.send(lane, &control, &none),
            }
        };
        let Some(reply) = reply.map(message) else { return no_reply().is_ok() };
        let sent = match is_to_sender {
            true => outbound.reply(lane, &control, &reply),
            false => outbound.send(lane, &control, &reply),
        };
        // A reply beyond a limit is replaced by none, so that the caller does not wait for it.
        match sent {
            Ok(()) => return true,
            // Ignored: without room for that, the caller sees a time-out.
            Err(_) if link.is_of_own_kind() => drop(no_reply()),
            Err(Unqueued::Full(_)) => end_call(&link, tag, "system_limit"),
            Err(why) => end_call_if_never(&link, tag, why),
        }
        false
    }

    /// Waits until a term that found a full queue may find room. Returns the term, or the error if
    /// it has another cause.
    pub(crate) async fn until_room(
        &self,
        number: u64,
        to: &Remote,
        refused: SendTermError,
    ) -> Result<Term, SendTermError> {
        let Some(length) = refused.needs else { return Err(refused) };
        match self.link_of(to) {
            Some(link) => link.outbound.room(number, length).await,
            None => return Err(refused),
        }
        Ok(refused.term)
    }
}

impl Replies for Inner {
    fn open_call(&self) -> Arc<()> {
        Arc::clone(&self.open_calls)
    }

    fn reply(
        &self,
        from: &NodePid,
        to: &NodePid,
        tag: &Term,
        reply: Term,
    ) -> Result<(), SendTermError> {
        let Some(link) = self.link_of(&to.into()) else {
            return Err(SendTermError::new(reply, Unqueued::Closed));
        };
        let control = readable(reply_control(from, to, tag), &link);
        let message = Term::tuple([tag.clone(), reply]);
        match link.outbound.send(from.number(), &control, &message) {
            Ok(()) => Ok(()),
            Err(why) => {
                end_call_if_never(&link, tag, why);
                Err(SendTermError::new(last(message), why))
            }
        }
    }

    fn until_room<'a>(&'a self, lane: Lane, to: &'a Remote, length: usize) -> AwaitedRoom<'a> {
        Box::pin(async move {
            let Some(link) = self.link_of(to) else { return false };
            link.outbound.room(lane, length).await;
            true
        })
    }
}

/// Ends a call if its reply can never be sent, so that the caller does not wait for it.
fn end_call_if_never(link: &Link, tag: &Term, why: Unqueued) {
    match why {
        Unqueued::TooLong => end_call(link, tag, "too_large"),
        Unqueued::Wrong(_) => end_call(link, tag, "unencodable"),
        Unqueued::Full(_) | Unqueued::Closed | Unqueued::Leaving | Unqueued::NotAllowed => {}
    }
}

/// Ends a call of the other node for a reason.
fn end_call(link: &Link, tag: &Term, word: &'static str) {
    if let Some(call) = reference_of(tag) {
        // Ignored: the end of the connection ends the call.
        drop(link.orders.send(Order::Refuse(call.clone(), word)));
    }
}

/// A call that nothing has answered yet.
struct Pending<'a> {
    link: &'a Link,
    call: &'a Reference,
    from: &'a NodePid,
    target: &'a Target,
}

impl Drop for Pending<'_> {
    fn drop(&mut self) {
        let forgotten = self.link.tables(|tables| tables.calls.remove(self.call));
        if let Some(Some(_)) = forgotten {
            self.link.tell_demonitor(self.from, self.target, self.call);
        }
    }
}

/// Returns the operation of a reply.
fn reply_control(from: &NodePid, to: &NodePid, tag: &Term) -> Control {
    match alias_of(tag) {
        Some(alias) => Control::AliasSend { from: from.clone(), alias: alias.clone() },
        // The caller goes on with its own request.
        None => {
            let to = Target::Pid(to.clone());
            Control::Send { from: Some(from.clone()), to, request: None }
        }
    }
}

/// Leaves out of a message what the other node cannot read: its sender, or its request.
pub(crate) fn readable(control: Control, link: &Link) -> Control {
    let can = |flag| link.outbound.flags() & flag != 0;
    match control {
        Control::Send { to: to @ Target::Pid(_), .. } if !can(flags::SEND_SENDER) => {
            Control::Send { from: None, to, request: None }
        }
        Control::Send { from, to, .. } if !can(flags::TRACE_LABELS) => {
            Control::Send { from, to, request: None }
        }
        other => other,
    }
}
