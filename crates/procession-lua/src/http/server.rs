//! The server's side of HTTP.

use std::io;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use procession::time::Instant;

use super::{
    Fault, Framing, HEAD_MAX, Headers, LINE_MAX, Memory, Reader, Refused, append_headers, has,
    write_all,
};
use crate::net::Connection;
use crate::value::Value;

const BODY_MAX: usize = 1 << 20;
/// Headers that follow from the answer.
const OWN: &[&str] = &["connection", "content-length", "transfer-encoding"];

fn reason(status: i64) -> &'static str {
    match status {
        200 => "OK",
        201 => "Created",
        204 => "No Content",
        304 => "Not Modified",
        400 => "Bad Request",
        404 => "Not Found",
        405 => "Method Not Allowed",
        408 => "Request Timeout",
        413 => "Content Too Large",
        417 => "Expectation Failed",
        431 => "Request Header Fields Too Large",
        500 => "Internal Server Error",
        501 => "Not Implemented",
        505 => "HTTP Version Not Supported",
        _ => "Status",
    }
}

/// Reads a request that has arrived as a whole. Returns `None` if a part is missing.
pub(crate) fn try_next_request(connection: &Arc<Connection>, memory: Memory) -> Option<Value> {
    let mut reader = Reader::new(Arc::clone(connection), None, memory);
    let first = reader.at;
    let read = {
        let read = std::pin::pin!(read(&mut reader, Duration::ZERO));
        // The reader may not wait, so it is ready.
        match read.poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(read) => read,
            Poll::Pending => Err(Refused::NotYet),
        }
    };
    let request = match read {
        Ok(request) => Some(request),
        Err(Refused::Status(status)) => Some(Value::Integer(status.into())),
        Err(Refused::Cut) => Some(Value::Integer(400)),
        Err(Refused::NotYet) => {
            // The next reader begins with the first byte again.
            reader.at = first;
            None
        }
    };
    reader.finish();
    request
}

/// Reads the next request once its first byte is there. The time is for its head, and again for its
/// body.
///
/// Returns a table of the request and of what its answer needs, a number for the status of a
/// refusal, or nil if the connection ends.
pub(crate) async fn next_request(
    connection: Arc<Connection>,
    timeout: Duration,
    memory: Memory,
) -> io::Result<Value> {
    let mut reader = Reader::new(connection, Some(Instant::now() + timeout), memory);
    let request = match read(&mut reader, timeout).await {
        Ok(request) => request,
        Err(Refused::Status(status)) => Value::Integer(status.into()),
        Err(Refused::Cut) => Value::Integer(400),
        Err(Refused::NotYet) => Value::Nil,
    };
    reader.finish();
    Ok(request)
}

/// Returns the text of an answer that refuses a request.
pub(crate) fn refusal(status: i64) -> Vec<u8> {
    let reason = reason(status);
    let length = reason.len() + 1;
    let text = format!(
        "HTTP/1.1 {status} {reason}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{reason}\n"
    );
    text.into_bytes()
}

/// Reads a request. Returns nil if the connection ends before the end of the first line.
async fn read(reader: &mut Reader, timeout: Duration) -> Result<Value, Refused> {
    let first = match first_line(reader).await {
        Err(Fault::TooLong) => return Err(Refused::Status(400)),
        Err(Fault::Closed | Fault::Failed) => return Ok(Value::Nil),
        other => other?,
    };
    let words = first.split(|&byte| byte == b' ').count();
    let line = [&first, &b"\r\n\r\n"[..]].concat();
    let mut request = httparse::Request::new(&mut []);
    match request.parse(&line) {
        Ok(httparse::Status::Complete(_)) => {}
        Err(httparse::Error::Version) if words == 3 => return Err(Refused::Status(505)),
        Ok(httparse::Status::Partial) | Err(_) => return Err(Refused::Status(400)),
    }
    let method = request.method.unwrap_or_default().as_bytes();
    let (target, is_old) = (request.path.unwrap_or_default(), request.version == Some(0));
    let mut headers = reader.headers(HEAD_MAX).await?;
    let (path, host) = path_and_host(target.as_bytes(), method).ok_or(Refused::Status(400))?;
    if headers.get("host").is_none() && !is_old {
        return Err(Refused::Status(400));
    }
    if let Some(host) = host {
        headers.0.retain(|(name, _)| name != b"host");
        headers.0.push((b"host".to_vec(), host.to_vec()));
    }
    let framing = headers.framing(is_old)?.unwrap_or(Framing::Length(0));
    if !expected(reader, &headers, framing, is_old).await? {
        return Ok(Value::Nil);
    }
    reader.until = reader.until.map(|_| Instant::now() + timeout);
    let body = reader.body(framing, BODY_MAX).await?;
    let stays =
        !headers.has("connection", "close") && (!is_old || headers.has("connection", "keep-alive"));
    let entry = |key: &str, value: Value| (Value::string(key), value);
    let question = path.iter().position(|&byte| byte == b'?');
    let mut request = vec![
        entry("method", Value::string(method)),
        entry("path", Value::string(&path[..question.unwrap_or(path.len())])),
        entry("headers", headers.into_value()),
        entry("body", body),
    ];
    if let Some(question) = question {
        request.push(entry("query", Value::string(&path[question + 1..])));
    }
    let about = vec![
        entry("head", Value::Boolean(method == b"HEAD")),
        entry("old", Value::Boolean(is_old)),
        entry("stays", Value::Boolean(stays)),
    ];
    Ok(Value::list([Value::Table(request), Value::Table(about)]))
}

/// Reads the first line. Some clients send an empty line after a body.
async fn first_line(reader: &mut Reader) -> Result<Vec<u8>, Fault> {
    let first = reader.line(LINE_MAX).await?;
    if first.is_empty() { reader.line(LINE_MAX).await } else { Ok(first) }
}

/// Returns the path and the host of the target of a request.
fn path_and_host<'a>(target: &'a [u8], method: &[u8]) -> Option<(Vec<u8>, Option<&'a [u8]>)> {
    if target.starts_with(b"/") || target == b"*" && method == b"OPTIONS" {
        return Some((target.to_vec(), None));
    }
    let colon = target.iter().position(|&byte| byte == b':')?;
    let (scheme, rest) = target.split_at(colon);
    let is_known = scheme.eq_ignore_ascii_case(b"http") || scheme.eq_ignore_ascii_case(b"https");
    let rest = rest.strip_prefix(b"://").filter(|_| is_known)?;
    let end = rest.iter().position(|byte| b"/?#".contains(byte)).unwrap_or(rest.len());
    let (host, path) = rest.split_at(end);
    if host.is_empty() || path.contains(&b'#') {
        return None;
    }
    let root: &[u8] = if path.starts_with(b"/") { b"" } else { b"/" };
    Some(([root, path].concat(), Some(host)))
}

/// Asks a waiting client to send its body. Returns `false` if the connection ends.
async fn expected(
    reader: &Reader,
    headers: &Headers,
    framing: Framing,
    is_old: bool,
) -> Result<bool, Refused> {
    let Some(expected) = headers.get("expect") else { return Ok(true) };
    if !expected.eq_ignore_ascii_case(b"100-continue") {
        return Err(Refused::Status(417));
    }
    let most = BODY_MAX.min(reader.most);
    let is_refused = matches!(framing, Framing::Length(length) if length > most);
    if is_old || !reader.left().is_empty() || is_refused {
        return Ok(true);
    }
    let until = reader.until.ok_or(Refused::NotYet)?;
    let told = b"HTTP/1.1 100 Continue\r\n\r\n".to_vec();
    Ok(write_all(&reader.connection, told, until).await)
}

/// Returns the text of an answer, and `true` if the connection stays open. `about` came with the
/// request.
///
/// # Errors
/// If the answer is not valid, returns the cause.
pub(crate) fn answer(answer: &Value, about: &Value) -> Result<(Vec<u8>, bool), String> {
    let nothing = Value::Nil;
    let (status, headers, body) = match answer {
        Value::String(_) => (&nothing, &nothing, answer),
        Value::Table(_) => {
            let field = |name| answer.get(name).unwrap_or(&nothing);
            (field("status"), field("headers"), field("body"))
        }
        _ => return Err("an answer must be a string or a table".to_owned()),
    };
    let status = match status {
        Value::Nil => 200,
        Value::Integer(status @ 100..=999) => *status,
        _ => return Err("the status of an answer must be an integer of three digits".to_owned()),
    };
    let body: &[u8] = match body {
        Value::Nil => b"",
        Value::String(body) => body,
        _ => return Err("the body of an answer must be a string".to_owned()),
    };
    let is = |name| about.get(name) == Some(&Value::Boolean(true));
    let mut text = format!("HTTP/1.1 {status} {}\r\n", reason(status)).into_bytes();
    append_headers(&mut text, headers, OWN)?;
    let stays = is("stays") && !closes(headers);
    let has_body = status >= 200 && status != 204 && status != 304;
    if has_body {
        text.extend(format!("Content-Length: {}\r\n", body.len()).as_bytes());
    }
    if !stays {
        text.extend(b"Connection: close\r\n");
    } else if is("old") {
        text.extend(b"Connection: keep-alive\r\n");
    }
    text.extend(b"\r\n");
    if has_body && !is("head") {
        text.extend(body);
    }
    Ok((text, stays))
}

/// Returns `true` if the headers of an answer close the connection.
fn closes(headers: &Value) -> bool {
    let Value::Table(entries) = headers else { return false };
    entries.iter().any(|(name, value)| {
        matches!((name, value), (Value::String(name), Value::String(value))
            if name.eq_ignore_ascii_case(b"connection") && has(value, "close"))
    })
}
