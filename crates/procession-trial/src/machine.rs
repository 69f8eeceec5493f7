//! The resources of the machine.

use std::{fs, io};

use rustix::param::page_size;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Returns the number of bytes that this program may still allocate: what the system has available,
/// and what the control group leaves. Returns `None` if neither is known.
pub(crate) fn memory_available() -> Option<u64> {
    let meminfo = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let kibibytes = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let system = kibibytes
        .and_then(|rest| rest.trim().split(' ').next()?.parse::<u64>().ok())
        .map(|count| count << 10);
    // The file contains "max" if there is no limit, and does not exist in the root group.
    let group = |name| {
        fs::read_to_string(format!("/sys/fs/cgroup/{name}")).ok()?.trim().parse::<u64>().ok()
    };
    let left = group("memory.max")
        .zip(group("memory.current"))
        .map(|(limit, used)| limit.saturating_sub(used));
    [system, left].into_iter().flatten().min()
}

/// Returns the number of threads of this program, in all schedulers together.
pub(crate) fn threads() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let count = status.lines().find_map(|line| line.strip_prefix("Threads:"));
    count.and_then(|count| count.trim().parse().ok()).unwrap_or(0)
}

/// Raises the limit of descriptors as far as the system allows, and returns it.
pub(crate) fn descriptors() -> u64 {
    let most = getrlimit(Resource::Nofile).maximum;
    // Ignored: with fewer descriptors, there are fewer connections.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: most, maximum: most });
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// Returns the resident memory of this program in bytes.
pub(crate) fn resident() -> io::Result<u64> {
    let statm = fs::read_to_string("/proc/self/statm")?;
    let pages = statm.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok());
    let pages = pages.ok_or(io::ErrorKind::InvalidData)?;
    Ok(pages * page_size() as u64)
}
