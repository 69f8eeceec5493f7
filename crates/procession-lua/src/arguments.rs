//! The arguments of calls from Lua.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use mlua::MultiValue;
use procession::Pid;
use procession::time::Instant;

use crate::datagrams::Datagrams;
use crate::net::{Connection, Listener};
use crate::secured::Secured;
use crate::value::{self, LuaSocket, Socket, Value};

/// The bytes of a name of a process, or of the reason of an exit.
const KEPT_MAX: usize = 64 * 1024;

/// The arguments of a call from Lua, and the number of bytes that their copies may have.
pub(crate) struct Arguments(pub(crate) MultiValue, pub(crate) usize);

impl Arguments {
    pub(crate) fn value(&self, index: usize) -> Result<Value, String> {
        self.copy(index, self.1)
    }

    fn copy(&self, index: usize, most: usize) -> Result<Value, String> {
        let Some(value) = self.0.get(index) else { return Ok(Value::Nil) };
        value::take(value, most).map_err(|error| format!("argument {}: {error}", index + 1))
    }

    pub(crate) fn rest(&self, from: usize) -> Result<Vec<Value>, String> {
        let mut left = self.1;
        let mut values = Vec::new();
        for index in from..self.0.len() {
            let value = self.copy(index, left)?;
            left = left.saturating_sub(value.size());
            values.push(value);
        }
        Ok(values)
    }

    pub(crate) fn wrong(&self, index: usize, wanted: &str) -> String {
        let given = self.0.get(index).map_or("nothing", |value| value.type_name());
        format!("argument {} must be {wanted}, not {given}", index + 1)
    }

    pub(crate) fn bytes(&self, index: usize) -> Result<Arc<[u8]>, String> {
        match self.value(index)? {
            Value::String(bytes) => Ok(bytes),
            _ => Err(self.wrong(index, "a string")),
        }
    }

    /// Returns a string without copying it.
    pub(crate) fn borrowed(&self, index: usize) -> Result<&mlua::LuaString, String> {
        match self.0.get(index) {
            Some(mlua::Value::String(text)) => Ok(text),
            _ => Err(self.wrong(index, "a string")),
        }
    }

    /// Returns a text that the host keeps, such as a name.
    pub(crate) fn short(&self, index: usize) -> Result<String, String> {
        self.bounded(index, KEPT_MAX)
    }

    /// Returns a text of at most `most` bytes.
    pub(crate) fn bounded(&self, index: usize, most: usize) -> Result<String, String> {
        let text = self.text(index)?;
        match text.len() <= most {
            true => Ok(text),
            false => Err(format!("argument {} has more than {most} bytes", index + 1)),
        }
    }

    pub(crate) fn text(&self, index: usize) -> Result<String, String> {
        String::from_utf8(self.bytes(index)?.to_vec())
            .map_err(|_| self.wrong(index, "a string in UTF-8"))
    }

    pub(crate) fn path(&self, index: usize) -> Result<PathBuf, String> {
        Ok(OsString::from_vec(self.bytes(index)?.to_vec()).into())
    }

    pub(crate) fn integer(&self, index: usize) -> Result<i64, String> {
        match self.0.get(index) {
            Some(mlua::Value::Integer(integer)) => Ok(*integer),
            _ => Err(self.wrong(index, "an integer")),
        }
    }

    /// Returns an integer, or `default` for `nil`.
    pub(crate) fn integer_or(&self, index: usize, default: i64) -> Result<i64, String> {
        match self.0.get(index) {
            None | Some(mlua::Value::Nil) => Ok(default),
            Some(_) => self.integer(index),
        }
    }

    /// Returns the PID in an argument that is a PID or the name of a process.
    pub(crate) fn target(&self, index: usize) -> Result<Pid, String> {
        let pid = self.0.get(index).and_then(mlua::Value::as_userdata).and_then(value::as_pid);
        if let Some(pid) = pid {
            return Ok(pid);
        }
        match self.value(index)? {
            Value::String(name) => {
                let name = String::from_utf8_lossy(&name).into_owned();
                procession::process::whereis(&name)
                    .ok_or_else(|| format!("no process has the name {name:?}"))
            }
            _ => Err(self.wrong(index, "a PID or a name")),
        }
    }

    /// Takes the socket in the first argument out of the Lua state. Returns `None` if it was taken
    /// out before.
    pub(crate) fn forget_socket(&self) -> Result<Option<Socket>, String> {
        let data = self.0.front().and_then(mlua::Value::as_userdata);
        let socket = data.and_then(|data| Some(data.borrow_mut::<LuaSocket>().ok()?.0.take()));
        socket.ok_or_else(|| self.wrong(0, "a socket"))
    }

    pub(crate) fn socket(&self, index: usize) -> Result<Socket, String> {
        match self.value(index)? {
            Value::Socket(socket) => Ok(socket),
            _ => Err(self.wrong(index, "a socket")),
        }
    }

    pub(crate) fn connection(&self, index: usize) -> Result<Arc<Connection>, String> {
        match self.socket(index)? {
            Socket::Connection(connection) => Ok(connection),
            _ => Err(format!("argument {} must be a connection", index + 1)),
        }
    }

    pub(crate) fn listener(&self, index: usize) -> Result<Arc<Listener>, String> {
        match self.socket(index)? {
            Socket::Listener(listener) => Ok(listener),
            _ => Err(format!("argument {} must be a listener", index + 1)),
        }
    }

    pub(crate) fn datagrams(&self, index: usize) -> Result<Arc<Datagrams>, String> {
        match self.socket(index)? {
            Socket::Datagrams(socket) => Ok(socket),
            _ => Err(format!("argument {} must be a UDP socket", index + 1)),
        }
    }

    /// Returns the PID in an argument, or the PID of the process itself for `nil`.
    pub(crate) fn pid_or_own(&self, index: usize) -> Result<Pid, String> {
        match self.0.get(index) {
            None | Some(mlua::Value::Nil) => own_pid(),
            Some(_) => self.target(index),
        }
    }

    /// Returns the time in an argument: a number of milliseconds, or `None` for `nil`.
    pub(crate) fn duration(&self, index: usize) -> Result<Option<Duration>, String> {
        match self.value(index)? {
            Value::Nil => Ok(None),
            value => match milliseconds(&value) {
                Some(duration) => Ok(Some(duration)),
                None => Err(self.wrong(index, "a number of milliseconds")),
            },
        }
    }

    /// Reads the options of a socket: `{ tls = true }` or `{ tls = { name, protocols } }`. Returns
    /// `None` if the socket is to have no TLS.
    pub(crate) fn secured(&self, index: usize) -> Result<Option<Secured>, String> {
        let entries = match self.value(index)? {
            Value::Nil => return Ok(None),
            Value::Table(entries) => entries,
            _ => return Err(self.wrong(index, "a table of options")),
        };
        let mut secured = None;
        for (key, value) in &entries {
            if *key != Value::string("tls") {
                return Err("the only option of a socket is `tls`".to_owned());
            }
            secured = match value {
                Value::Boolean(false) => None,
                Value::Boolean(true) => Some(Secured::default()),
                Value::Table(entries) => Some(tls(entries)?),
                _ => return Err("`tls` must be a boolean or a table".to_owned()),
            };
        }
        Ok(secured)
    }

    /// Returns the time limit in an argument.
    pub(crate) fn deadline(&self, index: usize) -> Result<Option<Instant>, String> {
        Ok(self.duration(index)?.map(|timeout| Instant::now() + timeout))
    }
}

/// Returns the PID of the process that calls.
pub(crate) fn own_pid() -> Result<Pid, String> {
    procession::process::current_pid().ok_or_else(|| "the process has not started yet".to_owned())
}

/// Returns the time that a number of milliseconds is.
pub(crate) fn milliseconds(value: &Value) -> Option<Duration> {
    match value {
        Value::Integer(count) => Some(Duration::from_millis(u64::try_from(*count).unwrap_or(0))),
        Value::Float(count) => {
            Some(Duration::try_from_secs_f64(count.max(0.0) / 1000.0).unwrap_or(Duration::MAX))
        }
        _ => None,
    }
}

/// The longest name of a protocol, in bytes, and the number of protocols.
const PROTOCOL_MAX: usize = 255;
const PROTOCOLS_MAX: usize = 16;

/// Reads the table of `tls`.
fn tls(entries: &[(Value, Value)]) -> Result<Secured, String> {
    let mut secured = Secured::default();
    for (key, value) in entries {
        match (key, value) {
            (Value::String(key), Value::String(name)) if **key == *b"name" => {
                let name = String::from_utf8(name.to_vec());
                secured.name = Some(name.map_err(|_| "`name` must be the name of a host")?);
            }
            (Value::String(key), Value::Table(items)) if **key == *b"protocols" => {
                secured.protocols = protocols(items)?;
            }
            _ => {
                let wanted = "`tls` may have a text `name` and a list of texts `protocols`";
                return Err(wanted.to_owned());
            }
        }
    }
    Ok(secured)
}

fn protocols(items: &[(Value, Value)]) -> Result<Vec<Vec<u8>>, String> {
    let wrong = || {
        format!(
            "`protocols` must be a list of at most {PROTOCOLS_MAX} texts of 1 to {PROTOCOL_MAX} bytes"
        )
    };
    if items.len() > PROTOCOLS_MAX {
        return Err(wrong());
    }
    // A table has its entries in no order, and perhaps more entries than a list.
    let name = |index| {
        let index = Value::Integer(index);
        let (_, item) = items.iter().find(|(key, _)| *key == index)?;
        match item {
            Value::String(name) if (1..=PROTOCOL_MAX).contains(&name.len()) => Some(name.to_vec()),
            _ => None,
        }
    };
    (1..).take(items.len()).map(|index| name(index).ok_or_else(wrong)).collect()
}
