//! A node of an Erlang cluster with the processes of Procession.
//!
//! Programs that outgrow one machine, or that work with programs in Erlang or Elixir, talk by the
//! protocol that connects the nodes of the BEAM: its distribution. A [`Node`] of this crate is a
//! hidden node of such a cluster. Its neighbours are nodes of the BEAM, or others of this crate.
//! They reach the processes that are [attached](Node::attach) to it, by PID or by name, and these
//! reach theirs: with messages, calls, monitors, links and exit signals.
//!
//! ```
//! use std::net::Ipv4Addr;
//! use std::time::Duration;
//!
//! use procession::Context;
//! use procession_cluster::{Cookie, Letter, Node, Remote, Term};
//!
//! /// Counts the calls. For the other nodes, it is a `gen_server`.
//! async fn counter(mut cx: Context<Letter>) {
//!     let mut count = 0;
//!     while let Some(letter) = cx.recv().await {
//!         if let Letter::Call { reply, .. } = letter {
//!             count += 1;
//!             // A caller that is gone needs no reply.
//!             drop(reply.send(Term::from(count)));
//!         }
//!     }
//! }
//!
//! # type Error = Box<dyn std::error::Error + Send + Sync>;
//! # fn main() -> Result<(), Error> {
//! procession::run(async {
//!     let cookie = Cookie::random()?;
//!     let shop = Node::builder("shop@127.0.0.1")
//!         .cookie(cookie.clone())
//!         .listen((Ipv4Addr::LOCALHOST, 0).into())
//!         .start()
//!         .await?;
//!     let counter = procession::start(counter);
//!     let member = shop.attach(&counter.address().map(|letter| letter));
//!     shop.register("counter", &member)?;
//!
//!     let till = Node::builder("till@127.0.0.1").cookie(cookie).start().await?;
//!     let address = shop.local_addr().expect("it listens");
//!     till.connect_at("shop@127.0.0.1", address).await?;
//!     let counter = Remote::named("counter", "shop@127.0.0.1");
//!     let count = till.call(counter, Term::atom("next"), Duration::from_secs(5)).await?;
//!     assert_eq!(count, Term::from(1));
//!     Ok::<(), Error>(())
//! })?;
//! # Ok(())
//! # }
//! ```
//!
//! With [`register`](NodeBuilder::register), a shell of Elixir finds the node by its name, and
//! calls the same process: `GenServer.call({:counter, :"shop@127.0.0.1"}, :next)`.
//!
//! # What is promised
//!
//! - **Order**: messages and signals of one process to another arrive in the order in which they
//!   were sent.
//! - **At most once**: an accepted message arrives, or the connection ends. If the connection ends,
//!   each monitor and each link across it reports [`NoConnection`](procession::Exit) exactly once,
//!   after every message that did arrive. The last accepted messages may be lost then.
//! - **No waiting**: `send` never blocks and never connects. If the node is not connected, or the
//!   queue of its connection is full, the message returns to its sender. Therefore a node that
//!   stops reading costs its neighbours a queue and nothing more.
//! - **Fairness**: a message of more than 64 KiB goes in fragments, and messages of other senders
//!   pass between them. [`message_limit`](NodeBuilder::message_limit)
//!   is the longest message.
//!
//! # Groups and names
//!
//! [Groups](Node::share_groups) of processes have members on all nodes, those of the BEAM among
//! them. A [shared name](Node::share_names) belongs to one process, unless nodes are not connected.
//! An [exclusive name](exclusive) is held by one process at a time, by a lease. With the feature
//! `serde`, `shards` are processes that are found by a key, on the nodes that share the keys.
//!
//! # Permissions
//!
//! Without certificates, a connection is plain text, so a node only talks to its own machine.
//! Between machines, nodes speak TLS 1.3 and exchange [certificates](Tls), or [accept plain
//! text](NodeBuilder::accept_plain_text).
//!
//! Other nodes can send to attached processes and monitor them, or only to the processes in a
//! grant, if the node [permits no more](NodeBuilder::grants_only). Anything else needs a
//! [grant](Grants) for the node or its host: to link to processes and send them exit signals, to
//! start or to call what is [exported](Node::export), and to ask for the status. Before a node has
//! proved that it knows the cookie, it can make this one hold 2 KiB for 5 seconds, in at most 32
//! connections at a time, and with TLS the messages of one handshake besides.

#![cfg_attr(docsrs, feature(doc_cfg))]
#![forbid(unsafe_code)]

mod carrier;
mod chance;
mod connection;
mod cookie;
mod epmd;
mod error;
pub mod exclusive;
#[cfg(any(fuzzing, test))]
#[doc(hidden)]
pub mod fuzzing;
mod grants;
mod groups;
mod guarded;
mod handshake;
mod joining;
mod letter;
mod link;
mod names;
mod node;
mod outbound;
mod pulse;
mod reason;
mod release;
mod remote;
mod remotes;
#[cfg(feature = "serde")]
#[cfg_attr(docsrs, doc(cfg(feature = "serde")))]
pub mod serialize;
#[cfg(feature = "serde")]
#[cfg_attr(docsrs, doc(cfg(feature = "serde")))]
pub mod shards;
pub mod term;
mod tls;
mod wire;

pub use crate::cookie::Cookie;
pub use crate::error::{CallTermError, RegisterError, SendTermCause, SendTermError};
pub use crate::grants::{GrantError, Grants};
pub use crate::groups::{SharedGroups, group_name};
pub use crate::handshake::HandshakeError;
pub use crate::joining::builder::NodeBuilder;
pub use crate::joining::builder::StartError;
pub use crate::joining::connect::ConnectError;
pub use crate::joining::find::{Find, Found};
pub use crate::joining::ping::PingError;
pub use crate::letter::{Letter, RemoteDown, TermReply};
pub use crate::names::{ClaimError, SharedNames};
pub use crate::node::Node;
pub use crate::node::drain::NodeHold;
pub use crate::node::ended::EndedConnection;
pub use crate::node::functions::ApplyError;
pub use crate::node::member::Member;
pub use crate::node::names::WeakNode;
pub use crate::node::parts::{ExclusiveNameInfo, GroupInfo, NameInfo, ShardsInfo};
pub use crate::node::start::StartTermError;
pub use crate::node::status::{NodeStatus, PeerInfo, StatusError};
pub use crate::node::stop::Stopping;
pub use crate::remote::Remote;
pub use crate::term::{Atom, NodePid, Reference, Term};
pub use crate::tls::{Tls, TlsError};
