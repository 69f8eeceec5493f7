//! `procession record`: traces of a running program for hours, in files of a bounded number and
//! size.
//!
//! The program is asked for one window after the other. A window becomes a *piece*, which is a
//! whole trace, and a file is several pieces. A file has the end `.part` until it is complete. So
//! whatever happens, a complete file is whole, and a part is whole up to its last piece.

use std::collections::VecDeque;
use std::fs::{self, File};
use std::io::{self, Seek, Write};
use std::path::PathBuf;
use std::process;
use std::time::{Duration, SystemTime};

use procession::Scheduler;
use procession::signal::{EndRequest, end_request};
use procession_sync::{Arc, Mutex};
use serde_json::Value;

use super::door::DoorFile;
use super::{create, pause};
use crate::failure::Failure;
use crate::format::{plain, plain_lines};
use crate::see::args::SeeArgs;
use crate::see::error::SeeError;

/// The end of the name of a complete file.
const SUFFIX: &str = "pftrace";
/// The end of the name of a file that grows.
const PART: &str = "part";
/// The default size of a file, and the number of files.
const ROTATE: u64 = 100_000_000;
const KEEP: usize = 10;
/// The default length of a window in seconds.
const SECONDS: u64 = 5;
/// The time after which a program that gives no trace is asked again, for example because somebody
/// else traces it.
const AGAIN: Duration = Duration::from_secs(1);
/// Characters of the name of a program in the names of files.
const NAME_MAX: usize = 40;

/// A file that grows.
struct Part {
    file: File,
    path: PathBuf,
    bytes: u64,
}

/// The files of a recording.
struct RecordFiles {
    directory: PathBuf,
    prefix: String,
    rotate: u64,
    keep: usize,
    part: Option<Part>,
    /// The number of files so far.
    count: u64,
    /// The files that grow no more, the oldest first.
    kept: VecDeque<PathBuf>,
    /// The complete files that were not told yet.
    news: Vec<PathBuf>,
}

impl RecordFiles {
    /// Adds a piece, to a new file if the present one would become larger than allowed.
    ///
    /// # Errors
    /// Returns the path with the error of the system. The piece is lost, and no other.
    fn add(&mut self, piece: &[u8]) -> Result<(), (PathBuf, io::Error)> {
        let length = piece.len() as u64;
        if self.part.as_ref().is_some_and(|part| part.bytes + length > self.rotate) {
            self.finish()?;
        }
        let part = match &mut self.part {
            Some(part) => part,
            None => {
                // Before the new file, so that there are never more.
                while self.kept.len() >= self.keep {
                    self.remove_oldest();
                }
                self.count += 1;
                let name = format!("{}-{:05}.{PART}", self.prefix, self.count);
                let path = self.directory.join(name);
                match create(&path) {
                    Ok(file) => self.part.insert(Part { file, path, bytes: 0 }),
                    Err(error) => return Err((path, error)),
                }
            }
        };
        match part.file.write_all(piece) {
            Ok(()) => {
                part.bytes += length;
                Ok(())
            }
            Err(error) => {
                let path = part.path.clone();
                // What the system did write of the piece goes. Ignored: a reader stops there.
                let _ = part.file.set_len(part.bytes);
                let _ = part.file.seek(io::SeekFrom::Start(part.bytes));
                if part.bytes == 0 {
                    let _ = fs::remove_file(&path);
                    self.part = None;
                }
                Err((path, error))
            }
        }
    }

    /// Completes the file that grows. It has its name only when its content is on the disk.
    ///
    /// # Errors
    /// Returns the path with the error of the system. The file stays as it is, and counts.
    fn finish(&mut self) -> Result<(), (PathBuf, io::Error)> {
        let Some(part) = self.part.take() else { return Ok(()) };
        let path = part.path.with_extension(SUFFIX);
        let renamed = part.file.sync_all().and_then(|()| fs::rename(&part.path, &path));
        if let Err(error) = renamed {
            self.kept.push_back(part.path.clone());
            return Err((part.path, error));
        }
        self.kept.push_back(path.clone());
        self.news.push(path);
        let synced = File::open(&self.directory).and_then(|directory| directory.sync_all());
        synced.map_err(|error| (self.directory.clone(), error))
    }

    /// Prints the names of the files that are complete since the last call.
    fn tell_news(&mut self) {
        for path in self.news.drain(..) {
            // Ignored: the files are there even if nobody reads this.
            let _ = writeln!(io::stdout(), "{}", plain(&path.display().to_string()));
        }
    }

    fn remove_oldest(&mut self) {
        if let Some(oldest) = self.kept.pop_front() {
            // Ignored: somebody else may have taken it away.
            let _ = fs::remove_file(oldest);
        }
    }
}

/// A recording. Its end takes the files, so only one of several ends has an effect.
#[derive(Clone)]
struct Recording(Arc<Mutex<Option<RecordFiles>>>);

impl Recording {
    /// Adds a piece. Returns `None` if the recording has ended.
    fn add(&self, piece: &[u8]) -> Option<Result<(), (PathBuf, io::Error)>> {
        let mut files = self.0.lock();
        let files = files.as_mut()?;
        let added = files.add(piece);
        files.tell_news();
        Some(added)
    }

    /// Ends the recording, and reports what cannot be written. Returns what to say of it, unless it
    /// has ended already.
    fn end(&self) -> Option<(String, bool)> {
        let mut files = self.0.lock().take()?;
        let finished = files.finish();
        files.tell_news();
        if let Err(error) = &finished {
            tell(error, "");
        }
        let (count, directory) = (files.kept.len(), files.directory.display().to_string());
        let text = format!("{count} files in {}", plain(&directory));
        Some((text, finished.is_ok()))
    }

    /// Ends the recording and the program when a signal asks for it.
    async fn end_on(self, end: EndRequest) {
        end.asked().await;
        if let Some((text, is_whole)) = self.end() {
            // Ignored: the files are there even if nobody reads this.
            let _ = writeln!(io::stdout(), "{text}");
            process::exit(i32::from(!is_whole));
        }
    }
}

fn tell((path, error): &(PathBuf, io::Error), more: &str) {
    // Ignored: there is nowhere else to say it.
    let path = plain_lines(&path.display());
    let _ = writeln!(io::stderr(), "procession: cannot write {path}: {error}{more}");
}

/// Returns the beginning of the names of files: the program, its PID and the time.
#[expect(clippy::disallowed_methods, reason = "the names of files have the time of the day")]
fn prefix(about: &Value) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    let name = about["program"].as_str().unwrap_or("program");
    let name: String =
        name.chars().take(NAME_MAX).map(|c| if is_plain(c) { c } else { '_' }).collect();
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    format!("{name}-{}-{}", about["system_pid"], since.as_secs())
}

/// Records until a signal asks for the end, or the program ends.
pub(super) fn run(door: &DoorFile, args: &SeeArgs, out: &mut impl Write) -> Result<(), Failure> {
    let about = door.get_json("/about")?;
    let directory = args.directory.clone().unwrap_or_else(|| PathBuf::from("."));
    let error = |error| SeeError::File(directory.display().to_string(), error);
    fs::create_dir_all(&directory).map_err(error)?;
    let recording = Recording(Arc::new(Mutex::new(Some(RecordFiles {
        directory: directory.clone(),
        prefix: prefix(&about),
        rotate: args.rotate.map_or(ROTATE, |size| size.0),
        keep: args.keep.map_or(KEEP, |keep| keep.get()),
        part: None,
        count: 0,
        kept: VecDeque::new(),
        news: Vec::new(),
    }))));
    let scheduler = Scheduler::builder().worker_threads(1).no_door().build();
    let scheduler = scheduler.map_err(|error| Failure::Failed(Box::new(error)))?;
    let end = end_request().map_err(|error| Failure::Failed(Box::new(error)))?;
    drop(scheduler.spawn(recording.clone().end_on(end)));
    let seconds = args.seconds.unwrap_or(SECONDS);
    let target = format!("/trace?seconds={seconds}");
    let has_ended = || {
        pause(AGAIN);
        door.is_gone()
    };
    let recorded = record(|| door.get(&target), has_ended, &recording);
    let Some((text, is_whole)) = recording.end() else {
        // The signal has ended it, and is about to end the program.
        return Ok(());
    };
    writeln!(out, "{text}")?;
    recorded?;
    if is_whole { Ok(()) } else { Err(Failure::Told) }
}

/// Records until the program ends, or somebody else ends the recording. `has_ended` is asked some
/// time after `ask` has failed: a program that is stopped, or that somebody else traces, goes on.
fn record(
    ask: impl Fn() -> Result<Vec<u8>, SeeError>,
    has_ended: impl Fn() -> bool,
    recording: &Recording,
) -> Result<(), SeeError> {
    // Set once a piece was recorded, and while pieces are missing or cannot be written.
    let (mut is_begun, mut is_failing) = (false, false);
    loop {
        let piece = match ask() {
            Ok(piece) => piece,
            Err(error) if is_begun => {
                if has_ended() {
                    return Ok(());
                }
                if !is_failing {
                    // Ignored: there is nowhere else to say it.
                    let _ = writeln!(io::stderr(), "procession: {error}; the recording goes on");
                }
                is_failing = true;
                continue;
            }
            Err(error) => return Err(error),
        };
        is_begun = true;
        match recording.add(&piece) {
            None => return Ok(()),
            Some(Ok(())) => is_failing = false,
            Some(Err(error)) => {
                if !is_failing {
                    tell(&error, "; the recording goes on, and lacks what cannot be written");
                }
                is_failing = true;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::collections::VecDeque;
    use std::fs;
    use std::io;
    use std::path::PathBuf;

    use procession_sync::{Arc, Mutex};

    use super::{RecordFiles, Recording, record};
    use crate::see::error::SeeError;

    /// The files of a recording in a directory that is not there yet.
    fn files(name: &str) -> RecordFiles {
        let name = format!("procession-{name}-{}", std::process::id());
        RecordFiles {
            directory: std::env::temp_dir().join(name),
            prefix: "bank".to_owned(),
            rotate: 10,
            keep: 2,
            part: None,
            count: 0,
            kept: VecDeque::new(),
            news: Vec::new(),
        }
    }

    fn names(directory: &PathBuf) -> Vec<String> {
        let entries = fs::read_dir(directory).expect("it is there");
        let name = |entry: fs::DirEntry| entry.file_name().into_string().expect("it is text");
        let mut names: Vec<_> = entries.map(|entry| name(entry.expect("it can be read"))).collect();
        names.sort();
        names
    }

    #[test]
    fn files_are_bounded_in_number_and_size() {
        let mut files = files("record");
        let directory = files.directory.clone();
        fs::create_dir(&directory).expect("it is new");
        let listed = || {
            let text = |name: &String| fs::read_to_string(directory.join(name));
            let names = names(&directory).into_iter();
            names.map(|name| (text(&name).expect("it is text"), name)).collect::<Vec<_>>()
        };
        let named = |name: &str, text: &str| (text.to_owned(), name.to_owned());
        for piece in ["aaaa", "bbbb", "cccc"] {
            files.add(piece.as_bytes()).expect("there is room");
        }
        let expected = [named("bank-00001.pftrace", "aaaabbbb"), named("bank-00002.part", "cccc")];
        assert_eq!(listed(), expected);
        // A piece that is larger than a file has its own.
        files.add(b"dddddddddddd").expect("there is room");
        files.add(b"e").expect("there is room");
        let expected = [named("bank-00003.pftrace", "dddddddddddd"), named("bank-00004.part", "e")];
        assert_eq!(listed(), expected, "there are two at most");
        files.finish().expect("there is room");
        files.add(b"f").expect("there is room");
        let expected = [named("bank-00004.pftrace", "e"), named("bank-00005.part", "f")];
        assert_eq!(listed(), expected);
        fs::remove_dir_all(&directory).expect("it is ours");
    }

    #[test]
    fn a_piece_that_cannot_be_written_harms_no_other() {
        let mut files = files("gone");
        let directory = files.directory.clone();
        let (path, _) = files.add(b"lost").expect_err("there is no directory");
        assert!(path.ends_with("bank-00001.part"));
        fs::create_dir(&directory).expect("it is new");
        files.add(b"kept").expect("there is a directory");
        files.finish().expect("there is room");
        let kept = fs::read(directory.join("bank-00002.pftrace")).expect("it is there");
        assert_eq!(kept, b"kept");
        fs::remove_dir_all(&directory).expect("it is ours");
    }

    #[test]
    fn a_file_that_cannot_be_completed_counts() {
        let mut files = files("incomplete");
        let directory = files.directory.clone();
        fs::create_dir(&directory).expect("it is new");
        files.add(b"one").expect("there is room");
        // The directory cannot be synchronised.
        files.directory = directory.join("missing");
        files.finish().expect_err("there is no such directory");
        files.directory = directory.clone();
        files.add(b"two").expect("there is room");
        // The file cannot be renamed.
        fs::create_dir(directory.join("bank-00002.pftrace")).expect("it is new");
        files.finish().expect_err("there is a directory of this name");
        fs::remove_dir(directory.join("bank-00002.pftrace")).expect("it is ours");
        assert_eq!(names(&directory), ["bank-00001.pftrace", "bank-00002.part"]);
        for _ in 0..2 {
            files.add(b"next").expect("there is room");
            files.finish().expect("there is room");
        }
        assert_eq!(names(&directory), ["bank-00003.pftrace", "bank-00004.pftrace"]);
        fs::remove_dir_all(&directory).expect("it is ours");
    }

    #[test]
    fn a_recording_outlasts_a_program_that_is_stopped() {
        let mut files = files("stopped");
        let directory = files.directory.clone();
        files.rotate = 100;
        fs::create_dir(&directory).expect("it is new");
        let recording = Recording(Arc::new(Mutex::new(Some(files))));
        let late = || SeeError::Connection(PathBuf::new(), io::ErrorKind::WouldBlock.into());
        // Each failure has the answer to whether the program has ended.
        let answers = RefCell::new(VecDeque::from([
            (Ok(b"one ".to_vec()), false),
            (Err(late()), false),
            (Err(SeeError::Cut(PathBuf::new())), false),
            (Err(SeeError::NoAnswer(PathBuf::new())), false),
            (Err(SeeError::Refused("busy".to_owned())), false),
            (Ok(b"two".to_vec()), false),
            (Err(late()), true),
        ]));
        let ended = RefCell::new(false);
        let ask = || {
            let (answer, has_ended) = answers.borrow_mut().pop_front().expect("it has ended");
            *ended.borrow_mut() = has_ended;
            answer
        };
        record(ask, || *ended.borrow(), &recording).expect("the program has ended");
        assert!(answers.borrow().is_empty());
        let (_, is_whole) = recording.end().expect("nothing else has ended it");
        let text = fs::read_to_string(directory.join("bank-00001.pftrace"));
        assert_eq!((text.expect("it is there").as_str(), is_whole), ("one two", true));
        fs::remove_dir_all(&directory).expect("it is ours");
    }
}
