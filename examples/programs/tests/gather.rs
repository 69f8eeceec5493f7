//! `gather` finishes the pages that it has begun when it is asked to end, and loses none.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::Router;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::routing::get;
use procession_programs::{Ended, Program};
use rustix::process::Signal;
use tokio::sync::Semaphore;

/// The number of pages that `gather` fetches at once.
const AT_ONCE: usize = 64;

/// The pages that are there, more than the program can fetch before a signal reaches it.
const PAGES: usize = 100_000;

/// A site that answers some pages, and holds the others until the gate closes.
#[derive(Clone)]
struct Site {
    begun: Arc<AtomicUsize>,
    before: usize,
    missing: usize,
    held: Arc<Semaphore>,
    gate: Arc<Semaphore>,
}

async fn page(State(site): State<Site>, Path(number): Path<usize>) -> (StatusCode, String) {
    if site.begun.fetch_add(1, Ordering::Relaxed) >= site.before {
        site.held.add_permits(1);
        // An error means that the gate is closed.
        let _ = site.gate.acquire().await;
    }
    let status = if number != site.missing { StatusCode::OK } else { StatusCode::NOT_FOUND };
    (status, "a word ".repeat(number % 100))
}

/// Starts a site that answers `before` pages at once and lacks one page, and the program for
/// `total` of its pages.
async fn start(before: usize, missing: usize, total: usize) -> (Site, Program) {
    let (begun, none) = (Arc::default(), || Arc::new(Semaphore::new(0)));
    let site = Site { begun, before, missing, held: none(), gate: none() };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
    let address = listener.local_addr().expect("it is bound");
    let pages = Router::new().route("/{number}", get(page)).with_state(site.clone());
    tokio::spawn(async move { axum::serve(listener, pages).await });
    let (address, total) = (format!("http://{address}"), total.to_string());
    (site, Program::start(env!("CARGO_BIN_EXE_gather"), &[&address, &total]))
}

/// Waits for the end of the program. Returns its exit code and the number of pages that it has
/// counted, after checking the number of their words.
async fn end(gather: Program) -> (Option<i32>, usize) {
    let ended = tokio::task::spawn_blocking(|| gather.wait()).await;
    let Ended { code, output } = ended.expect("it does not panic");
    let pages = output.lines().filter_map(|line| line.strip_prefix("page ")).map(|line| {
        let (number, words) = line.split_once(": ").expect("a number and a count");
        let number: usize = number.parse().expect("a number");
        assert_eq!(words, format!("{} words", 2 * (number % 100)));
    });
    (code, pages.count())
}

#[tokio::test(flavor = "multi_thread")]
async fn what_has_begun_is_finished_at_a_signal() {
    let (site, gather) = start(1000, PAGES, PAGES).await;
    // All that may be under way at once are, and the site has answered none of them.
    let all = site.held.acquire_many(AT_ONCE as u32).await.expect("it is not closed");
    gather.signal(Signal::TERM);
    site.gate.close();
    let (code, pages) = end(gather).await;
    drop(all);
    assert_eq!((code, pages), (Some(0), site.begun.load(Ordering::Relaxed)));
    assert!((1000 + AT_ONCE..PAGES).contains(&pages), "{pages} pages");
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_signal_all_pages_are_counted() {
    let (_, gather) = start(usize::MAX, PAGES, 3000).await;
    assert_eq!(end(gather).await, (Some(0), 3000));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failure_is_the_exit_code() {
    let (_, gather) = start(usize::MAX, 2000, PAGES).await;
    assert_eq!(end(gather).await.0, Some(1));
}
