//! `load LIBRARY PLACE MODE CLIENTS REQUESTS`: runs clients of a library, and reports throughput
//! and costs.
//!
//! The mode is `threads`, one thread for each client; `coroutines`, on two workers; or `blocking`,
//! the same with each call of the library in `coroutine::blocking`, for TLS.
//!
//! First, all clients connect. Then each makes its requests, and this is what is measured.
#![expect(clippy::print_stdout, reason = "it reports")]

use std::error::Error;
use std::ffi::{CString, c_long};
use std::fs;
use std::io::{PipeReader, Read, Write};
use std::mem;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

use procession::SpawnOptions;
use procession::coroutine::{self, Context};
use procession::time::Instant;
use procession_c_clients::client::{Failed, Library};
use procession_hook as _;

/// The longest time in which a client has to connect, or to make its requests.
const TIMEOUT: Duration = Duration::from_secs(120);
const WORKERS: usize = 2;

/// A client that connects, waits for the others, and makes its requests.
struct Work {
    library: &'static Library,
    place: Arc<CString>,
    /// Ends once all have connected.
    gate: PipeReader,
    number: c_long,
    requests: c_long,
    reports: Sender<Result<(), Failed>>,
}

impl Work {
    fn run(&mut self, apart: fn(&mut (dyn FnMut() + Send))) {
        let mut opened = None;
        apart(&mut || opened = Some(self.library.open(&self.place)));
        let mut client = match opened.expect("it was called") {
            Ok(client) => client,
            Err(failed) => return self.report(Err(failed)),
        };
        self.report(Ok(()));
        // A call that blocks, like those of the libraries.
        let ended = self.gate.read(&mut [0]);
        assert!(matches!(ended, Ok(0)), "{ended:?}");
        let (first, mut result) = (self.number * self.requests, Ok(()));
        for number in first..first + self.requests {
            apart(&mut || result = client.ask(number));
            if result.is_err() {
                break;
            }
        }
        self.report(result);
        let mut client = Some(client);
        apart(&mut || drop(client.take()));
    }

    fn report(&self, result: Result<(), Failed>) {
        // After the first failure, nothing receives.
        let _ = self.reports.send(result);
    }
}

/// Waits for a success of each client.
fn all(clients: usize, reports: &Receiver<Result<(), Failed>>) -> Result<(), Box<dyn Error>> {
    for _ in 0..clients {
        reports.recv_timeout(TIMEOUT)??;
    }
    Ok(())
}

/// The time that this process has used the processors.
fn processor_time() -> Duration {
    // SAFETY: the value is plain memory.
    let mut usage: libc::rusage = unsafe { mem::zeroed() };
    // SAFETY: there is room for the answer.
    unsafe { libc::getrusage(libc::RUSAGE_SELF, &raw mut usage) };
    let of = |time: libc::timeval| {
        Duration::from_secs(time.tv_sec.cast_unsigned())
            + Duration::from_micros(time.tv_usec.cast_unsigned())
    };
    of(usage.ru_utime) + of(usage.ru_stime)
}

/// Returns a number of this process's status.
fn status(key: &str) -> Result<u64, Box<dyn Error>> {
    let status = fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'));
    let number = line.and_then(|line| line.split_whitespace().next());
    Ok(number.ok_or("the system's status has changed")?.parse()?)
}

#[expect(clippy::disallowed_methods, reason = "threads without the runtime are compared with it")]
fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let [library, place, mode, clients, requests] = &arguments[..] else {
        return Err("usage: load LIBRARY PLACE threads|coroutines|blocking CLIENTS REQUESTS".into());
    };
    let name = library.as_str();
    let (clients, requests): (usize, c_long) = (clients.parse()?, requests.parse()?);
    let library = Library::named(name)?;
    let place = Arc::new(CString::new(place.as_str())?);
    let (opener, gate) = {
        let (gate, opener) = std::io::pipe()?;
        (opener, gate)
    };
    let (told, reports) = channel();
    // SAFETY: no client keeps a pointer to a thread-local across a wait. OpenSSL does, and runs on
    // helper threads.
    let builder = unsafe { procession::Scheduler::builder().enable_coroutines() };
    let scheduler = builder.worker_threads(WORKERS).build()?;
    for number in 0..clients {
        let (place, reports, gate) = (Arc::clone(&place), told.clone(), gate.try_clone()?);
        let number = c_long::try_from(number)?;
        let mut work = Work { library, place, gate, number, requests, reports };
        match mode.as_str() {
            "threads" => {
                thread::Builder::new().spawn(move || work.run(|call| call()))?;
            }
            "coroutines" => {
                SpawnOptions::new()
                    .on(&scheduler)
                    .try_start_coroutine(move |_: Context<()>| work.run(|call| call()))?;
            }
            "blocking" => {
                SpawnOptions::new().on(&scheduler).try_start_coroutine(move |_: Context<()>| {
                    work.run(|call| {
                        let made = coroutine::blocking(call);
                        assert!(made.is_ok(), "the system refuses a thread");
                    });
                })?;
            }
            _ => return Err(format!("no mode is called {mode}").into()),
        }
    }
    all(clients, &reports)?;
    let (begun, used) = (Instant::now(), processor_time());
    let threads = status("Threads")?;
    drop(opener);
    all(clients, &reports)?;
    let (took, used) =
        ((Instant::now() - begun).as_secs_f64(), (processor_time() - used).as_secs_f64());
    let total = clients as f64 * requests as f64;
    println!(
        "{name} {mode}: {clients} clients, {total} requests, {:.0} requests/s, {:.1} us of CPU each, \
         {threads} threads, {} KiB",
        total / took,
        used * 1e6 / total,
        status("VmHWM")?,
    );
    std::io::stdout().flush()?;
    // SAFETY: it has no preconditions. In `exit`, OpenSSL frees its memory, also that of threads
    // which are ending at that moment. These free it, too, and the program aborts.
    unsafe { libc::_exit(0) }
}
