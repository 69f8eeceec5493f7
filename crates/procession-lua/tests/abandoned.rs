//! Clients of a server of HTTP in Lua that go away before they are answered.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpStream as StdStream};
use std::time::Duration;

use procession::net::TcpStream;
use procession::time::Instant;
use procession::{Context, Exit, Scheduler, SpawnOptions};
use procession_lua::{Message, Permissions, Program, Value};

/// Longer than any test takes.
const TIMEOUT: Duration = Duration::from_secs(60);

/// `one` serves one connection. `main` starts a server that serves at most three.
const SOURCE: &str = "
    function silent() while true do process.receive() end end
    function answer(request)
      process.send('test', 'begun')
      if request.path == '/late' then time.sleep(4000) end
      if request.path == '/sleeps' then time.sleep(3600000) end
      if request.path == '/calls' then process.call(process.spawn('silent'), 'hello') end
      while request.path == '/insists' do time.sleep(3600000) end
      return 'answer'
    end
    function one()
      local listener = assert(net.listen('127.0.0.1:0'))
      process.send('test', listener:address())
      local connection = assert(listener:accept())
      listener:close()
      http['serve connection'](connection, 'answer', 3600000)
    end
    function serve()
      local listener = assert(net.listen('127.0.0.1:0'))
      process.send('test', listener:address())
      http.serve(listener, 'answer', 3600000)
    end
    function main() process.spawn { 'serve', limits = { sockets = 4 } } end";

/// Runs a test in a process that is registered as `test`.
fn run<F: Future<Output = ()> + Send + 'static>(
    test: impl FnOnce(Context<Message>, Program) -> F + Send + 'static,
) {
    let scheduler = Scheduler::builder().worker_threads(1).test_clock().build();
    let scheduler = scheduler.expect("the test clock needs no threads");
    let program = Program::load("test", SOURCE).expect("the source is valid Lua");
    let program = program.permissions(Permissions::none().listen());
    let options = SpawnOptions::new().on(&scheduler);
    let test = options.start(move |cx| async move {
        procession::process::register("test", cx.pid()).expect("the name is free");
        test(cx, program).await;
    });
    scheduler.block_on(test).expect("the test passes");
}

/// Returns the next text that a guest sends.
async fn text(cx: &mut Context<Message>) -> String {
    match procession::timeout(TIMEOUT, cx.recv()).await {
        Ok(Some(Message::Plain(Value::String(text)))) => {
            String::from_utf8_lossy(&text).into_owned()
        }
        other => panic!("guests send texts, not {other:?}"),
    }
}

fn ask(path: &str, more: &str) -> Vec<u8> {
    format!("GET {path} HTTP/1.1\r\nHost: h\r\n\r\n{more}").into_bytes()
}

/// Goal: the request of a client that has reset its connection is cancelled at once, and its
/// process is killed some time later.
#[test]
fn a_reset_ends_the_request() {
    for (path, more, lasts) in [
        ("/sleeps", "", 0..=0),
        // Pipelined, so the reset is behind bytes that are unread.
        ("/sleeps", "GET / HTTP/1.1", 0..=1),
        ("/insists", "", 5..=5),
        ("/calls", "", 5..=5),
    ] {
        run(async move |mut cx, program| {
            let one = program.spawn("one", []).expect("it starts");
            let address = text(&mut cx).await;
            let client = TcpStream::connect(address.as_str()).await.expect("it listens");
            client.write_all(&ask(path, more)).await.expect("it is connected");
            assert_eq!(text(&mut cx).await, "begun");
            client.set_linger(Some(Duration::ZERO)).expect("it is a socket");
            let start = Instant::now();
            drop(client);
            let ended = one.await;
            let is_killed = lasts.contains(&5);
            assert_eq!(ended.is_err_and(|exit| exit == Exit::Killed), is_killed, "{path}");
            let lasted = (Instant::now() - start).as_secs();
            assert!(lasts.contains(&lasted), "{path} {more}: {lasted} s");
        });
    }
}

/// The system says the same of a client that has closed its connection.
#[test]
fn a_half_closed_client_is_answered_within_a_limit() {
    for (path, more, lasts, is_answered) in [
        ("/late", "", 4, true),
        ("/sleeps", "", 5, true),
        ("/sleeps", "GET / HTTP/1.1", 5, true),
        ("/insists", "", 10, false),
        ("/calls", "", 10, false),
    ] {
        run(async move |mut cx, program| {
            let one = program.spawn("one", []).expect("it starts");
            let mut client = StdStream::connect(text(&mut cx).await).expect("it listens");
            client.write_all(&ask(path, more)).expect("it is connected");
            client.shutdown(Shutdown::Write).expect("it is connected");
            let start = Instant::now();
            // Ignored: the answer tells it.
            drop(one.await);
            assert_eq!((Instant::now() - start).as_secs(), lasts, "{path}");
            let mut answer = String::new();
            client.set_read_timeout(Some(TIMEOUT)).expect("it is valid");
            client.read_to_string(&mut answer).expect("the connection ends in order");
            assert_eq!(answer.contains("\r\n\r\nanswer"), is_answered, "{path}: {answer}");
        });
    }
}

#[test]
fn abandoned_requests_give_their_places_back() {
    run(async |mut cx, program| {
        program.spawn("main", []).expect("it starts").await.expect("it ends in order");
        let address = text(&mut cx).await;
        for _ in 0..10 {
            let client = TcpStream::connect(address.as_str()).await.expect("it listens");
            client.write_all(&ask("/sleeps", "")).await.expect("it is connected");
            assert_eq!(text(&mut cx).await, "begun");
            client.set_linger(Some(Duration::ZERO)).expect("it is a socket");
        }
    });
}
