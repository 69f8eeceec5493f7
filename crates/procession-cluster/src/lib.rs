//! A node of an Erlang cluster whose processes are those of Procession.
//!
//! TODO
#![forbid(unsafe_code)]

mod chance;
mod connection;
mod cookie;
mod epmd;
mod handshake;
mod letter;
mod link;
mod node;
mod outbound;
mod reason;
pub mod term;
mod wire;

pub use crate::cookie::Cookie;
pub use crate::handshake::HandshakeError;
pub use crate::letter::{Letter, RemoteDown, TermReply};
pub use crate::link::Remote;
pub use crate::node::StartError;
pub use crate::node::{
    CallTermError, ConnectError, Member, NameTaken, Node, NodeBuilder, PeerInfo, SendTermCause,
    SendTermError,
};
pub use crate::term::{Atom, NodePid, Reference, Term};
