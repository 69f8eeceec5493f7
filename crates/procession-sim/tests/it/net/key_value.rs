//! The key-value example is linearizable: each history of a key could be one in which each
//! operation took effect at one moment between its call and its answer.

mod history;
#[path = "../../../../procession/examples/14_key_value/server.rs"]
mod server;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use procession::net::TcpStream;
use procession::time::{Instant, timeout};
use procession_sim::{Check, Sim};
use procession_sync::Mutex;

use self::history::{Action, Operation, is_linearizable};
use super::{listen, seeds};

const KEYS: u64 = 2;

/// Starts a server on a host. Retries if a child of the server does not start.
fn start(sim: &Sim, host: &str) {
    sim.host(host, || async {
        let _tree = loop {
            match server::tree(listen(7).await, 2).try_start().await {
                Ok(tree) => break tree,
                Err(_) => procession::sleep(Duration::from_millis(10)).await,
            }
        };
        std::future::pending::<()>().await;
    });
}

/// A client: its connections, by the server.
struct Client {
    servers: Vec<&'static str>,
    connections: Vec<Option<TcpStream>>,
}

impl Client {
    fn new(servers: &[&'static str]) -> Self {
        Self { servers: servers.to_vec(), connections: servers.iter().map(|_| None).collect() }
    }

    /// Sends a request, and returns the line that answers it, or the value behind it.
    async fn ask(&mut self, server: usize, request: &str) -> io::Result<String> {
        if self.connections[server].is_none() {
            self.connections[server] = Some(TcpStream::connect(self.servers[server]).await?);
        }
        // An answer that is late must not be taken for that to a later request.
        let stream = self.connections[server].take().expect("it was connected");
        stream.write_all(request.as_bytes()).await?;
        let mut line = read_line(&stream).await?;
        if line.starts_with('$') && line != "$-1" {
            line = read_line(&stream).await?;
        }
        self.connections[server] = Some(stream);
        Ok(line)
    }
}

async fn read_line(stream: &TcpStream) -> io::Result<String> {
    let mut line = Vec::new();
    while !line.ends_with(b"\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).await?;
        line.push(byte[0]);
    }
    line.truncate(line.len() - 2);
    String::from_utf8(line).map_err(io::Error::other)
}

type History = Arc<Mutex<Vec<(u64, Operation)>>>;

/// Sets and gets keys, and notes what happened. A value is set once.
async fn work(sim: Sim, mut client: Client, number: u64, history: History) {
    for round in 0..6 {
        let (key, writes) = (sim.choose(0..KEYS), sim.choose(0..2) == 0);
        let value = 100 * number + round + 1;
        let call = Instant::now();
        let action = if writes {
            let mut is_done = true;
            for server in 0..client.servers.len() {
                let request = format!("SET key{key} {value}\r\n");
                let asked = client.ask(server, &request);
                let answer = timeout(Duration::from_secs(20), asked).await;
                is_done &= matches!(answer, Ok(Ok(line)) if line == "+OK");
            }
            Action::Set { value, is_done }
        } else {
            let server = sim.choose(0..client.servers.len() as u64) as usize;
            let request = format!("GET key{key}\r\n");
            let asked = client.ask(server, &request);
            match timeout(Duration::from_secs(20), asked).await {
                // The shard has not answered in time.
                Ok(Ok(line)) if line.starts_with('-') => continue,
                Ok(Ok(line)) => Action::Get(line.parse().unwrap_or(0)),
                // A read without an answer shows nothing.
                _ => continue,
            }
        };
        let operation = Operation { call, answer: Instant::now(), action };
        history.lock().push((key, operation));
    }
}

async fn program(sim: Sim, servers: &'static [&'static str]) {
    for server in servers {
        start(&sim, server.split(':').next().expect("it has a name"));
    }
    let history = History::default();
    let clients: Vec<_> = (0..3)
        .map(|number| {
            sim.spawn(work(sim.clone(), Client::new(servers), number, Arc::clone(&history)))
        })
        .collect();
    for client in clients {
        client.await.expect("it ends");
    }
    let all = std::mem::take(&mut *history.lock());
    for key in 0..KEYS {
        let own = all.iter().filter(|(other, _)| *other == key);
        let own: Vec<_> = own.map(|(_, operation)| *operation).collect();
        sim.sometimes("a value is read", own.iter().any(|one| one.is_read_of_value()));
        sim.always("the history of a key is linearizable", is_linearizable(&own));
    }
}

#[test]
fn the_key_value_example_is_linearizable() {
    let check = Check::new().seeds(seeds(60)).time_limit(Duration::from_secs(7200));
    check.run(|sim| program(sim, &["kv:7"]));
}

/// A planted defect: each write goes to two servers, one after the other, and a read asks any.
#[test]
fn two_servers_without_a_protocol_are_not() {
    let report = Check::new().seeds(0..100).try_run(|sim| program(sim, &["kv:7", "other:7"]));
    let report = report.expect_err("a client reads what another one has not written yet");
    assert!(report.contains("the history of a key is linearizable"), "{report}");
}
