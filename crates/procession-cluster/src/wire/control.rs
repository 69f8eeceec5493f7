//! Control messages: the operations of the distribution protocol.

use procession::mailbox::request::RequestContext;

use crate::term::decode::Reader;
use crate::term::encode::Writer;
use crate::term::{Atom, DecodeError, EncodeError, NodePid, Reference, Term};
use crate::wire::token;

/// A process, by its PID or by the name that its node knows.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Target {
    Pid(NodePid),
    Name(Atom),
}

/// A request to start a process.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct SpawnRequest {
    pub(crate) id: Reference,
    pub(crate) from: NodePid,
    pub(crate) group_leader: Term,
    pub(crate) module: Atom,
    pub(crate) function: Atom,
    pub(crate) arity: i64,
    pub(crate) links: bool,
    /// The monitor has the reference of the request.
    pub(crate) monitors: bool,
    /// The request that the process works for.
    pub(crate) request: Option<RequestContext>,
}

/// The operation of one frame. A message follows each operation of the first group.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Control {
    /// A message to a process.
    Send {
        from: Option<NodePid>,
        to: Target,
        /// The request that the message belongs to.
        request: Option<RequestContext>,
    },
    /// A message to the alias of a process, which is a reference.
    AliasSend {
        from: NodePid,
        alias: Reference,
    },
    /// A request to start a process. The message is its list of arguments.
    Spawn(Box<SpawnRequest>),
    /// The end of a linked process. The reason may be a message behind it.
    Exit {
        from: NodePid,
        to: NodePid,
        reason: Option<Term>,
    },
    /// An exit signal that a process has sent.
    Exit2 {
        from: NodePid,
        to: NodePid,
        reason: Option<Term>,
    },
    /// The end of a monitored process.
    Down {
        from: Target,
        to: NodePid,
        monitor: Reference,
        reason: Option<Term>,
    },

    Link {
        from: NodePid,
        to: NodePid,
    },
    Unlink {
        id: u64,
        from: NodePid,
        to: NodePid,
    },
    UnlinkAck {
        id: u64,
        from: NodePid,
        to: NodePid,
    },
    Monitor {
        from: NodePid,
        to: Target,
        monitor: Reference,
    },
    Demonitor {
        from: NodePid,
        to: Target,
        monitor: Reference,
    },
    /// The answer to a request to start a process: the process, or the reason why there is none.
    /// The relations of the request were made.
    SpawnReply {
        id: Reference,
        to: NodePid,
        links: bool,
        monitors: bool,
        result: Result<NodePid, Atom>,
    },
    /// An operation that is of no concern here.
    Ignored(i64),
}

// The numbers of the operations. An operation with a trace token has the token as one more element.
const LINK: i64 = 1;
const SEND: i64 = 2;
const EXIT: i64 = 3;
const REG_SEND: i64 = 6;
const GROUP_LEADER: i64 = 7;
const EXIT2: i64 = 8;
const SEND_TT: i64 = 12;
const EXIT_TT: i64 = 13;
const REG_SEND_TT: i64 = 16;
const EXIT2_TT: i64 = 18;
const MONITOR: i64 = 19;
const DEMONITOR: i64 = 20;
const MONITOR_EXIT: i64 = 21;
const SEND_SENDER: i64 = 22;
const SEND_SENDER_TT: i64 = 23;
const PAYLOAD_EXIT: i64 = 24;
const PAYLOAD_EXIT_TT: i64 = 25;
const PAYLOAD_EXIT2: i64 = 26;
const PAYLOAD_EXIT2_TT: i64 = 27;
const PAYLOAD_MONITOR_EXIT: i64 = 28;
const SPAWN_REQUEST: i64 = 29;
const SPAWN_REQUEST_TT: i64 = 30;
const SPAWN_REPLY: i64 = 31;
const SPAWN_REPLY_TT: i64 = 32;
const ALIAS_SEND: i64 = 33;
const ALIAS_SEND_TT: i64 = 34;
const UNLINK_ID: i64 = 35;
const UNLINK_ID_ACK: i64 = 36;

/// The tag and the arity of a tuple, and its first element: a small integer.
const SEND_SENDER_HEAD: [u8; 4] = [104, 3, 97, SEND_SENDER as u8];
const REG_SEND_HEAD: [u8; 4] = [104, 4, 97, REG_SEND as u8];

const SPAWN_IS_LINKED: i64 = 1;
const SPAWN_IS_MONITORED: i64 = 2;

/// An operation that breaks a rule, for which a connection ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum WrongControl {
    Term(DecodeError),
    Operation,
}

impl From<DecodeError> for WrongControl {
    fn from(error: DecodeError) -> Self {
        Self::Term(error)
    }
}

/// Takes the elements of an operation apart.
struct Elements<'a>(std::slice::Iter<'a, Term>);

type Taken<T> = Result<T, WrongControl>;

impl<'a> Elements<'a> {
    fn next(&mut self) -> Taken<&'a Term> {
        self.0.next().ok_or(WrongControl::Operation)
    }

    fn pid(&mut self) -> Taken<NodePid> {
        self.next()?.as_pid().cloned().ok_or(WrongControl::Operation)
    }

    fn target(&mut self) -> Taken<Target> {
        match self.next()? {
            Term::Pid(pid) => Ok(Target::Pid(pid.clone())),
            Term::Atom(name) => Ok(Target::Name(name.clone())),
            _ => Err(WrongControl::Operation),
        }
    }

    fn reference(&mut self) -> Taken<Reference> {
        match self.next()? {
            Term::Reference(reference) => Ok((**reference).clone()),
            _ => Err(WrongControl::Operation),
        }
    }

    /// Takes an integer of 64 bits without a sign.
    fn id(&mut self) -> Taken<u64> {
        match self.next()? {
            Term::Integer(id) => u64::try_from(*id).map_err(|_| WrongControl::Operation),
            Term::Big(id) if !id.is_negative() => {
                let mut bytes = [0; 8];
                let digits = id.magnitude();
                let room = bytes.get_mut(..digits.len()).ok_or(WrongControl::Operation)?;
                room.copy_from_slice(digits);
                Ok(u64::from_le_bytes(bytes))
            }
            _ => Err(WrongControl::Operation),
        }
    }

    /// Takes the request of a message or a start, if the operation has a token that names one.
    fn request(&mut self) -> Option<RequestContext> {
        self.0.next().and_then(token::request_of)
    }

    fn reason(&mut self) -> Taken<Option<Term>> {
        self.next().cloned().map(Some)
    }
}

fn spawn_request(elements: &mut Elements<'_>) -> Taken<Control> {
    let (id, from) = (elements.reference()?, elements.pid()?);
    let group_leader = elements.next()?.clone();
    let Some([Term::Atom(module), Term::Atom(function), arity]) = elements.next()?.as_tuple()
    else {
        return Err(WrongControl::Operation);
    };
    let arity = arity.as_integer().ok_or(WrongControl::Operation)?;
    let Term::List(options) = elements.next()? else { return Err(WrongControl::Operation) };
    // `{monitor, Options}` arrives as `monitor`, because the options only concern the requester.
    let has = |name: &str| {
        options.iter().any(|option| {
            option.is_atom(name)
                || option
                    .as_tuple()
                    .is_some_and(|option| option.first().is_some_and(|option| option.is_atom(name)))
        })
    };
    let (links, monitors) = (has("link"), has("monitor"));
    Ok(Control::Spawn(Box::new(SpawnRequest {
        id,
        from,
        group_leader,
        module: module.clone(),
        function: function.clone(),
        arity,
        links,
        monitors,
        request: elements.request(),
    })))
}

fn spawn_reply(elements: &mut Elements<'_>) -> Taken<Control> {
    let (id, to) = (elements.reference()?, elements.pid()?);
    let made = elements.next()?.as_integer().ok_or(WrongControl::Operation)?;
    let (links, monitors) = (made & SPAWN_IS_LINKED != 0, made & SPAWN_IS_MONITORED != 0);
    let result = match elements.next()? {
        Term::Pid(pid) => Ok(pid.clone()),
        Term::Atom(reason) => Err(reason.clone()),
        _ => return Err(WrongControl::Operation),
    };
    Ok(Control::SpawnReply { id, to, links, monitors, result })
}

impl Control {
    /// Reads an operation. What is behind it is the message.
    pub(crate) fn read(reader: &mut Reader<'_>) -> Result<Self, WrongControl> {
        // Most operations are these, so that no terms are made of their elements.
        if reader.skip(&SEND_SENDER_HEAD) {
            let (from, to) = (Some(reader.pid()?), Target::Pid(reader.pid()?));
            return Ok(Self::Send { from, to, request: None });
        }
        if reader.skip(&REG_SEND_HEAD) {
            let from = Some(reader.pid()?);
            reader.atom()?;
            return Ok(Self::Send { from, to: Target::Name(reader.atom()?), request: None });
        }
        let term = reader.term()?;
        let mut elements = Elements(term.as_tuple().ok_or(WrongControl::Operation)?.iter());
        let operation = elements.next()?.as_integer().ok_or(WrongControl::Operation)?;
        let e = &mut elements;
        Ok(match operation {
            LINK => Self::Link { from: e.pid()?, to: e.pid()? },
            SEND | SEND_TT => {
                e.next()?;
                // A token names its sender, which such an operation has not.
                Self::Send { from: None, to: Target::Pid(e.pid()?), request: None }
            }
            SEND_SENDER | SEND_SENDER_TT => {
                let (from, to) = (Some(e.pid()?), Target::Pid(e.pid()?));
                Self::Send { from, to, request: e.request() }
            }
            REG_SEND | REG_SEND_TT => {
                let from = Some(e.pid()?);
                e.next()?;
                Self::Send { from, to: e.target()?, request: e.request() }
            }
            ALIAS_SEND | ALIAS_SEND_TT => Self::AliasSend { from: e.pid()?, alias: e.reference()? },
            EXIT => Self::Exit { from: e.pid()?, to: e.pid()?, reason: e.reason()? },
            EXIT_TT => {
                let (from, to) = (e.pid()?, e.pid()?);
                e.next()?;
                Self::Exit { from, to, reason: e.reason()? }
            }
            EXIT2 => Self::Exit2 { from: e.pid()?, to: e.pid()?, reason: e.reason()? },
            EXIT2_TT => {
                let (from, to) = (e.pid()?, e.pid()?);
                e.next()?;
                Self::Exit2 { from, to, reason: e.reason()? }
            }
            PAYLOAD_EXIT | PAYLOAD_EXIT_TT => {
                Self::Exit { from: e.pid()?, to: e.pid()?, reason: None }
            }
            PAYLOAD_EXIT2 | PAYLOAD_EXIT2_TT => {
                Self::Exit2 { from: e.pid()?, to: e.pid()?, reason: None }
            }
            MONITOR => Self::Monitor { from: e.pid()?, to: e.target()?, monitor: e.reference()? },
            DEMONITOR => {
                Self::Demonitor { from: e.pid()?, to: e.target()?, monitor: e.reference()? }
            }
            MONITOR_EXIT => {
                let (from, to, monitor) = (e.target()?, e.pid()?, e.reference()?);
                Self::Down { from, to, monitor, reason: e.reason()? }
            }
            PAYLOAD_MONITOR_EXIT => {
                let (from, to, monitor) = (e.target()?, e.pid()?, e.reference()?);
                Self::Down { from, to, monitor, reason: None }
            }
            SPAWN_REQUEST | SPAWN_REQUEST_TT => spawn_request(e)?,
            SPAWN_REPLY | SPAWN_REPLY_TT => spawn_reply(e)?,
            UNLINK_ID => Self::Unlink { id: e.id()?, from: e.pid()?, to: e.pid()? },
            UNLINK_ID_ACK => Self::UnlinkAck { id: e.id()?, from: e.pid()?, to: e.pid()? },
            GROUP_LEADER => Self::Ignored(operation),
            _ => return Err(WrongControl::Operation),
        })
    }

    /// Returns `true` if a message is behind it.
    pub(crate) fn has_message(&self) -> bool {
        match self {
            Self::Send { .. } | Self::AliasSend { .. } | Self::Spawn(_) => true,
            Self::Exit { reason, .. } | Self::Exit2 { reason, .. } | Self::Down { reason, .. } => {
                reason.is_none()
            }
            _ => false,
        }
    }

    /// Returns the same signal with another reason, if its reason is in it.
    pub(crate) fn with_reason(&self, word: &Term) -> Self {
        let mut changed = self.clone();
        if let Self::Exit { reason, .. } | Self::Exit2 { reason, .. } | Self::Down { reason, .. } =
            &mut changed
        {
            *reason = reason.is_some().then(|| word.clone());
        }
        changed
    }

    /// Writes the operation. The message, if it has one, is to be written behind it.
    pub(crate) fn write(&self, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        match self {
            Self::Send { from: Some(from), to, request: Some(request) } => {
                let (from_term, token) = (from.into(), token::of(request, from));
                match to {
                    Target::Pid(to) => {
                        tuple(out, SEND_SENDER_TT, &[&from_term, &to.into(), &token])
                    }
                    Target::Name(name) => {
                        let name = name.clone().into();
                        tuple(out, REG_SEND_TT, &[&from_term, &unused(), &name, &token])
                    }
                }
            }
            Self::Send { from: Some(from), to: Target::Pid(to), request: None } => {
                out.extend(SEND_SENDER_HEAD);
                let mut writer = Writer::new(out);
                writer.pid(from);
                writer.pid(to);
                Ok(())
            }
            // A token has a sender, so without one there is no token.
            Self::Send { from: None, to: Target::Pid(to), .. } => {
                tuple(out, SEND, &[&unused(), &to.into()])
            }
            Self::Send { from: Some(from), to: Target::Name(name), request: None } => {
                out.extend(REG_SEND_HEAD);
                let mut writer = Writer::new(out);
                writer.pid(from);
                writer.no_atom();
                writer.atom(name);
                Ok(())
            }
            Self::Send { from: None, to: Target::Name(name), .. } => {
                tuple(out, REG_SEND, &[&unused(), &unused(), &name.clone().into()])
            }
            Self::AliasSend { from, alias } => {
                tuple(out, ALIAS_SEND, &[&from.into(), &alias.clone().into()])
            }
            Self::Spawn(request) => write_spawn(out, request),
            Self::Exit { from, to, reason: None } => {
                tuple(out, PAYLOAD_EXIT, &[&from.into(), &to.into()])
            }
            Self::Exit { from, to, reason: Some(reason) } => {
                tuple(out, EXIT, &[&from.into(), &to.into(), reason])
            }
            Self::Exit2 { from, to, reason: None } => {
                tuple(out, PAYLOAD_EXIT2, &[&from.into(), &to.into()])
            }
            Self::Exit2 { from, to, reason: Some(reason) } => {
                tuple(out, EXIT2, &[&from.into(), &to.into(), reason])
            }
            Self::Down { from, to, monitor, reason: None } => tuple(
                out,
                PAYLOAD_MONITOR_EXIT,
                &[&from.to_term(), &to.into(), &monitor.clone().into()],
            ),
            Self::Down { from, to, monitor, reason: Some(reason) } => {
                let monitor = monitor.clone().into();
                tuple(out, MONITOR_EXIT, &[&from.to_term(), &to.into(), &monitor, reason])
            }
            Self::Link { from, to } => tuple(out, LINK, &[&from.into(), &to.into()]),
            Self::Unlink { id, from, to } => {
                tuple(out, UNLINK_ID, &[&number(*id), &from.into(), &to.into()])
            }
            Self::UnlinkAck { id, from, to } => {
                tuple(out, UNLINK_ID_ACK, &[&number(*id), &from.into(), &to.into()])
            }
            Self::Monitor { from, to, monitor } => {
                tuple(out, MONITOR, &[&from.into(), &to.to_term(), &monitor.clone().into()])
            }
            Self::Demonitor { from, to, monitor } => {
                tuple(out, DEMONITOR, &[&from.into(), &to.to_term(), &monitor.clone().into()])
            }
            Self::SpawnReply { id, to, links, monitors, result } => {
                let made = (i64::from(*links) * SPAWN_IS_LINKED)
                    | (i64::from(*monitors) * SPAWN_IS_MONITORED);
                let result = match result {
                    Ok(pid) => pid.into(),
                    Err(reason) => reason.clone().into(),
                };
                tuple(out, SPAWN_REPLY, &[&id.clone().into(), &to.into(), &made.into(), &result])
            }
            Self::Ignored(operation) => tuple(out, *operation, &[]),
        }
    }
}

fn write_spawn(out: &mut Vec<u8>, request: &SpawnRequest) -> Result<(), EncodeError> {
    let function = Term::tuple([
        request.module.clone().into(),
        request.function.clone().into(),
        request.arity.into(),
    ]);
    let options = [("link", request.links), ("monitor", request.monitors)];
    let options = options.iter().filter(|(_, is_asked)| *is_asked);
    let options = Term::list(options.map(|(name, _)| Term::atom(name)));
    let (id, from) = (request.id.clone().into(), Term::from(&request.from));
    let elements = [&id, &from, &request.group_leader, &function, &options];
    match &request.request {
        Some(context) => {
            let token = token::of(context, &request.from);
            tuple(out, SPAWN_REQUEST_TT, &[&elements[..], &[&token]].concat())
        }
        None => tuple(out, SPAWN_REQUEST, &elements),
    }
}

impl Target {
    pub(crate) fn to_term(&self) -> Term {
        match self {
            Self::Pid(pid) => pid.into(),
            Self::Name(name) => name.clone().into(),
        }
    }
}

impl From<&NodePid> for Term {
    fn from(pid: &NodePid) -> Self {
        Self::Pid(pid.clone())
    }
}

/// An element that has no meaning any more. It once was a cookie.
fn unused() -> Term {
    Term::Atom(Atom::known(""))
}

fn number(id: u64) -> Term {
    match i64::try_from(id) {
        Ok(id) => Term::Integer(id),
        Err(_) => {
            let digits = id.to_le_bytes().to_vec();
            Term::Big(Box::new(crate::term::BigInteger::new(false, digits)))
        }
    }
}

fn tuple(out: &mut Vec<u8>, operation: i64, elements: &[&Term]) -> Result<(), EncodeError> {
    // A tuple with this tag has its arity in one byte.
    out.extend([104, elements.len() as u8 + 1]);
    let mut writer = Writer::new(out);
    writer.integer(operation);
    elements.iter().try_for_each(|element| writer.term(element))
}
