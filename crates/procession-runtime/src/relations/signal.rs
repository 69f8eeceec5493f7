//! Signals: the events that the runtime sends to a process about other processes.

use std::fmt;

use procession_sync::atomic::AtomicU64;
use procession_sync::atomic::Ordering::Relaxed;

use crate::{Exit, Pid};

/// Identifies one monitor. It is unique in the program.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MonitorRef(u64);

impl MonitorRef {
    /// Draws a reference for a monitor that a process of another node makes. See
    /// [`RemoteSignal::Monitor`].
    pub fn draw() -> Self {
        static LAST: AtomicU64 = AtomicU64::new(0);
        // Relaxed: the numbers only have to differ.
        Self(LAST.fetch_add(1, Relaxed) + 1)
    }

    /// Returns a part of the number, which tells the monitors of one process apart.
    pub(crate) fn low_bits(self) -> u32 {
        self.0 as u32
    }

    /// Returns a number that no other monitor of the program has.
    #[cfg(feature = "sim")]
    pub(crate) fn number(self) -> u64 {
        self.0
    }
}

impl fmt::Debug for MonitorRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "m{}", self.0)
    }
}

/// The notice that a monitored process has ended.
///
/// A process receives it by [`Context::down`](crate::Context::down), or as
/// [`Event::Down`](crate::mailbox::Event::Down) among its messages:
///
/// ```
/// use procession::mailbox::Event;
/// use procession::{Context, Exit, start};
///
/// procession::run(async {
///     let job = start(|_: Context<()>| async { Err::<(), _>("no disk") });
///     let pid = job.pid();
///     let keeper = start(move |mut cx: Context<()>| async move {
///         let monitor = cx.monitor(pid);
///         match cx.recv_event().await {
///             Some(Event::Down(down)) if down.monitor == monitor => Some((down.pid, down.exit)),
///             _ => None,
///         }
///     });
///     // If the job has ended before `monitor`, the exit is `NoProcess`.
///     let (ended, exit) = keeper.await?.expect("it is the only event");
///     assert_eq!(ended, pid);
///     assert!([Exit::failed("no disk"), Exit::NoProcess].contains(&exit));
///     Ok::<(), Exit>(())
/// })?;
/// # Ok::<(), procession::Exit>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Down {
    /// The monitor that this answers.
    pub monitor: MonitorRef,
    /// The process that ended.
    pub pid: Pid,
    /// How it ended, or [`Exit::NoProcess`] if it had ended before it was monitored.
    pub exit: Exit,
}

/// A trapped exit signal, from a link or from [`send_exit`](crate::relations::send_exit).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ExitSignal {
    /// The process that ended or sent the signal, or `None` if a plain thread sent it.
    pub from: Option<Pid>,
    /// How the process ended, or the exit that was sent.
    pub exit: Exit,
}

/// A signal to a process about another process.
#[derive(Debug)]
pub(crate) enum Signal {
    Down(Down),
    Exit(ExitSignal),
    /// The mailbox of the process itself is full.
    MailboxFull,
}

/// A signal between a process of this program and a process of another node.
///
/// In a signal to the other node, `from` is here and `to` is there. In a signal from the other
/// node, `from` is there and `to` is here.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RemoteSignal {
    /// Links the two. It is answered only if that is not possible, by an `Exit`.
    Link {
        /// The process that links.
        from: Pid,
        /// The other process.
        to: Pid,
    },
    /// Ends the link of the two, if there is one. It is answered by an `UnlinkAck`.
    Unlink {
        /// The process that ends it.
        from: Pid,
        /// The other process.
        to: Pid,
        /// A number that the answer repeats. No other unlink of the program has it.
        id: u64,
    },
    /// Acknowledges an `Unlink`.
    UnlinkAck {
        /// The process that was unlinked.
        from: Pid,
        /// The process that has ended the link.
        to: Pid,
        /// The number of the `Unlink`.
        id: u64,
    },
    /// Process `from` has ended, or cannot be reached, and is linked to process `to`. This ends the
    /// link.
    Exit {
        /// The process that has ended.
        from: Pid,
        /// The process that is linked to it.
        to: Pid,
        /// How it has ended.
        exit: Exit,
    },
    /// [`send_exit`](crate::relations::send_exit).
    SendExit {
        /// The process that sends it, or `None` if it was a plain thread.
        from: Option<Pid>,
        /// The process that gets it.
        to: Pid,
        /// The exit.
        exit: Exit,
    },
    /// [`kill`](crate::relations::kill()).
    Kill {
        /// The process that kills, or `None` if it was a plain thread.
        from: Option<Pid>,
        /// The process that is killed.
        to: Pid,
    },
    /// Makes process `from` monitor process `to`. It is answered by one `Down`.
    Monitor {
        /// The process that monitors.
        from: Pid,
        /// The process that is monitored.
        to: Pid,
        /// The monitor. If the signal is from the other node, the relay [draws](MonitorRef::draw)
        /// it.
        monitor: MonitorRef,
    },
    /// Ends a monitor. It is then not answered any more.
    Demonitor {
        /// The process that monitors.
        from: Pid,
        /// The process that is monitored.
        to: Pid,
        /// The monitor.
        monitor: MonitorRef,
    },
    /// A monitored process has ended, or cannot be reached.
    Down {
        /// The process that has ended.
        from: Pid,
        /// The process that monitors it.
        to: Pid,
        /// The monitor.
        monitor: MonitorRef,
        /// How it has ended.
        exit: Exit,
    },
}

impl RemoteSignal {
    /// Returns the process that the signal is for.
    pub fn to(&self) -> Pid {
        let (Self::Link { to, .. }
        | Self::Unlink { to, .. }
        | Self::UnlinkAck { to, .. }
        | Self::Exit { to, .. }
        | Self::SendExit { to, .. }
        | Self::Kill { to, .. }
        | Self::Monitor { to, .. }
        | Self::Demonitor { to, .. }
        | Self::Down { to, .. }) = self;
        *to
    }

    /// Returns the answer to this signal for the case that its process does not exist, or cannot be
    /// reached: an `Exit` for a `Link`, a `Down` for a `Monitor`, and an `UnlinkAck` for an
    /// `Unlink`. Other signals have no answer.
    pub fn answer(&self, exit: Exit) -> Option<Self> {
        match *self {
            Self::Link { from, to } => Some(Self::Exit { from: to, to: from, exit }),
            Self::Monitor { from, to, monitor } => {
                Some(Self::Down { from: to, to: from, monitor, exit })
            }
            Self::Unlink { from, to, id } => Some(Self::UnlinkAck { from: to, to: from, id }),
            _ => None,
        }
    }
}
