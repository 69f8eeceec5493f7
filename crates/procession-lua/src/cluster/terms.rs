//! Terms of Erlang as values of Lua. `docs/LUA.md` has the table.

use procession::mailbox::Recipient;
use procession::{Address, Pid};
use procession_cluster::{Letter, Node, Remote, Term};

use super::letters;
use crate::guest::Message;
use crate::value::Value;
use crate::watch::{VALUE_WORK, Watch};

/// Returns the way by which letters reach a guest. `None` if the process has ended, or is no guest.
pub(crate) fn recipient(node: &Node, pid: Pid) -> Option<Recipient<Letter>> {
    let address = Address::<Message>::of(pid).ok()?;
    let node = node.downgrade();
    Some(address.map(move |letter| letters::message(&node, pid, letter)))
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

/// Returns the items of a table with the keys 1 to n.
pub(crate) fn items(entries: &[(Value, Value)]) -> Option<Vec<&Value>> {
    in_order(entries.iter().map(|(key, value)| (index(key), value)))
}

/// Returns the index of an item of a list with this key.
pub(super) fn index(key: &Value) -> Option<usize> {
    let Value::Integer(key) = key else { return None };
    usize::try_from(key.checked_sub(1)?).ok()
}

/// Returns items in the order of their indices, if these are 0 to n - 1.
pub(super) fn in_order<T>(
    numbered: impl ExactSizeIterator<Item = (Option<usize>, T)>,
) -> Option<Vec<T>> {
    let mut items = Vec::new();
    items.resize_with(numbered.len(), || None);
    for (index, item) in numbered {
        *items.get_mut(index?)? = Some(item);
    }
    items.into_iter().collect()
}

/// Returns the value of a term.
pub(crate) fn to_value(node: &Node, term: Term) -> Value {
    let all = |items: Vec<Term>| items.into_iter().map(|item| to_value(node, item));
    match term {
        Term::Atom(atom) if atom.as_str() == "true" => Value::Boolean(true),
        Term::Atom(atom) if atom.as_str() == "false" => Value::Boolean(false),
        Term::Integer(integer) => Value::Integer(integer),
        Term::Float(float) => Value::Float(float),
        Term::Binary(bytes) => Value::String(bytes),
        Term::List(items) => Value::list(all(items)),
        Term::Tuple(items) => Value::Tuple(all(items).collect()),
        Term::Map(pairs) => {
            let pair = |(key, value)| (to_value(node, key), to_value(node, value));
            Value::Map(pairs.into_iter().map(pair).collect())
        }
        // Each incarnation of which there are PIDs takes memory, so only those that are connected
        // get them.
        Term::Pid(pid) if is_known(node, &pid) => Value::Pid(node.pid(&pid)),
        other => Value::Term(other),
    }
}

fn is_known(node: &Node, pid: &procession_cluster::NodePid) -> bool {
    pid.node == *node.name() || node.reaches(&Remote::from(pid))
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
