//! A crawler: `crawler URL [DEPTH [PATIENCE_MS]]`.
//!
//! It follows links over at most DEPTH steps, with at most FETCHES requests at once, and at most
//! PER_HOST to each host. A page may take PATIENCE_MS. At the end and at Ctrl-C it says what it has
//! fetched.

use std::collections::{HashMap, HashSet};
use std::env;
use std::error::Error;
use std::pin::pin;
use std::process::ExitCode;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use procession::process::JoinSet;
use procession::signal::ctrl_c;
use procession::sync::{Select, Semaphore};
use reqwest::{Client, Url};

const FETCHES: usize = 64;
const PER_HOST: usize = 8;

/// The links of a page, if the page was fetched, and how many steps may follow them.
type Fetched = (u32, reqwest::Result<Vec<Url>>);

struct Crawler {
    client: Client,
    seen: HashSet<Url>,
    all: Arc<Semaphore>,
    hosts: HashMap<String, Arc<Semaphore>>,
    fetches: JoinSet<Fetched>,
}

fn argument<T: FromStr>(number: usize, default: T) -> Result<T, T::Err> {
    env::args().nth(number).map_or(Ok(default), |text| text.parse())
}

#[procession::main]
async fn main() -> Result<ExitCode, Box<dyn Error>> {
    let start = env::args().nth(1).ok_or("usage: crawler URL [DEPTH [PATIENCE_MS]]")?;
    let (depth, patience) = (argument(2, 3)?, Duration::from_millis(argument(3, 10_000)?));
    let mut crawler = Crawler {
        client: Client::builder().timeout(patience).build()?,
        seen: HashSet::new(),
        all: Arc::new(Semaphore::new(FETCHES)),
        hosts: HashMap::new(),
        fetches: JoinSet::new(),
    };
    let mut interrupted = pin!(ctrl_c());
    let (mut fetched, mut failed) = (0, 0);
    crawler.visit(start.parse()?, depth);
    let code = loop {
        let next = crawler.fetches.join_next();
        match Select::new().wait_for(next, Ok).wait_for(&mut interrupted, Err).await {
            Ok(Some(page)) => match page? {
                (depth, Ok(links)) => {
                    fetched += 1;
                    links.into_iter().for_each(|link| crawler.visit(link, depth));
                }
                (_, Err(error)) => {
                    failed += 1;
                    eprintln!("crawler: {error}");
                }
            },
            Ok(None) => break ExitCode::SUCCESS,
            Err(interrupt) => {
                interrupt?;
                break ExitCode::from(130);
            }
        }
    };
    let left = crawler.fetches.len();
    println!("crawler: {fetched} pages fetched, {failed} failed, {left} given up");
    Ok(code)
}

impl Crawler {
    /// Starts to fetch a page, unless it was seen before.
    fn visit(&mut self, url: Url, depth: u32) {
        if !self.seen.insert(url.clone()) {
            return;
        }
        let host = self.hosts.entry(url.authority().to_owned());
        let host = host.or_insert_with(|| Arc::new(Semaphore::new(PER_HOST))).clone();
        let (client, all) = (self.client.clone(), self.all.clone());
        self.fetches.insert(procession::spawn(async move {
            let _permits = (host.acquire(1).await, all.acquire(1).await);
            match depth.checked_sub(1) {
                Some(left) => (left, fetch(client, url).await),
                None => (0, fetch(client, url).await.map(|_| Vec::new())),
            }
        }));
    }
}

async fn fetch(client: Client, url: Url) -> reqwest::Result<Vec<Url>> {
    let page = client.get(url.clone()).send().await?.error_for_status()?.text().await?;
    let targets = page.split("href=\"").skip(1).filter_map(|rest| rest.split('"').next());
    let links = targets.filter_map(|target| url.join(target).ok());
    Ok(links.filter(|link| matches!(link.scheme(), "http" | "https")).collect())
}
