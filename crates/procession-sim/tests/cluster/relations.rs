//! A cluster of processes that start, link and monitor processes of other nodes, and send their
//! PIDs.

use std::collections::HashSet;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use procession::mailbox::Event;
use procession::process::{link, send_exit, unlink};
use procession::{Context, Exit, sleep, timeout};
use procession_cluster::{
    Letter, Member, Node, NodePid, Remote, SendTermCause, StartTermError, Term,
};
use procession_sim::Sim;
use procession_sync::Mutex;
use procession_sync::atomic::Ordering::Relaxed;

use crate::checker::{Incarnation, Planted};
use crate::ledger::{Ended, Relation};
use crate::program::{Traffic, World, dial, disturbed, name, stop, within};

/// Longer than a silent connection lasts.
const ANSWER: Duration = Duration::from_secs(60);
/// Longer than all leaps of the clock: a start that has no answer waits until its connection ends,
/// and a user that waits for more has no last echo.
const START: Duration = Duration::from_secs(7 * 24 * 3600);

/// The users that have had their last echoes.
type Done = Arc<Mutex<HashSet<(Incarnation, i64)>>>;

/// Notes the end of a process, even if a signal ends it.
struct Ends {
    world: Arc<World>,
    id: i64,
    how: Ended,
}

impl Drop for Ends {
    fn drop(&mut self) {
        self.world.ledger.lock().ends(self.id, self.how.take());
    }
}

/// A process that another node starts. It ends when a message asks it to.
async fn work(world: Arc<World>, mut cx: Context<Letter>, arguments: Vec<Term>) -> Exit {
    let id = arguments[0].as_integer().expect("it is a number");
    world.ledger.lock().begins(id);
    let mut ends = Ends { world, id, how: None };
    while let Some(letter) = cx.recv().await {
        if matches!(&letter, Letter::Message { term, .. } if term.is_atom("stop")) {
            let exit = Exit::failed(format!("stop {id}"));
            ends.how = Some(exit.clone());
            return exit;
        }
    }
    Exit::Normal
}

/// The program of a host.
async fn serve(world: Arc<World>, host: i64, done: Done) {
    let (node, own) = world.start_node(host).await;
    let works = Arc::clone(&world);
    node.export("work", "wait", 1, move |cx, arguments| work(Arc::clone(&works), cx, arguments));
    let sink = {
        let node = node.clone();
        procession::start(move |cx: Context<Letter>| echo(cx, node))
    };
    // This subscriber takes long to handle the end of a connection, before other subscribers hear
    // of it.
    let sim = world.sim.clone();
    let member = node.attach(&sink.address().map(move |letter| {
        if matches!(&letter, Letter::Down(down) if down.exit == Exit::NoConnection) {
            sim.block(Duration::from_millis(sim.choose(0..200)));
        }
        letter
    }));
    node.register("sink", &member).expect("the name is free");
    while world.places.lock().is_empty() {
        sleep(Duration::from_millis(1)).await;
    }
    let places = world.places.lock().clone();
    for (to, place) in (0..).zip(places).filter(|(to, _)| *to != host) {
        let (world, done, sink) = (Arc::clone(&world), Arc::clone(&done), member.clone());
        let user =
            move |cx| async move { User::new(world, sink, own, to, cx).run(place, &done).await };
        procession::start(user).detach();
    }
    std::future::pending::<()>().await;
}

/// Sends what it is asked for to the PID in the question, or lets a third node do that.
async fn echo(mut cx: Context<Letter>, node: Node) {
    let own = node.attach(&cx.address().map(|letter| letter));
    while let Some(letter) = cx.recv().await {
        let Letter::Message { term, .. } = letter else { continue };
        let Some([_, to, number, by]) = term.as_tuple() else { panic!("{term} came") };
        let by = by.as_integer().expect("it is a number");
        // Ignored: a node that is not connected gets nothing.
        drop(if by < 0 {
            let echo = Term::tuple([Term::atom("echo"), number.clone()]);
            own.send(to.as_pid().expect("it is a PID"), echo)
        } else {
            let ask = [Term::atom("ask"), to.clone(), number.clone(), Term::from(-1)];
            own.send(Remote::named("sink", &name(by)), Term::tuple(ask))
        });
    }
}

/// A process that has relations with processes of one other node.
struct User {
    world: Arc<World>,
    member: Member,
    /// The process of the node that is slow to hear of ends.
    sink: Member,
    own: Incarnation,
    to: i64,
    cx: Context<Letter>,
    /// The processes of the other node that it knows, and what has started them.
    known: Vec<(NodePid, i64)>,
    has_linked: HashSet<NodePid>,
    /// The links that were lost with their connection.
    lost: Vec<(NodePid, i64)>,
    asked: HashSet<i64>,
    /// It has taken all that came before its mark.
    is_marked: bool,
}

impl User {
    fn new(
        world: Arc<World>,
        sink: Member,
        own: Incarnation,
        to: i64,
        mut cx: Context<Letter>,
    ) -> Self {
        cx.trap_exits(true);
        let member = sink.node().attach(&cx.address().map(|letter| letter));
        let (known, has_linked, lost, asked) = Default::default();
        Self { world, member, sink, own, to, cx, known, has_linked, lost, asked, is_marked: true }
    }

    fn node(&self) -> &Node {
        self.member.node()
    }

    /// Returns the number of the connection to the incarnation of a process.
    fn connection(&self, creation: Option<u32>) -> Option<u64> {
        let name = name(self.to);
        let peers = self.node().peers();
        let is_it = |creation_of| creation.is_none_or(|creation| creation == creation_of);
        let peer = peers.iter().find(|peer| peer.name.as_str() == name && is_it(peer.creation))?;
        Some(peer.connection)
    }

    async fn run(mut self, place: IpAddr, done: &Done) {
        // Relaxed: only one thread of a simulation runs at a time.
        while !self.world.is_over.load(Relaxed) {
            if self.connection(None).is_none() {
                let node = self.node().clone();
                dial(&self.world, &node, self.to, place).await;
                self.link_again();
            } else if !self.world.is_quiet() {
                self.act().await;
            } else if !done.lock().contains(&(self.own, self.to)) {
                self.asked.clear();
                self.ask(-1);
                let all = timeout(ANSWER, async {
                    while !self.asked.is_empty() {
                        self.event().await;
                    }
                });
                let has_come = all.await.is_ok();
                self.world.ledger.lock().law("on a whole cluster, each echo comes", has_come);
                done.lock().insert((self.own, self.to));
            }
            self.events().await;
        }
        loop {
            self.event().await;
        }
    }

    /// Makes the links again that a connection has ended, maybe while the other node still ends it.
    fn link_again(&mut self) {
        if self.connection(None).is_some() {
            self.sink.monitor(Remote::named("sink", &name(self.to)));
            for (far, id) in std::mem::take(&mut self.lost) {
                self.link(&far, id);
            }
        }
    }

    /// Takes what arrives in some time, or until a link is lost.
    async fn events(&mut self) {
        let time = Duration::from_millis(self.world.sim.choose(1..400));
        let lost = self.lost.len();
        let takes = async {
            while self.lost.len() == lost {
                self.event().await;
            }
        };
        // Ignored: the time is over then.
        let _ = timeout(time, takes).await;
    }

    async fn event(&mut self) {
        let event = self.cx.recv_event().await;
        let mut ledger = self.world.ledger.lock();
        match event {
            Some(Event::Message(Letter::Message { term, .. })) if term.is_atom("mark") => {
                self.is_marked = true;
            }
            Some(Event::Message(Letter::Message { term, .. })) => {
                let Some([_, number]) = term.as_tuple() else { panic!("{term} came") };
                ledger.echoed(&mut self.asked, number.as_integer().expect("it is a number"));
            }
            Some(Event::Down(down)) => {
                let creation = self.member.node().node_pid(down.pid).map(|pid| pid.creation);
                let current = self.connection(creation);
                ledger.down(self.own, down.monitor, down.exit, current);
            }
            Some(Event::Exit(signal)) => {
                let from = signal.from.expect("it is of a process");
                let far = self.member.node().node_pid(from);
                let current = self.connection(far.as_ref().map(|far| far.creation));
                let link = (self.own, self.cx.pid(), from);
                let relation = ledger.exit(link, signal.exit.clone(), current);
                if signal.exit == Exit::NoConnection
                    && let Some(far) = far
                {
                    self.has_linked.remove(&far);
                    self.lost.extend(relation.map(|what| (far, what.id)));
                }
            }
            other => panic!("{other:?} came"),
        }
    }

    /// Does something with the other node.
    async fn act(&mut self) {
        let sim = self.world.sim.clone();
        let hosts = self.world.places.lock().len() as u64;
        let known = match self.known.len() as u64 {
            0 => None,
            count => self.known.get(sim.choose(0..count) as usize).cloned(),
        };
        match (sim.choose(0..8), known) {
            (0, _) => self.start(true).await,
            (1, _) => self.start(false).await,
            (2, Some((far, id))) => self.monitor(&far, id),
            // Ignored: it may be of an incarnation that is gone.
            (3, Some((far, _))) => drop(self.member.send(far, Term::atom("stop"))),
            (4, Some((far, _))) => drop(send_exit(self.node().pid(&far), Exit::failed("told"))),
            (5, Some((far, id))) => self.link(&far, id),
            (6, Some((far, id))) => self.unlink(&far, id).await,
            _ => {
                // By this node or a third one.
                let by = sim.choose(0..hosts + 1) as i64 - 1;
                self.ask(if by == self.to { -1 } else { by });
            }
        }
    }

    /// Asks for an echo to its PID.
    fn ask(&mut self, by: i64) {
        let number = self.world.ledger.lock().next();
        let own = Term::from(self.member.pid());
        let ask = [Term::atom("ask"), own, Term::from(number), Term::from(by)];
        self.asked.insert(number);
        let sent = self.member.send(Remote::named("sink", &name(self.to)), Term::tuple(ask));
        self.world.ledger.lock().law("a connected node takes a message", sent.is_ok());
    }

    /// Starts a process there, with a link or a monitor.
    async fn start(&mut self, links: bool) {
        let id = self.world.ledger.lock().next();
        let connection = self.connection(None);
        let (node, name, arguments) = (self.node().clone(), name(self.to), vec![Term::from(id)]);
        let started = if links {
            let started = node.spawn_link(&name, "work", "wait", arguments, START).await;
            started.map(|far| (far, None))
        } else {
            let started = node.spawn_monitor(&name, "work", "wait", arguments, START).await;
            started.map(|(far, monitor)| (far, Some(monitor)))
        };
        let mut ledger = self.world.ledger.lock();
        let what = Relation { id, connection };
        match started {
            Ok((far, monitor)) => {
                ledger.answered(id, Some(true));
                match monitor {
                    Some(monitor) => ledger.monitored(self.own, monitor, what),
                    None => {
                        ledger.linked((self.own, self.cx.pid(), node.pid(&far)), what);
                        self.has_linked.insert(far.clone());
                    }
                }
                self.known.push((far, id));
            }
            Err(StartTermError::NoConnection) => ledger.answered(id, None),
            Err(StartTermError::Send(SendTermCause::NoConnection)) => {
                ledger.answered(id, Some(false));
            }
            Err(other) => {
                self.world.sim.note(format!("a start failed: {other}"));
                ledger.law("a start is answered, or its connection ends", false);
            }
        }
    }

    fn monitor(&mut self, far: &NodePid, id: i64) {
        let connection = self.connection(Some(far.creation));
        let monitor = self.cx.monitor(self.member.node().pid(far));
        self.world.ledger.lock().monitored(self.own, monitor, Relation { id, connection });
    }

    /// Ends a link, and may make it again.
    async fn unlink(&mut self, far: &NodePid, id: i64) {
        let pid = self.node().pid(far);
        let link = (self.own, self.cx.pid(), pid);
        unlink(pid);
        self.world.ledger.lock().unlinked(link);
        // What arrives before this is about the link that was ended.
        let mark = Letter::Message { from: None, term: Term::atom("mark") };
        self.cx.address().send(mark).expect("it has room");
        self.is_marked = false;
        while !self.is_marked {
            self.event().await;
        }
        self.world.ledger.lock().is_unlinked(&link);
        self.has_linked.remove(far);
        if self.world.sim.choose(0..2) == 0 {
            self.link(far, id);
        }
    }

    /// Links to a process, unless the two are linked.
    fn link(&mut self, far: &NodePid, id: i64) {
        if self.has_linked.insert(far.clone()) {
            let connection = self.connection(Some(far.creation));
            let pid = self.node().pid(far);
            let link_of = (self.own, self.cx.pid(), pid);
            self.world.ledger.lock().linked(link_of, Relation { id, connection });
            link(pid);
        }
    }
}

pub(crate) async fn run(sim: Sim, planted: Planted) {
    let hosts = sim.choose(3..5) as i64;
    let done = Done::default();
    let serves = {
        let done = Arc::clone(&done);
        move |world, host| serve(world, host, Arc::clone(&done))
    };
    let world = disturbed(&sim, hosts, (Traffic::Small, planted), serves).await;
    world.ledger.lock().calm();
    world.is_quiet.store(true, Relaxed);
    within(&world, "each user has its last echo", || {
        done.lock().len() as i64 >= hosts * (hosts - 1)
    })
    .await;
    within(&world, "the end of a process is told while its connection lasts", || {
        !world.ledger.lock().has_untold()
    })
    .await;
    stop(&world, hosts);
    within(&world, "each monitor tells an end", || !world.ledger.lock().has_monitors()).await;
    within(&world, "each link tells an end", || !world.ledger.lock().has_links()).await;
}
