//! Traces of the headers of messages.
//!
//! Method: the scheduler is driven by the test, on a test clock, so that a time that is over is
//! over at once.

use std::any::type_name;
use std::time::Duration;

use procession::mailbox::request::{self, RequestId};
use procession::observe::{AskError, MessageDirection, TracedMessage};
use procession::{Context, Exit, Pid, Scheduler, SpawnOptions, spawn, start, yield_now};

use super::LONG;
use crate::scene::{assert_conserved, driven};

const MINUTE: Duration = Duration::from_secs(60);

/// Direction, other process, name of the type, and bytes.
type Seen = (MessageDirection, Option<Pid>, &'static str, usize);

fn seen(traced: Result<Vec<TracedMessage>, AskError>) -> Vec<Seen> {
    let messages = traced.expect("it is there").into_iter();
    messages.map(|found| (found.direction, found.other, found.type_name, found.bytes)).collect()
}

#[test]
fn a_trace_shows_the_headers_in_both_directions_and_ends_by_itself() {
    let scheduler = driven();
    let own = scheduler.clone();
    let (traced, pids) = scheduler.block_on(async move {
        let sink = start(|mut cx: Context<u64>| async move { while cx.recv().await.is_some() {} });
        let to = sink.address().clone();
        let server = start(|mut cx: Context<u8>| async move {
            while let Some(number) = cx.recv().await {
                to.send(number.into()).expect("it is alive");
            }
        });
        let to = server.address().clone();
        let client = spawn(async move {
            for number in 0.. {
                if to.send(number).is_err() || number > 100 {
                    break;
                }
                yield_now().await;
            }
        });
        let traced = own.trace_messages(server.pid(), 5, MINUTE).await;
        let again = own.trace_messages(server.pid(), 2, MINUTE).await;
        assert_eq!(again.map(|traced| traced.len()), Ok(2), "the trace before is over");
        (traced, [client.pid(), sink.pid()])
    });
    let [client, sink] = pids.map(Some);
    let received = (MessageDirection::Received, client, type_name::<u8>(), 1);
    let sent = (MessageDirection::Sent, sink, type_name::<u64>(), 8);
    let mut seen = seen(traced);
    if seen[0] == sent {
        // The message before was there when the trace began.
        seen.rotate_left(1);
        seen.truncate(4);
        assert_eq!(seen, [received, sent, received, sent]);
    } else {
        assert_eq!(seen, [received, sent, received, sent, received]);
    }
    assert_conserved(&scheduler);
}

#[test]
fn a_trace_ends_after_its_time_and_with_its_process() {
    let scheduler = driven();
    let own = scheduler.clone();
    scheduler.block_on(async move {
        let process = start(|mut cx: Context<u8>| async move { cx.recv().await });
        assert_eq!(own.trace_messages(process.pid(), 1, LONG).await, Ok(Vec::new()));
        let pid = process.pid();
        let tracer = own.clone();
        let trace = spawn(async move { tracer.trace_messages(pid, 9, MINUTE).await });
        yield_now().await;
        yield_now().await;
        assert_eq!(own.trace_messages(pid, 1, MINUTE).await, Err(AskError::Busy));
        let before = procession::time::Instant::now();
        process.send(1).expect("it is alive");
        assert_eq!(process.await, Ok(Some(1)));
        let traced = seen(trace.await.expect("it ends"));
        assert_eq!(
            traced,
            [(MessageDirection::Received, procession::process::current_pid(), "u8", 1)]
        );
        let passed = procession::time::Instant::now().saturating_duration_since(before);
        assert_eq!(passed, Duration::ZERO, "it does not wait for the time to pass");
        assert_eq!(own.trace_messages(pid, 1, MINUTE).await, Err(AskError::Ended));
    });
    assert_conserved(&scheduler);
}

#[test]
fn a_trace_whose_caller_gives_up_is_over() {
    let scheduler = driven();
    let own = scheduler.clone();
    scheduler.block_on(async move {
        let process =
            start(|mut cx: Context<u8>| async move { while cx.recv().await.is_some() {} });
        let pid = process.pid();
        let tracer = own.clone();
        let trace = spawn(async move { tracer.trace_messages(pid, 9, MINUTE).await });
        yield_now().await;
        procession::process::kill(trace.pid());
        assert_eq!(trace.await, Err(Exit::Killed));
        let next = own.trace_messages(pid, 9, Duration::from_secs(1)).await;
        assert_eq!(next, Ok(Vec::new()), "another may begin");
        process.cancel();
        assert_eq!(process.await, Ok(()));
    });
    assert_conserved(&scheduler);
}

#[test]
fn a_process_cannot_trace_itself() {
    let scheduler = driven();
    let own = scheduler.clone();
    let process = scheduler.spawn(async move {
        let pid = procession::process::current_pid().expect("it is a process");
        own.trace_messages(pid, 1, MINUTE).await
    });
    assert_eq!(process.join(), Ok(Err(AskError::Itself)));
}

#[test]
fn a_suspended_process_is_traced_once_it_goes_on() {
    let scheduler = driven();
    let own = scheduler.clone();
    scheduler.block_on(async move {
        let process =
            start(|mut cx: Context<u8>| async move { while cx.recv().await.is_some() {} });
        own.suspend_for(process.pid(), Duration::from_secs(1)).expect("it is alive");
        yield_now().await;
        let (tracer, pid) = (own.clone(), process.pid());
        let trace = spawn(async move { tracer.trace_messages(pid, 1, MINUTE).await });
        yield_now().await;
        yield_now().await;
        process.send(1).expect("it is alive");
        let traced = trace.await.expect("it ends").expect("it is there");
        assert_eq!(traced.len(), 1);
        assert!(traced[0].after >= Duration::from_millis(900), "{traced:?}");
    });
}

#[test]
fn a_trace_shows_the_request_of_each_message() {
    let builder = Scheduler::builder().worker_threads(1).test_clock().request_ids(true);
    let scheduler = builder.build().expect("it starts no thread");
    let own = scheduler.clone();
    let id = RequestId::new(7).expect("it is not 0");
    let traced = scheduler.block_on(async move {
        let sink = start(|mut cx: Context<u64>| async move { while cx.recv().await.is_some() {} });
        let to = sink.address().clone();
        let server = SpawnOptions::new().start(|mut cx: Context<u8>| async move {
            while let Some(number) = cx.recv().await {
                to.send(number.into()).expect("it is alive");
            }
        });
        let (tracer, pid) = (own.clone(), server.pid());
        let trace = spawn(async move { tracer.trace_messages(pid, 2, MINUTE).await });
        yield_now().await;
        yield_now().await;
        request::with(id, || server.send(1)).expect("it is alive");
        trace.await.expect("it ends").expect("it is there")
    });
    let requests: Vec<_> = traced.iter().map(|message| message.request).collect();
    assert_eq!(requests, [Some(id), Some(id)]);
}
