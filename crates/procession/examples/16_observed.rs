//! A program that others can look into while it runs.
//!
//! Look at `Builder::door`: it opens a door, a server at a Unix socket that `procession top`, a
//! browser and a scraper of metrics read. With a number as its argument, the example starts that
//! many processes, prints a link for a browser, and serves until its input ends:
//!
//! ```sh
//! cargo run --example 16_observed --features door -- 1000
//! ```
#![expect(clippy::print_stdout, reason = "an example shows its output")]

use std::error::Error;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use procession::observe::DoorOptions;
use procession::supervisor::{ChildSpec, Supervisor};
use procession::{Context, Scheduler, SpawnOptions, sleep};

/// Asks a door, as `curl --unix-socket` does.
fn get(socket: &std::path::Path, target: &str) -> std::io::Result<String> {
    let mut stream = UnixStream::connect(socket)?;
    write!(stream, "GET {target} HTTP/1.1\r\nHost: localhost\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

fn main() -> Result<(), Box<dyn Error>> {
    let count = std::env::args().nth(1).map(|text| text.parse::<u32>()).transpose()?;
    let folder = std::env::temp_dir().join(format!("procession-observed-{}", std::process::id()));
    let options = DoorOptions::default().directory(&folder).tcp(0);
    let scheduler = Scheduler::builder().name("bank").door(options).build()?;

    // Tellers wait for requests, a supervised clock ticks, and a job runs in a pool.
    let tellers: Vec<_> = (0..count.unwrap_or(10))
        .map(|number| {
            let options = SpawnOptions::new().on(&scheduler).label(format!("teller {number}"));
            options.start(|mut cx: Context<u32>| async move { while cx.recv().await.is_some() {} })
        })
        .collect();
    let clock = ChildSpec::new("clock", |_: Context<()>| async {
        loop {
            sleep(Duration::from_millis(10)).await;
        }
    });
    let tree = scheduler.block_on(Supervisor::one_for_one().child(clock).try_start())?;

    scheduler.block_on(async { procession::spawn_blocking(|| ()).await })?;

    let door = scheduler.door().ok_or("the door was asked for")?;
    let view = get(door.socket(), "/view?label=teller&waiting=message&top=1")?;
    assert!(view.contains(&format!("\"matched\":{}", tellers.len())), "{view}");
    assert!(get(door.socket(), "/metrics")?.ends_with("# EOF\n"));

    if count.is_some() {
        println!("{}", door.link()?.ok_or("TCP was asked for")?);
        std::io::stdin().read_to_end(&mut Vec::new())?;
    }
    scheduler.block_on(scheduler.shutdown(Duration::from_secs(1)));
    drop((tellers, tree, scheduler));
    std::fs::remove_dir(&folder)?;
    Ok(())
}
