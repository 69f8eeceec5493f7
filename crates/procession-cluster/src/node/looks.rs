//! Functions of OTP that only look, for nodes that may look: `rpc:call(Node, erlang, process_info,
//! [Pid])` and a few others.
//!
//! The processes are those that other nodes know.

use std::sync::Arc;

use procession::observe::{ProcessInfo, ProcessState, detail};
use procession::{Context, Exit, SpawnOptions};

use crate::guarded::Guarded;
use crate::letter::Letter;
use crate::node::Node;
use crate::node::exports::{Export, Returned, Spawned};
use crate::term::{Atom, NodePid, Term};
use crate::wire::control::SpawnRequest;

/// The module of the functions, and each function with its number of arguments.
const MODULE: &str = "erlang";
const FUNCTIONS: &[(&str, i64)] = &[
    ("is_process_alive", 1),
    ("node", 0),
    ("nodes", 0),
    ("process_info", 1),
    ("process_info", 2),
    ("processes", 0),
    ("registered", 0),
    ("system_info", 1),
    ("whereis", 1),
];

/// The items of a process, in the order of OTP.
const ITEMS: &[&str] = &[
    "registered_name",
    "initial_call",
    "status",
    "message_queue_len",
    "links",
    "dictionary",
    "group_leader",
    "memory",
    "reductions",
];

impl Node {
    /// Returns the function that a request means, if it is one that only looks.
    pub(crate) fn looking(&self, request: &SpawnRequest) -> Option<Export> {
        let (module, name) = (request.module.as_str(), request.function.as_str());
        let is_known =
            FUNCTIONS.iter().any(|(known, arity)| *known == name && *arity == request.arity);
        if module != MODULE || !is_known {
            return None;
        }
        let (node, name) = (self.clone(), name.to_owned());
        let start = move |arguments: Vec<Term>, returned: Option<Returned>| {
            let (node, name) = (node.clone(), name.clone());
            let process = move |_: Context<Letter>| async move {
                let result = node.look(&name, &arguments).ok_or_else(|| Term::atom("badarg"));
                if let Some(returned) = returned {
                    *returned.lock() = Some(result);
                }
                Exit::Normal
            };
            Spawned::start(SpawnOptions::new().label("look of another node"), process)
        };
        Some(Export { start: Guarded::new(Arc::new(start)), returns: true })
    }

    /// Calls a function. Returns `None` for arguments that it does not take.
    fn look(&self, name: &str, arguments: &[Term]) -> Option<Term> {
        let pids = |numbers: Vec<u64>| numbers.into_iter().map(|number| self.pid_of(number).into());
        Some(match (name, arguments) {
            ("node", []) => self.name().clone().into(),
            ("nodes", []) => Term::list(self.peers().into_iter().map(|peer| Term::from(peer.name))),
            ("processes", []) => {
                let mut numbers: Vec<_> = self.0.locals.lock().by_number.keys().copied().collect();
                numbers.sort_unstable();
                Term::list(pids(numbers))
            }
            ("registered", []) => Term::list(self.names().into_iter().map(Term::from)),
            ("whereis", [Term::Atom(name)]) => match self.whereis(name) {
                Some((number, _)) => self.pid_of(number).into(),
                None => Term::atom("undefined"),
            },
            ("is_process_alive", [Term::Pid(pid)]) => self.info(pid)?.is_some().into(),
            ("process_info", [Term::Pid(pid)]) => match self.info(pid)? {
                Some(info) => {
                    Term::list(ITEMS.iter().filter_map(|item| {
                        let value = self.item(pid, &info, item)?;
                        // As there, a process without a name does not have the item.
                        let is_left_out =
                            *item == "registered_name" && !matches!(value, Term::Atom(_));
                        (!is_left_out).then(|| Term::tuple([Term::atom(item), value]))
                    }))
                }
                None => Term::atom("undefined"),
            },
            ("process_info", [Term::Pid(pid), Term::Atom(item)]) => match self.info(pid)? {
                Some(info) => {
                    let value = self.item(pid, &info, item.as_str())?;
                    match (item.as_str(), &value) {
                        ("registered_name", Term::List(_)) => value,
                        _ => Term::tuple([item.clone().into(), value]),
                    }
                }
                None => Term::atom("undefined"),
            },
            ("process_info", [Term::Pid(pid), Term::List(items)]) => match self.info(pid)? {
                Some(info) => {
                    let pair = |item: &Term| {
                        let value = self.item(pid, &info, &item.to_text()?)?;
                        Some(Term::tuple([item.clone(), value]))
                    };
                    Term::List(items.iter().map(pair).collect::<Option<_>>()?)
                }
                None => Term::atom("undefined"),
            },
            ("system_info", [Term::Atom(item)]) => match item.as_str() {
                "process_count" => Term::from(self.0.locals.lock().by_number.len() as i64),
                "otp_release" => Term::from("procession"),
                "version" => Term::from(env!("CARGO_PKG_VERSION")),
                "wordsize" => Term::from(size_of::<usize>() as i64),
                _ => return None,
            },
            _ => return None,
        })
    }

    /// Returns a process of this node, or `Some(None)` if it has ended. `None` for a process of
    /// another node.
    fn info(&self, pid: &NodePid) -> Option<Option<ProcessInfo>> {
        let number = self.number_of(pid)?;
        Some(self.local(number).and_then(|(pid, _)| detail(pid)))
    }

    /// Returns an item of a process, or `None` if it is not known here.
    fn item(&self, pid: &NodePid, info: &ProcessInfo, item: &str) -> Option<Term> {
        let label = || Term::from(info.label.as_deref().unwrap_or(info.kind));
        Some(match item {
            "registered_name" => {
                let number = self.number_of(pid);
                let locals = self.0.locals.lock();
                let named = locals.by_name.iter().find(|(_, owner)| Some(**owner) == number);
                named.map_or(Term::List(Vec::new()), |(name, _)| name.clone().into())
            }
            // There is no such function here, so it is the line of the start.
            "initial_call" => {
                let file = info.location.file().rsplit('/').next().and_then(Atom::new)?;
                let line = Term::from(info.location.line());
                Term::tuple([Term::atom("procession"), file.into(), line])
            }
            "status" => Term::atom(match info.state {
                _ if info.suspended => "suspended",
                ProcessState::Running => "running",
                ProcessState::Ready => "runnable",
                ProcessState::Complete => "exiting",
                _ => "waiting",
            }),
            "message_queue_len" => info.mailbox.into(),
            "links" => {
                // The first of them.
                let links = info.relations.as_ref()?.links.first.iter();
                Term::list(links.filter_map(|pid| self.node_pid(*pid)).map(Term::from))
            }
            "dictionary" => Term::list([Term::tuple([Term::atom("$process_label"), label()])]),
            "group_leader" => self.pid_of(0).into(),
            "memory" => Term::from(info.memory?.total() as i64),
            "reductions" => info.steps.into(),
            _ => return None,
        })
    }
}
