//! Look at `try_get_with`: while one process loads a value, all others that ask `moka` for the same
//! key wait for that load, and its error goes to all of them. A failed load is not kept, so the
//! next caller tries again. `moka` needs no runtime and no thread of its own.
#![expect(clippy::print_stdout, reason = "an example shows its output")]

use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use moka::future::Cache;
use procession::{sleep, spawn};

#[derive(Debug)]
struct NoSuchPage(u64);

impl fmt::Display for NoSuchPage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "there is no page {}", self.0)
    }
}

impl Error for NoSuchPage {}

/// A slow service, and the number of calls to it.
struct Pages {
    cache: Cache<u64, Arc<str>>,
    calls: AtomicU64,
}

impl Pages {
    /// Returns a page from the cache, or loads it.
    async fn page(&self, number: u64) -> Result<Arc<str>, Arc<NoSuchPage>> {
        self.cache.try_get_with(number, self.load(number)).await
    }

    async fn load(&self, number: u64) -> Result<Arc<str>, NoSuchPage> {
        // Relaxed: a counter, which publishes nothing.
        self.calls.fetch_add(1, Relaxed);
        sleep(Duration::from_millis(5)).await;
        if number == 13 { Err(NoSuchPage(number)) } else { Ok(format!("page {number}").into()) }
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    procession::run(async {
        let cache = Cache::builder().max_capacity(100).time_to_live(Duration::from_secs(60));
        let pages = Arc::new(Pages { cache: cache.build(), calls: AtomicU64::new(0) });
        let readers: Vec<_> = (0..100)
            .map(|n| {
                let pages = Arc::clone(&pages);
                spawn(async move { pages.page(n % 4).await })
            })
            .collect();
        for (n, reader) in (0..100).zip(readers) {
            assert_eq!(*reader.await??, *format!("page {}", n % 4));
        }
        println!("100 readers, {} calls", pages.calls.load(Relaxed));
        assert_eq!(pages.calls.load(Relaxed), 4);

        for _ in 0..2 {
            let missing = pages.page(13).await.expect_err("the service has no such page");
            println!("{missing}");
        }
        println!("{} calls", pages.calls.load(Relaxed));
        assert_eq!(pages.calls.load(Relaxed), 6, "a failure is not kept");
        Ok(())
    })
}
