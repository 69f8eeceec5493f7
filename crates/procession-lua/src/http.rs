//! Messages of HTTP/1.1: what the server and the client of guests have in common.
//!
//! A message is read in Rust: its lines here, within their limits, and what is in them by
//! `httparse`, as in hyper. While a connection is idle, there is no buffer for it.

mod client;
mod server;

pub(crate) use self::client::{Asked, request};
pub(crate) use self::server::{answer, next_request, refusal, try_next_request};

use std::io;
use std::sync::Arc;

use procession::time::Instant;

use crate::account::{Account, Held};
use crate::net::{Connection, Kept};
use crate::value::Value;

const LINE_MAX: usize = 8192;
const HEADERS_MAX: usize = 100;
/// The bytes of all headers of a message, of its trailers, and of the extensions of its chunks.
const HEAD_MAX: usize = 64 * 1024;
const TRAILERS_MAX: usize = 16 * 1024;
const EXTENSIONS_MAX: usize = 16 * 1024;
/// The digits of the size of a chunk.
const DIGITS_MAX: usize = 16;
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
    /// The process has no memory for more.
    NoMemory,
    /// A line has a byte that no line may have, or the wrong end.
    Malformed,
    /// The connection is broken.
    Failed,
}

impl Fault {
    /// Returns the status of the refusal of a message that is cut short.
    fn status(&self) -> u16 {
        match self {
            Self::Timeout => 408,
            Self::NoMemory => 413,
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
    /// The charge for the message, and the bytes that it may take.
    held: Held,
    most: usize,
    /// The bytes that the body takes so far, without the buffer.
    body_bytes: usize,
}

impl Reader {
    /// Takes over the bytes that the connection has kept.
    fn new(connection: Arc<Connection>, until: Option<Instant>, memory: Memory) -> Self {
        let Kept { bytes: buffer, used: at, held } = connection.take_kept();
        let held = held.unwrap_or_else(|| memory.account.hold());
        Self { connection, buffer, at, until, held, most: memory.most, body_bytes: 0 }
    }

    /// Leaves the bytes that were not used to the connection.
    fn finish(self) {
        self.connection.keep(self.buffer, self.at, self.held);
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
            // A peer that sends without a pause gets neither more time nor the worker.
            if self.until.is_some_and(|until| until <= Instant::now()) {
                return Err(Fault::Timeout);
            }
            match self.connection.try_read_into(&mut self.buffer) {
                Some(Ok(0)) => return Err(Fault::Closed),
                Some(Ok(_)) => {
                    self.charge()?;
                    if self.until.is_some() {
                        procession::checkpoint().await;
                    }
                    return Ok(());
                }
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

    /// Charges for the bytes that the message takes now.
    fn charge(&mut self) -> Result<(), Fault> {
        self.held.set(self.buffer.capacity() + self.body_bytes);
        let fits = self.left().len() + self.body_bytes <= self.most && self.held.fits();
        fits.then_some(()).ok_or(Fault::NoMemory)
    }

    /// Reads a line of at most `most` bytes. Returns it without its end.
    async fn line(&mut self, most: usize) -> Result<Vec<u8>, Fault> {
        let mut line = self.line_up_to_feed(most).await?;
        line.pop_if(|byte| *byte == b'\r');
        valid_line(line)
    }

    /// Reads a line like [`line`](Self::line), but the line must end with "\r\n".
    async fn strict_line(&mut self, most: usize) -> Result<Vec<u8>, Fault> {
        let mut line = self.line_up_to_feed(most).await?;
        line.pop_if(|byte| *byte == b'\r').ok_or(Fault::Malformed)?;
        valid_line(line)
    }

    async fn line_up_to_feed(&mut self, most: usize) -> Result<Vec<u8>, Fault> {
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
        let line = self.left()[..end].to_vec();
        self.at += end + 1;
        Ok(line)
    }

    /// Reads until the buffer has `count` bytes.
    async fn buffered(&mut self, count: usize) -> Result<(), Fault> {
        while self.left().len() < count {
            self.fill().await?;
        }
        Ok(())
    }

    /// Reads the lines of a head up to the empty one, at most `most` bytes. A refusal has a status.
    async fn headers(&mut self, most: usize) -> Result<Headers, Refused> {
        let (mut lines, mut count, mut bytes) = (Vec::new(), 0, 0);
        loop {
            let line = match self.line(LINE_MAX).await {
                Err(Fault::TooLong) => return Err(Refused::Status(431)),
                other => other?,
            };
            lines.extend(&line);
            lines.extend(b"\r\n");
            if line.is_empty() {
                return Headers::new(&lines).ok_or(Refused::Status(400));
            }
            (count, bytes) = (count + 1, bytes + line.len());
            if count > HEADERS_MAX || bytes > most {
                return Err(Refused::Status(431));
            }
        }
    }

    /// Reads a body of at most `most` bytes.
    async fn body(&mut self, framing: Framing, most: usize) -> Result<Value, Refused> {
        let most = most.min(self.most);
        match framing {
            Framing::Length(length) if length > most => Err(Refused::Status(413)),
            Framing::Length(length) => {
                self.buffered(length).await?;
                let body = self.copied(length)?;
                self.at += length;
                Ok(body)
            }
            Framing::Chunked => {
                let mut body = self.chunks(most).await?;
                body.shrink_to_fit();
                self.held.set(self.buffer.capacity() + 2 * body.len());
                self.held.fits().then(|| Value::string(body)).ok_or(Refused::Status(413))
            }
        }
    }

    /// Returns a copy of the next bytes as a body. It counts in addition to the buffer.
    fn copied(&mut self, length: usize) -> Result<Value, Fault> {
        self.buffer.shrink_to_fit();
        self.held.set(self.buffer.capacity() + length);
        self.held.fits().then(|| Value::string(&self.left()[..length])).ok_or(Fault::NoMemory)
    }

    async fn chunks(&mut self, most: usize) -> Result<Vec<u8>, Refused> {
        let (mut body, mut extensions) = (Vec::new(), 0);
        loop {
            let line = self.strict_line(LINE_MAX).await?;
            let end = line.iter().position(|&byte| byte == b';').unwrap_or(line.len());
            let digits = without_spaces(&line[..end]);
            let is_number = (1..=DIGITS_MAX).contains(&digits.len())
                && line.starts_with(digits)
                && digits.iter().all(u8::is_ascii_hexdigit);
            extensions += line.len() - digits.len();
            if !is_number || extensions > EXTENSIONS_MAX {
                return Err(Refused::Status(400));
            }
            let count = number(digits, 16).filter(|&count| count <= most - body.len());
            let count = count.ok_or(Refused::Status(413))?;
            if count == 0 {
                break;
            }
            self.buffered(count + 2).await?;
            let piece = &self.left()[..count + 2];
            body.extend(piece.strip_suffix(b"\r\n").ok_or(Refused::Status(400))?);
            self.at += count + 2;
            self.body_bytes = body.capacity();
            self.charge()?;
        }
        self.headers(TRAILERS_MAX).await?;
        Ok(body)
    }
}

/// The account of the process that reads a message, and the bytes that its memory leaves.
#[derive(Debug)]
pub(crate) struct Memory {
    pub(crate) account: Arc<Account>,
    pub(crate) most: usize,
}

/// How the end of a body is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Framing {
    Length(usize),
    Chunked,
}

/// Refuses a line with a byte that another reader may take for its end.
fn valid_line(line: Vec<u8>) -> Result<Vec<u8>, Fault> {
    if line.iter().any(|byte| b"\r\0".contains(byte)) { Err(Fault::Malformed) } else { Ok(line) }
}

/// Returns a text without the spaces and tabs around it. Other bytes are no white space in HTTP.
fn without_spaces(mut text: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] | [rest @ .., b' ' | b'\t'] = text {
        text = rest;
    }
    text
}

/// The cause why a message was not read.
#[derive(Debug)]
enum Refused {
    /// It is refused with this status.
    Status(u16),
    NotYet,
    /// The connection has ended within it.
    Cut,
}

impl From<Fault> for Refused {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::NotYet => Self::NotYet,
            Fault::Closed | Fault::Failed => Self::Cut,
            fault => Self::Status(fault.status()),
        }
    }
}

/// The headers of a message, with names in lower case.
#[derive(Debug, Default)]
struct Headers(Vec<(Vec<u8>, Vec<u8>)>);

impl Headers {
    /// Reads lines with an empty one at their end. Returns `None` if one is not valid.
    fn new(lines: &[u8]) -> Option<Self> {
        let mut parsed = [httparse::EMPTY_HEADER; HEADERS_MAX];
        let parsed = httparse::parse_headers(lines, &mut parsed).ok()?;
        let httparse::Status::Complete((_, parsed)) = parsed else { return None };
        let mut headers = Self::default();
        for header in parsed {
            let (name, value) = (header.name.to_ascii_lowercase().into_bytes(), header.value);
            match headers.0.iter_mut().find(|(known, _)| *known == name) {
                Some(_) if name == b"content-length" || name == b"host" => return None,
                Some((_, values)) => {
                    values.extend(b", ");
                    values.extend(value);
                }
                None => headers.0.push((name, value.to_vec())),
            }
        }
        Some(headers)
    }

    fn get(&self, name: &str) -> Option<&[u8]> {
        let found = self.0.iter().find(|(known, _)| *known == name.as_bytes());
        found.map(|(_, value)| value.as_slice())
    }

    /// Returns how the end of the body is found. `None` if no header says it.
    ///
    /// If the two ends could see different ends, the message is refused: one of a version without
    /// chunks, or one with both headers.
    fn framing(&self, is_old: bool) -> Result<Option<Framing>, Refused> {
        match (self.get("transfer-encoding"), self.get("content-length")) {
            (None, None) => Ok(None),
            (Some(_), _) if is_old => Err(Refused::Status(400)),
            (Some(_), Some(_)) => Err(Refused::Status(400)),
            (Some(coding), None) if coding.eq_ignore_ascii_case(b"chunked") => {
                Ok(Some(Framing::Chunked))
            }
            (Some(_), None) => Err(Refused::Status(501)),
            (None, Some(length)) => {
                if length.is_empty() || !length.iter().all(u8::is_ascii_digit) {
                    return Err(Refused::Status(400));
                }
                let length = number(length, 10).ok_or(Refused::Status(413))?;
                Ok(Some(Framing::Length(length)))
            }
        }
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
    list.split(|&byte| byte == b',')
        .any(|found| without_spaces(found).eq_ignore_ascii_case(word.as_bytes()))
}

fn is_token(name: &[u8]) -> bool {
    let is_valid = |byte: &u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+.^_`|~-".contains(byte);
    !name.is_empty() && name.iter().all(is_valid)
}

fn number(digits: &[u8], base: u32) -> Option<usize> {
    usize::from_str_radix(str::from_utf8(digits).ok()?, base).ok()
}

/// Appends the headers of a message from Lua, except the headers in `own`, which the library itself
/// sets.
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

/// Writes all of a message. Returns `false` if that fails or exceeds its time limit.
async fn write_all(connection: &Arc<Connection>, bytes: Vec<u8>, until: Instant) -> bool {
    let timeout = until.saturating_duration_since(Instant::now());
    Arc::clone(connection).write(bytes.into(), 0, Some(timeout)).await.is_ok()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use crate::stream::Stream;
    use procession::net::{TcpListener, TcpStream};
    use procession::time::Instant;

    use super::{Fault, Memory, Reader, next_request};
    use crate::account::Account;
    use crate::limits::Resource;
    use crate::net::Connection;
    use crate::owner::Owner;
    use crate::permissions::{Bounds, Permissions};
    use crate::value::Value;

    /// Returns a connection in which `text` has arrived, and its peer.
    async fn connected(text: &[u8]) -> (Arc<Connection>, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("there is a port");
        let address = listener.local_addr().expect("it is bound");
        let peer = TcpStream::connect(address).await.expect("it listens");
        let (stream, _) = listener.accept().await.expect("it connects");
        peer.write_all(text).await.expect("it is connected");
        let charge = Bounds::from(Permissions::none()).limits.hold(Resource::Sockets);
        let connection = Arc::new(Connection::new(
            Stream::new(stream, None),
            charge.expect("there is no limit"),
        ));
        Arc::clone(&connection).readable(None).await.expect("it is connected");
        (connection, peer)
    }

    #[test]
    fn a_peer_that_always_sends_gets_no_more_time() {
        procession::run(async {
            let (connection, _peer) = connected(b"line\r\n").await;
            let memory =
                Memory { account: Account::new(10, 1 << 20, Owner::alone()), most: 1 << 20 };
            let mut reader = Reader::new(connection, Some(Instant::now()), memory);
            assert!(matches!(reader.line(100).await, Err(Fault::Timeout)));
        });
    }

    #[test]
    fn a_message_that_is_read_counts_in_the_account_and_fits_into_the_memory() {
        procession::run(async {
            let head = "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 40000\r\n\r\n";
            let request = [head.as_bytes(), &[b'x'; 40000]].concat();
            for (bytes_max, most, status) in [
                (1 << 20, 1 << 20, None),
                (20_000, 1 << 20, Some(413)),
                // The buffer fits, but not a further copy of the body.
                (60_000, 1 << 20, Some(413)),
                (1 << 20, 20_000, Some(413)),
            ] {
                let (connection, _peer) = connected(&request).await;
                let account = Account::new(10, bytes_max, Owner::alone());
                let memory = Memory { account: Arc::clone(&account), most };
                let work = next_request(Arc::clone(&connection), Duration::from_secs(60), memory);
                let found = work.await.expect("it is a request");
                match status {
                    None => assert!(matches!(found, Value::Table(_)), "{found:?}"),
                    Some(status) => assert_eq!(found, Value::Integer(status)),
                }
                let kept = connection.take_kept();
                assert_eq!(account.held_bytes(), kept.bytes.capacity());
                drop(kept);
                assert_eq!(account.held_bytes(), 0);
            }
        });
    }
}
