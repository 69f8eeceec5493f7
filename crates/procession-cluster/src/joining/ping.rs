//! Asking a node whether it is there.

use std::error::Error;
use std::fmt;
use std::time::Duration;

use procession::time::Instant;

use crate::error::CallTermError;
use crate::joining::connect::ConnectError;
use crate::node::Node;
use crate::remote::Remote;
use crate::term::{Atom, Term};

/// The error of [`Node::ping`].
#[derive(Debug)]
#[non_exhaustive]
pub enum PingError {
    /// There is no connection, and none can be made.
    Connect(ConnectError),
    /// The node has not answered.
    Call(CallTermError),
    /// The node has answered something else than `yes`.
    Refused(Term),
}

impl fmt::Display for PingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Connect(error) => error.fmt(f),
            Self::Call(error) => write!(f, "the node has not answered: {error}"),
            Self::Refused(answer) => {
                write!(f, "the node has answered {}", crate::reason::bounded(answer))
            }
        }
    }
}

impl Error for PingError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Connect(error) => Some(error),
            Self::Call(error) => Some(error),
            Self::Refused(_) => None,
        }
    }
}

impl Node {
    /// Asks a node whether it is there, as `net_adm:ping` does, and connects to it if it is not
    /// connected. Returns the time that the answer took. Connecting and the answer together take
    /// at most `timeout`.
    ///
    /// # Errors
    /// [`PingError`]: there is no connection, or no answer within `timeout`.
    ///
    /// # Cancellation
    /// If the future is dropped, the nodes may be connected or not.
    pub async fn ping(&self, node: &str, timeout: Duration) -> Result<Duration, PingError> {
        let limit = Instant::now() + timeout;
        let connected = procession::timeout(timeout, self.connect(node)).await;
        let connected = connected.unwrap_or(Err(ConnectError::TimedOut));
        connected.map_err(PingError::Connect)?;
        let wrong = || PingError::Connect(ConnectError::Name(node.to_owned()));
        let peer = Atom::new(node).ok_or_else(wrong)?;
        let to = Remote::Name { name: Atom::known("net_kernel"), node: peer };
        let request = Term::tuple([Term::atom("is_auth"), self.name().clone().into()]);
        let start = Instant::now();
        let left = limit.saturating_duration_since(start);
        let answer = self.call(to, request, left).await.map_err(PingError::Call)?;
        match answer.is_atom("yes") {
            true => Ok(Instant::now().saturating_duration_since(start)),
            false => Err(PingError::Refused(answer)),
        }
    }
}
