//! The certificates of programs in Lua, for TLS, from the options of the command.

use std::fmt;
use std::path::PathBuf;

use procession_lua::{Tls, TlsError};

/// The options of a command line. The files were not looked at.
#[derive(Debug, Default)]
pub(crate) struct Certificates {
    pub(crate) roots: Option<PathBuf>,
    pub(crate) certificate: Option<PathBuf>,
    pub(crate) key: Option<PathBuf>,
}

/// The error of certificates that cannot be used.
#[derive(Debug)]
pub(crate) enum CertificatesError {
    /// There is a certificate without a key, or the other way round.
    Half,
    Tls(TlsError),
}

impl fmt::Display for CertificatesError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Half => f.write_str("a certificate and its key go together: see --help"),
            Self::Tls(error) => write!(f, "no TLS: {error}"),
        }
    }
}

impl Certificates {
    /// Reads the files.
    pub(crate) fn tls(&self) -> Result<Tls, CertificatesError> {
        let mut tls = Tls::new();
        if let Some(roots) = &self.roots {
            tls = tls.trust(roots).map_err(CertificatesError::Tls)?;
        }
        match (&self.certificate, &self.key) {
            (None, None) => Ok(tls),
            (Some(file), Some(key)) => tls.certificate(file, key).map_err(CertificatesError::Tls),
            _ => Err(CertificatesError::Half),
        }
    }
}
