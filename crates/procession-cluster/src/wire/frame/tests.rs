//! Frames and fragments.

use proptest::prelude::*;

use super::{Frames, PLAIN_HEADER, WrongFrame, write_fragment};
use crate::term::decode::Reader;
use crate::term::encode::Writer;
use crate::term::{Atom, DecodeError, NodePid, Term};
use crate::wire::control::{Control, Target};

fn fragments(bytes: &[u8], sequence: u64, part: usize) -> Vec<Vec<u8>> {
    let count = bytes.len().div_ceil(part) as u64;
    bytes
        .chunks(part)
        .zip((1..=count).rev())
        .map(|(chunk, left)| {
            let mut frame = Vec::new();
            write_fragment(&mut frame, sequence, left, left == count, chunk);
            frame.split_off(4)
        })
        .collect()
}

#[test]
fn a_message_in_fragments_comes_whole_beside_others() {
    let (first, second) = (vec![1; 1000], vec![2; 700]);
    let mut frames = Frames::new(1 << 20);
    let (a, b) = (fragments(&first, 1, 100), fragments(&second, 2, 100));
    let mut come = Vec::new();
    for n in 0..a.len().max(b.len()) {
        for frame in [a.get(n), b.get(n)].into_iter().flatten() {
            if let Some(whole) = frames.read(frame).expect("it is right") {
                come.push(whole.bytes.into_owned());
            }
        }
    }
    assert_eq!(come, [second, first]);
}

#[test]
fn fragments_that_do_not_fit_end_the_connection() {
    let parts = fragments(&[7; 300], 1, 100);
    let mut frames = Frames::new(1 << 20);
    assert_eq!(frames.read(&parts[1]).map(|_| ()), Err(WrongFrame::Fragment));
    let mut frames = Frames::new(1 << 20);
    assert!(frames.read(&parts[0]).is_ok_and(|whole| whole.is_none()));
    assert_eq!(frames.read(&parts[2]).map(|_| ()), Err(WrongFrame::Fragment));
}

/// An operation with a message that has so many bytes.
fn message(length: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    let to = Target::Name(Atom::known("sink"));
    let from = NodePid { node: Atom::known("b@127.0.0.1"), id: 9, serial: 0, creation: 7 };
    Control::Send { from: Some(from), to, request: None }.write(&mut bytes).expect("it is short");
    bytes.resize(bytes.len() + length, 7);
    bytes
}

/// Goal: a node that sends more at a time than there is room for learns that, because the
/// connection ends.
#[test]
fn unfinished_messages_beyond_the_limit_are_an_error() {
    let mut frames = Frames::new(1500);
    let (a, b) = (message(900), message(900));
    let [first, second] = [(&a, 1), (&b, 2)].map(|(bytes, number)| fragments(bytes, number, 200));
    // The room of a message that is whole is free again.
    for _ in 0..3 {
        for (n, frame) in first.iter().enumerate() {
            let whole = frames.read(frame).expect("it has room");
            assert_eq!(whole.is_some(), n + 1 == first.len());
        }
        assert_eq!(frames.held, 0);
    }
    let mut both = first.iter().zip(&second).flat_map(|(first, second)| [first, second]);
    let failed = both.find_map(|frame| frames.read(frame).err());
    assert_eq!(failed, Some(WrongFrame::TooMuch));
}

#[test]
fn many_processes_may_send_large_messages_at_once() {
    let mut frames = Frames::new(2 << 20);
    let bytes = message(300);
    let begin = |sequence| fragments(&bytes, sequence, 100)[0].clone();
    for sequence in 0..10_000 {
        assert!(frames.read(&begin(sequence)).is_ok_and(|whole| whole.is_none()));
    }
    assert!(frames.held >= 1_000_000);
}

/// A frame as a BEAM node writes it: the atoms are in its header the first time, and later only
/// their places.
#[test]
fn atoms_are_kept_for_later_frames() {
    let mut frames = Frames::new(1 << 20);
    // Two atoms: `ok` at place 3 of segment 1, `ping` at place 9 of segment 0.
    let flags = [0b1000_1001, 0];
    let head = [131, 68, 2];
    let first = [&head[..], &flags, &[3, 2], b"ok", &[9, 4], b"ping", &[82, 1]].concat();
    let whole = frames.read(&first).expect("it is right").expect("it is no tick");
    let texts: Vec<_> = whole.atoms.iter().map(Atom::as_str).collect();
    assert_eq!(texts, ["ok", "ping"]);
    let mut reader = Reader::new(&whole.bytes, &whole.atoms, 1 << 20);
    assert_eq!(reader.term(), Ok(Term::atom("ping")));
    // The second frame refers to both, in another order.
    let second = [&head[..], &[0b0001_0000, 0], &[9, 3, 82, 1]].concat();
    let whole = frames.read(&second).expect("it is right").expect("it is no tick");
    let texts: Vec<_> = whole.atoms.iter().map(Atom::as_str).collect();
    assert_eq!(texts, ["ping", "ok"]);
    // A place where there is none.
    let third = [&head[..], &[0b0010_0000, 0], &[9, 3, 106]].concat();
    let missing = WrongFrame::Atom(DecodeError::AtomReference(3));
    assert_eq!(frames.read(&third).map(|_| ()), Err(missing));
}

proptest! {
    #[test]
    fn no_frame_does_harm(
        kind in prop_oneof![Just(68_u8), Just(69), Just(70), any::<u8>()],
        rest in proptest::collection::vec(any::<u8>(), 0..100),
    ) {
        let mut frames = Frames::new(1 << 16);
        let frame = [&[131, kind][..], &rest].concat();
        if let Ok(Some(whole)) = frames.read(&frame) {
            let mut reader = Reader::new(&whole.bytes, &whole.atoms, 1 << 16);
            drop(Control::read(&mut reader));
        }
    }

    #[test]
    fn no_operation_does_harm(numbers in proptest::collection::vec(0_u8..40, 0..7)) {
        // A tuple of integers: the right number, and wrong elements.
        let mut bytes = PLAIN_HEADER.to_vec();
        let term = Term::tuple(numbers.iter().map(|&number| Term::from(number)));
        Writer::new(&mut bytes).term(&term).expect("it is short");
        let mut frames = Frames::new(1 << 16);
        let whole = frames.read(&bytes).expect("it is right").expect("it is no tick");
        let mut reader = Reader::new(&whole.bytes, &whole.atoms, 1 << 16);
        drop(Control::read(&mut reader));
    }
}
