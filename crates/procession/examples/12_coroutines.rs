//! Look at `count_words`: it is blocking code for any `Read`, and knows nothing of processes. In a
//! coroutine it waits for its socket while other processes run on the same thread.
#![expect(clippy::print_stdout, reason = "an example shows its output")]

use std::io::{self, BufRead, BufReader, Read, Write};
use std::time::Duration;

use procession::net::{TcpListener, TcpStream};
use procession::sync::{Select, channel};
use procession::{Scheduler, SpawnOptions, coroutine};

fn count_words(stream: impl Read) -> io::Result<usize> {
    let mut words = 0;
    for line in BufReader::new(stream).lines() {
        words += line?.split_whitespace().count();
    }
    Ok(words)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // SAFETY: the coroutines keep the residual rule: no thread-local refers to their frames, no
    // frame refers to a thread-local, and every frame can be unwound.
    let scheduler =
        unsafe { Scheduler::builder().worker_threads(1).enable_coroutines() }.build()?;
    let total = scheduler.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let (counted, counts) = channel::bounded(0);

        let server = SpawnOptions::new().try_start_coroutine(move |_: coroutine::Context<()>| {
            for _ in 0..3 {
                let (stream, _) = coroutine::wait(listener.accept())?;
                let counted = counted.clone();
                let serve = move |_: coroutine::Context<()>| {
                    let words = count_words(&stream)?;
                    // Ignored: the counting code has ended.
                    let _ = coroutine::wait(counted.send(words));
                    Ok::<_, io::Error>(())
                };
                drop(
                    SpawnOptions::new()
                        .try_start_coroutine(serve)
                        .map_err(|error| io::Error::other(error.to_string()))?,
                );
            }
            Ok::<_, io::Error>(())
        })?;

        for number in 1..=3 {
            drop(SpawnOptions::new().try_start_coroutine(move |_: coroutine::Context<()>| {
                let mut stream = coroutine::wait(TcpStream::connect(address))?;
                for _ in 0..number {
                    writeln!(stream, "a few words")?;
                    coroutine::sleep(Duration::from_millis(1));
                }
                Ok::<_, io::Error>(())
            })?);
        }

        let mut total = 0;
        loop {
            let more = Select::new()
                .recv(&counts, |words| words)
                .timeout(Duration::from_secs(10), || None);
            match more.await {
                Some(words) => total += words,
                None => break,
            }
        }
        server.await??;
        Ok::<_, Box<dyn std::error::Error>>(total)
    })?;
    assert_eq!(total, 18);
    println!("{total} words came in");
    Ok(())
}
