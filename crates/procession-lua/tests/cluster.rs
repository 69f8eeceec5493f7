//! Programs with nodes: two of them in one test, and a process in Rust.
#![cfg(not(procession_loom))]

use std::net::Ipv4Addr;
use std::time::Duration;

use procession::sync::oneshot;
use procession::{Context, Exit, Scheduler, start, timeout};
use procession_cluster::term::BigInteger;
use procession_cluster::{Cookie, Letter, Node, Remote, Term};
use procession_lua::{Permissions, Program, Value};

/// Longer than any test takes.
const LIMIT: Duration = Duration::from_secs(60);

const SHOP: &str = "shop@127.0.0.1";
const TILL: &str = "till@127.0.0.1";

fn scheduler() -> Scheduler {
    Scheduler::builder().worker_threads(2).build().expect("the system has threads")
}

fn load(source: &str, node: &Node) -> Program {
    let program = Program::load("test", source).expect("the source is valid Lua");
    program.node(node.clone())
}

/// Starts two nodes, the second of which is connected to the first.
async fn nodes() -> (Node, Node) {
    let cookie = Cookie::random().expect("the system has random bytes");
    let shop = Node::builder(SHOP).cookie(cookie.clone()).listen((Ipv4Addr::LOCALHOST, 0).into());
    let shop = shop.start().await.expect("it starts");
    let till = Node::builder(TILL).cookie(cookie).start().await.expect("it starts");
    let address = shop.local_addr().expect("it listens");
    till.connect_at(SHOP, address).await.expect("they connect");
    (shop, till)
}

/// Runs `shop` and then `till` as the first processes of programs on two nodes, which are
/// connected. Returns the result of `till`.
fn run_both(shop: &str, till: &str, permissions: Permissions) -> Result<Value, Exit> {
    let scheduler = scheduler();
    scheduler.block_on(async {
        let (shop_node, till_node) = nodes().await;
        let shop = load(shop, &shop_node).spawn("main", []).expect("it has main");
        let till = load(till, &till_node).permissions(permissions);
        // The first one has its name by then.
        wait_for(&till_node, "shop").await;
        let result = till.spawn("main", []).expect("it has main");
        let result = timeout(LIMIT, result).await.expect("it ends in time");
        drop(shop);
        result
    })
}

/// Waits until a process has its name on the first node.
async fn wait_for(node: &Node, name: &str) {
    let ready = async {
        while node.call(Remote::named(name, SHOP), Term::atom("ready"), LIMIT).await.is_err() {
            procession::yield_now().await;
        }
    };
    timeout(LIMIT, ready).await.expect("it has its name in time");
}

/// A server that answers each call with its request, and does what messages ask for.
const ECHO: &str = r#"
function main()
  process.register("shop")
  while true do
    local request, call = process.receive()
    if call then
      process.reply(call, request)
    elseif request == "fail" then
      error("asked to")
    elseif type(request) == "table" and request.to then
      process.send(request.to, request.message)
    end
  end
end
"#;

#[test]
fn a_process_with_a_name_is_called_and_monitored_from_another_node() {
    let till = r#"
    function main()
      assert(node.name() == "till@127.0.0.1")
      assert(node.peers()[1].name == "shop@127.0.0.1")
      assert(node.call("shop", "shop@127.0.0.1", "hello") == "hello")
      local many = node.call("shop", "shop@127.0.0.1", { 1, 2.5, "x", true, { 3 } }, 10000)
      assert(many[2] == 2.5 and many[4] == true and many[5][1] == 3)
      -- Its own PID, which comes back as the same one, and a message to it by the other node.
      assert(node.call("shop", "shop@127.0.0.1", process.self()) == process.self())
      assert(node.send("shop", "shop@127.0.0.1", { to = process.self(), message = "pong" }) == true)
      assert(process.receive() == "pong")
      assert(node.monitor("shop", "shop@127.0.0.1"))
      assert(node.send("shop", "shop@127.0.0.1", "fail"))
      local down = process.receive()
      assert(down.down == "shop" and down.node == "shop@127.0.0.1", tostring(down.down))
      assert(down.reason:find("asked to"), down.reason)
      local none, cause = node.call("shop", "shop@127.0.0.1", "hello")
      assert(none == nil and cause:find("no such process"), cause)
      return "done"
    end"#;
    assert_eq!(run_both(ECHO, till, Permissions::all()), Ok("done".into()));
}

#[test]
fn a_process_has_a_bounded_number_of_monitors_of_names() {
    let till = r#"
    function main()
      local count, ok, cause = 0
      repeat
        ok, cause = node.monitor("shop", "shop@127.0.0.1")
        count = count + 1
        if count % 64 == 0 then process.yield() end
      until not ok or count == 100000
      assert(count == 65537 and not ok, count)
      -- They end with the process.
      assert(node.send("shop", "shop@127.0.0.1", "fail"))
      for _ = 1, 65536 do assert(process.receive().down == "shop") end
      assert(node.monitor("shop", "shop@127.0.0.1"))
      return cause
    end"#;
    let refused = "a process may have 65536 monitors at a time";
    match run_both(ECHO, till, Permissions::all()) {
        Ok(Value::String(cause)) => assert!(cause.ends_with(refused.as_bytes()), "{cause:?}"),
        other => panic!("the program must return a text, but: {other:?}"),
    }
}

#[test]
fn pids_of_other_nodes_are_used_like_those_of_this_one() {
    let shop = r#"
    function worker()
      while true do
        local request, call = process.receive()
        if request == "end" then return end
        if call then process.reply(call, { "done", request }) end
      end
    end
    function main()
      process.register("shop")
      while true do
        local request, call = process.receive()
        process.reply(call, request == "worker" and process.spawn("worker") or request)
      end
    end"#;
    let till = r#"
    function main()
      local worker = node.call("shop", "shop@127.0.0.1", "worker")
      assert(node.kind(worker) == "pid")
      local done = process.call(worker, 7)
      assert(done[1] == "done" and done[2] == 7)
      process.monitor(worker)
      assert(process.send(worker, "end") == true)
      local down = process.receive()
      assert(down.down == worker and down.reason:find("normal"), down.reason)
      local none, cause = process.call(worker, 7, 5000)
      assert(none == nil and cause:find("no such process"), cause)
      return pcall(process.send_after, 1, worker, "late")
    end"#;
    // Its permissions include no node, but it was sent a PID. So only the first call is refused.
    let refused = run_both(shop, till, Permissions::none());
    let Err(Exit::Failed(_)) = refused else { panic!("it has no permission: {refused:?}") };
    let only = Permissions::none().connect_to(SHOP).expect("it is a node");
    assert_eq!(run_both(shop, till, only), Ok(Value::Boolean(false)));
}

#[test]
fn only_nodes_that_are_permitted_can_be_named() {
    let till = r#"
    function child() return select(2, node.send("shop", "shop@127.0.0.1", 1)) end
    function main()
      local causes = {}
      causes[1] = select(2, node.send("shop", "shop@127.0.0.1", 1))
      causes[2] = select(2, node.call("shop", "shop@127.0.0.1", 1))
      causes[3] = select(2, node.monitor("shop", "shop@127.0.0.1"))
      causes[4] = select(2, node.connect("shop@127.0.0.1"))
      for i = 1, 4 do assert(causes[i]:find("it needs %-%-allow%-net=shop@127.0.0.1"), causes[i]) end
      return "refused"
    end"#;
    for permissions in [
        Permissions::none(),
        Permissions::none().connect_to("till@127.0.0.1").expect("it is a node"),
        Permissions::none().connect_to("127.0.0.1:4369").expect("it is an address"),
    ] {
        assert_eq!(run_both(ECHO, till, permissions), Ok("refused".into()));
    }
    let till = r#"
    function sends() return node.send("shop", "shop@127.0.0.1", 1) end
    function main()
      assert(sends() == true)
      assert(node.connect("shop@127.0.0.1") == true, "they are connected")
      -- A child may have fewer.
      process.register("main")
      process.spawn({ "child", allow = { net = false } })
      return process.receive()
    end
    function child() process.send("main", sends()) end"#;
    let permitted = Permissions::none().connect_to("127.0.0.1").expect("it is a host");
    assert_eq!(run_both(ECHO, till, permitted), Ok(Value::Boolean(false)));
}

#[test]
fn terms_come_back_as_they_went() {
    let scheduler = scheduler();
    scheduler.block_on(async {
        let (shop, till) = nodes().await;
        let echo = load(ECHO, &shop).spawn("main", []).expect("it has main");
        wait_for(&till, "shop").await;
        let big = BigInteger::new(true, vec![1; 100]);
        for term in [
            Term::from(7),
            Term::from(-1.5),
            Term::from("text"),
            Term::from(true),
            Term::atom("ok"),
            Term::atom("nil"),
            Term::Big(Box::new(big)),
            Term::list([]),
            Term::list([Term::atom("nil"), Term::from(2)]),
            Term::tuple([]),
            Term::tuple([Term::atom("ok"), Term::tuple([Term::from(1)]), Term::list([])]),
            Term::Map(vec![]),
            Term::Map(vec![(Term::from(1), Term::from("one"))]),
            Term::Map(vec![(Term::atom("name"), Term::tuple([Term::atom("undefined")]))]),
            Term::Improper(vec![Term::from(1)], Box::new(Term::from(2))),
            // One of a node that is not connected.
            Term::Pid(procession_cluster::NodePid {
                node: procession_cluster::Atom::new("other@127.0.0.1").expect("it is short"),
                id: 1,
                serial: 2,
                creation: 3,
            }),
        ] {
            let reply = till.call(Remote::named("shop", SHOP), term.clone(), LIMIT).await;
            assert_eq!(reply.expect("it replies"), term);
        }
        drop(echo);
    });
}

/// A call, a cast and the ends of connections, from a process in Rust.
#[test]
fn casts_and_ends_of_connections_arrive_as_messages() {
    let source = r#"
    function main()
      process.register("shop")
      node.subscribe()
      local seen = {}
      while #seen < 2 do
        local message, call = process.receive()
        if call then
          process.reply(call, message)
        elseif type(message) == "table" and message.node_down then
          seen[#seen + 1] = message.node_down
        elseif type(message) ~= "table" then
          seen[#seen + 1] = message
        end
      end
      return table.concat(seen, " ")
    end"#;
    let scheduler = scheduler();
    let result = scheduler.block_on(async {
        let (shop, till) = nodes().await;
        let main = load(source, &shop).spawn("main", []).expect("it has main");
        wait_for(&till, "shop").await;
        let cast = Term::tuple([Term::atom("$gen_cast"), Term::from("cast")]);
        till.send(Remote::named("shop", SHOP), cast).expect("it is connected");
        // In order with the cast, since the connection ends behind it.
        wait_for(&till, "shop").await;
        till.disconnect(SHOP);
        timeout(LIMIT, main).await.expect("it ends in time")
    });
    assert_eq!(result, Ok(Value::string("cast till@127.0.0.1")));
}

/// Messages of other nodes take room in the mailbox, so that they cannot fill the memory.
#[test]
fn messages_of_other_nodes_count_against_the_limits_of_the_mailbox() {
    let source = r#"
    function main()
      process.register("shop")
      assert(node.call("gate", "till@127.0.0.1", "wait"))
      local count = 0
      while process.receive(0) do count = count + 1 end
      return count
    end"#;
    let scheduler = scheduler();
    let count = scheduler.block_on(async {
        let (shop, till) = nodes().await;
        let (sender, receiver) = oneshot::channel();
        let gate = start(|mut cx: Context<Letter>| async move {
            if let Some(Letter::Call { reply, .. }) = cx.recv().await {
                drop(sender.send(reply));
            }
            cx.recv().await;
        });
        let member = till.attach(&gate.address().map(|letter| letter));
        till.register("gate", &member).expect("the name is free");
        let program = load(source, &shop).mailbox_limit(10).permissions(Permissions::all());
        let main = program.spawn("main", []).expect("it has main");
        // It has its name by then.
        let reply = timeout(LIMIT, receiver).await.expect("in time").expect("it is called");
        for number in 0..1000 {
            let to = Remote::named("shop", SHOP);
            till.send(to, Term::from(number)).expect("there is room in the queue");
        }
        // It is refused behind the messages, which have arrived then.
        let nobody = till.call(Remote::named("nobody", SHOP), Term::from(1), LIMIT).await;
        assert!(nobody.is_err());
        reply.send(Term::from(true)).expect("it is connected");
        timeout(LIMIT, main).await.expect("it ends in time")
    });
    assert_eq!(count, Ok(Value::Integer(10)));
}
