//! The protocol of a release: what nodes of this crate say to each other beside the distribution
//! protocol of Erlang, and how nodes of two releases understand each other.
//!
//! ## Problem
//! A cluster is upgraded node by node, so nodes of two releases are connected for a while. If a
//! release changes a word, the other node drops it or misreads it, and neither node notices.
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
//! ## Checked by
//! `tests/releases` keeps the words of each protocol. Each area checks that it reads the words of
//! all kept protocols, and that what it says now is what the newest file has
//! ([`corpus`]).

use crate::term::Term;

#[cfg(test)]
pub(crate) mod corpus;

/// The protocol of this release.
#[cfg(test)]
pub(crate) const PROTOCOL: u16 = 1;
/// The oldest protocol that this release understands.
#[cfg(test)]
pub(crate) const OLDEST: u16 = 1;

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
}

impl Statement {
    pub(crate) fn to_term(&self) -> Term {
        Term::atom(match self {
            Self::Leaving => "leaving",
            Self::Settled => "settled",
            Self::Done => "done",
        })
    }

    /// Reads a statement. `None` if this release does not know it.
    pub(crate) fn read(term: &Term) -> Option<Self> {
        let Term::Atom(word) = term else { return None };
        match word.as_str() {
            "leaving" => Some(Self::Leaving),
            "settled" => Some(Self::Settled),
            "done" => Some(Self::Done),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Statement, corpus};
    use crate::pulse;

    #[test]
    fn statements_are_those_of_the_protocol() {
        let all = [Statement::Leaving, Statement::Settled, Statement::Done];
        let words = all.map(|statement| statement.to_term());
        corpus::check("statement", &words, |word| Statement::read(&word).is_some());
        let reads = |word| pulse::received_of(&word) == Some(7);
        corpus::check("answer", &[pulse::received(7)], reads);
    }
}
