//! Writes that the system refuses.

use std::fs::File as StdFile;
use std::future::{Future, poll_fn};
use std::io::{ErrorKind, SeekFrom, pipe};
use std::os::fd::OwnedFd;
use std::process::{Command, Stdio};
use std::task::Poll;

use procession::fs::{File, OpenOptions};
use procession::io;
use rustix::io::ioctl_fionbio;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::Scratch;

/// Opens the file that is always full, and writes to it.
async fn full() -> File {
    let mut full = OpenOptions::new().write(true).open("/dev/full").await.expect("Linux has it");
    full.write_all(b"kept").await.expect("it is handed over");
    full
}

#[test]
fn an_error_of_a_write_stays_until_the_data_is_written() {
    procession::run(async {
        let mut file = full().await;
        for attempt in 0..3 {
            let error = file.flush().await.expect_err("nothing is written");
            assert_eq!(error.kind(), ErrorKind::StorageFull, "{attempt}");
        }
        let error = file.write(b"not taken").await.expect_err("the first is not written");
        assert_eq!(error.kind(), ErrorKind::StorageFull);
        assert_eq!(file.sync_all().await.expect_err("as before").kind(), ErrorKind::StorageFull);
        assert_eq!(
            file.seek(SeekFrom::Start(0)).await.expect_err("as before").kind(),
            ErrorKind::StorageFull
        );
        assert_eq!(file.into_std().await.expect_err("as before").kind(), ErrorKind::StorageFull);

        // The first operation after the write may be any of them.
        let error = full().await.write(b"not taken").await.expect_err("the first is not written");
        assert_eq!(error.kind(), ErrorKind::StorageFull);
        let error = full().await.sync_all().await.expect_err("nothing is written");
        assert_eq!(error.kind(), ErrorKind::StorageFull);
        let error = full().await.into_std().await.expect_err("nothing is written");
        assert_eq!(error.kind(), ErrorKind::StorageFull);
    });
}

/// Goal: of data that was refused, each byte is written once. Method: a child process has a limit
/// on the size of files, which stands for a full disk, and raises it.
#[test]
fn what_was_refused_is_written_once_and_in_order_when_there_is_room_again() {
    const NAME: &str =
        "files::errors::what_was_refused_is_written_once_and_in_order_when_there_is_room_again";
    const CHILD: &str = "PROCESSION_FULL";
    if std::env::var_os(CHILD).is_none() {
        // The signal that goes with the error would end the child.
        let status = Command::new("sh")
            .args(["-c", "trap '' XFSZ; exec \"$@\"", "sh"])
            .arg(std::env::current_exe().expect("a test knows itself"))
            .args([NAME, "--exact", "--nocapture", "--test-threads=1"])
            .env(CHILD, "1")
            .stdout(Stdio::null())
            .status();
        return assert!(status.expect("it can be started").success());
    }
    const STEP: u64 = 80_000;
    let limit = |size| {
        let maximum = getrlimit(Resource::Fsize).maximum;
        setrlimit(Resource::Fsize, Rlimit { current: Some(size), maximum }).expect("it is soft");
    };
    let scratch = Scratch::new("full");
    let path = scratch.path("full");
    let data: Vec<u8> = (0..300_000_u32).map(|n| (n % 251) as u8).collect();
    limit(STEP);
    procession::run(async {
        let mut file = File::create(&path).await.expect("there is room");
        file.write_all(&data).await.expect("it is handed over");
        let mut attempts = 0;
        while let Err(error) = file.flush().await {
            assert_eq!(error.kind(), ErrorKind::FileTooLarge);
            let error = file.flush().await.expect_err("there is no room");
            assert_eq!(error.kind(), ErrorKind::FileTooLarge);
            let error = file.write(b"not taken").await.expect_err("there is no room");
            assert_eq!(error.kind(), ErrorKind::FileTooLarge);
            attempts += 1;
            assert_eq!(std::fs::metadata(&path).expect("it is there").len(), attempts * STEP);
            limit((attempts + 1) * STEP);
        }
        assert_eq!(attempts, data.len() as u64 / STEP);
        file.write_all(b"end").await.expect("it is handed over");
        drop(file.into_std().await.expect("there is room"));
    });
    let found = std::fs::read(&path).expect("it was written");
    assert!(found[..data.len()] == data && &found[data.len()..] == b"end", "{}", found.len());
}

/// A pipe in non-blocking mode that is full or empty is waited for.
#[test]
fn a_file_in_non_blocking_mode_is_waited_for() {
    let (reads, writes) = pipe().expect("the system has descriptors");
    ioctl_fionbio(&reads, true).expect("it is open");
    ioctl_fionbio(&writes, true).expect("it is open");
    let mut writer = File::from(OwnedFd::from(writes));
    let mut reader = File::from(OwnedFd::from(reads));
    procession::run(async {
        let mut byte = [0];
        let mut first = Box::pin(reader.read(&mut byte));
        let waits = poll_fn(|task| Poll::Ready(first.as_mut().poll(task).is_pending()));
        assert!(waits.await);
        writer.write_all(b"a").await.expect("it is handed over");
        assert_eq!(first.await.expect("it is waited for"), 1);
        let reads = procession::spawn(async move {
            let mut found = Vec::new();
            reader.read_to_end(&mut found).await.expect("it is waited for");
            found.len()
        });
        writer.write_all(&[7; 300_000]).await.expect("it is handed over");
        writer.flush().await.expect("it is waited for");
        drop(writer);
        assert_eq!(reads.await, Ok(300_000));
    });
}

#[test]
fn a_standard_stream_keeps_what_was_refused() {
    const NAME: &str = "files::errors::a_standard_stream_keeps_what_was_refused";
    const CHILD: &str = "PROCESSION_ERRORS";
    if std::env::var_os(CHILD).is_some() {
        return procession::run(async {
            let mut err = io::stderr();
            err.write_all(b"kept").await.expect("it is handed over");
            for attempt in 0..3 {
                let error = err.flush().await.expect_err("nothing is written");
                assert_eq!(error.kind(), ErrorKind::StorageFull, "{attempt}");
            }
        });
    }
    let full = StdFile::options().write(true).open("/dev/full").expect("Linux has it");
    let status = Command::new(std::env::current_exe().expect("a test knows itself"))
        .args([NAME, "--exact", "--nocapture", "--test-threads=1"])
        .env(CHILD, "1")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(full)
        .status();
    assert!(status.expect("it can be started").success());
}
