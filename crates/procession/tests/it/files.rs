//! Files and directories: what reaches the disk, errors, and operations that never end.

mod ends;
mod errors;
mod positions;

use std::fs::{File as StdFile, OpenOptions as StdOpenOptions};
use std::future::{Future, poll_fn};
use std::io::{ErrorKind, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::task::Poll;

use futures_lite::{AsyncReadExt, AsyncSeekExt, AsyncWriteExt};
use procession::fs::{self, File, OpenOptions};
use procession::time::Instant;
use procession::{Scheduler, SpawnOptions, coroutine, spawn, timeout};
use rustix::fs::{CWD, FileType, Mode, mknodat};

use crate::home::mpsc::channel;
use crate::home::thread;
use crate::scene::{TIMEOUT, driven, soon, threaded};

/// A directory that is removed at the end of a test.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let path =
            std::env::temp_dir().join(format!("procession-files-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&path).expect("it can be created");
        Self(path)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Creates a FIFO.
    fn fifo(&self) -> PathBuf {
        let path = self.path("fifo");
        let mode = Mode::RUSR | Mode::WUSR;
        mknodat(CWD, &path, FileType::Fifo, mode, 0).expect("it can be created");
        path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).expect("it is there");
    }
}

/// Opens both ends of a FIFO, which waits for nobody.
fn both_ends(path: &Path) -> StdFile {
    StdOpenOptions::new().read(true).write(true).open(path).expect("it is there")
}

/// Polls once, and drops the future. Returns `true` if it waits.
async fn begun_and_dropped<F: Future>(future: F) -> bool {
    let mut future = pin!(future);
    poll_fn(|task| Poll::Ready(future.as_mut().poll(task).is_pending())).await
}

/// Polls once, calls `then`, and waits for the rest. Returns `true` if it waited.
async fn begun_and_kept<F: Future>(future: F, then: impl FnOnce()) -> bool {
    let mut future = pin!(future);
    let waits = poll_fn(|task| Poll::Ready(future.as_mut().poll(task).is_pending())).await;
    then();
    if waits {
        future.await;
    }
    waits
}

#[test]
fn a_file_is_written_and_read_through_every_interface() {
    let scratch = Scratch::new("interfaces");
    let path = scratch.path("file");
    procession::run(async {
        let mut file = File::create_new(&path).await.expect("it is new");
        file.write_all(b"inherent ").await.expect("it is open");
        AsyncWriteExt::write_all(&mut file, b"futures ").await.expect("it is open");
        #[cfg(feature = "tokio-io")]
        poll_fn(|task| {
            tokio::io::AsyncWrite::poll_write(std::pin::Pin::new(&mut file), task, b"tokio ")
        })
        .await
        .expect("it is open");
        #[cfg(not(feature = "tokio-io"))]
        file.write_all(b"tokio ").await.expect("it is open");
        Write::write_all(&mut file, b"std").expect("it is open");
        Write::flush(&mut file).expect("it was written");

        AsyncSeekExt::seek(&mut file, SeekFrom::Start(9)).await.expect("it has positions");
        let mut bytes = [0; 8];
        AsyncReadExt::read_exact(&mut file, &mut bytes).await.expect("there are more");
        assert_eq!(&bytes, b"futures ");
        let mut rest = String::new();
        file.read_to_string(&mut rest).await.expect("it is text");
        assert_eq!(rest, "tokio std");
        Seek::rewind(&mut file).expect("it has positions");
        let mut all = String::new();
        Read::read_to_string(&mut file, &mut all).expect("it is text");
        assert_eq!(all, "inherent futures tokio std");
        assert_eq!(file.read(&mut bytes).await.expect("it is open"), 0, "the end");
    });
}

#[test]
fn more_than_one_buffer_is_written_and_read() {
    let scratch = Scratch::new("large");
    let path = scratch.path("file");
    let bytes: Vec<u8> = (0..5_000_000_u32).map(|n| (n / 7) as u8).collect();
    procession::run(async {
        let mut file = File::create(&path).await.expect("it can be created");
        assert_eq!(file.write(&bytes).await.expect("it is open"), 2 << 20, "one buffer");
        file.write_all(&bytes[2 << 20..]).await.expect("it is open");
        file.sync_all().await.expect("everything was written");
        assert_eq!(file.metadata().await.expect("it is open").len(), 5_000_000);
        let mut read = Vec::new();
        let mut file = File::open(&path).await.expect("it is there");
        assert_eq!(file.read_to_end(&mut read).await.expect("it can be read"), bytes.len());
        assert!(read == bytes);
    });
}

#[test]
fn a_file_is_taken_back_beside_an_operation_that_was_abandoned() {
    let scratch = Scratch::new("abandoned");
    let path = scratch.path("file");
    procession::run(async {
        let mut file = File::create_new(&path).await.expect("it is new");
        file.write_all(b"four").await.expect("it is handed over");
        // It holds the file, too, until it ends.
        let metadata = file.metadata();
        let mut taken = file.into_std().await.expect("everything was written");
        assert_eq!(taken.stream_position().expect("it has positions"), 4);
        assert_eq!(metadata.await.expect("it is open").len(), 4);
    });
}

#[test]
fn a_dropped_file_finishes_its_write() {
    let scratch = Scratch::new("dropped");
    let path = scratch.fifo();
    let ends = both_ends(&path);
    #[expect(clippy::disallowed_methods, reason = "another program reads at its own pace")]
    let reader = thread::spawn(move || {
        let mut bytes = vec![0; 200_000];
        (&ends).read_exact(&mut bytes).expect("everything comes");
        bytes
    });
    procession::run(async {
        let mut file = OpenOptions::new().write(true).open(&path).await.expect("it has a reader");
        // More than a FIFO holds, so it cannot have ended before the drop.
        file.write_all(&[7; 200_000]).await.expect("it is handed over");
    });
    let bytes = reader.join().expect("everything comes");
    assert!(bytes.iter().all(|&byte| byte == 7));
}

#[test]
fn a_read_that_was_dropped_leaves_its_data_for_the_next() {
    let scratch = Scratch::new("ahead");
    let path = scratch.fifo();
    let mut ends = both_ends(&path);
    procession::run(async {
        let mut file = File::open(&path).await.expect("it has a writer");
        assert!(begun_and_dropped(file.read(&mut [0; 64])).await, "there is nothing to read");
        ends.write_all(b"abcdef").expect("there is room");
        let mut bytes = [0; 2];
        for expected in [b"ab", b"cd", b"ef"] {
            assert_eq!(file.read(&mut bytes).await.expect("it is open"), 2);
            assert_eq!(&bytes, expected);
        }
    });
}

#[test]
fn what_a_fifo_gave_in_advance_outlives_a_write() {
    let scratch = Scratch::new("fifo-write");
    let path = scratch.fifo();
    let mut other = both_ends(&path);
    procession::run(async {
        let mut file = File::from(both_ends(&path));
        assert!(begun_and_dropped(file.read(&mut [0; 64])).await, "there is nothing to read");
        other.write_all(b"abcd").expect("there is room");
        let mut first = [0; 1];
        assert_eq!(file.read(&mut first).await.expect("it is open"), 1);
        // The position of a FIFO cannot be moved back, so the rest stays in the buffer.
        file.write_all(b"ef").await.expect("there is room");
        file.flush().await.expect("there is room");
        let mut rest = [0; 5];
        file.read_exact(&mut rest).await.expect("it is open");
        assert_eq!((&first, &rest), (b"a", b"bcdef"));
    });
}

#[test]
fn a_process_that_opens_a_fifo_without_a_writer_can_be_ended() {
    let scratch = Scratch::new("fifo-open");
    let path = scratch.fifo();
    let scheduler = threaded(2);
    let opens = path.clone();
    let (tells, told) = channel();
    let opener = scheduler.spawn(async move {
        let mut opened = pin!(File::open(opens));
        let waits = poll_fn(|task| Poll::Ready(opened.as_mut().poll(task).is_pending())).await;
        tells.send(waits).expect("the test listens");
        opened.await.map(drop)
    });
    assert!(soon(&told), "the open waits for a writer");
    // Terminates the process.
    drop(scheduler);
    assert!(opener.join_timeout(TIMEOUT).expect("it ends").is_err());
    // The helper still opens the file. With a writer it ends, too.
    drop(StdOpenOptions::new().write(true).open(&path).expect("the helper reads"));
}

#[test]
fn abandoned_reads_do_not_keep_a_scheduler() {
    let scratch = Scratch::new("fifo-end");
    let path = scratch.fifo();
    let ends = both_ends(&path);
    for _ in 0..20 {
        let scheduler = threaded(1);
        let path = path.clone();
        scheduler.block_on(async move {
            let mut file = File::open(path).await.expect("it has a writer");
            assert!(begun_and_dropped(file.read(&mut [0; 64])).await, "there is nothing to read");
        });
        drop(scheduler);
    }
    // Ends the reads of all helpers.
    (&ends).write_all(&[0; 64 * 20]).expect("there is room");
}

#[test]
fn appends_of_several_files_are_all_kept() {
    let scratch = Scratch::new("append");
    let path = scratch.path("log");
    procession::run(async {
        let writers: Vec<_> = (0..8)
            .map(|n| {
                let path = path.clone();
                spawn(async move {
                    let mut options = File::options();
                    let mut log = options.append(true).create(true).open(path).await?;
                    for _ in 0..50 {
                        log.write_all(format!("{n}\n").as_bytes()).await?;
                    }
                    log.flush().await
                })
            })
            .collect();
        for writer in writers {
            writer.await.expect("it does not panic").expect("everything was written");
        }
        let text = fs::read_to_string(&path).await.expect("it is there");
        for n in 0..8 {
            assert_eq!(text.lines().filter(|line| *line == n.to_string()).count(), 50);
        }
    });
}

#[test]
fn paths_are_made_moved_and_removed() {
    let scratch = Scratch::new("paths");
    procession::run(async {
        let deep = scratch.path("a/b/c");
        fs::create_dir_all(&deep).await?;
        fs::create_dir_all(&deep).await?;
        let exists = fs::create_dir(&deep).await.expect_err("it exists");
        assert_eq!(exists.kind(), ErrorKind::AlreadyExists);
        let (one, two, link) = (deep.join("one"), deep.join("two"), deep.join("link"));
        fs::write(&one, "text").await?;
        fs::rename(&one, &two).await?;
        assert!(!fs::try_exists(&one).await?);
        assert_eq!(fs::copy(&two, &one).await?, 4);
        fs::symlink(&two, &link).await?;
        assert_eq!(fs::read_link(&link).await?, two);
        assert!(fs::symlink_metadata(&link).await?.is_symlink());
        assert!(fs::metadata(&link).await?.is_file());
        assert_eq!(fs::canonicalize(&link).await?, fs::canonicalize(&two).await?);
        fs::hard_link(&two, deep.join("hard")).await?;
        let mut permissions = fs::metadata(&two).await?.permissions();
        permissions.set_readonly(true);
        fs::set_permissions(&two, permissions).await?;
        assert!(fs::metadata(&two).await?.permissions().readonly());
        fs::remove_file(&link).await?;
        let missing = fs::read(&link).await.expect_err("it is gone");
        assert_eq!(missing.kind(), ErrorKind::NotFound);
        fs::create_dir(deep.join("empty")).await?;
        fs::remove_dir(deep.join("empty")).await?;
        fs::remove_dir_all(scratch.path("a")).await
    })
    .expect("every step works");
}

#[test]
fn a_directory_of_several_chunks_is_read_whole_beside_dropped_reads() {
    let scratch = Scratch::new("directory");
    for n in 0..100 {
        std::fs::write(scratch.path(&n.to_string()), "").expect("it can be written");
    }
    procession::run(async {
        let mut entries = fs::read_dir(&scratch.0).await.expect("it is there");
        let mut numbers = Vec::new();
        loop {
            // Of those that are dropped, each waits; none takes an entry.
            let next = {
                let mut next = pin!(entries.next_entry());
                poll_fn(|task| Poll::Ready(next.as_mut().poll(task))).await
            };
            let Poll::Ready(next) = next else {
                procession::yield_now().await;
                continue;
            };
            let Some(entry) = next.expect("it can be read") else { break };
            assert!(entry.file_type().await.expect("it is there").is_file());
            assert_eq!(entry.metadata().await.expect("it is there").len(), 0);
            assert_eq!(entry.path(), scratch.path(entry.file_name().to_str().expect("a number")));
            numbers.push(entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()));
        }
        numbers.sort_unstable();
        assert_eq!(numbers, (0..100).map(Some).collect::<Vec<_>>());
        assert!(entries.next_entry().await.expect("the end stays").is_none());
    });
}

#[test]
fn a_length_is_set_and_the_position_stays() {
    let scratch = Scratch::new("length");
    procession::run(async {
        let mut file = File::create_new(scratch.path("file")).await?;
        file.write_all(b"0123456789").await?;
        file.set_len(4).await?;
        file.sync_data().await?;
        assert_eq!(file.metadata().await?.len(), 4);
        assert_eq!(Seek::stream_position(&mut file)?, 10);
        assert_eq!(file.seek(SeekFrom::End(-1)).await?, 3);
        let before = file.seek(SeekFrom::Current(-4)).await.expect_err("before the start");
        assert_eq!(before.kind(), ErrorKind::InvalidInput);
        let mut other = file.try_clone().await?;
        let mut bytes = [0; 4];
        let early = other.read_exact(&mut bytes).await.expect_err("one byte is left");
        assert_eq!(early.kind(), ErrorKind::UnexpectedEof);
        file.rewind().await?;
        other.read_exact(&mut bytes).await?;
        assert_eq!(&bytes, b"0123", "both have one position");
        Ok::<_, std::io::Error>(())
    })
    .expect("every step works");
}

/// After any reads and any move, a file reads and writes where one of std does.
#[test]
fn a_position_is_where_std_has_it() {
    let scratch = Scratch::new("positions");
    let content: Vec<u8> = (0..200).collect();
    let moves = [
        SeekFrom::Start(0),
        SeekFrom::Start(7),
        SeekFrom::Current(0),
        SeekFrom::Current(2),
        SeekFrom::Current(-1),
        SeekFrom::End(-5),
        SeekFrom::End(3),
    ];
    let open = |name: &str| {
        let path = scratch.path(name);
        std::fs::write(&path, &content).expect("it can be written");
        StdOpenOptions::new().read(true).write(true).open(path).expect("it is there")
    };
    procession::run(async {
        for first in [0, 1, 3, 64, 200] {
            for position in moves {
                for writes in [false, true] {
                    let (mut ours, mut theirs) = (File::from(open("ours")), open("theirs"));
                    let case = format!("{first} bytes, then {position:?}, writes: {writes}");
                    let mut bytes = vec![0; first];
                    ours.read_exact(&mut bytes).await.expect("there are as many");
                    assert_eq!(bytes, content[..first], "{case}");
                    theirs.read_exact(&mut bytes).expect("there are as many");
                    let moved = ours.seek(position).await.map_err(|error| error.kind());
                    let expected = theirs.seek(position).map_err(|error| error.kind());
                    assert_eq!(moved, expected, "{case}");
                    if writes {
                        ours.write_all(b"new").await.expect("it is handed over");
                        theirs.write_all(b"new").expect("there is room");
                    }
                    let (mut rest, mut expected) = (Vec::new(), Vec::new());
                    ours.read_to_end(&mut rest).await.expect("it can be read");
                    theirs.read_to_end(&mut expected).expect("it can be read");
                    assert_eq!(rest, expected, "{case}");
                    let read = |name: &str| std::fs::read(scratch.path(name)).expect("it is there");
                    assert_eq!(read("ours"), read("theirs"), "{case}");
                }
            }
        }
    });
}

#[test]
fn coroutines_and_threads_use_files_too() {
    let scratch = Scratch::new("coroutines");
    let path = scratch.path("file");
    coroutine::wait(fs::write(&path, "thread")).expect("it can be written");
    let builder = Scheduler::builder().worker_threads(1);
    // SAFETY: the coroutine here refers to no thread-local.
    let builder = unsafe { builder.enable_coroutines() };
    let scheduler = builder.build().expect("the system has threads");
    let read = SpawnOptions::new().on(&scheduler).try_start_coroutine({
        let path = path.clone();
        move |_: coroutine::Context<()>| {
            let mut file = coroutine::wait(File::open(path))?;
            let mut text = String::new();
            Read::read_to_string(&mut file, &mut text)?;
            Ok::<_, std::io::Error>(text)
        }
    });
    let text =
        read.expect("it is allowed").join().expect("it does not panic").expect("it is there");
    assert_eq!(text, "thread");
}

#[test]
fn the_test_clock_stands_still_during_an_operation() {
    let scratch = Scratch::new("clock");
    let path = scratch.fifo();
    let writer = {
        let path = path.clone();
        #[expect(clippy::disallowed_methods, reason = "another program does not see the clock")]
        thread::spawn(move || drop(StdOpenOptions::new().write(true).open(path)))
    };
    let scheduler = driven();
    scheduler.block_on(async {
        let before = Instant::now();
        let opened = timeout(std::time::Duration::from_secs(3600), File::open(&path)).await;
        opened.expect("the hour does not pass").expect("it has a writer");
        assert_eq!(Instant::now(), before);
    });
    writer.join().expect("it does not panic");
}

#[cfg(feature = "stream")]
#[test]
fn a_directory_is_a_stream() {
    use futures_lite::StreamExt;

    let scratch = Scratch::new("stream");
    for n in 0..40 {
        std::fs::write(scratch.path(&n.to_string()), "").expect("it can be written");
    }
    procession::run(async {
        let entries = fs::read_dir(&scratch.0).await.expect("it is there");
        let entries: Vec<_> = entries.try_collect().await.expect("it can be read");
        assert_eq!(entries.len(), 40);
        let missing = fs::read_dir(scratch.path("missing")).await.expect_err("there is none");
        assert_eq!(missing.kind(), ErrorKind::NotFound);
        let file = fs::read_dir(scratch.path("7")).await.expect_err("it is a file");
        assert_eq!(file.kind(), ErrorKind::NotADirectory);
    });
}

#[test]
fn a_file_that_cannot_be_read_or_written_says_so() {
    let scratch = Scratch::new("modes");
    let path = scratch.path("file");
    procession::run(async {
        let mut writes = File::create_new(&path).await.expect("it is new");
        writes.write_all(b"text").await.expect("it is handed over");
        writes.flush().await.expect("there is room");
        let mut reads = File::open(&path).await.expect("it is there");
        reads.write_all(b"more").await.expect("it is handed over");
        assert_eq!(reads.flush().await.expect_err("it is read-only").raw_os_error(), Some(9));
        let mut bytes = [0; 8];
        assert_eq!(reads.read(&mut bytes).await.expect("it can still be read"), 4);
        assert_eq!(reads.flush().await.expect_err("it is read-only").raw_os_error(), Some(9));
        assert_eq!(reads.write(b"x").await.expect_err("it is read-only").raw_os_error(), Some(9));
        let mut appends = File::options().append(true).open(&path).await.expect("it is there");
        assert_eq!(appends.read(&mut bytes).await.expect_err("write-only").raw_os_error(), Some(9));
        let mut folder = File::open(&scratch.0).await.expect("it is there");
        let is_folder = folder.read(&mut bytes).await.expect_err("it is a directory");
        assert_eq!(is_folder.kind(), ErrorKind::IsADirectory);
    });
}
