//! The Redis protocol: parses requests, writes answers, and limits the size of both.

use std::io::Write;

use procession_sync::Arc;

/// Maximum size in bytes of a request with all its arguments. A connection buffers at most this
/// much of an incomplete request.
pub(crate) const REQUEST_MAX: usize = 1 << 20;
const ARGUMENTS_MAX: usize = 1024;
/// Maximum length in bytes of a request in one line, as people type it.
const LINE_MAX: usize = 64 << 10;
/// Maximum length in bytes of a `*` or `$`, a number, and the end of the line.
const NUMBER_MAX: usize = 24;

pub(crate) enum Answer {
    Text(&'static str),
    Error(String),
    Number(i64),
    Value(Option<Arc<[u8]>>),
}

impl Answer {
    pub(crate) fn error(text: impl AsRef<str>) -> Self {
        Self::Error(format!("ERR {}", text.as_ref()))
    }

    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        let written = match self {
            Self::Text(text) => write!(out, "+{text}\r\n"),
            Self::Error(text) => write!(out, "-{text}\r\n"),
            Self::Number(number) => write!(out, ":{number}\r\n"),
            Self::Value(None) => write!(out, "$-1\r\n"),
            Self::Value(Some(value)) => write!(out, "${}\r\n", value.len()).map(|()| {
                out.extend(&value[..]);
                out.extend(b"\r\n");
            }),
        };
        written.expect("a vector has room");
    }
}

/// Bytes that are not the protocol. The client gets this text, and the connection is closed.
pub(crate) struct Malformed(pub(crate) String);

/// Parses the number behind `sign`, which must be from 0 to `max`. Returns it with the length of
/// its line, or `None` if the line is incomplete.
fn number(
    bytes: &[u8],
    sign: u8,
    max: usize,
    what: &str,
) -> Result<Option<(usize, usize)>, Malformed> {
    match bytes.first() {
        None => return Ok(None),
        Some(first) if *first == sign => {}
        Some(first) => {
            return Err(Malformed(format!(
                "expected '{}', got '{}'",
                char::from(sign),
                first.escape_ascii()
            )));
        }
    }
    let line = &bytes[..bytes.len().min(NUMBER_MAX)];
    let invalid = || Malformed(format!("invalid {what} length"));
    let Some(end) = line.windows(2).position(|two| two == b"\r\n") else {
        return if line.len() < NUMBER_MAX { Ok(None) } else { Err(invalid()) };
    };
    // Only digits: a sign is not part of a length.
    let digits = std::str::from_utf8(&line[1..end])
        .ok()
        .filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
    let number = digits.and_then(|text| text.parse().ok()).filter(|number| *number <= max);
    number.map(|number| Some((number, end + 2))).ok_or_else(invalid)
}

/// The arguments of a request, and its length in bytes.
pub(crate) type Request<'a> = (Vec<&'a [u8]>, usize);

/// Parses the first request. Returns `None` if it is incomplete.
pub(crate) fn parse(bytes: &[u8]) -> Result<Option<Request<'_>>, Malformed> {
    if bytes.first().is_some_and(|first| *first != b'*') {
        let line = &bytes[..bytes.len().min(LINE_MAX)];
        let Some(end) = line.iter().position(|byte| *byte == b'\n') else {
            return if line.len() < LINE_MAX {
                Ok(None)
            } else {
                Err(Malformed("too big inline request".into()))
            };
        };
        let words = line[..end].split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
        return Ok(Some((words.collect(), end + 1)));
    }
    let Some((count, mut at)) = number(bytes, b'*', ARGUMENTS_MAX, "multibulk")? else {
        return Ok(None);
    };
    let mut arguments = Vec::with_capacity(count);
    for _ in 0..count {
        let room = REQUEST_MAX.saturating_sub(at);
        let Some((length, head)) = number(&bytes[at..], b'$', room, "bulk")? else {
            return Ok(None);
        };
        let (start, end) = (at + head, at + head + length);
        at = end + 2;
        match bytes.get(end..at) {
            None => return Ok(None),
            Some(b"\r\n") => arguments.push(&bytes[start..end]),
            Some(_) => return Err(Malformed("invalid bulk length".into())),
        }
    }
    Ok(Some((arguments, at)))
}
