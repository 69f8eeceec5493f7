//! The network between simulated hosts.
//!
//! A socket of a program is one end of a pair of Unix sockets of the real system. The network holds
//! the other end, the *far end*. At each point of the engine the network *pumps*: it takes what the
//! programs have written, and delivers what is due. What is on its way is a [`Flight`], which
//! arrives at a moment of virtual time. Only one virtual thread runs at a time, so what the real
//! system answers depends on nothing else.
//!
//! A stream has one queue of segments for each direction, and one flight for the head of it, so
//! bytes arrive in order. If the way is cut, a flight is sent again, later each time, as TCP does.
//! A datagram is lost then.

mod calls;
mod datagrams;
mod flights;
mod hosts;
mod keep_alive;
mod listeners;
mod places;
mod streams;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::mem::MaybeUninit;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{Timespec, epoll};
use rustix::io::Errno;
use rustix::net::{Shutdown, shutdown};

use crate::chance::Chance;
use crate::engine::NEVER;
use crate::faults::{Fault, Faults};
use crate::story::Story;

use self::flights::Flight;
use self::places::{Home, Place};
use self::streams::{Broken, Stream};

pub(crate) use self::hosts::HostProgram;

/// The number of the host that the program of the check itself runs on.
pub(crate) const PROGRAM: usize = 0;

/// The name of that host.
pub(crate) const PROGRAM_NAME: &str = "program";

/// The other end of a socket of a program, and what the network knows of the socket.
struct Socket {
    /// The number of the start of the host that the socket belongs to.
    home: usize,
    host: usize,
    local: SocketAddr,
    far: FarEnd,
    /// `false` once the real system has said that the far end has nothing to read, until it says
    /// otherwise.
    is_readable: bool,
    is_writable: bool,
    /// The program has closed its end.
    is_closed: bool,
    /// The end of the program is a socket of std.
    is_released: bool,
    kind: Kind,
}

/// The far end of a socket. Dropping it ends the socket of the program, even if a child that any
/// thread of this program has just started has copies of the descriptors.
struct FarEnd(OwnedFd);

impl Drop for FarEnd {
    fn drop(&mut self) {
        // It fails if the program has closed its socket.
        let _ = shutdown(&self.0, Shutdown::Both);
    }
}

impl AsFd for FarEnd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

enum Kind {
    Listener(Listener),
    Stream(Box<Stream>),
    Datagrams(Datagrams),
}

/// A socket for datagrams.
#[derive(Default)]
struct Datagrams {
    peer: Option<SocketAddr>,
    /// The error that the next call of the program gets.
    error: Option<Errno>,
}

struct Listener {
    backlog_max: usize,
    /// The streams that wait to be accepted, with the ends that the program will get.
    backlog: VecDeque<(u64, OwnedFd)>,
}

/// The network of one run.
pub(crate) struct Net {
    /// The far ends report their events here.
    events: OwnedFd,
    hosts: Vec<Place>,
    homes: Vec<Home>,
    sockets: BTreeMap<u64, Socket>,
    /// The streams that are broken, as long as their programs may ask about them.
    broken: BTreeMap<u64, Broken>,
    /// The streams whose programs may have changed options since the last point.
    changed_options: Vec<u64>,
    /// The streams with keep-alive.
    keeping_alive: BTreeSet<u64>,
    /// The sockets by the real system's cookie of the end of the program.
    by_cookie: BTreeMap<u64, u64>,
    next_socket: u64,
    /// What is on its way, by the time of its arrival and a number.
    flights: BTreeMap<(u64, u64), Flight>,
    next_flight: u64,
    /// The ways from one host to another that are cut, until when.
    cuts: BTreeMap<(usize, usize), u64>,
}

/// The moment at which the network does something, and what decides then.
pub(crate) struct Moment<'a> {
    pub(crate) now: u64,
    pub(crate) chance: &'a mut Chance,
    pub(crate) story: &'a mut Story,
    /// The classes of faults that may happen now.
    pub(crate) faults: Faults,
}

impl Moment<'_> {
    /// Returns a fault of the class, if one happens: one of the values except the first.
    fn fault(&mut self, fault: Fault, values: &[u64]) -> Option<u64> {
        if !self.faults.contains(fault) {
            return None;
        }
        let value = self.chance.io_fault(fault, values.len() as u32) as usize;
        (value > 0).then(|| values[value])
    }

    fn happens(&mut self, fault: Fault) -> bool {
        self.fault(fault, &[0, 1]).is_some()
    }

    fn tell(&mut self, text: impl FnOnce() -> String) {
        self.story.tell(self.now, text);
    }
}

impl Net {
    /// Creates a network with one host, that of the program.
    ///
    /// # Errors
    /// The real system has no descriptor left.
    pub(crate) fn new() -> std::io::Result<Self> {
        let mut net = Self {
            events: epoll::create(epoll::CreateFlags::CLOEXEC)?,
            hosts: Vec::new(),
            homes: Vec::new(),
            sockets: BTreeMap::new(),
            broken: BTreeMap::new(),
            changed_options: Vec::new(),
            keeping_alive: BTreeSet::new(),
            by_cookie: BTreeMap::new(),
            next_socket: 0,
            flights: BTreeMap::new(),
            next_flight: 0,
            cuts: BTreeMap::new(),
        };
        net.add_host(PROGRAM_NAME, None);
        Ok(net)
    }

    /// Returns the time at which the next flight arrives.
    pub(crate) fn next_due(&self) -> u64 {
        self.flights.first_key_value().map_or(NEVER, |(&(due, _), _)| due)
    }

    /// Takes what the programs have written, and delivers what is due.
    pub(crate) fn pump(&mut self, moment: &mut Moment<'_>) {
        for id in self.note_events() {
            match self.sockets.get(&id).map(|socket| &socket.kind) {
                Some(Kind::Listener(_)) => self.serve_listener(moment, id),
                Some(Kind::Stream(_)) => {
                    self.flush(moment, id);
                    self.drain(moment, id);
                }
                Some(Kind::Datagrams(_)) => self.drain_datagrams(moment, id),
                None => {}
            }
        }
        self.keep_alive(moment.now);
        while let Some(entry) = self.flights.first_entry()
            && entry.key().0 <= moment.now
        {
            let flight = entry.remove();
            self.arrive(moment, flight);
        }
    }

    /// Notes the events of the far ends. Returns the sockets that have some, in order.
    fn note_events(&mut self) -> Vec<u64> {
        const BATCH: usize = 64;
        const AT_ONCE: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };
        let mut changed = Vec::new();
        loop {
            let mut buffer = [const { MaybeUninit::uninit() }; BATCH];
            let (happened, _) = match epoll::wait(&self.events, &mut buffer, Some(&AT_ONCE)) {
                Ok(happened) => happened,
                Err(Errno::INTR) => continue,
                // The descriptor is that of this network. Other code has closed it.
                Err(_) => break,
            };
            for event in &*happened {
                use epoll::EventFlags as Flags;
                let (id, flags) = (event.data.u64(), event.flags);
                if let Some(socket) = self.sockets.get_mut(&id) {
                    let ends = Flags::IN | Flags::RDHUP | Flags::HUP | Flags::ERR;
                    socket.is_readable |= flags.intersects(ends);
                    socket.is_writable |= flags.intersects(Flags::OUT | Flags::ERR);
                    // A socket whose drop was not announced, such as one of std, is noticed here.
                    let notices = socket.is_released || !socket.has_hung_up();
                    socket.is_closed |= flags.contains(Flags::HUP) && notices;
                    changed.push(id);
                }
            }
            if happened.len() < BATCH {
                break;
            }
        }
        changed.sort_unstable();
        changed.dedup();
        changed
    }

    /// Adds a socket. `near` is the end that the program gets.
    ///
    /// # Errors
    /// The real system's.
    fn add(&mut self, near: &OwnedFd, socket: Socket) -> std::io::Result<u64> {
        use epoll::EventFlags as Flags;
        let id = self.next_socket;
        let flags = Flags::IN | Flags::OUT | Flags::RDHUP | Flags::ET;
        epoll::add(&self.events, &socket.far, epoll::EventData::new_u64(id), flags)?;
        let cookie = rustix::net::sockopt::socket_cookie(near)?;
        self.next_socket += 1;
        self.by_cookie.insert(cookie, id);
        self.sockets.insert(id, socket);
        Ok(id)
    }

    /// Returns the number of the socket that a descriptor of a program refers to.
    fn find(&self, near: impl AsFd) -> Option<u64> {
        let cookie = rustix::net::sockopt::socket_cookie(near).ok()?;
        let is_known = |id: &u64| self.sockets.contains_key(id) || self.broken.contains_key(id);
        self.by_cookie.get(&cookie).copied().filter(is_known)
    }

    fn stream(&mut self, id: u64) -> Option<&mut Stream> {
        match &mut self.sockets.get_mut(&id)?.kind {
            Kind::Stream(stream) => Some(stream),
            _ => None,
        }
    }
}
