//! Processes that enter and leave relations, and at the same time end in all ways. The engine looks
//! after each of these steps whether a relation names a process that has ended.

use std::time::Duration;

use procession::process::{Groups, cancel, kill, link, register, unlink};
use procession::{Context, Pid, SpawnOptions, sleep, start, yield_now};
use procession_sim::{Check, Sim};

const PROCESSES: u64 = 4;

/// What a process is to do.
#[derive(Clone, Copy, Debug)]
enum Order {
    Link(Pid),
    Unlink(Pid),
    Monitor(Pid),
    Join,
    Register,
    Child,
    End,
}

async fn obey(mut cx: Context<Order>, group: Groups) {
    while let Some(order) = cx.recv().await {
        match order {
            Order::Link(other) => drop(link(other)),
            Order::Unlink(other) => drop(unlink(other)),
            Order::Monitor(other) => drop(cx.monitor(other)),
            Order::Join => drop(group.join("group", cx.pid())),
            // Ignored: another process may have the name.
            Order::Register => drop(register("name", cx.pid())),
            Order::Child => {
                let child = SpawnOptions::new().scoped().spawn(sleep(Duration::from_millis(1)));
                child.detach();
            }
            Order::End => return,
        }
    }
}

async fn program(sim: Sim) {
    let group = Groups::new();
    let processes: Vec<_> = (0..PROCESSES)
        .map(|_| {
            let group = group.clone();
            start(move |cx| obey(cx, group))
        })
        .collect();
    for _ in 0..16 {
        let [one, other] = [(); 2].map(|()| &processes[sim.choose(0..PROCESSES) as usize]);
        let order = match sim.choose(0..9) {
            0 | 1 => Order::Link(other.pid()),
            2 => Order::Unlink(other.pid()),
            3 => Order::Monitor(other.pid()),
            4 => Order::Join,
            5 => Order::Register,
            6 => Order::Child,
            7 => Order::End,
            _ if sim.choose(0..2) == 0 => {
                kill(one.pid());
                continue;
            }
            _ => {
                cancel(one.pid());
                continue;
            }
        };
        // Ignored: the process may have ended.
        drop(one.address().send(order));
        match sim.choose(0..3) {
            0 => yield_now().await,
            1 => sleep(Duration::from_micros(sim.choose(1..2000))).await,
            _ => {}
        }
    }
    sim.settle().await;
}

#[test]
fn no_relation_outlives_its_processes() {
    Check::new().seeds(0..200).run(program);
}
