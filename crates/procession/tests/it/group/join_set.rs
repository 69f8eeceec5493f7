//! Sets of processes. The semantics are those of `tokio/tests/task_join_set.rs`.

use std::collections::BTreeSet;
use std::future::pending;
use std::time::Duration;

use procession::coroutine::Wait;
use procession::process::{JoinSet, OnCancel, cancelled};
use procession::sync::oneshot;
use procession::{Exit, Pid, Scheduler, SpawnOptions, sleep, spawn};

use crate::scene::{TIMEOUT, assert_conserved, driven, panic_quietly, threaded};

fn seconds(n: u64) -> Duration {
    Duration::from_secs(n)
}

#[test]
fn results_come_in_the_order_of_the_ends() {
    let scheduler = driven();
    scheduler.block_on(async {
        let mut set = JoinSet::new();
        for n in [4, 2, 0, 3, 1] {
            set.insert(spawn(async move {
                sleep(seconds(n)).await;
                n
            }));
        }
        assert_eq!(set.len(), 5);
        for n in 0..5 {
            assert_eq!(set.join_next().await, Some(Ok(n)));
        }
        assert_eq!(set.join_next().await, None);
    });
    assert_conserved(&scheduler);
}

#[test]
fn a_set_is_used_again_and_its_places_are_reused() {
    driven().block_on(async {
        let mut set: JoinSet<u32> = JoinSet::new();
        set.extend((0..2).map(|n| async move { n }));
        for n in 2..20 {
            assert!(set.join_next().await.is_some_and(|result| result.is_ok()));
            assert_eq!(set.len(), 1);
            set.insert(spawn(async move { n }));
        }
        assert_eq!(set.join_all().await.map(|outputs| outputs.len()), Ok(2));
    });
}

/// A join takes all ends at once. Those that it has not returned concern nothing that comes later.
#[test]
fn ends_of_detached_processes_are_forgotten() {
    driven().block_on(async {
        let mut set = JoinSet::new();
        set.extend([1, 2, 3].map(|n| async move { n }));
        sleep(seconds(1)).await;
        assert!(set.join_next().await.is_some_and(|result| result.is_ok()));
        set.detach_all();
        assert_eq!(set.next_ended(), None);
        set.extend([4, 5].map(|n| async move { n }));
        assert_eq!(set.join_all().await.map(|outputs| outputs.iter().sum()), Ok(9));
    });
}

#[test]
fn a_drop_cancels_and_a_detached_process_goes_on() {
    let scheduler = driven();
    scheduler.block_on(async {
        let mut senders = Vec::new();
        let mut set = JoinSet::new();
        for _ in 0..16 {
            let (sender, receiver) = oneshot::channel::<()>();
            senders.push(receiver);
            set.insert(spawn(async move {
                pending::<()>().await;
                drop(sender);
            }));
        }
        drop(set);
        for receiver in senders {
            assert!(receiver.await.is_err(), "the process was dropped");
        }
        let (sender, receiver) = oneshot::channel();
        let mut set = JoinSet::new();
        set.insert(spawn(async move {
            sleep(seconds(1)).await;
            let _ = sender.send(7);
        }));
        set.detach_all();
        assert!(set.is_empty() && set.join_next().await.is_none());
        // The end of a detached process is not taken for that of another one.
        set.insert(spawn(pending()));
        assert_eq!(receiver.await, Ok(7));
        sleep(seconds(1)).await;
        assert_eq!((set.next_ended(), set.len()), (None, 1));
    });
    assert_conserved(&scheduler);
}

#[test]
fn single_processes_are_cancelled_by_their_pids() {
    driven().block_on(async {
        let mut set = JoinSet::new();
        for n in 0..16 {
            let pid = set.insert(spawn(async move {
                sleep(seconds(n)).await;
                n
            }));
            if n % 2 != 0 {
                assert!(procession::process::cancel(pid));
            }
        }
        let mut results = Vec::new();
        while let Some(result) = set.join_next().await {
            results.push(result);
        }
        let completed: Vec<_> = results.iter().filter_map(|result| result.as_ref().ok()).collect();
        assert_eq!(completed, [&0, &2, &4, &6, &8, &10, &12, &14]);
        let cancelled = results.iter().filter(|result| **result == Err(Exit::Shutdown));
        assert_eq!(cancelled.count(), 8);
    });
}

#[test]
fn results_of_ended_processes_survive_an_abort_of_all() {
    driven().block_on(async {
        let mut set = JoinSet::new();
        for _ in 0..5 {
            set.insert(spawn(pending()));
            set.insert(spawn(sleep(seconds(1))));
        }
        sleep(seconds(2)).await;
        set.cancel_all();
        assert_eq!(set.len(), 10);
        let mut results = Vec::new();
        while let Some(result) = set.join_next().await {
            results.push(result);
        }
        assert_eq!(results[..5], [const { Ok(()) }; 5], "they had ended before");
        assert_eq!(results[5..], [const { Err(Exit::Shutdown) }; 5]);
    });
}

#[test]
fn a_shutdown_waits_for_processes_that_clean_up() {
    driven().block_on(async {
        let (sender, receiver) = oneshot::channel();
        let mut set = JoinSet::new();
        set.insert(SpawnOptions::new().on_cancel(OnCancel::Ask).spawn(async move {
            cancelled().await;
            sleep(seconds(1)).await;
            let _ = sender.send("cleaned up");
        }));
        set.insert(spawn(pending()));
        set.shutdown().await;
        assert!(set.is_empty());
        assert_eq!(receiver.await, Ok("cleaned up"));
    });
}

#[test]
fn the_end_of_a_process_without_an_output_ends_a_join_of_all() {
    driven().block_on(async {
        let (sender, mut receiver) = oneshot::channel();
        let mut set = JoinSet::new();
        set.insert(spawn(async move {
            sleep(seconds(2)).await;
            let _ = sender.send(());
        }));
        set.insert(spawn(async {
            sleep(seconds(1)).await;
            panic_quietly("broken")
        }));
        assert_eq!(set.join_all().await, Err(Exit::Panicked("broken".into())));
        assert_eq!(
            receiver.try_recv(),
            Err(procession::sync::RecvError::Closed),
            "it was cancelled"
        );
    });
}

#[test]
fn a_cancelled_wait_loses_no_result() {
    driven().block_on(async {
        let mut set = JoinSet::new();
        set.insert(spawn(sleep(seconds(2))));
        assert!(procession::timeout(seconds(1), set.join_next()).await.is_err());
        sleep(seconds(2)).await;
        assert_eq!(set.join_next().await, Some(Ok(())));
    });
}

#[test]
fn results_are_taken_without_waiting_and_with_their_pids() {
    let scheduler = driven();
    scheduler.block_on(async {
        let mut set = JoinSet::new();
        let pids: BTreeSet<Pid> = (0..1000).map(|_| set.insert(spawn(sleep(seconds(1))))).collect();
        assert!(set.next_ended_with_pid().is_none());
        sleep(seconds(2)).await;
        let joined: BTreeSet<Pid> =
            std::iter::from_fn(|| set.next_ended_with_pid()).map(|(pid, _)| pid).collect();
        assert_eq!((joined, set.len()), (pids, 0));
    });
}

#[test]
fn a_refused_process_is_one_of_the_results() {
    let scheduler = Scheduler::builder()
        .worker_threads(1)
        .max_processes(1)
        .test_clock()
        .build()
        .expect("it starts no thread");
    scheduler.block_on(async {
        let mut set = JoinSet::new();
        let first = set.insert(spawn(async { 1 }));
        assert_eq!(set.insert(spawn(async { 2 })), Pid::NOBODY);
        assert_eq!(set.join_next_with_pid().await, Some((Pid::NOBODY, Err(Exit::Refused))));
        assert_eq!(set.join_next_with_pid().await, Some((first, Ok(1))));
    });
}

#[test]
fn processes_of_a_scheduler_that_is_gone_have_ended() {
    let mut set = JoinSet::new();
    let gone = driven();
    set.insert(gone.spawn(async { 1 }));
    drop(gone);
    assert_eq!(driven().block_on(set.join_next()), Some(Err(Exit::Killed)));
}

#[test]
fn a_handle_without_its_result_is_not_inserted() {
    driven().block_on(async {
        let mut handle = spawn(async { 1 });
        assert_eq!((&mut handle).await, Ok(1));
        let mut set = JoinSet::new();
        let insert = std::panic::AssertUnwindSafe(|| set.insert(handle));
        assert!(std::panic::catch_unwind(insert).is_err());
        assert_eq!((set.len(), set.join_next().await), (0, None));
    });
}

#[test]
fn plain_threads_join_what_workers_end() {
    let scheduler = threaded(2);
    for round in 0..200_u64 {
        let mut set = JoinSet::new();
        for n in 0..10 {
            set.insert(scheduler.spawn(async move { round * n }));
        }
        let outputs = procession::timeout(TIMEOUT, set.join_all()).wait().expect("it comes soon");
        assert_eq!(outputs.map(|outputs| outputs.iter().sum()), Ok(round * 45));
    }
    assert_conserved(&scheduler);
}
