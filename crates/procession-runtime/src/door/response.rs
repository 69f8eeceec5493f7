//! The responses of the door, and the header fields that all responses have.

/// The maximum size of the body of a response. A trace has another maximum.
pub(super) const RESPONSE_BYTES_MAX: usize = 4 << 20;

/// The status of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HttpStatus {
    Ok,
    SeeOther,
    BadRequest,
    Unauthorized,
    Forbidden,
    NotFound,
    MethodNotAllowed,
    TimedOut,
    Conflict,
    ContentTooLarge,
    Misdirected,
    TooManyRequests,
    HeadTooLarge,
    Unavailable,
}

impl HttpStatus {
    fn line(self) -> &'static str {
        match self {
            Self::Ok => "200 OK",
            Self::SeeOther => "303 See Other",
            Self::BadRequest => "400 Bad Request",
            Self::Unauthorized => "401 Unauthorized",
            Self::Forbidden => "403 Forbidden",
            Self::NotFound => "404 Not Found",
            Self::MethodNotAllowed => "405 Method Not Allowed",
            Self::TimedOut => "408 Request Timeout",
            Self::Conflict => "409 Conflict",
            Self::ContentTooLarge => "413 Content Too Large",
            Self::Misdirected => "421 Misdirected Request",
            Self::TooManyRequests => "429 Too Many Requests",
            Self::HeadTooLarge => "431 Request Header Fields Too Large",
            Self::Unavailable => "503 Service Unavailable",
        }
    }
}

/// A response.
#[derive(Debug)]
pub(super) struct Response {
    status: HttpStatus,
    content_type: &'static str,
    /// Further header fields, each with its line end.
    more: String,
    body: Vec<u8>,
}

/// The fields of all responses. The page loads nothing but its own files, and nothing may embed it.
/// The address of a page can hold a token, so it is in no `Referer`.
const COMMON: &str = "\
Connection: close\r
Cache-Control: no-store\r
X-Content-Type-Options: nosniff\r
Referrer-Policy: no-referrer\r
Cross-Origin-Resource-Policy: same-origin\r
Cross-Origin-Opener-Policy: same-origin\r
Content-Security-Policy: default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'\r
";

impl Response {
    fn new(content_type: &'static str, body: impl Into<Vec<u8>>) -> Self {
        Self { status: HttpStatus::Ok, content_type, more: String::new(), body: body.into() }
    }

    pub(super) fn json(body: String) -> Self {
        Self::new("application/json", body)
    }

    pub(super) fn trace(body: Vec<u8>) -> Self {
        let mut response = Self::new("application/octet-stream", body);
        response.more.push_str("Content-Disposition: attachment; filename=\"trace.pftrace\"\r\n");
        response
    }

    pub(super) fn metrics(body: String) -> Self {
        Self::new("application/openmetrics-text; version=1.0.0; charset=utf-8", body)
    }

    pub(super) fn file(content_type: &'static str, body: &'static str) -> Self {
        Self::new(content_type, body)
    }

    /// An error, with a sentence that says what was wrong.
    pub(super) fn error(status: HttpStatus, text: &str) -> Self {
        let more = match status {
            HttpStatus::MethodNotAllowed => "Allow: GET, HEAD, POST\r\n",
            HttpStatus::Unavailable | HttpStatus::TooManyRequests => "Retry-After: 1\r\n",
            _ => "",
        };
        let mut response = Self::new("text/plain; charset=utf-8", format!("{text}\n"));
        (response.status, response.more) = (status, more.to_owned());
        response
    }

    /// The answer to a link: the session as a cookie, and the page without the token in its
    /// address.
    pub(super) fn session(cookie: &str) -> Self {
        let mut response = Self::error(HttpStatus::SeeOther, "this link is used up");
        response.more =
            format!("Location: /\r\nSet-Cookie: {cookie}; Path=/; HttpOnly; SameSite=Strict\r\n");
        response
    }

    /// Returns the head of a stream of events, which ends with the connection.
    pub(super) fn events_head() -> Vec<u8> {
        format!("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n{COMMON}\r\n").into_bytes()
    }

    /// Returns the bytes on the wire. The response to a HEAD has no body.
    pub(super) fn bytes(self, with_body: bool) -> Vec<u8> {
        let Self { status, content_type, more, body } = self;
        let (line, length) = (status.line(), body.len());
        let head = format!(
            "HTTP/1.1 {line}\r\nContent-Type: {content_type}\r\nContent-Length: {length}\r\n{COMMON}{more}\r\n"
        );
        let mut bytes = head.into_bytes();
        if with_body {
            bytes.extend(body);
        }
        bytes
    }
}

impl From<HttpStatus> for Response {
    fn from(status: HttpStatus) -> Self {
        let text = match status {
            HttpStatus::HeadTooLarge => "the head of a request has at most 64 KiB and 64 fields",
            HttpStatus::ContentTooLarge => "a request has no body here",
            HttpStatus::MethodNotAllowed => "the methods are GET, HEAD and POST",
            HttpStatus::TimedOut => "a request has to arrive within 5 seconds",
            HttpStatus::TooManyRequests => "another request of this kind is being served",
            _ => status.line(),
        };
        Self::error(status, text)
    }
}
