//! Look at `load`: while a process loads a value, the cache continues to serve. All callers that
//! ask for the same key meanwhile wait for one load, because the cache keeps their replies side by
//! side. If the loader fails, its monitor reports that, and the callers learn of it at once.
//!
//! The callers use a name and not an address, since a name survives a restart of the cache.
#![expect(clippy::print_stdout, reason = "an example shows its output")]

use std::collections::BTreeMap;
use std::error::Error;
use std::time::Duration;

use procession::mailbox::Event;
use procession::process::{MonitorRef, Named, exit, register};
use procession::{Context, Exit, Reply, SpawnOptions, sleep, spawn, start};

enum Ask {
    Get(u32, Reply<String>),
    Loaded(u32, String),
}

#[derive(Default)]
struct Cache {
    values: BTreeMap<u32, String>,
    waiting: BTreeMap<u32, Vec<Reply<String>>>,
    loaders: BTreeMap<MonitorRef, u32>,
    loadings: usize,
}

impl Cache {
    fn get(&mut self, cx: &Context<Ask>, key: u32, reply: Reply<String>) {
        if let Some(value) = self.values.get(&key) {
            return reply.send(value.clone());
        }
        let waiting = self.waiting.entry(key).or_default();
        waiting.push(reply);
        if waiting.len() == 1 {
            self.load(cx, key);
        }
    }

    fn load(&mut self, cx: &Context<Ask>, key: u32) {
        let cache = cx.address();
        let loader = SpawnOptions::new().monitor().spawn(async move {
            sleep(Duration::from_millis(5)).await;
            if key == 13 {
                exit(Exit::failed("unlucky"));
            }
            // Ignored: a cache that has ended needs no value.
            drop(cache.send(Ask::Loaded(key, format!("value {key}"))));
        });
        self.loaders.extend(loader.monitor_ref().map(|monitor| (monitor, key)));
        self.loadings += 1;
    }
}

async fn cache(mut cx: Context<Ask>) -> usize {
    let mut cache = Cache::default();
    while let Some(event) = cx.recv_event().await {
        match event {
            Event::Message(Ask::Get(key, reply)) => cache.get(&cx, key, reply),
            Event::Message(Ask::Loaded(key, value)) => {
                let waiting = cache.waiting.remove(&key).unwrap_or_default();
                waiting.into_iter().for_each(|reply| reply.send(value.clone()));
                cache.values.insert(key, value);
            }
            Event::Down(down) => {
                // Dropping the replies tells the callers. After a successful load there are none.
                let key = cache.loaders.remove(&down.monitor);
                drop(key.and_then(|key| cache.waiting.remove(&key)));
            }
            _ => {}
        }
    }
    cache.loadings
}

fn main() -> Result<(), Box<dyn Error>> {
    procession::run(async {
        let cache = start(cache);
        register("cache", cache.pid())?;
        let ask = |key| async move {
            Named::new("cache").call(|reply| Ask::Get(key, reply), Duration::from_secs(5)).await
        };

        let callers: Vec<_> = (0..100).map(|n| spawn(ask(n % 4))).collect();
        for (n, caller) in (0..100).zip(callers) {
            assert_eq!(caller.await??, format!("value {}", n % 4));
        }
        let unlucky = ask(13).await.expect_err("its loader fails");
        println!("asked for 13: {unlucky}");
        assert!(unlucky.is_no_reply());

        cache.cancel();
        let loadings = cache.await?;
        println!("101 callers, {loadings} loadings");
        assert_eq!(loadings, 5);
        Ok(())
    })
}
