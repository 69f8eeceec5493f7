//! Blocking sockets, with the interface of std's. Outside of a simulation, they are std's.
//!
//! In a simulation, TCP sockets belong to the simulated network, and Unix sockets are the system's.
//! A call that would block lets virtual time pass until it is possible or takes too long, so that
//! the other threads of the run go on.

use std::cell::Cell;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream as RealTcp};
use std::os::unix::net::UnixStream as RealUnix;
use std::path::Path;
use std::time::Duration;

use procession::Scheduler;
use procession::time::Instant;
use procession_sim::thread;

use super::is_simulated;

/// The virtual time between two attempts of a call.
const PAUSE: Duration = Duration::from_micros(100);

/// What the two kinds of sockets have in common, as methods of std's.
pub(crate) trait Blocking {
    fn set_read_timeout(&self, timeout: Option<Duration>) -> io::Result<()>;
    fn set_nonblocking(&self, is_nonblocking: bool) -> io::Result<()>;
}

macro_rules! blocking {
    ($socket:ty) => {
        impl Blocking for $socket {
            fn set_read_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
                <$socket>::set_read_timeout(self, timeout)
            }

            fn set_nonblocking(&self, is_nonblocking: bool) -> io::Result<()> {
                <$socket>::set_nonblocking(self, is_nonblocking)
            }
        }
    };
}
blocking!(RealTcp);
blocking!(RealUnix);

/// A socket with calls that wait in virtual time, or in the kernel outside of a simulation. If the
/// socket is not to block, its calls do not wait.
#[derive(Debug)]
pub(crate) struct Waits<S> {
    socket: S,
    read_timeout: Cell<Option<Duration>>,
    blocks: Cell<bool>,
}

pub(crate) type TcpStream = Waits<RealTcp>;
pub(crate) type UnixStream = Waits<RealUnix>;

impl<S: Blocking> Waits<S> {
    fn new(socket: S) -> io::Result<Self> {
        if is_simulated() {
            socket.set_nonblocking(true)?;
        }
        Ok(Self { socket, read_timeout: Cell::new(None), blocks: Cell::new(true) })
    }

    pub(crate) fn set_read_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        self.read_timeout.set(timeout);
        if is_simulated() { Ok(()) } else { self.socket.set_read_timeout(timeout) }
    }

    pub(crate) fn set_nonblocking(&self, is_nonblocking: bool) -> io::Result<()> {
        self.blocks.set(!is_nonblocking);
        if is_simulated() { Ok(()) } else { self.socket.set_nonblocking(is_nonblocking) }
    }

    /// Tries a call until it does not have to wait, or the time is over.
    fn call<R>(
        &self,
        timeout: Option<Duration>,
        mut attempt: impl FnMut(&S) -> io::Result<R>,
    ) -> io::Result<R> {
        if !is_simulated() {
            return attempt(&self.socket);
        }
        let begin = Instant::now();
        loop {
            let result = attempt(&self.socket);
            if !matches!(&result, Err(error) if error.kind() == ErrorKind::WouldBlock) {
                return result;
            }
            let waited = Instant::now().saturating_duration_since(begin);
            if !self.blocks.get() || timeout.is_some_and(|timeout| waited >= timeout) {
                return result;
            }
            #[expect(
                clippy::disallowed_methods,
                reason = "nothing tells when the call is possible"
            )]
            thread::sleep(PAUSE);
        }
    }
}

impl UnixStream {
    pub(crate) fn connect(path: impl AsRef<Path>) -> io::Result<Self> {
        Self::new(RealUnix::connect(path)?)
    }
}

impl TcpStream {
    /// Connects to a listener, which is one of the simulated network in a simulation.
    pub(crate) fn connect(address: SocketAddr) -> io::Result<Self> {
        if !is_simulated() {
            return Self::new(RealTcp::connect(address)?);
        }
        let scheduler = Scheduler::builder().worker_threads(1).callers_drive().build();
        let scheduler = scheduler.map_err(io::Error::other)?;
        let stream = scheduler.block_on(procession::net::TcpStream::connect(address))?;
        Self::new(RealTcp::try_from(stream)?)
    }

    pub(crate) fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        self.socket.shutdown(how)
    }
}

impl<S: Blocking> Read for &Waits<S>
where
    for<'a> &'a S: Read,
{
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.call(self.read_timeout.get(), |mut socket| socket.read(buffer))
    }
}

impl<S: Blocking> Write for &Waits<S>
where
    for<'a> &'a S: Write,
{
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.call(None, |mut socket| socket.write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        (&self.socket).flush()
    }
}

impl<S: Blocking> Read for Waits<S>
where
    for<'a> &'a S: Read,
{
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        (&*self).read(buffer)
    }
}

impl<S: Blocking> Write for Waits<S>
where
    for<'a> &'a S: Write,
{
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        (&*self).write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        (&*self).flush()
    }
}
