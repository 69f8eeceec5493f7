//! Floods of exit signals.

use crate::home::{mpsc, others_may_run};
use procession::machine::{Events, InitError, Process, Status, WaitingFor, Yields};
use procession::mailbox::WhenFull;
use procession::{Context, Exit, Pid, SpawnOptions, yield_now};
use procession_sync::atomic::AtomicBool;
use procession_sync::atomic::Ordering::Relaxed;

use crate::scene::{soon, threaded};

/// Goal: exit signals, which need no room in a bounded mailbox, cannot keep a process from its
/// steps or from its messages. Method: threads send them until the process has had several steps
/// with them.
#[test]
fn a_flood_of_signals_leaves_a_process_its_steps() {
    const STEPS: u32 = 20;
    struct Trapping {
        trapping: bool,
        steps: u32,
        tells: mpsc::Sender<()>,
    }
    impl Process for Trapping {
        type Input = ();
        type Message = ();
        type Output = ();

        fn init(&mut self, _: &str, (): ()) -> Result<(), InitError> {
            Ok(())
        }

        fn step(
            &mut self,
            events: &mut Events<()>,
            yields: &mut Yields<'_>,
        ) -> Result<Status<()>, Box<dyn std::error::Error + Send + Sync>> {
            if !self.trapping {
                yields.trap_exits(true);
                self.trapping = true;
                self.tells.send(())?;
            }
            self.steps += u32::from(events.len() > 0);
            if self.steps == STEPS {
                self.tells.send(())?;
                return Ok(Status::Done(()));
            }
            Ok(Status::Wait(WaitingFor::Messages))
        }
    }
    let scheduler = threaded(1);
    let options = SpawnOptions::new().on(&scheduler).mailbox(4, WhenFull::Reject);
    let (tells, told) = mpsc::channel();
    let machine = options.try_start_machine(Trapping { trapping: false, steps: 0, tells }, "", ());
    let machine = machine.expect("it accepts");
    // The first signal before it traps exits would end it.
    soon(&told);
    flood_until(machine.pid(), || soon(&told));
}

#[test]
fn a_flood_of_signals_leaves_a_process_its_messages() {
    const MESSAGES: u32 = 4;
    let scheduler = threaded(1);
    let options = SpawnOptions::new().on(&scheduler).mailbox(MESSAGES, WhenFull::Wait);
    let (tells, told) = mpsc::channel();
    let receiver = options.start(move |mut cx: Context<u32>| async move {
        cx.trap_exits(true);
        tells.send(()).expect("the test waits");
        for n in 0..MESSAGES {
            assert_eq!(cx.recv().await, Some(n));
        }
        tells.send(()).expect("the test waits");
    });
    soon(&told);
    let address = receiver.address().clone();
    let beside = scheduler.spawn(async { yield_now().await });
    flood_until(receiver.pid(), || {
        // Another process has its turns meanwhile.
        beside.join().expect("it ends");
        (0..MESSAGES).for_each(|n| address.send(n).expect("there is room"));
        soon(&told);
    });
    receiver.join().expect("it ends");
}

/// Sends exit signals from several threads until `wait` returns.
fn flood_until(pid: Pid, wait: impl FnOnce()) {
    /// Stops the threads even if the test fails. Otherwise the scope would wait for them.
    struct Over<'a>(&'a AtomicBool);
    impl Drop for Over<'_> {
        fn drop(&mut self) {
            self.0.store(true, Relaxed);
        }
    }
    let over = AtomicBool::new(false);
    crate::home::thread::scope(|scope| {
        let _over = Over(&over);
        for _ in 0..2 {
            scope.spawn(|| {
                while !over.load(Relaxed) {
                    procession::process::send_exit(pid, Exit::Shutdown);
                    others_may_run();
                }
            });
        }
        wait();
    });
}
