//! Leases of etcd, by its JSON gateway.

use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hyper::body::{Body, Incoming};
use hyper::{Request, Response, Uri};
use hyper_util::client::legacy::Client;
use procession::http::{Connector, Executor, Timer};
use procession::timeout;
use procession_sync::atomic::AtomicUsize;
use procession_sync::atomic::Ordering::Relaxed;
use rustls::ClientConfig;
use serde_json::{Value, json};

use super::store::{Answer, Claimed, Fence, Freed, Lease, LeaseId, LeaseStore, Row, StoreError};

/// The default time in which a member of the cluster must answer. In the time for which a node
/// keeps its names without a renewal, this leaves room for three members that do not answer.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(2);
/// The default of what the keys begin with.
const PREFIX: &str = "procession/";
/// The longest answer, in bytes. One event of a watch may bring the names of a whole node.
const ANSWER_MAX: usize = 16 << 20;
/// The code that etcd gives to the error that something does not exist.
const NOT_FOUND: i64 = 5;

/// The leases of an [etcd](https://etcd.io) cluster, version 3.4 or newer.
///
/// The nodes that share names use the same cluster and the same [prefix](Self::prefix). The name
/// `bills` is the key `procession/names/bills`, its value names the node and the process, and its
/// create revision is the [`Fence`]. Claims that were given up before they were answered have keys
/// below `procession/withdrawn/` until their lease ends, so that they cannot succeed later.
///
/// ```no_run
/// use procession_cluster::exclusive::{Etcd, ExclusiveNames};
/// # fn example(node: &procession_cluster::Node) -> Result<(), Box<dyn std::error::Error>> {
/// let etcd = Etcd::new(["http://10.0.0.1:2379", "http://10.0.0.2:2379"])?;
/// let names = ExclusiveNames::builder(node).store(etcd).start();
/// # Ok(())
/// # }
/// ```
///
/// A request goes to the member of the cluster that has answered last. If that does not answer
/// within the [timeout](Self::timeout), or has an error of the cluster, the others are tried in
/// turn. Such a repetition changes nothing, because all requests but grants have the same effect
/// twice, and a lease that nobody renews ends.
pub struct Etcd {
    client: Client<Connector, String>,
    members: Vec<Uri>,
    /// The member that has answered last.
    current: AtomicUsize,
    prefix: String,
    timeout: Duration,
}

impl Etcd {
    /// Names the members of the cluster by their URLs for clients, such as `http://10.0.0.1:2379`.
    ///
    /// # Errors
    /// [`StoreError`]: there is none, or one is not a URL with a host.
    pub fn new<T: AsRef<str>>(urls: impl IntoIterator<Item = T>) -> Result<Self, StoreError> {
        let parse = |url: T| match url.as_ref().trim_end_matches('/').parse::<Uri>() {
            Ok(uri) if uri.scheme().is_some() && uri.path() == "/" && uri.query().is_none() => {
                Ok(uri)
            }
            _ => Err(StoreError::new(format!("{:?} is not the URL of a member", url.as_ref()))),
        };
        let members = urls.into_iter().map(parse).collect::<Result<Vec<_>, _>>()?;
        if members.is_empty() {
            return Err(StoreError::new("etcd needs the URL of a member"));
        }
        Ok(Self {
            client: client(Connector::new()),
            members,
            current: AtomicUsize::new(0),
            prefix: PREFIX.to_owned(),
            timeout: REQUEST_TIMEOUT,
        })
    }

    /// Sets the TLS for members with `https` URLs: the authority that they must be certified by,
    /// and the certificate of this client, if etcd asks for one.
    #[must_use]
    pub fn tls(mut self, config: Arc<ClientConfig>) -> Self {
        self.client = client(Connector::new().tls(config));
        self
    }

    /// Sets what the keys begin with. Default: `procession/`.
    #[must_use]
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// Sets the time in which a member must answer a request. Default: 2 seconds.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Sends a request to the member that has answered last, or to the next one that answers.
    async fn ask(&self, path: &str, body: &Value) -> Result<Value, Refusal> {
        for _ in 1..self.members.len() {
            match self.ask_once(path, body).await {
                Err(refusal) if refusal.code != Some(NOT_FOUND) => {}
                answer => return answer,
            }
        }
        self.ask_once(path, body).await
    }

    /// Sends a request to the member that has answered last. If it does not answer, the next
    /// request goes to the next one.
    async fn ask_once(&self, path: &str, body: &Value) -> Result<Value, Refusal> {
        // Relaxed: it only says where to begin.
        let member = self.current.load(Relaxed);
        let asked = async {
            let response = self.send(member, path, body).await?;
            read(response).await
        };
        let answer = timeout(self.timeout, asked).await;
        let answer = answer.unwrap_or_else(|_| Err(Refusal::new("it has not answered in time")));
        if answer.as_ref().is_err_and(|refusal| refusal.code != Some(NOT_FOUND)) {
            let next = (member + 1) % self.members.len();
            // Ignored: another request has found that it does not answer.
            let _ = self.current.compare_exchange(member, next, Relaxed, Relaxed);
        }
        answer
    }

    async fn send(
        &self,
        member: usize,
        path: &str,
        body: &Value,
    ) -> Result<Response<Incoming>, Refusal> {
        let mut uri = self.members[member].clone().into_parts();
        uri.path_and_query = Some(path.parse().map_err(Refusal::new)?);
        let uri = Uri::from_parts(uri).map_err(Refusal::new)?;
        let request = Request::post(uri)
            .header("content-type", "application/json")
            .body(body.to_string())
            .map_err(Refusal::new)?;
        self.client.request(request).await.map_err(Refusal::new)
    }

    fn key(&self, name: &str) -> Value {
        encode(&format!("{}names/{name}", self.prefix))
    }

    /// Returns the key that a claim must not find.
    fn withdrawn(&self, holder: &str) -> Value {
        encode(&format!("{}withdrawn/{holder}", self.prefix))
    }

    async fn watch(&self, after: u64) -> Result<Freed, Refusal> {
        let names = format!("{}names", self.prefix);
        let body = json!({ "create_request": {
            "key": encode(&format!("{names}/")),
            // The first key after all that begin so.
            "range_end": encode(&format!("{names}0")),
            "start_revision": (after + 1).to_string(),
            "filters": ["NOPUT"],
        } });
        // Relaxed: it only says where to begin.
        let member = self.current.load(Relaxed);
        let begun = timeout(self.timeout, self.send(member, "/v3/watch", &body)).await;
        let mut response = begun.map_err(|_| Refusal::new("no answer to a watch"))??;
        let mut lines = Lines::default();
        while let Some(line) = lines.next(response.body_mut()).await? {
            let result = answer(&line)?;
            let result = &result["result"];
            if result["canceled"] == true {
                return Err(Refusal::new("the revision was compacted"));
            }
            let events = result["events"].as_array().map_or(&[][..], Vec::as_slice);
            let deleted = events.iter().filter(|event| event["type"] == "DELETE");
            let freed = deleted.filter_map(|event| {
                let key = String::from_utf8(decode(&event["kv"]["key"])?).ok()?;
                Some(key.strip_prefix(&names)?.strip_prefix('/')?.to_owned())
            });
            // The revision in the header may be later than that of events that are still to come.
            if let Some(last) = events.last() {
                let revision = number(&last["kv"]["mod_revision"]);
                return Ok(Freed { names: freed.collect(), revision });
            }
        }
        Err(Refusal::new("the watch has ended"))
    }
}

fn client(connector: Connector) -> Client<Connector, String> {
    Client::builder(Executor).pool_timer(Timer).build(connector)
}

impl LeaseStore for Etcd {
    fn grant(&self, time: Duration) -> Answer<'_, Lease> {
        Box::pin(async move {
            // Seconds, of which the builder of the names takes whole ones.
            let body = json!({ "TTL": time.as_secs().to_string() });
            let answer = self.ask("/v3/lease/grant", &body).await?;
            let id = LeaseId(number(&answer["ID"]));
            // It may last longer, which only delays others.
            Ok(Lease { id, lasts: time })
        })
    }

    fn renew(&self, lease: LeaseId) -> Answer<'_, bool> {
        Box::pin(async move {
            let body = json!({ "ID": lease.0.to_string() });
            let answer = self.ask("/v3/lease/keepalive", &body).await?;
            Ok(number(&answer["result"]["TTL"]) > 0)
        })
    }

    fn revoke(&self, lease: LeaseId) -> Answer<'_, ()> {
        Box::pin(async move {
            let body = json!({ "ID": lease.0.to_string() });
            match self.ask("/v3/lease/revoke", &body).await {
                Err(refusal) if refusal.code != Some(NOT_FOUND) => Err(refusal.into()),
                _ => Ok(()),
            }
        })
    }

    fn claim<'a>(&'a self, name: &'a str, holder: &'a str, lease: LeaseId) -> Answer<'a, Claimed> {
        Box::pin(async move {
            let (key, value) = (self.key(name), encode(holder));
            let is_free =
                |key: &Value| json!({ "target": "CREATE", "key": key, "create_revision": "0" });
            let body = json!({
                "compare": [is_free(&key), is_free(&self.withdrawn(holder))],
                "success": [{ "request_put": put(&key, &value, lease) }],
                "failure": [{ "request_range": { "key": key } }],
            });
            // Once, so that whoever asks knows that it may still arrive.
            let answer = self.ask_once("/v3/kv/txn", &body).await?;
            let revision = number(&answer["header"]["revision"]);
            if answer["succeeded"] == true {
                return Ok(Claimed::Won(Fence::new(revision)));
            }
            let row = &answer["responses"][0]["response_range"]["kvs"][0];
            // The answer to the same claim got lost.
            let is_own = row["value"] == value && number(&row["lease"]) == lease.0;
            Ok(match is_own {
                true => Claimed::Won(Fence::new(number(&row["create_revision"]))),
                false => Claimed::Taken(revision),
            })
        })
    }

    fn release<'a>(&'a self, name: &'a str, holder: &'a str) -> Answer<'a, ()> {
        Box::pin(async move {
            let key = self.key(name);
            let body = json!({
                "compare": [{ "target": "VALUE", "key": key, "value": encode(holder) }],
                "success": [{ "request_delete_range": { "key": key } }],
            });
            self.ask("/v3/kv/txn", &body).await?;
            Ok(())
        })
    }

    fn withdraw<'a>(&'a self, name: &'a str, holder: &'a str, lease: LeaseId) -> Answer<'a, ()> {
        Box::pin(async move {
            let withdrawn = put(&self.withdrawn(holder), &encode(""), lease);
            self.ask("/v3/kv/put", &withdrawn).await?;
            self.release(name, holder).await
        })
    }

    fn holder<'a>(&'a self, name: &'a str) -> Answer<'a, Option<Row>> {
        Box::pin(async move {
            let answer = self.ask("/v3/kv/range", &json!({ "key": self.key(name) })).await?;
            let Some(row) = answer["kvs"].get(0) else { return Ok(None) };
            let holder = decode(&row["value"]).unwrap_or_default();
            let holder = String::from_utf8_lossy(&holder).into_owned();
            Ok(Some(Row { holder, fence: Fence::new(number(&row["create_revision"])) }))
        })
    }

    fn freed(&self, after: u64) -> Answer<'_, Freed> {
        Box::pin(async move { Ok(self.watch(after).await?) })
    }
}

/// Why a member has refused a request, or has not answered.
#[derive(Debug)]
struct Refusal {
    /// The code of etcd, if it has answered.
    code: Option<i64>,
    why: StoreError,
}

impl Refusal {
    fn new(why: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self { code: None, why: StoreError::new(why) }
    }
}

impl From<Refusal> for StoreError {
    fn from(refusal: Refusal) -> Self {
        refusal.why
    }
}

/// The lines of a body that has not ended.
#[derive(Default)]
struct Lines {
    begun: Vec<u8>,
}

impl Lines {
    /// Returns the next line, or what is left at the end.
    async fn next(&mut self, body: &mut Incoming) -> Result<Option<Vec<u8>>, Refusal> {
        loop {
            if let Some(at) = self.begun.iter().position(|byte| *byte == b'\n') {
                let rest = self.begun.split_off(at + 1);
                return Ok(Some(std::mem::replace(&mut self.begun, rest)));
            }
            let Some(frame) = poll_fn(|task| Pin::new(&mut *body).poll_frame(task)).await else {
                let last = std::mem::take(&mut self.begun);
                return Ok((!last.is_empty()).then_some(last));
            };
            let Ok(data) = frame.map_err(Refusal::new)?.into_data() else { continue };
            self.begun.extend_from_slice(&data);
            if self.begun.len() > ANSWER_MAX {
                return Err(Refusal::new("the answer is too long"));
            }
        }
    }
}

/// Reads an answer of one line.
async fn read(mut response: Response<Incoming>) -> Result<Value, Refusal> {
    let line = Lines::default().next(response.body_mut()).await?;
    answer(&line.unwrap_or_default())
}

fn answer(line: &[u8]) -> Result<Value, Refusal> {
    let answer: Value = serde_json::from_slice(line).map_err(Refusal::new)?;
    // In a stream, the error is an object.
    let error = &answer["error"];
    match error["message"].as_str().or_else(|| error.as_str()) {
        None => Ok(answer),
        Some(text) => {
            let code = answer["code"].as_i64().or_else(|| error["grpc_code"].as_i64());
            Err(Refusal { code, why: StoreError::new(text) })
        }
    }
}

/// Returns the number of a text, which the gateway leaves out if it is zero.
fn number(value: &Value) -> u64 {
    value.as_str().and_then(|text| text.parse().ok()).unwrap_or(0)
}

fn put(key: &Value, value: &Value, lease: LeaseId) -> Value {
    json!({ "key": key, "value": value, "lease": lease.0.to_string() })
}

fn encode(text: &str) -> Value {
    STANDARD.encode(text).into()
}

fn decode(value: &Value) -> Option<Vec<u8>> {
    STANDARD.decode(value.as_str()?).ok()
}

impl fmt::Debug for Etcd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Etcd")
            .field("members", &self.members)
            .field("prefix", &self.prefix)
            .finish_non_exhaustive()
    }
}
