//! The functions that read bytes of other nodes, for the fuzzer in `fuzz`.

use crate::cookie::Cookie;
use crate::handshake::{Handshake, Introduction, Progress, Status, digest, flags};
use crate::term::decode::Reader;
use crate::term::encode::Writer;
use crate::term::{Atom, EncodeError};
use crate::wire;
use crate::wire::control::Control;
use crate::wire::frame::Frames;

/// Bytes that the fuzzer has chosen, taken one after the other.
struct Choices<'a>(&'a [u8]);

impl<'a> Choices<'a> {
    fn byte(&mut self) -> u8 {
        let (byte, rest) = self.0.split_first().unwrap_or((&0, &[]));
        self.0 = rest;
        *byte
    }

    /// Takes as many bytes as the next two say, or all that are left.
    fn part(&mut self) -> &'a [u8] {
        let count = usize::from(self.byte()) << 8 | usize::from(self.byte());
        let (part, rest) = self.0.split_at(count.min(self.0.len()));
        self.0 = rest;
        part
    }
}

/// Reads a term, and checks that it is read as it is written.
pub fn term(bytes: &[u8]) {
    let atoms = [Atom::known("first"), Atom::known("second")];
    let Ok(term) = Reader::new(bytes, &atoms, 1 << 20).last_term() else { return };
    let mut written = Vec::new();
    match Writer::new(&mut written).term(&term) {
        Ok(()) => {
            let again = Reader::new(&written, &[], usize::MAX).last_term();
            assert_eq!(again.as_ref(), Ok(&term));
        }
        // The keys of a map, and integers that no node sends on.
        Err(EncodeError::DuplicateKey | EncodeError::TooLong) => {}
        Err(error) => panic!("{term} was read, and not written: {error:?}"),
    }
    drop(crate::reason::to_term(&crate::reason::to_exit(&term)));
    // What is read from a text is written as the same text.
    let text = term.to_string();
    if let Ok(term) = text.parse::<crate::term::Term>() {
        assert_eq!(term.to_string(), text);
    }
    drop((term.to_string(), term.memory_bytes()));
}

/// Reads the frames of a connection: headers with atoms, fragments, operations and messages.
pub fn frames(bytes: &[u8]) {
    let mut choices = Choices(bytes);
    let has_headers = choices.byte() % 8 != 0;
    // Little, so that messages exceed it.
    let mut frames = Frames::new(1 << 10);
    let known = [Atom::known("a@127.0.0.1")];
    while !choices.0.is_empty() {
        match wire::read(&mut frames, has_headers, &known, choices.part()) {
            Ok(Some((control, message))) => {
                assert_eq!(control.has_message(), message.is_some());
                check_control(&control);
            }
            Ok(None) => {}
            // The connection ends.
            Err(_) => return,
        }
    }
}

/// Checks that an operation is read as it is written.
fn check_control(control: &Control) {
    let mut written = Vec::new();
    if control.write(&mut written).is_ok() {
        let again = Control::read(&mut Reader::new(&written, &[], usize::MAX));
        assert_eq!(again.as_ref(), Ok(control));
    }
}

/// Lets either side of a handshake talk with a node that may know the cookie.
pub fn handshake(bytes: &[u8]) {
    let mut choices = Choices(bytes);
    let node = |name| Introduction { name: Atom::known(name), creation: 7, flags: flags::OWN };
    let cookie = Cookie::new("secret").expect("it has a text");
    let roles = choices.byte();
    let length_bytes = if roles & 2 == 0 { 2 } else { 4 };
    let mut out = Vec::new();
    let mut side = if roles & 1 == 0 {
        Handshake::acceptor(node("b@here"), cookie.clone(), 2, length_bytes)
    } else {
        let other = Atom::known("a@here");
        Handshake::initiator(node("b@here"), cookie.clone(), 2, other, length_bytes, &mut out)
    };
    let mut come = Vec::new();
    while !choices.0.is_empty() {
        let kind = choices.byte();
        let body = match kind % 4 {
            // The right answer to the challenge.
            0 => [&b"r\0\0\0\x09"[..], &digest(&cookie, 2)].concat(),
            1 => [&b"a"[..], &digest(&cookie, 2)].concat(),
            _ => choices.part().to_vec(),
        };
        if kind % 4 != 3 {
            let length = (body.len() as u32).to_be_bytes();
            come.extend(&length[4 - length_bytes..]);
        }
        come.extend(body);
        let before = come.len();
        let next = match side.take(&mut come, &mut out) {
            Ok(Progress::Decision(peer)) => {
                assert!(peer.name.as_str().len() <= 4 * 255);
                let all = [Status::Ok, Status::OkSimultaneous, Status::Nok, Status::Alive];
                let status = all.get(usize::from(choices.byte() % 5));
                side.decide(*status.unwrap_or(&Status::NotAllowed), &mut out)
            }
            Ok(Progress::Alive) => side.replace(choices.byte() % 2 == 0, &mut out),
            Ok(Progress::More) => Ok(()),
            Ok(Progress::Done(peer)) => {
                assert_eq!(flags::REQUIRED & !peer.flags, 0);
                return;
            }
            Err(error) => Err(error),
        };
        assert!(come.len() <= before);
        if next.is_err() {
            return;
        }
    }
}

/// Returns a term that is a message with a version in a format, as another node may send it.
#[cfg(all(feature = "postcard", feature = "message-pack"))]
pub fn message(bytes: &[u8]) -> Option<(crate::serialize::Format, crate::term::Term)> {
    use crate::serialize::Format;
    use crate::term::Term;
    let mut choices = Choices(bytes);
    let (word, format) = match choices.byte() % 2 {
        0 => ("postcard", Format::Postcard),
        _ => ("message_pack", Format::MessagePack),
    };
    let content = Term::from(choices.0.to_vec());
    let parts = [Term::atom("$message"), "job".into(), 1.into(), Term::atom(word), content];
    Some((format, Term::tuple(parts)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    proptest! {
        /// Without guidance, so that the ways stay right between two runs of the fuzzer.
        #[test]
        fn no_bytes_do_harm(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            super::term(&bytes);
            super::frames(&bytes);
            super::handshake(&bytes);
        }
    }
}
