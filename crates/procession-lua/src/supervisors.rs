//! Supervisors of guests: the runtime's own, described by tables of Lua.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use procession::supervisor::{
    AutoShutdown, ChildError, ChildInfo, ChildKey, ChildSpec, ChildStatus, Restart, Stop, Strategy,
    Supervisor, SupervisorRef,
};
use procession::{Pid, SpawnOptions};
use procession_sync::atomic::AtomicU64;
use procession_sync::atomic::Ordering::Relaxed;

use crate::account::{Account, Held};
use crate::arguments::{Arguments, milliseconds};
use crate::ends;
use crate::entry::{Entry, inherited};
use crate::failure::label;
use crate::host::Host;
use crate::limits::Resource;
use crate::owner;
use crate::permissions::Bounds;
use crate::program::Program;
use crate::value::Value;

/// The process that starts a supervisor. Children run its program, within its bounds.
#[derive(Debug)]
pub(crate) struct Parent {
    host: &'static dyn Host,
    program: Program,
    bounds: Bounds,
    account: Arc<Account>,
}

/// The bytes of the description of a child, in addition to the bytes of its table.
const CHILD_BYTES: usize = 512;
/// The bytes of a supervisor, in addition to the bytes of its table.
const SUPERVISOR_BYTES: usize = 4096;

/// The number of children that were described, for the ids of children without an id.
static UNNAMED: AtomicU64 = AtomicU64::new(1);

/// The answer of a supervisor.
type Asked = Pin<Box<dyn Future<Output = io::Result<Value>> + Send>>;

impl Parent {
    pub(crate) fn new(
        host: &'static dyn Host,
        program: &Program,
        bounds: &Bounds,
        account: &Arc<Account>,
    ) -> Self {
        Self {
            host,
            program: program.clone(),
            bounds: bounds.clone(),
            account: Arc::clone(account),
        }
    }

    /// Charges for a description. One key is of descriptions that have charges of their own.
    fn held(&self, entries: &[(Value, Value)], without: &str, more: usize) -> Result<Held, String> {
        let counted = entries.iter().filter(|(key, _)| *key != Value::string(without));
        let bytes: usize = counted.map(|(key, value)| key.size() + value.size()).sum();
        self.account.try_hold(bytes + more)
    }

    fn supervisor(&self, table: &Value) -> Result<Supervisor, String> {
        let Value::Table(entries) = table else {
            return Err("a supervisor is described by a table".to_owned());
        };
        let mut supervisor = Supervisor::new(strategy(table.get("strategy"))?);
        let intensity = match table.get("intensity") {
            None => 1,
            Some(Value::Integer(restarts)) => u32::try_from(*restarts)
                .map_err(|_| "`intensity` must be a number of restarts".to_owned())?,
            Some(_) => return Err("`intensity` must be a number of restarts".to_owned()),
        };
        let period = table.get("period").map(|period| time(period, "period")).transpose()?;
        if table.get("intensity").is_some() || period.is_some() {
            supervisor = supervisor.intensity(intensity, period.unwrap_or(Duration::from_secs(5)));
        }
        for (key, value) in entries {
            match name(key)? {
                "strategy" | "intensity" | "period" | "name" => {}
                "auto_shutdown" => {
                    supervisor = supervisor.auto_shutdown(auto_shutdown(value)?);
                }
                "back_off" => {
                    let [first, most] = &list(value, "back_off")?[..] else {
                        return Err("`back_off` must be a list of two times".to_owned());
                    };
                    supervisor =
                        supervisor.back_off(time(first, "back_off")?, time(most, "back_off")?);
                }
                "children" => {
                    for child in list(value, "children")? {
                        supervisor = supervisor.child(self.child(child)?);
                    }
                }
                other => return Err(format!("a supervisor has no `{}`", other.escape_debug())),
            }
        }
        let process = self.bounds.limits.hold(Resource::Processes)?;
        Ok(supervisor.keep((process, self.held(entries, "children", SUPERVISOR_BYTES)?)))
    }

    #[track_caller]
    fn child(&self, table: &Value) -> Result<ChildSpec, String> {
        let Value::Table(entries) = table else {
            return Err("a child is described by a table".to_owned());
        };
        let id = table.get("id").map(|id| text(id, "id")).transpose()?;
        let held = self.held(entries, "supervisor", CHILD_BYTES)?;
        let mut child = match (table.get("start"), table.get("supervisor")) {
            (Some(start), None) => self.guest(start, table.get("args"), held)?,
            (None, Some(supervisor)) => {
                let Some(id) = &id else { return Err("a supervisor needs an `id`".to_owned()) };
                let nested = self.supervisor(supervisor)?.keep(held);
                let child = ChildSpec::supervisor(&**id, nested).untyped();
                match supervisor.get("name") {
                    Some(name) => child.name(self.own_name(name)?),
                    None => child,
                }
            }
            _ => return Err("a child has either a `start` or a `supervisor`".to_owned()),
        };
        if let Some(id) = id {
            child = child.id(id);
        }
        for (key, value) in entries {
            child = match name(key)? {
                "id" | "start" | "args" | "supervisor" => child,
                "restart" => child.restart(restart(value)?),
                "shutdown" => child.stop(stop(value)?),
                "name" => child.name(self.own_name(value)?),
                "significant" if *value == Value::Boolean(true) => child.significant(),
                "significant" if *value == Value::Boolean(false) => child,
                other => return Err(format!("a child has no `{}`", other.escape_debug())),
            };
        }
        Ok(child)
    }

    /// Reads the registered name of a child or a supervisor.
    fn own_name(&self, value: &Value) -> Result<Arc<str>, String> {
        let name = text(value, "name")?;
        self.program.check_name(&name)?;
        Ok(name)
    }

    /// Returns the child that calls a function. It runs the program that is current when it starts.
    #[track_caller]
    fn guest(&self, start: &Value, given: Option<&Value>, held: Held) -> Result<ChildSpec, String> {
        let entry = Entry::new(start, &self.bounds)?;
        let arguments: Vec<Value> = match given {
            Some(given) => list(given, "args")?.into_iter().cloned().collect(),
            None => Vec::new(),
        };
        let (shown, priority) = (label(&entry.function), entry.priority);
        let input = Box::new(move || {
            // The description is kept for restarts, and so is its charge.
            let _charge = &held;
            arguments.clone()
        });
        // Relaxed: it only makes numbers. An explicit id is set later.
        let id = format!("{shown} #{}", UNNAMED.fetch_add(1, Relaxed));
        Ok(self.host.child(id, self.program.clone(), entry, input).label(shown).priority(priority))
    }
}

fn name(key: &Value) -> Result<&str, String> {
    let Value::String(name) = key else { return Err("the keys must be strings".to_owned()) };
    str::from_utf8(name).map_err(|_| "the keys must be strings in UTF-8".to_owned())
}

fn text(value: &Value, key: &str) -> Result<Arc<str>, String> {
    match value {
        Value::String(bytes) => str::from_utf8(bytes).map(Into::into).ok(),
        _ => None,
    }
    .ok_or_else(|| format!("`{key}` must be a string in UTF-8"))
}

fn time(value: &Value, key: &str) -> Result<Duration, String> {
    milliseconds(value).ok_or_else(|| format!("`{key}` must be a number of milliseconds"))
}

/// Returns the values of a table with the keys 1 to n, in their order.
fn list<'a>(value: &'a Value, key: &str) -> Result<Vec<&'a Value>, String> {
    let wrong = || format!("`{key}` must be a list");
    let Value::Table(entries) = value else { return Err(wrong()) };
    let mut items = vec![None; entries.len()];
    for (index, item) in entries {
        let Value::Integer(index) = index else { return Err(wrong()) };
        let place = index.checked_sub(1).and_then(|index| usize::try_from(index).ok());
        *place.and_then(|place| items.get_mut(place)).ok_or_else(wrong)? = Some(item);
    }
    items.into_iter().collect::<Option<_>>().ok_or_else(wrong)
}

/// Returns the value that a word stands for.
fn word<T: Copy>(value: &Value, key: &str, words: &[(&str, T)]) -> Result<T, String> {
    let found = words.iter().find(|(word, _)| *value == Value::string(word));
    found.map(|(_, meaning)| *meaning).ok_or_else(|| {
        let known: Vec<String> = words.iter().map(|(word, _)| format!("\"{word}\"")).collect();
        format!("`{key}` must be one of {}", known.join(", "))
    })
}

fn strategy(value: Option<&Value>) -> Result<Strategy, String> {
    let words = [
        ("one_for_one", Strategy::OneForOne),
        ("one_for_all", Strategy::OneForAll),
        ("rest_for_one", Strategy::RestForOne),
        ("dynamic", Strategy::Dynamic),
    ];
    value.map_or(Ok(Strategy::OneForOne), |value| word(value, "strategy", &words))
}

fn auto_shutdown(value: &Value) -> Result<AutoShutdown, String> {
    let words = [
        ("never", AutoShutdown::Never),
        ("any_significant", AutoShutdown::AnySignificant),
        ("all_significant", AutoShutdown::AllSignificant),
    ];
    word(value, "auto_shutdown", &words)
}

const RESTARTS: [(&str, Restart); 3] = [
    ("permanent", Restart::Permanent),
    ("transient", Restart::Transient),
    ("temporary", Restart::Temporary),
];

fn restart(value: &Value) -> Result<Restart, String> {
    word(value, "restart", &RESTARTS)
}

fn stop(value: &Value) -> Result<Stop, String> {
    if let Some(time) = milliseconds(value) {
        return Ok(Stop::Within(time));
    }
    let words = [("kill", Stop::Kill), ("wait", Stop::Wait)];
    word(value, "shutdown", &words).map_err(|error| format!("{error}, or milliseconds"))
}

/// Returns the future of an operation of the library's table `supervisor`.
pub(crate) fn ask(
    operation: &[u8],
    arguments: &Arguments,
    parent: &Parent,
) -> Result<Asked, String> {
    if operation == b"start" {
        return start(&arguments.value(0)?, parent);
    }
    let pid = arguments.target(0)?;
    if !matches!(operation, b"which" | b"count") {
        ends::check(&parent.program, &parent.bounds, pid, "change the children of")?;
    }
    let supervisor = SupervisorRef::of(pid).ok_or_else(|| format!("{pid} is no supervisor"))?;
    let failed = |error: ChildError| io::Error::other(error.to_string());
    Ok(match operation {
        b"start_child" => {
            let child = parent.child(&arguments.value(1)?)?;
            Box::pin(async move { Ok(supervisor.add_child(child).await.map_err(failed)?.into()) })
        }
        b"terminate_child" => {
            let key = match arguments.value(1)? {
                Value::Pid(pid) => ChildKey::Pid(pid),
                _ => ChildKey::Id(arguments.text(1)?.into()),
            };
            Box::pin(async move {
                supervisor.terminate_child(key).await.map_err(failed).map(|()| true.into())
            })
        }
        b"restart_child" => {
            let id = arguments.text(1)?;
            Box::pin(async move { Ok(supervisor.restart_child(&id).await.map_err(failed)?.into()) })
        }
        b"delete_child" => {
            let id = arguments.text(1)?;
            Box::pin(async move {
                supervisor.delete_child(&id).await.map_err(failed).map(|()| true.into())
            })
        }
        b"which" => Box::pin(async move {
            let children = supervisor.which().await.map_err(io::Error::other)?;
            Ok(Value::list(children.iter().map(shown)))
        }),
        b"count" => Box::pin(async move {
            let counts = supervisor.count().await.map_err(io::Error::other)?;
            let number = |count: usize| Value::Integer(count as i64);
            Ok(Value::record([
                ("children", number(counts.children)),
                ("running", number(counts.running)),
                ("supervisors", number(counts.supervisors)),
            ]))
        }),
        _ => return Err("the runtime has no such operation".to_owned()),
    })
}

/// Starts a supervisor that is cancelled when the running process ends. The library links the two
/// once it has started, because its failure to start is a result.
fn start(described: &Value, parent: &Parent) -> Result<Asked, String> {
    let supervisor = parent.supervisor(described)?;
    let mut options = SpawnOptions::new().scoped().label("supervisor").priority(inherited());
    if let Some(name) = described.get("name") {
        options = options.name(parent.own_name(name)?);
    }
    let mut starting = Box::pin(supervisor.try_start_with(options));
    // The first poll makes the process of the supervisor, as a child of the running process.
    let mut result = match starting.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(result) => Some(result),
        Poll::Pending => None,
    };
    let owner = parent.program.owner(&parent.bounds);
    Ok(Box::pin(async move {
        let result = match result.take() {
            Some(result) => result,
            None => starting.await,
        };
        let running = result.map_err(|error| io::Error::other(error.to_string()))?;
        owner::enter(running.pid(), owner);
        Ok(running.pid().into())
    }))
}

fn shown(child: &ChildInfo) -> Value {
    let status = match child.status {
        ChildStatus::Running(_) => "running",
        ChildStatus::Starting(_) => "starting",
        ChildStatus::Stopping(_) => "stopping",
        ChildStatus::Waiting(_) => "waiting",
        _ => "stopped",
    };
    let restart = RESTARTS.iter().find(|(_, restart)| *restart == child.restart);
    let mut fields = vec![
        ("status", Value::string(status)),
        ("restart", Value::string(restart.map_or("", |(word, _)| word))),
        ("is_supervisor", Value::Boolean(child.is_supervisor)),
    ];
    fields.extend(child.id.as_ref().map(|id| ("id", Value::string(id.as_bytes()))));
    fields.extend(child.status.pid().map(|pid: Pid| ("pid", pid.into())));
    Value::record(fields)
}
