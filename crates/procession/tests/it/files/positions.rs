//! The position of a file, for all that share it.

use std::fs::File as StdFile;
use std::io::{Read, Seek, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use procession::fs::File;
use procession::os_process::Command;
use rustix::io::ioctl_fionbio;

use super::{Scratch, both_ends};

/// Returns a file that the system reads without waiting, and one that only helpers read.
fn files(scratch: &Scratch) -> [PathBuf; 2] {
    let own = scratch.path("file");
    std::fs::write(&own, (0..10_000).map(|n| (n % 251) as u8).collect::<Vec<_>>())
        .expect("it can be created");
    [own, PathBuf::from("/proc/self/limits")]
}

fn content(path: &Path) -> Vec<u8> {
    std::fs::read(path).expect("it is there")
}

#[test]
fn a_read_moves_the_position_by_what_it_returns() {
    let scratch = Scratch::new("position-shared");
    for path in files(&scratch) {
        procession::run(async {
            let file = StdFile::open(&path).expect("it is there");
            let mut twin = file.try_clone().expect("the system has descriptors");
            let mut file = File::from(file);
            let (mut found, mut room) = (Vec::new(), vec![0; 1 << 20]);
            // After the first, the file has a buffer for more than the others want.
            for most in [512, 1, 100, 1, 300, 1, 1 << 20, 1, 1] {
                let count = file.read(&mut room[..most]).await.expect("it can be read");
                found.extend_from_slice(&room[..count]);
                let position = twin.stream_position().expect("it has positions");
                assert_eq!(position, found.len() as u64, "{}, {most}", path.display());
            }
            assert!(found == content(&path));
            file.rewind().await.expect("it has positions");
            assert_eq!(file.read(&mut [0; 1]).await.expect("it can be read"), 1);
            let mut taken = file.into_std().await.expect("it is open");
            assert_eq!(taken.stream_position().expect("it has positions"), 1);
        });
    }
}

#[test]
fn handles_that_read_in_turns_see_each_byte_once() {
    let scratch = Scratch::new("position-turns");
    for path in files(&scratch) {
        procession::run(async {
            let mut first = File::open(&path).await.expect("it is there");
            let mut second = first.try_clone().await.expect("the system has descriptors");
            let mut found = vec![0; 512];
            first.read_exact(&mut found).await.expect("it has as much");
            for turn in 0..20 {
                let file = if turn % 2 == 0 { &mut first } else { &mut second };
                let mut bytes = [0; 3];
                file.read_exact(&mut bytes).await.expect("it has as much");
                found.extend(bytes);
            }
            assert!(found == content(&path)[..found.len()], "{}", path.display());
        });
    }
}

#[test]
fn a_child_reads_what_follows() {
    let scratch = Scratch::new("position-child");
    for path in files(&scratch) {
        procession::run(async {
            let mut file = File::open(&path).await.expect("it is there");
            file.read_exact(&mut [0; 512]).await.expect("it has as much");
            file.rewind().await.expect("it has positions");
            for _ in 0..20 {
                file.read_exact(&mut [0; 1]).await.expect("it has as much");
            }
            let input: OwnedFd = file.as_fd().try_clone_to_owned().expect("there are descriptors");
            let output = Command::new("cat").stdin(input).output().await.expect("it is there");
            assert!(output.stdout == content(&path)[20..], "{}", path.display());
        });
    }
}

#[test]
fn a_fifo_keeps_what_no_read_asked_for() {
    let scratch = Scratch::new("position-fifo");
    let path = scratch.fifo();
    let mut writes = both_ends(&path);
    procession::run(async {
        let mut file = File::open(&path).await.expect("it has a writer");
        writes.write_all(b"abc").expect("there is room");
        assert_eq!(file.read(&mut [0; 4096]).await.expect("it is open"), 3);
        writes.write_all(b"defg").expect("there is room");
        assert_eq!(file.read(&mut [0; 1]).await.expect("it is open"), 1);
        let mut rest = file.into_std().await.expect("it is open");
        ioctl_fionbio(&rest, true).expect("it is open");
        let mut bytes = [0; 16];
        assert_eq!(rest.read(&mut bytes).expect("it is not empty"), 3);
        assert_eq!(&bytes[..3], b"efg");
    });
}
