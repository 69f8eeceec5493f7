//! The external term format, written.

use crate::term::{Atom, BigInteger, DEPTH_MAX, EncodeError, Fun, NodePid, Port, Reference, Term};

// The tags of the format, as its specification names them.
pub(super) const NEW_FLOAT: u8 = 70;
pub(super) const BIT_BINARY: u8 = 77;
pub(super) const ATOM_CACHE_REF: u8 = 82;
pub(super) const NEW_PID: u8 = 88;
pub(super) const NEW_PORT: u8 = 89;
pub(super) const NEWER_REFERENCE: u8 = 90;
pub(super) const SMALL_INTEGER: u8 = 97;
pub(super) const INTEGER: u8 = 98;
pub(super) const ATOM: u8 = 100;
pub(super) const SMALL_TUPLE: u8 = 104;
pub(super) const LARGE_TUPLE: u8 = 105;
pub(super) const NIL: u8 = 106;
pub(super) const STRING: u8 = 107;
pub(super) const LIST: u8 = 108;
pub(super) const BINARY: u8 = 109;
pub(super) const SMALL_BIG: u8 = 110;
pub(super) const LARGE_BIG: u8 = 111;
pub(super) const NEW_FUN: u8 = 112;
pub(super) const EXPORT: u8 = 113;
pub(super) const SMALL_ATOM: u8 = 115;
pub(super) const MAP: u8 = 116;
pub(super) const ATOM_UTF8: u8 = 118;
pub(super) const SMALL_ATOM_UTF8: u8 = 119;
pub(super) const V4_PORT: u8 = 120;

/// The most bytes of an integer. BEAM nodes refuse larger integers.
const BIG_MAX: usize = 1 << 16;

/// Writes terms to the end of a buffer.
#[derive(Debug)]
pub(crate) struct Writer<'a> {
    out: &'a mut Vec<u8>,
    depth: usize,
}

impl<'a> Writer<'a> {
    pub(crate) fn new(out: &'a mut Vec<u8>) -> Self {
        Self { out, depth: 0 }
    }

    fn length(&mut self, length: usize) -> Result<(), EncodeError> {
        let length = u32::try_from(length).map_err(|_| EncodeError::TooLong)?;
        self.out.extend(length.to_be_bytes());
        Ok(())
    }

    /// Writes the tag with a length of one byte if that suffices, else the tag with a length of
    /// four bytes.
    fn tag(&mut self, small: u8, large: u8, length: usize) -> Result<(), EncodeError> {
        match u8::try_from(length) {
            Ok(length) => self.out.extend([small, length]),
            Err(_) => {
                self.out.push(large);
                self.length(length)?;
            }
        }
        Ok(())
    }

    /// Writes an atom.
    pub(crate) fn atom(&mut self, atom: &Atom) {
        let text = atom.as_str().as_bytes();
        match u8::try_from(text.len()) {
            Ok(length) => self.out.extend([SMALL_ATOM_UTF8, length]),
            Err(_) => {
                self.out.push(ATOM_UTF8);
                // At most 255 characters of 4 bytes.
                self.out.extend((text.len() as u16).to_be_bytes());
            }
        }
        self.out.extend(text);
    }

    /// Writes the atom without text.
    pub(crate) fn no_atom(&mut self) {
        self.out.extend([SMALL_ATOM_UTF8, 0]);
    }

    /// Writes a PID.
    pub(crate) fn pid(&mut self, pid: &NodePid) {
        self.out.push(NEW_PID);
        self.atom(&pid.node);
        for number in [pid.id, pid.serial, pid.creation] {
            self.out.extend(number.to_be_bytes());
        }
    }

    /// Writes a reference.
    pub(crate) fn reference(&mut self, reference: &Reference) {
        self.out.extend([NEWER_REFERENCE, 0, reference.len]);
        self.atom(&reference.node);
        self.out.extend(reference.creation.to_be_bytes());
        for word in reference.words() {
            self.out.extend(word.to_be_bytes());
        }
    }

    fn port(&mut self, port: &Port) {
        self.out.push(V4_PORT);
        self.atom(&port.node);
        self.out.extend(port.id.to_be_bytes());
        self.out.extend(port.creation.to_be_bytes());
    }

    /// Writes an integer.
    pub(crate) fn integer(&mut self, value: i64) {
        if let Ok(small) = u8::try_from(value) {
            self.out.extend([SMALL_INTEGER, small]);
        } else if let Ok(word) = i32::try_from(value) {
            self.out.push(INTEGER);
            self.out.extend(word.to_be_bytes());
        } else {
            let bytes = value.unsigned_abs().to_le_bytes();
            let digits = bytes.len() - value.unsigned_abs().leading_zeros() as usize / 8;
            self.out.extend([SMALL_BIG, digits as u8, u8::from(value < 0)]);
            self.out.extend(&bytes[..digits]);
        }
    }

    fn big(&mut self, value: &BigInteger) -> Result<(), EncodeError> {
        // Each integer has one form, as keys of maps are compared by it.
        if let Some(small) = value.as_i64() {
            self.integer(small);
            return Ok(());
        }
        if value.magnitude.len() > BIG_MAX {
            return Err(EncodeError::TooLong);
        }
        self.tag(SMALL_BIG, LARGE_BIG, value.magnitude.len())?;
        self.out.push(u8::from(value.is_negative));
        self.out.extend(&value.magnitude);
        Ok(())
    }

    fn items(&mut self, items: &[Term]) -> Result<(), EncodeError> {
        items.iter().try_for_each(|item| self.term(item))
    }

    fn list(&mut self, items: &[Term]) -> Result<(), EncodeError> {
        self.out.push(LIST);
        self.length(items.len())?;
        self.items(items)
    }

    fn map(&mut self, pairs: &[(Term, Term)]) -> Result<(), EncodeError> {
        self.out.push(MAP);
        self.length(pairs.len())?;
        let mut keys = Vec::with_capacity(pairs.len());
        for (key, value) in pairs {
            let from = self.out.len();
            self.term(key)?;
            keys.push(from..self.out.len());
            self.term(value)?;
        }
        // A BEAM node ends the connection if a key is there twice.
        keys.sort_unstable_by(|a, b| self.out[a.clone()].cmp(&self.out[b.clone()]));
        match keys.windows(2).any(|two| self.out[two[0].clone()] == self.out[two[1].clone()]) {
            true => Err(EncodeError::DuplicateKey),
            false => Ok(()),
        }
    }

    fn fun(&mut self, fun: &Fun) -> Result<(), EncodeError> {
        self.out.push(NEW_FUN);
        let from = self.out.len();
        self.out.extend([0; 4]);
        self.out.push(fun.arity);
        self.out.extend(fun.unique);
        self.out.extend(fun.index.to_be_bytes());
        self.length(fun.free.len())?;
        self.atom(&fun.module);
        self.integer(fun.old_index);
        self.integer(fun.old_unique);
        self.pid(&fun.pid);
        self.items(&fun.free)?;
        let length = u32::try_from(self.out.len() - from).map_err(|_| EncodeError::TooLong)?;
        self.out[from..from + 4].copy_from_slice(&length.to_be_bytes());
        Ok(())
    }

    /// Writes a term. After an error, the buffer ends with a part of the term.
    pub(crate) fn term(&mut self, value: &Term) -> Result<(), EncodeError> {
        if self.depth == DEPTH_MAX {
            return Err(EncodeError::TooDeep);
        }
        self.depth += 1;
        match value {
            Term::Atom(value) => self.atom(value),
            Term::Integer(value) => self.integer(*value),
            Term::Big(value) => self.big(value)?,
            Term::Float(value) if !value.is_finite() => return Err(EncodeError::NotFinite),
            Term::Float(value) => {
                self.out.push(NEW_FLOAT);
                self.out.extend(value.to_be_bytes());
            }
            Term::Binary(bytes) => {
                self.out.push(BINARY);
                self.length(bytes.len())?;
                self.out.extend(&**bytes);
            }
            Term::Bits(bits) => {
                self.out.push(BIT_BINARY);
                self.length(bits.bytes.len())?;
                self.out.push(bits.last);
                self.out.extend(&*bits.bytes);
            }
            Term::List(list) if list.is_empty() => self.out.push(NIL),
            Term::List(list) => {
                self.list(list)?;
                self.out.push(NIL);
            }
            Term::Improper(list, tail) if list.is_empty() => self.term(tail)?,
            Term::Improper(list, tail) => {
                self.list(list)?;
                self.term(tail)?;
            }
            Term::Tuple(items) => {
                self.tag(SMALL_TUPLE, LARGE_TUPLE, items.len())?;
                self.items(items)?;
            }
            Term::Map(pairs) => self.map(pairs)?,
            Term::Pid(value) => self.pid(value),
            Term::Reference(value) => self.reference(value),
            Term::Port(value) => self.port(value),
            Term::Export(function) => {
                let (module, name, arity) = &**function;
                self.out.push(EXPORT);
                self.atom(module);
                self.atom(name);
                self.integer(i64::from(*arity));
            }
            Term::Fun(fun) => self.fun(fun)?,
        }
        self.depth -= 1;
        Ok(())
    }
}
