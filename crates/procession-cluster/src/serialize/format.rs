//! The formats of the content of versioned messages.

use std::fmt;

use serde_core::Serialize;
use serde_core::de::DeserializeOwned;

use crate::serialize::convert::{from_term, to_term};
use crate::serialize::error::ConvertError;
use crate::term::Term;

/// The format in which a version of a message is written.
///
/// | | fields that are added | nodes |
/// |---|---|---|
/// | `Term` | are ignored by older readers, and may have a `#[serde(default)]` | any |
/// | `Postcard` (feature `postcard`) | need a new version, as it has no names | of this crate |
/// | `MessagePack` (feature `message-pack`) | as for `Term` | of this crate |
///
/// Postcard is the smallest. MessagePack has the names of fields and variants in it, so a type
/// may evolve within one version.
///
/// # Limits
/// In the two formats of other crates, a message has at most 16 MiB and 128 levels, options,
/// newtypes and enums included. Its sequences and maps have at most as many items together as the
/// message has bytes, and 4096 more, and these take at most 64 MiB of memory. A message beyond
/// these limits is refused where it is read. A message of more than 16 MiB is also refused where it
/// is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Format {
    /// The terms of [`to_term`].
    #[default]
    Term,
    /// The format of the crate `postcard`.
    #[cfg(feature = "postcard")]
    #[cfg_attr(docsrs, doc(cfg(feature = "postcard")))]
    Postcard,
    /// MessagePack, with the names of fields.
    #[cfg(feature = "message-pack")]
    #[cfg_attr(docsrs, doc(cfg(feature = "message-pack")))]
    MessagePack,
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word().unwrap_or("term"))
    }
}

impl Format {
    /// Returns the atom that says so in a message. A term needs none.
    pub(super) fn word(self) -> Option<&'static str> {
        match self {
            Self::Term => None,
            #[cfg(feature = "postcard")]
            Self::Postcard => Some("postcard"),
            #[cfg(feature = "message-pack")]
            Self::MessagePack => Some("message_pack"),
        }
    }

    /// Writes the content of a message.
    pub(super) fn write<T: Serialize + ?Sized>(self, value: &T) -> Result<Term, ConvertError> {
        match self {
            Self::Term => to_term(value),
            #[cfg(feature = "postcard")]
            Self::Postcard => bytes::write(|out| postcard::to_io(value, out).map(drop)),
            #[cfg(feature = "message-pack")]
            Self::MessagePack => bytes::write(|out| {
                value.serialize(&mut rmp_serde::Serializer::new(out).with_struct_map())
            }),
        }
    }

    /// Reads the content of a message.
    pub(super) fn read<T: DeserializeOwned>(self, content: Term) -> Result<T, ConvertError> {
        match self {
            Self::Term => from_term(content),
            #[cfg(feature = "postcard")]
            Self::Postcard => bytes::read(&content, |bytes, limits| {
                let mut deserializer = postcard::Deserializer::from_bytes(bytes);
                let value = T::deserialize(limits.limit(&mut deserializer))?;
                Ok::<_, postcard::Error>((value, deserializer.finalize()?.len()))
            }),
            #[cfg(feature = "message-pack")]
            Self::MessagePack => bytes::read(&content, |bytes, limits| {
                let mut deserializer = rmp_serde::Deserializer::new(bytes);
                let value = T::deserialize(limits.limit(&mut deserializer))?;
                Ok::<_, rmp_serde::decode::Error>((value, deserializer.into_inner().len()))
            }),
        }
    }
}

/// Messages as bytes, with limits.
#[cfg(any(feature = "postcard", feature = "message-pack"))]
mod bytes {
    use std::fmt::Display;
    use std::io::{self, ErrorKind};

    use serde_core::de::Error;

    use crate::serialize::error::ConvertError;
    use crate::serialize::limited::Limits;
    use crate::term::{DEPTH_MAX, Term};

    /// The bytes of the longest message.
    pub(super) const MESSAGE_MAX: usize = 16 << 20;
    /// The items of a message that may take no bytes in it.
    const ITEMS_LEAST: usize = 1 << 12;
    /// The memory that the items of a message may take.
    const MEMORY_MAX: usize = 64 << 20;

    /// A buffer that takes no more than one message.
    struct Buffer {
        bytes: Vec<u8>,
        is_full: bool,
    }

    impl io::Write for Buffer {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            if bytes.len() > MESSAGE_MAX - self.bytes.len() {
                self.is_full = true;
                return Err(ErrorKind::StorageFull.into());
            }
            self.bytes.extend(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn too_long() -> ConvertError {
        ConvertError::custom(format_args!("the message has more than {MESSAGE_MAX} bytes"))
    }

    pub(super) fn write<E: Display>(
        write: impl FnOnce(&mut dyn io::Write) -> Result<(), E>,
    ) -> Result<Term, ConvertError> {
        let mut buffer = Buffer { bytes: Vec::new(), is_full: false };
        match write(&mut buffer) {
            Ok(()) => Ok(Term::from(buffer.bytes)),
            Err(_) if buffer.is_full => Err(too_long()),
            Err(error) => Err(ConvertError::custom(error)),
        }
    }

    /// Reads a value, of which `read` also returns the number of bytes that it has left.
    pub(super) fn read<T, E: Display>(
        content: &Term,
        read: impl FnOnce(&[u8], &Limits) -> Result<(T, usize), E>,
    ) -> Result<T, ConvertError> {
        let Some(bytes) = content.as_bytes() else {
            let came = crate::reason::bounded(content);
            return Err(ConvertError::custom(format_args!("{came} came, and not bytes")));
        };
        if bytes.len() > MESSAGE_MAX {
            return Err(too_long());
        }
        let limits = Limits::new(DEPTH_MAX, bytes.len() + ITEMS_LEAST, MEMORY_MAX);
        let value = read(bytes, &limits);
        if let Some(what) = limits.exceeded() {
            return Err(ConvertError::custom(format_args!("the message has too many {what}")));
        }
        match value.map_err(ConvertError::custom)? {
            (value, 0) => Ok(value),
            (_, left) => {
                Err(ConvertError::custom(format_args!("{left} bytes are behind the message")))
            }
        }
    }
}

#[cfg(test)]
#[cfg(all(feature = "postcard", feature = "message-pack"))]
mod tests;
