//! File descriptors and credentials on Unix sockets.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::cmsg_space;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, recvmsg, sendmsg,
};

use super::io::IoResult;
use crate::sys::system::sockets;

/// Maximum number of descriptors in one message, in the kernel (`SCM_MAX_FD`).
const DESCRIPTORS_MAX: usize = 253;

/// Space for all ancillary data of a message. The kernel may put credentials before the
/// descriptors, which would otherwise have no space left.
const SPACE: usize = sockets::CREDENTIALS_SPACE + cmsg_space!(ScmRights(DESCRIPTORS_MAX));

/// Bytes that were received together with file descriptors.
#[derive(Debug)]
#[non_exhaustive]
pub struct ReceivedFds {
    /// The number of bytes in the buffer.
    pub len: usize,
    /// The descriptors, in the order in which they were sent. They are closed at `exec`.
    pub fds: Vec<OwnedFd>,
    /// `true` if descriptors were sent that are not here, because this program has reached its
    /// limit of open files. They are lost.
    pub fds_lost: bool,
}

pub(super) fn send(
    socket: impl AsFd,
    bytes: &[u8],
    fds: &[BorrowedFd<'_>],
) -> io::Result<IoResult<usize>> {
    let invalid = |text: String| Err(io::Error::new(io::ErrorKind::InvalidInput, text));
    if bytes.is_empty() {
        return invalid("cannot send descriptors without at least one byte".to_owned());
    }
    if fds.len() > DESCRIPTORS_MAX {
        let count = fds.len();
        return invalid(format!("cannot send {count} descriptors: at most {DESCRIPTORS_MAX}"));
    }
    let rights = SendAncillaryMessage::ScmRights(fds);
    let mut space = vec![MaybeUninit::uninit(); rights.size()];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() {
        assert!(ancillary.push(rights), "the space has the size of the message");
    }
    let parts = [IoSlice::new(bytes)];
    Ok(IoResult::whole(sendmsg(socket, &parts, &mut ancillary, sockets::NO_SIGNAL)?))
}

pub(super) fn receive(socket: impl AsFd, buffer: &mut [u8]) -> io::Result<IoResult<ReceivedFds>> {
    let mut space = [MaybeUninit::uninit(); SPACE];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let parts = &mut [IoSliceMut::new(buffer)];
    let received = recvmsg(socket, parts, &mut ancillary, sockets::OWN_FDS)?;
    let mut fds = Vec::new();
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            for fd in rights {
                sockets::own_fd(&fd)?;
                fds.push(fd);
            }
        }
    }
    let fds_lost = received.flags.contains(ReturnFlags::CTRUNC);
    Ok(IoResult::whole(ReceivedFds { len: received.bytes, fds, fds_lost }))
}

/// The methods of connected Unix sockets.
macro_rules! descriptor_methods {
    ($Socket:ident) => {
        impl $Socket {
            /// Sends bytes together with file descriptors, and returns the number of bytes sent.
            /// The receiver gets its own descriptors of the same open files, with the first of the
            /// bytes.
            ///
            /// ```
            /// use std::io::{Read, Seek, Write};
            /// use std::os::fd::AsFd;
            /// use procession::net::UnixStream;
            ///
            /// # let name = format!("procession-fds-{}", std::process::id());
            /// # let path = std::env::temp_dir().join(name);
            /// procession::run(async {
            ///     let (ours, theirs) = UnixStream::pair()?;
            ///     let mut file = std::fs::File::create_new(&path)?;
            ///     ours.send_fds(b"f", &[file.as_fd()]).await?;
            ///     let received = theirs.recv_fds(&mut [0; 8]).await?;
            ///     let mut fds = received.fds;
            ///     let mut same = std::fs::File::from(fds.pop().expect("one was sent"));
            ///     same.write_all(b"hello")?;
            ///     assert_eq!(file.stream_position()?, 5);
            ///     std::fs::remove_file(&path)
            /// })?;
            /// # Ok::<(), std::io::Error>(())
            /// ```
            ///
            /// # Errors
            /// Returns the system's error, or [`TimedOut`](std::io::ErrorKind::TimedOut) if the
            /// write timeout elapses. Returns [`InvalidInput`](std::io::ErrorKind::InvalidInput)
            /// for no bytes and for more than 253 descriptors.
            ///
            /// # Cancellation
            /// If the future is dropped before it completes, nothing was sent.
            #[track_caller]
            pub fn send_fds(
                &self,
                bytes: &[u8],
                fds: &[std::os::fd::BorrowedFd<'_>],
            ) -> impl Future<Output = std::io::Result<usize>> {
                crate::scheduler::placed::placed(async move {
                    self.0.run(Side::Write, |io| super::descriptors::send(io, bytes, fds)).await
                })
            }

            /// Receives bytes into `buffer`, with the file descriptors that were sent along.
            /// Methods that receive only bytes close such descriptors.
            ///
            /// # Errors
            /// Returns the system's error, or [`TimedOut`](std::io::ErrorKind::TimedOut) if the
            /// read timeout elapses.
            ///
            /// # Cancellation
            /// If the future is dropped before it completes, nothing is lost.
            #[track_caller]
            pub fn recv_fds(
                &self,
                buffer: &mut [u8],
            ) -> impl Future<Output = std::io::Result<super::descriptors::ReceivedFds>> {
                crate::scheduler::placed::placed(async move {
                    self.0.run(Side::Read, |io| super::descriptors::receive(io, buffer)).await
                })
            }

            /// Returns the credentials of the process at the other end.
            ///
            /// ```
            /// use procession::net::UnixStream;
            ///
            /// procession::run(async {
            ///     let (ours, _theirs) = UnixStream::pair()?;
            ///     assert_eq!(ours.peer_cred()?.pid(), Some(std::process::id()));
            ///     Ok::<(), std::io::Error>(())
            /// })?;
            /// # Ok::<(), std::io::Error>(())
            /// ```
            ///
            /// # Errors
            /// Returns the system's error.
            pub fn peer_cred(&self) -> std::io::Result<super::credentials::UCred> {
                super::credentials::peer_cred(self.0.get())
            }
        }
    };
}

pub(super) use descriptor_methods;
