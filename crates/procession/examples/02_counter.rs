//! Look at `Count`: it is all that others can do to this process. `n` is a plain variable, since one process at a time owns it.
//!
//! `send` leaves a message and goes on; `call` sends a `Reply` along, and waits for it. A cancelled process first receives what is in
//! its mailbox. What cannot be delivered comes back.
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
    while let Some(message) = cx.receive().await {
        match message {
            Count::Add(k) => n += k,
            Count::Get(reply) => reply.send(n),
        }
    }
    n
}

/// Adds from a process of its own. An address can be cloned and given away; it does not keep the counter alive.
async fn add(counter: Address<Count>, numbers: std::ops::Range<u64>) -> Result<(), SendError<Count>> {
    for n in numbers {
        counter.send(Count::Add(n))?;
    }
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    procession::run(async {
        let mut counter = procession::start(count);
        println!("{} counts", counter.pid());

        let adders = [0..50, 50..100].map(|numbers| procession::spawn(add(counter.address().clone(), numbers)));
        for adder in adders {
            adder.await??;
        }
        let n = counter.call(Count::Get, Duration::from_secs(1)).await?;
        println!("two processes added up to {n}");
        assert_eq!(n, 4950);

        // Sent before the cancel, so received before the end.
        counter.send(Count::Add(50))?;
        counter.cancel();
        let last = (&mut counter).await?;
        println!("cancelled, it ends with {last}");
        assert_eq!(last, 5000);

        let error = counter.send(Count::Add(7)).expect_err("it has ended");
        println!("{error}");
        assert!(error.is_ended() && matches!(error.message, Count::Add(7)));
        let error = counter.call(Count::Get, Duration::from_secs(1)).await.expect_err("it has ended");
        assert!(matches!(error, CallError::Refused(error) if error.is_ended()));
        Ok(())
    })
}
