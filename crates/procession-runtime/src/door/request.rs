//! The head of an HTTP/1.1 request. `httparse` reads it, as it does for hyper, and whatever two
//! readers could understand in two ways is refused.

use std::str;

use super::response::HttpStatus;

/// The maximum size of a request.
pub(super) const REQUEST_BYTES_MAX: usize = 64 << 10;
/// The maximum number of header fields.
const FIELDS_MAX: usize = 64;

/// The methods that the door knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Method {
    Get,
    Head,
    Post,
}

/// A request without its body. A request with a body is refused.
#[derive(Debug)]
pub(super) struct HttpRequest {
    pub(super) method: Method,
    pub(super) path: String,
    query: Vec<(String, String)>,
    fields: Vec<(String, String)>,
}

/// The end of the head within the bytes received so far, or `None` if more is to come.
pub(super) fn head_end(bytes: &[u8]) -> Option<usize> {
    bytes.windows(4).position(|end| end == b"\r\n\r\n").map(|at| at + 4)
}

impl HttpRequest {
    /// Parses a head, with the empty line that ends it.
    pub(super) fn parse(head: &[u8]) -> Result<Self, HttpStatus> {
        let text = str::from_utf8(head).map_err(|_| HttpStatus::BadRequest)?;
        // httparse also accepts lines that end with a line feed alone, and empty lines at the
        // begin.
        if text.starts_with(['\r', '\n']) || text.split("\r\n").any(|line| line.contains('\n')) {
            return Err(HttpStatus::BadRequest);
        }
        let mut fields = [httparse::EMPTY_HEADER; FIELDS_MAX];
        let mut request = httparse::Request::new(&mut fields);
        match request.parse(head) {
            Ok(httparse::Status::Complete(length)) if length == head.len() => {}
            Err(httparse::Error::TooManyHeaders) => return Err(HttpStatus::HeadTooLarge),
            Ok(_) | Err(_) => return Err(HttpStatus::BadRequest),
        }
        let (method, target) = method_and_target(&request)?;
        let fields = request.headers.iter().map(field).collect::<Option<Vec<_>>>();
        let fields = fields.ok_or(HttpStatus::BadRequest)?;
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let request = Self { method, path: decode(path)?, query: pairs(query)?, fields };
        let has_body = request.all("transfer-encoding").next().is_some()
            || request.all("content-length").any(|length| length != "0");
        if has_body { Err(HttpStatus::ContentTooLarge) } else { Ok(request) }
    }

    /// Returns all values of a header field. `name` is in lower case.
    pub(super) fn all(&self, name: &'static str) -> impl Iterator<Item = &str> {
        let fields = self.fields.iter().filter(move |(field, _)| field == name);
        fields.map(|(_, value)| value.as_str())
    }

    /// Returns the value of a header field that must not be repeated.
    pub(super) fn one(&self, name: &'static str) -> Result<Option<&str>, HttpStatus> {
        let mut values = self.all(name);
        match (values.next(), values.next()) {
            (value, None) => Ok(value),
            (_, Some(_)) => Err(HttpStatus::BadRequest),
        }
    }

    /// Returns the first value of a parameter of the query.
    pub(super) fn parameter(&self, name: &str) -> Option<&str> {
        self.query.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// Returns the names of all parameters of the query.
    pub(super) fn parameters(&self) -> impl Iterator<Item = &str> {
        self.query.iter().map(|(name, _)| name.as_str())
    }
}

fn method_and_target<'a>(
    request: &httparse::Request<'_, 'a>,
) -> Result<(Method, &'a str), HttpStatus> {
    let target = request.path.unwrap_or_default();
    let is_plain = target.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'#');
    if !target.starts_with('/') || !is_plain {
        return Err(HttpStatus::BadRequest);
    }
    let method = match request.method {
        Some("GET") => Method::Get,
        Some("HEAD") => Method::Head,
        Some("POST") => Method::Post,
        _ => return Err(HttpStatus::MethodNotAllowed),
    };
    Ok((method, target))
}

/// Returns a header field, with its name in lower case.
fn field(field: &httparse::Header<'_>) -> Option<(String, String)> {
    let value = str::from_utf8(field.value).ok()?;
    let is_clean = !value.chars().any(|c| c.is_control() && c != '\t');
    is_clean.then(|| (field.name.to_ascii_lowercase(), value.to_owned()))
}

/// Splits a query into its parameters.
fn pairs(query: &str) -> Result<Vec<(String, String)>, HttpStatus> {
    let parts = query.split('&').filter(|part| !part.is_empty());
    parts
        .map(|part| {
            let (name, value) = part.split_once('=').unwrap_or((part, ""));
            Ok((decode(name)?, decode(&value.replace('+', " "))?))
        })
        .collect()
}

/// Decodes the percent signs of a part of a target.
fn decode(text: &str) -> Result<String, HttpStatus> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        let digit = |byte: Option<u8>| byte.and_then(|byte| char::from(byte).to_digit(16));
        bytes.push(match byte {
            b'%' => match (digit(rest.next()), digit(rest.next())) {
                (Some(high), Some(low)) => (high * 16 + low) as u8,
                _ => return Err(HttpStatus::BadRequest),
            },
            byte => byte,
        });
    }
    String::from_utf8(bytes).map_err(|_| HttpStatus::BadRequest)
}

#[cfg(test)]
mod tests {
    use super::{HttpRequest, Method, head_end};
    use crate::door::response::HttpStatus;

    fn parse(head: &str) -> Result<HttpRequest, HttpStatus> {
        HttpRequest::parse(head.as_bytes())
    }

    #[test]
    fn a_request_is_taken_apart() {
        let head = "GET /view?sort=mailbox&label=a%20b+c&on HTTP/1.1\r\nHost:  localhost \r\nX-A: 1\r\nx-a: 2\r\n\r\n";
        let request = parse(head).expect("it is well-formed");
        assert_eq!((request.method, request.path.as_str()), (Method::Get, "/view"));
        assert_eq!(request.parameter("label"), Some("a b c"));
        assert_eq!(request.parameter("on"), Some(""));
        assert_eq!(request.parameter("off"), None);
        assert_eq!(request.parameters().collect::<Vec<_>>(), ["sort", "label", "on"]);
        assert_eq!(request.one("host"), Ok(Some("localhost")));
        assert_eq!(request.one("x-a"), Err(HttpStatus::BadRequest), "it is repeated");
        assert_eq!(head_end(head.as_bytes()), Some(head.len()));
        assert_eq!(head_end(&head.as_bytes()[..head.len() - 1]), None);
    }

    #[test]
    fn what_is_ambiguous_is_refused() {
        for (head, status) in [
            ("GET / HTTP/1.1\nHost: a\n\n", HttpStatus::BadRequest),
            ("GET / HTTP/1.1\nHost: a\r\n\r\n", HttpStatus::BadRequest),
            ("GET / HTTP/1.1\r\nA: b\nHost: a\r\n\r\n", HttpStatus::BadRequest),
            ("GET / HTTP/1.1\r\nA: b\rHost: a\r\n\r\n", HttpStatus::BadRequest),
            ("\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n", HttpStatus::BadRequest),
            ("GET / HTTP/1.1\r\nHost: a\r\n\r\nGET", HttpStatus::BadRequest),
            ("GET / HTTP/1.1\r\nHost: a\r\n", HttpStatus::BadRequest),
            ("GET /a b HTTP/1.1\r\n\r\n", HttpStatus::BadRequest),
            ("GET /\u{e9} HTTP/1.1\r\n\r\n", HttpStatus::BadRequest),
            ("GET  / HTTP/1.1\r\n\r\n", HttpStatus::BadRequest),
            ("GET http://a/ HTTP/1.1\r\n\r\n", HttpStatus::BadRequest),
            ("GET / HTTP/2.0\r\n\r\n", HttpStatus::BadRequest),
            ("GET /%zz HTTP/1.1\r\n\r\n", HttpStatus::BadRequest),
            ("GET /%ff HTTP/1.1\r\n\r\n", HttpStatus::BadRequest),
            ("GET / HTTP/1.1\r\nHost : a\r\n\r\n", HttpStatus::BadRequest),
            ("GET / HTTP/1.1\r\nHost: a\r\n folded\r\n\r\n", HttpStatus::BadRequest),
            ("GET / HTTP/1.1\r\nHost: a\x01\r\n\r\n", HttpStatus::BadRequest),
            ("GET / HTTP/1.1\r\nHost: a\u{85}\r\n\r\n", HttpStatus::BadRequest),
            ("GET / HTTP/1.1\r\nno colon\r\n\r\n", HttpStatus::BadRequest),
            ("DELETE / HTTP/1.1\r\n\r\n", HttpStatus::MethodNotAllowed),
            ("POST / HTTP/1.1\r\nContent-Length: 1\r\n\r\n", HttpStatus::ContentTooLarge),
            ("POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n", HttpStatus::ContentTooLarge),
        ] {
            assert_eq!(parse(head).map(|_| ()), Err(status), "{head:?}");
        }
        assert!(parse("POST / HTTP/1.1\r\nContent-Length: 0\r\n\r\n").is_ok());
        let many = format!("GET / HTTP/1.1\r\n{}\r\n", "a: b\r\n".repeat(65));
        assert_eq!(parse(&many).map(|_| ()), Err(HttpStatus::HeadTooLarge));
    }
}
