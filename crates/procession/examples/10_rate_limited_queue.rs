//! Look at `mailbox(8, WhenFull::Wait)`: the queue holds eight requests. The sender of a ninth one
//! waits for room, and waiting senders are served in the order in which they came. A slow consumer
//! thereby slows its producers down, and memory stays bounded. A producer that cannot wait uses
//! `try_send`, and gets the request back if there is no room.
//!
//! The consumer takes one request every two milliseconds, however fast they arrive.
#![expect(clippy::print_stdout, reason = "an example shows its output")]

use std::error::Error;
use std::time::Duration;

use procession::mailbox::WhenFull;
use procession::time::{Instant, interval};
use procession::{Address, Context, SendError, SpawnOptions, spawn, yield_now};

const BEAT: Duration = Duration::from_millis(2);
const PRODUCERS: u32 = 4;
const EACH: u32 = 10;

struct Request {
    from: u32,
    number: u32,
}

/// Serves one request per tick.
async fn limited(mut cx: Context<Request>) -> Vec<Request> {
    let mut served = Vec::new();
    let mut beat = interval(BEAT);
    loop {
        beat.tick().await;
        match cx.recv().await {
            Some(request) => served.push(request),
            None => return served,
        }
    }
}

async fn produce(queue: Address<Request>, from: u32) -> Result<(), SendError<Request>> {
    for number in 0..EACH {
        queue.send_wait(Request { from, number }).await?;
    }
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    procession::run(async {
        let queue = SpawnOptions::new().label("limited").mailbox(8, WhenFull::Wait).start(limited);
        let begin = Instant::now();
        let producers: Vec<_> =
            (0..PRODUCERS).map(|from| spawn(produce(queue.address().clone(), from))).collect();

        // A producer that cannot wait is refused while the others wait.
        let mut impatient = 0;
        while let Ok(()) = queue.try_send(Request { from: PRODUCERS, number: impatient }) {
            impatient += 1;
            yield_now().await;
        }
        println!("after {impatient} requests there is no room for one that cannot wait");

        for producer in producers {
            producer.await?.map_err(|error| error.to_string())?;
        }
        queue.cancel();
        let served = queue.await?;
        let took = Instant::now() - begin;
        println!("{} requests in {took:?}", served.len());

        assert_eq!(served.len(), (PRODUCERS * EACH + impatient) as usize, "none was lost");
        assert!(took >= BEAT * served.len() as u32, "no faster than the beat");
        for from in 0..PRODUCERS {
            let numbers =
                served.iter().filter(|request| request.from == from).map(|request| request.number);
            assert!(numbers.eq(0..EACH), "each producer's requests in their order");
        }
        Ok(())
    })
}
