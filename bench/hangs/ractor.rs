//! The clinic on ractor: actors on tokio.

mod verdict;

use std::sync::mpsc;
use std::time::Instant;

use ractor::{Actor, ActorProcessingErr, ActorRef, RpcReplyPort, call};
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

enum Message {
    Next(ActorRef<Message>),
    Ask(RpcReplyPort<()>),
    Again,
    Twice,
    Timer,
}

struct Server;

struct State {
    next: Option<ActorRef<Message>>,
    tells: mpsc::Sender<Instant>,
}

impl Actor for Server {
    type Msg = Message;
    type State = State;
    type Arguments = mpsc::Sender<Instant>;

    async fn pre_start(
        &self,
        _: ActorRef<Message>,
        tells: Self::Arguments,
    ) -> Result<State, ActorProcessingErr> {
        Ok(State { next: None, tells })
    }

    async fn handle(
        &self,
        myself: ActorRef<Message>,
        message: Message,
        state: &mut State,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            Message::Next(next) => state.next = Some(next),
            Message::Ask(reply) => {
                let next = state.next.as_ref().expect("it was told first");
                call!(next, Message::Ask)?;
                reply.send(())?;
            }
            Message::Again => myself.cast(Message::Again)?,
            Message::Twice => {
                myself.cast(Message::Timer)?;
                myself.cast(Message::Timer)?;
            }
            // Ignored: the row has ended.
            Message::Timer => drop(state.tells.send(now())),
        }
        Ok(())
    }
}

/// An actor sends to itself. Its mailbox has no bound.
fn own_mailbox() -> Verdict {
    let (tells, told) = mpsc::channel();
    let begun = now();
    runtime().block_on(async {
        let (actor, _) = Actor::spawn(None, Server, tells).await.expect("it starts");
        actor.cast(Message::Twice).expect("it lives");
    });
    late(begun, &told)
}

/// Two actors, each of which calls the other to answer a call.
fn call_cycle() -> Verdict {
    let (tells, begun) = (mpsc::channel().0, now());
    runtime().block_on(async {
        let (one, _) = Actor::spawn(None, Server, tells.clone()).await.expect("it starts");
        let (other, _) = Actor::spawn(None, Server, tells).await.expect("it starts");
        one.cast(Message::Next(other.clone())).expect("it lives");
        other.cast(Message::Next(one.clone())).expect("it lives");
        match call!(one, Message::Ask) {
            Ok(()) => Verdict::Ends(begun.elapsed()),
            Err(error) => refused(begun, error),
        }
    })
}

/// The mailbox of an actor is never empty. A message to itself is due at a time.
fn flooded_timer() -> Verdict {
    let (tells, told) = mpsc::channel();
    let due = now() + 50 * MILLISECOND;
    runtime().block_on(async {
        let (actor, _) = Actor::spawn(None, Server, tells).await.expect("it starts");
        drop(actor.send_after(50 * MILLISECOND, || Message::Timer));
        (0..1000).for_each(|_| actor.cast(Message::Again).expect("it lives"));
    });
    late(due, &told)
}
