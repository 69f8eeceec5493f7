//! The symbols of addresses.

use std::fmt;

use crate::report::CrashReport;

/// Parts of the names of the functions that note a stack, and of the functions that begin a panic.
const INNER: &[&str] = &[
    "procession_runtime::process::stack_notes::",
    "<core::task::wake::Waker as core::clone::Clone>",
    "__rust_end_short_backtrace",
    "rust_begin_unwind",
    "core::panicking::",
    "std::panicking::begin_panic",
    "core::option::expect_failed",
    "core::option::unwrap_failed",
    "core::result::unwrap_failed",
];
/// The number of innermost frames among which these functions are.
const INNER_FRAMES: usize = 24;
/// A part of the name of the function by which the runtime calls a process.
const OUTER: &str = "procession_runtime::process::body::Body>::step";

/// A call on a stack.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct StackFrame {
    /// The address to which the call returns, or the address of the next instruction.
    pub address: usize,
    /// The name of the function, if the program has symbols.
    pub function: Option<String>,
    /// The file, if the program has debug information.
    pub file: Option<String>,
    /// The line in the file.
    pub line: Option<u32>,
}

impl fmt::Display for StackFrame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.function {
            Some(function) => f.write_str(function)?,
            None => write!(f, "{:#x}", self.address)?,
        }
        match (&self.file, self.line) {
            (Some(file), Some(line)) => write!(f, " at {file}:{line}"),
            (Some(file), None) => write!(f, " at {file}"),
            _ => Ok(()),
        }
    }
}

impl CrashReport {
    /// Returns the calls on the stack of the panic, the innermost first. The functions that begin a
    /// panic and the functions of the runtime are left out, if the program has symbols. Empty if
    /// the process did not panic, or if its [backtrace](crate::Builder::panic_backtraces) was not
    /// taken. At most 128 addresses are kept, each of which can belong to several inlined
    /// functions.
    ///
    /// # Blocking
    /// Reads the debug information of the program.
    pub fn backtrace(&self) -> Vec<StackFrame> {
        resolve(&self.panic_stack)
    }
}

/// Returns the frames of a stack of return addresses, with their symbols, and without the calls of
/// the runtime at both ends.
pub(super) fn resolve(stack: &[usize]) -> Vec<StackFrame> {
    let mut frames = Vec::new();
    for &address in stack {
        let known = frames.len();
        backtrace::resolve(std::ptr::without_provenance_mut(address), |symbol| {
            frames.push(StackFrame {
                address,
                function: symbol.name().map(|name| format!("{name:#}")),
                file: symbol.filename().map(|file| file.display().to_string()),
                line: symbol.lineno(),
            });
        });
        if frames.len() == known {
            frames.push(StackFrame { address, function: None, file: None, line: None });
        }
    }
    let has = |frame: &StackFrame, part: &str| {
        frame.function.as_ref().is_some_and(|name| name.contains(part))
    };
    if let Some(end) = frames.iter().rposition(|frame| has(frame, OUTER)) {
        frames.truncate(end);
    }
    let inner = &frames[..frames.len().min(INNER_FRAMES)];
    let is_inner = |frame: &StackFrame| INNER.iter().any(|part| has(frame, part));
    if let Some(last) = inner.iter().rposition(is_inner) {
        frames.drain(..=last);
    }
    frames
}
