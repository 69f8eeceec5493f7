//! Servers: calls, casts, notices, timeouts and ends.

use std::time::Duration;

use procession::behaviour::{Info, Server, ServerContext};
use procession::mailbox::call;
use procession::process::Named;
use procession::{Exit, Pid, Reply, SpawnOptions, spawn, start};

use crate::scene::{assert_conserved, driven};

const SECOND: Duration = Duration::from_secs(1);

/// Writes down what comes.
#[derive(Default)]
struct Log(Vec<String>, Option<Reply<Vec<String>>>);

enum Act {
    /// Answered at once.
    Seen(Reply<Vec<String>>),
    Count(Reply<usize>),
    /// Answered later.
    Later(Reply<Vec<String>>),
    Note(&'static str),
    Watch(Pid),
    Wait(Duration),
    Answer,
    Stop(Exit),
}

impl Server for Log {
    type Message = Act;

    async fn init(&mut self, _: &mut ServerContext<Self>) -> Result<(), Exit> {
        if self.0.is_empty() { Ok(()) } else { Err(Exit::failed("not empty")) }
    }

    async fn handle(&mut self, act: Act, cx: &mut ServerContext<Self>) {
        match act {
            Act::Seen(reply) => reply.send(self.0.clone()),
            Act::Count(reply) => reply.send(self.0.len()),
            Act::Later(reply) => self.1 = Some(reply),
            Act::Note(text) => self.0.push(text.into()),
            Act::Watch(pid) => drop(cx.monitor(pid)),
            Act::Wait(timeout) => cx.set_timeout(timeout),
            Act::Answer => self.1.take().expect("a call waits").send(vec!["late".into()]),
            Act::Stop(exit) => {
                cx.stop(exit);
                cx.stop(Exit::failed("the second exit does not count"));
            }
        }
    }

    async fn handle_info(&mut self, info: Info, _: &mut ServerContext<Self>) {
        if let Info::Down(down) = info {
            self.0.push(down.exit.to_string());
        }
    }

    async fn handle_timeout(&mut self, _: &mut ServerContext<Self>) {
        self.0.push("timeout".into());
    }

    async fn terminate(&mut self, exit: &Exit, _: &mut ServerContext<Self>) {
        if let Some(reply) = self.1.take() {
            reply.send(vec![exit.to_string()]);
        }
    }
}

#[test]
fn messages_and_notices_come_in_order() {
    let scheduler = driven();
    scheduler.block_on(async {
        let server = start(|cx| Log::default().serve(cx));
        let watched = spawn(async {});
        server.send(Act::Note("first")).expect("it is alive");
        assert_eq!(server.call(Act::Seen, SECOND).await.ok(), Some(vec!["first".into()]));
        server.send(Act::Watch(watched.pid())).expect("it is alive");
        watched.await.expect("it returns");
        procession::sleep(SECOND).await;
        let seen = server.call(Act::Seen, SECOND).await.expect("it answers");
        assert_eq!(seen.len(), 2);
        let late = spawn({
            let server = server.address().clone();
            async move { server.call(Act::Later, SECOND).await.ok() }
        });
        procession::yield_now().await;
        server.send(Act::Answer).expect("it is alive");
        assert_eq!(late.await, Ok(Some(vec!["late".into()])));
        server.cancel();
        assert_eq!(server.await, Ok(Exit::Normal));
    });
    assert_conserved(&scheduler);
}

#[test]
fn anything_that_comes_ends_a_timeout() {
    driven().block_on(async {
        let server = start(|cx| Log::default().serve(cx));
        server.send(Act::Wait(SECOND)).expect("it is alive");
        procession::sleep(2 * SECOND).await;
        server.send(Act::Wait(SECOND)).expect("it is alive");
        server.send(Act::Note("before")).expect("it is alive");
        procession::sleep(2 * SECOND).await;
        let seen = server.call(Act::Seen, SECOND).await.expect("it answers");
        assert_eq!(seen, ["timeout", "before"]);
    });
}

#[test]
fn a_stop_terminates_and_its_first_exit_counts() {
    driven().block_on(async {
        let server = start(|cx| Log::default().serve(cx));
        let address = server.address().clone();
        let waits = spawn(async move { address.call(Act::Later, SECOND).await.ok() });
        procession::yield_now().await;
        server.send(Act::Stop(Exit::Shutdown)).expect("it is alive");
        server.send(Act::Note("never")).expect("it is alive");
        assert_eq!(server.await, Ok(Exit::Shutdown));
        assert_eq!(waits.await, Ok(Some(vec![Exit::Shutdown.to_string()])));
        let refused = start(|cx| Log(vec!["full".into()], None).serve(cx));
        assert_eq!(refused.await, Ok(Exit::failed("not empty")));
    });
}

/// Goal: a server under a name is used as one with an address, and each call has its own answer.
#[test]
fn each_call_has_its_own_answer_by_address_and_by_name() {
    driven().block_on(async {
        let options = SpawnOptions::new().name("log");
        let server = options.start(|cx| Log::default().serve(cx));
        let named: Named<Act> = Named::new("log");
        named.send(Act::Note("by name")).expect("it is there");
        assert_eq!(named.call(Act::Count, SECOND).await.ok(), Some(1));
        assert_eq!(server.call(Act::Count, SECOND).await.ok(), Some(1));
        assert_eq!(named.call(Act::Seen, SECOND).await.ok(), Some(vec!["by name".into()]));
        assert_eq!(call(server.pid(), Act::Count, SECOND).await.ok(), Some(1));
    });
}
