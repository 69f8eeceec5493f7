//! Hosts that crash and restart, and networks that are cut.

use std::io::ErrorKind;
use std::sync::{Arc, Weak};
use std::time::Duration;

use procession::net::TcpStream;
use procession::time::Instant;
use procession_sim::{Check, Faults, Sim};
use procession_sync::Mutex;
use procession_sync::atomic::AtomicU32;
use procession_sync::atomic::Ordering::Relaxed;

use super::{ask, ask_until_answered, echo, is_reset, listen};

fn calm() -> Check {
    Check::new().seeds(0..40).faults(Faults::none())
}

async fn elapsed_until<F: Future>(future: F) -> (F::Output, Duration) {
    let began = Instant::now();
    let output = future.await;
    (output, Instant::now().saturating_duration_since(began))
}

#[test]
fn a_crash_is_seen_by_peers_and_a_restart_serves_again() {
    calm().run(|sim| async move {
        let starts = Arc::new(AtomicU32::new(0));
        let counted = Arc::clone(&starts);
        sim.host("db", move || {
            counted.fetch_add(1, Relaxed);
            echo(1)
        });
        sim.settle().await;
        let stream = TcpStream::connect("db:1").await.expect("it listens");
        stream.write_all(b"x").await.expect("it is open");
        stream.read_exact(&mut [0]).await.expect("it answers");
        sim.always("it runs", sim.is_running("db"));
        sim.crash("db");
        sim.always("it does not run", !sim.is_running("db"));
        let read = stream.read(&mut [0]).await;
        sim.always("the peer sees a reset", read.is_err_and(|error| is_reset(&error)));
        let refused = TcpStream::connect("db:1").await.map_err(|error| error.kind());
        sim.always("nobody listens", refused.is_err_and(|it| it == ErrorKind::ConnectionRefused));
        sim.restart("db");
        sim.settle().await;
        ask(&sim, "db:1", 100).await.expect("it serves again");
        sim.always("it was started twice", starts.load(Relaxed) == 2);
    });
}

#[test]
fn a_host_without_power_is_silent_until_it_restarts() {
    calm().run(|sim| async move {
        sim.host("db", || echo(1));
        sim.settle().await;
        let stream = TcpStream::connect("db:1").await.expect("it listens");
        sim.power_off("db");
        let timeout = Duration::from_secs(3600);
        let read = procession::time::timeout(timeout, stream.read(&mut [0])).await;
        sim.always("the peer sees nothing", read.is_err());
        let (connected, took) = elapsed_until(TcpStream::connect("db:1")).await;
        let timed_out = connected.is_err_and(|error| error.kind() == ErrorKind::TimedOut);
        sim.always("nothing answers", timed_out && took > Duration::from_secs(120));
        sim.restart("db");
        sim.settle().await;
        stream.write_all(b"x").await.expect("the system takes it");
        let read = stream.read(&mut [0]).await;
        sim.always("the connection is not known", read.is_err_and(|error| is_reset(&error)));
        ask(&sim, "db:1", 3).await.expect("it serves again");
    });
}

#[test]
fn a_crashed_process_has_no_further_step_and_its_values_are_dropped() {
    struct Dropped(Arc<AtomicU32>);
    impl Drop for Dropped {
        fn drop(&mut self) {
            self.0.fetch_add(1, Relaxed);
        }
    }
    Check::new().seeds(0..40).run(|sim| async move {
        let (steps, drops) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
        let (counted, dropped) = (Arc::clone(&steps), Arc::clone(&drops));
        sim.host("busy", move || {
            let (steps, value) = (Arc::clone(&counted), Dropped(Arc::clone(&dropped)));
            async move {
                let process = procession::spawn(async move {
                    let _value = value;
                    loop {
                        steps.fetch_add(1, Relaxed);
                        procession::sleep(Duration::from_micros(500)).await;
                    }
                });
                process.await.expect("it does not end");
            }
        });
        procession::sleep(Duration::from_millis(sim.choose(1..4))).await;
        sim.crash("busy");
        let seen = steps.load(Relaxed);
        procession::sleep(Duration::from_secs(10)).await;
        sim.always("it has no further step", steps.load(Relaxed) == seen);
        sim.sometimes("it ran before", seen > 0);
        sim.heal();
        procession::sleep(Duration::from_secs(10)).await;
        sim.always("its values are dropped", seen == 0 || drops.load(Relaxed) == 1);
    });
}

/// Goal: a run leaves nothing of its hosts behind. Method: each start of a program keeps a value.
#[test]
fn nothing_is_left_of_hosts() {
    let kept: Arc<Mutex<Vec<Weak<()>>>> = Arc::default();
    let made = Arc::clone(&kept);
    Check::new().seeds(0..60).run(move |sim| {
        let made = Arc::clone(&made);
        async move {
            let own = sim.clone();
            sim.host("db", move || {
                let (value, sim) = (Arc::new(()), own.clone());
                made.lock().push(Arc::downgrade(&value));
                async move {
                    sim.note("the program starts");
                    let _value = value;
                    echo(1).await;
                }
            });
            let _ = ask(&sim, "db:1", 10).await;
            match sim.choose(0..4) {
                0 => sim.crash("db"),
                1 => sim.power_off("db"),
                2 => sim.restart("db"),
                _ => {}
            }
        }
    });
    let kept = kept.lock();
    assert!(kept.len() > 20, "{}", kept.len());
    assert_eq!(kept.iter().filter(|value| value.strong_count() > 0).count(), 0);
}

#[test]
fn a_program_that_ends_leaves_its_host() {
    calm().run(|sim| async move {
        sim.host("brief", || async { drop(listen(1).await) });
        procession::sleep(Duration::from_secs(1)).await;
        sim.always("it has ended", !sim.is_running("brief"));
        let refused = TcpStream::connect("brief:1").await;
        sim.always("nobody listens", refused.is_err());
    });
}

#[test]
fn what_is_sent_over_a_cut_arrives_once_it_is_mended() {
    calm().run(|sim| async move {
        sim.host("db", || echo(1));
        sim.settle().await;
        let stream = TcpStream::connect("db:1").await.expect("it listens");
        sim.partition("program", "db");
        stream.write_all(b"x").await.expect("the system takes it");
        let timeout = Duration::from_secs(60);
        let read = procession::time::timeout(timeout, stream.read(&mut [0])).await;
        sim.always("nothing comes back", read.is_err());
        match sim.choose(0..2) {
            0 => sim.heal(),
            _ => sim.mend("db", "program"),
        }
        let (read, took) = elapsed_until(stream.read(&mut [0])).await;
        sim.always("the echo comes", matches!(read, Ok(1)));
        sim.always("it comes soon", took < Duration::from_millis(20));
    });
}

#[test]
fn a_connection_over_a_cut_is_given_up_after_a_quarter_of_an_hour() {
    calm().run(|sim| async move {
        sim.host("db", || echo(1));
        sim.settle().await;
        let stream = TcpStream::connect("db:1").await.expect("it listens");
        sim.cut("program", "db");
        stream.write_all(b"x").await.expect("the system takes it");
        let (read, took) = elapsed_until(stream.read(&mut [0])).await;
        let kind = read.map_err(|error| error.kind());
        sim.always("it is given up", kind == Err(ErrorKind::TimedOut));
        sim.always("after long", took > Duration::from_secs(600) && took.as_secs() < 1500);
    });
}

#[test]
fn a_way_can_be_cut_in_one_direction() {
    calm().run(|sim| async move {
        sim.host("push", || async {
            let (stream, _) = listen(1).await.accept().await.expect("it listens");
            loop {
                stream.write_all(b"x").await.expect("the client reads");
                procession::sleep(Duration::from_secs(1)).await;
            }
        });
        sim.settle().await;
        let stream = TcpStream::connect("push:1").await.expect("it listens");
        sim.cut("program", "push");
        let mut bytes = [0; 20];
        stream.read_exact(&mut bytes).await.expect("the other way is open");
        sim.cut("push", "program");
        let timeout = Duration::from_secs(5);
        let more = async {
            // One may be on its way.
            stream.read_exact(&mut [0; 2]).await
        };
        let read = procession::time::timeout(timeout, more).await;
        sim.always("both ways are cut now", read.is_err());
        sim.heal();
    });
}

#[test]
fn after_heal_every_client_is_served() {
    let run = |sim: Sim| async move {
        sim.host("db", || echo(1));
        let clients: Vec<_> = (0..3)
            .map(|_| {
                let own = sim.clone();
                sim.spawn(async move { ask_until_answered(&own, "db:1").await })
            })
            .collect();
        for _ in 0..sim.choose(0..3) {
            procession::sleep(Duration::from_millis(sim.choose(1..100))).await;
            match sim.choose(0..4) {
                0 => sim.restart("db"),
                1 => sim.partition("program", "db"),
                2 => sim.cut("db", "program"),
                _ => sim.power_off("db"),
            }
        }
        sim.heal();
        sim.restart("db");
        for client in clients {
            client.await.expect("it ends");
        }
        let (_, took) = elapsed_until(ask(&sim, "db:1", 10)).await;
        sim.always("an answer is quick now", took < Duration::from_millis(200));
    };
    Check::new().seeds(0..200).run(run);
}
