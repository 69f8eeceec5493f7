//! One shard, without a node: order, limits, and what happens when it moves.

use std::collections::BTreeSet;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::Duration;

use procession::Pid;
use procession::sync::Notify;
use procession::time::Instant;
use procession_sync::atomic::Ordering::Relaxed;

use super::Shard;
use crate::shards::error::Refusal;
use crate::shards::limits::Limits;
use crate::shards::slot::{Act, Counts, Ended, Envelope, Key, Taken};
use crate::shards::view::View;
use crate::term::{Atom, NodePid, Term};

const LIMITS: Limits = Limits {
    idle: Duration::from_secs(1),
    queue: 3,
    keys: 2,
    moves: 3,
    move_time: Duration::from_secs(3600),
};

fn router(node: &str) -> NodePid {
    NodePid { node: Atom::new(node).expect("it is short"), id: 1, serial: 0, creation: 1 }
}

fn key() -> Key {
    Key::from(&b"key"[..])
}

/// A shard of node a.
struct Test {
    shard: Shard<u64>,
    counts: Counts,
}

impl Test {
    fn new() -> Self {
        Self { shard: Shard::new(7, router("a")), counts: Counts::default() }
    }

    fn accept(&mut self, origin: &str, number: u64) -> Option<Act<u64>> {
        let (origin, via, message) = (router(origin), router("a"), number);
        let envelope = Envelope { origin, number, call: 0, hops: 0, via, request: None, message };
        self.shard.accept(key(), envelope, &LIMITS, &self.counts)
    }

    /// Accepts a message, and returns the process that is started for it.
    fn start(&mut self, origin: &str, number: u64) -> (Arc<Notify>, Option<Term>) {
        match self.accept(origin, number) {
            Some(Act::Start(_, process, state)) => (process, state),
            other => panic!("{other:?} came"),
        }
    }

    fn refusal(&mut self, origin: &str, number: u64) -> Option<Refusal> {
        match self.accept(origin, number) {
            Some(Act::Refuse(_, _, why)) => Some(why),
            _ => None,
        }
    }

    fn take(&mut self, process: &Arc<Notify>) -> Option<u64> {
        match self.shard.take(&key(), process, false, false) {
            Taken::Message(envelope) => Some(envelope.message),
            _ => None,
        }
    }

    fn gives_up(&mut self, process: &Arc<Notify>) -> bool {
        matches!(self.shard.take(&key(), process, true, false), Taken::End)
    }

    fn end(&mut self, process: &Arc<Notify>, state: Option<i64>, ended: Ended) -> Vec<Act<u64>> {
        let state = state.map(Term::Integer);
        self.shard.end(&key(), process, (state, ended), &self.counts)
    }

    /// Changes the home. `awaits` says that the earlier home has not ended.
    fn set_home(&mut self, home: &str, awaits: bool) -> Vec<Act<u64>> {
        let before = Some(self.shard.home.node.as_str().to_owned()).filter(|_| awaits);
        self.set_home_among(home, &before.iter().map(String::as_str).collect::<Vec<_>>())
    }

    /// Changes the home, where these nodes have routers that have not ended.
    fn set_home_among(&mut self, home: &str, nodes: &[&str]) -> Vec<Act<u64>> {
        let mut view = View::new(router("a"));
        if home != "a" {
            (view.takes, view.members) = (false, BTreeSet::from([router(home)]));
        }
        let others = nodes.iter().copied().chain([home]).filter(|node| *node != "a");
        view.known = others.map(|node| (router(node), Pid::NOBODY)).collect();
        self.shard.set_home(&view, &LIMITS, &self.counts)
    }

    /// Returns the third node that the answer to a router names.
    fn named(&mut self, asker: &NodePid) -> Option<NodePid> {
        self.shard.asked(asker);
        assert!(self.shard.tell_askers(), "nothing is left");
        let terms = self.shard.outbox.remove(asker).expect("it is answered");
        terms[0].as_tuple().expect("it has parts")[4].as_pid().cloned()
    }

    /// Returns the words of what is to be sent, with the nodes that get it.
    fn sends(&mut self) -> Vec<(String, String)> {
        let mut sends = Vec::new();
        loop {
            for (to, terms) in std::mem::take(&mut self.shard.outbox) {
                for term in terms {
                    let word = term.as_tuple().expect("it has parts")[0].to_string();
                    sends.push((to.node.as_str().to_owned(), word));
                }
            }
            if !self.shard.tell_askers() {
                return sends;
            }
        }
    }
}

fn forwarded(acts: &[Act<u64>]) -> Vec<u64> {
    let messages = acts.iter().map(|act| match act {
        Act::Forward(_, envelope) => envelope.message,
        other => panic!("{other:?} came"),
    });
    messages.collect()
}

fn pairs(all: &[(&str, &str)]) -> Vec<(String, String)> {
    all.iter().map(|(to, word)| ((*to).to_owned(), (*word).to_owned())).collect()
}

/// Goal: a key that waits takes memory for its process, and none for messages.
#[test]
fn a_key_that_waits_keeps_no_room_for_messages() {
    let mut test = Test::new();
    let (process, _) = test.start("b", 1);
    assert_eq!(test.take(&process), Some(1));
    assert_eq!(test.take(&process), None);
    assert_eq!(test.shard.keys[&key()].queue.capacity(), 0);
}

#[test]
fn a_message_behind_a_later_one_is_refused() {
    let mut test = Test::new();
    let (process, _) = test.start("b", 2);
    for (origin, number, why) in [
        ("b", 1, Some(Refusal::Late)),
        ("b", 2, Some(Refusal::Late)),
        ("c", 1, None),
        ("b", 3, None),
    ] {
        assert_eq!(test.refusal(origin, number), why, "{number} of {origin}");
    }
    assert_eq!(test.refusal("b", 4), Some(Refusal::QueueFull));
    let taken: Vec<_> = std::iter::from_fn(|| test.take(&process)).collect();
    assert_eq!(taken, [2, 1, 3]);
    // The refused message has left no trace.
    assert_eq!(test.refusal("b", 4), None);
}

#[test]
fn a_message_that_comes_while_a_process_ends_is_for_its_successor() {
    let mut test = Test::new();
    let (process, _) = test.start("b", 1);
    assert_eq!(test.take(&process), Some(1));
    assert!(test.gives_up(&process));
    assert!(test.accept("b", 2).is_none(), "it waits for the end");
    assert_eq!(test.take(&process), None, "it is not for the process that ends");
    let mut acts = test.end(&process, Some(5), Ended::Returned);
    let Some(Act::Start(_, next, Some(Term::Integer(5)))) = acts.pop() else {
        panic!("{acts:?} came")
    };
    assert_eq!(test.take(&next), Some(2));
    assert!(test.end(&process, None, Ended::Failed).is_empty(), "it has ended before");
    assert!(test.gives_up(&next));
    assert!(test.end(&next, Some(6), Ended::Returned).is_empty());
    assert_eq!(test.start("b", 3).1, None, "without a message, the state is not kept");
}

#[test]
fn messages_that_wait_are_sorted_and_then_opened() {
    let mut test = Test::new();
    test.set_home("b", true);
    test.set_home("a", true);
    assert_eq!(test.shard.awaits, [router("b")]);
    for (origin, number) in [("c", 2), ("d", 1), ("c", 1)] {
        assert!(test.accept(origin, number).is_none());
    }
    assert_eq!(test.refusal("c", 3), Some(Refusal::MoveFull));
    assert!(test.shard.given(&router("d"), &test.counts).is_empty(), "it is another one");
    let mut acts = test.shard.given(&router("b"), &test.counts);
    let Some(Act::Start(_, process, None)) = acts.pop() else { panic!("{acts:?} came") };
    let taken: Vec<_> = std::iter::from_fn(|| test.take(&process)).collect();
    assert_eq!(taken, [1, 2, 1]);
    assert_eq!(test.refusal("c", 2), Some(Refusal::Late));
}

/// Goal: a message that an old home passes on late does not follow a message that a later home has
/// accepted, although the shard has moved again.
#[test]
fn a_home_learns_which_messages_came_before() {
    let mut test = Test::new();
    test.set_home("b", true);
    test.set_home("a", true);
    for number in [4, 6] {
        assert!(test.accept("c", number).is_none());
    }
    test.shard.learn([(&router("c"), 5), (&router("d"), 2)].into_iter());
    let acts = test.shard.given(&router("b"), &test.counts);
    let [Act::Refuse(_, late, Refusal::Late), Act::Start(_, process, None)] = &*acts else {
        panic!("{acts:?} came")
    };
    assert_eq!((late.message, test.take(process), test.take(process)), (4, Some(6), None));
    assert_eq!(test.refusal("d", 2), Some(Refusal::Late));
    assert_eq!(test.refusal("d", 3), None);
}

#[test]
fn a_router_that_leaves_is_told_that_nothing_follows() {
    let mut test = Test::new();
    test.set_home("b", true);
    test.set_home("c", true);
    assert_eq!(test.sends(), []);
    test.shard.tell_moved(&router("b"));
    assert_eq!(test.sends(), pairs(&[("b", "moved")]));
    test.set_home("a", true);
    test.shard.tell_moved(&router("c"));
    assert_eq!(test.sends(), [], "it is asked, and stays until it has answered");
}

/// Goal: a message that was accepted while a process ended is received, although the shard moves
/// before the end. The next home would refuse it, because it learns the numbers of this one.
#[test]
fn a_message_that_was_accepted_is_received_before_the_shard_is_given() {
    let mut test = Test::new();
    let (process, _) = test.start("c", 1);
    assert_eq!(test.take(&process), Some(1));
    assert!(test.gives_up(&process));
    assert!(test.accept("c", 2).is_none(), "it waits for the end");
    assert!(test.set_home("b", true).is_empty());
    test.shard.asked(&router("b"));
    let mut acts = test.end(&process, Some(5), Ended::Returned);
    let Some(Act::Start(_, next, Some(Term::Integer(5)))) = acts.pop() else {
        panic!("{acts:?} came")
    };
    assert_eq!(test.sends(), []);
    assert_eq!((test.take(&next), test.take(&next)), (Some(2), None));
    assert!(test.end(&next, Some(6), Ended::Returned).is_empty());
    assert_eq!(test.sends(), pairs(&[("b", "state"), ("b", "given")]));
}

/// Goal: a node that asks again and again, by any name, and does not read, takes no memory.
#[test]
fn a_node_that_asks_has_one_answer_at_a_time() {
    let mut test = Test::new();
    let (process, _) = test.start("c", 1);
    test.set_home("b", true);
    let asks = |test: &mut Test| {
        for id in 0..10 {
            test.shard.asked(&NodePid { id, ..router("b") });
            test.shard.tell_askers();
        }
        (test.shard.askers.len(), test.shard.outbox.len())
    };
    assert_eq!(asks(&mut test), (1, 0));
    assert_eq!((test.take(&process), test.take(&process)), (Some(1), None));
    test.end(&process, None, Ended::Returned);
    assert_eq!(asks(&mut test), (1, 1));
}

#[test]
fn a_key_with_nothing_left_is_not_counted() {
    let mut test = Test::new();
    test.set_home("b", true);
    test.set_home("a", true);
    assert!(test.accept("c", 1).is_none());
    test.shard.learn([(&router("c"), 5)].into_iter());
    let acts = test.shard.given(&router("b"), &test.counts);
    assert!(matches!(&*acts, [Act::Refuse(_, _, Refusal::Late)]), "{acts:?} came");
    assert_eq!((test.shard.keys.len(), test.counts.keys.load(Relaxed)), (0, 0));
    let (origin, via, limits) = (router("c"), router("a"), Limits { queue: 0, ..LIMITS });
    let envelope = Envelope { origin, number: 6, call: 0, hops: 0, via, request: None, message: 6 };
    let act = test.shard.accept(key(), envelope, &limits, &test.counts);
    assert!(matches!(act, Some(Act::Refuse(_, _, Refusal::QueueFull))), "{act:?} came");
    assert_eq!((test.shard.keys.len(), test.counts.keys.load(Relaxed)), (0, 0));
}

#[test]
fn a_state_for_a_home_that_has_ended_goes_to_the_next_home() {
    let mut test = Test::new();
    let (process, _) = test.start("c", 1);
    test.set_home("b", true);
    assert_eq!((test.take(&process), test.take(&process)), (Some(1), None));
    test.end(&process, Some(5), Ended::Returned);
    test.set_home("d", false);
    assert!(test.shard.forget(&router("b"), &test.counts).is_empty());
    assert!(test.shard.outbox.keys().eq([&router("d")]));
    test.set_home("a", false);
    assert!(test.shard.forget(&router("d"), &test.counts).is_empty());
    assert_eq!(test.sends(), []);
    assert_eq!(test.counts.states_dropped.load(Relaxed), 1);
}

/// Goal: a node that does not read holds up the moves to no other node.
#[test]
fn what_one_node_gets_does_not_wait_for_another() {
    let mut test = Test::new();
    test.set_home("b", true);
    test.shard.asked(&router("b"));
    assert!(test.shard.tell_askers());
    // What b gets waits.
    test.shard.asked(&router("c"));
    assert!(test.shard.tell_askers());
    assert!(test.shard.outbox.keys().eq([&router("b"), &router("c")]));
    // States go first, because after them nothing of the shard is left here.
    let mut test = Test::new();
    let (process, _) = test.start("c", 1);
    test.set_home("b", true);
    assert_eq!((test.take(&process), test.take(&process)), (Some(1), None));
    test.end(&process, Some(5), Ended::Returned);
    test.shard.asked(&router("c"));
    assert!(!test.shard.tell_askers());
    test.shard.outbox.clear();
    assert!(test.shard.tell_askers());
}

/// Goal: while a shard waits for one of two earlier homes, the state from the other one starts no
/// process, because the first one may have a process of the key.
#[test]
fn a_state_waits_until_the_shard_is_open() {
    let mut test = Test::new();
    test.set_home("b", true);
    test.set_home("a", true);
    let state = test.shard.restore(&key(), Term::Integer(5), &LIMITS, &test.counts);
    assert!(matches!(state, Ok(None)), "{state:?} came");
    let mut acts = test.shard.given(&router("b"), &test.counts);
    let Some(Act::Start(_, _, Some(Term::Integer(5)))) = acts.pop() else {
        panic!("{acts:?} came")
    };
}

/// Goal: a node that joins wakes no process that has nothing to do. Each shard waits for it.
#[test]
fn a_shard_that_opens_wakes_only_who_has_waited_for_it() {
    for is_overdue in [false, true] {
        let mut test = Test::new();
        let (process, _) = test.start("b", 1);
        assert_eq!(test.take(&process), Some(1));
        test.shard.await_from(&router("c"), &LIMITS);
        if is_overdue {
            assert!(!test.gives_up(&process), "the shard waits");
        } else {
            assert_eq!(test.take(&process), None);
        }
        assert!(test.shard.given(&router("c"), &test.counts).is_empty());
        let woken = pin!(process.notified()).poll(&mut Context::from_waker(Waker::noop()));
        assert_eq!(woken.is_ready(), is_overdue);
    }
}

#[test]
fn messages_that_wait_count_for_the_queue_of_their_key() {
    let mut test = Test::new();
    test.set_home("b", true);
    test.set_home("a", true);
    let limits = Limits { moves: 10, ..LIMITS };
    for number in 1..=4 {
        let (origin, via) = (router("c"), router("a"));
        let envelope =
            Envelope { origin, number, call: 0, hops: 0, via, request: None, message: number };
        let act = test.shard.accept(key(), envelope, &limits, &test.counts);
        let is_refused = matches!(act, Some(Act::Refuse(_, _, Refusal::QueueFull)));
        assert_eq!(is_refused, number == 4, "{number}");
    }
}

#[test]
fn a_shard_is_given_after_its_last_process() {
    let mut test = Test::new();
    let (process, _) = test.start("c", 1);
    assert!(test.accept("c", 2).is_none());
    assert!(test.set_home("b", true).is_empty());
    test.shard.asked(&router("b"));
    assert_eq!(test.sends(), []);
    // What was accepted is received, and then nothing more.
    assert_eq!((test.take(&process), test.take(&process)), (Some(1), Some(2)));
    assert_eq!(test.take(&process), None);
    assert!(test.end(&process, Some(3), Ended::Returned).is_empty());
    assert_eq!(test.sends(), pairs(&[("b", "state"), ("b", "given")]));
    assert!(test.shard.is_given());
}

#[test]
fn a_shard_that_moves_on_takes_its_queue_along() {
    let mut test = Test::new();
    test.set_home("b", true);
    test.set_home("a", true);
    assert!(test.accept("c", 1).is_none() && test.accept("c", 2).is_none());
    assert_eq!(forwarded(&test.set_home("d", true)), [1, 2]);
    // It does not give what it has not got.
    test.shard.asked(&router("d"));
    assert_eq!(test.sends(), []);
    assert!(!test.shard.is_given());
    test.shard.given(&router("b"), &test.counts);
    assert_eq!(test.sends(), pairs(&[("d", "given")]));
    // It moved to b as well, which has not said that it sends nothing more.
    assert!(!test.shard.is_given());
    test.shard.moved(&router("b"));
    assert!(test.shard.is_given());
}

#[test]
fn a_home_that_is_not_known_is_not_waited_for_beyond_the_limit() {
    let mut test = Test::new();
    test.set_home("b", true);
    test.set_home("a", true);
    test.shard.until = Instant::now();
    assert_eq!(test.refusal("c", 1), Some(Refusal::MoveElapsed));
    let known = BTreeSet::from([router("b")]);
    assert!(test.shard.expire(&known, &test.counts).is_empty());
    assert_eq!(test.refusal("c", 1), Some(Refusal::MoveElapsed));
    assert!(test.shard.expire(&BTreeSet::new(), &test.counts).is_empty());
    test.start("c", 1);
}

/// Goal: a home that has crashed cannot name the home before it, which still has processes. So the
/// next home waits for each router that it knows.
#[test]
fn a_home_waits_for_all_routers() {
    let mut test = Test::new();
    test.set_home_among("c", &["b", "c"]);
    test.set_home_among("a", &["b", "d"]);
    assert_eq!(test.shard.awaits, [router("b"), router("d")]);
    assert!(test.accept("c", 1).is_none(), "it waits");
    assert!(test.shard.given(&router("b"), &test.counts).is_empty());
    assert_eq!(test.shard.given(&router("d"), &test.counts).len(), 1);
    // A router that joins may have been the home among other nodes.
    assert!(test.shard.joined(&router("e"), &LIMITS, &test.counts).is_empty());
    assert_eq!(test.shard.awaits, [router("e")]);
}

/// Goal: after the limit, a node gives a shard although it waits for an earlier home. It names that
/// home, also if it was the home itself in the meantime.
#[test]
fn a_node_names_the_home_before_its_own_time() {
    let mut test = Test::new();
    test.set_home("b", true);
    test.set_home("a", true);
    test.set_home_among("c", &["b"]);
    assert_eq!(test.shard.awaits, [router("b")]);
    test.shard.until = Instant::now();
    assert_eq!(test.named(&router("c")), Some(router("b")));
    assert!(test.shard.forget(&router("b"), &test.counts).is_empty());
    assert_eq!(test.named(&router("c")), None, "it has ended");
}

/// Goal: a node that returns does not wait for its own former incarnation.
#[test]
fn a_node_that_returns_is_not_told_of_itself() {
    let mut test = Test::new();
    test.set_home("c", true);
    let returned = NodePid { creation: 2, ..router("c") };
    assert_eq!(test.named(&returned), None);
    assert_eq!(test.named(&router("d")), Some(router("c")));
}

/// Goal: a node that leaves stays until no router sends to it: neither a router that leaves as well
/// and has clients, nor a router that learns late that this one leaves.
#[test]
fn a_node_that_leaves_asks_all_routers_to_send_no_more() {
    for last in ["b", "c", "d"] {
        let mut test = Test::new();
        test.set_home_among("b", &["b", "c"]);
        test.shard.joined(&router("d"), &LIMITS, &test.counts);
        for node in ["b", "c", "d"].into_iter().filter(|node| *node != last) {
            test.shard.moved(&router(node));
        }
        assert!(!test.shard.is_given(), "{last} may still send");
        test.shard.moved(&router(last));
        assert!(test.shard.is_given());
    }
}

/// Goal: a node that drains immediately after it has started its shards never hears of the routers
/// of connected nodes, which have processes.
#[test]
fn a_node_that_leaves_opens_no_shard_of_unnamed_routers() {
    let mut test = Test::new();
    test.shard.await_from(&NodePid { id: 0, ..router("b") }, &LIMITS);
    let mut view = View::new(router("a"));
    view.takes = false;
    test.shard.set_home(&view, &LIMITS, &test.counts);
    assert!(test.accept("a", 1).is_none(), "it waits");
    assert!(test.shard.awaits_nodes());
    test.shard.until = Instant::now();
    let acts = test.shard.expire(&BTreeSet::new(), &test.counts);
    assert!(matches!(&*acts, [Act::Refuse(_, _, Refusal::MoveElapsed)]), "{acts:?}");
    assert_eq!(test.refusal("a", 2), Some(Refusal::MoveElapsed));
    assert!(!test.shard.awaits_nodes(), "it has left");
}

/// Goal: when shards are started, a message waits until each connected node has said whether it has
/// a router, and then until the router has given the shard.
#[test]
fn a_shard_waits_until_a_node_has_named_its_router() {
    let mut test = Test::new();
    let [b, c] = ["b", "c"].map(|node| NodePid { id: 0, ..router(node) });
    test.shard.await_from(&b, &LIMITS);
    test.shard.await_from(&c, &LIMITS);
    assert!(test.accept("a", 1).is_none());
    assert!(test.shard.heard(&c, &test.counts).is_empty());
    assert!(test.shard.joined(&router("b"), &LIMITS, &test.counts).is_empty());
    assert_eq!(test.shard.awaits, [router("b")]);
    assert_eq!(test.shard.given(&router("b"), &test.counts).len(), 1);
}

/// Goal: a process ends because its shard moves, and the shard is back before the end. Its state is
/// not the state of an idle process.
#[test]
fn a_state_stays_if_the_shard_moves_away_and_back() {
    let starts = |acts: &[Act<u64>]| match acts {
        [Act::Start(_, _, Some(Term::Integer(state)))] => Some(*state),
        _ => None,
    };
    for waits in [false, true] {
        let mut test = Test::new();
        let (process, _) = test.start("c", 1);
        test.set_home("b", true);
        assert_eq!((test.take(&process), test.take(&process)), (Some(1), None));
        test.set_home("a", waits);
        let mut acts = test.end(&process, Some(5), Ended::Returned);
        if waits {
            assert!(acts.is_empty(), "{acts:?} came");
            acts = test.shard.given(&router("b"), &test.counts);
        }
        assert_eq!(starts(&acts), Some(5), "{waits}: {acts:?} came");
    }
    // Without another node, it is dropped, and counted.
    let mut test = Test::new();
    let (process, _) = test.start("c", 1);
    assert!(test.shard.close(&test.counts).is_empty());
    assert_eq!((test.take(&process), test.take(&process)), (Some(1), None));
    assert!(test.end(&process, Some(5), Ended::Returned).is_empty());
    assert_eq!((test.shard.keys.len(), test.counts.states_dropped.load(Relaxed)), (0, 1));
}

/// Goal: two nodes that wait for each other do not do so up to the limit.
#[test]
fn a_shard_does_not_wait_for_its_home() {
    let mut test = Test::new();
    test.set_home("b", true);
    test.set_home("a", true);
    test.set_home("b", false);
    test.shard.await_from(&router("b"), &LIMITS);
    test.shard.asked(&router("b"));
    assert_eq!(test.sends(), pairs(&[("b", "given")]));
}

#[test]
fn a_home_answers_a_router_that_believes_to_be_the_home() {
    let mut test = Test::new();
    let (_process, _) = test.start("c", 1);
    test.shard.asked(&router("b"));
    assert_eq!(test.sends(), pairs(&[("b", "given")]));
}

#[test]
fn a_state_is_restored_once() {
    let mut test = Test::new();
    let restored = |test: &mut Test, key: &[u8]| {
        let state = Term::Integer(5);
        test.shard
            .restore(&Key::from(key), state, &LIMITS, &test.counts)
            .is_ok_and(|act| matches!(act, Some(Act::Start(_, _, Some(Term::Integer(5))))))
    };
    assert!(restored(&mut test, b"key"));
    assert!(!restored(&mut test, b"key"), "the key has a process");
    assert!(restored(&mut test, b"other"));
    assert!(!restored(&mut test, b"third"), "there is no room for a third key");
}

#[test]
fn the_process_of_a_program_that_ends_leaves_its_state_for_the_next_home() {
    let mut test = Test::new();
    let (process, _) = test.start("c", 1);
    assert_eq!(test.take(&process), Some(1));
    assert!(matches!(test.shard.take(&key(), &process, false, true), Taken::End));
    assert!(test.end(&process, Some(1), Ended::Cancelled).is_empty());
    // A message does not change that, if the program starts no process any more.
    let (unstarted, state) = test.start("c", 2);
    assert_eq!(state, Some(Term::Integer(1)));
    let acts = test.end(&unstarted, Some(1), Ended::Unstarted);
    assert!(matches!(&*acts, [Act::Refuse(_, _, Refusal::Failed)]), "{acts:?} came");
    test.set_home("b", true);
    assert_eq!(test.sends(), pairs(&[("b", "state")]));
}
