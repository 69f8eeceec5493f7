//! Traces that are written to files when something has gone wrong.
//!
//! A request starts a thread, which copies the rings at once and writes the file. So neither a
//! worker nor the watchdog waits for a disk.

use std::ffi::OsStr;
use std::fmt;
use std::fs;
use std::fs::{DirBuilder, OpenOptions};
use std::io;
use std::io::BufWriter;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use procession_sync::{Condvar, Mutex};

use crate::recorder::snapshot::RecorderSnapshot;
use crate::recorder::trace::Trace;
use crate::scheduler::builder::Builder;
use crate::scheduler::current::Section;
use crate::scheduler::part::Part;
use crate::scheduler::shared::Shared;
use crate::sys::{World, stderr};

/// The minimum time between two dumps of a scheduler, in nanoseconds.
const APART: u64 = 60_000_000_000;
/// The maximum number of dumps in a directory, and of their bytes.
const FILES_MAX: usize = 8;
const BYTES_MAX: u64 = 64 << 20;
/// The end of the name of each dump.
const SUFFIX: &str = ".procession.pftrace";
/// The name of a scheduler is cut at this many characters in the name of a file.
const NAME_MAX: usize = 64;
/// The maximum time for which a shutdown waits for a dump.
const SETTLE_MAX: Duration = Duration::from_millis(100);
/// The nanoseconds between two looks at a dump in a simulation.
const SETTLE_LOOK: u64 = 1_000_000;

/// Where the flight recorder is written when something has gone wrong.
pub(crate) struct DumpTarget {
    pub(crate) directory: PathBuf,
    /// Writes a dump. It is named only where a directory is set, so that the linker leaves the code
    /// that writes traces out of a program that sets none.
    write: fn(&Shared, DumpCause) -> bool,
}

/// The reason for a dump.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DumpCause {
    Stall,
    GaveUp,
    Shutdown,
    #[cfg(feature = "signal")]
    Signal,
}

impl DumpCause {
    /// Returns the word for it in the name of the file.
    fn word(self) -> &'static str {
        match self {
            Self::Stall => "stall",
            Self::GaveUp => "give-up",
            Self::Shutdown => "shutdown",
            #[cfg(feature = "signal")]
            Self::Signal => "signal",
        }
    }
}

impl fmt::Display for DumpCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Stall => "a step is stalled",
            Self::GaveUp => "a supervisor gave up",
            Self::Shutdown => "a shutdown has to terminate processes",
            #[cfg(feature = "signal")]
            Self::Signal => "a signal asked for it",
        })
    }
}

/// The dumps of a scheduler to files.
#[derive(Default)]
pub(crate) struct Dumps {
    pub(crate) target: Option<DumpTarget>,
    state: Mutex<DumpState>,
    /// Wakes the threads that wait for the end of a dump.
    written: Condvar,
}

#[derive(Default)]
struct DumpState {
    /// The time of the last dump.
    last: Option<u64>,
    is_writing: bool,
    written: u64,
    failed: u64,
}

impl Part for Dumps {}

impl Dumps {
    /// Returns the dumps of a scheduler.
    pub(crate) fn of(shared: &Shared) -> &Self {
        shared.parts.get().expect("`assembly.rs` gives each scheduler this part")
    }

    /// Begins a dump, unless the last one began less than `apart` ago.
    pub(crate) fn begin(&self, now: u64, apart: u64) -> bool {
        let mut state = self.state.lock();
        if state.is_writing || state.last.is_some_and(|last| now.saturating_sub(last) < apart) {
            return false;
        }
        (state.last, state.is_writing) = (Some(now), true);
        true
    }

    /// Ends the dump that is being written.
    pub(crate) fn end(&self, is_written: bool) {
        let mut state = self.state.lock();
        state.is_writing = false;
        state.written += u64::from(is_written);
        state.failed += u64::from(!is_written);
        self.written.notify_all();
    }

    pub(crate) fn is_writing(&self) -> bool {
        self.state.lock().is_writing
    }

    /// Waits until no dump is being written, for at most `timeout`.
    pub(crate) fn settle(&self, timeout: Duration) {
        let state = self.state.lock();
        drop(self.written.wait_timeout_while(state, timeout, |state| state.is_writing));
    }
}

impl Builder {
    /// Sets the directory to which the [flight recorder](crate::recorder#files) is written when
    /// something has gone wrong. Default: none, and no file is written.
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

impl RecorderSnapshot {
    /// Returns the figures of the recorder.
    pub(crate) fn of(shared: &Shared) -> Self {
        let dumps = Dumps::of(shared).state.lock();
        Self { bytes: shared.recorder.bytes(), dumps: dumps.written, dumps_failed: dumps.failed }
    }
}

impl Dumps {
    /// Writes a dump on another thread, if there is a directory for it and the last dump was long
    /// ago. Returns `true` if it begins.
    #[cold]
    pub(crate) fn request(shared: &Shared, cause: DumpCause) -> bool {
        let dumps = Self::of(shared);
        // A simulation repeats each failure many times.
        let has_files = shared.world.simulated().is_none_or(|os| os.keeps_files());
        let Some(write) = dumps.target.as_ref().map(|target| target.write) else {
            return false;
        };
        if !shared.recorder.is_on() || !has_files {
            return false;
        }
        let Some(strong) = shared.identity.me.upgrade() else { return false };
        let now = if shared.world.is_test() { World::real_now() } else { shared.world.now() };
        if !dumps.begin(now, APART) {
            return false;
        }
        let name = format!("dump-{}", shared.name());
        let started = shared.world.start_thread(name, move || {
            let written = write(&strong, cause);
            Self::of(&strong).end(written);
        });
        if started.is_err() {
            dumps.end(false);
        }
        started.is_ok()
    }

    /// Waits until the dump that is being written is there, for a short time, at the end of a
    /// shutdown with this deadline.
    pub(crate) fn settle_by(shared: &Shared, deadline: u64) {
        if !Self::of(shared).is_writing() {
            return;
        }
        // The test clock says nothing about files.
        let left = match shared.world.is_test() {
            true => SETTLE_MAX,
            false => {
                Duration::from_nanos(deadline.saturating_sub(shared.world.now())).min(SETTLE_MAX)
            }
        };
        let _section = Section::enter();
        if shared.world.simulated().is_none() {
            return Self::of(shared).settle(left);
        }
        // The thread that writes is a simulated one, which needs a turn.
        let until = shared.world.now().saturating_add(crate::sys::nanoseconds(left));
        while Self::of(shared).is_writing() && shared.world.now() < until {
            shared.world.rest(SETTLE_LOOK);
        }
    }
}

/// Writes a dump, and tells on standard error where it is. Returns `true` if it is there.
pub(crate) fn write(shared: &Shared, cause: DumpCause) -> bool {
    let Some(DumpTarget { directory, .. }) = &Dumps::of(shared).target else { return false };
    let trace = Trace::of(shared);
    let path = directory.join(file_name(shared.name(), cause, World::wall_clock()));
    let written = write_file(&trace, directory, &path);
    match &written {
        Ok(()) => stderr::write(
            &shared.world,
            &format_args!("wrote the flight recorder to {}: {cause}", path.display()),
        ),
        Err(error) => stderr::write(
            &shared.world,
            &format_args!("cannot write the flight recorder to {}: {error}", path.display()),
        ),
    }
    written.is_ok()
}

fn file_name(scheduler: &str, cause: DumpCause, now: SystemTime) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    let scheduler: String =
        scheduler.chars().take(NAME_MAX).map(|c| if is_plain(c) { c } else { '_' }).collect();
    let since = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let (process, cause) = (std::process::id(), cause.word());
    format!("{scheduler}-{process}-{}-{cause}{SUFFIX}", since.as_millis())
}

/// Writes a file that only its owner can read, because labels may say much. It appears under its
/// name when it is whole.
fn write_file(trace: &Trace, directory: &Path, path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
    let part = path.with_extension("part");
    let written = (|| {
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&part)?;
        trace.write_to(BufWriter::new(&file))?;
        let bytes = file.metadata()?.len();
        make_room(directory, bytes);
        fs::rename(&part, path)
    })();
    if written.is_err() {
        // Ignored: the first error tells more.
        drop(fs::remove_file(&part));
    }
    written
}

/// Removes the oldest dumps of a directory until one more of this size is within the limits.
fn make_room(directory: &Path, bytes: u64) {
    let mut dumps = dumps_in(directory);
    dumps.sort();
    let mut total = bytes + dumps.iter().map(|(_, _, bytes)| bytes).sum::<u64>();
    let mut count = dumps.len() + 1;
    for (_, path, bytes) in dumps {
        if count <= FILES_MAX && total <= BYTES_MAX {
            return;
        }
        // Ignored: if it cannot be removed, there is one file too many.
        drop(fs::remove_file(path));
        (count, total) = (count - 1, total - bytes);
    }
}

/// Returns the dumps in a directory, each with its age and size. What cannot be read is left out.
fn dumps_in(directory: &Path) -> Vec<(SystemTime, PathBuf, u64)> {
    let Ok(entries) = fs::read_dir(directory) else { return Vec::new() };
    let is_dump = |name: &OsStr| name.to_str().is_some_and(|name| name.ends_with(SUFFIX));
    entries
        .filter_map(Result::ok)
        .filter(|entry| is_dump(&entry.file_name()))
        .filter_map(|entry| {
            // Of the entry itself, if it is a link.
            let metadata = entry.metadata().ok().filter(fs::Metadata::is_file)?;
            Some((metadata.modified().ok()?, entry.path(), metadata.len()))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::time::{Duration, SystemTime};

    use super::{BYTES_MAX, DumpCause, Dumps, FILES_MAX, SUFFIX, dumps_in, file_name, make_room};

    #[test]
    fn names_of_files_are_plain() {
        let name = file_name("a/b ../ü", DumpCause::GaveUp, SystemTime::UNIX_EPOCH);
        let process = std::process::id();
        assert_eq!(name, format!("a_b_____-{process}-0-give-up{SUFFIX}"));
    }

    #[test]
    fn the_oldest_dumps_make_room_and_other_files_stay() {
        let directory =
            std::env::temp_dir().join(format!("procession-dumps-{}", std::process::id()));
        fs::create_dir_all(&directory).expect("the directory can be made");
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
        assert_eq!(dumps_in(&directory), []);
        assert!(directory.join("other").exists());
        fs::remove_dir_all(&directory).expect("it is ours");
    }

    #[test]
    fn dumps_are_one_at_a_time_and_apart() {
        let dumps = Dumps::default();
        assert!(dumps.begin(5, 10), "the first may come at any time");
        assert!(dumps.is_writing() && !dumps.begin(50, 10));
        dumps.end(true);
        assert!(!dumps.is_writing() && !dumps.begin(14, 10) && dumps.begin(15, 10));
    }
}
