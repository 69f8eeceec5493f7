//! Processes of other nodes: messages, links, monitors and exit signals by PID.
//!
//! Method: a mirror, which is a node with the processes of this program. What is sent to the
//! mirror image of a process comes to the process itself, from the mirror image of the sender. The
//! mirror can hold signals back, so that they cross.

use std::collections::VecDeque;
use std::sync::{Arc, OnceLock};

use procession::mailbox::relay::{
    InProcess, NodeRelay, Parcel, Relay, RelayCause, RelayError, RemoteNode, RemoteSignal, receive,
    receive_link,
};
use procession::mailbox::{Event, send};
use procession::process::{kill, link, send_exit, unlink};
use procession::time::Instant;
use procession::{Context, Exit, Pid, Scheduler, yield_now};
use procession_sync::Mutex;

use super::{HOUR, ends};
use crate::home::{mpsc, thread};
use crate::scene::{assert_conserved, driven};

#[derive(Clone)]
struct Mirror(Arc<Glass>);

struct Glass {
    node: OnceLock<RemoteNode>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The processes. The first number of the PID of a mirror image is its place here.
    pids: Vec<Pid>,
    /// Set if signals are held back.
    holds: bool,
    held: VecDeque<RemoteSignal>,
    /// The messages that came, with their senders.
    senders: Vec<Option<Pid>>,
    refusal: Option<RelayCause>,
}

impl Mirror {
    fn new() -> Self {
        let mirror =
            Self(Arc::new(Glass { node: OnceLock::new(), state: Mutex::new(State::default()) }));
        let node = RemoteNode::join(Relays(mirror.clone())).expect("not all numbers are taken");
        assert!(mirror.0.node.set(node).is_ok(), "it has joined once");
        mirror
    }

    fn node(&self) -> &RemoteNode {
        self.0.node.get().expect("it has joined")
    }

    /// Returns the mirror image of a process, or the process of a mirror image.
    fn image(&self, pid: Pid) -> Pid {
        let mut state = self.0.state.lock();
        if let Some((place, _)) = pid.remote_parts() {
            return state.pids[place as usize];
        }
        let place = state.pids.iter().position(|&known| known == pid).unwrap_or_else(|| {
            state.pids.push(pid);
            state.pids.len() - 1
        });
        self.node().pid(place as u32, 0)
    }

    /// Lets the oldest signal go that is held back. Returns `false` if there is none.
    fn pass_one(&self) -> bool {
        let held = self.0.state.lock().held.pop_front();
        held.map(|signal| receive(self.reflect(signal))).is_some()
    }

    fn pass_all(&self) {
        while self.pass_one() {}
    }

    fn hold(&self, holds: bool) {
        self.0.state.lock().holds = holds;
    }

    fn held(&self) -> usize {
        self.0.state.lock().held.len()
    }

    fn reflect(&self, signal: RemoteSignal) -> RemoteSignal {
        let image = |pid| self.image(pid);
        match signal {
            RemoteSignal::Link { from, to } => {
                RemoteSignal::Link { from: image(from), to: image(to) }
            }
            RemoteSignal::Unlink { from, to, id } => {
                RemoteSignal::Unlink { from: image(from), to: image(to), id }
            }
            RemoteSignal::UnlinkAck { from, to, id } => {
                RemoteSignal::UnlinkAck { from: image(from), to: image(to), id }
            }
            RemoteSignal::Exit { from, to, exit } => {
                RemoteSignal::Exit { from: image(from), to: image(to), exit }
            }
            RemoteSignal::SendExit { from, to, exit } => {
                RemoteSignal::SendExit { from: from.map(image), to: image(to), exit }
            }
            RemoteSignal::Kill { from, to } => {
                RemoteSignal::Kill { from: from.map(image), to: image(to) }
            }
            RemoteSignal::Monitor { from, to, monitor } => {
                RemoteSignal::Monitor { from: image(from), to: image(to), monitor }
            }
            RemoteSignal::Demonitor { from, to, monitor } => {
                RemoteSignal::Demonitor { from: image(from), to: image(to), monitor }
            }
            RemoteSignal::Down { from, to, monitor, exit } => {
                RemoteSignal::Down { from: image(from), to: image(to), monitor, exit }
            }
            other => panic!("{other:?} is new"),
        }
    }
}

struct Relays(Mirror);

impl Relay for Relays {
    fn relay(&self, parcel: Parcel) -> Result<(), RelayError> {
        let refusal = {
            let mut state = self.0.0.state.lock();
            state.senders.push(parcel.from);
            state.refusal
        };
        if let Some(cause) = refusal {
            return Err(parcel.refused(cause));
        }
        let mut parcel = parcel;
        parcel.to = self.0.image(parcel.to);
        InProcess.relay(parcel)
    }
}

impl NodeRelay for Relays {
    fn signal(&self, signal: RemoteSignal) {
        let holds = {
            let mut state = self.0.0.state.lock();
            if state.holds {
                state.held.push_back(signal.clone());
            }
            state.holds
        };
        if !holds {
            receive(self.0.reflect(signal));
        }
    }
}

/// Returns a scheduler and a mirror.
fn world() -> (Scheduler, Mirror) {
    (driven(), Mirror::new())
}

#[test]
fn a_message_by_pid_goes_to_the_relay_of_the_node() {
    let (scheduler, mirror) = world();
    let receiver = scheduler.start(|mut cx: Context<u32>| async move { cx.recv().await });
    let far = mirror.image(receiver.pid());
    assert_eq!(far.node(), mirror.node().number());
    assert_eq!(far.to_string().parse(), Ok(far), "its text is that of a PID");
    let causes = [
        RelayCause::Refused,
        RelayCause::Ended,
        RelayCause::WrongType { sent: "u32", wanted: Some("u64") },
        RelayCause::NoConnection,
        RelayCause::Full,
        RelayCause::NotPortable,
        RelayCause::TooLong,
        RelayCause::NotAllowed,
    ];
    for cause in causes {
        mirror.0.state.lock().refusal = Some(cause);
        let error = send(far, 6_u32).expect_err("it is refused");
        assert_eq!((error.relay_cause(), error.is_not_relayed()), (Some(cause), true));
        assert_eq!(error.is_full(), cause == RelayCause::Full);
        assert_eq!(error.is_no_connection(), cause == RelayCause::NoConnection);
        assert!(error.to_string().contains(&cause.to_string()), "{error}");
        assert_eq!(error.into_inner(), 6);
    }
    mirror.0.state.lock().refusal = None;
    let sender = scheduler.spawn(async move { send(far, 7_u32).is_ok() });
    let pid = sender.pid();
    assert_eq!(sender.join(), Ok(true));
    assert_eq!(receiver.join(), Ok(Some(7)));
    let senders = mirror.0.state.lock().senders.clone();
    assert_eq!((senders.len(), senders[0], senders[8]), (9, None, Some(pid)));
    let error = send(far, 8_u32).unwrap_err();
    assert_eq!((error.relay_cause(), error.is_ended()), (Some(RelayCause::Ended), true));
    assert!(procession::Address::<u32>::of(far).unwrap_err().is_not_relayed());
}

#[test]
fn a_monitor_is_told_of_every_end() {
    for (end, reason) in ends() {
        let (scheduler, mirror) = world();
        let child = scheduler.start(move |mut cx: Context<()>| async move {
            cx.recv().await;
            end();
        });
        let address = child.address().clone();
        let far = mirror.image(child.pid());
        let watcher = scheduler.start(move |mut cx: Context<()>| async move {
            let monitors = [cx.monitor(far), cx.monitor(far)];
            address.send(()).expect("it waits");
            let mut told = Vec::new();
            for monitor in monitors {
                let down = cx.down(monitor).await.expect("it is not cancelled");
                assert_eq!((down.monitor, down.pid), (monitor, far));
                told.push(down.exit);
            }
            assert!(cx.recv_timeout(HOUR).await.is_err());
            let late = cx.monitor(far);
            told.push(cx.down(late).await.expect("it is not cancelled").exit);
            told
        });
        assert_eq!(watcher.join(), Ok(vec![reason.clone(), reason, Exit::NoProcess]));
        drop(child);
        assert_conserved(&scheduler);
    }
}

#[test]
fn a_monitor_that_was_ended_is_not_told() {
    let (scheduler, mirror) = world();
    let child = scheduler.start(|mut cx: Context<()>| async move { cx.recv().await });
    let (address, far) = (child.address().clone(), mirror.image(child.pid()));
    let glass = mirror.clone();
    let watcher = scheduler.start(move |mut cx: Context<()>| async move {
        let gone = cx.monitor(far);
        assert!(cx.demonitor(gone));
        assert!(!cx.demonitor(gone));
        let crossed = cx.monitor(far);
        glass.hold(true);
        address.send(()).expect("it waits");
        assert!(cx.recv_timeout(HOUR).await.is_err());
        assert_eq!(glass.held(), 1, "the down of the second one");
        assert!(cx.demonitor(crossed));
        glass.hold(false);
        glass.pass_all();
        cx.recv_timeout(HOUR).await.is_err()
    });
    assert_eq!(watcher.join(), Ok(true));
    assert_eq!(child.join(), Ok(Some(())));
}

#[test]
fn the_end_of_a_watcher_ends_its_monitors() {
    let (scheduler, mirror) = world();
    let child = scheduler.start(|mut cx: Context<()>| async move { cx.recv().await });
    let far = mirror.image(child.pid());
    mirror.hold(true);
    let watcher = scheduler.start(move |mut cx: Context<()>| async move {
        let _ = cx.monitor(far);
    });
    assert_eq!(watcher.join(), Ok(()));
    let held: Vec<_> = mirror.0.state.lock().held.iter().cloned().collect();
    let [RemoteSignal::Monitor { monitor, .. }, RemoteSignal::Demonitor { monitor: ended, .. }] =
        &held[..]
    else {
        panic!("{held:?}")
    };
    assert_eq!(monitor, ended);
    mirror.pass_all();
    child.send(()).expect("it waits");
    assert_eq!(child.join(), Ok(Some(())));
    assert_eq!(mirror.held(), 0, "nothing was left to tell");
}

/// Ends one of two linked processes. Returns what the other one learns.
fn linked(
    traps: bool,
    end: impl FnOnce(Pid) + Send + 'static,
) -> (Result<Option<(Option<Pid>, Exit)>, Exit>, Pid) {
    let (scheduler, mirror) = world();
    let ends = scheduler.start(|mut cx: Context<Pid>| async move {
        if let Some(pid) = cx.recv().await {
            end(pid);
        }
    });
    let far = mirror.image(ends.pid());
    let learns = scheduler.start(move |mut cx: Context<()>| async move {
        cx.trap_exits(traps);
        assert!(link(far) && link(far), "once is enough");
        let own = mirror.image(cx.pid());
        send(far, own).expect("it waits");
        match cx.recv_event().await {
            Some(Event::Exit(signal)) => Some((signal.from, signal.exit)),
            _ => None,
        }
    });
    drop(ends);
    (learns.join(), far)
}

#[test]
fn a_link_ends_both() {
    let broken = || Exit::failed("broken");
    let (told, far) = linked(true, |_| procession::process::exit(Exit::failed("broken")));
    assert_eq!(told, Ok(Some((Some(far), broken()))));
    assert_eq!(
        linked(false, |_| procession::process::exit(Exit::failed("broken"))).0,
        Err(broken())
    );
    let (told, far) = linked(true, |_| {});
    assert_eq!(told, Ok(Some((Some(far), Exit::Normal))));
    let sends = |own: Pid| assert!(send_exit(own, Exit::failed("please")));
    let (told, far) = linked(true, sends);
    assert_eq!(told, Ok(Some((Some(far), Exit::failed("please")))));
    assert_eq!(linked(true, |own| assert!(kill(own))).0, Err(Exit::Killed));
}

#[test]
fn a_link_that_was_ended_has_no_effect() {
    let (scheduler, mirror) = world();
    let child = scheduler.start(|mut cx: Context<()>| async move {
        cx.recv().await;
        procession::process::exit(Exit::failed("broken"))
    });
    let (address, far) = (child.address().clone(), mirror.image(child.pid()));
    let glass = mirror.clone();
    let lives = scheduler.start(move |mut cx: Context<()>| async move {
        link(far);
        unlink(far);
        link(far);
        glass.hold(true);
        address.send(()).expect("it waits");
        yield_now().await;
        // The exit is on its way, and comes too late.
        unlink(far);
        glass.hold(false);
        glass.pass_all();
        cx.recv_timeout(HOUR).await.is_err()
    });
    assert_eq!(lives.join(), Ok(true));
    assert_eq!(child.join(), Err(Exit::failed("broken")));
}

#[test]
fn a_link_with_nobody_is_an_exit() {
    for (is_known, exit) in [(true, Exit::NoProcess), (false, Exit::NoConnection)] {
        let (scheduler, mirror) = world();
        let gone = scheduler.spawn(async {});
        let mut far = mirror.image(gone.pid());
        assert_eq!(gone.join(), Ok(()));
        if !is_known {
            let node = RemoteNode::join(Relays(mirror)).expect("not all numbers are taken");
            far = node.pid(1, 2);
        }
        let learns = scheduler.start(move |mut cx: Context<()>| async move {
            cx.trap_exits(true);
            assert!(link(far));
            let monitor = cx.monitor(far);
            let exit = match cx.recv_event().await {
                Some(Event::Exit(signal)) if signal.from == Some(far) => signal.exit,
                event => panic!("{event:?}"),
            };
            assert_eq!(cx.down(monitor).await.map(|down| down.exit), Some(exit.clone()));
            assert_eq!(send_exit(far, Exit::Shutdown), is_known);
            assert_eq!(kill(far), is_known);
            assert!(!procession::process::cancel(far), "no node is asked to");
            assert!(send(far, 1_u32).is_err());
            exit
        });
        assert_eq!(learns.join(), Ok(exit));
    }
}

#[test]
fn a_relay_can_link_without_an_answer() {
    let (scheduler, mirror) = world();
    let far = mirror.node().pid(1 << 20, 7);
    let lives = scheduler.start(|mut cx: Context<()>| async move { cx.recv().await });
    let pid = lives.pid();
    assert!(receive_link(far, pid));
    receive(RemoteSignal::Exit { from: far, to: pid, exit: Exit::Shutdown });
    assert_eq!(lives.join(), Err(Exit::Shutdown));
    mirror.hold(true);
    assert!(!receive_link(far, pid));
    assert_eq!(mirror.held(), 0, "nobody was told");
}

/// Random links and monitors between five processes that stay and the images of five that end, in
/// both directions, with signals that are held back for a while.
#[test]
fn each_monitor_is_told_once_and_no_link_is_left() {
    for seed in 0..200 {
        let (scheduler, mirror) = world();
        mirror.hold(true);
        let mut chance = fastrand::Rng::with_seed(seed);
        let crowd: Vec<_> = (0..10).map(|_| scheduler.start(relates)).collect();
        let pids: Vec<Pid> = crowd.iter().map(|process| process.pid()).collect();
        let mut made = [0; 5];
        let mut ending: Vec<usize> = (5..10).collect();
        for _ in 0..400 {
            let (stays, other) = (chance.usize(..5), chance.usize(5..10));
            match chance.u32(..12) {
                verb @ 0..=3 => {
                    made[stays] += u32::from(verb == MONITOR);
                    crowd[stays].send((verb, mirror.image(pids[other]))).expect("it lives");
                }
                // It may have ended.
                verb @ 4..=7 => drop(crowd[other].send((verb - 4, mirror.image(pids[stays])))),
                8 if chance.u32(..15) == 0 && !ending.is_empty() => {
                    let ends = ending.swap_remove(chance.usize(..ending.len()));
                    crowd[ends].cancel();
                }
                8..=10 => drop(mirror.pass_one()),
                _ => drop(scheduler.run_until_idle()),
            }
        }
        for ends in ending {
            crowd[ends].cancel();
        }
        scheduler.run_until_idle();
        while mirror.pass_one() {
            scheduler.run_until_idle();
        }
        for (place, process) in crowd.into_iter().enumerate() {
            if place < 5 {
                let row = scheduler.detail(process.pid()).expect("it lives").relations;
                let row = row.expect("a detail has them");
                let left = [row.links.total, row.monitors.total, row.monitored.total];
                assert_eq!(left, [0; 3], "seed {seed}: links, monitors of it, and by it");
                process.cancel();
                assert_eq!(process.join(), Ok(made[place]), "seed {seed}");
            } else {
                assert!(process.join().is_ok(), "it traps exits");
            }
        }
        assert_conserved(&scheduler);
    }
}

const MONITOR: u32 = 0;

/// Makes and ends links and monitors. Returns the number of monitors that were answered or ended.
async fn relates(mut cx: Context<(u32, Pid)>) -> u32 {
    cx.trap_exits(true);
    let (mut open, mut settled) = (Vec::new(), 0);
    while let Some(event) = cx.recv_event().await {
        match event {
            Event::Message((MONITOR, other)) => open.push(cx.monitor(other)),
            Event::Message((1, other)) => assert!(link(other)),
            Event::Message((2, other)) => assert!(unlink(other)),
            Event::Message(_) => {
                let last = open.pop().is_some_and(|last| cx.demonitor(last));
                settled += u32::from(last);
            }
            Event::Down(_) => settled += 1,
            _ => {}
        }
    }
    settled
}

/// A node that calls a function for each signal to its processes.
struct Calls<F>(F);

impl<F: Send + Sync + 'static> Relay for Calls<F> {
    fn relay(&self, parcel: Parcel) -> Result<(), RelayError> {
        Err(parcel.refused(RelayCause::NoConnection))
    }
}

impl<F: Fn() + Send + Sync + 'static> NodeRelay for Calls<F> {
    fn signal(&self, _: RemoteSignal) {
        (self.0)();
    }
}

/// Goal: the relay of one node holds up no signal to another one.
#[test]
fn a_signal_to_one_node_does_not_wait_for_that_to_another() {
    let (begun, begins) = mpsc::channel();
    let (told, tells) = mpsc::channel();
    let (begun, told, tells) = (Mutex::new(begun), Mutex::new(told), Mutex::new(tells));
    let slow = RemoteNode::join(Calls(move || {
        begun.lock().send(()).expect("the test waits");
        // It ends the wait if the other signal does not come.
        assert!(tells.lock().recv_timeout(HOUR / 360).is_ok(), "the other signal waits");
    }));
    let quick = RemoteNode::join(Calls(move || told.lock().send(()).expect("the relay waits")));
    let [slow, quick] = [slow, quick].map(|node| node.expect("not all numbers are taken"));
    let (far, other) = (slow.pid(1, 0), quick.pid(1, 0));
    thread::scope(|scope| {
        scope.spawn(move || assert!(send_exit(far, Exit::Shutdown)));
        begins.recv().expect("it begins");
        let begin = Instant::now();
        assert!(send_exit(other, Exit::Shutdown));
        assert!(Instant::now() - begin < HOUR / 360, "it has waited");
    });
}

/// A signal that a relay sends is handed over once that of the relay is.
#[test]
fn a_signal_of_a_relay_goes_behind() {
    let order = Arc::new(Mutex::new(Vec::new()));
    let behind = {
        let order = Arc::clone(&order);
        RemoteNode::join(Calls(move || order.lock().push("behind"))).expect("it has a number")
    };
    let far = behind.pid(1, 0);
    let first = {
        let order = Arc::clone(&order);
        let sends = move || {
            send_exit(far, Exit::Shutdown);
            order.lock().push("first");
        };
        RemoteNode::join(Calls(sends)).expect("it has a number")
    };
    assert!(send_exit(first.pid(1, 0), Exit::Shutdown));
    assert_eq!(*order.lock(), ["first", "behind"]);
}
