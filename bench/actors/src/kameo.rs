//! kameo.

use std::convert::Infallible;

use kameo::Actor;
use kameo::actor::{ActorRef, Spawn, WeakActorRef};
use kameo::error::ActorStopReason;
use kameo::mailbox;
use kameo::message::{Context, Message};
use tokio::runtime::Runtime;

use crate::latch::Latch;
use crate::meter::{self, now, resident};
use crate::peer::{Here, Peer};
use crate::workload::{
    self, FANIN_MESSAGES, FANIN_SENDERS, IDLE_MEM_PROCESSES, Outcome, PINGPONG_ROUND_TRIPS,
    RING_HOPS, RING_PROCESSES, SPAWN_COUNT, Scale, Workload, check, each,
};
use crate::{Told, inside, refused};

pub(crate) const NAME: &str = "kameo";

pub(crate) struct Kameo(Runtime);

impl Peer for Kameo {
    const NAME: &'static str = NAME;

    const WORKLOADS: &'static [Workload<Self>] = &[
        Workload {
            definition: &workload::SPAWN,
            run: |kameo, scale| inside(&kameo.0, spawn(scale)),
        },
        Workload {
            definition: &workload::PINGPONG,
            run: |kameo, scale| inside(&kameo.0, pingpong(scale)),
        },
        Workload { definition: &workload::RING, run: |kameo, scale| inside(&kameo.0, ring(scale)) },
        Workload {
            definition: &workload::FANIN,
            run: |kameo, scale| inside(&kameo.0, fanin(scale)),
        },
        Workload {
            definition: &workload::IDLE_MEM,
            run: |_, scale| meter::in_fresh_program(&crate::memory_arguments(NAME, scale)),
        },
    ];

    const HERE: &'static [(&'static str, Here<Self>)] =
        &[("--idle-memory-here", |runtime, scale| inside(&runtime.0, idle(scale)))];

    fn start(_: &[&'static str]) -> std::io::Result<Self> {
        crate::start().map(Self)
    }
}

/// Ends when its last address is dropped, which happens immediately.
struct Empty;

static ENDED: Latch = Latch::new();

impl Actor for Empty {
    type Args = Self;
    type Error = Infallible;

    async fn on_start(empty: Self, _: ActorRef<Self>) -> Result<Self, Infallible> {
        Ok(empty)
    }

    async fn on_stop(
        &mut self,
        _: WeakActorRef<Self>,
        _: ActorStopReason,
    ) -> Result<(), Infallible> {
        ENDED.count_down();
        Ok(())
    }
}

async fn spawn(scale: Scale) -> Outcome {
    let count = scale.of(SPAWN_COUNT);
    let start = now();
    ENDED.set(count);
    for _ in 0..count {
        drop(Empty::spawn(Empty));
    }
    ENDED.wait().await;
    Ok(vec![each(start, count)])
}

#[derive(Actor)]
struct Ping {
    pong: ActorRef<Pong>,
    round_trips: u64,
    done: Told<u64>,
}

#[derive(Actor)]
struct Pong;

struct Number(u64);

struct Asked(u64, ActorRef<Ping>);

impl Message<Number> for Ping {
    type Reply = ();

    async fn handle(&mut self, Number(number): Number, cx: &mut Context<Self, ()>) {
        if number == self.round_trips {
            self.done.tell(number);
            cx.stop();
        } else if self.pong.tell(Asked(number, cx.actor_ref().clone())).try_send().is_err() {
            cx.stop();
        }
    }
}

impl Message<Asked> for Pong {
    type Reply = ();

    async fn handle(&mut self, Asked(number, ping): Asked, cx: &mut Context<Self, ()>) {
        if ping.tell(Number(number + 1)).try_send().is_err() {
            cx.stop();
        }
    }
}

async fn pingpong(scale: Scale) -> Outcome {
    let round_trips = scale.of(PINGPONG_ROUND_TRIPS);
    let (done, told) = Told::new();
    let pong = Pong::spawn_with_mailbox(Pong, mailbox::unbounded());
    let ping = Ping::spawn_with_mailbox(Ping { pong, round_trips, done }, mailbox::unbounded());
    let start = now();
    ping.tell(Number(0)).try_send().map_err(refused)?;
    let number = told.await?;
    let outcome = vec![each(start, round_trips)];
    check("the additions", round_trips, number)?;
    Ok(outcome)
}

/// The number counts down at each hop. Once it is zero, it goes round once more, and all actors
/// end.
#[derive(Actor)]
struct Link {
    next: Option<ActorRef<Self>>,
    passed: u64,
    done: Told<u64>,
}

struct Join(ActorRef<Link>);

impl Message<Join> for Link {
    type Reply = ();

    async fn handle(&mut self, Join(next): Join, _: &mut Context<Self, ()>) {
        self.next = Some(next);
    }
}

impl Message<Number> for Link {
    type Reply = ();

    async fn handle(&mut self, Number(number): Number, cx: &mut Context<Self, ()>) {
        let sent =
            self.next.as_ref().map(|next| next.tell(Number(number.saturating_sub(1))).try_send());
        if number == 0 || !matches!(sent, Some(Ok(()))) {
            self.done.tell(self.passed);
            cx.stop();
        } else {
            self.passed += 1;
        }
    }
}

async fn ring(scale: Scale) -> Outcome {
    let hops = scale.of(RING_HOPS);
    let mut all = Vec::with_capacity(RING_PROCESSES);
    let mut links: Vec<ActorRef<Link>> = Vec::with_capacity(RING_PROCESSES);
    for _ in 0..RING_PROCESSES {
        let (done, told) = Told::new();
        all.push(told);
        links.push(Link::spawn_with_mailbox(
            Link { next: None, passed: 0, done },
            mailbox::unbounded(),
        ));
    }
    for (link, next) in links.iter().zip(links.iter().cycle().skip(1)) {
        link.ask(Join(next.clone())).await.map_err(refused)?;
    }
    let start = now();
    links[0].tell(Number(hops)).try_send().map_err(refused)?;
    let mut made = 0;
    let mut outcome = None;
    for told in all {
        made += told.await?;
        outcome.get_or_insert_with(|| vec![each(start, hops)]);
    }
    check("the hops", hops, made)?;
    Ok(outcome.expect("a ring has links"))
}

#[derive(Actor)]
struct Sum {
    sum: u64,
    left: u64,
    done: Told<u64>,
}

impl Message<Number> for Sum {
    type Reply = ();

    async fn handle(&mut self, Number(number): Number, cx: &mut Context<Self, ()>) {
        self.sum += number;
        self.left -= 1;
        if self.left == 0 {
            self.done.tell(self.sum);
            cx.stop();
        }
    }
}

#[derive(Actor)]
struct Sender {
    receiver: ActorRef<Sum>,
    first: u64,
    share: u64,
}

struct Begin;

impl Message<Begin> for Sender {
    type Reply = ();

    async fn handle(&mut self, Begin: Begin, cx: &mut Context<Self, ()>) {
        // Ignored: the workload notices that the receiver has failed.
        let _ = (self.first..self.first + self.share)
            .try_for_each(|number| self.receiver.tell(Number(number)).try_send());
        cx.stop();
    }
}

async fn fanin(scale: Scale) -> Outcome {
    let messages = scale.of(FANIN_MESSAGES);
    let share = messages / FANIN_SENDERS;
    let (done, told) = Told::new();
    let receiver =
        Sum::spawn_with_mailbox(Sum { sum: 0, left: messages, done }, mailbox::unbounded());
    let start = now();
    for sender in 0..FANIN_SENDERS {
        let sender = Sender { receiver: receiver.clone(), first: sender * share, share };
        Sender::spawn(sender).tell(Begin).try_send().map_err(refused)?;
    }
    let sum = told.await?;
    let outcome = vec![each(start, messages)];
    check("the sum of the messages", messages * (messages - 1) / 2, sum)?;
    Ok(outcome)
}

static LEFT: Latch = Latch::new();

struct Idle;

impl Actor for Idle {
    type Args = Self;
    type Error = Infallible;

    async fn on_start(idle: Self, _: ActorRef<Self>) -> Result<Self, Infallible> {
        LEFT.count_down();
        Ok(idle)
    }
}

impl Message<Begin> for Idle {
    type Reply = ();

    async fn handle(&mut self, Begin: Begin, _: &mut Context<Self, ()>) {
        LEFT.count_down();
    }
}

/// The memory includes the addresses that their owner keeps.
async fn idle(scale: Scale) -> Outcome {
    let count = scale.of(IDLE_MEM_PROCESSES);
    LEFT.set(count);
    let before = resident()?;
    let addresses: Vec<_> =
        (0..count).map(|_| Idle::spawn_with_mailbox(Idle, mailbox::unbounded())).collect();
    LEFT.wait().await;
    let after = resident()?;
    // All of them exist, and wait.
    LEFT.set(count);
    for address in &addresses {
        address.tell(Begin).try_send().map_err(refused)?;
    }
    LEFT.wait().await;
    Ok(vec![after.saturating_sub(before) as f64 / count as f64])
}
