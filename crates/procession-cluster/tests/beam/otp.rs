//! What an Erlang user expects of any process, in `otp.escript`, and what a node without grants
//! gives.

use std::net::Ipv4Addr;
use std::process::Command;

use procession::mailbox::request;
use procession::{Context, Scheduler, start};
use procession_cluster::{Grants, Letter, Node, NodeBuilder, Term};

use super::{FOLDER, attach, builder, pid, start_epmd, worker};

/// Runs an escript of this folder, and returns what it prints.
pub(super) fn run_escript(name: &str, arguments: &[&str]) -> String {
    let mut script = Command::new("escript");
    let output = script.arg(format!("{FOLDER}/{name}")).args(arguments).output();
    let output = output.expect("Erlang is installed");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{name}:\n{out}\n{err}");
    out
}

/// Answers each call with its request, shows how many there were, sends back events, and starts
/// workers.
async fn echo(mut cx: Context<Letter>, node: Node) {
    let own = attach(&node, &cx);
    let calls = std::sync::Arc::new(procession_sync::atomic::AtomicU64::new(0));
    let shown = std::sync::Arc::clone(&calls);
    let _shown = cx.inspect_with(move |out| {
        out.field("calls", shown.load(procession_sync::atomic::Ordering::Relaxed));
    });
    while let Some(letter) = cx.recv().await {
        match letter {
            Letter::Call { request, reply } => {
                calls.fetch_add(1, procession_sync::atomic::Ordering::Relaxed);
                reply.send_wait(request).await.expect("it can be sent");
            }
            Letter::Message { term, .. } => match term.as_tuple() {
                Some([word, event]) if word.is_atom("notify") => {
                    let [_, to, _] = event.as_tuple().expect("it is an event") else { continue };
                    own.send(pid(to), term.clone()).expect("it is connected");
                }
                Some([word, to]) if word.is_atom("request") => {
                    let context = request::context().expect("the message has one");
                    let (parent, state) = (context.traceparent(), context.state().unwrap_or(""));
                    let told = [word.clone(), parent.into(), state.into()];
                    own.send(pid(to), Term::tuple(told)).expect("it is connected");
                }
                Some([word, to]) if word.is_atom("start") => {
                    let node = node.clone();
                    let started = {
                        let node = node.clone();
                        start(move |cx| worker(cx, node, Term::atom("wait")))
                    };
                    let started = node.attach(&started.address().map(|letter| letter)).pid();
                    let told = Term::tuple([Term::atom("started"), started.into()]);
                    own.send(pid(to), told).expect("it is connected");
                }
                other => panic!("{other:?} came"),
            },
            _ => {}
        }
    }
}

/// Starts a node with an echo.
fn start_node(scheduler: &Scheduler, builder: NodeBuilder) -> Node {
    let builder = builder.listen((Ipv4Addr::LOCALHOST, 0).into()).register();
    let node = scheduler.block_on(builder.start()).expect("it starts");
    let serves = node.clone();
    let server = scheduler.start(move |cx| echo(cx, serves));
    let member = node.attach(&server.address().map(|letter| letter));
    node.register("echo", &member).expect("the name is free");
    node
}

#[test]
fn an_erlang_user_finds_what_a_process_has() {
    if std::env::var_os("PROCESSION_ERL").is_none() {
        return;
    }
    start_epmd();
    const OWN: &str = "otp@127.0.0.1";
    let scheduler =
        Scheduler::builder().worker_threads(2).request_ids(true).build().expect("it can be built");
    let granted = builder(OWN, None).grant("*", Grants::new().exits().look()).visible();
    let node = start_node(&scheduler, granted);
    assert_eq!(run_escript("otp.escript", &[OWN]), "done\n");
    scheduler.block_on(node.stop());
}

/// Goal: without grants, requests of `sys` are refused immediately, and a link harms nobody.
#[test]
fn without_a_grant_an_erlang_user_is_refused_and_not_ended() {
    if std::env::var_os("PROCESSION_ERL").is_none() {
        return;
    }
    start_epmd();
    const OWN: &str = "ungranted@127.0.0.1";
    let scheduler = Scheduler::builder().worker_threads(2).build().expect("it can be built");
    let cookie = procession_cluster::Cookie::new("secret").expect("it has a text");
    let node = start_node(&scheduler, Node::builder(OWN).cookie(cookie));
    let ask = format!(
        "pong = net_adm:ping('{OWN}'),
         [] = nodes(),
         Echo = {{echo, '{OWN}'}},
         {{error, not_allowed}} = sys:suspend(Echo),
         {{'EXIT', {{not_allowed, _}}}} = (catch sys:get_state(Echo)),
         {{'EXIT', _}} = (catch gen_server:stop(Echo, normal, 5000)),
         Echo ! {{start, self()}},
         Pid = receive {{started, Started}} -> Started end,
         {{_, Gone}} = spawn_monitor(fun() -> link(Pid), exit(boom) end),
         receive {{'DOWN', Gone, _, _, boom}} -> ok end,
         link(Pid),
         hello = gen_server:call(Echo, hello),
         process_flag(trap_exit, true),
         Pid ! {{stop, shutdown}},
         receive {{'EXIT', Pid, shutdown}} -> halt() end."
    );
    let mut erl = Command::new("erl");
    erl.args(["-noinput", "-name", "ungranted_asks@127.0.0.1", "-setcookie", "secret"]);
    let output = erl.args(["-eval", &ask]).output().expect("it is installed");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
    scheduler.block_on(node.stop());
}
