//! The crawler fetches each page once, within its limits, and can be interrupted.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::Html;
use axum::routing::get;
use procession_programs::Program;
use rustix::process::Signal;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::time::sleep;

type Error = Box<dyn std::error::Error + Send + Sync>;

const CRAWLERS: [&str; 2] = [env!("CARGO_BIN_EXE_crawler"), env!("CARGO_BIN_EXE_crawler_tokio")];
/// Each page has as many links.
const LINKS: u64 = 3;
const DEPTH: u32 = 6;
/// The limits that the crawler has for each host.
const PER_HOST: usize = 8;
/// The page that does not exist.
const MISSING: u64 = 5;

/// What the site has seen on one of its hosts.
#[derive(Default)]
struct Seen {
    fetched: BTreeMap<u64, u32>,
    now: usize,
    most: usize,
}

/// One of the two hosts of the site: page `n` links to the pages `3 n + 1` to `3 n + 3`, of which
/// the odd ones are on the other host.
#[derive(Clone)]
struct Host {
    addresses: [SocketAddr; 2],
    seen: Arc<watch::Sender<Seen>>,
    /// Whether all pages but the first one take forever.
    hangs: bool,
}

async fn page(
    State(host): State<Host>,
    Path(number): Path<u64>,
) -> Result<Html<String>, StatusCode> {
    host.seen.send_modify(|seen| {
        *seen.fetched.entry(number).or_default() += 1;
        seen.now += 1;
        seen.most = seen.most.max(seen.now);
    });
    if host.hangs && number > 0 {
        std::future::pending::<()>().await;
    }
    // Pages take a while, so that requests overlap.
    sleep(Duration::from_millis(1)).await;
    host.seen.send_modify(|seen| seen.now -= 1);
    if number == MISSING {
        return Err(StatusCode::NOT_FOUND);
    }
    let links = (1..=LINKS).map(|link| LINKS * number + link);
    let links =
        links.map(|to| format!("<a href=\"http://{}/{to}\">", host.addresses[to as usize % 2]));
    Ok(Html(links.collect()))
}

/// Starts a site, and returns the address of its first page and what its hosts see.
async fn site(hangs: bool) -> Result<(String, [watch::Receiver<Seen>; 2]), Error> {
    let listeners =
        [TcpListener::bind("127.0.0.1:0").await?, TcpListener::bind("127.0.0.1:0").await?];
    let addresses = [listeners[0].local_addr()?, listeners[1].local_addr()?];
    let hosts = listeners.map(|listener| {
        let (seen, sees) = watch::channel(Seen::default());
        let host = Host { addresses, seen: Arc::new(seen), hangs };
        let pages = Router::new().route("/{number}", get(page)).with_state(host);
        tokio::spawn(async move { axum::serve(listener, pages).await });
        sees
    });
    Ok((format!("http://{}/0", addresses[0]), hosts))
}

/// Returns all pages that can be reached, by breadth: those of one depth follow each other.
fn reachable() -> BTreeMap<u64, u32> {
    let (mut all, mut level) = (BTreeMap::new(), vec![0]);
    for _ in 0..=DEPTH {
        all.extend(level.iter().map(|page| (*page, 1)));
        let existing = level.into_iter().filter(|page| *page != MISSING);
        level =
            existing.flat_map(|page| (1..=LINKS).map(move |link| LINKS * page + link)).collect();
    }
    all
}

#[tokio::test(flavor = "multi_thread")]
async fn each_page_is_fetched_once_and_no_host_is_overrun() -> Result<(), Error> {
    for path in CRAWLERS {
        let (start, [even, odd]) = site(false).await?;
        let ended = Program::start(path, &[&start, &DEPTH.to_string(), "60000"]).wait();
        let (even, odd) = (even.borrow(), odd.borrow());
        let mut fetched = even.fetched.clone();
        fetched.extend(odd.fetched.clone());
        assert_eq!(fetched, reachable());
        assert!(even.most <= PER_HOST && odd.most <= PER_HOST, "{} {}", even.most, odd.most);
        let summary = format!("{} pages fetched, 1 failed, 0 given up", fetched.len() - 1);
        assert!(ended.output.contains(&summary), "{path}: {}", ended.output);
        assert_eq!(ended.code, Some(0), "{path}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_interrupted_crawler_says_what_it_has() -> Result<(), Error> {
    for path in CRAWLERS {
        let (start, [_, mut odd]) = site(true).await?;
        let crawler = Program::start(path, &[&start, "1", "60000"]);
        odd.wait_for(|seen| seen.fetched.len() == 2).await?;
        crawler.signal(Signal::INT);
        let ended = crawler.wait();
        assert!(ended.output.contains("1 pages fetched, 0 failed, 3 given up"), "{}", ended.output);
        assert_eq!(ended.code, Some(130), "{path}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_that_never_comes_is_given_up() -> Result<(), Error> {
    for path in CRAWLERS {
        let (start, _) = site(true).await?;
        let ended = Program::start(path, &[&start.replace("/0", "/7"), "1", "100"]).wait();
        assert!(ended.output.contains("0 pages fetched, 1 failed, 0 given up"), "{}", ended.output);
        assert_eq!(ended.code, Some(0), "{path}");
    }
    Ok(())
}
