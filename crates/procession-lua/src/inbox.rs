//! The messages that a process has and its program has not received.
//!
//! A program receives by an operation of its step, which suspends it. If more messages are there,
//! it takes the next messages by a native function, which is several times as fast. The step
//! decides when it may do so, and how often.

use std::collections::VecDeque;

use mlua::Lua;
use procession::{Exit, Pid};
use procession_sync::{Mutex, MutexGuard};

use crate::account::Charge;
use crate::value::{self, Value};

/// The number of operations that a step serves without waiting. After that, other processes run.
const OPERATIONS_MAX: u32 = 128;
/// The capacity up to which an inbox keeps its memory.
const KEPT: usize = 64;

/// An item for `process.receive`.
#[derive(Debug)]
pub(crate) enum Received {
    Message(Value),
    Call(Pid, u64, Value),
    /// The call and the request.
    RemoteCall(Value, Value),
    /// A report of another node, with its kind.
    #[cfg(feature = "cluster")]
    News(&'static str, Value),
    /// The end of a process: its PID, its exit, and `true` for a monitor or `false` for a link.
    Ended(Option<Pid>, Exit, bool),
}

/// The messages of a process. Its native functions share them with its steps.
#[derive(Debug, Default)]
pub(crate) struct Inbox(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// Each with the room that it takes in the account of the process.
    items: VecDeque<(Received, Option<Charge>)>,
    /// The operations that are left in this step.
    operations: u32,
    /// `true` while the program may take messages.
    is_open: bool,
}

impl Inbox {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock()
    }

    pub(crate) fn push(&self, received: Received, charge: Option<Charge>) {
        self.state().items.push_back((received, charge));
    }

    pub(crate) fn pop(&self) -> Option<Received> {
        self.state().pop()
    }

    pub(crate) fn len(&self) -> usize {
        self.state().items.len()
    }

    /// Takes all messages of another inbox.
    pub(crate) fn take_over(&self, other: &Self) {
        self.state().items = std::mem::take(&mut other.state().items);
    }

    /// Begins to count the operations of a step. With `open`, the program may take messages.
    pub(crate) fn begin(&self, open: bool) {
        let mut state = self.state();
        (state.operations, state.is_open) = (OPERATIONS_MAX, open);
    }

    /// Lets the program take no more messages.
    pub(crate) fn end(&self) {
        self.state().is_open = false;
    }

    /// Counts an operation. Returns `false` if none is left in this step.
    pub(crate) fn count(&self) -> bool {
        self.state().count()
    }

    /// Returns `true` if [`take`](Self::take) has a message.
    pub(crate) fn has_more(&self) -> bool {
        self.state().has_more()
    }

    /// Takes a message, if it is plain. Returns it with `true` if the mailbox has another message.
    pub(crate) fn take(&self, lua: &Lua) -> Option<(mlua::Value, bool)> {
        let mut state = self.state();
        if !state.has_more() {
            return None;
        }
        let Some((Received::Message(value), _)) = state.items.front() else { return None };
        // If there is no memory, the step tries again.
        let given = value::give(lua, value).ok()?;
        drop(state.pop());
        state.count();
        Some((given, state.has_more()))
    }
}

impl State {
    /// Takes the next message, and gives memory back that exceeds twice the use.
    fn pop(&mut self) -> Option<Received> {
        let (received, _charge) = self.items.pop_front()?;
        let (room, used) = (self.items.capacity(), self.items.len());
        if room > KEPT && used < room / 4 {
            // At least as many messages were taken since the last time as are copied now, so the
            // amortized cost of a message is constant.
            self.items.shrink_to(room / 2);
        }
        Some(received)
    }

    fn count(&mut self) -> bool {
        let left = self.operations.checked_sub(1);
        self.operations = left.unwrap_or(0);
        left.is_some()
    }

    fn has_more(&self) -> bool {
        let is_plain = matches!(self.items.front(), Some((Received::Message(_), _)));
        is_plain && self.is_open && self.operations > 0
    }
}

#[cfg(test)]
mod tests {
    use super::{Inbox, KEPT, Received};
    use crate::value::Value;

    #[test]
    fn an_inbox_gives_back_what_exceeds_twice_its_use() {
        let inbox = Inbox::default();
        inbox.begin(true);
        for number in 0..100_000 {
            inbox.push(Received::Message(Value::Integer(number)), None);
        }
        let lua = mlua::Lua::new();
        for left in (0..100_000).rev() {
            // A program takes messages in both ways.
            let taken =
                if left % 2 == 0 { inbox.pop().is_some() } else { inbox.take(&lua).is_some() };
            inbox.begin(true);
            assert!(taken, "{left}");
            let room = inbox.state().items.capacity();
            assert!(room <= KEPT.max(4 * left + 4), "room for {room}, {left} left");
        }
    }
}
