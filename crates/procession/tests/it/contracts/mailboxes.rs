//! Bounded mailboxes, dead letters, and calls into both.

use crate::home::mpsc;
use std::sync::Arc;

use procession::machine::{Events, InitError, Process, Status, WaitingFor, Yields};
use procession::mailbox::relay::{self, DeadCause};
use procession::mailbox::{Event, WhenFull};
use procession::{CallError, Context, Exit, Reply, Scheduler, SpawnOptions, sleep, yield_now};
use procession_sync::Mutex;
use procession_sync::atomic::AtomicU64;
use procession_sync::atomic::Ordering::Relaxed;

use super::HOUR;
use crate::scene::{assert_conserved, driven, threaded};

/// The dead letters, with their causes.
type Letters = Arc<Mutex<Vec<(DeadCause, u32)>>>;

/// Creates a driven scheduler that keeps its dead letters, which are numbers.
fn with_letters() -> (Scheduler, Letters) {
    let letters = Letters::default();
    let keeps = Arc::clone(&letters);
    let builder =
        Scheduler::builder().worker_threads(1).test_clock().on_dead_letter(move |letter| {
            let number =
                letter.message.downcast_ref::<u32>().copied().expect("all messages are numbers");
            keeps.lock().push((letter.cause, number));
        });
    (builder.build().expect("it starts no thread"), letters)
}

fn letters(letters: &Letters) -> Vec<(DeadCause, u32)> {
    std::mem::take(&mut *letters.lock())
}

fn bounded(scheduler: &Scheduler, capacity: u32, when_full: WhenFull) -> SpawnOptions {
    SpawnOptions::new().on(scheduler).mailbox(capacity, when_full)
}

/// Receives everything in its mailbox, after an hour.
async fn collects(mut cx: Context<u32>) -> Vec<u32> {
    sleep(HOUR).await;
    let mut received = Vec::new();
    while let Ok(n) = cx.try_recv() {
        received.push(n);
    }
    received
}

#[test]
fn what_was_skipped_is_in_the_mailbox_still() {
    let scheduler = driven();
    let child =
        bounded(&scheduler, 4, WhenFull::DropOldest).start(|mut cx: Context<u32>| async move {
            assert_eq!(cx.recv_matching(|&n| n == 3).await, Some(3));
            sleep(HOUR).await;
        });
    for n in 0..5 {
        child.send(n).expect("it lives");
    }
    let mailbox = || scheduler.snapshot().processes[0].mailbox;
    assert_eq!(mailbox(), 4, "the oldest has made room");
    scheduler.run_until_idle();
    assert_eq!(mailbox(), 3, "one was received, two skipped, one not looked at");
    procession::process::kill(child.pid());
    scheduler.run_until_idle();
    assert_eq!(mailbox(), 0, "it has ended");
    assert_eq!(child.join(), Err(Exit::Killed));
}

#[test]
fn a_full_mailbox_does_what_its_policy_says() {
    for (when_full, refused, received, left_over) in [
        (WhenFull::Reject, vec![3, 4], vec![0, 1, 2], vec![]),
        (WhenFull::Wait, vec![3, 4], vec![0, 1, 2], vec![]),
        (WhenFull::DropNewest, vec![], vec![0, 1, 2], vec![3, 4]),
        (WhenFull::DropOldest, vec![], vec![2, 3, 4], vec![0, 1]),
    ] {
        let (scheduler, dead) = with_letters();
        let child = bounded(&scheduler, 3, when_full).start(collects);
        let back: Vec<u32> = (0..5)
            .filter_map(|n| child.send(n).err())
            .map(|error| {
                assert!(
                    error.is_full() && error.to_string().ends_with("its mailbox is full"),
                    "{error}"
                );
                error.into_inner()
            })
            .collect();
        assert_eq!(back, refused, "{when_full:?}");
        assert_eq!(
            child.try_send(9).map_err(|error| error.into_inner()),
            Err(9),
            "whatever the policy"
        );
        let snapshot = scheduler.snapshot();
        let mailbox = snapshot.processes[0].bounded.expect("it is bounded");
        assert_eq!((mailbox.capacity, mailbox.when_full, mailbox.waiting), (3, when_full, 0));
        assert_eq!(
            (mailbox.refused, mailbox.dropped),
            (refused.len() as u64 + 1, left_over.len() as u64)
        );
        assert_eq!(
            (snapshot.processes[0].mailbox, snapshot.processes[0].mailbox_high_water),
            (3, 3)
        );
        assert_eq!(child.join(), Ok(received), "{when_full:?}");
        let expected: Vec<_> = left_over.into_iter().map(|n| (DeadCause::Full, n)).collect();
        assert_eq!(letters(&dead), expected);
        assert_conserved(&scheduler);
    }
}

#[test]
fn what_is_discarded_on_behalf_of_a_process_is_a_dead_letter_of_its_scheduler() {
    let (scheduler, dead) = with_letters();
    let child = scheduler.start(collects);
    let pid = child.pid();
    relay::discard(pid, DeadCause::Full, 1_u32);
    assert_eq!(letters(&dead), [(DeadCause::Full, 1)]);
    assert_eq!(child.join(), Ok(vec![]));
    relay::discard(pid, DeadCause::Late, 2_u32);
    assert_eq!(letters(&dead), [(DeadCause::Late, 2)], "also after its end");
    assert_conserved(&scheduler);
}

#[test]
fn a_mailbox_that_kills_ends_its_process() {
    let (scheduler, dead) = with_letters();
    let child = bounded(&scheduler, 1, WhenFull::Kill).start(collects);
    child.send(0).expect("there is room");
    let error = child.send(1).expect_err("there is none");
    assert!(error.is_full());
    assert_eq!(error.into_inner(), 1);
    assert_eq!(child.join(), Err(Exit::MailboxFull));
    assert_eq!(letters(&dead), [(DeadCause::Ended, 0)]);
    assert_conserved(&scheduler);
}

#[test]
fn senders_that_wait_for_room_are_served_in_order() {
    let scheduler = driven();
    let child = bounded(&scheduler, 2, WhenFull::Wait).start(|mut cx: Context<u32>| async move {
        let mut received = Vec::new();
        for _ in 0..20 {
            sleep(HOUR).await;
            received.extend(cx.recv().await);
        }
        received
    });
    let senders: Vec<_> = (0..20)
        .map(|n| {
            let address = child.address().clone();
            scheduler.spawn(async move { address.send_wait(n).await })
        })
        .collect();
    let received = child.join().expect("it ends");
    // The messages came in the order of the senders' first steps.
    assert_eq!(received.len(), 20);
    for sender in senders {
        assert_eq!(sender.join(), Ok(Ok(())));
    }
    assert_conserved(&scheduler);
}

#[test]
fn a_sender_that_gives_up_waiting_has_not_sent() {
    let scheduler = driven();
    let child = bounded(&scheduler, 1, WhenFull::Wait).start(collects);
    child.send(0).expect("there is room");
    let address = child.address().clone();
    let gives_up = scheduler.spawn(async move {
        let first = procession::timeout(HOUR / 2, address.send_wait(1)).await;
        first.is_err()
    });
    assert_eq!(gives_up.join(), Ok(true));
    assert_eq!(child.join(), Ok(vec![0]));
    assert_conserved(&scheduler);
}

#[test]
fn a_waiting_sender_gets_its_message_back_when_the_receiver_ends() {
    let scheduler = driven();
    let child = bounded(&scheduler, 1, WhenFull::Wait)
        .start(|_: Context<u32>| async move { sleep(HOUR).await });
    child.send(0).expect("there is room");
    let address = child.address().clone();
    let waits = scheduler.spawn(async move { address.send_wait(1).await });
    assert_eq!(child.join(), Ok(()));
    let error = waits.join().expect("it ends").expect_err("there is no receiver");
    assert!(error.is_ended());
    assert_eq!(error.into_inner(), 1);
    assert_conserved(&scheduler);
}

#[test]
fn waiting_on_ones_own_full_mailbox_is_an_error() {
    let scheduler = driven();
    let child = bounded(&scheduler, 1, WhenFull::Wait).start(|cx: Context<u32>| async move {
        let own = cx.address();
        own.send_wait(1).await.expect("there is room");
        own.send_wait(2).await
    });
    let pid = child.pid();
    let text =
        format!("cannot wait for room in the mailbox of {pid}: it is the process's own, and full");
    let error = child.join().expect("it returns").expect_err("it would wait for itself");
    assert_eq!((error.to_string(), error.into_inner()), (text, 2));
}

#[test]
fn threads_wait_for_room_as_well() {
    const EACH: u32 = 500;
    let scheduler = threaded(2);
    let child = bounded(&scheduler, 4, WhenFull::Wait).start(|mut cx: Context<u32>| async move {
        let mut sum = 0;
        for _ in 0..3 * EACH {
            sum += cx.recv().await.expect("they send so many");
        }
        sum
    });
    crate::home::thread::scope(|scope| {
        for _ in 0..3 {
            let address = child.address().clone();
            scope.spawn(move || {
                (1..=EACH).for_each(|n| address.send_blocking(n).expect("it receives"))
            });
        }
    });
    assert_eq!(child.join(), Ok(3 * EACH * (EACH + 1) / 2));
    assert_conserved(&scheduler);
}

#[test]
fn what_the_runtime_tells_has_room_in_a_full_mailbox() {
    let scheduler = driven();
    let child = bounded(&scheduler, 1, WhenFull::Reject).start(|mut cx: Context<u32>| async move {
        cx.trap_exits(true);
        let ends = SpawnOptions::new().link().monitor().spawn(async {});
        sleep(HOUR).await;
        drop(ends);
        let mut told = Vec::new();
        while told.len() < 3 {
            told.push(match cx.recv_event().await {
                Some(Event::Message(n)) => format!("message {n}"),
                Some(Event::Down(_)) => String::from("down"),
                Some(Event::Exit(_)) => String::from("exit"),
                _ => unreachable!("it is not cancelled"),
            });
        }
        told
    });
    child.send(1).expect("there is room");
    assert!(child.send(2).is_err());
    let told = child.join().expect("it ends");
    assert_eq!(told[0], "message 1", "in the order in which they came");
    assert_conserved(&scheduler);
}

/// A state machine that adds up its messages.
struct Sum(u32);

impl Process for Sum {
    type Input = ();
    type Message = u32;
    type Output = u32;

    fn init(&mut self, _: &str, (): ()) -> Result<(), InitError> {
        Ok(())
    }

    fn step(
        &mut self,
        events: &mut Events<u32>,
        _: &mut Yields<'_>,
    ) -> Result<Status<u32>, Box<dyn std::error::Error + Send + Sync>> {
        for event in events {
            match event {
                Event::Message(n) => self.0 += n,
                _ => return Ok(Status::Done(self.0)),
            }
        }
        Ok(Status::Wait(WaitingFor::Messages))
    }
}

#[test]
fn a_state_machine_has_a_bounded_mailbox_as_well() {
    let scheduler = threaded(2);
    let sum = bounded(&scheduler, 8, WhenFull::Wait)
        .try_start_machine(Sum(0), "", ())
        .expect("it takes any");
    let senders: Vec<_> = (0..4)
        .map(|_| {
            let address = sum.address().clone();
            scheduler.spawn(async move {
                for n in 1..=1000 {
                    address.send_wait(n).await.expect("it receives");
                    if n % 10 == 0 {
                        yield_now().await;
                    }
                }
            })
        })
        .collect();
    for sender in senders {
        assert_eq!(sender.join(), Ok(()));
    }
    sum.cancel();
    assert_eq!(sum.join(), Ok(4 * 500_500));
    assert_conserved(&scheduler);
}

#[test]
fn a_mailbox_has_room_for_one_at_least() {
    let scheduler = driven();
    let error = bounded(&scheduler, 0, WhenFull::Reject)
        .try_start(collects)
        .map(drop)
        .expect_err("it is 0");
    assert_eq!(
        error.to_string(),
        "cannot start a process: the capacity of its mailbox is 0, but must be at least 1"
    );
}

#[test]
fn a_call_waits_for_room_or_is_refused() {
    let scheduler = driven();
    for when_full in [WhenFull::Wait, WhenFull::Reject] {
        let server =
            bounded(&scheduler, 1, when_full).start(|mut cx: Context<Reply<u32>>| async move {
                sleep(HOUR).await;
                let mut served = 0;
                while let Ok(Some(reply)) = cx.recv_timeout(HOUR).await {
                    served += 1;
                    reply.send(served);
                }
                served
            });
        let calls: Vec<_> = (0..3)
            .map(|_| {
                let address = server.address().clone();
                scheduler.spawn(async move { address.call(|reply| reply, 2 * HOUR).await })
            })
            .collect();
        let answers: Vec<_> = calls.into_iter().map(|call| call.join().expect("it ends")).collect();
        let refused = answers
            .iter()
            .filter(|answer| matches!(answer, Err(CallError::Refused(error)) if error.is_full()));
        let expected = if when_full == WhenFull::Wait { 3 } else { 1 };
        assert_eq!(refused.count(), 3 - expected as usize);
        assert_eq!(server.join(), Ok(expected));
    }
}

#[test]
fn the_last_messages_of_a_process_are_dead_letters() {
    let (scheduler, dead) = with_letters();
    let child = scheduler.start(|mut cx: Context<u32>| async move {
        let _ = cx.recv_matching(|n| *n == 2).await;
    });
    for n in 0..5 {
        child.send(n).expect("it is there");
    }
    let address = child.address().clone();
    address.send_after(HOUR, 9).expect("it is there");
    assert_eq!(child.join(), Ok(()));
    let mut left: Vec<_> = letters(&dead);
    left.sort_by_key(|(_, n)| *n);
    let ended = |n| (DeadCause::Ended, n);
    assert_eq!(left, [ended(0), ended(1), ended(3), ended(4)]);
    scheduler.block_on(sleep(2 * HOUR));
    assert_eq!(letters(&dead), [(DeadCause::Late, 9)]);
    assert!(address.send_after(HOUR, 10).expect_err("it has ended").is_ended());
    assert_conserved(&scheduler);
}

#[test]
fn a_dead_letter_may_panic_when_it_is_looked_at() {
    let count = Arc::new(AtomicU64::new(0));
    let counts = Arc::clone(&count);
    let builder = Scheduler::builder().worker_threads(1).test_clock().on_dead_letter(move |_| {
        counts.fetch_add(1, Relaxed);
        crate::scene::panic_quietly("at a letter")
    });
    let scheduler = builder.build().expect("it starts no thread");
    let (dropped, drops) = mpsc::channel::<()>();
    let child = scheduler.start(|_: Context<mpsc::Sender<()>>| async {});
    for _ in 0..3 {
        child.send(dropped.clone()).expect("it is there");
    }
    drop(dropped);
    assert_eq!(child.join(), Ok(()));
    assert_eq!(count.load(Relaxed), 3);
    assert!(drops.recv().is_err(), "all were dropped");
    assert_conserved(&scheduler);
}

/// A state machine that waits for a long sleep, and monitors a process meanwhile. The down wakes it
/// without a step.
struct KeepsMessages(procession::Pid);

impl Process for KeepsMessages {
    type Input = ();
    type Message = u32;
    type Output = ();

    fn init(&mut self, _: &str, (): ()) -> Result<(), InitError> {
        Ok(())
    }

    fn step(
        &mut self,
        _: &mut Events<u32>,
        yields: &mut Yields<'_>,
    ) -> Result<Status<()>, Box<dyn std::error::Error + Send + Sync>> {
        yields.monitor(self.0);
        yields.command(procession::machine::CommandId::SLEEP, 0, 2 * HOUR);
        Ok(Status::Wait(WaitingFor::Completions))
    }
}

#[test]
fn messages_that_a_state_machine_was_not_handed_are_dead_letters() {
    let (scheduler, dead) = with_letters();
    let watched = super::waits(&scheduler);
    let pid = watched.pid();
    let machine = SpawnOptions::new().on(&scheduler).try_start_machine(KeepsMessages(pid), "", ());
    let machine = machine.expect("it starts");
    // Half an hour later the machine has looked into its mailbox, and goes on waiting.
    let address = machine.address().clone();
    let ended = scheduler.spawn(async move {
        sleep(HOUR / 4).await;
        address.send(7).expect("it waits");
        procession::process::send_exit(pid, Exit::Shutdown);
        sleep(HOUR / 4).await;
    });
    assert_eq!(ended.join(), Ok(()));
    procession::process::kill(machine.pid());
    assert_eq!(machine.join(), Err(Exit::Killed));
    assert_eq!(letters(&dead), [(DeadCause::Ended, 7)]);
    assert_conserved(&scheduler);
}

#[test]
fn messages_that_a_state_machine_keeps_take_their_room() {
    let scheduler = crate::scene::driven();
    let watched = super::waits(&scheduler);
    let pid = watched.pid();
    let machine = SpawnOptions::new().on(&scheduler).mailbox(2, WhenFull::Reject);
    let machine = machine.try_start_machine(KeepsMessages(pid), "", ()).expect("it starts");
    scheduler.run_until_idle();
    for n in 0..2 {
        machine.send(n).expect("there is room");
    }
    // The end of the monitored process makes the machine look into its mailbox, but not step.
    procession::process::send_exit(pid, Exit::Shutdown);
    assert!(watched.join().is_err());
    scheduler.run_until_idle();
    assert!(machine.send(2).expect_err("it has been handed none").is_full());
    procession::process::kill(machine.pid());
    assert_eq!(machine.join(), Err(Exit::Killed));
    assert_conserved(&scheduler);
}
