//! The check of the words in `tests/releases`. A line has an area, the bytes of a word, and its
//! text for people.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use super::{OLDEST, PROTOCOL};
use crate::term::decode::Reader;
use crate::term::encode::Writer;
use crate::term::{Atom, NodePid, Term};

/// A process of another node, for words.
pub(crate) fn pid(id: u32) -> NodePid {
    NodePid { node: Atom::known("b@127.0.0.1"), id, serial: 0, creation: 7 }
}

fn line(area: &str, word: &Term) -> String {
    let mut bytes = Vec::new();
    Writer::new(&mut bytes).term(word).expect("it can be sent");
    let mut line = format!("{area} ");
    for byte in bytes {
        write!(line, "{byte:02x}").expect("a string has room");
    }
    write!(line, " {word}").expect("a string has room");
    line
}

fn word(line: &str) -> Term {
    let hex = line.split(' ').nth(1).expect("it has bytes");
    let byte = |at| u8::from_str_radix(&hex[at..at + 2], 16).expect("it is a byte");
    let bytes: Vec<_> = (0..hex.len()).step_by(2).map(byte).collect();
    Reader::new(&bytes, &[], 1 << 20).last_term().expect("it is a term")
}

/// Reads the lines of an area in the files of all kept protocols, and compares what the area says
/// now with the newest file.
pub(crate) fn check(area: &str, words: &[Term], reads: impl Fn(Term) -> bool) {
    let written: Vec<_> = words.iter().map(|word| line(area, word)).collect();
    for protocol in OLDEST..=PROTOCOL {
        let file = format!("tests/releases/{protocol}.terms");
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(&file);
        let text = fs::read_to_string(path).expect("each protocol has a file");
        let is_own = |line: &&str| line.split(' ').next() == Some(area);
        let kept: Vec<_> = text.lines().filter(is_own).collect();
        for line in &kept {
            assert!(reads(word(line)), "nodes of protocol {protocol} say what is not read: {line}");
        }
        assert!(
            protocol < PROTOCOL || kept == written,
            "{file} has other words. If a release has this protocol, the words need the next \
             number and a file. Else the file gets:\n{}",
            written.join("\n")
        );
    }
}
