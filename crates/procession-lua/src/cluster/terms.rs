//! Terms of Erlang as values of Lua. `docs/LUA.md` has the table.

use procession::mailbox::Recipient;
use procession::{Address, Pid};
use procession_cluster::{Letter, Node, Remote, Term};

use super::letters;
use crate::message::Message;
use crate::value::{DEPTH_MAX, VALUES_MAX, Value};
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

/// Measures the values of terms that arrive. A term that a program could not copy is refused where
/// it arrives, because the program could do nothing with its value but fail.
pub(super) struct Measure {
    /// The number of values that may still come.
    values: usize,
}

impl Measure {
    /// Returns the bytes that the value of a term takes, or `None` if it has too many levels or
    /// values for a copy.
    pub(super) fn of(term: &Term) -> Option<usize> {
        Self { values: VALUES_MAX }.term(term, 0)
    }

    fn term(&mut self, term: &Term, depth: usize) -> Option<usize> {
        self.values = self.values.checked_sub(1)?;
        let inner = match term {
            Term::List(_) | Term::Tuple(_) | Term::Map(_) if depth == DEPTH_MAX => return None,
            Term::List(items) | Term::Tuple(items) => {
                // A copy counts the keys, too. A tuple has none outside of a Lua state.
                let key = if matches!(term, Term::List(_)) { size_of::<Value>() } else { 0 };
                let mut bytes = 0;
                for item in items {
                    self.values = self.values.checked_sub(1)?;
                    bytes += key + self.term(item, depth + 1)?;
                }
                bytes
            }
            Term::Map(pairs) => {
                let mut bytes = 0;
                for (key, value) in pairs {
                    bytes += self.term(key, depth + 1)? + self.term(value, depth + 1)?;
                }
                bytes
            }
            Term::Integer(_) | Term::Float(_) => 0,
            Term::Binary(bytes) => bytes.len(),
            Term::Atom(atom) if matches!(atom.as_str(), "true" | "false") => 0,
            other => other.memory_bytes(),
        };
        Some(size_of::<Value>() + inner)
    }
}

/// Returns the value of a term that arrived.
///
/// # Errors
/// If a program could not copy it, returns the reason.
pub(super) fn arrived(node: &Node, term: Term) -> Result<Value, String> {
    match Measure::of(&term) {
        Some(_) => Ok(to_value(node, term)),
        None => Err(format!(
            "a value of another node is nested more than {DEPTH_MAX} levels deep or has more than {VALUES_MAX} values"
        )),
    }
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
            let pair = |(key, value)| (to_key(node, key), to_value(node, value));
            Value::Map(pairs.into_iter().map(pair).collect())
        }
        // Each incarnation of which there are PIDs takes memory, so only those that are connected
        // get them.
        Term::Pid(pid) if is_known(node, &pid) => Value::Pid(node.pid(&pid)),
        other => Value::Term(other),
    }
}

/// Returns the value of a key. In a table of Lua, the keys 1 and 1.0 are the same, so a float that
/// Lua would take for an integer stays a term.
fn to_key(node: &Node, key: Term) -> Value {
    match key {
        Term::Float(float) if float as i64 as f64 == float => Value::Term(key),
        other => to_value(node, other),
    }
}

fn is_known(node: &Node, pid: &procession_cluster::NodePid) -> bool {
    pid.node == *node.name() || node.reaches(&Remote::from(pid))
}

#[cfg(test)]
mod tests {
    use procession_cluster::{Cookie, Node, Term};

    use super::{Measure, to_term, to_term_watched, to_value};
    use crate::value::{self, DEPTH_MAX, VALUES_MAX, Value};
    use crate::watch::{Terminated, Watch};

    /// What is not refused where it arrives can be copied, and the other way around.
    #[test]
    fn a_measure_is_that_of_a_copy() {
        fn nested(levels: usize, around: fn(Term) -> Term) -> Term {
            (0..levels).fold(Term::from(1), |inner, _| around(inner))
        }
        let list = |inner| Term::list([inner]);
        let tuple = |inner| Term::tuple([inner]);
        let value = |inner| Term::Map(vec![(Term::from(true), inner)]);
        let key = |inner| Term::Map(vec![(inner, Term::from("text"))]);
        let mut terms = vec![
            (Term::List(vec![1.into(); VALUES_MAX / 2 - 1]), true),
            (Term::List(vec![1.into(); VALUES_MAX / 2]), false),
            (Term::Tuple(vec![1.into(); VALUES_MAX / 2]), false),
            (Term::Improper(vec![1.into(); 10], Box::new(nested(100, list))), true),
        ];
        for around in [list, tuple, value, key] {
            terms.push((nested(DEPTH_MAX, around), true));
            terms.push((nested(DEPTH_MAX + 1, around), false));
        }
        procession::run(async move {
            let cookie = Cookie::random().expect("the system has random bytes");
            let node = Node::builder("measure@127.0.0.1").cookie(cookie).start().await;
            let node = node.expect("it starts");
            let lua = mlua::Lua::new();
            for (term, fits) in terms {
                let measured = Measure::of(&term);
                assert_eq!(measured.is_some(), fits);
                let arrived = to_value(&node, term);
                let copied = value::take(&value::give(&lua, &arrived).expect("memory"), usize::MAX);
                assert_eq!(copied.is_ok(), fits, "{copied:?}");
                if fits {
                    assert_eq!(measured, Some(arrived.size()));
                }
            }
        });
    }

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
