//! What a process shows of itself.

use std::fmt;

use crate::util::bounded_text::{bounded_text, cut};

/// The maximum number of fields.
const FIELDS_MAX: usize = 64;
/// The maximum length of a name in bytes.
const NAME_MAX: usize = 64;
/// The maximum length of a value in bytes.
pub(crate) const VALUE_MAX: usize = 1024;

/// The fields that a process shows of itself. See
/// [`Scheduler::inspect`](crate::Scheduler::inspect).
///
/// It has at most 64 fields, with names of at most 64 bytes and values of at most 1024 bytes. The
/// rest is cut off.
///
/// ```
/// use procession::observe::Inspection;
///
/// let mut shown = Inspection::default();
/// shown.field("balance", 120).field("owner", format_args!("{:?}", "ann"));
/// let fields: Vec<_> = shown.fields().collect();
/// assert_eq!(fields, [("balance", "120"), ("owner", "\"ann\"")]);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Inspection {
    fields: Vec<(String, String)>,
    truncated: bool,
}

impl crate::Outcome for Inspection {}

impl Inspection {
    /// Adds a field.
    pub fn field(&mut self, name: &str, value: impl fmt::Display) -> &mut Self {
        if self.fields.len() == FIELDS_MAX {
            self.truncated = true;
            return self;
        }
        let (text, is_whole) = bounded_text(value, VALUE_MAX);
        let short = cut(name, NAME_MAX);
        self.truncated |= !is_whole || short.len() < name.len();
        self.fields.push((short.to_owned(), text));
        self
    }

    /// Returns the fields, each a name and a value, in the order in which they were added.
    pub fn fields(&self) -> impl Iterator<Item = (&str, &str)> {
        self.fields.iter().map(|(name, value)| (&**name, &**value))
    }

    /// Returns `true` if there are no fields.
    pub fn is_empty(&self) -> bool {
        self.fields.is_empty()
    }

    /// Returns `true` if something was cut off.
    pub fn is_truncated(&self) -> bool {
        self.truncated
    }
}
