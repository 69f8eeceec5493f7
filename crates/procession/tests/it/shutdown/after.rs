//! The behaviour of a scheduler after its end.

use std::time::Duration;

use procession::mailbox::send;
use procession::time::Instant;
use procession::{Context, Exit, SpawnOptions, sleep, spawn};

use super::{mortal, shut_down};
use crate::scene::{assert_conserved, soon_closed};

#[test]
fn after_its_end_a_scheduler_refuses_and_tells() {
    for width in [0, 1, 2] {
        let (scheduler, freed) = mortal(width);
        let child = scheduler.start(|mut cx: Context<u32>| async move { cx.recv().await });
        let (address, pid) = (child.address().clone(), child.pid());
        assert!(shut_down(&scheduler).is_empty());
        assert_eq!(child.join(), Ok(None));

        assert_eq!(scheduler.spawn(async {}).join(), Err(Exit::Refused));
        assert!(scheduler.spawn(async {}).is_finished());
        let refused =
            SpawnOptions::new().on(&scheduler).try_spawn(async { 3 }).expect_err("it has ended");
        assert!(refused.is_closing());
        assert_eq!(scheduler.block_on(refused.into_inner()), 3);
        let nobody = scheduler.start(|mut cx: Context<u32>| async move { cx.recv().await });
        assert!(!nobody.is_alive() && nobody.send(1).is_err());
        assert_eq!(nobody.join(), Err(Exit::Refused));

        assert!(!address.is_alive());
        assert_eq!(
            address.send(2).map_err(|error| (error.is_ended(), error.into_inner())),
            Err((true, 2))
        );
        assert_eq!(
            send(pid, 3_u32).map_err(|error| (error.is_ended(), error.into_inner())),
            Err((true, 3))
        );
        assert!(!procession::process::cancel(pid) && !procession::process::kill(pid));

        let snapshot = scheduler.snapshot();
        assert_eq!((snapshot.spawned, snapshot.ended, snapshot.processes.len()), (1, 1, 0));
        // More if the system has let one wait for so long that it was replaced.
        assert!(snapshot.workers.len() >= width.max(1));
        assert!(scheduler.run_until_idle().is_empty());
        assert_conserved(&scheduler);

        let mut inbox = scheduler.attach::<u32>();
        assert!(inbox.address().send(4).is_err());
        assert_eq!(inbox.recv(), None);
        drop(inbox);

        // A thread that waits is not a process, so it goes on.
        scheduler.block_on(async {
            let begin = Instant::now();
            sleep(Duration::from_millis(5)).await;
            assert!(Instant::now() - begin >= Duration::from_millis(5));
            assert_eq!(spawn(async {}).await, Err(Exit::Refused));
        });
        drop((scheduler, address));
        soon_closed(&freed);
    }
}

#[test]
fn a_result_outlives_its_scheduler() {
    for width in [0, 1, 2] {
        let (scheduler, freed) = mortal(width);
        let handles: Vec<_> = (0..100).map(|n| scheduler.spawn(async move { n })).collect();
        scheduler.run_until_idle();
        assert!(shut_down(&scheduler).is_empty());
        drop(scheduler);
        for (n, handle) in handles.into_iter().enumerate() {
            assert_eq!(handle.join(), Ok(n));
        }
        soon_closed(&freed);
    }
}
