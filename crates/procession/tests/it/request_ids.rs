//! Ids of requests that travel with messages.
//!
//! Method: processes report the request that they work for, at the points where it may change.

use std::error::Error;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::{Context as TaskContext, Waker};
use std::time::Duration;

use procession::behaviour::{Statem, StatemContext, StatemEvent, Transition};
use procession::machine::{Events, InitError, Process, Status, WaitingFor, Yields};
use procession::mailbox::request::{self, RequestId};
use procession::mailbox::{Event, WhenFull, send};
use procession::sync::oneshot;
use procession::{Context, Reply, Scheduler, SpawnOptions, sleep, spawn, start};

use crate::home::mpsc::{Receiver, Sender, channel};
use crate::home::thread;
use crate::scene::driven;

const LONG: Duration = Duration::from_secs(3600);

/// Creates a scheduler as `driven` does, on which ids travel.
fn carrying() -> Scheduler {
    Scheduler::builder()
        .worker_threads(1)
        .test_clock()
        .request_ids(true)
        .build()
        .expect("it builds")
}

fn id(number: u128) -> RequestId {
    RequestId::new(number).expect("it is not 0")
}

/// The number of a message, and the request that its receiver works for.
type Report = (u32, Option<RequestId>);

/// Reports the request of each message that it receives, until it is cancelled.
async fn report(mut cx: Context<u32>, reports: Sender<Report>) {
    while let Some(number) = cx.recv().await {
        reports.send((number, request::current())).expect("the test listens");
    }
}

/// Runs the scheduler until nothing happens, and returns what was reported.
fn reported(scheduler: &Scheduler, reports: &Receiver<Report>) -> Vec<Report> {
    scheduler.run_until_idle();
    reports.try_iter().collect()
}

#[test]
fn an_id_goes_on_with_each_message_call_timer_and_spawn() {
    let seen = carrying().block_on(async {
        let (reports, received) = channel();
        let last = start(move |cx| report(cx, reports));
        let address = last.address().clone();
        let middle = start(move |mut cx: Context<Reply<Option<RequestId>>>| async move {
            let Some(reply) = cx.recv().await else { return };
            address.send(1).expect("it is alive");
            send(address.pid(), 2_u32).expect("it is alive");
            address.send_after(LONG, 3).expect("there is a timer");
            let by_child = address.clone();
            let child = spawn(async move {
                sleep(LONG * 2).await;
                by_child.send(4)
            });
            reply.send(request::current());
            child.await.expect("it ends").expect("it is alive");
            address.map(|number: u32| number + 1).send(4).expect("it is alive");
        });
        let first = spawn({
            let middle = middle.address().clone();
            async move { request::scope(id(7), middle.call(|reply| reply, LONG)).await }
        });
        let replied = first.await.expect("it ends").map_err(|error| error.cause());
        assert_eq!(replied, Ok(Some(id(7))));
        middle.await.expect("it ends");
        last.cancel();
        last.await.expect("it ends");
        received.try_iter().collect::<Vec<_>>()
    });
    assert_eq!(seen, [1, 2, 3, 4, 5].map(|number| (number, Some(id(7)))));
}

#[test]
fn a_message_without_a_request_ends_the_request_before() {
    let scheduler = carrying();
    let (reports, received) = channel();
    let process = scheduler.start(move |cx| report(cx, reports));
    request::with(id(1), || process.send(1)).expect("it is alive");
    process.send(2).expect("it is alive");
    request::with(id(3), || process.send(3)).expect("it is alive");
    let expected = [(1, Some(id(1))), (2, None), (3, Some(id(3)))];
    assert_eq!(reported(&scheduler, &received), expected);
}

#[test]
fn a_process_that_waits_for_a_message_works_for_no_request() {
    let scheduler = carrying();
    let process = scheduler.start(|mut cx: Context<()>| async move {
        cx.recv().await;
        sleep(LONG).await;
        let before = request::current();
        assert!(cx.recv_timeout(LONG).await.is_err(), "there is no message");
        (before, request::current())
    });
    request::with(id(1), || process.send(())).expect("it is alive");
    assert_eq!(process.join(), Ok((Some(id(1)), None)));
}

#[test]
fn a_spawned_process_works_for_the_request_of_its_spawner_until_it_waits_for_a_message() {
    let scheduler = carrying();
    let process = request::with(id(1), || {
        scheduler.start(|mut cx: Context<()>| async move {
            let before = request::current();
            assert!(cx.recv_timeout(LONG).await.is_err(), "there is no message");
            (before, request::current())
        })
    });
    assert_eq!(process.join(), Ok((Some(id(1)), None)));
}

#[test]
fn a_message_that_is_left_for_later_keeps_its_request() {
    let scheduler = carrying();
    let (go, gone) = oneshot::channel();
    let process = scheduler.start(|mut cx: Context<u32>| async move {
        gone.await.expect("it is sent");
        let mut seen = Vec::new();
        // It passes the messages 1 and 2, and then one that was put aside.
        for wanted in [3, 2, 1] {
            let number = cx.recv_matching(|&number| number == wanted).await;
            seen.push((number, request::current()));
        }
        seen
    });
    for number in [1, 2, 3] {
        let sent = request::with(id(number.into()), || process.send(number));
        sent.expect("it is alive");
    }
    go.send(()).expect("it waits");
    let seen = [3, 2, 1].map(|number: u32| (Some(number), Some(id(number.into()))));
    assert_eq!(process.join(), Ok(seen.to_vec()));
}

/// Reports each message, and postpones all until 2 comes.
struct Postpones(Sender<Report>);

impl Statem for Postpones {
    type State = bool;
    type Message = u32;

    async fn handle(
        &mut self,
        event: StatemEvent<u32>,
        cx: &mut StatemContext<Self>,
    ) -> Transition<bool> {
        let StatemEvent::Message(number) = event else { return Transition::Keep };
        self.0.send((number, request::current())).expect("the test listens");
        if number == 2 {
            return Transition::Next(true);
        }
        if !cx.state() {
            cx.postpone(event);
        }
        Transition::Keep
    }
}

#[test]
fn a_postponed_message_keeps_its_request() {
    let scheduler = carrying();
    let (reports, received) = channel();
    let process = scheduler.start(|cx| Postpones(reports).run(false, cx));
    process.send(0).expect("it is alive");
    for number in [1, 2] {
        let sent = request::with(id(number.into()), || process.send(number));
        sent.expect("it is alive");
    }
    process.send(3).expect("it is alive");
    let seen = [0, 1, 2, 0, 1, 3];
    let expected = seen.map(|number| (number, RequestId::new((number % 3).into())));
    assert_eq!(reported(&scheduler, &received), expected);
}

#[test]
fn a_selective_receive_that_finds_nothing_leaves_the_request() {
    let scheduler = carrying();
    let process = scheduler.start(|mut cx: Context<u32>| async move {
        let first = cx.recv().await;
        let found = cx.recv_matching(|&number| number == 9);
        let found = procession::time::timeout(LONG, found).await;
        assert!(found.is_err(), "there is no such message");
        let between = request::current();
        (first, between, cx.recv().await, request::current())
    });
    for number in [1, 2] {
        let sent = request::with(id(number.into()), || process.send(number));
        sent.expect("it is alive");
    }
    assert_eq!(process.join(), Ok((Some(1), None, Some(2), Some(id(2)))));
}

#[test]
fn bounded_mailboxes_carry_ids_with_each_policy() {
    for when_full in [WhenFull::Reject, WhenFull::Wait, WhenFull::DropOldest, WhenFull::DropNewest]
    {
        let scheduler = carrying();
        let (reports, received) = channel();
        let process = SpawnOptions::new()
            .on(&scheduler)
            .mailbox(2, when_full)
            .start(move |cx| report(cx, reports));
        let address = process.address().clone();
        let send = |number: u32| request::with(id(number.into()), || address.send(number));
        send(1).expect("there is room");
        send(2).expect("there is room");
        let third = send(3);
        let accepts = matches!(when_full, WhenFull::DropOldest | WhenFull::DropNewest);
        assert_eq!(third.is_ok(), accepts, "{when_full:?}");
        // Polled before the process runs.
        let waits = request::scope(id(4), address.send_wait(4));
        let mut waits = std::pin::pin!(waits);
        let mut context = TaskContext::from_waker(Waker::noop());
        let polled = waits.as_mut().poll(&mut context);
        assert_eq!(polled.is_pending(), when_full == WhenFull::Wait, "{when_full:?}");
        let expected = match when_full {
            WhenFull::Reject | WhenFull::DropNewest => vec![1, 2],
            WhenFull::Wait => vec![1, 2, 4],
            _ => vec![3, 4],
        };
        let expected: Vec<_> = expected.into_iter().map(|n: u32| (n, Some(id(n.into())))).collect();
        assert_eq!(reported(&scheduler, &received), expected, "{when_full:?}");
    }
}

/// Reports the request of each event.
struct Machine(Sender<(u32, Option<RequestId>)>);

impl Process for Machine {
    type Input = ();
    type Message = u32;
    type Output = ();

    fn init(&mut self, _: &str, (): ()) -> Result<(), InitError> {
        Ok(())
    }

    fn step(
        &mut self,
        events: &mut Events<u32>,
        _: &mut Yields<'_>,
    ) -> Result<Status<()>, Box<dyn Error + Send + Sync>> {
        for event in events {
            if let Event::Message(number) = event {
                self.0.send((number, request::current()))?;
                if number == 9 {
                    return Ok(Status::Done(()));
                }
            }
        }
        Ok(Status::Wait(WaitingFor::Messages))
    }
}

#[test]
fn a_state_machine_works_for_the_request_of_the_event_that_it_took_last() {
    for mailbox in [None, Some((16, WhenFull::Reject))] {
        let scheduler = carrying();
        let (reports, received) = channel();
        let mut options = SpawnOptions::new().on(&scheduler);
        if let Some((capacity, when_full)) = mailbox {
            options = options.mailbox(capacity, when_full);
        }
        let process = options.try_start_machine(Machine(reports), "", ()).expect("it accepts");
        for number in [1, 2, 9] {
            let sent = request::with(id(number.into()), || process.send(number));
            sent.expect("it is alive");
        }
        let expected = [1, 2, 9].map(|number: u32| (number, Some(id(number.into()))));
        assert_eq!(reported(&scheduler, &received), expected);
    }
}

#[test]
fn a_coroutine_keeps_its_request_while_it_is_suspended() {
    let builder = Scheduler::builder().worker_threads(1).test_clock().request_ids(true);
    // SAFETY: none of the coroutines here holds a scoped thread-local pointer across a wait.
    let scheduler = unsafe { builder.enable_coroutines() }.build().expect("it builds");
    let process = SpawnOptions::new()
        .on(&scheduler)
        .try_start_coroutine(|mut cx: procession::coroutine::Context<u32>| {
            let mut seen = Vec::new();
            while seen.len() < 2 {
                let number = cx.recv();
                procession::coroutine::sleep(LONG);
                request::with(id(8), || {
                    procession::coroutine::sleep(LONG);
                    seen.push((number, request::current()));
                });
                seen.push((number, request::current()));
            }
            seen
        })
        .expect("there are coroutines");
    request::with(id(7), || process.send(1)).expect("it is alive");
    let seen = vec![(Some(1), Some(id(8))), (Some(1), Some(id(7)))];
    assert_eq!(process.join(), Ok(seen));
}

#[test]
fn messages_with_ids_count_and_come_back_as_any_other() {
    let scheduler = carrying();
    let (go, gone) = oneshot::channel::<()>();
    let process = scheduler.start(|mut cx: Context<u32>| async move {
        gone.await.expect("it is sent");
        cx.recv().await
    });
    for number in 1..=3 {
        request::with(id(1), || process.send(number)).expect("it is alive");
    }
    let detail = scheduler.detail(process.pid()).expect("it is alive");
    assert_eq!(detail.mailbox, 3);
    go.send(()).expect("it waits");
    let address = process.address().clone();
    assert_eq!(process.join(), Ok(Some(1)));
    let refused = request::with(id(1), || address.send(4)).expect_err("it has ended");
    assert_eq!(refused.into_inner(), 4);
    let counted = scheduler.snapshot();
    let counts = (counted.messages_sent, counted.messages_received, counted.messages_discarded);
    assert_eq!(counts, (3, 1, 2));
}

#[test]
fn no_id_travels_unless_it_is_asked_for() {
    let scheduler = driven();
    let (reports, received) = channel();
    let process = request::with(id(1), || scheduler.start(move |cx| report(cx, reports)));
    request::with(id(1), || process.send(1)).expect("it is alive");
    assert_eq!(reported(&scheduler, &received), [(1, None)]);
}

#[test]
fn a_thread_works_for_a_request_until_the_function_returns_or_panics() {
    let works = || {
        assert_eq!(request::current(), None);
        request::with(id(1), || {
            let panicked =
                catch_unwind(AssertUnwindSafe(|| request::with(id(2), || panic!("as told"))));
            assert!(panicked.is_err());
            assert_eq!(request::current(), Some(id(1)));
        });
        assert_eq!(request::current(), None);
    };
    thread::scope(|scope| scope.spawn(works).join()).expect("it does not panic");
}
