//! Nodes that permit only what is granted: sends, calls and monitors.

use procession::mailbox::relay::RelayCause;
use procession::mailbox::send;
use procession::{Context, Exit, start};
use procession_cluster::{
    CallTermError, Grants, Letter, Node, NodePid, Remote, SendTermCause, StatusError, Term,
};

use crate::{PATIENCE, attach, connect, listens, next, run, seen_by, until};

/// Counts the messages that are no calls, and returns their number. It replies to calls with that.
async fn counts(mut cx: Context<Letter>) -> u32 {
    let mut count = 0;
    while let Some(letter) = cx.recv().await {
        match letter {
            Letter::Call { reply, .. } => reply.send(Term::from(count)).expect("it is connected"),
            _ => count += 1,
        }
    }
    count
}

/// Starts a process that counts, and names it. Also returns its PID for other nodes.
fn register(node: &Node, name: &str) -> (procession::Child<Letter, u32>, NodePid) {
    let process = start(counts);
    let member = node.attach(&process.address().map(|letter| letter));
    node.register(name, &member).expect("the name is free");
    (process, member.pid())
}

/// Starts two nodes, of which the second permits only these grants to the first.
async fn pair(grants: Grants) -> (Node, Node) {
    let a = listens("a@127.0.0.1").start().await.expect("it starts");
    let b = listens("b@127.0.0.1").grants_only().grant("a@127.0.0.1", grants);
    let b = b.start().await.expect("it starts");
    connect(&a, &b).await;
    seen_by(&b, &a).await;
    (a, b)
}

fn of_b(name: &str) -> Remote {
    Remote::named(name, "b@127.0.0.1")
}

/// Waits until a node knows whether it may send to a process.
async fn known(node: &Node, to: &Remote, is_permitted: bool) {
    until(|| node.send(to.clone(), Term::from(0)).is_ok() == is_permitted).await;
}

/// Waits until all that the first node has sent has come, by a call that is granted.
async fn all_came(node: &Node) {
    node.call(of_b("open"), Term::from(7), PATIENCE).await.expect("it is granted");
}

fn denied(node: &Node) -> u64 {
    node.peers()[0].denied
}

/// Goal: a message without a grant returns immediately, in each way of sending. What is granted
/// arrives, and a change has an effect on nodes that are connected.
#[test]
fn a_send_without_a_grant_comes_back() {
    run(async {
        let (a, b) = pair(Grants::new().send("open")).await;
        let [(open, _), (closed, closed_pid)] = ["open", "closed"].map(|name| register(&b, name));
        known(&a, &of_b("closed"), false).await;
        let sender = start({
            let (a, closed_pid) = (a.clone(), closed_pid.clone());
            move |cx: Context<Letter>| async move {
                let own = attach(&a, &cx);
                let before = a.peers()[0].clone();
                for to in [of_b("closed"), of_b("nobody"), Remote::from(&closed_pid)] {
                    let error = own.send(to.clone(), Term::from(7)).expect_err("no grant");
                    assert_eq!(error.cause(), SendTermCause::NotAllowed);
                    assert_eq!(error.into_inner(), Term::from(7));
                    let error =
                        own.send_wait(to.clone(), Term::from(7)).await.expect_err("as well");
                    assert_eq!(error.cause(), SendTermCause::NotAllowed);
                    let error = send(a.pid_of_remote(&to), Term::from(7)).expect_err("as well");
                    assert_eq!(error.relay_cause(), Some(RelayCause::NotAllowed));
                    assert_eq!(error.into_inner(), Term::from(7));
                    let error = own.call(to, Term::from(7), PATIENCE).await.expect_err("as well");
                    let CallTermError::Send(error) = error else { panic!("{error}") };
                    assert_eq!(error.cause(), SendTermCause::NotAllowed);
                }
                let info = &a.peers()[0];
                assert_eq!((info.not_allowed, info.sent), (before.not_allowed + 12, before.sent));
                own.call(of_b("open"), Term::from(7), PATIENCE).await.expect("it is granted");
            }
        });
        sender.await.expect("it ends");
        b.grant("*@127.0.0.1", Grants::new().send_by_pid()).expect("it names nodes");
        known(&a, &closed_pid.clone().into(), true).await;
        all_came(&a).await;
        assert!(a.send(of_b("closed"), Term::from(7)).is_err(), "its name is not granted");
        assert!(b.revoke("*@127.0.0.1"));
        known(&a, &closed_pid.into(), false).await;
        all_came(&a).await;
        b.grant("a@127.0.0.1", Grants::new().send_all()).expect("it names a node");
        known(&a, &of_b("closed"), true).await;
        let call = async || a.call(of_b("closed"), Term::from(7), PATIENCE).await;
        let count = call().await.expect("it is granted");
        // Without the messages that were sent before it was known.
        assert_eq!(count, Term::from(2));
        let before = denied(&b);
        call().await.expect("it is granted");
        assert_eq!(denied(&b), before, "it has learned all by then");
        b.grant("a@127.0.0.1", Grants::new()).expect("it names a node");
        known(&a, &of_b("open"), false).await;
        open.cancel();
        closed.cancel();
        assert_eq!(open.await, Ok(0));
    });
}

/// Goal: a monitor needs a grant to monitor, or to send to the process in this way.
#[test]
fn a_monitor_without_a_grant_is_told_so() {
    run(async {
        let (a, b) = pair(Grants::new().send("open")).await;
        let [(open, open_pid), (closed, _)] = ["open", "closed"].map(|name| register(&b, name));
        let watcher = start({
            let b = b.clone();
            move |mut cx: Context<Letter>| async move {
                let own = attach(&a, &cx);
                for refused in [of_b("closed"), of_b("nobody"), Remote::from(&open_pid)] {
                    let (before, monitor) = (denied(&b), own.monitor(refused));
                    let Letter::Down(down) = next(&mut cx).await else { panic!("it is told") };
                    assert_eq!(down.monitor, monitor);
                    assert!(down.exit.to_string().contains("not_allowed"), "{}", down.exit);
                    assert_eq!(denied(&b), before + 1);
                }
                let monitor = own.monitor(of_b("open"));
                // It was carried out before the call.
                own.call(of_b("open"), Term::from(7), PATIENCE).await.expect("it is granted");
                open.cancel();
                let Letter::Down(down) = next(&mut cx).await else { panic!("it is told") };
                assert_eq!((down.monitor, down.exit), (monitor, Exit::Normal));
                b.grant("a@127.0.0.1", Grants::new().monitor()).expect("it names a node");
                own.monitor(of_b("closed"));
                own.monitor(of_b("nobody"));
                let Letter::Down(down) = next(&mut cx).await else { panic!("it is told") };
                assert_eq!(down.exit, Exit::NoProcess, "only the second one has ended");
            }
        });
        watcher.await.expect("it ends");
        closed.cancel();
    });
}

/// Goal: a node that permits nothing is asked whether it is there, and gets the replies to what it
/// has called.
#[test]
fn replies_need_no_grant() {
    run(async {
        let (a, b) = pair(Grants::new()).await;
        let (process, _) = register(&a, "answers");
        known(&a, &of_b("nobody"), false).await;
        let count = b.call(Remote::named("answers", "a@127.0.0.1"), Term::from(7), PATIENCE).await;
        assert_eq!(count.expect("it replies"), Term::from(0));
        let looks = a.status_of("b@127.0.0.1", PATIENCE).await;
        assert!(matches!(looks, Err(StatusError::Denied)), "{looks:?}");
        a.ping("b@127.0.0.1", PATIENCE).await.expect("it is there");
        process.cancel();
    });
}

/// Goal: a typed message that is not permitted returns with its reply intact.
#[cfg(feature = "serde")]
#[test]
fn a_typed_message_without_a_grant_comes_back() {
    use procession::Reply;
    use serde::{Deserialize, Serialize};

    #[derive(Serialize, Deserialize)]
    struct Ask(u32, #[serde(with = "procession_cluster::serialize::reply")] Reply<u32>);

    run(async {
        let (a, b) = pair(Grants::new().send("open")).await;
        let answers = start(|mut cx: Context<Ask>| async move {
            while let Some(Ask(number, reply)) = cx.recv().await {
                reply.send(number);
            }
        });
        let member = b.attach_as(answers.address());
        b.register("open", &member).expect("the name is free");
        b.register("closed", &member).expect("the name is free");
        known(&a, &of_b("closed"), false).await;
        let [open, closed] = ["open", "closed"].map(|name| a.address::<Ask>(of_b(name)));
        let server = start(move |mut cx: Context<Reply<u32>>| async move {
            let reply = cx.recv().await.expect("a call comes");
            let error = closed.send(Ask(1, reply)).expect_err("it is not permitted");
            assert_eq!(error.relay_cause(), Some(RelayCause::NotAllowed));
            let Ask(_, reply) = error.into_inner();
            reply.send(8);
        });
        let back = server.call(|reply| reply, PATIENCE).await;
        assert_eq!(back.expect("the right to reply came back"), 8);
        assert_eq!(open.call(|reply| Ask(7, reply), PATIENCE).await.expect("it is granted"), 7);
        answers.cancel();
    });
}
