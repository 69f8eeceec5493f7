//! The wire between two nodes: what is said (`control`), and how it is cut into frames (`frame`).

pub(crate) mod calls;
pub(crate) mod control;
pub(crate) mod frame;
pub(crate) mod names;
pub(crate) mod token;

use crate::term::decode::Reader;
use crate::term::{Atom, DEPTH_MAX, DecodeError, Term};
use crate::wire::control::{Control, WrongControl};
use crate::wire::frame::{Frames, WrongFrame};

/// What a frame has brought: an operation, with its message if it has one.
pub(crate) type Incoming = (Control, Option<Term>);

/// A frame that breaks the protocol, or a limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Wrong {
    Frame(WrongFrame),
    Control(WrongControl),
    Message(DecodeError),
    /// The frame of a node without headers begins in another way, or lacks its message.
    Plain,
}

impl Wrong {
    /// Returns the reason for which the connection ends. `limit` is the limit of messages.
    pub(crate) fn why(&self, limit: usize) -> String {
        match self {
            Self::Frame(WrongFrame::TooMuch) => {
                format!("its unfinished messages have more than {limit} bytes")
            }
            Self::Message(why) | Self::Control(WrongControl::Term(why)) => match why {
                DecodeError::TooLarge => format!("a message takes more than {limit} bytes"),
                DecodeError::TooDeep => format!("a message has more than {DEPTH_MAX} levels"),
                _ => format!("it broke the protocol: {self:?}"),
            },
            _ => format!("it broke the protocol: {self:?}"),
        }
    }
}

impl From<WrongFrame> for Wrong {
    fn from(why: WrongFrame) -> Self {
        Self::Frame(why)
    }
}

impl From<WrongControl> for Wrong {
    fn from(why: WrongControl) -> Self {
        Self::Control(why)
    }
}

/// Reads a frame without its length. Returns `None` if the frame is a tick or its message has more
/// fragments. `known` are frequent atoms.
///
/// A message beyond the limit of `frames` is an error, for which the connection ends: if it were
/// dropped, its sender would take it for delivered.
pub(crate) fn read(
    frames: &mut Frames,
    has_headers: bool,
    known: &[Atom],
    frame: &[u8],
) -> Result<Option<Incoming>, Wrong> {
    let limit = frames.limit();
    let (control, message) = if has_headers {
        let Some(whole) = frames.read(frame)? else { return Ok(None) };
        let mut reader = Reader::new(&whole.bytes, &whole.atoms, limit).with_known(known);
        let control = Control::read(&mut reader)?;
        let message = control.has_message().then(|| reader.clone().last_term());
        if message.is_none() {
            reader.end().map_err(Wrong::Message)?;
        }
        (control, message)
    } else {
        if frame.is_empty() {
            return Ok(None);
        }
        let bytes = frame.strip_prefix(b"p\x83").ok_or(Wrong::Plain)?;
        let mut reader = Reader::new(bytes, &[], limit);
        let control = Control::read(&mut reader)?;
        let message = match (control.has_message(), reader.rest().split_first()) {
            (false, _) => None,
            (true, Some((131, rest))) => Some(Reader::new(rest, &[], limit).last_term()),
            (true, _) => return Err(Wrong::Plain),
        };
        (control, message)
    };
    Ok(Some((control, message.transpose().map_err(Wrong::Message)?)))
}
