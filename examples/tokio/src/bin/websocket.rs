//! Look at `talk`: the process of a WebSocket. `docs/COOKBOOK.md` shows this program. A server with
//! many clients and a supervisor is `axum_ws`.

use std::time::Duration;

use axum::Router;
use axum::extract::ws::{Message, WebSocket, WebSocketUpgrade};
use axum::routing::any;
use futures_util::{SinkExt as _, StreamExt as _};
use procession::http::Server;
use procession::net::{TcpListener, TcpStream};
use procession::process::until_cancelled;
use procession::{Context, start, timeout};
use tokio_tungstenite::client_async;

/// The error is boxed, so that a client that resets its connection is no failure.
async fn talk(mut socket: WebSocket) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    loop {
        match until_cancelled(socket.recv()).await {
            Some(Some(heard)) => socket.send(heard?).await?,
            Some(None) => return Ok(()), // The client is gone.
            None => break,               // A shutdown.
        }
    }
    socket.send(Message::Close(None)).await?;
    // If a socket is dropped with unread input, the system resets it, and what was sent is lost.
    let rest = async { while let Some(Ok(_)) = socket.recv().await {} };
    timeout(Duration::from_secs(2), rest).await?;
    Ok(())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    procession::run(async {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let chat = any(|upgrade: WebSocketUpgrade| async {
            upgrade.on_upgrade(async |socket| drop(start(|_: Context<()>| talk(socket)).detach()))
        });
        let server = Server::new().upgrades().serve(listener, Router::new().route("/", chat));
        start(move |_: Context<()>| server).detach();

        let stream = TcpStream::connect(address).await?;
        let (mut client, _) = client_async(format!("ws://{address}/"), stream).await?;
        client.send("hello".into()).await?;
        let heard = client.next().await.ok_or("it is closed")??;
        assert_eq!(heard.to_text()?, "hello");
        Ok(())
    })
}

#[test]
fn the_client_hears_its_echo() {
    main().expect("the server is local");
}

#[test]
fn the_page_shows_this_program() {
    let (page, here) = (include_str!("../../../../docs/COOKBOOK.md"), include_str!("websocket.rs"));
    let block = page.split("```rust,ignore\n").nth(1).and_then(|rest| rest.split("```").next());
    let shown = block.expect("it shows a program").lines().map(str::trim);
    let mut lines = here.lines().map(str::trim);
    for line in shown.filter(|line| !line.is_empty() && *line != "// In `main`:") {
        assert!(lines.any(|other| other == line), "{line}");
    }
}
