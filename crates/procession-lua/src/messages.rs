//! The functions with which programs send and receive most messages. Each is a separate function,
//! without the names, the lists of arguments and the looks at the clock of other functions.

use std::sync::Arc;

use mlua::{Either, Function, Lua, MultiValue, UserDataRef};

use crate::account::Account;
use crate::arguments::Arguments;
use crate::budget::Budget;
use crate::message::{self, Content};
use crate::program::Program;
use crate::value::{self, LuaPid, Value};

/// A receiver of a message: a PID, or what may be a name.
type Target = Either<UserDataRef<LuaPid>, mlua::Value>;
/// Whether the receiver accepts a message, or the cause why it was refused.
type Sent = Result<bool, String>;

/// Returns the function behind `process.send`. It returns `true`, whether the receiver accepts the
/// message, and the cause if it was refused, or `false` and an error.
pub(crate) fn sender(lua: &Lua, program: &Program, budget: &Arc<Budget>) -> mlua::Result<Function> {
    let (program, budget) = (program.clone(), Arc::clone(budget));
    lua.create_function(move |lua, (to, message): (Target, mlua::Value)| {
        // Copies of names and of other values may be long work.
        let is_short = is_scalar(&message) && matches!(to, Either::Left(_));
        let sent = send(lua, &program, &budget, to, &message);
        // A program could try again immediately, for as long as the receiver has no room.
        if !is_short || matches!(sent, Ok(Err(_))) {
            budget.note_work(lua);
        }
        Ok(match sent {
            Ok(Ok(sent)) => (true, Either::Left(sent), None),
            Ok(Err(refused)) => (true, Either::Left(false), Some(refused)),
            Err(error) => (false, Either::Right(error), None),
        })
    })
}

fn is_scalar(value: &mlua::Value) -> bool {
    use mlua::Value::{Boolean, Integer, Nil, Number};
    matches!(value, Nil | Boolean(_) | Integer(_) | Number(_))
}

fn send(
    lua: &Lua,
    program: &Program,
    budget: &Budget,
    to: Target,
    message: &mlua::Value,
) -> Result<Sent, String> {
    let most = if is_scalar(message) { usize::MAX } else { budget.allowance(lua) };
    let copied = || value::take(message, most).map_err(|error| format!("argument 2: {error}"));
    let found;
    let (to, account) = match &to {
        Either::Left(to) => (to.pid(), to.account()),
        Either::Right(name) => {
            let name = MultiValue::from_iter([name.clone()]);
            let to = Arguments(name, budget.allowance(lua)).target(0)?;
            found = Account::of(to);
            (to, found.as_ref())
        }
    };
    if to.node() == 0 {
        let sent = message::send_charged(to, account, Content::Plain(copied()?));
        return Ok(sent.map_err(ToOwned::to_owned));
    }
    Ok(match program.inner().node.send(to, &copied()?)? {
        Value::String(cause) => Err(String::from_utf8_lossy(&cause).into_owned()),
        sent => Ok(sent == Value::Boolean(true)),
    })
}

/// Returns the function behind `process.receive` that takes a message which is there. It returns
/// `true`, the message, and whether there is another message, or `false` if the step must serve
/// this message.
pub(crate) fn receiver(lua: &Lua, budget: &Arc<Budget>) -> mlua::Result<Function> {
    let budget = Arc::clone(budget);
    lua.create_function(move |lua, ()| {
        Ok(match budget.inbox.take(lua) {
            Some((message, has_more)) => (true, message, has_more),
            None => (false, mlua::Value::Nil, false),
        })
    })
}
