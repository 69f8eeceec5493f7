//! ractor.

use ractor::{Actor, ActorProcessingErr, ActorRef, MessagingErr, SpawnErr, call};
use tokio::runtime::Runtime;

use crate::latch::Latch;
use crate::meter::{self, now, resident};
use crate::peer::{Here, Peer};
use crate::workload::{
    self, FANIN_MESSAGES, FANIN_SENDERS, Failed, IDLE_MEM_PROCESSES, Outcome, PINGPONG_ROUND_TRIPS,
    RING_HOPS, RING_PROCESSES, SPAWN_COUNT, Scale, Workload, check, each,
};
use crate::{Told, inside, refused};

pub(crate) const NAME: &str = "ractor";

pub(crate) struct Ractor(Runtime);

impl Peer for Ractor {
    const NAME: &'static str = NAME;

    const WORKLOADS: &'static [Workload<Self>] = &[
        Workload {
            definition: &workload::SPAWN,
            run: |ractor, scale| inside(&ractor.0, spawn(scale)),
        },
        Workload {
            definition: &workload::PINGPONG,
            run: |ractor, scale| inside(&ractor.0, pingpong(scale)),
        },
        Workload {
            definition: &workload::RING,
            run: |ractor, scale| inside(&ractor.0, ring(scale)),
        },
        Workload {
            definition: &workload::FANIN,
            run: |ractor, scale| inside(&ractor.0, fanin(scale)),
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

impl From<SpawnErr> for Failed {
    fn from(error: SpawnErr) -> Self {
        refused(error)
    }
}

impl<M: Send + 'static> From<MessagingErr<M>> for Failed {
    fn from(error: MessagingErr<M>) -> Self {
        refused(error)
    }
}

struct Empty;

static ENDED: Latch = Latch::new();

impl Actor for Empty {
    type Msg = ();
    type State = ();
    type Arguments = ();

    async fn pre_start(&self, myself: ActorRef<()>, (): ()) -> Result<(), ActorProcessingErr> {
        myself.stop(None);
        Ok(())
    }

    async fn post_stop(&self, _: ActorRef<()>, (): &mut ()) -> Result<(), ActorProcessingErr> {
        ENDED.count_down();
        Ok(())
    }
}

async fn spawn(scale: Scale) -> Outcome {
    let count = scale.of(SPAWN_COUNT);
    let start = now();
    ENDED.set(count);
    for _ in 0..count {
        drop(Actor::spawn(None, Empty, ()).await?);
    }
    ENDED.wait().await;
    Ok(vec![each(start, count)])
}

struct Ping {
    pong: ActorRef<Asked>,
    round_trips: u64,
}

struct Pong;

struct Asked(u64, ActorRef<u64>);

impl Actor for Ping {
    type Msg = u64;
    type State = Told<u64>;
    type Arguments = Told<u64>;

    async fn pre_start(
        &self,
        _: ActorRef<u64>,
        done: Told<u64>,
    ) -> Result<Told<u64>, ActorProcessingErr> {
        Ok(done)
    }

    async fn handle(
        &self,
        myself: ActorRef<u64>,
        number: u64,
        done: &mut Told<u64>,
    ) -> Result<(), ActorProcessingErr> {
        if number == self.round_trips {
            done.tell(number);
            myself.stop(None);
            self.pong.stop(None);
            return Ok(());
        }
        Ok(self.pong.cast(Asked(number, myself))?)
    }
}

impl Actor for Pong {
    type Msg = Asked;
    type State = ();
    type Arguments = ();

    async fn pre_start(&self, _: ActorRef<Asked>, (): ()) -> Result<(), ActorProcessingErr> {
        Ok(())
    }

    async fn handle(
        &self,
        _: ActorRef<Asked>,
        Asked(number, ping): Asked,
        (): &mut (),
    ) -> Result<(), ActorProcessingErr> {
        Ok(ping.cast(number + 1)?)
    }
}

async fn pingpong(scale: Scale) -> Outcome {
    let round_trips = scale.of(PINGPONG_ROUND_TRIPS);
    let (done, told) = Told::new();
    let (pong, _) = Actor::spawn(None, Pong, ()).await?;
    let (ping, _) = Actor::spawn(None, Ping { pong, round_trips }, done).await?;
    let start = now();
    ping.cast(0)?;
    let number = told.await?;
    let outcome = vec![each(start, round_trips)];
    check("the additions", round_trips, number)?;
    Ok(outcome)
}

/// The number counts down at each hop. Once it is zero, it goes round once more, and all actors
/// end.
struct Link;

enum Linked {
    Join(ActorRef<Linked>, ractor::RpcReplyPort<()>),
    Number(u64),
}

struct Passing {
    next: Option<ActorRef<Linked>>,
    passed: u64,
    done: Told<u64>,
}

impl Actor for Link {
    type Msg = Linked;
    type State = Passing;
    type Arguments = Told<u64>;

    async fn pre_start(
        &self,
        _: ActorRef<Linked>,
        done: Told<u64>,
    ) -> Result<Passing, ActorProcessingErr> {
        Ok(Passing { next: None, passed: 0, done })
    }

    async fn handle(
        &self,
        myself: ActorRef<Linked>,
        message: Linked,
        state: &mut Passing,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            Linked::Join(next, joined) => {
                state.next = Some(next);
                joined.send(())?;
            }
            Linked::Number(number) => {
                let sent = state
                    .next
                    .as_ref()
                    .map(|next| next.cast(Linked::Number(number.saturating_sub(1))));
                if number == 0 || !matches!(sent, Some(Ok(()))) {
                    state.done.tell(state.passed);
                    myself.stop(None);
                } else {
                    state.passed += 1;
                }
            }
        }
        Ok(())
    }
}

async fn ring(scale: Scale) -> Outcome {
    let hops = scale.of(RING_HOPS);
    let mut all = Vec::with_capacity(RING_PROCESSES);
    let mut links = Vec::with_capacity(RING_PROCESSES);
    for _ in 0..RING_PROCESSES {
        let (done, told) = Told::new();
        all.push(told);
        links.push(Actor::spawn(None, Link, done).await?.0);
    }
    for (link, next) in links.iter().zip(links.iter().cycle().skip(1)) {
        call!(link, Linked::Join, next.clone()).map_err(refused)?;
    }
    let start = now();
    links[0].cast(Linked::Number(hops))?;
    let mut made = 0;
    let mut outcome = None;
    for told in all {
        made += told.await?;
        outcome.get_or_insert_with(|| vec![each(start, hops)]);
    }
    check("the hops", hops, made)?;
    Ok(outcome.expect("a ring has links"))
}

struct Sum;

struct Adding {
    sum: u64,
    left: u64,
    done: Told<u64>,
}

impl Actor for Sum {
    type Msg = u64;
    type State = Adding;
    type Arguments = Adding;

    async fn pre_start(
        &self,
        _: ActorRef<u64>,
        adding: Adding,
    ) -> Result<Adding, ActorProcessingErr> {
        Ok(adding)
    }

    async fn handle(
        &self,
        myself: ActorRef<u64>,
        number: u64,
        state: &mut Adding,
    ) -> Result<(), ActorProcessingErr> {
        state.sum += number;
        state.left -= 1;
        if state.left == 0 {
            state.done.tell(state.sum);
            myself.stop(None);
        }
        Ok(())
    }
}

struct Sender {
    receiver: ActorRef<u64>,
    first: u64,
    share: u64,
}

impl Actor for Sender {
    type Msg = ();
    type State = ();
    type Arguments = ();

    async fn pre_start(&self, _: ActorRef<()>, (): ()) -> Result<(), ActorProcessingErr> {
        Ok(())
    }

    async fn handle(
        &self,
        myself: ActorRef<()>,
        (): (),
        (): &mut (),
    ) -> Result<(), ActorProcessingErr> {
        myself.stop(None);
        Ok((self.first..self.first + self.share)
            .try_for_each(|number| self.receiver.cast(number))?)
    }
}

async fn fanin(scale: Scale) -> Outcome {
    let messages = scale.of(FANIN_MESSAGES);
    let share = messages / FANIN_SENDERS;
    let (done, told) = Told::new();
    let (receiver, _) = Actor::spawn(None, Sum, Adding { sum: 0, left: messages, done }).await?;
    let start = now();
    for sender in 0..FANIN_SENDERS {
        let sender = Sender { receiver: receiver.clone(), first: sender * share, share };
        Actor::spawn(None, sender, ()).await?.0.cast(())?;
    }
    let sum = told.await?;
    let outcome = vec![each(start, messages)];
    check("the sum of the messages", messages * (messages - 1) / 2, sum)?;
    Ok(outcome)
}

static LEFT: Latch = Latch::new();

struct Idle;

impl Actor for Idle {
    type Msg = ();
    type State = ();
    type Arguments = ();

    async fn pre_start(&self, _: ActorRef<()>, (): ()) -> Result<(), ActorProcessingErr> {
        LEFT.count_down();
        Ok(())
    }

    async fn handle(&self, _: ActorRef<()>, (): (), (): &mut ()) -> Result<(), ActorProcessingErr> {
        LEFT.count_down();
        Ok(())
    }
}

/// The memory includes the addresses that their owner keeps.
async fn idle(scale: Scale) -> Outcome {
    let count = scale.of(IDLE_MEM_PROCESSES);
    LEFT.set(count);
    let before = resident()?;
    let mut addresses = Vec::with_capacity(count as usize);
    for _ in 0..count {
        addresses.push(Actor::spawn(None, Idle, ()).await?.0);
    }
    LEFT.wait().await;
    let after = resident()?;
    // All of them exist, and wait.
    LEFT.set(count);
    for address in &addresses {
        address.cast(())?;
    }
    LEFT.wait().await;
    Ok(vec![after.saturating_sub(before) as f64 / count as f64])
}
