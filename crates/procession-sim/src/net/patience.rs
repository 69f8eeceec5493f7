//! For how long a stream waits for a peer that is silent.

use std::net::TcpStream;
use std::time::Duration;

use rustix::net::sockopt;

use crate::time::nanoseconds;

/// For how long a stream waits for a peer that is silent. Times are in nanoseconds.
pub(crate) struct Patience {
    pub(crate) keep_alive: Option<KeepAlive>,
    pub(crate) user_timeout: Option<u64>,
    /// The last time at which something arrived from the peer.
    pub(crate) heard_at: u64,
    /// A probe is due.
    pub(crate) is_probing: bool,
    /// When the first segment was sent again.
    pub(crate) repeats_since: u64,
}

impl Patience {
    pub(crate) fn new(now: u64) -> Self {
        Self {
            keep_alive: None,
            user_timeout: None,
            heard_at: now,
            is_probing: false,
            repeats_since: now,
        }
    }
}

/// What a program has asked for.
#[derive(Clone, Copy)]
pub(crate) struct KeepAlive {
    pub(crate) idle: u64,
    pub(crate) interval: u64,
    /// Probes without an answer after which the connection fails.
    pub(crate) probes: u32,
}

impl KeepAlive {
    /// Returns what the options say, if they ask for it.
    pub(crate) fn of(options: &TcpStream) -> Option<Self> {
        if !sockopt::socket_keepalive(options).ok()? {
            return None;
        }
        let idle = nanoseconds(sockopt::tcp_keepidle(options).ok()?);
        let interval = nanoseconds(sockopt::tcp_keepintvl(options).ok()?);
        Some(Self { idle, interval, probes: sockopt::tcp_keepcnt(options).ok()? })
    }
}

/// Returns the user timeout that the options have, in nanoseconds.
pub(crate) fn user_timeout(options: &TcpStream) -> Option<u64> {
    let milliseconds = sockopt::tcp_user_timeout(options).ok().filter(|&limit| limit > 0)?;
    Some(nanoseconds(Duration::from_millis(milliseconds.into())))
}
