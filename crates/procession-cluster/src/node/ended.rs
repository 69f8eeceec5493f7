//! Connections that have ended, for people.

use std::time::Duration;

use crate::term::maps::{get, get_atom, get_number, map, number, optional};
use crate::term::{Atom, Term};

/// A connection that has ended. [`NodeStatus::ended`](crate::NodeStatus::ended) has the latest.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct EndedConnection {
    /// The name of the other node.
    pub name: Atom,
    /// The number of the connection to this node. Later connections have greater numbers.
    pub connection: u64,
    /// How long the nodes were connected.
    pub age: Duration,
    /// How long ago it ended.
    pub ago: Duration,
    /// Why it ended.
    pub why: String,
    /// The messages that were sent and not confirmed. `None` if the other node confirms none.
    pub unconfirmed: Option<u64>,
}

impl EndedConnection {
    pub(super) fn to_term(&self) -> Term {
        map([
            ("name", self.name.clone().into()),
            ("connection", number(self.connection)),
            ("age_us", number(self.age.as_micros())),
            ("ago_us", number(self.ago.as_micros())),
            ("why", Term::from(self.why.as_str())),
            ("unconfirmed", optional(self.unconfirmed)),
        ])
    }

    pub(super) fn from_term(term: &Term) -> Option<Self> {
        let micros = |key| get_number(term, key).map(Duration::from_micros);
        Some(Self {
            name: get_atom(term, "name")?,
            connection: get_number(term, "connection")?,
            age: micros("age_us")?,
            ago: micros("ago_us")?,
            why: get(term, "why")?.to_text()?,
            unconfirmed: get_number(term, "unconfirmed"),
        })
    }
}
