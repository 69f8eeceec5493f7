//! What only Linux has.

pub(crate) mod bell;
#[cfg(feature = "io")]
pub(crate) mod cached_files;
pub(in crate::sys) mod clock;
pub(crate) mod events;
#[cfg(feature = "io")]
pub(crate) mod exit_handle;
#[expect(unsafe_code, reason = "a socket option that no safe interface offers for all peers")]
#[cfg(feature = "io")]
pub(crate) mod peer;
#[expect(unsafe_code, reason = "descriptors need not be open, so they are passed by number")]
#[cfg(feature = "io")]
pub(in crate::sys) mod poll;
#[cfg(feature = "door")]
pub(crate) mod program;
#[cfg(any(feature = "io", feature = "signal"))]
pub(crate) mod sockets;
#[expect(unsafe_code, reason = "descriptors need not be open, so they are passed by number")]
#[cfg(feature = "tokio")]
pub(crate) mod tcp;
#[expect(unsafe_code, reason = "a system call that no safe interface offers")]
mod thread_clock;
pub(in crate::sys) mod threads;
pub(in crate::sys) mod timer;

/// `true` if `/proc` tells about this program, wherever it is mounted.
#[cfg(feature = "tokio")]
pub(crate) const HAS_PROC: bool = true;
