//! Recipients: a refused message comes back as it was sent, whatever the process receives.

use std::collections::HashSet;
use std::panic::{AssertUnwindSafe, catch_unwind};

use procession::mailbox::{Recipient, WhenFull};
use procession::{Address, Context, Exit, Reply, Scheduler, SpawnOptions, start};
use procession_sync::Arc;
use procession_sync::atomic::AtomicU32;
use procession_sync::atomic::Ordering::Relaxed;

use super::HOUR;
use crate::home::others_may_run;
use crate::scene::{assert_conserved, driven, panic_quietly, threaded};

enum Part {
    Number(u32),
    Ask(Reply<u32>),
    Text(&'static str),
}

#[test]
fn messages_through_both_addresses_of_one_sender_keep_their_order() {
    let scheduler = driven();
    scheduler.block_on(async {
        let receiver = start(|mut cx: Context<Part>| async move {
            let mut seen = Vec::new();
            while let Some(message) = cx.recv().await {
                match message {
                    Part::Number(number) => seen.push(number.to_string()),
                    Part::Text(text) => seen.push(text.to_owned()),
                    Part::Ask(reply) => reply.send(seen.len() as u32),
                }
            }
            seen
        });
        let (numbers, asks) = (receiver.map(Part::Number), receiver.map(Part::Ask));
        numbers.send(1).expect("it runs");
        receiver.send(Part::Text("two")).expect("it runs");
        numbers.send(3).expect("it runs");
        assert_eq!(asks.call(|reply| reply, HOUR).await.ok(), Some(3));
        receiver.cancel();
        assert_eq!(receiver.await, Ok(vec!["1".to_owned(), "two".to_owned(), "3".to_owned()]));
        let refused = asks.call(|reply: Reply<u32>| reply, HOUR).await.expect_err("it has ended");
        assert!(refused.into_inner().is_some());
        assert_eq!(numbers.send(4).expect_err("it has ended").into_inner(), 4);
        assert!(!numbers.is_alive());
    });
    assert_conserved(&scheduler);
}

fn bounded(scheduler: &Scheduler, when_full: WhenFull) -> (Address<Part>, Recipient<u32>) {
    let options = SpawnOptions::new().on(scheduler).mailbox(1, when_full);
    let receiver = options.start(|cx: Context<Part>| async move { cx.cancelled().await });
    let address = receiver.detach();
    let numbers = address.map(Part::Number);
    (address, numbers)
}

#[test]
fn a_full_mailbox_does_what_its_policy_says() {
    for (when_full, refused, ends) in [
        (WhenFull::Reject, true, false),
        (WhenFull::Wait, true, false),
        (WhenFull::DropNewest, false, false),
        (WhenFull::DropOldest, false, false),
        (WhenFull::Kill, true, true),
    ] {
        let scheduler = driven();
        let (address, numbers) = bounded(&scheduler, when_full);
        scheduler.run_until_idle();
        numbers.send(1).expect("there is room");
        match numbers.send(2) {
            Ok(()) => assert!(!refused, "{when_full:?}"),
            Err(error) => {
                assert!(refused && error.is_full(), "{when_full:?}");
                assert_eq!(error.into_inner(), 2);
            }
        }
        scheduler.run_until_idle();
        assert_eq!(address.is_alive(), !ends, "{when_full:?}");
        procession::process::kill(address.pid());
        assert_conserved(&scheduler);
    }
}

#[test]
fn a_function_that_panics_panics_in_the_sender_and_gives_its_room_up() {
    let scheduler = driven();
    let (address, numbers) = bounded(&scheduler, WhenFull::Wait);
    let panics: Recipient<u32> = address.map(|_| panic_quietly("in the sender"));
    for _ in 0..3 {
        assert!(catch_unwind(AssertUnwindSafe(|| panics.send(1))).is_err());
    }
    numbers.send(2).expect("there is still room");
    assert!(address.is_alive());
    assert!(panics.send(3).expect_err("the function is not called").is_full());
    procession::process::kill(address.pid());
    assert_conserved(&scheduler);
}

#[test]
fn a_function_may_send_to_the_same_process() {
    let scheduler = driven();
    let receiver = scheduler.start(|mut cx: Context<Part>| async move {
        (
            matches!(cx.recv().await, Some(Part::Text("first"))),
            matches!(cx.recv().await, Some(Part::Number(2))),
        )
    });
    let address = receiver.address().clone();
    let same = address.clone();
    let again = address.map(move |number| {
        same.send(Part::Text("first")).unwrap_or_else(|_| panic!("it waits"));
        Part::Number(number)
    });
    again.send(2).expect("it waits");
    assert_eq!(receiver.join(), Ok((true, true)));
}

#[test]
fn a_function_whose_process_ends_meanwhile_loses_its_message_as_an_accepted_one() {
    for when_full in [None, Some(WhenFull::Reject)] {
        let scheduler = driven();
        let mut options = SpawnOptions::new().on(&scheduler);
        if let Some(when_full) = when_full {
            options = options.mailbox(1, when_full);
        }
        let receiver = options.start(|cx: Context<Part>| async move { cx.cancelled().await });
        let (pid, at_end) = (receiver.pid(), scheduler.clone());
        let late = receiver.map(move |number| {
            procession::process::kill(pid);
            at_end.run_until_idle();
            Part::Number(number)
        });
        assert!(late.send(1).is_ok(), "it was accepted before the end");
        assert_eq!(late.send(2).expect_err("it has ended").into_inner(), 2);
        assert_eq!(receiver.join(), Err(Exit::Killed));
        assert_eq!(scheduler.snapshot().messages_discarded, 1);
        assert_conserved(&scheduler);
    }
}

#[test]
fn each_message_is_received_refused_or_discarded_when_the_receiver_ends_amid_the_sends() {
    const MANY: u32 = 2_000;
    for capacity in [None, Some(4)] {
        let scheduler = threaded(2);
        let received = Arc::new(AtomicU32::new(0));
        let count = Arc::clone(&received);
        let mut options = SpawnOptions::new().on(&scheduler);
        if let Some(capacity) = capacity {
            options = options.mailbox(capacity, WhenFull::Reject);
        }
        let receiver = options.start(move |mut cx: Context<Part>| async move {
            for _ in 0..MANY / 2 {
                cx.recv().await;
                count.fetch_add(1, Relaxed);
            }
        });
        let numbers = receiver.map(Part::Number);
        let (accepted, refused) = {
            let (mut accepted, mut refused) = (0, 0);
            while accepted < MANY && numbers.is_alive() {
                others_may_run();
                match numbers.send(accepted) {
                    Ok(()) => accepted += 1,
                    Err(error) => {
                        assert_eq!(error.into_inner(), accepted);
                        refused += 1;
                    }
                }
            }
            (accepted, refused)
        };
        assert_eq!(receiver.join(), Ok(()));
        assert_conserved(&scheduler);
        assert!(accepted >= received.load(Relaxed), "{accepted} accepted, {refused} refused");
        assert_eq!(received.load(Relaxed), MANY / 2);
    }
}

#[test]
fn a_message_that_the_function_refuses_comes_back_and_takes_no_room() {
    for when_full in
        [None, Some(WhenFull::Reject), Some(WhenFull::DropOldest), Some(WhenFull::Kill)]
    {
        let scheduler = driven();
        let mut options = SpawnOptions::new().on(&scheduler);
        if let Some(when_full) = when_full {
            options = options.mailbox(1, when_full);
        }
        let receiver = options.start(|mut cx: Context<Part>| async move {
            matches!(cx.recv().await, Some(Part::Number(3)))
        });
        let odd = receiver.filter_map(|number: u32| match number % 2 {
            0 => Err(number),
            _ => Ok(Part::Number(number)),
        });
        for _ in 0..3 {
            let refused = odd.send(2).expect_err("it is refused");
            assert!(refused.is_full() && !refused.is_ended(), "{refused}");
            assert_eq!(refused.into_inner(), 2);
        }
        odd.send(3).expect("there is room, and no process was ended");
        assert_eq!(receiver.join(), Ok(true), "{when_full:?}");
        let ended = odd.send(4).expect_err("it has ended");
        assert!(ended.is_ended(), "the function is not called");
        assert_conserved(&scheduler);
    }
}

#[test]
fn recipients_are_compared_by_their_process() {
    let scheduler = driven();
    let (one, numbers) = bounded(&scheduler, WhenFull::Reject);
    let (two, others) = bounded(&scheduler, WhenFull::Reject);
    let again = one.map(|number: u32| Part::Number(number + 1));
    assert_eq!(numbers, again);
    assert_ne!(numbers, others);
    assert_eq!(numbers.cmp(&others), one.cmp(&two));
    assert_eq!(HashSet::from([numbers.clone(), again, others]).len(), 2);
    let whole = Recipient::from(one.clone());
    assert_eq!(whole.pid(), numbers.pid());
    whole.send(Part::Text("all")).expect("there is room");
    procession::process::kill(one.pid());
    procession::process::kill(two.pid());
}
