//! Models of the whole life of a process: pins, state word and mailbox together, as
//! `process/slot.rs`, `process/wake.rs` and `scheduler/run.rs` use them. The slot itself is not
//! built for models. [`Process`] takes its place: it has the same parts, and its operations take
//! the same steps in the same order.
//!
//! | model | canaries |
//! |---|---|
//! | `send_against_wait_and_end` | `canary_end_without_looking_again` |
//! | | `canary_sender_lets_go_first` |
//! | | `canary_wait_without_arming` |
//! | | `canary_pin_without_generation` |
//! | | `canary_wait_without_looking` |
//! | `terminate_and_send_against_end` | `canary_receive_without_looking` |

use procession_queue::{Event, EventQueue, Pushed};
use procession_sync::cell::UnsafeCell;
use procession_sync::{Arc, explore, thread};

use crate::process::refcount::{self, PinCount, Unpinned};
use crate::process::state::{self, Duty, ProcessPhase, State, WaitPhase};

/// The defects that canary models plant in [`Process`], one at a time.
mod mutation {
    pub(super) const SOUND: u8 = 0;
    /// The end does not check the mailbox again after it has sealed the slot.
    pub(super) const END_WITHOUT_LOOKING_AGAIN: u8 = 1;
    /// A sender drops its pin before it pushes.
    pub(super) const SENDER_LETS_GO_FIRST: u8 = 2;
    /// A step that waits does not arm the mailbox.
    pub(super) const WAIT_WITHOUT_ARMING: u8 = 3;
    /// A step receives what it took, even if the process has been terminated.
    pub(super) const RECEIVE_WITHOUT_LOOKING: u8 = 4;
}

/// The number of pins of a process that nothing else refers to.
const OWN: u32 = 2;

/// The parts of a slot.
struct Process<const OWN_MUTATION: u8, const PINS: u8, const STATE: u8> {
    pins: PinCount<PINS>,
    state: State<STATE>,
    /// Written again for each process, as in `occupy` of `process/life.rs`.
    mailbox: UnsafeCell<EventQueue<u32>>,
}

/// The result of a send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sent {
    Refused,
    /// If `true`, the sender has to queue the process.
    Pushed(bool),
}

/// The result of a step.
#[derive(Debug)]
struct Stepped {
    received: Vec<u32>,
    /// Taken but not received, because the process has been terminated. They are discarded with its
    /// body.
    untold: Vec<u32>,
    /// The worker still has the entry.
    has_entry: bool,
    terminated: bool,
}

impl<const OWN_MUTATION: u8, const PINS: u8, const STATE: u8> Process<OWN_MUTATION, PINS, STATE> {
    /// Creates a process of generation 1 without a handle, with its one entry.
    fn detached() -> Self {
        let process = Self {
            pins: PinCount::free(),
            state: State::vacant(),
            mailbox: UnsafeCell::new(EventQueue::with_system()),
        };
        process.occupy();
        process
    }

    /// `occupy` of `process/life.rs`, followed by the drop of the handle.
    fn occupy(&self) {
        self.state.renew();
        // SAFETY: [free]
        self.mailbox.with_mut(|mailbox| unsafe { *mailbox = EventQueue::with_system() });
        self.pins.occupy(OWN);
        let _ = self.state.release_handle();
    }

    fn with_mailbox<R>(&self, with: impl FnOnce(&EventQueue<u32>) -> R) -> R {
        // SAFETY: [pinned], which the models check.
        self.mailbox.with(|mailbox| with(unsafe { &*mailbox }))
    }

    /// Drops pins. Returns `true` if that frees the slot.
    fn unpin(&self, count: u32) -> bool {
        self.pins.unpin(count) == Unpinned::Free
    }

    /// `find` and `push_message`, by a holder of the PID of generation 1. Also returns `true` if
    /// the sender freed the slot.
    fn send(&self, message: u32) -> (Sent, bool) {
        if !self.pins.pin(1) {
            return (Sent::Refused, false);
        }
        if self.state.see().is_complete() {
            return (Sent::Refused, self.unpin(1));
        }
        let early = OWN_MUTATION == mutation::SENDER_LETS_GO_FIRST && self.unpin(1);
        let sent = match self.with_mailbox(|mailbox| mailbox.push(message)) {
            Ok(Pushed::Wake) => Sent::Pushed(self.state.wake() == Duty::Enqueue),
            Ok(Pushed::Queued) => Sent::Pushed(false),
            Err(_) => Sent::Refused,
        };
        let freed = OWN_MUTATION != mutation::SENDER_LETS_GO_FIRST && self.unpin(1);
        (sent, early || freed)
    }

    /// `terminate` of `process/wake.rs`. Returns whether the caller has to queue the process, and
    /// whether it freed the slot.
    fn terminate(&self) -> (bool, bool) {
        if !self.pins.pin(1) {
            return (false, false);
        }
        let queues = self.state.terminate() == Duty::Enqueue;
        (queues, self.unpin(1))
    }

    /// A step that receives all messages, and waits if there are none.
    fn step(&self) -> Stepped {
        if self.state.start().is_terminated() {
            return Stepped {
                received: Vec::new(),
                untold: Vec::new(),
                has_entry: true,
                terminated: true,
            };
        }
        let take = || self.with_mailbox(EventQueue::take).map(Event::into_inner).collect();
        let (received, terminated): (Vec<u32>, _) = self.state.take_for_step(take);
        let terminated = terminated && OWN_MUTATION != mutation::RECEIVE_WITHOUT_LOOKING;
        if terminated {
            return Stepped { received: Vec::new(), untold: received, has_entry: true, terminated };
        }
        let waits = received.is_empty()
            && (OWN_MUTATION == mutation::WAIT_WITHOUT_ARMING
                || self.with_mailbox(EventQueue::arm));
        let has_entry = if waits {
            self.state.wait(WaitPhase::Idle) == Duty::Enqueue
        } else {
            self.state.yield_step();
            true
        };
        Stepped { received, untold: Vec::new(), has_entry, terminated }
    }

    /// `complete` of `scheduler/run.rs`, in a started step. Returns the rest of the mailbox, and
    /// `true` if that freed the slot.
    fn end(&self) -> (Vec<u32>, bool) {
        if self.pins.are(OWN) && self.is_empty() && self.pins.seal(OWN) {
            if OWN_MUTATION == mutation::END_WITHOUT_LOOKING_AGAIN || self.is_empty() {
                self.state.complete_alone();
                return (Vec::new(), self.pins.end() == Unpinned::Free);
            }
            self.pins.occupy(OWN);
        }
        let discarded = self.with_mailbox(EventQueue::close).map(Event::into_inner).collect();
        assert!(
            !self.state.complete(true).expect("its names are released").has_handle(),
            "it was left to itself"
        );
        (discarded, self.unpin(OWN))
    }

    fn is_empty(&self) -> bool {
        self.with_mailbox(EventQueue::is_empty)
    }

    /// The slot gets its next process, of generation 2, which receives nothing.
    fn reuse(&self) {
        self.occupy();
        let stepped = self.step();
        assert_eq!(stepped.received, [], "the message reached a stranger");
        assert!(!stepped.has_entry, "a stranger was woken");
    }
}

type Shared<const OWN_MUTATION: u8, const PINS: u8, const STATE: u8> =
    Arc<Process<OWN_MUTATION, PINS, STATE>>;

/// Starts a thread that uses the process.
fn spawn<R: 'static, const OWN_MUTATION: u8, const PINS: u8, const STATE: u8>(
    process: &Shared<OWN_MUTATION, PINS, STATE>,
    work: impl FnOnce(&Process<OWN_MUTATION, PINS, STATE>) -> R + 'static,
) -> impl FnOnce() -> R {
    let process = Arc::clone(process);
    let thread = thread::spawn(move || work(&process));
    move || thread.join().expect("the thread does not panic")
}

/// A process takes a step, which waits if there is no message, and ends in the next step; or it
/// ends immediately. At the same time, two threads that hold its PID send it one message each, and
/// the thread that frees the slot occupies it again. Each message is received, discarded or
/// refused, and none is lost.
fn send_against_life<const OWN_MUTATION: u8, const PINS: u8, const STATE: u8>(waits: bool) {
    explore(move || {
        let process = Arc::new(Process::<OWN_MUTATION, PINS, STATE>::detached());
        let senders = [7, 8].map(|message| {
            spawn(&process, move |process| {
                let (sent, freed) = process.send(message);
                if freed {
                    process.reuse();
                }
                (message, sent, freed)
            })
        });
        let mut handled = Vec::new();
        let mut has_entry = true;
        let mut frees = 0;
        if waits {
            let stepped = process.step();
            handled.extend(stepped.received);
            has_entry = stepped.has_entry;
        }
        // The worker has the entry, or a sender puts it into a queue.
        let mut entries = u32::from(has_entry);
        let mut end = || {
            let _ = process.state.start();
            let (discarded, freed) = process.end();
            handled.extend(discarded);
            if freed {
                process.reuse();
            }
            u32::from(freed)
        };
        if has_entry {
            frees += end();
        }
        let sent = senders.map(|sender| sender());
        if process.pins.generation() == 2 {
            let is_quiet = process.is_empty() && process.state.see().phase() == ProcessPhase::Idle;
            assert!(is_quiet, "the message reached a stranger");
        }
        entries += sent.iter().filter(|(_, sent, _)| *sent == Sent::Pushed(true)).count() as u32;
        assert_eq!(entries, 1, "a process that was sent a message has one queue entry");
        if !has_entry {
            frees += end();
        }
        frees += sent.iter().filter(|(_, _, freed)| *freed).count() as u32;
        assert_eq!(frees, 1, "the slot is freed once");
        for (message, sent, _) in sent {
            let times = handled.iter().filter(|&&other| other == message).count();
            assert_eq!(
                times,
                usize::from(sent != Sent::Refused),
                "a message was forgotten or doubled"
            );
        }
    });
}

#[test]
fn send_against_wait_and_end() {
    send_against_life::<
        { mutation::SOUND },
        { refcount::mutation::SOUND },
        { state::mutation::SOUND },
    >(true);
    send_against_life::<
        { mutation::SOUND },
        { refcount::mutation::SOUND },
        { state::mutation::SOUND },
    >(false);
}

#[test]
#[should_panic(expected = "a message was forgotten or doubled")]
fn canary_end_without_looking_again() {
    send_against_life::<
        { mutation::END_WITHOUT_LOOKING_AGAIN },
        { refcount::mutation::SOUND },
        { state::mutation::SOUND },
    >(false);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn canary_sender_lets_go_first() {
    send_against_life::<
        { mutation::SENDER_LETS_GO_FIRST },
        { refcount::mutation::SOUND },
        { state::mutation::SOUND },
    >(false);
}

#[test]
#[should_panic(expected = "has one queue entry")]
fn canary_wait_without_arming() {
    send_against_life::<
        { mutation::WAIT_WITHOUT_ARMING },
        { refcount::mutation::SOUND },
        { state::mutation::SOUND },
    >(true);
}

#[test]
#[should_panic(expected = "has one queue entry")]
fn canary_wait_without_looking() {
    send_against_life::<
        { mutation::SOUND },
        { refcount::mutation::SOUND },
        { state::mutation::WAIT_WITHOUT_LOOKING },
    >(true);
}

#[test]
#[should_panic(expected = "the message reached a stranger")]
fn canary_pin_without_generation() {
    send_against_life::<
        { mutation::SOUND },
        { refcount::mutation::PIN_WITHOUT_CAS },
        { state::mutation::SOUND },
    >(false);
}

/// A thread terminates a process and then sends it a message, while the process receives an older
/// one or is about to wait. The message is not received, and the process ends once. Because of the
/// older message, both threads use read-modify-writes of the mailbox (see the models of
/// `procession-queue`).
fn terminate_against_life<const OWN_MUTATION: u8>() {
    explore(|| {
        let process = Arc::new(Process::<
            OWN_MUTATION,
            { refcount::mutation::SOUND },
            { state::mutation::SOUND },
        >::detached());
        assert_eq!(process.send(6), (Sent::Pushed(false), false), "it is about to take its step");
        let terminator = spawn(&process, |process| {
            let (queues, mut freed) = process.terminate();
            let (sent, freed_later) = process.send(7);
            freed |= freed_later;
            if freed {
                process.reuse();
            }
            (queues || sent == Sent::Pushed(true), sent, freed)
        });
        let mut handled = Vec::new();
        let mut stepped = process.step();
        if stepped.has_entry && !stepped.terminated {
            handled.append(&mut stepped.received);
            stepped = process.step();
        }
        assert!(
            !(handled.contains(&7) || stepped.received.contains(&7)),
            "received what came after a terminate"
        );
        handled.append(&mut stepped.received);
        handled.append(&mut stepped.untold);
        let mut end = || {
            if !stepped.terminated {
                let _ = process.state.start();
            }
            let (discarded, freed) = process.end();
            handled.extend(discarded);
            if freed {
                process.reuse();
            }
            freed
        };
        let mut frees = u32::from(stepped.has_entry && end());
        let (queues, sent, freed) = terminator();
        assert!(queues != stepped.has_entry, "a process that is terminated has one queue entry");
        frees += u32::from(!stepped.has_entry && end()) + u32::from(freed);
        assert_eq!(frees, 1, "the slot is freed once");
        let expected: &[u32] = if sent == Sent::Refused { &[6] } else { &[6, 7] };
        assert_eq!(handled, expected, "a message was forgotten or doubled");
    });
}

#[test]
fn terminate_and_send_against_end() {
    terminate_against_life::<{ mutation::SOUND }>();
}

#[test]
#[should_panic(expected = "received what came after a terminate")]
fn canary_receive_without_looking() {
    terminate_against_life::<{ mutation::RECEIVE_WITHOUT_LOOKING }>();
}
