//! The end of a connection that this node decides: by a stop, a disconnect, or a shutdown of the
//! scheduler.
//!
//! ## Problem
//! A send has succeeded once its message is in the queue. If the connection ended immediately, the
//! messages in the queue would be lost. The bytes in the buffers of the system would be lost as
//! well, because the connection is reset.
//!
//! ## Steps
//! - `Sends`: the queue accepts no further message, and the connection writes what the queue holds.
//!   The connection still reads and answers, so that two nodes that end a connection at the same
//!   time do not wait for one another.
//! - `Asked`: asks the other node whether it is there. The answer proves that the other node has
//!   taken everything before the question, because operations are carried out in order. Nodes of
//!   the BEAM also answer this question.
//! - `Shut`: a node that takes no monitors cannot be asked. Shuts down the writing side of the
//!   socket, and reads until the other node closes its own side.
//! - `Answered`: the other node has taken everything. If it is of this crate, this node sends the
//!   statement that says so.
//! - `Told`: reads and answers until the other node has sent everything as well and ends the
//!   connection. For the other node, the statement is the order to end the connection in the same
//!   steps. When that node reaches `Answered`, it resets the connection, because both nodes have
//!   everything by then.
//! - Other nodes do not know the statement. With them, the connection continues from `Answered` to
//!   `Shut`.
//!
//! The steps take at most one patience. Messages that are left after it are counted
//! ([`NodeStatus::lost`](crate::NodeStatus::lost)), and the process of the connection fails with
//! their number, which reports them. If the connection ends because the node has stopped or the
//! scheduler shuts down, a shutdown of the scheduler also returns their number
//! ([`Outgoing`](procession::mailbox::relay::Outgoing)). A connection that a newer one replaces
//! ends without these steps, because the other node has given it up.
//!
//! ## Allowed
//! If a process of this node ends during these steps, the other node receives no reason, because
//! the links and monitors end with the connection.
//!
//! ## Rejected
//! - To accept messages until the queue is empty: a busy sender would never let it become empty,
//!   and the end would cut the messages of all senders.
//! - To reset the connection once the other node has answered: if that node has more to send, such
//!   as when both nodes are stopped and it has accepted more, its messages are lost.
//! - To shut down the writing side for a node of this crate: this node could not answer the
//!   question of the other node. The other node would then count its messages as lost although they
//!   have arrived.
//!
//! ## Checked by
//! `tests/it/ends.rs`, the tests of the connection, and the simulated cluster.

use std::net::Shutdown;
use std::pin::pin;
use std::sync::Arc;

use procession::net::TcpStream;
use procession::scheduler::Health;
use procession::time::Instant;
use procession::{Context, timeout};
use socket2::SockRef;

use crate::connection::Connection;
use crate::connection::io::{CLOSED, Ends, SHUTS_DOWN, Told, told_to_end, unless};
use crate::connection::stage::{Farewell, Left, Stage};
use crate::link::Order;
use crate::node::drain::LOOK_EVERY;
use crate::release::Statement;
use crate::term::Term;

/// The end of a connection to a node that has left the cluster in order.
pub(super) const LEFT: &str = "it has left the cluster";

impl Connection {
    /// Waits until the subscribers have received the news of the connection.
    pub(super) async fn until_up(&mut self, cx: &mut Context<Order>) -> Result<(), Ends> {
        let (node, link) = (self.node.clone(), Arc::clone(&self.link));
        let mut up = pin!(timeout(node.connect_timeout(), node.until_up(&link)));
        let told = match unless(told_to_end(cx), up.as_mut()).await {
            Ok(told) => told,
            Err(Told::Close(why)) => return Err(why),
            // Messages may have been accepted.
            Err(Told::End(why)) => {
                self.end_in_order(why);
                up.await
            }
        };
        told.map_err(|_| "it took too long to tell that it is there".to_owned())
    }

    /// Begins to end the connection: nothing more is accepted, and what was accepted is sent.
    pub(super) fn end_in_order(&mut self, why: Ends) {
        if self.farewell.is_none() {
            self.link.outbound.drain();
            let until = Instant::now() + self.node.patience();
            self.farewell = Some(Farewell { why, until, stage: Stage::Sends });
        }
    }

    /// Sends the statement that this node has nothing more to send, to a node of this crate.
    fn tell_done(&self) {
        self.node.state(&self.link, &Statement::Done);
    }

    /// Takes a statement of the other node: that it has nothing more for this one, that it leaves
    /// the cluster, that all its calls and starts have come, or what its release is.
    pub(super) fn other_told(&mut self, statement: Option<&Term>) {
        match statement.and_then(Statement::read) {
            Some(Statement::Done) => {
                self.is_other_done = true;
                let why = if self.link.outbound.is_leaving() { LEFT } else { CLOSED };
                self.end_in_order(why.to_owned());
            }
            Some(Statement::Leaving) => {
                self.link.outbound.refuse_calls();
                self.owes_settled = true;
            }
            Some(Statement::Settled) => {
                // Ignored: it may have been so before.
                let _ = self.link.settled.set(());
            }
            // Ignored: a node has one release.
            Some(Statement::Release(release)) => drop(self.link.release.set(release)),
            None => {}
        }
    }

    /// `Settle`: tells a node that leaves that it has all calls and starts, once they have left the
    /// queue.
    pub(super) fn settle(&mut self) {
        if self.owes_settled && self.link.outbound.has_sent_calls() {
            self.owes_settled = false;
            self.node.state(&self.link, &Statement::Settled);
        }
        if self.is_cancelled && self.node.is_idle() {
            self.end_in_order(SHUTS_DOWN.to_owned());
        }
    }

    /// Handles a cancel of this process: a shutdown of the scheduler drains the node first.
    pub(super) fn cancelled(&mut self, why: Ends) {
        if Health::here().is_ending() {
            self.node.leave();
            self.is_cancelled = true;
        } else {
            self.end_in_order(why);
        }
    }

    /// Returns when this connection looks again whether the node has drained.
    pub(super) fn looks_again(&self, now: Instant) -> Instant {
        let waits = self.is_cancelled && self.farewell.is_none();
        if waits { now + LOOK_EVERY } else { Instant::NEVER }
    }

    /// Returns an error if the connection ends now. `is_written` says that the system has taken all
    /// that has left the queue.
    pub(super) fn end_if_over(
        &mut self,
        is_written: bool,
        stream: &TcpStream,
        now: Instant,
    ) -> Result<(), Ends> {
        let Some(farewell) = &self.farewell else { return Ok(()) };
        if now >= farewell.until {
            return Err("it took too long".to_owned());
        }
        if !is_written || !self.link.outbound.is_empty() {
            return Ok(());
        }
        let next = match farewell.stage {
            Stage::Sends if self.link.takes_monitors() => Stage::Asked(self.ask(now)),
            Stage::Answered | Stage::Told if self.is_other_done => return Err(CLOSED.to_owned()),
            Stage::Answered if self.link.is_of_own_kind() => {
                self.tell_done();
                Stage::Told
            }
            Stage::Sends | Stage::Answered => {
                // Ignored: a connection that has ended is found by the next read.
                drop(SockRef::from(stream).shutdown(Shutdown::Write));
                Stage::Shut
            }
            Stage::Asked(_) | Stage::Told | Stage::Shut => return Ok(()),
        };
        if let Some(farewell) = &mut self.farewell {
            farewell.stage = next;
        }
        Ok(())
    }

    /// Returns an error if the connection ends in order and leaves messages. `cause` says what has
    /// ended it.
    pub(super) fn left(&self, cause: &str) -> Result<(), Left> {
        let count = self.link.lost();
        match &self.farewell {
            Some(farewell) if count > 0 => Err(Left {
                count,
                peer: self.link.peer.name.clone(),
                why: farewell.why.clone(),
                cause: cause.to_owned(),
            }),
            _ => Ok(()),
        }
    }
}
