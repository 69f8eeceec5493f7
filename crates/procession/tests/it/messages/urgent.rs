//! Urgent messages and notices: their order, their place in a bounded mailbox, and what comes back.

use std::sync::Arc;

use procession::behaviour::{Info, Server, ServerContext};
use procession::machine::{CommandId, Events, InitError, Process, Status, WaitingFor, Yields};
use procession::mailbox::relay::DeadLetter;
use procession::mailbox::{Event, Recipient, Urgent, WhenFull, send_urgent};
use procession::process::{Named, kill, send_exit};
use procession::{Address, Context, Exit, Scheduler, SpawnOptions, spawn, start, yield_now};
use procession_sync::Mutex;

use crate::scene::{assert_conserved, driven, threaded};

fn urgent() -> SpawnOptions {
    SpawnOptions::new().urgent(Urgent::messages())
}

/// Sends ordinary messages from 0 on and urgent messages from 100 on, in turns.
fn send_both(address: &Address<u32>, each: u32) {
    for number in 0..each {
        address.send(number).expect("there is room");
        address.send_urgent(100 + number).expect("there is room");
    }
}

#[test]
fn urgent_messages_come_first_and_both_orders_are_kept() {
    let scheduler = driven();
    for mailbox in [None, Some(20)] {
        let options = urgent().on(&scheduler);
        let options = match mailbox {
            Some(capacity) => options.mailbox(capacity, WhenFull::Reject),
            None => options,
        };
        let process = options.start(|mut cx: Context<u32>| async move {
            let mut received = Vec::new();
            while let Some(number) = cx.recv().await {
                received.push(number);
                if received.len() == 5 {
                    send_both(&cx.address(), 2);
                }
            }
            received
        });
        send_both(process.address(), 3);
        scheduler.run_until_idle();
        process.cancel();
        let received = scheduler.block_on(process);
        assert_eq!(received, Ok(vec![100, 101, 102, 0, 1, 100, 101, 2, 0, 1]));
    }
}

#[test]
fn an_urgent_message_overtakes_what_a_selective_receive_has_left() {
    let scheduler = driven();
    let process = urgent().on(&scheduler).start(|mut cx: Context<u32>| async move {
        let wanted = cx.recv_matching(|&number| number == 2).await;
        // 0, 1 and 3 were left.
        let own = cx.address();
        own.send_urgent(100).expect("it lives");
        own.send(4).expect("it lives");
        own.send_urgent(101).expect("it lives");
        let left = cx.recv_matching(|&number| number >= 101).await;
        own.send_urgent(102).expect("it lives");
        let even = cx.recv_matching(|&number| number % 2 == 0).await;
        let mut rest = Vec::new();
        for _ in 0..5 {
            rest.push(cx.recv().await.expect("it is there"));
        }
        (wanted, left, even, rest, cx.try_recv().is_err())
    });
    for number in [0, 1, 3, 2] {
        process.send(number).expect("it lives");
    }
    let seen = scheduler.block_on(process);
    assert_eq!(seen, Ok((Some(2), Some(101), Some(100), vec![102, 0, 1, 3, 4], true)));
    assert_conserved(&scheduler);
}

#[test]
fn a_full_mailbox_has_one_urgent_place_and_then_refuses_whatever_the_policy() {
    for when_full in [
        WhenFull::Reject,
        WhenFull::Wait,
        WhenFull::DropNewest,
        WhenFull::DropOldest,
        WhenFull::Kill,
    ] {
        let scheduler = driven();
        let options = urgent().on(&scheduler).mailbox(2, when_full);
        let process = options.start(|mut cx: Context<u32>| async move {
            [cx.recv().await, cx.recv().await, cx.recv().await]
        });
        process.send(1).expect("there is room");
        process.send(2).expect("there is room");
        process.send_urgent(100).expect("there is one place more");
        let refused = process.send_urgent(101).expect_err("it is occupied");
        assert!(refused.is_full() && !refused.is_not_urgent());
        assert_eq!(refused.into_inner(), 101);
        assert_eq!(scheduler.block_on(process), Ok([Some(100), Some(1), Some(2)]));
        assert_conserved(&scheduler);
    }
}

#[test]
fn an_urgent_message_that_is_not_taken_comes_back() {
    let scheduler = driven();
    scheduler.block_on(async {
        let takes_none = start(|mut cx: Context<u32>| async move { cx.recv().await });
        let refused = takes_none.send_urgent(1).expect_err("it takes none");
        assert!(refused.is_not_urgent());
        assert!(refused.to_string().ends_with("it takes no urgent messages"), "{refused}");
        let bounded = SpawnOptions::new().mailbox(1, WhenFull::Reject);
        let bounded = bounded.start(|mut cx: Context<u32>| async move { cx.recv().await });
        assert!(bounded.send_urgent(1).expect_err("it takes none").is_not_urgent());
        let pid = takes_none.pid();
        assert!(send_urgent(pid, "text").expect_err("a wrong type").is_wrong_type());
        assert!(send_urgent(pid, 1_u32).expect_err("it takes none").is_not_urgent());
        let named = Named::<u32>::new("nobody");
        assert_eq!(named.send_urgent(7).expect_err("nobody has it").into_inner(), 7);

        let takes = urgent().name("urgent").start(|mut cx: Context<u32>| async move {
            [cx.recv().await, cx.recv().await, cx.recv().await]
        });
        let recipient: Recipient<u32> = takes.map(|number: u32| number + 10);
        recipient.send(1).expect("it lives");
        Named::<u32>::new("urgent").send_urgent(2).expect("it lives");
        send_urgent(takes.pid(), 3_u32).expect("it lives");
        let address = takes.address().clone();
        assert_eq!(takes.await, Ok([Some(2), Some(3), Some(11)]));
        assert!(address.send_urgent(4).expect_err("it has ended").is_ended());
        let refused = SpawnOptions::new().urgent(Urgent::messages()).try_spawn(async {});
        assert!(refused.is_err(), "it has no mailbox");
    });
    assert_conserved(&scheduler);
}

#[test]
fn chosen_notices_are_urgent_and_others_keep_their_place() {
    let scheduler = driven();
    for (chosen, expected) in [
        (Urgent::messages(), "m0 m1 down exit"),
        (Urgent::messages().with_downs(), "down m0 m1 exit"),
        (Urgent::messages().with_exits(), "exit m0 m1 down"),
        (Urgent::messages().with_exits().with_downs(), "down exit m0 m1"),
    ] {
        let options = SpawnOptions::new().on(&scheduler).urgent(chosen);
        let process = options.start(|mut cx: Context<u32>| async move {
            cx.trap_exits(true);
            let target = spawn(std::future::pending::<()>());
            let own = cx.address();
            own.send(0).expect("it lives");
            let _monitor = cx.monitor(target.pid());
            own.send(1).expect("it lives");
            kill(target.pid());
            drop(target.await);
            send_exit(own.pid(), Exit::failed("asked"));
            let mut events = Vec::new();
            for _ in 0..4 {
                events.push(match cx.recv_event().await {
                    Some(Event::Message(number)) => format!("m{number}"),
                    Some(Event::Down(_)) => "down".into(),
                    Some(Event::Exit(_)) => "exit".into(),
                    other => format!("{other:?}"),
                });
            }
            events.join(" ")
        });
        assert_eq!(scheduler.block_on(process), Ok(expected.into()));
    }
}

#[test]
fn a_full_mailbox_is_told_once_and_urgently() {
    let scheduler = driven();
    let options = SpawnOptions::new().on(&scheduler).mailbox(2, WhenFull::Reject);
    let options = options.urgent(Urgent::messages().with_full_mailbox());
    let process = options.start(|mut cx: Context<u32>| async move {
        let mut events = Vec::new();
        while let Some(event) = cx.recv_event().await {
            events.push(match event {
                Event::Message(number) => Some(number),
                Event::MailboxFull => None,
                other => panic!("{other:?}"),
            });
        }
        events
    });
    for number in 0..5 {
        assert_eq!(process.send(number).is_ok(), number < 2);
    }
    scheduler.run_until_idle();
    process.send(5).expect("there is room");
    scheduler.run_until_idle();
    for number in 6..9 {
        assert_eq!(process.send(number).is_ok(), number < 8);
    }
    scheduler.run_until_idle();
    process.cancel();
    let events = scheduler.block_on(process);
    assert_eq!(events, Ok(vec![None, Some(0), Some(1), Some(5), None, Some(6), Some(7)]));
}

/// Collects its messages in steps, first while it waits for a completion.
struct Collects(Vec<u32>);

impl Process for Collects {
    type Message = u32;
    type Input = ();
    type Output = Vec<u32>;

    fn init(&mut self, _: &str, (): ()) -> Result<(), InitError> {
        Ok(())
    }

    fn step(
        &mut self,
        events: &mut Events<u32>,
        yields: &mut Yields<'_>,
    ) -> Result<Status<Vec<u32>>, Box<dyn std::error::Error + Send + Sync>> {
        if self.0.is_empty() {
            self.0.push(0);
            yields.command(CommandId::SLEEP, 1, std::time::Duration::from_millis(5));
            return Ok(Status::Wait(WaitingFor::Completions));
        }
        for event in events {
            match event {
                Event::Message(number) => self.0.push(number),
                Event::Completion { .. } => self.0.push(99),
                Event::Cancel => return Ok(Status::Done(std::mem::take(&mut self.0))),
                _ => {}
            }
        }
        Ok(Status::Wait(WaitingFor::Messages))
    }
}

#[test]
fn a_state_machine_receives_urgent_messages_first() {
    for request_ids in [false, true] {
        let builder = Scheduler::builder().worker_threads(1).test_clock().request_ids(request_ids);
        let scheduler = builder.build().expect("it starts no thread");
        let machine = urgent().on(&scheduler).try_start_machine(Collects(Vec::new()), "", ());
        let machine = machine.expect("it is not refused");
        let address = machine.address().clone();
        scheduler.block_on(async {
            yield_now().await;
            // The machine takes these while it waits for its sleep, in several looks.
            for number in [1, 2, 3] {
                address.send(number).expect("it lives");
                yield_now().await;
                address.send_urgent(100 + number).expect("it lives");
                yield_now().await;
            }
        });
        scheduler.run_until_idle();
        machine.cancel();
        let collected = scheduler.block_on(machine).expect("it does not fail");
        let messages: Vec<_> = collected.into_iter().filter(|&number| number != 99).collect();
        assert_eq!(messages, [0, 101, 102, 103, 1, 2, 3]);
        assert_conserved(&scheduler);
    }
}

/// Notes what it handles.
struct Notes(Arc<Mutex<Vec<String>>>);

impl Server for Notes {
    type Message = u32;

    async fn handle(&mut self, number: u32, _: &mut ServerContext<Self>) {
        self.0.lock().push(number.to_string());
    }

    async fn handle_info(&mut self, info: Info, _: &mut ServerContext<Self>) {
        self.0.lock().push(if info == Info::MailboxFull { "full".into() } else { "other".into() });
    }
}

#[test]
fn a_server_handles_urgent_messages_and_notices_first() {
    let scheduler = driven();
    let notes = Arc::new(Mutex::new(Vec::new()));
    let server = Notes(Arc::clone(&notes));
    let options = SpawnOptions::new().on(&scheduler).mailbox(2, WhenFull::Reject);
    let options = options.urgent(Urgent::messages().with_full_mailbox());
    let server = options.start(|cx| server.serve(cx));
    send_both(server.address(), 1);
    server.send(1).expect_err("it is full");
    scheduler.run_until_idle();
    assert_eq!(*notes.lock(), ["100", "full", "0"]);
}

#[test]
fn the_rest_of_an_ended_process_is_dead_with_urgent_messages_first() {
    let dead = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&dead);
    let builder = Scheduler::builder().worker_threads(1).test_clock();
    let builder = builder.on_dead_letter(move |letter: DeadLetter<'_>| {
        seen.lock().push(letter.message.downcast_ref::<u32>().copied());
    });
    let scheduler = builder.build().expect("it starts no thread");
    let process = urgent().on(&scheduler).start(|_: Context<u32>| async move {
        yield_now().await;
    });
    send_both(process.address(), 2);
    assert_eq!(scheduler.block_on(process), Ok(()));
    assert_eq!(*dead.lock(), [Some(100), Some(101), Some(0), Some(1)]);
    assert_conserved(&scheduler);
}

#[test]
fn no_message_of_many_senders_is_lost_and_each_order_is_kept() {
    const SENDERS: u32 = 4;
    const EACH: u32 = 2000;
    let scheduler = threaded(2);
    let process = urgent().on(&scheduler).mailbox(64, WhenFull::Wait);
    let process = process.start(|mut cx: Context<(u32, u32, bool)>| async move {
        let mut next = [[0; 2]; SENDERS as usize];
        for _ in 0..SENDERS * EACH {
            let (sender, number, is_urgent) = cx.recv().await.expect("more is sent");
            let last = &mut next[sender as usize][usize::from(is_urgent)];
            assert!(number >= *last, "{number} of {sender} came after {last}");
            *last = number + 1;
        }
    });
    let senders: Vec<_> = (0..SENDERS)
        .map(|sender| {
            let address = process.address().clone();
            scheduler.spawn(async move {
                for number in 0..EACH {
                    let is_urgent = number % 3 == 0;
                    let mut message = (sender, number, is_urgent);
                    if !is_urgent {
                        address.send_wait(message).await.expect("it lives");
                        continue;
                    }
                    while let Err(error) = address.send_urgent(message) {
                        message = error.into_inner();
                        yield_now().await;
                    }
                }
            })
        })
        .collect();
    assert_eq!(process.join(), Ok(()));
    assert!(senders.into_iter().all(|sender| sender.join() == Ok(())));
    assert_conserved(&scheduler);
}
