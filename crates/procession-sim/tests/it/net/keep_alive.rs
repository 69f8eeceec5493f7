//! Keep-alive and the user timeout: what ends a connection to a silent peer.

use std::io::ErrorKind;
use std::time::Duration;

use procession::net::TcpStream;
use procession::time::Instant;
use procession_sim::{Check, Faults, Sim};

use super::{ask, echo, is_reset};

const SECOND: Duration = Duration::from_secs(1);

fn calm() -> Check {
    Check::new().seeds(0..20).faults(Faults::none())
}

/// Returns a connection to an echo server, with probes after 10, 12 and 14 s.
async fn connect(sim: &Sim) -> TcpStream {
    sim.host("db", || echo(1));
    sim.settle().await;
    let stream = TcpStream::connect("db:1").await.expect("it listens");
    stream.set_keepalive(Some(10 * SECOND)).expect("it is an option");
    stream.set_keepalive_probes(2 * SECOND, 3).expect("it is an option");
    stream
}

/// Reads, and returns the error and for how long that took.
async fn read(stream: &TcpStream) -> (Result<usize, ErrorKind>, Duration) {
    let began = Instant::now();
    let read = stream.read(&mut [0]).await.map_err(|error| error.kind());
    (read, Instant::now().saturating_duration_since(began))
}

#[test]
fn a_reader_with_keep_alive_learns_that_its_peer_is_gone() {
    calm().run(|sim| async move {
        let stream = connect(&sim).await;
        match sim.choose(0..4) {
            0 => sim.power_off("db"),
            1 => sim.cut("db", "program"),
            2 => sim.cut("program", "db"),
            _ => sim.partition("program", "db"),
        }
        let (read, took) = read(&stream).await;
        sim.always("it is given up", read == Err(ErrorKind::TimedOut));
        // Three probes had no answer.
        sim.always("in time", took > 15 * SECOND && took < 17 * SECOND);
    });
}

#[test]
fn a_reader_with_keep_alive_learns_that_its_peer_has_restarted() {
    calm().run(|sim| async move {
        let stream = connect(&sim).await;
        sim.power_off("db");
        procession::sleep(SECOND).await;
        sim.restart("db");
        let (read, took) = read(&stream).await;
        sim.always("it is reset", read == Err(ErrorKind::ConnectionReset));
        sim.always("in time", took > 8 * SECOND && took < 11 * SECOND);
    });
}

#[test]
fn a_probe_that_is_answered_changes_nothing() {
    calm().run(|sim| async move {
        let stream = connect(&sim).await;
        sim.partition("program", "db");
        procession::sleep(Duration::from_millis(sim.choose(9_000..15_000))).await;
        sim.mend("program", "db");
        procession::sleep(100 * SECOND).await;
        stream.write_all(b"x").await.expect("it is connected");
        let (answer, _) = read(&stream).await;
        sim.always("it is connected", answer == Ok(1));
        // Later, the probes begin again.
        sim.heal();
        sim.power_off("db");
        let (read, took) = read(&stream).await;
        sim.always("it is given up", read == Err(ErrorKind::TimedOut));
        sim.always("in time", took > 15 * SECOND && took < 17 * SECOND);
    });
}

#[test]
fn a_peer_that_says_nothing_is_a_deadlock_with_keep_alive_too() {
    let report = calm().seeds(0..1).try_run(|sim| async move {
        let stream = connect(&sim).await;
        let _ = read(&stream).await;
    });
    let report = report.expect_err("nothing is due");
    assert!(report.contains("deadlock: all processes wait"), "{report}");
}

#[test]
fn the_user_timeout_bounds_how_long_data_is_repeated() {
    calm().run(|sim| async move {
        let stream = connect(&sim).await;
        stream.set_keepalive(None).expect("it is an option");
        stream.set_user_timeout(Some(30 * SECOND)).expect("it is an option");
        match sim.choose(0..3) {
            0 => sim.power_off("db"),
            1 => sim.cut("program", "db"),
            _ => sim.partition("program", "db"),
        }
        stream.write_all(b"x").await.expect("the system takes it");
        let (read, took) = read(&stream).await;
        sim.always("it is given up", read == Err(ErrorKind::TimedOut));
        sim.always("in time", took > 29 * SECOND && took < 32 * SECOND);
        let written = stream.write_all(b"y").await;
        sim.always("it is broken", written.is_err_and(|error| is_reset(&error)));
        sim.heal();
        sim.restart("db");
        sim.settle().await;
        ask(&sim, "db:1", 3).await.expect("it serves again");
    });
}
