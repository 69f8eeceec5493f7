//! The node of a program: what guests do with processes of other nodes.

mod arrival;
mod letters;
mod terms;

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use procession::Pid;
use procession_cluster::{Atom, Member, Node, PeerInfo, Remote, Term};

use self::arrival::arrived;
use self::terms::{recipient, to_term};
use crate::account::Account;
use crate::arguments::{self, Arguments};
use crate::message::OWN_FULL;
use crate::permissions::{Permissions, resolve};
use crate::program::{OwnNode, Program};
use crate::value::{TEXT_MAX, Value, format, items};
use crate::watch::Watch;

/// The time limit of a call without one.
const FOREVER: Duration = Duration::from_secs(100 * 365 * 86400);

type Answer = Result<Value, String>;

impl Program {
    /// Makes the processes part of a node: they use processes of other nodes by the functions of
    /// `node`, and other nodes reach the processes with registered names.
    ///
    /// A process may name processes of the nodes to which its [`Permissions`] let it connect. A PID
    /// that it has received is itself a permission. If a program has a node, all nodes that can
    /// connect may send to its processes with names.
    ///
    /// ```
    /// use procession_cluster::{Cookie, Node};
    /// use procession_lua::{Program, Value};
    ///
    /// let program = Program::load("named", "function main() return node.name() end")?;
    /// procession::run(async {
    ///     let cookie = Cookie::random()?;
    ///     let node = Node::builder("shop@127.0.0.1").cookie(cookie).start().await?;
    ///     let name = program.node(node).spawn("main", [])?.await?;
    ///     assert_eq!(name, Value::string("shop@127.0.0.1"));
    ///     Ok::<(), Box<dyn std::error::Error>>(())
    /// })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[cfg_attr(docsrs, doc(cfg(feature = "cluster")))]
    #[must_use]
    pub fn node(self, node: Node) -> Self {
        self.with(|inner| inner.node = OwnNode::new(node))
    }
}

impl OwnNode {
    /// Makes the guests with names known to other nodes.
    fn new(node: Node) -> Self {
        let weak = node.downgrade();
        node.find_names_with(move |name| {
            recipient(&weak.upgrade()?, procession::process::whereis(name)?)
        });
        Self(Some(node))
    }

    fn node(&self) -> Result<&Node, String> {
        self.0.as_ref().ok_or_else(|| "the host of the program has no node".to_owned())
    }

    /// Returns the process that calls, as others know it.
    fn member(&self) -> Result<(&Node, Member), String> {
        let node = self.node()?;
        let own = recipient(node, arguments::own_pid()?).ok_or("the process has ended")?;
        Ok((node, node.attach(&own)))
    }

    fn remote(&self, pid: Pid) -> Result<Remote, String> {
        let known = self.node()?.node_pid(pid).map(Remote::from);
        known.ok_or_else(|| format!("the node does not know {pid}"))
    }

    /// Sends to a process of another node. The result is the cause of a refusal, or `true`.
    pub(crate) fn send(&self, to: Pid, value: &Value) -> Answer {
        self.send_to(self.remote(to)?, value)
    }

    fn send_to(&self, to: Remote, value: &Value) -> Answer {
        let (node, member) = self.member()?;
        Ok(match member.send(to, to_term(node, value)?) {
            Ok(()) => Value::Boolean(true),
            Err(error) => Value::string(error.to_string()),
        })
    }

    /// Returns the call of a process of another node.
    pub(crate) fn call(
        &self,
        to: Pid,
        request: &Value,
        timeout: Option<Duration>,
    ) -> Result<impl Future<Output = io::Result<Value>> + use<>, String> {
        self.call_to(self.remote(to)?, request, timeout)
    }

    fn call_to(
        &self,
        to: Remote,
        request: &Value,
        timeout: Option<Duration>,
    ) -> Result<impl Future<Output = io::Result<Value>> + use<>, String> {
        let (node, member) = self.member()?;
        let (node, request) = (node.clone(), to_term(node, request)?);
        Ok(async move {
            let reply = member.call(to, request, timeout.unwrap_or(FOREVER)).await;
            arrived(&node, reply.map_err(io::Error::other)?).map_err(io::Error::other)
        })
    }

    /// Replies to a call of a process of another node. Returns `None` for any other value.
    pub(crate) fn reply(&self, call: &Value, value: &Value) -> Option<Answer> {
        let Some(Value::RemoteCall(call)) = call.get("reply") else { return None };
        Some(self.node().and_then(|node| {
            let term = to_term(node, value)?;
            let Some(unanswered) = call.take() else { return Ok(Value::Boolean(false)) };
            Ok(match unanswered.reply.clone().send(term) {
                Ok(()) => Value::Boolean(true),
                Err(error) => {
                    call.put_back(unanswered);
                    Value::string(error.to_string())
                }
            })
        }))
    }

    /// Serves an operation that never waits.
    pub(crate) fn serve(
        &self,
        operation: &[u8],
        arguments: &Arguments,
        permissions: &Permissions,
    ) -> Answer {
        Ok(match operation {
            b"name" => self.0.as_ref().map_or(Value::Nil, |node| node.name().as_str().into()),
            b"peers" => Value::list(self.node()?.peers().iter().map(peer)),
            b"send" => {
                let to = named(arguments, permissions);
                match to {
                    Ok(to) => self.send_to(to, &arguments.value(2)?)?,
                    Err(Refused::Wrong(cause)) => return Err(cause),
                    Err(Refused::Denied(cause)) => Value::string(cause.to_string()),
                }
            }
            b"monitor" => {
                let to = named(arguments, permissions).map_err(|refused| refused.to_string())?;
                let member = self.member()?.1;
                if let Some(account) = Account::of(arguments::own_pid()?) {
                    if !account.has_room() {
                        return Err(OWN_FULL.to_owned());
                    }
                    account.begin_name_monitor()?;
                }
                member.monitor(to);
                Value::Boolean(true)
            }
            b"subscribe" => {
                let node = self.node()?;
                let own = recipient(node, arguments::own_pid()?).ok_or("the process has ended")?;
                node.subscribe(&own);
                Value::Boolean(true)
            }
            b"atom" => Value::Term(atom(arguments, 0)?.into()),
            b"tuple" => Value::Tuple(arguments.rest(0)?.into_iter().map(without_nil).collect()),
            b"map" => match arguments.value(0)? {
                Value::Table(entries) | Value::Map(entries) => Value::Map(entries),
                _ => return Err(arguments.wrong(0, "a table")),
            },
            b"kind" => kind_of(&arguments.value(0)?).into(),
            b"format" => {
                let term = to_term(self.node()?, &arguments.value(0)?)?;
                format(&term, arguments.1.min(TEXT_MAX), Watch::new())?.as_str().into()
            }
            _ => return Err("the runtime has no such operation".to_owned()),
        })
    }

    /// Returns the work of an operation that may wait.
    pub(crate) fn connect(
        &self,
        arguments: &Arguments,
        permissions: &Permissions,
    ) -> Result<impl Future<Output = io::Result<Value>> + use<>, String> {
        let (name, node) = (arguments.short(0)?, self.node()?.clone());
        let address = match arguments.value(1)? {
            Value::Nil => None,
            _ => Some(arguments.text(1)?),
        };
        let timeout = arguments.duration(2)?.unwrap_or(FOREVER);
        let permissions = permissions.clone();
        Ok(async move {
            permissions.check_node(&name)?;
            let connected = async {
                let Some(address) = address else {
                    return node.connect(&name).await.map_err(io::Error::other);
                };
                let found: Vec<SocketAddr> = resolve(&permissions, &address).await?;
                let mut result = Err(io::ErrorKind::NotFound.into());
                for address in found {
                    result = node.connect_at(&name, address).await.map_err(io::Error::other);
                    if result.is_ok() {
                        break;
                    }
                }
                result
            };
            let timed_out = |_| io::Error::new(io::ErrorKind::TimedOut, "timeout");
            procession::timeout(timeout, connected).await.map_err(timed_out)??;
            Ok(Value::Boolean(true))
        })
    }

    /// Returns the call of a process by its name and the name of its node. A refusal is a result of
    /// the call.
    pub(crate) fn call_named(
        &self,
        arguments: &Arguments,
        permissions: &Permissions,
    ) -> Result<impl Future<Output = io::Result<Value>> + use<>, String> {
        let (request, timeout) = (arguments.value(2)?, arguments.duration(3)?);
        let work = match named(arguments, permissions) {
            Ok(to) => Ok(self.call_to(to, &request, timeout)?),
            Err(Refused::Denied(error)) => Err(error),
            Err(Refused::Wrong(cause)) => return Err(cause),
        };
        Ok(async move { work?.await })
    }
}

/// Why a process is not named.
enum Refused {
    /// The arguments name none.
    Wrong(String),
    /// The permissions do not include its node.
    Denied(io::Error),
}

impl std::fmt::Display for Refused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Wrong(cause) => f.write_str(cause),
            Self::Denied(error) => error.fmt(f),
        }
    }
}

impl From<String> for Refused {
    fn from(cause: String) -> Self {
        Self::Wrong(cause)
    }
}

/// Returns the process that the first two arguments name.
fn named(arguments: &Arguments, permissions: &Permissions) -> Result<Remote, Refused> {
    let (name, node) = (atom(arguments, 0)?, atom(arguments, 1)?);
    permissions.check_node(node.as_str()).map_err(Refused::Denied)?;
    Ok(Remote::Name { name, node })
}

/// Returns the atom in an argument that is a string or an atom.
fn atom(arguments: &Arguments, index: usize) -> Result<Atom, String> {
    if let Value::Term(Term::Atom(atom)) = arguments.value(index)? {
        return Ok(atom);
    }
    let text = arguments.text(index)?;
    Atom::new(text).ok_or_else(|| format!("argument {} has more than 255 characters", index + 1))
}

/// A tuple may have the atom `nil`, and no hole.
fn without_nil(value: Value) -> Value {
    if value == Value::Nil { Value::Term(Term::atom("nil")) } else { value }
}

pub(crate) fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Nil => "atom",
        Value::Boolean(_) | Value::Term(Term::Atom(_)) => "atom",
        Value::Integer(_) | Value::Term(Term::Big(_)) => "integer",
        Value::Float(_) | Value::Term(Term::Float(_)) => "float",
        Value::String(_) => "binary",
        Value::Tuple(_) => "tuple",
        Value::Map(_) => "map",
        Value::Table(entries) if items(entries).is_some() => "list",
        Value::Table(_) => "map",
        Value::Pid(_) | Value::Term(Term::Pid(_)) => "pid",
        Value::Term(Term::Reference(_)) => "reference",
        Value::Term(Term::Bits(_)) => "bitstring",
        Value::Term(Term::Improper(..)) => "improper list",
        Value::Term(Term::Port(_)) => "port",
        Value::Term(_) => "function",
        Value::Socket(_) | Value::RemoteCall(_) => "none",
    }
}

fn peer(info: &PeerInfo) -> Value {
    let count = |count: u64| Value::Integer(i64::try_from(count).unwrap_or(i64::MAX));
    let milliseconds = |time: Duration| Value::Float(time.as_secs_f64() * 1000.0);
    let mut entries = vec![
        ("name", Value::string(info.name.as_str())),
        ("age", milliseconds(info.age)),
        ("queued_bytes", count(info.queued_bytes as u64)),
        ("sent", count(info.sent)),
        ("received", count(info.received)),
        ("refused", count(info.refused)),
        ("not_allowed", count(info.not_allowed)),
        ("denied", count(info.denied)),
    ];
    entries.extend(info.round_trip.map(|time| ("round_trip", milliseconds(time))));
    entries.extend(info.unconfirmed.map(|number| ("unconfirmed", count(number))));
    Value::record(entries)
}
