//! What the machine has to give.

use std::fs;

use rustix::process::{Resource, getrlimit};

/// Bytes that this program may still take: what the system has available, and what the control
/// group leaves. `None` if neither says.
pub(super) fn memory_available() -> Option<u64> {
    let meminfo = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let kibibytes = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let system = kibibytes
        .and_then(|rest| rest.trim().split(' ').next()?.parse::<u64>().ok())
        .map(|count| count << 10);
    // "max" where there is no limit, and no such file in the root group.
    let group = |name| {
        fs::read_to_string(format!("/sys/fs/cgroup/{name}")).ok()?.trim().parse::<u64>().ok()
    };
    let left = group("memory.max")
        .zip(group("memory.current"))
        .map(|(limit, used)| limit.saturating_sub(used));
    [system, left].into_iter().flatten().min()
}

/// The threads of this program, all schedulers' together.
pub(super) fn threads() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let count = status.lines().find_map(|line| line.strip_prefix("Threads:"));
    count.and_then(|count| count.trim().parse().ok()).unwrap_or(0)
}

/// How many descriptors may be open at once; it is raised as far as the system lets us first.
pub(super) fn descriptors() -> u64 {
    // Ignored: with fewer, there are fewer connections.
    let _ = crate::bench::more_descriptors();
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}
