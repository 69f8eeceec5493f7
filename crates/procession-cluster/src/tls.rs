//! TLS 1.3 between nodes, with certificates on both sides.

use std::error::Error;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::client::verify_server_name;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::{ParsedCertificate, WebPkiClientVerifier};
use rustls::version::TLS13;
use rustls::{ClientConfig, ClientConnection, RootCertStore, ServerConfig, ServerConnection};

use crate::cookie::open_secret;

/// The certificate of a node, its key, and the authority that other nodes must be certified by.
///
/// A node with it speaks TLS 1.3 with all others, as `-proto_dist inet_tls` makes nodes of the BEAM
/// do. Each side shows its certificate, and both check two things: the authority has signed it, and
/// it is for the host in the name of the node. So the certificate of `shop@db.example` has the DNS
/// name `db.example`, or, for `shop@10.0.0.7`, the IP address. Nodes of one host may share one.
///
/// ```no_run
/// use procession_cluster::{Cookie, Node, Tls};
///
/// # type Error = Box<dyn std::error::Error + Send + Sync>;
/// # fn main() -> Result<(), Error> {
/// let tls = Tls::read("node.crt", "node.key", "authority.crt")?;
/// procession::run(async {
///     let node = Node::builder("shop@db.example")
///         .cookie(Cookie::read("cookie")?)
///         .listen(([0, 0, 0, 0], 4370).into())
///         .tls(tls)
///         .start()
///         .await?;
///     node.connect("till@front.example").await?;
///     Ok::<(), Error>(())
/// })
/// # }
/// ```
#[derive(Clone)]
pub struct Tls {
    server: Arc<ServerConfig>,
    client: Arc<ClientConfig>,
}

/// The error of certificates that cannot be used.
#[derive(Debug)]
#[non_exhaustive]
pub enum TlsError {
    /// A file cannot be read, or other users can read the file of the key.
    File(PathBuf, io::Error),
    /// A file has no certificate or key in the PEM format.
    Pem(PathBuf),
    /// The certificate of the authority cannot be used.
    Authority(Box<dyn Error + Send + Sync>),
    /// The certificate of the node cannot be used, or does not fit the key.
    Certificate(Box<dyn Error + Send + Sync>),
}

impl fmt::Display for TlsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path, error) => write!(f, "cannot read {}: {error}", path.display()),
            Self::Pem(path) => {
                write!(f, "{} has not what it should have in PEM format", path.display())
            }
            Self::Authority(error) => write!(f, "the authority cannot be used: {error}"),
            Self::Certificate(error) => write!(f, "the certificate cannot be used: {error}"),
        }
    }
}

impl Error for TlsError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::File(_, error) => Some(error),
            Self::Authority(error) | Self::Certificate(error) => Some(&**error),
            Self::Pem(_) => None,
        }
    }
}

impl Tls {
    /// Reads certificates in the PEM format: the certificate of the node, followed by the
    /// certificates of the intermediate authorities; its key; and the certificates of the
    /// authorities that are trusted.
    ///
    /// # Errors
    /// [`TlsError`]: a file cannot be read or has something else, other users can read the key (the
    /// mode of its file must be 0600 or 0400), or the certificates and the key do not fit.
    ///
    /// # Blocking
    /// It reads files, which may block the thread.
    pub fn read(
        certificate: impl AsRef<Path>,
        key: impl AsRef<Path>,
        authority: impl AsRef<Path>,
    ) -> Result<Self, TlsError> {
        let key = key.as_ref();
        let key_file = open_secret(key).map_err(|error| TlsError::File(key.into(), error))?;
        let secret = PrivateKeyDer::from_pem_reader(key_file);
        let secret = secret.map_err(|_| TlsError::Pem(key.into()))?;
        Self::new(certificates(certificate.as_ref())?, secret, certificates(authority.as_ref())?)
    }

    /// Takes certificates and a key that were read by other means, in the order that
    /// [`read`](Self::read) describes.
    ///
    /// # Errors
    /// [`TlsError`]: the certificates and the key do not fit, or are of an unknown kind.
    pub fn new(
        certificate: Vec<CertificateDer<'static>>,
        key: PrivateKeyDer<'static>,
        authorities: Vec<CertificateDer<'static>>,
    ) -> Result<Self, TlsError> {
        let own = |error| TlsError::Certificate(Box::new(error));
        let roots = roots(authorities)?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let verifier =
            WebPkiClientVerifier::builder_with_provider(Arc::clone(&roots), Arc::clone(&provider))
                .build()
                .map_err(|error| TlsError::Authority(Box::new(error)))?;
        let server = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(&[&TLS13])
            .map_err(own)?
            .with_client_cert_verifier(verifier)
            .with_single_cert(certificate.clone(), key.clone_key())
            .map_err(own)?;
        let client = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&TLS13])
            .map_err(own)?
            .with_root_certificates(roots)
            .with_client_auth_cert(certificate, key)
            .map_err(own)?;
        Ok(Self { server: Arc::new(server), client: Arc::new(client) })
    }

    /// Begins a session with a node that this one has connected to. Its certificate must be for
    /// this host.
    pub(crate) fn connect(&self, host: &str) -> Result<rustls::Connection, rustls::Error> {
        let name = server_name(host)?.to_owned();
        Ok(ClientConnection::new(Arc::clone(&self.client), name)?.into())
    }

    /// Begins a session with a node that has connected to this one.
    pub(crate) fn accept(&self) -> Result<rustls::Connection, rustls::Error> {
        Ok(ServerConnection::new(Arc::clone(&self.server))?.into())
    }
}

/// Checks that the certificate of the other side is for this host.
pub(crate) fn is_for(session: &rustls::Connection, host: &str) -> Result<(), rustls::Error> {
    let shown = session.peer_certificates().and_then(|certificates| certificates.first());
    let shown = shown.ok_or(rustls::Error::NoCertificatesPresented)?;
    verify_server_name(&ParsedCertificate::try_from(shown)?, &server_name(host)?)
}

fn server_name(host: &str) -> Result<ServerName<'_>, rustls::Error> {
    let wrong = |_| rustls::Error::General(format!("{host:?} is no name of a host"));
    ServerName::try_from(host).map_err(wrong)
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let bytes = std::fs::read(path).map_err(|error| TlsError::File(path.into(), error))?;
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&bytes).collect();
    let all = all.map_err(|_| TlsError::Pem(path.into()))?;
    if all.is_empty() { Err(TlsError::Pem(path.into())) } else { Ok(all) }
}

fn roots(authorities: Vec<CertificateDer<'static>>) -> Result<Arc<RootCertStore>, TlsError> {
    let mut roots = RootCertStore::empty();
    for trusted in authorities {
        roots.add(trusted).map_err(|error| TlsError::Authority(Box::new(error)))?;
    }
    Ok(Arc::new(roots))
}

/// Returns a client that trusts the authorities in a file, and shows no certificate.
#[cfg(feature = "etcd")]
pub(crate) fn client_of(authority: &Path) -> Result<Arc<ClientConfig>, TlsError> {
    let roots = roots(certificates(authority)?)?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let client = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&TLS13])
        .map_err(|error| TlsError::Certificate(Box::new(error)))?;
    Ok(Arc::new(client.with_root_certificates(roots).with_no_client_auth()))
}

/// The side of a client, such as [`Etcd`](crate::exclusive::Etcd).
#[cfg(feature = "etcd")]
impl From<Tls> for Arc<ClientConfig> {
    fn from(tls: Tls) -> Self {
        tls.client
    }
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tls(..)")
    }
}
