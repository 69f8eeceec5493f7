//! Writes that the system refuses.

use std::fs::File as StdFile;
use std::io::{ErrorKind, Read, SeekFrom, pipe};
use std::os::fd::OwnedFd;
use std::process::{Command, Stdio};

use procession::fs::{File, OpenOptions};
use procession::io;
use rustix::io::ioctl_fionbio;

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

/// A pipe without room refuses a part of the data, and takes it when it was read.
#[test]
fn what_was_refused_is_written_once_and_in_order_when_there_is_room_again() {
    let (mut reads, writes) = pipe().expect("the system has descriptors");
    ioctl_fionbio(&reads, true).expect("it is open");
    ioctl_fionbio(&writes, true).expect("it is open");
    let mut file = File::from(OwnedFd::from(writes));
    let data: Vec<u8> = (0..300_000_u32).map(|n| (n % 251) as u8).collect();
    let mut found = Vec::new();
    procession::run(async {
        file.write_all(&data).await.expect("it is handed over");
        let mut attempts = 0;
        while let Err(error) = file.flush().await {
            assert_eq!(error.kind(), ErrorKind::WouldBlock);
            let error = file.flush().await.expect_err("there is no room");
            assert_eq!(error.kind(), ErrorKind::WouldBlock);
            let error = file.write(b"not taken").await.expect_err("there is no room");
            assert_eq!(error.kind(), ErrorKind::WouldBlock);
            assert_eq!(
                reads.read_to_end(&mut found).expect_err("the pipe is open").kind(),
                ErrorKind::WouldBlock
            );
            attempts += 1;
        }
        assert!(attempts > 1, "the pipe holds less");
        file.write_all(b"end").await.expect("it is handed over");
        drop(file.into_std().await.expect("there is room"));
    });
    reads.read_to_end(&mut found).expect("the pipe is closed");
    assert!(found[..data.len()] == data && &found[data.len()..] == b"end", "{}", found.len());
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
