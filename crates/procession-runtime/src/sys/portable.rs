//! What serves on all systems instead of what only Linux has.

pub(crate) mod bell;
#[cfg(feature = "io")]
pub(crate) mod cached_files;
pub(in crate::sys) mod clock;
pub(crate) mod events;
#[cfg(feature = "io")]
pub(crate) mod exit_handle;
#[expect(unsafe_code, reason = "a call that no safe interface offers")]
#[cfg(feature = "io")]
#[cfg_attr(target_os = "linux", path = "linux/peer.rs")]
pub(crate) mod peer;
#[expect(unsafe_code, reason = "descriptors need not be open, so they are passed by number")]
#[cfg(feature = "io")]
pub(in crate::sys) mod poll;
#[cfg_attr(
    not(target_os = "linux"),
    expect(unsafe_code, reason = "a call that no safe interface offers")
)]
#[cfg(feature = "door")]
pub(crate) mod program;
mod queue;
#[cfg(any(feature = "io", feature = "signal"))]
pub(crate) mod sockets;
#[cfg(feature = "tokio")]
pub(crate) mod tcp;
pub(in crate::sys) mod threads;
pub(in crate::sys) mod timer;

/// Only Linux has the files of `/proc` that tell about this program.
#[cfg(feature = "tokio")]
pub(crate) const HAS_PROC: bool = false;
