//! The function that a new process calls, and what the process may use.

use procession::process::{Priority, current_pid, priority};

use crate::failure::label;
use crate::limits::Maxima;
use crate::permissions::{Allowed, Bounds, Permissions};
use crate::value::Value;

/// The number of addresses or variables in a list of `allow`. Each is compared with the entries of
/// the spawning process, so there are at most a million comparisons for a list.
const OBJECTS_MAX: usize = 1024;
/// The number of paths in a list of `allow`. Each may keep a folder open.
const PATHS_MAX: usize = 64;
/// The bytes of all objects in a list of `allow`.
const BYTES_MAX: usize = 64 * 1024;

/// The first argument of `process.spawn`: the name of a function, or a table of the name, `allow`,
/// `limits` and `priority`.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) function: String,
    bounds: Bounds,
    limits: Option<Maxima>,
    /// At most the priority of the process that starts it.
    pub(crate) priority: Priority,
}

/// Returns the priority of what the running guest starts without naming one: its own, and at most
/// `Normal`.
pub(crate) fn inherited() -> Priority {
    current_pid().and_then(priority).unwrap_or_default().min(Priority::Normal)
}

impl Entry {
    /// Reads the entry of a child of the running process, which has the bounds `parent`.
    pub(crate) fn new(value: &Value, parent: &Bounds) -> Result<Self, String> {
        let (mut bounds, mut limits) = (parent.clone(), None);
        let most = current_pid().and_then(priority).unwrap_or_default();
        let mut level = inherited();
        let name = match value {
            Value::Table(entries) => {
                let mut name = None;
                for (key, value) in entries {
                    match (key, value) {
                        (Value::Integer(1), Value::String(_)) => name = Some(value),
                        (Value::String(key), allowed) if **key == *b"allow" => {
                            bounds.permissions = narrowed(parent, allowed)?;
                        }
                        (Value::String(key), table) if **key == *b"limits" => {
                            limits = bounds.limits.check(maxima(table)?)?;
                        }
                        (Value::String(key), value) if **key == *b"priority" => {
                            level = level_of(value, most)?;
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
        Ok(Self { function, bounds, limits, priority: level })
    }

    /// Returns the bounds of a process that begins now. If it has limits, they are its own.
    pub(crate) fn bounds(&self) -> Bounds {
        let mut bounds = self.bounds.clone();
        if let Some(maxima) = self.limits {
            bounds.limits = bounds.limits.begin(&label(&self.function), maxima);
        }
        bounds
    }
}

fn wrong_entry() -> String {
    "a process is started by the name of a function, or by { name, allow = table, limits = table, priority = string }"
        .to_owned()
}

/// Reads a priority, which is at most `most`.
fn level_of(value: &Value, most: Priority) -> Result<Priority, String> {
    let Value::String(name) = value else { return Err("`priority` must be a string".to_owned()) };
    let is_named = |level: &Priority| **name == *level.name().as_bytes();
    let Some(level) = Priority::ALL.into_iter().find(is_named) else {
        return Err("`priority` must be \"high\", \"normal\" or \"batch\"".to_owned());
    };
    if level > most {
        return Err(format!("a process that is {most} cannot start a process that is {level}"));
    }
    Ok(level)
}

/// Reads a table of limits.
fn maxima(table: &Value) -> Result<Maxima, String> {
    let Value::Table(entries) = table else { return Err("`limits` must be a table".to_owned()) };
    Maxima::new(entries.iter().map(|(key, most)| {
        let key = if let Value::String(key) = key { Some(&**key) } else { None };
        (key, if let Value::Integer(most) = most { Some(*most) } else { None })
    }))
}

/// Reads `allow`: a table that sets permissions to `false`, or to the objects that are left.
fn narrowed(parent: &Bounds, allowed: &Value) -> Result<Permissions, String> {
    let Value::Table(entries) = allowed else { return Err("`allow` must be a table".to_owned()) };
    let entries = entries.iter().map(|(key, value)| {
        let Value::String(key) = key else {
            return Err("the keys of `allow` must be strings".to_owned());
        };
        let allowed = match value {
            Value::Boolean(true) => Allowed::Everything,
            Value::Boolean(false) => Allowed::Nothing,
            _ => Allowed::Only(objects(key, value)?),
        };
        Ok((&**key, allowed))
    });
    Permissions::narrowed(parent, entries)
}

/// Returns the objects that `allow` names for a permission: a string, or a list of strings.
fn objects<'a>(key: &[u8], value: &'a Value) -> Result<Vec<&'a [u8]>, String> {
    fn text(value: &Value) -> Result<&[u8], String> {
        match value {
            Value::String(bytes) => Ok(bytes),
            _ => Err("the values of `allow` must be booleans, strings or lists of strings".into()),
        }
    }
    let Value::Table(entries) = value else { return Ok(vec![text(value)?]) };
    let most = if matches!(key, b"read" | b"write") { PATHS_MAX } else { OBJECTS_MAX };
    let objects = match entries.len() <= most {
        true => entries.iter().map(|(_, value)| text(value)).collect::<Result<Vec<_>, _>>()?,
        false => {
            let key = String::from_utf8_lossy(key);
            return Err(format!("a list of `allow` may have {most} objects for {key:?}"));
        }
    };
    match objects.iter().map(|object| object.len()).sum::<usize>() <= BYTES_MAX {
        true => Ok(objects),
        false => {
            Err(format!("the objects in a list of `allow` may have {BYTES_MAX} bytes together"))
        }
    }
}
