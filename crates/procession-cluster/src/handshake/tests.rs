//! Both sides of a handshake, without sockets.

use super::{Handshake, HandshakeError, Introduction, Progress, Status, flags};
use crate::cookie::Cookie;
use crate::term::Atom;

fn node(name: &str) -> Introduction {
    Introduction { name: Atom::new(name).expect("it is short"), creation: 77, flags: flags::OWN }
}

fn cookie(text: &str) -> Cookie {
    Cookie::new(text).expect("it has a text")
}

/// Lets both sides talk, a byte at a time, until both are done or one fails.
fn talk(
    mut initiator: Handshake,
    mut acceptor: Handshake,
    mut to_acceptor: Vec<u8>,
    status: Status,
) -> (Result<Progress, HandshakeError>, Result<Progress, HandshakeError>) {
    let mut to_initiator = Vec::new();
    let (mut at_initiator, mut at_acceptor) = (Vec::new(), Vec::new());
    let (mut left, mut right) = (Ok(Progress::More), Ok(Progress::More));
    while !to_acceptor.is_empty() || !to_initiator.is_empty() {
        if !to_acceptor.is_empty() {
            at_acceptor.push(to_acceptor.remove(0));
            match acceptor.take(&mut at_acceptor, &mut to_initiator) {
                Ok(Progress::More) => {}
                Ok(Progress::Decision(_)) => {
                    if let Err(error) = acceptor.decide(status, &mut to_initiator) {
                        right = Err(error);
                    }
                }
                other => right = other,
            }
        }
        if !to_initiator.is_empty() {
            at_initiator.push(to_initiator.remove(0));
            match initiator.take(&mut at_initiator, &mut to_acceptor) {
                Ok(Progress::More) => {}
                Ok(Progress::Alive) => {
                    initiator.replace(true, &mut to_acceptor).expect("it may");
                }
                other => left = other,
            }
        }
        if left.is_err() || right.is_err() && to_initiator.is_empty() {
            break;
        }
    }
    (left, right)
}

fn between(
    expected: &str,
    cookies: [&str; 2],
    status: Status,
) -> (Result<Progress, HandshakeError>, Result<Progress, HandshakeError>) {
    let mut out = Vec::new();
    let peer = Atom::new(expected).expect("it is short");
    let initiator = Handshake::initiator(node("a@here"), cookie(cookies[0]), 1, peer, 2, &mut out);
    let acceptor = Handshake::acceptor(node("b@here"), cookie(cookies[1]), 2, 2);
    talk(initiator, acceptor, out, status)
}

#[test]
fn two_nodes_learn_each_other() {
    for status in [Status::Ok, Status::OkSimultaneous, Status::Alive] {
        let (left, right) = between("b@here", ["secret", "secret"], status);
        assert_eq!(left, Ok(Progress::Done(node("b@here"))));
        assert_eq!(right, Ok(Progress::Done(node("a@here"))));
    }
}

#[test]
fn a_wrong_cookie_is_found_by_the_acceptor_first() {
    let (left, right) = between("b@here", ["secret", "other"], Status::Ok);
    assert_eq!(right, Err(HandshakeError::Cookie));
    // It has not proved anything to the initiator.
    assert_eq!(left, Ok(Progress::More));
}

#[test]
fn refusals_are_told() {
    let refused = |status| between("b@here", ["secret", "secret"], status);
    assert_eq!(refused(Status::Nok).0, Err(HandshakeError::Connected));
    assert_eq!(refused(Status::NotAllowed).0, Err(HandshakeError::NotAllowed));
    let (left, _) = between("c@here", ["secret", "secret"], Status::Ok);
    assert_eq!(left, Err(HandshakeError::Name("b@here".to_owned())));
}

#[test]
fn a_node_that_is_too_old_is_named_so() {
    let mut out = Vec::new();
    let old = Introduction { flags: flags::OWN & !(1 << 34) & !(1 << 36), ..node("a@here") };
    let peer = node("b@here").name;
    let initiator = Handshake::initiator(old, cookie("secret"), 1, peer, 2, &mut out);
    let acceptor = Handshake::acceptor(node("b@here"), cookie("secret"), 2, 2);
    let (_, right) = talk(initiator, acceptor, out, Status::Ok);
    assert_eq!(right, Err(HandshakeError::Flags(1 << 34)));
}

/// A node that does not know the version of the other node introduces itself in the old way.
#[test]
fn the_older_introduction_is_understood() {
    let mut acceptor = Handshake::acceptor(node("b@here"), cookie("secret"), 2, 2);
    let mut out = Vec::new();
    let low = (flags::OWN as u32).to_be_bytes();
    let mut come = [&[0, 13, b'n', 0, 5][..], &low, b"a@here"].concat();
    let decision = acceptor.take(&mut come, &mut out);
    assert!(matches!(decision, Ok(Progress::Decision(peer)) if peer.name.as_str() == "a@here"));
    assert_eq!(acceptor.decide(Status::Ok, &mut out), Ok(()));
    let high = ((flags::OWN >> 32) as u32).to_be_bytes();
    let mut come = [&[0, 9, b'c'][..], &high, &77_u32.to_be_bytes()].concat();
    assert_eq!(acceptor.take(&mut come, &mut out), Ok(Progress::More));
    let answer = super::digest(&cookie("secret"), 2);
    let mut come = [&[0, 21, b'r', 0, 0, 0, 9][..], &answer].concat();
    assert_eq!(acceptor.take(&mut come, &mut out), Ok(Progress::Done(node("a@here"))));
}

#[test]
fn garbage_is_refused_early() {
    for garbage in [&b"GET / HTTP/1.1\r\n"[..], &[0, 0, 0], &[0, 1, b'N'], &[0, 3, b'n', 0, 5]] {
        let mut acceptor = Handshake::acceptor(node("b@here"), cookie("secret"), 2, 2);
        let mut come = garbage.to_vec();
        let taken = acceptor.take(&mut come, &mut Vec::new());
        assert_eq!(taken, Err(HandshakeError::Protocol), "{garbage:?}");
    }
}
