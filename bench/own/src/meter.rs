//! Time and memory, as the system reports them.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use std::{env, fs};

use rustix::param::page_size;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::time::{ClockId, clock_gettime};

use super::workload::{Failed, Outcome};

#[expect(clippy::disallowed_methods, reason = "a benchmark reads the real clock")]
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// Returns the CPU time of all threads of this program.
pub(crate) fn cpu_time() -> Duration {
    #[expect(
        clippy::disallowed_methods,
        reason = "not the time of day, but what of the processor was used"
    )]
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs() as u32)
}

/// Raises the limit of descriptors to the maximum that the system allows this program: a thousand
/// connections need two thousand descriptors.
pub(crate) fn more_descriptors() -> Result<(), Failed> {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    let failed = |cause: rustix::io::Errno| Failed::System {
        act: "raise the limit of descriptors",
        cause: cause.into(),
    };
    setrlimit(Resource::Nofile, raised).map_err(failed)
}

/// Blocks the calling thread.
pub(crate) fn block(duration: Duration) {
    #[expect(clippy::disallowed_methods, reason = "a benchmark of threads that block")]
    std::thread::sleep(duration);
}

/// Computes for about `duration`, without blocking.
pub(crate) fn compute(duration: Duration) {
    let start = now();
    while start.elapsed() < duration {
        std::hint::spin_loop();
    }
}

/// Returns the number of times that each other thread of this program has given up the processor.
fn sleeps() -> Result<BTreeMap<OsString, u64>, Failed> {
    let failed = |cause| Failed::System { act: "read /proc/self/task", cause };
    let own = fs::read_link("/proc/thread-self").map_err(failed)?;
    let mut sleeps = BTreeMap::new();
    for thread in fs::read_dir("/proc/self/task").map_err(failed)? {
        let thread = thread.map_err(failed)?;
        if Some(&*thread.file_name()) != own.file_name() {
            // A thread may end meanwhile.
            let status = fs::read_to_string(thread.path().join("status")).unwrap_or_default();
            let count =
                status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
            sleeps.insert(
                thread.file_name(),
                count.and_then(|count| count.trim().parse().ok()).unwrap_or(0),
            );
        }
    }
    Ok(sleeps)
}

/// Returns the number of times that the other threads of this program have given up the processor.
pub(crate) fn sleeps_of_others() -> Result<u64, Failed> {
    Ok(sleeps()?.values().sum())
}

/// Blocks the calling thread. Returns the number of times that the other threads woke meanwhile. A
/// thread that ends meanwhile counts once.
pub(crate) fn wake_ups_of_others(during: Duration) -> Result<u64, Failed> {
    let before = sleeps()?;
    block(during);
    let after = sleeps()?;
    let woken = after
        .iter()
        .map(|(thread, count)| count.saturating_sub(before.get(thread).copied().unwrap_or(0)));
    let ended = before.keys().filter(|thread| !after.contains_key(*thread)).count();
    Ok(woken.sum::<u64>() + ended as u64)
}

/// Returns the resident memory of this program in bytes.
pub(crate) fn resident() -> Result<u64, Failed> {
    let failed = |cause| Failed::System { act: "read /proc/self/statm", cause };
    let statm = fs::read_to_string("/proc/self/statm").map_err(failed)?;
    let pages = statm.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok());
    Ok(pages.ok_or_else(|| failed(io::ErrorKind::InvalidData.into()))? * page_size() as u64)
}

/// Starts this program anew with `arguments`, and returns the numbers that it prints. The allocator
/// and the scheduler of the fresh program are cold.
pub(crate) fn in_fresh_program(arguments: &[&str]) -> Outcome {
    let failed = |cause| Failed::System { act: "start a fresh program", cause };
    let program = env::current_exe().map_err(failed)?;
    let output =
        Command::new(program).args(arguments).stderr(Stdio::inherit()).output().map_err(failed)?;
    let numbers =
        String::from_utf8_lossy(&output.stdout).split_whitespace().map(str::parse).collect();
    match numbers {
        Ok(numbers) if output.status.success() => Ok(numbers),
        _ => Err(failed(io::Error::other(format!("it ended with {}", output.status)))),
    }
}

/// Resets the kernel's peak of the resident memory.
fn reset_peak() -> Result<(), Failed> {
    let failed = |cause| Failed::System { act: "write /proc/self/clear_refs", cause };
    fs::write("/proc/self/clear_refs", "5").map_err(failed)
}

/// Returns the peak of the resident memory since the reset, in bytes.
fn peak() -> Result<u64, Failed> {
    let failed = |cause| Failed::System { act: "read /proc/self/status", cause };
    let status = fs::read_to_string("/proc/self/status").map_err(failed)?;
    let mark = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = mark.and_then(|mark| mark.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    Ok(kib.ok_or_else(|| failed(std::io::ErrorKind::InvalidData.into()))? * 1024)
}

/// The wall time, CPU time and memory that were spent since it was created.
pub(crate) struct Spent {
    start: Instant,
    cpu: Duration,
}

impl Spent {
    pub(crate) fn begin() -> Result<Self, Failed> {
        reset_peak()?;
        Ok(Self { start: now(), cpu: cpu_time() })
    }

    /// Returns the figures, in milliseconds and MiB.
    pub(crate) fn outcome(self) -> Outcome {
        let milliseconds = |duration: Duration| duration.as_secs_f64() * 1e3;
        let peak = peak()? as f64 / f64::from(1 << 20);
        Ok(vec![milliseconds(self.start.elapsed()), milliseconds(cpu_time() - self.cpu), peak])
    }
}

/// Returns the size of the page tables of this program, in bytes.
pub(crate) fn page_tables() -> Result<u64, Failed> {
    let failed = |cause| Failed::System { act: "read /proc/self/status", cause };
    let status = std::fs::read_to_string("/proc/self/status").map_err(failed)?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmPTE:"));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    Ok(kib.ok_or_else(|| failed(std::io::ErrorKind::InvalidData.into()))? << 10)
}
