//! What the tests of the programs share: a program that runs, and how it ended.

pub mod index;
pub mod request;

use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::process::{Child, ChildStdout, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

/// A program that runs. If the value is dropped, the program is killed.
#[derive(Debug)]
pub struct Program {
    child: Child,
    output: BufReader<ChildStdout>,
}

/// How a program ended.
#[derive(Debug)]
pub struct Ended {
    /// The exit code, if no signal killed the program.
    pub code: Option<i32>,
    /// What the program wrote to standard output and the test did not read.
    pub output: String,
}

impl Program {
    /// Starts a program, such as `env!("CARGO_BIN_EXE_chat")`.
    ///
    /// # Panics
    /// Panics if the program cannot be started.
    pub fn start(path: &str, arguments: &[&str]) -> Program {
        let mut command = Command::new(path);
        // A program would spend its time on backtraces if its processes panic on purpose.
        command.env("RUST_BACKTRACE", "0");
        command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("the program can be started");
        let output = BufReader::new(child.stdout.take().expect("standard output is a pipe"));
        Program { child, output }
    }

    /// Waits for the next line of standard output.
    ///
    /// # Panics
    /// Panics if the program ends before.
    pub fn line(&mut self) -> String {
        let mut line = String::new();
        let read = self.output.read_line(&mut line).expect("the output is text");
        assert!(read > 0, "the program ended without another line");
        line.trim_end().to_owned()
    }

    /// Waits for the next line. Its last word is the address on which the program listens.
    ///
    /// # Panics
    /// Panics if the line does not end with an address.
    pub fn address(&mut self) -> SocketAddr {
        let line = self.line();
        let last = line.rsplit(' ').next().and_then(|word| word.parse().ok());
        last.unwrap_or_else(|| panic!("no address at the end of {line:?}"))
    }

    /// Sends a signal to the program, for example `Signal::TERM`.
    ///
    /// # Panics
    /// Panics if the system refuses.
    pub fn signal(&self, signal: Signal) {
        let pid = Pid::from_child(&self.child);
        kill_process(pid, signal).expect("the program has not been waited for");
    }

    /// Waits until the program has ended.
    ///
    /// # Panics
    /// Panics if the output is not text.
    pub fn wait(mut self) -> Ended {
        let mut output = String::new();
        self.output.read_to_string(&mut output).expect("the output is text");
        let code = self.child.wait().expect("the program is a child").code();
        Ended { code, output }
    }

    /// Ends the program by SIGTERM, and waits until it has ended.
    ///
    /// # Panics
    /// Panics if the output is not text.
    pub fn terminate(self) -> Ended {
        self.signal(Signal::TERM);
        self.wait()
    }

    /// Ends the program by SIGKILL, and waits until it has ended.
    pub fn kill(self) {
        drop(self);
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // Ignored: both fail only if the program has ended and was waited for.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
