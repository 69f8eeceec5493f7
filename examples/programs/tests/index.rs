//! `index` answers searches while it indexes documents, and indexes every document that it has
//! begun.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::time::Instant;

use procession_programs::Program;
use procession_programs::request::{begin, finish};
use reqwest::Client;
use rustix::process::Signal;
use tokio::task::JoinSet;

const SEARCHERS: usize = 16;
const DOCUMENTS: usize = 120;
const WORDS: usize = 1000;

/// The text of a document, with a word that no other document has.
fn text(number: usize) -> String {
    let words = (0..WORDS).map(|word| format!("word{} ", (word * 7919 + number) % 5000));
    words.chain([format!("unique{number}")]).collect()
}

async fn get(client: &Client, address: SocketAddr, path: &str) -> String {
    let response = client.get(format!("http://{address}/{path}")).send().await.expect("it serves");
    assert_eq!(response.status(), 200);
    response.text().await.expect("it answers")
}

async fn searches_are_answered_and_no_document_is_lost(path: &str) {
    let mut program = Program::start(path, &[]);
    let address = program.address();
    let (client, indexing) = (Client::new(), Arc::new(AtomicBool::new(true)));
    let mut searchers = JoinSet::new();
    for number in 0..SEARCHERS {
        let (client, indexing) = (client.clone(), indexing.clone());
        searchers.spawn(async move {
            let mut times = Vec::new();
            while indexing.load(Ordering::Relaxed) {
                let begin = Instant::now();
                get(&client, address, &format!("search?q=unique{number}&limit=3")).await;
                times.push(begin.elapsed());
            }
            times
        });
    }
    let (begin_of_load, mut documents) = (Instant::now(), JoinSet::new());
    for number in 0..DOCUMENTS {
        let post = client.post(format!("http://{address}/documents")).body(text(number));
        documents.spawn(async move {
            let response = post.send().await.expect("it serves");
            assert_eq!(response.status(), 201);
            (number, response.text().await.expect("it answers"))
        });
    }
    let numbers = documents.join_all().await;
    indexing.store(false, Ordering::Relaxed);
    let mut times = searchers.join_all().await.concat();
    times.sort();
    let (took, count) = (begin_of_load.elapsed(), times.len());
    let (median, late, last) = (times[count / 2], times[count * 99 / 100], times[count - 1]);
    println!("{path}: {DOCUMENTS} documents in {took:?}, {count} searches beside them");
    println!("{path}: median {median:?}, 99 of 100 {late:?}, longest {last:?}");

    assert_eq!(get(&client, address, "count").await, DOCUMENTS.to_string());
    for (text, number) in numbers {
        let found = get(&client, address, &format!("search?q=unique{text}&limit=1")).await;
        assert_eq!(found, format!("[{number}]"));
    }

    // Requests that have begun when the signal comes. Their text comes after it.
    let mut begun = Vec::new();
    for number in 0..100 {
        let text = text(number);
        begun.push((begin(address, "/documents", "text/plain", text.len()).await, text));
    }
    program.signal(Signal::TERM);
    for (stream, text) in begun {
        assert_eq!(finish(stream, &text).await, 201);
    }
    let ended = tokio::task::spawn_blocking(|| program.wait()).await.expect("it does not panic");
    assert_eq!(ended.code, Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn index_and_its_counterpart_answer_searches_and_lose_no_document() {
    searches_are_answered_and_no_document_is_lost(env!("CARGO_BIN_EXE_index")).await;
    searches_are_answered_and_no_document_is_lost(env!("CARGO_BIN_EXE_index_tokio")).await;
}
