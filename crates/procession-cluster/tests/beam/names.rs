//! Names that a node of the BEAM knows and claims.

use std::net::Ipv4Addr;

use procession::{Context, Exit, Scheduler};
use procession_cluster::Term;

use super::otp::run_escript;
use super::{builder, start_epmd};

#[test]
fn names_are_known_and_claimed_on_the_beam() {
    if std::env::var_os("PROCESSION_ERL").is_none() {
        return;
    }
    start_epmd();
    let scheduler = Scheduler::builder().worker_threads(2).build().expect("it can be built");
    let builder = builder("names@127.0.0.1", None).listen((Ipv4Addr::LOCALHOST, 0).into());
    let node = scheduler.block_on(builder.visible().register().start()).expect("it starts");
    let names = node.share_names("names").expect("the name is free");
    let counter = scheduler.start(|mut cx: Context<()>| async move { cx.recv().await });
    names.claim("counter", counter.pid()).expect("the name is free");
    let known = scheduler.spawn(async move {
        let leader = loop {
            match (names.owner("leader"), names.owner("counter")) {
                (Some(leader), Some(counter)) if leader == counter => break leader,
                _ => procession::yield_now().await,
            }
        };
        procession::mailbox::send(leader, Term::atom("both_are_known")).is_ok()
    });
    assert_eq!(run_escript("names.escript", &["names@127.0.0.1"]), "done\n");
    assert_eq!(known.join(), Ok(true));
    assert_eq!(counter.join(), Err(Exit::NameLost("counter".into())));
    scheduler.block_on(node.stop());
}
