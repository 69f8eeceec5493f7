//! A node among nodes of the BEAM: the same script runs against a node of the BEAM and against one
//! of this crate, and has the same outcomes.
//!
//! It needs `erl`, so it runs only if `PROCESSION_ERL` is set, as `.ci/run cluster` does. Nothing
//! is skipped then.

mod groups;
mod names;
mod otp;
mod script;
mod typed;

use std::net::{Ipv4Addr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use procession::mailbox::Event;
use procession::time::Instant;
use procession::{Context, Exit, Scheduler, start, timeout};
use procession_cluster::{
    Cookie, Grants, Letter, Member, Node, NodeBuilder, NodePid, Remote, Term, Tls,
};

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/beam");

/// Starts the port mapper, if it does not run.
fn start_epmd() {
    let started = Command::new("epmd").arg("-daemon").status().expect("epmd is installed");
    assert!(started.success());
    until("EPMD answers", || TcpStream::connect((Ipv4Addr::LOCALHOST, 4369)).is_ok());
}

/// What scheduling may add to a bound on a machine with other work.
const SLACK: Duration = Duration::from_secs(1);
/// Longer than anything here takes.
const LIMIT: Duration = Duration::from_secs(30);

/// Waits for a condition of another program.
fn until(goal: &str, mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(Instant::now() - start < LIMIT, "{goal}: not within {LIMIT:?}");
        std::thread::yield_now();
    }
}

/// Writes what makes nodes of the BEAM use TLS with the certificates in `tests/tls`. Returns the
/// flags of `erl` for it.
fn tls_flags() -> String {
    let folder = format!("{}/tests/tls", env!("CARGO_MANIFEST_DIR"));
    let side = |name: &str, more: &str| {
        format!(
            "{{{name}, [{{certfile, \"{folder}/node.crt\"}}, {{keyfile, \"{folder}/node.key\"}}, \
             {{cacertfile, \"{folder}/authority.crt\"}}, {{verify, verify_peer}}, \
             {{versions, ['tlsv1.3']}}{more}]}}"
        )
    };
    let server = side("server", ", {fail_if_no_peer_cert, true}");
    let options = format!("[{server}, {}].\n", side("client", ""));
    let path = format!("{}/inet_tls.conf", env!("CARGO_TARGET_TMPDIR"));
    std::fs::write(&path, options).expect("the folder is there");
    format!("-proto_dist inet_tls -ssl_dist_optfile {path}")
}

/// The same certificates for a node of this crate.
fn tls() -> Tls {
    let folder = format!("{}/tests/tls", env!("CARGO_MANIFEST_DIR"));
    let key = format!("{}/beam-node.key", env!("CARGO_TARGET_TMPDIR"));
    std::fs::copy(format!("{folder}/node.key"), &key).expect("the folder is there");
    let secret = std::fs::Permissions::from_mode(0o600);
    std::fs::set_permissions(&key, secret).expect("it is ours");
    let certificate = format!("{folder}/node.crt");
    Tls::read(certificate, key, format!("{folder}/authority.crt")).expect("they fit")
}

/// Runs the script against a node, and returns what it prints.
fn run_script(node: &str, flags: &str) -> String {
    let mut script = Command::new("escript");
    script.arg(format!("{FOLDER}/script.escript")).arg(node).env("ERL_FLAGS", flags);
    let output = script.output().expect("Erlang is installed");
    let text = |bytes| String::from_utf8(bytes).expect("it is text");
    let (out, err) = (text(output.stdout), text(output.stderr));
    assert!(out.ends_with("stop\n"), "the script of {node} did not end:\n{out}\n{err}");
    out
}

/// A node of the BEAM, which ends when it is dropped.
struct Beam(Child);

impl Beam {
    fn start(name: &str, flags: &str) -> Self {
        Self::start_by("-name", name, flags)
    }

    /// Starts a node with a long name or, by `-sname`, a short one.
    fn start_by(kind: &str, name: &str, flags: &str) -> Self {
        // One for each node, since tests run at the same time.
        let folder = format!("{}/{name}", env!("CARGO_TARGET_TMPDIR"));
        std::fs::create_dir_all(&folder).expect("the folder above is there");
        let mut compiler = Command::new("erlc");
        compiler.args(["-o", &folder]).arg(format!("{FOLDER}/procession.erl"));
        assert!(compiler.status().expect("Erlang is installed").success());
        let mut erl = Command::new("erl");
        erl.env("ERL_FLAGS", flags);
        erl.args(["-noinput", "-hidden", "-pa", &folder, kind, name, "-setcookie", "secret"]);
        erl.args(["-kernel", "prevent_overlapping_partitions", "false"]);
        erl.args(["-eval", "spawn(procession, start, [])"]);
        Self(erl.stdin(Stdio::null()).spawn().expect("Erlang is installed"))
    }
}

impl Beam {
    /// Sends a signal to the program.
    fn signal(&self, name: &str) {
        let mut kill = Command::new("kill");
        kill.arg(format!("-{name}")).arg(self.0.id().to_string());
        assert!(kill.status().expect("it is installed").success());
    }
}

impl Drop for Beam {
    fn drop(&mut self) {
        // Ignored: it may have ended.
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

fn pid(term: &Term) -> NodePid {
    term.as_pid().cloned().expect("it is a PID")
}

fn attach(node: &Node, cx: &Context<Letter>) -> Member {
    node.attach(&cx.address().map(|letter| letter))
}

/// Does the same as `echo` of `procession.erl`.
async fn echo(mut cx: Context<Letter>, node: Node) {
    let own = attach(&node, &cx);
    let mut slow = None;
    let mut sum: Option<(NodePid, i64, i64)> = None;
    while let Some(letter) = cx.recv().await {
        let term = match letter {
            Letter::Call { request, reply } if request.is_atom("slow") => {
                slow = Some(reply);
                continue;
            }
            Letter::Call { request, reply } => {
                reply.send_wait(request).await.expect("it can be sent");
                continue;
            }
            Letter::Message { term, .. } => term,
            _ => continue,
        };
        match term.as_tuple() {
            Some([word, to, message]) if word.is_atom("to") => {
                own.send(pid(to), message.clone()).expect("it is connected");
            }
            Some([word, to, count]) if word.is_atom("sum") => {
                sum = Some((pid(to), count.as_integer().expect("it is a count"), 0));
            }
            Some([word, number]) if word.is_atom("n") => {
                let (to, left, value) = sum.as_mut().expect("it was announced");
                let number = number.as_integer().expect("it is a number");
                *value = (*value * 31 + number) & 0xffff_ffff;
                *left -= 1;
                if *left == 0 {
                    let told = Term::tuple([Term::atom("sum"), (*value).into()]);
                    own.send(&*to, told).expect("it is connected");
                }
            }
            Some([word, to]) if word.is_atom("start") => {
                let worker = {
                    let node = node.clone();
                    start(move |cx| worker(cx, node, Term::atom("wait")))
                };
                let worker = node.attach(&worker.address().map(|letter| letter)).pid();
                let told = Term::tuple([Term::atom("started"), worker.into()]);
                own.send(pid(to), told).expect("it is connected");
            }
            _ if term.is_atom("go") => {
                let reply = slow.take().expect("it was asked slowly");
                reply.send(Term::atom("late")).expect("it is connected");
            }
            _ => {}
        }
    }
}

/// Does the same as `worker` of `procession.erl`.
async fn worker(mut cx: Context<Letter>, node: Node, task: Term) -> Exit {
    let own = attach(&node, &cx);
    match task.as_tuple() {
        Some([word, to]) if word.is_atom("link") => {
            assert!(procession::process::link(node.pid(&pid(to))));
        }
        Some([word, to]) if word.is_atom("trap") => {
            cx.trap_exits(true);
            let ready = Term::tuple([Term::atom("ready"), own.pid().into()]);
            own.send(pid(to), ready).expect("it is connected");
            while let Some(event) = cx.recv_event().await {
                if let Event::Exit(signal) = event {
                    let told = Term::tuple([Term::atom("trapped"), reason(&signal.exit)]);
                    own.send(pid(to), told).expect("it is connected");
                    return Exit::Normal;
                }
            }
        }
        Some([word, to, what]) if word.is_atom("watch") => {
            own.monitor(pid(what));
            let told = Term::tuple([Term::atom("watching"), own.pid().into()]);
            own.send(pid(to), told).expect("it is connected");
            while let Some(letter) = cx.recv().await {
                if let Letter::Down(down) = letter {
                    let told = Term::tuple([Term::atom("seen"), reason(&down.exit)]);
                    own.send(pid(to), told).expect("it is connected");
                    return Exit::Normal;
                }
            }
        }
        _ if task.is_atom("wait") => {}
        _ => return exit(&task),
    }
    while let Some(letter) = cx.recv().await {
        if let Letter::Message { term, .. } = letter
            && let Some([word, reason]) = term.as_tuple()
            && word.is_atom("stop")
        {
            return exit(reason);
        }
    }
    Exit::Normal
}

/// The exits that the script uses.
fn exit(reason: &Term) -> Exit {
    match reason.is_atom("normal") {
        true => Exit::Normal,
        false => Exit::Shutdown,
    }
}

fn reason(exit: &Exit) -> Term {
    Term::atom(match exit {
        Exit::Normal => "normal",
        Exit::Shutdown => "shutdown",
        Exit::NoProcess => "noproc",
        other => panic!("{other:?} came"),
    })
}

/// Builds a node of the cluster of the tests.
fn builder(name: &str, tls: Option<Tls>) -> NodeBuilder {
    let cookie = Cookie::new("secret").expect("it has a text");
    let builder = Node::builder(name).cookie(cookie).grant("*", Grants::new().exits());
    match tls {
        Some(tls) => builder.tls(tls),
        None => builder,
    }
}

async fn start_node(name: &str, tls: Option<Tls>) -> Node {
    let node = builder(name, tls)
        .listen((Ipv4Addr::LOCALHOST, 0).into())
        .grant("*", Grants::new().exits().spawn_all())
        .register()
        .start()
        .await
        .expect("it starts");
    let own = node.clone();
    node.export("procession", "worker", 1, move |cx, mut arguments| {
        worker(cx, own.clone(), arguments.pop().expect("it has one argument"))
    });
    node.export_function("procession", "total", 1, |arguments| async move {
        let Term::List(numbers) = &arguments[0] else { return Err(Term::atom("badarg")) };
        Ok(Term::from(numbers.iter().filter_map(Term::as_integer).sum::<i64>()))
    });
    node.export_function("procession", "twice", 1, |arguments| async move {
        Ok(Term::from(arguments[0].as_bytes().unwrap_or_default().repeat(2)))
    });
    node.export_function("procession", "fails", 1, |mut arguments| async move {
        Err(arguments.remove(0))
    });
    let serves = node.clone();
    let server = start(move |cx| echo(cx, serves));
    let member = node.attach(&server.address().map(|letter| letter));
    node.register("echo", &member).expect("the name is free");
    node
}

/// One after the other, since the node that runs the script has one name.
#[test]
fn the_same_script_has_the_same_outcomes() {
    compare("under_test@127.0.0.1", "beam_under_test@127.0.0.1", false);
    compare("tls_under_test@127.0.0.1", "tls_beam_under_test@127.0.0.1", true);
}

/// Runs the script against a node of this crate and one of the BEAM: from a node of the BEAM, and
/// from one of this crate.
fn compare(own: &'static str, beam: &'static str, is_secure: bool) {
    if std::env::var_os("PROCESSION_ERL").is_none() {
        return;
    }
    start_epmd();
    let (flags, tls) = match is_secure {
        true => (tls_flags(), Some(tls())),
        false => (String::new(), None),
    };
    let scheduler = Scheduler::builder().worker_threads(2).build().expect("it can be built");
    let node = scheduler.block_on(start_node(own, tls.clone()));
    let ours = run_script(own, &flags);
    let from_here = scheduler.block_on(script::run(own, tls.clone()));
    node.stop();
    let running = Beam::start(beam, &flags);
    let theirs = run_until_it_answers(beam, &flags);
    let from_here_to_theirs = scheduler.block_on(script::run(beam, tls));
    drop(running);
    assert_eq!(ours, theirs);
    assert_eq!(from_here, from_here_to_theirs);
}

/// Runs the script once the node is there.
fn run_until_it_answers(name: &str, flags: &str) -> String {
    let (word, _) = name.split_once('@').expect("it is a name");
    until("the node is registered", || {
        let names = Command::new("epmd").arg("-names").output().expect("epmd is installed");
        String::from_utf8_lossy(&names.stdout).contains(&format!("name {word} "))
    });
    run_script(name, flags)
}

/// Connects to a node of the BEAM, which takes a moment until it is registered.
async fn connect(node: &Node, beam: &str) {
    let connects = async {
        while node.connect(beam).await.is_err() {
            procession::yield_now().await;
        }
    };
    timeout(LIMIT, connects).await.expect("it is registered in time");
}

/// A node that is stopped by a signal is given up after its patience, and a node that only ticks
/// four times a minute is not: it answers when it is asked.
#[test]
fn a_node_of_the_beam_that_is_stopped_is_given_up() {
    if std::env::var_os("PROCESSION_ERL").is_none() {
        return;
    }
    start_epmd();
    const BEAM: &str = "beam_stopped@127.0.0.1";
    let beam = Beam::start(BEAM, "");
    let scheduler = Scheduler::builder().worker_threads(2).build().expect("it can be built");
    scheduler.block_on(async move {
        let cookie = Cookie::new("secret").expect("it has a text");
        let builder = Node::builder("patient@127.0.0.1").cookie(cookie);
        let patience = Duration::from_secs(1);
        let node = builder.patience(patience).start().await.expect("it starts");
        connect(&node, BEAM).await;
        let process = start(move |mut cx: Context<Letter>| async move {
            node.subscribe(&cx.address().map(|letter| letter));
            assert!(matches!(cx.recv().await, Some(Letter::NodeUp { .. })), "it is connected");
            // Idle for twice the time after which a silent one is given up.
            let event = cx.recv_timeout(patience * 5 / 2).await;
            assert!(event.is_err(), "{event:?} came");
            assert!(node.peers()[0].round_trip.is_some());
            let stopped = Instant::now();
            beam.signal("STOP");
            let Some(Letter::NodeDown { why, unconfirmed: None, .. }) = cx.recv().await else {
                panic!("the end is told")
            };
            let passed = Instant::now() - stopped;
            assert!(why.contains("nothing was heard"), "{why}");
            let bounds = patience..patience * 5 / 4 + SLACK;
            assert!(bounds.contains(&passed), "it was given up after {passed:?}");
            // It can be connected again, once it continues.
            beam.signal("CONT");
            connect(&node, BEAM).await;
        });
        process.await.expect("it ends");
    });
}

/// Nodes with short names, such as the names of `iex --sname`, find one another by the port mapper.
#[test]
fn nodes_with_short_names_find_each_other() {
    if std::env::var_os("PROCESSION_ERL").is_none() {
        return;
    }
    start_epmd();
    let host = Command::new("hostname").arg("-s").output().expect("it is installed").stdout;
    let host = String::from_utf8(host).expect("it is text");
    let (own, beam) = (format!("short@{}", host.trim()), format!("beam_short@{}", host.trim()));
    let running = Beam::start_by("-sname", &beam, "");
    let scheduler = Scheduler::builder().worker_threads(2).build().expect("it can be built");
    scheduler.block_on(async {
        // The host may have addresses beyond the loopback.
        let builder = builder(&own, None).accept_plain_text().register();
        let listens = builder.listen((Ipv4Addr::UNSPECIFIED, 0).into());
        let node = listens.start().await.expect("it starts");
        let serves = node.clone();
        let server = start(move |cx| echo(cx, serves));
        let member = node.attach(&server.address().map(|letter| letter));
        node.register("echo", &member).expect("the name is free");
        connect(&node, &beam).await;
        let calls = async {
            let echo = || Remote::named("echo", &beam);
            // It may not have its name yet.
            while node.call(echo(), Term::from(7), LIMIT).await.ok() != Some(Term::from(7)) {
                procession::yield_now().await;
            }
        };
        timeout(LIMIT, calls).await.expect("it replies in time");
    });
    // A node that was not connected before finds this node.
    let ask = format!(
        "pong = net_adm:ping('{own}'), hello = gen_server:call({{echo, '{own}'}}, hello), halt()."
    );
    let mut erl = Command::new("erl");
    erl.args(["-noinput", "-hidden", "-sname", "beam_short_asks", "-setcookie", "secret"]);
    let output = erl.args(["-eval", &ask]).stdin(Stdio::null()).output().expect("it is installed");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    drop(running);
}

/// A node of the BEAM reaches what is granted to it. Its other messages are dropped and counted,
/// and its other monitors report that.
#[test]
fn a_node_of_the_beam_needs_grants_to_send() {
    if std::env::var_os("PROCESSION_ERL").is_none() {
        return;
    }
    start_epmd();
    const OWN: &str = "grants@127.0.0.1";
    let scheduler = Scheduler::builder().worker_threads(2).build().expect("it can be built");
    let cookie = Cookie::new("secret").expect("it has a text");
    let builder = Node::builder(OWN).cookie(cookie).listen((Ipv4Addr::LOCALHOST, 0).into());
    let granted = Grants::new().send("echo").look();
    let builder = builder.register().grants_only().grant("*@127.0.0.1", granted);
    let node = scheduler.block_on(builder.start()).expect("it starts");
    let serves = node.clone();
    let server = scheduler.start(move |cx| echo(cx, serves));
    let member = node.attach(&server.address().map(|letter| letter));
    node.register("echo", &member).expect("the name is free");
    node.register("closed", &member).expect("the name is free");
    let ask = format!(
        "pong = net_adm:ping('{OWN}'),
         hello = gen_server:call({{echo, '{OWN}'}}, hello),
         {{closed, '{OWN}'}} ! {{to, self(), came}},
         Monitor = monitor(process, {{closed, '{OWN}'}}),
         receive {{'DOWN', Monitor, _, _, Why}} -> not_allowed = Why end,
         {{not_allowed, _}} = element(2, (catch gen_server:call({{closed, '{OWN}'}}, hello))),
         {{echo, '{OWN}'}} ! {{to, self(), last}},
         receive First -> last = First end,
         {{ok, #{{peers := [#{{denied := Denied}}]}}}} = gen_server:call({{'$procession', '{OWN}'}}, status),
         io:format(\"~p\", [Denied]), halt()."
    );
    let mut erl = Command::new("erl");
    erl.args(["-noinput", "-hidden", "-name", "asks@127.0.0.1", "-setcookie", "secret"]);
    let output = erl.args(["-eval", &ask]).stdin(Stdio::null()).output().expect("it is installed");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
    // The message, the monitor, and the two of the call.
    assert_eq!(text(&output.stdout), "4");
}

/// This node calls a server of a BEAM node, monitors it, and sees its node die.
#[test]
fn a_node_of_the_beam_is_called_and_its_death_is_told() {
    if std::env::var_os("PROCESSION_ERL").is_none() {
        return;
    }
    start_epmd();
    const BEAM: &str = "beam_callee@127.0.0.1";
    let mut beam = Beam::start(BEAM, "");
    let scheduler = Scheduler::builder().worker_threads(2).build().expect("it can be built");
    scheduler.block_on(async move {
        let cookie = Cookie::new("secret").expect("it has a text");
        let node =
            Node::builder("caller@127.0.0.1").cookie(cookie).start().await.expect("it starts");
        connect(&node, BEAM).await;
        let process = start(move |mut cx: Context<Letter>| async move {
            let own = attach(&node, &cx);
            let echo = Remote::named("echo", BEAM);
            let limit = LIMIT;
            // It may not have its name yet.
            let replies = async {
                loop {
                    match own.call(echo.clone(), Term::from("hello"), limit).await {
                        Ok(reply) => break reply,
                        Err(_) => procession::yield_now().await,
                    }
                }
            };
            let reply = timeout(LIMIT, replies).await.expect("it replies in time");
            assert_eq!(reply, Term::from("hello"));
            let large = Term::from(vec![9; 3 << 20]);
            let reply = own.call(echo.clone(), large.clone(), limit).await;
            assert_eq!(reply.expect("it replies"), large);
            let monitor = own.monitor(echo);
            own.call(Remote::named("echo", BEAM), Term::from(1), limit).await.expect("it replies");
            let killed = Instant::now();
            beam.0.kill().expect("it runs");
            match cx.recv().await {
                Some(Letter::Down(down)) => {
                    assert_eq!((down.monitor, down.exit), (monitor, Exit::NoConnection));
                    // By the end of its connection, and not by its silence.
                    let passed = Instant::now() - killed;
                    assert!(passed < Duration::from_secs(4), "it was told after {passed:?}");
                }
                other => panic!("{other:?} came"),
            }
        });
        process.await.expect("it ends");
    });
}
