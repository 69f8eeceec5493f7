//! The queue alone: turns, limits, and fragments that another node reads.

use procession::time::Instant;

#[cfg(feature = "serde")]
use super::REPLIES_ROOM;
use super::{LARGE_ROOM, Outbound, PULSE_LANE, ROOM, SIGNALS_MAX, Unqueued};
use crate::handshake::flags;
use crate::term::decode::Reader;
use crate::term::{Atom, NodePid, Reference, Term};
use crate::wire::control::{Control, Target};
use crate::wire::frame::Frames;

/// The limit of messages.
const MESSAGE_MAX: usize = 16 << 20;

fn queue(flags: u64) -> Outbound {
    Outbound::new(flags, pid(), MESSAGE_MAX)
}

fn pid() -> procession::Pid {
    "p1.1.1".parse().expect("it is the text of a PID")
}

fn to(name: &str) -> Control {
    let from = NodePid { node: Atom::known("a@here"), id: 1, serial: 0, creation: 7 };
    let to = Target::Name(Atom::new(name).expect("it is short"));
    Control::Send { from: Some(from), to, request: None }
}

/// Reads the frames in a buffer, and returns the messages.
fn messages(mut bytes: &[u8], frames: &mut Frames) -> Vec<Term> {
    let mut all = Vec::new();
    while let Some((length, rest)) = bytes.split_first_chunk() {
        let (frame, rest) = rest.split_at(u32::from_be_bytes(*length) as usize);
        if let Some(whole) = frames.read(frame).expect("it is right") {
            let mut reader = Reader::new(&whole.bytes, &whole.atoms, MESSAGE_MAX * 4);
            Control::read(&mut reader).expect("it is right");
            all.push(reader.term().expect("it is right"));
        }
        bytes = rest;
    }
    all
}

#[test]
fn senders_take_turns_and_stay_in_order() {
    let queue = queue(flags::OWN);
    let large = Term::from(vec![7; 1 << 20]);
    queue.send(1, &to("x"), &large).expect("there is room");
    queue.send(1, &to("x"), &Term::atom("behind")).expect("there is room");
    queue.send(2, &to("x"), &Term::atom("beside")).expect("there is room");
    let mut frames = Frames::new(MESSAGE_MAX);
    let mut come = Vec::new();
    let mut out = Vec::new();
    let mut rounds = 0;
    while queue.fill(&mut out, 1) {
        come.extend(messages(&out, &mut frames));
        out.clear();
        rounds += 1;
    }
    assert_eq!(come, [Term::atom("beside"), large, Term::atom("behind")]);
    assert!(rounds > 16, "it came in {rounds} parts");
    assert_eq!(queue.bytes(), 0);
}

#[test]
fn the_oldest_wait_is_that_of_the_first_that_is_left() {
    let queue = queue(flags::OWN);
    assert_eq!(queue.oldest_wait(), None);
    queue.send(1, &to("x"), &Term::atom("first")).expect("there is room");
    queue.send(2, &to("x"), &Term::from(vec![7; 1 << 20])).expect("there is room");
    let all = [1, 2].map(|lane| queue.queue.lock().lanes[&lane].times[0]);
    assert!(all[0] <= all[1]);
    let since = |at: Instant| Instant::now().saturating_duration_since(at);
    let (most, wait) = (since(all[0]), queue.oldest_wait().expect("something waits"));
    assert!(wait >= most, "{wait:?} is less than {most:?}, which had passed before");
    // The first lane is empty then.
    queue.fill(&mut Vec::new(), 1);
    let wait = queue.oldest_wait().expect("something waits");
    assert!(wait <= since(all[1]), "{wait:?} is not that of the second lane");
    while queue.fill(&mut Vec::new(), 1 << 20) {}
    assert_eq!(queue.oldest_wait(), None);
    let left = queue.queue.lock().lanes.values().map(|lane| lane.times.len()).sum::<usize>();
    assert_eq!(left, 0);
}

#[test]
fn a_full_queue_refuses_messages_and_takes_signals() {
    let queue = queue(flags::OWN);
    let term = Term::from(vec![7; 60_000]);
    let mut own = 0;
    while queue.send(1, &to("x"), &term).is_ok() {
        own += 1;
    }
    // Half of the room is for others.
    assert!((ROOM / 2 / 60_100..=ROOM / 2 / 60_000).contains(&own), "{own}");
    assert!(queue.send(2, &to("x"), &term).is_ok());
    let large = Term::from(vec![7; MESSAGE_MAX - 100]);
    assert_eq!(queue.send(1, &to("x"), &large), Ok(()));
    assert!(matches!(queue.send(1, &to("x"), &large), Err(Unqueued::Full(_))));
    assert_eq!(queue.send(2, &to("x"), &large), Ok(()));
    assert!(queue.bytes() <= ROOM + LARGE_ROOM);
    let too_long = Term::from(vec![7; MESSAGE_MAX]);
    assert_eq!(queue.send(3, &to("x"), &too_long), Err(Unqueued::TooLong));
    let before = queue.bytes();
    queue.signal(1, &to("x"), Some(&term));
    assert!(queue.bytes() > before && !queue.is_overrun());
    // Nothing of the message is left.
    queue.close();
    assert_eq!(queue.send(1, &to("x"), &term), Err(Unqueued::Closed));
    assert!(queue.bytes() == 0 && !queue.fill(&mut Vec::new(), 1));
}

#[test]
fn too_many_signals_end_the_connection() {
    let queue = queue(flags::OWN);
    let term = Term::from(vec![7; 60_000]);
    while !queue.is_overrun() {
        queue.signal(1, &to("x"), Some(&term));
    }
    assert!((SIGNALS_MAX..SIGNALS_MAX + 60_200).contains(&queue.bytes()));
}

/// Goal: a node that does not read makes no more wait here if messages may be longer.
#[test]
fn signals_are_bounded_apart_from_messages() {
    let queue = Outbound::new(flags::OWN, pid(), 2 << 30);
    let term = Term::from(vec![7; 60_000]);
    let large = Term::from(vec![7; LARGE_ROOM + 1]);
    queue.send(1, &to("x"), &large).expect("it is alone");
    for _ in 0..SIGNALS_MAX / 60_200 {
        queue.signal(1, &to("x"), Some(&term));
    }
    assert!(!queue.is_overrun());
    assert_eq!(queue.send(1, &to("x"), &term), Ok(()), "signals take no room from messages");
    for _ in 0..4 {
        queue.signal(1, &to("x"), Some(&term));
    }
    assert!(queue.is_overrun());
    while queue.fill(&mut Vec::new(), usize::MAX) {}
    assert_eq!(queue.bytes(), 0);
}

/// Goal: replies find no more than their room, one longer reply passes, and the message that there
/// is none always does.
#[test]
#[cfg(feature = "serde")]
fn replies_have_a_room_of_their_own() {
    let queue = Outbound::new(flags::OWN, pid(), 2 << 30);
    let reply = |lane, bytes| queue.reply(lane, &to("x"), &Term::from(vec![7; bytes]));
    assert_eq!(reply(1, REPLIES_ROOM / 2 + 1), Ok(()));
    assert!(matches!(reply(1, 1), Err(Unqueued::Full(_))));
    assert!(matches!(reply(2, REPLIES_ROOM / 2), Err(Unqueued::Full(_))));
    assert_eq!(queue.no_reply(2, &to("x"), &Term::atom("none")), Ok(()));
    assert_eq!(reply(2, 60_000), Ok(()));
    assert_eq!(queue.send(1, &to("x"), &Term::from(vec![7; MESSAGE_MAX - 100])), Ok(()));
    while queue.fill(&mut Vec::new(), usize::MAX) {}
    assert_eq!((queue.bytes(), queue.is_overrun(), queue.refused()), (0, false, 2));
    assert_eq!(reply(1, REPLIES_ROOM + 1), Ok(()));
}

fn down(reason: &Term, has_payload: bool) -> Control {
    let from = Target::Pid(NodePid { node: Atom::known("a@here"), id: 1, serial: 0, creation: 7 });
    let to = NodePid { node: Atom::known("b@here"), id: 1, serial: 0, creation: 7 };
    let monitor = Reference::new(Atom::known("b@here"), 7, &[1]).expect("it has a word");
    Control::Down { from, to, monitor, reason: (!has_payload).then(|| reason.clone()) }
}

/// Goal: long reasons neither end the connection nor take more room than messages do.
#[test]
fn a_reason_that_is_too_long_or_finds_no_room_is_a_word() {
    let large = Term::from(vec![7; MESSAGE_MAX - 200]);
    let longer = Term::from(vec![7; MESSAGE_MAX]);
    for has_payload in [true, false] {
        let queue = queue(flags::OWN);
        let tell = |lane, reason| {
            queue.signal(lane, &down(reason, has_payload), has_payload.then_some(reason));
        };
        tell(1, &longer);
        for lane in 2..9 {
            tell(lane, &large);
        }
        assert!(!queue.is_overrun() && queue.bytes() <= LARGE_ROOM + 4096);
        let mut out = Vec::new();
        while queue.fill(&mut out, usize::MAX) {}
        let mut frames = Frames::new(4 * MESSAGE_MAX);
        let mut words = 0;
        let mut values = 0;
        let mut bytes = &out[..];
        while let Some((length, rest)) = bytes.split_first_chunk() {
            let (frame, rest) = rest.split_at(u32::from_be_bytes(*length) as usize);
            if let Some(whole) = frames.read(frame).expect("it is right") {
                let mut reader = Reader::new(&whole.bytes, &whole.atoms, MESSAGE_MAX * 4);
                let control = Control::read(&mut reader).expect("it is right");
                let Control::Down { reason, .. } = control else { panic!("{control:?} came") };
                match reason.unwrap_or_else(|| reader.term().expect("it is right")) {
                    reason if reason.is_atom("too_large") => words += 1,
                    reason => values += usize::from(reason == large),
                }
            }
            bytes = rest;
        }
        assert_eq!((words, values), (6, 2));
    }
}

#[test]
fn a_node_without_headers_gets_whole_messages() {
    let queue = queue(flags::REQUIRED);
    let term = Term::from(vec![7; 1 << 20]);
    queue.send(1, &to("x"), &term).expect("there is room");
    let mut out = Vec::new();
    assert!(queue.fill(&mut out, 1));
    assert_eq!(out.get(4..6), Some(&b"p\x83"[..]));
    let mut reader = Reader::new(&out[6..], &[], MESSAGE_MAX * 4);
    Control::read(&mut reader).expect("it is right");
    assert_eq!(reader.rest().first(), Some(&131));
    let mut reader = Reader::new(&reader.rest()[1..], &[], MESSAGE_MAX * 4);
    assert_eq!(reader.term(), Ok(term));
    assert_eq!(reader.end(), Ok(()));
}

/// Goal: it is known when what was accepted before calls were refused has left the queue, whatever
/// is accepted after that.
#[test]
fn calls_that_were_accepted_are_known_to_be_sent() {
    let queue = queue(flags::OWN);
    assert!(queue.has_sent_calls());
    let large = Term::from(vec![7; 1 << 20]);
    queue.call(1, &to("x"), &large).expect("there is room");
    queue.request(2, &to("x"), &Term::atom("start")).expect("there is room");
    queue.refuse_calls();
    assert_eq!(queue.call(1, &to("x"), &large), Err(Unqueued::Leaving));
    assert_eq!(queue.request(2, &to("x"), &large), Err(Unqueued::Leaving));
    queue.send(1, &to("x"), &large).expect("there is room");
    queue.send(3, &to("x"), &large).expect("there is room");
    let (mut frames, mut come) = (Frames::new(MESSAGE_MAX), Vec::new());
    while !queue.has_sent_calls() {
        assert!(!come.contains(&large), "the call has come");
        let mut out = Vec::new();
        assert!(queue.fill(&mut out, 1));
        come.extend(messages(&out, &mut frames));
    }
    assert!(come.contains(&large) && come.contains(&Term::atom("start")), "{come:?}");
    assert!(!queue.is_empty(), "the others still wait");
}

/// Goal: a queue that drains keeps what was accepted, refuses the rest, and knows what is left.
#[test]
fn what_is_left_is_counted() {
    let queue = queue(flags::OWN);
    let send = |term: &Term| queue.send(1, &to("x"), term);
    let large = Term::from(vec![7; 100_000]);
    for term in [&Term::atom("one"), &large, &Term::atom("three")] {
        send(term).expect("there is room");
    }
    queue.signal(1, &to("x"), Some(&Term::atom("no message")));
    queue.drain();
    assert!(queue.is_ending());
    assert_eq!(send(&large), Err(Unqueued::Closed));
    assert_eq!(queue.unsent(), 3);
    // What has left the queue last may not have reached the system.
    let mut out = Vec::new();
    assert!(queue.fill(&mut out, 1));
    assert_eq!(queue.unsent(), 3);
    assert!(queue.fill(&mut out, usize::MAX));
    assert_eq!((queue.unsent(), queue.is_empty()), (2, true));
    queue.signal(PULSE_LANE, &to("x"), Some(&Term::atom("a question")));
    assert!(queue.fill(&mut out, usize::MAX));
    assert_eq!(queue.unsent(), 0);
    queue.drain();
    queue.close();
    queue.signal(PULSE_LANE, &to("x"), None);
    assert!(!queue.fill(&mut out, usize::MAX));
}
