//! Processes with code that needs tokio.

use crate::home::mpsc;
use std::future::{pending, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use procession::io::compat;
use procession::machine::{Events, InitError, Process, Status, WaitingFor, Yields};
use procession::mailbox::Event;
use procession::mailbox::relay::DeadLetter;
use procession::net::{TcpListener, TcpStream};
use procession::process::{Named, current_pid, register, whereis};
use procession::{
    Context, Exit, Reply, Scheduler, SpawnOptions, blocking, coroutine, sleep, spawn, start,
    timeout, yield_now,
};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener as TokioListener, TcpStream as TokioStream};
use tokio::runtime::Handle;

use crate::scene::{panic_quietly, soon, soon_closed};

const HERE: &str = "127.0.0.1:0";

fn bridged(width: usize) -> Scheduler {
    Scheduler::builder()
        .worker_threads(width)
        .tokio_threads(1)
        .build()
        .expect("the system has threads")
}

/// Creates schedulers that run processes on all kinds of threads.
fn all_kinds() -> [Scheduler; 4] {
    let driven = |width| {
        let builder = Scheduler::builder().worker_threads(width).callers_drive().tokio_threads(1);
        builder.build().expect("the system has threads")
    };
    [bridged(1), bridged(2), driven(1), driven(2)]
}

/// Written by hand, since tokio's extension traits belong to no feature that is needed here.
async fn tokio_write_all(stream: &mut TokioStream, mut bytes: &[u8]) {
    while !bytes.is_empty() {
        let count = poll_fn(|task| Pin::new(&mut *stream).poll_write(task, bytes))
            .await
            .expect("it is connected");
        bytes = &bytes[count..];
    }
}

async fn tokio_read(stream: &mut TokioStream, bytes: &mut [u8]) -> usize {
    let mut buffer = ReadBuf::new(bytes);
    poll_fn(|task| Pin::new(&mut *stream).poll_read(task, &mut buffer))
        .await
        .expect("it is connected");
    buffer.filled().len()
}

/// Echoes each connection in tasks of tokio, until it is dropped.
async fn tokio_echo(listener: TokioListener) {
    while let Ok((mut stream, _)) = listener.accept().await {
        drop(tokio::spawn(async move {
            assert_eq!(current_pid(), None, "it is a task of tokio's");
            let mut bytes = [0; 64];
            loop {
                match tokio_read(&mut stream, &mut bytes).await {
                    0 => return,
                    count => tokio_write_all(&mut stream, &bytes[..count]).await,
                }
            }
        }));
    }
}

#[test]
fn sockets_timers_and_tasks_of_tokio_work_in_processes() {
    for scheduler in all_kinds() {
        scheduler.block_on(async {
            // Polled here, in the block-on future.
            let listener = TokioListener::bind(HERE).await.expect("there are free ports");
            let address = listener.local_addr().expect("it is bound");
            let server = spawn(tokio_echo(listener));
            let clients: Vec<_> = (0..20_u8)
                .map(|client| {
                    spawn(async move {
                        let mut of_tokio =
                            TokioStream::connect(address).await.expect("the listener is open");
                        let own = TcpStream::connect(address).await.expect("the listener is open");
                        let mut byte = [0];
                        for round in 0..20 {
                            tokio_write_all(&mut of_tokio, &[client ^ round]).await;
                            assert_eq!(
                                (tokio_read(&mut of_tokio, &mut byte).await, byte[0]),
                                (1, client ^ round)
                            );
                            own.write_all(&[client ^ round]).await.expect("it is connected");
                            own.read_exact(&mut byte).await.expect("it is answered");
                            assert_eq!(byte[0], client ^ round);
                        }
                        assert!(current_pid().is_some(), "it is a process");
                        tokio::time::sleep(Duration::from_millis(1)).await;
                        tokio::time::timeout(Duration::from_millis(1), pending::<()>())
                            .await
                            .expect_err("it never ends");
                        tokio::task::spawn_blocking(move || client)
                            .await
                            .expect("it does not panic")
                    })
                })
                .collect();
            for (number, client) in clients.into_iter().enumerate() {
                assert_eq!(client.await, Ok(number as u8));
            }
            procession::process::kill(server.pid());
            assert_eq!(server.await, Err(Exit::Killed));
        });
    }
}

#[test]
fn tokio_clients_are_served_by_processes() {
    let scheduler = bridged(2);
    scheduler.block_on(async {
        let listener = TcpListener::bind(HERE).await.expect("there are free ports");
        let address = listener.local_addr().expect("it is bound");
        let server = spawn(async move {
            let (stream, _) = listener.accept().await.expect("there are descriptors");
            let mut bytes = [0; 8];
            stream.read_exact(&mut bytes).await.expect("it is connected");
            stream.write_all(&bytes).await.expect("it is connected");
        });
        // A task of tokio can wait for a process.
        let client = tokio::spawn(async move {
            let mut stream = TokioStream::connect(address).await.expect("the listener is open");
            tokio_write_all(&mut stream, b"01234567").await;
            server.await.expect("it ends well");
            let (mut answer, mut bytes) = (Vec::<u8>::new(), [0; 8]);
            while answer.len() < 8 {
                let count = tokio_read(&mut stream, &mut bytes).await;
                answer.extend(&bytes[..count]);
            }
            answer
        });
        assert_eq!(client.await.expect("it does not panic"), b"01234567");
    });
}

/// A state machine that waits for a task of tokio in its steps.
struct Asks(Option<tokio::task::JoinHandle<u32>>);

impl Process for Asks {
    type Input = ();
    type Message = ();
    type Output = ();

    fn init(&mut self, _: &str, (): ()) -> Result<(), InitError> {
        Ok(())
    }

    fn step(
        &mut self,
        events: &mut Events<()>,
        _: &mut Yields<'_>,
    ) -> Result<Status<()>, Box<dyn std::error::Error + Send + Sync>> {
        for event in events {
            if matches!(event, Event::Message(())) {
                self.0 = Some(tokio::spawn(async { 1 }));
                return Ok(Status::Done(()));
            }
        }
        Ok(Status::Wait(WaitingFor::Messages))
    }
}

#[test]
fn coroutines_and_state_machines_are_in_the_context_too() {
    // SAFETY: none of the coroutines holds anything across a wait.
    let builder =
        unsafe { Scheduler::builder().worker_threads(2).tokio_threads(1).enable_coroutines() };
    let scheduler = builder.build().expect("the system has threads");
    scheduler.block_on(async {
        let machine =
            SpawnOptions::new().try_start_machine(Asks(None), "run", ()).expect("it is accepted");
        machine.send(()).expect("it is there");
        machine.await.expect("it ends well");
        let coroutines: Vec<_> = (0..20_u64)
            .map(|n| {
                SpawnOptions::new()
                    .try_start_coroutine(move |_: coroutine::Context<()>| {
                        for _ in 0..5 {
                            coroutine::wait(tokio::time::sleep(Duration::from_micros(100 * n)));
                            coroutine::yield_now();
                        }
                        // Enters another scheduler's context, and comes back.
                        let other = bridged(1);
                        let (id, own) = (
                            other.block_on(async { Handle::current().id() }),
                            Handle::current().id(),
                        );
                        assert_ne!(id, own);
                        coroutine::wait(tokio::spawn(async move { n })).expect("it does not panic")
                    })
                    .expect("they are enabled")
            })
            .collect();
        for (n, coroutine) in coroutines.into_iter().enumerate() {
            assert_eq!(coroutine.await, Ok(n as u64));
        }
    });
}

#[test]
fn threads_that_take_over_from_blocked_ones_are_in_the_context() {
    let scheduler = bridged(1);
    for _ in 0..3 {
        let (tells, told) = mpsc::channel();
        let blocks: Vec<_> = (0..3)
            .map(|_| {
                let (opens, opened) = mpsc::channel();
                let blocked = scheduler.spawn(async move {
                    blocking(|| soon(&opened));
                    tokio::time::sleep(Duration::from_micros(10)).await;
                });
                (opens, blocked)
            })
            .collect();
        let goes_on = scheduler.spawn(async move {
            tokio::time::sleep(Duration::from_millis(1)).await;
            tells.send(()).expect("the test listens");
        });
        soon(&told);
        for (opens, blocked) in blocks {
            opens.send(()).expect("it waits");
            blocked.join().expect("it does not panic");
        }
        goes_on.join().expect("it does not panic");
    }
}

#[test]
fn the_test_clock_refuses_a_runtime_that_goes_by_the_real_clock() {
    let text = "cannot build a scheduler: tokio goes by the real clock, and the test clock would jump over all that waits for it";
    let runtime =
        tokio::runtime::Builder::new_current_thread().build().expect("it starts no thread");
    let builder = Scheduler::builder().test_clock().tokio_on(runtime.handle().clone());
    assert_eq!(builder.build().expect_err("the clocks differ").to_string(), text);
}

/// Returns how many threads of this program have a name like this.
fn threads_named(name: &str) -> usize {
    let threads = std::fs::read_dir("/proc/self/task").expect("the system has threads");
    let names =
        threads.filter_map(|thread| std::fs::read_to_string(thread.ok()?.path().join("comm")).ok());
    names.filter(|own| own.trim_end() == name).count()
}

#[test]
fn a_scheduler_is_connected_to_a_runtime_as_wide_as_itself() {
    let width = |builder: procession::scheduler::Builder| {
        let scheduler = builder.build().expect("the system has threads");
        let workers =
            scheduler.spawn(async { Handle::try_current().map(|it| it.metrics().num_workers()) });
        workers.join().expect("it ends well").ok()
    };
    let named = || Scheduler::builder().name("w3").worker_threads(3);
    assert_eq!(width(named()), Some(3));
    assert_eq!(width(named().tokio_threads(2)), Some(2));
    assert_eq!(width(named().tokio_threads(0)), None);
    let callers = Scheduler::builder().name("w4").worker_threads(1).callers_drive();
    let callers = callers.build().expect("it starts no thread");
    assert!(callers.block_on(async { Handle::try_current().is_err() }));
    assert_eq!(threads_named("w4-tokio"), 0);
    let refused = Scheduler::builder().tokio_threads(1025).build().expect_err("they are too many");
    assert!(refused.to_string().contains("tokio_threads"), "{refused}");
}

#[test]
fn the_default_scheduler_has_tokio() {
    let ids = procession::run(async {
        let own = spawn(async { Handle::current().id() }).await.expect("it ends well");
        (Handle::current().id(), own)
    });
    assert_eq!(ids.0, ids.1);
    assert!(Handle::try_current().is_err(), "this thread is outside again");
}

#[test]
fn a_runtime_that_is_given_is_used_and_kept() {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    let runtime = runtime.expect("the system has threads");
    let scheduler =
        Scheduler::builder().worker_threads(1).tokio_on(runtime.handle().clone()).build();
    let scheduler = scheduler.expect("the system has threads");
    let process = scheduler.spawn(async {
        tokio::time::sleep(Duration::from_micros(1)).await;
        Handle::current().id()
    });
    assert_eq!(process.join(), Ok(runtime.handle().id()));
    scheduler.block_on(scheduler.shutdown(Duration::from_secs(60)));
    drop(scheduler);
    assert_eq!(runtime.block_on(runtime.spawn(async { 1 })).expect("it is still there"), 1);
}

/// Goal: tokio's runtime exists for as long as it may be needed, and no longer. Method: a task of
/// tokio reports its drop.
#[test]
fn the_runtime_stops_with_the_scheduler_and_not_before() {
    for scheduler in all_kinds() {
        let (dropped, is_dropped) = mpsc::channel::<()>();
        let waits = scheduler.block_on(async {
            drop(tokio::spawn(async move {
                let _dropped = dropped;
                pending::<()>().await;
            }));
            let waits = spawn(async {
                /// Needs tokio when it is dropped.
                struct Spawns;
                impl Drop for Spawns {
                    fn drop(&mut self) {
                        drop(tokio::spawn(async {}));
                    }
                }
                let _spawns = Spawns;
                tokio::time::sleep(Duration::from_secs(3600)).await;
            });
            yield_now().await;
            waits
        });
        scheduler.block_on(async {
            procession::process::kill(waits.pid());
            assert_eq!(waits.await, Err(Exit::Killed));
            assert!(scheduler.shutdown(Duration::from_secs(60)).await.is_empty());
            // The block-on future may go on.
            tokio::time::sleep(Duration::from_micros(10)).await;
        });
        is_dropped.try_recv().expect_err("nothing is sent");
        drop(scheduler);
        soon_closed(&is_dropped);
    }
}

#[test]
fn the_last_owner_of_a_scheduler_may_be_a_task_of_its_tokio() {
    let scheduler = Arc::new(bridged(2));
    let (dropped, is_dropped) = mpsc::channel::<()>();
    let (goes, gone) = mpsc::channel::<()>();
    let process = scheduler.spawn(async {
        let _goes = goes;
        pending::<()>().await;
    });
    scheduler.block_on(async {
        let scheduler = Arc::clone(&scheduler);
        drop(tokio::spawn(async move {
            tokio::time::sleep(Duration::from_millis(1)).await;
            drop(scheduler);
            drop(dropped);
        }));
    });
    drop(scheduler);
    soon_closed(&is_dropped);
    soon_closed(&gone);
    assert_eq!(process.join(), Err(Exit::Killed));
}

#[test]
fn a_guard_that_is_forgotten_and_a_panic_harm_nobody() {
    for scheduler in all_kinds() {
        let panics = scheduler.spawn(async {
            tokio::time::sleep(Duration::from_micros(1)).await;
            panic_quietly("on purpose")
        });
        assert_eq!(panics.join(), Err::<(), _>(Exit::Panicked("on purpose".into())));
        let forgets = scheduler.spawn(async { std::mem::forget(Handle::current().enter()) });
        forgets.join().expect("it ends well");
        let goes_on = scheduler.spawn(async {
            let raced =
                timeout(Duration::from_secs(60), tokio::time::sleep(Duration::from_millis(1)))
                    .await;
            raced.expect("it takes much less");
            sleep(Duration::from_micros(1)).await;
        });
        goes_on.join().expect("it ends well");
    }
}

#[test]
fn a_wait_for_tokio_can_be_given_up() {
    let scheduler = bridged(1);
    scheduler.block_on(async {
        let hour = Duration::from_secs(3600);
        timeout(Duration::from_millis(1), tokio::time::sleep(hour))
            .await
            .expect_err("it takes an hour");
        let mut never = pin!(tokio::time::sleep(hour));
        poll_fn(|task| Poll::Ready(never.as_mut().poll(task)))
            .await
            .is_pending()
            .then_some(())
            .expect("not yet");
        let waits = spawn(tokio::time::sleep(hour));
        yield_now().await;
        procession::process::kill(waits.pid());
        assert_eq!(waits.await, Err(Exit::Killed));
    });
}

/// Creates schedulers without the bridge to tokio.
fn without_tokio(width: usize) -> Scheduler {
    let builder = Scheduler::builder().worker_threads(width).tokio_threads(0);
    builder.build().expect("the system has threads")
}

fn ordinary() -> [Scheduler; 3] {
    let driven = Scheduler::builder()
        .worker_threads(1)
        .callers_drive()
        .build()
        .expect("it starts no thread");
    [without_tokio(1), without_tokio(2), driven]
}

/// tokio's own text names no way to get a runtime.
#[test]
fn a_panic_for_want_of_a_runtime_says_what_to_do() {
    let (tells, told) = mpsc::channel();
    let builder = Scheduler::builder().worker_threads(1).callers_drive().tokio_threads(0);
    let builder = builder.on_exit(move |report| {
        tells.send(report.to_string()).expect("the test listens");
    });
    let scheduler = builder.build().expect("it starts no thread");
    scheduler.spawn(async { tokio::time::sleep(Duration::ZERO).await }).detach();
    scheduler.spawn(async { drop(TokioListener::bind(HERE).await) }).detach();
    scheduler.run_until_idle();
    for _ in 0..2 {
        let line = soon(&told);
        assert!(line.contains("let `Builder::tokio_threads` be more than 0"), "{line}");
    }
}

/// Asks for tokio's runtime again when it is dropped, as a connection does that says goodbye.
struct AsksWhenDropped(mpsc::Sender<bool>);

impl Drop for AsksWhenDropped {
    fn drop(&mut self) {
        self.0.send(Handle::try_current().is_ok()).expect("the test listens");
    }
}

#[test]
fn single_futures_of_tokio_work_in_ordinary_processes() {
    for scheduler in ordinary() {
        scheduler.block_on(async {
            let (says, said) = mpsc::channel();
            let listener =
                compat(async { TokioListener::bind(HERE).await }).expect("there is a thread").await;
            let listener = listener.expect("there are free ports");
            let address = listener.local_addr().expect("it is bound");
            let server = spawn(compat(tokio_echo(listener)).expect("there is a thread"));
            let clients: Vec<_> = (0..20_u8)
                .map(|client| {
                    spawn(async move {
                        let talk = compat(async move {
                            let mut stream =
                                TokioStream::connect(address).await.expect("the listener is open");
                            let mut byte = [0];
                            for round in 0..20 {
                                tokio_write_all(&mut stream, &[client ^ round]).await;
                                assert_eq!(
                                    (tokio_read(&mut stream, &mut byte).await, byte[0]),
                                    (1, client ^ round)
                                );
                            }
                            tokio::time::sleep(Duration::from_millis(1)).await;
                            assert!(current_pid().is_some(), "it is still the process");
                            client
                        });
                        let result = talk.expect("there is a thread").await;
                        assert!(
                            Handle::try_current().is_err(),
                            "the rest of the process is outside"
                        );
                        result
                    })
                })
                .collect();
            for (number, client) in clients.into_iter().enumerate() {
                assert_eq!(client.await, Ok(number as u8));
            }
            // One process is terminated in the middle, and one is dropped before it has begun.
            let waits = spawn(
                compat({
                    let asks = AsksWhenDropped(says.clone());
                    async move {
                        let _asks = asks;
                        pending::<()>().await;
                    }
                })
                .expect("there is a thread"),
            );
            yield_now().await;
            for process in [server, waits] {
                procession::process::kill(process.pid());
                assert_eq!(process.await, Err(Exit::Killed));
            }
            let asks = AsksWhenDropped(says);
            drop(compat(async move { drop(asks) }).expect("there is a thread"));
            for _ in 0..2 {
                assert!(soon(&said), "what is dropped is dropped in the context");
            }
            soon_closed(&said);
        });
    }
}

#[test]
fn a_future_of_tokio_that_is_always_ready_gives_way() {
    for scheduler in ordinary() {
        let turns = scheduler.block_on(async {
            let greedy = spawn(async {
                loop {
                    compat(async {}).expect("there is a thread").await;
                }
            });
            let mut turns = 0;
            for _ in 0..10 {
                yield_now().await;
                turns += 1;
            }
            procession::process::kill(greedy.pid());
            turns
        });
        assert_eq!(turns, 10);
    }
}

#[test]
fn a_panic_in_a_future_of_tokio_is_its_process_own() {
    let scheduler = without_tokio(1);
    let panics = scheduler.spawn(async {
        compat(async {
            tokio::task::yield_now().await;
            panic_quietly("on purpose")
        })
        .expect("there is a thread")
        .await
    });
    assert!(panics.join().expect_err("it panics").is_panic());
    let well = scheduler.spawn(async {
        compat(async { tokio::spawn(async { 7 }).await }).expect("there is a thread").await
    });
    assert_eq!(well.join().expect("it does not panic").expect("it does not panic"), 7);
}

#[test]
fn a_single_future_of_tokio_is_refused_on_the_test_clock_and_uses_the_runtime_that_is_there() {
    let builder = Scheduler::builder().worker_threads(1).test_clock();
    let scheduler = builder.build().expect("it starts no thread");
    let refused = scheduler.block_on(async { compat(async { 1 }).expect_err("it is jumped over") });
    assert!(refused.is_test_clock());
    assert!(
        refused.to_string().starts_with("cannot wait for tokio on the test clock"),
        "{refused}"
    );
    assert_eq!(without_tokio(1).block_on(refused.into_inner()), 1);
    let scheduler = bridged(1);
    let (of_scheduler, of_future) = scheduler.block_on(async {
        let id = || Handle::current().id();
        (id(), compat(async move { id() }).expect("it is in a context").await)
    });
    assert_eq!(of_scheduler, of_future);
}

/// Goal: whatever tokio runs for a scheduler finds the names of that scheduler, as the handlers of
/// a server on `tokio::spawn` need it.
#[test]
fn tasks_and_blocking_tasks_of_tokio_are_on_the_scheduler_beside_them() {
    for scheduler in all_kinds() {
        scheduler.block_on(async {
            let store = start(|mut cx: Context<Reply<u32>>| async move {
                while let Some(reply) = cx.recv().await {
                    reply.send(7);
                }
            });
            register("store", store.pid()).expect("the name is free");
            let handler = tokio::spawn(async move {
                let nested = tokio::spawn(async { whereis("store") });
                let store = Named::<Reply<u32>>::new("store");
                let answer = store.call(|reply| reply, Duration::from_secs(60));
                (answer.await, nested.await.expect("it does not panic"), current_pid())
            });
            let found = handler.await.expect("it does not panic");
            let (answer, name, process) = found;
            assert_eq!(answer.expect("it is answered"), 7);
            assert_eq!((name, process), (Some(store.pid()), None));
            let blocks = tokio::task::spawn_blocking(|| {
                let job = procession::spawn_blocking(|| whereis("store"));
                (spawn(async {}).pid().scheduler(), job.join())
            });
            let place = blocks.await.expect("it does not panic");
            assert_eq!(place, (scheduler.id(), Ok(Some(store.pid()))));
        });
    }
}

/// Goal: the threads of the runtime, which belong to the scheduler, do not keep it. Method: a hook
/// of the scheduler is dropped with its memory.
#[test]
fn a_bridged_scheduler_is_freed_once_it_has_ended() {
    for width in [1, 2] {
        let (frees, freed) = mpsc::channel::<()>();
        let hook = move |_: DeadLetter<'_>| frees.send(()).expect("the test listens");
        let builder =
            Scheduler::builder().worker_threads(width).tokio_threads(1).on_dead_letter(hook);
        let scheduler = builder.build().expect("the system has threads");
        scheduler.block_on(async {
            let threads = tokio::task::spawn_blocking(|| spawn(async {}).pid().scheduler());
            assert_eq!(threads.await.expect("it does not panic"), scheduler.id());
        });
        drop(scheduler);
        soon_closed(&freed);
    }
}
