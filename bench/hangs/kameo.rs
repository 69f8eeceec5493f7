//! The clinic on kameo: actors on tokio.

mod verdict;

use std::sync::mpsc;
use std::time::Instant;

use kameo::Actor;
use kameo::actor::{ActorRef, Spawn};
use kameo::mailbox;
use kameo::message::{Context, Message};
use tokio::runtime::{Builder, Runtime};

use verdict::{MILLISECOND, Row, Verdict, WIDTH, late, now, refused};

const ROWS: [Row; 3] =
    [("own_mailbox", own_mailbox), ("call_cycle", call_cycle), ("flooded_timer", flooded_timer)];

fn main() {
    verdict::main(&ROWS)
}

/// A runtime that stays until the program ends.
fn runtime() -> &'static Runtime {
    let runtime = Builder::new_multi_thread().worker_threads(WIDTH).enable_all().build();
    Box::leak(Box::new(runtime.expect("the system has threads")))
}

#[derive(Actor)]
struct Server {
    next: Option<ActorRef<Self>>,
    tells: mpsc::Sender<Instant>,
}

impl Server {
    fn new(tells: mpsc::Sender<Instant>) -> Self {
        Self { next: None, tells }
    }
}

struct Next(ActorRef<Server>);
struct Ask;
struct Again;
struct Twice;
struct Timer;

impl Message<Next> for Server {
    type Reply = ();

    async fn handle(&mut self, Next(next): Next, _: &mut Context<Self, ()>) {
        self.next = Some(next);
    }
}

impl Message<Ask> for Server {
    type Reply = ();

    async fn handle(&mut self, _: Ask, _: &mut Context<Self, ()>) {
        let next = self.next.as_ref().expect("it was told first");
        next.ask(Ask).await.expect("it lives");
    }
}

impl Message<Again> for Server {
    type Reply = ();

    async fn handle(&mut self, _: Again, cx: &mut Context<Self, ()>) {
        cx.actor_ref().tell(Again).try_send().expect("there is room");
    }
}

impl Message<Twice> for Server {
    type Reply = ();

    async fn handle(&mut self, _: Twice, cx: &mut Context<Self, ()>) {
        for _ in 0..2 {
            cx.actor_ref().tell(Timer).await.expect("it lives");
        }
    }
}

impl Message<Timer> for Server {
    type Reply = ();

    async fn handle(&mut self, _: Timer, _: &mut Context<Self, ()>) {
        // Ignored: the row has ended.
        let _ = self.tells.send(now());
    }
}

/// An actor waits for room in its own mailbox.
fn own_mailbox() -> Verdict {
    let (tells, told) = mpsc::channel();
    let begun = now();
    let kept = runtime().block_on(async {
        let actor = Server::spawn_with_mailbox(Server::new(tells), mailbox::bounded(1));
        actor.wait_for_startup().await;
        actor.tell(Twice).await.expect("it lives");
        actor
    });
    let verdict = late(begun, &told);
    drop(kept);
    verdict
}

/// Two actors, each of which asks the other to answer a request.
fn call_cycle() -> Verdict {
    let (tells, begun) = (mpsc::channel().0, now());
    runtime().block_on(async {
        let one = Server::spawn(Server::new(tells.clone()));
        let other = Server::spawn(Server::new(tells));
        one.tell(Next(other.clone())).await.expect("it lives");
        other.tell(Next(one.clone())).await.expect("it lives");
        match one.ask(Ask).await {
            Ok(()) => Verdict::Ends(begun.elapsed()),
            Err(error) => refused(begun, format!("{error:?}")),
        }
    })
}

/// The mailbox of an actor is never empty. A message to itself is due at a time.
fn flooded_timer() -> Verdict {
    let (tells, told) = mpsc::channel();
    let due = now() + 50 * MILLISECOND;
    let kept = runtime().block_on(async {
        let actor = Server::spawn_with_mailbox(Server::new(tells), mailbox::unbounded());
        let timed = actor.clone();
        // Kameo has no timers of its own.
        tokio::spawn(async move {
            tokio::time::sleep(50 * MILLISECOND).await;
            timed.tell(Timer).await.expect("it lives");
        });
        for _ in 0..1000 {
            actor.tell(Again).await.expect("it lives");
        }
        actor
    });
    let verdict = late(due, &told);
    drop(kept);
    verdict
}
