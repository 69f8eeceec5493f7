//! Relays: what happens to messages that are sent by PID to other schedulers and nodes.

use crate::home::mpsc;
use std::sync::Arc;
use std::time::Duration;

use procession::mailbox::relay::{FaultyRelay, InProcess, Parcel, Relay, RelayError};
use procession::mailbox::send;
use procession::{Context, Pid, Scheduler};
use procession_sync::Mutex;

use super::HOUR;
use crate::scene::{driven, soon, threaded};

/// A relay that records the receivers of parcels, and takes those for another node.
#[derive(Clone, Default)]
struct Notes(Arc<Mutex<Vec<Pid>>>);

impl Relay for Notes {
    fn relay(&self, parcel: Parcel) -> Result<(), RelayError> {
        self.0.lock().push(parcel.to);
        if parcel.to.node() == 0 { InProcess.relay(parcel) } else { Ok(()) }
    }
}

#[test]
fn what_is_not_local_goes_to_the_relay() {
    let notes = Notes::default();
    let here = Scheduler::builder()
        .worker_threads(1)
        .test_clock()
        .relay(notes.clone())
        .build()
        .expect("it starts no thread");
    let there = threaded(1);
    let local = here.start(|mut cx: Context<u32>| async move { cx.recv().await });
    let (told, tells) = mpsc::channel();
    // It stays after its number, because an ended process refuses a text for another reason.
    let foreign = there.start(|mut cx: Context<u32>| async move {
        while let Some(n) = cx.recv().await {
            told.send(n).expect("the test listens");
        }
    });
    let (own, other) = (local.pid(), foreign.pid());
    let far: Pid = format!("p7@{}", &own.to_string()[1..]).parse().expect("it is a PID");
    let sends = here.spawn(async move {
        assert_eq!(send(own, 1_u32), Ok(()));
        assert_eq!(send(other, 2_u32), Ok(()));
        assert_eq!(send(far, 3_u32), Ok(()));
        let back = send(other, "text").expect_err("it receives numbers");
        let text = format!(
            "cannot send to {other}: the message is of type &str, but the process receives u32"
        );
        assert_eq!(back.to_string(), text);
        assert!(back.is_not_relayed() && back.is_wrong_type());
        back.into_inner()
    });
    assert_eq!(sends.join(), Ok("text"));
    assert_eq!(local.join(), Ok(Some(1)));
    assert_eq!(soon(&tells), 2);
    foreign.cancel();
    assert_eq!(foreign.join(), Ok(()));
    assert_eq!(*notes.0.lock(), [other, far, other]);
}

#[test]
fn without_a_relay_another_node_is_out_of_reach() {
    let scheduler = driven();
    // A number that no other test of this program is given.
    let far: Pid = "p4294967295@1.2.3".parse().expect("it is a PID");
    let sent = scheduler.spawn(async move {
        send(far, 3_u32).map_err(|error| (error.is_not_relayed(), error.into_inner()))
    });
    assert_eq!(sent.join(), Ok(Err((true, 3))));
    assert!(send(far, 4_u32).is_err(), "nor from a thread");
}

#[test]
fn a_faulty_relay_delays_and_drops_by_seed() {
    const MESSAGES: u32 = 1000;
    let run = |seed| {
        let there = threaded(1);
        let (told, tells) = mpsc::channel();
        let receiver = there.start(|mut cx: Context<u32>| async move {
            while let Some(n) = cx.recv().await {
                told.send(n).expect("the test listens");
            }
        });
        let pid = receiver.pid();
        let faulty = FaultyRelay::new(InProcess, seed).drops(0.25).delays(0.5, HOUR);
        let here = Scheduler::builder()
            .worker_threads(1)
            .test_clock()
            .relay(faulty)
            .build()
            .expect("it starts no thread");
        let sends = here.spawn(async move {
            for n in 0..MESSAGES {
                send(pid, n).expect("it is taken, whatever becomes of it");
            }
            // Until the last delayed parcel has gone.
            procession::sleep(2 * HOUR).await;
        });
        assert_eq!(sends.join(), Ok(()));
        receiver.cancel();
        assert_eq!(receiver.join(), Ok(()));
        tells.try_iter().collect::<Vec<u32>>()
    };
    let first = run(3);
    assert!((650..850).contains(&first.len()), "{} of {MESSAGES} came", first.len());
    assert!(!first.is_sorted(), "delayed ones were overtaken");
    assert_eq!(first, run(3), "the same seed, the same faults");
    assert_ne!(first, run(4));
}

#[test]
fn a_full_mailbox_elsewhere_refuses() {
    let there = driven();
    let options = procession::SpawnOptions::new()
        .on(&there)
        .mailbox(1, procession::mailbox::WhenFull::Reject);
    let full = options.start(|mut cx: Context<u32>| async move { cx.recv().await });
    let pid = full.pid();
    let here = Scheduler::builder()
        .worker_threads(1)
        .callers_drive()
        .relay(InProcess)
        .build()
        .expect("it starts no thread");
    let sent = here.spawn(async move {
        (send(pid, 1_u32), send(pid, 2_u32).map_err(|error| error.into_inner()))
    });
    assert_eq!(sent.join(), Ok((Ok(()), Err(2))));
    assert_eq!(full.join(), Ok(Some(1)));
}

/// A relay that the test keeps, so that it can read its counts.
struct Kept(Arc<FaultyRelay>);

impl Relay for Kept {
    fn relay(&self, parcel: Parcel) -> Result<(), RelayError> {
        self.0.relay(parcel)
    }
}

#[test]
fn what_is_sent_through_faults_arrives_or_is_counted_as_dropped() {
    const SENT: u64 = 40;
    let longest = Duration::from_secs(1);
    for drops in [0.0, 0.3, 1.0] {
        for delays in [0.0, 0.5, 1.0] {
            for seed in 0..4 {
                let there = driven();
                let relay = FaultyRelay::new(InProcess, seed).drops(drops).delays(delays, longest);
                let relay = Arc::new(relay);
                let builder = Scheduler::builder().worker_threads(1).test_clock();
                let here = builder.relay(Kept(Arc::clone(&relay))).build();
                let here = here.expect("it starts no thread");
                let receiver = there.start(|mut cx: Context<u64>| async move {
                    let mut arrived = Vec::new();
                    while let Some(number) = cx.recv().await {
                        arrived.push(number);
                    }
                    arrived
                });
                let pid = receiver.pid();
                let sends = here.spawn(async move {
                    (0..SENT).for_each(|number| assert_eq!(send(pid, number), Ok(())));
                });
                assert_eq!(sends.join(), Ok(()));
                here.block_on(procession::sleep(2 * longest));
                receiver.cancel();
                let mut arrived = receiver.join().expect("it ends");
                let case = format!("drops {drops}, delays {delays}, seed {seed}: {arrived:?}");
                assert_eq!(arrived.len() as u64 + relay.dropped(), SENT, "{case}");
                assert!(delays > 0.0 || arrived.is_sorted(), "{case}: in their order");
                arrived.sort_unstable();
                arrived.dedup();
                assert_eq!(arrived.len() as u64 + relay.dropped(), SENT, "{case}: each once");
                assert!(drops > 0.0 || relay.dropped() == 0, "{case}");
                let all_delayed = SENT - relay.dropped();
                assert!(delays < 1.0 || relay.delayed() == all_delayed, "{case}");
                assert!(delays > 0.0 || relay.delayed() == 0, "{case}");
            }
        }
    }
}
