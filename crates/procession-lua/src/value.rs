//! Values outside of Lua states, and copying them out of one state and into another.

#[cfg(feature = "cluster")]
mod erlang;

use std::error::Error;
use std::fmt;
use std::sync::{Arc, OnceLock};

use mlua::{AnyUserData, Lua, MetaMethod, Table, UserData, UserDataMethods};
use procession::Pid;

#[cfg(feature = "cluster")]
pub use self::erlang::RemoteCall;
#[cfg(feature = "cluster")]
use self::erlang::{LuaCall, LuaTerm};
#[cfg(feature = "cluster")]
pub(crate) use self::erlang::{TEXT_MAX, format, items};
use crate::account::Account;
use crate::datagrams::Datagrams;
use crate::net::{Connection, Listener};
use crate::watch::{VALUE_WORK, Watch};

/// The depth of nested tables up to which they are copied. Each level uses some of the thread's
/// stack.
pub(crate) const DEPTH_MAX: usize = 64;
/// The number of values in one copy. A table that can be reached in two ways is copied twice, so
/// without this limit a small table could become an endless copy.
pub(crate) const VALUES_MAX: usize = 1 << 20;
/// The bytes of a value outside of its state, in addition to the bytes of a string. In a state, an
/// entry of a table takes about as much.
const VALUE_BYTES: usize = size_of::<Value>();

/// A Lua value outside of any Lua state.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub enum Value {
    /// `nil`.
    #[default]
    Nil,
    /// A boolean.
    Boolean(bool),
    /// An integer.
    Integer(i64),
    /// A float.
    Float(f64),
    /// A string of arbitrary bytes.
    String(Arc<[u8]>),
    /// The entries of a table.
    Table(Vec<(Value, Value)>),
    /// The PID of a process.
    Pid(Pid),
    /// A socket, which is shared and not copied.
    Socket(Socket),
    /// A tuple of Erlang.
    #[cfg(feature = "cluster")]
    #[cfg_attr(docsrs, doc(cfg(feature = "cluster")))]
    Tuple(Vec<Value>),
    /// A map of Erlang. A [`Table`](Self::Table) may be a list or a map.
    #[cfg(feature = "cluster")]
    #[cfg_attr(docsrs, doc(cfg(feature = "cluster")))]
    Map(Vec<(Value, Value)>),
    /// A value of Erlang that Lua has no form for, such as an atom.
    #[cfg(feature = "cluster")]
    #[cfg_attr(docsrs, doc(cfg(feature = "cluster")))]
    Term(procession_cluster::Term),
    /// A call of a process of another node, which is shared and not copied.
    #[cfg(feature = "cluster")]
    #[cfg_attr(docsrs, doc(cfg(feature = "cluster")))]
    RemoteCall(RemoteCall),
}

/// What a guest returns is data. A guest fails by an error.
impl procession::process::Outcome for Value {}

/// A socket of a guest.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Socket {
    /// A connection.
    Connection(Arc<Connection>),
    /// A listener, which accepts connections.
    Listener(Arc<Listener>),
    /// A UDP socket.
    Datagrams(Arc<Datagrams>),
}

impl PartialEq for Socket {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Connection(one), Self::Connection(other)) => Arc::ptr_eq(one, other),
            (Self::Listener(one), Self::Listener(other)) => Arc::ptr_eq(one, other),
            (Self::Datagrams(one), Self::Datagrams(other)) => Arc::ptr_eq(one, other),
            _ => false,
        }
    }
}

impl fmt::Display for Socket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (kind, address) = match self {
            Self::Connection(connection) => {
                let secure = connection.is_secure();
                let kind = if secure { "TLS connection" } else { "connection" };
                (kind, connection.address())
            }
            Self::Listener(listener) => ("listener", listener.address()),
            Self::Datagrams(socket) => ("UDP socket", socket.address()),
        };
        match address {
            Ok(address) => write!(f, "{kind} {address}"),
            Err(_) => f.write_str(kind),
        }
    }
}

impl Value {
    /// Creates a string.
    pub fn string(bytes: impl AsRef<[u8]>) -> Self {
        Self::String(bytes.as_ref().into())
    }

    /// Creates a table with the keys 1 to n.
    pub(crate) fn list<T: Into<Self>>(items: impl IntoIterator<Item = T>) -> Self {
        let numbered = (1..).zip(items);
        Self::Table(numbered.map(|(index, item)| (Self::Integer(index), item.into())).collect())
    }

    /// Creates a table with texts as keys.
    pub(crate) fn record<'a>(fields: impl IntoIterator<Item = (&'a str, Self)>) -> Self {
        Self::Table(fields.into_iter().map(|(key, value)| (Self::string(key), value)).collect())
    }

    /// Returns the number of bytes that this value takes.
    pub(crate) fn size(&self) -> usize {
        VALUE_BYTES
            + match self {
                Self::String(bytes) => bytes.len(),
                Self::Table(entries) => pairs_size(entries),
                #[cfg(feature = "cluster")]
                Self::Map(entries) => pairs_size(entries),
                #[cfg(feature = "cluster")]
                Self::Tuple(items) => items.iter().map(Self::size).sum(),
                #[cfg(feature = "cluster")]
                Self::Term(term) => term.memory_bytes(),
                _ => 0,
            }
    }

    /// Returns the entry with a string as its key, if this is a table that has it.
    pub fn get(&self, key: &str) -> Option<&Self> {
        let entries = match self {
            Self::Table(entries) => entries,
            #[cfg(feature = "cluster")]
            Self::Map(entries) => entries,
            _ => return None,
        };
        entries
            .iter()
            .find(|(name, _)| matches!(name, Self::String(name) if **name == *key.as_bytes()))
            .map(|(_, value)| value)
    }
}

fn pairs_size(entries: &[(Value, Value)]) -> usize {
    entries.iter().map(|(key, value)| key.size() + value.size()).sum()
}

impl From<i64> for Value {
    fn from(integer: i64) -> Self {
        Self::Integer(integer)
    }
}

impl From<bool> for Value {
    fn from(boolean: bool) -> Self {
        Self::Boolean(boolean)
    }
}

impl From<f64> for Value {
    fn from(float: f64) -> Self {
        Self::Float(float)
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::string(text)
    }
}

impl From<Pid> for Value {
    fn from(pid: Pid) -> Self {
        Self::Pid(pid)
    }
}

impl From<Connection> for Value {
    fn from(connection: Connection) -> Self {
        Self::Socket(Socket::Connection(Arc::new(connection)))
    }
}

impl From<Listener> for Value {
    fn from(listener: Listener) -> Self {
        Self::Socket(Socket::Listener(Arc::new(listener)))
    }
}

impl From<Datagrams> for Value {
    fn from(datagrams: Datagrams) -> Self {
        Self::Socket(Socket::Datagrams(Arc::new(datagrams)))
    }
}

/// The error of a value that cannot be copied. It contains the place in the value, and the kind of
/// value found there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopyError {
    path: String,
    what: String,
}

impl fmt::Display for CopyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = if self.path.is_empty() { "the value" } else { &self.path };
        write!(f, "{path} cannot be copied: it is {}", self.what)
    }
}

impl Error for CopyError {}

/// A PID in a Lua state.
pub(crate) struct LuaPid {
    pid: Pid,
    /// The account of the process, once it was needed. It is the same until the process ends.
    account: OnceLock<Arc<Account>>,
}

impl LuaPid {
    pub(crate) fn pid(&self) -> Pid {
        self.pid
    }

    pub(crate) fn account(&self) -> Option<&Arc<Account>> {
        match self.account.get() {
            Some(known) => Some(known),
            None => {
                let found = Account::of(self.pid)?;
                Some(self.account.get_or_init(|| found))
            }
        }
    }
}

impl UserData for LuaPid {
    fn add_methods<M: UserDataMethods<Self>>(methods: &mut M) {
        methods.add_meta_method(MetaMethod::ToString, |_, pid, ()| Ok(pid.pid.to_string()));
    }
}

/// Copies a value of at most `most` bytes out of a Lua state.
pub(crate) fn take(value: &mlua::Value, most: usize) -> Result<Value, CopyError> {
    Copying { tables: Vec::new(), values: VALUES_MAX, bytes: most, watch: Watch::new() }.copy(value)
}

struct Copying {
    /// The tables around the value.
    tables: Vec<*const std::ffi::c_void>,
    /// The number of values and of bytes that may still be copied.
    values: usize,
    bytes: usize,
    watch: Watch,
}

fn refuse<T>(what: impl Into<String>) -> Result<T, CopyError> {
    Err(CopyError { path: String::new(), what: what.into() })
}

impl Copying {
    fn charge(&mut self, bytes: usize) -> Result<(), CopyError> {
        match self.bytes.checked_sub(bytes) {
            Some(left) => self.bytes = left,
            None => return refuse("too large for the memory of its process"),
        }
        self.watch.count(bytes).or_else(|_| refuse("a value of a process that is terminated"))
    }

    fn copy(&mut self, value: &mlua::Value) -> Result<Value, CopyError> {
        let Some(left) = self.values.checked_sub(1) else {
            return refuse(format!("part of a copy of more than {VALUES_MAX} values"));
        };
        self.values = left;
        self.charge(VALUE_BYTES)?;
        Ok(match value {
            mlua::Value::Nil => Value::Nil,
            mlua::Value::Boolean(boolean) => Value::Boolean(*boolean),
            mlua::Value::Integer(integer) => Value::Integer(*integer),
            mlua::Value::Number(float) => Value::Float(*float),
            mlua::Value::String(string) => {
                let bytes = string.as_bytes();
                self.charge(bytes.len())?;
                Value::string(bytes)
            }
            mlua::Value::Table(table) => self.copy_table(table)?,
            mlua::Value::UserData(data) => {
                // Most are PIDs.
                if let Some(pid) = as_pid(data) {
                    return Ok(Value::Pid(pid));
                }
                #[cfg(feature = "cluster")]
                if let Ok(term) = data.borrow::<LuaTerm>() {
                    self.charge(term.0.memory_bytes())?;
                }
                match from_userdata(data) {
                    Ok(value) => value,
                    Err(what) => return refuse(what),
                }
            }
            other => return refuse(format!("a {}", other.type_name())),
        })
    }

    fn copy_table(&mut self, table: &Table) -> Result<Value, CopyError> {
        if self.tables.contains(&table.to_pointer()) {
            return refuse("a table that contains itself");
        }
        if self.tables.len() == DEPTH_MAX {
            return refuse(format!("a table inside of {DEPTH_MAX} others"));
        }
        self.tables.push(table.to_pointer());
        let mut entries = Vec::new();
        for pair in table.pairs::<mlua::Value, mlua::Value>() {
            let Ok((key, value)) = pair else {
                return refuse("too large for the memory of its process");
            };
            let copied = self.copy(&key).and_then(|copied| Ok((copied, self.copy(&value)?)));
            entries.push(copied.map_err(|mut error| {
                error.path.insert_str(0, &step(&key));
                error
            })?);
        }
        self.tables.pop();
        #[cfg(feature = "cluster")]
        if let Some(kind) = erlang::kind(table) {
            let typed = erlang::typed(kind, entries);
            return typed.map_or_else(|| refuse("a tuple with other keys than 1 to n"), Ok);
        }
        Ok(Value::Table(entries))
    }
}

/// The number of characters of a key in a path.
const STEP_MAX: usize = 100;

/// Formats a key as a part of a path.
fn step(key: &mlua::Value) -> String {
    match key {
        mlua::Value::String(name) => {
            let name = name.as_bytes();
            let shown = &name[..name.len().min(STEP_MAX)];
            format!(".{}", String::from_utf8_lossy(shown).escape_debug())
        }
        mlua::Value::Integer(index) => format!("[{index}]"),
        mlua::Value::Number(number) => format!("[{number}]"),
        mlua::Value::Boolean(boolean) => format!("[{boolean}]"),
        other => format!("[a {}]", other.type_name()),
    }
}

/// Returns the PID that a userdata is.
pub(crate) fn as_pid(data: &AnyUserData) -> Option<Pid> {
    data.borrow::<LuaPid>().ok().map(|pid| pid.pid)
}

fn from_userdata(data: &AnyUserData) -> Result<Value, &'static str> {
    #[cfg(feature = "cluster")]
    if let Ok(term) = data.borrow::<LuaTerm>() {
        return Ok(Value::Term(term.0.clone()));
    }
    #[cfg(feature = "cluster")]
    if let Ok(call) = data.borrow::<LuaCall>() {
        return Ok(Value::RemoteCall(call.0.clone()));
    }
    let Ok(socket) = data.borrow::<LuaSocket>() else { return Err("a userdata") };
    socket.0.clone().map(Value::Socket).ok_or("a socket that this process closed or forgot")
}

/// A socket in a Lua state, until it is closed there. Its descriptor should not stay open until Lua
/// collects it. The methods of sockets are in the table `socket` of the library, see `lazy.rs`.
pub(crate) struct LuaSocket(pub(crate) Option<Socket>);

impl UserData for LuaSocket {
    fn add_methods<M: UserDataMethods<Self>>(methods: &mut M) {
        methods.add_meta_method(MetaMethod::ToString, |_, socket, ()| {
            Ok(socket.0.as_ref().map_or_else(|| "closed socket".to_owned(), ToString::to_string))
        });
        methods.add_meta_method(MetaMethod::Index, |lua, _, name: mlua::Value| {
            crate::lazy::socket_methods(lua)?.get::<mlua::Value>(name)
        });
    }
}

/// The name of a table in the registry of a state that has used PIDs. It maps the texts of PIDs to
/// the PIDs, so that equal PIDs are the same object.
const PIDS: &str = "procession.pids";

/// Returns the table in which equal texts have one object. The table does not keep its objects.
pub(crate) fn objects(lua: &Lua) -> mlua::Result<Table> {
    if let Some(known) = lua.named_registry_value(PIDS)? {
        return Ok(known);
    }
    let (objects, metatable) = (lua.create_table()?, lua.create_table()?);
    metatable.raw_set("__mode", "v")?;
    objects.set_metatable(Some(metatable))?;
    lua.set_named_registry_value(PIDS, &objects)?;
    Ok(objects)
}

/// Copies a value into a Lua state.
pub(crate) fn give(lua: &Lua, value: &Value) -> mlua::Result<mlua::Value> {
    give_watched(lua, value, &mut Watch::new())
}

pub(crate) fn give_watched(
    lua: &Lua,
    value: &Value,
    watch: &mut Watch,
) -> mlua::Result<mlua::Value> {
    watch.count(VALUE_WORK).map_err(mlua::Error::external)?;
    Ok(match value {
        Value::Nil => mlua::Value::Nil,
        Value::Boolean(boolean) => mlua::Value::Boolean(*boolean),
        Value::Integer(integer) => mlua::Value::Integer(*integer),
        Value::Float(float) => mlua::Value::Number(*float),
        Value::String(bytes) => mlua::Value::String(lua.create_string(bytes)?),
        Value::Table(entries) => {
            let table = lua.create_table()?;
            for (key, value) in entries {
                let key = give_watched(lua, key, watch)?;
                table.raw_set(key, give_watched(lua, value, watch)?)?;
            }
            mlua::Value::Table(table)
        }
        Value::Pid(pid) => give_pid(lua, *pid)?,
        Value::Socket(socket) => {
            mlua::Value::UserData(lua.create_userdata(LuaSocket(Some(socket.clone())))?)
        }
        #[cfg(feature = "cluster")]
        erlang => return erlang::give_value(lua, erlang, watch),
    })
}

fn give_pid(lua: &Lua, pid: Pid) -> mlua::Result<mlua::Value> {
    let pids = objects(lua)?;
    let text = pid.to_string();
    let known: mlua::Value = pids.raw_get(text.as_str())?;
    if !known.is_nil() {
        return Ok(known);
    }
    let made = lua.create_userdata(LuaPid { pid, account: OnceLock::new() })?;
    pids.raw_set(text, &made)?;
    Ok(mlua::Value::UserData(made))
}

#[cfg(test)]
mod tests {
    use mlua::Lua;

    use super::{Copying, VALUES_MAX, Value, give_watched};
    use crate::watch::Watch;

    #[cfg(feature = "cluster")]
    #[test]
    fn values_of_erlang_are_copied_like_others() {
        use procession_cluster::Term;
        let lua = Lua::new();
        let many = || vec![Value::Integer(1); 1 << 16];
        let pairs = || many().into_iter().map(|value| (Value::Float(0.5), value)).collect();
        for value in [Value::Tuple(many()), Value::Map(pairs())] {
            let error = give_watched(&lua, &value, &mut Watch::over()).expect_err("it is over");
            assert!(error.to_string().contains("terminated"), "{error}");
        }
        let term = Value::Term(Term::Improper(vec![1.into(); 1000], Box::new(2.into())));
        let given = give_watched(&lua, &term, &mut Watch::new()).expect("there is memory");
        assert_eq!(super::take(&given, term.size()), Ok(term.clone()));
        let error = super::take(&given, 1000).expect_err("it has more bytes");
        assert!(error.to_string().contains("too large"), "{error}");
    }

    #[test]
    fn copies_end_soon_once_the_process_is_terminated() {
        let lua = Lua::new();
        let many = Value::list(vec![1; 1 << 16]);
        let given = give_watched(&lua, &many, &mut Watch::new()).expect("there is memory");
        let watch = Watch::over();
        let mut copying =
            Copying { tables: Vec::new(), values: VALUES_MAX, bytes: 64 << 20, watch };
        assert!(copying.copy(&given).expect_err("it is over").to_string().contains("terminated"));
        assert!(VALUES_MAX - copying.values < 4096, "most of the values are left");
        let before = lua.used_memory();
        let error = give_watched(&lua, &many, &mut Watch::over()).expect_err("it is over");
        assert!(error.to_string().contains("terminated"), "{error}");
        assert!(lua.used_memory() - before < 1 << 18, "most of the values are left");
    }
}
