//! The request that a message belongs to, which goes with it to another node.

use procession::mailbox::request::{self, RequestContext};
use procession::{Context, Scheduler, start};
use procession_cluster::{Letter, Remote, Term};

use crate::{PATIENCE, pair};

const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

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
