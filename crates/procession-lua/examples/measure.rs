//! Measures the cost of Lua processes: memory and time of 10 000 processes, of idle connections of
//! HTTP, of messages between two processes, and of a new version of the program for all processes
//! under load.
//!
//! `cargo run --release -p procession-lua --example measure`
#![expect(clippy::print_stdout, reason = "the example prints its figures")]

use std::error::Error;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use procession::time::Instant;
use procession::{Context, Scheduler, SpawnOptions};
use procession_lua::{Deployment, Message, Permissions, Program, Value};

/// The allocator of the command `procession`.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const PROCESSES: usize = 10_000;
const MESSAGES: i64 = 200_000;
const ROUNDS: usize = 5;

const SOURCE: &str = "
function idle() return process.receive() end

function pong()
  while true do
    local from = process.receive()
    if not from then return end
    process.send(from, 1)
  end
end

function pingpong(n)
  local other, own = process.spawn_link('pong'), process.self()
  for _ = 1, n do
    process.send(other, own)
    process.receive()
  end
  process.exit(other, 'kill')
end

function sink(n)
  for _ = 1, n do process.receive() end
end

function stream(n)
  local other = process.spawn('sink', n)
  process.monitor(other)
  for i = 1, n do process.send(other, i) end
  process.receive()
end

function compute(n)
  local sum = 0
  for i = 1, n do sum = sum + i % 7 end
  return sum
end
";

/// Returns the time that the processors have spent on this program, in milliseconds. On a machine
/// with other work it says more than the time that has passed.
fn processor_time() -> Result<u64, Box<dyn Error>> {
    time_of("self")
}

/// Returns the time that the processors have spent on this program, or on this thread.
fn time_of(what: &str) -> Result<u64, Box<dyn Error>> {
    let stat = fs::read_to_string(format!("/proc/{what}/stat"))?;
    // The name of the program may contain anything. The fields begin after its parenthesis.
    let fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
    let ticks: u64 = fields.skip(11).take(2).map(|ticks| ticks.parse().unwrap_or(0)).sum();
    Ok(ticks * 10)
}

/// Sums up numbers that must come in order, and returns the sum at 0.
const ADDER: &str = "
function adder(state)
  last, sum = (state or { 0 })[1], (state or { 0, 0 })[2]
  while true do
    local n = process.receive()
    if n == 0 then return sum end
    assert(n == last + 1, 'lost or received twice')
    last, sum = n, sum + n
  end
end
function upgrade() return { last, sum } end
resume_adder = adder
";

/// Replaces the program of waiting processes while each receives numbered messages.
fn upgrade(scheduler: &Scheduler) -> Result<(), Box<dyn Error>> {
    let deployment = Deployment::new(Program::load("adder", ADDER)?);
    let options = || SpawnOptions::new().on(scheduler);
    let adders = (0..PROCESSES).map(|_| deployment.program().spawn_with(options(), "adder", []));
    let adders = adders.collect::<Result<Vec<_>, _>>()?;
    scheduler.block_on(async {
        while deployment.versions().values().sum::<usize>() < PROCESSES {
            procession::yield_now().await;
        }
        let (start, spent) = (Instant::now(), processor_time()?);
        let new = Program::load("adder", format!("{ADDER} -- new"))?;
        let version = new.version();
        let replacing = deployment.clone();
        let mut replaced = procession::spawn(async move { replacing.replace(new).await });
        let mut last = 0;
        while !replaced.is_finished() {
            last += 1;
            for adder in &adders {
                adder.send(Value::Integer(last).into())?;
            }
            procession::sleep(Duration::from_millis(100)).await;
        }
        let replaced = (&mut replaced).await??;
        let (took, spent) = (Instant::now() - start, processor_time()? - spent);
        let all = [(version, PROCESSES)].into();
        assert_eq!((replaced.upgraded, deployment.versions()), (PROCESSES, all));
        for adder in adders {
            adder.send(Value::Integer(0).into())?;
            assert_eq!(adder.await?, Value::Integer(last * (last + 1) / 2));
        }
        println!(
            "{PROCESSES} processes upgraded in {took:?}, {spent} ms of processor time, {last} messages each meanwhile"
        );
        Ok(())
    })
}

const CONNECTIONS: usize = 400;
/// The bytes that arrive one by one, and the time between two bytes.
const DRIPS: usize = 5400;
const DRIP: Duration = Duration::from_micros(370);

const SERVER: &str = "
function answer(request) return request.body end
function server()
  process.register('server')
  local listener = assert(net.listen('127.0.0.1:0'))
  process.send('test', listener:address())
  http.serve(listener, 'answer')
end
";

fn ask(client: &mut TcpStream) -> Result<(), Box<dyn Error>> {
    client.write_all(b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\nhi")?;
    client.read_exact(&mut [0; "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi".len()])?;
    Ok(())
}

/// Holds idle connections with a server, and sends it a request byte by byte.
fn connections(scheduler: &Scheduler) -> Result<(), Box<dyn Error>> {
    let hears = scheduler.start(|mut cx: Context<Message>| async move {
        match cx.recv().await {
            Some(Message::Plain(Value::String(address))) => {
                Ok(String::from_utf8(address.to_vec())?)
            }
            other => Err(Box::<dyn Error + Send + Sync>::from(format!("no address: {other:?}"))),
        }
    });
    scheduler.register("test", hears.pid())?;
    let program = Program::load("server", SERVER)?.permissions(Permissions::none().listen());
    let server = program.spawn_with(SpawnOptions::new().on(scheduler), "server", [])?;
    let address = hears.join()?.map_err(|error| error.to_string())?;
    let connect = || TcpStream::connect(&*address);
    ask(&mut connect()?)?;
    let before = resident()?;
    let clients = (0..CONNECTIONS).map(|_| connect());
    let mut clients = clients.collect::<Result<Vec<_>, _>>()?;
    // Connections are accepted in their order.
    ask(&mut connect()?)?;
    let each = |after: u64| after.saturating_sub(before) / CONNECTIONS as u64;
    let new = each(resident()?);
    for client in &mut clients {
        ask(client)?;
    }
    println!(
        "{CONNECTIONS} idle connections: {new} bytes each, {} after a request",
        each(resident()?)
    );
    let start = Instant::now();
    for _ in 0..50 {
        clients.iter_mut().try_for_each(ask)?;
    }
    let each = (Instant::now() - start).as_nanos() / (50 * CONNECTIONS as u128);
    println!("requests: {each} ns each, one after another");
    let (before, mut client) = (processor_time()?, connect()?);
    #[expect(clippy::disallowed_methods, reason = "a client outside of the runtime")]
    let dripped = std::thread::spawn(move || {
        let head = format!("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: {DRIPS}\r\n\r\n");
        client.write_all(head.as_bytes())?;
        for _ in 0..DRIPS {
            client.write_all(b"x")?;
            sleep(DRIP);
        }
        client.read_exact(&mut [0])?;
        std::io::Result::Ok(time_of("thread-self").unwrap_or(0))
    });
    let own = dripped.join().map_err(|_| "the client panicked")??;
    let spent = processor_time()?.saturating_sub(before + own);
    println!(
        "{DRIPS} bytes, one each {DRIP:?}: {spent} ms of processor time beside the client's {own}"
    );
    procession::process::send_exit(server.pid(), procession::Exit::Killed);
    Ok(())
}

#[expect(clippy::disallowed_methods, reason = "a client in a thread of its own")]
fn sleep(duration: Duration) {
    std::thread::sleep(duration);
}

/// Returns the resident memory of this process in bytes.
fn resident() -> Result<u64, Box<dyn Error>> {
    let pages: u64 = fs::read_to_string("/proc/self/statm")?
        .split_whitespace()
        .nth(1)
        .ok_or("statm has two words")?
        .parse()?;
    Ok(pages * 4096)
}

fn main() -> Result<(), Box<dyn Error>> {
    let program = Program::load("measure", SOURCE)?;
    let scheduler = Scheduler::builder().worker_threads(2).build()?;
    let options = || SpawnOptions::new().on(&scheduler);

    for _ in 0..ROUNDS {
        let (before, start) = (resident()?, Instant::now());
        let mut idle = Vec::with_capacity(PROCESSES);
        for _ in 0..PROCESSES {
            idle.push(program.spawn_with(options(), "idle", [])?);
        }
        let started = Instant::now() - start;
        let bytes = resident()?.saturating_sub(before) / PROCESSES as u64;
        for process in &idle {
            process.send(Value::Integer(1).into())?;
        }
        for process in idle {
            process.join()?;
        }
        let ended = Instant::now() - start;
        println!(
            "{PROCESSES} processes: started in {started:?}, {} us each; ended after {ended:?}; {bytes} more bytes each than before",
            started.as_micros() / PROCESSES as u128,
        );
    }
    connections(&scheduler)?;
    for _ in 0..ROUNDS {
        upgrade(&scheduler)?;
    }
    for (function, count) in [("pingpong", MESSAGES), ("stream", MESSAGES), ("compute", 10_000_000)]
    {
        for _ in 0..ROUNDS {
            let start = Instant::now();
            program.spawn_with(options(), function, [Value::Integer(count)])?.join()?;
            let each = (Instant::now() - start).as_nanos() / u128::from(count.unsigned_abs());
            println!("{function}: {each} ns each of {count}");
        }
    }
    Ok(())
}
