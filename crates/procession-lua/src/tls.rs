//! TLS for the connections of guests. The host has the certificates, the keys and the checks.

mod session;

use std::error::Error;
use std::fmt;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{
    ClientConfig, ClientConnection, ConfigBuilder, ConfigSide, RootCertStore, ServerConfig,
    ServerConnection, WantsVerifier,
};

pub(crate) use self::session::Session;
use crate::account::Held;
use crate::secured::Secured;

/// The certificates for the connections of a program: the certificates of the authorities that it
/// trusts, and its own certificate for its listeners.
///
/// The processes of the program never see a key. They ask for TLS by the option `tls` of
/// `net.connect` and `net.listen`, or by a URL with `https`. By default, a program trusts the
/// authorities of the system, and cannot listen with TLS.
///
/// ```no_run
/// use procession_lua::{Permissions, Program, Tls};
///
/// let source = "function main(url) return http.get(url) end";
/// let tls = Tls::new().trust("authority.pem")?.certificate("server.pem", "server.key")?;
/// let program = Program::load("client", source)?.permissions(Permissions::none().connect());
/// let program = program.tls(tls);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Default)]
pub struct Tls {
    /// `None` for the authorities of the system, which are read when they are first needed.
    roots: Option<Arc<RootCertStore>>,
    /// Shared by all clients, so that they share their tickets.
    client: Arc<OnceLock<ClientConfig>>,
    server: Option<Arc<ServerConfig>>,
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls")
            .field("trusts_the_system", &self.roots.is_none())
            .field("has_certificate", &self.server.is_some())
            .finish_non_exhaustive()
    }
}

/// The error of certificates that cannot be used.
#[derive(Debug)]
#[non_exhaustive]
pub enum TlsError {
    /// A file cannot be read, or all users can read the file of the key.
    File(PathBuf, io::Error),
    /// A file has no certificate or key in the PEM format.
    Pem(PathBuf),
    /// The certificate in this file cannot be used, or does not fit the key.
    Certificate(PathBuf, Box<dyn Error + Send + Sync>),
}

impl fmt::Display for TlsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path, error) => write!(f, "cannot read {}: {error}", path.display()),
            Self::Pem(path) => {
                write!(f, "{} has not what it should have in PEM format", path.display())
            }
            Self::Certificate(path, error) => {
                write!(f, "the certificate in {} cannot be used: {error}", path.display())
            }
        }
    }
}

impl Error for TlsError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::File(_, error) => Some(error),
            Self::Certificate(_, error) => Some(&**error),
            Self::Pem(_) => None,
        }
    }
}

impl Tls {
    /// Trusts the authorities of the system, and has no certificate. This is the default of
    /// programs.
    pub fn new() -> Self {
        Self::default()
    }

    /// Trusts the authorities in a file in the PEM format, and no others.
    ///
    /// # Errors
    /// [`TlsError`]: the file cannot be read, or has no certificates of authorities.
    ///
    /// # Blocking
    /// It reads a file, which may block the thread.
    pub fn trust(mut self, authorities: impl AsRef<Path>) -> Result<Self, TlsError> {
        let path = authorities.as_ref();
        let mut roots = RootCertStore::empty();
        for authority in certificates(path)? {
            let added = roots.add(authority);
            added.map_err(|error| TlsError::Certificate(path.into(), Box::new(error)))?;
        }
        (self.roots, self.client) = (Some(Arc::new(roots)), Arc::default());
        Ok(self)
    }

    /// Sets the certificate of the listeners of the program: a file in the PEM format with the
    /// certificate, followed by the certificates of the intermediate authorities, and a file with
    /// its key.
    ///
    /// # Errors
    /// [`TlsError`]: a file cannot be read or has something else, all users can read the key (the
    /// last digit of its mode must be 0), or the certificate and the key do not fit.
    ///
    /// # Blocking
    /// It reads files, which may block the thread.
    pub fn certificate(
        mut self,
        certificate: impl AsRef<Path>,
        key: impl AsRef<Path>,
    ) -> Result<Self, TlsError> {
        let (path, key) = (certificate.as_ref(), key.as_ref());
        let (chain, key) = (certificates(path)?, secret(key)?);
        let mut config = versions(ServerConfig::builder_with_provider(provider()))
            .and_then(|config| config.with_no_client_auth().with_single_cert(chain, key))
            .map_err(|error| TlsError::Certificate(path.into(), Box::new(error)))?;
        // Tickets arrive after the handshake. A client that only writes would close a connection
        // with bytes that it has not read, and the kernel would drop what it has written.
        config.send_tls13_tickets = 0;
        self.server = Some(Arc::new(config));
        Ok(self)
    }

    /// Begins a session with the server at an address, as `host:port`. `held` becomes its charge.
    pub(crate) async fn client(
        &self,
        address: &str,
        wanted: Secured,
        mut held: Held,
    ) -> io::Result<Session> {
        session::reserve(&mut held)?;
        let host = wanted.name.as_deref().unwrap_or_else(|| host_of(address));
        let wrong = |_| io::Error::other(format!("{host:?} is no name of a host"));
        let name = ServerName::try_from(host).map_err(wrong)?.to_owned();
        let mut config = match self.client.get() {
            Some(config) => config.clone(),
            None => {
                let own = self.clone();
                procession::spawn_blocking(move || own.client_config())
                    .await
                    .map_err(|exit| io::Error::other(exit.to_string()))??
            }
        };
        config.alpn_protocols = wanted.protocols;
        let session = ClientConnection::new(Arc::new(config), name).map_err(io::Error::other)?;
        Ok(Session::new(session.into(), held))
    }

    /// Returns the configuration of clients. It may read the authorities of the system.
    fn client_config(&self) -> io::Result<ClientConfig> {
        if let Some(config) = self.client.get() {
            return Ok(config.clone());
        }
        let roots = match &self.roots {
            Some(roots) => Arc::clone(roots),
            None => Arc::new(system_roots()?),
        };
        let config = versions(ClientConfig::builder_with_provider(provider()));
        let config = config.map_err(io::Error::other)?;
        let config = config.with_root_certificates(roots).with_no_client_auth();
        Ok(self.client.get_or_init(|| config).clone())
    }

    /// Returns how a listener begins sessions.
    pub(crate) fn server(&self, wanted: Secured) -> io::Result<Server> {
        if wanted.name.is_some() {
            return Err(io::Error::other("`name` is for connections, and a listener has none"));
        }
        let config = self.server.as_ref().ok_or_else(|| {
            io::Error::other("the host gives the program no certificate: it needs --tls-cert")
        })?;
        Ok(Server(match wanted.protocols.is_empty() {
            true => Arc::clone(config),
            false => {
                let mut config = (**config).clone();
                config.alpn_protocols = wanted.protocols;
                Arc::new(config)
            }
        }))
    }
}

/// How a listener begins sessions.
#[derive(Debug)]
pub(crate) struct Server(Arc<ServerConfig>);

impl Server {
    /// Charges for a session that [`session`](Self::session) will begin.
    pub(crate) fn reserve(&self, held: &mut Held) -> io::Result<()> {
        session::reserve(held)
    }

    pub(crate) fn session(&self, held: Held) -> io::Result<Session> {
        let session = ServerConnection::new(Arc::clone(&self.0)).map_err(io::Error::other)?;
        Ok(Session::new(session.into(), held))
    }
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

fn versions<S: ConfigSide>(
    builder: ConfigBuilder<S, rustls::WantsVersions>,
) -> Result<ConfigBuilder<S, WantsVerifier>, rustls::Error> {
    builder.with_safe_default_protocol_versions()
}

/// Returns the host in `host:port`, without the brackets of an address of IPv6.
fn host_of(address: &str) -> &str {
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host)
}

fn system_roots() -> io::Result<RootCertStore> {
    let found = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    // Some certificates of a system are not valid. They are left out.
    roots.add_parsable_certificates(found.certs);
    if roots.is_empty() {
        let cause = found.errors.first().map_or(String::new(), |error| format!(": {error}"));
        return Err(io::Error::other(format!(
            "the system has no certificates of authorities{cause}; it needs --tls-roots"
        )));
    }
    Ok(roots)
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let bytes = fs::read(path).map_err(|error| TlsError::File(path.into(), error))?;
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&bytes).collect();
    let all = all.map_err(|_| TlsError::Pem(path.into()))?;
    if all.is_empty() { Err(TlsError::Pem(path.into())) } else { Ok(all) }
}

/// Reads a key that not all users may read.
fn secret(path: &Path) -> Result<PrivateKeyDer<'static>, TlsError> {
    let failed = |error| TlsError::File(path.into(), error);
    let file = fs::File::open(path).map_err(failed)?;
    let mode = file.metadata().map_err(failed)?.mode() & 0o777;
    if mode & 0o007 != 0 {
        let why = format!("its mode is {mode:o}, and all users may read it: it has a secret");
        return Err(failed(io::Error::new(io::ErrorKind::InvalidData, why)));
    }
    PrivateKeyDer::from_pem_reader(file).map_err(|_| TlsError::Pem(path.into()))
}
