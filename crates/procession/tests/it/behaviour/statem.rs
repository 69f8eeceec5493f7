//! State machines with states. The semantics are those of `gen_statem_SUITE` of OTP.

use std::future::ready;
use std::sync::Arc;
use std::time::Duration;

use procession::behaviour::{EnteredFrom, Info, Statem, StatemContext, StatemEvent, Transition};
use procession::{Child, Exit, Scheduler, spawn, start};
use procession_sync::Mutex;

use crate::scene::{assert_conserved, driven, panic_quietly};

const SECOND: Duration = Duration::from_secs(1);

type Script = Box<dyn FnMut(&mut StatemContext<Scripted>, Seen) -> Transition<u32> + Send>;

/// A machine that a test scripts. The states are numbers, and so are the messages.
struct Scripted {
    script: Script,
    log: Log,
}

#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<String>>>);

impl Log {
    fn note(&self, text: impl Into<String>) {
        self.0.lock().push(text.into());
    }

    fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock())
    }
}

/// An event, which a test can postpone.
type Seen = StatemEvent<u32>;

impl Statem for Scripted {
    type State = u32;
    type Message = u32;

    async fn handle(&mut self, event: Seen, cx: &mut StatemContext<Self>) -> Transition<u32> {
        self.log.note(format!("{}:{event:?}", cx.state()));
        (self.script)(cx, event)
    }

    async fn enter(&mut self, from: EnteredFrom<u32>, cx: &mut StatemContext<Self>) {
        self.log.note(format!("enter {} from {from:?}", cx.state()));
    }

    fn terminate(
        &mut self,
        exit: &Exit,
        _: &mut StatemContext<Self>,
    ) -> impl Future<Output = ()> + Send {
        self.log.note(format!("terminate {exit:?}"));
        ready(())
    }
}

fn machine(
    script: impl FnMut(&mut StatemContext<Scripted>, Seen) -> Transition<u32> + Send + 'static,
) -> (Child<u32, Exit>, Log) {
    let log = Log::default();
    let scripted = Scripted { script: Box::new(script), log: log.clone() };
    (start(|cx| scripted.run(0, cx)), log)
}

#[test]
fn postponed_events_come_in_order_when_the_state_changes() {
    let scheduler = driven();
    scheduler.block_on(async {
        let (machine, log) = machine(|cx, event| match (cx.state(), &event) {
            (0, StatemEvent::Message(9)) => Transition::Next(1),
            (0, _) => {
                cx.postpone(event);
                Transition::Next(0)
            }
            (_, StatemEvent::Message(2)) => Transition::Stop(Exit::Shutdown),
            _ => Transition::Keep,
        });
        [1, 2, 9, 3].into_iter().for_each(|n| machine.send(n).expect("it is alive"));
        assert_eq!(machine.await, Ok(Exit::Shutdown));
        let expected = [
            "enter 0 from Start",
            "0:Message(1)",
            "0:Message(2)",
            "0:Message(9)",
            "enter 1 from State(0)",
            "1:Message(1)",
            "1:Message(2)",
            "terminate Shutdown",
        ];
        assert_eq!(log.take(), expected);
    });
    assert_conserved(&scheduler);
}

/// What becomes of a machine that holds events.
#[derive(Clone, Copy, Debug)]
enum Fate {
    Panics,
    Stops,
    IsCancelled,
    IsKilled,
}

#[test]
fn postponed_messages_are_dead_letters_at_every_end() {
    for fate in [Fate::Panics, Fate::Stops, Fate::IsCancelled, Fate::IsKilled] {
        let letters = Log::default();
        let noted = letters.clone();
        let scheduler = Scheduler::builder()
            .worker_threads(1)
            .test_clock()
            .on_exit(|_| {})
            .on_dead_letter(move |letter| {
                let number = letter.message.downcast_ref::<u32>().expect("it is of this type");
                noted.note(format!("{number} {:?}", letter.cause));
            })
            .build()
            .expect("it starts no thread");
        let machine = scheduler.block_on(async {
            let (machine, _) = machine(move |cx, event| {
                let StatemEvent::Message(number) = event else { return Transition::Keep };
                cx.postpone(event);
                if number != 3 {
                    return Transition::Keep;
                }
                cx.next_event(StatemEvent::Message(10));
                match fate {
                    Fate::Panics => panic_quietly("on purpose"),
                    Fate::Stops => Transition::Stop(Exit::Normal),
                    Fate::IsCancelled | Fate::IsKilled => Transition::Keep,
                }
            });
            [1, 2, 3, 4].into_iter().for_each(|n| machine.send(n).expect("it is alive"));
            machine
        });
        scheduler.run_until_idle();
        match fate {
            Fate::Panics | Fate::Stops => {}
            Fate::IsCancelled => machine.cancel(),
            Fate::IsKilled => drop(procession::process::kill(machine.pid())),
        }
        // Ignored: the letters are what counts.
        let _ = machine.join();
        let expected = ["1 Ended", "2 Ended", "3 Ended", "10 Ended", "4 Ended"];
        assert_eq!(letters.take(), expected, "{fate:?}");
        // The message that the machine has made was sent by nobody.
        let snapshot = scheduler.snapshot();
        let counts =
            (snapshot.messages_sent, snapshot.messages_received, snapshot.messages_discarded);
        assert_eq!(counts, (4, 0, 4), "{fate:?}");
        assert_conserved(&scheduler);
    }
}

#[test]
fn messages_that_a_machine_has_made_are_not_counted_at_its_end() {
    let scheduler = driven();
    scheduler.block_on(async {
        let (machine, _) = machine(|cx, event| match event {
            StatemEvent::Message(1) => {
                cx.next_event(StatemEvent::Message(10));
                Transition::Keep
            }
            StatemEvent::Message(10) => {
                cx.postpone(event);
                Transition::Keep
            }
            _ => {
                cx.next_event(StatemEvent::Message(11));
                Transition::Stop(Exit::Normal)
            }
        });
        [1, 2].into_iter().for_each(|n| machine.send(n).expect("it is alive"));
        assert_eq!(machine.await, Ok(Exit::Normal));
    });
    // Both messages were received and handled.
    let snapshot = scheduler.snapshot();
    let counts = (snapshot.messages_sent, snapshot.messages_received, snapshot.messages_discarded);
    assert_eq!(counts, (2, 2, 0));
    assert_conserved(&scheduler);
}

/// Takes messages, and postpones another one whenever it enters a state.
struct PostponesOwn;

impl Statem for PostponesOwn {
    type State = u32;
    type Message = u32;

    async fn handle(&mut self, event: Seen, cx: &mut StatemContext<Self>) -> Transition<u32> {
        match event {
            StatemEvent::Message(0) => Transition::Keep,
            _ => Transition::Next(cx.state() + 1),
        }
    }

    async fn enter(&mut self, _: EnteredFrom<u32>, cx: &mut StatemContext<Self>) {
        cx.postpone(StatemEvent::Message(0));
    }
}

#[test]
fn a_message_that_is_postponed_on_entering_a_state_is_not_the_one_that_was_handled() {
    let scheduler = driven();
    scheduler.block_on(async {
        let machine = start(|cx| PostponesOwn.run(0, cx));
        (0..3).for_each(|_| machine.send(1).expect("it is alive"));
        machine.cancel();
        assert_eq!(machine.await, Ok(Exit::Normal));
    });
    let snapshot = scheduler.snapshot();
    let counts = (snapshot.messages_sent, snapshot.messages_received, snapshot.messages_discarded);
    assert_eq!(counts, (3, 3, 0));
    assert_conserved(&scheduler);
}

#[test]
fn inserted_events_come_before_postponed_ones_and_both_end_an_event_timeout() {
    driven().block_on(async {
        let (machine, log) = machine(|cx, event| match (cx.state(), &event) {
            (0, StatemEvent::Message(9)) => {
                cx.next_event(StatemEvent::Message(3));
                cx.next_event(StatemEvent::Message(4));
                cx.set_event_timeout(Duration::ZERO);
                Transition::Next(1)
            }
            (0, _) => {
                cx.postpone(event);
                Transition::Keep
            }
            _ => Transition::Keep,
        });
        [1, 2, 9].into_iter().for_each(|n| machine.send(n).expect("it is alive"));
        machine.cancel();
        assert_eq!(machine.await, Ok(Exit::Normal));
        let log = log.take();
        let last = ["1:Message(3)", "1:Message(4)", "1:Message(1)", "1:Message(2)"];
        assert_eq!(log[log.len() - 5..log.len() - 1], last);
        assert_eq!(log[log.len() - 1], "terminate Normal");
    });
}

#[test]
fn a_state_timeout_ends_with_its_state() {
    driven().block_on(async {
        let (machine, log) = machine(|cx, event| match event {
            StatemEvent::Message(0) => {
                cx.set_state_timeout(SECOND);
                Transition::Keep
            }
            StatemEvent::Message(1) => Transition::Repeat,
            StatemEvent::Message(2) => Transition::Next(1),
            StatemEvent::Message(3) => {
                // For the state that begins.
                cx.set_state_timeout(SECOND);
                Transition::Next(2)
            }
            _ => Transition::Keep,
        });
        for messages in [&[0][..], &[0, 1], &[0, 2], &[0, 3]] {
            messages.iter().for_each(|&n| machine.send(n).expect("it is alive"));
            procession::sleep(2 * SECOND).await;
            let count = log.take().iter().filter(|text| text.ends_with("StateTimeout")).count();
            assert_eq!(count, usize::from(messages != [0, 2]), "{messages:?}");
        }
    });
}

#[test]
fn named_timeouts_are_replaced_cancelled_and_independent_of_events() {
    driven().block_on(async {
        let (machine, log) = machine(|cx, event| match event {
            StatemEvent::Message(0) => {
                cx.set_timeout("a", 5 * SECOND);
                cx.set_timeout("a", SECOND);
                cx.set_timeout("b", SECOND);
                cx.set_timeout("c", SECOND);
                cx.set_event_timeout(3 * SECOND);
                Transition::Next(1)
            }
            StatemEvent::Message(_) => {
                assert!(cx.cancel_timeout("b") && !cx.cancel_timeout("b"));
                Transition::Next(2)
            }
            StatemEvent::Timeout("c") => {
                cx.set_event_timeout(SECOND);
                Transition::Keep
            }
            _ => Transition::Keep,
        });
        machine.send(0).expect("it is alive");
        machine.send(1).expect("it is alive");
        procession::sleep(9 * SECOND).await;
        let log = log.take();
        let last = ["2:Timeout(\"a\")", "2:Timeout(\"c\")", "2:EventTimeout"];
        assert_eq!(log[log.len() - 3..], last);
    });
}

#[test]
fn a_zero_timeout_comes_before_the_next_message() {
    driven().block_on(async {
        let (machine, log) = machine(|cx, event| {
            if let StatemEvent::Message(1) = event {
                cx.set_state_timeout(Duration::ZERO);
            }
            Transition::Keep
        });
        [1, 2].into_iter().for_each(|n| machine.send(n).expect("it is alive"));
        machine.cancel();
        assert_eq!(machine.await, Ok(Exit::Normal));
        assert_eq!(log.take()[1..4], ["0:Message(1)", "0:StateTimeout", "0:Message(2)"]);
    });
}

/// Inserted events come first, and messages last. An event that comes ends the event timeout, also
/// one of zero.
#[test]
fn zero_timeouts_come_in_the_order_in_which_they_were_set() {
    driven().block_on(async {
        let mut timeouts = 0;
        let (machine, log) = machine(move |cx, event| match (cx.state(), event) {
            (0, StatemEvent::Message(0)) => {
                cx.set_event_timeout(SECOND);
                cx.set_state_timeout(SECOND);
                cx.next_event(StatemEvent::Message(11));
                Transition::Next(1)
            }
            (1, StatemEvent::Message(11)) => {
                cx.set_event_timeout(Duration::ZERO);
                cx.set_state_timeout(Duration::ZERO);
                cx.next_event(StatemEvent::Message(12));
                Transition::Next(2)
            }
            (2, StatemEvent::Message(12)) => {
                cx.set_event_timeout(Duration::ZERO);
                Transition::Keep
            }
            (2, StatemEvent::StateTimeout) if timeouts == 0 => {
                timeouts += 1;
                cx.set_event_timeout(Duration::ZERO);
                cx.set_state_timeout(Duration::ZERO);
                Transition::Keep
            }
            (2, StatemEvent::EventTimeout) => {
                cx.set_state_timeout(Duration::ZERO);
                cx.set_event_timeout(Duration::ZERO);
                Transition::Keep
            }
            (2, _) => {
                cx.set_state_timeout(SECOND);
                Transition::Next(3)
            }
            (3, StatemEvent::StateTimeout) => Transition::Stop(Exit::Normal),
            _ => Transition::Keep,
        });
        [0, 5].into_iter().for_each(|n| machine.send(n).expect("it is alive"));
        assert_eq!(machine.await, Ok(Exit::Normal));
        let expected = [
            "enter 0 from Start",
            "0:Message(0)",
            "enter 1 from State(0)",
            "1:Message(11)",
            "enter 2 from State(1)",
            "2:Message(12)",
            "2:StateTimeout",
            "2:EventTimeout",
            "2:StateTimeout",
            "enter 3 from State(2)",
            "3:Message(5)",
            "3:StateTimeout",
            "terminate Normal",
        ];
        assert_eq!(log.take(), expected);
    });
}

#[test]
fn events_of_all_kinds_can_be_inserted() {
    driven().block_on(async {
        let (machine, log) = machine(|cx, event| match event {
            StatemEvent::Message(0) => {
                cx.next_event(StatemEvent::StateTimeout);
                cx.next_event(StatemEvent::EventTimeout);
                cx.next_event(StatemEvent::Timeout("a"));
                cx.next_event(StatemEvent::Message(1));
                Transition::Keep
            }
            StatemEvent::Message(_) => Transition::Stop(Exit::Shutdown),
            _ => Transition::Next(cx.state() + 1),
        });
        machine.send(0).expect("it is alive");
        assert_eq!(machine.await, Ok(Exit::Shutdown));
        let events: Vec<_> =
            log.take().into_iter().filter(|text| text.starts_with(char::is_numeric)).collect();
        let expected = [
            "0:Message(0)",
            "0:StateTimeout",
            "1:EventTimeout",
            "2:Timeout(\"a\")",
            "3:Message(1)",
        ];
        assert_eq!(events, expected);
    });
}

/// A machine that sets both timeouts when it enters a state above 0, and then waits.
struct Entering(Log);

impl Statem for Entering {
    type State = u32;
    type Message = u32;

    async fn handle(&mut self, event: Seen, cx: &mut StatemContext<Self>) -> Transition<u32> {
        self.0.note(format!("{}:{event:?}", cx.state()));
        match event {
            StatemEvent::Message(9) => {
                cx.set_state_timeout(SECOND);
                cx.set_event_timeout(SECOND);
                procession::sleep(2 * SECOND).await;
                // They are late, and can still be cancelled.
                assert!(cx.cancel_state_timeout() && !cx.cancel_state_timeout());
                assert!(cx.cancel_event_timeout() && !cx.cancel_event_timeout());
                Transition::Keep
            }
            StatemEvent::Message(state) if state == *cx.state() => Transition::Repeat,
            StatemEvent::Message(state) => Transition::Next(state),
            _ => Transition::Keep,
        }
    }

    async fn enter(&mut self, from: EnteredFrom<u32>, cx: &mut StatemContext<Self>) {
        self.0.note(format!("enter {} from {from:?}", cx.state()));
        if *cx.state() > 0 {
            cx.set_event_timeout(Duration::ZERO);
            cx.set_state_timeout(Duration::ZERO);
        }
    }
}

#[test]
fn a_state_that_is_entered_sets_its_timeouts_also_if_it_is_repeated() {
    driven().block_on(async {
        let log = Log::default();
        let entering = Entering(log.clone());
        let machine = start(|cx| entering.run(0, cx));
        [0, 1, 1, 0].into_iter().for_each(|n| machine.send(n).expect("it is alive"));
        machine.cancel();
        assert_eq!(machine.await, Ok(Exit::Normal));
        let expected = [
            "enter 0 from Start",
            "0:Message(0)",
            "enter 0 from Repeat",
            "0:Message(1)",
            "enter 1 from State(0)",
            "1:EventTimeout",
            "1:StateTimeout",
            "1:Message(1)",
            "enter 1 from Repeat",
            "1:EventTimeout",
            "1:StateTimeout",
            "1:Message(0)",
            "enter 0 from State(1)",
        ];
        assert_eq!(log.take(), expected);
    });
}

#[test]
fn a_timeout_that_is_late_can_be_cancelled() {
    driven().block_on(async {
        let log = Log::default();
        let entering = Entering(log.clone());
        let machine = start(|cx| entering.run(0, cx));
        machine.send(9).expect("it is alive");
        procession::sleep(5 * SECOND).await;
        assert_eq!(log.take(), ["enter 0 from Start", "0:Message(9)"]);
    });
}

#[test]
fn a_machine_learns_of_the_ends_of_others() {
    driven().block_on(async {
        let other = spawn(std::future::pending::<()>());
        let pid = other.pid();
        let (machine, _) = machine(move |cx, event| match event {
            StatemEvent::Info(Info::Down(down)) => Transition::Stop(down.exit),
            _ => {
                cx.monitor(pid);
                Transition::Keep
            }
        });
        machine.send(0).expect("it is alive");
        procession::yield_now().await;
        other.cancel();
        assert_eq!(machine.await, Ok(Exit::Shutdown));
    });
}

#[test]
fn a_machine_that_inserts_events_forever_lets_others_run() {
    let scheduler = driven();
    scheduler.block_on(async {
        let (machine, _) = machine(|cx, event| {
            cx.next_event(event);
            Transition::Keep
        });
        machine.send(0).expect("it is alive");
        (0..3).for_each(|_| drop(spawn(async {})));
        procession::yield_now().await;
        assert!(procession::process::kill(machine.pid()));
        assert_eq!(machine.await, Err(Exit::Killed));
    });
}
