//! Blocking calls on helper threads.

use std::io;

use crate::pool::program::ProgramPool;
use crate::pool::{JobError, JobHandle};
use crate::scheduler::writes::AcceptedWrite;

static FILES: ProgramPool = ProgramPool::new("files");

/// Starts a call on a helper.
///
/// # Errors
/// Returns an error, and drops the call, if the system refuses to start even one thread.
pub(crate) fn submit<T: Send + 'static>(
    call: impl FnOnce() -> T + Send + 'static,
) -> io::Result<JobHandle<T>> {
    FILES.submit(call).map_err(|_| io::Error::other(JobError::Refused))
}

/// Starts a call that changes a file. The end of the scheduler and of the program waits until the
/// call drops the write.
///
/// # Errors
/// Returns the same error as [`submit`].
pub(super) fn submit_write<T: Send + 'static>(
    call: impl FnOnce(AcceptedWrite) -> T + Send + 'static,
) -> io::Result<JobHandle<T>> {
    let accepted = AcceptedWrite::begin();
    submit(move || call(accepted))
}

/// Runs a call on a helper, and waits for its result.
pub(crate) async fn run<T: Send + 'static>(
    call: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    submit(call)?.await.map_err(io::Error::other)?
}

/// Runs a call that changes a file or a directory like [`run`]. If the caller stops to wait for it,
/// the end of the scheduler and of the program still waits.
pub(super) async fn run_write<T: Send + 'static>(
    call: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    let call = move |_: AcceptedWrite| call();
    submit_write(call)?.await.map_err(io::Error::other)?
}
