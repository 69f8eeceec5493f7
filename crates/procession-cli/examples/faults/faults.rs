//! What goes wrong in programs: code that blocks, computes, panics or dawdles, and tells nobody.
//! Nothing here asks anything of the runtime that would make it easier.

use std::io::{self, PipeReader, Read};
use std::time::Duration;

use procession::net::TcpStream;
use procession::sleep;
use procession_sync::atomic::{AtomicBool, Ordering};

/// Keeps its thread in the kernel until the other end of the pipe is closed: a driver that only
/// knows blocking calls.
pub(crate) fn block(mut until_closed: &PipeReader) -> io::Result<usize> {
    until_closed.read(&mut [0])
}

/// Computes for as long as `goes_on` says: a loop that nobody thought would be long.
pub(crate) fn compute(goes_on: &AtomicBool) -> u64 {
    let mut state = 1_u64;
    // Ordering: Relaxed; nothing is read on account of it.
    while goes_on.load(Ordering::Relaxed) {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
    }
    state
}

/// How the message of [`fail`] begins.
pub(crate) const FAILURE: &str = "a request that nobody had thought of";

/// Panics: an index out of bounds, a value that was not there.
pub(crate) fn fail(number: u64) -> ! {
    panic!("{FAILURE}: number {number}")
}

/// Sends byte by byte: a client behind a bad line, or one that wants to keep the server busy.
pub(crate) async fn drip(stream: &TcpStream, bytes: &[u8], pause: Duration) -> io::Result<()> {
    for byte in bytes {
        stream.write_all(&[*byte]).await?;
        sleep(pause).await;
    }
    Ok(())
}
