//! Relays: what happens to messages that are sent by PID to other schedulers and nodes.

use crate::home::mpsc;
use std::sync::Arc;

use procession::mailbox::send;
use procession::relay::{FaultyRelay, InProcess, Parcel, Relay, RelayError};
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
    let foreign = there.start(|mut cx: Context<u32>| async move { told.send(cx.recv().await) });
    let (own, other) = (local.pid(), foreign.pid());
    let far: Pid = format!("p7@{}", &own.to_string()[1..]).parse().expect("it is a PID");
    let sends = here.spawn(async move {
        assert_eq!(send(own, 1_u32), Ok(()));
        assert_eq!(send(other, 2_u32), Ok(()));
        assert_eq!(send(far, 3_u32), Ok(()));
        let back = send(other, "text").expect_err("it receives numbers");
        assert!(
            back.is_not_relayed()
                && back.to_string().ends_with("the relay did not take the message"),
            "{back}"
        );
        back.into_inner()
    });
    assert_eq!(sends.join(), Ok("text"));
    assert_eq!(local.join(), Ok(Some(1)));
    assert_eq!(soon(&tells), Some(2));
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
