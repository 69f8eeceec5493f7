//! Calls and their replies.

use crate::home::mpsc;
use std::time::Duration;

use procession::{CallError, Context, Reply};

use super::{HOUR, poll_once};
use crate::scene::{driven, panic_quietly, soon, threaded};

#[test]
fn a_call_is_replied_to() {
    let scheduler = driven();
    let doubler = scheduler.start(|mut cx: Context<(u32, Reply<u32>)>| async move {
        while let Some((n, reply)) = cx.recv().await {
            assert!(!reply.is_abandoned());
            reply.send(n * 2);
        }
    });
    // From a block-on future, from a process, and through another process.
    assert_eq!(scheduler.block_on(doubler.call(|reply| (1, reply), HOUR)).ok(), Some(2));
    let address = doubler.address().clone();
    let inside = scheduler.spawn(async move { address.call(|reply| (2, reply), HOUR).await });
    assert_eq!(inside.join().expect("it ends").ok(), Some(4));
    let address = doubler.address().clone();
    let front = scheduler.start(move |mut cx: Context<Reply<u32>>| async move {
        if let Some(reply) = cx.recv().await {
            address.send((3, reply)).expect("it lives");
        }
    });
    assert_eq!(scheduler.block_on(front.call(|reply| reply, HOUR)).ok(), Some(6));
    assert_eq!(scheduler.now() - procession::time::Instant::NEVER, Duration::ZERO);
    assert_eq!(scheduler.snapshot().timers.pending, 0);
}

#[test]
fn a_call_without_a_reply_says_why() {
    let scheduler = driven();
    let drops = scheduler
        .start(|mut cx: Context<Reply<u32>>| async move { while cx.recv().await.is_some() {} });
    assert!(matches!(scheduler.block_on(drops.call(|reply| reply, HOUR)), Err(CallError::NoReply)));

    let ends = scheduler.start(|mut cx: Context<Option<Reply<u32>>>| async move {
        // The reply is in the mailbox behind this message, and is never received.
        cx.recv().await;
    });
    let (address, handle) = ends.into_parts();
    address.send(None).expect("it lives");
    assert!(
        matches!(scheduler.block_on(address.call(Some, HOUR)), Err(CallError::NoReply)),
        "it ended"
    );
    assert_eq!(handle.join(), Ok(()));
    assert!(matches!(scheduler.block_on(address.call(Some, HOUR)), Err(CallError::Refused(_))));

    let panics = scheduler.start(|mut cx: Context<Reply<u32>>| async move {
        let _reply = cx.recv().await;
        panic_quietly("with the reply in hand")
    });
    assert!(
        matches!(scheduler.block_on(panics.call(|reply| reply, HOUR)), Err(CallError::NoReply)),
        "it panicked"
    );

    let keeps = scheduler.start(|mut cx: Context<Reply<u32>>| async move {
        let _reply = cx.recv().await;
        std::future::pending::<()>().await;
    });
    let pid = keeps.pid();
    drop(scheduler.spawn(async move {
        procession::sleep(Duration::from_secs(1)).await;
        procession::process::kill(pid);
    }));
    assert!(
        matches!(scheduler.block_on(keeps.call(|reply| reply, HOUR)), Err(CallError::NoReply)),
        "it was terminated"
    );
    let texts = [CallError::<()>::NoReply, CallError::Elapsed].map(|error| error.to_string());
    assert_eq!(texts, ["the process gave no reply", "no reply came in time"]);
    let refused = scheduler.block_on(keeps.call(|reply| reply, HOUR)).expect_err("it has ended");
    let text = refused.to_string();
    assert!(text.starts_with("cannot call: the message was refused: cannot send to p"), "{text}");
    assert!(text.ends_with(": the process has ended"), "{text}");
    let CallError::Refused(error) = refused else { unreachable!("it was refused") };
    assert_eq!(error.into_inner().try_send(1), Err(1), "the message is there, its caller is not");
}

#[test]
fn a_late_reply_is_discarded() {
    let scheduler = driven();
    let slow = scheduler.start(|mut cx: Context<Reply<String>>| async move {
        let reply = cx.recv().await.expect("a call");
        procession::sleep(HOUR * 2).await;
        let abandoned = reply.is_abandoned();
        (abandoned, reply.try_send("too late".into()))
    });
    let (address, handle) = slow.into_parts();
    let before = scheduler.now();
    assert!(matches!(
        scheduler.block_on(address.call(|reply| reply, HOUR)),
        Err(CallError::Elapsed)
    ));
    assert_eq!(scheduler.now() - before, HOUR, "not earlier, and on the test clock not later");
    assert_eq!(handle.join(), Ok((true, Err("too late".into()))), "the reply comes back");
}

#[test]
fn a_call_that_is_dropped_is_abandoned() {
    let scheduler = driven();
    let (tell, told) = mpsc::channel();
    let child = scheduler.start(|mut cx: Context<Reply<u8>>| async move {
        let reply = cx.recv().await.expect("a call");
        tell.send(reply.is_abandoned()).expect("the test waits");
        reply.try_send(1)
    });
    let address = child.address().clone();
    let polled =
        scheduler.block_on(async move { poll_once(address.call(|reply| reply, HOUR)).await });
    assert!(polled.is_pending());
    assert_eq!(child.join(), Ok(Err(1)));
    assert!(soon(&told));
    assert_eq!(scheduler.snapshot().timers.pending, 0);
}

#[test]
fn callers_and_repliers_on_all_workers_agree() {
    for width in [1, 2, 4] {
        let scheduler = threaded(width);
        let server = scheduler.start(|mut cx: Context<(u64, Reply<u64>)>| async move {
            while let Some((n, reply)) = cx.recv().await {
                // Some replies are given elsewhere.
                if n % 3 == 0 {
                    drop(procession::spawn(async move { reply.send(n + 1) }));
                } else if n % 3 == 1 {
                    reply.send(n + 1);
                }
            }
        });
        let callers: Vec<_> = (0..16_u64)
            .map(|_| {
                let address = server.address().clone();
                scheduler.spawn(async move {
                    for n in 0..200 {
                        match address.call(|reply| (n, reply), HOUR).await {
                            Ok(reply) => assert_eq!(reply, n + 1),
                            Err(error) => assert!(n % 3 == 2 && error.is_no_reply()),
                        }
                    }
                })
            })
            .collect();
        for caller in callers {
            assert_eq!(caller.join(), Ok(()));
        }
        server.cancel();
        assert_eq!(server.join(), Ok(()));
    }
}
