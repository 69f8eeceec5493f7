//! The external term format, read. The bytes may be from anybody: nothing is allocated that their
//! number does not justify, and nesting is limited.

use std::sync::Arc;

use crate::term::encode as tag;
use crate::term::{
    Atom, BigInteger, Bits, DEPTH_MAX, DecodeError, Fun, NodePid, Port, Reference, Term,
};

/// The atoms that the header of a frame has, by the numbers that its terms use.
pub(crate) type Atoms = [Atom];

/// Reads terms from bytes.
#[derive(Clone, Debug)]
pub(crate) struct Reader<'a> {
    rest: &'a [u8],
    atoms: &'a Atoms,
    /// Frequent atoms, which share their text.
    known: &'a [Atom],
    depth: usize,
    /// The memory that terms may still take, in bytes.
    budget: usize,
}

/// About how many bytes an atom takes besides its text: two counts, and what the allocator adds.
pub(super) const ATOM_HEAD: usize = 32;

type Decoded<T> = Result<T, DecodeError>;

impl<'a> Reader<'a> {
    /// Creates a reader of terms that take at most `budget` bytes of memory.
    pub(crate) fn new(rest: &'a [u8], atoms: &'a Atoms, budget: usize) -> Self {
        Self { rest, atoms, known: &[], depth: 0, budget }
    }

    /// Sets frequent atoms, so that they share their memory.
    pub(crate) fn with_known(mut self, known: &'a [Atom]) -> Self {
        self.known = known;
        self
    }

    /// If these bytes are next, passes over them and returns `true`.
    pub(crate) fn skip(&mut self, bytes: &[u8]) -> bool {
        match self.rest.strip_prefix(bytes) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    pub(crate) fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// Reads a term that ends with the bytes.
    pub(crate) fn last_term(&mut self) -> Decoded<Term> {
        let term = self.term()?;
        self.end()?;
        Ok(term)
    }

    /// Checks that nothing is left.
    pub(crate) fn end(&self) -> Decoded<()> {
        if self.rest.is_empty() { Ok(()) } else { Err(DecodeError::Trailing) }
    }

    fn bytes(&mut self, count: usize) -> Decoded<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(count).ok_or(DecodeError::Incomplete)?;
        self.rest = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Decoded<[u8; N]> {
        let (taken, rest) = self.rest.split_first_chunk().ok_or(DecodeError::Incomplete)?;
        self.rest = rest;
        Ok(*taken)
    }

    fn u8(&mut self) -> Decoded<u8> {
        self.array().map(u8::from_be_bytes)
    }

    fn u16(&mut self) -> Decoded<u16> {
        self.array().map(u16::from_be_bytes)
    }

    fn u32(&mut self) -> Decoded<u32> {
        self.array().map(u32::from_be_bytes)
    }

    /// Reads a count of items that have at least `least` bytes each, so that the rest can have
    /// them.
    fn count(&mut self, least: usize) -> Decoded<usize> {
        let count = self.u32()? as usize;
        match count.checked_mul(least).is_some_and(|bytes| bytes <= self.rest.len()) {
            true => Ok(count),
            false => Err(DecodeError::Incomplete),
        }
    }

    fn charge(&mut self, bytes: usize) -> Decoded<()> {
        self.budget = self.budget.checked_sub(bytes).ok_or(DecodeError::TooLarge)?;
        Ok(())
    }

    fn charge_terms(&mut self, count: usize) -> Decoded<()> {
        self.charge(count.checked_mul(size_of::<Term>()).ok_or(DecodeError::TooLarge)?)
    }

    /// Returns room for terms, which it charges.
    fn room(&mut self, count: usize) -> Decoded<Vec<Term>> {
        self.charge_terms(count)?;
        Ok(Vec::with_capacity(count))
    }

    fn binary(&mut self, count: usize) -> Decoded<Arc<[u8]>> {
        let bytes = self.bytes(count)?;
        self.charge(bytes.len())?;
        Ok(bytes.into())
    }

    fn text(&mut self, count: usize) -> Decoded<Atom> {
        let bytes = self.bytes(count)?;
        if let Some(known) = self.known.iter().find(|atom| atom.as_str().as_bytes() == bytes) {
            return Ok(known.clone());
        }
        self.charge(ATOM_HEAD + bytes.len())?;
        let text = std::str::from_utf8(bytes).map_err(|_| DecodeError::Atom)?;
        Atom::new(text).ok_or(DecodeError::Atom)
    }

    fn latin(&mut self, count: usize) -> Decoded<Atom> {
        let bytes = self.bytes(count)?;
        self.charge(ATOM_HEAD + 2 * bytes.len())?;
        let text: String = bytes.iter().map(|&byte| char::from(byte)).collect();
        Atom::new(text).ok_or(DecodeError::Atom)
    }

    fn atom_of(&mut self, tag: u8) -> Decoded<Option<Atom>> {
        let atom = match tag {
            tag::ATOM_CACHE_REF => {
                let index = self.u8()?;
                let atom = self.atoms.get(usize::from(index)).cloned();
                atom.ok_or(DecodeError::AtomReference(index))?
            }
            tag::SMALL_ATOM_UTF8 => {
                let length = self.u8()?;
                self.text(length.into())?
            }
            tag::ATOM_UTF8 => {
                let length = self.u16()?;
                self.text(length.into())?
            }
            tag::SMALL_ATOM => {
                let length = self.u8()?;
                self.latin(length.into())?
            }
            tag::ATOM => {
                let length = self.u16()?;
                self.latin(length.into())?
            }
            _ => return Ok(None),
        };
        Ok(Some(atom))
    }

    /// Reads an atom.
    pub(crate) fn atom(&mut self) -> Decoded<Atom> {
        let tag = self.u8()?;
        self.atom_of(tag)?.ok_or(DecodeError::Tag(tag))
    }

    /// Reads a PID.
    pub(crate) fn pid(&mut self) -> Decoded<NodePid> {
        match self.u8()? {
            tag::NEW_PID => self.new_pid(),
            tag => Err(DecodeError::Tag(tag)),
        }
    }

    fn new_pid(&mut self) -> Decoded<NodePid> {
        let node = self.atom()?;
        Ok(NodePid { node, id: self.u32()?, serial: self.u32()?, creation: self.u32()? })
    }

    fn reference(&mut self) -> Decoded<Reference> {
        let count = usize::from(self.u16()?);
        let node = self.atom()?;
        let creation = self.u32()?;
        let mut words = [0; Reference::WORDS_MAX];
        let words = words.get_mut(..count).ok_or(DecodeError::Value)?;
        for word in words.iter_mut() {
            *word = self.u32()?;
        }
        Reference::new(node, creation, words).ok_or(DecodeError::Value)
    }

    /// Reads an integer of at most 64 bits.
    pub(crate) fn integer(&mut self) -> Decoded<i64> {
        self.term()?.as_integer().ok_or(DecodeError::Value)
    }

    fn big(&mut self, digits: usize) -> Decoded<Term> {
        let is_negative = match self.u8()? {
            0 => false,
            1 => true,
            _ => return Err(DecodeError::Value),
        };
        let magnitude = self.bytes(digits)?;
        self.charge(digits)?;
        let value = BigInteger::new(is_negative, magnitude.to_vec());
        if let Some(value) = value.as_i64() {
            return Ok(Term::Integer(value));
        }
        self.charge(size_of::<BigInteger>())?;
        Ok(Term::Big(Box::new(value)))
    }

    fn items(&mut self, count: usize) -> Decoded<Vec<Term>> {
        let mut items = self.room(count)?;
        for _ in 0..count {
            items.push(self.term()?);
        }
        Ok(items)
    }

    fn list(&mut self) -> Decoded<Term> {
        let count = self.count(1)?;
        let mut items = self.items(count)?;
        // The sender may have written the list in parts: each is the tail of the part before.
        while self.skip(&[tag::LIST]) {
            let count = self.count(1)?;
            self.charge_terms(count)?;
            items.reserve(count);
            for _ in 0..count {
                items.push(self.term()?);
            }
        }
        items.shrink_to_fit();
        Ok(match self.term()? {
            tail if items.is_empty() => tail,
            // The last part may be a string.
            Term::List(more) => {
                items.reserve_exact(more.len());
                items.extend(more);
                Term::List(items)
            }
            tail => {
                self.charge(size_of::<Term>())?;
                Term::Improper(items, Box::new(tail))
            }
        })
    }

    fn map(&mut self) -> Decoded<Term> {
        let count = self.count(2)?;
        self.charge(count * size_of::<(Term, Term)>())?;
        let mut pairs = Vec::with_capacity(count);
        for _ in 0..count {
            pairs.push((self.term()?, self.term()?));
        }
        Ok(Term::Map(pairs))
    }

    fn fun(&mut self) -> Decoded<Term> {
        let size = self.u32()?;
        let before = self.rest.len();
        let (arity, unique) = (self.u8()?, self.array()?);
        let index = self.u32()?;
        let free = self.count(1)?;
        let module = self.atom()?;
        let (old_index, old_unique) = (self.integer()?, self.integer()?);
        let pid = self.pid()?;
        let free = self.items(free)?;
        // References to atoms make it shorter than its sender has counted.
        if before - self.rest.len() + 4 > size as usize {
            return Err(DecodeError::Value);
        }
        let fun = Fun { arity, unique, index, module, old_index, old_unique, pid, free };
        Ok(Term::Fun(Box::new(fun)))
    }

    /// Reads a term.
    pub(crate) fn term(&mut self) -> Decoded<Term> {
        if self.depth == DEPTH_MAX {
            return Err(DecodeError::TooDeep);
        }
        self.depth += 1;
        let tag = self.u8()?;
        let term = match tag {
            tag::SMALL_INTEGER => Term::Integer(self.u8()?.into()),
            tag::INTEGER => Term::Integer(i32::from_be_bytes(self.array()?).into()),
            tag::SMALL_BIG => {
                let digits = self.u8()?;
                self.big(digits.into())?
            }
            tag::LARGE_BIG => {
                let digits = self.count(1)?;
                self.big(digits)?
            }
            tag::NEW_FLOAT => {
                let value = f64::from_be_bytes(self.array()?);
                if value.is_finite() { Term::Float(value) } else { return Err(DecodeError::Value) }
            }
            tag::BINARY => {
                let length = self.u32()?;
                Term::Binary(self.binary(length as usize)?)
            }
            tag::BIT_BINARY => {
                let (length, last) = (self.u32()?, self.u8()?);
                let bytes = self.binary(length as usize)?;
                match last {
                    8 => Term::Binary(bytes),
                    _ => Term::Bits(Bits::new(bytes, last).ok_or(DecodeError::Value)?),
                }
            }
            tag::NIL => Term::List(Vec::new()),
            tag::STRING => {
                let count = self.u16()?;
                let bytes = self.bytes(count.into())?;
                let mut items = self.room(bytes.len())?;
                items.extend(bytes.iter().map(|&byte| Term::Integer(byte.into())));
                Term::List(items)
            }
            tag::LIST => self.list()?,
            tag::SMALL_TUPLE => {
                let arity = self.u8()?;
                Term::Tuple(self.items(arity.into())?)
            }
            tag::LARGE_TUPLE => {
                let arity = self.count(1)?;
                Term::Tuple(self.items(arity)?)
            }
            tag::MAP => self.map()?,
            tag::NEW_PID => Term::Pid(self.new_pid()?),
            tag::NEWER_REFERENCE => {
                self.charge(size_of::<Reference>())?;
                Term::Reference(Box::new(self.reference()?))
            }
            tag::NEW_PORT => {
                self.charge(size_of::<Port>())?;
                let node = self.atom()?;
                let (id, creation) = (self.u32()?.into(), self.u32()?);
                Term::Port(Box::new(Port { node, id, creation }))
            }
            tag::V4_PORT => {
                self.charge(size_of::<Port>())?;
                let node = self.atom()?;
                let id = u64::from_be_bytes(self.array()?);
                Term::Port(Box::new(Port { node, id, creation: self.u32()? }))
            }
            tag::EXPORT => {
                let (module, name) = (self.atom()?, self.atom()?);
                let arity = u8::try_from(self.integer()?).map_err(|_| DecodeError::Value)?;
                self.charge(size_of::<(Atom, Atom, u8)>())?;
                Term::Export(Box::new((module, name, arity)))
            }
            tag::NEW_FUN => {
                self.charge(size_of::<Fun>())?;
                self.fun()?
            }
            _ => Term::Atom(self.atom_of(tag)?.ok_or(DecodeError::Tag(tag))?),
        };
        self.depth -= 1;
        Ok(term)
    }
}
