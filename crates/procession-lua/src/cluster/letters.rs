//! Letters of the cluster as messages of guests.

use procession::Pid;
use procession_cluster::{Atom, Letter, Node, NodePid, Remote, RemoteDown, Term};

use super::arrival::{Measure, to_value};
use crate::account::{self, Account, Charge};
use crate::message::{Content, Message};
use crate::value::{RemoteCall, Value};

/// The bytes of a report of the end of a process or of news of a node, without its texts.
const NEWS_BYTES: usize = 8 * size_of::<Value>();

/// The room that a letter takes in the mailbox of a process. A process of the host has no account
/// to charge.
pub(super) struct Room(Option<Charge>);

/// Takes room for a letter in the mailbox of a process. Returns `None` if the mailbox has no room,
/// or if a program could not copy the letter.
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
    // News of nodes have separate room, as answers do.
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
            let call = Value::record([("from", from), ("reply", reply)]);
            Content::RemoteCall { call, value: value(request) }
        }
        Letter::Down(RemoteDown { process, exit, .. }) => {
            let reason = ("reason", Value::string(exit.to_string()));
            let value = match process {
                Remote::Name { name, node } => {
                    Value::record([("down", text(&name)), ("node", text(&node)), reason])
                }
                Remote::Pid(pid) => Value::record([("down", value(NodePid::into(pid))), reason]),
            };
            Content::News { kind: "down", value }
        }
        Letter::NodeUp { node, .. } => {
            Content::News { kind: "node_up", value: Value::record([("node_up", text(&node))]) }
        }
        Letter::NodeDown { node, why, .. } => {
            let value = Value::record([("node_down", text(&node)), ("reason", Value::string(why))]);
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
