//! Calls and sends with values of Rust types.

use std::time::Duration;

use serde_core::Serialize;
use serde_core::de::DeserializeOwned;

use crate::error::CallTermError;
use crate::letter::TermReply;
use crate::node::Node;
use crate::node::member::Member;
use crate::remote::Remote;
use crate::serialize::convert::{from_term, to_term};
use crate::serialize::error::{CallError, SendError};
use crate::term::Term;

fn reply_as<R: DeserializeOwned>(reply: Result<Term, CallTermError>) -> Result<R, CallError> {
    let reply = reply.map_err(CallError::Call)?;
    // The error returns the reply.
    from_term(reply.clone()).map_err(|error| CallError::Reply(error, reply))
}

impl Node {
    /// Calls a process of another node like [`call`](Self::call), with a request and a reply of
    /// Rust types.
    ///
    /// # Errors
    /// [`CallError`]: the request has no term, there is no reply, or it is of another type.
    ///
    /// # Cancellation
    /// As for [`call`](Self::call).
    pub async fn call_as<R: DeserializeOwned>(
        &self,
        to: impl Into<Remote>,
        request: &(impl Serialize + ?Sized),
        timeout: Duration,
    ) -> Result<R, CallError> {
        let request = to_term(request).map_err(CallError::Request)?;
        reply_as(self.call(to, request, timeout).await)
    }
}

impl Member {
    /// Calls a process of another node like [`call`](Self::call), with a request and a reply of
    /// Rust types.
    ///
    /// # Errors
    /// [`CallError`]: the request has no term, there is no reply, or it is of another type.
    ///
    /// # Cancellation
    /// As for [`call`](Self::call).
    pub async fn call_as<R: DeserializeOwned>(
        &self,
        to: impl Into<Remote>,
        request: &(impl Serialize + ?Sized),
        timeout: Duration,
    ) -> Result<R, CallError> {
        let request = to_term(request).map_err(CallError::Request)?;
        reply_as(self.call(to, request, timeout).await)
    }

    /// Sends a value like [`send`](Self::send).
    ///
    /// # Errors
    /// [`SendError`]: the value has no term, or that was not sent.
    pub fn send_as(
        &self,
        to: impl Into<Remote>,
        value: &(impl Serialize + ?Sized),
    ) -> Result<(), SendError> {
        let term = to_term(value).map_err(SendError::Convert)?;
        self.send(to, term).map_err(SendError::Send)
    }
}

impl TermReply {
    /// Sends a value as the reply, like [`send`](Self::send).
    ///
    /// # Errors
    /// [`SendError`]: the value has no term, or that was not sent.
    pub fn send_as(self, value: &(impl Serialize + ?Sized)) -> Result<(), SendError> {
        let term = to_term(value).map_err(SendError::Convert)?;
        self.send(term).map_err(SendError::Send)
    }
}
