//! The model of a machine: laws that hold on every machine.

use std::time::Duration;

use procession::Context;
use procession::time::Instant;
use procession_sim::scaling::{Costs, Figures, Machine, Model, ModelError, compute, hold};

const US: Duration = Duration::from_micros(1);
const COSTS: Costs = Costs {
    step: 20.0,
    spawn: 60.0,
    wake: 10.0,
    send: 15.0,
    receive: 15.0,
    join: 10.0,
    timer: 50.0,
};

fn model(workers: usize) -> Model {
    Model::new(Machine::EIGHT_A_CACHE, COSTS).workers(workers)
}

/// Runs processes that do `work` for so many rounds, with a yield after each.
async fn rounds(processes: u32, rounds: u32, work: fn(u32)) -> Duration {
    let start = Instant::now();
    let spawn = |number| {
        procession::spawn(async move {
            for _ in 0..rounds {
                work(number);
                procession::yield_now().await;
            }
        })
    };
    for process in (0..processes).map(spawn).collect::<Vec<_>>() {
        process.await.expect("it ends");
    }
    Instant::now() - start
}

async fn messages() -> Duration {
    let start = Instant::now();
    let sink = procession::start(|mut cx: Context<u32>| async move {
        for _ in 0..2000 {
            cx.recv().await;
        }
    });
    for _ in 0..4 {
        let to = sink.address().clone();
        procession::spawn(async move {
            for number in 0..500 {
                to.send(number).expect("it lives");
                procession::yield_if_due().await;
            }
        });
    }
    sink.await.expect("it ends");
    Instant::now() - start
}

fn run(workers: usize, processes: u32, count: u32, work: fn(u32)) -> Figures {
    model(workers).run(move || rounds(processes, count, work)).expect("it ends")
}

fn ratio(one: Duration, other: Duration) -> f64 {
    one.as_secs_f64() / other.as_secs_f64()
}

#[test]
fn the_same_model_gives_the_same_figures() {
    for workers in [2, 16] {
        let figures = || model(workers).seed(3).run(messages).expect("it ends");
        let first = figures();
        assert!((0..3).all(|_| figures() == first), "{first:?}");
    }
    let with_seed = |seed| model(16).seed(seed).run(messages).expect("it ends");
    assert_ne!(with_seed(3), with_seed(4), "the seed has a say");
}

#[test]
fn one_worker_takes_the_sum_of_all_costs() {
    let figures = run(1, 100, 50, |_| compute(US));
    let work = 100 * 50 * US;
    // Each process has one step more than rounds.
    let runtime = 100.0 * (COSTS.spawn + 51.0 * COSTS.step + COSTS.join);
    let expected = work + Duration::from_nanos(runtime as u64);
    let error = ratio(figures.elapsed, expected) - 1.0;
    assert!(error.abs() < 0.01, "{:?} instead of {expected:?}", figures.elapsed);
    assert_eq!((figures.steals, figures.failed_swaps()), (0, 0));
}

#[test]
fn work_that_shares_nothing_scales_with_the_workers() {
    let one = run(1, 256, 40, |_| compute(10 * US)).elapsed;
    for workers in [2, 4, 8, 16, 32] {
        let many = run(workers, 256, 40, |_| compute(10 * US)).elapsed;
        let speed_up = ratio(one, many);
        let ideal = workers as f64;
        assert!((0.85 * ideal..=ideal).contains(&speed_up), "{workers}: {speed_up:.2}");
    }
}

#[test]
fn one_lock_bounds_the_throughput() {
    const ROUNDS: u32 = 64 * 40;
    for workers in [1, 2, 4, 8] {
        let elapsed = run(workers, 64, 40, |_| hold(0, US)).elapsed;
        // The lock is held all the time, and it moves between two holders on different processors.
        let serial = ROUNDS * US;
        let machine = Machine::EIGHT_A_CACHE;
        let most = serial + ROUNDS * Duration::from_nanos((machine.near + machine.hold) as u64);
        let most = most + Duration::from_nanos(64 * (40.0 * COSTS.step + COSTS.spawn) as u64);
        assert!((serial..most + 100 * US).contains(&elapsed), "{workers}: {elapsed:?}, {most:?}");
    }
}

#[test]
fn locks_of_their_own_do_not_bound_it() {
    let own = |number| hold(number, 10 * US);
    let speed_up = ratio(run(1, 64, 40, own).elapsed, run(8, 64, 40, own).elapsed);
    assert!((6.5..=8.0).contains(&speed_up), "{speed_up:.2}");
}

#[test]
fn a_slower_machine_is_slower() {
    let slow = Machine { near: 300.0, far: 300.0, wake: 20_000.0, ..Machine::EIGHT_A_CACHE };
    let on = |machine| Model::new(machine, COSTS).workers(4).run(messages).expect("it ends");
    let (fast, slow) = (on(Machine::EIGHT_A_CACHE), on(slow));
    assert!(slow.elapsed > fast.elapsed, "{:?} and {:?}", slow.elapsed, fast.elapsed);
}

#[test]
fn a_program_without_an_end_is_an_error() {
    let ended = model(2).run(|| async {
        std::future::pending::<()>().await;
        Duration::ZERO
    });
    assert!(matches!(ended, Err(ModelError::Stuck)), "{ended:?}");
}

#[test]
#[should_panic(expected = "out of range")]
fn a_model_without_workers_is_refused() {
    let _ = model(0);
}

#[test]
#[should_panic(expected = "no number")]
fn a_negative_time_is_refused() {
    Model::new(Machine { near: -1.0, ..Machine::ONE_CACHE }, COSTS);
}
