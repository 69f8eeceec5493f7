//! Hosts, as the program of a check starts, breaks and restarts them.

use std::future::{Future, poll_fn};
use std::net::IpAddr;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use procession::Scheduler;

use crate::engine::{Engine, Held};
use crate::net::host::HostProgram;
use crate::net::places::FOR_GOOD;
use crate::net::{Net, PROGRAM};
use crate::program;
use crate::sim::Sim;
use crate::time::{MS, nanoseconds};

/// How long the start of a program waits if the system has no thread for it.
const RETRY: u64 = 10 * MS;

impl Sim {
    /// Adds a host to the network, and starts its program there. Returns the address of the host.
    ///
    /// The program has its own scheduler, with as many workers as the check's scheduler. It ends
    /// when its future does. Sockets that its processes open belong to this host, and other hosts
    /// reach them by its name: `TcpStream::connect("db:5432")`.
    ///
    /// The program of the check itself runs on the host `program`.
    ///
    /// ```
    /// use procession::net::{TcpListener, TcpStream};
    /// use procession_sim::{Check, Faults};
    ///
    /// Check::new().seeds(0..10).faults(Faults::none()).run(|sim| async move {
    ///     sim.host("echo", || async {
    ///         let listener = TcpListener::bind("0.0.0.0:7").await.unwrap();
    ///         let (stream, _) = listener.accept().await.unwrap();
    ///         let mut bytes = [0; 5];
    ///         stream.read_exact(&mut bytes).await.unwrap();
    ///         stream.write_all(&bytes).await.unwrap();
    ///     });
    ///     sim.settle().await;
    ///     let stream = TcpStream::connect("echo:7").await.unwrap();
    ///     stream.write_all(b"hello").await.unwrap();
    ///     let mut bytes = [0; 5];
    ///     stream.read_exact(&mut bytes).await.unwrap();
    ///     sim.always("the echo is right", &bytes == b"hello");
    /// });
    /// ```
    ///
    /// # Panics
    /// Panics if there is such a host already, or the real system has no descriptor left.
    #[expect(clippy::panic, reason = "a test with two hosts of one name is wrong")]
    pub fn host<F, P>(&self, name: &str, program: F) -> IpAddr
    where
        F: Fn() -> P + Send + Sync + 'static,
        P: Future<Output = ()> + 'static,
    {
        let boxed: Arc<HostProgram> = Arc::new(move || Box::pin(program()));
        let added = self.engine.net(|net, _| {
            if net.host_named(name).is_some() {
                return None;
            }
            let host = net.add_host(name, Some(boxed));
            Some((host, net.hosts[host].address))
        });
        match added {
            Some((host, address)) => {
                self.boot(host);
                address.into()
            }
            None => panic!("cannot add the host {name:?}: there is one of this name"),
        }
    }

    /// Ends the program of a host immediately, as if it was killed. Its processes have no further
    /// step, and their values are dropped. The system of the host resets the connections, and
    /// refuses new connections.
    ///
    /// Closures that run on the threads of [`procession::spawn_blocking`] run to their ends.
    ///
    /// # Panics
    /// Panics if there is no such host, or it is the host of the caller's check.
    #[track_caller]
    pub fn crash(&self, host: &str) {
        self.end_program(host, true);
    }

    /// Ends the program of a host, like [`crash`](Self::crash), but without a sign for its peers:
    /// until the host restarts, it does not answer. Afterwards it resets the connections that it
    /// does not know.
    ///
    /// # Panics
    /// Panics if there is no such host, or it is the host of the caller's check.
    #[track_caller]
    pub fn power_off(&self, host: &str) {
        self.end_program(host, false);
    }

    /// Starts the program of a host again. If it runs, it [crashes](Self::crash) first.
    ///
    /// # Panics
    /// Panics if there is no such host, or it is the host of the caller's check.
    #[track_caller]
    pub fn restart(&self, host: &str) {
        self.end_program(host, true);
        let host = self.engine.net(|net, _| {
            let host = number(net, host);
            net.start(host);
            host
        });
        self.boot(host);
    }

    /// Returns `true` if the program of a host runs.
    ///
    /// # Panics
    /// Panics if there is no such host.
    #[track_caller]
    pub fn is_running(&self, host: &str) -> bool {
        self.engine.net(|net, _| net.hosts[number(net, host)].home.is_some())
    }

    /// Cuts the network between two hosts, in both directions. Connections stay, and what is sent
    /// waits until the cut is [mended](Self::mend). After about 15 minutes, a connection fails.
    /// Datagrams are lost.
    ///
    /// # Panics
    /// Panics if there is no such host.
    #[track_caller]
    pub fn partition(&self, one: &str, other: &str) {
        self.cut(one, other);
        self.cut(other, one);
    }

    /// Cuts the network from one host to another, but not back.
    ///
    /// # Panics
    /// Panics if there is no such host.
    #[track_caller]
    pub fn cut(&self, from: &str, to: &str) {
        self.engine.net(|net, _| {
            let (from, to) = (number(net, from), number(net, to));
            net.cut(from, to, FOR_GOOD);
        });
        self.engine.note(|| format!("the program cuts the way from {from} to {to}"));
    }

    /// Mends the network between two hosts, in both directions.
    ///
    /// # Panics
    /// Panics if there is no such host.
    #[track_caller]
    pub fn mend(&self, one: &str, other: &str) {
        self.engine.net(|net, moment| {
            let (one, other) = (number(net, one), number(net, other));
            net.mend(moment.now, one, other);
            net.mend(moment.now, other, one);
        });
        self.engine.note(|| format!("the program mends the way between {one} and {other}"));
    }

    /// Starts the program that was last started on a host.
    fn boot(&self, host: usize) {
        let (home, name, program) = self.engine.net(|net, _| {
            let place = &net.hosts[host];
            let home = place.home.expect("it was started");
            (home, place.name.clone(), place.program.clone().expect("it is no check"))
        });
        let sim = self.clone();
        let body = Box::new(move || run(&sim, home, &name, &*program));
        let thread = self.engine.net(|net, _| format!("{}-main", net.name(host)));
        self.engine.launch_on(home, thread, body).expect("the real system has threads");
    }

    #[track_caller]
    fn end_program(&self, host: &str, tells: bool) {
        let ended = self.engine.net(|net, moment| {
            let number = number(net, host);
            assert!(number != PROGRAM, "cannot end the program of the check: return from it");
            net.hosts[number].has_power = tells;
            let home = net.hosts[number].home.take();
            net.close_all(moment, number, tells);
            home.map(|home| net.stop(home))
        });
        if let Some(stopped) = ended {
            self.engine.note(|| match tells {
                true => format!("the program crashes the host {host}"),
                false => format!("the program switches the host {host} off"),
            });
            stopped.carry_out();
        }
    }
}

#[track_caller]
#[expect(clippy::panic, reason = "a test that names a host that it has not added is wrong")]
fn number(net: &Net, name: &str) -> usize {
    match net.host_named(name) {
        Some(host) => host,
        None => panic!("there is no host {name:?}"),
    }
}

impl Engine {
    /// Returns `true` if the program is to end. It is woken for that.
    fn is_stopped(&self, home: usize, task: &Context<'_>) -> bool {
        let before = self.net(|net, _| {
            let home = &mut net.homes[home];
            (home.is_stopped, home.root.replace(task.waker().clone()))
        });
        before.0
    }
}

/// The time in which the processes of a host end. It is long, because the clock may leap by hours
/// during the end.
const SHUTDOWN: Duration = Duration::from_secs(30 * 24 * 60 * 60);

/// The main function of the first thread of a host.
fn run(sim: &Sim, home: usize, name: &str, program: &HostProgram) {
    let engine = &sim.engine;
    let Some(scheduler) = build(sim, home, name) else { return };
    let runs = engine.net(|net, _| {
        let home = &mut net.homes[home];
        home.scheduler = (!home.is_stopped).then(|| scheduler.clone());
        !home.is_stopped
    });
    if runs {
        let ended = program::catch(engine, || {
            scheduler.block_on(async {
                let mut program = pin!(program());
                poll_fn(|task| match engine.is_stopped(home, task) {
                    true => Poll::Ready(false),
                    false => program.as_mut().poll(task).map(|()| true),
                })
                .await
            })
        });
        if ended != Some(false) {
            engine.note(|| format!("the program of the host {name} ends"));
        }
    }
    let is_killed = engine.net(|net, _| {
        let is_killed = net.homes[home].is_stopped;
        net.note_end(home);
        is_killed
    });
    if is_killed {
        procession::sim::terminate_all(&scheduler);
    }
    drop(program::end(engine, &scheduler, SHUTDOWN));
    drop(scheduler);
    let root = engine.net(|net, _| net.homes[home].root.take());
    drop(root);
    engine.drop_locals(home);
}

/// Builds the scheduler of a host, as soon as the system has a thread for it.
fn build(sim: &Sim, home: usize, name: &str) -> Option<Scheduler> {
    loop {
        match program::build(sim, name) {
            Ok(scheduler) => return Some(scheduler),
            Err(error) => sim.note(format!("the program of the host {name} waits: {error}")),
        }
        sim.engine.hold(RETRY, Held::Late);
        if sim.engine.net(|net, _| net.homes[home].is_stopped) {
            return None;
        }
    }
}

impl Sim {
    /// Lets a worker not run for a time after its next step, as if the system had preempted it. The
    /// name is the name of its thread, as in a report. For example, `sim-0` is the first worker of
    /// the check, and `db-1` is the second worker of the host `db`. Returns `true` if there is such
    /// a thread.
    pub fn stall(&self, worker: &str, duration: Duration) -> bool {
        self.engine.stall_next(worker, nanoseconds(duration))
    }
}
