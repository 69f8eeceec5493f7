//! What a node shows in the door of its scheduler.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use procession::observe::DoorOptions;
use procession::process::Groups;
use procession::{Context, Scheduler, start};
use procession_cluster::{Cookie, Letter, Node};

use crate::{connect, cookie, listens, seen_by, until};

/// Asks the door of a scheduler. Returns the body of the answer.
pub(crate) fn ask(socket: &Path, target: &str) -> String {
    let mut stream = UnixStream::connect(socket).expect("it listens");
    let request = format!("GET {target} HTTP/1.1\r\nHost: localhost\r\n\r\n");
    stream.write_all(request.as_bytes()).expect("it reads");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("it answers");
    answer.split_once("\r\n\r\n").map(|(_, body)| body.to_owned()).expect("it has a body")
}

/// Returns the path of a new folder for a door.
fn folder(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("procession-{name}-{}", std::process::id()))
}

/// Returns a scheduler with a door in the folder, and the socket of the door.
fn with_door(folder: &Path) -> (Scheduler, PathBuf) {
    let options = DoorOptions::default().directory(folder);
    let builder = Scheduler::builder().worker_threads(2).door(options).on_exit(|_| {});
    let scheduler = builder.build().expect("the directory is new");
    let socket = scheduler.door().expect("it was asked for").socket().to_owned();
    (scheduler, socket)
}

/// Goal: the groups and names that nodes share are seen from outside.
#[test]
fn the_door_shows_groups_and_names() {
    let folder = folder("groups");
    let (scheduler, socket) = with_door(&folder);
    scheduler.block_on(async {
        let a = listens("a@127.0.0.1").start().await.expect("it starts");
        let b = listens("b@127.0.0.1").start().await.expect("it starts");
        let (of_a, of_b) = (Groups::new(), Groups::new());
        a.share_groups("pg", &of_a).expect("the name is free");
        b.share_groups("pg", &of_b).expect("the name is free");
        let names = b.share_names("names").expect("the name is free");
        let waits = start(async |mut cx: Context<()>| cx.recv().await);
        of_b.join("lobby", waits.pid()).expect("it runs");
        names.claim("counter", waits.pid()).expect("the name is free");
        connect(&b, &a).await;
        let there = r#"{"node":"a@127.0.0.1","scope":"pg","group":"lobby","members":1,"local":0}"#;
        let here = r#"{"node":"b@127.0.0.1","scope":"pg","group":"lobby","members":1,"local":1}"#;
        until(|| ask(&socket, "/groups").contains(there)).await;
        let json = ask(&socket, "/groups");
        let name = r#"{"node":"b@127.0.0.1","scope":"names","name":"counter","owner":""#;
        assert!(json.contains(here) && json.contains(name), "{json}");
        waits.cancel();
    });
    drop(scheduler);
    // Ignored: another test may use it.
    drop(fs::remove_dir_all(&folder));
}

/// Goal: peers and ends are seen from outside, and the document lists all families.
#[test]
fn the_door_shows_peers_and_ends() {
    let folder = folder("cluster");
    let (scheduler, socket) = with_door(&folder);
    scheduler.block_on(async {
        let a = listens("a@127.0.0.1").start().await.expect("it starts");
        let [b, c] =
            ["b@127.0.0.1", "c@127.0.0.1"].map(|name| Node::builder(name).cookie(cookie()));
        let b = b.start().await.expect("it starts");
        let c = c.start().await.expect("it starts");
        for node in [&b, &c] {
            connect(node, &a).await;
            seen_by(&a, node).await;
        }
        c.stop();
        until(|| !a.status().ends.is_empty()).await;
        let other = Cookie::new("other").expect("it has a text");
        let d = Node::builder("d@127.0.0.1").cookie(other).start().await.expect("it starts");
        let address = a.local_addr().expect("it listens");
        d.connect_at("a@127.0.0.1", address).await.expect_err("it has another cookie");
        until(|| !a.status().refusals.is_empty()).await;
        // A name of the scheduler, which the door asks for from another one.
        let sink = start(async |mut cx: Context<Letter>| cx.recv().await.is_some());
        procession::process::register("sink", sink.pid()).expect("the name is free");
        let recipient = sink.address().map(|letter| letter);
        a.find_names_with(move |name| {
            procession::process::whereis(name).map(|_| recipient.clone())
        });
        let json = ask(&socket, "/cluster");
        assert!(json.contains(r#""names":1,"#), "{json}");
        // The nodes come in no particular order.
        let peer = r#"{"node":"a@127.0.0.1","peer":"b@127.0.0.1","creation":"#;
        assert!(json.contains(r#""peer":[{"node":""#) && json.contains(peer), "{json}");
        assert!(json.contains(r#""end":[{"node":"a@127.0.0.1","cause":""#), "{json}");
        assert!(!json.contains("c@127.0.0.1\",\"creation"), "it is no peer: {json}");
        let metrics = ask(&socket, "/metrics");
        let labels = r#"node="a@127.0.0.1",peer="b@127.0.0.1"} 0"#;
        let refused = "procession_cluster_peer_refused_total{scheduler=";
        let is_it = |line: &str| line.starts_with(refused) && line.ends_with(labels);
        assert!(metrics.lines().any(is_it), "{metrics}");
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/CLUSTER.md");
        let document = fs::read_to_string(path).expect("the document is here");
        let of_document = document.lines().filter(|line| line.starts_with("| `procession_cluster"));
        let documented: Vec<_> = of_document
            .map(|line| {
                let parts: Vec<_> = line.split('|').map(str::trim).collect();
                let family = parts[1].trim_matches('`');
                let name = family.split_once('{').map_or(family, |(name, _)| name);
                format!("{name} {} {}", parts[2], parts[3])
            })
            .collect();
        let mut written = Vec::new();
        let mut lines = metrics.lines();
        while let Some(line) = lines.next() {
            let Some(rest) = line.strip_prefix("# TYPE procession_cluster") else { continue };
            let help = lines.find_map(|line| line.strip_prefix("# HELP ")).expect("it has a text");
            let (name, help) = help.split_once(' ').expect("it has a text");
            let kind = rest.split(' ').nth(1).expect("it has a type");
            written.push(format!("{name} {kind} {help}"));
        }
        assert_eq!(written, documented);
    });
    drop(scheduler);
    // Ignored: another test may use it.
    drop(fs::remove_dir_all(&folder));
}
