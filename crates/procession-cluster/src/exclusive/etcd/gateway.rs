//! Requests to the members of an etcd cluster, by the JSON gateway.

use std::error::Error;
use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use hyper::body::{Body, Incoming};
use hyper::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderValue};
use hyper::{Request, Response, StatusCode, Uri};
use hyper_util::client::legacy::Client;
use procession::http::{Connector, Executor, Timer};
use procession::sync::Mutex;
use procession::timeout;
use procession_sync::atomic::AtomicUsize;
use procession_sync::atomic::Ordering::Relaxed;
use rustls::ClientConfig;
use serde_json::{Value, json};

use crate::exclusive::store::StoreError;

/// The default time in which a member of the cluster must answer. In the time for which a node
/// keeps its names without a renewal, this leaves room for three members that do not answer.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(2);
/// The longest answer, in bytes. One event of a watch may bring the names of a whole node.
const ANSWER_MAX: usize = 16 << 20;
/// The most characters of an answer that is no JSON which an error repeats.
const SHOWN_MAX: usize = 200;
/// The code that etcd gives to the error that something does not exist.
const NOT_FOUND: i64 = 5;
/// The code that etcd gives to the error that a token has ended, or is not known.
const UNAUTHENTICATED: i64 = 16;
/// The errors of etcd that a new token helps against, and that have a code of many errors.
const NEEDS_TOKEN: [&str; 2] =
    ["etcdserver: user name is empty", "etcdserver: revision of auth store is old"];

/// The members of a cluster, and the client that asks them.
pub(super) struct Gateway {
    client: Client<Connector, String>,
    pub(super) members: Vec<Uri>,
    user: Option<User>,
    /// The member that has answered last.
    current: AtomicUsize,
    pub(super) timeout: Duration,
}

/// A user of etcd. It is not printed.
struct User {
    name: String,
    password: String,
    /// The token that etcd has given to the user, if it was ever asked for one. The lock is held
    /// while etcd checks the password, because that is slow on purpose, and one token is enough for
    /// all requests.
    token: Mutex<Option<HeaderValue>>,
}

impl Gateway {
    /// # Errors
    /// There is no URL, or one is not a URL with a host and nothing else.
    pub(super) fn new<T: AsRef<str>>(
        urls: impl IntoIterator<Item = T>,
    ) -> Result<Self, StoreError> {
        let members = urls.into_iter().map(|url| member(url.as_ref()));
        let members = members.collect::<Result<Vec<_>, _>>()?;
        if members.is_empty() {
            return Err(StoreError::new("etcd needs the URL of a member"));
        }
        Ok(Self {
            client: client(Connector::new()),
            members,
            user: None,
            current: AtomicUsize::new(0),
            timeout: REQUEST_TIMEOUT,
        })
    }

    pub(super) fn set_tls(&mut self, config: Arc<ClientConfig>) {
        self.client = client(Connector::new().tls(config));
    }

    pub(super) fn set_user(&mut self, name: String, password: String) {
        self.user = Some(User { name, password, token: Mutex::new(None) });
    }

    /// Sends a request to the member that has answered last, or to the next one that answers.
    pub(super) async fn ask(&self, path: &str, body: &Value) -> Result<Value, Refusal> {
        for _ in 1..self.members.len() {
            match self.ask_once(path, body).await {
                Err(refusal) if refusal.kind != Kind::NotFound => {}
                answer => return answer,
            }
        }
        self.ask_once(path, body).await
    }

    /// Sends a request to the member that has answered last. If it does not answer, the next
    /// request goes to the next one.
    pub(super) async fn ask_once(&self, path: &str, body: &Value) -> Result<Value, Refusal> {
        // Relaxed: it only says where to begin.
        let member = self.current.load(Relaxed);
        let answer = timeout(self.timeout, self.ask_member(member, path, body)).await;
        let answer = answer.unwrap_or_else(|_| Err(Refusal::new("it has not answered in time")));
        let answer = answer.map_err(|refusal| refusal.of(&self.members[member]));
        if answer.as_ref().is_err_and(|refusal| refusal.kind != Kind::NotFound) {
            let next = (member + 1) % self.members.len();
            // Ignored: another request has found that it does not answer.
            let _ = self.current.compare_exchange(member, next, Relaxed, Relaxed);
        }
        answer
    }

    /// Sends a request to a member, with a new token if the member has refused the last one. A
    /// request that was refused for its token has changed nothing.
    async fn ask_member(&self, member: usize, path: &str, body: &Value) -> Result<Value, Refusal> {
        let token = self.token().await;
        let answer = self.ask_with(token.as_ref(), member, path, body).await;
        match (&self.user, answer) {
            (Some(user), Err(refusal)) if refusal.kind == Kind::NeedsToken => {
                let token = self.sign_in(user, token, member).await?;
                self.ask_with(Some(&token), member, path, body).await
            }
            (_, answer) => answer,
        }
    }

    async fn ask_with(
        &self,
        token: Option<&HeaderValue>,
        member: usize,
        path: &str,
        body: &Value,
    ) -> Result<Value, Refusal> {
        let mut lines = Lines::new(self.send(token, member, path, body).await?);
        let answer = lines.next().await?;
        answer.ok_or_else(|| Refusal::new("the answer is empty"))
    }

    /// Begins an answer of many lines. The requests before have made sure that the token is good.
    pub(super) async fn stream(&self, path: &str, body: &Value) -> Result<Lines, Refusal> {
        // Relaxed: it only says where to begin.
        let member = self.current.load(Relaxed);
        let begun = async {
            let token = self.token().await;
            self.send(token.as_ref(), member, path, body).await
        };
        let begun = timeout(self.timeout, begun).await;
        let response = begun.map_err(|_| Refusal::new("it has not answered in time"))??;
        Ok(Lines::new(response))
    }

    async fn token(&self) -> Option<HeaderValue> {
        self.user.as_ref()?.token.lock().await.clone()
    }

    /// Returns a token of the user other than the one that was refused.
    async fn sign_in(
        &self,
        user: &User,
        refused: Option<HeaderValue>,
        member: usize,
    ) -> Result<HeaderValue, Refusal> {
        let mut token = user.token.lock().await;
        if let Some(token) = token.as_ref().filter(|token| Some(*token) != refused.as_ref()) {
            return Ok(token.clone());
        }
        let body = json!({ "name": user.name, "password": user.password });
        let answer = self.ask_with(None, member, "/v3/auth/authenticate", &body).await?;
        let text = answer["token"].as_str().unwrap_or_default();
        let mut new = HeaderValue::from_str(text).map_err(Refusal::new)?;
        new.set_sensitive(true);
        *token = Some(new.clone());
        Ok(new)
    }

    async fn send(
        &self,
        token: Option<&HeaderValue>,
        member: usize,
        path: &str,
        body: &Value,
    ) -> Result<Response<Incoming>, Refusal> {
        let mut uri = self.members[member].clone().into_parts();
        uri.path_and_query = Some(path.parse().map_err(Refusal::new)?);
        let uri = Uri::from_parts(uri).map_err(Refusal::new)?;
        // By the second header, etcd knows that the request comes through the gateway. Otherwise it
        // takes the common name in its own certificate for the user.
        let mut request = Request::post(uri)
            .header(CONTENT_TYPE, "application/json")
            .header(ACCEPT, "application/json");
        if let Some(token) = token {
            request = request.header(AUTHORIZATION, token);
        }
        let request = request.body(body.to_string()).map_err(Refusal::new)?;
        self.client.request(request).await.map_err(Refusal::of_connection)
    }
}

/// Reads the URL of a member. An error does not repeat what is before the host, since that may be a
/// password.
fn member(url: &str) -> Result<Uri, StoreError> {
    match url.trim_end_matches('/').parse::<Uri>() {
        Ok(uri)
            if uri.scheme().is_some()
                && uri.path() == "/"
                && uri.query().is_none()
                && !url.contains('@') =>
        {
            Ok(uri)
        }
        _ => {
            let shown = url.rsplit('@').next().unwrap_or_default();
            Err(StoreError::new(format!("{shown:?} is not the URL of a member")))
        }
    }
}

fn client(connector: Connector) -> Client<Connector, String> {
    Client::builder(Executor).pool_timer(Timer).build(connector)
}

/// Why a member has refused a request, or has not answered.
#[derive(Debug)]
pub(super) struct Refusal {
    pub(super) kind: Kind,
    why: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    NotFound,
    /// The request has no token, or one that has ended.
    NeedsToken,
    Other,
}

impl Refusal {
    pub(super) fn new(why: impl fmt::Display) -> Self {
        Self { kind: Kind::Other, why: why.to_string() }
    }

    /// The errors of a connection have layers, of which only the innermost says what was wrong.
    fn of_connection(error: impl Error) -> Self {
        let mut innermost: &dyn Error = &error;
        while let Some(cause) = innermost.source() {
            innermost = cause;
        }
        Self::new(innermost)
    }

    /// Adds the member to the error.
    fn of(self, member: &Uri) -> Self {
        let why = format!("{member}: {}", self.why);
        Self { why, ..self }
    }
}

impl From<Refusal> for StoreError {
    fn from(refusal: Refusal) -> Self {
        Self::new(refusal.why)
    }
}

/// The lines of an answer, which may have no end.
pub(super) struct Lines {
    response: Response<Incoming>,
    begun: Vec<u8>,
}

impl Lines {
    fn new(response: Response<Incoming>) -> Self {
        Self { response, begun: Vec::new() }
    }

    /// Returns the next line. `None` at the end.
    pub(super) async fn next(&mut self) -> Result<Option<Value>, Refusal> {
        let line = self.next_line().await?;
        line.map(|line| answer(self.response.status(), &line)).transpose()
    }

    async fn next_line(&mut self) -> Result<Option<Vec<u8>>, Refusal> {
        loop {
            if let Some(at) = self.begun.iter().position(|byte| *byte == b'\n') {
                let rest = self.begun.split_off(at + 1);
                return Ok(Some(std::mem::replace(&mut self.begun, rest)));
            }
            let body = self.response.body_mut();
            let Some(frame) = poll_fn(|task| Pin::new(&mut *body).poll_frame(task)).await else {
                let last = std::mem::take(&mut self.begun);
                return Ok((!last.is_empty()).then_some(last));
            };
            let frame = frame.map_err(Refusal::of_connection)?;
            let Ok(data) = frame.into_data() else { continue };
            self.begun.extend_from_slice(&data);
            if self.begun.len() > ANSWER_MAX {
                return Err(Refusal::new("the answer is too long"));
            }
        }
    }
}

/// Reads a line of an answer.
fn answer(status: StatusCode, line: &[u8]) -> Result<Value, Refusal> {
    let answer: Value = serde_json::from_slice(line).map_err(|_| {
        let text = String::from_utf8_lossy(line);
        let shown: String = text.trim().chars().take(SHOWN_MAX).collect();
        Refusal::new(format!("{status}: {shown:?}"))
    })?;
    // In a stream, the error is an object. From version 3.6 on, the answer is the error.
    let error = &answer["error"];
    let text = error["message"].as_str().or_else(|| error.as_str());
    let of_answer = if status.is_success() { None } else { answer["message"].as_str() };
    let Some(text) = text.or(of_answer) else {
        return if status.is_success() { Ok(answer) } else { Err(Refusal::new(status)) };
    };
    let mut codes = [&answer["code"], &error["grpc_code"], &error["code"]].into_iter();
    let kind = match codes.find_map(Value::as_i64) {
        Some(NOT_FOUND) => Kind::NotFound,
        Some(UNAUTHENTICATED) => Kind::NeedsToken,
        _ if NEEDS_TOKEN.contains(&text) => Kind::NeedsToken,
        _ => Kind::Other,
    };
    Err(Refusal { kind, why: text.to_owned() })
}

#[cfg(test)]
mod tests {
    use hyper::StatusCode;

    use super::{Kind, SHOWN_MAX, answer};

    #[test]
    fn an_error_is_understood_in_each_form() {
        let long = "x".repeat(SHOWN_MAX + 1);
        let shown = format!("400 Bad Request: {:?}", &long[1..]);
        for (status, line, kind, why) in [
            (404, r#"{"error":"gone","message":"gone","code":5}"#, Kind::NotFound, "gone"),
            (404, r#"{"message":"gone","code":5,"details":[]}"#, Kind::NotFound, "gone"),
            (401, r#"{"error":"no","code":16}"#, Kind::NeedsToken, "no"),
            (200, r#"{"error":{"grpc_code":16,"message":"no"}}"#, Kind::NeedsToken, "no"),
            (200, r#"{"error":{"code":16,"message":"no"}}"#, Kind::NeedsToken, "no"),
            (403, r#"{"error":"permission denied","code":7}"#, Kind::Other, "permission denied"),
            (404, "Not Found\n", Kind::Other, r#"404 Not Found: "Not Found""#),
            (400, &long, Kind::Other, &shown),
            (503, r#"{"error":null}"#, Kind::Other, "503 Service Unavailable"),
            (307, "{}", Kind::Other, "307 Temporary Redirect"),
        ] {
            let status = StatusCode::from_u16(status).expect("it is one");
            let refusal = answer(status, line.as_bytes()).expect_err(line);
            assert_eq!((refusal.kind, &*refusal.why), (kind, why), "{line}");
        }
        let fine = answer(StatusCode::OK, br#"{"message":"of a key"}"#);
        assert!(fine.is_ok());
    }
}
