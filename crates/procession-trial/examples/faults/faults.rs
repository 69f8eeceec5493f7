//! What goes wrong in programs: code that blocks, computes, panics or dawdles without saying so.
//! Nothing here helps the runtime to cope with it.

use std::io::{self, PipeReader, Read};
use std::time::Duration;

use procession::net::TcpStream;
use procession::sleep;
use procession_sync::atomic::{AtomicBool, Ordering};

/// Keeps its thread in the kernel until the other end of the pipe is closed, like a driver that
/// knows only blocking calls.
pub(crate) fn block(mut until_closed: &PipeReader) -> io::Result<usize> {
    until_closed.read(&mut [0])
}

/// Computes while `goes_on` is set, like a loop that turned out to be long.
pub(crate) fn compute(goes_on: &AtomicBool) -> u64 {
    let mut state = 1_u64;
    // Ordering: Relaxed; nothing is read because of the flag.
    while goes_on.load(Ordering::Relaxed) {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
    }
    state
}

/// The beginning of the message of [`fail`].
pub(crate) const FAILURE: &str = "a request that nobody had thought of";

/// Panics, as an index out of bounds or a missing value does.
pub(crate) fn fail(number: u64) -> ! {
    panic!("{FAILURE}: number {number}")
}

/// Sends byte by byte, like a client behind a bad line, or a client that wants to keep the server
/// busy.
pub(crate) async fn drip(stream: &TcpStream, bytes: &[u8], pause: Duration) -> io::Result<()> {
    for byte in bytes {
        stream.write_all(&[*byte]).await?;
        sleep(pause).await;
    }
    Ok(())
}
