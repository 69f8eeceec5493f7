//! A part of the data, and the process that owns it.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use procession::time::Instant;
use procession::{Context, Reply};
use procession_sync::Arc;

use super::protocol::Answer;

/// Maximum size in bytes of the keys and values of one shard. Beyond it, SET is refused.
const SHARD_MAX: usize = 256 << 20;

pub(crate) type Key = Arc<[u8]>;

pub(crate) enum Operation {
    Get(Key),
    Set(Key, Arc<[u8]>, Option<Duration>),
    Delete(Key),
    Increment(Key),
}

/// Operations in their order, and the reply for their answers.
pub(crate) struct Batch(pub(crate) Vec<Operation>, pub(crate) Reply<Vec<Answer>>);

#[derive(Default)]
struct Entries {
    by_key: HashMap<Key, (Arc<[u8]>, Option<Instant>)>,
    by_expiry: BTreeSet<(Instant, Key)>,
    bytes: usize,
}

impl Entries {
    fn remove(&mut self, key: &Key) -> bool {
        let Some((value, expiry)) = self.by_key.remove(key) else { return false };
        self.bytes -= key.len() + value.len();
        expiry.is_none_or(|expiry| self.by_expiry.remove(&(expiry, Arc::clone(key))))
    }

    /// Replaces the entry of `key`, and returns `done`. Returns an error if the shard is full.
    fn put(
        &mut self,
        key: &Key,
        value: Arc<[u8]>,
        expiry: Option<Instant>,
        done: Answer,
    ) -> Answer {
        let old = self.by_key.get(key).map_or(0, |(value, _)| key.len() + value.len());
        let bytes = self.bytes - old + key.len() + value.len();
        if bytes > SHARD_MAX {
            return Answer::Error("OOM command not allowed when used memory > 'maxmemory'".into());
        }
        self.remove(key);
        self.bytes = bytes;
        self.by_expiry.extend(expiry.map(|expiry| (expiry, Arc::clone(key))));
        self.by_key.insert(Arc::clone(key), (value, expiry));
        done
    }

    fn run(&mut self, operation: Operation) -> Answer {
        match operation {
            Operation::Get(key) => {
                Answer::Value(self.by_key.get(&key).map(|(value, _)| Arc::clone(value)))
            }
            Operation::Set(key, value, time) => {
                self.put(&key, value, time.map(|time| Instant::now() + time), Answer::Text("OK"))
            }
            Operation::Delete(key) => Answer::Number(self.remove(&key).into()),
            Operation::Increment(key) => {
                let (value, expiry) =
                    self.by_key.get(&key).cloned().unwrap_or_else(|| (Arc::from(*b"0"), None));
                match std::str::from_utf8(&value).ok().and_then(|text| text.parse::<i64>().ok()) {
                    None => Answer::error("value is not an integer or out of range"),
                    Some(i64::MAX) => Answer::error("increment or decrement would overflow"),
                    Some(number) => {
                        let value = Arc::from((number + 1).to_string().into_bytes());
                        self.put(&key, value, expiry, Answer::Number(number + 1))
                    }
                }
            }
        }
    }

    fn expire(&mut self) {
        let now = Instant::now();
        while let Some((_, key)) =
            self.by_expiry.first().filter(|(expiry, _)| *expiry <= now).cloned()
        {
            self.remove(&key);
        }
    }
}

/// Answers batches until it is cancelled, and removes expired entries in between.
pub(crate) async fn shard(mut cx: Context<Batch>) {
    let mut entries = Entries::default();
    loop {
        let received = match entries.by_expiry.first() {
            None => Ok(cx.recv().await),
            Some((expiry, _)) => {
                cx.recv_timeout(expiry.saturating_duration_since(Instant::now())).await
            }
        };
        entries.expire();
        match received {
            Ok(Some(Batch(operations, reply))) => {
                reply
                    .send(operations.into_iter().map(|operation| entries.run(operation)).collect());
            }
            Ok(None) => return,
            // An entry has expired.
            Err(_) => {}
        }
    }
}
