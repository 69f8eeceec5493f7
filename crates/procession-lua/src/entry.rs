//! The function that a new process calls, and what the process may use.

use crate::permissions::Permissions;
use crate::value::Value;

/// The first argument of `process.spawn`: the name of a function, or `{ name, allow = table }`.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) function: String,
    pub(crate) permissions: Permissions,
}

impl Entry {
    /// Reads the entry of a child of a process with `permissions`.
    pub(crate) fn new(value: &Value, permissions: &Permissions) -> Result<Self, String> {
        let mut permissions = permissions.clone();
        let name = match value {
            Value::Table(entries) => {
                let mut name = None;
                for (key, value) in entries {
                    match (key, value) {
                        (Value::Integer(1), Value::String(_)) => name = Some(value),
                        (Value::String(key), allowed) if **key == *b"allow" => {
                            permissions = permissions.narrowed(allowed)?;
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
        Ok(Self { function, permissions })
    }
}

fn wrong_entry() -> String {
    "a process is started by the name of a function, or by { name, allow = table }".to_owned()
}
