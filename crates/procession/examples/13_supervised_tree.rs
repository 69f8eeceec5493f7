//! Look at `tree`: it says everything about what happens after a failure. If a worker fails, the
//! supervisor of the workers restarts it. If the workers fail too often, that supervisor gives up,
//! and the root restarts it. The ledger, which comes before it, continues. If the ledger fails,
//! everything behind it is restarted, too.
//!
//! The clients know names, which survive restarts. At the end, the shutdown stops the tree in
//! reverse order, so the ledger sees everything that the workers have done.
#![expect(clippy::print_stdout, reason = "an example shows its output")]

use std::error::Error;
use std::time::Duration;

use procession::process::{Named, exit};
use procession::supervisor::{ChildSpec, Stop, Supervisor};
use procession::{Context, Exit, Reply, Scheduler, timeout, yield_now};

const TIMEOUT: Duration = Duration::from_secs(5);

enum Entry {
    Add(u64),
    Sum(Reply<u64>),
}

async fn ledger(mut cx: Context<Entry>) {
    let mut sum = 0;
    while let Some(entry) = cx.recv().await {
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
    while let Some(Job { amount, done }) = cx.recv().await {
        if amount == 13 {
            exit(Exit::failed("unlucky"));
        }
        // A ledger that has just ended takes no entry. Then `done` is dropped, which tells the
        // caller.
        if Named::new("ledger").send(Entry::Add(amount)).is_ok() {
            done.send(());
        }
    }
}

fn tree() -> Supervisor {
    let workers = ["one", "two", "three"].into_iter().fold(
        Supervisor::one_for_one().intensity(3, Duration::from_secs(60)),
        |workers, id| {
            workers.child(ChildSpec::new(id, worker).name(id).stop(Stop::Within(TIMEOUT)))
        },
    );
    Supervisor::rest_for_one()
        .child(ChildSpec::new("ledger", ledger).name("ledger"))
        .child(ChildSpec::supervisor("workers", workers))
}

/// Repeats the request until the job is done, since the worker may be restarting. A job that makes
/// the worker fail is tried only once.
async fn work(name: &'static str, amount: u64) {
    let worker = Named::new(name);
    while worker.call(|done| Job { amount, done }, TIMEOUT).await.is_err() && amount != 13 {
        yield_now().await;
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let scheduler = Scheduler::builder().build()?;
    scheduler.block_on(async {
        let tree = tree().try_start().await?;
        let first = Named::<Entry>::new("ledger").pid();
        // Four failures are one too many, so the root restarts the supervisor of the workers.
        for (name, amount) in [
            ("one", 13),
            ("two", 5),
            ("two", 13),
            ("one", 13),
            ("one", 13),
            ("one", 6),
            ("three", 7),
        ] {
            work(name, amount).await;
        }
        let ledger = Named::new("ledger");
        assert_eq!(ledger.pid(), first, "the ledger was not restarted");
        assert_eq!(ledger.call(Entry::Sum, TIMEOUT).await?, 5 + 6 + 7);
        println!("{:?}", tree.count().await?);

        let unfinished = scheduler.shutdown(TIMEOUT).await;
        assert!(unfinished.is_empty());
        assert_eq!(timeout(TIMEOUT, tree).await?, Exit::Shutdown);
        Ok(())
    })
}
