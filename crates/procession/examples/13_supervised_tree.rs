//! Look at `tree`: it is the whole of what happens when something fails. A worker that breaks is started again by the supervisor of the workers.
//! If they break too often, that one gives up, and the root starts it again, but not the ledger, which stands before it. If the ledger
//! breaks, everything behind it is started again.
//!
//! The clients know names, which survive restarts. At the end, the shutdown stops the tree in reverse: the ledger sees all that the workers did.
#![expect(clippy::print_stdout, reason = "an example shows its output")]

use std::error::Error;
use std::time::Duration;

use procession::supervisor::{ChildSpec, Stop, Supervisor};
use procession::{Context, Exit, Named, Reply, Scheduler, exit, timeout, yield_now};

const PATIENCE: Duration = Duration::from_secs(5);

enum Entry {
    Add(u64),
    Sum(Reply<u64>),
}

async fn ledger(mut cx: Context<Entry>) {
    let mut sum = 0;
    while let Some(entry) = cx.receive().await {
        match entry {
            Entry::Add(amount) => sum += amount,
            Entry::Sum(reply) => reply.send(sum),
        }
    }
    println!("the ledger ends with {sum}");
}

struct Job {
    amount: u64,
    done: Reply<()>,
}

async fn worker(mut cx: Context<Job>) {
    while let Some(Job { amount, done }) = cx.receive().await {
        if amount == 13 {
            exit(Exit::failed("unlucky"));
        }
        // A ledger that has just ended takes no entry; whoever gave the job is told by the dropped reply.
        if Named::new("ledger").send(Entry::Add(amount)).is_ok() {
            done.send(());
        }
    }
}

fn tree() -> Supervisor {
    let workers = ["one", "two", "three"]
        .into_iter()
        .fold(Supervisor::one_for_one().intensity(3, Duration::from_secs(60)), |workers, id| {
            workers.child(ChildSpec::new(id, worker).name(id).stop(Stop::Within(PATIENCE)))
        });
    Supervisor::rest_for_one()
        .child(ChildSpec::new("ledger", ledger).name("ledger"))
        .child(ChildSpec::supervisor("workers", workers))
}

/// Asks again until the job is done, since the worker may be starting again; an unlucky one only once.
async fn work(name: &'static str, amount: u64) {
    let worker = Named::new(name);
    while worker.call(|done| Job { amount, done }, PATIENCE).await.is_err() && amount != 13 {
        yield_now().await;
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let scheduler = Scheduler::builder().build()?;
    scheduler.block_on(async {
        let tree = tree().start().await?;
        let first = Named::<Entry>::new("ledger").pid();
        // Four breaks are one too many: the supervisor of the workers is started again, by the root.
        for (name, amount) in [("one", 13), ("two", 5), ("two", 13), ("one", 13), ("one", 13), ("one", 6), ("three", 7)]
        {
            work(name, amount).await;
        }
        let ledger = Named::new("ledger");
        assert_eq!(ledger.pid(), first, "nothing has happened to it");
        assert_eq!(ledger.call(Entry::Sum, PATIENCE).await?, 5 + 6 + 7);
        println!("{:?}", tree.count().await?);

        let unfinished = scheduler.shutdown(PATIENCE).await;
        assert!(unfinished.is_empty());
        assert_eq!(timeout(PATIENCE, tree).await?, Exit::Shutdown);
        Ok(())
    })
}
