//! What a program asks for when a connection is to have TLS.

/// The TLS that a program asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Secured {
    /// The name that the certificate of the server must be for, if it is not the host.
    pub(crate) name: Option<String>,
    /// The protocols of which the two sides choose one (ALPN).
    pub(crate) protocols: Vec<Vec<u8>>,
}
