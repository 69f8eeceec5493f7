//! Values of one process. The semantics are those of `tokio/tests/task_local.rs`.

use std::cell::Cell;
use std::future::{Future, pending, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context as Task, Poll, Waker};
use std::time::Duration;

use procession::process::ProcessLocal;
use procession::scheduler::MisplacedCall;
use procession::time::run_after;
use procession::{Exit, Scheduler, spawn, yield_now};
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
            NUMBER.with(|_| ()).map_err(|error: MisplacedCall| error.to_string()),
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

/// Goal: what runs on the thread of a scope, but is no part of it, sees no value. Method: a process
/// in a scope drives another scheduler, which runs processes and a function of a timer meanwhile.
#[test]
fn what_another_scheduler_runs_on_the_thread_of_a_scope_is_not_in_it() {
    let outer = threaded(1);
    let inner = Scheduler::builder().worker_threads(1).callers_drive().build();
    let inner = inner.expect("it starts no thread");
    let driven = inner.clone();
    let process = outer.spawn(NUMBER.scope(1, async move {
        driven.block_on(async {
            let stranger = spawn(async { (number(), yield_now().await, number()) }).await;
            let own = spawn(NUMBER.scope(2, async { (yield_now().await, number()).1 })).await;
            (stranger, own, number())
        })
    }));
    let seen = process.join();
    assert_eq!(seen, Ok((Ok((None, (), None)), Ok(Some(2)), Some(1))));
    let process = outer.spawn(NUMBER.scope(1, async move {
        // The processes run while the value is borrowed.
        NUMBER.with(|_| inner.block_on(async { spawn(NUMBER.scope(2, async { number() })).await }))
    }));
    assert_eq!(process.join(), Ok(Ok(Ok(Some(2)))));
    let process = outer.spawn(NUMBER.scope(1, async {
        let other = threaded(1);
        other.block_on(async {
            let (tell, told) = procession::sync::oneshot::channel();
            let function = move || tell.send(number()).expect("the test waits");
            // The thread that waits runs the function.
            assert!(run_after(Duration::from_millis(1), function).is_ok());
            told.await
        })
    }));
    assert_eq!(process.join(), Ok(Ok(None)));
}

#[test]
fn a_scope_begins_and_ends_while_the_value_of_another_is_borrowed() {
    let scheduler = threaded(1);
    let process = scheduler.spawn(NUMBER.scope(1, async {
        let inner = NUMBER.with(|outer| {
            let mut inner = pin!(NUMBER.scope(2, poll_fn(|_| Poll::Ready(number()))));
            let inner = inner.as_mut().poll(&mut Task::from_waker(Waker::noop()));
            (*outer, inner, number())
        });
        (inner, number())
    }));
    assert_eq!(process.join(), Ok((Ok((1, Poll::Ready(Some(2)), Some(1))), Some(1))));
    let process = scheduler.spawn(NUMBER.scope(1, async {
        NUMBER.with(|_| {
            let _dropped = NUMBER.scope(2, async {});
            panic_quietly("in a borrow")
        })
    }));
    let ended: Result<Result<(), MisplacedCall>, Exit> = process.join();
    assert_eq!(ended, Err(Exit::Panicked("in a borrow".into())));
}
