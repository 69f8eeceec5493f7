//! The requests that are refused.

use std::fs::{self, Permissions};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use procession::{Context, SpawnOptions};
use rustix::process::Uid;
use rustix::thread::set_thread_res_uid;

use crate::home::net::{TcpStream, UnixStream};
use crate::home::thread;

use crate::scene::TIMEOUT;

use super::live::Events;
use super::{Scene, Timed, ask, connect, wait_until};

#[test]
fn foreign_hosts_origins_and_methods_are_refused() {
    let scene = Scene::threaded(|options| options);
    let socket = scene.socket();
    for (status, head) in [
        (200, "GET /about HTTP/1.1\r\nHost: localhost\r\n\r\n"),
        (200, "GET /about HTTP/1.0\r\nHost: localhost:8080\r\n\r\n"),
        (
            200,
            "GET /about HTTP/1.1\r\nHost: localhost:8080\r\nOrigin: http://localhost:8080\r\n\r\n",
        ),
        (200, "GET /about HTTP/1.1\r\nHost: localhost\r\nSec-Fetch-Site: same-origin\r\n\r\n"),
        (421, "GET /about HTTP/1.1\r\nHost: example.com\r\n\r\n"),
        (421, "GET /about HTTP/1.1\r\nHost: localhost.example.com\r\n\r\n"),
        (421, "GET /about HTTP/1.1\r\n\r\n"),
        (400, "GET /about HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n\r\n"),
        (403, "GET /about HTTP/1.1\r\nHost: localhost\r\nOrigin: http://example.com\r\n\r\n"),
        (403, "GET /about HTTP/1.1\r\nHost: localhost\r\nOrigin: null\r\n\r\n"),
        (403, "GET /about HTTP/1.1\r\nHost: localhost\r\nOrigin: https://localhost\r\n\r\n"),
        (403, "GET /about HTTP/1.1\r\nHost: localhost\r\nSec-Fetch-Site: cross-site\r\n\r\n"),
        (405, "DELETE /about HTTP/1.1\r\nHost: localhost\r\n\r\n"),
        (405, "TRACE /about HTTP/1.1\r\nHost: localhost\r\n\r\n"),
        (404, "POST /about HTTP/1.1\r\nHost: localhost\r\n\r\n"),
        (413, "POST /about HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\n\r\nabc"),
        (400, "GET http://localhost/about HTTP/1.1\r\nHost: localhost\r\n\r\n"),
        (400, "nonsense\r\n\r\n"),
    ] {
        let answer = ask(&socket, head);
        assert_eq!(answer.status, status, "{head:?}: {answer:?}");
        let fields = ["default-src 'none'", "nosniff", "no-referrer", "no-store", "same-origin"];
        for field in fields {
            assert!(answer.head.contains(field), "{field} is missing: {answer:?}");
        }
    }
    let head = ask(&socket, "HEAD /about HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert_eq!((head.status, head.body.as_str()), (200, ""));
}

#[test]
fn tcp_needs_a_session() {
    let scene = Scene::threaded(|options| options.tcp(0));
    let door = scene.scheduler.door().expect("it was asked for");
    let address = door.tcp().expect("it was asked for");
    let get = |target: &str, more: &str| {
        scene.by_tcp(&format!("GET {target} HTTP/1.1\r\nHost: {address}\r\n{more}\r\n"))
    };
    assert_eq!(get("/about", "").status, 401);
    assert_eq!(get("/?token=00000000000000000000000000000000", "").status, 401);
    let link = door.link().expect("the system has random bytes").expect("it listens at TCP");
    let target = link.strip_prefix(&format!("http://{address}")).expect("it is a link here");
    let token = target.strip_prefix("/?token=").expect("it holds a token");
    assert_eq!(token.len(), 32, "128 bits");
    let cookie = |value: &str| format!("Cookie: a=b; procession_{}={value}\r\n", address.port());
    assert_eq!(get("/about", &cookie(token)).status, 401, "a link is no session");
    assert!(!format!("{door:?}").contains(token), "the token is in no log");

    let foreign = format!("GET {target} HTTP/1.1\r\nHost: example.com\r\n\r\n");
    assert_eq!(scene.by_tcp(&foreign).status, 421);
    let answer = get(target, "");
    assert_eq!(answer.status, 303, "{answer:?}");
    assert!(answer.head.contains("Location: /\r\n"));
    let (_, cookie_of) = answer.head.split_once("Set-Cookie: ").expect("a session begins");
    let cookie_of = cookie_of.lines().next().unwrap_or_default();
    assert!(cookie_of.ends_with("; Path=/; HttpOnly; SameSite=Strict"), "{cookie_of}");
    let pair = cookie_of.split(';').next().unwrap_or_default();
    assert!(!pair.contains(token), "the session has a secret of its own");
    assert_eq!(get("/about", &format!("Cookie: {pair}\r\n")).status, 200);
    assert_eq!(get("/about", &format!("Cookie: x{pair}\r\n")).status, 401);
    assert_eq!(get(target, "").status, 401, "a link works once");

    let origin = format!("Cookie: {pair}\r\nOrigin: http://{address}\r\n");
    assert_eq!(get("/about", &origin).status, 200);
    let port = address.port() ^ 1;
    let origin = format!("Cookie: {pair}\r\nOrigin: http://127.0.0.1:{port}\r\n");
    assert_eq!(get("/about", &origin).status, 403);
    let host = format!("GET /about HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nCookie: {pair}\r\n\r\n");
    assert_eq!(scene.by_tcp(&host).status, 421);
}

#[test]
fn a_head_of_a_mebibyte_is_refused() {
    let scene = Scene::threaded(|options| options.tcp(0));
    let field = format!("X: {}\r\n", "x".repeat(1 << 20));
    let head = format!("GET /about HTTP/1.1\r\nHost: localhost\r\n{field}\r\n");
    assert_eq!(ask(&scene.socket(), &head).status, 431);
    assert_eq!(scene.by_tcp(&head).status, 431);
    assert_eq!(scene.get("/about").status, 200);
}

/// Takes the five seconds that a request has.
#[test]
fn a_byte_at_a_time_takes_too_long() {
    let scene = Scene::threaded(|options| options);
    let mut slow = connect(&scene.socket());
    slow.set_read_timeout(Some(Duration::from_millis(250))).expect("it is not zero");
    let mut text = String::new();
    // The timeout of the read paces the bytes.
    for byte in std::iter::repeat(b'G') {
        // Ignored: the door may have stopped reading.
        let _ = slow.write_all(&[byte]);
        match slow.read_to_string(&mut text) {
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
            Err(error) => panic!("the door reset the connection: {error}"),
            Ok(_) => break,
        }
    }
    assert!(text.starts_with("HTTP/1.1 408 "), "{text}");
}

/// A client that has asked for more than a socket holds, and has read the start of the answer. Its
/// connection has a place until the client reads on, but the door waits for only five seconds.
struct SlowReader {
    stream: UnixStream,
    /// The number of bytes that follow.
    left: usize,
}

impl SlowReader {
    /// Returns `None` if the door has refused the request.
    fn begin(scene: &Scene) -> Option<Self> {
        let mut stream = connect(&scene.socket());
        stream.set_timeout(TIMEOUT);
        let large = b"GET /processes?count=1000 HTTP/1.1\r\nHost: localhost\r\n\r\n";
        stream.write_all(large).expect("the door reads");
        let mut begin = [0; 4096];
        stream.read_exact(&mut begin).ok()?;
        let text = String::from_utf8_lossy(&begin);
        let (head, _) = text.split_once("\r\n\r\n").expect("a head has an end");
        let (_, length) = head.split_once("Content-Length: ").expect("it has a length");
        let length: usize = length.lines().next()?.parse().expect("it is a number");
        Some(Self { stream, left: head.len() + 4 + length - begin.len() })
    }

    /// Reads on. Returns `false` if the door has given up before.
    fn gets_the_rest(mut self) -> bool {
        let mut rest = Vec::new();
        self.stream.read_to_end(&mut rest).is_ok() && rest.len() == self.left
    }
}

/// Goal: the door answers eight requests at once. Method: four connections follow, and four others
/// read slowly. On a slow machine, the door may have given up on one of these before the ninth
/// request comes. So the test tries again if it finds such a connection.
#[test]
fn the_ninth_request_is_refused() {
    let scene = Scene::threaded(|options| options);
    let waiting = |_| {
        let options = SpawnOptions::new().on(&scene.scheduler).label("x".repeat(120));
        options.start(|mut cx: Context<()>| async move { cx.recv().await })
    };
    let processes: Vec<_> = (0..1000).map(waiting).collect();
    let mut followers: Vec<_> = (0..4).map(|_| Events::begin(&scene, "interval=60000")).collect();
    for follower in &mut followers {
        follower.next();
    }
    let refused = loop {
        let mut readers = Vec::new();
        // The door learns of the ends of connections in its own time.
        wait_until(|| {
            readers.extend(SlowReader::begin(&scene));
            readers.len() == 4
        });
        let ninth = scene.get("/about");
        if ninth.status != 200 {
            break ninth;
        }
        let are_whole = readers.into_iter().all(SlowReader::gets_the_rest);
        assert!(!are_whole, "nine requests were answered at once");
    };
    assert_eq!(refused.status, 503);
    assert!(refused.head.contains("Retry-After: 1"), "{refused:?}");
    drop(followers);
    wait_until(|| scene.get("/about").status == 200);
    drop(processes);
}

/// Anybody on this machine can connect by TCP, and needs no secret to say nothing.
#[test]
fn silent_connections_lock_nobody_out() {
    let scene = Scene::threaded(|options| options.tcp(0));
    let door = scene.scheduler.door().expect("it was asked for");
    let address = door.tcp().expect("it was asked for");
    let tcp: Vec<_> =
        (0..100).map(|_| TcpStream::connect(address).expect("the door listens")).collect();
    assert_eq!(scene.get("/about").status, 200);
    let unix: Vec<_> = (0..100).map(|_| connect(&scene.socket())).collect();
    assert_eq!(scene.get("/about").status, 200);
    let link = door.link().expect("the system has random bytes").expect("it listens at TCP");
    let target = link.strip_prefix(&format!("http://{address}")).expect("it is a link here");
    let answer = scene.by_tcp(&format!("GET {target} HTTP/1.1\r\nHost: {address}\r\n\r\n"));
    assert_eq!(answer.status, 303, "{answer:?}");
    // The oldest have given way.
    fn closed(mut stream: impl Timed) -> usize {
        stream.set_timeout(TIMEOUT);
        stream.read(&mut [0]).expect("it is closed in order")
    }
    let oldest = (tcp.into_iter().next(), unix.into_iter().next());
    assert_eq!((oldest.0.map(closed), oldest.1.map(closed)), (Some(0), Some(0)));
}

#[test]
fn other_users_are_refused() {
    let scene = Scene::threaded(|options| options);
    let socket = scene.socket();
    // Only root can become another user. The file system would keep that one out, so it is opened.
    if !rustix::process::geteuid().is_root() {
        return;
    }
    fs::set_permissions(&scene.folder.0, Permissions::from_mode(0o711)).expect("it is ours");
    fs::set_permissions(&socket, Permissions::from_mode(0o666)).expect("it is ours");
    let said = thread::scope(|scope| {
        let other = scope.spawn(|| {
            // On Linux, this changes the calling thread only.
            set_thread_res_uid(None, Uid::from_raw(65534), None).expect("root may");
            let mut stream = UnixStream::connect(&socket).expect("the file system lets it");
            // Ignored: the door may have closed the connection.
            let _ = stream.write_all(b"GET /about HTTP/1.1\r\nHost: localhost\r\n\r\n");
            let mut said = Vec::new();
            let _ = stream.read_to_end(&mut said);
            said
        });
        other.join().expect("it does not panic")
    });
    assert_eq!(String::from_utf8_lossy(&said), "", "another user gets no answer");
    assert_eq!(scene.get("/about").status, 200);
}

#[test]
fn actions_without_leave_change_nothing() {
    let scene = Scene::threaded(|options| options);
    let process = scene.scheduler.start(|mut cx: Context<()>| async move { cx.recv().await });
    for action in ["cancel", "kill", "suspend", "resume"] {
        let answer = scene.post(&format!("/process/{}/{action}", process.pid()));
        assert_eq!(answer.status, 403, "{answer:?}");
    }
    process.send(()).expect("it lives");
    assert_eq!(process.join(), Ok(Some(())));
}

#[test]
fn actions_with_leave_act_on_processes_of_the_scheduler_only() {
    let scene = Scene::threaded(procession::observe::DoorOptions::allow_actions);
    let other = Scene::threaded(|options| options);
    let start = |scene: &Scene| {
        scene.scheduler.start(|mut cx: Context<()>| async move { cx.recv().await.is_none() })
    };
    let (one, two, foreign) = (start(&scene), start(&scene), start(&other));
    assert_eq!(scene.post(&format!("/process/{}/cancel", foreign.pid())).status, 404);
    assert_eq!(scene.post("/process/nonsense/cancel").status, 400);
    assert_eq!(scene.post(&format!("/process/{}/explode", one.pid())).status, 404);
    assert_eq!(scene.get(&format!("/process/{}/cancel", one.pid())).status, 404, "GET is safe");
    assert_eq!(scene.post(&format!("/process/{}/cancel", one.pid())).status, 200);
    let pid = one.pid();
    assert_eq!(one.join(), Ok(true));
    assert_eq!(scene.post(&format!("/process/{pid}/cancel")).status, 404, "it has ended");
    assert_eq!(scene.post(&format!("/process/{}/kill", two.pid())).status, 200);
    assert_eq!(two.join(), Err(procession::Exit::Killed));
    foreign.send(()).expect("it lives");
    assert_eq!(foreign.join(), Ok(false));
}
