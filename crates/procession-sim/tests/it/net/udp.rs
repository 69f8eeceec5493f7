//! Datagrams between hosts.

use std::time::Duration;

use procession::net::UdpSocket;
use procession::time::timeout;
use procession_sim::{Check, Fault, Faults};

const NUMBERS: u8 = 40;

/// Sends numbers to a host that returns them, and counts what comes back.
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
