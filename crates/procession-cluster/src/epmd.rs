//! The port mapper of Erlang, EPMD: it knows at which port a node of its machine listens.
//!
//! A node that is registered keeps its connection to EPMD open. When the connection ends, EPMD
//! forgets the node.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use procession::net::TcpStream;

/// The port of EPMD, unless the variable names another port.
const PORT: u16 = 4369;
/// The variable of the environment that has the port of EPMD.
const VARIABLE: &str = "ERL_EPMD_PORT";

const ALIVE2_REQ: u8 = 120;
const ALIVE2_RESP: u8 = 121;
const ALIVE2_X_RESP: u8 = 118;
const PORT_PLEASE2_REQ: u8 = 122;
const PORT2_RESP: u8 = 119;

/// A node that other nodes do not count as a part of the cluster that is seen by all.
const HIDDEN_NODE: u8 = 72;
const TCP: u8 = 0;
/// The version of the distribution protocol.
const VERSION: u16 = 6;
const OLDEST_VERSION: u16 = 5;

fn unexpected(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("EPMD: {why}"))
}

fn request(body: &[u8]) -> Vec<u8> {
    let mut request = (body.len() as u16).to_be_bytes().to_vec();
    request.extend(body);
    request
}

async fn within<T>(limit: Duration, ask: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    match procession::timeout(limit, ask).await {
        Ok(result) => result,
        Err(_) => Err(io::Error::new(io::ErrorKind::TimedOut, "EPMD does not answer")),
    }
}

/// Registers a node at the EPMD of this machine. It is registered as long as the connection is
/// kept.
pub(crate) async fn register(
    epmd: SocketAddr,
    word: &str,
    port: u16,
    limit: Duration,
) -> io::Result<TcpStream> {
    within(limit, async {
        let stream = TcpStream::connect(epmd).await?;
        let mut body = vec![ALIVE2_REQ];
        body.extend(port.to_be_bytes());
        body.extend([HIDDEN_NODE, TCP]);
        body.extend(VERSION.to_be_bytes());
        body.extend(OLDEST_VERSION.to_be_bytes());
        body.extend((word.len() as u16).to_be_bytes());
        body.extend(word.as_bytes());
        // No extra data.
        body.extend([0, 0]);
        stream.write_all(&request(&body)).await?;
        let mut answer = [0; 2];
        stream.read_exact(&mut answer).await?;
        let rest = match answer[0] {
            ALIVE2_RESP => 2,
            ALIVE2_X_RESP => 4,
            _ => return Err(unexpected("it does not answer a registration")),
        };
        if answer[1] != 0 {
            let taken = format!("EPMD: a node named {word:?} is registered already");
            return Err(io::Error::new(io::ErrorKind::AddrInUse, taken));
        }
        // The creation, which is not used, because this node makes its own.
        stream.read_exact(&mut [0; 4][..rest]).await?;
        Ok(stream)
    })
    .await
}

/// Asks the EPMD of a host for the address of a node.
pub(crate) async fn find(
    host: &str,
    port: u16,
    word: &str,
    limit: Duration,
) -> io::Result<SocketAddr> {
    within(limit, async {
        let stream = TcpStream::connect((host, port)).await?;
        let mut body = vec![PORT_PLEASE2_REQ];
        body.extend(word.as_bytes());
        stream.write_all(&request(&body)).await?;
        let mut answer = [0; 2];
        stream.read_exact(&mut answer).await?;
        if answer[0] != PORT2_RESP {
            return Err(unexpected("it does not answer a question"));
        }
        if answer[1] != 0 {
            let unknown = format!("EPMD: no node named {word:?} is registered");
            return Err(io::Error::new(io::ErrorKind::NotFound, unknown));
        }
        let mut fields = [0; 8];
        stream.read_exact(&mut fields).await?;
        let [port_high, port_low, _kind, _protocol, high, low, ..] = fields;
        if u16::from_be_bytes([high, low]) < VERSION {
            return Err(unexpected("the node is older than version 6 of the protocol"));
        }
        let port = u16::from_be_bytes([port_high, port_low]);
        Ok(SocketAddr::new(stream.peer_addr()?.ip(), port))
    })
    .await
}

/// Returns the address of the EPMD of this machine.
///
/// # Errors
/// The text of the variable if it is no port.
pub(crate) fn local() -> Result<SocketAddr, String> {
    let port = std::env::var_os(VARIABLE).map(|text| text.to_string_lossy().into_owned());
    Ok((Ipv4Addr::LOCALHOST, port_of(port)?).into())
}

fn port_of(text: Option<String>) -> Result<u16, String> {
    match text {
        None => Ok(PORT),
        Some(text) => text.parse().ok().filter(|port| *port != 0).ok_or(text),
    }
}

#[cfg(test)]
mod tests {
    use super::{PORT, port_of};

    #[test]
    fn the_port_is_that_of_the_variable() {
        assert_eq!(port_of(None), Ok(PORT));
        assert_eq!(port_of(Some("4370".into())), Ok(4370));
        for wrong in ["", "0", "65536", "epmd"] {
            assert_eq!(port_of(Some(wrong.into())), Err(wrong.to_owned()));
        }
    }
}
