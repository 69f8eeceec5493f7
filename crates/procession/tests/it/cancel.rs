//! What a cancel does to each kind of process, the order in which a shutdown cancels, and tokens.

mod kinds;
mod shutdown;
mod tokens;
mod waits;

use crate::home::mpsc;
use std::time::Duration;

use procession::{Context, Scheduler};

const HOUR: Duration = Duration::from_secs(3600);

/// Creates a scheduler on the test clock, driven by this thread for a width of 0.
fn scheduler(width: usize) -> Scheduler {
    let builder = Scheduler::builder().worker_threads(width.max(1)).max_processes(1 << 18);
    let builder = builder.max_timers(1 << 18).test_clock();
    if width == 0 { builder.callers_drive() } else { builder }.build().expect("there are threads")
}

/// Reports its drop.
struct Reports(&'static str, mpsc::Sender<&'static str>);

impl Drop for Reports {
    fn drop(&mut self) {
        // Ignored: the test has ended.
        let _ = self.1.send(self.0);
    }
}

#[test]
fn an_address_asks_its_process_to_end() {
    procession::run(async {
        let child = procession::start(asked);
        let address = child.address().clone();
        assert!(address.cancel(), "it is there");
        assert_eq!(child.await, Ok("asked"));
        assert!(!address.cancel(), "it has ended");
    });
}

/// A process with a context that ends when it is asked to.
async fn asked(cx: Context<()>) -> &'static str {
    cx.cancelled().await;
    "asked"
}
