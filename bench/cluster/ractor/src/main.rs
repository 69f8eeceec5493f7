//! The figures of `procession-cluster` (its bench `figures`) with ractor_cluster, between two
//! programs with two workers each: round trips by calls, casts in a row, and round trips beside
//! large casts. It has no monitors of actors of other nodes.

use std::error::Error;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use ractor::{Actor, ActorProcessingErr, ActorRef, RpcReplyPort};
use ractor_cluster::RactorClusterMessage;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

type Failed = Box<dyn Error + Send + Sync>;

const PORT: u16 = 47_311;
const LARGE: usize = (16 << 20) - 256;

#[derive(RactorClusterMessage)]
enum Job {
    Cast(Vec<u8>),
    #[rpc]
    Echo(Vec<u8>, RpcReplyPort<Vec<u8>>),
    /// Returns the number of casts so far.
    #[rpc]
    Count(RpcReplyPort<u64>),
}

struct Server;

impl Actor for Server {
    type Msg = Job;
    type State = u64;
    type Arguments = ();

    async fn pre_start(&self, own: ActorRef<Job>, (): ()) -> Result<u64, ActorProcessingErr> {
        ractor::pg::join("server".to_string(), vec![own.get_cell()]);
        Ok(0)
    }

    async fn handle(
        &self,
        _: ActorRef<Job>,
        job: Job,
        casts: &mut u64,
    ) -> Result<(), ActorProcessingErr> {
        match job {
            Job::Cast(_) => *casts += 1,
            Job::Echo(payload, reply) => reply.send(payload)?,
            Job::Count(reply) => reply.send(*casts)?,
        }
        Ok(())
    }
}

/// Ends the program of the server when it is dropped.
struct Program(Child);

impl Drop for Program {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

fn main() -> Result<(), Failed> {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let argument = std::env::args().nth(1);
    let is_server = argument.as_deref() == Some("serve");
    let is_tiny = argument.as_deref() == Some("tiny");
    runtime.block_on(async move {
        tokio::spawn(async move { if is_server { serve().await } else { measure(is_tiny).await } })
            .await?
    })
}

async fn node(
    port: u16,
    name: &str,
) -> Result<ActorRef<ractor_cluster::NodeServerMessage>, Failed> {
    let (cookie, host) = ("figures".to_string(), "localhost".to_string());
    let server = ractor_cluster::NodeServer::new(port, cookie, name.to_string(), host, None, None);
    Ok(Actor::spawn(None, server, ()).await?.0)
}

async fn serve() -> Result<(), Failed> {
    let _node = node(PORT, "server").await?;
    let _server = Actor::spawn(None, Server, ()).await?;
    tokio::time::sleep(Duration::from_millis(300)).await;
    println!("ready");
    tokio::task::spawn_blocking(|| std::io::stdin().read(&mut [0])).await??;
    Ok(())
}

fn print(what: &str, value: f64, unit: &str) {
    println!("plain {what:28} {value:12.1} {unit}");
}

fn percentile(sorted: &[Duration], part: f64) -> f64 {
    sorted[((sorted.len() - 1) as f64 * part) as usize].as_nanos() as f64 / 1000.0
}

fn processor_time(id: u32) -> Result<Duration, Failed> {
    let stat = std::fs::read_to_string(format!("/proc/{id}/stat"))?;
    let (_, fields) = stat.rsplit_once(')').ok_or("no end of the name")?;
    let ticks = fields.split_whitespace().skip(11).take(2).map(str::parse::<u64>);
    Ok(Duration::from_millis(10 * ticks.sum::<Result<u64, _>>()?))
}

async fn trip(server: &ActorRef<Job>) -> Result<Duration, Failed> {
    let begin = Instant::now();
    let back = ractor::call!(server, Job::Echo, vec![7; 100])?;
    if back.len() == 100 { Ok(begin.elapsed()) } else { Err("another length came".into()) }
}

async fn casts(server: &ActorRef<Job>, from: u64, count: u64, length: usize) -> Result<(), Failed> {
    for _ in 0..count {
        server.cast(Job::Cast(vec![7; length]))?;
    }
    while ractor::call!(server, Job::Count)? < from + count {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    Ok(())
}

async fn measure(is_tiny: bool) -> Result<(), Failed> {
    let (trips, messages) = if is_tiny { (100, 2_000) } else { (20_000, 500_000) };
    let mut command = Command::new(std::env::current_exe()?);
    let server = command.arg("serve").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    let mut program = Program(server);
    let out = program.0.stdout.take().ok_or("no output")?;
    BufReader::new(out).read_line(&mut String::new())?;
    let own = node(PORT + 1, "driver").await?;
    ractor_cluster::client_connect(&own, format!("127.0.0.1:{PORT}"))
        .await
        .map_err(|error| error.to_string())?;
    let server: ActorRef<Job> = loop {
        match ractor::pg::get_members(&"server".to_string()).into_iter().next() {
            Some(cell) => break cell.into(),
            None => tokio::time::sleep(Duration::from_millis(10)).await,
        }
    };
    let mut all = Vec::new();
    for _ in 0..trips {
        all.push(trip(&server).await?);
    }
    all.sort();
    print("round trip p50", percentile(&all, 0.5), "us");
    print("round trip p99", percentile(&all, 0.99), "us");
    let both =
        || Ok::<_, Failed>(processor_time(std::process::id())? + processor_time(program.0.id())?);
    let (begin, used) = (Instant::now(), both()?);
    casts(&server, 0, messages, 100).await?;
    print("messages", messages as f64 / begin.elapsed().as_secs_f64() / 1000.0, "thousand/s");
    let used = (both()? - used).as_nanos() as f64;
    print("processor time per message", used / messages as f64 / 1000.0, "us");
    let large = tokio::spawn({
        let server = server.clone();
        async move { casts(&server, messages, 4, LARGE).await }
    });
    let mut all = Vec::new();
    while !large.is_finished() {
        all.push(trip(&server).await?);
    }
    large.await??;
    all.sort();
    print("beside 64 MiB, p99", percentile(&all, 0.99), "us");
    print("beside 64 MiB, longest", percentile(&all, 1.0), "us");
    Ok(())
}
