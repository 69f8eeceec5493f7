//! Groups with members on the BEAM and here.

use std::net::Ipv4Addr;
use std::time::Duration;

use procession::process::{GroupEvent, Groups};
use procession::{Context, Pid, Scheduler, timeout};
use procession_cluster::{Letter, Node, Term};

use super::otp::run_escript;
use super::{LIMIT, builder, start_epmd};

/// The scope and the group of a program with Phoenix.PubSub.
const SCOPE: &str = "Elixir.Phoenix.PubSub";
const GROUP: &str = "Elixir.Shop.PubSub.Adapter";

/// A member that does what messages say: it forwards topics to the groups of others, joins and
/// leaves.
async fn member(mut cx: Context<Letter>, groups: Groups) {
    let own = cx.pid();
    while let Some(letter) = cx.recv().await {
        let Letter::Message { term, .. } = letter else { continue };
        match term.as_tuple() {
            Some([word, topic, message, dispatcher]) if word.is_atom("forward_to_local") => {
                let came = Term::tuple([Term::atom("came"), message.clone()]);
                let parts = [word.clone(), topic.clone(), came, dispatcher.clone()];
                // The scope may still have to enter the members there.
                while others(&groups, GROUP).is_empty() || groups.members("{room,7}").len() < 2 {
                    procession::yield_now().await;
                }
                for far in others(&groups, GROUP) {
                    let message = Term::tuple(parts.clone());
                    procession::mailbox::send(far, message).expect("it is connected");
                }
                let sent = groups.broadcast("{room,7}", Term::atom("twice"));
                assert_eq!(sent.expect("it has members"), 2);
            }
            Some([word, group]) => {
                let group = group.to_text().expect("it is a name");
                match word.to_text().as_deref() {
                    Some("join") => groups.join(group, own).expect("it runs"),
                    Some("leave") => assert!(groups.leave(&group, own)),
                    _ => return,
                }
            }
            _ => panic!("{term} came"),
        }
    }
}

fn others(groups: &Groups, group: &str) -> Vec<Pid> {
    let local = groups.local_members(group);
    groups.members(group).into_iter().filter(|pid| !local.contains(pid)).collect()
}

#[test]
fn groups_have_the_members_of_both_kinds_of_nodes() {
    if std::env::var_os("PROCESSION_ERL").is_none() {
        return;
    }
    start_epmd();
    // A visible node is asked by a scope that starts later. A hidden one asks for itself.
    for (own, is_visible) in [("seen", true), ("unseen", false)] {
        for (kind, order) in [("visible", "scope"), ("visible", "connection"), ("hidden", "scope")]
        {
            let scheduler = Scheduler::builder().worker_threads(2).build();
            let scheduler = scheduler.expect("it can be built");
            // EPMD may still know the node before.
            let own = format!("{own}_{kind}_{order}@127.0.0.1");
            let mut builder = builder(&own, None).listen((Ipv4Addr::LOCALHOST, 0).into());
            if is_visible {
                builder = builder.visible();
            }
            let node = scheduler.block_on(builder.register().start()).expect("it starts");
            check(&scheduler, &node, kind, order);
            scheduler.block_on(node.stop());
        }
    }
}

fn check(scheduler: &Scheduler, node: &Node, kind: &str, order: &str) {
    let groups = Groups::new();
    let shared = node.share_groups(SCOPE, &groups).expect("the name is free");
    let joins = groups.clone();
    let process = scheduler.start(move |cx| member(cx, joins));
    node.attach(&process.address().map(|letter| letter));
    groups.join(GROUP, process.pid()).expect("it runs");
    let (_, mut changes) = groups.monitor("{room,7}");
    let said = run_escript("groups.escript", &[node.name().as_str(), kind, order]);
    assert_eq!(said, "done\n", "{kind} {order}");
    process.join().expect("it ends");
    // The other node has ended, and its members with it.
    scheduler.block_on(async {
        let mut left = [false; 4];
        for (at, is_leave) in left.iter_mut().enumerate() {
            let change = timeout(LIMIT, changes.recv()).await.expect("it comes in time");
            *is_leave = matches!(change, GroupEvent::Leave { .. });
            assert!(at < 2 || *is_leave, "{change:?}");
        }
        assert_eq!(left, [false, false, true, true]);
        let empty = async {
            while !groups.groups().is_empty() {
                procession::sleep(Duration::from_millis(1)).await;
            }
        };
        timeout(LIMIT, empty).await.expect("all have left");
    });
    shared.stop();
}
