//! State machines that become others.

use std::error::Error;
use std::sync::Arc;

use procession::machine::{
    CommandId, Events, InitError, Process, Status, Successor, WaitingFor, Yields,
};
use procession::mailbox::Event;
use procession::observe::Inspection;
use procession::process::{register, whereis};
use procession::{Child, Exit, Scheduler, SpawnOptions};
use procession_sync::Mutex;

use super::{HELD, panic_quietly, stage};
use crate::scene::assert_conserved;

/// Becomes the next version at each message of 0, and ends at 99.
struct Version {
    number: u32,
    log: Arc<Mutex<Vec<String>>>,
    /// The version that has no successor.
    last: u32,
    /// The version of which the drop panics.
    panics: u32,
    /// The version that yields a held command.
    yields: u32,
}

impl Version {
    fn new(last: u32) -> Self {
        Self { number: 1, log: Arc::default(), last, panics: 0, yields: 0 }
    }

    fn yielding(mut self, version: u32) -> Self {
        self.yields = version;
        self
    }

    fn panicking(mut self, version: u32) -> Self {
        self.panics = version;
        self
    }

    fn log(&self, text: &str) {
        self.log.lock().push(format!("{}: {text}", self.number));
    }
}

impl Drop for Version {
    fn drop(&mut self) {
        self.log("drop");
        if self.number == self.panics {
            panic_quietly("in the drop");
        }
    }
}

impl Process for Version {
    type Input = ();
    type Message = u32;
    type Output = u32;

    fn init(&mut self, _: &str, (): ()) -> Result<(), InitError> {
        self.log("init");
        Ok(())
    }

    fn step(
        &mut self,
        events: &mut Events<u32>,
        yields: &mut Yields<'_>,
    ) -> Result<Status<u32>, Box<dyn Error + Send + Sync>> {
        for event in events {
            match event {
                Event::Message(0) => {
                    if self.number == self.yields {
                        yields.command(HELD, 7, 7_u64);
                        yields.command(CommandId::SLEEP, 8, std::time::Duration::from_secs(1));
                    }
                    return Ok(Status::Become);
                }
                Event::Message(50) => {
                    yields.set_label(format!("version {}", self.number));
                }
                Event::Message(99) => return Ok(Status::Done(self.number)),
                Event::Message(number) => self.log(&format!("message {number}")),
                Event::Completion { tag, .. } => self.log(&format!("completion {tag}")),
                Event::Cancel => self.log("cancel"),
                _ => self.log("other"),
            }
        }
        Ok(Status::Wait(WaitingFor::Either))
    }

    fn successor(&mut self) -> Option<Successor<(), u32, u32>> {
        (self.number != self.last).then(|| {
            let (number, log) = (self.number + 1, Arc::clone(&self.log));
            let (last, panics, yields) = (self.last, self.panics, self.yields);
            Box::new(Self { number, log, last, panics, yields }) as Successor<(), u32, u32>
        })
    }

    fn close(&mut self) {
        self.log("close");
    }
}

fn scheduler() -> Scheduler {
    Scheduler::builder().worker_threads(1).callers_drive().build().expect("it starts no thread")
}

fn start(scheduler: &Scheduler, version: Version) -> (Child<u32, u32>, Arc<Mutex<Vec<String>>>) {
    let log = Arc::clone(&version.log);
    let child = SpawnOptions::new()
        .on(scheduler)
        .try_start_machine(version, "", ())
        .expect("it accepts everything");
    (child, log)
}

#[test]
fn a_successor_keeps_the_process_and_gets_the_events_that_are_left() {
    let scheduler = scheduler();
    let (child, log) = start(&scheduler, Version::new(9));
    let pid = child.pid();
    scheduler.block_on(async { register("version", pid) }).expect("the name is free");
    // All in one step of the first version, and in one of each successor.
    for number in [1, 0, 2, 0, 0, 3] {
        child.send(number).expect("it lives");
    }
    scheduler.run_until_idle();
    assert_eq!(scheduler.block_on(async { whereis("version") }), Some(pid));
    child.send(4).expect("it lives");
    child.send(99).expect("it lives");
    assert_eq!(child.join(), Ok(4));
    let expected = [
        "1: init",
        "1: message 1",
        "1: close",
        "1: drop",
        "2: message 2",
        "2: close",
        "2: drop",
        "3: close",
        "3: drop",
        "4: message 3",
        "4: message 4",
        "4: close",
        "4: drop",
    ];
    assert_eq!(*log.lock(), expected);
    assert_conserved(&scheduler);
}

#[test]
fn a_process_without_a_successor_fails() {
    let scheduler = scheduler();
    let (child, log) = start(&scheduler, Version::new(2));
    child.send(0).expect("it lives");
    child.send(0).expect("it lives");
    child.send(5).expect("it lives");
    assert_eq!(child.join(), Err(Exit::failed("the process has no successor")));
    assert_eq!(*log.lock(), ["1: init", "1: close", "1: drop", "2: close", "2: drop"]);
    assert_conserved(&scheduler);
}

#[test]
fn completions_and_a_cancel_reach_the_successor() {
    let (scheduler, held) = stage(Scheduler::builder().worker_threads(1).callers_drive());
    let (child, log) = start(&scheduler, Version::new(9).yielding(1));
    child.cancel();
    scheduler.run_until_idle();
    child.send(0).expect("it lives");
    scheduler.run_until_idle();
    let (tag, completion) = held.try_recv().expect("the first version has yielded it");
    completion.complete(Ok(Box::new(tag)));
    scheduler.run_until_idle();
    child.send(99).expect("it lives");
    assert_eq!(child.join(), Ok(2));
    let told: Vec<String> =
        log.lock().iter().filter(|line| !line.contains("dro")).cloned().collect();
    assert_eq!(
        told,
        ["1: init", "1: cancel", "1: close", "2: cancel", "2: completion 7", "2: close"]
    );
    assert_eq!(scheduler.snapshot().timers.pending, 0, "the sleep ends with the process");
    assert_conserved(&scheduler);
}

/// Becomes itself, with a higher number, at the first event, which it does not take. Ends at a
/// message with the number of cancels that the successor was told.
struct Untaken {
    is_successor: bool,
    cancels: u32,
}

impl Process for Untaken {
    type Input = ();
    type Message = ();
    type Output = u32;

    fn init(&mut self, _: &str, (): ()) -> Result<(), InitError> {
        Ok(())
    }

    fn inspect(&self, shown: &mut Inspection) {
        shown.field("is_successor", self.is_successor);
    }

    fn step(
        &mut self,
        events: &mut Events<()>,
        _: &mut Yields<'_>,
    ) -> Result<Status<u32>, Box<dyn Error + Send + Sync>> {
        if !self.is_successor && events.len() > 0 {
            return Ok(Status::Become);
        }
        for event in events {
            match event {
                Event::Cancel => self.cancels += 1,
                Event::Message(()) => return Ok(Status::Done(self.cancels)),
                _ => {}
            }
        }
        Ok(Status::Wait(WaitingFor::Either))
    }

    fn successor(&mut self) -> Option<Successor<(), (), u32>> {
        Some(Box::new(Self { is_successor: true, cancels: 0 }))
    }
}

#[test]
fn a_cancel_that_was_not_taken_reaches_the_successor_once() {
    let scheduler = scheduler();
    let machine = Untaken { is_successor: false, cancels: 0 };
    let child = SpawnOptions::new()
        .on(&scheduler)
        .try_start_machine(machine, "", ())
        .expect("it accepts everything");
    scheduler.run_until_idle();
    child.cancel();
    scheduler.run_until_idle();
    child.send(()).expect("it lives");
    assert_eq!(child.join(), Ok(1));
}

#[test]
fn a_successor_and_a_boxed_machine_are_inspected() {
    let scheduler = scheduler();
    let shown = |pid| {
        let inspection = scheduler.block_on(scheduler.inspect(pid)).expect("it shows itself");
        let fields: Vec<_> =
            inspection.fields().map(|(name, value)| format!("{name}={value}")).collect();
        fields
    };
    let machine = Untaken { is_successor: false, cancels: 0 };
    let child = SpawnOptions::new()
        .on(&scheduler)
        .try_start_machine(machine, "", ())
        .expect("it accepts everything");
    assert_eq!(shown(child.pid()), ["is_successor=false"]);
    child.cancel();
    scheduler.run_until_idle();
    assert_eq!(shown(child.pid()), ["is_successor=true"]);
    let boxed: Successor<(), (), u32> = Box::new(Untaken { is_successor: true, cancels: 0 });
    let child = SpawnOptions::new()
        .on(&scheduler)
        .try_start_machine(boxed, "", ())
        .expect("it accepts everything");
    assert_eq!(shown(child.pid()), ["is_successor=true"]);
}

#[test]
fn a_panic_in_the_drop_of_the_old_one_ends_the_process() {
    let scheduler = scheduler();
    let (child, log) = start(&scheduler, Version::new(9).panicking(1));
    child.send(0).expect("it lives");
    let exit = child.join().expect_err("it panicked");
    assert!(matches!(&exit, Exit::Panicked(text) if text.contains("in the drop")), "{exit:?}");
    assert_eq!(*log.lock(), ["1: init", "1: close", "1: drop", "2: close", "2: drop"]);
    assert_conserved(&scheduler);
}

#[test]
fn a_machine_may_become_others_any_number_of_times() {
    let scheduler = scheduler();
    let (child, log) = start(&scheduler, Version::new(u32::MAX));
    for _ in 0..10_000 {
        child.send(0).expect("it lives");
    }
    child.send(99).expect("it lives");
    assert_eq!(child.join(), Ok(10_001));
    assert_eq!(log.lock().iter().filter(|line| line.ends_with("close")).count(), 10_001);
}

#[test]
fn a_machine_may_change_its_label() {
    let scheduler = scheduler();
    let label = || scheduler.snapshot().processes[0].label.clone();
    let (child, _) = start(&scheduler, Version::new(9));
    assert_eq!(label(), None);
    for (number, expected) in [(50, "version 1"), (0, "version 1"), (50, "version 2")] {
        child.send(number).expect("it lives");
        scheduler.run_until_idle();
        assert_eq!(label().as_deref(), Some(expected));
    }
    let query = procession::observe::Query::new().label("version 2");
    assert_eq!(scheduler.look(&query).rows.len(), 1);
    let detail = scheduler.detail(child.pid()).expect("it lives");
    assert_eq!(detail.label.as_deref(), Some("version 2"));
    child.send(99).expect("it lives");
    assert_eq!(child.join(), Ok(2));
    let options = SpawnOptions::new().on(&scheduler).label("first");
    let child = options.try_start_machine(Version::new(9), "", ()).expect("it accepts everything");
    assert_eq!(label().as_deref(), Some("first"));
    child.send(50).expect("it lives");
    scheduler.run_until_idle();
    assert_eq!(label().as_deref(), Some("version 1"));
}
