//! Process groups. The semantics are those of `pg_SUITE` of OTP, on one node.

use std::sync::Arc;
use std::time::Duration;

use procession::coroutine::Wait;
use procession::mailbox::WhenFull;
use procession::process::{GroupEvent, Groups};
use procession::sync::RecvError;
use procession::{Context, Exit, Pid, SpawnOptions, sleep, spawn, start};
use procession_sync::Mutex;

use super::idle;
use crate::scene::{TIMEOUT, assert_conserved, driven, panic_quietly, threaded};

fn names(names: &[Arc<str>]) -> Vec<&str> {
    names.iter().map(|name| &**name).collect()
}

#[test]
fn a_process_joins_many_times_and_leaves_as_often() {
    driven().block_on(async {
        let groups = Groups::new();
        let (own, _handle) = idle();
        (0..3).for_each(|_| groups.join("group", own).expect("it is alive"));
        assert_eq!(groups.members("group"), [own; 3]);
        assert_eq!(groups.local_members("group"), [own; 3]);
        assert_eq!(names(&groups.groups_of(own)), ["group"; 3]);
        assert!(!groups.leave("missing", own));
        assert!(groups.leave("group", own) && groups.leave("group", own));
        assert_eq!(groups.members("group"), [own]);
        assert!(groups.leave("group", own) && !groups.leave("group", own));
        assert!(groups.groups().is_empty() && groups.members("group").is_empty());
    });
}

#[test]
fn the_end_of_a_process_removes_it_before_others_learn_of_it() {
    let scheduler = driven();
    scheduler.block_on(async {
        let groups = Groups::new();
        let (own, handle) = idle();
        let (other, _handle) = idle();
        groups.join("both", other).expect("it is alive");
        for group in ["one", "both", "both"] {
            groups.join(group, own).expect("it is alive");
        }
        let watcher = start({
            let groups = groups.clone();
            move |mut cx: Context<()>| async move {
                let monitor = cx.monitor(own);
                cx.down(monitor).await.expect("it ends");
                groups.groups_of(own)
            }
        });
        procession::yield_now().await;
        handle.cancel();
        assert_eq!(handle.await, Err(Exit::Shutdown));
        assert_eq!((groups.members("both"), names(&groups.groups())), (vec![other], vec!["both"]));
        assert_eq!(watcher.await, Ok(vec![]));
        let refused = groups.join("both", own).expect_err("it has ended");
        assert_eq!(
            refused.to_string(),
            format!("cannot add {own} to the group `both`: there is no such process")
        );
        assert_eq!((refused.name(), refused.owner()), ("both", None));
    });
    assert_conserved(&scheduler);
}

#[test]
fn scopes_have_nothing_in_common() {
    driven().block_on(async {
        let (first, second) = (Groups::new(), Groups::new());
        let (own, handle) = idle();
        first.join("group", own).expect("it is alive");
        assert!(second.members("group").is_empty() && !second.leave("group", own));
        second.join("group", own).expect("it is alive");
        drop(first);
        handle.cancel();
        assert_eq!(handle.await, Err(Exit::Shutdown));
        assert!(second.members("group").is_empty());
    });
}

#[test]
fn a_process_of_another_node_is_no_member() {
    let remote: Pid = "p3@1.42.7".parse().expect("it is a PID");
    assert!(Groups::new().join("group", remote).is_err());
}

#[test]
fn a_monitor_receives_joins_and_leaves_of_its_group_in_order() {
    driven().block_on(async {
        let groups = Groups::new();
        let (own, handle) = idle();
        groups.join("watched", own).expect("it is alive");
        let (members, mut monitor) = groups.monitor("watched");
        let (all, mut everything) = groups.monitor_all();
        assert_eq!((members, all.len(), &all["watched"][..]), (vec![own], 1, &[own][..]));
        groups.join("other", own).expect("it is alive");
        groups.join("watched", own).expect("it is alive");
        groups.leave("watched", own);
        handle.cancel();
        assert_eq!(handle.await, Err(Exit::Shutdown));
        let join = |group: &str| GroupEvent::Join { group: group.into(), pid: own };
        let leave = |group: &str| GroupEvent::Leave { group: group.into(), pid: own };
        for event in [join("watched"), leave("watched"), leave("watched")] {
            assert_eq!(monitor.recv().await, event);
        }
        assert_eq!(monitor.try_recv(), Err(RecvError::Empty));
        let seen: Vec<_> = std::iter::from_fn(|| everything.try_recv().ok()).collect();
        let ends = [leave("other"), leave("watched")];
        assert_eq!(seen, [&[join("other"), join("watched"), leave("watched")], &ends[..]].concat());
    });
}

#[test]
fn a_later_monitor_begins_with_the_members_and_a_dropped_one_ends() {
    driven().block_on(async {
        let groups = Groups::new();
        let (own, _handle) = idle();
        let (members, mut first) = groups.monitor("group");
        assert!(members.is_empty());
        groups.join("group", own).expect("it is alive");
        let join = GroupEvent::Join { group: "group".into(), pid: own };
        let leave = GroupEvent::Leave { group: "group".into(), pid: own };
        assert_eq!(first.try_recv(), Ok(join.clone()));
        let (members, mut second) = groups.monitor("group");
        assert_eq!(members, [own]);
        groups.leave("group", own);
        assert_eq!((first.try_recv(), second.try_recv()), (Ok(leave.clone()), Ok(leave)));
        drop(second);
        groups.join("group", own).expect("it is alive");
        assert_eq!((first.try_recv(), first.try_recv()), (Ok(join), Err(RecvError::Empty)));
    });
}

#[test]
fn monitors_of_a_process_receive_its_own_joins_and_end_with_it() {
    let scheduler = driven();
    scheduler.block_on(async {
        let groups = Groups::new();
        let child = start({
            let groups = groups.clone();
            move |cx: Context<()>| async move {
                let own = cx.pid();
                let (mut one, mut two) = (groups.monitor("one").1, groups.monitor("two").1);
                let mut all = groups.monitor_all().1;
                groups.join("one", own).expect("it is alive");
                groups.join("two", own).expect("it is alive");
                let join = |group: &str| GroupEvent::Join { group: group.into(), pid: own };
                assert_eq!(
                    (one.recv().await, one.try_recv()),
                    (join("one"), Err(RecvError::Empty))
                );
                assert_eq!(
                    (two.recv().await, two.try_recv()),
                    (join("two"), Err(RecvError::Empty))
                );
                assert_eq!((all.recv().await, all.recv().await), (join("one"), join("two")));
                assert_eq!(all.try_recv(), Err(RecvError::Empty));
            }
        });
        assert_eq!(child.await, Ok(()));
        assert!(groups.groups().is_empty());
        // A scope works on after its monitors have ended.
        let (own, _handle) = idle();
        groups.join("one", own).expect("it is alive");
        assert_eq!(groups.members("one"), [own]);
    });
    assert_conserved(&scheduler);
}

#[test]
fn a_wait_for_an_event_that_is_cancelled_loses_none() {
    driven().block_on(async {
        let groups = Groups::new();
        let (_, mut monitor) = groups.monitor("group");
        let second = Duration::from_secs(1);
        assert!(procession::timeout(second, monitor.recv()).await.is_err());
        let (own, _handle) = idle();
        let joins = spawn({
            let groups = groups.clone();
            async move {
                sleep(second).await;
                groups.join("group", own)
            }
        });
        assert_eq!(monitor.recv().await, GroupEvent::Join { group: "group".into(), pid: own });
        assert_eq!(joins.await, Ok(Ok(())));
    });
}

#[test]
fn a_broadcast_reaches_all_members_that_take_the_message() {
    let scheduler = driven();
    scheduler.block_on(async {
        let groups = Groups::new();
        let (first, second) = (start(hear), start(hear));
        let full = SpawnOptions::new().mailbox(1, WhenFull::Reject).start(hear);
        let deaf = start(|mut cx: Context<String>| async move { cx.recv().await });
        full.send(0).expect("there is room");
        for pid in [first.pid(), second.pid(), second.pid(), full.pid(), deaf.pid()] {
            groups.join("group", pid).expect("it is alive");
        }
        let error = groups.broadcast("group", 7_u32).expect_err("one receives texts");
        assert_eq!((error.group(), error.accepted()), ("group", 3));
        let cause = error.cause().expect("it is that of a member");
        assert!(cause.is_wrong_type() && cause.pid() == deaf.pid());
        let text = format!(
            "cannot broadcast to the group `group`: cannot send to {}: the message is of type u32, \
             but the process receives alloc::string::String",
            deaf.pid()
        );
        assert_eq!((error.to_string(), error.into_inner()), (text, Some(7)));
        let error = groups.broadcast("nobody", 7_u32).expect_err("it has no members");
        assert_eq!((error.group(), error.accepted(), error.cause()), ("nobody", 0, None));
        let text =
            "cannot broadcast a message of type u32 to the group `nobody`: it has no members";
        assert_eq!((error.to_string().as_str(), error.into_inner()), (text, Some(7)));
        let error = groups.broadcast_with("nobody", || 7_u32).expect_err("it has no members");
        assert_eq!(error.into_inner(), None, "none was made");
        for pid in [first.pid(), second.pid(), full.pid()] {
            procession::process::cancel(pid);
        }
        assert_eq!(first.await, Ok(vec![7]));
        assert_eq!(second.await, Ok(vec![7, 7]));
        assert_eq!(full.await, Ok(vec![0]));
        assert!(groups.leave("group", deaf.pid()));
        deaf.cancel();
    });
    assert_conserved(&scheduler);
}

/// Goal: members that are of no use to a message do not keep it from the others, and the messages
/// need no `Clone`.
#[test]
fn each_member_gets_a_message_that_is_made_for_it() {
    struct Unique(u32);
    async fn take(mut cx: Context<Unique>) -> Option<u32> {
        cx.recv().await.map(|Unique(n)| n)
    }
    let scheduler = driven();
    scheduler.block_on(async {
        let groups = Groups::new();
        let (first, second) = (start(take), start(take));
        let deaf = start(hear);
        for pid in [first.pid(), deaf.pid(), second.pid()] {
            groups.join("group", pid).expect("it is alive");
        }
        let mut made = 0;
        let sent = groups.broadcast_with("group", || {
            made += 1;
            Unique(made)
        });
        let error = sent.expect_err("one receives numbers");
        assert_eq!((error.accepted(), error.into_inner().map(|Unique(n)| n)), (2, Some(2)));
        assert_eq!((first.await, second.await, made), (Ok(Some(1)), Ok(Some(3)), 3));
        deaf.cancel();
    });
    assert_conserved(&scheduler);
}

/// Counts its clones, and uses the groups while it is cloned.
struct Nosy(Groups, Arc<Mutex<u32>>);

impl Clone for Nosy {
    fn clone(&self) -> Self {
        *self.1.lock() += 1;
        assert_eq!(self.0.members("group").len(), 2);
        Self(self.0.clone(), Arc::clone(&self.1))
    }
}

#[test]
fn a_message_is_cloned_once_less_than_there_are_members_and_without_a_lock() {
    driven().block_on(async {
        let groups = Groups::new();
        let clones = Arc::new(Mutex::new(0));
        for _ in 0..2 {
            let member = start(|mut cx: Context<Nosy>| async move { drop(cx.recv().await) });
            groups.join("group", member.pid()).expect("it is alive");
        }
        let sent = groups.broadcast("group", Nosy(groups.clone(), Arc::clone(&clones)));
        assert_eq!(sent.ok(), Some(2));
        assert_eq!(*clones.lock(), 1);
    });
}

/// Receives numbers until it is cancelled.
async fn hear(mut cx: Context<u32>) -> Vec<u32> {
    let mut heard = Vec::new();
    while let Some(n) = cx.recv().await {
        heard.push(n);
    }
    heard
}

/// More members than are woken together, and than a worker's ring holds.
#[test]
fn a_large_group_hears_all_messages_in_their_order() {
    const MEMBERS: usize = 1500;
    for width in [1, 2] {
        let scheduler = threaded(width);
        let groups = Groups::new();
        let members: Vec<_> = (0..MEMBERS)
            .map(|_| {
                let member = scheduler.start(hear);
                groups.join("group", member.pid()).expect("it is alive");
                member
            })
            .collect();
        // From outside, and from processes.
        assert_eq!(groups.broadcast("group", 0_u32).ok(), Some(MEMBERS));
        let speaks = |n: u32| {
            let groups = groups.clone();
            scheduler.spawn(async move { groups.broadcast("group", n).ok() }).join()
        };
        (1..4).for_each(|n| assert_eq!(speaks(n), Ok(Some(MEMBERS))));
        members.iter().for_each(|member| member.cancel());
        for member in members {
            assert_eq!(member.join(), Ok(vec![0, 1, 2, 3]));
        }
        assert_conserved(&scheduler);
    }
}

/// The members of all kinds beside each other, so that some are woken together and others alone.
#[test]
fn members_of_all_kinds_are_served_in_one_broadcast() {
    let scheduler = driven();
    let other = driven();
    let far = other.start(hear);
    scheduler.block_on(async {
        let groups = Groups::new();
        let bound = SpawnOptions::new().affinity(0).start(hear);
        let full = SpawnOptions::new().mailbox(1, WhenFull::Kill).start(hear);
        let deaf = start(|mut cx: Context<String>| async move { cx.recv().await });
        let plain: Vec<_> = (0..200).map(|_| start(hear)).collect();
        procession::yield_now().await;
        for (at, member) in plain.iter().enumerate() {
            groups.join("group", member.pid()).expect("it is alive");
            match at {
                3 => groups.join("group", far.pid()),
                20 => groups.join("group", bound.pid()),
                21 => groups.join("group", full.pid()),
                63 => groups.join("group", deaf.pid()),
                _ => Ok(()),
            }
            .expect("it is alive");
        }
        let speaker = start({
            let (groups, full) = (groups.clone(), full.address().clone());
            move |mut cx: Context<u32>| async move {
                groups.join("group", cx.pid()).expect("it is alive");
                full.send(0).expect("there is room");
                let error = groups.broadcast("group", 7_u32).expect_err("one receives texts");
                (error.accepted(), cx.recv().await)
            }
        });
        // The full one ends, and the deaf one receives texts.
        assert_eq!(speaker.await, Ok((203, Some(7))));
        assert_eq!(full.await, Err(Exit::MailboxFull));
        bound.cancel();
        plain.iter().for_each(|member| member.cancel());
        assert_eq!(bound.await, Ok(vec![7]));
        for member in plain {
            assert_eq!(member.await, Ok(vec![7]));
        }
        deaf.cancel();
    });
    far.cancel();
    assert_eq!(other.block_on(far), Ok(vec![7]));
    assert_conserved(&scheduler);
    assert_conserved(&other);
}

/// Panics when it is cloned the last time.
struct Brittle(Arc<Mutex<usize>>);

impl Clone for Brittle {
    fn clone(&self) -> Self {
        let left = *self.0.lock();
        if left == 0 {
            panic_quietly("no more clones");
        }
        *self.0.lock() = left - 1;
        Self(Arc::clone(&self.0))
    }
}

#[test]
fn members_before_a_clone_that_panics_have_the_message() {
    const CLONES: usize = 70;
    let scheduler = driven();
    scheduler.block_on(async {
        let groups = Groups::new();
        let hears = |mut cx: Context<Brittle>| async move { cx.recv().await.is_some() };
        let members: Vec<_> = (0..100).map(|_| start(hears)).collect();
        for member in &members {
            groups.join("group", member.pid()).expect("it is alive");
        }
        procession::yield_now().await;
        let speaker = spawn(async move {
            groups.broadcast("group", Brittle(Arc::new(Mutex::new(CLONES)))).ok()
        });
        assert_eq!(speaker.await, Err(Exit::Panicked("no more clones".into())));
        members.iter().skip(CLONES).for_each(|member| member.cancel());
        for (at, member) in members.into_iter().enumerate() {
            assert_eq!(member.await, Ok(at < CLONES), "{at}");
        }
    });
    assert_conserved(&scheduler);
}

/// Panics when the first clone is dropped.
#[derive(Clone)]
struct Fused(Arc<Mutex<bool>>);

impl Drop for Fused {
    fn drop(&mut self) {
        if std::mem::take(&mut *self.0.lock()) {
            panic_quietly("dropped");
        }
    }
}

#[test]
fn members_behind_one_that_refuses_have_the_message_although_its_drop_panics() {
    for deaf_at in [0, 5, 64] {
        let scheduler = driven();
        scheduler.block_on(async {
            let groups = Groups::new();
            let hears = |mut cx: Context<Fused>| async move {
                cx.recv().await.map(std::mem::forget).is_some()
            };
            let deaf = start(|mut cx: Context<String>| async move { cx.recv().await });
            let members: Vec<_> = (0..100).map(|_| start(hears)).collect();
            for (at, member) in members.iter().enumerate() {
                if at == deaf_at {
                    // The error keeps the first message that it refuses, and not the second.
                    (0..2).for_each(|_| groups.join("group", deaf.pid()).expect("it is alive"));
                }
                groups.join("group", member.pid()).expect("it is alive");
            }
            procession::yield_now().await;
            let fuse = Arc::new(Mutex::new(true));
            let message = Fused(Arc::clone(&fuse));
            let speaker = spawn(async move { groups.broadcast("group", message) });
            let error = speaker.await.expect("it returns").expect_err("one receives texts");
            assert_eq!(error.accepted(), 100, "{deaf_at}");
            assert!(!*fuse.lock(), "the refused one was dropped");
            for member in members {
                assert_eq!(member.await, Ok(true));
            }
            deaf.cancel();
        });
        assert_conserved(&scheduler);
    }
}

/// The messages of a broadcast share memory. Members receive all of them, or return after some, or
/// are cancelled while messages wait.
#[test]
fn the_messages_of_a_broadcast_are_dropped_once_however_members_end() {
    const MEMBERS: usize = 300;
    const MESSAGES: usize = 40;
    let scheduler = threaded(2);
    let (groups, message) = (Groups::new(), Arc::new(()));
    let members: Vec<_> = (0..MEMBERS)
        .map(|at| {
            let count = [MESSAGES, MESSAGES / 2, usize::MAX][at % 3];
            let member = scheduler.start(move |mut cx: Context<Arc<()>>| async move {
                let mut received = 0;
                while received < count && cx.recv().await.is_some() {
                    received += 1;
                }
                received
            });
            groups.join("group", member.pid()).expect("it is alive");
            member
        })
        .collect();
    let speaker = {
        let (groups, message) = (groups.clone(), Arc::clone(&message));
        scheduler.spawn(async move {
            for _ in 0..MESSAGES {
                groups.broadcast("group", Arc::clone(&message)).expect("it has members");
            }
        })
    };
    members.iter().skip(2).step_by(3).for_each(|member| member.cancel());
    assert_eq!(speaker.join(), Ok(()));
    for (at, member) in members.into_iter().enumerate() {
        let received = member.into_parts().1.join().expect("it returns");
        match at % 3 {
            0 => assert_eq!(received, MESSAGES),
            1 => assert_eq!(received, MESSAGES / 2),
            _ => assert!(received <= MESSAGES),
        }
    }
    assert_conserved(&scheduler);
    drop(scheduler);
    assert_eq!(Arc::strong_count(&message), 1, "each clone is dropped once");
}

#[test]
fn ends_against_joins_leave_no_member() {
    let scheduler = threaded(2);
    let groups = Groups::new();
    let (_, mut monitor) = groups.monitor("group");
    for _ in 0..500 {
        let short = scheduler.spawn(async {});
        let pid = short.pid();
        let joins: Vec<_> = (0..2)
            .map(|_| {
                let groups = groups.clone();
                scheduler.spawn(async move {
                    for _ in 0..5 {
                        let _ = groups.join("group", pid);
                    }
                    groups.leave("group", pid);
                })
            })
            .collect();
        for join in joins {
            procession::timeout(TIMEOUT, join).wait().expect("it comes soon").expect("it returns");
        }
        assert_eq!(short.join(), Ok(()));
        assert!(groups.groups_of(pid).is_empty() && groups.members("group").is_empty());
    }
    let mut balance = 0_i64;
    while let Ok(event) = monitor.try_recv() {
        balance += if matches!(event, GroupEvent::Join { .. }) { 1 } else { -1 };
        assert!(balance >= 0, "a member leaves after it has joined");
    }
    assert_eq!(balance, 0, "each join has a leave");
}
