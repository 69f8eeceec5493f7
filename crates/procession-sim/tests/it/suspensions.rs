//! Processes that are suspended, resumed, inspected, cancelled and terminated at random times.

use std::time::Duration;

use procession::observe::AskError;
use procession::{Child, Context, Exit, Pid, Scheduler};
use procession_sim::{Check, Fault, Faults, Sim};

const TARGETS: u64 = 3;
const MESSAGES: u64 = 6;
const MINUTE: Duration = Duration::from_secs(60);

/// Adds messages until there are enough or it is cancelled.
fn adder(scheduler: &Scheduler) -> Child<u64, u64> {
    scheduler.start(|mut cx: Context<u64>| async move {
        let _inspecting = cx.inspect_with(|shown| {
            shown.field("process", "an adder");
        });
        let mut sum = 0;
        while sum < MESSAGES {
            let Some(number) = cx.recv().await else { break };
            sum += number;
        }
        sum
    })
}

/// Does something to a process, again and again.
async fn disturb(sim: Sim, scheduler: Scheduler, targets: Vec<Pid>) {
    for _ in 0..12 {
        let place = usize::try_from(sim.choose(0..TARGETS)).unwrap_or(0);
        let target = targets[place];
        match sim.choose(0..5) {
            0 | 1 => {
                let suspended = scheduler.suspend_for(target, MINUTE);
                let is_fine = matches!(suspended, Ok(()) | Err(AskError::Ended | AskError::Ending));
                sim.always("a suspension is refused to what ends", is_fine);
                sim.sometimes("a process is suspended", suspended.is_ok());
                sim.sometimes("a process is to end", suspended == Err(AskError::Ending));
            }
            2 => drop(scheduler.resume(target)),
            3 => drop(scheduler.inspect(target).await),
            _ => procession::sleep(Duration::from_micros(sim.choose(1..200))).await,
        }
    }
}

fn program(sim: Sim) {
    let workers = usize::try_from(sim.choose(1..4)).unwrap_or(1);
    let scheduler = Scheduler::builder().worker_threads(workers).build();
    let scheduler = scheduler.expect("there are threads");
    let own = scheduler.clone();
    scheduler.block_on(async move {
        let targets: Vec<_> = (0..TARGETS).map(|_| adder(&own)).collect();
        let pids: Vec<_> = targets.iter().map(|target| target.pid()).collect();
        let disturbers: Vec<_> =
            (0..2).map(|_| own.spawn(disturb(sim.clone(), own.clone(), pids.clone()))).collect();
        let mut refused = 0;
        for _ in 0..MESSAGES {
            for target in &targets {
                refused += u64::from(target.send(1).is_err());
            }
            procession::sleep(Duration::from_micros(sim.choose(1..50))).await;
        }
        sim.always("mailboxes stay open", refused == 0);
        let mut ends = targets.into_iter();
        let (completes, cancelled, terminated) = (ends.next(), ends.next(), ends.next());
        let (Some(completes), Some(cancelled), Some(terminated)) =
            (completes, cancelled, terminated)
        else {
            return;
        };
        let begin = own.now();
        procession::process::cancel(cancelled.pid());
        procession::process::kill(terminated.pid());
        let ended = cancelled.await;
        sim.always("a cancelled process ends by itself", ended.is_ok_and(|sum| sum <= MESSAGES));
        let ended = terminated.await;
        let is_fine = matches!(&ended, Err(Exit::Killed)) || ended == Ok(MESSAGES);
        sim.always("a terminated process is killed", is_fine);
        let waited = own.now().saturating_duration_since(begin);
        sim.always("no suspension is waited for", waited < MINUTE / 2);
        let sum = completes.await;
        sim.always("nothing is suspended forever, and no message is lost", sum == Ok(MESSAGES));
        for disturber in disturbers {
            disturber.await.expect("it ends");
        }
        sim.always("no timer is left", own.snapshot().timers.pending == 0);
    });
}

#[test]
fn suspensions_end_in_time_and_at_once_if_the_process_is_to_end() {
    let faults = Faults::all().without(Fault::ClockLeap).without(Fault::ThreadRefused);
    Check::new().seeds(0..200).faults(faults).run_threads(program);
}
