//! Functions that return values to other nodes.

use std::sync::Arc;
use std::time::Duration;

use procession::sync::Notify;
use procession::{Exit, spawn};
use procession_cluster::{ApplyError, Grants, Letter, Node, SendTermCause, StartTermError, Term};

use crate::{PATIENCE, pair, run, until};

const B: &str = "b@127.0.0.1";

/// Adds two numbers. It fails for anything else.
async fn add(terms: Vec<Term>) -> Result<Term, Term> {
    match (terms[0].as_integer(), terms[1].as_integer()) {
        (Some(a), Some(b)) => Ok(Term::from(a + b)),
        _ => Err(Term::tuple([Term::atom("badarith"), terms[0].clone()])),
    }
}

async fn apply(node: &Node, name: &str, terms: Vec<Term>) -> Result<Term, ApplyError> {
    node.apply(B, "shop", name, terms, PATIENCE).await
}

#[test]
fn a_function_returns_its_value_or_its_reason() {
    run(async {
        let (a, b) = pair().await;
        b.export_function("shop", "add", 2, add);
        b.grant("a@127.0.0.1", Grants::new().spawn("shop", "add")).expect("it names a node");
        let sum = apply(&a, "add", vec![3.into(), 4.into()]).await;
        assert_eq!(sum, Ok(Term::from(7)));
        // The caller may be a process.
        let from_process = {
            let a = a.clone();
            spawn(async move { apply(&a, "add", vec![1.into(), 2.into()]).await })
        };
        assert_eq!(from_process.await.expect("it ends"), Ok(Term::from(3)));
        let large = vec![7; 3 << 20];
        let failed = apply(&a, "add", vec![Term::from(large.clone()), 4.into()]).await;
        let reason = Term::tuple([Term::atom("badarith"), Term::from(large)]);
        assert_eq!(failed, Err(ApplyError::Failed(reason)));
        assert_eq!(b.peers()[0].denied, 0);
    });
}

#[test]
fn what_is_not_exported_or_not_granted_is_not_called() {
    run(async {
        let (a, b) = pair().await;
        b.export_function("shop", "add", 2, add);
        b.export("shop", "process", 0, |_, _| async {});
        let numbers = || vec![Term::from(1), Term::from(2)];
        let failed = |word| Err(ApplyError::Failed(Term::atom(word)));
        for _ in 0..5 {
            assert_eq!(apply(&a, "add", numbers()).await, failed("not_allowed"));
        }
        b.grant("a@127.0.0.1", Grants::new().spawn_all()).expect("it names a node");
        assert_eq!(apply(&a, "add", numbers()).await, Ok(Term::from(3)));
        // A refusal takes no number of a process.
        let process = procession::start(async |_: procession::Context<Letter>| {});
        let member = b.attach(&process.address().map(|letter| letter));
        assert!(member.pid().id <= 3, "{}", member.pid());
        // Another arity, another name, and a process that returns nothing.
        for (name, terms) in [("add", vec![]), ("sub", numbers()), ("process", vec![])] {
            assert_eq!(apply(&a, name, terms).await, failed("undef"), "{name}");
        }
        b.revoke("a@127.0.0.1");
        assert_eq!(apply(&a, "add", numbers()).await, failed("not_allowed"));
        assert_eq!(b.peers()[0].denied, 9);
        // Nothing is left of the calls.
        until(|| b.status().attached == 0).await;
        let unknown = a.apply("c@127.0.0.1", "shop", "add", numbers(), PATIENCE).await;
        assert_eq!(unknown, Err(ApplyError::Send(SendTermCause::NoConnection)));
        let long = "x".repeat(256);
        let named = a.apply(B, &long, "add", numbers(), PATIENCE).await;
        assert_eq!(named, Err(ApplyError::Name(long)));
    });
}

#[test]
fn a_function_can_be_started_without_its_value() {
    run(async {
        let (a, b) = pair().await;
        b.export_function("shop", "add", 2, add);
        b.grant("a@127.0.0.1", Grants::new().spawn("shop", "add")).expect("it names a node");
        let ends = {
            let a = a.clone();
            procession::start(move |mut cx: procession::Context<()>| async move {
                let mut exits = Vec::new();
                for terms in [vec![1.into(), 2.into()], vec![Term::atom("x"), 2.into()]] {
                    let started = a.spawn_monitor(B, "shop", "add", terms, PATIENCE).await;
                    let (_, monitor) = started.expect("it is exported");
                    exits.push(cx.down(monitor).await.expect("it is not cancelled").exit);
                }
                exits
            })
        };
        let exits = ends.await.expect("it ends");
        assert_eq!(exits[0], Exit::Normal);
        assert!(matches!(&exits[1], Exit::Failed(why) if why.to_string() == "{badarith,x}"));
        // A cast of `erpc`, which nothing answers.
        let cast = vec![Term::atom("shop"), Term::atom("add"), Term::list([1.into(), 2.into()])];
        a.spawn(B, "erpc", "execute_cast", cast, PATIENCE).await.expect("it is exported");
        let wrong = a.spawn(B, "erpc", "execute_call", vec![], PATIENCE).await;
        assert!(
            matches!(wrong, Err(StartTermError::Refused(why)) if why.as_str() == "not_allowed")
        );
    });
}

/// Goal: a caller learns the end of a call if its value cannot be sent.
#[test]
fn a_value_that_cannot_be_sent_ends_the_call() {
    run(async {
        let (a, b) = pair().await;
        b.export_function("shop", "value", 2, async |terms| {
            let nested = |depth| (0..depth).fold(Term::from(1), |term, _| Term::tuple([term]));
            let value = match terms[0].as_integer() {
                Some(0) => Term::from(f64::NAN),
                Some(1) => Term::Map(vec![(1.into(), 2.into()), (1.into(), 3.into())]),
                _ => nested(127),
            };
            if terms[1].is_atom("ok") { Ok(value) } else { Err(value) }
        });
        b.grant("a@127.0.0.1", Grants::new().spawn_all()).expect("it names a node");
        for kind in 0..3 {
            for form in ["ok", "error"] {
                let ended = apply(&a, "value", vec![Term::from(kind), Term::atom(form)]).await;
                let exit = Exit::failed("unencodable");
                assert_eq!(ended, Err(ApplyError::Ended(exit)), "{kind} {form}");
            }
        }
        assert_eq!(b.peers().len(), 1);
    });
}

/// Goal: a value beyond the limit ends the call, and not the connection.
#[test]
fn a_value_that_is_too_long_ends_the_call() {
    run(async {
        let (a, b) = pair().await;
        b.export_function("shop", "long", 0, async |_| Ok(Term::from(vec![7; 65 << 20])));
        b.grant("a@127.0.0.1", Grants::new().spawn_all()).expect("it names a node");
        for _ in 0..2 {
            let ended = apply(&a, "long", vec![]).await;
            assert_eq!(ended, Err(ApplyError::Ended(Exit::failed("too_large"))));
        }
        assert!(b.status().ends.is_empty());
    });
}

#[test]
fn a_function_that_panics_or_does_not_return_has_no_value() {
    run(async {
        let (a, b) = pair().await;
        b.export_function("shop", "panics", 0, |_| async { panic!("no value") });
        let entered = Arc::new(Notify::new());
        let enters = Arc::clone(&entered);
        b.export_function("shop", "hangs", 0, move |_| {
            enters.notify_one();
            std::future::pending()
        });
        b.grant("a@127.0.0.1", Grants::new().spawn_all()).expect("it names a node");
        let ended = apply(&a, "panics", vec![]).await;
        assert_eq!(ended, Err(ApplyError::Ended(Exit::Panicked("no value".into()))));
        let limit = Duration::from_millis(50);
        let late = a.apply(B, "shop", "hangs", vec![], limit).await;
        assert_eq!(late, Err(ApplyError::TimedOut));
        entered.notified().await;
        let hangs = {
            let a = a.clone();
            spawn(async move { apply(&a, "hangs", vec![]).await })
        };
        entered.notified().await;
        assert!(b.disconnect("a@127.0.0.1"));
        assert_eq!(hangs.await.expect("it ends"), Err(ApplyError::NoConnection));
    });
}
