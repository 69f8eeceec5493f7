//! The history of a run, and the promises that it must keep.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use procession_cluster::{Letter, Reference, Term};
use procession_sim::Sim;
use procession_sync::Mutex;

/// The longest part of a message.
pub(crate) const FRAGMENT_LEN: usize = 64 << 10;

/// A defect that is planted between a node and the process that receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Defect {
    DropOne,
    DoubleOne,
    DeliverAfterDown,
    DoubleDown,
    DropDown,
    /// The last messages of a connection that lasts are lost.
    LoseLast,
    /// A message is refused, and the node hides the refusal.
    HideRefusal,
    /// The node hides the end of a connection.
    HideEnd,
    /// The node reports the end of a connection later than it may.
    TellLate,
    /// A message waits for that to another node.
    HoldUp,
    DropExit,
    DoubleExit,
    /// A process is started twice for one request.
    StartTwice,
    /// A message to a PID arrives at another process.
    OtherProcess,
    WrongReason,
    /// The node reports a connection that lasts as the reason of an end.
    FalseNoConnection,
    /// A node does not learn that a process has joined a group, or has left it.
    LoseJoin,
    LoseLeave,
    /// An event of a group is not told.
    HideEvent,
    /// A node learns of a claim of a name that no other node knows.
    FalseClaim,
    /// The owner of a name is told that it has lost the name.
    TellOwner,
    /// A process is not told that it has lost its name, or twice.
    HideLoss,
    TellLossTwice,
    /// The process of a key returns no state.
    LoseState,
    /// A store gives a name to a process while another one has it.
    GiveTwice,
    /// A store gives a fence that it has given before.
    OldFence,
    /// A store says that it has renewed a lease, and has not.
    RenewNothing,
}

/// A node, by the number of its host and how often that was started before.
pub(crate) type Incarnation = (i64, i64);

/// A connection, as its sender counts: the sender, the host of the receiver, and the number.
pub(crate) type Connection = (Incarnation, i64, i64);

/// Laws that were broken.
pub(crate) type Broken = Arc<Mutex<BTreeSet<String>>>;

#[derive(Debug, Default)]
struct Sent {
    tried: i64,
    /// What came back to the sender.
    refused: i64,
    accepted: i64,
    delivered: i64,
    /// The sender was told that the connection has ended, or has ended itself.
    is_told: bool,
    /// The node that received the first message. An older node of the same host may end later.
    receiver: Option<Incarnation>,
    is_over: bool,
}

/// The laws of a run, and the defect that is planted in it.
#[derive(Debug)]
pub(crate) struct Laws {
    sim: Sim,
    planted: Option<Defect>,
    /// With a planted defect, the laws that were broken. Without one, a broken law fails the run.
    broken: Option<Broken>,
}

/// A defect, and where the laws that it breaks are noted.
pub(crate) type Planted = Option<(Defect, Broken)>;

impl Laws {
    pub(crate) fn new(sim: &Sim, planted: Planted) -> Self {
        let (planted, broken) = planted.unzip();
        Self { sim: sim.clone(), planted, broken }
    }

    pub(crate) fn law(&self, law: &str, holds: bool) {
        match &self.broken {
            None => self.sim.always(law, holds),
            Some(broken) if !holds => {
                broken.lock().insert(law.to_owned());
            }
            Some(_) => {}
        }
    }

    pub(crate) fn sometimes(&self, event: &str, happens: bool) {
        if self.broken.is_none() {
            self.sim.sometimes(event, happens);
        }
    }

    /// Returns `true` once, if this defect is planted.
    pub(crate) fn is_planted(&mut self, defect: Defect, now: bool) -> bool {
        let is = now && self.planted == Some(defect);
        if is {
            self.planted = None;
        }
        is
    }
}

/// What has happened so far.
#[derive(Debug)]
pub(crate) struct History {
    laws: Laws,
    connections: BTreeMap<Connection, Sent>,
    /// The monitors of a node that have not reported an end, and the monitors that have.
    waiting: BTreeSet<(Incarnation, Reference)>,
    told: BTreeSet<(Incarnation, Reference)>,
    held: Option<(Incarnation, Connection, i64)>,
    /// The connection that delivers nothing more, by a planted defect.
    lost: Option<Connection>,
    /// Nothing is disturbed any more.
    is_calm: bool,
}

/// Makes the term of a message, with so many bytes behind its numbers.
pub(crate) fn message((from, to, number): Connection, n: i64, length: usize) -> Term {
    let numbers = [from.0, from.1, to, number, n].map(Term::from);
    let bytes = Term::Binary(vec![n as u8; length].into());
    Term::tuple(numbers.into_iter().chain([bytes]))
}

/// Returns the numbers of a message, and the length of its bytes.
fn parse(term: &Term) -> Option<(Connection, i64, usize)> {
    let (bytes, numbers) = term.as_tuple()?.split_last()?;
    let numbers: Vec<_> = numbers.iter().filter_map(Term::as_integer).collect();
    let [host, start, to, number, n] = *numbers else { return None };
    let bytes = bytes.as_bytes()?;
    let is_whole = bytes.iter().all(|&byte| byte == n as u8);
    is_whole.then_some((((host, start), to, number), n, bytes.len()))
}

impl History {
    pub(crate) fn new(laws: Laws) -> Self {
        Self {
            laws,
            connections: BTreeMap::new(),
            waiting: BTreeSet::new(),
            told: BTreeSet::new(),
            held: None,
            lost: None,
            is_calm: false,
        }
    }

    pub(crate) fn law(&self, law: &str, holds: bool) {
        self.laws.law(law, holds);
    }

    /// Returns the number of the next message of a connection.
    pub(crate) fn next(&self, connection: Connection) -> i64 {
        self.connections.get(&connection).map_or(0, |sent| sent.accepted)
    }

    /// Notes that a message was sent, and whether it was accepted or came back.
    pub(crate) fn sent(&mut self, connection: Connection, is_accepted: bool) {
        let hides = self.laws.is_planted(Defect::HideRefusal, !is_accepted);
        let sent = self.connections.entry(connection).or_default();
        sent.tried += 1;
        if is_accepted {
            sent.accepted += 1;
        } else if !hides {
            sent.refused += 1;
        }
    }

    pub(crate) fn calm(&mut self) {
        self.is_calm = true;
    }

    /// Checks that each message was delivered, came back to its sender, or was lost with a
    /// connection of which the end was told. `lasting` are the connections that have not ended.
    pub(crate) fn balance(&self, lasting: &BTreeSet<Connection>) {
        let (mut tried, mut ended_well) = (0, 0);
        for (connection, sent) in &self.connections {
            tried += sent.tried;
            let lost = if sent.is_told { sent.accepted - sent.delivered } else { 0 };
            ended_well += sent.delivered + sent.refused + lost;
            // No connection has the number 0.
            let is_known = sent.is_told || connection.2 == 0 || lasting.contains(connection);
            self.law("each end of a connection is told", is_known);
        }
        self.law("what was sent was delivered, came back, or is told as lost", tried == ended_well);
    }

    /// Checks what two nodes have counted on a connection that lasts: the sender counts the
    /// messages that it has sent and that were returned, and the receiver counts the messages that
    /// have arrived.
    pub(crate) fn counted(&self, connection: Connection, sent: u64, refused: u64, received: u64) {
        let Some(own) = self.connections.get(&connection) else { return };
        let counted = [sent, refused, received].map(|count| i64::try_from(count).expect("small"));
        let is_same = counted == [own.accepted, own.refused, own.delivered];
        self.law("the nodes count what was sent and what has come", is_same);
    }

    pub(crate) fn monitored(&mut self, own: Incarnation, monitor: Reference) {
        // The end may have been told before.
        if !self.told.contains(&(own, monitor.clone())) {
            self.waiting.insert((own, monitor));
        }
    }

    /// Forgets the monitors of a node that was crashed: it is not there to be told.
    pub(crate) fn crashed(&mut self, host: i64) {
        for ((from, ..), sent) in &mut self.connections {
            sent.is_told |= from.0 == host;
        }
        self.waiting.retain(|(own, _)| own.0 != host);
    }

    pub(crate) fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Returns `true` if all that was accepted for these connections has come.
    pub(crate) fn is_complete(&self, connections: &[Connection]) -> bool {
        connections
            .iter()
            .filter_map(|it| self.connections.get(it))
            .all(|sent| sent.accepted == sent.delivered)
    }

    /// Takes what a node delivers to its process, at the moment of the delivery. `is_connected`
    /// says whether the node has a connection to a host.
    pub(crate) fn letter(
        &mut self,
        own: Incarnation,
        letter: &Letter,
        is_connected: impl Fn(i64) -> bool,
    ) {
        match letter {
            Letter::Message { term, .. } => {
                let Some((connection, n, length)) = parse(term) else { panic!("{term} came") };
                if length >= FRAGMENT_LEN {
                    self.laws.sometimes("a message comes in parts", true);
                }
                self.message(own, connection, n);
            }
            Letter::Down(down) => {
                if self.laws.is_planted(Defect::DropDown, true) {
                    return;
                }
                let monitor = (own, down.monitor.clone());
                self.down(monitor.clone());
                if self.laws.is_planted(Defect::DoubleDown, true) {
                    self.down(monitor);
                }
            }
            Letter::NodeDown { node, connection, unconfirmed, .. } => {
                if self.laws.is_planted(Defect::HideEnd, self.is_calm) {
                    return;
                }
                let host = host_of(node.as_str());
                self.laws.sometimes("a node is told of an end", true);
                let number = i64::try_from(*connection).expect("it is small");
                self.node_down((own, host, number), *unconfirmed);
                if !is_connected(host) {
                    self.closed(own, host);
                }
            }
            _ => {}
        }
    }

    fn message(&mut self, own: Incarnation, connection: Connection, n: i64) {
        if self.laws.is_planted(Defect::LoseLast, self.is_calm) {
            self.lost = Some(connection);
        }
        if self.laws.is_planted(Defect::DropOne, n == 2) || self.lost == Some(connection) {
            return;
        }
        if self.laws.is_planted(Defect::DeliverAfterDown, n == 3) {
            self.held = Some((own, connection, n));
        } else if self.held.is_none_or(|(_, held, _)| held != connection) {
            self.deliver(own, connection, n);
            if self.laws.is_planted(Defect::DoubleOne, n == 2) {
                self.deliver(own, connection, n);
            }
        }
    }

    fn deliver(&mut self, own: Incarnation, connection: Connection, n: i64) {
        let sent = self.connections.entry(connection).or_default();
        let (is_over, is_next) = (sent.is_over, sent.delivered == n);
        let was_accepted = n < sent.accepted;
        sent.delivered += 1;
        sent.receiver.get_or_insert(own);
        self.law("nothing of a connection comes after its end", !is_over);
        self.law("messages come in order, and without a gap", is_next);
        self.law("what comes was accepted", was_accepted);
        self.law("a message comes where it was sent", connection.1 == own.0);
    }

    fn down(&mut self, monitor: (Incarnation, Reference)) {
        self.waiting.remove(&monitor);
        let is_first = self.told.insert(monitor);
        self.law("a monitor tells one end", is_first);
    }

    /// The sender learns that its connection has ended.
    fn node_down(&mut self, connection: Connection, unconfirmed: Option<u64>) {
        let Some(sent) = self.connections.get_mut(&connection) else { return };
        sent.is_told = true;
        let (accepted, delivered) = (sent.accepted, sent.delivered);
        let lost = accepted - delivered;
        self.laws.sometimes("a message is lost with its connection", lost > 0);
        let Some(unconfirmed) = unconfirmed else { return };
        let unconfirmed = i64::try_from(unconfirmed).expect("it is small");
        let confirmed = accepted - unconfirmed;
        self.laws.sometimes("messages of an ended connection were confirmed", confirmed > 0);
        self.law("at most the accepted are confirmed", (0..=accepted).contains(&confirmed));
        self.law("what is confirmed has come", confirmed <= delivered);
    }

    /// A node was told of the end of its last connection to a host: what came from there until now
    /// was by connections that have ended.
    fn closed(&mut self, own: Incarnation, host: i64) {
        for ((from, ..), sent) in &mut self.connections {
            sent.is_over |= from.0 == host && sent.receiver == Some(own);
        }
        if let Some((_, connection, n)) =
            self.held.take_if(|(held, from, _)| *held == own && from.0.0 == host)
        {
            self.deliver(own, connection, n);
        }
    }
}

/// Returns the number of the host in the name of a node.
pub(crate) fn host_of(node: &str) -> i64 {
    let digits = node.rsplit_once('n').map(|(_, digits)| digits);
    digits.and_then(|digits| digits.parse().ok()).expect("it is p@n and a number")
}
