//! Look at [`faults`]: what `procession trial` does to a service, as ordinary code. Here each fault
//! meets one worker, and a process that wants to run behind it.
#![expect(clippy::print_stdout, reason = "an example shows its output")]

mod faults;

use std::error::Error;
use std::io::pipe;
use std::time::Duration;

use procession::net::{TcpListener, TcpStream};
use procession::{Exit, Scheduler};
use procession_sync::Arc;
use procession_sync::atomic::{AtomicBool, Ordering};

fn main() -> Result<(), Box<dyn Error>> {
    let scheduler = Scheduler::builder().name("faults").worker_threads(1).build()?;
    let beside = |what: &str| {
        let answer = scheduler.spawn(async { 42 }).join();
        println!("beside {what}: {answer:?}");
        assert_eq!(answer, Ok(42));
    };

    let (until_closed, open) = pipe()?;
    let blocked = scheduler.spawn(async move { faults::block(&until_closed) });
    beside("a step that blocks");
    drop(open);
    assert_eq!(blocked.join()?.ok(), Some(0));

    let goes_on = Arc::new(AtomicBool::new(true));
    let computing = scheduler.spawn({
        let goes_on = Arc::clone(&goes_on);
        async move { faults::compute(&goes_on) }
    });
    beside("a step that computes");
    // Ordering: Relaxed; the flag is the whole message.
    goes_on.store(false, Ordering::Relaxed);
    computing.join()?;

    let failed = scheduler.spawn(async { faults::fail(7) }).join();
    beside("a process that panics");
    assert!(matches!(failed, Err(Exit::Panicked(_))), "{failed:?}");

    let text = scheduler.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let client = TcpStream::connect(listener.local_addr()?).await?;
        let (server, _) = listener.accept().await?;
        let slow = procession::spawn(async move {
            faults::drip(&client, b"slow", Duration::from_millis(5)).await
        });
        let mut text = [0; 4];
        server.read_exact(&mut text).await?;
        slow.await.expect("it does not panic")?;
        Ok::<_, std::io::Error>(text)
    })?;
    beside("a client that is slow");
    assert_eq!(&text, b"slow");
    let stalls = scheduler.snapshot().stalls;
    println!(
        "steps that blocked: {}, that computed: {}, replaced: {}",
        stalls.blocked, stalls.computing, stalls.replaced
    );
    Ok(())
}
