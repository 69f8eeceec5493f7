//! TLS in a build without the feature `tls`: there is none.

use std::io::{self, Read};
use std::sync::Arc;

use procession::net::TcpStream;

use crate::account::{Account, Held};
use crate::secured::Secured;

/// The certificates that no program has.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tls(());

/// A session that never is.
#[derive(Debug)]
pub(crate) enum Session {}

/// How a listener that never is begins sessions.
#[derive(Debug)]
pub(crate) enum Server {}

fn none<T>() -> io::Result<T> {
    Err(io::Error::new(io::ErrorKind::Unsupported, "the host of the program has no TLS"))
}

impl Tls {
    pub(crate) async fn client(&self, _: &str, _: Secured, _: Held) -> io::Result<Session> {
        none()
    }

    pub(crate) fn server(&self, _: Secured) -> io::Result<Server> {
        none()
    }
}

impl Server {
    pub(crate) fn reserve(&self, _: &mut Held) -> io::Result<()> {
        match *self {}
    }

    pub(crate) fn session(&self, _: Held) -> io::Result<Session> {
        match *self {}
    }
}

impl Session {
    pub(crate) fn charge_to(&self, _: &Arc<Account>) {
        match *self {}
    }

    pub(crate) async fn readable(&self, _: &TcpStream) -> io::Result<()> {
        match *self {}
    }

    pub(crate) fn try_read(
        &self,
        _: &TcpStream,
        _: &mut dyn Read,
        _: &mut [u8],
    ) -> io::Result<usize> {
        match *self {}
    }

    pub(crate) fn try_write(&self, _: &TcpStream, _: &[u8]) -> io::Result<Option<usize>> {
        match *self {}
    }

    pub(crate) async fn write_all(&self, _: &TcpStream, _: &[u8]) -> io::Result<()> {
        match *self {}
    }

    pub(crate) async fn handshake(&self, _: &TcpStream) -> io::Result<()> {
        match *self {}
    }

    pub(crate) fn end(&self, _: &TcpStream) {
        match *self {}
    }
}
