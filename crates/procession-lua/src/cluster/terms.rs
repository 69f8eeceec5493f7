//! Values of Lua as terms of Erlang. `docs/LUA.md` has the table.

use procession::mailbox::Recipient;
use procession::{Address, Pid};
use procession_cluster::{Letter, Node, Term};

use super::letters;
use crate::message::Message;
use crate::value::{Value, items};
use crate::watch::{VALUE_WORK, Watch};

/// Returns the way by which letters reach a guest. `None` if the process has ended, or is no guest.
#[expect(clippy::result_large_err, reason = "a refused letter goes back as it came")]
pub(crate) fn recipient(node: &Node, pid: Pid) -> Option<Recipient<Letter>> {
    let address = Address::<Message>::of(pid).ok()?;
    let node = node.downgrade();
    Some(address.filter_map(move |letter| {
        let Some(node) = node.upgrade() else { return Err(letter) };
        match letters::room(pid, &letter) {
            Some(room) => Ok(letters::message(&node, letter, room)),
            None => Err(letter),
        }
    }))
}

/// Returns the term that a value is.
///
/// # Errors
/// If the value has a part that other nodes cannot have, returns the reason.
pub(crate) fn to_term(node: &Node, value: &Value) -> Result<Term, String> {
    to_term_watched(node, value, &mut Watch::new())
}

fn to_term_watched(node: &Node, value: &Value, watch: &mut Watch) -> Result<Term, String> {
    watch.count(VALUE_WORK)?;
    Ok(match value {
        Value::Nil => Term::atom("nil"),
        Value::Boolean(boolean) => (*boolean).into(),
        Value::Integer(integer) => (*integer).into(),
        Value::Float(float) if float.is_finite() => (*float).into(),
        Value::Float(float) => return Err(format!("Erlang has no number {float}")),
        Value::String(bytes) => Term::Binary(bytes.clone()),
        Value::Table(entries) => match items(entries) {
            Some(items) => {
                let items = items.into_iter().map(|item| to_term_watched(node, item, watch));
                Term::List(items.collect::<Result<_, _>>()?)
            }
            None => Term::Map(pairs(node, entries, watch)?),
        },
        Value::Tuple(items) => {
            let items = items.iter().map(|item| to_term_watched(node, item, watch));
            Term::Tuple(items.collect::<Result<_, _>>()?)
        }
        Value::Map(entries) => Term::Map(pairs(node, entries, watch)?),
        Value::Term(term) => {
            watch.count(term.memory_bytes())?;
            term.clone()
        }
        Value::Pid(pid) => pid_term(node, *pid)?,
        Value::Socket(_) => return Err("a socket cannot be sent to another node".to_owned()),
        Value::RemoteCall(_) => return Err("a call cannot be sent to another node".to_owned()),
    })
}

fn pairs(
    node: &Node,
    entries: &[(Value, Value)],
    watch: &mut Watch,
) -> Result<Vec<(Term, Term)>, String> {
    let pair = |(key, value): &(Value, Value)| {
        Ok((to_term_watched(node, key, watch)?, to_term_watched(node, value, watch)?))
    };
    entries.iter().map(pair).collect()
}

fn pid_term(node: &Node, pid: Pid) -> Result<Term, String> {
    // A guest is attached, so that messages to it arrive.
    if let Some(recipient) = recipient(node, pid) {
        return Ok(node.attach(&recipient).pid().into());
    }
    let known = node.node_pid(pid).ok_or_else(|| format!("the node does not know {pid}"))?;
    Ok(known.into())
}

#[cfg(test)]
mod tests {
    use procession_cluster::{Cookie, Node, Term};

    use super::{to_term, to_term_watched};
    use crate::value::Value;
    use crate::watch::{Terminated, Watch};

    #[test]
    fn a_value_becomes_no_term_once_its_process_is_terminated() {
        let many = || vec![Value::Integer(1); 1 << 16];
        let pairs = || many().into_iter().map(|value| (Value::Float(0.5), value)).collect();
        let term = Term::List(vec![1.into(); 1 << 16]);
        procession::run(async {
            let cookie = Cookie::random().expect("the system has random bytes");
            let node = Node::builder("terms@127.0.0.1").cookie(cookie).start().await;
            let node = node.expect("it starts");
            for value in [
                Value::list(many()),
                Value::Tuple(many()),
                Value::Table(pairs()),
                Value::Map(pairs()),
                Value::Term(term),
            ] {
                assert!(to_term(&node, &value).is_ok());
                let over = to_term_watched(&node, &value, &mut Watch::over());
                assert_eq!(over, Err(Terminated.to_string()));
            }
        });
    }
}
