//! How far the end of a connection has progressed. See [`farewell`](super::farewell).

use std::fmt;

use procession::time::Instant;

use crate::connection::io::Ends;
use crate::term::{Atom, Reference};

#[derive(Debug)]
pub(super) struct Farewell {
    pub(super) why: Ends,
    /// When the connection ends, whatever is left.
    pub(super) until: Instant,
    pub(super) stage: Stage,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Stage {
    Sends,
    Asked(Reference),
    Answered,
    Told,
    Shut,
}

impl Farewell {
    pub(super) fn why(self) -> Ends {
        self.why
    }

    /// Notes an answer of the other node.
    pub(super) fn answered(&mut self, question: &Reference) {
        if matches!(&self.stage, Stage::Asked(asked) if asked == question) {
            self.stage = Stage::Answered;
        }
    }
}

/// Messages that a connection has left when it ended in order.
#[derive(Debug)]
pub(crate) struct Left {
    pub(super) count: u64,
    pub(super) peer: Atom,
    /// The reason why the connection ends, and what has kept the messages from being sent.
    pub(super) why: Ends,
    pub(super) cause: Ends,
}

impl fmt::Display for Left {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { count, peer, why, cause } = self;
        write!(f, "{why}, and {count} messages to {} may be lost: {cause}", peer.as_str())
    }
}
