//! The panic of code that a node calls is printed, although the panic hook of the runtime leaves
//! panics of processes to their reports.
//!
//! Method: each place panics once, with its name, in a separate child process. The child prints the
//! name exactly once. The table of the core is `reports::catches` of `procession`.

use std::env;
use std::process::Command;

use procession::observe::install_panic_hook;
use procession::{Context, start};
use procession_cluster::{Letter, Node, Remote, Term};

use crate::{pair, run, until};

/// The name of the variable that chooses the place.
const PLACE: &str = "PROCESSION_TEST_PLACE";

const FIND: &str = "the function that finds names";
const SEND: &str = "the function of a recipient";
const DROP: &str = "the drop of a function of a recipient";

/// Panics when it is dropped.
struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        panic!("{DROP}");
    }
}

#[test]
fn every_caught_panic_is_printed_once() {
    if let Ok(place) = env::var(PLACE) {
        install_panic_hook();
        return run(async {
            let (a, b) = pair().await;
            fail_at(&place, &a, &b).await;
            assert_eq!((a.stop().await, b.stop().await), (0, 0));
        });
    }
    for place in [FIND, SEND, DROP] {
        let mut child = Command::new(env::current_exe().expect("a test knows itself"));
        child.args(["--exact", "--nocapture", "--test-threads=1"]);
        child.arg("panics::every_caught_panic_is_printed_once");
        child.env(PLACE, place).env("RUST_BACKTRACE", "0");
        let output = child.output().expect("the system has processes");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{}\n{said}", String::from_utf8_lossy(&output.stdout));
        let lines = said.lines().filter(|line| line.ends_with(place)).count();
        assert_eq!(lines, 1, "{place}:\n{said}");
    }
}

async fn fail_at(place: &str, a: &Node, b: &Node) {
    let receiver =
        start(|mut cx: Context<Letter>| async move { while cx.recv().await.is_some() {} });
    match place {
        FIND => {
            b.find_names_with(|_| panic!("{FIND}"));
            a.send(Remote::named("nobody", "b@127.0.0.1"), Term::from(1)).expect("there is room");
            until(|| b.peers().first().is_some_and(|peer| peer.undelivered == 1)).await;
        }
        SEND => {
            let member = b.attach(&receiver.address().map(|_: Letter| panic!("{SEND}")));
            b.register("receiver", &member).expect("the name is free");
            let to = Remote::named("receiver", "b@127.0.0.1");
            a.send(to, Term::from(1)).expect("there is room");
            until(|| b.peers().first().is_some_and(|peer| peer.undelivered == 1)).await;
        }
        _ => {
            let bomb = Bomb;
            b.attach(&receiver.address().map(move |letter: Letter| {
                let _ = &bomb;
                letter
            }));
        }
    }
    let attached = b.status().attached;
    receiver.cancel();
    receiver.await.expect("it returns");
    if attached > 0 {
        until(|| b.status().attached == 0).await;
    }
}
