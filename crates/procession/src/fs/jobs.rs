//! Blocking calls on helper threads.

use std::io;

use crate::pool::program::ProgramPool;
use crate::pool::{JobError, JobHandle};

static FILES: ProgramPool = ProgramPool::new("files");

/// Starts a call on a helper.
///
/// # Errors
/// Returns an error if the system gives no thread at all. The call is dropped then.
pub(crate) fn submit<T: Send + 'static>(
    call: impl FnOnce() -> T + Send + 'static,
) -> io::Result<JobHandle<T>> {
    FILES.submit(call).map_err(|_| io::Error::other(JobError::Refused))
}

/// Runs a call on a helper, and waits for its result.
pub(crate) async fn run<T: Send + 'static>(
    call: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    submit(call)?.await.map_err(io::Error::other)?
}
