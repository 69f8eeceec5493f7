//! `notes` answers every request that it has begun, also if it is asked to end, and keeps the
//! notes.

use std::fs::remove_file;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::time::Instant;

use procession_programs::Program;
use procession_programs::request::{begin, finish};
use reqwest::{Client, StatusCode};
use rustix::process::Signal;
use serde_json::{Value, json};
use tokio::task::JoinSet;

const CLIENTS: usize = 200;
const NOTES: usize = 10;

fn start(path: &str, file: &str) -> (Program, SocketAddr) {
    let mut program = Program::start(path, &[file]);
    let address = program.address();
    (program, address)
}

/// Reads the notes of all pages. Returns their texts.
async fn all(client: &Client, address: SocketAddr) -> Vec<String> {
    let (mut texts, mut after) = (Vec::new(), 0);
    loop {
        let url = format!("http://{address}/notes?after={after}&limit=100");
        let page: Value =
            client.get(url).send().await.expect("it serves").json().await.expect("JSON");
        let notes = page["notes"].as_array().expect("there are notes");
        assert!(notes.iter().all(|note| note["author"] == "127.0.0.1"));
        texts.extend(notes.iter().filter_map(|note| note["text"].as_str().map(str::to_owned)));
        match page["next"].as_i64() {
            Some(next) => after = next,
            None => return texts,
        }
    }
}

async fn nothing_is_lost(path: &str) {
    let file = format!("{}/notes.sqlite", env!("CARGO_TARGET_TMPDIR"));
    for suffix in ["", "-wal", "-shm"] {
        // An error means that no earlier run has left the file.
        let _ = remove_file(format!("{file}{suffix}"));
    }
    let (program, address) = start(path, &file);
    let client = Client::new();
    let begin_of_load = Instant::now();
    let mut clients = JoinSet::new();
    for number in 0..CLIENTS {
        let client = client.clone();
        clients.spawn(async move {
            let mut longest = Duration::ZERO;
            for _ in 0..NOTES {
                let begin = Instant::now();
                let note = client.post(format!("http://{address}/notes"));
                let note = note.json(&json!({ "text": format!("by {number}") }));
                let status = note.send().await.expect("it serves").status();
                assert_eq!(status, StatusCode::CREATED);
                longest = longest.max(begin.elapsed());
            }
            longest
        });
    }
    let longest = clients.join_all().await.into_iter().max();
    println!("{path}: {:?}, the longest request {longest:?}", begin_of_load.elapsed());

    // Requests that have begun when the signal comes. Their text comes after it.
    let text = json!({ "text": "late" }).to_string();
    let mut begun = Vec::new();
    for _ in 0..CLIENTS {
        begun.push(begin(address, "/notes", "application/json", text.len()).await);
    }
    let get = async |path: &str| client.get(format!("http://{address}/{path}")).send().await;
    assert_eq!(get("readyz").await.expect("it serves").status(), StatusCode::OK);
    program.signal(Signal::TERM);
    for request in begun {
        assert_eq!(finish(request, &text).await, 201);
    }
    let ended = tokio::task::spawn_blocking(|| program.wait()).await.expect("it does not panic");
    assert_eq!(ended.code, Some(0));

    let (program, address) = start(path, &file);
    let texts = all(&client, address).await;
    assert_eq!(texts.len(), CLIENTS * NOTES + CLIENTS);
    assert_eq!(texts.iter().filter(|text| *text == "late").count(), CLIENTS);
    let one = format!("http://{address}/notes/1");
    assert_eq!(client.delete(&one).send().await.expect("it serves").status(), 204);
    assert_eq!(client.get(&one).send().await.expect("it serves").status(), 404);
    program.kill();
}

#[tokio::test(flavor = "multi_thread")]
async fn notes_and_its_counterpart_lose_nothing() {
    nothing_is_lost(env!("CARGO_BIN_EXE_notes")).await;
    nothing_is_lost(env!("CARGO_BIN_EXE_notes_tokio")).await;
}
