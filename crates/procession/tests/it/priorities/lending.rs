//! A process that waits for another one lends it its priority.
//!
//! Method: the test clock, so that each process has come to its wait when the test looks.

use std::future::{Future, poll_fn};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use futures_lite::future::zip;
use procession::mailbox::Recipient;
use procession::process::{OnCancel, Priority, priority};
use procession::sync::{Mutex, RwLock};
use procession::{Address, Context, JoinHandle, Pid, Reply, SpawnOptions, sleep};

use crate::scene::alone;

const SECOND: Duration = Duration::from_secs(1);
const LONG: Duration = Duration::from_secs(1000);

fn run(test: impl Future<Output = ()> + Send + 'static) {
    let scheduler = alone().worker_threads(1).test_clock().build().expect("it builds");
    scheduler.block_on(test);
}

fn spawn<T: Send + 'static>(
    priority: Priority,
    process: impl Future<Output = T> + Send + 'static,
) -> JoinHandle<T> {
    SpawnOptions::new().priority(priority).spawn(process)
}

/// Starts a process that holds a lock for ten seconds.
fn hold_at(priority: Priority, lock: &Arc<Mutex<()>>) -> JoinHandle<()> {
    let lock = Arc::clone(lock);
    spawn(priority, async move {
        let guard = lock.lock().await;
        sleep(10 * SECOND).await;
        drop(guard);
        sleep(LONG).await;
    })
}

fn hold(lock: &Arc<Mutex<()>>) -> JoinHandle<()> {
    hold_at(Priority::Batch, lock)
}

/// Starts a process that wants a lock, and ends with it.
fn want(priority: Priority, lock: &Arc<Mutex<()>>) -> JoinHandle<()> {
    let lock = Arc::clone(lock);
    spawn(priority, async move { drop(lock.lock().await) })
}

/// Starts a batch process that replies to each call after ten seconds.
fn slow_server() -> Address<Reply<()>> {
    let options = SpawnOptions::new().priority(Priority::Batch);
    let server = options.start(|mut cx: Context<Reply<()>>| async move {
        while let Some(reply) = cx.recv().await {
            sleep(10 * SECOND).await;
            reply.send(());
        }
    });
    server.detach()
}

fn call(priority: Priority, server: &Address<Reply<()>>, timeout: Duration) -> JoinHandle<bool> {
    let server = server.clone();
    spawn(priority, async move { server.call(|reply| reply, timeout).await.is_ok() })
}

#[track_caller]
fn assert_runs_at(expected: Priority, pid: Pid) {
    assert_eq!(priority(pid), Some(expected));
}

#[test]
fn a_callee_runs_at_the_priority_of_its_caller_until_it_replies() {
    run(async {
        let server = slow_server();
        for level in [Priority::Normal, Priority::High] {
            let caller = call(level, &server, LONG);
            sleep(SECOND).await;
            assert_runs_at(level, server.pid());
            assert_eq!(caller.await, Ok(true));
            assert_runs_at(Priority::Batch, server.pid());
        }
    });
}

#[test]
fn a_loan_ends_with_a_timeout_a_cancel_and_the_end_of_either_side() {
    run(async {
        let server = slow_server();
        let caller = call(Priority::High, &server, SECOND);
        sleep(SECOND / 2).await;
        assert_runs_at(Priority::High, server.pid());
        assert_eq!(caller.await, Ok(false));
        assert_runs_at(Priority::Batch, server.pid());
        let ends: [fn(&JoinHandle<bool>); 2] =
            [JoinHandle::cancel, |caller| assert!(caller.kill())];
        for end in ends {
            let caller = call(Priority::High, &server, LONG);
            sleep(SECOND).await;
            assert_runs_at(Priority::High, server.pid());
            end(&caller);
            assert!(caller.await.is_err());
            assert_runs_at(Priority::Batch, server.pid());
        }
        // A caller that gives up within its step, and waits for something else.
        let address = server.clone();
        let caller = spawn(Priority::High, async move {
            let call = address.call(|reply| reply, LONG);
            assert!(futures_lite::future::poll_once(Box::pin(call)).await.is_none());
            sleep(LONG).await;
        });
        sleep(SECOND).await;
        assert_runs_at(Priority::Batch, server.pid());
        caller.kill();
        // The callee ends, and others have its slot.
        let caller = call(Priority::High, &server, LONG);
        sleep(SECOND).await;
        assert!(server.kill());
        assert_eq!(caller.await, Ok(false));
        for _ in 0..100 {
            let own = || priority(procession::process::current_pid().expect("it is a process"));
            assert_eq!(procession::spawn(async move { own() }).await, Ok(Some(Priority::Normal)));
        }
    });
}

#[test]
fn the_holder_of_a_lock_runs_at_the_priority_of_those_who_wait() {
    run(async {
        let lock = Arc::new(Mutex::new(()));
        let first = hold(&lock);
        sleep(SECOND).await;
        let second = hold(&lock);
        sleep(SECOND).await;
        let normal = want(Priority::Normal, &lock);
        sleep(SECOND).await;
        assert_runs_at(Priority::Normal, first.pid());
        let high = want(Priority::High, &lock);
        sleep(SECOND).await;
        assert_runs_at(Priority::High, first.pid());
        assert_runs_at(Priority::Batch, second.pid());
        // The first one has released it to the second one.
        sleep(7 * SECOND).await;
        assert_runs_at(Priority::Batch, first.pid());
        assert_runs_at(Priority::High, second.pid());
        // The process of high priority goes, and the other one still waits.
        assert!(high.kill());
        sleep(SECOND).await;
        assert_runs_at(Priority::Normal, second.pid());
        assert_eq!(normal.await, Ok(()));
        assert_runs_at(Priority::Batch, second.pid());
    });
}

/// The first holder needs no loan, so nobody has lent to it.
#[test]
fn the_next_holder_of_a_lock_inherits_from_those_behind_it() {
    run(async {
        let lock = Arc::new(Mutex::new(()));
        let first = hold_at(Priority::High, &lock);
        sleep(SECOND).await;
        let second = hold(&lock);
        sleep(SECOND).await;
        let normal = want(Priority::Normal, &lock);
        let high = want(Priority::High, &lock);
        sleep(SECOND).await;
        assert_runs_at(Priority::Batch, second.pid());
        sleep(8 * SECOND).await;
        assert_runs_at(Priority::High, second.pid());
        assert_eq!((normal.await, high.await), (Ok(()), Ok(())));
        assert_runs_at(Priority::Batch, second.pid());
        drop(first);
    });
}

#[test]
fn a_wait_that_is_given_up_ends_no_loan_of_another_wait() {
    run(async {
        let (server, lock) = (slow_server(), Arc::new(Mutex::new(())));
        let holder = hold(&lock);
        sleep(SECOND).await;
        // Each polls both of its waits in each step.
        let (address, own) = (server.clone(), Arc::clone(&lock));
        let calls = spawn(Priority::High, async move {
            let call = address.call(|reply| reply, LONG);
            zip(call, own.lock_timeout(SECOND)).await.0.is_ok()
        });
        sleep(2 * SECOND).await;
        assert_runs_at(Priority::High, server.pid());
        assert_eq!(calls.await, Ok(true));
        let other = hold(&lock);
        sleep(SECOND).await;
        let (address, own) = (server.clone(), Arc::clone(&lock));
        let locks = spawn(Priority::High, async move {
            let call = address.call(|reply| reply, SECOND);
            zip(own.lock_timeout(LONG), call).await.0.is_ok()
        });
        sleep(2 * SECOND).await;
        assert_runs_at(Priority::High, other.pid());
        assert_runs_at(Priority::Batch, server.pid());
        assert_eq!(locks.await, Ok(true));
        drop(holder);
    });
}

/// If the lock kept the waker of a process that has ended, no other process could have its slot.
#[test]
fn a_lock_keeps_nothing_of_processes_that_gave_up() {
    let scheduler = alone().worker_threads(1).test_clock().max_processes(64).build();
    scheduler.expect("it builds").block_on(async {
        let lock = Arc::new(Mutex::new(()));
        let holder = hold(&lock);
        sleep(SECOND).await;
        for _ in 0..1000 {
            let lock = Arc::clone(&lock);
            let wants = spawn(Priority::High, async move {
                lock.lock_timeout(Duration::from_millis(1)).await.is_err()
            });
            assert_eq!(wants.await, Ok(true));
        }
        drop(holder);
    });
}

#[test]
fn a_call_of_a_recipient_lends_as_a_call_of_an_address() {
    run(async {
        let server = slow_server();
        for recipient in [Recipient::from(server.clone()), server.map(|reply: Reply<()>| reply)] {
            let call = async move { recipient.call(|reply| reply, LONG).await.is_ok() };
            let caller = spawn(Priority::High, call);
            sleep(SECOND).await;
            assert_runs_at(Priority::High, server.pid());
            assert_eq!(caller.await, Ok(true));
            assert_runs_at(Priority::Batch, server.pid());
        }
    });
}

#[test]
fn the_end_of_a_holder_ends_the_loan() {
    run(async {
        let lock = Arc::new(RwLock::new(()));
        let own = Arc::clone(&lock);
        let holder = spawn(Priority::Batch, async move {
            let _guard = own.write().await;
            sleep(SECOND).await;
            procession::process::exit(procession::Exit::Killed);
        });
        sleep(SECOND / 2).await;
        let own = Arc::clone(&lock);
        let high = spawn(Priority::High, async move { drop(own.read().await) });
        sleep(SECOND / 4).await;
        assert_runs_at(Priority::High, holder.pid());
        assert_eq!(high.await, Ok(()));
        assert!(holder.await.is_err());
    });
}

#[test]
fn a_loan_ends_with_its_process_even_if_the_wait_is_forgotten() {
    run(async {
        let lock = Arc::new(Mutex::new(()));
        let holder = hold(&lock);
        sleep(SECOND).await;
        let held_by = holder.pid();
        let forgets = spawn(Priority::High, async move {
            let mut wait = Box::pin(async move { drop(lock.lock().await) });
            let polled = poll_fn(|task| Poll::Ready(wait.as_mut().poll(task))).await;
            std::mem::forget(wait);
            polled.is_pending() && priority(held_by) == Some(Priority::High)
        });
        assert_eq!(forgets.await, Ok(true), "it has lent its priority");
        assert_runs_at(Priority::Batch, held_by);
        drop(holder);
    });
}

#[test]
fn a_borrower_that_waits_lends_what_it_has_borrowed() {
    run(async {
        let server = slow_server();
        let lock = Arc::new(Mutex::new(()));
        let (own, address) = (Arc::clone(&lock), server.clone());
        // Both are batch processes, so it lends nothing at first.
        let middle = spawn(Priority::Batch, async move {
            let _guard = own.lock().await;
            address.call(|reply| reply, LONG).await.is_ok()
        });
        sleep(SECOND).await;
        assert_runs_at(Priority::Batch, server.pid());
        let normal = want(Priority::Normal, &lock);
        sleep(SECOND).await;
        assert_runs_at(Priority::Normal, server.pid());
        let high = want(Priority::High, &lock);
        sleep(SECOND).await;
        assert_runs_at(Priority::High, middle.pid());
        assert_runs_at(Priority::High, server.pid());
        assert!(high.kill());
        sleep(SECOND).await;
        assert_runs_at(Priority::Normal, server.pid());
        assert_eq!(middle.await, Ok(true));
        assert_runs_at(Priority::Batch, server.pid());
        assert_eq!(normal.await, Ok(()));
    });
}

#[test]
fn a_chain_has_eight_processes_at_most() {
    run(async {
        // Each holds its lock and waits for the next one's.
        let locks: Vec<_> = (0..12).map(|_| Arc::new(Mutex::new(()))).collect();
        let mut all = vec![hold(&locks[11])];
        for at in (0..11).rev() {
            sleep(SECOND / 20).await;
            let (own, next) = (Arc::clone(&locks[at]), Arc::clone(&locks[at + 1]));
            all.push(spawn(Priority::Batch, async move {
                let _guard = own.lock().await;
                drop(next.lock().await);
            }));
        }
        sleep(SECOND).await;
        let high = want(Priority::High, &locks[0]);
        sleep(SECOND).await;
        let raised = |process: &&JoinHandle<()>| priority(process.pid()) == Some(Priority::High);
        assert_eq!(all.iter().filter(raised).count(), 8);
        assert_eq!(high.await, Ok(()));
        assert_eq!(all.iter().filter(raised).count(), 0);
    });
}

/// A process of high priority waits for a batch process, while others are always ready.
#[test]
fn a_loan_gives_turns() {
    run(async {
        let hogs = [(); 3].map(|()| {
            spawn(Priority::Normal, async {
                for _ in 0..300 {
                    procession::yield_now().await;
                }
            })
        });
        let options = SpawnOptions::new().priority(Priority::Batch).on_cancel(OnCancel::Ask);
        let server = options.start(|mut cx: Context<Reply<u32>>| async move {
            while let Some(reply) = cx.recv().await {
                for _ in 0..20 {
                    procession::yield_now().await;
                }
                reply.send(7);
            }
        });
        let server = server.detach();
        let address = server.clone();
        let caller = spawn(Priority::High, async move {
            address.call(|reply| reply, LONG).await.expect("it replies")
        });
        assert_eq!(caller.await, Ok(7));
        // Without the loan, 20 of its turns take 1280 turns.
        assert!(hogs.iter().all(|hog| !hog.is_finished()), "they have had few turns");
        assert!(hogs.iter().all(JoinHandle::kill));
        server.kill();
    });
}
