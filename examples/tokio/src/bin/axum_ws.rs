//! Look at `answer`: the WebSockets of axum run unchanged on a server of processes. Each socket is
//! served by the process of its connection until it is upgraded, and by one of tokio's tasks then,
//! which axum spawns. `Server::upgrades` and `Builder::tokio` are all that is needed.
#![expect(clippy::print_stdout, reason = "an example shows its output")]

use std::error::Error;
use std::time::Duration;

use axum::extract::ws::{WebSocket, WebSocketUpgrade};
use axum::response::Response;
use axum::routing::get;
use axum::{Extension, Router};
use futures_util::{SinkExt as _, StreamExt as _};
use procession::http::{Peer, Server};
use procession::net::{TcpListener, TcpStream};
use procession::{Scheduler, spawn, start};
use tokio_tungstenite::client_async;
use tokio_tungstenite::tungstenite::Message;

const CLIENTS: usize = 20;

async fn answer(Extension(peer): Extension<Peer>, upgrade: WebSocketUpgrade) -> Response {
    upgrade.on_upgrade(move |socket| echo(peer, socket))
}

/// Greets the client, and sends back what it says.
async fn echo(peer: Peer, mut socket: WebSocket) {
    let mut reply = Some(Ok(format!("hello, {peer}").into()));
    while let Some(Ok(message)) = reply {
        // An error means that the client is gone.
        if socket.send(message).await.is_err() {
            return;
        }
        reply = socket.recv().await;
    }
}

async fn talk(server: std::net::SocketAddr, number: usize) -> Result<(), String> {
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
    socket.close(None).await.map_err(|error| error.to_string())
}

fn main() -> Result<(), Box<dyn Error>> {
    let scheduler = Scheduler::builder().name("sockets").tokio().build()?;
    scheduler.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let app = Router::new().route("/echo", get(answer));
        let server = Server::new().upgrades().peers().serve(listener, app);
        drop(start(move |_: procession::Context<()>| server));
        let clients: Vec<_> = (0..CLIENTS).map(|number| spawn(talk(address, number))).collect();
        for client in clients {
            client.await??;
        }
        println!("{CLIENTS} clients had their echo from {address}");
        let unfinished = scheduler.shutdown(Duration::from_secs(10)).await;
        assert!(unfinished.is_empty(), "{unfinished:?}");
        Ok(())
    })
}

#[test]
fn websockets_of_axum_are_served() {
    main().expect("the server is local");
}
