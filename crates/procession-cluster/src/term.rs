//! Terms: the values in messages between BEAM nodes.

use std::fmt::{self, Write};
use std::sync::Arc;

pub(crate) mod decode;
pub(crate) mod encode;
mod error;
pub(crate) mod maps;
mod memory;
mod parse;
#[cfg(test)]
mod tests;

pub use self::error::{DecodeError, EncodeError, ParseTermError};

/// The deepest nesting of a term that is sent or taken.
pub(crate) const DEPTH_MAX: usize = 128;

/// The name of a constant, as in Erlang. It has at most 255 characters.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Atom(Arc<str>);

impl Atom {
    /// The longest text of an atom, in characters.
    pub const CHARS_MAX: usize = 255;

    /// Creates an atom. Returns `None` if the text has more than 255 characters.
    pub fn new(text: impl Into<Arc<str>>) -> Option<Self> {
        let text = text.into();
        (text.len() <= Self::CHARS_MAX || text.chars().count() <= Self::CHARS_MAX)
            .then_some(Self(text))
    }

    /// Creates an atom of a text that is known to be short.
    pub(crate) fn known(text: &'static str) -> Self {
        Self(text.into())
    }

    /// Returns the text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Atom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Writes the atom as Erlang does, with quotes where it needs them.
impl fmt::Display for Atom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut chars = self.0.chars();
        let is_plain = chars.next().is_some_and(|first| first.is_ascii_lowercase())
            && chars.all(|next| next.is_ascii_alphanumeric() || next == '_' || next == '@');
        if is_plain {
            return f.write_str(&self.0);
        }
        f.write_char('\'')?;
        for char in self.0.chars() {
            match char {
                '\'' | '\\' => write!(f, "\\{char}")?,
                _ if char.is_control() => write!(f, "{}", char.escape_default())?,
                _ => f.write_char(char)?,
            }
        }
        f.write_char('\'')
    }
}

/// The identifier of a process of any node of the cluster.
///
/// It stays the identifier of this process only: it includes the incarnation of its node. A node
/// that was restarted is another incarnation.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodePid {
    /// The name of the node.
    pub node: Atom,
    /// The number of the process in its node.
    pub id: u32,
    /// How often the number was used before.
    pub serial: u32,
    /// The incarnation of the node. BEAM nodes call it the creation.
    pub creation: u32,
}

impl NodePid {
    /// Returns the number of the process in its node, with the serial in its upper bits.
    pub(crate) fn number(&self) -> u64 {
        u64::from(self.serial) << 32 | u64::from(self.id)
    }
}

// As the output of a process, each is a success.
impl procession::process::Outcome for NodePid {}
impl procession::process::Outcome for Reference {}
impl procession::process::Outcome for Term {}

impl fmt::Display for NodePid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "<{}:{}.{}>", self.node, self.id, self.serial)
    }
}

/// A reference: a value that no other operation of the cluster has, such as the name of a monitor
/// or of a call.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Reference {
    /// The name of the node that made it.
    pub node: Atom,
    /// The incarnation of that node.
    pub creation: u32,
    /// Its number. The words after the first [`len`](Self::len) are zero.
    pub(crate) words: [u32; Self::WORDS_MAX],
    pub(crate) len: u8,
}

impl Reference {
    /// The most words of the number of a reference.
    pub const WORDS_MAX: usize = 5;

    pub(crate) fn new(node: Atom, creation: u32, words: &[u32]) -> Option<Self> {
        let mut all = [0; Self::WORDS_MAX];
        all.get_mut(..words.len())?.copy_from_slice(words);
        let len = u8::try_from(words.len()).ok()?;
        (len > 0).then_some(Self { node, creation, words: all, len })
    }

    /// Returns the words of its number.
    pub fn words(&self) -> &[u32] {
        &self.words[..usize::from(self.len)]
    }
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#Ref<{}", self.node)?;
        for word in self.words() {
            write!(f, ".{word}")?;
        }
        f.write_char('>')
    }
}

/// An integer that does not fit into 64 bits.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BigInteger {
    pub(crate) is_negative: bool,
    /// The digits in base 256, the least significant first. The last is not zero.
    pub(crate) magnitude: Vec<u8>,
}

impl BigInteger {
    /// Creates an integer. `magnitude` has its digits in base 256, the least significant first.
    pub fn new(is_negative: bool, mut magnitude: Vec<u8>) -> Self {
        while magnitude.last() == Some(&0) {
            magnitude.pop();
        }
        Self { is_negative, magnitude }
    }

    /// Returns `true` if it is less than zero.
    pub fn is_negative(&self) -> bool {
        self.is_negative
    }

    /// Returns the digits of its absolute value in base 256, the least significant first.
    pub fn magnitude(&self) -> &[u8] {
        &self.magnitude
    }

    /// Returns its value, if that has 64 bits.
    pub(crate) fn as_i64(&self) -> Option<i64> {
        let mut bytes = [0; 16];
        bytes.get_mut(..self.magnitude.len())?.copy_from_slice(&self.magnitude);
        let value = i128::try_from(u128::from_le_bytes(bytes)).ok()?;
        i64::try_from(if self.is_negative { -value } else { value }).ok()
    }
}

/// A value of Erlang.
///
/// Strings of Elixir are binaries. A string of Erlang is a list of integers.
///
/// ```
/// use procession_cluster::Term;
///
/// let term = Term::tuple([Term::atom("ok"), Term::from(7), Term::from("seven")]);
/// assert_eq!(term.to_string(), r#"{ok,7,<<"seven">>}"#);
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Term {
    /// An atom.
    Atom(Atom),
    /// An integer of at most 64 bits.
    Integer(i64),
    /// A larger integer.
    Big(Box<BigInteger>),
    /// A number with a fraction.
    Float(f64),
    /// Bytes, or the text of Elixir.
    Binary(Arc<[u8]>),
    /// Bits that do not fill their last byte.
    Bits(Bits),
    /// A proper list.
    List(Vec<Term>),
    /// A list with a tail that is no list.
    Improper(Vec<Term>, Box<Term>),
    /// A tuple.
    Tuple(Vec<Term>),
    /// A map, in the order in which it came.
    Map(Vec<(Term, Term)>),
    /// A process.
    Pid(NodePid),
    /// A reference.
    Reference(Box<Reference>),
    /// A port of a BEAM node.
    Port(Box<Port>),
    /// A function that a module exports: module, name, arity.
    Export(Box<(Atom, Atom, u8)>),
    /// A function with an environment, which only a BEAM node can call.
    Fun(Box<Fun>),
}

/// Bits that do not fill their last byte.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bits {
    pub(crate) bytes: Arc<[u8]>,
    /// The number of bits of the last byte that count, from 1 to 7. They are its highest bits.
    pub(crate) last: u8,
}

impl Bits {
    /// Creates a sequence of bits. Of the last byte, its `last` highest bits count. Returns `None`
    /// if there is no byte, or if `last` is not from 1 to 7.
    pub fn new(bytes: impl Into<Arc<[u8]>>, last: u8) -> Option<Self> {
        let bytes = bytes.into();
        (!bytes.is_empty() && (1..=7).contains(&last)).then_some(Self { bytes, last })
    }

    /// Returns the bytes. Of the last one, only the highest bits count.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns the number of bits.
    pub fn bit_count(&self) -> usize {
        self.bytes.len() * 8 - 8 + usize::from(self.last)
    }
}

/// A function with an environment. It can be passed on, and only a BEAM node can call it.
#[derive(Clone, Debug, PartialEq)]
pub struct Fun {
    pub(crate) arity: u8,
    pub(crate) unique: [u8; 16],
    pub(crate) index: u32,
    pub(crate) module: Atom,
    pub(crate) old_index: i64,
    pub(crate) old_unique: i64,
    pub(crate) pid: NodePid,
    pub(crate) free: Vec<Term>,
}

/// A port of a BEAM node.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Port {
    /// The name of the node.
    pub node: Atom,
    /// The number of the port in its node.
    pub id: u64,
    /// The incarnation of the node.
    pub creation: u32,
}

impl Term {
    /// Creates an atom.
    ///
    /// # Panics
    /// If the text has more than 255 characters. [`Atom::new`] checks it.
    pub fn atom(text: &str) -> Self {
        Self::Atom(Atom::new(text).expect("an atom has at most 255 characters"))
    }

    /// Creates a tuple.
    pub fn tuple(items: impl IntoIterator<Item = Self>) -> Self {
        Self::Tuple(items.into_iter().collect())
    }

    /// Creates a proper list.
    pub fn list(items: impl IntoIterator<Item = Self>) -> Self {
        Self::List(items.into_iter().collect())
    }

    /// Returns `true` if it is this atom.
    pub fn is_atom(&self, text: &str) -> bool {
        matches!(self, Self::Atom(atom) if atom.as_str() == text)
    }

    /// Returns the integer, if it is one of at most 64 bits.
    pub fn as_integer(&self) -> Option<i64> {
        match self {
            Self::Integer(value) => Some(*value),
            _ => None,
        }
    }

    /// Returns the items, if it is a tuple.
    pub fn as_tuple(&self) -> Option<&[Self]> {
        match self {
            Self::Tuple(items) => Some(items),
            _ => None,
        }
    }

    /// Returns the bytes, if it is a binary.
    pub fn as_bytes(&self) -> Option<&[u8]> {
        match self {
            Self::Binary(bytes) => Some(bytes),
            _ => None,
        }
    }

    /// Returns the text, if it is a binary or a list of characters that is text, or an atom.
    pub fn to_text(&self) -> Option<String> {
        match self {
            Self::Binary(bytes) => String::from_utf8(bytes.to_vec()).ok(),
            Self::Atom(atom) => Some(atom.as_str().to_owned()),
            Self::List(items) => items.iter().map(Self::as_char).collect(),
            _ => None,
        }
    }

    fn as_char(&self) -> Option<char> {
        char::from_u32(u32::try_from(self.as_integer()?).ok()?)
    }

    /// Returns the process, if it is one.
    pub fn as_pid(&self) -> Option<&NodePid> {
        match self {
            Self::Pid(pid) => Some(pid),
            _ => None,
        }
    }
}

macro_rules! integers {
    ($($integer:ty)*) => {$(
        impl From<$integer> for Term {
            fn from(value: $integer) -> Self {
                Self::Integer(value.into())
            }
        }
    )*};
}

integers!(i8 i16 i32 i64 u8 u16 u32);

impl From<bool> for Term {
    fn from(value: bool) -> Self {
        Self::Atom(Atom::known(if value { "true" } else { "false" }))
    }
}

impl From<f64> for Term {
    fn from(value: f64) -> Self {
        Self::Float(value)
    }
}

impl From<&str> for Term {
    fn from(text: &str) -> Self {
        Self::Binary(text.as_bytes().into())
    }
}

impl From<String> for Term {
    fn from(text: String) -> Self {
        Self::Binary(text.into_bytes().into())
    }
}

impl From<Vec<u8>> for Term {
    fn from(bytes: Vec<u8>) -> Self {
        Self::Binary(bytes.into())
    }
}

impl From<NodePid> for Term {
    fn from(pid: NodePid) -> Self {
        Self::Pid(pid)
    }
}

impl From<Atom> for Term {
    fn from(atom: Atom) -> Self {
        Self::Atom(atom)
    }
}

impl From<Reference> for Term {
    fn from(reference: Reference) -> Self {
        Self::Reference(Box::new(reference))
    }
}

/// Writes the term in the notation of Erlang.
impl fmt::Display for Term {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Atom(atom) => write!(f, "{atom}"),
            Self::Integer(value) => write!(f, "{value}"),
            Self::Big(value) => {
                let sign = if value.is_negative { "-" } else { "" };
                write!(f, "{sign}16#")?;
                value.magnitude.iter().rev().try_for_each(|digit| write!(f, "{digit:02X}"))
            }
            Self::Float(value) => write!(f, "{value:?}"),
            Self::Binary(bytes) => write_binary(f, bytes),
            Self::Bits(bits) => {
                let (last, whole) = bits.bytes.split_last().unwrap_or((&0, &[]));
                f.write_str("<<")?;
                whole.iter().try_for_each(|byte| write!(f, "{byte},"))?;
                write!(f, "{}:{}>>", last >> (8 - bits.last), bits.last)
            }
            Self::List(items) => write_items(f, "[", items, "]"),
            Self::Improper(items, tail) => {
                write_items(f, "[", items, "|")?;
                write!(f, "{tail}]")
            }
            Self::Tuple(items) => write_items(f, "{", items, "}"),
            Self::Map(pairs) => {
                f.write_str("#{")?;
                for (n, (key, value)) in pairs.iter().enumerate() {
                    write!(f, "{}{key} => {value}", if n == 0 { "" } else { "," })?;
                }
                f.write_char('}')
            }
            Self::Pid(pid) => write!(f, "{pid}"),
            Self::Reference(reference) => write!(f, "{reference}"),
            Self::Port(port) => write!(f, "#Port<{}.{}>", port.node, port.id),
            Self::Export(function) => {
                let (module, name, arity) = &**function;
                write!(f, "fun {module}:{name}/{arity}")
            }
            Self::Fun(fun) => write!(f, "#Fun<{}.{}>", fun.module, fun.old_index),
        }
    }
}

fn write_items(f: &mut fmt::Formatter<'_>, open: &str, items: &[Term], close: &str) -> fmt::Result {
    f.write_str(open)?;
    for (n, item) in items.iter().enumerate() {
        write!(f, "{}{item}", if n == 0 { "" } else { "," })?;
    }
    f.write_str(close)
}

fn write_binary(f: &mut fmt::Formatter<'_>, bytes: &[u8]) -> fmt::Result {
    f.write_str("<<")?;
    match std::str::from_utf8(bytes) {
        Ok(text) if !text.is_empty() && !text.chars().any(char::is_control) => {
            write!(f, "{text:?}")?;
        }
        _ => {
            for (n, byte) in bytes.iter().enumerate() {
                write!(f, "{}{byte}", if n == 0 { "" } else { "," })?;
            }
        }
    }
    f.write_str(">>")
}
