//! The protocol of a release: what nodes of this crate say in addition to the distribution
//! protocol of Erlang, and how nodes of two releases understand the same words.
//!
//! ## Problem
//! A cluster is upgraded node by node, so nodes of two releases are connected for a while. If a
//! release changes a word, the other node drops it or misreads it, and neither node notices.
//!
//! ## Steps
//! - `State`: when the other node asks for the first sign of life, which only a node of this crate
//!   does, this node sends the statement of its release: `{release, Protocol, Version}`. It goes
//!   before the answer and in the same lane, so a node that knows that the other node is of this
//!   crate also knows its protocol.
//! - `Refuse`: when the other node has answered, and its protocol is older than [`OLDEST`], this
//!   node ends the connection and counts the cause `release`
//!   ([`NodeStatus::refusals`](crate::NodeStatus::refusals)). The newer node decides, because the
//!   older one does not know what has changed.
//!
//! ## Rules
//! - A change of the words of this crate has a new number, [`PROTOCOL`]. [`OLDEST`] is the number
//!   of the release before, because a cluster is upgraded by one release at a time.
//! - A change is a new word, and never a new field of a known word, because readers match the exact
//!   number of fields. The maps of the status are the exception: readers look for the keys they
//!   know.
//! - A word of protocol n is sent only to nodes of protocol n and later. The form before it is kept
//!   until [`OLDEST`] has passed n.
//!
//! ## Allowed
//! - A node of this crate that states nothing is of protocol 1. A node of the BEAM has no protocol
//!   and receives no statement, because it never asks.
//! - Each connection has its own protocol, because the statement is lost with the connection.
//!
//! ## Rejected
//! - The protocol in the flags of the handshake: nodes of the BEAM may use any bit for something
//!   else one day.
//! - A version for each kind of word: a release is tested with the release before it, and not with
//!   parts of it.
//!
//! ## Checked by
//! The tests of the connection.
//! `tests/releases` keeps the words of each protocol. Each area checks that it reads the words of
//! all kept protocols, and that what it says now is what the newest file has.

use crate::term::Term;

#[cfg(test)]
pub(crate) mod corpus;

/// The protocol of this release.
pub(crate) const PROTOCOL: u16 = 2;
/// The oldest protocol that this release understands.
pub(crate) const OLDEST: u16 = 1;
/// The protocol of nodes of this crate that state none.
pub(crate) const UNSTATED: u16 = 1;
/// The version of this release.
pub(crate) const VERSION: &str = env!("CARGO_PKG_VERSION");
/// The longest version that is read, in bytes.
const VERSION_MAX: usize = 64;

/// What a node states of its release.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Release {
    pub(crate) protocol: u16,
    pub(crate) version: String,
}

impl Release {
    fn own() -> Self {
        Self { protocol: PROTOCOL, version: VERSION.to_owned() }
    }

    fn read(term: &Term) -> Option<Self> {
        // A later release may say more.
        let [word, protocol, version, ..] = term.as_tuple()? else { return None };
        let protocol = u16::try_from(protocol.as_integer()?).ok()?;
        let version = version.as_bytes().filter(|bytes| bytes.len() <= VERSION_MAX)?;
        let version = String::from_utf8(version.to_vec()).ok()?;
        word.is_atom("release").then_some(Self { protocol, version })
    }
}

/// A statement about a connection, for a node of this crate. It has the form of the end of a
/// monitored process, so nodes that do not know the statement ignore it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Statement {
    /// The node leaves the cluster.
    Leaving,
    /// All calls and starts were sent that the node has accepted for a node that leaves.
    Settled,
    /// The node has sent everything, and ends the connection.
    Done,
    Release(Release),
}

impl Statement {
    /// Returns the statement of the release of this node.
    pub(crate) fn release() -> Self {
        Self::Release(Release::own())
    }

    pub(crate) fn to_term(&self) -> Term {
        match self {
            Self::Leaving => Term::atom("leaving"),
            Self::Settled => Term::atom("settled"),
            Self::Done => Term::atom("done"),
            Self::Release(Release { protocol, version }) => Term::tuple([
                Term::atom("release"),
                Term::from(*protocol),
                Term::from(version.as_str()),
            ]),
        }
    }

    /// Reads a statement. `None` if this release does not know it.
    pub(crate) fn read(term: &Term) -> Option<Self> {
        match term {
            Term::Atom(word) => match word.as_str() {
                "leaving" => Some(Self::Leaving),
                "settled" => Some(Self::Settled),
                "done" => Some(Self::Done),
                _ => None,
            },
            _ => Release::read(term).map(Self::Release),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Release, Statement, VERSION_MAX, corpus};
    use crate::pulse;
    use crate::term::Term;

    #[test]
    fn statements_are_those_of_the_protocol() {
        let version = "0.1.0".to_owned();
        let release = Statement::Release(Release { protocol: 2, version });
        let all = [Statement::Leaving, Statement::Settled, Statement::Done, release];
        let words = all.map(|statement| statement.to_term());
        corpus::check("statement", &words, |word| Statement::read(&word).is_some());
        let reads = |word| pulse::received_of(&word) == Some(7);
        corpus::check("answer", &[pulse::received(7)], reads);
    }

    #[test]
    fn a_later_release_may_say_more() {
        let release = |version: &str, more: Option<Term>| {
            let known = [Term::atom("release"), Term::from(3), Term::from(version)];
            Statement::read(&Term::tuple(known.into_iter().chain(more)))
        };
        let read = Statement::Release(Release { protocol: 3, version: "0.2.0".to_owned() });
        assert_eq!(release("0.2.0", Some(Term::atom("more"))), Some(read));
        let long = "x".repeat(VERSION_MAX);
        assert!(release(&long, None).is_some() && release(&(long + "x"), None).is_none());
        for other in ["later", "{other,3,<<\"0.2.0\">>}", "{release,70000,<<\"0.2.0\">>}"] {
            assert_eq!(Statement::read(&other.parse().expect("it is a term")), None, "{other}");
        }
    }
}
