//! Frames: the header in front of an operation, with the atoms that it refers to, and large
//! messages in fragments.
//!
//! Each frame has its length in front, in four bytes. A frame of length zero is a tick. This node
//! writes no references to atoms, and accepts such references from other nodes.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use crate::term::{Atom, DecodeError};

const VERSION: u8 = 131;
const HEADER: u8 = 68;
const FIRST_FRAGMENT: u8 = 69;
const FRAGMENT: u8 = 70;

/// The header of a frame with an operation, without atoms.
pub(crate) const PLAIN_HEADER: [u8; 3] = [VERSION, HEADER, 0];

/// The bytes of the header of a first fragment without atoms.
const FIRST_HEADER_LEN: usize = 2 + 8 + 8 + 1;

/// The bytes of an operation and its message that go into one fragment.
pub(crate) const FRAGMENT_LEN: usize = 64 << 10;

/// The messages that may be in parts at a time. A BEAM node has one for each process that sends a
/// large message at the moment, so this is far above what a real one has.
const ASSEMBLIES_MAX: usize = 1 << 16;

/// Appends one fragment, with its length in front. `left` counts it and the fragments that follow.
pub(crate) fn write_fragment(
    out: &mut Vec<u8>,
    sequence: u64,
    left: u64,
    is_first: bool,
    part: &[u8],
) {
    let header = if is_first { FIRST_HEADER_LEN } else { FIRST_HEADER_LEN - 1 };
    out.extend(((header + part.len()) as u32).to_be_bytes());
    out.extend([VERSION, if is_first { FIRST_FRAGMENT } else { FRAGMENT }]);
    out.extend(sequence.to_be_bytes());
    out.extend(left.to_be_bytes());
    if is_first {
        // No atoms.
        out.push(0);
    }
    out.extend(part);
}

/// A frame that breaks a rule, for which a connection ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum WrongFrame {
    Header,
    Atom(DecodeError),
    /// A fragment that continues no message, or arrives in the wrong order.
    Fragment,
    /// More messages in parts than are allowed, or more bytes of them.
    TooMuch,
}

/// An operation and its message, as bytes, with the atoms that they refer to.
#[derive(Debug)]
pub(crate) struct Whole<'a> {
    pub(crate) atoms: Vec<Atom>,
    pub(crate) bytes: std::borrow::Cow<'a, [u8]>,
}

/// A message with some received parts.
#[derive(Debug)]
struct Assembly {
    atoms: Vec<Atom>,
    bytes: Vec<u8>,
    left: u64,
}

impl Assembly {
    /// Returns the bytes that it takes.
    fn size(&self) -> usize {
        self.bytes.len() + self.atoms.len() * size_of::<Atom>()
    }
}

/// Reads the frames of one connection.
#[derive(Debug)]
pub(crate) struct Frames {
    /// The atoms that the other node has defined, by segment and index.
    cache: BTreeMap<(u8, u8), Atom>,
    assemblies: BTreeMap<u64, Assembly>,
    /// The bytes of all parts that have arrived for unfinished messages.
    held: usize,
    held_max: usize,
}

struct Bytes<'a>(&'a [u8]);

impl<'a> Bytes<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8], WrongFrame> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or(WrongFrame::Header)?;
        self.0 = rest;
        Ok(taken)
    }

    fn u8(&mut self) -> Result<u8, WrongFrame> {
        Ok(self.take(1)?[0])
    }

    fn u64(&mut self) -> Result<u64, WrongFrame> {
        let (taken, rest) = self.0.split_first_chunk().ok_or(WrongFrame::Header)?;
        self.0 = rest;
        Ok(u64::from_be_bytes(*taken))
    }
}

impl Frames {
    /// Creates a reader that holds at most `held_max` bytes of messages in parts.
    pub(crate) fn new(held_max: usize) -> Self {
        Self { cache: BTreeMap::new(), assemblies: BTreeMap::new(), held: 0, held_max }
    }

    /// Returns the bytes of messages in parts that it holds at most.
    pub(crate) fn limit(&self) -> usize {
        self.held_max
    }

    /// Notes the bytes of a part.
    fn hold(&mut self, bytes: usize) -> Result<(), WrongFrame> {
        self.held += bytes;
        if self.held > self.held_max { Err(WrongFrame::TooMuch) } else { Ok(()) }
    }

    /// Reads a frame without its length. Returns an operation, unless the frame is a tick or the
    /// message has more fragments.
    pub(crate) fn read<'a>(&mut self, frame: &'a [u8]) -> Result<Option<Whole<'a>>, WrongFrame> {
        if frame.is_empty() {
            return Ok(None);
        }
        let mut bytes = Bytes(frame);
        if bytes.u8()? != VERSION {
            return Err(WrongFrame::Header);
        }
        match bytes.u8()? {
            HEADER => {
                let atoms = self.atoms(&mut bytes)?;
                Ok(Some(Whole { atoms, bytes: bytes.0.into() }))
            }
            FIRST_FRAGMENT => {
                let (sequence, left) = (bytes.u64()?, bytes.u64()?);
                let atoms = self.atoms(&mut bytes)?;
                self.first(sequence, left, atoms, bytes.0)
            }
            FRAGMENT => {
                let (sequence, left) = (bytes.u64()?, bytes.u64()?);
                self.next(sequence, left, bytes.0)
            }
            _ => Err(WrongFrame::Header),
        }
    }

    fn first<'a>(
        &mut self,
        sequence: u64,
        left: u64,
        atoms: Vec<Atom>,
        part: &'a [u8],
    ) -> Result<Option<Whole<'a>>, WrongFrame> {
        match left {
            0 => return Err(WrongFrame::Fragment),
            1 => return Ok(Some(Whole { atoms, bytes: part.into() })),
            _ => {}
        }
        if self.assemblies.len() == ASSEMBLIES_MAX {
            return Err(WrongFrame::TooMuch);
        }
        let Entry::Vacant(free) = self.assemblies.entry(sequence) else {
            return Err(WrongFrame::Fragment);
        };
        let assembly = free.insert(Assembly { atoms, bytes: part.to_vec(), left: left - 1 });
        let size = assembly.size();
        self.hold(size)?;
        Ok(None)
    }

    fn next<'a>(
        &mut self,
        sequence: u64,
        left: u64,
        part: &[u8],
    ) -> Result<Option<Whole<'a>>, WrongFrame> {
        let Entry::Occupied(mut entry) = self.assemblies.entry(sequence) else {
            return Err(WrongFrame::Fragment);
        };
        let assembly = entry.get_mut();
        if left == 0 || left != assembly.left {
            return Err(WrongFrame::Fragment);
        }
        assembly.left -= 1;
        assembly.bytes.extend(part);
        if assembly.left > 0 {
            self.hold(part.len())?;
            return Ok(None);
        }
        let assembly = entry.remove();
        self.held -= assembly.size() - part.len();
        let Assembly { atoms, bytes, .. } = assembly;
        Ok(Some(Whole { atoms, bytes: bytes.into() }))
    }

    /// Reads the atoms of a header, and keeps the new atoms.
    fn atoms(&mut self, bytes: &mut Bytes<'_>) -> Result<Vec<Atom>, WrongFrame> {
        let count = usize::from(bytes.u8()?);
        if count == 0 {
            return Ok(Vec::new());
        }
        // Half a byte for each atom, and one more.
        let flags = bytes.take(count / 2 + 1)?;
        let half = |n: usize| (flags[n / 2] >> (4 * (n % 2))) & 15;
        let has_long_atoms = half(count) & 1 != 0;
        let mut atoms = Vec::with_capacity(count);
        for n in 0..count {
            let (is_new, segment) = (half(n) & 8 != 0, half(n) & 7);
            let index = bytes.u8()?;
            if is_new {
                let mut length = usize::from(bytes.u8()?);
                if has_long_atoms {
                    length = length << 8 | usize::from(bytes.u8()?);
                }
                let text = std::str::from_utf8(bytes.take(length)?).ok();
                let atom = text.and_then(Atom::new).ok_or(WrongFrame::Atom(DecodeError::Atom))?;
                self.cache.insert((segment, index), atom);
            }
            let atom = self.cache.get(&(segment, index)).cloned();
            let missing = WrongFrame::Atom(DecodeError::AtomReference(index));
            atoms.push(atom.ok_or(missing)?);
        }
        Ok(atoms)
    }
}

#[cfg(test)]
mod tests;
