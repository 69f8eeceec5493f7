//! Values of one process. The semantics are those of `tokio/tests/task_local.rs`.

use std::cell::Cell;
use std::future::{pending, poll_fn};
use std::sync::Arc;
use std::task::Poll;

use procession::local::{NoScope, ProcessLocal};
use procession::{Exit, spawn, yield_now};
use procession_sync::Mutex;

use crate::scene::{driven, panic_quietly, threaded};

static NUMBER: ProcessLocal<u32> = ProcessLocal::new();
static COUNT: ProcessLocal<Cell<u32>> = ProcessLocal::new();

fn number() -> Option<u32> {
    NUMBER.with(|number| *number).ok()
}

#[test]
fn scopes_hide_each_other_and_are_not_inherited() {
    driven().block_on(async {
        assert_eq!(number(), None);
        assert_eq!(
            NUMBER.with(|_| ()).map_err(|error: NoScope| error.to_string()),
            Err("no scope of this local runs here".into())
        );
        let seen = NUMBER.scope(1, async {
            let before = number();
            let inner = NUMBER.scope(2, async { (yield_now().await, number()).1 }).await;
            let spawned = spawn(async { number() }).await;
            (before, inner, number(), spawned)
        });
        assert_eq!(seen.await, (Some(1), Some(2), Some(1), Ok(None)));
        assert_eq!(number(), None);
    });
}

#[test]
fn each_process_has_its_value_on_any_worker() {
    let scheduler = threaded(2);
    let handles: Vec<_> = (0..50)
        .map(|n| {
            scheduler.spawn(COUNT.scope(Cell::new(n), async {
                for _ in 0..100 {
                    COUNT.with(|count| count.set(count.get() + 1)).expect("it is in its scope");
                    yield_now().await;
                }
                COUNT.with(Cell::get)
            }))
        })
        .collect();
    for (n, handle) in (0..).zip(handles) {
        assert_eq!(handle.join(), Ok(Ok(n + 100)));
    }
}

/// Notes the number that is visible when it is dropped.
struct Sees(Arc<Mutex<Vec<Option<u32>>>>);

impl Drop for Sees {
    fn drop(&mut self) {
        self.0.lock().push(number());
    }
}

#[test]
fn a_value_is_visible_to_drops_and_gone_after_a_panic() {
    driven().block_on(async {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let sees = Sees(Arc::clone(&seen));
        let cancelled = spawn(NUMBER.scope(3, async move {
            pending::<()>().await;
            drop(sees);
        }));
        yield_now().await;
        cancelled.cancel();
        assert_eq!(cancelled.await, Err(Exit::Shutdown));
        let sees = Sees(Arc::clone(&seen));
        let panics = spawn(NUMBER.scope(4, async move {
            let _sees = sees;
            panic_quietly("broken")
        }));
        assert!(panics.await.is_err());
        assert_eq!((seen.lock().clone(), number()), (vec![Some(3), Some(4)], None));
        let mut scope = Box::pin(NUMBER.scope(5, poll_fn(|_| Poll::Ready(number()))));
        assert_eq!(scope.as_mut().await, Some(5));
    });
}
