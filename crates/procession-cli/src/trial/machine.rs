//! The resources of the machine.

use std::fs;

use rustix::process::{Resource, getrlimit};

/// Returns the number of bytes that this program may still allocate: what the system has available,
/// and what the control group leaves. Returns `None` if neither is known.
pub(super) fn memory_available() -> Option<u64> {
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
pub(super) fn threads() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let count = status.lines().find_map(|line| line.strip_prefix("Threads:"));
    count.and_then(|count| count.trim().parse().ok()).unwrap_or(0)
}

/// Raises the limit of descriptors as far as the system allows, and returns it.
pub(super) fn descriptors() -> u64 {
    // Ignored: with fewer descriptors, there are fewer connections.
    let _ = crate::bench::more_descriptors();
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}
