//! Mailboxes that survive a restart.

use std::sync::Arc;

use procession::behaviour::{Statem, StatemContext, StatemEvent, Transition};
use procession::machine::{Events, InitError, Process, Status, WaitingFor, Yields};
use procession::mailbox::relay::DeadCause;
use procession::mailbox::request::{self, RequestId};
use procession::mailbox::{Event, WhenFull, send};
use procession::process::{Named, kill};
use procession::supervisor::{
    ChildSpec, Restart, SpecError, StartError, Stop, Strategy, Supervisor, Template,
};
use procession::{Address, Context, Exit, Pid, Reply, Scheduler, sleep};
use procession_sync::Mutex;

use super::{SECOND, start};
use crate::contracts::HOUR;
use crate::scene::{assert_conserved, driven, panic_quietly};

/// A message that makes its receiver fail.
const FAIL: u32 = 100;

/// The numbers that processes have handled, in order.
#[derive(Clone, Default)]
struct Handled(Arc<Mutex<Vec<u32>>>);

impl Handled {
    fn note(&self, number: u32) {
        self.0.lock().push(number);
        if number == FAIL {
            panic_quietly("told to");
        }
    }

    fn take(&self) -> Vec<u32> {
        std::mem::take(&mut *self.0.lock())
    }
}

/// A child that handles numbers, one in a second.
fn worker(id: &str, handled: &Handled) -> ChildSpec<Address<u32>> {
    let handled = handled.clone();
    let run = move |mut cx: Context<u32>| {
        let handled = handled.clone();
        async move {
            while let Some(number) = cx.recv().await {
                handled.note(number);
                sleep(SECOND).await;
            }
        }
    };
    ChildSpec::new(id, run).name(id)
}

/// A child that keeps what is behind the first number from 100 on in three places.
fn chooser(handled: &Handled) -> ChildSpec<Address<u32>> {
    let handled = handled.clone();
    let run = move |mut cx: Context<u32>| {
        let handled = handled.clone();
        async move {
            sleep(SECOND).await;
            if let Some(number) = cx.recv_matching(|&number| number >= FAIL).await {
                handled.note(number);
            }
        }
    };
    ChildSpec::new("child", run).name("child")
}

/// Postpones all numbers but the one that makes it fail.
struct Postpones(Handled);

impl Statem for Postpones {
    type State = bool;
    type Message = u32;

    async fn handle(
        &mut self,
        event: StatemEvent<u32>,
        cx: &mut StatemContext<Self>,
    ) -> Transition<bool> {
        match event {
            StatemEvent::Message(FAIL) => self.0.note(FAIL),
            event => cx.postpone(event),
        }
        Transition::Keep
    }
}

/// Takes numbers, and fails at a certain one: with `true`, by an error, and otherwise by a panic.
struct Steps(Handled, bool);

impl Process for Steps {
    type Input = ();
    type Message = u32;
    type Output = ();

    fn init(&mut self, _: &str, (): ()) -> Result<(), InitError> {
        Ok(())
    }

    fn step(
        &mut self,
        events: &mut Events<u32>,
        _: &mut Yields<'_>,
    ) -> Result<Status<()>, Box<dyn std::error::Error + Send + Sync>> {
        for event in events {
            match event {
                Event::Message(FAIL) if self.1 => {
                    self.0.0.lock().push(FAIL);
                    return Err("told to".into());
                }
                Event::Message(number) => self.0.note(number),
                _ => {}
            }
        }
        Ok(Status::Wait(WaitingFor::Messages))
    }
}

/// Runs a child that fails with messages behind. Returns what its second process has handled.
fn after_a_failure(child: ChildSpec<Address<u32>>, handled: &Handled, sent: &[u32]) -> Vec<u32> {
    let scheduler = driven();
    let tree = scheduler.block_on(async {
        let supervisor = Supervisor::one_for_one().intensity(9, HOUR);
        let tree = supervisor.child(child.keep_mailbox()).try_start().await;
        let tree = tree.expect("it starts");
        let named: Named<u32> = Named::new("child");
        for &number in sent {
            named.send(number).expect("it is there");
        }
        sleep(100 * SECOND).await;
        tree
    });
    tree.cancel();
    assert_eq!(tree.join(), Exit::Shutdown);
    assert_conserved(&scheduler);
    let mut handled = handled.take();
    let failed = handled.iter().position(|&number| number == FAIL).expect("it has failed");
    handled.split_off(failed + 1)
}

#[test]
fn the_next_process_handles_what_the_failed_one_has_left() {
    let handled = Handled::default();
    let child = || worker("child", &handled);
    assert_eq!(after_a_failure(child(), &handled, &[1, FAIL, 2, 3]), [2, 3]);
    for when_full in [WhenFull::Reject, WhenFull::Wait, WhenFull::DropOldest] {
        let child = child().mailbox(4, when_full);
        assert_eq!(after_a_failure(child, &handled, &[1, FAIL, 2, 3]), [2, 3]);
    }
}

#[test]
fn messages_that_were_put_aside_are_kept() {
    let handled = Handled::default();
    // The second process handles 101, and the third what the second has put aside.
    for child in [chooser(&handled), chooser(&handled).mailbox(9, WhenFull::Reject)] {
        assert_eq!(after_a_failure(child, &handled, &[1, FAIL, 2, 101, 102]), [101, 102]);
    }
}

#[test]
fn a_machine_and_a_template_keep_their_mailboxes() {
    let handled = Handled::default();
    for by_error in [false, true] {
        let notes = handled.clone();
        let machine = move || Steps(notes.clone(), by_error);
        let machine = ChildSpec::machine("child", machine, "go", || ()).name("child");
        assert_eq!(after_a_failure(machine, &handled, &[1, FAIL, 2, 3]), [2, 3]);
    }

    let scheduler = driven();
    let tree = start(&scheduler, Supervisor::dynamic());
    let notes = handled.clone();
    let template = Template::new(move |mut cx: Context<u32>, _: ()| {
        let notes = notes.clone();
        async move {
            while let Some(number) = cx.recv().await {
                notes.note(number);
            }
        }
    });
    let template = template.restart(Restart::Transient).name(|(): &()| "child").keep_mailbox();
    scheduler.block_on(async {
        let child = tree.add_another(&template, ()).await.expect("it starts");
        for number in [FAIL, 1, 2] {
            child.send(number).expect("it is there");
        }
        sleep(SECOND).await;
    });
    assert_eq!(handled.take(), [FAIL, 1, 2]);
    tree.cancel();
    assert_eq!(tree.join(), Exit::Shutdown);
    assert_conserved(&scheduler);
}

/// A call behind the failure is answered, the one that fails is not, and the old address refuses.
#[test]
fn calls_that_wait_are_answered_and_old_addresses_stay_old() {
    enum Ask {
        Fail(Reply<u32>),
        Get(Reply<u32>),
    }
    let scheduler = driven();
    let child = ChildSpec::new("child", |mut cx: Context<Ask>| async move {
        while let Some(ask) = cx.recv().await {
            match ask {
                Ask::Fail(_reply) => panic_quietly("told to"),
                Ask::Get(reply) => reply.send(7),
            }
        }
    });
    let supervisor = Supervisor::dynamic().back_off(SECOND, SECOND);
    let tree = start(&scheduler, supervisor);
    scheduler.block_on(async {
        let old = tree.add_child(child.name("child").keep_mailbox()).await.expect("it starts");
        let named: Named<Ask> = Named::new("child");
        let between = procession::spawn(async {
            sleep(SECOND / 4).await;
            let named: Named<Ask> = Named::new("child");
            named.call(Ask::Get, HOUR).await.map_err(|error| error.is_refused())
        });
        let fails = Arc::new(Mutex::new(Vec::new()));
        let notes = Arc::clone(&fails);
        let reply = Reply::from_fn(move |reply| notes.lock().push(reply));
        old.send(Ask::Fail(reply)).unwrap_or_else(|_| unreachable!("it is there"));
        // Sent before the child runs, and answered by the next process.
        assert_eq!(old.call(Ask::Get, HOUR).await.ok(), Some(7));
        assert_eq!(between.await, Ok(Err(true)));
        assert_eq!(*fails.lock(), [None]);
        assert_eq!(named.call(Ask::Get, HOUR).await.ok(), Some(7));
        assert!(old.call(Ask::Get, HOUR).await.expect_err("it has ended").is_refused());
    });
    tree.cancel();
    assert_eq!(tree.join(), Exit::Shutdown);
    assert_conserved(&scheduler);
}

type Letters = Arc<Mutex<Vec<(Pid, u32)>>>;

fn lettered() -> (Scheduler, Letters) {
    let letters = Letters::default();
    let keeps = Arc::clone(&letters);
    let builder = Scheduler::builder().worker_threads(1).test_clock();
    let builder = builder.on_dead_letter(move |letter| {
        let number = letter.message.downcast_ref().copied().expect("all messages are numbers");
        assert_eq!((letter.cause, letter.type_name), (DeadCause::Ended, "u32"));
        keeps.lock().push((letter.to, number));
    });
    (builder.build().expect("it starts no thread"), letters)
}

/// Ways in which a child with kept messages is not restarted.
#[derive(Clone, Copy, Debug)]
enum Unrestarted {
    SupervisorGivesUp,
    SupervisorIsCancelled,
    SupervisorIsKilled,
    ChildIsTerminated,
    ChildIsForgotten,
}

#[test]
fn what_no_process_takes_over_becomes_dead_letters_of_the_one_that_left_it() {
    use Unrestarted::{
        ChildIsForgotten, ChildIsTerminated, SupervisorGivesUp, SupervisorIsCancelled,
        SupervisorIsKilled,
    };
    for how in [
        SupervisorGivesUp,
        SupervisorIsCancelled,
        SupervisorIsKilled,
        ChildIsTerminated,
        ChildIsForgotten,
    ] {
        let ((scheduler, letters), handled) = (lettered(), Handled::default());
        let intensity = if matches!(how, SupervisorGivesUp) { 0 } else { 9 };
        let supervisor = Supervisor::one_for_one().intensity(intensity, HOUR).back_off(HOUR, HOUR);
        let tree = start(&scheduler, supervisor);
        let pid = scheduler.block_on(async {
            let mut child = worker("child", &handled).keep_mailbox();
            if matches!(how, ChildIsForgotten) {
                child = child.restart(Restart::Temporary);
            }
            let child = tree.add_child(child).await.expect("it starts");
            for number in [FAIL, 1, 2] {
                child.send(number).expect("it is there");
            }
            sleep(SECOND).await;
            match how {
                SupervisorGivesUp | ChildIsForgotten => {}
                SupervisorIsCancelled => tree.cancel(),
                SupervisorIsKilled => assert!(kill(tree.pid())),
                ChildIsTerminated => {
                    assert!(letters.lock().is_empty(), "they wait for the next process");
                    assert_eq!(tree.terminate_child("child").await, Ok(()));
                }
            }
            sleep(SECOND).await;
            child.pid()
        });
        assert_eq!(*letters.lock(), [(pid, 1), (pid, 2)], "{how:?}");
        tree.cancel();
        drop(tree.join());
        assert_eq!((handled.take(), letters.lock().len()), (vec![FAIL], 2), "{how:?}");
        assert_conserved(&scheduler);
    }
}

#[test]
fn postponed_messages_are_older_than_those_in_the_mailbox() {
    let ((scheduler, letters), handled) = (lettered(), Handled::default());
    let postpones = ChildSpec::statem("child", move || (Postpones(handled.clone()), true));
    let supervisor = Supervisor::one_for_one().intensity(0, HOUR);
    let tree = start(&scheduler, supervisor.child(postpones.name("child").keep_mailbox()));
    scheduler.block_on(async {
        for number in [1, 2, FAIL, 3] {
            Named::new("child").send(number).expect("it is there");
        }
        assert!(matches!(tree.await, Exit::GaveUp(_)));
    });
    let numbers: Vec<_> = letters.lock().iter().map(|&(_, number)| number).collect();
    assert_eq!(numbers, [1, 2, 3]);
    assert_conserved(&scheduler);
}

/// The kept messages outlast starts that fail, and children that the strategy kills.
#[test]
fn kept_messages_wait_for_a_start_that_succeeds() {
    let (scheduler, handled) = (driven(), Handled::default());
    let supervisor = Supervisor::new(Strategy::OneForAll).intensity(99, HOUR);
    let supervisor = supervisor
        .back_off(SECOND, SECOND)
        .child(worker("child", &handled).keep_mailbox())
        .child(worker("other", &handled).keep_mailbox().stop(Stop::Kill));
    let tree = start(&scheduler, supervisor);
    scheduler.block_on(async {
        let [child, other] = ["child", "other"].map(Named::<u32>::new);
        for number in [11, 12, 13] {
            other.send(number).expect("it is there");
        }
        sleep(SECOND / 8).await;
        for number in [FAIL, 1] {
            child.send(number).expect("it is there");
        }
        sleep(SECOND / 8).await;
        // The name is taken for a minute, so that all starts fail.
        let thief = procession::spawn(sleep(60 * SECOND));
        procession::process::register("child", thief.pid()).expect("it is free");
        sleep(30 * SECOND).await;
        assert_eq!(handled.take(), [11, FAIL]);
        sleep(60 * SECOND).await;
        let mut all = handled.take();
        all.sort_unstable();
        assert_eq!(all, [1, 12, 13]);
    });
    tree.cancel();
    assert_eq!(tree.join(), Exit::Shutdown);
    assert_conserved(&scheduler);
}

/// A context that was moved out of its process keeps nothing for the next one.
#[test]
fn a_context_that_is_dropped_late_keeps_nothing() {
    let ((scheduler, letters), handled) = (lettered(), Handled::default());
    let hidden: Arc<Mutex<Option<Context<u32>>>> = Arc::default();
    let (hides, notes) = (Arc::clone(&hidden), handled.clone());
    let child = ChildSpec::new("child", move |mut cx: Context<u32>| {
        let (hides, notes) = (Arc::clone(&hides), notes.clone());
        async move {
            let number = cx.recv().await;
            notes.0.lock().extend(number);
            // With a second message that was taken out of the mailbox together with the first.
            *hides.lock() = Some(cx);
        }
    });
    let tree = start(&scheduler, Supervisor::dynamic().intensity(9, HOUR));
    let pid = scheduler.block_on(async {
        let child = tree.add_child(child.keep_mailbox()).await.expect("it starts");
        child.send(1).expect("it is there");
        child.send(2).expect("it is there");
        sleep(SECOND).await;
        child.pid()
    });
    let late = hidden.lock().take();
    drop(late);
    assert_eq!((handled.take(), letters.lock().clone()), (vec![1], vec![(pid, 2)]));
    tree.cancel();
    assert_eq!(tree.join(), Exit::Shutdown);
}

/// The requests for which processes have handled messages, in order.
#[derive(Clone, Default)]
struct Requests(Arc<Mutex<Vec<Option<RequestId>>>>);

impl Requests {
    /// Notes the request of a message that makes its receiver fail, or not.
    fn note(&self, fails: bool) {
        self.0.lock().push(request::current());
        if fails {
            panic_quietly("told to");
        }
    }
}

impl Process for Requests {
    type Input = ();
    type Message = bool;
    type Output = ();

    fn init(&mut self, _: &str, (): ()) -> Result<(), InitError> {
        Ok(())
    }

    fn step(
        &mut self,
        events: &mut Events<bool>,
        _: &mut Yields<'_>,
    ) -> Result<Status<()>, Box<dyn std::error::Error + Send + Sync>> {
        for event in events {
            if let Event::Message(fails) = event {
                self.note(fails);
            }
        }
        Ok(Status::Wait(WaitingFor::Messages))
    }
}

impl Statem for Requests {
    type State = ();
    type Message = bool;

    async fn handle(
        &mut self,
        event: StatemEvent<bool>,
        cx: &mut StatemContext<Self>,
    ) -> Transition<()> {
        if let StatemEvent::Message(fails) = event {
            self.note(fails);
        }
        cx.postpone(event);
        Transition::Keep
    }
}

/// An async child that notes its requests.
fn requested(requests: &Requests) -> ChildSpec<Address<bool>> {
    let notes = requests.clone();
    ChildSpec::new("child", move |mut cx: Context<bool>| {
        let notes = notes.clone();
        async move {
            while let Some(fails) = cx.recv().await {
                notes.note(fails);
            }
        }
    })
}

#[test]
fn a_kept_message_belongs_to_its_request() {
    let kinds: [fn(&Requests) -> ChildSpec<Address<bool>>; 3] = [
        requested,
        |requests| {
            let notes = requests.clone();
            ChildSpec::machine("child", move || notes.clone(), "", || ())
        },
        |requests| {
            let notes = requests.clone();
            ChildSpec::statem("child", move || (notes.clone(), ()))
        },
    ];
    let [first, second] = [1, 2].map(RequestId::new);
    for (kind, fails, expected) in [
        (kinds[0], [true, false, false], &[first, second, None][..]),
        (kinds[1], [true, false, false], &[first, second, None]),
        // The first message was postponed.
        (kinds[2], [false, true, false], &[first, second, first, None]),
    ] {
        let builder = Scheduler::builder().worker_threads(1).test_clock().request_ids(true);
        let scheduler = builder.build().expect("it starts no thread");
        let requests = Requests::default();
        let tree = start(&scheduler, Supervisor::dynamic());
        scheduler.block_on(async {
            let child = kind(&requests).keep_mailbox();
            let child = tree.add_child(child).await.expect("it starts");
            for (request, fails) in [first, second, None].into_iter().zip(fails) {
                let sent = match request {
                    Some(id) => request::with(id, || send(child.pid(), fails)),
                    None => send(child.pid(), fails),
                };
                sent.expect("it is there");
            }
            sleep(SECOND).await;
        });
        assert_eq!(*requests.0.lock(), expected);
        tree.cancel();
        assert_eq!(tree.join(), Exit::Shutdown);
    }
}

#[test]
fn a_kept_message_gets_no_request_of_the_supervisor() {
    // Its clock does not move by itself, which would end the suspension.
    let builder = Scheduler::builder().worker_threads(1).callers_drive().request_ids(true);
    let scheduler = builder.build().expect("it starts no thread");
    let requests = Requests::default();
    let tree = start(&scheduler, Supervisor::dynamic());
    let child = requested(&requests).keep_mailbox();
    let child = scheduler.block_on(tree.add_child(child)).expect("it starts");
    scheduler.suspend(tree.pid()).expect("it has not ended");
    scheduler.run_until_idle();
    // In one step, the supervisor receives a message that belongs to a request, and starts the
    // next process.
    let (id, reference) = (RequestId::new(7).expect("it is not 0"), (*tree).clone());
    let asks = scheduler.spawn(request::scope(id, async move { reference.count().await }));
    scheduler.run_until_idle();
    for fails in [true, false] {
        child.send(fails).expect("it is there");
    }
    scheduler.run_until_idle();
    scheduler.resume(tree.pid());
    asks.join().expect("it returns").expect("it answers");
    scheduler.run_until_idle();
    assert_eq!(*requests.0.lock(), [None, None]);
    tree.cancel();
    assert_eq!(tree.join(), Exit::Shutdown);
}

#[test]
fn a_supervisor_keeps_no_mailbox() {
    let nested = ChildSpec::supervisor("nested", Supervisor::dynamic()).keep_mailbox();
    let error = driven().block_on(Supervisor::one_for_one().child(nested).try_start());
    let expected = StartError::Spec(SpecError::SupervisorMailbox("nested".into()));
    assert_eq!(error.map(drop), Err(expected));
}
