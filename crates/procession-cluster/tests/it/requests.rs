//! The request that a message belongs to, which goes with it to another node.

use procession::mailbox::request::{self, RequestContext};
use procession::{Context, Scheduler, start};
use procession_cluster::{Grants, Letter, Remote, Term};

use crate::{PATIENCE, pair};

const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

/// Returns the trace context that the running process works for.
fn worked_for() -> String {
    request::context().map_or_else(|| "none".to_owned(), |context| context.traceparent())
}

/// Answers each call with the trace context that the process works for.
async fn tell(mut cx: Context<Letter>) {
    while let Some(letter) = cx.recv().await {
        if let Letter::Call { reply, .. } = letter {
            let said = request::context().map_or_else(
                || "none".to_owned(),
                |context| format!("{} {}", context.traceparent(), context.state().unwrap_or("-")),
            );
            reply.send(Term::from(said)).expect("the caller is connected");
        }
    }
}

#[test]
fn a_call_belongs_to_the_request_of_its_caller_on_another_node() {
    let builder = Scheduler::builder().worker_threads(2).request_ids(true);
    builder.build().expect("it can be built").block_on(async {
        let (a, b) = pair().await;
        let server = start(tell);
        let member = b.attach(&server.address().map(|letter| letter));
        b.register("tells", &member).expect("the name is free");
        let ask = || a.call(Remote::named("tells", "b@127.0.0.1"), Term::atom("who"), PATIENCE);
        let context: RequestContext = PARENT.parse().expect("it is valid");
        for (context, said) in [
            (context.clone(), format!("{PARENT} -")),
            (context.with_state("a=1"), format!("{PARENT} a=1")),
        ] {
            let reply = request::scope(context, ask()).await.expect("it replies");
            assert_eq!(reply, Term::from(said));
            // Of two calls, the second is not of the request of the first.
            assert_eq!(ask().await.expect("it replies"), Term::from("none"));
        }
        server.cancel();
    });
}

#[test]
fn a_function_works_for_the_request_of_its_caller_on_another_node() {
    let builder = Scheduler::builder().worker_threads(2).request_ids(true);
    builder.build().expect("it can be built").block_on(async {
        let (a, b) = pair().await;
        b.grant("a@127.0.0.1", Grants::new().spawn("shop", "tells")).expect("it names a node");
        b.export_function("shop", "tells", 0, |_| async { Ok(Term::from(worked_for())) });
        let ask = || a.apply("b@127.0.0.1", "shop", "tells", Vec::new(), PATIENCE);
        let context: RequestContext = PARENT.parse().expect("it is valid");
        let told = request::scope(context, ask()).await;
        assert_eq!(told.ok(), Some(Term::from(PARENT)));
        assert_eq!(ask().await.ok(), Some(Term::from("none")));
    });
}

#[cfg(feature = "serde")]
mod keys {
    use procession::mailbox::request::{self, RequestContext};
    use procession::{Reply, Scheduler};
    use procession_cluster::shards::{KeyContext, Shards};
    use serde::{Deserialize, Serialize};

    use super::{PARENT, worked_for};
    use crate::{PATIENCE, pair, until};

    #[derive(Debug, Serialize, Deserialize)]
    struct Tell(#[serde(with = "procession_cluster::serialize::reply")] Reply<String>);

    async fn tell_by_key(mut cx: KeyContext<u32, Tell, ()>) -> Option<()> {
        while let Some(Tell(reply)) = cx.recv().await {
            reply.send(worked_for());
        }
        None
    }

    /// Goal: the process of a key works for the request of the message, on its own node and on
    /// another one, and for none after it.
    #[test]
    fn a_message_to_a_key_belongs_to_the_request_of_its_sender() {
        let builder = Scheduler::builder().worker_threads(2).request_ids(true);
        builder.build().expect("it can be built").block_on(async {
            let (a, b) = pair().await;
            let [of_a, of_b] = [&a, &b].map(|node| {
                Shards::builder("tells")
                    .shards(32)
                    .start(node, tell_by_key)
                    .expect("the name is free")
            });
            until(|| of_a.status().shards + of_b.status().shards == 32).await;
            let context: RequestContext = PARENT.parse().expect("it is valid");
            for key in 0..20 {
                let asked = || of_a.call(&key, Tell, PATIENCE);
                let told = request::scope(context.clone(), asked()).await;
                assert_eq!(told.ok().as_deref(), Some(PARENT));
                assert_eq!(asked().await.ok().as_deref(), Some("none"));
            }
            assert!(of_b.status().handled > 0, "both nodes have keys");
        });
    }
}
