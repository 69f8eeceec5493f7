//! The workloads of sets and groups of processes.

use super::latch::Latch;
use super::meter::now;
use super::rt::{Group, JoinSet, spawn_into};
use super::workload::{
    GROUP_MEMBERS, GROUP_MESSAGES, JOINSET_AT_ONCE, JOINSET_ROUNDS, Outcome, Scale, check, each,
};

pub(super) async fn join_set(scale: Scale) -> Outcome {
    let processes = scale.of(JOINSET_ROUNDS) * JOINSET_AT_ONCE;
    let mut set = JoinSet::new();
    let (start, mut sum) = (now(), 0);
    for number in 0..processes {
        spawn_into(&mut set, async move { number });
        if (number + 1) % JOINSET_AT_ONCE == 0 {
            while let Some(output) = set.join_next().await {
                sum += output?;
            }
        }
    }
    let outcome = vec![each(start, processes)];
    check("the sum of the outputs", processes * (processes - 1) / 2, sum)?;
    Ok(outcome)
}

pub(super) async fn group_broadcast(scale: Scale) -> Outcome {
    static UNRECEIVED: Latch = Latch::new();
    let messages = scale.of(GROUP_MESSAGES);
    let mut group = Group::default();
    let members = (0..GROUP_MEMBERS)
        .map(|_| group.start_member(messages, || UNRECEIVED.count_down()))
        .collect::<Result<Vec<_>, _>>()?;
    let start = now();
    for message in 1..=messages {
        UNRECEIVED.set(GROUP_MEMBERS);
        check("the members that get a message", GROUP_MEMBERS, group.broadcast(message))?;
        UNRECEIVED.wait().await;
    }
    let outcome = vec![each(start, messages * GROUP_MEMBERS)];
    for member in members {
        check("the sum of the messages", messages * (messages + 1) / 2, member.await?)?;
    }
    Ok(outcome)
}
