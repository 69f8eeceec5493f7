//! A program that the system stops for longer than its lease: SIGSTOP.
//!
//! Method: two children of the test run the same singleton on a model of etcd, and send the fence
//! to a ledger as fast as they can. The test stops the first, and lets it continue when the second
//! has written.

use std::env;
use std::net::Ipv4Addr;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use procession::net::{TcpListener, TcpStream};
use procession::supervisor::Supervisor;
use procession::{Context, sleep, spawn, timeout};
use procession_cluster::exclusive::{ExclusiveNames, Singleton};
use rustix::process::{Pid, Signal, kill_process};

use super::gateway::{etcd, serve};
use super::model::{Ledger, Model};
use super::node;
use crate::{PATIENCE, run};

const LEASE: Duration = Duration::from_secs(2);
/// The names of the variables that make a program a child: the URL of the store, and the address of
/// the ledger.
const STORE: &str = "PROCESSION_TEST_STORE";
const LEDGER: &str = "PROCESSION_TEST_LEDGER";

/// A child, which ends with the test.
struct Program(Child);

impl Drop for Program {
    fn drop(&mut self) {
        self.signal(Signal::KILL);
        self.0.wait().expect("it has ended");
    }
}

impl Program {
    fn start(store: &str, ledger: &str) -> Self {
        let mut child = Command::new(env::current_exe().expect("a test knows itself"));
        child.args(["--exact", "--nocapture", "--test-threads=1"]);
        child.arg("exclusive::stopped::a_stopped_program_writes_nothing_by_an_old_fence");
        child.env(STORE, store).env(LEDGER, ledger).stdout(Stdio::null()).stderr(Stdio::null());
        Self(child.spawn().expect("the system has processes"))
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.0), signal).expect("it is our child");
    }
}

#[test]
fn a_stopped_program_writes_nothing_by_an_old_fence() {
    if let Ok(store) = env::var(STORE) {
        return run(write(store, env::var(LEDGER).expect("the test sets it")));
    }
    run(async {
        let ledger = Ledger::default();
        let store = serve(Model::start()).await;
        let address = take_writes(ledger.clone()).await;
        let first = Program::start(&store, &address);
        timeout(PATIENCE, ledger.next(0)).await.expect("it writes");
        let second = Program::start(&store, &address);
        sleep(LEASE).await;
        first.signal(Signal::STOP);
        timeout(PATIENCE, ledger.next(1)).await.expect("the other one writes");
        first.signal(Signal::CONT);
        sleep(LEASE).await;
        // It may do a step before a worker looks at the time.
        let written = ledger.written();
        assert_eq!(written.taken.len(), 2, "{written:?}");
        assert!(written.refused <= 1, "{} writes were refused", written.refused);
        // It waits for the name, and gets it.
        drop(second);
        timeout(PATIENCE, ledger.next(2)).await.expect("the first one writes again");
    });
}

/// The program of a child.
async fn write(store: String, ledger: String) {
    let node = node("a@127.0.0.1").await;
    let names = ExclusiveNames::builder(&node).store(etcd(&store)).lease_time(LEASE).start();
    let writes = Singleton::new(&names, "ledger", move |_: Context<()>, fence| {
        let ledger = ledger.clone();
        async move {
            let Ok(stream) = TcpStream::connect(ledger).await else { return };
            while stream.write_all(&fence.get().to_le_bytes()).await.is_ok() {
                sleep(Duration::from_millis(5)).await;
            }
        }
    });
    let tree = Supervisor::one_for_one().child(writes).try_start().await.expect("it starts");
    tree.await;
}

/// Takes fences for a ledger, and returns the address.
async fn take_writes(ledger: Ledger) -> String {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a port is free");
    let address = listener.local_addr().expect("it is bound").to_string();
    spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let ledger = ledger.clone();
            let takes = async move {
                let mut fence = [0; 8];
                while stream.read_exact(&mut fence).await.is_ok() {
                    ledger.write(u64::from_le_bytes(fence));
                }
            };
            spawn(takes).detach();
        }
    })
    .detach();
    address
}
