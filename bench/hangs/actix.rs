//! The clinic on actix: actors on tokio, each of which stays on one thread.

mod verdict;

use std::sync::mpsc;
use std::thread;
use std::time::Instant;

use actix::{Actor, AsyncContext, Context, Handler, Message, System};

use verdict::{MILLISECOND, Row, Verdict, late, now};

const ROWS: [Row; 1] = [("flooded_timer", flooded_timer)];

fn main() {
    verdict::main(&ROWS)
}

struct Flooded {
    tells: mpsc::Sender<Instant>,
}

struct Again;

impl Message for Again {
    type Result = ();
}

impl Actor for Flooded {
    type Context = Context<Self>;

    fn started(&mut self, cx: &mut Context<Self>) {
        cx.run_later(50 * MILLISECOND, |actor, _| {
            // Ignored: the row has ended.
            let _ = actor.tells.send(now());
        });
        (0..1000).for_each(|_| cx.address().do_send(Again));
    }
}

impl Handler<Again> for Flooded {
    type Result = ();

    fn handle(&mut self, _: Again, cx: &mut Context<Self>) {
        cx.address().do_send(Again);
    }
}

/// The mailbox of an actor is never empty. A function is due at a time.
fn flooded_timer() -> Verdict {
    let (tells, told) = mpsc::channel();
    let due = now() + 50 * MILLISECOND;
    thread::spawn(move || {
        let system = System::new();
        system.block_on(async {
            Flooded { tells }.start();
        });
        system.run()
    });
    late(due, &told)
}
