//! The memory of terms.

use super::decode::ATOM_HEAD;
use super::{Atom, Term};

impl Term {
    /// Returns about how many bytes of memory the term takes. Bytes that it shares count as its
    /// own.
    pub fn memory_bytes(&self) -> usize {
        let atom = |atom: &Atom| ATOM_HEAD + atom.as_str().len();
        let all = |items: &[Self]| items.iter().map(Self::memory_bytes).sum::<usize>();
        size_of::<Self>()
            + match self {
                Self::Atom(text) => atom(text),
                Self::Big(value) => size_of_val(&**value) + value.magnitude.len(),
                Self::Binary(bytes) => bytes.len(),
                Self::Bits(bits) => bits.bytes.len(),
                Self::List(items) | Self::Tuple(items) => all(items),
                Self::Improper(items, tail) => all(items) + tail.memory_bytes(),
                Self::Map(pairs) => {
                    pairs.iter().map(|(key, value)| key.memory_bytes() + value.memory_bytes()).sum()
                }
                Self::Fun(fun) => {
                    size_of_val(&**fun) + atom(&fun.module) + atom(&fun.pid.node) + all(&fun.free)
                }
                Self::Reference(reference) => size_of_val(&**reference) + atom(&reference.node),
                Self::Port(port) => size_of_val(&**port) + atom(&port.node),
                Self::Export(function) => {
                    size_of_val(&**function) + atom(&function.0) + atom(&function.1)
                }
                Self::Pid(pid) => atom(&pid.node),
                Self::Integer(_) | Self::Float(_) => 0,
            }
    }
}
