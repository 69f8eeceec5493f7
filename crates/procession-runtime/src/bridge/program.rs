//! What the system shows of the sockets and threads of this program.

use std::fs;
use std::io;
use std::io::Read as _;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::unix::fs::MetadataExt as _;

use procession_protocols::util::sorted_map::{SortedMap, SortedSet};
use procession_sync::Mutex;

use crate::sys::World;
use crate::sys::system::{HAS_PROC, tcp};

/// The threads that work for schedulers on test clocks. Each of these schedulers knows the state of
/// its threads, and a test must not wait for other tests.
static TESTING: Mutex<Vec<u32>> = Mutex::new(Vec::new());

/// Records that the calling thread works for a scheduler on a test clock, until this value is
/// dropped.
pub(crate) struct TestingThread(u32);

impl TestingThread {
    pub(crate) fn mark() -> Self {
        let thread = World::thread_number();
        TESTING.lock().push(thread);
        Self(thread)
    }
}

impl Drop for TestingThread {
    fn drop(&mut self) {
        let mut testing = TESTING.lock();
        if let Some(at) = testing.iter().position(|thread| *thread == self.0) {
            testing.swap_remove(at);
        }
    }
}

/// A thread of this program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SeenThread {
    pub(super) number: u32,
    /// The number of times that it has run.
    pub(super) runs: u64,
    /// Set if it runs, or is ready to, or waits for a disk.
    pub(super) is_running: bool,
}

/// Returns the number of threads of this program, or 0 if the system does not say it.
pub(super) fn thread_count() -> u64 {
    if !HAS_PROC {
        return 0;
    }
    // The directory has a link for each thread.
    fs::metadata("/proc/self/task").map_or(0, |directory| directory.nlink())
}

/// Returns the threads of this program that work for no scheduler on a test clock. Without `/proc`,
/// none is seen.
pub(super) fn threads() -> Vec<SeenThread> {
    if !HAS_PROC {
        return Vec::new();
    }
    let testing = TESTING.lock().clone();
    let entries = fs::read_dir("/proc/self/task").into_iter().flatten();
    let numbers = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    let others = numbers.filter(|number| !testing.contains(number));
    others
        .filter_map(|number| {
            // If its file cannot be read, the thread has ended.
            let stat = text_of(&format!("/proc/self/task/{number}/stat")).ok()?;
            let runs = text_of(&format!("/proc/self/task/{number}/schedstat")).unwrap_or_default();
            let runs = runs.split_whitespace().nth(2).and_then(|count| count.parse().ok());
            let runs = runs.unwrap_or_default();
            Some(SeenThread { number, runs, is_running: is_running(&stat) })
        })
        .collect()
}

/// Returns `true` if the file `stat` of a thread says that it runs, or is ready to, or waits for a
/// disk.
fn is_running(stat: &str) -> bool {
    // The name before the state may contain anything, including parentheses.
    let state = stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
    matches!(state, Some('R' | 'D'))
}

fn text_of(path: &str) -> io::Result<String> {
    // Room for most of these files, so that one read gets all.
    let mut bytes = Vec::with_capacity(4096);
    fs::File::open(path)?.read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// The two ends of a socket.
type SocketEnds = (SocketAddr, Option<SocketAddr>);

/// The TCP sockets of this program.
#[derive(Debug, Default)]
pub(super) struct Sockets {
    /// By their descriptors.
    own: SortedMap<i32, TcpSocket>,
    /// The addresses of these sockets.
    addresses: SortedSet<SocketAddr>,
    /// Set if something is on its way from or to a socket of this program.
    is_busy: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct TcpSocket {
    local: SocketAddr,
    /// `None` without a connection.
    remote: Option<SocketAddr>,
    state: u8,
    /// Set if it has bytes that its peer has not confirmed.
    sends: bool,
}

/// The states of a TCP socket.
mod state {
    pub(super) const ESTABLISHED: u8 = 0x01;
    pub(super) const TIME_WAIT: u8 = 0x06;
    pub(super) const FIN_WAIT_2: u8 = 0x05;
    pub(super) const CLOSE: u8 = 0x07;
    pub(super) const CLOSE_WAIT: u8 = 0x08;
    pub(super) const LISTEN: u8 = 0x0a;
}

impl TcpSocket {
    /// Returns the socket with this descriptor, or `None` if it is something else.
    fn of(descriptor: i32) -> Option<Self> {
        let state = tcp::state(descriptor)?;
        let local = canonical(tcp::local(descriptor)?);
        let remote = tcp::remote(descriptor).map(canonical);
        Some(Self { local, remote, state, sends: tcp::sends(descriptor) })
    }

    /// Reads a line of `/proc/net/tcp` or `/proc/net/tcp6`.
    fn read(line: &str) -> Option<Self> {
        let fields = line.split_whitespace().collect::<Vec<_>>();
        let (sends, _) = fields.get(4)?.split_once(':')?;
        Some(Self {
            local: address(fields.get(1)?)?,
            remote: address(fields.get(2)?),
            state: u8::from_str_radix(fields.get(3)?, 16).ok()?,
            sends: u64::from_str_radix(sends, 16).ok()? > 0,
        })
    }

    /// Returns `true` if the system has something to deliver: bytes, or the beginning or the end of
    /// the connection.
    fn is_busy(&self) -> bool {
        let rests = [
            state::ESTABLISHED,
            state::FIN_WAIT_2,
            state::TIME_WAIT,
            state::CLOSE,
            state::CLOSE_WAIT,
        ];
        self.state != state::LISTEN && (self.sends || !rests.contains(&self.state))
    }
}

/// Converts an address of IPv4 that is written as one of IPv6.
fn canonical(address: SocketAddr) -> SocketAddr {
    (address.ip().to_canonical(), address.port()).into()
}

/// Reads an address of the system's table, which has each four bytes as one number.
fn address(text: &str) -> Option<SocketAddr> {
    let (host, port) = text.split_once(':')?;
    let word = |at: usize| u32::from_str_radix(host.get(at..at + 8)?, 16).ok();
    let host: IpAddr = if host.len() == 8 {
        word(0)?.to_ne_bytes().into()
    } else {
        let mut bytes = [0; 16];
        for (number, part) in bytes.chunks_mut(4).enumerate() {
            part.copy_from_slice(&word(8 * number)?.to_ne_bytes());
        }
        bytes.into()
    };
    Some(canonical((host, u16::from_str_radix(port, 16).ok()?).into()))
}

/// Returns `true` if a program has closed a socket that the system still has to send from. The
/// number is of the whole machine.
fn has_orphans() -> bool {
    let text = text_of("/proc/self/net/sockstat").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("TCP: "));
    let mut words = line.into_iter().flat_map(str::split_whitespace);
    let count = words.by_ref().find(|word| *word == "orphan").and_then(|_| words.next());
    count != Some("0")
}

/// Returns all TCP sockets that the system knows. The system walks through a table with hundreds of
/// thousands of places, several times.
fn all_sockets() -> Vec<TcpSocket> {
    let tables = ["/proc/self/net/tcp", "/proc/self/net/tcp6"].map(text_of);
    tables.iter().flatten().flat_map(|table| table.lines()).filter_map(TcpSocket::read).collect()
}

impl Sockets {
    /// Looks at the sockets of this program. Without `/proc`, none is seen.
    pub(super) fn look() -> Self {
        if !HAS_PROC {
            return Self::default();
        }
        let entries = fs::read_dir("/proc/self/fd").into_iter().flatten();
        let numbers = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
        let own = numbers.filter_map(|number| Some((number, TcpSocket::of(number)?))).collect();
        Self::of(own, has_orphans, all_sockets)
    }

    /// A socket with a descriptor says itself what it has not delivered. Of the others, `all` is
    /// asked only if one may have something to deliver, because it takes milliseconds.
    fn of(
        own: SortedMap<i32, TcpSocket>,
        has_orphans: impl FnOnce() -> bool,
        all: impl FnOnce() -> Vec<TcpSocket>,
    ) -> Self {
        let addresses = own.values().map(|socket| socket.local).collect::<SortedSet<_>>();
        let pairs = own.values().map(|socket| (socket.local, socket.remote));
        let pairs = pairs.collect::<SortedSet<SocketEnds>>();
        let is_among = |address: Option<SocketAddr>| is_among(&addresses, address);
        // Its other end is in the queue of a listener, or about to be.
        let is_half = |socket: &TcpSocket| {
            socket.state == state::ESTABLISHED
                && is_among(socket.remote)
                && socket.remote.is_some_and(|it| !pairs.contains(&(it, Some(socket.local))))
        };
        let is_inside =
            |socket: &TcpSocket| is_among(Some(socket.local)) || is_among(socket.remote);
        let is_busy = own.values().any(TcpSocket::is_busy)
            || !own.is_empty()
                && (own.values().any(is_half) || has_orphans())
                && all().iter().any(|socket| socket.is_busy() && is_inside(socket));
        Self { own, addresses, is_busy }
    }

    /// Returns `true` if something is on its way from or to a socket of this program.
    pub(super) fn are_busy(&self) -> bool {
        self.is_busy
    }

    /// Returns `true` if the descriptor is a TCP socket that listens, or if its other end also
    /// belongs to this program.
    pub(super) fn are_inside(&self, descriptor: i32) -> bool {
        self.own.get(&descriptor).is_some_and(|socket| {
            socket.state == state::LISTEN || is_among(&self.addresses, socket.remote)
        })
    }
}

/// Returns `true` if a socket has this address, or listens on all addresses with this port.
fn is_among(addresses: &SortedSet<SocketAddr>, address: Option<SocketAddr>) -> bool {
    let Some(address) = address.filter(|address| address.port() != 0) else { return false };
    let any = |host: IpAddr| addresses.contains(&(host, address.port()).into());
    addresses.contains(&address)
        || any(Ipv4Addr::UNSPECIFIED.into())
        || any(Ipv6Addr::UNSPECIFIED.into())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsRawFd as _;

    use super::{HAS_PROC, Sockets, TcpSocket, all_sockets, is_running};

    const TABLE: &str = "\
  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 00000000:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 10 1
   1: 0100007F:1F90 0100007F:C000 01 00000000:00000000 00:00000000 00000000  1000        0 11 1
   2: 0100007F:C000 0100007F:1F90 01 00000000:00000000 00:00000000 00000000  1000        0 12 1
   3: 0100007F:C001 0100007F:1538 01 00000000:00000000 00:00000000 00000000  1000        0 13 1
   4: 0100007F:1538 0100007F:C001 01 00000005:00000000 00:00000000 00000000  1001        0 99 1";

    /// The lines of the table.
    const LISTENER: i32 = 0;
    const ACCEPTED: i32 = 1;
    const CLIENT: i32 = 2;
    const TO_ANOTHER: i32 = 3;

    /// The sockets of a program with these descriptors, which are lines of the table. Also returns
    /// whether the table was read.
    fn sockets(own: &[i32], has_orphans: bool, table: &str) -> (Sockets, bool) {
        let all = table.lines().filter_map(TcpSocket::read).collect::<Vec<_>>();
        let own = (0..).zip(all.iter().copied()).filter(|(number, _)| own.contains(number));
        let mut is_read = false;
        let read = || {
            is_read = true;
            all.clone()
        };
        let seen = Sockets::of(own.collect(), || has_orphans, read);
        (seen, is_read)
    }

    #[test]
    fn a_connection_is_inside_if_the_program_has_both_ends() {
        let (seen, _) = sockets(&[LISTENER, ACCEPTED, CLIENT, TO_ANOTHER], false, TABLE);
        assert!([LISTENER, ACCEPTED, CLIENT].iter().all(|it| seen.are_inside(*it)));
        assert!(!seen.are_inside(TO_ANOTHER), "another program listens there");
        // Not accepted yet: only the listener is there.
        assert!(sockets(&[LISTENER, CLIENT], false, TABLE).0.are_inside(CLIENT));
        assert!(!sockets(&[CLIENT], false, TABLE).0.are_inside(CLIENT));
        assert!(TcpSocket::read("  sl  local_address rem_address").is_none());
        let mapped = "0: 0000000000000000FFFF00000100007F:1F90 0000000000000000FFFF00000100007F:C000 \
                      01 0:0 00:0 0 1000 0 11";
        let mapped = TcpSocket::read(mapped).expect("it is a line");
        assert_eq!(mapped.local, "127.0.0.1:8080".parse().expect("it is an address"));
    }

    #[test]
    fn sockets_at_rest_are_seen_without_the_table() {
        let (seen, is_read) = sockets(&[LISTENER, ACCEPTED, CLIENT, TO_ANOTHER], false, TABLE);
        assert!(!seen.are_busy() && !is_read);
        let (seen, is_read) = sockets(&[LISTENER, CLIENT], false, TABLE);
        assert!(!seen.are_busy() && is_read, "the listener may be about to get the other end");
        let begins = TABLE.replace("0100007F:C000 01 0", "0100007F:C000 03 0");
        assert!(sockets(&[LISTENER, CLIENT], false, &begins).0.are_busy());
        assert!(!sockets(&[], true, TABLE).1, "there is nothing to send from or to");
    }

    #[test]
    fn bytes_that_are_not_confirmed_and_ends_are_on_their_way() {
        let sending = TABLE.replace("0100007F:1F90 01 00000000", "0100007F:1F90 01 00000001");
        assert!(sockets(&[LISTENER, ACCEPTED, CLIENT], false, &sending).0.are_busy());
        assert!(!sockets(&[LISTENER, ACCEPTED], true, TABLE).0.are_busy(), "others do not matter");
        assert!(sockets(&[TO_ANOTHER], true, TABLE).0.are_busy());
        let closing = TABLE.replace("0100007F:1F90 01 0", "0100007F:1F90 04 0");
        assert!(sockets(&[LISTENER, ACCEPTED], true, &closing).0.are_busy(), "it was closed");
    }

    /// Goal: the program sees of its own sockets what the system's table says of them.
    #[test]
    fn a_socket_says_of_itself_what_the_table_says() {
        if !HAS_PROC {
            return;
        }
        let listener = TcpListener::bind("[::]:0").expect("there are free ports");
        let port = listener.local_addr().expect("it is bound").port();
        let client = TcpStream::connect(("127.0.0.1", port)).expect("it listens");
        let (accepted, _) = listener.accept().expect("it is connected");
        let all = all_sockets();
        for descriptor in [listener.as_raw_fd(), client.as_raw_fd(), accepted.as_raw_fd()] {
            let own = TcpSocket::of(descriptor).expect("it is a TCP socket");
            let said = all.iter().find(|it| it.local == own.local && it.state == own.state);
            let said = said.expect("the system knows it");
            assert!(own.remote.is_none() || own.remote == said.remote, "{own:?} {said:?}");
        }
        let seen = Sockets::look();
        assert!(seen.are_inside(client.as_raw_fd()) && seen.are_inside(accepted.as_raw_fd()));
        let file = fs::File::open("/proc/self/stat").expect("it is there");
        assert_eq!(TcpSocket::of(file.as_raw_fd()), None);
    }

    #[test]
    fn the_state_of_a_thread_is_after_its_name() {
        assert!(is_running("12 (a) R (b)) R 1 1"));
        assert!(is_running("12 (sqlite) D 1 1"));
        assert!(!is_running("12 (a) R (b)) S 1 1"));
    }
}
