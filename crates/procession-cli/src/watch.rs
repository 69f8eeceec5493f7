//! Notices changes of a program's file, by inotify.

use std::ffi::{CString, OsStr, OsString};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::Path;

use procession::sync::channel::{self, Receiver, Sender};
use rustix::fs::inotify::{self, CreateFlags, Reader, WatchFlags};

/// The size of the buffer of events in bytes, a few dozen events with short names.
const BUFFER: usize = 4096;

/// Watches a file. It watches the folder, since editors replace a file by another of its name.
#[derive(Debug)]
pub(crate) struct Watch(Receiver<()>);

impl Watch {
    /// Begins to watch a file, in a thread of its own that ends with the program.
    pub(crate) fn start(path: &Path) -> io::Result<Self> {
        let name = path.file_name().unwrap_or_default().to_owned();
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        let folder = folder.unwrap_or(Path::new("."));
        let folder = CString::new(folder.as_os_str().as_bytes())?;
        let events = inotify::init(CreateFlags::CLOEXEC)?;
        inotify::add_watch(&events, folder, WatchFlags::CLOSE_WRITE | WatchFlags::MOVED_TO)?;
        let (sender, receiver) = channel::bounded(1);
        let builder = std::thread::Builder::new().name("procession-watch".to_owned());
        #[expect(
            clippy::disallowed_methods,
            reason = "the thread outlives the schedulers of the versions of the program"
        )]
        builder.spawn(move || report_changes(events, &name, &sender))?;
        Ok(Self(receiver))
    }

    /// Waits until the file has changed since the last call. Waits forever if the folder is gone.
    pub(crate) async fn changed(&self) {
        if self.0.recv().await.is_none() {
            std::future::pending().await
        }
    }
}

/// Sends for each change of the file `name`, unless a change is untold already.
fn report_changes(events: OwnedFd, name: &OsStr, sender: &Sender<()>) {
    let mut buffer = [MaybeUninit::uninit(); BUFFER];
    let mut reader = Reader::new(events, &mut buffer);
    while let Ok(event) = reader.next() {
        let changed = event.file_name().map(|name| OsString::from_vec(name.to_bytes().to_owned()));
        if changed.as_deref() == Some(name) {
            // Ignored: a change that has not been received yet stands for this one, too.
            let _ = sender.try_send(());
        }
    }
}
