//! Letters of the cluster as messages of guests.

use std::sync::Arc;

use procession::Pid;
use procession_cluster::{Atom, Letter, Node, NodePid, Remote, RemoteDown, Term, TermReply};
use procession_sync::Mutex;

use super::terms::{Measure, to_value};
use crate::account::{self, Account, Charge, Held};
use crate::message::{Content, Message};
use crate::value::Value;

/// The bytes of a report of the end of a process or of news of a node, beside its texts.
const NEWS_BYTES: usize = 8 * size_of::<Value>();

/// A call of a process of another node that was received and not answered yet. Copies are the same
/// call.
#[derive(Clone, Debug)]
pub struct RemoteCall(Arc<Mutex<Option<Unanswered>>>);

/// What answers a call.
#[derive(Debug)]
pub(super) struct Unanswered {
    pub(super) reply: TermReply,
    /// The charge of the process that has received the call last. It ends with the answer, because
    /// Lua may collect the call much later.
    held: Option<Held>,
}

impl RemoteCall {
    fn new(reply: TermReply) -> Self {
        Self(Arc::new(Mutex::new(Some(Unanswered { reply, held: None }))))
    }

    /// Charges a process for the call until the call is answered. A call comes whatever the process
    /// does, so the charge may exceed the limits. Then the next call is refused, and this returns
    /// `false`.
    pub(super) fn hold(&self, account: &Arc<Account>) -> bool {
        let mut held = account.hold();
        let mut unanswered = self.0.lock();
        let Some(Unanswered { reply, held: before }) = &mut *unanswered else { return true };
        held.set(reply.memory_bytes());
        let fits = held.fits();
        let before = before.replace(held);
        drop(unanswered);
        drop(before);
        fits
    }

    /// Takes what answers the call. `None` if it was taken before.
    pub(super) fn take(&self) -> Option<Unanswered> {
        self.0.lock().take()
    }

    /// Puts a reply back that was not sent.
    pub(super) fn put_back(&self, unanswered: Unanswered) {
        *self.0.lock() = Some(unanswered);
    }
}

impl PartialEq for RemoteCall {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

/// The room that a letter takes in the mailbox of a process. A process of the host has none to
/// charge.
pub(super) struct Room(Option<Charge>);

/// Takes room for a letter in the mailbox of a process. Returns `None` if the mailbox has none, or
/// if a program could not copy the letter.
pub(super) fn room(to: Pid, letter: &Letter) -> Option<Room> {
    let Some(account) = Account::of(to) else {
        let bytes = bytes(letter)?;
        return Account::check_host(to, bytes, false).ok().map(|()| Room(None));
    };
    if let Letter::Down(_) = letter {
        // The report of a monitor of a PID is no letter for a guest.
        account.end_name_monitor();
        // The number of monitors bounds the reports, and a process waits for them.
        return Some(Room(Some(account.charge_over(bytes(letter)?))));
    }
    if let Letter::Call { .. } = letter
        && !account.hold().fits()
    {
        return None;
    }
    // News of nodes come in addition to messages, as answers do.
    let is_signal = matches!(letter, Letter::NodeUp { .. } | Letter::NodeDown { .. });
    account.charge(bytes(letter)?, is_signal).map(|charge| Room(Some(charge)))
}

/// Returns the bytes that the message of a letter takes. `None` if a program could not copy it.
fn bytes(letter: &Letter) -> Option<usize> {
    let text = |atom: &Atom| atom.as_str().len();
    let news = |texts: usize| Some(NEWS_BYTES + texts);
    match letter {
        Letter::Message { term, .. } | Letter::Cast(term) => Measure::of(term),
        Letter::Call { request, reply } => Some(Measure::of(request)? + reply.memory_bytes()),
        Letter::Down(RemoteDown { process, exit, .. }) => news(
            account::end_bytes(exit)
                + match process {
                    Remote::Name { name, node } => text(name) + text(node),
                    Remote::Pid(_) => 0,
                },
        ),
        Letter::NodeUp { node, .. } => news(text(node)),
        Letter::NodeDown { node, why, .. } => news(text(node) + why.len()),
        _ => None,
    }
}

/// Returns the message that a letter is for a process with room for it. A letter of an unknown kind
/// becomes a message that a guest ignores.
pub(super) fn message(node: &Node, letter: Letter, room: Room) -> Message {
    let value = |term: Term| to_value(node, term);
    let content = match letter {
        Letter::Message { term, .. } | Letter::Cast(term) => Content::Plain(value(term)),
        Letter::Call { request, reply } => {
            let from = value(reply.caller().clone().into());
            let reply = Value::RemoteCall(RemoteCall::new(reply));
            let call = table([("from", from), ("reply", reply)]);
            Content::RemoteCall { call, value: value(request) }
        }
        Letter::Down(RemoteDown { process, exit, .. }) => {
            let reason = ("reason", Value::string(exit.to_string()));
            let value = match process {
                Remote::Name { name, node } => {
                    table([("down", text(&name)), ("node", text(&node)), reason])
                }
                Remote::Pid(pid) => table([("down", value(NodePid::into(pid))), reason]),
            };
            Content::News { kind: "down", value }
        }
        Letter::NodeUp { node, .. } => {
            Content::News { kind: "node_up", value: table([("node_up", text(&node))]) }
        }
        Letter::NodeDown { node, why, .. } => {
            let value = table([("node_down", text(&node)), ("reason", Value::string(why))]);
            Content::News { kind: "node_down", value }
        }
        _ => Content::Answer { tag: 0, value: Value::Nil },
    };
    match room.0 {
        Some(charge) => Message::Charged(content.charged(charge)),
        None => content.into(),
    }
}

fn text(atom: &Atom) -> Value {
    Value::string(atom.as_str())
}

fn table<const N: usize>(entries: [(&str, Value); N]) -> Value {
    Value::Table(entries.map(|(key, value)| (Value::string(key), value)).into())
}
