//! Values of Erlang in Lua states.

use mlua::{Lua, MetaMethod, Table, UserData, UserDataMethods};
use procession_cluster::Term;

use super::RemoteCall;
use super::terms::items;
use crate::value::{self, PIDS, Value};

/// The field of a metatable that says which value of Erlang a table is.
const KIND: &str = "__name";
const TUPLE: &str = "erlang.tuple";
const MAP: &str = "erlang.map";

/// A kind of table that plain tables are not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Tuple,
    Map,
}

/// Returns the kind of a table.
pub(crate) fn kind(table: &Table) -> Option<Kind> {
    let name: mlua::Value = table.metatable()?.raw_get(KIND).ok()?;
    let name = name.as_string()?.as_bytes();
    match &*name {
        name if *name == *TUPLE.as_bytes() => Some(Kind::Tuple),
        name if *name == *MAP.as_bytes() => Some(Kind::Map),
        _ => None,
    }
}

/// Returns the value that a table of a kind is. `None` if a tuple has other keys than 1 to n.
pub(crate) fn typed(kind: Kind, entries: Vec<(Value, Value)>) -> Option<Value> {
    match kind {
        Kind::Map => Some(Value::Map(entries)),
        Kind::Tuple => {
            items(&entries).map(|items| Value::Tuple(items.into_iter().cloned().collect()))
        }
    }
}

/// A value of Erlang that Lua has no form for.
pub(crate) struct LuaTerm(pub(crate) Term);

impl UserData for LuaTerm {
    fn add_methods<M: UserDataMethods<Self>>(methods: &mut M) {
        methods.add_meta_method(MetaMethod::ToString, |_, term, ()| {
            Ok(match &term.0 {
                Term::Atom(atom) => atom.as_str().to_owned(),
                other => other.to_string(),
            })
        });
        methods.add_meta_method(MetaMethod::Eq, |_, term, other: mlua::Value| {
            let other = other.as_userdata().and_then(|other| other.borrow::<Self>().ok());
            Ok(other.is_some_and(|other| other.0 == term.0))
        });
    }
}

/// A call that was received, in a Lua state.
pub(crate) struct LuaCall(pub(crate) RemoteCall);

impl UserData for LuaCall {}

/// Copies a value that only programs with a node have into a Lua state.
pub(crate) fn give_value(lua: &Lua, value: &Value) -> mlua::Result<mlua::Value> {
    match value {
        Value::Tuple(items) => {
            let numbered = (1..).map(mlua::Value::Integer).zip(items);
            give_pairs(lua, Kind::Tuple, numbered.map(Ok))
        }
        Value::Map(entries) => {
            let pairs = entries.iter().map(|(key, value)| Ok((value::give(lua, key)?, value)));
            give_pairs(lua, Kind::Map, pairs)
        }
        Value::Term(term) => give_term(lua, term),
        Value::RemoteCall(call) => {
            Ok(mlua::Value::UserData(lua.create_userdata(LuaCall(call.clone()))?))
        }
        other => Err(mlua::Error::runtime(format!("{other:?} is a value of Lua"))),
    }
}

/// Copies a term into a Lua state. Equal atoms, references and PIDs are the same object there, so
/// that they can be keys.
fn give_term(lua: &Lua, term: &Term) -> mlua::Result<mlua::Value> {
    let key = match term {
        Term::Atom(atom) => format!("atom {}", atom.as_str()),
        Term::Reference(reference) => format!("reference {} {reference}", reference.creation),
        Term::Pid(pid) => format!("pid {} {pid}", pid.creation),
        other => return Ok(mlua::Value::UserData(lua.create_userdata(LuaTerm(other.clone()))?)),
    };
    let known: Table = lua.named_registry_value(PIDS)?;
    let found: mlua::Value = known.raw_get(key.as_str())?;
    if !found.is_nil() {
        return Ok(found);
    }
    let made = lua.create_userdata(LuaTerm(term.clone()))?;
    known.raw_set(key, &made)?;
    Ok(mlua::Value::UserData(made))
}

/// Copies a tuple or a map into a Lua state.
fn give_pairs<'a>(
    lua: &Lua,
    kind: Kind,
    pairs: impl IntoIterator<Item = mlua::Result<(mlua::Value, &'a Value)>>,
) -> mlua::Result<mlua::Value> {
    let table = lua.create_table()?;
    for pair in pairs {
        let (key, value) = pair?;
        table.raw_set(key, value::give(lua, value)?)?;
    }
    table.set_metatable(Some(metatable(lua, kind)?))?;
    Ok(mlua::Value::Table(table))
}

/// Returns the metatable of a kind in a Lua state.
fn metatable(lua: &Lua, kind: Kind) -> mlua::Result<Table> {
    let name = match kind {
        Kind::Tuple => TUPLE,
        Kind::Map => MAP,
    };
    if let Some(known) = lua.named_registry_value::<Option<Table>>(name)? {
        return Ok(known);
    }
    let made = lua.create_table()?;
    made.raw_set(KIND, name)?;
    lua.set_named_registry_value(name, &made)?;
    Ok(made)
}
