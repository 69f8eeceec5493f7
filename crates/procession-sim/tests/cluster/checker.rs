//! The history of a run, and the promises that it must keep.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use procession_cluster::{Letter, Reference, Term};
use procession_sim::Sim;
use procession_sync::Mutex;

/// A defect that is planted between a node and the process that receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Defect {
    DropOne,
    DoubleOne,
    DeliverAfterDown,
    DoubleDown,
    DropDown,
}

/// A node, by the number of its host and how often that was started before.
pub(crate) type Incarnation = (i64, i64);

/// A connection, as its sender counts: the sender, the host of the receiver, and the number.
pub(crate) type Connection = (Incarnation, i64, i64);

/// Laws that were broken.
pub(crate) type Broken = Arc<Mutex<BTreeSet<String>>>;

#[derive(Debug, Default)]
struct Sent {
    accepted: i64,
    delivered: i64,
    /// The node that received the first of them. An older one of the same host may end later.
    receiver: Option<Incarnation>,
    is_over: bool,
}

/// What has happened so far.
#[derive(Debug, Default)]
pub(crate) struct History {
    connections: BTreeMap<Connection, Sent>,
    /// The monitors of a node that have not told an end, and those that have.
    waiting: BTreeSet<(Incarnation, Reference)>,
    told: BTreeSet<(Incarnation, Reference)>,
    planted: Option<Defect>,
    /// With a planted defect, the laws that were broken. Without one, a broken law fails the run.
    broken: Option<Broken>,
    held: Option<(Incarnation, Connection, i64)>,
}

/// Makes the term of a message.
pub(crate) fn message((from, to, number): Connection, n: i64) -> Term {
    Term::tuple([from.0, from.1, to, number, n].map(Term::from))
}

fn parse(term: &Term) -> Option<(Connection, i64)> {
    let items: Vec<_> = term.as_tuple()?.iter().filter_map(Term::as_integer).collect();
    let [host, start, to, number, n] = *items else { return None };
    Some((((host, start), to, number), n))
}

impl History {
    pub(crate) fn new(planted: Option<(Defect, Broken)>) -> Self {
        let (planted, broken) = planted.unzip();
        Self { planted, broken, ..Self::default() }
    }

    pub(crate) fn law(&self, sim: &Sim, law: &str, holds: bool) {
        match &self.broken {
            None => sim.always(law, holds),
            Some(broken) if !holds => {
                broken.lock().insert(law.to_owned());
            }
            Some(_) => {}
        }
    }

    fn sometimes(&self, sim: &Sim, event: &str, happens: bool) {
        if self.broken.is_none() {
            sim.sometimes(event, happens);
        }
    }

    /// Returns the number of the next message of a connection.
    pub(crate) fn next(&self, connection: Connection) -> i64 {
        self.connections.get(&connection).map_or(0, |sent| sent.accepted)
    }

    pub(crate) fn accepted(&mut self, connection: Connection) {
        self.connections.entry(connection).or_default().accepted += 1;
    }

    pub(crate) fn monitored(&mut self, own: Incarnation, monitor: Reference) {
        // The end may have been told before.
        if !self.told.contains(&(own, monitor.clone())) {
            self.waiting.insert((own, monitor));
        }
    }

    /// Forgets the monitors of a node that was crashed: it is not there to be told.
    pub(crate) fn crashed(&mut self, host: i64) {
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

    fn is_planted(&mut self, defect: Defect, now: bool) -> bool {
        let is = now && self.planted == Some(defect);
        if is {
            self.planted = None;
        }
        is
    }

    /// Takes what a node gives to its process, at the moment at which it does. `is_connected` says
    /// whether the node has a connection to a host.
    pub(crate) fn letter(
        &mut self,
        sim: &Sim,
        own: Incarnation,
        letter: &Letter,
        is_connected: impl Fn(i64) -> bool,
    ) {
        match letter {
            Letter::Message { term, .. } => {
                let Some((connection, n)) = parse(term) else { panic!("{term} came") };
                self.message(sim, own, connection, n);
            }
            Letter::Down(down) => {
                if self.is_planted(Defect::DropDown, true) {
                    return;
                }
                let monitor = (own, down.monitor.clone());
                self.down(sim, monitor.clone());
                if self.is_planted(Defect::DoubleDown, true) {
                    self.down(sim, monitor);
                }
            }
            Letter::NodeDown { node, connection, unconfirmed, .. } => {
                let host = host_of(node.as_str());
                self.sometimes(sim, "a node is told of an end", true);
                let number = i64::try_from(*connection).expect("it is small");
                self.node_down(sim, (own, host, number), *unconfirmed);
                if !is_connected(host) {
                    self.closed(sim, own, host);
                }
            }
            _ => {}
        }
    }

    fn message(&mut self, sim: &Sim, own: Incarnation, connection: Connection, n: i64) {
        if self.is_planted(Defect::DropOne, n == 2) {
            return;
        }
        if self.is_planted(Defect::DeliverAfterDown, n == 3) {
            self.held = Some((own, connection, n));
        } else if self.held.is_none_or(|(_, held, _)| held != connection) {
            self.deliver(sim, own, connection, n);
            if self.is_planted(Defect::DoubleOne, n == 2) {
                self.deliver(sim, own, connection, n);
            }
        }
    }

    fn deliver(&mut self, sim: &Sim, own: Incarnation, connection: Connection, n: i64) {
        let sent = self.connections.entry(connection).or_default();
        let (is_over, is_next) = (sent.is_over, sent.delivered == n);
        let was_accepted = n < sent.accepted;
        sent.delivered += 1;
        sent.receiver.get_or_insert(own);
        self.law(sim, "nothing of a connection comes after its end", !is_over);
        self.law(sim, "messages come in order, and without a gap", is_next);
        self.law(sim, "what comes was accepted", was_accepted);
        self.law(sim, "a message comes where it was sent", connection.1 == own.0);
    }

    fn down(&mut self, sim: &Sim, monitor: (Incarnation, Reference)) {
        self.waiting.remove(&monitor);
        let is_first = self.told.insert(monitor);
        self.law(sim, "a monitor tells one end", is_first);
    }

    /// The sender is told that its connection has ended.
    fn node_down(&self, sim: &Sim, connection: Connection, unconfirmed: Option<u64>) {
        let Some(sent) = self.connections.get(&connection) else { return };
        let lost = sent.accepted - sent.delivered;
        self.sometimes(sim, "a message is lost with its connection", lost > 0);
        let Some(unconfirmed) = unconfirmed else { return };
        let unconfirmed = i64::try_from(unconfirmed).expect("it is small");
        let confirmed = sent.accepted - unconfirmed;
        self.sometimes(sim, "messages of an ended connection were confirmed", confirmed > 0);
        self.law(
            sim,
            "at most the accepted are confirmed",
            (0..=sent.accepted).contains(&confirmed),
        );
        self.law(sim, "what is confirmed has come", confirmed <= sent.delivered);
    }

    /// A node was told of the end of its last connection to a host: what came from there until now
    /// was by connections that have ended.
    fn closed(&mut self, sim: &Sim, own: Incarnation, host: i64) {
        for ((from, ..), sent) in &mut self.connections {
            sent.is_over |= from.0 == host && sent.receiver == Some(own);
        }
        if let Some((_, connection, n)) =
            self.held.take_if(|(held, from, _)| *held == own && from.0.0 == host)
        {
            self.deliver(sim, own, connection, n);
        }
    }
}

/// Returns the number of the host in the name of a node.
pub(crate) fn host_of(node: &str) -> i64 {
    let digits = node.rsplit_once('n').map(|(_, digits)| digits);
    digits.and_then(|digits| digits.parse().ok()).expect("it is p@n and a number")
}
