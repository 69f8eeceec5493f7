//! The panics of a program, of which each is a failure unless the check allows them.
//!
//! The hook for panics knows the place of each, but a program may install another one, and a panic
//! that is resumed calls none. So schedulers tell of those that they catch, too.

use procession::Pid;
use procession_sync::host::Mutex;

use super::Engine;
use crate::story::Kind;

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
}

impl Engine {
    /// The hook tells of a panic on a virtual thread.
    pub(crate) fn add_panic(&self, message: String, place: String) {
        let mut known = self.panics.0.lock();
        known.is_hook_called = true;
        known.new.push((message, place));
    }

    /// A scheduler tells of a panic that it has caught.
    pub(super) fn add_caught_panic(&self, process: Option<Pid>, message: &str) {
        let mut known = self.panics.0.lock();
        if let Some(at) = known.asked.iter().position(|&asked| Some(asked) == process) {
            known.asked.swap_remove(at);
        } else if !known.is_hook_called {
            known.new.push((message.to_owned(), String::new()));
        }
    }

    /// Notes that the program itself has panicked.
    pub(crate) fn fail_by_panic(&self, message: String) {
        let told = self.panics.0.lock().new.pop();
        let place = told.map(|(_, place)| place).unwrap_or_default();
        self.fail(Kind::Panic(place), message);
    }

    /// Notes the failures by panics since the last point.
    pub(super) fn note_panics(&self) {
        let new = std::mem::take(&mut self.panics.0.lock().new);
        for (message, place) in new {
            if self.state().panics_fail {
                self.fail(Kind::Panic(place), message);
            }
        }
    }
}
