//! etcd's JSON gateway, by a model that speaks it over a socket. `.ci/cluster` has the real one.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use procession::net::{TcpListener, TcpStream};
use procession::{sleep, spawn};
use procession_cluster::exclusive::{
    Changes, Claimed, Etcd, ExclusiveNames, Fence, Known, LeaseId, LeaseStore, Row, StoreError,
};
use procession_sync::Mutex;
use serde_json::{Value, json};

use super::model::Model;
use super::rows::Rows;
use super::{a_monitor_sees_the_last_holder, a_name_has_one_holder, hold, node};
use crate::run;

const PREFIX: &str = "test/";
/// The shortest lease.
const LEASE: Duration = Duration::from_secs(2);

/// The users of a model of etcd: `shop` with the password `secret`, and no other user.
#[derive(Debug, Default)]
struct Users {
    /// The token that is good.
    token: Mutex<Option<String>>,
    /// How many tokens were given.
    given: Mutex<u64>,
}

impl Users {
    /// Returns the status and the answer to a request that gets no further.
    fn check(&self, path: &str, token: Option<&str>, body: &Value) -> Option<(&str, Value)> {
        let refuse = |status, text: &str, code| {
            Some((status, json!({ "error": text, "message": text, "code": code })))
        };
        match token {
            _ if path == "/v3/auth/authenticate" => {
                if (&body["name"], &body["password"]) != (&json!("shop"), &json!("secret")) {
                    let text = "etcdserver: authentication failed, invalid user ID or password";
                    return refuse("400 Bad Request", text, 3);
                }
                *self.given.lock() += 1;
                let token = format!("token.{}", self.given.lock());
                *self.token.lock() = Some(token.clone());
                Some(("200 OK", json!({ "token": token })))
            }
            // These need no user.
            None if path.starts_with("/v3/lease/") => None,
            None => refuse("400 Bad Request", "etcdserver: user name is empty", 3),
            Some(token) if self.token.lock().as_deref() == Some(token) => None,
            Some(_) => refuse("401 Unauthorized", "etcdserver: invalid auth token", 16),
        }
    }
}

/// Serves a model of etcd that knows no users, and returns its URL.
pub(super) async fn serve(model: Model) -> String {
    serve_users(model, None).await
}

async fn serve_users(model: Model, users: Option<Arc<Users>>) -> String {
    // etcd begins with it.
    model.with(|rows| rows.revision = rows.revision.max(1));
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a port is free");
    let url = format!("http://{}", listener.local_addr().expect("it is bound"));
    spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            // Ignored: a client may close its connection at any time.
            let answers = answer_all(stream, model.clone(), users.clone());
            spawn(async move { drop(answers.await) }).detach();
        }
    })
    .detach();
    url
}

async fn answer_all(
    stream: TcpStream,
    model: Model,
    users: Option<Arc<Users>>,
) -> std::io::Result<()> {
    let mut bytes = Vec::new();
    loop {
        let Some(Asked { path, token, body }) = request(&stream, &mut bytes).await? else {
            return Ok(());
        };
        let refused = users.as_ref().and_then(|it| it.check(&path, token.as_deref(), &body));
        if refused.is_none() && path == "/v3/watch" {
            return watch(&stream, &model, &body).await;
        }
        let answered = refused.unwrap_or_else(|| {
            let text = "etcdserver: requested lease not found";
            let gone = json!({ "error": text, "message": text, "code": 5 });
            let answer = model.with(|rows| answer(rows, &path, &body));
            answer.map_or(("404 Not Found", gone), |answer| ("200 OK", answer))
        });
        let (status, text) = (answered.0, answered.1.to_string());
        let head = format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\n\r\n", text.len());
        stream.write_all((head + &text).as_bytes()).await?;
    }
}

struct Asked {
    path: String,
    token: Option<String>,
    body: Value,
}

/// Reads a request.
async fn request(stream: &TcpStream, bytes: &mut Vec<u8>) -> std::io::Result<Option<Asked>> {
    let text_of = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("it is text");
    loop {
        let text = text_of(bytes);
        if let Some((head, rest)) = text.split_once("\r\n\r\n") {
            let head = head.to_lowercase();
            let header = |name| head.lines().find_map(|line| line.strip_prefix(name));
            assert!(header("accept: ").is_some(), "etcd takes another user");
            let token = header("authorization: ").map(str::to_owned);
            let length = header("content-length: ");
            let length = length.expect("it has a length").parse::<usize>().expect("a number");
            if rest.len() >= length {
                let path = head.split(' ').nth(1).expect("it has a path").to_owned();
                let body = serde_json::from_str(&rest[..length]).expect("it is JSON");
                *bytes = rest.as_bytes()[length..].to_vec();
                return Ok(Some(Asked { path, token, body }));
            }
        }
        let mut more = [0; 4096];
        match stream.read(&mut more).await? {
            0 => return Ok(None),
            count => bytes.extend_from_slice(&more[..count]),
        }
    }
}

async fn watch(stream: &TcpStream, model: &Model, body: &Value) -> std::io::Result<()> {
    let create = &body["create_request"];
    let range = (text(&create["key"]), text(&create["range_end"]));
    assert_eq!(range, ("test/names/".to_owned(), "test/names0".to_owned()));
    let head = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
    stream.write_all(head.as_bytes()).await?;
    let mut after = number(&create["start_revision"]) - 1;
    let mut result = json!({ "created": true });
    loop {
        let line = json!({ "result": result }).to_string() + "\n";
        let chunk = format!("{:x}\r\n{line}\r\n", line.len());
        stream.write_all(chunk.as_bytes()).await?;
        let changes = model.changes(after).await;
        // The header of a real one may be ahead of the events.
        let header = json!({ "revision": "999999" });
        let events: Vec<_> = changes
            .iter()
            .map(|change| {
                let revision = change.revision.to_string();
                let kv = json!({ "key": key(&change.name), "mod_revision": revision });
                // A real one leaves the type of a put out.
                match change.is_claim {
                    true => json!({ "kv": kv }),
                    false => json!({ "type": "DELETE", "kv": kv }),
                }
            })
            .collect();
        after = changes.last().map_or(after, |change| change.revision);
        result = json!({ "header": header, "events": events });
    }
}

/// Returns the answer to a request, or `None` if its lease has ended.
fn answer(rows: &mut Rows, path: &str, body: &Value) -> Option<Value> {
    let lease = |value: &Value| LeaseId(number(value));
    let mut answer = match path {
        "/v3/lease/grant" => {
            let lasts = Duration::from_secs(number(&body["TTL"]));
            json!({ "ID": rows.grant(lasts).0.to_string(), "TTL": body["TTL"] })
        }
        "/v3/lease/keepalive" => {
            // Without the lease, there is no time.
            let lasts = rows.renew(lease(&body["ID"]));
            let lasts = lasts.map(|lasts| lasts.as_secs().to_string());
            return Some(json!({ "result": { "ID": body["ID"], "TTL": lasts } }));
        }
        "/v3/lease/revoke" => rows.revoke(lease(&body["ID"])).then(|| json!({}))?,
        "/v3/kv/range" => json!({ "kvs": row(rows, &name_of(&body["key"])) }),
        "/v3/kv/put" => {
            let holder = text(&body["key"]);
            let holder = holder.strip_prefix("test/withdrawn/").expect("it is a claim");
            rows.withdrawn.insert(holder.to_owned());
            json!({})
        }
        "/v3/kv/txn" => {
            let (compare, success) = (&body["compare"][0], &body["success"][0]);
            let (key, name) = (&compare["key"], name_of(&compare["key"]));
            let is_done = match compare["target"].as_str().expect("it has one") {
                "CREATE" => {
                    let put = &success["request_put"];
                    let holder = text(&put["value"]);
                    let zero = json!("0");
                    assert_eq!((&put["key"], &compare["create_revision"]), (key, &zero));
                    assert_eq!(body["failure"][0]["request_range"]["key"], *key);
                    let other = &body["compare"][1];
                    assert_eq!(
                        (&other["target"], &other["create_revision"]),
                        (&json!("CREATE"), &zero)
                    );
                    assert_eq!(text(&other["key"]), format!("{PREFIX}withdrawn/{holder}"));
                    // etcd itself knows no holders.
                    let is_free =
                        !rows.by_name.contains_key(&name) && !rows.withdrawn.contains(&holder);
                    is_free && rows.claim(&name, &holder, lease(&put["lease"])).map(|_| true)?
                }
                "VALUE" => {
                    assert_eq!(success["request_delete_range"]["key"], *key);
                    let holder = text(&compare["value"]);
                    rows.free(|other, row, _| other == name && row.holder == holder)
                }
                other => panic!("{other} is not compared"),
            };
            let found = json!({ "response_range": { "kvs": row(rows, &name) } });
            match is_done {
                true => json!({ "succeeded": true, "responses": [{}] }),
                false => json!({ "responses": [found] }),
            }
        }
        other => panic!("{other} is not asked for"),
    };
    answer["header"] = json!({ "revision": rows.revision.to_string() });
    Some(answer)
}

fn row(rows: &Rows, name: &str) -> Vec<Value> {
    let row = rows.by_name.get(name).map(|(row, lease)| {
        json!({
            "key": key(name),
            "value": STANDARD.encode(&row.holder),
            "create_revision": row.fence.to_string(),
            "lease": lease.0.to_string(),
        })
    });
    row.into_iter().collect()
}

fn number(value: &Value) -> u64 {
    value.as_str().expect("numbers are texts").parse().expect("it is a number")
}

fn text(value: &Value) -> String {
    let bytes = STANDARD.decode(value.as_str().expect("it is a text")).expect("it is encoded");
    String::from_utf8(bytes).expect("it is text")
}

fn key(name: &str) -> String {
    STANDARD.encode(format!("{PREFIX}names/{name}"))
}

fn name_of(key: &Value) -> String {
    text(key).strip_prefix("test/names/").expect("it is a name").to_owned()
}

pub(super) fn etcd(url: &str) -> Etcd {
    Etcd::new([url]).expect("it is a URL").prefix(PREFIX)
}

#[test]
fn etcd_gives_a_name_to_one_process() {
    run(async {
        let model = Model::start();
        let url = serve(model.clone()).await;
        a_name_has_one_holder(|| etcd(&url)).await;
        a_monitor_sees_the_last_holder(|| etcd(&url)).await;
        model.with(|rows| assert!(rows.by_name.is_empty(), "{rows:?}"));
    });
}

/// Each answer of the store, by the client alone.
#[test]
fn the_answers_of_etcd_are_understood() {
    run(async {
        let url = serve(Model::start()).await;
        // The first member is not there.
        let gone = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a port is free");
        let gone_url = format!("http://{}/", gone.local_addr().expect("it is bound"));
        drop(gone);
        let etcd = Etcd::new([gone_url, url]).expect("they are URLs").prefix(PREFIX);
        let lease = etcd.grant(LEASE).await.expect("it answers");
        assert_eq!(lease.lasts, LEASE);
        assert!(etcd.renew(lease.id).await.expect("it answers"));
        assert!(!etcd.renew(LeaseId(77)).await.expect("it answers"));
        let fence = Fence::new(2);
        for _ in 0..2 {
            let won = etcd.claim("a b/ä", "me", lease.id).await.expect("it answers");
            assert_eq!(won, Claimed::Won(fence));
        }
        let taken = etcd.claim("a b/ä", "you", lease.id).await.expect("it answers");
        assert_eq!(taken, Claimed::Taken(2));
        let row = Some(Row { holder: "me".to_owned(), fence });
        let known = etcd.holder("a b/ä").await.expect("it answers");
        assert_eq!(known, Known { row, revision: 2 });
        let free = etcd.holder("b").await.expect("it answers");
        assert_eq!(free, Known { row: None, revision: 2 });
        etcd.release("a b/ä", "you").await.expect("it answers");
        assert!(etcd.holder("a b/ä").await.expect("it answers").row.is_some());
        etcd.release("a b/ä", "me").await.expect("it answers");
        let name = "a b/ä".to_owned();
        let (freed, claimed) = (vec![name.clone()], vec![name]);
        let changes = etcd.changes(0).await.expect("it answers");
        assert_eq!(changes, Changes { freed: freed.clone(), claimed, revision: 3 });
        let changes = etcd.changes(2).await.expect("it answers");
        assert_eq!(changes, Changes { freed, claimed: Vec::new(), revision: 3 });
        // A claim that arrives later.
        etcd.withdraw("a b/ä", "late", lease.id).await.expect("it answers");
        let late = etcd.claim("a b/ä", "late", lease.id).await.expect("it answers");
        assert_eq!(late, Claimed::Taken(3));
        etcd.revoke(lease.id).await.expect("it answers");
        etcd.revoke(lease.id).await.expect("it has ended already");
        let refused = etcd.claim("b", "me", lease.id).await.unwrap_err();
        assert!(refused.to_string().ends_with(": etcdserver: requested lease not found"));
    });
}

/// Goal: a node sends its user and password when etcd asks for a user, and again when etcd has
/// forgotten the token. Method: the model forgets the token.
#[test]
fn a_user_is_told_when_etcd_asks_for_one() {
    run(async {
        let users = Arc::new(Users::default());
        let url = serve_users(Model::start(), Some(Arc::clone(&users))).await;
        let own = Arc::new(etcd(&url).user("shop", "secret"));
        let lease = own.grant(LEASE).await.expect("it answers");
        assert_eq!(*users.given.lock(), 0);
        // One token is enough for all that ask for one at the same time.
        let claims = ["a", "b", "c"].map(|name| {
            let own = Arc::clone(&own);
            spawn(async move { own.claim(name, "me", lease.id).await.map(|_| ()).is_ok() })
        });
        for claim in claims {
            assert_eq!(claim.await, Ok(true));
        }
        assert_eq!(*users.given.lock(), 1);
        *users.token.lock() = None;
        own.release("a", "me").await.expect("it answers");
        assert_eq!(own.changes(4).await.expect("it answers").freed, ["a"]);
        assert_eq!(*users.given.lock(), 2);

        let refusal = |etcd: Etcd| async move {
            let refused = etcd.holder("b").await.expect_err("it is refused");
            assert!(!format!("{refused} {refused:?} {etcd:?}").contains("guess"));
            refused.to_string()
        };
        let said = format!("the store of leases has not answered: {url}/: etcdserver:");
        let wrong = refusal(etcd(&url).user("shop", "guess")).await;
        let why = "authentication failed, invalid user ID or password";
        assert_eq!(wrong, format!("{said} {why}"));
        assert_eq!(refusal(etcd(&url)).await, format!("{said} user name is empty"));
        assert!(!format!("{own:?}").contains("secret"), "{own:?}");
    });
}

/// Goal: an answer without the numbers that etcd has in it is none.
#[test]
fn an_answer_of_something_else_is_none() {
    run(async {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a port is free");
        let url = format!("http://{}", listener.local_addr().expect("it is bound"));
        spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let answers = async move {
                    let mut bytes = Vec::new();
                    while let Ok(Some(_)) = request(&stream, &mut bytes).await {
                        let answer = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}";
                        // Ignored: a client may close its connection at any time.
                        drop(stream.write_all(answer.as_bytes()).await);
                    }
                };
                spawn(answers).detach();
            }
        })
        .detach();
        let (etcd, lease) = (etcd(&url), LeaseId(1));
        assert!(etcd.grant(LEASE).await.is_err());
        assert!(etcd.renew(lease).await.is_err());
        assert!(etcd.claim("bills", "me", lease).await.is_err());
        assert!(etcd.release("bills", "me").await.is_err());
        assert!(etcd.withdraw("bills", "me", lease).await.is_err());
        assert!(etcd.holder("bills").await.is_err());
        assert!(etcd.changes(1).await.is_err());
    });
}

#[test]
fn a_member_that_cannot_be_reached_is_named_with_the_reason() {
    run(async {
        let gone = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a port is free");
        let address = gone.local_addr().expect("it is bound");
        drop(gone);
        for (url, why) in [
            (format!("http://{address}"), "Connection refused"),
            (format!("https://{address}"), "the connector has no TLS"),
        ] {
            let refused = etcd(&url).holder("a").await.expect_err("nobody is there").to_string();
            let said = format!("the store of leases has not answered: {url}/: {why}");
            assert!(refused.starts_with(&said), "{refused}");
        }
    });
}

#[test]
fn a_wrong_url_is_refused() {
    for url in ["", "10.0.0.1:2379", "http://10.0.0.1:2379/v3", "http://", "http://a?b"] {
        let refused: StoreError = Etcd::new([url]).unwrap_err();
        assert!(refused.to_string().ends_with("is not the URL of a member"), "{refused}");
    }
    assert!(Etcd::new([""; 0]).is_err());
    let refused = Etcd::new(["http://shop:secret@10.0.0.1:2379"]).unwrap_err().to_string();
    assert!(refused.ends_with(r#""10.0.0.1:2379" is not the URL of a member"#), "{refused}");
}

/// Goal: a name stays with its process for longer than the lease.
#[test]
fn a_lease_of_etcd_is_renewed() {
    run(async {
        let model = Model::start();
        let url = serve(model.clone()).await;
        let node = node("a@127.0.0.1").await;
        let names = ExclusiveNames::builder(&node).store(etcd(&url)).lease_time(LEASE).start();
        let (holds, fence) = hold(&names, "bills").await;
        sleep(LEASE * 3 / 2).await;
        assert!(!holds.is_finished());
        model.with(|rows| assert_eq!(rows.by_name["bills"].0.fence, fence));
        holds.cancel();
        names.stop().await;
    });
}
