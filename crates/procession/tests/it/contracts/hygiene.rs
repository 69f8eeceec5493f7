//! No relation outlives its process: a product of relations and ends.

use crate::home::mpsc;

use procession::mailbox::Event;
use procession::observe::{ProcessRelations, detail};
use procession::process::{Groups, Registry, exit, kill, send_exit};
use procession::{Child, Context, Exit, Pid, Scheduler, SpawnOptions};

use crate::scene::{assert_conserved, driven, panic_quietly, soon};

/// Something that a process does when it is told to.
struct Act(Box<dyn FnOnce(&mut Context<Act>) + Send>);

fn act(act: impl FnOnce(&mut Context<Act>) + Send + 'static) -> Act {
    Act(Box::new(act))
}

async fn puppet(mut cx: Context<Act>) {
    cx.trap_exits(true);
    while let Some(event) = cx.recv_event().await {
        if let Event::Message(Act(act)) = event {
            act(&mut cx);
        }
    }
}

/// A relation of the survivor with the one that ends.
#[derive(Clone, Copy, Debug)]
enum Relation {
    Links,
    IsLinkedBy,
    LinkedByBoth,
    LinkedByStart,
    Monitors,
    MonitorsTwice,
    MonitoredByStart,
    IsMonitored,
    HasInScope,
    HasLinkedInScope,
    All,
}

impl Relation {
    const ALL: [Self; 11] = [
        Self::Links,
        Self::IsLinkedBy,
        Self::LinkedByBoth,
        Self::LinkedByStart,
        Self::Monitors,
        Self::MonitorsTwice,
        Self::MonitoredByStart,
        Self::IsMonitored,
        Self::HasInScope,
        Self::HasLinkedInScope,
        Self::All,
    ];

    /// Lets the survivor start the one that ends.
    fn start(self, scheduler: &Scheduler, survivor: &Child<Act, ()>) -> Child<Act, ()> {
        let (gives, given) = mpsc::channel();
        let starts = act(move |_| {
            let options = SpawnOptions::new();
            let options = match self {
                Self::LinkedByStart => options.link(),
                Self::MonitoredByStart => options.monitor(),
                Self::HasInScope => options.scoped(),
                Self::HasLinkedInScope => options.scoped().link(),
                Self::All => options.scoped().link().monitor(),
                _ => options,
            };
            gives.send(options.start(puppet)).expect("the test listens");
        });
        tell(survivor, starts);
        scheduler.run_until_idle();
        soon(&given)
    }

    fn enter(self, survivor: &Child<Act, ()>, ends: &Child<Act, ()>) {
        let (survivor_pid, ends_pid) = (survivor.pid(), ends.pid());
        if let Self::Links | Self::LinkedByBoth | Self::All = self {
            tell(survivor, act(move |cx| cx.link(ends_pid)));
        }
        if let Self::IsLinkedBy | Self::LinkedByBoth | Self::All = self {
            tell(ends, act(move |cx| cx.link(survivor_pid)));
        }
        let monitors = match self {
            Self::Monitors => 1,
            Self::MonitorsTwice | Self::All => 2,
            _ => 0,
        };
        for _ in 0..monitors {
            tell(
                survivor,
                act(move |cx| {
                    cx.monitor(ends_pid);
                }),
            );
        }
        if let Self::IsMonitored | Self::All = self {
            tell(
                ends,
                act(move |cx| {
                    cx.monitor(survivor_pid);
                }),
            );
        }
    }
}

fn tell(process: &Child<Act, ()>, act: Act) {
    assert!(process.send(act).is_ok(), "it is alive");
}

/// A way to end.
#[derive(Clone, Copy, Debug)]
enum End {
    Returns,
    Panics,
    Fails,
    Killed,
    Terminated,
    Signalled,
}

impl End {
    const ALL: [Self; 6] =
        [Self::Returns, Self::Panics, Self::Fails, Self::Killed, Self::Terminated, Self::Signalled];

    fn of(self, process: &Child<Act, ()>) {
        match self {
            Self::Returns => process.cancel(),
            Self::Panics => tell(process, act(|_| panic_quietly("asked to"))),
            Self::Fails => tell(process, act(|_| exit(Exit::failed("asked to")))),
            Self::Killed => assert!(kill(process.pid())),
            Self::Terminated => assert!(process.kill()),
            Self::Signalled => {
                let pid = process.pid();
                tell(
                    process,
                    act(move |cx| {
                        cx.trap_exits(false);
                        send_exit(pid, Exit::failed("signalled"));
                    }),
                );
            }
        }
    }
}

fn assert_alone(pid: Pid, case: &str) {
    let relations = detail(pid).expect("it lives").relations.expect("a detail has them");
    let ProcessRelations { links, monitors, monitored, scope, .. } = *relations;
    let relations =
        [("links", links), ("monitors", monitors), ("monitored", monitored), ("scope", scope)];
    for (name, list) in relations {
        assert_eq!(list.total, 0, "{case}: {name} are left: {list:?}");
    }
}

#[test]
fn no_relation_outlives_its_process_however_it_ends() {
    let (groups, registry) = (Groups::new(), Registry::duplicate());
    for relation in Relation::ALL {
        for end in End::ALL {
            let scheduler = driven();
            let case = format!("{relation:?}, {end:?}");
            let survivor = scheduler.start(puppet);
            scheduler.run_until_idle();
            let own = survivor.pid();
            let ends = relation.start(&scheduler, &survivor);
            relation.enter(&survivor, &ends);
            scheduler.run_until_idle();
            let pid = ends.pid();
            scheduler.register("ends", pid).expect("it is free");
            for key in ["one", "two"] {
                groups.join(key, pid).expect("it lives");
                registry.register(key, pid, ()).expect("it lives");
            }
            end.of(&ends);
            scheduler.run_until_idle();
            assert!(!ends.is_alive() && survivor.is_alive(), "{case}");
            assert_alone(own, &case);
            assert_eq!(scheduler.whereis("ends"), None, "{case}");
            assert!(registry.is_empty() && registry.keys(pid).is_empty(), "{case}");
            for key in ["one", "two"] {
                assert!(groups.members(key).is_empty(), "{case}");
            }
            // With the address of the one that has ended, and without.
            assert_conserved(&scheduler);
            drop(ends);
            assert_conserved(&scheduler);
        }
    }
}
