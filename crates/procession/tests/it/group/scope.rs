//! Scopes: they end after their processes, whatever happens.

use std::future::{pending, ready};
use std::sync::Arc;
use std::time::Duration;

use procession::process::{Scope, ScopeError, scope};
use procession::{Exit, Pid, sleep, spawn};
use procession_sync::Mutex;

use crate::scene::{assert_conserved, driven, panic_quietly, threaded};

/// Adds an entry when it is dropped.
struct Leaves(&'static str, Arc<Mutex<Vec<&'static str>>>);

impl Drop for Leaves {
    fn drop(&mut self) {
        self.1.lock().push(self.0);
    }
}

fn seconds(n: u64) -> Duration {
    Duration::from_secs(n)
}

#[test]
fn a_scope_ends_after_the_processes_that_its_processes_started() {
    let scheduler = driven();
    let log = Arc::new(Mutex::new(Vec::new()));
    let ended = scheduler.block_on(scope::<_, (), _, _>(|scope| {
        let log = Arc::clone(&log);
        async move {
            let inner = scope.clone();
            scope.add(async move {
                sleep(seconds(1)).await;
                let late = Leaves("grandchild", Arc::clone(&log));
                inner.add(async move {
                    sleep(seconds(1)).await;
                    drop(late);
                    Ok(())
                });
                log.lock().push("child");
                Ok(())
            });
            Ok("the body")
        }
    }));
    assert_eq!(ended, Ok("the body"));
    assert_eq!(*log.lock(), ["child", "grandchild"]);
    assert_conserved(&scheduler);
}

#[test]
fn an_empty_scope_returns_what_its_body_returns() {
    let scheduler = driven();
    assert_eq!(scheduler.block_on(scope(|_: Scope<()>| ready(Ok(1)))), Ok(1));
    let failed = scheduler.block_on(scope(|_| ready(Err::<(), _>("no"))));
    assert_eq!(failed, Err(ScopeError::Failed("no")));
}

#[test]
fn the_first_error_ends_body_and_processes_before_it_is_returned() {
    let scheduler = driven();
    let log = Arc::new(Mutex::new(Vec::new()));
    let failed = scheduler.block_on(scope(|scope| {
        let (body, waits) = (Leaves("body", log.clone()), Leaves("process", log.clone()));
        async move {
            scope.add(async move {
                pending::<()>().await;
                drop(waits);
                Ok(())
            });
            scope.add(async {
                sleep(seconds(1)).await;
                Err("first")
            });
            scope.add(async {
                sleep(seconds(2)).await;
                Err("second")
            });
            pending::<()>().await;
            drop(body);
            Ok(())
        }
    }));
    assert_eq!(failed, Err(ScopeError::Failed("first")));
    assert_eq!(*log.lock(), ["body", "process"]);
    assert_conserved(&scheduler);
}

#[test]
fn a_panic_of_a_process_is_a_failure_even_after_the_body() {
    let scheduler = driven();
    let failed = scheduler.block_on(scope::<_, (), _, _>(|scope| {
        scope.add(async {
            sleep(seconds(1)).await;
            panic_quietly("broken")
        });
        ready(Ok("not returned"))
    }));
    let Err(ScopeError::Ended { exit, pid }) = failed else { panic!("{failed:?}") };
    assert_eq!(exit, Exit::Panicked("broken".into()));
    assert_ne!(pid, Pid::NOBODY);
}

#[test]
fn a_dropped_scope_cancels_its_processes_and_starts_no_more() {
    let scheduler = driven();
    let log = Arc::new(Mutex::new(Vec::new()));
    let mut outside = None;
    scheduler.block_on(async {
        let waits = Leaves("process", log.clone());
        let scope = scope::<(), (), _, _>(|scope| {
            outside = Some(scope.clone());
            scope.add(async move {
                pending::<()>().await;
                drop(waits);
                Ok(())
            });
            pending()
        });
        assert!(procession::timeout(seconds(1), scope).await.is_err());
        sleep(seconds(1)).await;
    });
    assert_eq!(*log.lock(), ["process"]);
    let outside = outside.expect("the body ran");
    let pid = scheduler.block_on(async { outside.add(ready(Ok(()))) });
    assert_eq!(pid, Pid::NOBODY);
    assert_conserved(&scheduler);
}

#[test]
fn a_panic_of_the_body_cancels_the_processes() {
    let scheduler = driven();
    let log = Arc::new(Mutex::new(Vec::new()));
    let waits = Leaves("process", log.clone());
    let outer = scheduler.spawn(async move {
        let scope = scope::<(), (), _, _>(|scope| {
            scope.add(async move {
                pending::<()>().await;
                drop(waits);
                Ok(())
            });
            async {
                sleep(seconds(1)).await;
                panic_quietly("body")
            }
        });
        scope.await.is_ok()
    });
    assert_eq!(scheduler.block_on(outer), Err(Exit::Panicked("body".into())));
    scheduler.run_until_idle();
    assert_eq!(*log.lock(), ["process"]);
}

#[test]
fn at_most_as_many_processes_run_as_the_limit_says() {
    let scheduler = driven();
    for (limit, took) in [(0, 12), (1, 12), (5, 3), (12, 1), (100, 1)] {
        let (running, most) = (Arc::new(Mutex::new(0)), Arc::new(Mutex::new(0)));
        let before = scheduler.now();
        let ended = scheduler.block_on(scope::<_, (), _, _>(|scope| {
            scope.set_limit(limit);
            for _ in 0..12 {
                let (running, most) = (Arc::clone(&running), Arc::clone(&most));
                scope.add(async move {
                    let now = {
                        let mut running = running.lock();
                        *running += 1;
                        *running
                    };
                    let before = *most.lock();
                    *most.lock() = before.max(now);
                    sleep(seconds(1)).await;
                    *running.lock() -= 1;
                    Ok(())
                });
            }
            ready(Ok(()))
        }));
        assert_eq!(ended, Ok(()));
        assert_eq!(*most.lock(), limit.clamp(1, 12));
        assert_eq!(scheduler.now() - before, seconds(took));
    }
    assert_conserved(&scheduler);
}

/// Goal: a body that starts processes in turn never has more of them than the limit.
#[test]
fn a_body_waits_for_the_turns_of_its_processes() {
    let scheduler = driven();
    for (limit, took) in [(None, 1), (Some(1), 12), (Some(5), 3), (Some(100), 1)] {
        let before = scheduler.now();
        let ended = scheduler.block_on(scope::<_, (), _, _>(|scope| async move {
            if let Some(limit) = limit {
                scope.set_limit(limit);
            }
            let finished = Arc::new(Mutex::new(0));
            for started in 1..=12 {
                let finishes = Arc::clone(&finished);
                let process = async move {
                    sleep(seconds(1)).await;
                    *finishes.lock() += 1;
                    Ok(())
                };
                assert_ne!(scope.add_in_turn(process).await, Pid::NOBODY);
                let running = started - *finished.lock();
                assert!(running <= limit.unwrap_or(12), "{running} of {limit:?}");
            }
            Ok(())
        }));
        assert_eq!(ended, Ok(()));
        assert_eq!(scheduler.now() - before, seconds(took));
    }
    assert_conserved(&scheduler);
}

#[test]
fn a_scope_that_fails_or_is_over_starts_nothing_in_turn() {
    let scheduler = driven();
    let started = Arc::new(Mutex::new(0));
    let starts = Arc::clone(&started);
    let failed = scheduler.block_on(scope::<(), _, _, _>(|scope| async move {
        scope.add(async {
            sleep(seconds(1)).await;
            Err("failed")
        });
        scope.set_limit(1);
        for _ in 0..2 {
            scope.add_in_turn(pending()).await;
            *starts.lock() += 1;
        }
        pending().await
    }));
    assert_eq!(failed, Err(ScopeError::Failed("failed")));
    assert_eq!(*started.lock(), 1, "the body is dropped where it waits");
    let over = scheduler.block_on(scope::<_, (), _, _>(|scope| ready(Ok(scope))));
    let over = over.expect("it is empty");
    assert_eq!(scheduler.block_on(over.add_in_turn(pending())), Pid::NOBODY);
    drop(over);
    assert_conserved(&scheduler);
}

#[test]
fn a_failure_ends_processes_that_wait_for_their_turn() {
    let scheduler = driven();
    let before = scheduler.now();
    let failed = scheduler.block_on(scope::<(), _, _, _>(|scope| async move {
        scope.set_limit(1);
        for _ in 0..10 {
            scope.add(async {
                sleep(seconds(1)).await;
                Err("failed")
            });
        }
        pending().await
    }));
    assert_eq!(failed, Err(ScopeError::Failed("failed")));
    assert_eq!(scheduler.now() - before, seconds(1), "only one had its turn");
    assert_conserved(&scheduler);
}

#[test]
fn processes_that_start_while_a_scope_fails_are_cancelled() {
    let scheduler = threaded(2);
    for _ in 0..200 {
        let failed = scheduler.block_on(scope(|scope| async move {
            let inner = scope.clone();
            scope.add(async move {
                for _ in 0..20 {
                    inner.add(pending());
                }
                Ok(())
            });
            scope.add(async { Err("now") });
            // Leaves the scope to its processes.
            spawn(async {}).await.map_err(|_| "not this")
        }));
        assert_eq!(failed, Err(ScopeError::Failed("now")));
    }
    assert_conserved(&scheduler);
}
