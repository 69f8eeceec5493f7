//! Peers that vanish like a machine without power: nothing comes from them any more, not even an
//! end.
//!
//! Method: a socket filter of the system drops everything that comes to a socket before TCP sees
//! it, so nothing is answered.

use std::env;
use std::io::{self, ErrorKind, IoSlice};
use std::os::fd::AsFd;
use std::process::Command;
use std::time::Duration;

use procession::net::{TcpListener, TcpStream, UnixStream};
use procession::{JoinHandle, spawn, timeout};
use rustix::io::Errno;
use socket2::{SockFilter, SockRef};

use super::{HERE, LONG, SHORT, connected, echo, echo_server, says_back};
use crate::scene::{alive, threaded};

fn vanish(socket: &impl AsFd) {
    const RETURN: u16 = 6;
    // A program of one instruction: keep 0 bytes.
    let drops_all = [SockFilter::new(RETURN, 0, 0, 0)];
    SockRef::from(socket).attach_filter(&drops_all).expect("filters need no rights");
}

/// Returns a connection with an end that has vanished. It is reset at last, since that end could
/// not close it.
async fn alone() -> (TcpStream, TcpStream) {
    let (vanished, here) = connected().await;
    vanish(&vanished);
    vanished.set_linger(Some(Duration::ZERO)).expect("it is a socket");
    (vanished, here)
}

#[test]
fn a_peer_that_vanishes_is_found_out_by_each_timeout() {
    let scheduler = threaded(2);
    let (address, _server) = echo_server(&scheduler);
    scheduler.block_on(async {
        let well = TcpStream::connect(address).await.expect("the listener is open");
        says_back(&well, b"accepted").await;
        let before = scheduler.snapshot().descriptors.registered;
        let (first, waits) = alone().await;
        waits.set_read_timeout(Some(SHORT)).expect("it is not zero");
        let by_read_timeout = spawn(async move { waits.read(&mut [0]).await });

        let (second, waits) = alone().await;
        let second_long = Duration::from_secs(1);
        waits.set_keepalive(Some(second_long)).expect("it is TCP");
        waits.set_keepalive_probes(second_long, 1).expect("it is TCP");
        let by_keepalive = spawn(async move { waits.read(&mut [0]).await });

        let (third, waits) = alone().await;
        waits.set_user_timeout(Some(Duration::from_millis(100))).expect("it is TCP");
        let by_user_timeout = spawn(async move {
            waits.write_all(b"?").await?;
            waits.read(&mut [0]).await
        });

        // This peer is there, but never reads.
        let (fourth, waits) = connected().await;
        waits.set_user_timeout(Some(Duration::from_millis(100))).expect("it is TCP");
        let by_full_window = spawn(async move {
            loop {
                waits.write(&[7; 4096]).await?;
            }
        });

        let ends = [by_read_timeout, by_keepalive, by_user_timeout, by_full_window];
        for (number, end) in ends.into_iter().enumerate() {
            let end: JoinHandle<io::Result<usize>> = end;
            says_back(&well, b"unharmed").await;
            let end =
                timeout(LONG, end).await.expect("it is found out").expect("it does not panic");
            let error = end.expect_err("nobody answers");
            let of_the_system = (number > 0).then(|| Errno::TIMEDOUT.raw_os_error());
            assert_eq!(
                (error.kind(), error.raw_os_error()),
                (ErrorKind::TimedOut, of_the_system),
                "of {number}"
            );
        }
        drop((first, second, third, fourth));
        says_back(&well, b"unharmed").await;
        assert_eq!(scheduler.snapshot().descriptors.registered, before, "nothing is left of them");
    });
}

#[test]
fn a_connect_to_a_machine_that_never_answers_ends_in_time() {
    threaded(1).block_on(async {
        let listener = TcpListener::bind(HERE).await.expect("there are free ports");
        vanish(&listener);
        let address = listener.local_addr().expect("it is bound");
        let late = TcpStream::connect_timeout(address, SHORT).await.expect_err("nobody answers");
        assert_eq!(late.kind(), ErrorKind::TimedOut);
    });
}

/// Goal: the resources of half-open connections are freed in time and completely. Method: this many
/// clients vanish in the middle of a conversation with a server.
#[test]
fn a_crowd_that_vanishes_is_forgotten() {
    const CROWD: usize = 100;
    let scheduler = threaded(2);
    scheduler.block_on(async {
        let mut vanished = Vec::new();
        let mut served = Vec::new();
        let (well, server) = connected().await;
        drop(spawn(echo(server)));
        let before = scheduler.snapshot();
        for _ in 0..CROWD {
            let (client, server) = connected().await;
            server.set_read_timeout(Some(SHORT)).expect("it is not zero");
            client.write_all(b"hello").await.expect("it is connected");
            served.push(spawn(echo(server)));
            vanished.push(client);
        }
        for client in &vanished {
            vanish(client);
            client.set_linger(Some(Duration::ZERO)).expect("it is a socket");
        }
        for server in served {
            says_back(&well, b"unharmed").await;
            let error =
                server.await.expect("it does not panic").expect_err("the client has vanished");
            assert_eq!(error.kind(), ErrorKind::TimedOut);
        }
        drop(vanished);
        let after = scheduler.snapshot();
        assert_eq!(after.descriptors.registered, before.descriptors.registered);
        assert_eq!(alive(&after).count(), alive(&before).count());
        assert_eq!(after.timers.pending, before.timers.pending);
    });
}

/// Goal: no write ends the program, also where SIGPIPE has its default effect. Method: in a child
/// process, since the effect is the whole program's.
#[test]
fn a_write_to_a_peer_that_has_gone_raises_no_signal() {
    const CHILD: &str = "PROCESSION_TEST_SIGPIPE";
    if env::var_os(CHILD).is_none() {
        let mut child = Command::new(env::current_exe().expect("a test knows itself"));
        let name = "sockets::gone::a_write_to_a_peer_that_has_gone_raises_no_signal";
        let output = child.args(["--exact", name]).env(CHILD, "1").output();
        let output = output.expect("the system has processes");
        return assert!(output.status.success(), "{output:?}");
    }
    // SAFETY: no handler is installed, and no other thread changes this.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
    let ended = procession::run(async {
        let (here, there) = UnixStream::pair()?;
        drop(there);
        let parts = [IoSlice::new(b"x"), IoSlice::new(b"y")];
        for error in [here.write_vectored(&parts).await, here.write(b"x").await] {
            assert_eq!(error.expect_err("nobody reads").kind(), ErrorKind::BrokenPipe);
        }
        Ok::<(), io::Error>(())
    });
    ended.expect("the system has sockets");
}
