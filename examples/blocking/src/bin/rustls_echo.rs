//! Look at `serve`: a `StreamOwned` of rustls over a socket of Procession, in a coroutine. The TLS
//! certificate is made here.
#![expect(clippy::print_stdout, reason = "an example shows its output")]

use std::io::{BufRead, BufReader, Read, Write};
use std::sync::Arc;

use procession_blocking_examples::{Failed, Line, converse};
use rustls::crypto::ring;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer, ServerName};
use rustls::{
    ClientConfig, ClientConnection, RootCertStore, ServerConfig, ServerConnection, StreamOwned,
};

const NAME: &str = "localhost";
const LINES: usize = 5;
/// Several records of TLS.
const LONG: usize = 40_000;

/// Returns the configurations of both sides: the server has the certificate, and the client trusts
/// it.
fn configurations() -> Result<(ServerConfig, ClientConfig), Failed> {
    let own = rcgen::generate_simple_self_signed([NAME.to_owned()])?;
    let certificate = own.cert.der().clone();
    let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(own.signing_key.serialize_der()));
    let provider = Arc::new(ring::default_provider());
    let server = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()?;
    let mut trusted = RootCertStore::empty();
    trusted.add(certificate.clone())?;
    let client =
        ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    Ok((
        server.with_no_client_auth().with_single_cert(vec![certificate], key)?,
        client.with_root_certificates(trusted).with_no_client_auth(),
    ))
}

/// Answers each line with the same in capitals.
fn serve(config: Arc<ServerConfig>, line: Line) -> Result<(), Failed> {
    let mut stream = BufReader::new(StreamOwned::new(ServerConnection::new(config)?, line));
    let mut text = String::new();
    while stream.read_line(&mut text)? > 0 {
        stream.get_mut().write_all(text.to_uppercase().as_bytes())?;
        stream.get_mut().flush()?;
        text.clear();
    }
    Ok(())
}

fn ask(config: Arc<ClientConfig>, line: Line, number: usize) -> Result<(), Failed> {
    let mut stream =
        StreamOwned::new(ClientConnection::new(config, ServerName::try_from(NAME)?)?, line);
    for count in 0..LINES {
        let text = format!("line {count} of client {number}\n");
        stream.write_all(text.as_bytes())?;
        let mut answer = vec![0; text.len()];
        stream.read_exact(&mut answer)?;
        assert_eq!(answer, text.to_uppercase().as_bytes());
    }
    let mut long = vec![b'a'; LONG];
    long.push(b'\n');
    stream.write_all(&long)?;
    let mut answer = vec![0; long.len()];
    stream.read_exact(&mut answer)?;
    assert_eq!(answer, long.to_ascii_uppercase());
    stream.conn.send_close_notify();
    stream.flush()?;
    // The last message of the server says that it has closed, too.
    drop(stream.read(&mut [0]));
    Ok(())
}

fn main() -> Result<(), Failed> {
    let (server, client) = configurations()?;
    let (server, client) = (Arc::new(server), Arc::new(client));
    let threads = converse(
        move |line| serve(Arc::clone(&server), line),
        move |line, number| ask(Arc::clone(&client), line, number),
    )?;
    println!("rustls: all have had their answers, on {threads} threads");
    Ok(())
}

#[test]
fn rustls_runs_in_coroutines_unchanged() {
    main().expect("the server is local");
}
