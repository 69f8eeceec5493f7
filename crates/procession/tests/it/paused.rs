//! The paused tokio runtime of a scheduler on the test clock.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use crate::home::{mpsc, thread};
use procession::io::compat;
use procession::net::{TcpListener, TcpStream};
use procession::scheduler::BuildError;
use procession::time::Instant;
use procession::{Context, Exit, Scheduler, sleep, spawn, start, timeout, yield_now};
use procession_sync::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener as TokioListener, TcpStream as TokioStream};
use tokio::time::Instant as TokioInstant;

use crate::scene::{panic_quietly, soon};

const HOUR: Duration = Duration::from_secs(3600);
const HERE: &str = "127.0.0.1:0";

/// Creates a scheduler on the test clock, with a paused runtime.
fn driven() -> Scheduler {
    let builder = Scheduler::builder().worker_threads(1).test_clock().tokio_threads(1);
    builder.build().expect("it starts no thread")
}

/// Runs a future on the test clock, with a deadline that lets tokio's timers fire.
fn run<F: Future>(future: F) -> F::Output {
    driven().block_on(async {
        timeout(1000 * HOUR, future).await.expect("it ends within the time of the test clock")
    })
}

fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

#[test]
fn timers_of_both_fire_in_the_order_of_their_deadlines() {
    let order = Arc::new(Mutex::new(Vec::new()));
    run(async {
        let begin = (Instant::now(), TokioInstant::now());
        let mut all = Vec::new();
        for number in [7, 2, 9, 4, 1, 8, 3] {
            let after = u32::try_from(number).expect("it is small") * HOUR / 2;
            let notes = Arc::clone(&order);
            all.push(spawn(async move {
                if number % 2 == 0 {
                    tokio::time::sleep(after).await;
                } else {
                    sleep(after).await;
                }
                assert!(Instant::now() - begin.0 >= after && begin.1.elapsed() >= after);
                assert!(Instant::now() - begin.0 <= after + millis(1));
                assert!(begin.1.elapsed() <= after + millis(1));
                notes.lock().push(number);
            }));
        }
        for process in all {
            process.await.expect("it ends well");
        }
    });
    assert_eq!(*order.lock(), [1, 2, 3, 4, 7, 8, 9]);
}

#[test]
fn a_deadline_of_the_scheduler_is_met_exactly() {
    run(async {
        for time in [Duration::from_nanos(1), Duration::from_micros(1500), HOUR, millis(3)] {
            let begin = Instant::now();
            sleep(time).await;
            assert_eq!(Instant::now() - begin, time);
        }
    });
}

#[test]
fn timeouts_of_one_bound_what_waits_in_the_other() {
    run(async {
        tokio::time::timeout(HOUR, sleep(2 * HOUR)).await.expect_err("it takes two hours");
        timeout(HOUR, tokio::time::sleep(2 * HOUR)).await.expect_err("it takes two hours");
        tokio::time::timeout(2 * HOUR, sleep(HOUR)).await.expect("it takes an hour");
        timeout(2 * HOUR, tokio::time::sleep(HOUR)).await.expect("it takes an hour");
        let wrapped = compat(async { tokio::time::sleep(HOUR).await });
        wrapped.expect("the clock is tokio's, too").await;
    });
}

#[test]
fn tasks_run_when_nothing_else_does_and_reach_the_scheduler() {
    run(async {
        let begin = Instant::now();
        let mut adds = start(|mut cx: Context<u32>| async move {
            let mut sum = 0;
            while let Some(number) = cx.recv().await {
                sum += number;
            }
            sum
        });
        let tasks: Vec<_> = (1..=100)
            .map(|number| {
                let to = adds.address().clone();
                tokio::spawn(async move {
                    tokio::task::yield_now().await;
                    // Timers, processes and messages of the scheduler that drives the task.
                    sleep(millis(5)).await;
                    spawn(async move { to.send(number) }).await.expect("it ends well")
                })
            })
            .collect();
        for task in tasks {
            task.await.expect("it does not panic").expect("the process is there");
        }
        adds.cancel();
        assert_eq!((&mut adds).await, Ok(5050));
        assert_eq!(Instant::now() - begin, millis(5));
        // A process that only yields does not keep tasks from running.
        let (tells, mut told) = procession::sync::oneshot::channel();
        drop(tokio::spawn(async move { tells.send(()) }));
        while told.try_recv().is_err() {
            yield_now().await;
        }
    });
}

async fn write_all(stream: &mut TokioStream, mut bytes: &[u8]) {
    while !bytes.is_empty() {
        let written = poll_fn(|task| Pin::new(&mut *stream).poll_write(task, bytes)).await;
        bytes = &bytes[written.expect("it is connected")..];
    }
}

async fn read(stream: &mut TokioStream, bytes: &mut [u8]) -> usize {
    let mut buffer = ReadBuf::new(bytes);
    let read = poll_fn(|task| Pin::new(&mut *stream).poll_read(task, &mut buffer)).await;
    read.expect("it is connected");
    buffer.filled().len()
}

/// Goal: a timeout of an hour overtakes no request between two sockets of the program, and ends one
/// that is never answered. Method: the servers answer what is not `?`.
#[test]
fn sockets_of_the_program_hold_the_clock_only_while_bytes_are_on_their_way() {
    run(async {
        let listener = TcpListener::bind(HERE).await.expect("there are free ports");
        let own = listener.local_addr().expect("it is bound");
        drop(spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                drop(spawn(async move {
                    let mut byte = [0];
                    while stream.read_exact(&mut byte).await.is_ok() {
                        if byte != *b"?" && stream.write_all(&byte).await.is_err() {
                            return;
                        }
                    }
                }));
            }
        }));
        let listener = TokioListener::bind(HERE).await.expect("there are free ports");
        let of_tokio = listener.local_addr().expect("it is bound");
        drop(tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                drop(tokio::spawn(async move {
                    let mut byte = [0];
                    while read(&mut stream, &mut byte).await > 0 {
                        if byte != *b"?" {
                            write_all(&mut stream, &byte).await;
                        }
                    }
                }));
            }
        }));
        for address in [own, of_tokio] {
            let (begun, mut byte) = (Instant::now(), [0]);
            let mut client = TokioStream::connect(address).await.expect("it listens");
            for _ in 0..100 {
                write_all(&mut client, b"a").await;
                let answer = tokio::time::timeout(HOUR, read(&mut client, &mut byte));
                assert_eq!(answer.await.expect("it is answered at once"), 1);
            }
            let client = TcpStream::connect(address).await.expect("it listens");
            for _ in 0..100 {
                client.write_all(b"a").await.expect("it is connected");
                timeout(HOUR, client.read_exact(&mut byte))
                    .await
                    .expect("it is answered at once")
                    .expect("it is connected");
            }
            let begin = Instant::now();
            assert!(begin - begun < millis(1), "no time has passed");
            client.write_all(b"?").await.expect("it is connected");
            timeout(HOUR, client.read_exact(&mut byte)).await.expect_err("it is not answered");
            assert_eq!(Instant::now() - begin, HOUR);
        }
    });
}

/// Goal: the clock stands still for threads that a library has started. Method: a thread opens a
/// file, as those of `sqlx` do, for a task with a timeout.
#[test]
#[expect(clippy::disallowed_methods, reason = "a thread that the scheduler does not know")]
fn threads_of_libraries_hold_the_clock_while_they_run() {
    run(async {
        let begin = Instant::now();
        for _ in 0..5 {
            let (asks, asked) = mpsc::channel::<tokio::sync::oneshot::Sender<u64>>();
            let works = thread::spawn(move || {
                let answer = asked.recv().expect("it is asked");
                let mut sum = 0_u64;
                for number in 0..200_000_u64 {
                    sum = std::hint::black_box(sum.wrapping_add(number));
                }
                answer.send(sum).expect("it waits");
            });
            let (answers, answer) = tokio::sync::oneshot::channel();
            asks.send(answers).expect("it waits");
            tokio::time::timeout(HOUR, answer).await.expect("it is no hour").expect("it answers");
            works.join().expect("it does not panic");
        }
        assert!(Instant::now() - begin < millis(1));
    });
}

#[test]
fn closures_of_tokio_hold_the_clock() {
    run(async {
        let begin = Instant::now();
        let (opens, opened) = mpsc::channel();
        let waits = tokio::task::spawn_blocking(move || soon(&opened));
        let opener = spawn(async move {
            yield_now().await;
            opens.send(5).expect("it waits");
        });
        let answer = tokio::time::timeout(HOUR, waits).await;
        assert_eq!(answer.expect("it is no hour").expect("it does not panic"), 5);
        assert_eq!(opener.await, Ok(()));
        assert!(Instant::now() - begin < millis(1));
    });
}

#[test]
fn a_scheduler_may_move_its_clock_by_hand() {
    let scheduler = driven();
    let waits = scheduler.spawn(tokio_sleep());
    assert_eq!(scheduler.run_until_idle().len(), 1);
    scheduler.advance(HOUR);
    scheduler.run_until_idle();
    assert_eq!(waits.join(), Ok(()));
}

async fn tokio_sleep() {
    tokio::time::sleep(HOUR).await;
}

#[test]
fn no_runtime_is_no_tokio() {
    let builder = Scheduler::builder().worker_threads(1).test_clock();
    let scheduler = builder.build().expect("it starts no thread");
    let process = scheduler.block_on(async { spawn(tokio_sleep()).await });
    let Err(Exit::Panicked(why)) = process else { panic!("{process:?}") };
    assert!(why.contains("there is no reactor running"), "{why}");
    let refused = scheduler.block_on(async { compat(tokio_sleep()).map(drop).unwrap_err() });
    assert!(refused.is_test_clock());
}

#[test]
fn several_workers_are_refused() {
    for builder in [
        Scheduler::builder().worker_threads(3),
        Scheduler::builder().worker_threads(1).max_threads(3),
    ] {
        let refused = builder.test_clock().tokio_threads(1).build().expect_err("they are three");
        assert!(matches!(refused, BuildError::PausedTokioThreads(3)), "{refused}");
    }
}

#[test]
fn panics_of_tasks_and_processes_harm_nobody() {
    run(async {
        let task = tokio::spawn(async { panic_quietly("on purpose") });
        assert!(task.await.expect_err("it panics").is_panic());
        let process = spawn(async {
            tokio::time::sleep(HOUR).await;
            panic_quietly("on purpose")
        });
        assert_eq!(process.await, Err::<(), _>(Exit::Panicked("on purpose".into())));
        tokio::time::sleep(HOUR).await;
    });
}
