//! Messages of a Rust type that has versions.

use std::error::Error;
use std::fmt;
use std::sync::Arc;

use serde_core::Serialize;
use serde_core::de::DeserializeOwned;

use super::{ConvertError, from_term, to_term};
use crate::term::Term;

/// The first item of a message with a version.
const HEAD: &str = "$message";

/// Reads an older version of a message.
type Older<M> = Arc<dyn Fn(Term) -> Result<M, ConvertError> + Send + Sync>;

/// The messages of a type, under a name and with a version, for nodes that may run different
/// releases of a program.
///
/// [`message`] makes it. A message is the term `{'$message', Name, Version, Term}`, so its type is
/// known where it arrives. A change of the type that old messages do not fit is a new version;
/// [`older`](Self::older) tells how to read those before, so that a new release understands an old
/// one. For the way back, [`write_older`](Self::write_older) writes an older version.
///
/// ```
/// use procession_cluster::serialize::{MessageError, message};
/// use serde::{Deserialize, Serialize};
///
/// #[derive(Serialize, Deserialize)]
/// struct JobV1(String);
/// #[derive(Debug, PartialEq, Serialize, Deserialize)]
/// struct Job {
///     item: String,
///     count: u32,
/// }
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let jobs = message::<Job>("shop.job", 2)
///     .older(1, |JobV1(item)| Job { item, count: 1 });
/// let old = message::<JobV1>("shop.job", 1).write(&JobV1("tea".into()))?;
/// assert_eq!(jobs.read(old)?, Job { item: "tea".into(), count: 1 });
///
/// let newer = message::<u8>("shop.job", 3).write(&7)?;
/// assert!(matches!(jobs.read(newer), Err(MessageError::Version { came: 3, .. })));
/// # Ok(())
/// # }
/// ```
pub struct Messages<M> {
    name: &'static str,
    version: u32,
    older: Vec<(u32, Older<M>)>,
}

impl<M> Clone for Messages<M> {
    fn clone(&self) -> Self {
        Self { name: self.name, version: self.version, older: self.older.clone() }
    }
}

/// Makes the messages of a type, by the name that all releases use for it, and its version in this
/// one.
pub fn message<M>(name: &'static str, version: u32) -> Messages<M> {
    Messages { name, version, older: Vec::new() }
}

/// The error of a term that is no message of a type.
#[derive(Debug)]
#[non_exhaustive]
pub enum MessageError {
    /// It is no message with a version. The error returns it.
    Other(Term),
    /// It has another name. The error returns it.
    Name(Term),
    /// It has a version that this node does not know.
    Version {
        /// The name of the message.
        name: &'static str,
        /// The version that came.
        came: i64,
        /// The versions that are known.
        known: Vec<u32>,
    },
    /// It has the name and the version, and not the form.
    Content(ConvertError),
}

impl fmt::Display for MessageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Other(term) => {
                write!(f, "{} is no message with a version", crate::reason::bounded(term))
            }
            Self::Name(term) => {
                write!(f, "{} has the name of another message", crate::reason::bounded(term))
            }
            Self::Version { name, came, known } => {
                write!(f, "version {came} of the message {name} came, and {known:?} are known")
            }
            Self::Content(error) => write!(f, "the message has another form: {error}"),
        }
    }
}

impl Error for MessageError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Content(error) => Some(error),
            _ => None,
        }
    }
}

impl<M> Messages<M> {
    /// Returns the name.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Returns the version.
    pub fn version(&self) -> u32 {
        self.version
    }

    /// Reads an older version, too: `upgrade` makes the message of today of it.
    pub fn older<O: DeserializeOwned>(
        mut self,
        version: u32,
        upgrade: impl Fn(O) -> M + Send + Sync + 'static,
    ) -> Self {
        let read = move |term| from_term(term).map(&upgrade);
        self.older.retain(|(known, _)| *known != version);
        self.older.push((version, Arc::new(read)));
        self
    }

    /// Writes an older version for nodes that do not know this one.
    ///
    /// # Errors
    /// [`ConvertError`]: the value has no term.
    pub fn write_older<O: Serialize>(&self, version: u32, older: &O) -> Result<Term, ConvertError> {
        self.wrap(version, to_term(older)?)
    }

    fn wrap(&self, version: u32, term: Term) -> Result<Term, ConvertError> {
        Ok(Term::tuple([Term::atom(HEAD), Term::from(self.name), Term::from(version), term]))
    }
}

impl<M: Serialize> Messages<M> {
    /// Returns the term of a message.
    ///
    /// # Errors
    /// [`ConvertError`]: the message has no term.
    pub fn write(&self, message: &M) -> Result<Term, ConvertError> {
        self.wrap(self.version, to_term(message)?)
    }
}

impl<M: DeserializeOwned> Messages<M> {
    /// Returns the message of a term, in this version or an older one that is known.
    ///
    /// # Errors
    /// [`MessageError`] says what it is instead. A term of another kind comes back.
    pub fn read(&self, term: Term) -> Result<M, MessageError> {
        let (came, is_named) = match term.as_tuple() {
            Some([head, name, Term::Integer(version), _]) if head.is_atom(HEAD) => {
                (*version, name.as_bytes() == Some(self.name.as_bytes()))
            }
            _ => return Err(MessageError::Other(term)),
        };
        if !is_named {
            return Err(MessageError::Name(term));
        }
        let content = crate::letter::last(term);
        if came == i64::from(self.version) {
            return from_term(content).map_err(MessageError::Content);
        }
        match self.older.iter().find(|(version, _)| i64::from(*version) == came) {
            Some((_, read)) => read(content).map_err(MessageError::Content),
            None => {
                let mut known: Vec<_> = self.older.iter().map(|(version, _)| *version).collect();
                known.push(self.version);
                known.sort_unstable();
                Err(MessageError::Version { name: self.name, came, known })
            }
        }
    }
}

impl<M> fmt::Debug for Messages<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, version) = (self.name, self.version);
        f.debug_struct("Messages").field("name", &name).field("version", &version).finish()
    }
}
