//! Measures how long a process takes to end that is killed in the middle of long work. Ends with
//! exit code 1 if that is longer than 100 ms in a release build.
//!
//! Each body of `endless.txt` runs in a process, which is killed five times at different moments.
//! The program prints the longest time for each.
//!
//! `cargo run --release -p procession-lua --example endless`
#![expect(clippy::print_stdout, reason = "the example prints its figures")]

use std::error::Error;
use std::process::ExitCode;
use std::time::Duration;

use procession::time::Instant;
use procession::{Exit, Scheduler, SpawnOptions};
use procession_lua::{Message, Program, Value};

const ROUNDS: u64 = 5;
const BOUND: Duration = Duration::from_millis(100);

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let mut late = 0;
    for body in include_str!("endless.txt").split("\n\n") {
        let ready = if body.contains("ready()") { "" } else { "ready()" };
        let source = format!(
            "function nothing() end
             function endless(main)
               local many = ('ab'):rep(1 << 20)
               local function ready() process.send(main, 'begins') end
               {ready}
               {body}
             end"
        );
        let program = Program::load("endless", source)?;
        let mut longest = Duration::ZERO;
        for round in 0..ROUNDS {
            longest = longest.max(end(&program, Duration::from_millis(20 + 17 * round))?);
        }
        late += u32::from(longest > BOUND);
        let line = body.replace('\n', " ");
        println!("{:8.1} ms  {}", longest.as_secs_f64() * 1e3, &line[..line.len().min(90)]);
    }
    let fails = late > 0 && !cfg!(debug_assertions);
    Ok(if fails { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Kills a process some time after it begins its work. Returns how long its end takes.
fn end(program: &Program, after: Duration) -> Result<Duration, Box<dyn Error>> {
    let scheduler = Scheduler::builder().worker_threads(2).build()?;
    let program = program.clone();
    let killer = scheduler.start(move |mut cx: procession::Context<Message>| async move {
        let own = Value::Pid(cx.pid());
        let guest = program.spawn_with(SpawnOptions::new(), "endless", [own])?;
        cx.recv().await;
        procession::sleep(after).await;
        let start = Instant::now();
        procession::process::send_exit(guest.pid(), Exit::Killed);
        // Its end is what is measured.
        drop(guest.await);
        Ok::<_, procession_lua::Error>(Instant::now() - start)
    });
    Ok(killer.join()??)
}
