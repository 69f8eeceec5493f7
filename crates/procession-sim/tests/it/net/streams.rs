//! Streams, without faults of the network unless the program asks for them.

use std::io::ErrorKind;
use std::net::Shutdown;
use std::os::fd::AsFd;
use std::time::Duration;

use procession::net::{Readiness, TcpListener, TcpStream, UdpSocket};
use procession::time::Instant;
use procession_sim::{Check, Faults};

use super::{ask, echo, is_reset, listen};

fn calm() -> Check {
    Check::new().seeds(0..40).faults(Faults::none())
}

#[test]
fn an_echo_arrives_with_the_addresses_of_the_hosts() {
    calm().run(|sim| async move {
        let own = sim.clone();
        let address = sim.host("db", move || {
            let sim = own.clone();
            async move {
                let listener = listen(5432).await;
                let (stream, peer) = listener.accept().await.expect("it listens");
                sim.always("the peer is known", stream.peer_addr().expect("it is one") == peer);
                sim.always("its host is the check's", peer.ip().to_string() == "10.0.0.1");
                let _ = super::serve(&stream).await;
            }
        });
        sim.settle().await;
        let stream = TcpStream::connect("db:5432").await.expect("it listens");
        let peer = stream.peer_addr().expect("it is connected");
        sim.always("the peer is the host", peer.ip() == address && peer.port() == 5432);
        let local = stream.local_addr().expect("it is connected");
        sim.always("the client has a port", local.port() >= 49152);
        stream.set_nodelay(true).expect("it is an option");
        sim.always("options are kept", stream.nodelay().expect("it is an option"));
        let (began, bytes) = (Instant::now(), vec![7; 300_000]);
        let (reader, writer) = stream.split();
        let mut reader = reader;
        let mut writer = writer;
        let write = async {
            writer.write_all(&bytes).await.expect("the peer reads");
            writer.stream().shutdown(Shutdown::Write).expect("it is open");
        };
        let read = async {
            let (mut all, mut part) = (0, vec![0; 4000]);
            loop {
                match reader.read(&mut part).await.expect("the peer writes") {
                    0 => return all,
                    count => all += count,
                }
            }
        };
        let (_, all) = futures_lite::future::zip(write, read).await;
        sim.always("all comes back, and then the end", all == bytes.len());
        let took = Instant::now().saturating_duration_since(began);
        sim.always("the network takes virtual time", took >= Duration::from_micros(100));
    });
}

#[test]
fn half_of_a_connection_can_be_closed() {
    calm().run(|sim| async move {
        sim.host("sum", || async {
            let (stream, _) = listen(1).await.accept().await.expect("it listens");
            let (mut sum, mut byte) = (0_u32, [0]);
            while stream.read(&mut byte).await.expect("the client writes") > 0 {
                sum += u32::from(byte[0]);
            }
            stream.write_all(&sum.to_be_bytes()).await.expect("the client reads");
        });
        sim.settle().await;
        let stream = TcpStream::connect("sum:1").await.expect("it listens");
        stream.write_all(&[1, 2, 3]).await.expect("the server reads");
        stream.shutdown(Shutdown::Write).expect("it is open");
        let mut sum = [0; 4];
        stream.read_exact(&mut sum).await.expect("the server answers");
        sim.always("the server has seen the end", u32::from_be_bytes(sum) == 6);
        sim.always("the server ends", matches!(stream.read(&mut sum).await, Ok(0)));
    });
}

#[test]
fn a_peer_that_closes_with_unread_data_resets_the_connection() {
    calm().run(|sim| async move {
        sim.host("rude", || async {
            let (stream, _) = listen(1).await.accept().await.expect("it listens");
            let mut byte = [0];
            stream.read_exact(&mut byte).await.expect("the client writes");
            procession::sleep(Duration::from_millis(1)).await;
        });
        sim.settle().await;
        let stream = TcpStream::connect("rude:1").await.expect("it listens");
        stream.write_all(b"two").await.expect("the server reads");
        let read = stream.read(&mut [0; 8]).await;
        sim.always("the client sees it", read.is_err_and(|error| is_reset(&error)));
        let written = stream.write_all(b"more").await;
        sim.always("and cannot write", written.is_err_and(|error| is_reset(&error)));
    });
}

/// A child that another thread starts has copies of all descriptors, until it executes its own
/// program. So what happens may not depend on them.
#[test]
fn a_socket_is_closed_although_its_descriptor_has_copies() {
    calm().run(|sim| async move {
        let own = sim.clone();
        sim.host("db", move || {
            let sim = own.clone();
            async move {
                let listener = listen(1).await;
                let mut copies = vec![listener.as_fd().try_clone_to_owned()];
                for case in 0..3 {
                    let (stream, _) = listener.accept().await.expect("it listens");
                    copies.push(stream.as_fd().try_clone_to_owned());
                    if case == 1 {
                        stream.set_linger(Some(Duration::ZERO)).expect("it is an option");
                    }
                    // In the last case, it leaves one byte.
                    let count = 1 + usize::from(case < 2);
                    stream.read_exact(&mut [0; 2][..count]).await.expect("the client writes");
                }
                drop(listener);
                let again = TcpListener::bind("0.0.0.0:1").await;
                sim.always("the port is free", again.is_ok());
                let socket = UdpSocket::bind("0.0.0.0:1").await.expect("it is free");
                copies.push(socket.as_fd().try_clone_to_owned());
                drop(socket);
                let again = UdpSocket::bind("0.0.0.0:1").await;
                sim.always("that for datagrams, too", again.is_ok());
                sim.always("all were copied", copies.iter().all(Result::is_ok));
            }
        });
        sim.settle().await;
        for case in 0..3 {
            let stream = TcpStream::connect("db:1").await.expect("it listens");
            stream.write_all(&[1, 2]).await.expect("the server reads");
            let read = stream.read(&mut [0]).await;
            if case == 0 {
                sim.always("the client sees the end", matches!(read, Ok(0)));
            } else {
                sim.always("it sees a reset", read.is_err_and(|error| is_reset(&error)));
            }
        }
        sim.settle().await;
    });
}

/// What only borrows a socket closes nothing.
#[test]
fn a_socket_outlives_what_watches_it() {
    calm().run(|sim| async move {
        sim.host("db", || async {
            let (stream, _) = listen(1).await.accept().await.expect("it listens");
            let _ = super::serve(&stream).await;
        });
        sim.settle().await;
        let stream = TcpStream::connect("db:1").await.expect("it listens");
        let again = Readiness::new(&stream).map(drop).map_err(|error| error.kind());
        sim.always("it is registered already", again == Err(ErrorKind::AlreadyExists));
        let stream = std::net::TcpStream::try_from(stream).expect("it has a mode");
        drop(Readiness::new(&stream).expect("there is room"));
        let stream = TcpStream::try_from(stream).expect("there is room");
        stream.write_all(b"hello").await.expect("it is open");
        let mut answer = [0; 5];
        stream.read_exact(&mut answer).await.expect("it is open");
        sim.always("the stream is whole", &answer == b"hello");
    });
}

#[test]
fn what_has_arrived_before_a_reset_can_be_read() {
    calm().run(|sim| async move {
        sim.host("rude", || async {
            let (stream, _) = listen(1).await.accept().await.expect("it listens");
            stream.write_all(b"data").await.expect("the client is there");
            stream.set_linger(Some(Duration::ZERO)).expect("it is an option");
            procession::sleep(Duration::from_millis(1)).await;
        });
        sim.settle().await;
        let stream = TcpStream::connect("rude:1").await.expect("it listens");
        procession::sleep(Duration::from_millis(5)).await;
        let mut data = [0; 4];
        stream.read_exact(&mut data).await.expect("it has arrived");
        sim.always("the data is right", &data == b"data");
        let read = stream.read(&mut data).await;
        sim.always("then comes the reset", read.is_err_and(|error| is_reset(&error)));
        sim.always("and then the end", matches!(stream.read(&mut data).await, Ok(0)));
    });
}

#[test]
fn what_was_sent_before_a_reset_arrives_before_it() {
    calm().run(|sim| async move {
        sim.host("rude", || async {
            let (stream, _) = listen(1).await.accept().await.expect("it listens");
            // The question arrives, and is never read.
            procession::sleep(Duration::from_millis(1)).await;
            stream.write_all(&[7; 50_000]).await.expect("there is room");
        });
        sim.settle().await;
        let stream = TcpStream::connect("rude:1").await.expect("it listens");
        stream.write_all(b"?").await.expect("the peer is there");
        let (mut all, mut part) = (0, [0; 4000]);
        let end = loop {
            match stream.read(&mut part).await {
                Ok(0) => break Ok(()),
                Ok(count) => all += count,
                Err(error) => break Err(error),
            }
        };
        sim.always("all arrives", all == 50_000);
        sim.always("and then the reset", end.is_err_and(|error| is_reset(&error)));
    });
}

#[test]
fn a_write_to_a_peer_that_is_gone_resets_the_connection() {
    calm().run(|sim| async move {
        sim.host("short", || async {
            drop(listen(1).await.accept().await);
            procession::sleep(Duration::from_secs(1000)).await;
        });
        sim.settle().await;
        let stream = TcpStream::connect("short:1").await.expect("it listens");
        sim.always("the end comes first", matches!(stream.read(&mut [0]).await, Ok(0)));
        stream.write_all(b"x").await.expect("the system takes it");
        procession::sleep(Duration::from_millis(1)).await;
        let written = stream.write_all(b"y").await;
        sim.always("then a reset", written.is_err_and(|error| is_reset(&error)));
    });
}

#[test]
fn a_connection_is_refused_if_nobody_listens() {
    calm().run(|sim| async move {
        sim.host("db", std::future::pending::<()>);
        let kind = |result: std::io::Result<TcpStream>| result.map(drop).map_err(|e| e.kind());
        let refused = kind(TcpStream::connect("db:1").await);
        sim.always("it is refused", refused == Err(ErrorKind::ConnectionRefused));
        let unknown = kind(TcpStream::connect("nobody:1").await);
        sim.always("the name is not known", unknown == Err(ErrorKind::NotFound));
        let unreachable = kind(TcpStream::connect("10.9.9.9:1").await);
        sim.always("no host is there", unreachable == Err(ErrorKind::HostUnreachable));
        let invalid = kind(TcpStream::connect("db:http").await);
        sim.always("the port is no number", invalid == Err(ErrorKind::InvalidInput));
    });
}

#[test]
fn an_address_is_bound_once() {
    calm().run(|sim| async move {
        let kind = |result: std::io::Result<TcpListener>| result.map(drop).map_err(|e| e.kind());
        let first = TcpListener::bind("127.0.0.1:80").await.expect("it is free");
        let again = kind(TcpListener::bind("0.0.0.0:80").await);
        sim.always("it is in use", again == Err(ErrorKind::AddrInUse));
        let foreign = kind(TcpListener::bind("10.0.0.77:80").await);
        sim.always("it is not ours", foreign == Err(ErrorKind::AddrNotAvailable));
        drop(first);
        sim.settle().await;
        sim.always("it is free again", TcpListener::bind("0.0.0.0:80").await.is_ok());
        let any = TcpListener::bind("[::]:0").await.expect("there are ports");
        let port = any.local_addr().expect("it has one").port();
        let client = TcpStream::connect(("127.0.0.1", port)).await.expect("it listens");
        let (_, peer) = any.accept().await.expect("it is there");
        sim.always("the peer is mapped", peer.is_ipv6() && client.local_addr().is_ok());
    });
}

#[test]
fn a_peer_that_does_not_read_slows_the_writer_down() {
    calm().seeds(0..10).run(|sim| async move {
        sim.host("lazy", || async {
            let (stream, _) = listen(1).await.accept().await.expect("it listens");
            procession::sleep(Duration::from_secs(60)).await;
            let mut all = vec![0; 1 << 20];
            stream.read_exact(&mut all).await.expect("the client writes");
        });
        sim.settle().await;
        let stream = TcpStream::connect("lazy:1").await.expect("it listens");
        let began = Instant::now();
        stream.write_all(&vec![0; 1 << 20]).await.expect("the server reads");
        let took = Instant::now().saturating_duration_since(began);
        sim.always("the writer waits", took > Duration::from_secs(59));
    });
}

#[test]
fn a_process_that_waits_for_a_peer_forever_is_a_deadlock() {
    let report = calm().seeds(0..1).try_run(|sim| async move {
        sim.host("mute", || async {
            procession::spawn(std::future::pending::<()>()).detach();
            let _kept = listen(1).await.accept().await;
            std::future::pending::<()>().await;
        });
        sim.settle().await;
        sim.spawn(async {
            let stream = TcpStream::connect("mute:1").await.expect("it listens");
            let _ = stream.read(&mut [0]).await;
        })
        .await
        .expect("it ends");
    });
    let report = report.expect_err("nothing is due");
    assert!(report.contains("deadlock: all processes wait"), "{report}");
    assert!(report.contains("readable"), "{report}");
    assert!(report.contains("on mute: process"), "{report}");
}

#[test]
fn the_same_seed_is_the_same_network() {
    let run = || {
        Check::new().seeds(0..60).allow_panics().run(|sim| async move {
            sim.host("echo", || echo(7));
            for _ in 0..4 {
                let length = sim.choose(1..3000) as usize;
                // A reset that meets a cut is lost, and then nothing ends the read.
                let _ = procession::timeout(Duration::from_secs(3600), ask(&sim, "echo:7", length))
                    .await;
            }
        })
    };
    assert_eq!(run(), run());
}

#[test]
fn an_unspecified_address_stands_for_those_of_its_family() {
    calm().run(|sim| async move {
        let kind = |result: std::io::Result<TcpListener>| result.map(drop).map_err(|e| e.kind());
        let v4 = TcpListener::bind("0.0.0.0:80").await.expect("it is free");
        let connected = TcpStream::connect("[::1]:80").await.map_err(|error| error.kind());
        let refused = connected.is_err_and(|kind| kind == ErrorKind::ConnectionRefused);
        sim.always("it does not listen at addresses of IPv6", refused);
        let v6 = TcpListener::bind("[::1]:80").await.expect("it is free");
        let both = kind(TcpListener::bind("[::]:80").await);
        sim.always("this address is both", both == Err(ErrorKind::AddrInUse));
        let stream = TcpStream::connect("[::1]:80").await.expect("it listens");
        let (_, peer) = v6.accept().await.expect("it is there");
        sim.always("the right one is asked", stream.local_addr().is_ok_and(|own| own == peer));
        let stream = TcpStream::connect("0.0.0.0:80").await.expect("it listens");
        let (_, peer) = v4.accept().await.expect("it is there");
        sim.always("the host itself is asked", stream.local_addr().is_ok_and(|own| own == peer));
        let peer = stream.peer_addr().expect("it is connected");
        sim.always("its address is known", peer.to_string() == "127.0.0.1:80");
    });
}
