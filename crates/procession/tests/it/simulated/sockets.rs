//! Blocking sockets of a simulation, with the interface of std's.
//!
//! Those of TCP belong to the simulated network, and Unix sockets are the system's.
//!
//! A call that would block lets virtual time pass, until it is possible or takes too long. So the
//! other threads of the run go on meanwhile.

use std::cell::Cell;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream as RealTcp};
use std::os::unix::net::UnixStream as RealUnix;
use std::path::Path;
use std::time::Duration;

use procession::Scheduler;
use procession::time::Instant;
use procession_sim::thread;

/// The virtual time between two attempts of a call.
const PAUSE: Duration = Duration::from_micros(100);

/// A socket whose calls wait in virtual time. If it is not to block, they do not wait.
#[derive(Debug)]
pub(crate) struct Waits<S> {
    socket: S,
    read_timeout: Cell<Option<Duration>>,
    blocks: Cell<bool>,
}

pub(crate) type TcpStream = Waits<RealTcp>;
pub(crate) type UnixStream = Waits<RealUnix>;

impl<S> Waits<S> {
    fn new(socket: S) -> Self {
        Self { socket, read_timeout: Cell::new(None), blocks: Cell::new(true) }
    }

    #[expect(clippy::unnecessary_wraps, reason = "as std's function has it")]
    pub(crate) fn set_read_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        self.read_timeout.set(timeout);
        Ok(())
    }

    #[expect(clippy::unnecessary_wraps, reason = "as std's function has it")]
    pub(crate) fn set_nonblocking(&self, is_nonblocking: bool) -> io::Result<()> {
        self.blocks.set(!is_nonblocking);
        Ok(())
    }

    /// Tries a call until it does not have to wait, or the time is over.
    fn call<R>(
        &self,
        timeout: Option<Duration>,
        mut attempt: impl FnMut(&S) -> io::Result<R>,
    ) -> io::Result<R> {
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
            thread::sleep(PAUSE);
        }
    }
}

impl UnixStream {
    pub(crate) fn connect(path: impl AsRef<Path>) -> io::Result<Self> {
        let stream = RealUnix::connect(path)?;
        stream.set_nonblocking(true)?;
        Ok(Self::new(stream))
    }
}

impl TcpStream {
    /// Connects to a listener of the simulated network.
    pub(crate) fn connect(address: SocketAddr) -> io::Result<Self> {
        let scheduler = Scheduler::builder().worker_threads(1).callers_drive().build();
        let scheduler = scheduler.map_err(io::Error::other)?;
        let stream = scheduler.block_on(procession::net::TcpStream::connect(address))?;
        let stream = RealTcp::try_from(stream)?;
        stream.set_nonblocking(true)?;
        Ok(Self::new(stream))
    }

    pub(crate) fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        self.socket.shutdown(how)
    }
}

impl<S> Read for &Waits<S>
where
    for<'a> &'a S: Read,
{
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.call(self.read_timeout.get(), |mut socket| socket.read(buffer))
    }
}

impl<S> Write for &Waits<S>
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

impl<S> Read for Waits<S>
where
    for<'a> &'a S: Read,
{
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        (&*self).read(buffer)
    }
}

impl<S> Write for Waits<S>
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
