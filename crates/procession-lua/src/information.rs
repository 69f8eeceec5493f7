//! The figures of a process, for `process.info`.

use procession::Pid;
use procession::observe::{self, MemoryUse, PidList};

use crate::account::Account;
use crate::value::Value;

/// Returns the figures of a process, or nil if it has ended.
pub(crate) fn of(pid: Pid) -> Value {
    let Some(row) = observe::detail(pid) else { return Value::Nil };
    let Some(relations) = row.relations.as_deref() else { return Value::Nil };
    let figures = Account::of(pid).map(|account| account.figures()).unwrap_or_default();
    let count = |number: usize| Value::Integer(i64::try_from(number).unwrap_or(i64::MAX));
    let list = |pids: &PidList| Value::list(pids.first.iter().copied());
    let mut fields = vec![
        ("pid", pid.into()),
        ("state", Value::string(row.state.to_string())),
        ("mailbox", count(row.mailbox as usize + figures.inbox)),
        ("memory", count(row.memory.map_or(0, MemoryUse::total) + figures.memory)),
        ("steps", count(row.steps as usize)),
        ("links", list(&relations.links)),
        ("link_count", count(relations.links.total)),
        ("monitored_by", list(&relations.monitors)),
        ("monitored_by_count", count(relations.monitors.total)),
    ];
    fields.push(("priority", Value::string(row.priority.name())));
    fields.extend(row.label.as_ref().map(|label| ("label", Value::string(label))));
    fields.extend(relations.name.as_ref().map(|name| ("name", Value::string(name.as_bytes()))));
    fields.extend(row.parent.map(|parent| ("parent", parent.into())));
    fields.extend(relations.supervisor.map(|pid| ("supervisor", pid.into())));
    Value::record(fields)
}
