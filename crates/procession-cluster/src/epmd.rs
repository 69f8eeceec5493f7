//! The port mapper of Erlang, EPMD: it knows at which port a node of its machine listens.
//!
//! A node that is registered keeps its connection to EPMD open. When the connection ends, EPMD
//! forgets the node.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use procession::net::TcpStream;
use procession::os_process::{Command, Stdio};

/// The port of EPMD, unless the variable names another port.
const PORT: u16 = 4369;
/// The variable of the environment that has the port of EPMD.
const VARIABLE: &str = "ERL_EPMD_PORT";

const ALIVE2_REQ: u8 = 120;
const ALIVE2_RESP: u8 = 121;
const ALIVE2_X_RESP: u8 = 118;
const PORT_PLEASE2_REQ: u8 = 122;
const PORT2_RESP: u8 = 119;

/// The kinds of nodes: those that count as a part of the cluster that is seen by all, and others.
const VISIBLE_NODE: u8 = 77;
const HIDDEN_NODE: u8 = 72;
/// The time between two looks whether an EPMD that was started listens.
const STARTS: Duration = Duration::from_millis(20);
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

/// A node as EPMD knows it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Registered<'a> {
    pub(crate) word: &'a str,
    pub(crate) listens_at: SocketAddr,
    pub(crate) is_visible: bool,
}

/// Registers a node at the EPMD of this machine, and starts the EPMD if there is none, as nodes of
/// the BEAM do.
pub(crate) async fn register_or_start(
    epmd: SocketAddr,
    own: Registered<'_>,
    limit: Duration,
) -> io::Result<TcpStream> {
    match register(epmd, own, limit).await {
        Err(error)
            if error.kind() == io::ErrorKind::ConnectionRefused && epmd.ip().is_loopback() =>
        {
            // Ignored: without the program, what is wrong is that there is no EPMD.
            if within(limit, start(epmd.port(), own.listens_at)).await.is_err() {
                return Err(error);
            }
            within(limit, async {
                loop {
                    match register(epmd, own, limit).await {
                        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                            procession::sleep(STARTS).await;
                        }
                        registered => return registered,
                    }
                }
            })
            .await
        }
        registered => registered,
    }
}

/// Starts the EPMD of this machine. If only this machine reaches the node, only this machine
/// reaches the EPMD.
async fn start(port: u16, listens_at: SocketAddr) -> io::Result<()> {
    let mut epmd = Command::new("epmd");
    epmd.arg("-daemon").arg("-port").arg(port.to_string());
    if listens_at.ip().is_loopback() {
        epmd.arg("-address").arg("127.0.0.1");
    }
    epmd.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    match epmd.status().await?.success() {
        true => Ok(()),
        false => Err(unexpected("it could not be started")),
    }
}

/// Registers a node at the EPMD of this machine. It is registered as long as the connection is
/// kept.
pub(crate) async fn register(
    epmd: SocketAddr,
    own: Registered<'_>,
    limit: Duration,
) -> io::Result<TcpStream> {
    let Registered { word, listens_at, is_visible } = own;
    within(limit, async {
        let stream = TcpStream::connect(epmd).await?;
        let mut body = vec![ALIVE2_REQ];
        body.extend(listens_at.port().to_be_bytes());
        body.extend([if is_visible { VISIBLE_NODE } else { HIDDEN_NODE }, TCP]);
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
