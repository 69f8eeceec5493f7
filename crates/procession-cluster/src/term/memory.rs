//! The memory of terms.

use super::Term;

impl Term {
    /// Returns about how many bytes of memory the term takes. Bytes that it shares count as its
    /// own.
    pub fn memory_bytes(&self) -> usize {
        let all = |items: &[Self]| items.iter().map(Self::memory_bytes).sum::<usize>();
        size_of::<Self>()
            + match self {
                Self::Atom(atom) => atom.as_str().len(),
                Self::Big(value) => size_of_val(&**value) + value.magnitude.len(),
                Self::Binary(bytes) => bytes.len(),
                Self::Bits(bits) => bits.bytes.len(),
                Self::List(items) | Self::Tuple(items) => all(items),
                Self::Improper(items, tail) => all(items) + tail.memory_bytes(),
                Self::Map(pairs) => {
                    pairs.iter().map(|(key, value)| key.memory_bytes() + value.memory_bytes()).sum()
                }
                Self::Fun(fun) => size_of_val(&**fun) + all(&fun.free),
                Self::Reference(reference) => size_of_val(&**reference),
                Self::Port(port) => size_of_val(&**port),
                Self::Export(function) => size_of_val(&**function),
                Self::Integer(_) | Self::Float(_) | Self::Pid(_) => 0,
            }
    }
}
