//! The files to which traces are written when something has gone wrong.

use std::ffi::OsStr;
use std::fs;
use std::fs::{DirBuilder, OpenOptions};
use std::io;
use std::io::BufWriter;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use crate::recorder::dump::{DumpCause, DumpTarget, Dumps};
use crate::recorder::trace::Trace;
use crate::scheduler::builder::Builder;
use crate::scheduler::shared::Shared;
use crate::sys::{World, stderr};
use crate::util::sort::sort;

/// The maximum number of dumps in a directory, and of their bytes.
const FILES_MAX: usize = 8;
const BYTES_MAX: u64 = 64 << 20;
/// The end of the name of each dump.
const SUFFIX: &str = ".procession.pftrace";
/// The end of the name of a dump that is being written.
const PART_SUFFIX: &str = ".procession.part";
/// If such a file has not grown for this time, the program that wrote it has ended. The copy of the
/// rings is in memory, so only the disk delays a dump.
const PART_AGE_MAX: Duration = Duration::from_secs(600);
/// The name of a scheduler is cut at this many characters in the name of a file.
const NAME_MAX: usize = 64;

/// Available with the crate feature `look`.
impl Builder {
    /// Sets the directory to which the [flight recorder](crate::recorder::Trace#files) is written
    /// when something has gone wrong. Default: none, and no file is written.
    ///
    /// The directory is made when the first file is written, with the rights of the user alone. An
    /// error is reported on standard error and counted
    /// ([`RecorderSnapshot`](crate::recorder::RecorderSnapshot)).
    pub fn dump_directory(mut self, path: impl Into<PathBuf>) -> Self {
        let dumps = self.parts.get_mut::<Dumps>();
        dumps.expect("`assembly.rs` gives each builder this part").target =
            Some(DumpTarget { directory: path.into(), write });
        self
    }
}

/// Writes a dump, and names the file on standard error. Returns `true` if the file was written.
fn write(shared: &Shared, cause: DumpCause) -> bool {
    let Some(DumpTarget { directory, .. }) = &Dumps::of(shared).target else { return false };
    let trace = Trace::of(shared);
    let name = file_name(shared.name(), shared.id(), cause, World::wall_clock());
    let path = directory.join(name);
    let written = write_file(&trace, directory, &path);
    // Paths are written as literals, because a terminal obeys the control characters in a path.
    match &written {
        Ok(()) => stderr::write(
            &shared.world,
            &format_args!("wrote the flight recorder to {path:?}: {cause}"),
        ),
        Err(error) => stderr::write(
            &shared.world,
            &format_args!("cannot write the flight recorder to {path:?}: {error}"),
        ),
    }
    written.is_ok()
}

/// Returns a name that no other scheduler of any living process uses, since a signal makes all
/// schedulers of a program dump in the same millisecond.
fn file_name(scheduler: &str, id: u32, cause: DumpCause, now: SystemTime) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    let scheduler: String =
        scheduler.chars().take(NAME_MAX).map(|c| if is_plain(c) { c } else { '_' }).collect();
    let since = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let (process, cause) = (std::process::id(), cause.word());
    format!("{scheduler}-{process}-{id}-{}-{cause}{SUFFIX}", since.as_millis())
}

/// Writes a file that only its owner can read, because labels may contain secrets. The file gets
/// its name only once it is complete.
fn write_file(trace: &Trace, directory: &Path, path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
    let part = path.with_extension("part");
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&part)?;
    let written = (|| {
        trace.write_to(BufWriter::new(&file))?;
        let bytes = file.metadata()?.len();
        remove_abandoned(directory, World::wall_clock());
        make_room(directory, bytes);
        fs::rename(&part, path)
    })();
    if written.is_err() {
        // Ignored: the first error has more information.
        drop(fs::remove_file(&part));
    }
    written
}

/// Removes the dumps of a directory that nobody will complete.
fn remove_abandoned(directory: &Path, now: SystemTime) {
    for (modified, path, _) in files_in(directory, PART_SUFFIX) {
        if now.duration_since(modified).is_ok_and(|age| age > PART_AGE_MAX) {
            // Ignored: the next dump tries again.
            drop(fs::remove_file(path));
        }
    }
}

/// Removes the oldest dumps of a directory until one more of this size is within the limits.
fn make_room(directory: &Path, bytes: u64) {
    let mut dumps = files_in(directory, SUFFIX);
    sort(&mut dumps);
    let mut total = bytes + dumps.iter().map(|(_, _, bytes)| bytes).sum::<u64>();
    let mut count = dumps.len() + 1;
    for (_, path, bytes) in dumps {
        if count <= FILES_MAX && total <= BYTES_MAX {
            return;
        }
        // Ignored: if it cannot be removed, there is one file more than allowed.
        drop(fs::remove_file(path));
        (count, total) = (count - 1, total - bytes);
    }
}

/// Returns the files in a directory with such names, each with its age and size. What cannot be
/// read is left out.
fn files_in(directory: &Path, suffix: &str) -> Vec<(SystemTime, PathBuf, u64)> {
    let Ok(entries) = fs::read_dir(directory) else { return Vec::new() };
    let is_named = |name: &OsStr| name.to_str().is_some_and(|name| name.ends_with(suffix));
    entries
        .filter_map(Result::ok)
        .filter(|entry| is_named(&entry.file_name()))
        .filter_map(|entry| {
            // Of the entry itself, if it is a link.
            let metadata = entry.metadata().ok().filter(fs::Metadata::is_file)?;
            Some((metadata.modified().ok()?, entry.path(), metadata.len()))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::time::{Duration, SystemTime};
    use std::{fs, io};

    use super::{
        BYTES_MAX, FILES_MAX, PART_AGE_MAX, PART_SUFFIX, SUFFIX, file_name, files_in, make_room,
        remove_abandoned, write_file,
    };
    use crate::Scheduler;
    use crate::recorder::dump::DumpCause;
    use crate::recorder::trace::Trace;

    /// Makes an empty directory.
    fn directory(test: &str) -> PathBuf {
        let name = format!("procession-{test}-{}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        fs::create_dir_all(&directory).expect("the directory can be made");
        directory
    }

    #[test]
    fn names_of_files_are_plain() {
        let name = file_name("a/b ../ü", 7, DumpCause::GaveUp, SystemTime::UNIX_EPOCH);
        let process = std::process::id();
        assert_eq!(name, format!("a_b_____-{process}-7-0-give-up{SUFFIX}"));
    }

    #[test]
    fn a_dump_leaves_the_file_of_another_writer_alone() {
        let scheduler = Scheduler::builder().worker_threads(1).callers_drive().build();
        let trace = Trace::of(scheduler.expect("it starts no thread").shared());
        let directory = directory("dump");
        let path = |suffix: &str| directory.join(format!("dump{suffix}"));
        fs::write(path(PART_SUFFIX), "of another").expect("the file can be made");
        let refused = write_file(&trace, &directory, &path(SUFFIX));
        assert_eq!(refused.map_err(|error| error.kind()), Err(io::ErrorKind::AlreadyExists));
        assert_eq!(fs::read(path(PART_SUFFIX)).expect("it is there"), b"of another");
        fs::remove_dir_all(&directory).expect("it is ours");
    }

    #[test]
    fn what_a_dead_program_has_begun_to_write_is_removed() {
        let directory = directory("part");
        let part = directory.join(format!("dump{PART_SUFFIX}"));
        let file = fs::File::create(&part).expect("the file can be made");
        let written = SystemTime::UNIX_EPOCH + Duration::from_secs(9999);
        file.set_modified(written).expect("it is ours");
        remove_abandoned(&directory, written + PART_AGE_MAX);
        assert!(part.exists(), "its writer may be waiting for the disk");
        remove_abandoned(&directory, written + PART_AGE_MAX + Duration::from_nanos(1));
        assert!(!part.exists());
        fs::remove_dir_all(&directory).expect("it is ours");
    }

    #[test]
    fn the_oldest_dumps_make_room_and_other_files_stay() {
        let directory = directory("dumps");
        let path = |number: usize| directory.join(format!("{number}{SUFFIX}"));
        for number in 0..FILES_MAX {
            let file = fs::File::create(path(number)).expect("the file can be made");
            file.set_len(BYTES_MAX / 16).expect("it takes no room");
            // The last one is the oldest.
            let age = Duration::from_secs(1000 + number as u64);
            file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(9999) - age)
                .expect("it is ours");
        }
        fs::write(directory.join("other"), "text").expect("the file can be made");
        let left = || {
            let mut left: Vec<_> = (0..FILES_MAX).filter(|&number| path(number).exists()).collect();
            left.sort_unstable();
            left
        };
        make_room(&directory, 1);
        assert_eq!(left(), (0..FILES_MAX - 1).collect::<Vec<_>>(), "one of too many goes");
        make_room(&directory, BYTES_MAX * 3 / 4);
        assert_eq!(left(), [0, 1, 2, 3], "and those that are too large together");
        make_room(&directory, BYTES_MAX);
        assert_eq!(files_in(&directory, SUFFIX), []);
        assert!(directory.join("other").exists());
        fs::remove_dir_all(&directory).expect("it is ours");
    }
}
