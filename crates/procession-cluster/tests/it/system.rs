//! Requests of OTP that a process of this crate answers through its node.

use procession::{Context, start};
use procession_cluster::{Grants, Letter, Member, Node, NodePid, Term};

use crate::{attach, next, pair, run};

/// A request to a process, with a reference that no other request has.
fn ask(own: &Member, to: &NodePid, head: Term, request: Term) {
    // The monitor of a process that does not exist.
    let nobody = NodePid { id: 1 << 20, ..to.clone() };
    let tag = Term::from(own.monitor(nobody));
    let from = Term::tuple([own.pid().into(), tag]);
    own.send(to, Term::tuple([head, from, request])).expect("it is connected");
}

/// Asks by `sys`, and returns the reply.
async fn sys(cx: &mut Context<Letter>, own: &Member, to: &NodePid, request: Term) -> Term {
    ask(own, to, Term::atom("system"), request);
    loop {
        if let Letter::Message { term, .. } = next(cx).await
            && let Some([Term::Reference(_), reply]) = term.as_tuple()
        {
            return reply.clone();
        }
    }
}

/// Starts a process that shows a field and keeps what comes.
fn shown(node: &Node) -> (procession::Child<Letter, Vec<String>>, NodePid) {
    let process = start(|mut cx: Context<Letter>| async move {
        let _shown = cx.inspect_with(|out| {
            out.field("count", 7);
        });
        let mut come = Vec::new();
        while let Some(letter) = cx.recv().await {
            if let Letter::Message { term, .. } = letter {
                come.push(term.to_string());
            }
        }
        come
    });
    let pid = node.attach(&process.address().map(|letter| letter)).pid();
    (process, pid)
}

#[test]
fn a_process_is_looked_at_held_and_ended_by_sys() {
    run(async {
        let (a, b) = pair().await;
        b.grant("a@127.0.0.1", Grants::new().exits().look()).expect("it names a node");
        let (process, pid) = shown(&b);
        let asks = start(move |mut cx: Context<Letter>| async move {
            let own = attach(&a, &cx);
            let cx = &mut cx;
            let word = Term::atom;
            let state = loop {
                let state = sys(cx, &own, &pid, word("get_state")).await;
                // It has not begun yet.
                if state != Term::List(Vec::new()) {
                    break state;
                }
            };
            assert_eq!(state.to_string(), r#"[{<<"count">>,<<"7">>}]"#);
            let status = sys(cx, &own, &pid, word("get_status")).await.to_string();
            assert!(status.contains("{module,procession},[[],running,"), "{status}");
            assert!(sys(cx, &own, &pid, word("suspend")).await.is_atom("ok"));
            own.send(&pid, Term::from(1)).expect("it is connected");
            assert!(sys(cx, &own, &pid, word("resume")).await.is_atom("ok"));
            let traced = Term::tuple([word("debug"), Term::tuple([word("trace"), word("true")])]);
            let refused = sys(cx, &own, &pid, traced).await.to_string();
            assert_eq!(refused, "{error,{unknown_system_msg,{debug,{trace,true}}}}");
            // An event arrives before the reply.
            let event = Term::tuple([word("sync_notify"), Term::from(2)]);
            ask(&own, &pid, own.pid().into(), event);
            let Letter::Message { term, .. } = next_message(cx).await else { panic!("a reply") };
            assert!(term.as_tuple().is_some_and(|items| items[1].is_atom("ok")), "{term}");
            let stop = Term::tuple([word("terminate"), word("normal")]);
            assert!(sys(cx, &own, &pid, stop).await.is_atom("ok"));
        });
        assert_eq!(process.await, Ok(vec!["1".to_owned(), "{notify,2}".to_owned()]));
        asks.await.expect("it ends");
    });
}

/// Returns the next letter that is no end of a monitor.
async fn next_message(cx: &mut Context<Letter>) -> Letter {
    loop {
        match next(cx).await {
            Letter::Down(_) => {}
            letter => return letter,
        }
    }
}

#[test]
fn sys_needs_grants() {
    run(async {
        let (b, a) = pair().await;
        a.revoke("a@127.0.0.1");
        let (process, pid) = shown(&a);
        let asks = start(move |mut cx: Context<Letter>| async move {
            let own = attach(&b, &cx);
            let stop = Term::tuple([Term::atom("terminate"), Term::atom("normal")]);
            let requests = ["get_state", "get_status", "suspend", "resume"].map(Term::atom);
            for request in requests.into_iter().chain([stop]) {
                let reply = sys(&mut cx, &own, &pid, request).await;
                assert_eq!(reply.to_string(), "{error,not_allowed}");
            }
        });
        asks.await.expect("it ends");
        assert_eq!(a.peers()[0].denied, 5);
        process.cancel();
        process.await.expect("it was not ended");
    });
}
