//! Host names. The system resolves them with a call that blocks a thread.

use std::fmt;
use std::future::poll_fn;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6, ToSocketAddrs};
use std::sync::Arc;
use std::task::Poll;

use super::simulated;
use crate::pool::JobError;
use crate::pool::job::{Outstanding, ResultCell};
use crate::process::wait_reason::Waiting;
use crate::scheduler::helpers::{HelperJob, Helpers};
use crate::scheduler::origin::JobOrigin;
use crate::scheduler::{budget, current, owner};

/// The target of a bind or a connect: one address, several addresses, or a host name that is
/// resolved when it is needed.
///
/// ```
/// use std::net::SocketAddr;
/// use procession::net::Host;
///
/// let hosts: [Host; 4] = [
///     "127.0.0.1:80".into(),
///     ("::1", 80).into(),
///     ("example.org", 80).into(),
///     SocketAddr::from(([127, 0, 0, 1], 80)).into(),
/// ];
/// assert_eq!(hosts.map(|host| host.is_name()), [false, false, true, false]);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host(LookupKind);

#[derive(Clone, Debug, PartialEq, Eq)]
enum LookupKind {
    Addresses(Vec<SocketAddr>),
    /// `name:port`, the form that std resolves.
    Name(String),
}

impl Host {
    /// Returns `true` if the host is a name, which must be resolved first.
    pub fn is_name(&self) -> bool {
        matches!(self.0, LookupKind::Name(_))
    }

    /// Returns the addresses of the host. If it is a name, the system resolves it on a separate
    /// thread, since that call blocks. A scheduler has at most 512 threads for this and for the
    /// blocking calls of its coroutines, and each ends after 10 s without work. If all are busy,
    /// lookups wait in a queue without a bound. A lookup is still done if its future is dropped.
    ///
    /// # Errors
    /// Returns the system's error, for example for a name that does not exist. Returns an error if
    /// the name has no port, if there is no address, or if the system refuses the thread.
    ///
    /// # Cancellation
    /// If the future is dropped before it completes, the thread finishes the lookup, and its result
    /// is dropped.
    pub async fn addresses(self) -> io::Result<Vec<SocketAddr>> {
        let addresses = match self.0 {
            LookupKind::Addresses(addresses) => {
                // A bind, for example, waits for nothing else.
                budget::charged().await;
                addresses
            }
            LookupKind::Name(name) => look_up(name).await?,
        };
        if addresses.is_empty() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "the host has no address"));
        }
        Ok(addresses)
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            LookupKind::Name(name) => f.write_str(name),
            LookupKind::Addresses(addresses) => {
                for (number, address) in addresses.iter().enumerate() {
                    if number > 0 {
                        f.write_str(", ")?;
                    }
                    address.fmt(f)?;
                }
                Ok(())
            }
        }
    }
}

impl From<&str> for Host {
    fn from(text: &str) -> Self {
        match text.parse::<SocketAddr>() {
            Ok(address) => address.into(),
            Err(_) => Self(LookupKind::Name(text.to_owned())),
        }
    }
}

impl From<String> for Host {
    fn from(text: String) -> Self {
        text.as_str().into()
    }
}

impl From<&String> for Host {
    fn from(text: &String) -> Self {
        text.as_str().into()
    }
}

impl From<(&str, u16)> for Host {
    fn from((name, port): (&str, u16)) -> Self {
        match name.parse::<IpAddr>() {
            Ok(address) => (address, port).into(),
            Err(_) => Self(LookupKind::Name(format!("{name}:{port}"))),
        }
    }
}

impl From<SocketAddr> for Host {
    fn from(address: SocketAddr) -> Self {
        Self(LookupKind::Addresses(vec![address]))
    }
}

impl From<SocketAddrV4> for Host {
    fn from(address: SocketAddrV4) -> Self {
        SocketAddr::V4(address).into()
    }
}

impl From<SocketAddrV6> for Host {
    fn from(address: SocketAddrV6) -> Self {
        SocketAddr::V6(address).into()
    }
}

impl From<(IpAddr, u16)> for Host {
    fn from(address: (IpAddr, u16)) -> Self {
        SocketAddr::from(address).into()
    }
}

impl From<(Ipv4Addr, u16)> for Host {
    fn from(address: (Ipv4Addr, u16)) -> Self {
        SocketAddr::from(address).into()
    }
}

impl From<(Ipv6Addr, u16)> for Host {
    fn from(address: (Ipv6Addr, u16)) -> Self {
        SocketAddr::from(address).into()
    }
}

impl From<&[SocketAddr]> for Host {
    fn from(addresses: &[SocketAddr]) -> Self {
        Self(LookupKind::Addresses(addresses.to_vec()))
    }
}

/// A lookup on a helper of the scheduler.
// Not a job of a pool: a program that only connects to a name would link the engine of the pools.
struct Lookup {
    name: String,
    cell: ResultCell<io::Result<Vec<SocketAddr>>>,
}

impl HelperJob for Lookup {
    fn run(&self) {
        self.cell.resolve(Ok(match simulated::resolve(&self.name) {
            Some(addresses) => addresses,
            None => self.name.to_socket_addrs().map(Iterator::collect),
        }));
    }

    fn refuse(&self) {
        self.cell.resolve(Err(JobError::Refused));
    }
}

async fn look_up(name: String) -> io::Result<Vec<SocketAddr>> {
    let lookup = {
        let here = owner::here();
        let cell = ResultCell::new(Outstanding::of(&JobOrigin::current()));
        let lookup = Arc::new(Lookup { name, cell });
        Helpers::of(&here).run(&here.world, here.name(), Arc::clone(&lookup) as _);
        lookup
    };
    let addresses = poll_fn(|task| {
        if !budget::charge(task) {
            return Poll::Pending;
        }
        let addresses = lookup.cell.poll_result(task.waker());
        if addresses.is_pending() {
            current::note_waiting(Waiting::JOB);
        }
        addresses
    });
    addresses.await.map_err(io::Error::other)?
}
