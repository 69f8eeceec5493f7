//! Streams and sinks.

use std::pin::{Pin, pin};
use std::task::{Context as TaskContext, Poll, Waker};
use std::time::Duration;

use futures_lite::{Stream, StreamExt};
use futures_util::{Sink, SinkExt};
use procession::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use procession::sync::{broadcast, channel, watch};
use procession::time::{Instant, interval};
use procession::{Context, sleep, spawn, start, yield_now};

use super::probe::probe;
use crate::scene::{driven, threaded};

#[test]
fn the_messages_of_a_channel_are_a_stream() {
    driven().block_on(async {
        let (sender, receiver) = channel::bounded(1);
        let sends = spawn(async move {
            for number in 0..10 {
                sender.send(number).await?;
                yield_now().await;
            }
            Ok::<_, procession::sync::SendError<u32>>(())
        });
        let numbers: Vec<_> = receiver.into_stream().collect().await;
        assert!(numbers.into_iter().eq(0..10));
        assert_eq!(sends.await, Ok(Ok(())));
    });
}

#[test]
fn a_stream_that_is_dropped_or_left_loses_no_message() {
    let (sender, receiver) = channel::unbounded();
    let mut stream = receiver.clone().into_stream();
    let mut next = probe(stream.next());
    assert!(next.is_pending());
    drop(next);
    // The stream is still first among the waiters.
    sender.try_send(1).expect("it is open");
    assert_eq!(probe(stream.next()).output(), Some(1));
    assert!(probe(stream.next()).is_pending());
    sender.try_send(2).expect("it is open");
    sender.try_send(3).expect("it is open");
    let receiver = stream.into_inner();
    assert_eq!((receiver.try_recv(), receiver.try_recv()), (Ok(2), Ok(3)));
    let mut stream = receiver.into_stream();
    sender.try_send(4).expect("it is open");
    drop(sender);
    assert_eq!(stream.size_hint(), (0, None));
    assert_eq!(probe(stream.next()).output(), Some(4));
    assert_eq!(probe(stream.next()).output(), None);
    assert_eq!(probe(stream.next()).output(), None);
}

#[test]
fn a_mailbox_is_a_stream_that_ends_with_a_cancel() {
    driven().block_on(async {
        let sums = start(|cx: Context<u32>| async move {
            let mut cx = pin!(cx);
            let mut sum = 0;
            while let Some(number) = cx.as_mut().next().await {
                sum += number;
            }
            sum
        });
        for number in 1..=4 {
            sums.send(number).expect("it waits");
            sleep(Duration::from_secs(1)).await;
        }
        sums.cancel();
        assert_eq!(sums.await, Ok(10));
    });
}

#[test]
fn an_interval_is_a_stream_of_moments() {
    driven().block_on(async {
        let begin = Instant::now();
        let ticks = interval(Duration::from_secs(2)).take(3).map(|tick| tick - begin);
        let ticks: Vec<_> = ticks.collect().await;
        assert_eq!(ticks, [0, 2, 4].map(Duration::from_secs));
    });
}

#[test]
fn broadcasts_and_watches_are_streams() {
    let (sender, mut receiver) = broadcast::channel(2);
    assert!(probe(receiver.next()).is_pending());
    for number in 1..=3 {
        sender.send(number).expect("there is a receiver");
    }
    drop(sender);
    let all: Vec<_> = probe(receiver.collect()).output();
    assert_eq!(all, [Err(procession::sync::RecvError::Lagged(1)), Ok(2), Ok(3)]);

    let (sender, receiver) = watch::channel(0);
    let mut values = receiver.into_stream();
    let mut next = probe(values.next());
    assert!(next.is_pending());
    drop(next);
    sender.send_replace(1);
    sender.send_replace(2);
    assert_eq!(probe(values.next()).output(), Some(2));
    drop(sender);
    assert_eq!(probe(values.next()).output(), None);
}

#[cfg(feature = "signal")]
#[test]
fn signals_are_a_stream() {
    use procession::signal::{SignalKind, signal};
    threaded(1).block_on(async {
        let mut signals = signal(SignalKind::window_change()).expect("it can be listened to");
        let next = spawn(async move { signals.next().await });
        let me = rustix::process::getpid();
        rustix::process::kill_process(me, rustix::process::Signal::WINCH).expect("it is me");
        assert_eq!(next.await, Ok(Some(())));
    });
}

#[test]
fn a_listener_is_a_stream_of_connections() {
    threaded(1).block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("there is a port");
        let address = listener.local_addr().expect("it has one");
        let clients = spawn(async move {
            let mut clients = Vec::new();
            for _ in 0..3 {
                clients.push(TcpStream::connect(address).await.expect("it listens"));
            }
            clients
        });
        let accepted: Vec<_> = listener.incoming().take(3).collect().await;
        assert!(accepted.iter().all(|accepted| accepted.is_ok()));
        assert_eq!(clients.await.map(|clients| clients.len()), Ok(3));
        let path = std::env::temp_dir().join(format!("procession-incoming-{}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        let listener = UnixListener::bind(&path).expect("the path is free");
        let client = UnixStream::connect(&path).await.expect("it listens");
        listener.incoming().next().await.expect("it never ends").expect("a client connects");
        drop(client);
        std::fs::remove_file(&path).expect("it is there");
    });
}

#[test]
fn a_sink_holds_one_message_and_flushes_it() {
    let (sender, receiver) = channel::bounded(1);
    let mut sink = sender.into_sink();
    probe(sink.feed(1)).output().expect("it is open");
    assert!(receiver.is_empty(), "it was not flushed");
    probe(sink.feed(2)).output().expect("it is open");
    let mut flush = probe(sink.flush());
    assert!(flush.is_pending());
    assert_eq!(receiver.try_recv(), Ok(1));
    assert!(flush.is_woken());
    flush.output().expect("it is open");
    drop(flush);
    let mut send = probe(sink.send(3));
    assert!(send.is_pending());
    receiver.close();
    assert_eq!(send.output().map_err(procession::sync::SendError::into_inner), Err(3));
    drop(send);
    assert_eq!(
        probe(sink.send(4)).output().map_err(procession::sync::SendError::into_inner),
        Err(4)
    );
    probe(sink.close()).output().expect("it holds nothing");
}

#[test]
#[should_panic(expected = "only when it is ready")]
fn a_sink_takes_one_message_at_a_time() {
    let mut sink = channel::unbounded().0.into_sink();
    Pin::new(&mut sink).start_send(1).expect("it is ready");
    let _ = Pin::new(&mut sink).start_send(2);
}

#[test]
fn a_dropped_sink_leaves_the_channel() {
    let (sender, receiver) = channel::bounded(0);
    let mut sink = sender.into_sink();
    Pin::new(&mut sink).start_send(1).expect("it is ready");
    let mut task = TaskContext::from_waker(Waker::noop());
    assert!(matches!(Pin::new(&mut sink).poll_flush(&mut task), Poll::Pending));
    drop(sink);
    assert!(receiver.try_recv().is_err_and(|error| error == procession::sync::RecvError::Closed));
}
