//! Values of Erlang in Lua states.

use std::fmt::{self, Write};
use std::sync::Arc;

use mlua::{Lua, MetaMethod, Table, UserData, UserDataMethods};
use procession_cluster::{Term, TermReply};
use procession_sync::Mutex;

use super::{Value, give_watched, objects};
use crate::account::{Account, Held};
use crate::watch::{VALUE_WORK, Watch};

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
            let numbered = entries.into_iter().map(|(key, value)| (index(&key), value));
            in_order(numbered).map(Value::Tuple)
        }
    }
}

/// The bytes of the text of a term. To make one of this length takes some 50 ms.
pub(crate) const TEXT_MAX: usize = 1 << 20;

/// Returns a term in the notation of Erlang.
///
/// # Errors
/// If the text has more than `most` bytes or the process is terminated, returns the cause.
pub(crate) fn format(term: &Term, most: usize, watch: Watch) -> Result<String, String> {
    let mut text = Text { text: String::new(), most, watch, refusal: None };
    match write!(text, "{term}") {
        Ok(()) => Ok(text.text),
        Err(error) => Err(text.refusal.unwrap_or_else(|| error.to_string())),
    }
}

/// A text of a bounded length.
struct Text {
    text: String,
    most: usize,
    watch: Watch,
    refusal: Option<String>,
}

impl Write for Text {
    fn write_str(&mut self, piece: &str) -> fmt::Result {
        if piece.len() > self.most - self.text.len() {
            self.refusal = Some(format!("the text of the value has more than {} bytes", self.most));
            return Err(fmt::Error);
        }
        // The pieces are short, and each takes some time.
        self.watch.count(piece.len() + VALUE_WORK / 8).map_err(|terminated| {
            self.refusal = Some(terminated.into());
            fmt::Error
        })?;
        self.text.push_str(piece);
        Ok(())
    }
}

/// A value of Erlang that Lua has no form for, with the charge for its memory, which Lua does not
/// count.
pub(crate) struct LuaTerm(
    pub(crate) Term,
    #[expect(dead_code, reason = "it ends when this is dropped")] Option<Held>,
);

impl UserData for LuaTerm {
    fn add_methods<M: UserDataMethods<Self>>(methods: &mut M) {
        methods.add_meta_method(MetaMethod::ToString, |_, term, ()| {
            Ok(match &term.0 {
                Term::Atom(atom) => atom.as_str().to_owned(),
                other => format(other, TEXT_MAX, Watch::new()).map_err(mlua::Error::runtime)?,
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
pub(crate) fn give_value(lua: &Lua, value: &Value, watch: &mut Watch) -> mlua::Result<mlua::Value> {
    match value {
        Value::Tuple(items) => {
            let table = lua.create_table()?;
            for item in items {
                table.raw_push(give_watched(lua, item, watch)?)?;
            }
            with_kind(lua, table, Kind::Tuple)
        }
        Value::Map(entries) => {
            let table = lua.create_table()?;
            for (key, value) in entries {
                let key = give_watched(lua, key, watch)?;
                table.raw_set(key, give_watched(lua, value, watch)?)?;
            }
            with_kind(lua, table, Kind::Map)
        }
        Value::Term(term) => give_term(lua, term, watch),
        Value::RemoteCall(call) => {
            let account = procession::process::current_pid().and_then(Account::of);
            if account.is_some_and(|account| !call.hold(&account)) {
                // Calls that the program no longer uses, and has not answered, count until they are
                // collected. The process may get no further message that leads to a collection.
                lua.gc_collect()?;
            }
            Ok(mlua::Value::UserData(lua.create_userdata(LuaCall(call.clone()))?))
        }
        other => Err(mlua::Error::runtime(format!("{other:?} is a value of Lua"))),
    }
}

/// Copies a term into a Lua state. Equal atoms, references, PIDs and floats are the same object
/// there, so that they can be keys.
fn give_term(lua: &Lua, term: &Term, watch: &mut Watch) -> mlua::Result<mlua::Value> {
    watch.count(term.memory_bytes()).map_err(mlua::Error::external)?;
    let key = match term {
        Term::Atom(atom) => format!("atom {}", atom.as_str()),
        Term::Reference(reference) => format!("reference {} {reference}", reference.creation),
        Term::Pid(pid) => format!("pid {} {pid}", pid.creation),
        Term::Float(float) => format!("float {float:?}"),
        other => {
            let held = hold(lua, other.memory_bytes())?;
            let made = LuaTerm(other.clone(), held);
            return Ok(mlua::Value::UserData(lua.create_userdata(made)?));
        }
    };
    let known = objects(lua)?;
    let found: mlua::Value = known.raw_get(key.as_str())?;
    if !found.is_nil() {
        return Ok(found);
    }
    let made = lua.create_userdata(LuaTerm(term.clone(), None))?;
    known.raw_set(key, &made)?;
    Ok(mlua::Value::UserData(made))
}

/// Charges the current process for a term in its state.
fn hold(lua: &Lua, bytes: usize) -> mlua::Result<Option<Held>> {
    let Some(account) = procession::process::current_pid().and_then(Account::of) else {
        return Ok(None);
    };
    if let Ok(held) = account.try_hold(bytes) {
        return Ok(Some(held));
    }
    // Terms that the program no longer uses count until they are collected.
    lua.gc_collect()?;
    account.try_hold(bytes).map(Some).map_err(mlua::Error::MemoryError)
}

/// Makes a table the tuple or the map that it contains.
fn with_kind(lua: &Lua, table: Table, kind: Kind) -> mlua::Result<mlua::Value> {
    table.set_metatable(Some(metatable(lua, kind)?))?;
    Ok(mlua::Value::Table(table))
}

/// Returns the metatable of a kind in a Lua state. The program cannot reach it: Lua would call a
/// finalizer that the program adds to it where nothing could end the finalizer.
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
    made.raw_set("__metatable", false)?;
    lua.set_named_registry_value(name, &made)?;
    Ok(made)
}

/// A call of a process of another node that was received and not answered yet. Copies are the same
/// call.
#[derive(Clone, Debug)]
pub struct RemoteCall(Arc<Mutex<Option<Unanswered>>>);

/// What answers a call.
#[derive(Debug)]
pub(crate) struct Unanswered {
    pub(crate) reply: TermReply,
    /// The charge of the process that has received the call last. It ends with the answer, because
    /// Lua may collect the call much later.
    held: Option<Held>,
}

impl RemoteCall {
    pub(crate) fn new(reply: TermReply) -> Self {
        Self(Arc::new(Mutex::new(Some(Unanswered { reply, held: None }))))
    }

    /// Charges a process for the call until the call is answered. A call arrives whatever the
    /// process does, so the charge may exceed the limits. Then the next call is refused, and this
    /// returns `false`.
    fn hold(&self, account: &Arc<Account>) -> bool {
        let mut held = account.hold();
        let mut unanswered = self.0.lock();
        let Some(Unanswered { reply, held: before }) = &mut *unanswered else { return true };
        held.set(reply.memory_bytes());
        let fits = held.fits();
        let before = before.replace(held);
        drop(unanswered);
        drop(before);
        fits
    }

    /// Takes what answers the call. `None` if it was taken before.
    pub(crate) fn take(&self) -> Option<Unanswered> {
        self.0.lock().take()
    }

    /// Puts a reply back that was not sent.
    pub(crate) fn put_back(&self, unanswered: Unanswered) {
        *self.0.lock() = Some(unanswered);
    }
}

impl PartialEq for RemoteCall {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

/// Returns the items of a table with the keys 1 to n.
pub(crate) fn items(entries: &[(Value, Value)]) -> Option<Vec<&Value>> {
    in_order(entries.iter().map(|(key, value)| (index(key), value)))
}

/// Returns the index of an item of a list with this key.
fn index(key: &Value) -> Option<usize> {
    let Value::Integer(key) = key else { return None };
    usize::try_from(key.checked_sub(1)?).ok()
}

/// Returns items in the order of their indices, if these are 0 to n - 1.
fn in_order<T>(numbered: impl ExactSizeIterator<Item = (Option<usize>, T)>) -> Option<Vec<T>> {
    let mut items = Vec::new();
    items.resize_with(numbered.len(), || None);
    for (index, item) in numbered {
        *items.get_mut(index?)? = Some(item);
    }
    items.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use procession_cluster::Term;

    use super::{format, give_term};
    use crate::account::Account;
    use crate::owner::Owner;
    use crate::watch::{Terminated, Watch};

    #[test]
    fn a_term_in_a_state_counts_for_its_process() {
        procession::run(async {
            let process = procession::spawn(async {
                let term = Term::Improper(vec![1.into(); 1000], Box::new(2.into()));
                let account = Account::new(10, term.memory_bytes() * 3 / 2, Owner::alone());
                account.enter(procession::process::current_pid().expect("it is a process"));
                let lua = mlua::Lua::new();
                let give = || give_term(&lua, &term, &mut Watch::new());
                let given = give().expect("there is room");
                assert!(account.held_bytes() > term.memory_bytes());
                let refused = give().expect_err("there is none for another one");
                assert!(matches!(refused, mlua::Error::MemoryError(_)), "{refused}");
                drop(given);
                give().expect("it is collected");
                drop(lua);
                assert_eq!(account.held_bytes(), 0);
                account.remove();
            });
            process.await.expect("it does not fail");
        });
    }

    #[test]
    fn a_text_is_bounded_and_ends_soon_once_the_process_is_terminated() {
        let term = Term::List(vec![12.into(); 1 << 16]);
        let text = format(&term, 1 << 20, Watch::new()).expect("there is room");
        assert_eq!(text, term.to_string());
        assert_eq!(format(&term, text.len(), Watch::new()), Ok(text.clone()));
        let cause = format(&term, text.len() - 1, Watch::new()).expect_err("it is longer");
        assert!(cause.contains("has more than"), "{cause}");
        assert_eq!(format(&term, 1 << 20, Watch::over()), Err(Terminated.to_string()));
    }
}
