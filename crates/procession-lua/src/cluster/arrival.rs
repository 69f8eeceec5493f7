//! Terms of Erlang that arrive, as values of Lua. `docs/LUA.md` has the table.

use procession_cluster::{Node, Remote, Term};

use crate::value::{DEPTH_MAX, VALUES_MAX, Value};

/// Measures the values of terms that arrive. A term that a program could not copy is refused where
/// it arrives, because the program could do nothing with its value but fail.
pub(super) struct Measure {
    /// The number of values that may still follow.
    values: usize,
}

impl Measure {
    /// Returns the bytes that the value of a term takes, or `None` if it has more levels or values
    /// than a copy may have.
    pub(super) fn of(term: &Term) -> Option<usize> {
        Self { values: VALUES_MAX }.term(term, 0)
    }

    fn term(&mut self, term: &Term, depth: usize) -> Option<usize> {
        self.values = self.values.checked_sub(1)?;
        let inner = match term {
            Term::List(_) | Term::Tuple(_) | Term::Map(_) if depth == DEPTH_MAX => return None,
            Term::List(items) | Term::Tuple(items) => {
                // A copy also counts the keys. A tuple has no keys outside of a Lua state.
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
        // Each incarnation with PIDs takes memory, so only connected incarnations get PIDs.
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

    use super::{Measure, to_value};
    use crate::value::{self, DEPTH_MAX, VALUES_MAX};

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
}
