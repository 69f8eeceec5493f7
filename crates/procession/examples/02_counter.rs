//! Look at `Count`: it lists everything that others can do to this process. `n` is a plain
//! variable, because only the process itself can reach it.
//!
//! `send` puts a message into the mailbox and goes on. `call` adds a `Reply` to the message and
//! waits for the answer. A process that is cancelled first receives what is left in its mailbox. A
//! message that cannot be delivered comes back in the error.
#![expect(clippy::print_stdout, reason = "an example shows its output")]

use std::error::Error;
use std::time::Duration;

use procession::{Address, CallError, Context, Reply, SendError};

enum Count {
    Add(u64),
    Get(Reply<u64>),
}

async fn count(mut cx: Context<Count>) -> u64 {
    let mut n = 0;
    while let Some(message) = cx.recv().await {
        match message {
            Count::Add(k) => n += k,
            Count::Get(reply) => reply.send(n),
        }
    }
    n
}

/// Adds numbers from another process. An address can be cloned and passed on, and it does not keep
/// the counter alive.
async fn add(
    counter: Address<Count>,
    numbers: std::ops::Range<u64>,
) -> Result<(), SendError<Count>> {
    for n in numbers {
        counter.send(Count::Add(n))?;
    }
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    procession::run(async {
        let mut counter = procession::start(count);
        println!("{} counts", counter.pid());

        let adders = [0..50, 50..100]
            .map(|numbers| procession::spawn(add(counter.address().clone(), numbers)));
        for adder in adders {
            adder.await??;
        }
        let n = counter.call(Count::Get, Duration::from_secs(1)).await?;
        println!("two processes added up to {n}");
        assert_eq!(n, 4950);

        // Sent before the cancel, so the counter receives it before it ends.
        counter.send(Count::Add(50))?;
        counter.cancel();
        let last = (&mut counter).await?;
        println!("cancelled, it ends with {last}");
        assert_eq!(last, 5000);

        let error = counter.send(Count::Add(7)).expect_err("it has ended");
        println!("{error}");
        assert!(error.is_ended() && matches!(error.into_inner(), Count::Add(7)));
        let error =
            counter.call(Count::Get, Duration::from_secs(1)).await.expect_err("it has ended");
        assert!(matches!(error, CallError::Refused(error) if error.is_ended()));
        Ok(())
    })
}
