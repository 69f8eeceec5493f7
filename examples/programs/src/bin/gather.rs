//! Fetches the pages of a site and counts their words. After SIGTERM it finishes the pages that it
//! has begun.

use std::env::args;
use std::time::Duration;

use procession::process::{ScopeError, scope};
use procession::signal::{EndRequest, end_request};
use procession::sync::Select;
use procession::sync::channel::{self, Sender};
use procession::time::{Instant, interval_at};
use procession::{spawn, timeout};
use reqwest::Client;

const FETCHERS: usize = 64;
const COUNTERS: usize = 4;
const SECOND: Duration = Duration::from_secs(1);

type Error = Box<dyn std::error::Error + Send + Sync>;

async fn fetch(client: Client, url: String) -> reqwest::Result<String> {
    let response = client.get(url).timeout(30 * SECOND).send().await?;
    response.error_for_status()?.text().await
}

/// Begins no further pages once it sees the request to end, and cancels the others if one fails.
async fn fetch_all(
    site: String,
    total: usize,
    stop: EndRequest,
    pages: Sender<(usize, String)>,
) -> Result<(), Error> {
    let client = Client::new();
    let all = scope(|scope| async move {
        scope.set_limit(FETCHERS);
        for number in (0..total).take_while(|_| stop.signal().is_none()) {
            let (client, pages) = (client.clone(), pages.clone());
            let url = format!("{site}/{number}");
            let page = async move {
                pages.send((number, fetch(client, url).await?)).await?;
                Ok::<(), Error>(())
            };
            scope.add_in_turn(page).await;
        }
        Ok(())
    });
    timeout(600 * SECOND, all).await?.map_err(ScopeError::into_boxed)
}

#[procession::main]
async fn main() -> Result<(), Error> {
    let (Some(site), Some(total)) = (args().nth(1), args().nth(2)) else {
        return Err("usage: gather SITE PAGES".into());
    };
    let total = total.parse()?;
    let stop = end_request()?;
    let (pages, fetched) = channel::bounded(0);
    let (counts, counted) = channel::bounded(0);
    let fetches = spawn(fetch_all(site, total, stop, pages));
    for _ in 0..COUNTERS {
        let (fetched, counts) = (fetched.clone(), counts.clone());
        let counter = spawn(async move {
            while let Some((number, text)) = fetched.recv().await {
                counts.send((number, text.split_whitespace().count())).await?;
            }
            Ok::<(), procession::sync::SendError<_>>(())
        });
        counter.detach();
    }
    drop((fetched, counts));

    let mut ticks = interval_at(Instant::now() + SECOND, SECOND);
    let (mut done, mut words) = (0, 0);
    loop {
        match Select::new().recv(&counted, Ok).wait_for(ticks.tick(), Err).await {
            Ok(Some((number, count))) => {
                done += 1;
                words += count;
                println!("page {number}: {count} words");
            }
            Ok(None) => break,
            Err(_) => eprintln!("{done} of {total} pages"),
        }
    }
    println!("{words} words");
    fetches.await?
}
