//! Descriptors and sockets.

use crate::home::{Barrier, mpsc, others_may_run};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream as StdUnixStream;
use std::sync::Arc;
use std::time::Duration;

use procession::net::Readiness;
use procession::time::Instant;
use procession::{Exit, Scheduler, sleep, spawn, timeout, yield_now};
use procession_sync::atomic::AtomicBool;
use procession_sync::atomic::Ordering::{Acquire, Release};
use procession_sync::hint;

use crate::scene::{driven, soon, threaded};

type Socket = Readiness<StdUnixStream>;

fn pair() -> (StdUnixStream, StdUnixStream) {
    StdUnixStream::pair().expect("the system has descriptors")
}

async fn read_byte(socket: &Socket) -> u8 {
    let mut byte = [0];
    let count =
        socket.read_with(|mut socket| socket.read(&mut byte)).await.expect("it is connected");
    assert_eq!(count, 1);
    byte[0]
}

async fn write_byte(socket: &Socket, byte: u8) {
    let count =
        socket.write_with(|mut socket| socket.write(&[byte])).await.expect("it is connected");
    assert_eq!(count, 1);
}

/// Sends each byte back, until the end.
async fn echo(socket: StdUnixStream) {
    let socket = Readiness::new(socket).expect("it is a socket");
    loop {
        let mut byte = [0];
        match socket.read_with(|mut socket| socket.read(&mut byte)).await {
            Ok(1) => write_byte(&socket, byte[0]).await,
            Ok(_) => return,
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn processes_talk_over_sockets_on_any_scheduler() {
    let callers_drive = Scheduler::builder()
        .worker_threads(1)
        .callers_drive()
        .build()
        .expect("it starts no thread");
    let driven_by_two = Scheduler::builder()
        .worker_threads(2)
        .callers_drive()
        .build()
        .expect("the system has threads");
    for scheduler in [driven(), callers_drive, driven_by_two, threaded(1), threaded(2), threaded(4)]
    {
        let talks: Vec<_> = (0..50)
            .flat_map(|number| {
                let (here, there) = pair();
                let talk = scheduler.spawn(async move {
                    let here = Readiness::new(here).expect("it is a socket");
                    for round in 0..40 {
                        write_byte(&here, number ^ round).await;
                        assert_eq!(read_byte(&here).await, number ^ round);
                    }
                });
                [talk, scheduler.spawn(echo(there))]
            })
            .collect();
        for talk in talks {
            talk.join().expect("it has no reason to fail");
        }
        let descriptors = scheduler.snapshot().descriptors;
        assert_eq!(descriptors.registered, 0, "all are closed");
        assert!(descriptors.events > 0 && descriptors.polls > 0);
    }
}

#[test]
fn a_thread_in_block_on_waits_for_a_descriptor() {
    for scheduler in [driven(), threaded(1)] {
        let (mut here, there) = pair();
        let (go, went) = mpsc::channel();
        crate::home::thread::scope(|scope| {
            scope.spawn(move || {
                soon(&went);
                here.write_all(b"a").expect("it is connected");
            });
            let byte = scheduler.block_on(async {
                let there = Readiness::new(there).expect("it is a socket");
                go.send(()).expect("the writer listens");
                read_byte(&there).await
            });
            assert_eq!(byte, b'a');
        });
    }
}

#[test]
fn the_first_descriptor_is_watched_by_workers_that_are_parked_already() {
    for sleeps in [false, true] {
        let scheduler = threaded(2);
        let sleeper = scheduler.spawn(async move {
            if sleeps {
                sleep(Duration::from_secs(3600)).await;
            }
        });
        scheduler.run_until_idle();
        let (mut here, there) = pair();
        let (made, is_made) = mpsc::channel();
        let byte = crate::home::thread::scope(|scope| {
            let reader = scope.spawn(|| {
                scheduler.block_on(async {
                    let there = Readiness::new(there).expect("it is a socket");
                    let mut byte = [0];
                    let mut polled = false;
                    there
                        .read_with(|mut there| {
                            if !std::mem::replace(&mut polled, true) {
                                made.send(()).expect("the test listens");
                            }
                            there.read(&mut byte)
                        })
                        .await
                        .expect("it is connected");
                    byte[0]
                })
            });
            soon(&is_made);
            here.write_all(b"b").expect("it is connected");
            reader.join().expect("it does not panic")
        });
        assert_eq!(byte, b'b');
        assert_eq!(sleeper.is_finished(), !sleeps);
    }
}

/// Goal: a worker that leaves the kernel with a process to run is replaced there if its step lasts.
/// Method: that
/// process spins until a timer has fired and a descriptor has become ready. If no worker polls,
/// this hangs.
#[test]
fn a_worker_that_runs_what_was_polled_has_handed_the_reactor_off() {
    let scheduler = threaded(2);
    let ticked = Arc::new(AtomicBool::new(false));
    let ((mut here, there), (second_here, second_there)) = (pair(), pair());
    let hog = {
        let ticked = Arc::clone(&ticked);
        scheduler.spawn(async move {
            let there = Readiness::new(there).expect("it is a socket");
            read_byte(&there).await;
            let ticker = spawn(async move {
                sleep(Duration::from_millis(3)).await;
                read_byte(&Readiness::new(second_there).expect("it is a socket")).await;
                ticked.store(true, Release);
            });
            yield_now().await;
            ticker
        })
    };
    scheduler.run_until_idle();
    here.write_all(b"a").expect("it is connected");
    let ticker = hog.join().expect("it does not panic");
    let (mut here, there) = pair();
    let spinner = scheduler.spawn(async move {
        let there = Readiness::new(there).expect("it is a socket");
        read_byte(&there).await;
        (&second_here).write_all(b"c").expect("it is connected");
        while !ticked.load(Acquire) {
            others_may_run();
            hint::spin_loop();
        }
    });
    here.write_all(b"b").expect("it is connected");
    spinner.join().expect("it does not panic");
    ticker.join().expect("it does not panic");
}

/// Goal: the processes that one poll wakes are shared between workers. Method: each of them blocks
/// its thread until all others run.
#[test]
fn a_batch_of_the_poller_wakes_a_worker_for_each_process() {
    const WIDTH: usize = 4;
    let scheduler = threaded(WIDTH);
    let met = Arc::new(Barrier::new(WIDTH));
    let (mut heres, waiting): (Vec<_>, Vec<_>) = (0..WIDTH)
        .map(|_| {
            let (here, there) = pair();
            let met = Arc::clone(&met);
            let waits = scheduler.spawn(async move {
                read_byte(&Readiness::new(there).expect("it is a socket")).await;
                met.wait();
            });
            (here, waits)
        })
        .unzip();
    scheduler.run_until_idle();
    for here in &mut heres {
        here.write_all(b"a").expect("it is connected");
    }
    for process in waiting {
        process.join().expect("it does not panic");
    }
}

#[test]
fn the_test_clock_stands_still_while_somebody_waits_for_a_descriptor() {
    let scheduler = driven();
    let (mut here, there) = pair();
    let (go, went) = mpsc::channel();
    let hour = Duration::from_secs(3600);
    crate::home::thread::scope(|scope| {
        scope.spawn(move || {
            soon(&went);
            here.write_all(b"a").expect("it is connected");
        });
        let (read_at, slept_until) = scheduler.block_on(async {
            let start = Instant::now();
            let sleeper = spawn(async move {
                sleep(hour).await;
                Instant::now() - start
            });
            let there = Readiness::new(there).expect("it is a socket");
            let reader = spawn(async move {
                go.send(()).expect("the writer listens");
                read_byte(&there).await;
                Instant::now() - start
            });
            (reader.await.expect("it ends"), sleeper.await.expect("it ends"))
        });
        assert_eq!((read_at, slept_until), (Duration::ZERO, hour));
    });
    // When the process gives up waiting, the clock may move again.
    let (_here, there) = pair();
    let gave_up = scheduler.block_on(async {
        let there = Arc::new(Readiness::new(there).expect("it is a socket"));
        let waits = spawn({
            let there = Arc::clone(&there);
            async move { read_byte(&there).await }
        });
        yield_now().await;
        procession::process::kill(waits.pid());
        sleep(hour).await;
        (
            waits.await,
            there.try_read_with(|mut there| there.read(&mut [0])).map_err(|error| error.kind()),
        )
    });
    assert_eq!(gave_up, (Err(Exit::Killed), Err(ErrorKind::WouldBlock)));
}

#[test]
fn of_several_waiters_for_one_descriptor_each_gets_its_turn() {
    let scheduler = threaded(2);
    let (mut here, there) = pair();
    let there =
        Arc::new(scheduler.block_on(async { Readiness::new(there) }).expect("it is a socket"));
    let readers: Vec<_> = (0..8)
        .map(|_| {
            let there = Arc::clone(&there);
            scheduler.spawn(async move { read_byte(&there).await })
        })
        .collect();
    scheduler.run_until_idle();
    let mut sent: Vec<u8> = (0..8).collect();
    for byte in &sent {
        here.write_all(&[*byte]).expect("it is connected");
        scheduler.run_until_idle();
    }
    let mut received: Vec<u8> =
        readers.into_iter().map(|reader| reader.join().expect("it ends")).collect();
    received.sort_unstable();
    sent.sort_unstable();
    assert_eq!(received, sent);
}

#[test]
fn a_descriptor_of_an_ended_scheduler_is_an_error_and_no_hang() {
    let scheduler = threaded(1);
    let (_here, there) = pair();
    let there = scheduler.block_on(async { Readiness::new(there) }).expect("it is a socket");
    let other = threaded(1);
    let waits = other.spawn(async move {
        there.read_with(|mut there| there.read(&mut [0])).await.map_err(|e| e.kind())
    });
    other.run_until_idle();
    assert!(scheduler.block_on(scheduler.shutdown(Duration::from_secs(60))).is_empty());
    assert_eq!(waits.join().expect("it ends"), Err(ErrorKind::Other));
}

#[test]
fn what_the_kernel_cannot_watch_is_refused() {
    let scheduler = driven();
    scheduler.block_on(async {
        let file = std::fs::File::open("/proc/self/exe").expect("this is Linux");
        let refused = Readiness::new(file).expect_err("it is a file");
        assert_eq!(refused.kind(), ErrorKind::PermissionDenied);
        let (_here, there) = pair();
        let there = Readiness::new(there).expect("it is a socket");
        assert_eq!(
            Readiness::new(&there).expect_err("it is known").kind(),
            ErrorKind::AlreadyExists
        );
        let there = there.into_inner();
        drop(Readiness::new(&there).expect("it is known no longer"));
    });
}

#[test]
fn a_process_that_finds_its_descriptor_always_ready_gives_way() {
    let scheduler = driven();
    let (here, there) = pair();
    scheduler.block_on(async {
        let full = spawn(async move {
            let there = Readiness::new(there).expect("it is a socket");
            loop {
                there.writable().await.expect("the scheduler is there");
            }
        });
        for _ in 0..10 {
            yield_now().await;
        }
        full.cancel();
        procession::process::kill(full.pid());
        drop(here);
        timeout(Duration::from_secs(1), full)
            .await
            .expect("it was terminated")
            .expect_err("it was terminated");
    });
}
