//! Look at `serve`: the blocking library tungstenite over a socket of Procession, in a coroutine.
#![expect(clippy::print_stdout, reason = "an example shows its output")]

use procession_blocking_examples::{Failed, Line, converse};
use tungstenite::{Error, Message};

const MESSAGES: usize = 5;
/// More bytes than the buffers on the way hold.
const LONG: usize = 300_000;

/// Sends each message back, until the client closes.
fn serve(line: Line) -> Result<(), Failed> {
    let mut socket = tungstenite::accept(line).map_err(|error| error.to_string())?;
    loop {
        match socket.read() {
            Ok(message @ (Message::Text(_) | Message::Binary(_))) => socket.send(message)?,
            // The library answers the messages of the protocol.
            Ok(_) => {}
            Err(Error::ConnectionClosed) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
    }
}

fn ask(line: Line, number: usize) -> Result<(), Failed> {
    let (mut socket, _) =
        tungstenite::client("ws://localhost/echo", line).map_err(|error| error.to_string())?;
    let mut messages: Vec<_> =
        (0..MESSAGES).map(|count| Message::text(format!("{count} of {number}"))).collect();
    messages.push(Message::binary(vec![7; LONG]));
    for message in messages {
        socket.send(message.clone())?;
        assert_eq!(socket.read()?, message);
    }
    socket.close(None)?;
    while !matches!(socket.read(), Err(Error::ConnectionClosed)) {}
    Ok(())
}

fn main() -> Result<(), Failed> {
    let threads = converse(serve, ask)?;
    println!("tungstenite: all have had their answers, on {threads} threads");
    Ok(())
}

#[test]
fn tungstenite_runs_in_coroutines_unchanged() {
    main().expect("the server is local");
}
