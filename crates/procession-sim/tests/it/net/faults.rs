//! Each class of faults has an effect, and no effect if it is switched off.

use std::io::ErrorKind;
use std::time::Duration;

use procession::net::{TcpListener, TcpStream};
use procession::time::Instant;
use procession_sim::{Check, Fault, Faults, Sim};

use super::{ask, echo};

/// What a client and its server have met.
#[derive(Default)]
struct Met {
    errors: Vec<ErrorKind>,
    smallest_read: usize,
    smallest_write: usize,
    longest: Duration,
}

/// Exchanges bytes with a server for some time.
async fn exchange(sim: &Sim) -> Met {
    sim.host("echo", || echo(7));
    sim.settle().await;
    let mut met = Met { smallest_read: usize::MAX, smallest_write: usize::MAX, ..Met::default() };
    for _ in 0..12 {
        let began = Instant::now();
        if let Err(error) = once(&mut met).await {
            met.errors.push(error.kind());
        }
        met.longest = met.longest.max(Instant::now().saturating_duration_since(began));
    }
    met
}

async fn once(met: &mut Met) -> std::io::Result<()> {
    let stream = TcpStream::connect("echo:7").await?;
    let mut left = 500;
    while left > 0 {
        let count = stream.write(&vec![1; left]).await?;
        (left, met.smallest_write) = (left - count, met.smallest_write.min(count));
    }
    let (mut bytes, mut all) = ([0; 500], 0);
    while all < 500 {
        let count = stream.read(&mut bytes).await?;
        if count == 0 {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        (all, met.smallest_read) = (all + count, met.smallest_read.min(count));
    }
    Ok(())
}

/// Checks that a class has an effect in some runs, and no other effect than that.
fn has_effect(fault: Fault, effect: fn(&Met) -> bool, allowed: &'static [ErrorKind]) {
    let check = Check::new().seeds(0..60).faults(Faults::none().with(fault));
    check.run(move |sim| async move {
        let met = exchange(&sim).await;
        sim.sometimes("the fault has an effect", effect(&met));
        let is_known = met.errors.iter().all(|error| allowed.contains(error));
        sim.always(&format!("no other error: {:?}", met.errors), is_known);
    });
    let check = Check::new().seeds(0..20).faults(Faults::none());
    check.run(move |sim| async move {
        let met = exchange(&sim).await;
        sim.always("without the fault there is no effect", !effect(&met));
    });
}

#[test]
fn small_reads() {
    has_effect(Fault::SmallReads, |met| met.smallest_read == 1, &[]);
}

#[test]
fn short_writes() {
    has_effect(Fault::ShortWrite, |met| met.smallest_write < 500, &[]);
}

#[test]
fn a_slow_network() {
    has_effect(Fault::SlowNetwork, |met| met.longest > Duration::from_millis(20), &[]);
}

#[test]
fn resets() {
    let errors = &[ErrorKind::ConnectionReset, ErrorKind::BrokenPipe, ErrorKind::UnexpectedEof];
    has_effect(Fault::Reset, |met| met.errors.contains(&ErrorKind::ConnectionReset), errors);
}

#[test]
fn refused_connections() {
    let errors = &[ErrorKind::ConnectionRefused];
    has_effect(Fault::Refused, |met| !met.errors.is_empty(), errors);
}

#[test]
fn connections_without_an_answer() {
    has_effect(Fault::NoAnswer, |met| !met.errors.is_empty(), &[ErrorKind::TimedOut]);
}

#[test]
fn partitions() {
    has_effect(Fault::Partition, |met| met.longest > Duration::from_millis(150), &[]);
}

/// Interrupted calls, and events in other orders, change nothing that a program sees.
#[test]
fn interrupts_and_events() {
    for fault in [Fault::Interrupted, Fault::Events] {
        let run = |faults: Faults| {
            let check = Check::new().seeds(0..60).faults(faults);
            check.run(|sim| async move {
                let met = exchange(&sim).await;
                sim.always("the program sees nothing", met.errors.is_empty());
                for _ in 0..3 {
                    ask(&sim, "echo:7", 3000).await.expect("nothing fails");
                }
            })
        };
        let (with, without) = (run(Faults::none().with(fault)), run(Faults::none()));
        // What is drawn changes the digest, but only what happens changes the number of points.
        assert_ne!(with.points, without.points, "{fault:?} changes the runs");
    }
}

#[test]
fn no_descriptors() {
    let faults = Faults::none().with(Fault::NoDescriptor);
    Check::new().seeds(0..60).faults(faults).run(|sim| async move {
        sim.host("echo", || echo(7));
        let mut errors = Vec::new();
        for _ in 0..20 {
            // An accept that is refused a descriptor waits for one.
            errors.extend(ask(&sim, "echo:7", 5).await.err().map(|error| error.raw_os_error()));
            procession::sleep(Duration::from_millis(30)).await;
        }
        sim.sometimes("a descriptor is refused", errors.contains(&Some(24)));
        sim.heal();
        procession::sleep(Duration::from_millis(30)).await;
        ask(&sim, "echo:7", 5).await.expect("the system has descriptors");
    });
    Check::new().seeds(0..10).faults(Faults::none()).run(|sim| async move {
        for _ in 0..30 {
            sim.always("none is refused", TcpListener::bind("127.0.0.1:0").await.is_ok());
        }
    });
}

#[test]
fn a_slow_lookup_ends_with_the_faults() {
    let faults = Faults::none().with(Fault::SlowNetwork);
    Check::new().seeds(0..100).faults(faults).run(|sim| async move {
        sim.host("echo", || echo(7));
        sim.settle().await;
        let client = || async {
            TcpStream::connect("echo:7").await.expect("it listens");
            Instant::now()
        };
        let clients: Vec<_> = (0..8).map(|_| sim.spawn(client())).collect();
        procession::sleep(Duration::from_millis(1)).await;
        let healed = Instant::now();
        sim.heal();
        for client in clients {
            let at = client.await.expect("it ends");
            sim.sometimes("something was late", at > healed);
            let late = at.saturating_duration_since(healed);
            sim.always("nothing is late any more", late < Duration::from_millis(50));
        }
    });
}

/// The program of a host waits for a thread, which it gets once the faults end.
#[test]
fn a_host_starts_when_the_faults_end() {
    let faults = Faults::none().with(Fault::ThreadRefused);
    Check::new().seeds(0..200).faults(faults).run(|sim| async move {
        sim.host("echo", || echo(7));
        procession::sleep(Duration::from_millis(1)).await;
        sim.heal();
        sim.settle().await;
        ask(&sim, "echo:7", 5).await.expect("it listens");
    });
}

/// A worker that the program stalls does not run.
#[test]
fn a_stalled_worker() {
    let check = Check::new().seeds(0..20).workers(1..=1).faults(Faults::none());
    check.scheduler(|builder| builder.max_threads(1)).run(|sim| async move {
        procession::sleep(Duration::from_millis(1)).await;
        sim.always("there is such a thread", sim.stall("sim-0", Duration::from_secs(5)));
        sim.always("there is no other", !sim.stall("sim-77", Duration::from_secs(5)));
        let began = Instant::now();
        sim.spawn(procession::yield_now()).await.expect("it ends");
        sim.spawn(procession::yield_now()).await.expect("it ends");
        let took = Instant::now().saturating_duration_since(began);
        sim.always("it does not run", took >= Duration::from_secs(5));
    });
}
