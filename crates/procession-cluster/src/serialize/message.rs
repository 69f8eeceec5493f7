//! Messages of a Rust type that has versions.

use std::error::Error;
use std::fmt;
use std::sync::Arc;

use serde_core::Serialize;
use serde_core::de::DeserializeOwned;

use crate::serialize::error::ConvertError;
use crate::serialize::format::Format;
use crate::term::{Atom, Term};
use crate::wire::calls::last;

/// The first item of a message with a version.
const HEAD: &str = "$message";

/// Reads an older version of a message.
type ReadOlder<M> = Arc<dyn Fn(Format, Term) -> Result<M, ConvertError> + Send + Sync>;

struct Older<M> {
    version: u32,
    /// The format, if it is not the format of the current version.
    format: Option<Format>,
    read: ReadOlder<M>,
}

impl<M> Clone for Older<M> {
    fn clone(&self) -> Self {
        Self { read: Arc::clone(&self.read), ..*self }
    }
}

/// The messages of a type, under a name and with a version, for nodes that may run different
/// releases of a program.
///
/// [`message`] makes it. A message is the term `{'$message', Name, Version, Term}`, so its type is
/// known where it arrives. In the other [formats](Format) it is `{'$message', Name, Version,
/// Format, Bytes}`, where the format is the atom `postcard` or `message_pack`. A message in another
/// format than the expected one is refused. A change of the type that old messages do not fit is a
/// new version; [`older`](Self::older) describes how to read earlier versions, so that a new
/// release understands an old release. For the way back, [`write_older`](Self::write_older) writes
/// an older version.
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
    format: Format,
    older: Vec<Older<M>>,
}

impl<M> Clone for Messages<M> {
    fn clone(&self) -> Self {
        Self { older: self.older.clone(), ..*self }
    }
}

/// Makes the messages of a type, by the name that all releases use for it, and its version in this
/// one.
pub fn message<M>(name: &'static str, version: u32) -> Messages<M> {
    Messages { name, version, format: Format::Term, older: Vec::new() }
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
    /// It is written in another format, or in a format that this node cannot read.
    Format {
        /// The name of the message.
        name: &'static str,
        /// The word of the format that came, or `term`.
        came: Atom,
        /// The format that is expected.
        expected: Format,
    },
    /// It has the name, the version and the format, and not the form.
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
            Self::Format { name, came, expected } => {
                let came = came.as_str();
                write!(
                    f,
                    "the message {name} came in the format {came}, and {expected} is expected"
                )
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

    /// Returns the format of this version.
    pub fn format(&self) -> Format {
        self.format
    }

    /// Sets the format of this version, and of the older versions without a format.
    ///
    /// ```
    /// # #[cfg(feature = "message-pack")] {
    /// use procession_cluster::serialize::{Format, message};
    /// use serde::{Deserialize, Serialize};
    ///
    /// #[derive(Serialize)]
    /// struct Job {
    ///     item: String,
    ///     urgent: bool,
    /// }
    /// /// The same message in the release before.
    /// #[derive(Deserialize)]
    /// struct OldJob {
    ///     item: String,
    /// }
    ///
    /// let jobs = message::<Job>("shop.job", 1).in_format(Format::MessagePack);
    /// let term = jobs.write(&Job { item: "tea".into(), urgent: true })?;
    /// let old_jobs = message::<OldJob>("shop.job", 1).in_format(Format::MessagePack);
    /// assert_eq!(old_jobs.read(term)?.item, "tea");
    /// # }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn in_format(mut self, format: Format) -> Self {
        self.format = format;
        self
    }

    /// Also reads an older version: `upgrade` converts it to the current version. It is in the
    /// format of this version.
    pub fn older<O: DeserializeOwned>(
        self,
        version: u32,
        upgrade: impl Fn(O) -> M + Send + Sync + 'static,
    ) -> Self {
        self.with_older(version, None, upgrade)
    }

    /// Reads an older version that is in another format, like [`older`](Self::older).
    pub fn older_in<O: DeserializeOwned>(
        self,
        format: Format,
        version: u32,
        upgrade: impl Fn(O) -> M + Send + Sync + 'static,
    ) -> Self {
        self.with_older(version, Some(format), upgrade)
    }

    fn with_older<O: DeserializeOwned>(
        mut self,
        version: u32,
        format: Option<Format>,
        upgrade: impl Fn(O) -> M + Send + Sync + 'static,
    ) -> Self {
        let read = Arc::new(move |format: Format, term| format.read(term).map(&upgrade));
        self.older.retain(|older| older.version != version);
        self.older.push(Older { version, format, read });
        self
    }

    /// Writes an older version for nodes that do not know this one, in the format in which it is
    /// read.
    ///
    /// # Errors
    /// [`ConvertError`]: the value cannot be written in the format.
    pub fn write_older<O: Serialize>(&self, version: u32, older: &O) -> Result<Term, ConvertError> {
        let known = self.older.iter().find(|known| known.version == version);
        self.write_as(version, known.and_then(|known| known.format).unwrap_or(self.format), older)
    }

    fn write_as(
        &self,
        version: u32,
        format: Format,
        message: &impl Serialize,
    ) -> Result<Term, ConvertError> {
        let content = format.write(message)?;
        let mut parts = vec![Term::atom(HEAD), Term::from(self.name), Term::from(version)];
        parts.extend(format.word().map(Term::atom));
        parts.push(content);
        Ok(Term::Tuple(parts))
    }

    fn versions(&self) -> Vec<u32> {
        let mut known: Vec<_> = self.older.iter().map(|older| older.version).collect();
        known.push(self.version);
        known.sort_unstable();
        known
    }
}

impl<M: Serialize> Messages<M> {
    /// Returns the term of a message.
    ///
    /// # Errors
    /// [`ConvertError`]: the message cannot be written in the format.
    pub fn write(&self, message: &M) -> Result<Term, ConvertError> {
        self.write_as(self.version, self.format, message)
    }
}

impl<M: DeserializeOwned> Messages<M> {
    /// Returns the message of a term, in this version or a known older version.
    ///
    /// # Errors
    /// [`MessageError`] says what the term is instead. It returns a term of another kind.
    pub fn read(&self, term: Term) -> Result<M, MessageError> {
        let (name, version, format) = match term.as_tuple() {
            Some([head, name, Term::Integer(version), _]) if head.is_atom(HEAD) => {
                (name, *version, None)
            }
            Some([head, name, Term::Integer(version), Term::Atom(format), _])
                if head.is_atom(HEAD) =>
            {
                (name, *version, Some(format.clone()))
            }
            _ => return Err(MessageError::Other(term)),
        };
        if name.as_bytes() != Some(self.name.as_bytes()) {
            return Err(MessageError::Name(term));
        }
        let older = self.older.iter().find(|older| i64::from(older.version) == version);
        let is_current = i64::from(self.version) == version;
        let expected = match older {
            _ if is_current => self.format,
            Some(older) => older.format.unwrap_or(self.format),
            None => {
                let known = self.versions();
                return Err(MessageError::Version { name: self.name, came: version, known });
            }
        };
        if format.as_ref().map(Atom::as_str) != expected.word() {
            let came = format.unwrap_or_else(|| Atom::known("term"));
            return Err(MessageError::Format { name: self.name, came, expected });
        }
        let content = last(term);
        let message = match older {
            Some(older) if !is_current => (older.read)(expected, content),
            _ => expected.read(content),
        };
        message.map_err(MessageError::Content)
    }
}

impl<M> fmt::Debug for Messages<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, version, format, .. } = self;
        f.debug_struct("Messages")
            .field("name", name)
            .field("version", version)
            .field("format", format)
            .finish()
    }
}
