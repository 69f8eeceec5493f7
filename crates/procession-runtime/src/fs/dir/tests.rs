//! A helper that the system refuses.

use std::collections::VecDeque;
use std::process::Command;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::{env, fs};

use procession_sync::Mutex;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::{CHUNK, DirEntries, ReadDir};

/// The environment variable that makes this program the child process of the test.
const CHILD: &str = "PROCESSION_TEST_DIRECTORY";

/// Enough for what the test allocates, and less than the stack of a thread.
const SPARE: u64 = 32 << 20;

fn limit_address_space(current: Option<u64>) {
    let maximum = getrlimit(Resource::As).maximum;
    setrlimit(Resource::As, Rlimit { current, maximum }).expect("the soft limit is ours");
}

/// Goal: an entry is not lost because the system has no thread for a while. Method: a child process
/// takes the address space from itself that the stack of a helper needs.
#[test]
fn a_directory_is_read_on_after_a_helper_was_refused() {
    if env::var_os(CHILD).is_none() {
        let mut child = Command::new(env::current_exe().expect("a test knows itself"));
        child
            .args(["--exact", "fs::dir::tests::a_directory_is_read_on_after_a_helper_was_refused"]);
        child.env(CHILD, "1").env("RUST_MIN_STACK", "268435456");
        let output = child.output().expect("the system has processes");
        let said = String::from_utf8_lossy(&output.stdout);
        return assert!(output.status.success(), "{said}");
    }
    let folder = env::temp_dir().join(format!("procession-directory-{}", std::process::id()));
    fs::create_dir(&folder).expect("there is room");
    for number in 0..2 * CHUNK {
        fs::write(folder.join(number.to_string()), "").expect("there is room");
    }
    let rest = fs::read_dir(&folder).expect("it was made");
    let entries = DirEntries { rest, chunk: VecDeque::new(), ended: false };
    let mut entries = ReadDir { entries: Arc::new(Mutex::new(entries)), job: None };
    let status = fs::read_to_string("/proc/self/status").expect("there is a /proc");
    let size = status.lines().find_map(|line| line.strip_prefix("VmSize:")?.strip_suffix("kB"));
    let used = size.and_then(|size| size.trim().parse::<u64>().ok()).expect("it is there") << 10;
    limit_address_space(Some(used + SPARE));
    for _ in 0..2 {
        let refused = entries.poll_next_entry(&mut Context::from_waker(Waker::noop()));
        assert!(matches!(refused, Poll::Ready(Err(_))), "there is no thread: {refused:?}");
    }
    limit_address_space(getrlimit(Resource::As).maximum);
    crate::run(async {
        for _ in 0..2 * CHUNK {
            assert!(entries.next_entry().await.expect("there are threads").is_some());
        }
        assert!(entries.next_entry().await.expect("there are threads").is_none());
    });
    fs::remove_dir_all(&folder).expect("it is there");
}
