//! The panics of a program, of which each is a failure unless the check allows them.
//!
//! The hook for panics knows the place of each panic. But a program may install another hook, and a
//! panic that is resumed calls no hook. So schedulers also report the panics that they catch.

use procession::Pid;
use procession_sync::host::Mutex;

/// What a run knows of panics.
#[derive(Default)]
pub(super) struct Panics(Mutex<Known>);

#[derive(Default)]
struct Known {
    /// The panics of which no point has taken note: the hook must not wait. Each with its place.
    new: Vec<(String, String)>,
    /// Set once the hook has told of a panic.
    is_hook_called: bool,
    /// The processes that the run lets panic, until they have.
    asked: Vec<Pid>,
}

impl Panics {
    /// The run lets a process panic, which is no failure.
    pub(super) fn ask(&self, process: Pid) {
        self.0.lock().asked.push(process);
    }

    /// Notes a panic on a virtual thread, for the hook.
    pub(super) fn add(&self, message: String, place: String) {
        let mut known = self.0.lock();
        known.is_hook_called = true;
        known.new.push((message, place));
    }

    /// Notes a panic that a scheduler has caught.
    pub(super) fn add_caught(&self, process: Option<Pid>, message: &str) {
        let mut known = self.0.lock();
        if let Some(at) = known.asked.iter().position(|&asked| Some(asked) == process) {
            known.asked.swap_remove(at);
        } else if !known.is_hook_called {
            known.new.push((message.to_owned(), String::new()));
        }
    }

    /// Takes the latest panic of which no point has taken note.
    pub(super) fn take_latest(&self) -> Option<(String, String)> {
        self.0.lock().new.pop()
    }

    /// Takes the panics of which no point has taken note, each with its place.
    pub(super) fn take(&self) -> Vec<(String, String)> {
        std::mem::take(&mut self.0.lock().new)
    }
}
