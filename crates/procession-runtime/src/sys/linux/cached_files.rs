//! Reads of small files that are in memory, by the calling thread.
//!
//! A helper costs two wake-ups of threads by the system, which take several times as long as the
//! calls of such a read. So the caller first asks for what the kernel has without waiting:
//!
//! 1. It looks the path up in the kernel's cache of names (`RESOLVE_CACHED`, Linux 5.12), without
//!    opening the file (`O_PATH`). An open may wait for another program, or be noticed by it: the
//!    other end of a FIFO, a device, the server of a file system in user space. So the file must be
//!    a regular one, on a file system that opens its files in memory.
//! 2. It opens the file, with the path looked up in the same way. If another file is at the path by
//!    now, an open that has to wait for it fails (`O_NONBLOCK`).
//! 3. It reads from the page cache (`RWF_NOWAIT`) to the end of the file.
//!
//! Whenever the kernel would have to wait, or anything else is not as expected, a helper reads the
//! file from the start.
//!
//! # Allowed
//! Another program may put a FIFO or a device at the path between the two steps. Its open does not
//! wait, but its other end may notice. Nothing is read from it.
//!
//! A program that permits each open (fanotify) delays the worker. So does a file system that writes
//! the time of the access while its journal is full.

use std::ffi::CStr;
use std::fs::File;
use std::io::{self, IoSliceMut};
use std::path::Path;
use std::sync::OnceLock;

use rustix::fs::{CWD, FileType, Mode, OFlags, ResolveFlags, fstat, fstatfs, openat2};
use rustix::io::{ReadWriteFlags, preadv2};
use rustix::path::Arg;

/// The file systems that open a file without waiting if its name is cached, and read from the page
/// cache without waiting: ext4, XFS, Btrfs and F2FS.
const IN_MEMORY: [u32; 4] = [0xEF53, 0x5846_5342, 0x9123_683E, 0xF2F5_2010];

/// Opens a file by names that are in the kernel's cache.
fn open(path: &CStr, how: OFlags) -> Option<File> {
    let how = how | OFlags::CLOEXEC;
    openat2(CWD, path, how, Mode::empty(), ResolveFlags::CACHED).ok().map(File::from)
}

/// Returns `true` if the kernel looks names up in its cache, and no filter of calls refuses that.
fn is_supported() -> bool {
    static IS_SUPPORTED: OnceLock<bool> = OnceLock::new();
    // The root is always there.
    *IS_SUPPORTED.get_or_init(|| open(c"/", OFlags::PATH).is_some())
}

/// Returns the content of a file that has at most `length_max` bytes. `None` means that a helper
/// must read it.
pub(crate) fn read(path: &Path, length_max: usize) -> Option<Vec<u8>> {
    if !is_supported() {
        return None;
    }
    let path = &*path.into_c_str().ok()?;
    let named = open(path, OFlags::PATH)?;
    let status = fstat(&named).ok()?;
    let length = usize::try_from(status.st_size).ok()?;
    if FileType::from_raw_mode(status.st_mode) != FileType::RegularFile
        || !(1..=length_max).contains(&length)
        || !IN_MEMORY.contains(&(fstatfs(&named).ok()?.f_type as u32))
    {
        return None;
    }
    let file = open(path, OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY)?;
    let opened = fstat(&file).ok()?;
    if (opened.st_dev, opened.st_ino) != (status.st_dev, status.st_ino) {
        return None;
    }
    // One byte more, which shows that the file has grown.
    let mut content = vec![0; length + 1];
    let mut end = 0;
    while end < content.len() {
        let room = &mut [IoSliceMut::new(&mut content[end..])];
        match preadv2(&file, room, end as u64, ReadWriteFlags::NOWAIT) {
            Ok(0) => {
                content.truncate(end);
                return Some(content);
            }
            Ok(count) => end += count,
            Err(_) => return None,
        }
    }
    None
}

/// Reads from the position of a file what is in the page cache. Fails with
/// [`WouldBlock`](io::ErrorKind::WouldBlock) if the kernel would have to wait, and with another
/// error if the file cannot be read in this way.
pub(crate) fn read_on(file: &File, buffer: &mut [u8]) -> io::Result<usize> {
    /// The position of the file.
    const HERE: u64 = u64::MAX;
    Ok(preadv2(file, &mut [IoSliceMut::new(buffer)], HERE, ReadWriteFlags::NOWAIT)?)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::PathBuf;

    use rustix::fs::statfs;

    use super::{IN_MEMORY, is_supported, read};

    const LENGTH_MAX: usize = 64 << 10;

    /// A directory that is removed at the end.
    struct Scratch(PathBuf);

    impl Scratch {
        fn new(name: &str) -> Self {
            let name = format!("procession-cached-{name}-{}", std::process::id());
            let folder = std::env::temp_dir().join(name);
            fs::create_dir_all(&folder).expect("the directory of the system is writable");
            Self(folder)
        }

        fn file(&self, content: &[u8]) -> PathBuf {
            let path = self.0.join("file");
            fs::write(&path, content).expect("the directory is writable");
            path
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            // Ignored: the system removes what is left there.
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    /// What is read here is what std reads. Whether anything is depends on the file system. The
    /// kernel may let go of a page or of a name at any time, but hardly of all.
    #[test]
    fn content_is_that_of_the_file() {
        let scratch = Scratch::new("content");
        let kind = statfs(&scratch.0).expect("it exists").f_type as u32;
        let mut count = 0;
        for length in [1, 2, 4095, 4096, 4097, LENGTH_MAX] {
            let content: Vec<u8> = (0..length).map(|at| at as u8).collect();
            let path = scratch.file(&content);
            if let Some(found) = read(&path, LENGTH_MAX) {
                assert!(found == content, "{length}");
                count += 1;
            }
        }
        assert_eq!(count > 0, is_supported() && IN_MEMORY.contains(&kind), "{kind:x}");
    }

    /// A helper reads files that have no known end, that are larger than the limit, or that do not
    /// exist.
    #[test]
    fn other_files_are_left_to_helpers() {
        let scratch = Scratch::new("others");
        assert_eq!(read(&scratch.file(&[]), LENGTH_MAX), None);
        assert_eq!(read(&scratch.file(&vec![7; LENGTH_MAX + 1]), LENGTH_MAX), None);
        assert_eq!(read(&scratch.0.join("nothing"), LENGTH_MAX), None);
        assert_eq!(read(&scratch.0, LENGTH_MAX), None);
        for path in ["/dev/zero", "/dev/null", "/proc/self/status", "nul\0"] {
            assert_eq!(read(path.as_ref(), LENGTH_MAX), None, "{path}");
        }
    }

    /// Opening a FIFO would wake the program at its other end.
    #[test]
    fn a_fifo_is_not_opened() {
        use rustix::fs::{CWD, FileType, Mode, OFlags, mknodat, open};

        let scratch = Scratch::new("fifo");
        let path = scratch.0.join("fifo");
        mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).expect("it is new");
        // Both ends are open here, so that a read would find data.
        let both = open(&path, OFlags::RDWR, Mode::empty()).expect("it exists");
        rustix::io::write(&both, b"data").expect("there is room");
        assert_eq!(read(&path, LENGTH_MAX), None);
        let mut data = [0; 8];
        assert_eq!(rustix::io::read(&both, &mut data), Ok(4), "nothing was read");
    }
}
