//! Notices changes of the files of a program, by inotify.

use std::ffi::{CString, OsStr};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use procession::sync::channel::{self, Receiver, Sender};
use rustix::fs::inotify::{self, CreateFlags, Reader, WatchFlags};

/// The size of the buffer of events in bytes, a few dozen events with short names.
const BUFFER: usize = 4096;

/// The end of the names of modules.
const MODULES: &[u8] = b".lua";

/// Watches a program. It watches the folders of its files, because editors replace a file by
/// another of its name, and a change may add files.
#[derive(Debug)]
pub(crate) struct Watch {
    changes: Receiver<()>,
    events: Arc<OwnedFd>,
}

impl Watch {
    /// Begins to watch a program with its main file and its modules, in a separate thread that ends
    /// with the command.
    pub(crate) fn start(main: &Path, files: &[PathBuf]) -> io::Result<Self> {
        let name = main.file_name().unwrap_or_default().to_owned();
        let (sender, changes) = channel::bounded(1);
        let watch = Self { changes, events: Arc::new(inotify::init(CreateFlags::CLOEXEC)?) };
        watch.add(files)?;
        let events = Arc::clone(&watch.events);
        let builder = std::thread::Builder::new().name("procession-watch".to_owned());
        #[expect(
            clippy::disallowed_methods,
            reason = "the thread outlives the schedulers of the versions of the program"
        )]
        builder.spawn(move || report_changes(&events, &name, &sender))?;
        Ok(watch)
    }

    /// Also watches the folders of these files.
    pub(crate) fn add(&self, files: &[PathBuf]) -> io::Result<()> {
        for file in files {
            let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty());
            let folder = CString::new(folder.unwrap_or(Path::new(".")).as_os_str().as_bytes())?;
            let wanted = WatchFlags::CLOSE_WRITE | WatchFlags::MOVED_TO;
            inotify::add_watch(&self.events, folder, wanted)?;
        }
        Ok(())
    }

    /// Waits until a file has changed since the last call. Waits forever if the folders are gone.
    pub(crate) async fn changed(&self) {
        if self.changes.recv().await.is_none() {
            std::future::pending().await
        }
    }
}

/// Sends for each change of the main file, and of a file that may be a module, unless a change is
/// untold already.
fn report_changes(events: &OwnedFd, main: &OsStr, sender: &Sender<()>) {
    let mut buffer = [MaybeUninit::uninit(); BUFFER];
    let mut reader = Reader::new(events, &mut buffer);
    while let Ok(event) = reader.next() {
        let name = event.file_name().map(|name| name.to_bytes()).unwrap_or_default();
        if name == main.as_bytes() || name.ends_with(MODULES) {
            // Ignored: a change that has not been received yet stands for this change as well.
            let _ = sender.try_send(());
        }
    }
}
