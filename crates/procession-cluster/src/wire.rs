//! The wire between two nodes: what is said (`control`), and how it is cut into frames (`frame`).

pub(crate) mod calls;
pub(crate) mod control;
pub(crate) mod frame;
pub(crate) mod names;
pub(crate) mod token;

use crate::term::decode::Reader;
use crate::term::{Atom, DecodeError, Reference, Term};
use crate::wire::calls::call_of;
use crate::wire::control::{Control, WrongControl};
use crate::wire::frame::{Frames, WrongFrame};

/// The memory that the terms of one message may take.
const TERM_MEMORY_MAX: usize = 64 << 20;

/// What a frame has brought.
#[derive(Debug)]
pub(crate) enum Incoming {
    /// An operation, with its message if it has one.
    Operation(Control, Option<Term>),
    /// An operation with a message that is dropped, because it has no room here. If the message is
    /// a call, also the reference of the call.
    WithoutRoom(Control, Option<Reference>),
}

/// A frame that breaks the protocol.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Wrong {
    Frame(WrongFrame),
    Control(WrongControl),
    Message(DecodeError),
    /// The frame of a node without headers begins in another way, or lacks its message.
    Plain,
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
pub(crate) fn read(
    frames: &mut Frames,
    has_headers: bool,
    known: &[Atom],
    frame: &[u8],
) -> Result<Option<Incoming>, Wrong> {
    // The call is read only if the whole message has no room.
    let mut call = None;
    let mut message_of = |mut reader: Reader<'_>| {
        let start = reader.clone();
        let term = reader.last_term();
        if term.as_ref().is_err_and(|why| is_no_room(*why)) {
            call = call_of(start);
        }
        term
    };
    let (control, message) = if has_headers {
        let Some(whole) = frames.read(frame)? else { return Ok(None) };
        let mut reader = Reader::new(&whole.bytes, &whole.atoms, TERM_MEMORY_MAX).with_known(known);
        let control = Control::read(&mut reader)?;
        let message = match (control.has_message(), whole.is_cut) {
            (false, _) => None,
            (true, true) => Some(Err(DecodeError::TooLarge)),
            (true, false) => Some(message_of(reader.clone())),
        };
        if message.is_none() {
            reader.end().map_err(Wrong::Message)?;
        }
        (control, message)
    } else {
        if frame.is_empty() {
            return Ok(None);
        }
        let bytes = frame.strip_prefix(b"p\x83").ok_or(Wrong::Plain)?;
        let mut reader = Reader::new(bytes, &[], TERM_MEMORY_MAX);
        let control = Control::read(&mut reader)?;
        let message = match (control.has_message(), reader.rest().split_first()) {
            (false, _) => None,
            (true, Some((131, rest))) => Some(message_of(Reader::new(rest, &[], TERM_MEMORY_MAX))),
            (true, _) => return Err(Wrong::Plain),
        };
        (control, message)
    };
    match message.transpose() {
        Ok(message) => Ok(Some(Incoming::Operation(control, message))),
        Err(why) if is_no_room(why) => Ok(Some(Incoming::WithoutRoom(control, call))),
        Err(why) => Err(Wrong::Message(why)),
    }
}

/// Returns `true` for the errors of a message that may be right, and only has no room here.
fn is_no_room(why: DecodeError) -> bool {
    matches!(why, DecodeError::TooLarge | DecodeError::TooDeep)
}
