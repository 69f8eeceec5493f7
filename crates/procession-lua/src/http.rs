//! Messages of HTTP/1.1: what the server and the client of guests have in common.
//!
//! A message is read in Rust. While a connection is idle, there is no buffer for it.

mod client;
mod server;

pub(crate) use self::client::{Asked, request};
pub(crate) use self::server::{answer, next_request, refusal, try_next_request};

use std::io;
use std::sync::Arc;

use procession::time::Instant;

use crate::net::Connection;
use crate::value::Value;

const LINE_MAX: usize = 8192;
const HEADERS_MAX: usize = 100;
/// The used bytes of a buffer from which on they are removed.
const USED_MAX: usize = 64 * 1024;

/// The cause why no more bytes could be read.
#[derive(Debug)]
enum Fault {
    /// There are none yet, and the reader may not wait.
    NotYet,
    Closed,
    Timeout,
    TooLong,
    /// The connection is broken.
    Failed,
}

impl Fault {
    /// Returns the status of the refusal of a message that is cut short.
    fn status(&self) -> u16 {
        match self {
            Self::Timeout => 408,
            _ => 400,
        }
    }
}

/// Reads a connection by lines and by counts, in time linear in the bytes.
struct Reader {
    connection: Arc<Connection>,
    buffer: Vec<u8>,
    /// The number of bytes of the buffer that are used up.
    at: usize,
    /// The time at which reads fail, or `None` if they may not wait.
    until: Option<Instant>,
}

impl Reader {
    /// Takes over the bytes that the connection has kept.
    fn new(connection: Arc<Connection>, until: Option<Instant>) -> Self {
        let (buffer, at) = connection.take_kept();
        Self { connection, buffer, at, until }
    }

    /// Leaves the bytes that were not used to the connection.
    fn finish(self) {
        self.connection.keep(self.buffer, self.at);
    }

    fn left(&self) -> &[u8] {
        &self.buffer[self.at..]
    }

    /// Reads at least one byte.
    async fn fill(&mut self) -> Result<(), Fault> {
        if self.until.is_none() {
            // It may have to begin again, so it keeps everything, and takes only short messages.
            if self.buffer.len() >= 2 * USED_MAX {
                return Err(Fault::NotYet);
            }
        } else if self.at >= USED_MAX.min(self.buffer.len()) && self.at >= self.buffer.len() / 2 {
            self.buffer.drain(..self.at);
            self.at = 0;
        }
        loop {
            match self.connection.try_read_into(&mut self.buffer) {
                Some(Ok(0)) => return Err(Fault::Closed),
                Some(Ok(_)) => return Ok(()),
                Some(Err(_)) => return Err(Fault::Failed),
                None => {}
            }
            let Some(until) = self.until else { return Err(Fault::NotYet) };
            let left = until.saturating_duration_since(Instant::now());
            match Arc::clone(&self.connection).readable(Some(left)).await {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::TimedOut => {
                    return Err(Fault::Timeout);
                }
                Err(_) => return Err(Fault::Failed),
            }
        }
    }

    /// Reads a line of at most `most` bytes. Returns it without its end.
    async fn line(&mut self, most: usize) -> Result<Vec<u8>, Fault> {
        let mut seen = 0;
        let end = loop {
            if let Some(found) = self.left()[seen..].iter().position(|&byte| byte == b'\n') {
                break seen + found;
            }
            seen = self.left().len();
            if seen >= most {
                return Err(Fault::TooLong);
            }
            self.fill().await?;
        };
        if end >= most {
            return Err(Fault::TooLong);
        }
        let line = &self.left()[..end];
        let line = line.strip_suffix(b"\r").unwrap_or(line).to_vec();
        self.at += end + 1;
        Ok(line)
    }

    async fn exactly(&mut self, count: usize) -> Result<Vec<u8>, Fault> {
        while self.left().len() < count {
            self.fill().await?;
        }
        let bytes = self.left()[..count].to_vec();
        self.at += count;
        Ok(bytes)
    }

    /// Reads the lines of a head up to the empty one. A refusal has a status.
    async fn headers(&mut self) -> Result<Headers, Refused> {
        let mut headers = Headers::default();
        let mut count = 0;
        loop {
            let line = match self.line(LINE_MAX).await {
                Err(Fault::TooLong) => return Err(Refused::Status(431)),
                other => other?,
            };
            if line.is_empty() {
                return Ok(headers);
            }
            count += 1;
            if count > HEADERS_MAX {
                return Err(Refused::Status(431));
            }
            headers.add(&line).ok_or(Refused::Status(400))?;
        }
    }

    /// Reads a body of at most `most` bytes.
    async fn body(&mut self, headers: &Headers, most: usize) -> Result<Vec<u8>, Refused> {
        let length = headers.get("content-length");
        let Some(coding) = headers.get("transfer-encoding") else {
            let Some(length) = length else { return Ok(Vec::new()) };
            if length.is_empty() || !length.iter().all(u8::is_ascii_digit) {
                return Err(Refused::Status(400));
            }
            let length = number(length, 10).filter(|&length| length <= most);
            return Ok(self.exactly(length.ok_or(Refused::Status(413))?).await?);
        };
        if !coding.eq_ignore_ascii_case(b"chunked") {
            return Err(Refused::Status(501));
        }
        // With both, the two ends might see different requests.
        if length.is_some() {
            return Err(Refused::Status(400));
        }
        let mut body = Vec::new();
        loop {
            let line = self.line(LINE_MAX).await?;
            let digits =
                line.split(|&byte| byte == b';').next().unwrap_or_default().trim_ascii_end();
            if digits.is_empty() || !digits.iter().all(u8::is_ascii_hexdigit) {
                return Err(Refused::Status(400));
            }
            let count = number(digits, 16).filter(|&count| count <= most - body.len());
            let count = count.ok_or(Refused::Status(413))?;
            if count == 0 {
                break;
            }
            let piece = self.exactly(count + 2).await?;
            body.extend(piece.strip_suffix(b"\r\n").ok_or(Refused::Status(400))?);
        }
        self.headers().await?;
        Ok(body)
    }
}

/// The cause why a message was not read.
#[derive(Debug)]
enum Refused {
    /// It is refused with this status.
    Status(u16),
    NotYet,
}

impl From<Fault> for Refused {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::NotYet => Self::NotYet,
            fault => Self::Status(fault.status()),
        }
    }
}

/// The headers of a message, with names in lower case.
#[derive(Debug, Default)]
struct Headers(Vec<(Vec<u8>, Vec<u8>)>);

impl Headers {
    /// Adds a line. Returns `None` if it is not valid.
    fn add(&mut self, line: &[u8]) -> Option<()> {
        let colon = line.iter().position(|&byte| byte == b':')?;
        let (name, value) = (line[..colon].to_ascii_lowercase(), line[colon + 1..].trim_ascii());
        if !is_token(&name) {
            return None;
        }
        match self.0.iter_mut().find(|(known, _)| *known == name) {
            Some(_) if name == b"content-length" || name == b"host" => return None,
            Some((_, values)) => {
                values.extend(b", ");
                values.extend(value);
            }
            None => self.0.push((name, value.to_vec())),
        }
        Some(())
    }

    fn get(&self, name: &str) -> Option<&[u8]> {
        let found = self.0.iter().find(|(known, _)| *known == name.as_bytes());
        found.map(|(_, value)| value.as_slice())
    }

    /// Returns `true` if a header is a list that has a word.
    fn has(&self, name: &str, word: &str) -> bool {
        self.get(name).is_some_and(|list| has(list, word))
    }

    fn into_value(self) -> Value {
        let entries = self.0.into_iter();
        Value::Table(
            entries.map(|(name, value)| (Value::string(name), Value::string(value))).collect(),
        )
    }
}

/// Returns `true` if a list has a word.
fn has(list: &[u8], word: &str) -> bool {
    list.split(|&byte| byte == b',' || byte.is_ascii_whitespace())
        .any(|found| found.eq_ignore_ascii_case(word.as_bytes()))
}

fn is_token(name: &[u8]) -> bool {
    let is_valid = |byte: &u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+.^_`|~-".contains(byte);
    !name.is_empty() && name.iter().all(is_valid)
}

fn number(digits: &[u8], base: u32) -> Option<usize> {
    usize::from_str_radix(str::from_utf8(digits).ok()?, base).ok()
}

/// Appends the headers of a message from Lua, except those in `own`, which the library itself sets.
fn append_headers(text: &mut Vec<u8>, headers: &Value, own: &[&str]) -> Result<(), String> {
    let entries = match headers {
        Value::Nil => return Ok(()),
        Value::Table(entries) => entries,
        _ => return Err("the headers must be a table".to_owned()),
    };
    for (name, value) in entries {
        let value = match value {
            Value::String(value) => value.to_vec(),
            Value::Integer(value) => value.to_string().into_bytes(),
            Value::Float(value) => value.to_string().into_bytes(),
            Value::Boolean(value) => value.to_string().into_bytes(),
            _ => return Err("the value of a header must be a string or a number".to_owned()),
        };
        let name = match name {
            Value::String(name) if is_token(name) => name,
            Value::String(name) => {
                return Err(format!("the name of a header is not a word: {}", shown(name)));
            }
            _ => return Err("the name of a header must be a string".to_owned()),
        };
        if value.iter().any(|byte| b"\r\n\0".contains(byte)) {
            return Err(format!("a header must be one line: {}", shown(&value)));
        }
        if !own.iter().any(|own| name.eq_ignore_ascii_case(own.as_bytes())) {
            for part in [&**name, b": ", &value, b"\r\n"] {
                text.extend(part);
            }
        }
    }
    Ok(())
}

/// Returns the beginning of a text, escaped.
fn shown(text: &[u8]) -> String {
    format!("\"{}\"", text[..text.len().min(100)].escape_ascii())
}

/// Writes all of a message. Returns `false` if that fails or takes too long.
async fn write_all(connection: &Arc<Connection>, bytes: Vec<u8>, until: Instant) -> bool {
    let timeout = until.saturating_duration_since(Instant::now());
    Arc::clone(connection).write(bytes.into(), 0, Some(timeout)).await.is_ok()
}
