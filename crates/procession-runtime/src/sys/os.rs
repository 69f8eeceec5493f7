//! The operating system below a [`World`](super::World), where it is simulated.
//!
//! The crate `procession-sim` implements [`Os`], and enters it on each of its threads. From then
//! on, whatever the runtime does on such a thread goes to that system: a scheduler that is built
//! there reads its clock, and all threads of the scheduler are threads of that system. The
//! scheduler takes its production paths; nothing above `sys` asks whether the system is simulated,
//! except where a step ends ([`Os::step`]).
//!
//! Without the feature `sim`, [`here`] returns `None`, and the compiler removes what depends on it.

use std::any::Any;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::{Arc, Weak};
use std::{fmt, io};

use procession_protocols::process::priority::Priority;

use crate::Pid;

/// A value that lives as long as a simulated program.
pub type SharedLocal = Arc<dyn Any + Send + Sync>;

/// The body of a thread.
pub type ThreadBody = Box<dyn FnOnce() + Send>;

/// The activity of a thread, as the system reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunState {
    /// The thread waits in the kernel.
    Waits,
    /// The thread runs, or is ready to run.
    Runs,
    /// The thread is stopped or traced.
    Stopped,
}

/// A fault in a call that the runtime makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallFault {
    /// A signal interrupts the call.
    Interrupted,
    /// The kernel reports events in another way than usual.
    Events,
    /// A write takes only a part of the bytes.
    ShortWrite,
    /// There is no descriptor left.
    Descriptor,
    /// The system refuses memory for the stack of a coroutine.
    Stack,
    /// The scheduler has no room for the child of a supervisor.
    Child,
}

/// A simulated operating system. Its threads take turns: one runs at a time.
///
/// The runtime holds none of its locks when it calls a method that may let another thread run:
/// [`park`](Self::park), [`park_in_kernel`](Self::park_in_kernel),
/// [`start_thread`](Self::start_thread), [`point`](Self::point), [`pause`](Self::pause) and
/// [`step`](Self::step).
pub trait Os: Send + Sync + fmt::Debug {
    /// Returns the monotonic clock in nanoseconds.
    fn now(&self) -> u64;

    /// Returns a seed for the free choices of a scheduler.
    fn seed(&self) -> u64;

    /// Returns the number of the calling thread, which is not 0.
    fn thread(&self) -> u32;

    /// Starts a detached thread.
    ///
    /// # Errors
    /// The system refuses the thread.
    fn start_thread(&self, name: String, body: ThreadBody) -> io::Result<()>;

    /// Waits until the calling thread is unparked or the deadline passes. It may return early.
    fn park(&self, deadline: u64);

    /// Waits like [`park`](Self::park), but also until the source has events.
    fn park_in_kernel(&self, source: &Arc<dyn WaitSource>, deadline: u64);

    /// Ends the wait of a thread, or its next wait if the thread does not wait.
    fn unpark(&self, thread: u32);

    /// Another thread may run here.
    fn point(&self);

    /// Lets others run: the thread waits for something that another thread is about to do.
    fn pause(&self);

    /// A worker is between two steps. Returns a budget for the next step, unless that is to have
    /// the usual one.
    fn step(&self, worker: u32, subject: &dyn Subject) -> Option<u32>;

    /// A worker is about to run a step of a process. Returns `true` if the step panics instead.
    fn panics(&self, process: Pid) -> bool;

    /// User code has panicked, in a step of this process or elsewhere, and the scheduler has caught
    /// it. `message` is the message of the panic.
    fn panicked(&self, process: Option<Pid>, message: &str);

    /// Returns the processor time in nanoseconds that a thread has used, and its activity, or
    /// `None` if there is no such thread.
    fn activity(&self, thread: u32) -> Option<(u64, RunState)>;

    /// Returns the number of processors, which is not 0.
    fn processors(&self) -> usize;

    /// Returns `true` if the system has membarrier(2).
    fn has_membarrier(&self) -> bool;

    /// Returns the value of this system that has this name, which the first call makes. It is
    /// dropped on a thread of the system when its program ends.
    fn local(&self, name: &'static str, make: &dyn Fn() -> SharedLocal) -> SharedLocal;

    /// A scheduler was built on a thread of this system.
    fn built(&self, subject: Weak<dyn Subject>);

    /// Returns 0, or a number below `count` if a fault happens in a call.
    fn fault(&self, _fault: CallFault, _count: u32) -> u32 {
        0
    }

    /// Returns the network between the hosts of this system, unless it is the real one.
    fn network(&self) -> Option<&dyn Network> {
        None
    }

    /// Returns `true` if the program may write files, such as the files of a recorder.
    fn keeps_files(&self) -> bool {
        false
    }

    /// The runtime has broken a law.
    fn broken(&self, _law: &str) {}

    /// The monitor with this number notifies its process of an end. Returns `false` if that monitor
    /// has done so before.
    fn tell(&self, _monitor: u64) -> bool {
        true
    }

    /// Returns the number of a message that the calling thread is about to send. It is larger than
    /// all before.
    fn number_message(&self) -> MessageNumber {
        MessageNumber::default()
    }

    /// A process takes a message out of its mailbox. Without a sender, it was sent by a thread that
    /// ran no process. Returns `false` if the process has taken a later message of the same sender.
    fn takes(&self, _process: Pid, _sender: Option<Pid>, _number: MessageNumber) -> bool {
        true
    }

    /// Returns `true` if the monitor with this number has notified its process of an end.
    fn has_told(&self, _monitor: u64) -> bool {
        true
    }
}

/// Names a message of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MessageNumber {
    /// The thread that has sent it.
    pub thread: u32,
    /// Its place among all messages.
    pub number: u64,
    /// Set if the message is urgent. The order of the urgent messages of a sender is apart from the
    /// order of the others.
    pub is_urgent: bool,
}

/// Something that a thread waits for in the kernel.
pub trait WaitSource: Send + Sync {
    /// Returns `true` if there is an event.
    fn is_ready(&self) -> bool;
}

/// What waits for the workers of a scheduler.
#[derive(Debug, Default)]
pub struct Demand {
    /// The processes that are ready, not bound to a worker and not in a step, with the number of
    /// their steps and the priorities by which they have their turns. Coroutines are left out,
    /// since they may wait for a stack.
    pub ready: Vec<(Pid, u32, Priority)>,
    /// The earliest deadline of a timer, or `u64::MAX`.
    pub deadline: u64,
    /// If descriptors have events, the number of polls of the kernel so far.
    pub events: Option<u64>,
    /// `true` if a worker can come for all this, or another one in its place.
    pub can_be_met: bool,
}

/// A scheduler, as its simulated system looks at it. Nothing here waits.
pub trait Subject: Send + Sync {
    /// Returns the earliest deadline of a timer, or `u64::MAX`.
    fn deadline(&self) -> u64;

    /// Returns the law that the scheduler breaks, if any, at a moment when all its threads wait and
    /// none is about to run.
    fn broken_law(&self) -> Option<String>;

    /// Returns the law that the scheduler breaks, if any, at a moment when each of its threads
    /// waits or is late: it was woken, or starts, and has not come. None is preempted between a
    /// step of a protocol and the next.
    fn broken_law_of_wake_ups(&self) -> Option<String>;

    /// Returns the law that the scheduler has broken, if any, once all of its threads have ended.
    fn broken_law_of_the_end(&self) -> Option<String>;

    /// Returns what waits for the workers of the scheduler, and for nothing else.
    fn demand(&self) -> Demand;

    /// Describes the process that the worker runs, or ran last if it is alive.
    fn process_of(&self, worker: u32) -> Option<String>;

    /// Returns a number that stands for the process that the worker runs, or ran last, and is the
    /// same in each run.
    fn mark_of(&self, worker: u32) -> u64;

    /// Describes the processes that wait, with what each waits for.
    fn waiting(&self) -> Vec<String>;
}

/// A network. Its sockets are descriptors of the real system, of which it holds the other ends, so
/// that reading, writing, waiting and closing are the system's calls.
///
/// A method that gets a socket of another kind, for example a socket that a library has made,
/// returns `None`.
pub trait Network {
    /// Returns the addresses that a name and a port stand for. Blocks the thread.
    ///
    /// # Errors
    /// The name is not known, or there is no port.
    fn resolve(&self, name: &str) -> io::Result<Vec<SocketAddr>>;

    /// Opens a listener, in non-blocking mode.
    ///
    /// # Errors
    /// The address is not one of the host, or is in use; or there is no descriptor.
    fn listen(&self, at: SocketAddr, backlog: u32) -> io::Result<OwnedFd>;

    /// Takes the next connection from a listener, in non-blocking mode.
    fn accept(&self, listener: BorrowedFd<'_>) -> Option<io::Result<(OwnedFd, SocketAddr)>>;

    /// Begins to connect. The result is in non-blocking mode, and becomes writable when the
    /// attempt is over.
    ///
    /// # Errors
    /// The local address cannot be used, or there is no descriptor.
    fn connect(&self, from: Option<SocketAddr>, to: SocketAddr) -> io::Result<OwnedFd>;

    /// Returns `true` if the socket is connected, and `false` if it is about to be.
    ///
    /// # Errors
    /// The attempt has failed.
    fn is_connected(&self, socket: BorrowedFd<'_>) -> io::Result<bool>;

    /// Opens a socket for datagrams, in non-blocking mode. Each datagram that is written to it
    /// begins with the address of its target, and each that is read with the address of its source
    /// ([`DatagramAddress`](crate::sys::datagram::DatagramAddress)).
    ///
    /// # Errors
    /// The address is not one of the host, or is in use; or there is no descriptor.
    fn bind(&self, at: SocketAddr) -> io::Result<OwnedFd>;

    /// Sets the peer of a socket for datagrams.
    fn connect_datagrams(&self, socket: BorrowedFd<'_>, to: SocketAddr) -> Option<io::Result<()>>;

    /// Returns the local address of a socket.
    fn local_addr(&self, socket: BorrowedFd<'_>) -> Option<SocketAddr>;

    /// Returns the address of the peer of a socket.
    fn peer_addr(&self, socket: BorrowedFd<'_>) -> Option<io::Result<SocketAddr>>;

    /// Returns the error that the network has for the next call on a socket, and takes it.
    fn error(&self, socket: BorrowedFd<'_>, reads: bool) -> Option<io::Error>;

    /// Returns a socket that holds the options of a connection.
    fn options(&self, socket: BorrowedFd<'_>) -> Option<Arc<TcpStream>>;

    /// A program is about to close a socket. This also closes all duplicates of the descriptor.
    fn close(&self, socket: BorrowedFd<'_>);

    /// A socket becomes one of std. From now on, [`close`](Self::close) is not called for it.
    fn release(&self, socket: BorrowedFd<'_>);
}

#[cfg(feature = "sim")]
pub(crate) use simulated::here;
#[cfg(feature = "sim")]
pub use simulated::{EnteredSystem, enter};

#[cfg(feature = "sim")]
mod simulated {
    use std::cell::RefCell;
    use std::fmt;
    use std::sync::Arc;

    use procession_protocols::util::membarrier;

    use super::Os;

    thread_local! {
        static HERE: RefCell<Option<Arc<dyn Os>>> = const { RefCell::new(None) };
    }

    /// Returns the simulated system of the calling thread, if it has one.
    pub(crate) fn here() -> Option<Arc<dyn Os>> {
        // While the thread ends, its system is gone first.
        HERE.try_with(|here| here.borrow().clone()).ok().flatten()
    }

    /// Makes the calling thread one of a simulated system, until the result is dropped.
    pub fn enter(os: Arc<dyn Os>) -> EnteredSystem {
        let before = membarrier::simulate(Some(os.has_membarrier()));
        EnteredSystem(HERE.replace(Some(os)), before)
    }

    /// The calling thread belongs to a simulated system until this is dropped.
    #[must_use]
    pub struct EnteredSystem(Option<Arc<dyn Os>>, Option<bool>);

    impl fmt::Debug for EnteredSystem {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.debug_struct("EnteredSystem").finish_non_exhaustive()
        }
    }

    impl Drop for EnteredSystem {
        fn drop(&mut self) {
            membarrier::simulate(self.1);
            drop(HERE.replace(self.0.take()));
        }
    }
}

#[cfg(not(feature = "sim"))]
#[inline(always)]
pub(crate) fn here() -> Option<Arc<dyn Os>> {
    None
}

/// Reports a caught panic to the simulated system of the calling thread, if it has one.
#[cold]
pub(crate) fn tell_panic(message: &str) {
    if let Some(os) = here() {
        os.panicked(crate::current_pid(), message);
    }
}
