//! The end of a connection that loses no answer.
//!
//! If a connection is closed while bytes of its client are unread, or more bytes arrive later, the
//! system resets the connection. A client that is reset loses the part of the answer that it has
//! not read yet. So the server first shuts down its write direction, which says that the answer is
//! complete. It then reads and discards what the client sends until the client also closes the
//! connection. Bytes and time are bounded.

use std::future::poll_fn;
use std::mem::MaybeUninit;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};

use hyper::rt::{Read, ReadBuf, Write};
use procession_runtime::inner::OwnProcess;
use procession_runtime::time::{Instant, sleep_until};

use super::is_told;
use super::limits::{LINGER_BYTES_MAX, LINGER_MAX, farewell, linger_quiet};

/// Closes a stream after its last answer.
pub(super) async fn linger<I: Read + Write + Unpin>(mut stream: I) {
    let own = OwnProcess::get();
    let (mut is_shut, mut was_told, mut left) = (false, false, LINGER_BYTES_MAX);
    let mut end = Instant::now() + LINGER_MAX;
    let mut quiet = Instant::now() + linger_quiet();
    let mut sleep = pin!(sleep_until(quiet));
    poll_fn(|task| {
        if !is_shut && let Poll::Ready(shut) = Pin::new(&mut stream).poll_shutdown(task) {
            is_shut = true;
            if shut.is_err() {
                return Poll::Ready(());
            }
        }
        let before = left;
        loop {
            match discard(&mut stream, task) {
                Poll::Ready(count) if (1..left).contains(&count) => left -= count,
                // The end, an error, or more bytes than the limit.
                Poll::Ready(_) => return Poll::Ready(()),
                Poll::Pending => break,
            }
        }
        if !was_told && is_told(own.as_ref(), task) {
            was_told = true;
            end = end.min(Instant::now() + farewell());
            quiet = quiet.min(Instant::now() + linger_quiet());
            sleep.as_mut().reset(end.min(quiet));
        }
        if left < before {
            quiet = Instant::now() + linger_quiet();
            sleep.as_mut().reset(end.min(quiet));
        }
        sleep.as_mut().poll(task)
    })
    .await;
}

/// Reads once. Returns the number of bytes, which is 0 at the end and after an error.
fn discard<I: Read + Unpin>(stream: &mut I, task: &mut Context<'_>) -> Poll<usize> {
    let mut memory = [MaybeUninit::uninit(); 16 * 1024];
    let mut part = ReadBuf::uninit(&mut memory);
    let polled = Pin::new(stream).poll_read(task, part.unfilled());
    polled.map(|result| result.map_or(0, |()| part.filled().len()))
}
