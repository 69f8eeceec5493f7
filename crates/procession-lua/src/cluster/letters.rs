//! Letters of the cluster as messages of guests.

use std::sync::Arc;

use procession::Pid;
use procession_cluster::{Atom, Letter, NodePid, Remote, RemoteDown, Term, TermReply, WeakNode};
use procession_sync::Mutex;

use super::terms::to_value;
use crate::account::Account;
use crate::guest::{Content, Message};
use crate::value::Value;

/// A call of a process of another node that was received and not answered yet. Copies are the same
/// call.
#[derive(Clone, Debug)]
pub struct RemoteCall(Arc<Mutex<Option<TermReply>>>);

impl RemoteCall {
    fn new(reply: TermReply) -> Self {
        Self(Arc::new(Mutex::new(Some(reply))))
    }

    /// Takes what answers the call. `None` if it was taken before.
    pub(super) fn take(&self) -> Option<TermReply> {
        self.0.lock().take()
    }

    /// Puts a reply back that was not sent.
    pub(super) fn put_back(&self, reply: TermReply) {
        *self.0.lock() = Some(reply);
    }
}

impl PartialEq for RemoteCall {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

/// Returns the message that a letter is for a guest. If the mailbox of the guest has no room for
/// it, that is one that the guest ignores.
pub(super) fn message(node: &WeakNode, to: Pid, letter: Letter) -> Message {
    let ignored = Message::Answer { tag: 0, value: Value::Nil };
    let Some(node) = node.upgrade() else { return ignored };
    let value = |term: Term| to_value(&node, term);
    let is_signal =
        matches!(letter, Letter::Down(_) | Letter::NodeUp { .. } | Letter::NodeDown { .. });
    let account = Account::of(to);
    // The report of a monitor of a PID is no letter for a guest.
    if let (Letter::Down(_), Some(account)) = (&letter, &account) {
        account.end_name_monitor();
    }
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
            Content::Plain(match process {
                Remote::Name { name, node } => {
                    table([("down", text(&name)), ("node", text(&node)), reason])
                }
                Remote::Pid(pid) => table([("down", value(NodePid::into(pid))), reason]),
            })
        }
        Letter::NodeUp { node, .. } => Content::Plain(table([("node_up", text(&node))])),
        Letter::NodeDown { node, why, .. } => {
            Content::Plain(table([("node_down", text(&node)), ("reason", Value::string(why))]))
        }
        _ => return ignored,
    };
    let Some(account) = account else { return content.into() };
    // The ends of processes and nodes come in addition to messages, as answers do.
    match account.charge(content.size(), is_signal) {
        Some(charge) => Message::Charged(content.charged(charge)),
        None => ignored,
    }
}

fn text(atom: &Atom) -> Value {
    Value::string(atom.as_str())
}

fn table<const N: usize>(entries: [(&str, Value); N]) -> Value {
    Value::Table(entries.map(|(key, value)| (Value::string(key), value)).into())
}
