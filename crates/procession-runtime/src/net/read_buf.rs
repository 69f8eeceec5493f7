//! Receiving into the buffers of tokio and hyper, which may have memory that is not initialised.
//!
//! ## Invariants
//! - `[initialised]` `recv(2)` has written the bytes at the beginning of the buffer that `rustix`
//!   returns as initialised, and nothing else has changed.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::AsFd;

use rustix::net::RecvFlags;

/// A buffer with a part that is not filled yet.
pub(super) trait Unfilled {
    /// Calls `fill` on the part that is not filled. It returns how many bytes are filled now.
    ///
    /// # Safety
    /// `[initialised]`: `fill` only writes, and has written as many bytes as it returns, from the
    /// beginning.
    unsafe fn fill(
        &mut self,
        fill: impl FnOnce(&mut [MaybeUninit<u8>]) -> io::Result<usize>,
    ) -> io::Result<usize>;
}

#[cfg(feature = "tokio-io")]
impl Unfilled for tokio::io::ReadBuf<'_> {
    unsafe fn fill(
        &mut self,
        fill: impl FnOnce(&mut [MaybeUninit<u8>]) -> io::Result<usize>,
    ) -> io::Result<usize> {
        // SAFETY: [initialised] by the caller: no initialised byte becomes uninitialised.
        let count = fill(unsafe { self.unfilled_mut() })?;
        // SAFETY: [initialised] by the caller.
        unsafe { self.assume_init(count) };
        self.advance(count);
        Ok(count)
    }
}

#[cfg(feature = "hyper")]
impl Unfilled for hyper::rt::ReadBufCursor<'_> {
    unsafe fn fill(
        &mut self,
        fill: impl FnOnce(&mut [MaybeUninit<u8>]) -> io::Result<usize>,
    ) -> io::Result<usize> {
        // SAFETY: [initialised] by the caller: no initialised byte becomes uninitialised.
        let count = fill(unsafe { self.as_mut() })?;
        // SAFETY: [initialised] by the caller.
        unsafe { self.advance(count) };
        Ok(count)
    }
}

/// Receives into a buffer. Returns the number of bytes, and how many there was room for.
pub(super) fn recv(from: impl AsFd, buffer: &mut impl Unfilled) -> io::Result<(usize, usize)> {
    let mut room = 0;
    let receive = |unfilled: &mut [MaybeUninit<u8>]| {
        room = unfilled.len();
        let ((received, _), _) = rustix::net::recv(from, unfilled, RecvFlags::empty())?;
        Ok(received.len())
    };
    // SAFETY: [initialised]
    let count = unsafe { buffer.fill(receive) }?;
    Ok((count, room))
}
