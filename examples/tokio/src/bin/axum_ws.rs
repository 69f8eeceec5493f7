//! Look at `answer` and `echo`: the WebSockets of axum run unchanged on a server of processes. A
//! socket is served by the process of its connection until it is upgraded, and then by a supervised
//! process of its own. Like any process, this one has a PID and can be observed, and when the
//! program ends, it says goodbye to its client.
#![expect(clippy::print_stdout, reason = "an example shows its output")]

use std::error::Error;
use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use axum::extract::ws::{CloseFrame, Message as Frame, WebSocket, WebSocketUpgrade};
use axum::extract::{ConnectInfo, State};
use axum::response::Response;
use axum::routing::get;
use futures_util::{SinkExt as _, StreamExt as _};
use procession::http::{Peer, Server};
use procession::net::{TcpListener, TcpStream};
use procession::supervisor::{Supervisor, SupervisorRef, Template};
use procession::sync::Select;
use procession::sync::channel::{self, Sender};
use procession::{Context, Scheduler, start};
use tokio_tungstenite::client_async;
use tokio_tungstenite::tungstenite::Message;

const CLIENTS: usize = 20;

/// Starts a process for each socket.
#[derive(Clone)]
struct Sockets {
    supervisor: SupervisorRef,
    echo: Template<(Peer, WebSocket), ()>,
}

async fn answer(
    State(sockets): State<Sockets>,
    ConnectInfo(peer): ConnectInfo<Peer>,
    upgrade: WebSocketUpgrade,
) -> Response {
    upgrade.on_upgrade(async move |socket| {
        // Refused if the program ends already. The socket is closed then.
        drop(sockets.supervisor.add_another(&sockets.echo, (peer, socket)).await);
    })
}

/// Greets the client, and sends back what it says, until one of the two ends. The error is boxed,
/// so that a client that resets its connection is no failure of this process.
async fn echo(
    mut cx: Context<()>,
    (peer, mut socket): (Peer, WebSocket),
) -> Result<(), Box<dyn Error + Send + Sync>> {
    socket.send(format!("hello, {peer}").into()).await?;
    loop {
        let next =
            Select::new().wait_for(socket.recv(), Next::Heard).wait_for(cx.recv(), |_| Next::Ends);
        match next.await {
            Next::Heard(Some(Ok(frame))) => socket.send(frame).await?,
            // An error means that the client is gone.
            Next::Heard(_) => return Ok(()),
            Next::Ends => break,
        }
    }
    let goodbye = CloseFrame { code: 1001, reason: "the server ends".into() };
    Ok(socket.send(Frame::Close(Some(goodbye))).await?)
}

enum Next {
    Heard(Option<Result<Frame, axum::Error>>),
    Ends,
}

/// Talks, says so, and waits for the goodbye.
async fn talk(server: SocketAddr, number: usize, talked: Sender<usize>) -> Result<(), String> {
    let stream = TcpStream::connect(server).await.map_err(|error| error.to_string())?;
    let local = stream.local_addr().map_err(|error| error.to_string())?;
    let opened = client_async(format!("ws://{server}/echo"), stream).await;
    let (mut socket, _) = opened.map_err(|error| error.to_string())?;
    let mut expected = Message::text(format!("hello, {local}"));
    for line in 0..3 {
        let heard = socket.next().await.ok_or("the server is gone")?;
        assert_eq!(heard.map_err(|error| error.to_string())?, expected);
        expected = Message::text(format!("line {line} of client {number}"));
        socket.send(expected.clone()).await.map_err(|error| error.to_string())?;
    }
    let heard = socket.next().await.ok_or("the server is gone")?;
    assert_eq!(heard.map_err(|error| error.to_string())?, expected);
    talked.send(number).await.map_err(|error| error.to_string())?;
    match socket.next().await {
        Some(Ok(Message::Close(Some(_)))) => Ok(()),
        other => Err(format!("no goodbye, but {other:?}")),
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let scheduler = Scheduler::builder().name("sockets").build()?;
    let elsewhere = Scheduler::builder().name("clients").build()?;
    scheduler.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let supervisor = Supervisor::dynamic().try_start().await?;
        let echo = Template::new(echo).label("socket");
        let sockets = Sockets { supervisor: supervisor.reference().clone(), echo };
        let app = Router::new().route("/echo", get(answer)).with_state(sockets);
        let server = Server::new().upgrades().connect_info(ConnectInfo).serve(listener, app);
        drop(start(move |_: Context<()>| server));

        let (talked, has_talked) = channel::bounded(CLIENTS);
        let clients: Vec<_> = (0..CLIENTS)
            .map(|number| elsewhere.spawn(talk(address, number, talked.clone())))
            .collect();
        for _ in 0..CLIENTS {
            has_talked.recv().await.ok_or("a client has failed")?;
        }
        println!("{CLIENTS} clients had their echo from {address}");
        let sockets = scheduler.snapshot().processes;
        let sockets = sockets.iter().filter(|process| process.label.as_deref() == Some("socket"));
        assert_eq!(sockets.count(), CLIENTS, "each socket has a process");

        let unfinished = scheduler.shutdown(Duration::from_secs(10)).await;
        assert!(unfinished.is_empty(), "{unfinished:?}");
        for client in clients {
            client.await??;
        }
        Ok(())
    })
}

#[test]
fn websockets_of_axum_are_served() {
    main().expect("the server is local");
}
