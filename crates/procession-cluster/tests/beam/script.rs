//! The script of `script.escript` once more, run by a node of this crate: against a node of the
//! BEAM and against one of this crate, it has the same outcomes.

use std::time::Duration;

use procession::mailbox::Event;
use procession::{Context, process, start, timeout};
use procession_cluster::{Atom, CallTermError, Letter, Member, Node, NodePid, Remote, Term, Tls};

use super::{LIMIT, attach, builder, connect};

type Outcomes = Vec<(&'static str, String)>;

/// Runs the script against a node that is registered.
pub(super) async fn run(target: &'static str, tls: Option<Tls>) -> Outcomes {
    let node = builder("rust_client@127.0.0.1", tls).start().await.expect("it starts");
    connect(&node, target).await;
    let runs = {
        let node = node.clone();
        move |mut cx: Context<Letter>| async move {
            cx.trap_exits(true);
            let own = attach(&node, &cx);
            Script { cx, own, node, target }.all().await
        }
    };
    let outcomes = start(runs).await.expect("it ends");
    node.stop();
    outcomes
}

struct Script {
    cx: Context<Letter>,
    own: Member,
    node: Node,
    target: &'static str,
}

fn tuple<const N: usize>(word: &str, items: [Term; N]) -> Term {
    Term::tuple([Term::atom(word)].into_iter().chain(items))
}

/// Hides the processes, which differ between runs.
fn plain(term: Term) -> Term {
    match term {
        Term::Pid(_) => Term::atom("pid"),
        Term::Tuple(items) => Term::Tuple(items.into_iter().map(plain).collect()),
        other => other,
    }
}

impl Script {
    async fn all(mut self) -> Outcomes {
        let ping = self.node.ping(self.target, LIMIT).await.map(|_| "pong");
        let mut all = vec![("ping", format!("{ping:?}"))];
        all.push(("terms", self.terms().await));
        all.push(("nobody", self.nobody().await));
        all.push(("order", self.order().await));
        all.push(("large", self.large().await));
        all.push(("late", self.late().await));
        all.push(("monitor", self.monitor().await));
        all.push(("demonitor", self.demonitor().await));
        all.push(("spawn", self.spawn().await));
        all.push(("link", self.link().await));
        all.push(("unlink", self.unlink().await));
        all.push(("kill", self.kill().await));
        all.push(("trap", self.trap().await));
        all.push(("watched_from_there", self.watched_from_there().await));
        all.push(("functions", self.functions().await));
        all
    }

    fn echo(&self) -> Remote {
        Remote::named("echo", self.target)
    }

    fn own_pid(&self) -> Term {
        self.own.pid().into()
    }

    fn send(&self, to: impl Into<Remote>, term: Term) {
        self.own.send(to, term).expect("it is connected");
    }

    async fn call(&self, request: Term) -> Term {
        self.own.call(self.echo(), request, LIMIT).await.expect("it replies")
    }

    async fn event(&mut self) -> Event<Letter> {
        let event = timeout(LIMIT, self.cx.recv_event()).await.expect("it comes in time");
        event.expect("it is not cancelled")
    }

    async fn next(&mut self) -> String {
        match self.event().await {
            Event::Message(Letter::Message { term, .. }) => plain(term).to_string(),
            Event::Message(Letter::Down(down)) => format!("down: {}", down.exit),
            Event::Down(down) => format!("down: {}", down.exit),
            Event::Exit(signal) => format!("exit: {}", signal.exit),
            other => format!("{other:?}"),
        }
    }

    /// What is not there after a round trip that was sent later will not come.
    async fn quiet(&mut self) -> String {
        self.call(Term::atom("sync")).await;
        match timeout(Duration::ZERO, self.cx.recv_event()).await {
            Ok(event) => format!("{event:?}"),
            Err(_) => "quiet".to_owned(),
        }
    }

    /// Starts a worker that waits, by the echo.
    async fn start(&mut self) -> NodePid {
        let asks = tuple("start", [self.own_pid()]);
        self.send(self.echo(), asks);
        self.pid_in("started").await
    }

    /// Starts a worker with a task.
    async fn worker(&self, task: Term) -> NodePid {
        let started = self.node.spawn(self.target, "procession", "worker", vec![task], LIMIT).await;
        started.expect("it is started")
    }

    /// Receives the PID in a tuple with this word.
    async fn pid_in(&mut self, word: &str) -> NodePid {
        match self.event().await {
            Event::Message(Letter::Message { term, .. }) => match term.as_tuple() {
                Some([head, Term::Pid(pid)]) if head.is_atom(word) => pid.clone(),
                _ => panic!("{term} came"),
            },
            other => panic!("{other:?} came"),
        }
    }

    fn stop(&self, process: &NodePid) {
        self.send(process, tuple("stop", [Term::atom("shutdown")]));
    }

    async fn terms(&self) -> String {
        let long = Atom::new("\u{20ac}".repeat(255)).expect("it is short enough");
        let numbers = [0, 255, 256, -1, 1 << 31, i64::MAX, i64::MIN].map(Term::from);
        let mut terms = numbers.to_vec();
        terms.extend([1.5, -0.0, 1.0e300].map(Term::from));
        terms.extend([long.into(), Term::atom(""), Term::from("text"), Term::from(vec![])]);
        terms.push(Term::from(vec![7; 100_000]));
        terms.push(Term::list((0..70_000).map(Term::from)));
        terms.push(Term::Improper(vec![Term::from(1)], Box::new(Term::atom("b"))));
        terms.push(Term::tuple((0..300).map(Term::from)));
        terms.push(Term::Map(vec![(Term::atom("a"), Term::from(1)), (Term::from("b"), 2.into())]));
        terms.push(self.own_pid());
        let mut wrong = Vec::new();
        for term in &terms {
            if self.call(term.clone()).await != *term {
                wrong.push(term.to_string());
            }
        }
        let together = Term::list(terms.iter().cloned());
        format!("{} {wrong:?} {}", terms.len(), self.call(together.clone()).await == together)
    }

    async fn nobody(&mut self) -> String {
        let nobody = Remote::named("nobody", self.target);
        let called = self.own.call(nobody.clone(), Term::from(1), LIMIT).await;
        self.own.monitor(nobody);
        format!("{called:?} {} {}", self.next().await, self.quiet().await)
    }

    async fn order(&mut self) -> String {
        let count = 20_000_i64;
        self.send(self.echo(), tuple("sum", [self.own_pid(), count.into()]));
        let mut expected = 0_i64;
        for number in (1..=count).map(|n| n * 7919 % 65_536) {
            expected = (expected * 31 + number) & 0xffff_ffff;
            let sent = self.own.send_wait(self.echo(), tuple("n", [number.into()])).await;
            sent.expect("it is connected");
        }
        let sum = tuple("sum", [expected.into()]).to_string();
        (self.next().await == sum).to_string()
    }

    /// Large messages in both directions, of several processes, together with small messages.
    async fn large(&mut self) -> String {
        let calls = [1_u8, 2, 3].map(|number| {
            let (node, echo) = (self.node.clone(), self.echo());
            start(move |cx: Context<Letter>| async move {
                let own = attach(&node, &cx);
                let large = Term::from(vec![number; 8 << 20]);
                let reply = own.call(echo, large.clone(), LIMIT).await;
                reply.is_ok_and(|reply| reply == large)
            })
        });
        let mut small = 0;
        for number in 0..100 {
            small += usize::from(self.call(number.into()).await == number.into());
        }
        let mut large = 0;
        for call in calls {
            large += usize::from(call.await.expect("it ends"));
        }
        format!("{small} {large}")
    }

    async fn late(&mut self) -> String {
        let limit = Duration::from_millis(50);
        let called = self.own.call(self.echo(), Term::atom("slow"), limit).await;
        self.send(self.echo(), Term::atom("go"));
        let is_late = matches!(called, Err(CallTermError::TimedOut));
        format!("{is_late} {}", self.quiet().await)
    }

    async fn monitor(&mut self) -> String {
        let process = self.start().await;
        self.own.monitor(&process);
        self.stop(&process);
        let first = self.next().await;
        self.own.monitor(&process);
        let by_pid = self.node.pid(&process);
        let second = self.next().await;
        self.cx.monitor(by_pid);
        format!("{first} {second} {} {}", self.next().await, self.quiet().await)
    }

    async fn demonitor(&mut self) -> String {
        let process = self.start().await;
        let monitor = self.own.monitor(&process);
        let is_ended = self.own.demonitor(&process, &monitor);
        self.stop(&process);
        format!("{is_ended} {}", self.quiet().await)
    }

    async fn spawn(&mut self) -> String {
        let mut outcomes = Vec::new();
        for reason in ["normal", "shutdown"] {
            let task = vec![Term::atom(reason)];
            let node = self.node.clone();
            let started = node.spawn_monitor(self.target, "procession", "worker", task, LIMIT);
            let (_, monitor) = started.await.expect("it is started");
            outcomes.push(match self.event().await {
                Event::Down(down) if down.monitor == monitor => down.exit.to_string(),
                other => format!("{other:?}"),
            });
        }
        let task = vec![Term::atom("shutdown")];
        let node = self.node.clone();
        let linked = node.spawn_link(self.target, "procession", "worker", task, LIMIT).await;
        outcomes.push(linked.map_or_else(|error| error.to_string(), |_| "linked".into()));
        outcomes.push(self.next().await);
        format!("{outcomes:?} {}", self.quiet().await)
    }

    async fn link(&mut self) -> String {
        let process = self.worker(tuple("link", [self.own_pid()])).await;
        self.call(Term::atom("sync")).await;
        self.stop(&process);
        let from_there = self.next().await;
        let process = self.start().await;
        self.own.monitor(&process);
        let far = self.node.pid(&process);
        let ends = start(move |_: Context<()>| async move {
            process::link(far);
            procession::Exit::Shutdown
        });
        drop(ends.await);
        format!("{from_there} {} {}", self.next().await, self.quiet().await)
    }

    async fn unlink(&mut self) -> String {
        let process = self.start().await;
        let far = self.node.pid(&process);
        process::link(far);
        process::unlink(far);
        self.own.monitor(&process);
        self.stop(&process);
        format!("{} {}", self.next().await, self.quiet().await)
    }

    async fn kill(&mut self) -> String {
        self.worker(tuple("trap", [self.own_pid()])).await;
        let process = self.pid_in("ready").await;
        self.own.monitor(&process);
        process::kill(self.node.pid(&process));
        format!("{} {}", self.next().await, self.quiet().await)
    }

    async fn trap(&mut self) -> String {
        self.worker(tuple("trap", [self.own_pid()])).await;
        let process = self.pid_in("ready").await;
        process::send_exit(self.node.pid(&process), procession::Exit::Shutdown);
        format!("{} {}", self.next().await, self.quiet().await)
    }

    /// The node under test monitors a process of this one.
    async fn watched_from_there(&mut self) -> String {
        let local = start(|mut cx: Context<()>| async move {
            cx.recv().await;
            procession::Exit::Shutdown
        });
        let known = self.node.node_pid(local.pid()).expect("it is of this node");
        self.worker(tuple("watch", [self.own_pid(), known.clone().into()])).await;
        self.pid_in("watching").await;
        local.send(()).expect("it waits");
        let first = self.next().await;
        self.worker(tuple("watch", [self.own_pid(), known.into()])).await;
        self.pid_in("watching").await;
        format!("{first} {} {}", self.next().await, self.quiet().await)
    }

    async fn functions(&self) -> String {
        let numbers = Term::list([1, 2, 1_i64 << 40].map(Term::from));
        let binary = Term::from(vec![7; 1 << 20]);
        let mut outcomes = Vec::new();
        for (function, arguments) in [
            ("total", vec![numbers]),
            ("total", vec![Term::list([])]),
            ("twice", vec![binary]),
            ("fails", vec![tuple("no", [Term::from("reason")])]),
            ("total", vec![]),
            ("nothing", vec![Term::from(1)]),
        ] {
            let result = self.node.apply(self.target, "procession", function, arguments, LIMIT);
            outcomes.push(match result.await {
                Ok(Term::Binary(bytes)) => bytes.len().to_string(),
                Ok(term) => term.to_string(),
                Err(error) => error.to_string(),
            });
        }
        outcomes.join("; ")
    }
}
