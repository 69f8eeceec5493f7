//! Leases of etcd, by its JSON gateway.

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rustls::ClientConfig;
use serde_json::{Value, json};

use self::gateway::{Gateway, Kind, Refusal};
use super::store::{
    Answer, Changes, Claimed, Fence, Known, Lease, LeaseId, LeaseStore, Row, StoreError,
};
use crate::tls::{TlsError, client_of};

mod gateway;

/// The default of what the keys begin with.
const PREFIX: &str = "procession/";

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
/// twice, and a lease that nobody renews ends. The exceptions are claims and watches, which the
/// names themselves try again.
///
/// If etcd has authentication, set the [user](Self::user) of this node. The user needs the
/// permission to read and write all keys that begin with the [prefix](Self::prefix). Use `https`
/// URLs then, because a password on an `http` connection can be read on its way.
///
/// ```no_run
/// # use procession_cluster::Tls;
/// # use procession_cluster::exclusive::Etcd;
/// # fn example(password: String) -> Result<Etcd, Box<dyn std::error::Error>> {
/// let tls = Tls::read("client.crt", "client.key", "authority.crt")?;
/// let etcd = Etcd::new(["https://10.0.0.1:2379"])?.tls(tls).user("shop", password);
/// # Ok(etcd)
/// # }
/// ```
pub struct Etcd {
    gateway: Gateway,
    prefix: String,
}

impl Etcd {
    /// Names the members of the cluster by their URLs for clients, such as `http://10.0.0.1:2379`.
    ///
    /// # Errors
    /// [`StoreError`]: there is none, or one is not a URL with a host and nothing else.
    pub fn new<T: AsRef<str>>(urls: impl IntoIterator<Item = T>) -> Result<Self, StoreError> {
        Ok(Self { gateway: Gateway::new(urls)?, prefix: PREFIX.to_owned() })
    }

    /// Sets the TLS for members with `https` URLs: the authority that they must be certified by,
    /// and the certificate of this client, if etcd asks for one. It is a [`Tls`](crate::Tls), or a
    /// configuration of rustls.
    ///
    /// If etcd has authentication, the certificate of the client must have no common name (CN).
    /// Otherwise etcd refuses the requests, because its gateway takes no user from a certificate.
    #[must_use]
    pub fn tls(mut self, config: impl Into<Arc<ClientConfig>>) -> Self {
        self.gateway.set_tls(config.into());
        self
    }

    /// Sets the TLS for members with `https` URLs, if etcd asks for no certificate. The file has
    /// the certificates of the authorities that are trusted, in the PEM format.
    ///
    /// # Errors
    /// [`TlsError`]: the file cannot be read, or has no certificates of authorities.
    ///
    /// # Blocking
    /// It reads a file, which may block the thread.
    pub fn authority(self, path: impl AsRef<Path>) -> Result<Self, TlsError> {
        Ok(self.tls(client_of(path.as_ref())?))
    }

    /// Sets the name and the password of the user for the requests of this node. The node sends
    /// both to a member that asks for a user, and gets a token for its requests. When the token has
    /// expired, the node sends both again.
    #[must_use]
    pub fn user(mut self, name: impl Into<String>, password: impl Into<String>) -> Self {
        self.gateway.set_user(name.into(), password.into());
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
        self.gateway.timeout = timeout;
        self
    }

    fn key(&self, name: &str) -> Value {
        encode(&format!("{}names/{name}", self.prefix))
    }

    /// Returns the key that a claim must not find.
    fn withdrawn(&self, holder: &str) -> Value {
        encode(&format!("{}withdrawn/{holder}", self.prefix))
    }

    async fn watch(&self, after: u64) -> Result<Changes, Refusal> {
        let names = format!("{}names", self.prefix);
        let body = json!({ "create_request": {
            "key": encode(&format!("{names}/")),
            // The first key after all that begin so.
            "range_end": encode(&format!("{names}0")),
            "start_revision": (after + 1).to_string(),
        } });
        let mut lines = self.gateway.stream("/v3/watch", &body).await?;
        while let Some(line) = lines.next().await? {
            let result = &line["result"];
            if result["canceled"] == true {
                let why = result["cancel_reason"].as_str();
                return Err(Refusal::new(why.unwrap_or("the revision was compacted")));
            }
            let events = result["events"].as_array().map_or(&[][..], Vec::as_slice);
            // The revision in the header may be later than that of events that are still to come.
            let Some(last) = events.last() else { continue };
            let revision = number(&last["kv"]["mod_revision"])?;
            let mut changes = Changes { revision, ..Changes::default() };
            for event in events {
                let key = decode(&event["kv"]["key"]).and_then(|key| String::from_utf8(key).ok());
                let name = key.as_deref().and_then(|key| key.strip_prefix(&names));
                let Some(name) = name.and_then(|name| name.strip_prefix('/')) else { continue };
                let Changes { freed, claimed, .. } = &mut changes;
                let list = if event["type"] == "DELETE" { freed } else { claimed };
                list.push(name.to_owned());
            }
            return Ok(changes);
        }
        Err(Refusal::new("the watch has ended"))
    }
}

impl LeaseStore for Etcd {
    fn grant(&self, time: Duration) -> Answer<'_, Lease> {
        Box::pin(async move {
            // Seconds, of which the builder of the names takes whole ones.
            let body = json!({ "TTL": time.as_secs().to_string() });
            let answer = self.gateway.ask("/v3/lease/grant", &body).await?;
            let id = LeaseId(number(&answer["ID"])?);
            // It may last longer, which only delays others.
            Ok(Lease { id, lasts: time })
        })
    }

    fn renew(&self, lease: LeaseId) -> Answer<'_, bool> {
        Box::pin(async move {
            let body = json!({ "ID": lease.0.to_string() });
            let answer = self.gateway.ask("/v3/lease/keepalive", &body).await?;
            number(&answer["result"]["ID"])?;
            // The gateway leaves out the time of a lease that has ended, which is zero.
            Ok(number(&answer["result"]["TTL"]).is_ok())
        })
    }

    fn revoke(&self, lease: LeaseId) -> Answer<'_, ()> {
        Box::pin(async move {
            let body = json!({ "ID": lease.0.to_string() });
            match self.gateway.ask("/v3/lease/revoke", &body).await {
                Err(refusal) if refusal.kind != Kind::NotFound => Err(refusal.into()),
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
            // Once, because a claim without an answer may still arrive, and the caller has to know.
            let answer = self.gateway.ask_once("/v3/kv/txn", &body).await?;
            let revision = revision(&answer)?;
            if answer["succeeded"] == true {
                return Ok(Claimed::Won(Fence::new(revision)));
            }
            let row = &answer["responses"][0]["response_range"]["kvs"][0];
            // The answer to the same claim got lost.
            let by = number(&row["lease"]).ok();
            let is_own = row["value"] == value && by == Some(lease.0);
            Ok(match is_own {
                true => Claimed::Won(Fence::new(number(&row["create_revision"])?)),
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
            revision(&self.gateway.ask("/v3/kv/txn", &body).await?)?;
            Ok(())
        })
    }

    fn withdraw<'a>(&'a self, name: &'a str, holder: &'a str, lease: LeaseId) -> Answer<'a, ()> {
        Box::pin(async move {
            let withdrawn = put(&self.withdrawn(holder), &encode(""), lease);
            revision(&self.gateway.ask("/v3/kv/put", &withdrawn).await?)?;
            self.release(name, holder).await
        })
    }

    fn holder<'a>(&'a self, name: &'a str) -> Answer<'a, Known> {
        Box::pin(async move {
            let answer =
                self.gateway.ask("/v3/kv/range", &json!({ "key": self.key(name) })).await?;
            let row = answer["kvs"].get(0).map(|row| {
                let holder = decode(&row["value"]).unwrap_or_default();
                let holder = String::from_utf8_lossy(&holder).into_owned();
                Ok::<_, Refusal>(Row {
                    holder,
                    fence: Fence::new(number(&row["create_revision"])?),
                })
            });
            Ok(Known { row: row.transpose()?, revision: revision(&answer)? })
        })
    }

    fn changes(&self, after: u64) -> Answer<'_, Changes> {
        Box::pin(async move { Ok(self.watch(after).await?) })
    }
}

/// Returns the revision of the store in an answer about keys.
fn revision(answer: &Value) -> Result<u64, Refusal> {
    number(&answer["header"]["revision"])
}

/// Returns the number of a text. The gateway leaves out a number that is zero.
fn number(value: &Value) -> Result<u64, Refusal> {
    let number = value.as_str().and_then(|text| text.parse().ok());
    number.filter(|number| *number > 0).ok_or_else(|| Refusal::new("the answer lacks a number"))
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
            .field("members", &self.gateway.members)
            .field("prefix", &self.prefix)
            .finish_non_exhaustive()
    }
}
