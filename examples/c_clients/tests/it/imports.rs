//! The functions that the libraries import. One that may block has to be hooked, or excused.

use std::collections::BTreeSet;
use std::fs;
use std::process::Command;

use procession_c_clients::client::Library;
use procession_c_clients::plain::Loaded;

/// Functions of the C library that may block a thread.
const BLOCKING: &str = "
    accept accept4 aio_suspend clock_nanosleep connect copy_file_range epoll_pwait epoll_pwait2
    epoll_wait fallocate fdatasync fcntl fcntl64 flock fsync gai_suspend getaddrinfo gethostbyaddr
    gethostbyaddr_r gethostbyname gethostbyname2 gethostbyname2_r gethostbyname_r getnameinfo
    getnetbyname getservbyname getservbyname_r getservbyport getpwnam getpwnam_r getpwuid getpwuid_r
    getgrgid getgrgid_r getgrnam getgrnam_r getlogin getlogin_r getifaddrs io_getevents lockf lockf64
    mq_receive mq_send mq_timedreceive mq_timedsend msgrcv msgsnd nanosleep open open64 openat
    openat64 pause pclose poll popen ppoll pread pread64 preadv preadv2 pselect pthread_barrier_wait
    pthread_cond_clockwait pthread_cond_timedwait pthread_cond_wait pthread_join pthread_mutex_lock
    pthread_mutex_timedlock pthread_rwlock_rdlock pthread_rwlock_wrlock pthread_timedjoin_np pwrite
    pwrite64 pwritev pwritev2 read readv recv recvfrom recvmmsg recvmsg res_nquery res_nsearch
    res_query res_search __res_query __res_search select sem_timedwait sem_wait semop semtimedop send
    sendfile sendfile64 sendmmsg sendmsg sendto sigsuspend sigtimedwait sigwait sigwaitinfo sleep
    splice syscall syslog __syslog_chk system tcdrain tee thrd_join thrd_sleep usleep vmsplice
    vsyslog wait wait3 wait4 waitid waitpid write writev

    fclose fflush fgetc fgetc_unlocked fgets fgets_unlocked fopen fopen64 fprintf fputc fputs
    fread fread_unlocked freopen fscanf fseek fwrite fwrite_unlocked getc getc_unlocked getchar
    getdelim getline printf putc putchar puts vfprintf vprintf _IO_getc _IO_putc __getdelim
    __isoc99_fscanf __fgets_chk __fprintf_chk __fread_chk __printf_chk __vfprintf_chk __vprintf_chk

    __accept __connect __nanosleep __poll __poll_chk __ppoll_chk __pread64 __pread_chk __pwrite64
    __read __read_chk __recv __recv_chk __recvfrom __recvfrom_chk __recvmsg __select __send __sendto
    __write
";

/// The libraries, by the first part of their file names. The last one stands for small clients.
const LIBRARIES: [&str; 5] = ["libhiredis", "libpq", "libmariadb", "libcurl", "libloaded"];

/// Runs `nm`, and returns the names of functions without their versions.
fn names(options: &[&str], file: &str) -> BTreeSet<String> {
    let output =
        Command::new("nm").args(options).arg(file).output().expect("binutils is installed");
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).expect("names are text");
    let names = text.lines().filter_map(|line| line.split_whitespace().last());
    names.map(|name| name.split('@').next().unwrap_or(name).to_owned()).collect()
}

/// Returns the functions that this program puts in the place of others.
fn hooked() -> BTreeSet<String> {
    let program = std::env::current_exe().expect("the system tells");
    names(&["-D", "--defined-only"], program.to_str().expect("it has a plain name"))
}

/// Returns the functions that may block and that the program does not hook.
fn unhooked(imports: &BTreeSet<String>, hooked: &BTreeSet<String>) -> Vec<String> {
    let blocking: BTreeSet<_> = BLOCKING.split_whitespace().map(str::to_owned).collect();
    imports.intersection(&blocking).filter(|name| !hooked.contains(*name)).cloned().collect()
}

/// Returns the path of a library that this program has loaded.
fn path_of(library: &str) -> String {
    let maps = fs::read_to_string("/proc/self/maps").expect("the system tells");
    let paths = maps.lines().filter_map(|line| line.split_whitespace().nth(5));
    let is_it = |path: &&str| {
        let name = path.rsplit('/').next().unwrap_or(path);
        name.strip_prefix(library).is_some_and(|rest| rest.starts_with(['.', '-']))
    };
    paths.into_iter().find(is_it).unwrap_or_else(|| panic!("{library} is not loaded")).to_owned()
}

/// The exceptions: `library function reason` in each line.
fn excused() -> BTreeSet<(String, String)> {
    let lines = include_str!("../../imports.txt").lines();
    let lines = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
    let excuse = |line: &str| {
        let words: Vec<_> = line.splitn(3, ' ').collect();
        let [library, function, reason] = words[..] else { panic!("no reason: {line}") };
        assert!(!reason.trim().is_empty(), "no reason: {line}");
        (library.to_owned(), function.to_owned())
    };
    lines.map(excuse).collect()
}

#[test]
fn every_import_that_may_block_is_hooked_or_excused() {
    Library::named("libcurl").expect("it is installed");
    Loaded::load();
    let hooked = hooked();
    let mut found = BTreeSet::new();
    for library in LIBRARIES {
        let imports = names(&["-D", "--undefined-only"], &path_of(library));
        assert!(["send", "write"].iter().any(|name| imports.contains(*name)), "{library}");
        found
            .extend(unhooked(&imports, &hooked).into_iter().map(|name| (library.to_owned(), name)));
    }
    let excused = excused();
    let missing: Vec<_> = found.difference(&excused).collect();
    assert!(missing.is_empty(), "neither hooked nor excused: {missing:?}");
    let stale: Vec<_> = excused.difference(&found).collect();
    assert!(stale.is_empty(), "excused, but not imported: {stale:?}");
}

/// Goal: the list and the comparison find what they should.
#[test]
fn a_function_that_is_not_hooked_is_found() {
    let hooked = hooked();
    let imports = ["read", "strlen", "flock", "fgets"].map(str::to_owned).into();
    assert_eq!(unhooked(&imports, &hooked), ["fgets", "flock"]);
    // The small clients are compiled as they should be.
    let small = names(&["--undefined-only"], env!("ARCHIVE"));
    for checked in ["__read_chk", "__recv_chk", "__recvfrom_chk", "__poll_chk"] {
        assert!(small.contains(checked) && hooked.contains(checked), "{checked}");
    }
}
