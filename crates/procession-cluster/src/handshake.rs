//! The handshake: two nodes exchange their names, and prove that they know the same cookie.
//!
//! Neither side reads a clock or a socket here. [`Handshake::take`] takes the received bytes, and
//! the bytes to send are appended to a buffer. This is version 6 of the protocol, which OTP 23
//! introduced.
//!
//! *Initiator*: sends its name · takes the status · takes a challenge · answers it, and adds
//! another challenge · takes the answer to that. *Acceptor*: takes the name · sends the status, and
//! takes an answer if the status asks for one · sends a challenge · takes the answer, and checks it
//! · answers the other's challenge.

use std::fmt;

use md5::{Digest, Md5};

use crate::cookie::Cookie;
use crate::term::Atom;

/// The abilities of a node, by their bits in the protocol.
pub(crate) mod flags {
    /// The node counts as a part of the cluster that is seen by all.
    pub(crate) const PUBLISHED: u64 = 1;
    const EXTENDED_REFERENCES: u64 = 1 << 2;
    const DIST_MONITOR: u64 = 1 << 3;
    const FUN_TAGS: u64 = 1 << 4;
    /// Processes may be monitored by name.
    pub(crate) const DIST_MONITOR_NAME: u64 = 1 << 5;
    const NEW_FUN_TAGS: u64 = 1 << 7;
    const EXTENDED_PIDS_PORTS: u64 = 1 << 8;
    const EXPORT_PTR_TAG: u64 = 1 << 9;
    const BIT_BINARIES: u64 = 1 << 10;
    const NEW_FLOATS: u64 = 1 << 11;
    /// Frames have a header with atoms.
    pub(crate) const HEADERS: u64 = 1 << 13;
    const SMALL_ATOM_TAGS: u64 = 1 << 14;
    const UTF8_ATOMS: u64 = 1 << 16;
    const MAP_TAG: u64 = 1 << 17;
    const BIG_CREATION: u64 = 1 << 18;
    /// A message may name its sender.
    pub(crate) const SEND_SENDER: u64 = 1 << 19;
    /// The label of a trace token may be any term.
    pub(crate) const TRACE_LABELS: u64 = 1 << 20;
    /// The reason of an exit may stand behind the operation.
    pub(crate) const EXIT_PAYLOAD: u64 = 1 << 22;
    /// Large messages may arrive in fragments.
    pub(crate) const FRAGMENTS: u64 = 1 << 23;
    pub(crate) const HANDSHAKE_23: u64 = 1 << 24;
    const UNLINK_ID: u64 = 1 << 25;
    /// Processes may be started by a request.
    pub(crate) const SPAWN: u64 = 1 << 32;
    const V4_NC: u64 = 1 << 34;
    /// Messages may be sent to references.
    pub(crate) const ALIAS: u64 = 1 << 35;
    /// Stands for the flags that OTP 25 requires.
    const MANDATORY_25: u64 = 1 << 36;

    /// What the other node must have.
    pub(crate) const REQUIRED: u64 = EXTENDED_REFERENCES
        | FUN_TAGS
        | NEW_FUN_TAGS
        | EXTENDED_PIDS_PORTS
        | EXPORT_PTR_TAG
        | BIT_BINARIES
        | NEW_FLOATS
        | UTF8_ATOMS
        | MAP_TAG
        | BIG_CREATION
        | HANDSHAKE_23
        | UNLINK_ID
        | V4_NC;

    /// What each node has. Without the flag `PUBLISHED` it is a hidden node.
    pub(crate) const OWN: u64 = REQUIRED
        | DIST_MONITOR
        | DIST_MONITOR_NAME
        | HEADERS
        | SMALL_ATOM_TAGS
        | SEND_SENDER
        | TRACE_LABELS
        | EXIT_PAYLOAD
        | FRAGMENTS
        | SPAWN
        | ALIAS
        | MANDATORY_25;

    /// Returns the flags of a node, with the flags that another flag stands for.
    pub(crate) fn expand(flags: u64) -> u64 {
        if flags & MANDATORY_25 == 0 { flags } else { flags | (REQUIRED & !UNLINK_ID & !V4_NC) }
    }
}

/// The longest message of a handshake. Names have at most 255 characters.
const MESSAGE_MAX: usize = 1 << 11;

/// What a node says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Introduction {
    pub(crate) name: Atom,
    pub(crate) creation: u32,
    pub(crate) flags: u64,
}

/// The answer of an acceptor to the name of an initiator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Status {
    /// There is no other connection.
    Ok,
    /// Both nodes have begun a connection. This connection is kept, and the other connection is
    /// abandoned.
    OkSimultaneous,
    /// Both nodes have begun a connection. The other connection is kept.
    Nok,
    /// There is a connection. If the initiator wants the new connection, the old connection ends.
    Alive,
    /// The node is not wanted.
    NotAllowed,
}

/// The reason why a handshake has failed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum HandshakeError {
    /// The other side does not speak this version of the protocol.
    Protocol,
    /// The other node is older than OTP 25: it lacks these abilities, as bits of the protocol.
    Flags(u64),
    /// The other node has this name, and another name was expected.
    Name(String),
    /// The nodes have different cookies.
    Cookie,
    /// The other node does not want this one.
    NotAllowed,
    /// There is another connection between the nodes, or one is being made.
    Connected,
}

impl fmt::Display for HandshakeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Protocol => {
                f.write_str("the other side does not speak version 6 of the protocol")
            }
            Self::Flags(bits) => write!(
                f,
                "the other node lacks abilities that are needed (bits {bits:#x}): OTP 25 has them"
            ),
            Self::Name(name) => write!(f, "the other node calls itself {name:?}"),
            Self::Cookie => f.write_str("the nodes have different cookies"),
            Self::NotAllowed => f.write_str("the other node does not allow this one to connect"),
            Self::Connected => f.write_str("the nodes are connected, or are about to be"),
        }
    }
}

impl std::error::Error for HandshakeError {}

/// What a handshake needs next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// More bytes.
    More,
    /// A decision about the node, by [`Handshake::decide`].
    Decision(Introduction),
    /// A decision about the connection that the other node knows of, by [`Handshake::replace`].
    Alive,
    /// Nothing. The connection is made.
    Done(Introduction),
}

#[derive(Debug)]
enum State {
    // The initiator.
    Status,
    Challenge,
    Ack { peer: Introduction },

    // The acceptor.
    Name,
    Deciding { peer: Introduction, is_old: bool },
    Answer { peer: Introduction, is_old: bool },
    Complement { peer: Introduction },
    Reply { peer: Introduction },

    Over,
}

/// One side of a handshake.
#[derive(Debug)]
pub(crate) struct Handshake {
    own: Introduction,
    cookie: Cookie,
    /// The number that the other side must answer.
    challenge: u32,
    /// The name that the acceptor must have.
    expected: Option<Atom>,
    /// The bytes of the length of a message.
    length_bytes: usize,
    state: State,
}

/// The bytes of the length of a message without TLS.
pub(crate) const PLAIN_LENGTH_BYTES: usize = 2;
/// The bytes of the length of a message within TLS.
pub(crate) const TLS_LENGTH_BYTES: usize = 4;

impl Handshake {
    /// Creates the side that has connected to the node `expected`, and sends the name.
    pub(crate) fn initiator(
        own: Introduction,
        cookie: Cookie,
        challenge: u32,
        expected: Atom,
        length_bytes: usize,
        out: &mut Vec<u8>,
    ) -> Self {
        let this = Self {
            own,
            cookie,
            challenge,
            expected: Some(expected),
            length_bytes,
            state: State::Status,
        };
        this.send(out, |out| {
            out.push(b'N');
            out.extend(this.own.flags.to_be_bytes());
            out.extend(this.own.creation.to_be_bytes());
            name(out, &this.own.name);
        });
        this
    }

    /// Creates the side that was connected to.
    pub(crate) fn acceptor(
        own: Introduction,
        cookie: Cookie,
        challenge: u32,
        length_bytes: usize,
    ) -> Self {
        Self { own, cookie, challenge, expected: None, length_bytes, state: State::Name }
    }

    /// Returns `true` if the bytes may hold a whole message.
    pub(crate) fn has_message(&self, come: &[u8]) -> bool {
        self.length(come).is_some_and(|length| come.len() >= self.length_bytes + length)
    }

    /// Returns `true` if this side has connected, and the other side still has to check its proof
    /// of the cookie.
    pub(crate) fn has_proved(&self) -> bool {
        matches!(self.state, State::Ack { .. })
    }

    fn length(&self, come: &[u8]) -> Option<usize> {
        let digits = come.get(..self.length_bytes)?;
        Some(digits.iter().fold(0, |length, &digit| length << 8 | usize::from(digit)))
    }

    fn send(&self, out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
        let from = out.len();
        out.resize(from + self.length_bytes, 0);
        write(out);
        let length = (out.len() - from - self.length_bytes) as u32;
        let digits = length.to_be_bytes();
        out[from..from + self.length_bytes].copy_from_slice(&digits[4 - self.length_bytes..]);
    }

    /// Takes the next message from the received bytes, if it is complete, and removes its bytes.
    pub(crate) fn take(
        &mut self,
        come: &mut Vec<u8>,
        out: &mut Vec<u8>,
    ) -> Result<Progress, HandshakeError> {
        let Some(length) = self.length(come) else { return Ok(Progress::More) };
        if length > MESSAGE_MAX {
            return Err(HandshakeError::Protocol);
        }
        let Some(message) = come[self.length_bytes..].get(..length) else {
            return Ok(Progress::More);
        };
        let message = message.to_vec();
        come.drain(..self.length_bytes + length);
        self.message(&message, out)
    }

    fn message(&mut self, message: &[u8], out: &mut Vec<u8>) -> Result<Progress, HandshakeError> {
        let (&tag, body) = message.split_first().ok_or(HandshakeError::Protocol)?;
        let body = &mut Body(body);
        match (std::mem::replace(&mut self.state, State::Over), tag) {
            (State::Status, b's') => self.status(body.0),
            (State::Challenge, b'N') => self.challenge(body, out),
            (State::Ack { peer }, b'a') => {
                self.check(body)?;
                Ok(Progress::Done(peer))
            }
            (State::Name, b'N') => {
                let (flags, creation) = (body.u64()?, body.u32()?);
                let name = body.name()?;
                self.named(Introduction { name, creation, flags: flags::expand(flags) }, false)
            }
            (State::Name, b'n') => {
                let (_version, flags) = (body.u16()?, u64::from(body.u32()?));
                let text = std::str::from_utf8(body.0).map_err(|_| HandshakeError::Protocol)?;
                let name = Atom::new(text).ok_or(HandshakeError::Protocol)?;
                if flags & flags::HANDSHAKE_23 == 0 {
                    return Err(HandshakeError::Protocol);
                }
                self.named(Introduction { name, creation: 0, flags }, true)
            }
            (State::Answer { peer, is_old }, b's') => match body.0 {
                b"true" => {
                    self.send_challenge(out);
                    self.state = after_challenge(peer, is_old);
                    Ok(Progress::More)
                }
                _ => Err(HandshakeError::Connected),
            },
            (State::Complement { mut peer }, b'c') => {
                peer.flags = flags::expand(peer.flags | u64::from(body.u32()?) << 32);
                peer.creation = body.u32()?;
                lacks_nothing(&peer)?;
                self.state = State::Reply { peer };
                Ok(Progress::More)
            }
            (State::Reply { peer }, b'r') => {
                let challenge = body.u32()?;
                self.check(body)?;
                let digest = digest(&self.cookie, challenge);
                self.send(out, |out| {
                    out.push(b'a');
                    out.extend(digest);
                });
                Ok(Progress::Done(peer))
            }
            _ => Err(HandshakeError::Protocol),
        }
    }

    fn status(&mut self, status: &[u8]) -> Result<Progress, HandshakeError> {
        match status {
            b"ok" | b"ok_simultaneous" => {}
            b"alive" => return Ok(Progress::Alive),
            b"nok" => return Err(HandshakeError::Connected),
            b"not_allowed" => return Err(HandshakeError::NotAllowed),
            _ => return Err(HandshakeError::Protocol),
        }
        self.state = State::Challenge;
        Ok(Progress::More)
    }

    /// Answers the other node, which knows a connection. It ends if this attempt replaces it.
    pub(crate) fn replace(
        &mut self,
        replaces: bool,
        out: &mut Vec<u8>,
    ) -> Result<(), HandshakeError> {
        let answer: &[u8] = if replaces { b"strue" } else { b"sfalse" };
        self.send(out, |out| out.extend(answer));
        if !replaces {
            self.state = State::Over;
            return Err(HandshakeError::Connected);
        }
        self.state = State::Challenge;
        Ok(())
    }

    fn challenge(
        &mut self,
        body: &mut Body<'_>,
        out: &mut Vec<u8>,
    ) -> Result<Progress, HandshakeError> {
        let flags = flags::expand(body.u64()?);
        let (challenge, creation) = (body.u32()?, body.u32()?);
        let peer = Introduction { name: body.name()?, creation, flags };
        if self.expected.as_ref() != Some(&peer.name) {
            return Err(HandshakeError::Name(peer.name.as_str().to_owned()));
        }
        lacks_nothing(&peer)?;
        let digest = digest(&self.cookie, challenge);
        self.send(out, |out| {
            out.push(b'r');
            out.extend(self.challenge.to_be_bytes());
            out.extend(digest);
        });
        self.state = State::Ack { peer };
        Ok(Progress::More)
    }

    fn named(&mut self, peer: Introduction, is_old: bool) -> Result<Progress, HandshakeError> {
        if !is_old {
            lacks_nothing(&peer)?;
        }
        self.state = State::Deciding { peer: peer.clone(), is_old };
        Ok(Progress::Decision(peer))
    }

    /// Answers the name of the other node.
    pub(crate) fn decide(
        &mut self,
        status: Status,
        out: &mut Vec<u8>,
    ) -> Result<(), HandshakeError> {
        let State::Deciding { peer, is_old } = std::mem::replace(&mut self.state, State::Over)
        else {
            return Err(HandshakeError::Protocol);
        };
        let (text, refusal) = match status {
            Status::Ok => ("ok", None),
            Status::OkSimultaneous => ("ok_simultaneous", None),
            Status::Nok => ("nok", Some(HandshakeError::Connected)),
            Status::Alive => ("alive", None),
            Status::NotAllowed => ("not_allowed", Some(HandshakeError::NotAllowed)),
        };
        self.send(out, |out| {
            out.push(b's');
            out.extend(text.as_bytes());
        });
        if let Some(refusal) = refusal {
            return Err(refusal);
        }
        if status == Status::Alive {
            self.state = State::Answer { peer, is_old };
        } else {
            self.send_challenge(out);
            self.state = after_challenge(peer, is_old);
        }
        Ok(())
    }

    fn send_challenge(&self, out: &mut Vec<u8>) {
        self.send(out, |out| {
            out.push(b'N');
            out.extend(self.own.flags.to_be_bytes());
            out.extend(self.challenge.to_be_bytes());
            out.extend(self.own.creation.to_be_bytes());
            name(out, &self.own.name);
        });
    }

    /// Checks the answer to the challenge of this side.
    fn check(&self, body: &Body<'_>) -> Result<(), HandshakeError> {
        let expected = digest(&self.cookie, self.challenge);
        if body.0.len() != expected.len() {
            return Err(HandshakeError::Protocol);
        }
        // Compares all bytes, so that the time reveals nothing.
        let differences = expected.iter().zip(body.0).fold(0, |all, (a, b)| all | (a ^ b));
        if differences == 0 { Ok(()) } else { Err(HandshakeError::Cookie) }
    }
}

fn after_challenge(peer: Introduction, is_old: bool) -> State {
    if is_old { State::Complement { peer } } else { State::Reply { peer } }
}

fn lacks_nothing(peer: &Introduction) -> Result<(), HandshakeError> {
    match flags::REQUIRED & !peer.flags {
        0 => Ok(()),
        missing => Err(HandshakeError::Flags(missing)),
    }
}

fn name(out: &mut Vec<u8>, name: &Atom) {
    let text = name.as_str().as_bytes();
    out.extend((text.len() as u16).to_be_bytes());
    out.extend(text);
}

/// Returns the answer to a challenge: the MD5 of the cookie and the number in decimal.
pub(crate) fn digest(cookie: &Cookie, challenge: u32) -> [u8; 16] {
    let mut hash = Md5::new();
    hash.update(cookie.text().as_bytes());
    hash.update(challenge.to_string().as_bytes());
    hash.finalize().into()
}

/// The fields of a message.
struct Body<'a>(&'a [u8]);

impl Body<'_> {
    fn array<const N: usize>(&mut self) -> Result<[u8; N], HandshakeError> {
        let (taken, rest) = self.0.split_first_chunk().ok_or(HandshakeError::Protocol)?;
        self.0 = rest;
        Ok(*taken)
    }

    fn u16(&mut self) -> Result<u16, HandshakeError> {
        self.array().map(u16::from_be_bytes)
    }

    fn u32(&mut self) -> Result<u32, HandshakeError> {
        self.array().map(u32::from_be_bytes)
    }

    fn u64(&mut self) -> Result<u64, HandshakeError> {
        self.array().map(u64::from_be_bytes)
    }

    /// Reads a name, which is the last field. Later versions may append others.
    fn name(&mut self) -> Result<Atom, HandshakeError> {
        let length = usize::from(self.u16()?);
        let text = self.0.get(..length).and_then(|text| std::str::from_utf8(text).ok());
        text.and_then(Atom::new).ok_or(HandshakeError::Protocol)
    }
}

/// Splits the name of a node.
pub(crate) fn split(name: &str) -> Option<(&str, &str)> {
    let (word, host) = name.split_once('@')?;
    let is_word = |text: &str| {
        !text.is_empty()
            && text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | ':'))
    };
    (is_word(word) && is_word(host)).then_some((word, host))
}

#[cfg(test)]
mod tests;
