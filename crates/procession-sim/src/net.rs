//! The network between simulated hosts.
//!
//! A socket of a program is one end of a pair of Unix sockets of the real system. The network holds
//! the other end, the *far end*. At each point of the engine the network *pumps*: it takes what the
//! programs have written, and delivers what is due. Everything on its way is a [`Flight`], which
//! arrives at a moment of virtual time. Only one virtual thread runs at a time, so the answers of
//! the real system depend on nothing else.
//!
//! A stream has one queue of segments for each direction, and one flight for the head of the queue,
//! so bytes arrive in order. If the way is cut, a flight is sent again, later each time, as TCP
//! does. A datagram is lost then.

mod cargo;
mod datagrams;
mod flights;
pub(crate) mod host;
mod keep_alive;
mod listeners;
pub(crate) mod moment;
mod patience;
pub(crate) mod places;
pub(crate) mod sockets;
mod streams;

use std::collections::{BTreeMap, BTreeSet};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};

use rustix::event::{Timespec, epoll};
use rustix::io::Errno;

use crate::net::cargo::Flight;
use crate::net::host::{Home, Place};
use crate::net::moment::Moment;
use crate::net::sockets::{Broken, Kind, Socket, Stream};
use crate::time::NEVER;

/// The number of the host that the program of the check itself runs on.
pub(crate) const PROGRAM: usize = 0;

/// The name of that host.
pub(crate) const PROGRAM_NAME: &str = "program";

/// The network of one run.
pub(crate) struct Net {
    /// The far ends report their events here.
    events: OwnedFd,
    pub(crate) hosts: Vec<Place>,
    pub(crate) homes: Vec<Home>,
    pub(crate) sockets: BTreeMap<u64, Socket>,
    /// The streams that are broken, as long as their programs may ask about them.
    pub(crate) broken: BTreeMap<u64, Broken>,
    /// The streams with options that their programs may have changed since the last point.
    pub(crate) changed_options: Vec<u64>,
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

impl Net {
    /// Creates a network with one host, for the program.
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
                // The descriptor belongs to this network. Other code has closed it.
                Err(_) => break,
            };
            for event in &*happened {
                use epoll::EventFlags as Flags;
                let (id, flags) = (event.data.u64(), event.flags);
                if let Some(socket) = self.sockets.get_mut(&id) {
                    let ends = Flags::IN | Flags::RDHUP | Flags::HUP | Flags::ERR;
                    socket.is_readable |= flags.intersects(ends);
                    socket.is_writable |= flags.intersects(Flags::OUT | Flags::ERR);
                    // If the drop of a socket was not announced, such as the drop of a socket of
                    // std, it is noticed here.
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
    pub(crate) fn find(&self, near: impl AsFd) -> Option<u64> {
        let cookie = rustix::net::sockopt::socket_cookie(near).ok()?;
        let is_known = |id: &u64| self.sockets.contains_key(id) || self.broken.contains_key(id);
        self.by_cookie.get(&cookie).copied().filter(is_known)
    }

    pub(crate) fn stream(&mut self, id: u64) -> Option<&mut Stream> {
        match &mut self.sockets.get_mut(&id)?.kind {
            Kind::Stream(stream) => Some(stream),
            _ => None,
        }
    }
}
