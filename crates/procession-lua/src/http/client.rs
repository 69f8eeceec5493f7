//! The client's side of HTTP.

use std::io;
use std::sync::Arc;

use procession::time::Instant;

use super::{
    Fault, HEAD_MAX, LINE_MAX, Memory, Reader, Refused, append_headers, is_token, write_all,
};
use crate::net::Connection;
use crate::value::Value;

/// The interim responses before a response.
const INTERIM_MAX: usize = 16;
/// Headers that follow from the request.
const OWN: &[&str] = &["connection", "content-length", "host", "transfer-encoding"];

/// A request, ready to be sent.
#[derive(Debug)]
pub(crate) struct Asked {
    text: Vec<u8>,
    is_head: bool,
    /// The bytes that the body of the response may have.
    most: usize,
}

impl Asked {
    /// Reads a request of Lua: a table of the method, the target, the host, headers and a body.
    ///
    /// # Errors
    /// If it is not valid, returns the cause.
    pub(crate) fn new(asked: &Value, most: usize) -> Result<Self, String> {
        let field = |name| match asked.get(name) {
            None | Some(Value::Nil) => Ok(None),
            Some(Value::String(text)) => Ok(Some(&**text)),
            Some(_) => Err(format!("the {name} of a request must be a string")),
        };
        let method = field("method")?.unwrap_or(b"GET");
        if !is_token(method) {
            return Err(format!("the method is not a word: {}", super::shown(method)));
        }
        let (target, host) = (field("target")?.unwrap_or(b"/"), field("host")?.unwrap_or_default());
        let mut text = Vec::new();
        for part in [method, b" ", target, b" HTTP/1.1\r\nHost: ", host] {
            text.extend(part);
        }
        text.extend(b"\r\nConnection: close\r\n");
        let body = field("body")?;
        if body.is_some() || method != b"GET" && method != b"HEAD" {
            let length = body.unwrap_or_default().len();
            text.extend(format!("Content-Length: {length}\r\n").as_bytes());
        }
        append_headers(&mut text, asked.get("headers").unwrap_or(&Value::Nil), OWN)?;
        text.extend(b"\r\n");
        text.extend(body.unwrap_or_default());
        Ok(Self { text, is_head: method == b"HEAD", most })
    }
}

/// Sends a request, and reads the response: a table of the status, the headers and the body.
pub(crate) async fn request(
    connection: Arc<Connection>,
    asked: Asked,
    until: Instant,
    memory: Memory,
) -> io::Result<Value> {
    if !write_all(&connection, asked.text, until).await {
        return Err(io::Error::other("the request could not be sent"));
    }
    let mut reader = Reader::new(connection, Some(until), memory);
    response(&mut reader, asked.is_head, asked.most).await.map_err(|refused| {
        io::Error::other(match refused {
            Refused::Status(408) => "timeout",
            Refused::Status(413) => "the body is too long",
            Refused::Status(431) => "the headers are too long",
            Refused::Cut => "the connection has ended within the answer",
            _ => "the answer is not HTTP",
        })
    })
}

async fn response(reader: &mut Reader, is_head: bool, most: usize) -> Result<Value, Refused> {
    let mut interim = 0;
    let (status, is_old, headers) = loop {
        let first = reader.line(LINE_MAX).await?;
        let (status, is_old) = status_of(&first).ok_or(Refused::Status(400))?;
        let headers = reader.headers(HEAD_MAX).await?;
        if status >= 200 {
            break (status, is_old, headers);
        }
        interim += 1;
        if interim > INTERIM_MAX {
            return Err(Refused::Status(400));
        }
    };
    let body = if is_head || status == 204 || status == 304 {
        Value::string("")
    } else if let Some(framing) = headers.framing(is_old)? {
        reader.body(framing, most).await?
    } else {
        rest(reader, most).await?
    };
    let entry = |key: &str, value: Value| (Value::string(key), value);
    Ok(Value::Table(vec![
        entry("status", Value::Integer(status)),
        entry("headers", headers.into_value()),
        entry("body", body),
    ]))
}

/// Returns the status in the first line of a response, and `true` for HTTP/1.0.
fn status_of(line: &[u8]) -> Option<(i64, bool)> {
    let line = [line, b"\r\n\r\n"].concat();
    let mut response = httparse::Response::new(&mut []);
    response.parse(&line).ok().filter(httparse::Status::is_complete)?;
    Some((response.code?.into(), response.version? == 0))
}

/// Reads a body up to the end of the connection.
async fn rest(reader: &mut Reader, most: usize) -> Result<Value, Refused> {
    loop {
        if reader.left().len() > most {
            return Err(Refused::Status(413));
        }
        match reader.fill().await {
            Ok(()) => {}
            Err(Fault::Closed) => return Ok(reader.copied(reader.left().len())?),
            Err(fault) => return Err(fault.into()),
        }
    }
}
