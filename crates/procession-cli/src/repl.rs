//! Reads the lines that `procession repl` evaluates.

use std::io::{self, IsTerminal as _};
use std::thread;

use procession::machine::{CommandId, Completion, Value as Input};
use procession_lua::{Output, Value};

/// The command with which the process asks for the next line.
pub(crate) const READ: CommandId = CommandId::FIRST_FREE;

/// Returns the handler of [`READ`]. It prints a prompt if standard input is a terminal.
pub(crate) fn reader(out: Output) -> impl Fn(Input, Completion) + Send + Sync + 'static {
    move |input, completion| {
        let continues = input.downcast::<Value>().is_ok_and(|input| *input == Value::Boolean(true));
        if io::stdin().is_terminal() {
            // Ignored: without room there is no prompt.
            out.try_write(if continues { b"... " } else { b"> " });
        }
        let read = move || completion.complete(Ok(Box::new(line())));
        #[expect(
            clippy::disallowed_methods,
            reason = "a read of standard input may never return, so no scheduler can wait for it"
        )]
        // Ignored: if there is no thread, the completion is dropped, and the process ends.
        drop(thread::Builder::new().name("procession-stdin".to_owned()).spawn(read));
    }
}

/// Reads a line. Returns [`Value::Nil`] at the end of the input, or if it cannot be read.
fn line() -> Value {
    let mut line = Vec::new();
    match io::BufRead::read_until(&mut io::stdin().lock(), b'\n', &mut line) {
        Ok(1..) => Value::string(line.strip_suffix(b"\n").unwrap_or(&line)),
        _ => Value::Nil,
    }
}
