//! The places of panics, which only a panic hook learns.
//!
//! The hook runs on the thread that panics, before the stack is unwound. In a step of a process it
//! leaves a note on the thread. The worker catches the panic on the same thread, even if a
//! coroutine has panicked, and takes the note for its report.
//!
//! The hook is silent only about the first panic of a step, until that panic is reported. A further
//! panic may be raised by a destructor, which aborts the program, so both panics are printed.
//!
//! # Rule
//! The hook keeps silent only if a report or a line is certain to follow:
//!
//! | caught by | printed by |
//! |---|---|
//! | the step of a process (`guarded_for_report` in `scheduler/run.rs`) | the report of its exit |
//! | the call of a hook (`guarded_for_report` in `report/failure.rs`) | the line about the hook |
//! | the rest of the runtime (`guarded`, `drop_guarded`, `print_caught`) | a line |
//! | other crates of the runtime (`catch_panic`, which is `guarded`) | a line |
//! | a job of a pool, because its handle may be gone | a line |
//! | code of the user | nothing, because the code has dealt with it |
//!
//! The line names the process and the place. `print_caught` here writes it.
//!
//! A panic outside of steps is printed by the hook that was installed before. Code of the runtime
//! that catches a panic by other means hands it to its caller: by `resume_unwind`, or as the result
//! of a step, of a job or of `Coroutine::unwind`.
//!
//! The test `reports::catches` goes through the kinds of places. It does not go through each call
//! of `guarded` and `drop_guarded`, because all calls print in the same function.

use std::cell::RefCell;
use std::io::Write as _;
use std::panic::PanicHookInfo;
use std::sync::Once;

use crate::Pid;
use crate::process::slot::Slot;
#[cfg(feature = "door")]
use crate::process::stack_notes;
use crate::process::unwind::{print_panics_by, text_of};
#[cfg(feature = "door")]
use crate::report::crash_report::BACKTRACE_MAX;
#[cfg(feature = "door")]
use crate::report::kept::Reports;
use crate::report::text::{Escaped, REASON_MAX};
use crate::scheduler::current;
use crate::sys::stderr;
use crate::sys::stderr::line_of;

/// A step of a process.
#[derive(Clone, Copy, PartialEq, Eq)]
struct StepId(Pid, u32);

impl StepId {
    fn of(slot: &Slot) -> Self {
        Self(slot.seen_pid(), slot.steps())
    }
}

/// A panic in a step, as the hook has seen it.
struct Note {
    step: StepId,
    place: String,
    text: String,
    /// The return addresses of the stack, the innermost first, if reports keep them.
    #[cfg(feature = "door")]
    backtrace: Vec<usize>,
    /// Set if the report of the process has the place, or the panic was printed.
    is_told: bool,
}

thread_local! {
    /// The last panic of a process on this thread.
    static LAST: RefCell<Option<Note>> = const { RefCell::new(None) };
}

/// Installs a panic hook that leaves panics of processes to their reports.
///
/// Without it, std's hook prints a panic in a process as one of a worker's thread, and the report
/// adds which process it was. With it, the report is all that is printed, and contains the place
/// of the panic ([`ExitReport::panicked_at`](super::ExitReport::panicked_at)).
///
/// The hook is for the whole program. It is installed only by this call, and a second call does
/// nothing. The hook that was installed before is kept, and is called
///
/// - for each panic outside of processes: on other threads, in jobs of thread pools, and in futures
///   in [`block_on`](crate::Scheduler::block_on),
/// - for the second and each further panic in one step, for instance a panic of a destructor,
/// - for each panic if the environment variable `RUST_BACKTRACE` is set and not `0`, because that
///   hook prints the backtrace,
/// - for each panic in a program that aborts on panics. There is no report then, so the process is
///   named before.
///
/// A panic that code in a process catches ends no process and is not printed. If the runtime
/// catches it, and the process continues or is ending anyway, the panic is printed as a separate
/// line. For example, a job of a pool may panic, or a destructor, or a function that the runtime
/// calls.
///
/// # Panics
/// Panics on a thread that is panicking, as [`std::panic::set_hook`] does.
pub fn install_panic_hook() {
    static INSTALLED: Once = Once::new();
    INSTALLED.call_once(|| {
        print_panics_by(print_caught);
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if !leaves_to_report(info) {
                before(info);
            }
        }));
    });
}

/// Notes a panic. Returns `true` if nothing is to be printed now.
fn leaves_to_report(info: &PanicHookInfo<'_>) -> bool {
    let Some(slot) = current::current() else { return false };
    let wants_backtrace = std::env::var_os("RUST_BACKTRACE").is_some_and(|value| value != "0");
    let note = Note {
        step: StepId::of(&slot),
        place: info.location().map(ToString::to_string).unwrap_or_default(),
        text: text_of(info.payload()).to_owned(),
        #[cfg(feature = "door")]
        backtrace: backtrace(&slot, wants_backtrace),
        is_told: false,
    };
    if cfg!(panic = "abort") {
        note.print();
        return false;
    }
    // The note is moved out first, so that nothing is borrowed while something is printed.
    let last = LAST.try_with(|last| last.take()).ok().flatten();
    let is_first = match last.filter(|last| last.step == note.step) {
        None => true,
        Some(last) => {
            if !last.is_told {
                last.print();
            }
            false
        }
    };
    let is_silent = is_first && !wants_backtrace;
    let note = Note { is_told: !is_silent, ..note };
    // If the local is gone, the hook before prints the panic.
    let is_noted = LAST.try_with(|last| last.replace(Some(note))).is_ok();
    is_silent && is_noted
}

/// Returns the place of the panic that ends a process in this step, if it is known.
pub(crate) fn take_place(slot: &Slot) -> Option<String> {
    let step = StepId::of(slot);
    let take = |last: &RefCell<Option<Note>>| {
        let mut last = last.borrow_mut();
        let last = last.as_mut().filter(|last| last.step == step)?;
        last.is_told = true;
        Some(last.place.clone())
    };
    // A caller may drive its scheduler in the destructor of another local.
    LAST.try_with(take).ok().flatten()
}

/// Returns the backtrace of the panic that ends a process in this step, if it was taken.
#[cfg(feature = "door")]
pub(crate) fn take_backtrace(slot: &Slot) -> Vec<usize> {
    let step = StepId::of(slot);
    let take = |last: &RefCell<Option<Note>>| {
        let mut last = last.borrow_mut();
        let last = last.as_mut().filter(|last| last.step == step)?;
        Some(std::mem::take(&mut last.backtrace))
    };
    LAST.try_with(take).ok().flatten().unwrap_or_default()
}

/// Returns the backtrace of the calling thread, if the reports of the scheduler keep it.
#[cfg(feature = "door")]
fn backtrace(slot: &Slot, by_environment: bool) -> Vec<usize> {
    let reports = &Reports::of(slot.shared()).hooks;
    if reports.panic_backtraces.unwrap_or(by_environment) {
        stack_notes::addresses(BACKTRACE_MAX)
    } else {
        Vec::new()
    }
}

/// Has the panic printed that the runtime has just caught on this thread, unless it was printed
/// already. The panic ends no process, so no report contains it.
#[cold]
fn print_caught(message: &str) {
    let Some(slot) = current::current() else { return };
    let step = StepId::of(&slot);
    // The note is taken out, so the next panic in this step is the first again. If the process has
    // caught a panic itself, that panic may have left a note, and had another text.
    let take = |last: &RefCell<Option<Note>>| {
        let is_it = |last: &mut Note| last.step == step && !last.is_told && last.text == message;
        last.borrow_mut().take_if(is_it)
    };
    if let Some(Note { place, text, .. }) = LAST.try_with(take).ok().flatten() {
        let StepId(pid, _) = step;
        let text = Escaped(&text, REASON_MAX);
        stderr::write(&slot.shared().world, &format_args!("{pid} panicked at {place}: {text}"));
    }
}

impl Note {
    /// Prints the panic immediately, because the program may be about to abort.
    fn print(&self) {
        let Self { step: StepId(pid, _), place, text, .. } = self;
        let line =
            line_of(&format_args!("{pid} panicked at {place}: {}", Escaped(text, REASON_MAX)));
        // Ignored: a standard error that is closed has no reader.
        drop(std::io::stderr().write_all(line.as_bytes()));
    }
}
