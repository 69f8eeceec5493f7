//! Terms in values that serde converts. For the converters of this crate, a term is a newtype
//! struct with a name that no other has; its content is the term in the external format.

use serde_core::de::{self, Deserialize, Deserializer, Visitor};
use serde_core::ser::{self, Serialize, Serializer};

use crate::term::decode::Reader;
use crate::term::encode::Writer;
use crate::term::{Atom, NodePid, Reference, Term};

/// The name of the newtype struct.
pub(super) const NAME: &str = "$procession_cluster::Term";

/// The memory that a term may take if another format has brought it. The converters of this crate
/// have the term already, so they set no limit.
const MEMORY_MAX: usize = 64 << 20;

/// The content of the newtype struct.
struct Bytes<'a>(&'a [u8]);

impl Serialize for Bytes<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(self.0)
    }
}

pub(super) fn encode(term: &Term) -> Result<Vec<u8>, crate::term::EncodeError> {
    let mut bytes = Vec::new();
    Writer::new(&mut bytes).term(term)?;
    Ok(bytes)
}

/// Reads a term that takes at most `budget` bytes of memory.
pub(super) fn decode(bytes: &[u8], budget: usize) -> Result<Term, crate::term::DecodeError> {
    Reader::new(bytes, &[], budget).last_term()
}

impl Serialize for Term {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let bytes = encode(self).map_err(ser::Error::custom)?;
        serializer.serialize_newtype_struct(NAME, &Bytes(&bytes))
    }
}

/// Reads a term that takes at most so many bytes of memory.
struct TermVisitor(usize);

impl<'de> Visitor<'de> for TermVisitor {
    type Value = Term;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a term in the external format")
    }

    fn visit_newtype_struct<D: Deserializer<'de>>(self, inner: D) -> Result<Term, D::Error> {
        inner.deserialize_bytes(Self(MEMORY_MAX))
    }

    fn visit_bytes<E: de::Error>(self, bytes: &[u8]) -> Result<Term, E> {
        decode(bytes, self.0).map_err(E::custom)
    }

    fn visit_seq<A: de::SeqAccess<'de>>(self, mut items: A) -> Result<Term, A::Error> {
        let mut bytes = Vec::new();
        while let Some(byte) = items.next_element()? {
            bytes.push(byte);
        }
        self.visit_bytes(&bytes)
    }
}

impl<'de> Deserialize<'de> for Term {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_newtype_struct(NAME, TermVisitor(usize::MAX))
    }
}

macro_rules! as_terms {
    ($($type:ty, $form:pat => $value:expr, $what:literal;)*) => {$(
        impl Serialize for $type {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                Term::from(self.clone()).serialize(serializer)
            }
        }

        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                match Term::deserialize(deserializer)? {
                    $form => Ok($value),
                    other => {
                        let came = crate::reason::bounded(&other);
                        Err(de::Error::custom(format_args!(concat!("{} came, and not ", $what), came)))
                    }
                }
            }
        }
    )*};
}

as_terms! {
    Atom, Term::Atom(atom) => atom, "an atom";
    NodePid, Term::Pid(pid) => pid, "a PID";
    Reference, Term::Reference(reference) => *reference, "a reference";
}
