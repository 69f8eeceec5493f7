//! Files of guests.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::PathBuf;
use std::sync::Arc;

use procession::net::Readiness;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{AtFlags, Dir, Mode, OFlags, mkdirat, renameat, unlinkat};
use rustix::io::Errno;

use crate::permissions::{self, Access, Permissions};
use crate::value::Value;

/// The number of bytes that one read of a pipe takes at most.
const PART_MAX: usize = 64 * 1024;

/// The part of a file that is read: `count` bytes from an offset, or fewer if the file ends before.
/// If `count` is `None`, all up to the end, which must be at most `most` bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part {
    pub(crate) from: u64,
    pub(crate) count: Option<u64>,
    pub(crate) most: u64,
}

enum Opened {
    Read(Value),
    /// A pipe or a device, which may not have anything to read yet.
    Waits(File),
}

impl Part {
    fn limit(self) -> u64 {
        self.count.unwrap_or(u64::MAX).min(self.most.saturating_add(1))
    }

    fn value(self, bytes: &[u8]) -> io::Result<Value> {
        if bytes.len() as u64 > self.most {
            let most = self.most;
            return Err(io::Error::other(format!(
                "it has more than {most} bytes, which the memory of the process leaves; read parts of it"
            )));
        }
        Ok(Value::string(bytes))
    }

    fn read(self, file: impl Read) -> io::Result<Value> {
        let mut bytes = Vec::new();
        file.take(self.limit()).read_to_end(&mut bytes)?;
        self.value(&bytes)
    }
}

/// Reads a part of a file. Ends immediately if it is dropped, even while it waits for the writer of
/// a pipe.
pub(crate) async fn read(permissions: Permissions, path: PathBuf, part: Part) -> io::Result<Value> {
    let opened = in_thread(move || {
        // Without this flag, the thread would wait until the pipe has a writer.
        let flags = OFlags::RDONLY | OFlags::NONBLOCK;
        let mut file = permissions::file(&permissions, Access::Read, &path, flags)?;
        let kind = file.metadata()?.file_type();
        if part.from > 0 {
            file.seek(SeekFrom::Start(part.from))?;
        }
        Ok(match kind.is_file() || kind.is_dir() {
            true => Opened::Read(part.read(file)?),
            false => Opened::Waits(file),
        })
    });
    let file = match opened.await? {
        Opened::Read(value) => return Ok(value),
        Opened::Waits(file) => file,
    };
    // The kernel reports no readiness for devices that never wait, such as /dev/zero.
    let again = file.try_clone()?;
    let pipe = match Readiness::new(file) {
        Ok(pipe) => pipe,
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            return in_thread(move || part.read(again)).await;
        }
        Err(error) => return Err(error),
    };
    drop(again);
    read_pipe(&pipe, part).await
}

async fn read_pipe(pipe: &Readiness<File>, part: Part) -> io::Result<Value> {
    let (mut bytes, mut buffer) = (Vec::new(), vec![0; PART_MAX]);
    loop {
        let left = part.limit() - bytes.len() as u64;
        if left == 0 {
            return part.value(&bytes);
        }
        let room = usize::try_from(left).unwrap_or(PART_MAX).min(PART_MAX);
        let count = pipe.read_with(|mut file| {
            let mut polled = [PollFd::new(file, PollFlags::IN)];
            // A pipe that has had no writer yet reads as if it had ended.
            match poll(&mut polled, Some(&rustix::event::Timespec::default()))? {
                0 => Err(io::ErrorKind::WouldBlock.into()),
                _ => file.read(&mut buffer[..room]),
            }
        });
        match count.await? {
            0 => return part.value(&bytes),
            count => bytes.extend_from_slice(&buffer[..count]),
        }
    }
}

/// Returns the size of a file.
pub(crate) async fn size(permissions: Permissions, path: PathBuf) -> io::Result<Value> {
    in_thread(move || {
        let file = permissions::file(&permissions, Access::Read, &path, OFlags::PATH)?;
        Ok(Value::Integer(file.metadata()?.len().cast_signed()))
    })
    .await
}

/// The place of what is written to a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Writing {
    /// It replaces the content.
    New,
    /// It follows the content.
    Appended,
}

/// Writes to a file, which is created if there is none.
pub(crate) async fn write(
    permissions: Permissions,
    path: PathBuf,
    bytes: Arc<[u8]>,
    how: Writing,
) -> io::Result<Value> {
    in_thread(move || {
        // Without `NONBLOCK`, the thread would wait until a pipe has a reader.
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::NONBLOCK;
        let placed = if how == Writing::New { OFlags::TRUNC } else { OFlags::APPEND };
        let mut file = permissions::file(&permissions, Access::Write, &path, flags | placed)?;
        if !file.metadata()?.is_file() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file"));
        }
        file.write_all(&bytes)?;
        Ok(Value::Boolean(true))
    })
    .await
}

/// Returns the sorted names of the entries of a folder, with at most `most` bytes in all.
pub(crate) async fn list(
    permissions: Permissions,
    path: PathBuf,
    most: usize,
) -> io::Result<Value> {
    in_thread(move || {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NONBLOCK;
        let folder = permissions::file(&permissions, Access::Read, &path, flags)?;
        let (mut names, mut left) = (Vec::new(), most);
        for entry in Dir::read_from(&folder)? {
            let name = entry?.file_name().to_bytes().to_vec();
            if name == b"." || name == b".." {
                continue;
            }
            let bytes = name.len() + 2 * size_of::<Value>();
            left = left.checked_sub(bytes).ok_or_else(|| {
                io::Error::other("it has more entries than the memory of the process leaves")
            })?;
            names.push(name);
        }
        names.sort_unstable();
        Ok(Value::list(names.into_iter().map(Value::string)))
    })
    .await
}

/// Returns the kind of an object: `file`, `directory` or `other`.
pub(crate) async fn kind(permissions: Permissions, path: PathBuf) -> io::Result<Value> {
    in_thread(move || {
        let kind = permissions::file(&permissions, Access::Read, &path, OFlags::PATH)?;
        let kind = kind.metadata()?.file_type();
        Ok(Value::string(match (kind.is_file(), kind.is_dir()) {
            (true, _) => "file",
            (_, true) => "directory",
            _ => "other",
        }))
    })
    .await
}

/// Makes a folder.
pub(crate) async fn make_directory(permissions: Permissions, path: PathBuf) -> io::Result<Value> {
    in_thread(move || {
        let (folder, name) = permissions::named(&permissions, Access::Write, &path)?;
        mkdirat(folder, name, Mode::from_raw_mode(0o777))?;
        Ok(Value::Boolean(true))
    })
    .await
}

/// Removes a file, a link, or an empty folder.
pub(crate) async fn remove(permissions: Permissions, path: PathBuf) -> io::Result<Value> {
    in_thread(move || {
        let (folder, name) = permissions::named(&permissions, Access::Write, &path)?;
        match unlinkat(&folder, &name, AtFlags::empty()) {
            Err(Errno::ISDIR) => unlinkat(&folder, &name, AtFlags::REMOVEDIR)?,
            removed => removed?,
        }
        Ok(Value::Boolean(true))
    })
    .await
}

/// Renames an object, and replaces an object with the new name. The process must be able to read
/// the object, because it may be able to read what has the other name.
pub(crate) async fn rename(
    permissions: Permissions,
    from: PathBuf,
    to: PathBuf,
) -> io::Result<Value> {
    in_thread(move || {
        let (old, name) = permissions::movable(&permissions, &from)?;
        let (new, new_name) = permissions::named(&permissions, Access::Write, &to)?;
        renameat(old, name, new, new_name)?;
        Ok(Value::Boolean(true))
    })
    .await
}

async fn in_thread<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    match procession::spawn_blocking(work).await {
        Ok(result) => result,
        Err(exit) => Err(io::Error::other(exit.to_string())),
    }
}
