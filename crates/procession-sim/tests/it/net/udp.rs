//! Datagrams between hosts.

use std::io::ErrorKind;
use std::time::Duration;

use procession::net::UdpSocket;
use procession::time::timeout;
use procession_sim::{Check, Fault, Faults};

const NUMBERS: u8 = 40;

/// Sends numbers to a host that returns them, and counts what is returned.
fn send_and_count(check: Check, judge: fn(&[u8]) -> bool, event: &'static str) {
    check.run(move |sim| async move {
        sim.host("udp", || async {
            let socket = UdpSocket::bind("0.0.0.0:9").await.expect("it is free");
            let mut number = [0; 8];
            loop {
                let (count, from) = socket.recv_from(&mut number).await.expect("it is open");
                socket.send_to(&number[..count], from).await.expect("it is open");
            }
        });
        sim.settle().await;
        let socket = UdpSocket::bind("0.0.0.0:0").await.expect("there are ports");
        socket.connect("udp:9").await.expect("the name is known");
        let peer = socket.peer_addr().expect("it has one");
        sim.always("the peer is known", peer.port() == 9);
        for number in 0..NUMBERS {
            socket.send(&[number]).await.expect("it is open");
            procession::sleep(Duration::from_micros(200)).await;
        }
        let (mut came, mut number) = (Vec::new(), [0; 8]);
        while let Ok(Ok(count)) = timeout(Duration::from_secs(20), socket.recv(&mut number)).await {
            sim.always("a datagram is whole", count == 1);
            came.push(number[0]);
        }
        sim.sometimes(event, judge(&came));
    });
}

#[test]
fn without_faults_all_datagrams_arrive_in_order() {
    let check = Check::new().seeds(0..20).faults(Faults::none());
    check.run(|sim| async move {
        let one = UdpSocket::bind("127.0.0.1:0").await.expect("there are ports");
        let other = UdpSocket::bind("127.0.0.1:0").await.expect("there are ports");
        let to = other.local_addr().expect("it has one");
        for number in 0..NUMBERS {
            one.send_to(&[number, 1, 2], to).await.expect("it is open");
        }
        let mut bytes = [0; 8];
        for number in 0..NUMBERS {
            let (count, from) = other.recv_from(&mut bytes).await.expect("it is open");
            sim.always("they arrive in order", count == 3 && bytes[0] == number);
            sim.always("the source is known", from == one.local_addr().expect("it has one"));
        }
        let unconnected = one.send(&[1]).await;
        sim.always("there is no peer", unconnected.is_err());
    });
}

#[test]
fn datagrams_are_lost() {
    let check = || Check::new().seeds(0..40).faults(Faults::none().with(Fault::Datagrams));
    send_and_count(check(), |came| came.len() < usize::from(NUMBERS), "some are lost");
    send_and_count(check(), |came| came.windows(2).any(|two| two[0] == two[1]), "some are doubled");
}

#[test]
fn datagrams_overtake_each_other() {
    let check = Check::new().seeds(0..40).faults(Faults::none().with(Fault::SlowNetwork));
    send_and_count(check, |came| !came.is_sorted(), "some overtake others");
}

#[test]
fn a_cut_loses_datagrams() {
    let check = Check::new().seeds(0..20).faults(Faults::none());
    check.run(|sim| async move {
        sim.host("sink", std::future::pending::<()>);
        let socket = UdpSocket::bind("0.0.0.0:5").await.expect("it is free");
        sim.partition("program", "sink");
        socket.send_to(b"x", "sink:5").await.expect("the system takes it");
        sim.heal();
        let mut bytes = [0; 4];
        let own = socket.recv_from(&mut bytes);
        sim.always("nothing comes", timeout(Duration::from_secs(5), own).await.is_err());
    });
}

#[test]
fn a_datagram_has_a_longest_length() {
    let check = Check::new().seeds(0..5).faults(Faults::none());
    check.run(|sim| async move {
        let one = UdpSocket::bind("127.0.0.1:0").await.expect("there are ports");
        let other = UdpSocket::bind("127.0.0.1:0").await.expect("there are ports");
        let to = other.local_addr().expect("it has one");
        let bytes = vec![7; 65_508];
        let sent = one.send_to(&bytes, to).await.map_err(|error| error.raw_os_error());
        sim.always("it is too long (EMSGSIZE)", sent == Err(Some(90)));
        let sent = one.send_to(&bytes[..65_507], to).await;
        sim.always("this is the longest", sent.is_ok_and(|count| count == 65_507));
        let mut received = vec![0; 70_000];
        let count = other.recv(&mut received).await.expect("it is open");
        sim.always("it arrives whole", received[..count] == bytes[..65_507]);
        let one = UdpSocket::bind("[::1]:0").await.expect("there are ports");
        let to = one.local_addr().expect("it has one");
        let sent = one.send_to(&bytes[..65_508], to).await;
        sim.always("IPv6 has a longer one", sent.is_ok_and(|count| count == 65_508));
        one.connect(to).await.expect("it is an address");
        let sent = one.send(&vec![7; 65_528]).await.map_err(|error| error.raw_os_error());
        sim.always("which is the longest, too", sent == Err(Some(90)));
    });
}

/// A connected socket learns that nobody has the port of its peer. Others do not.
#[test]
fn datagrams_to_nobody_are_refused() {
    let check = Check::new().seeds(0..20).faults(Faults::none());
    check.run(|sim| async move {
        sim.host("sink", std::future::pending::<()>);
        let refused = |error: std::io::Error| error.kind() == ErrorKind::ConnectionRefused;
        let limit = Duration::from_secs(5);
        let socket = UdpSocket::bind("0.0.0.0:0").await.expect("there are ports");
        socket.send_to(b"x", "sink:5").await.expect("the system takes it");
        let read = timeout(limit, socket.recv(&mut [0; 8])).await;
        sim.always("a socket without a peer learns nothing", read.is_err());

        socket.connect("sink:5").await.expect("it is a name");
        socket.send(b"x").await.expect("the system takes it");
        let read = socket.recv(&mut [0; 8]).await;
        sim.always("a reader learns it", read.is_err_and(refused));
        let read = timeout(limit, socket.recv(&mut [0; 8])).await;
        sim.always("it learns it once", read.is_err());

        socket.send(b"x").await.expect("the system takes it");
        procession::sleep(Duration::from_millis(1)).await;
        let sent = socket.send(b"y").await;
        sim.always("a writer learns it, too", sent.is_err_and(refused));
        procession::sleep(Duration::from_millis(1)).await;
        let peeked = timeout(limit, socket.peek(&mut [0; 8])).await;
        sim.always("the error stood for the first one only", peeked.is_err());

        sim.power_off("sink");
        socket.send(b"x").await.expect("the system takes it");
        let read = timeout(limit, socket.recv(&mut [0; 8])).await;
        sim.always("a host without power says nothing", read.is_err());
    });
}
