//! Schedulers that are dropped without a shutdown: everything is terminated, nothing hangs, and
//! nothing is left.

use crate::home::mpsc;
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use procession::process::current_pid;
use procession::time::run_after;
use procession::{
    Context, Exit, JoinHandle, Scheduler, SpawnOptions, sleep, spawn, start, yield_now,
};
use procession_sync::Mutex;
use procession_sync::atomic::AtomicU32;
use procession_sync::atomic::Ordering::SeqCst;

use super::{mortal, scheduler};
use crate::scene::{panic_quietly, soon, soon_closed};

const HOUR: Duration = Duration::from_secs(3600);

/// Counts its drops.
struct Counted(Arc<AtomicU32>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_add(1, SeqCst);
    }
}

/// Processes in all states. What each holds is dropped once.
struct Crowd {
    handles: Vec<JoinHandle<()>>,
    drops: Arc<AtomicU32>,
}

impl Crowd {
    fn of(scheduler: &Scheduler) -> Self {
        let drops = Arc::new(AtomicU32::new(0));
        let mut handles = Vec::new();
        for _ in 0..20 {
            let held = || Counted(Arc::clone(&drops));
            let (one, two, three, four, five) = (held(), held(), held(), held(), held());
            handles.push(scheduler.spawn(async move {
                sleep(HOUR).await;
                drop(one);
            }));
            let receiving = scheduler.start(|mut cx: Context<Counted>| async move {
                cx.recv().await;
                pending::<()>().await;
                drop(two);
            });
            receiving.send(held()).expect("it is alive");
            receiving.send(held()).expect("it is alive");
            handles.push(receiving.into_parts().1);
            handles.push(scheduler.spawn(async move {
                loop {
                    yield_now().await;
                    if Arc::strong_count(&three.0) == 0 {
                        break;
                    }
                }
            }));
            handles.push(scheduler.spawn(async move {
                let child = spawn(async move {
                    pending::<()>().await;
                    drop(four);
                });
                assert_eq!(child.await, Ok(()));
            }));
            drop(scheduler.spawn(async move {
                pending::<()>().await;
                drop(five);
            }));
        }
        Self { handles, drops }
    }

    fn check(self) {
        for handle in self.handles {
            let exit = handle.join();
            // A process that awaits another may see it killed, and panic, before it is killed
            // itself.
            assert!(
                exit.as_ref().is_err_and(|exit| exit.is_killed() || exit.is_panic()),
                "{exit:?}"
            );
        }
    }

    fn check_drops(drops: &AtomicU32) {
        assert_eq!(drops.load(SeqCst), 20 * 7, "each is dropped once");
    }
}

#[test]
fn a_drop_terminates_every_process_once() {
    for width in [0, 1, 2, 4] {
        let (scheduler, freed) = mortal(width);
        let crowd = Crowd::of(&scheduler);
        let drops = Arc::clone(&crowd.drops);
        drop(scheduler);
        crowd.check();
        soon_closed(&freed);
        Crowd::check_drops(&drops);
    }
}

#[test]
fn a_drop_of_a_driven_scheduler_has_ended_all_when_it_returns() {
    let (scheduler, freed) = mortal(0);
    let crowd = Crowd::of(&scheduler);
    let drops = Arc::clone(&crowd.drops);
    drop(scheduler);
    Crowd::check_drops(&drops);
    crowd.check();
    soon_closed(&freed);
}

#[test]
fn a_process_may_drop_its_scheduler() {
    for width in [0, 1, 2, 4] {
        for goes_on in [true, false] {
            let (scheduler, freed) = mortal(width);
            let crowd = Crowd::of(&scheduler);
            let drops = Arc::clone(&crowd.drops);
            let last = scheduler.clone();
            let dropper = scheduler.spawn(async move {
                drop(last);
                if goes_on {
                    pending::<()>().await;
                }
            });
            drop(scheduler);
            let exit = dropper.join();
            assert_eq!(exit, if goes_on { Err(Exit::Killed) } else { Ok(()) }, "width {width}");
            crowd.check();
            soon_closed(&freed);
            Crowd::check_drops(&drops);
        }
    }
}

#[test]
fn the_drop_of_a_process_may_drop_its_scheduler() {
    for width in [0, 1, 2] {
        let (scheduler, freed) = mortal(width);
        let last = scheduler.clone();
        let holder = scheduler.spawn(async move {
            pending::<()>().await;
            drop(last);
        });
        let pid = holder.pid();
        assert!(procession::process::kill(pid));
        drop(scheduler);
        assert_eq!(holder.join(), Err(Exit::Killed));
        soon_closed(&freed);
    }
}

#[test]
fn a_timer_may_drop_its_scheduler() {
    for width in [1, 2] {
        let (scheduler, freed) = mortal(width);
        let crowd = Crowd::of(&scheduler);
        let drops = Arc::clone(&crowd.drops);
        let last = Mutex::new(Some(scheduler.clone()));
        let setter = scheduler.spawn(async move {
            run_after(Duration::from_millis(1), move || drop(last.lock().take()))
                .map(drop)
                .unwrap_or_else(|_| unreachable!("the limit is not reached"));
        });
        assert_eq!(setter.join(), Ok(()));
        drop(scheduler);
        crowd.check();
        soon_closed(&freed);
        Crowd::check_drops(&drops);
    }
}

#[test]
fn a_thread_that_joins_is_told() {
    for width in [0, 1, 2] {
        let (scheduler, freed) = mortal(width);
        let (joins, will_join) = mpsc::channel();
        let process = scheduler.spawn(async move {
            joins.send(()).expect("the test listens");
            pending::<()>().await;
        });
        let others = [(); 10].map(|()| scheduler.spawn(pending::<()>()));
        crate::home::thread::scope(|scope| {
            let joining = scope.spawn(move || process.join());
            // On the test clock, the process runs because the other thread joins.
            soon(&will_join);
            drop(scheduler);
            assert_eq!(joining.join().expect("it does not panic"), Err(Exit::Killed));
        });
        for other in others {
            assert_eq!(other.join(), Err(Exit::Killed));
        }
        soon_closed(&freed);
    }
}

#[test]
fn a_thread_that_waits_for_a_time_is_told() {
    let scheduler = scheduler(2);
    let process = scheduler.spawn(pending::<()>());
    crate::home::thread::scope(|scope| {
        let joining = scope.spawn(move || process.join_timeout(HOUR));
        drop(scheduler);
        let told = joining.join().expect("it does not panic");
        assert_eq!(told.expect("within the hour"), Err(Exit::Killed));
    });
}

#[test]
fn a_process_of_another_scheduler_is_told() {
    let (dropped, other) = (scheduler(1), scheduler(1));
    let process = dropped.spawn(pending::<()>());
    let waiter = other.spawn(process);
    let second = dropped.spawn(pending::<()>());
    crate::home::thread::scope(|scope| {
        let blocked = scope.spawn(|| other.block_on(second));
        drop(dropped);
        assert_eq!(blocked.join().expect("it does not panic"), Err(Exit::Killed));
    });
    assert_eq!(waiter.join(), Ok(Err(Exit::Killed)));
}

#[test]
fn a_thread_that_receives_is_told_of_a_shutdown() {
    for width in [1, 2] {
        let (scheduler, freed) = mortal(width);
        let mut inbox = scheduler.attach::<u32>();
        let address = inbox.address().clone();
        address.send(1).expect("it is open");
        crate::home::thread::scope(|scope| {
            let receiving = scope.spawn(move || {
                let received = (inbox.recv(), inbox.recv(), inbox.recv_timeout(HOUR));
                drop(inbox);
                received
            });
            assert!(scheduler.block_on(scheduler.shutdown(HOUR)).is_empty());
            let received = receiving.join().expect("it does not panic");
            assert_eq!(received, (Some(1), None, Ok(None)));
        });
        assert!(address.send(2).is_err());
        drop((scheduler, address));
        soon_closed(&freed);
    }
}

#[test]
fn a_mailbox_of_a_thread_keeps_its_scheduler() {
    let (scheduler, freed) = mortal(1);
    let mut inbox = scheduler.attach::<u32>();
    let address = inbox.address().clone();
    drop(scheduler);
    address.send(1).expect("the mailbox is there");
    assert_eq!(inbox.recv(), Some(1));
    drop((inbox, address));
    soon_closed(&freed);
}

#[test]
fn drops_of_processes_may_use_the_runtime() {
    /// Uses everything in its drop.
    struct Busy {
        told: mpsc::Sender<()>,
    }
    impl Drop for Busy {
        fn drop(&mut self) {
            assert!(current_pid().is_some());
            assert!(spawn(async {}).is_finished(), "refused");
            drop(start(|mut cx: Context<()>| async move { cx.recv().await }));
            drop(run_after(HOUR, || unreachable!("not within the hour")));
            drop(sleep(HOUR));
            self.told.send(()).expect("the test listens");
        }
    }
    for width in [0, 1, 2] {
        let (scheduler, freed) = mortal(width);
        let (told, tells) = mpsc::channel();
        for _ in 0..10 {
            let busy = Busy { told: told.clone() };
            drop(scheduler.spawn(async move {
                pending::<()>().await;
                drop(busy);
            }));
        }
        drop((scheduler, told));
        for _ in 0..10 {
            soon(&tells);
        }
        soon_closed(&freed);
    }
}

#[test]
fn drops_of_processes_may_panic() {
    struct Panicking;
    impl Drop for Panicking {
        fn drop(&mut self) {
            panic_quietly("dropped");
        }
    }
    for width in [0, 1, 2] {
        let (scheduler, freed) = mortal(width);
        let handles: Vec<_> = (0..10)
            .map(|_| {
                let panicking = Panicking;
                scheduler.spawn(async move {
                    pending::<()>().await;
                    drop(panicking);
                })
            })
            .collect();
        drop(scheduler);
        for handle in handles {
            assert_eq!(handle.join(), Err(Exit::Killed));
        }
        soon_closed(&freed);
    }
}

#[test]
fn a_scheduler_may_belong_to_a_process_of_another() {
    let (outer, outer_freed) = mortal(2);
    let (inner, inner_freed) = mortal(2);
    let crowd = Crowd::of(&inner);
    let drops = Arc::clone(&crowd.drops);
    let owner = outer.spawn(async move {
        pending::<()>().await;
        drop(inner);
    });
    drop(outer);
    assert_eq!(owner.join(), Err(Exit::Killed));
    soon_closed(&outer_freed);
    crowd.check();
    soon_closed(&inner_freed);
    Crowd::check_drops(&drops);
}

#[test]
fn what_spawns_without_end_is_ended_by_a_drop() {
    for width in [1, 2, 4] {
        let (scheduler, freed) = mortal(width);
        for _ in 0..4 {
            drop(scheduler.spawn(async {
                while !spawn(async { yield_now().await }).is_finished() {
                    yield_now().await;
                }
            }));
        }
        let outside = SpawnOptions::new().on(&scheduler).label("outside").spawn(async {
            for _ in 0..10 {
                yield_now().await;
            }
        });
        assert_eq!(outside.join(), Ok(()));
        drop(scheduler);
        soon_closed(&freed);
    }
}
