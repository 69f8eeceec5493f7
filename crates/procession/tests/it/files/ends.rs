//! Writes that were accepted when their scheduler or their program ends.

use std::fs::{File as StdFile, OpenOptions as StdOpenOptions};
use std::future::pending;
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use futures_lite::future::{block_on, zip};
use procession::fs::{self, File, OpenOptions};
use procession::observe::Unfinished;
use procession::{Scheduler, io, spawn, spawn_blocking, timeout};

use super::{Scratch, both_ends};
use crate::home::mpsc::channel;
use crate::home::thread;
use crate::scene::{TIMEOUT, soon, threaded};

/// More than a pipe holds, so that the write has not ended when its caller goes on.
const LENGTH: usize = 1 << 20;
/// The deadline of a shutdown that gives up.
const SOON: Duration = Duration::from_millis(100);
/// The byte that the programs print. The test harness prints none.
const MARK: u8 = b'~';

/// The environment variable that makes a child process run a test.
const CHILD: &str = "PROCESSION_ENDS";

/// Runs `test` once more in a child process, and returns its output. Runs `body` in that child, and
/// returns `None`.
fn in_child(test: &str, body: impl FnOnce()) -> Option<Output> {
    if std::env::var_os(CHILD).is_some() {
        body();
        return None;
    }
    let mut child = Command::new(std::env::current_exe().expect("a test knows itself"));
    child.args([&format!("files::ends::{test}"), "--exact", "--nocapture", "--test-threads=1"]);
    child.env(CHILD, "1").stdin(Stdio::null());
    let output = child.output().expect("the test can be started again");
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}");
    Some(output)
}

fn marks(output: &Output) -> usize {
    output.stdout.iter().filter(|&&byte| byte == MARK).count()
}

/// Ends this program without its functions for the end.
fn end_at_once(code: i32) -> ! {
    // SAFETY: the call has no requirements.
    unsafe { libc::_exit(code) }
}

/// Writes the last output of a program, and does not wait for it.
async fn print() {
    io::stdout().write_all(&[MARK; LENGTH]).await.expect("it is handed over");
}

#[test]
fn run_has_written_what_its_future_wrote() {
    let output = in_child("run_has_written_what_its_future_wrote", || {
        procession::run(print());
        end_at_once(0);
    });
    assert!(output.is_none_or(|output| marks(&output) == LENGTH));
}

#[test]
fn a_block_on_has_written_what_its_processes_wrote() {
    let output = in_child("a_block_on_has_written_what_its_processes_wrote", || {
        let scheduler = threaded(2);
        scheduler.block_on(async { spawn(print()).await.expect("it does not panic") });
        end_at_once(0);
    });
    assert!(output.is_none_or(|output| marks(&output) == LENGTH));
}

#[test]
fn a_join_has_written_what_its_process_wrote() {
    let output = in_child("a_join_has_written_what_its_process_wrote", || {
        threaded(1).spawn(print()).join().expect("it does not panic");
        end_at_once(0);
    });
    assert!(output.is_none_or(|output| marks(&output) == LENGTH));
}

/// Neither `run` nor a shutdown is there to wait.
#[test]
fn the_end_of_main_waits_for_writes_of_the_default_scheduler() {
    let output = in_child("the_end_of_main_waits_for_writes_of_the_default_scheduler", || {
        let (tells, told) = channel();
        drop(spawn(async move {
            print().await;
            tells.send(()).expect("main listens");
            pending::<()>().await
        }));
        soon(&told);
    });
    assert!(output.is_none_or(|output| marks(&output) == LENGTH));
}

#[test]
fn the_end_of_main_waits_for_writes_of_plain_threads() {
    let output = in_child("the_end_of_main_waits_for_writes_of_plain_threads", || {
        Write::write_all(&mut io::stdout(), &[MARK; LENGTH]).expect("it is handed over");
    });
    assert!(output.is_none_or(|output| marks(&output) == LENGTH));
}

#[test]
fn the_end_of_main_reports_a_write_whose_error_nobody_received() {
    let output = in_child("the_end_of_main_reports_a_write_whose_error_nobody_received", || {
        procession::run(async {
            let full = OpenOptions::new().write(true).open("/dev/full").await;
            full.expect("Linux has it").write_all(b"lost").await.expect("it is handed over");
        });
    });
    let Some(output) = output else { return };
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(text.contains("1 write failed, and nobody asked for the error"), "{text}");
}

/// A value that says that it is dropped.
struct Dropped;

impl Drop for Dropped {
    fn drop(&mut self) {
        std::io::stdout().write_all(&[MARK]).expect("it is open");
    }
}

#[test]
fn processes_of_the_default_scheduler_end_with_main_wherever_they_are() {
    let name = "processes_of_the_default_scheduler_end_with_main_wherever_they_are";
    let output = in_child(name, || {
        let (tells, told) = channel();
        for is_busy in [false, true] {
            let tells = tells.clone();
            drop(spawn(async move {
                let _dropped = Dropped;
                tells.send(()).expect("main listens");
                loop {
                    if is_busy {
                        procession::yield_now().await;
                    } else {
                        pending::<()>().await;
                    }
                }
            }));
        }
        procession::run(async {});
        soon(&told);
        soon(&told);
    });
    assert!(output.is_none_or(|output| marks(&output) == 0), "nothing is dropped");
}

#[test]
fn a_shutdown_waits_for_files_that_were_written_and_dropped() {
    let scratch = Scratch::new("end-shutdown");
    for number in 0..30 {
        let path = scratch.path(&number.to_string());
        let scheduler = threaded(1);
        let unfinished = scheduler.block_on(async {
            let path = path.clone();
            let writer = spawn(async move {
                let mut file = File::create(path).await.expect("it can be created");
                file.write_all(&[7; 100_000]).await.expect("it is handed over");
            });
            writer.await.expect("it does not panic");
            scheduler.shutdown(TIMEOUT).await
        });
        assert!(unfinished.is_empty(), "{unfinished}");
        assert_eq!(std::fs::metadata(&path).expect("it is there").len(), 100_000);
    }
}

#[test]
fn a_run_waits_for_files_that_were_written_and_dropped() {
    let scratch = Scratch::new("end-run");
    for number in 0..30 {
        let path = scratch.path(&number.to_string());
        procession::run(async {
            let mut file = File::create(&path).await.expect("it can be created");
            file.write_all(&[7; 100_000]).await.expect("it is handed over");
        });
        assert_eq!(std::fs::metadata(&path).expect("it is there").len(), 100_000);
    }
}

/// A process of `scheduler` hands over more than the FIFO holds, and ends.
fn write_to_a_fifo(scheduler: &Scheduler, path: &Path) {
    let path = path.to_owned();
    let (tells, told) = channel();
    let writer = scheduler.spawn(async move {
        let mut file = OpenOptions::new().write(true).open(&path).await.expect("it has a reader");
        file.write_all(&[7; LENGTH]).await.expect("it is handed over");
        tells.send(()).expect("the test listens");
    });
    soon(&told);
    // A join would wait for the write. A process counts as ended a little later than its handle
    // says, and a short shutdown must not find it.
    let has_ended = || {
        let snapshot = scheduler.snapshot();
        writer.is_finished() && snapshot.spawned == snapshot.ended
    };
    while !has_ended() {
        thread::yield_now();
    }
}

fn assert_sevens(mut ends: &StdFile) {
    let mut bytes = vec![0; LENGTH];
    ends.read_exact(&mut bytes).expect("everything comes");
    assert!(bytes.iter().all(|&byte| byte == 7));
}

#[test]
fn a_shutdown_reports_the_writes_that_it_leaves() {
    let scratch = Scratch::new("end-left");
    let path = scratch.fifo();
    let ends = both_ends(&path);
    let (scheduler, other) = (threaded(1), threaded(1));
    write_to_a_fifo(&scheduler, &path);
    let unfinished = other.block_on(other.shutdown(TIMEOUT));
    assert!(unfinished.is_empty(), "the write belongs to another scheduler: {unfinished}");
    let unfinished = scheduler.block_on(scheduler.shutdown(Duration::from_millis(20)));
    assert_eq!((unfinished.processes.len(), unfinished.writes), (0, 1));
    assert!(!unfinished.is_empty());
    assert_eq!(unfinished.to_string(), "1 write had not ended or was lost");
    let unfinished = scheduler.block_on(scheduler.shutdown(Duration::from_millis(20)));
    assert!(unfinished.is_empty(), "it is reported once");
    // The helper goes on.
    assert_sevens(&ends);
}

/// Awaits the shutdown of a scheduler that has a write which does not end.
type Awaits = fn(Scheduler) -> Unfinished;

async fn end_soon(scheduler: Scheduler) -> Unfinished {
    scheduler.shutdown(SOON).await
}

/// The scheduler has ended when it waits for the write, so nobody fires its timers.
#[test]
fn a_shutdown_that_is_awaited_elsewhere_gives_up_at_its_deadline() {
    let cases: [(&str, Awaits); 8] = [
        ("in its own block_on", |scheduler| scheduler.block_on(end_soon(scheduler.clone()))),
        ("in the block_on of another", |scheduler| threaded(1).block_on(end_soon(scheduler))),
        ("in run", |scheduler| procession::run(end_soon(scheduler))),
        ("in a process of its own", |scheduler| {
            block_on(scheduler.spawn(end_soon(scheduler.clone()))).expect("it does not panic")
        }),
        ("in a process of another", |scheduler| {
            threaded(1).spawn(end_soon(scheduler)).join().expect("it does not panic")
        }),
        ("in another runtime", |scheduler| block_on(end_soon(scheduler))),
        ("in another runtime, entered", |scheduler| {
            let _entered = scheduler.enter();
            block_on(end_soon(scheduler.clone()))
        }),
        ("in a job of its own", |scheduler| {
            let job = {
                let _entered = scheduler.enter();
                let ending = scheduler.clone();
                spawn_blocking(move || block_on(end_soon(ending)))
            };
            block_on(job).expect("it does not panic")
        }),
    ];
    for (number, (place, awaits)) in cases.into_iter().enumerate() {
        let scratch = Scratch::new(&format!("end-elsewhere-{number}"));
        let path = scratch.fifo();
        let ends = both_ends(&path);
        let scheduler = threaded(1);
        write_to_a_fifo(&scheduler, &path);
        let (tells, told) = channel();
        #[expect(clippy::disallowed_methods, reason = "the test goes on if it never returns")]
        let waits = thread::spawn(move || tells.send(awaits(scheduler)).expect("the test listens"));
        let unfinished = told.recv_timeout(TIMEOUT);
        let unfinished = unfinished.unwrap_or_else(|_| panic!("{place}, it does not return"));
        assert_eq!((unfinished.processes.len(), unfinished.writes), (0, 1), "{place}");
        waits.join().expect("it does not panic");
        assert_sevens(&ends);
    }
}

/// Without a scheduler of the program that goes on.
#[test]
fn a_shutdown_of_the_default_scheduler_gives_up_at_its_deadline() {
    let name = "a_shutdown_of_the_default_scheduler_gives_up_at_its_deadline";
    drop(in_child(name, || {
        let scratch = Scratch::new("end-default");
        let path = scratch.fifo();
        let _ends = both_ends(&path);
        write_to_a_fifo(Scheduler::global(), &path);
        let (tells, told) = channel();
        #[expect(clippy::disallowed_methods, reason = "the test goes on if it never returns")]
        let waits = thread::spawn(move || {
            tells.send(block_on(end_soon(Scheduler::global().clone()))).expect("it listens");
        });
        assert_eq!(soon(&told).writes, 1);
        waits.join().expect("it does not panic");
        drop(scratch);
        end_at_once(0);
    }));
}

#[test]
fn a_write_that_a_shutdown_gives_up_holds_up_no_other_shutdown() {
    let scratch = Scratch::new("end-both");
    let path = scratch.fifo();
    let ends = both_ends(&path);
    let scheduler = threaded(1);
    write_to_a_fifo(&scheduler, &path);
    let (patient, impatient) = scheduler.block_on(async {
        let patient = scheduler.shutdown(Duration::MAX);
        let both = zip(patient, scheduler.shutdown(SOON));
        timeout(TIMEOUT, both).await.expect("nothing is left to wait for")
    });
    assert!(patient.is_empty(), "the write is reported once: {patient}");
    assert_eq!(impatient.writes, 1);
    assert_sevens(&ends);
}

#[test]
fn a_write_that_a_shutdown_gives_up_does_not_hold_up_the_end_of_main() {
    let name = "a_write_that_a_shutdown_gives_up_does_not_hold_up_the_end_of_main";
    let output = in_child(name, || {
        let scratch = Scratch::new("end-given-up");
        let path = scratch.fifo();
        let ends = both_ends(&path);
        let scheduler = threaded(1);
        write_to_a_fifo(&scheduler, &path);
        #[expect(clippy::disallowed_methods, reason = "it does not end with the test")]
        drop(thread::spawn(move || {
            assert_eq!(scheduler.block_on(scheduler.shutdown(SOON)).writes, 1);
            // By now, nothing holds up the end. It would wait for 10 s.
            let (_keeps, never) = channel::<()>();
            never.recv_timeout(Duration::from_secs(6)).expect_err("nothing is sent");
            end_at_once(1);
        }));
        // The reader exists as long as the program.
        std::mem::forget(ends);
    });
    let Some(output) = output else { return };
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(!text.contains("data is lost"), "the shutdown has reported it: {text}");
}

#[test]
fn a_shutdown_waits_for_a_slow_reader() {
    let scratch = Scratch::new("end-slow");
    let path = scratch.fifo();
    let ends = both_ends(&path);
    let scheduler = threaded(1);
    write_to_a_fifo(&scheduler, &path);
    #[expect(clippy::disallowed_methods, reason = "another program reads at its own pace")]
    let reader = thread::spawn(move || assert_sevens(&ends));
    let unfinished = scheduler.block_on(scheduler.shutdown(TIMEOUT));
    assert!(unfinished.is_empty(), "{unfinished}");
    reader.join().expect("everything comes");
}

#[test]
fn a_shutdown_counts_a_write_whose_error_nobody_received() {
    let scheduler = threaded(1);
    let unfinished = scheduler.block_on(async {
        for is_told in [true, false] {
            let writer = spawn(async move {
                let full = OpenOptions::new().write(true).open("/dev/full").await;
                let mut full = full.expect("Linux has it");
                full.write_all(b"lost").await.expect("it is handed over");
                if is_told {
                    full.flush().await.expect_err("nothing is written");
                }
            });
            writer.await.expect("it does not panic");
        }
        scheduler.shutdown(TIMEOUT).await
    });
    assert_eq!((unfinished.processes.len(), unfinished.writes), (0, 1));
}

/// The helper may be in the middle of the file when its process is dropped.
#[test]
fn a_shutdown_waits_for_a_write_of_a_whole_file_whose_process_it_has_dropped() {
    let scratch = Scratch::new("end-whole");
    let path = scratch.fifo();
    // Without a reader, the helper waits in the open.
    let scheduler = threaded(1);
    let (tells, told) = channel();
    let writer = {
        let path = path.clone();
        scheduler.spawn(async move {
            let write = fs::write(path, vec![7; LENGTH]);
            assert!(super::begun_and_kept(write, || tells.send(()).expect("it listens")).await);
        })
    };
    soon(&told);
    #[expect(clippy::disallowed_methods, reason = "another program reads at its own pace")]
    let reader = thread::spawn(move || {
        // Opens when the process is gone.
        assert!(writer.join().is_err());
        assert_sevens(&StdOpenOptions::new().read(true).open(path).expect("it is there"));
    });
    let unfinished = scheduler.block_on(scheduler.shutdown(TIMEOUT));
    assert!(unfinished.is_empty(), "{unfinished}");
    reader.join().expect("everything comes");
}

#[cfg(feature = "signal")]
#[test]
fn a_service_that_leaves_a_write_fails() {
    use std::process::{ExitCode, Termination};

    let scratch = Scratch::new("end-service");
    let path = scratch.fifo();
    let ends = both_ends(&path);
    let scheduler = threaded(1);
    let stopped = scheduler.run_until_signal(Duration::from_millis(20), async {
        let mut file = OpenOptions::new().write(true).open(&path).await.expect("it has a reader");
        file.write_all(&[7; LENGTH]).await.expect("it is handed over");
    });
    let stopped = stopped.expect("the system has descriptors");
    assert_eq!(stopped.unfinished().writes, 1);
    assert_eq!(stopped.to_string(), "stopped\n1 write had not ended or was lost");
    assert_eq!(stopped.report(), ExitCode::FAILURE);
    assert_sevens(&ends);
}
