//! The time limits of a server.

use std::time::Duration;

use procession_runtime::inner::OwnProcess;
use rustix::process::{Resource, getrlimit};

/// The limits of a server. `None` is no limit.
#[derive(Clone, Debug)]
pub(super) struct ServerLimits {
    pub(super) connections: Most,
    pub(super) head: Option<Duration>,
    pub(super) head_bytes: usize,
    pub(super) idle: Option<Duration>,
    pub(super) body: Option<Duration>,
    pub(super) body_stall: Option<Duration>,
    pub(super) write: Option<Duration>,
    pub(super) half_close: Option<Duration>,
    #[cfg(feature = "tls")]
    pub(super) handshake: Option<Duration>,
}

/// The number of connections that may be open at the same time.
#[derive(Clone, Copy, Debug)]
pub(super) enum Most {
    /// Three quarters of the descriptors of the program. The rest is for what services open.
    Share,
    Number(usize),
    Any,
}

impl Most {
    pub(super) fn get(self) -> usize {
        match self {
            Self::Share => share(getrlimit(Resource::Nofile).current),
            Self::Number(number) => number,
            Self::Any => usize::MAX,
        }
    }
}

/// Returns the number of connections that a server which ends may hold without a place: an eighth
/// of the descriptors, which is half of what [`Most::Share`] leaves to services.
pub(super) fn waiting_max() -> usize {
    let descriptors = getrlimit(Resource::Nofile).current;
    descriptors.map_or(usize::MAX, |most| usize::try_from(most / 8).unwrap_or(usize::MAX))
}

/// Returns the number of connections for a limit of descriptors. `None` is no limit.
fn share(descriptors: Option<u64>) -> usize {
    let Some(descriptors) = descriptors else { return usize::MAX };
    let descriptors = usize::try_from(descriptors).unwrap_or(usize::MAX);
    (descriptors - descriptors / 4).max(1)
}

/// Each byte of a body buys this much time, so that a body must arrive at 512 B/s or faster. This
/// is far below every line that carries HTTP, and a body of 1 MiB cannot last longer than 35
/// minutes.
pub(super) const TIME_PER_BYTE: Duration = Duration::from_nanos(1_000_000_000 / BYTES_PER_SECOND);

/// Slowest rate at which a client still counts as a client that reads or writes.
pub(super) const BYTES_PER_SECOND: u64 = 512;

/// How long a client that keeps its connection may take to send one more request, once the server
/// ends. A client that sends requests in a row does so within milliseconds of the last answer. This
/// is also the longest time by which a connection with a place but without a request delays the end
/// of a server.
const GRACE: Duration = Duration::from_secs(1);

/// Number of bytes that a connection reads ahead of its protocol, to see the end of its client
/// behind them. A pipelined request, and the rest of a small body, are shorter.
pub(super) const AHEAD_MAX: usize = 16 * 1024;

/// How often a connection asks the system for its client, if more than [`AHEAD_MAX`] bytes of the
/// client lie before its end, and the service reads no byte. A service that computes for so long
/// hardly notices a system call, and the place of a client that has gone is soon free.
pub(super) const LOOK_EVERY: Duration = Duration::from_secs(1);

/// How often a connection looks whether the body of a request has ended, once its response is
/// complete. The process that reads the body does not wake the connection.
pub(super) const RECEIVING_LOOK_EVERY: Duration = Duration::from_secs(1);

/// How long the closing of a connection waits for the next bytes of the client, or for its end. It
/// covers the round trip and a few packets that were lost.
const LINGER_QUIET: Duration = Duration::from_secs(2);

/// How long the closing of a connection may take as a whole, as in nginx (`lingering_time`). A
/// client that sends for longer loses the rest of the answer.
pub(super) const LINGER_MAX: Duration = Duration::from_secs(30);

/// Number of bytes that the closing of a connection reads and discards. Reading them takes about
/// 20 ms of a processor.
pub(super) const LINGER_BYTES_MAX: usize = 64 << 20;

/// How long a connection without work may take to end, after the server asked it to. An HTTP/2
/// client confirms the end.
const FAREWELL: Duration = Duration::from_secs(3);

/// Returns how long a connection without a request waits for one, once the server ends.
pub(super) fn grace() -> Duration {
    in_shutdown(GRACE)
}

/// Returns how long a connection without work may take to end, after the server asked it to.
pub(super) fn farewell() -> Duration {
    in_shutdown(FAREWELL)
}

/// Returns how long the closing of a connection waits for the next bytes of the client.
pub(super) fn linger_quiet() -> Duration {
    in_shutdown(LINGER_QUIET)
}

/// Returns a quarter of the time that is left until a shutdown terminates the processes, if that is
/// shorter than `limit`. Otherwise, connections that have nothing to lose would hold the server
/// until then, and it would count as terminated. A connection waits up to three times in a row.
fn in_shutdown(limit: Duration) -> Duration {
    OwnProcess::get().map_or(limit, |own| limit.min(own.time_left() / 4))
}

impl Default for ServerLimits {
    fn default() -> Self {
        Self {
            connections: Most::Share,
            head: Some(Duration::from_secs(30)),
            head_bytes: 64 * 1024,
            idle: Some(Duration::from_secs(60)),
            body: Some(Duration::from_secs(3600)),
            body_stall: Some(Duration::from_secs(30)),
            write: Some(Duration::from_secs(30)),
            half_close: Some(Duration::from_secs(5)),
            #[cfg(feature = "tls")]
            handshake: Some(Duration::from_secs(10)),
        }
    }
}
