//! etcd's JSON gateway, by a model that speaks it over a socket. `.ci/cluster` has the real one.

use std::net::Ipv4Addr;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use procession::net::{TcpListener, TcpStream};
use procession::{sleep, spawn};
use procession_cluster::exclusive::{
    Claimed, Etcd, ExclusiveNames, Fence, LeaseId, LeaseStore, StoreError,
};
use serde_json::{Value, json};

use super::model::{Model, Rows};
use super::{a_name_has_one_holder, hold, node};
use crate::run;

const PREFIX: &str = "test/";
/// The shortest lease.
const LEASE: Duration = Duration::from_secs(2);

/// Serves a model of etcd, and returns its URL.
pub(super) async fn serve(model: Model) -> String {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a port is free");
    let url = format!("http://{}", listener.local_addr().expect("it is bound"));
    spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            // Ignored: a client may close its connection at any time.
            let answers = answer_all(stream, model.clone());
            spawn(async move { drop(answers.await) }).detach();
        }
    })
    .detach();
    url
}

async fn answer_all(stream: TcpStream, model: Model) -> std::io::Result<()> {
    let mut bytes = Vec::new();
    loop {
        let Some((path, body)) = request(&stream, &mut bytes).await? else { return Ok(()) };
        if path == "/v3/watch" {
            return watch(&stream, &model, &body).await;
        }
        let (status, answer) = match model.with(|rows| answer(rows, &path, &body)) {
            Some(answer) => ("200 OK", answer),
            None => {
                let text = "etcdserver: requested lease not found";
                ("404 Not Found", json!({ "error": text, "message": text, "code": 5 }))
            }
        };
        let text = answer.to_string();
        let head = format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\n\r\n", text.len());
        stream.write_all((head + &text).as_bytes()).await?;
    }
}

/// Reads a request: its path and its body.
async fn request(
    stream: &TcpStream,
    bytes: &mut Vec<u8>,
) -> std::io::Result<Option<(String, Value)>> {
    let text_of = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("it is text");
    loop {
        let text = text_of(bytes);
        if let Some((head, rest)) = text.split_once("\r\n\r\n") {
            let head = head.to_lowercase();
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
            let length = length.expect("it has a length").parse::<usize>().expect("a number");
            if rest.len() >= length {
                let path = head.split(' ').nth(1).expect("it has a path").to_owned();
                let body = serde_json::from_str(&rest[..length]).expect("it is JSON");
                *bytes = rest.as_bytes()[length..].to_vec();
                return Ok(Some((path, body)));
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
    assert_eq!(create["filters"], json!(["NOPUT"]));
    let head = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
    stream.write_all(head.as_bytes()).await?;
    let mut after = number(&create["start_revision"]) - 1;
    let mut result = json!({ "created": true });
    loop {
        let line = json!({ "result": result }).to_string() + "\n";
        let chunk = format!("{:x}\r\n{line}\r\n", line.len());
        stream.write_all(chunk.as_bytes()).await?;
        let freed = model.freed(after).await;
        // The header of a real one may be ahead of the events.
        let header = json!({ "revision": "999999" });
        let events: Vec<_> = freed
            .iter()
            .map(|(revision, name)| {
                let kv = json!({ "key": key(name), "mod_revision": revision.to_string() });
                json!({ "type": "DELETE", "kv": kv })
            })
            .collect();
        after = freed.last().map_or(after, |(revision, _)| *revision);
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
        let fence = Fence::new(1);
        for _ in 0..2 {
            let won = etcd.claim("a b/ä", "me", lease.id).await.expect("it answers");
            assert_eq!(won, Claimed::Won(fence));
        }
        let taken = etcd.claim("a b/ä", "you", lease.id).await.expect("it answers");
        assert_eq!(taken, Claimed::Taken(1));
        let row = etcd.holder("a b/ä").await.expect("it answers").expect("it is held");
        assert_eq!((&*row.holder, row.fence), ("me", fence));
        assert_eq!(etcd.holder("b").await.expect("it answers"), None);
        etcd.release("a b/ä", "you").await.expect("it answers");
        assert!(etcd.holder("a b/ä").await.expect("it answers").is_some());
        etcd.release("a b/ä", "me").await.expect("it answers");
        let freed = etcd.freed(1).await.expect("it answers");
        assert_eq!((freed.names, freed.revision), (vec!["a b/ä".to_owned()], 2));
        // A claim that arrives later.
        etcd.withdraw("a b/ä", "late", lease.id).await.expect("it answers");
        let late = etcd.claim("a b/ä", "late", lease.id).await.expect("it answers");
        assert_eq!(late, Claimed::Taken(2));
        etcd.revoke(lease.id).await.expect("it answers");
        etcd.revoke(lease.id).await.expect("it has ended already");
        let refused = etcd.claim("b", "me", lease.id).await.unwrap_err();
        let text = "the store of leases has not answered: etcdserver: requested lease not found";
        assert_eq!(refused.to_string(), text);
    });
}

#[test]
fn a_wrong_url_is_refused() {
    for url in ["", "10.0.0.1:2379", "http://10.0.0.1:2379/v3", "http://", "http://a?b"] {
        let refused: StoreError = Etcd::new([url]).unwrap_err();
        assert!(refused.to_string().ends_with("is not the URL of a member"), "{refused}");
    }
    assert!(Etcd::new([""; 0]).is_err());
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
