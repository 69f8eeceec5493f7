//! Programs with nodes: two programs in one test, and a process in Rust.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use procession::mailbox::relay::DeadCause;
use procession::sync::oneshot;
use procession::{Context, Exit, Scheduler, start, timeout};
use procession_cluster::term::BigInteger;
use procession_cluster::{CallTermError, Cookie, Letter, Node, Remote, Term, TermReply};
use procession_lua::{Permissions, Program, Value};
use procession_sync::atomic::AtomicU32;
use procession_sync::atomic::Ordering::Relaxed;

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

/// Goal: a program cannot add a finalizer to what the library makes a tuple with. Nothing could end
/// the finalizer.
#[test]
fn the_metatables_of_tuples_and_maps_are_out_of_reach() {
    let source = "function main()
          local found = {}
          for _, make in ipairs { node.tuple, node.map } do
            local made = make {}
            found[#found + 1] = tostring(getmetatable(made))
            found[#found + 1] = tostring(pcall(setmetatable, made, {}))
            found[#found + 1] = node.kind(made)
          end
          return table.concat(found, ' ')
        end";
    let program = Program::load("test", source).expect("the source is valid Lua");
    let found =
        scheduler().block_on(async { program.spawn("main", []).expect("it has main").await });
    assert_eq!(found, Ok(Value::string("false false tuple false false map")));
}

/// Goal: a program that is being loaded cannot speak for the process that spawns it.
#[test]
fn a_program_uses_its_node_only_once_it_has_started() {
    let source = "
        local at = 'shop@127.0.0.1'
        local causes = {
          select(2, pcall(node.subscribe)),
          (select(2, pcall(node.send, 'a', at, 1))),
          (select(2, node.monitor('a', at))),
        }
        function main() return table.concat(causes, '; ') end";
    scheduler().block_on(async {
        let cookie = Cookie::random().expect("the system has random bytes");
        let node = Node::builder(SHOP).cookie(cookie).start().await.expect("it starts");
        let program = load(source, &node).permissions(Permissions::all());
        // Its spawner is a process, for which it would speak.
        let spawner = start(|_: Context<procession_lua::Message>| async move {
            program.spawn("main", []).expect("it has main").await
        });
        let causes = spawner.await.expect("it does not panic");
        let cause = "the process has not started yet";
        assert_eq!(causes, Ok(Value::string([cause; 3].join("; "))));
        node.stop().await;
    });
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
      -- They end with the process. The queue may still be full of them.
      while not node.send("shop", "shop@127.0.0.1", "fail") do process.yield() end
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
            Term::Map(vec![(Term::from(1.0), Term::from("one"))]),
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

/// A process of the other node that answers a call once [`open`](Gate::open) is called. Until then,
/// the process that calls it receives nothing.
struct Gate(oneshot::Receiver<TermReply>);

impl Gate {
    fn new(node: &Node) -> Self {
        let (sender, receiver) = oneshot::channel();
        let gate = start(|mut cx: Context<Letter>| async move {
            if let Some(Letter::Call { reply, .. }) = cx.recv().await {
                drop(sender.send(reply));
            }
            cx.recv().await;
        });
        let member = node.attach(&gate.detach().map(|letter| letter));
        node.register("gate", &member).expect("the name is free");
        Self(receiver)
    }

    /// Waits until it is called.
    async fn called(self) -> TermReply {
        timeout(LIMIT, self.0).await.expect("in time").expect("it is called")
    }
}

fn open(gate: TermReply) {
    gate.send(Term::from(true)).expect("it is connected");
}

/// Returns when everything that the second node has sent before has arrived.
async fn all_arrived(till: &Node) {
    // It is refused behind the messages.
    let nobody = till.call(Remote::named("nobody", SHOP), Term::from(1), LIMIT).await;
    nobody.expect_err("there is none");
}

/// The process of the first node that waits for the gate, and then counts its messages.
const COUNTS: &str = r#"
function main()
  process.register("shop")
  assert(node.call("gate", "till@127.0.0.1", "wait"))
  local count = 0
  while process.receive(0) do count = count + 1 end
  return count
end"#;

/// Messages of other nodes take room in the mailbox, so that they cannot fill the memory. A refused
/// one does not vanish.
#[test]
fn messages_of_other_nodes_that_find_no_room_are_counted_and_their_callers_told() {
    let dead = Arc::new(AtomicU32::new(0));
    let counts = Arc::clone(&dead);
    let scheduler = Scheduler::builder().worker_threads(2).on_dead_letter(move |letter| {
        assert_eq!(letter.cause, DeadCause::Full);
        assert!(letter.message.is::<Letter>());
        counts.fetch_add(1, Relaxed);
    });
    let scheduler = scheduler.build().expect("the system has threads");
    let count = scheduler.block_on(async {
        let (shop, till) = nodes().await;
        let gate = Gate::new(&till);
        let program = load(COUNTS, &shop).mailbox_limit(10).permissions(Permissions::all());
        let main = program.spawn("main", []).expect("it has main");
        // It has its name by then.
        let gate = gate.called().await;
        let to = || Remote::named("shop", SHOP);
        for number in 0..1000 {
            till.send(to(), Term::from(number)).expect("there is room in the queue");
        }
        match till.call(to(), Term::from(1), LIMIT).await {
            Err(CallTermError::Ended(exit)) => assert_eq!(exit, Exit::failed("system_limit")),
            other => panic!("the call must be refused: {other:?}"),
        }
        let undelivered: u64 = shop.peers().iter().map(|peer| peer.undelivered).sum();
        assert_eq!(undelivered, 991);
        open(gate);
        timeout(LIMIT, main).await.expect("it ends in time")
    });
    assert_eq!(count, Ok(Value::Integer(10)));
    drop(scheduler);
    assert_eq!(dead.load(Relaxed), 991);
}

/// The caller of another node chooses the tag of a call.
#[test]
fn calls_of_other_nodes_count_with_their_tags() {
    let scheduler = scheduler();
    let count = scheduler.block_on(async {
        let (shop, till) = nodes().await;
        let gate = Gate::new(&till);
        let program = load(COUNTS, &shop).memory_limit(2 << 20).permissions(Permissions::all());
        let main = program.spawn("main", []).expect("it has main");
        let gate = gate.called().await;
        let caller = till.attach(
            &start(|mut cx: Context<Letter>| async move {
                cx.recv().await;
            })
            .detach()
            .map(|letter| letter),
        );
        for _ in 0..100 {
            let from = Term::tuple([caller.pid().into(), Term::from("x".repeat(60_000))]);
            let call = Term::tuple([Term::atom("$gen_call"), from, Term::from(1)]);
            caller.send_wait(Remote::named("shop", SHOP), call).await.expect("it is connected");
        }
        all_arrived(&till).await;
        open(gate);
        timeout(LIMIT, main).await.expect("it ends in time")
    });
    // Half of the memory.
    assert_eq!(count, Ok(Value::Integer(17)));
}

/// Returns a list of so many levels.
/// Sends calls with long tags to a program, each once the one before has arrived. Returns the
/// result of the program.
fn called_with_long_tags(source: &str, calls: usize) -> Result<Value, Exit> {
    let scheduler = scheduler();
    scheduler.block_on(async {
        let (shop, till) = nodes().await;
        let program = load(source, &shop).memory_limit(2 << 20).permissions(Permissions::all());
        let main = program.spawn("main", []).expect("it has main");
        wait_for(&till, "shop").await;
        let (replies, answered) = procession::sync::channel::bounded(1);
        let caller = start(move |mut cx: Context<Letter>| async move {
            while let Some(Letter::Message { .. }) = cx.recv().await {
                replies.send(()).await.expect("the test waits");
            }
        });
        let caller = till.attach(&caller.detach().map(|letter| letter));
        for _ in 0..calls {
            let from = Term::tuple([caller.pid().into(), Term::from("x".repeat(200_000))]);
            let call = Term::tuple([Term::atom("$gen_call"), from, Term::from(1)]);
            caller.send_wait(Remote::named("shop", SHOP), call).await.expect("it is connected");
            // A message of the program, or the reply.
            let arrived = timeout(LIMIT, answered.recv()).await.expect("it comes in time");
            arrived.expect("the caller goes on");
        }
        timeout(LIMIT, main).await.expect("it ends in time")
    })
}

/// Goal: calls that were answered leave room for others, although Lua has not collected them.
#[test]
fn answered_calls_leave_room_for_others() {
    let source = r#"
    function main()
      process.register("shop")
      for n = 0, 40 do
        local request, call = process.receive()
        assert(process.reply(call, request))
      end
      return "done"
    end"#;
    assert_eq!(called_with_long_tags(source, 40), Ok("done".into()));
}

/// Goal: calls that a program forgets without an answer leave room for others.
#[test]
fn forgotten_calls_leave_room_for_others() {
    let source = r#"
    function main()
      process.register("shop")
      local _, ready = process.receive()
      assert(process.reply(ready, true))
      for n = 1, 40 do
        local _, call = process.receive()
        process.send(call.from, n)
      end
      return "done"
    end"#;
    assert_eq!(called_with_long_tags(source, 40), Ok("done".into()));
}

fn nested(levels: usize) -> Term {
    (1..levels).fold(Term::list([]), |inner, _| Term::list([inner]))
}

/// A program could not pass it on, not even to answer.
#[test]
fn what_is_too_deep_for_a_copy_is_refused_where_it_arrives() {
    let scheduler = scheduler();
    scheduler.block_on(async {
        let (shop, till) = nodes().await;
        let echo = load(ECHO, &shop).spawn("main", []).expect("it has main");
        wait_for(&till, "shop").await;
        let undelivered = || shop.peers().iter().map(|peer| peer.undelivered).sum::<u64>();
        let before = undelivered();
        let call = |term: Term| till.call(Remote::named("shop", SHOP), term, LIMIT);
        for levels in [64, 65, 100, 126, 64] {
            for term in [nested(levels), Term::Map(vec![(nested(levels - 1), Term::from(1))])] {
                match call(term.clone()).await {
                    Ok(reply) => assert!(levels == 64 && reply == term),
                    Err(CallTermError::Ended(exit)) => {
                        assert_eq!((levels > 64, exit), (true, Exit::failed("system_limit")));
                    }
                    Err(error) => panic!("{levels} levels: {error}"),
                }
            }
        }
        till.send(Remote::named("shop", SHOP), nested(100)).expect("it is connected");
        assert_eq!(call(Term::from(1)).await.expect("it lives"), Term::from(1));
        assert_eq!(undelivered() - before, 7);

        // The same holds for the reply to a call of a program.
        let deep = start(|mut cx: Context<Letter>| async move {
            if let Some(Letter::Call { reply, .. }) = cx.recv().await {
                reply.send(nested(65)).expect("it is connected");
            }
        });
        let member = till.attach(&deep.detach().map(|letter| letter));
        till.register("deep", &member).expect("the name is free");
        let asks = "function main() return select(2, node.call('deep', 'till@127.0.0.1', 1)) end";
        let asks = load(asks, &shop).permissions(Permissions::all()).spawn("main", []);
        match timeout(LIMIT, asks.expect("it has main")).await.expect("it ends in time") {
            Ok(Value::String(cause)) => {
                let cause = String::from_utf8_lossy(&cause);
                assert!(cause.contains("nested more than 64 levels"), "{cause}");
            }
            other => panic!("the call must fail: {other:?}"),
        }
        drop(echo);
    });
}

/// Any process of another node can send a map that looks like a report.
#[test]
fn no_message_has_the_kind_of_a_report() {
    let source = r#"
    function main()
      process.register("shop")
      node.subscribe()
      local seen = {}
      while #seen < 6 do
        local message, call, kind = process.receive()
        if call then
          process.reply(call, message == "count" and #seen or message)
        else
          if message == "watch" then node.monitor("gate", "till@127.0.0.1")
          else seen[#seen + 1] = (message.node_up or message.node_down or message.down) .. " " .. tostring(kind) end
        end
      end
      return table.concat(seen, ", ")
    end"#;
    let scheduler = scheduler();
    let seen = scheduler.block_on(async {
        let (shop, till) = nodes().await;
        let gate = start(|mut cx: Context<Letter>| async move {
            cx.recv().await;
        });
        let member = till.attach(&gate.address().map(|letter| letter));
        till.register("gate", &member).expect("the name is free");
        let program = load(source, &shop).permissions(Permissions::all());
        let main = program.spawn("main", []).expect("it has main");
        wait_for(&till, "shop").await;
        let text = |text: &str| Term::from(text);
        for key in ["node_up", "node_down", "down"] {
            let forged = [(key, "bank"), ("node", TILL), ("reason", "noconnection")];
            let forged = Term::Map(forged.map(|(key, value)| (text(key), text(value))).into());
            till.send(Remote::named("shop", SHOP), forged).expect("it is connected");
        }
        till.send(Remote::named("shop", SHOP), text("watch")).expect("it is connected");
        wait_for(&till, "shop").await;
        gate.cancel();
        gate.await.expect("it ends");
        let count = || till.call(Remote::named("shop", SHOP), Term::from("count"), LIMIT);
        while count().await.expect("it replies") != Term::from(5) {
            procession::yield_now().await;
        }
        till.disconnect(SHOP);
        timeout(LIMIT, main).await.expect("it ends in time")
    });
    let expected =
        "till@127.0.0.1 node_up, bank nil, bank nil, bank nil, gate down, till@127.0.0.1 node_down";
    assert_eq!(seen, Ok(Value::string(expected)));
}

#[test]
fn keys_that_lua_would_take_for_one_stay_apart() {
    let scheduler = scheduler();
    scheduler.block_on(async {
        let (shop, till) = nodes().await;
        let echo = load(ECHO, &shop).spawn("main", []).expect("it has main");
        wait_for(&till, "shop").await;
        let pairs = [
            (Term::from(1), Term::from("integer")),
            (Term::from(1.0), Term::from("float")),
            (Term::from(0), Term::from("zero")),
            (Term::from(-0.0), Term::from("negative zero")),
            (Term::from(1.5), Term::from("half")),
        ];
        let reply = till.call(Remote::named("shop", SHOP), Term::Map(pairs.clone().into()), LIMIT);
        let Ok(Term::Map(replied)) = reply.await else { panic!("it replies with a map") };
        assert_eq!(replied.len(), pairs.len());
        assert!(pairs.iter().all(|pair| replied.contains(pair)), "{replied:?}");
        drop(echo);
    });
}

#[test]
fn the_status_of_a_node_has_the_names_of_the_programs_processes() {
    let scheduler = scheduler();
    let (shop, echo) = scheduler.block_on(async {
        let (shop, till) = nodes().await;
        let echo = load(ECHO, &shop).spawn("main", []).expect("it has main");
        wait_for(&till, "shop").await;
        // Other nodes cannot reach it.
        let other = start(|mut cx: Context<u32>| async move {
            cx.recv().await;
        });
        procession::process::register("other", other.pid()).expect("the name is free");
        let names = shop.status().names;
        assert_eq!(names.iter().map(|name| name.as_str()).collect::<Vec<_>>(), ["shop"]);
        (shop, echo)
    });
    // A thread outside all schedulers sees the same names.
    let names = shop.status().names;
    assert_eq!(names.iter().map(|name| name.as_str()).collect::<Vec<_>>(), ["shop"]);
    drop(echo);
}
