//! Sockets on a system that has no descriptors left.

use std::env;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream as StdTcpStream};
use std::os::fd::AsFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::SocketAddr as UnixAddress;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use procession::net::{
    Readiness, TcpListener, TcpStream, UdpSocket, UnixDatagram, UnixListener, UnixStream,
};
use procession::{Scheduler, sleep, spawn};
use rustix::process::{Resource, Rlimit, setrlimit};

use super::{HERE, LONG, connected, echo, echo_server, says_back};
use crate::scene::{driven, gone, unwatched};

/// The environment variable that makes this program the child process of a test.
const CHILD: &str = "PROCESSION_TEST_FEW_DESCRIPTORS";
const FEW: u64 = 64;

/// In the child process: lowers the limit to a few descriptors.
fn with_few_descriptors() {
    setrlimit(Resource::Nofile, Rlimit { current: Some(FEW), maximum: Some(FEW) })
        .expect("it is less than before");
    // A watchdog would open a file for each worker, and take descriptors that these tests count.
    let scheduler = unwatched(2);
    // A refused registration does no harm to the scheduler.
    let (_here, there) = std::os::unix::net::UnixStream::pair().expect("a few are left");
    let mut held = Vec::new();
    while let Ok(another) = there.try_clone() {
        held.push(another);
    }
    scheduler.block_on(async {
        let refused = Readiness::new(there.as_fd()).expect_err("none are left");
        assert_eq!(refused.raw_os_error(), Some(rustix::io::Errno::MFILE.raw_os_error()));
        TcpListener::bind(HERE).await.expect_err("none are left");
        let refused = TcpStream::connect("127.0.0.1:1").await.expect_err("none are left");
        assert_eq!(refused.raw_os_error(), Some(rustix::io::Errno::MFILE.raw_os_error()));
        drop(held);
        Readiness::new(there.as_fd()).expect("there are enough");
    });
    processes_with_descriptors_go_on(&scheduler);
    descriptors_without_room_are_told(&scheduler);
    a_dropped_child_leaves_no_zombie(&scheduler);
    a_listener_waits_for_a_close();
    let (address, _server) = echo_server(&scheduler);
    writeln!(io::stdout(), "\n{address}").expect("the parent reads");
    // Waits until the parent has seen enough.
    io::stdin().read_line(&mut String::new()).expect("the parent is there");
    writeln!(io::stdout(), "{}", scheduler.snapshot().descriptors.accepts_put_off)
        .expect("the parent reads");
}

/// Goal: a lack of descriptors affects only those that need one. Method: all kinds of sockets,
/// timers and jobs, while there are no descriptors.
fn processes_with_descriptors_go_on(scheduler: &Scheduler) {
    let name = UnixAddress::from_abstract_name(format!("procession-few-{}", std::process::id()))
        .expect("it is short");
    scheduler.block_on(async {
        let (client, server) = connected().await;
        let (one, other) = UnixStream::pair().expect("a few are left");
        let (datagram, peer) = UnixDatagram::pair().expect("a few are left");
        let udp = UdpSocket::bind(HERE).await.expect("a few are left");
        let address = udp.local_addr().expect("it is bound");
        let listener = UnixListener::bind_addr(&name).expect("a few are left");
        let waits_in_backlog = UnixStream::connect_addr(&name).await.expect("the listener is open");
        let mut held = Vec::new();
        while let Ok(another) = server.as_fd().try_clone_to_owned() {
            held.push(another);
        }
        let accepts = spawn(async move { listener.accept().await });
        let ticks = spawn(async {
            for _ in 0..10 {
                sleep(Duration::from_micros(100)).await;
            }
        });
        let (tcp_echo, unix_echo) = (spawn(echo(server)), spawn(echo_unix(other)));
        let mut bytes = [0; 4];
        for _ in 0..50 {
            says_back(&client, b"tcp").await;
            one.write_all(b"unix").await.expect("it is connected");
            one.read_exact(&mut bytes).await.expect("it is connected");
            udp.send_to(b"udp", address).await.expect("it is bound");
            assert_eq!(udp.recv(&mut bytes).await.expect("it is bound"), 3);
            datagram.send(b"dg").await.expect("it is connected");
            assert_eq!(peer.recv(&mut bytes).await.expect("it is connected"), 2);
        }
        ticks.await.expect("it does not panic");
        assert_eq!(procession::spawn_blocking(|| 7).await, Ok(7));
        let refused = UdpSocket::bind(HERE).await.expect_err("none are left");
        assert_eq!(refused.raw_os_error(), Some(rustix::io::Errno::MFILE.raw_os_error()));
        assert!(!accepts.is_finished());
        drop(held);
        let (accepted, _) = accepts.await.expect("it does not panic").expect("there are enough");
        waits_in_backlog.write_all(b"late").await.expect("it is connected");
        accepted.read_exact(&mut bytes).await.expect("it is connected");
        assert_eq!(&bytes, b"late");
        // Closed before other processes count descriptors.
        drop((client, one));
        tcp_echo.await.expect("it does not panic").expect("the client behaved");
        unix_echo.await.expect("it does not panic");
    });
}

/// Goal: a receiver learns that descriptors are missing.
fn descriptors_without_room_are_told(scheduler: &Scheduler) {
    scheduler.block_on(async {
        let (one, other) = UnixStream::pair().expect("a few are left");
        let sent = [one.as_fd(), one.as_fd(), one.as_fd()];
        one.send_fds(b"x", &sent).await.expect("there is room");
        let mut held = Vec::new();
        while let Ok(another) = other.as_fd().try_clone_to_owned() {
            held.push(another);
        }
        held.pop();
        let received = other.recv_fds(&mut [0; 1]).await.expect("it was sent");
        assert_eq!((received.len, received.fds.len(), received.fds_lost), (1, 1, true));
    });
}

/// Goal: the thread that asks for the status of dropped children needs no descriptor.
fn a_dropped_child_leaves_no_zombie(scheduler: &Scheduler) {
    let (filler, _other) = std::os::unix::net::UnixStream::pair().expect("a few are left");
    let (id, child, input) = scheduler.block_on(async {
        let mut child = procession::os_process::Command::new("cat")
            .stdin(procession::os_process::Stdio::piped())
            .stdout(procession::os_process::Stdio::null())
            .spawn()
            .expect("a few are left");
        let input = child.stdin.take().expect("it is piped");
        (child.id().expect("it runs"), child, input)
    });
    let mut held = Vec::new();
    while let Ok(another) = filler.try_clone() {
        held.push(another);
    }
    drop(child);
    drop((held, input));
    gone(id);
}

async fn echo_unix(stream: UnixStream) {
    let mut bytes = [0; 4];
    while let Ok(count @ 1..) = stream.read(&mut bytes).await {
        stream.write_all(&bytes[..count]).await.expect("it is connected");
    }
}

/// Goal: only a close in its own scheduler makes a listener without descriptors try again, and does
/// so immediately. Method: the test clock, on which the listener does not retry in between.
fn a_listener_waits_for_a_close() {
    let scheduler = driven();
    let (held, accepts, _clients, fillers) = scheduler.block_on(async {
        let listener = TcpListener::bind(HERE).await.expect("there are enough");
        let address = listener.local_addr().expect("it is bound");
        let clients =
            [(); 2].map(|()| StdTcpStream::connect(address).expect("the backlog is long"));
        let held = [UdpSocket::bind(HERE).await, UdpSocket::bind(HERE).await];
        let held = held.map(|socket| socket.expect("there are enough"));
        let mut fillers = Vec::new();
        while let Ok(another) = clients[0].try_clone() {
            fillers.push(another);
        }
        let listener = Arc::new(listener);
        let accepts = [(); 2].map(|()| {
            let listener = Arc::clone(&listener);
            spawn(async move { listener.accept().await })
        });
        (held, accepts, clients, fillers)
    });
    let put_off = || {
        scheduler.run_until_idle();
        (
            scheduler.snapshot().descriptors.accepts_put_off,
            accepts.iter().filter(|accept| accept.is_finished()).count(),
        )
    };
    for _ in 0..3 {
        assert_eq!(put_off(), (2, 0), "each was refused once, and costs nothing since");
    }
    let [first, second] = held;
    drop(first);
    assert_eq!(put_off(), (3, 1), "both tried, and one has got what was closed");
    drop(second);
    assert_eq!(put_off(), (3, 2));
    drop(fillers);
    for accept in accepts {
        accept.join().expect("it does not panic").expect("there was a descriptor in the end");
    }
}

/// Goal: a listener survives a lack of descriptors, and goes on when there are some. Method: a
/// child process with few descriptors serves a parent with many. All connections of the parent are
/// answered only if closed ones make room.
#[test]
fn a_listener_outlives_the_want_of_descriptors() {
    if env::var_os(CHILD).is_some() {
        return with_few_descriptors();
    }
    #[expect(clippy::disallowed_methods, reason = "another program does not see the test clock")]
    let start = Instant::now();
    let mut child = Command::new(env::current_exe().expect("it runs"))
        .args([
            "--exact",
            "--nocapture",
            "sockets::few::a_listener_outlives_the_want_of_descriptors",
        ])
        .env(CHILD, "1")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the system has processes");
    let mut said = BufReader::new(child.stdout.take().expect("it is piped")).lines();
    let mut next = || said.next().expect("it says more").expect("it says text");
    let address: SocketAddr = std::iter::from_fn(|| Some(next()))
        .find_map(|line| line.parse().ok())
        .expect("it says where");
    let mut clients: Vec<_> = (0..2 * FEW)
        .map(|_| {
            let client = StdTcpStream::connect(address).expect("the backlog is long");
            client.set_read_timeout(Some(LONG)).expect("it is not zero");
            client
        })
        .collect();
    for client in &mut clients {
        client.write_all(b"!").expect("it is connected");
    }
    for mut client in clients {
        let mut byte = [0];
        client.read_exact(&mut byte).expect("it is served");
        assert_eq!(&byte, b"!");
    }
    drop(child.stdin.take());
    let put_off: u64 = next().parse().expect("it says how often");
    // Once for each socket that was closed, and fifty times a second besides.
    let passed = u64::try_from(start.elapsed().as_millis()).expect("it is short");
    let most = 100 + 2 * FEW + passed / 20;
    assert!((1..=most).contains(&put_off), "{put_off} accepts were put off in {passed} ms");
    assert!(child.wait().expect("it ends").success());
}
