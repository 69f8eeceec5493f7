//! The state of a node, for people and for other nodes that may look.

use std::error::Error;
use std::fmt;
use std::sync::Weak;
use std::time::Duration;

use procession::observe::Inspection;
use procession::time::Instant;
use procession_sync::atomic::AtomicU64;
use procession_sync::atomic::Ordering::Relaxed;

use crate::error::{CallTermError, SendTermError};
use crate::link::Link;
use crate::node::Node;
use crate::node::ended::EndedConnection;
use crate::node::parts::{
    ExclusiveNameInfo, GroupInfo, LISTED_MAX, Lists, NameInfo, Part, SHARDS_LISTED_MAX, ShardsInfo,
};
use crate::outbound::Unqueued;
use crate::release::{PROTOCOL, UNSTATED, VERSION};
use crate::remote::Remote;
use crate::term::maps::{
    get_atom, get_list, get_number, get_text, map, number, optional, optional_text,
};
use crate::term::{Atom, Term};
use crate::wire::names::STATUS_NAME;

/// The reasons and causes that are read of another node. A node sends fewer.
const CAUSES_MAX: usize = 1024;
/// The ended connections that a view shows.
const SHOWN_MAX: usize = 8;

/// A connected node, as [`Node::peers`] returns it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PeerInfo {
    /// The name of the node.
    pub name: Atom,
    /// Its incarnation.
    pub creation: u32,
    /// The number of the connection to this node. Later connections have greater numbers.
    pub connection: u64,
    /// The version of the crate that the node runs. `None` if it is a node of the BEAM, or has not
    /// answered yet.
    pub release: Option<String>,
    /// The number of the messages that its release exchanges with nodes of this crate. Nodes of two
    /// successive releases understand each other. `None` if it is a node of the BEAM, or has not
    /// answered yet.
    pub protocol: Option<u16>,
    /// How long it has been connected.
    pub age: Duration,
    /// The bytes that wait to be sent.
    pub queued_bytes: usize,
    /// How long the oldest of these bytes have waited. `None` if there are none.
    pub oldest_wait: Option<Duration>,
    /// The messages that were sent.
    pub sent: u64,
    /// The messages that were received.
    pub received: u64,
    /// The messages that this node did not send because the queue of the connection was full. Each
    /// came back to its sender.
    pub refused: u64,
    /// The messages that this node did not send because the other node does not
    /// [permit](crate::Grants::send) it. Each returned to its sender.
    pub not_allowed: u64,
    /// The received messages for processes that do not exist or did not accept them.
    pub undelivered: u64,
    /// The operations of the other node that were refused because they are not allowed, messages
    /// included.
    pub denied: u64,
    /// The calls of this node that wait for a reply. Some callers may no longer wait, because the
    /// table is searched for abandoned calls only now and then.
    pub calls: usize,
    /// The bytes that were sent.
    pub bytes_sent: u64,
    /// The bytes that were received.
    pub bytes_received: u64,
    /// The time that the node took to answer when it was last asked whether it is there. `None` if
    /// it has not answered yet.
    pub round_trip: Option<Duration>,
    /// The messages that were sent and that the node has not confirmed to have received. It
    /// confirms them four times within the [patience](crate::NodeBuilder::patience). `None` if it
    /// is a node of the BEAM, which confirms none, or has not answered yet.
    pub unconfirmed: Option<u64>,
}

/// The state of a node, as [`Node::status`] and [`Node::status_of`] return it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct NodeStatus {
    /// The name of the node.
    pub name: Atom,
    /// Its incarnation.
    pub creation: u32,
    /// The version of the crate that the node runs. `None` if the version does not say so.
    pub release: Option<String>,
    /// The number of the messages that its release exchanges with nodes of this crate.
    pub protocol: u16,
    /// The number of its attached processes.
    pub attached: usize,
    /// The names of processes, including the names that [a function finds](Node::find_names_with).
    pub names: Vec<Atom>,
    /// The connected nodes, by name.
    pub peers: Vec<PeerInfo>,
    /// Why connections have ended, and how many for each reason. After the first 32 reasons, others
    /// are counted as `another reason`.
    pub ends: Vec<(String, u64)>,
    /// The latest 64 connections that have ended, the oldest first.
    pub ended: Vec<EndedConnection>,
    /// The messages that ended connections have lost, at most. If the other node confirms messages,
    /// all unconfirmed messages are counted, although some may have arrived. For a node of the
    /// BEAM, the messages that were not sent are counted.
    pub lost: u64,
    /// The handshakes that this node has refused, and how many for each cause: `cookie`, `insecure`
    /// (TLS), `plain_text` (another machine without TLS), `protocol`, `abilities`, `name`, `closed`
    /// (by the other side), `timed_out`, `displaced` (by a newer handshake), `release` (too old for
    /// this node), `process` (the scheduler has no room), and `accept` (the system has made no
    /// connection, as for a lack of descriptors).
    pub refusals: Vec<(String, u64)>,
    /// The [groups](Node::share_groups) that the node shares, at most 1024.
    pub groups: Vec<GroupInfo>,
    /// The [names that the node shares](Node::share_names) and that have an owner, at most 1024.
    pub shared_names: Vec<NameInfo>,
    /// The [exclusive names](crate::exclusive) that processes of the node hold or wait for, at most
    /// 1024.
    pub exclusive_names: Vec<ExclusiveNameInfo>,
    /// The shards of the node (module `shards`), at most 64.
    pub shards: Vec<ShardsInfo>,
}

/// The error of asking a node for its status.
#[derive(Debug)]
#[non_exhaustive]
pub enum StatusError {
    /// The node did not answer.
    Call(CallTermError),
    /// The node does not permit this one to [look](crate::Grants::look).
    Denied,
    /// The answer is not one of a node of this crate.
    Answer(Term),
}

impl fmt::Display for StatusError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Call(error) => write!(f, "the node has not answered: {error}"),
            Self::Denied => f.write_str("the node does not permit this one to look"),
            Self::Answer(term) => {
                write!(f, "the answer is no status: {}", crate::reason::bounded(term))
            }
        }
    }
}

impl Error for StatusError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Call(error) => Some(error),
            _ => None,
        }
    }
}

impl Node {
    /// Returns the state of this node.
    pub fn status(&self) -> NodeStatus {
        let attached = self.0.locals.lock().by_number.len();
        let names = self.names();
        let Self(inner) = self;
        let (name, creation) = (inner.own.name.clone(), inner.own.creation);
        let (ends, ended, lost) = {
            let peers = inner.peers.lock();
            (peers.ends(), peers.ended_connections(), peers.lost())
        };
        let (peers, refusals) = (self.peers(), inner.refusals.counts());
        let Lists { groups, shared_names, exclusive_names, shards } = self.lists();
        NodeStatus {
            name,
            creation,
            release: Some(VERSION.to_owned()),
            protocol: PROTOCOL,
            attached,
            names,
            peers,
            ends,
            ended,
            lost,
            refusals,
            groups,
            shared_names,
            exclusive_names,
            shards,
        }
    }

    /// Lists a part in the status of the node, as long as somebody keeps the part.
    pub(crate) fn add_part(&self, part: Weak<dyn Part>) {
        let mut parts = self.0.parts.lock();
        parts.retain(|part| part.strong_count() > 0);
        parts.push(part);
    }

    fn lists(&self) -> Lists {
        let parts: Vec<_> = self.0.parts.lock().iter().filter_map(Weak::upgrade).collect();
        let mut lists = Lists::default();
        for part in parts {
            part.list(&mut lists);
        }
        lists.groups.truncate(LISTED_MAX);
        lists.shared_names.truncate(LISTED_MAX);
        lists.exclusive_names.truncate(LISTED_MAX);
        lists.shards.truncate(SHARDS_LISTED_MAX);
        lists
    }

    /// Asks a connected node of this crate for its state.
    ///
    /// # Errors
    /// [`StatusError`]: there is no answer within `timeout`, the node is not connected, or it does
    /// not [permit](crate::Grants::look) this one to look.
    pub async fn status_of(
        &self,
        node: &str,
        timeout: Duration,
    ) -> Result<NodeStatus, StatusError> {
        let request = Term::atom("status");
        let Some(node) = Atom::new(node) else {
            let refused = SendTermError::new(request, Unqueued::Closed);
            return Err(StatusError::Call(CallTermError::Send(refused)));
        };
        let to = Remote::Name { name: Atom::known(STATUS_NAME), node };
        let answer = self.call(to, request, timeout).await;
        let answer = answer.map_err(StatusError::Call)?;
        match answer.as_tuple() {
            Some([word, reason]) if word.is_atom("error") && reason.is_atom("not_allowed") => {
                Err(StatusError::Denied)
            }
            Some([word, status]) if word.is_atom("ok") => {
                NodeStatus::from_term(status).ok_or(StatusError::Answer(answer))
            }
            _ => Err(StatusError::Answer(answer)),
        }
    }

    /// Answers another node that asks for the state of this one.
    pub(crate) fn answer_status(&self, request: &Term, is_permitted: bool) -> Term {
        let error = |why| Term::tuple([Term::atom("error"), Term::atom(why)]);
        match request.is_atom("status") {
            true if is_permitted => Term::tuple([Term::atom("ok"), self.status().to_term()]),
            true => error("not_allowed"),
            false => error("unknown"),
        }
    }

    /// Shows the state in the live views of the scheduler, as the state of the keeper.
    pub(crate) fn show(&self, out: &mut Inspection) {
        let NodeStatus {
            name,
            creation,
            release: _,
            protocol,
            attached,
            names,
            peers,
            ends,
            ended,
            lost,
            refusals,
            groups: _,
            shared_names: _,
            exclusive_names: _,
            shards: _,
        } = self.status();
        let listed = |atoms: &mut dyn Iterator<Item = &Atom>| {
            atoms.map(Atom::as_str).collect::<Vec<_>>().join(", ")
        };
        out.field("node", name).field("creation", creation).field("attached", attached);
        out.field("release", format_args!("{VERSION}, protocol {protocol}"));
        out.field("names", listed(&mut names.iter()));
        out.field("peers", listed(&mut peers.iter().map(|peer| &peer.name)));
        for (cause, count) in ends {
            out.field("ended", format_args!("{count}: {cause}"));
        }
        for EndedConnection { name, age, ago, why, .. } in ended.iter().rev().take(SHOWN_MAX) {
            out.field("ended", format_args!("{ago:?} ago, {name} after {age:?}: {why}"));
        }
        out.field("lost", lost);
        for (cause, count) in refusals {
            out.field("refused", format_args!("{count}: {cause}"));
        }
    }

    /// Returns the connected nodes, by name.
    pub fn peers(&self) -> Vec<PeerInfo> {
        let links: Vec<_> = {
            let peers = self.0.peers.lock();
            peers.links().cloned().collect()
        };
        let mut all: Vec<_> = links.iter().map(|link| link.info()).collect();
        all.sort_by(|a, b| a.name.cmp(&b.name));
        all
    }
}

impl Link {
    /// Shows the state in the live views of the scheduler, as the state of the connection's
    /// process.
    pub(crate) fn show(&self, out: &mut Inspection) {
        let info = self.info();
        let time = |time: Option<Duration>| match time {
            Some(time) => format!("{time:?}"),
            None => "none".to_owned(),
        };
        let unconfirmed = info.unconfirmed.map_or("unknown".to_owned(), |count| count.to_string());
        out.field("node", &info.name).field("connected for", time(Some(info.age)));
        if let Some(release) = &info.release {
            out.field("release", release);
        }
        if let Some(protocol) = info.protocol {
            out.field("protocol", protocol);
        }
        out.field("queued bytes", info.queued_bytes).field("oldest wait", time(info.oldest_wait));
        out.field("sent", info.sent).field("received", info.received);
        out.field("refused", info.refused).field("not allowed", info.not_allowed);
        out.field("denied", info.denied);
        out.field("undelivered", info.undelivered);
        out.field("bytes sent", info.bytes_sent).field("bytes received", info.bytes_received);
        out.field("round trip", time(info.round_trip)).field("unconfirmed", unconfirmed);
    }

    fn info(&self) -> PeerInfo {
        // Relaxed: the numbers are for people.
        let read = |counter: &AtomicU64| counter.load(Relaxed);
        PeerInfo {
            name: self.peer.name.clone(),
            creation: self.peer.creation,
            connection: self.number,
            release: self.release.get().map(|release| release.version.clone()),
            protocol: self.is_of_own_kind().then(|| self.protocol()),
            age: Instant::now().saturating_duration_since(self.since),
            queued_bytes: self.outbound.bytes(),
            oldest_wait: self.outbound.oldest_wait(),
            sent: self.outbound.accepted(),
            refused: self.outbound.refused(),
            not_allowed: read(&self.counts.not_allowed),
            received: read(&self.counts.received),
            undelivered: read(&self.counts.undelivered),
            denied: read(&self.counts.denied),
            calls: self.tables(|tables| tables.calls.len()).unwrap_or_default(),
            bytes_sent: read(&self.counts.bytes_sent),
            bytes_received: read(&self.counts.bytes_received),
            round_trip: self.round_trip(),
            unconfirmed: self.unconfirmed(),
        }
    }
}

fn cause_to_term((cause, count): &(String, u64)) -> Term {
    Term::tuple([Term::from(cause.as_str()), number(*count)])
}

fn cause_from_term(term: &Term) -> Option<(String, u64)> {
    let [cause, count] = term.as_tuple()? else { return None };
    Some((cause.to_text()?, count.as_integer()?.try_into().ok()?))
}

impl NodeStatus {
    fn to_term(&self) -> Term {
        map([
            ("name", self.name.clone().into()),
            ("creation", self.creation.into()),
            ("release", optional_text(self.release.as_deref())),
            ("protocol", number(self.protocol)),
            ("attached", number(self.attached)),
            ("names", Term::list(self.names.iter().cloned().map(Term::from))),
            ("peers", Term::list(self.peers.iter().map(PeerInfo::to_term))),
            ("ends", Term::list(self.ends.iter().map(cause_to_term))),
            ("ended", Term::list(self.ended.iter().map(EndedConnection::to_term))),
            ("lost", number(self.lost)),
            ("refusals", Term::list(self.refusals.iter().map(cause_to_term))),
            ("groups", Term::list(self.groups.iter().map(GroupInfo::to_term))),
            ("shared_names", Term::list(self.shared_names.iter().map(NameInfo::to_term))),
            ("exclusive_names", {
                Term::list(self.exclusive_names.iter().map(ExclusiveNameInfo::to_term))
            }),
            ("shards", Term::list(self.shards.iter().map(ShardsInfo::to_term))),
        ])
    }

    fn from_term(term: &Term) -> Option<Self> {
        let as_atom = |term: &Term| match term {
            Term::Atom(atom) => Some(atom.clone()),
            _ => None,
        };
        Some(Self {
            name: get_atom(term, "name")?,
            creation: get_number(term, "creation")?,
            release: get_text(term, "release"),
            protocol: get_number(term, "protocol").unwrap_or(UNSTATED),
            attached: get_number(term, "attached")?,
            // These take no more memory than their terms.
            names: get_list(term, "names", usize::MAX, as_atom)?,
            peers: get_list(term, "peers", usize::MAX, PeerInfo::from_term)?,
            ends: get_list(term, "ends", CAUSES_MAX, cause_from_term)?,
            ended: get_list(term, "ended", CAUSES_MAX, EndedConnection::from_term)
                .unwrap_or_default(),
            lost: get_number(term, "lost").unwrap_or_default(),
            refusals: get_list(term, "refusals", CAUSES_MAX, cause_from_term).unwrap_or_default(),
            groups: get_list(term, "groups", LISTED_MAX, GroupInfo::from_term).unwrap_or_default(),
            shared_names: get_list(term, "shared_names", LISTED_MAX, NameInfo::from_term)
                .unwrap_or_default(),
            exclusive_names: get_list(
                term,
                "exclusive_names",
                LISTED_MAX,
                ExclusiveNameInfo::from_term,
            )
            .unwrap_or_default(),
            shards: get_list(term, "shards", SHARDS_LISTED_MAX, ShardsInfo::from_term)
                .unwrap_or_default(),
        })
    }
}

impl PeerInfo {
    fn to_term(&self) -> Term {
        map([
            ("name", self.name.clone().into()),
            ("creation", self.creation.into()),
            ("connection", number(self.connection)),
            ("release", optional_text(self.release.as_deref())),
            ("protocol", optional(self.protocol)),
            ("age_us", number(self.age.as_micros())),
            ("queued_bytes", number(self.queued_bytes)),
            ("oldest_wait_us", optional(self.oldest_wait.map(|time| time.as_micros()))),
            ("sent", number(self.sent)),
            ("refused", number(self.refused)),
            ("not_allowed", number(self.not_allowed)),
            ("received", number(self.received)),
            ("undelivered", number(self.undelivered)),
            ("denied", number(self.denied)),
            ("calls", number(self.calls)),
            ("bytes_sent", number(self.bytes_sent)),
            ("bytes_received", number(self.bytes_received)),
            ("round_trip_us", optional(self.round_trip.map(|time| time.as_micros()))),
            ("unconfirmed", optional(self.unconfirmed)),
        ])
    }

    fn from_term(term: &Term) -> Option<Self> {
        let micros = |key| get_number(term, key).map(Duration::from_micros);
        Some(Self {
            name: get_atom(term, "name")?,
            creation: get_number(term, "creation")?,
            connection: get_number(term, "connection")?,
            release: get_text(term, "release"),
            protocol: get_number(term, "protocol"),
            age: micros("age_us")?,
            queued_bytes: get_number(term, "queued_bytes")?,
            oldest_wait: micros("oldest_wait_us"),
            sent: get_number(term, "sent")?,
            refused: get_number(term, "refused")?,
            not_allowed: get_number(term, "not_allowed").unwrap_or_default(),
            received: get_number(term, "received")?,
            undelivered: get_number(term, "undelivered")?,
            denied: get_number(term, "denied")?,
            calls: get_number(term, "calls").unwrap_or_default(),
            bytes_sent: get_number(term, "bytes_sent")?,
            bytes_received: get_number(term, "bytes_received")?,
            round_trip: micros("round_trip_us"),
            unconfirmed: get_number(term, "unconfirmed"),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{
        EndedConnection, ExclusiveNameInfo, GroupInfo, NameInfo, NodeStatus, PeerInfo, ShardsInfo,
    };
    use crate::release::corpus;
    use crate::term::{Atom, NodePid};

    /// A status with another number in each place.
    fn status(first: u64) -> NodeStatus {
        let mut last = first;
        let mut next = || {
            last += 1;
            last
        };
        let peer = PeerInfo {
            name: Atom::known("b@127.0.0.1"),
            creation: next() as u32,
            connection: next(),
            release: Some("0.1.0".to_owned()),
            protocol: Some(next() as u16),
            age: Duration::from_micros(next()),
            queued_bytes: next() as usize,
            oldest_wait: Some(Duration::from_micros(next())),
            sent: next(),
            received: next(),
            refused: next(),
            not_allowed: next(),
            undelivered: next(),
            denied: next(),
            calls: next() as usize,
            bytes_sent: next(),
            bytes_received: next(),
            round_trip: Some(Duration::from_micros(next())),
            unconfirmed: Some(next()),
        };
        let node = Atom::known("d@127.0.0.1");
        let pid = NodePid { node, id: next() as u32, serial: 1, creation: next() as u32 };
        NodeStatus {
            name: Atom::known("a@127.0.0.1"),
            creation: next() as u32,
            release: Some("0.2.0".to_owned()),
            protocol: next() as u16,
            attached: next() as usize,
            names: vec![Atom::known("sink")],
            peers: vec![peer],
            ends: vec![("closed".to_owned(), next())],
            ended: vec![EndedConnection {
                name: Atom::known("c@127.0.0.1"),
                connection: next(),
                age: Duration::from_micros(next()),
                ago: Duration::from_micros(next()),
                why: "closed".to_owned(),
                unconfirmed: Some(next()),
            }],
            lost: next(),
            refusals: vec![("cookie".to_owned(), next())],
            groups: vec![GroupInfo {
                scope: "pg".to_owned(),
                name: "lobby".to_owned(),
                members: next() as usize,
                local: next() as usize,
            }],
            shared_names: vec![NameInfo {
                scope: "names".to_owned(),
                name: "counter".to_owned(),
                owner: pid.clone(),
            }],
            exclusive_names: vec![ExclusiveNameInfo {
                name: "bills".to_owned(),
                pid,
                fence: Some(next()),
                is_singleton: first == 0,
            }],
            shards: vec![ShardsInfo {
                name: "accounts".to_owned(),
                keys: next(),
                waiting: next() as usize,
                moves: next(),
                homes: vec![(Atom::known("a@127.0.0.1"), vec![next() as u32, next() as u32])],
            }],
        }
    }

    #[test]
    fn another_node_reads_each_number_in_its_place() {
        let mut all = [status(0), status(100)];
        all[1].release = None;
        all[1].peers[0].release = None;
        all[1].peers[0].protocol = None;
        all[1].peers[0].oldest_wait = None;
        all[1].peers[0].round_trip = None;
        all[1].peers[0].unconfirmed = None;
        all[1].exclusive_names[0].fence = None;
        for status in all {
            assert_eq!(NodeStatus::from_term(&status.to_term()), Some(status));
        }
    }

    #[test]
    fn a_status_is_that_of_the_protocol() {
        let reads = |word| NodeStatus::from_term(&word).is_some();
        corpus::check("status", &[status(0).to_term()], reads);
    }
}
