//! The function that a new process calls, and what the process may use.

use crate::failure::label;
use crate::limits::{Bounds, Maxima};
use crate::permissions::Permissions;
use crate::value::Value;

/// The first argument of `process.spawn`: the name of a function, or a table of the name, `allow`
/// and `limits`.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) function: String,
    bounds: Bounds,
    limits: Option<Maxima>,
}

impl Entry {
    /// Reads the entry of a child of a process with the bounds `parent`.
    pub(crate) fn new(value: &Value, parent: &Bounds) -> Result<Self, String> {
        let (mut bounds, mut limits) = (parent.clone(), None);
        let name = match value {
            Value::Table(entries) => {
                let mut name = None;
                for (key, value) in entries {
                    match (key, value) {
                        (Value::Integer(1), Value::String(_)) => name = Some(value),
                        (Value::String(key), allowed) if **key == *b"allow" => {
                            bounds.permissions = Permissions::narrowed(parent, allowed)?;
                        }
                        (Value::String(key), table) if **key == *b"limits" => {
                            limits = bounds.check_limits(Maxima::new(table)?)?;
                        }
                        _ => return Err(wrong_entry()),
                    }
                }
                name.ok_or_else(wrong_entry)?
            }
            name => name,
        };
        let Value::String(name) = name else { return Err(wrong_entry()) };
        let function = str::from_utf8(name).map_err(|_| wrong_entry())?.to_owned();
        Ok(Self { function, bounds, limits })
    }

    /// Returns the bounds of a process that begins now. If it has limits, they are its own.
    pub(crate) fn bounds(&self) -> Bounds {
        let bounds = self.bounds.clone();
        match self.limits {
            Some(limits) => bounds.limited(&label(&self.function), limits),
            None => bounds,
        }
    }
}

fn wrong_entry() -> String {
    "a process is started by the name of a function, or by { name, allow = table, limits = table }"
        .to_owned()
}
