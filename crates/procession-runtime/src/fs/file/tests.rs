//! Random operations, some of which are dropped, against a file of std. A second handle sees the
//! position after each read.

use std::fs::File as StdFile;
use std::future::{Future, poll_fn};
use std::io::{ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;
use std::pin::pin;
use std::task::Poll;

use proptest::prelude::*;

use super::{File, run};

#[derive(Clone, Debug)]
enum FileOperation {
    Read(usize),
    Write(Vec<u8>),
    Seek(SeekFrom),
    Flush,
}

fn operation() -> impl Strategy<Value = FileOperation> {
    prop_oneof![
        (1..40_usize).prop_map(FileOperation::Read),
        prop::collection::vec(any::<u8>(), 1..40).prop_map(FileOperation::Write),
        (0..100_u64).prop_map(|to| FileOperation::Seek(SeekFrom::Start(to))),
        (-40..40_i64).prop_map(|by| FileOperation::Seek(SeekFrom::Current(by))),
        (-40..40_i64).prop_map(|by| FileOperation::Seek(SeekFrom::End(by))),
        Just(FileOperation::Flush),
    ]
}

/// Polls the future to its end, or drops it after one poll. Returns its result if it has one.
async fn perhaps<F: Future>(future: F, drops: bool) -> Option<F::Output> {
    let mut future = pin!(future);
    if !drops {
        return Some(future.await);
    }
    poll_fn(|task| match future.as_mut().poll(task) {
        Poll::Ready(result) => Poll::Ready(Some(result)),
        Poll::Pending => Poll::Ready(None),
    })
    .await
}

/// Plays the operations on a file here and on one of std, which sees only those that completed.
async fn play(operations: Vec<(FileOperation, bool)>, inline: bool) {
    let [file, mut theirs] = [(); 2].map(|()| filled());
    let mut twin = file.try_clone().expect("the system has descriptors");
    let mut ours = File::from(file);
    ours.reads_inline = inline;
    for (operation, drops) in operations {
        match operation {
            FileOperation::Read(room) => {
                let mut read = vec![0; room];
                if let Some(count) = perhaps(ours.read(&mut read), drops).await {
                    let count = count.expect("it can be read");
                    let mut expected = vec![0; count];
                    theirs.read_exact(&mut expected).expect("it has as much");
                    assert_eq!(read[..count], expected);
                    if count == 0 {
                        assert_eq!(theirs.read(&mut [0]).expect("it can be read"), 0, "the end");
                    }
                    let at = theirs.stream_position().expect("it has positions");
                    assert_eq!(twin.stream_position().expect("it has positions"), at);
                }
            }
            FileOperation::Write(bytes) => {
                if let Some(count) = perhaps(ours.write(&bytes), drops).await {
                    assert_eq!(count.expect("it can be written"), bytes.len());
                    theirs.write_all(&bytes).expect("it can be written");
                }
            }
            // A seek that is dropped may have taken place or not.
            FileOperation::Seek(to) => {
                let moved = ours.seek(to).await.map_err(|error| error.kind());
                assert_eq!(moved, theirs.seek(to).map_err(|error| error.kind()), "{to:?}");
            }
            FileOperation::Flush => {
                if let Some(flushed) = perhaps(ours.flush(), drops).await {
                    flushed.expect("it can be written");
                }
            }
        }
    }
    let mut ours = ours.into_std().await.expect("everything was written");
    let at = theirs.stream_position().expect("it has positions");
    assert_eq!(ours.stream_position().expect("it has positions"), at);
    assert_eq!(content(&mut ours), content(&mut theirs));
}

/// A read that was dropped has moved the position. The next read gives back what it does not want.
#[test]
fn what_an_abandoned_read_leaves_is_given_back() {
    let file = filled();
    let mut twin = file.try_clone().expect("the system has descriptors");
    let mut file = File::from(file);
    file.reads_inline = false;
    crate::run(async {
        abandon_a_read(&mut file, 0).await;
        for expected in [[0, 1, 2], [3, 4, 5]] {
            let mut bytes = [0; 3];
            file.read_exact(&mut bytes).await.expect("it has as much");
            assert_eq!(bytes, expected);
            let at = u64::from(expected[2]) + 1;
            assert_eq!(twin.stream_position().expect("it has positions"), at);
        }
    });
}

/// Goal: a seek from the position counts from where the reader is. Method: an abandoned read has
/// moved the position of the system further.
#[test]
fn a_seek_from_the_position_does_not_count_what_was_abandoned() {
    let mut file = File::from(filled());
    file.reads_inline = false;
    crate::run(async {
        for by in [-3, 0, 3] {
            abandon_a_read(&mut file, 10).await;
            let at = file.seek(SeekFrom::Current(by)).await.expect("it has positions");
            assert_eq!(at, (10 + by) as u64);
            let mut byte = [0];
            file.read_exact(&mut byte).await.expect("it has as much");
            assert_eq!(u64::from(byte[0]), at);
        }
    });
}

/// Goal: a file that has grown is read, whatever an abandoned read has found before. Method: the
/// helpers are likely to have read the end before the file grows. If not, the read finds the same.
#[test]
fn the_end_that_an_abandoned_read_has_found_is_not_kept() {
    let file = filled();
    let twin = file.try_clone().expect("the system has descriptors");
    let mut file = File::from(file);
    file.reads_inline = false;
    crate::run(async {
        for end in (200..500).step_by(3) {
            abandon_a_read(&mut file, end).await;
            run(|| Ok(())).await.expect("the system has threads");
            twin.write_all_at(b"new", end).expect("there is room");
            assert_eq!(file.read(&mut [0; 8]).await.expect("it can be read"), 3);
            assert_eq!(file.read(&mut [0; 8]).await.expect("it can be read"), 0, "the new end");
        }
    });
}

/// The error of an abandoned read is not overtaken by data that the worker itself reads.
#[test]
fn the_error_of_an_abandoned_read_stays_for_the_next() {
    let folder = StdFile::open(std::env::temp_dir()).expect("it is there");
    let mut file = File::from(folder);
    file.reads_inline = false;
    crate::run(async {
        abandon_a_read(&mut file, 0).await;
        file.flush().await.expect("there is nothing to write");
        assert!(file.buffered.is_engaged());
        let error = file.read(&mut [0; 8]).await.expect_err("it is a directory");
        assert_eq!(error.kind(), ErrorKind::IsADirectory);
        assert!(!file.buffered.is_engaged());
    });
}

/// Begins a read at this position and drops it.
async fn abandon_a_read(file: &mut File, at: u64) {
    loop {
        file.seek(SeekFrom::Start(at)).await.expect("it has positions");
        // If the helper is done by the first poll, nothing was abandoned.
        if perhaps(file.read(&mut [0; 100]), true).await.is_none() {
            return;
        }
    }
}

/// Returns a file with 200 bytes, each of which is the number of its place.
fn filled() -> StdFile {
    let mut file = scratch();
    file.write_all(&(0..200).collect::<Vec<u8>>()).expect("there is room");
    file.rewind().expect("it has positions");
    file
}

fn scratch() -> StdFile {
    let folder = std::env::temp_dir();
    let flags = rustix::fs::OFlags::TMPFILE | rustix::fs::OFlags::RDWR;
    rustix::fs::open(&folder, flags, rustix::fs::Mode::RUSR).expect("it can be created").into()
}

fn content(file: &mut StdFile) -> Vec<u8> {
    let mut bytes = Vec::new();
    file.rewind().expect("it has positions");
    file.read_to_end(&mut bytes).expect("it can be read");
    bytes
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..Default::default() })]

    #[test]
    fn operations_that_are_dropped_change_nothing(
        operations in prop::collection::vec((operation(), any::<bool>()), 0..30),
        inline in any::<bool>(),
    ) {
        crate::run(play(operations, inline));
    }
}
