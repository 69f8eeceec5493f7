//! What the system shows of the sockets and threads of this program.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::io::Read as _;
use std::os::unix::fs::MetadataExt as _;

use procession_sync::Mutex;

use crate::sys::World;
use crate::sys::system::HAS_PROC;

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
    runs: u64,
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
    let mut bytes = Vec::new();
    fs::File::open(path)?.read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// An address of a socket, as the system's table of TCP sockets has it.
type SocketAddress = (String, String);

/// The TCP sockets of this program.
#[derive(Debug, Default)]
pub(super) struct Sockets {
    /// By their inodes.
    own: BTreeMap<u64, TcpSocket>,
    /// The ends of the sockets of this program.
    ends: BTreeSet<SocketAddress>,
    /// Set if something is on its way from or to a socket of this program.
    is_busy: bool,
}

#[derive(Debug, PartialEq, Eq)]
struct TcpSocket {
    local: SocketAddress,
    remote: SocketAddress,
    state: u8,
    /// Set if it has bytes that its peer has not confirmed.
    sends: bool,
    inode: u64,
}

/// The states of a TCP socket in the system's table.
mod state {
    pub(super) const ESTABLISHED: u8 = 0x01;
    pub(super) const TIME_WAIT: u8 = 0x06;
    pub(super) const FIN_WAIT_2: u8 = 0x05;
    pub(super) const CLOSE: u8 = 0x07;
    pub(super) const CLOSE_WAIT: u8 = 0x08;
    pub(super) const LISTEN: u8 = 0x0a;
}

impl TcpSocket {
    /// Reads a line of `/proc/net/tcp` or `/proc/net/tcp6`.
    fn read(line: &str) -> Option<Self> {
        let fields = line.split_whitespace().collect::<Vec<_>>();
        let (sends, _) = fields.get(4)?.split_once(':')?;
        Some(Self {
            local: address(fields.get(1)?)?,
            remote: address(fields.get(2)?)?,
            state: u8::from_str_radix(fields.get(3)?, 16).ok()?,
            sends: u64::from_str_radix(sends, 16).ok()? > 0,
            inode: fields.get(9)?.parse().ok()?,
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

/// Splits an address and a port. An address of IPv4 looks the same in both tables.
fn address(text: &str) -> Option<SocketAddress> {
    const MAPPED: &str = "0000000000000000FFFF0000";
    let (host, port) = text.split_once(':')?;
    Some((host.strip_prefix(MAPPED).unwrap_or(host).to_owned(), port.to_owned()))
}

/// Returns the inode of the socket with this descriptor.
fn inode_of(descriptor: &str) -> Option<u64> {
    let target = fs::read_link(format!("/proc/self/fd/{descriptor}")).ok()?;
    target.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()
}

impl Sockets {
    /// Looks at the sockets of this program. Without `/proc`, none is seen.
    pub(super) fn look() -> Self {
        if !HAS_PROC {
            return Self::default();
        }
        let descriptors = fs::read_dir("/proc/self/fd").into_iter().flatten();
        let inodes = descriptors
            .filter_map(|entry| inode_of(entry.ok()?.file_name().to_str()?))
            .collect::<BTreeSet<_>>();
        if inodes.is_empty() {
            return Self::default();
        }
        let tables = ["/proc/self/net/tcp", "/proc/self/net/tcp6"].map(text_of);
        let lines = tables.iter().flatten().flat_map(|table| table.lines());
        Self::of(&inodes, lines.filter_map(TcpSocket::read).collect())
    }

    fn of(inodes: &BTreeSet<u64>, all: Vec<TcpSocket>) -> Self {
        let is_own = |socket: &TcpSocket| inodes.contains(&socket.inode);
        let ends = all.iter().filter(|socket| is_own(socket)).map(|socket| socket.local.clone());
        let ends = ends.collect::<BTreeSet<_>>();
        // A connection between two sockets of this program, even if one socket is closed or not
        // accepted yet.
        let is_inside =
            |socket: &TcpSocket| is_among(&ends, &socket.local) || is_among(&ends, &socket.remote);
        let is_busy = all.iter().any(|socket| socket.is_busy() && is_inside(socket));
        let own = all.into_iter().filter(|socket| is_own(socket));
        Self { own: own.map(|socket| (socket.inode, socket)).collect(), ends, is_busy }
    }

    /// Returns `true` if something is on its way from or to a socket of this program.
    pub(super) fn are_busy(&self) -> bool {
        self.is_busy
    }

    /// Returns `true` if the descriptor is a TCP socket that listens, or if its other end also
    /// belongs to this program.
    pub(super) fn are_inside(&self, descriptor: i32) -> bool {
        let socket = inode_of(&descriptor.to_string()).and_then(|inode| self.own.get(&inode));
        socket.is_some_and(|socket| {
            socket.state == state::LISTEN || is_among(&self.ends, &socket.remote)
        })
    }
}

/// Returns `true` if a socket has this address, or listens on all addresses with this port.
fn is_among(ends: &BTreeSet<SocketAddress>, address: &SocketAddress) -> bool {
    let (host, port) = address;
    let any = |digits: usize| ("0".repeat(digits), port.clone());
    port != "0000"
        && (ends.contains(address) || ends.contains(&any(host.len())) || ends.contains(&any(32)))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::{Sockets, TcpSocket, is_running};

    const TABLE: &str = "\
  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 00000000:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 10 1
   1: 0100007F:1F90 0100007F:C000 01 00000000:00000000 00:00000000 00000000  1000        0 11 1
   2: 0100007F:C000 0100007F:1F90 01 00000000:00000000 00:00000000 00000000  1000        0 12 1
   3: 0100007F:C001 0100007F:1538 01 00000000:00000000 00:00000000 00000000  1000        0 13 1
   4: 0100007F:1538 0100007F:C001 01 00000005:00000000 00:00000000 00000000  1001        0 99 1";

    fn sockets(inodes: &[u64], table: &str) -> Sockets {
        let all = table.lines().filter_map(TcpSocket::read).collect();
        Sockets::of(&inodes.iter().copied().collect::<BTreeSet<_>>(), all)
    }

    fn is_inside(sockets: &Sockets, inode: u64) -> bool {
        super::is_among(&sockets.ends, &sockets.own[&inode].remote)
    }

    #[test]
    fn a_connection_is_inside_if_the_program_has_both_ends() {
        let seen = sockets(&[10, 11, 12, 13], TABLE);
        assert!(is_inside(&seen, 11) && is_inside(&seen, 12));
        assert!(!is_inside(&seen, 13), "another program listens there");
        // Not accepted yet: only the listener is there.
        assert!(is_inside(&sockets(&[10, 12], TABLE), 12));
        assert!(!is_inside(&sockets(&[12], TABLE), 12));
        assert!(TcpSocket::read("  sl  local_address rem_address").is_none());
        let mapped = "0: 0000000000000000FFFF00000100007F:1F90 0000000000000000FFFF00000100007F:C000 \
                      01 0:0 00:0 0 1000 0 11";
        let mapped = TcpSocket::read(mapped).expect("it is a line");
        assert_eq!(mapped.local.0, "0100007F");
    }

    #[test]
    fn bytes_that_are_not_confirmed_and_ends_are_on_their_way() {
        assert!(!sockets(&[10, 11, 12], TABLE).are_busy(), "others do not matter");
        assert!(sockets(&[13], TABLE).are_busy());
        let closing = TABLE.replace("0100007F:1F90 01 0", "0100007F:1F90 04 0");
        assert!(sockets(&[10, 11], &closing).are_busy(), "the end of one that was closed");
    }

    #[test]
    fn the_state_of_a_thread_is_after_its_name() {
        assert!(is_running("12 (a) R (b)) R 1 1"));
        assert!(is_running("12 (sqlite) D 1 1"));
        assert!(!is_running("12 (a) R (b)) S 1 1"));
    }
}
