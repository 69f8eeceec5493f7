//! Downs of monitors, which are looked for behind the messages that were in the mailbox when the
//! monitor was made.

use std::collections::VecDeque;

use procession::mailbox::Event;
use procession::process::{Down, MonitorRef, send_exit};
use procession::{Context, Exit, JoinHandle, Pid, spawn, timeout, yield_now};
use proptest::prelude::*;
use proptest::test_runner::RngSeed;

use super::HOUR;
use crate::scene::{assert_conserved, driven};

/// Returns the down of a monitor, once it has come.
async fn down(cx: &mut Context<u32>, monitor: MonitorRef) -> Down {
    let down = timeout(HOUR, cx.down(monitor))
        .await
        .expect("it is answered")
        .expect("it is not cancelled");
    assert_eq!(down.monitor, monitor);
    down
}

/// Goal: the wait for a down costs nothing for each message that was there before. Method: steps
/// are counted, since each look at a message is charged to the budget.
#[test]
fn messages_before_a_monitor_are_not_looked_at_for_its_answer() {
    const BACKLOG: u32 = 100_000;
    let steps_of_down = |backlog: u32| {
        let scheduler = driven();
        let looked = scheduler.clone();
        let watcher = scheduler.start(move |mut cx: Context<u32>| async move {
            for n in 0..backlog {
                cx.address().send(n).expect("it is there");
            }
            yield_now().await;
            let steps = || {
                let own =
                    looked.snapshot().processes.into_iter().find(|process| process.pid == cx.pid());
                own.expect("it runs").steps
            };
            let before = steps();
            let child = spawn(yield_now());
            let monitor = cx.monitor(child.pid());
            drop(child);
            assert_eq!(down(&mut cx, monitor).await.exit, Exit::Normal);
            let own =
                looked.snapshot().processes.into_iter().find(|process| process.pid == cx.pid());
            let taken = own.expect("it runs").steps - before;
            for n in 0..backlog {
                assert_eq!(cx.recv().await, Some(n), "the order of the rest stays");
            }
            taken
        });
        let taken = watcher.join().expect("it does not panic");
        assert_conserved(&scheduler);
        taken
    };
    assert_eq!(steps_of_down(BACKLOG), steps_of_down(0));
}

#[test]
fn an_answer_that_comes_at_once_is_behind_the_mark() {
    let scheduler = driven();
    let gone = scheduler.spawn(async {});
    let pid = gone.pid();
    assert_eq!(gone.join(), Ok(()));
    let watcher = scheduler.start(move |mut cx: Context<u32>| async move {
        for n in 0..1000 {
            cx.address().send(n).expect("it is there");
        }
        let monitor = cx.monitor(pid);
        for n in 0..10 {
            cx.address().send(n).expect("it is there");
        }
        // The messages before and behind the mark are dropped with the context.
        down(&mut cx, monitor).await.exit
    });
    assert_eq!(watcher.join(), Ok(Exit::NoProcess));
    assert_conserved(&scheduler);
}

/// Goal: a receive finds what is behind the mark as soon as everything before it was received.
/// Method: another kind of receive takes exactly that much.
#[test]
fn a_receive_with_a_filter_goes_on_behind_the_mark() {
    const BEFORE: u32 = 1000;
    let scheduler = driven();
    let watcher = scheduler.start(|mut cx: Context<u32>| async move {
        for n in 0..BEFORE {
            cx.address().send(n).expect("it is there");
        }
        let child = spawn(std::future::pending::<()>());
        let monitor = cx.monitor(child.pid());
        for n in BEFORE..BEFORE + 3 {
            cx.address().send(n).expect("it is there");
        }
        assert!(timeout(HOUR, cx.down(monitor)).await.is_err(), "it is not answered");
        for n in 0..BEFORE {
            assert_eq!(cx.recv().await, Some(n));
        }
        timeout(HOUR, cx.recv_matching(|n| n % 2 == 0)).await
    });
    assert_eq!(watcher.join(), Ok(Ok(Some(BEFORE))));
    assert_conserved(&scheduler);
}

/// The acts of a process with a mailbox. The numbers choose among the existing things.
#[derive(Clone, Debug)]
enum Act {
    Fill(u8),
    MonitorDead,
    MonitorLive,
    End(u8),
    Down(u8),
    DownInVain(u8),
    Demonitor(u8),
    Receive(u8),
    ReceiveMatching(u8),
    ReceiveEvent,
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        3 => (1..200_u8).prop_map(Act::Fill),
        1 => Just(Act::MonitorDead),
        3 => Just(Act::MonitorLive),
        3 => any::<u8>().prop_map(Act::End),
        4 => any::<u8>().prop_map(Act::Down),
        1 => any::<u8>().prop_map(Act::DownInVain),
        2 => any::<u8>().prop_map(Act::Demonitor),
        3 => any::<u8>().prop_map(Act::Receive),
        2 => (1..9_u8).prop_map(Act::ReceiveMatching),
        3 => Just(Act::ReceiveEvent),
    ]
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Item {
    Message(u32),
    Down(MonitorRef),
}

fn item(event: Option<Event<u32>>) -> Option<Item> {
    match event? {
        Event::Message(n) => Some(Item::Message(n)),
        Event::Down(down) => Some(Item::Down(down.monitor)),
        other => panic!("nothing else was asked for: {other:?}"),
    }
}

/// Takes one element out of a list, if there is any.
fn choose<T>(list: &mut Vec<T>, number: u8) -> Option<T> {
    (!list.is_empty()).then(|| list.swap_remove(usize::from(number) % list.len()))
}

/// A process, and beside it what its mailbox should contain.
struct Scene {
    cx: Context<u32>,
    dead: Pid,
    sent: u32,
    mailbox: VecDeque<Item>,
    live: Vec<(MonitorRef, JoinHandle<()>)>,
}

impl Scene {
    fn take(&mut self, wanted: impl Fn(&Item) -> bool) -> Option<Item> {
        let place = self.mailbox.iter().position(wanted)?;
        self.mailbox.remove(place)
    }

    fn answers(&self) -> Vec<MonitorRef> {
        let answer =
            |item: &Item| if let Item::Down(monitor) = item { Some(*monitor) } else { None };
        self.mailbox.iter().filter_map(answer).collect()
    }

    async fn act(&mut self, act: Act) {
        match act {
            Act::Fill(count) => {
                for _ in 0..count {
                    self.cx.address().send(self.sent).expect("it is there");
                    self.mailbox.push_back(Item::Message(self.sent));
                    self.sent += 1;
                }
            }
            Act::MonitorDead => {
                let monitor = self.cx.monitor(self.dead);
                self.mailbox.push_back(Item::Down(monitor));
            }
            Act::MonitorLive => {
                let child = spawn(std::future::pending());
                let monitor = self.cx.monitor(child.pid());
                self.live.push((monitor, child));
            }
            Act::End(number) => {
                if let Some((monitor, child)) = choose(&mut self.live, number) {
                    send_exit(child.pid(), Exit::Shutdown);
                    assert_eq!(child.await, Err(Exit::Shutdown));
                    self.mailbox.push_back(Item::Down(monitor));
                }
            }
            Act::Down(number) => {
                if let Some(monitor) = choose(&mut self.answers(), number) {
                    down(&mut self.cx, monitor).await;
                    self.take(|item| *item == Item::Down(monitor));
                }
            }
            Act::DownInVain(number) => {
                let live: &mut Vec<_> =
                    &mut self.live.iter().map(|(monitor, _)| *monitor).collect();
                if let Some(monitor) = choose(live, number) {
                    assert!(
                        timeout(HOUR, self.cx.down(monitor)).await.is_err(),
                        "it is not answered"
                    );
                }
            }
            Act::Demonitor(number) => {
                let mut all = self.answers();
                all.extend(self.live.iter().map(|(monitor, _)| *monitor));
                if let Some(monitor) = choose(&mut all, number) {
                    assert!(self.cx.demonitor(monitor), "its answer was not received");
                    self.take(|item| *item == Item::Down(monitor));
                    self.live.retain(|(live, _)| *live != monitor);
                }
            }
            Act::Receive(count) => {
                for _ in 0..count {
                    let Some(expected) = self.take(|item| matches!(item, Item::Message(_))) else {
                        break;
                    };
                    let received = timeout(HOUR, self.cx.recv()).await.expect("it is there");
                    assert_eq!(received.map(Item::Message), Some(expected));
                }
            }
            Act::ReceiveMatching(of) => {
                let is_wanted = |n: &u32| n.is_multiple_of(u32::from(of));
                if let Some(expected) =
                    self.take(|item| matches!(item, Item::Message(n) if is_wanted(n)))
                {
                    let received =
                        timeout(HOUR, self.cx.recv_matching(is_wanted)).await.expect("it is there");
                    assert_eq!(received.map(Item::Message), Some(expected));
                }
            }
            Act::ReceiveEvent => {
                if let Some(expected) = self.mailbox.pop_front() {
                    let received = timeout(HOUR, self.cx.recv_event()).await.expect("it is there");
                    assert_eq!(item(received), Some(expected));
                }
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, rng_seed: RngSeed::Fixed(crate::home::seed()), ..ProptestConfig::with_cases(300) })]

    /// Whatever is looked for, in whatever order, everything else stays in place.
    #[test]
    fn what_is_received_is_as_of_a_list(acts in prop::collection::vec(act(), 0..60)) {
        let scheduler = driven();
        let gone = scheduler.spawn(async {});
        let dead = gone.pid();
        prop_assert_eq!(gone.join(), Ok(()));
        let watcher = scheduler.start(move |cx: Context<u32>| async move {
            let mut scene = Scene { cx, dead, sent: 0, mailbox: VecDeque::new(), live: Vec::new() };
            for act in acts {
                scene.act(act).await;
            }
            while let Some(expected) = scene.mailbox.pop_front() {
                let received = timeout(HOUR, scene.cx.recv_event()).await.expect("it is there");
                assert_eq!(item(received), Some(expected));
            }
            assert!(timeout(HOUR, scene.cx.recv_event()).await.is_err(), "nothing is left");
        });
        prop_assert_eq!(watcher.join(), Ok(()));
        assert_conserved(&scheduler);
    }
}
