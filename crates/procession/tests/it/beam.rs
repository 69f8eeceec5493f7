//! Scenarios of links, monitors, exits, names and supervisors. Their outcomes must be those of the
//! BEAM: `beam/README.md`.

use std::collections::{BTreeMap, BTreeSet};
use std::env;
use std::fs;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use procession::mailbox::{Event, send};
use procession::process::{MonitorRef, Named, exit, register, send_exit, whereis};
use procession::supervisor::{
    AutoShutdown, ChildError, ChildKey, ChildSpec, Restart, StartError, Started, Stop, Strategy,
    Supervisor, SupervisorRef,
};
use procession::{Context, Exit, Pid, Reply, Scheduler, SpawnOptions, sleep, start};

use crate::scene::{alive, driven, panic_quietly};

/// With fewer scenarios than this, the file was cut short.
const SCENARIOS_MIN: usize = 120;

const HOUR: Duration = Duration::from_secs(3600);

/// Returns the outcomes on the BEAM: those in the repository, or those just recorded by
/// `.ci/run beam`.
fn recorded() -> String {
    match env::var_os("PROCESSION_BEAM") {
        Some(path) => fs::read_to_string(path).expect("the step has written it"),
        None => String::from(include_str!("beam/scenarios.txt")),
    }
}

#[test]
fn every_scenario_comes_out_as_on_the_beam() {
    let (scenarios, differences) = replay(&recorded());
    assert!(differences.is_empty(), "{} differ:\n{}", differences.len(), differences.join("\n"));
    assert!(scenarios >= SCENARIOS_MIN, "only {scenarios}");
}

#[test]
fn an_outcome_that_differs_is_found() {
    for (scenario, expected) in [
        (
            "start a b -> nothing\na: link b -> nothing\nb: exit boom -> b: ended boom",
            "a: ended boom; b: ended boom",
        ),
        ("start a -> nothing\na: return -> a: ended shutdown", "a: ended normal"),
        (
            "define root one_for_all 1 never : a worker permanent, b worker permanent -> nothing\n\
             tree root -> ok; +a +b\ntell a boom -> +a; a boom",
            "-b +a +b; a boom, b shutdown",
        ),
    ] {
        let (_, differences) = replay(&format!("# wrong\n{scenario}\n"));
        let [difference] = differences.try_into().expect("one of the steps comes out otherwise");
        assert!(difference.ends_with(&format!("here {expected}")), "{difference}");
    }
}

/// Plays all scenarios. Returns their number, and the outcomes that differ.
fn replay(text: &str) -> (usize, Vec<String>) {
    let (mut scenarios, mut differences) = (0, Vec::new());
    for scenario in text.split("# ").skip(1) {
        scenarios += 1;
        let (title, steps) = scenario.split_once('\n').expect("it has steps");
        let mut play = Play::new();
        for line in steps.lines().filter(|line| !line.is_empty()) {
            let (step, expected) = line.split_once(" -> ").expect("each step has an outcome");
            let found = play.step(step);
            let found = if found.is_empty() { "nothing" } else { &found };
            if found != expected {
                differences.push(format!("{title}: {step}: there {expected}, here {found}"));
                // Everything that follows would differ as well.
                break;
            }
        }
        play.end();
    }
    (scenarios, differences)
}

/// An observation of a process, in order.
#[derive(Clone, Debug)]
enum Seen {
    Spawned(String),
    Text(String),
    /// A notice about another process: the text before its name, its PID, and the text after the
    /// name.
    Of(&'static str, Pid, String),
}

#[derive(Clone)]
struct Stage {
    scheduler: Scheduler,
    seen: Arc<Mutex<Vec<(Pid, Seen)>>>,
    /// The actions and the ends of the supervisors' children, and all children that ever existed.
    notes: Arc<Mutex<Vec<String>>>,
    ends: Arc<Mutex<Vec<String>>>,
    were: Arc<Mutex<BTreeSet<String>>>,
}

fn push<T>(list: &Mutex<Vec<T>>, item: T) {
    list.lock().expect("no code panics under it").push(item);
}

fn take<T>(list: &Mutex<Vec<T>>) -> Vec<T> {
    std::mem::take(&mut *list.lock().expect("no code panics under it"))
}

fn why(exit: &Exit) -> String {
    match exit {
        Exit::Normal => String::from("normal"),
        // On the BEAM, a supervisor that gives up ends as if it was asked to.
        Exit::Shutdown | Exit::GaveUp(_) => String::from("shutdown"),
        Exit::Killed => String::from("killed"),
        Exit::Panicked(_) => String::from("panicked"),
        Exit::NoProcess => String::from("noproc"),
        Exit::Failed(reason) => String::from(&**reason),
        other => panic!("no scenario ends so: {other}"),
    }
}

fn reason(text: &str) -> Exit {
    match text {
        "normal" => Exit::Normal,
        "shutdown" => Exit::Shutdown,
        "killed" => Exit::Killed,
        other => Exit::failed(other),
    }
}

/// The way in which a process ends at once: by an exit, or by returning an `Err`.
enum End {
    Exit(Exit),
    Error(String),
}

impl End {
    fn now(self) -> Result<(), String> {
        match self {
            Self::Exit(reason) => exit(reason),
            Self::Error(text) => Err(text),
        }
    }
}

/// The text of an error in a scenario.
fn error_text(reason: &str) -> String {
    format!("error {reason}")
}

enum Ask {
    Do(Vec<Op>),
    Text(String),
}

enum Op {
    Spawn {
        link: bool,
        label: Option<String>,
        name: String,
        ends: Option<End>,
    },
    Link(Pid),
    Unlink(Pid),
    Monitor(Pid, String),
    Demonitor(String),
    Trap(bool),
    Exit(Exit),
    /// Returns this as an `Err`.
    Error(String),
    Panic,
    Send(Pid, String),
    Signal(Pid, Exit),
    Kill(Pid),
    Register(String, Pid),
    Unregister(String),
    Whereis(String),
    SendName(String, String),
}

impl Stage {
    fn see(&self, pid: Pid, text: impl Into<String>) {
        push(&self.seen, (pid, Seen::Text(text.into())));
    }

    /// Records the process under its name, and its end.
    fn known(&self, name: &str, child: procession::Child<Ask, Result<(), String>>) {
        let (pid, stage) = (child.pid(), self.clone());
        push(&self.seen, (pid, Seen::Spawned(name.to_owned())));
        drop(self.scheduler.spawn(async move {
            let exit = child.await.map_or_else(|exit| exit, |output| exit_of(&output));
            stage.see(pid, format!("ended {}", why(&exit)));
        }));
    }
}

fn exit_of(output: &Result<(), String>) -> Exit {
    output.as_ref().map_or_else(|text| Exit::failed(text.as_str()), |()| Exit::Normal)
}

/// The future of an actor, which spawns others like it.
type Acts = Pin<Box<dyn Future<Output = Result<(), String>> + Send>>;

/// A process that does what it is asked.
fn actor(mut cx: Context<Ask>, stage: Stage) -> Acts {
    Box::pin(async move {
        let mut monitors = BTreeMap::new();
        while let Some(event) = cx.recv_event().await {
            let own = cx.pid();
            match event {
                Event::Message(Ask::Do(ops)) => {
                    for op in ops {
                        if let Op::Error(text) = op {
                            return Err(text);
                        }
                        act(op, &mut cx, &stage, &mut monitors);
                    }
                }
                Event::Message(Ask::Text(text)) => stage.see(own, format!("message {text}")),
                Event::Exit(signal) => {
                    let from = signal.from.expect("only processes send them");
                    push(&stage.seen, (own, Seen::Of("exit", from, why(&signal.exit))));
                }
                Event::Down(down) => {
                    let label: &String = &monitors[&down.monitor];
                    push(
                        &stage.seen,
                        (own, Seen::Of("down", down.pid, format!("{} {label}", why(&down.exit)))),
                    );
                }
                _ => unreachable!("nobody asked for anything else"),
            }
        }
        Ok(())
    })
}

fn act(op: Op, cx: &mut Context<Ask>, stage: &Stage, monitors: &mut BTreeMap<MonitorRef, String>) {
    let own = cx.pid();
    let result = |result: &str| stage.see(own, format!("= {result}"));
    match op {
        Op::Spawn { link, label, name, ends } => {
            let mut options = SpawnOptions::new();
            if link {
                options = options.link();
            }
            if label.is_some() {
                options = options.monitor();
            }
            let monitor = if let Some(end) = ends {
                let child = options.spawn_fallible(async move { end.now() });
                push(&stage.seen, (child.pid(), Seen::Spawned(name)));
                child.monitor_ref()
            } else {
                let inner = stage.clone();
                let child = options.start(move |cx| actor(cx, inner));
                let monitor = child.monitor_ref();
                stage.known(&name, child);
                monitor
            };
            monitors.extend(monitor.zip(label));
        }
        Op::Link(pid) => cx.link(pid),
        Op::Unlink(pid) => cx.unlink(pid),
        Op::Monitor(pid, label) => drop(monitors.insert(cx.monitor(pid), label)),
        Op::Demonitor(label) => match monitors.iter().find(|&(_, of)| *of == label) {
            Some((&monitor, _)) => result(&cx.demonitor(monitor).to_string()),
            None => result("unknown"),
        },
        Op::Trap(traps) => result(&cx.trap_exits(traps).to_string()),
        Op::Exit(reason) => exit(reason),
        Op::Error(_) => unreachable!("the actor has returned"),
        Op::Panic => panic_quietly("broken"),
        // Ignored, as on the BEAM: there may be no such process.
        Op::Send(pid, text) => drop(send(pid, Ask::Text(text))),
        Op::Signal(pid, reason) => drop(send_exit(pid, reason)),
        Op::Kill(pid) => drop(procession::process::kill(pid)),
        Op::Register(name, pid) => result(register(name, pid).map_or("refused", |()| "true")),
        Op::Unregister(name) => {
            result(stage.scheduler.unregister(&name).map_or("refused", |_| "true"))
        }
        Op::Whereis(name) => match whereis(&name) {
            Some(pid) => push(&stage.seen, (own, Seen::Of("=", pid, String::new()))),
            None => result("nobody"),
        },
        Op::SendName(name, text) => {
            if Named::new(name).send(Ask::Text(text)).is_err() {
                result("refused");
            }
        }
    }
}

struct Play {
    stage: Stage,
    /// The processes of each name, the latest last.
    pids: Vec<(String, Pid)>,
    defined: BTreeMap<String, Supervisor>,
    is_dynamic: bool,
    /// The restart of the children of a dynamic supervisor, and their number so far.
    template: (Restart, usize),
    ended: Arc<Mutex<Vec<String>>>,
    root: Option<SupervisorRef>,
}

impl Play {
    fn new() -> Self {
        let stage = Stage {
            scheduler: driven(),
            seen: Arc::default(),
            notes: Arc::default(),
            ends: Arc::default(),
            were: Arc::default(),
        };
        Self {
            stage,
            pids: Vec::new(),
            defined: BTreeMap::new(),
            is_dynamic: false,
            template: (Restart::Permanent, 0),
            ended: Arc::default(),
            root: None,
        }
    }

    fn step(&mut self, step: &str) -> String {
        let words: Vec<&str> = step.split(' ').collect();
        match words[..] {
            ["start", ref names @ ..] => {
                for name in names {
                    let stage = self.stage.clone();
                    self.stage.known(name, self.stage.scheduler.start(move |cx| actor(cx, stage)));
                }
                self.observe()
            }
            ["define", name, strategy, intensity, auto, ..] => {
                let (_, children) = step.split_once(" : ").expect("it has children");
                self.define(name, strategy, intensity, auto, children);
                String::new()
            }
            [verb, ..] if !verb.ends_with(':') => {
                let result = self.tree(&words);
                self.settled(result)
            }
            _ => {
                let (who, ops) = step.split_once(": ").expect("it names the process");
                let ops = ops.split(", ").map(|op| self.operation(op)).collect();
                assert!(
                    send(self.pid(who), Ask::Do(ops)).is_ok(),
                    "no step is of an ended process: {step}"
                );
                self.observe()
            }
        }
    }

    fn pid(&self, name: &str) -> Pid {
        self.pids.iter().rfind(|(of, _)| of == name).expect("it was spawned").1
    }

    fn name(&self, pid: Pid) -> &str {
        &self.pids.iter().find(|&&(_, of)| of == pid).expect("it was spawned").0
    }

    fn operation(&self, op: &str) -> Op {
        let words: Vec<&str> = op.split(' ').collect();
        let spawn = |link, label: Option<&str>, name: &str, ends: Option<End>| Op::Spawn {
            link,
            label: label.map(str::to_owned),
            name: name.to_owned(),
            ends,
        };
        let dies = |text| Some(End::Exit(reason(text)));
        let fails = |text| Some(End::Error(error_text(text)));
        match words[..] {
            ["spawn", name] => spawn(false, None, name, None),
            ["spawn_link", name] => spawn(true, None, name, None),
            ["spawn_link", name, "dies", reason] => spawn(true, None, name, dies(reason)),
            ["spawn_link", name, "fails", reason] => spawn(true, None, name, fails(reason)),
            ["spawn_monitor", name, label] => spawn(false, Some(label), name, None),
            ["spawn_monitor", name, label, "dies", reason] => {
                spawn(false, Some(label), name, dies(reason))
            }
            ["spawn_monitor", name, label, "fails", reason] => {
                spawn(false, Some(label), name, fails(reason))
            }
            ["link", name] => Op::Link(self.pid(name)),
            ["unlink", name] => Op::Unlink(self.pid(name)),
            ["monitor", name, label] => Op::Monitor(self.pid(name), label.to_owned()),
            ["demonitor", label] => Op::Demonitor(label.to_owned()),
            ["trap", on_off] => Op::Trap(on_off == "on"),
            ["exit", dies] => Op::Exit(reason(dies)),
            ["error", reason] => Op::Error(error_text(reason)),
            ["panic"] => Op::Panic,
            ["return"] => Op::Exit(Exit::Normal),
            ["send", name, text] => Op::Send(self.pid(name), text.to_owned()),
            ["signal", name, "kill"] => Op::Kill(self.pid(name)),
            ["signal", name, signal] => Op::Signal(self.pid(name), reason(signal)),
            ["register", label, name] => Op::Register(label.to_owned(), self.pid(name)),
            ["unregister", label] => Op::Unregister(label.to_owned()),
            ["whereis", label] => Op::Whereis(label.to_owned()),
            ["send_name", label, text] => Op::SendName(label.to_owned(), text.to_owned()),
            _ => panic!("no such operation: {op}"),
        }
    }

    /// Returns the observations, once nothing can run.
    fn observe(&mut self) -> String {
        self.stage.scheduler.run_until_idle();
        let seen = take(&self.stage.seen);
        for (pid, what) in &seen {
            if let Seen::Spawned(name) = what {
                self.pids.push((name.clone(), *pid));
            }
        }
        let mut by_name: BTreeMap<&str, Vec<String>> = BTreeMap::new();
        for (pid, what) in &seen {
            let text = match what {
                Seen::Spawned(_) => continue,
                Seen::Text(text) => text.clone(),
                Seen::Of(what, of, rest) => {
                    format!("{what} {} {rest}", self.name(*of)).trim_end().to_owned()
                }
            };
            by_name.entry(self.name(*pid)).or_default().push(text);
        }
        let lines = by_name.into_iter().map(|(name, mut texts)| {
            // Notices of several other processes came in any order.
            let told = |text: &String| text.starts_with("down") || text.starts_with("exit");
            // It is chance whether a process that is ended first sees what came before.
            if texts.iter().any(|text| text.starts_with("ended")) {
                texts.retain(|text| text.starts_with("ended"));
            }
            texts.chunk_by_mut(|one, next| told(one) && told(next)).for_each(<[String]>::sort);
            format!("{name}: {}", texts.join(", "))
        });
        lines.collect::<Vec<_>>().join("; ")
    }

    fn define(&mut self, name: &str, strategy: &str, intensity: &str, auto: &str, children: &str) {
        let strategy = match strategy {
            "one_for_one" => Strategy::OneForOne,
            "one_for_all" => Strategy::OneForAll,
            "rest_for_one" => Strategy::RestForOne,
            "dynamic" => Strategy::Dynamic,
            other => panic!("no such strategy: {other}"),
        };
        let auto = match auto {
            "never" => AutoShutdown::Never,
            "any_significant" => AutoShutdown::AnySignificant,
            "all_significant" => AutoShutdown::AllSignificant,
            other => panic!("no such shutdown: {other}"),
        };
        let intensity = intensity.parse().expect("it is a number");
        let mut tree = Supervisor::new(strategy)
            .intensity(intensity, 1000 * Duration::from_secs(1))
            .auto_shutdown(auto);
        for child in children.split(", ") {
            let words: Vec<&str> = child.split(' ').collect();
            if words[1] == "template" {
                self.template.0 = restart(words[2]);
            } else {
                tree = tree.child(self.child(&words));
            }
        }
        self.is_dynamic |= strategy == Strategy::Dynamic;
        self.defined.insert(name.to_owned(), tree);
    }

    fn child(&self, words: &[&str]) -> ChildSpec {
        let [id, kind, when, significant @ ..] = words else { panic!("no such child: {words:?}") };
        let child = match *kind {
            "supervisor" => {
                ChildSpec::supervisor(*id, self.defined[*id].clone()).name(*id).untyped()
            }
            kind => worker(&self.stage, id, kind),
        };
        let child = child.restart(restart(when));
        if significant.is_empty() { child } else { child.significant() }
    }

    /// Plays a step of a tree, and returns its result without the notes.
    fn tree(&mut self, words: &[&str]) -> String {
        let scheduler = self.stage.scheduler.clone();
        match *words {
            ["tree", name] => {
                let options = SpawnOptions::new().on(&scheduler).name(name);
                match scheduler.block_on(self.defined[name].clone().try_start_with(options)) {
                    Ok(running) => {
                        self.root = Some(running.reference().clone());
                        let ended = Arc::clone(&self.ended);
                        drop(scheduler.spawn(async move {
                            push(&ended, format!("ended {}", why(&running.await)))
                        }));
                        String::from("ok")
                    }
                    Err(StartError::Child { id, .. }) => format!("failed {id}"),
                    Err(other) => panic!("{other}"),
                }
            }
            ["tell", name, ref end @ ..] => {
                let tell = match end {
                    ["panic"] => Tell::Panic,
                    ["error", reason] => Tell::Error(error_text(reason)),
                    [end] => Tell::End(reason(end)),
                    _ => panic!("no such end: {end:?}"),
                };
                Named::on(&scheduler, name).send(tell).map_or("absent", |()| "").to_owned()
            }
            ["kill", name] => scheduler
                .whereis(name)
                .map_or("absent", |pid| {
                    procession::process::kill(pid);
                    ""
                })
                .to_owned(),
            ["stop"] => match &self.root {
                Some(root) => {
                    root.cancel();
                    String::new()
                }
                None => String::from("absent"),
            },
            [verb, tree, ref rest @ ..] => {
                let Some(tree) = scheduler.whereis(tree).and_then(SupervisorRef::of) else {
                    return String::from("absent");
                };
                scheduler
                    .block_on(self.ask(&tree, verb, rest))
                    .unwrap_or_else(|error| refusal(&error).to_owned())
            }
            _ => panic!("no such step: {words:?}"),
        }
    }

    async fn ask(
        &mut self,
        tree: &SupervisorRef,
        verb: &str,
        rest: &[&str],
    ) -> Result<String, ChildError> {
        match (verb, rest) {
            ("terminate", &[child]) => {
                let key = if self.is_dynamic {
                    ChildKey::Pid(self.stage.scheduler.whereis(child).unwrap_or(tree.pid()))
                } else {
                    ChildKey::from(child)
                };
                tree.terminate_child(key).await?;
            }
            ("restart", &[child]) => drop(tree.restart_child(child).await?),
            ("delete", &[child]) => tree.delete_child(child).await?,
            ("add", spec) => drop(tree.add_child(self.child(spec)).await?),
            ("another", []) => {
                self.template.1 += 1;
                let id = format!("w{}", self.template.1);
                tree.add_child(worker(&self.stage, &id, "worker").restart(self.template.0)).await?;
            }
            ("count", []) => {
                let counts = tree.count().await?;
                let (specs, active, supervisors) =
                    (counts.children, counts.running, counts.supervisors);
                return Ok(format!("specs={specs} active={active} supervisors={supervisors}"));
            }
            ("which", []) => {
                let infos = tree.which().await?;
                let info = infos.iter().map(|info| {
                    let state = if info.status.pid().is_some() { "runs" } else { "stopped" };
                    format!("{}={state}", info.id.as_deref().expect("all have ids"))
                });
                return Ok(info.collect::<Vec<_>>().join(" "));
            }
            _ => panic!("no such request: {verb} {rest:?}"),
        }
        Ok(String::from("ok"))
    }

    /// Returns the notes, once all deadlines of children are over.
    fn settled(&mut self, result: String) -> String {
        self.stage.scheduler.block_on(sleep(Duration::from_millis(200)));
        self.stage.scheduler.run_until_idle();
        let (mut notes, mut ends) = (take(&self.stage.notes), take(&self.stage.ends));
        ends.sort();
        if self.is_dynamic {
            // A dynamic supervisor stops its children all at once.
            notes.sort();
        }
        let ended = take(&self.ended);
        if !ended.is_empty() {
            self.root = None;
        }
        let parts = [result, notes.join(" "), ends.join(", "), ended.join(" ")];
        parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("; ")
    }

    /// Ends all processes.
    fn end(self) {
        let scheduler = self.stage.scheduler;
        if let Some(root) = self.root {
            root.cancel();
            scheduler.block_on(sleep(Duration::from_secs(1)));
        }
        for (_, pid) in self.pids {
            procession::process::kill(pid);
        }
        scheduler.run_until_idle();
        assert_eq!(alive(&scheduler.snapshot()).count(), 0);
    }
}

fn restart(text: &str) -> Restart {
    match text {
        "permanent" => Restart::Permanent,
        "transient" => Restart::Transient,
        "temporary" => Restart::Temporary,
        other => panic!("no such restart: {other}"),
    }
}

fn refusal(error: &ChildError) -> &'static str {
    match error {
        ChildError::NotFound => "not_found",
        ChildError::AlreadyStarted(_) => "already_started",
        ChildError::AlreadyPresent => "already_present",
        ChildError::Running(_) => "running",
        ChildError::Restarting => "restarting",
        ChildError::Start(_) => "failed",
        ChildError::Ended => "absent",
        other => panic!("no scenario comes to this: {other}"),
    }
}

enum Tell {
    End(Exit),
    /// To return this as an `Err`.
    Error(String),
    Panic,
}

/// A child like OTP's: it traps exits, and ends when its supervisor sends an exit.
fn worker(stage: &Stage, id: &str, kind: &str) -> ChildSpec {
    let stop = match kind {
        "brutal" => Stop::Kill,
        "deaf" => Stop::Signal(Duration::from_millis(20)),
        _ => Stop::Signal(Duration::from_secs(1000)),
    };
    let (stage, name, kind): (Stage, Arc<str>, Arc<str>) = (stage.clone(), id.into(), kind.into());
    let process = move |cx: Context<Tell>, started| {
        work(cx, started, stage.clone(), Arc::clone(&name), Arc::clone(&kind))
    };
    ChildSpec::with_init(id, process).name(id).stop(stop).untyped()
}

async fn work(
    mut cx: Context<Tell>,
    started: Started,
    stage: Stage,
    id: Arc<str>,
    kind: Arc<str>,
) -> Result<(), String> {
    cx.trap_exits(true);
    let was = !stage.were.lock().expect("no code panics under it").insert(String::from(&*id));
    let note = |mark: char| push(&stage.notes, format!("{mark}{id}"));
    if &*kind == "failing" || (&*kind == "once" && was) {
        note('?');
        started.fail("nope");
        return Ok(());
    }
    let (pid, ends, of) = (cx.pid(), Arc::clone(&stage.ends), Arc::clone(&id));
    let watcher = start(move |mut cx: Context<Reply<()>>| async move {
        let monitor = cx.monitor(pid);
        if let Some(reply) = cx.recv().await {
            reply.send(());
        }
        if let Some(down) = cx.down(monitor).await {
            push(&ends, format!("{of} {}", why(&down.exit)));
        }
    });
    assert!(watcher.call(|reply| reply, HOUR).await.is_ok(), "it waits for this");
    note('+');
    started.ready();
    while let Some(event) = cx.recv_event().await {
        match event {
            Event::Message(Tell::Panic) => panic_quietly("broken"),
            Event::Message(Tell::End(reason)) => exit(reason),
            Event::Message(Tell::Error(text)) => return Err(text),
            Event::Exit(signal) if signal.from == cx.parent() && &*kind != "deaf" => {
                note('-');
                exit(signal.exit);
            }
            _ => {}
        }
    }
    Ok(())
}
