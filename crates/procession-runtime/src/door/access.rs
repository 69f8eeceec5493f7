//! The checks that a request passes before it is served, and the tokens of browsers.

use std::collections::VecDeque;
use std::fmt::Write;
use std::hint::black_box;
use std::io;
use std::net::SocketAddr;

use procession_sync::Mutex;

use super::request::{HttpRequest, Method};
use super::response::{HttpStatus, Response};
use crate::sys::system::program::fill_at_random;

/// The maximum number of links that wait to be used, and of sessions. A new link or session takes
/// the place of the oldest.
const TOKENS_MAX: usize = 8;

/// A secret of 128 random bits. It has no `Debug`, because no log may contain it.
#[derive(Clone)]
struct Secret([u8; 16]);

impl Secret {
    fn draw() -> io::Result<Self> {
        let mut bytes = [0; 16];
        fill_at_random(&mut bytes)?;
        Ok(Self(bytes))
    }

    fn hex(&self) -> String {
        self.0.iter().fold(String::with_capacity(32), |mut hex, byte| {
            // Ignored: a string takes everything.
            let _ = write!(hex, "{byte:02x}");
            hex
        })
    }

    fn parse(hex: &str) -> Option<Self> {
        let number = (hex.len() == 32).then(|| u128::from_str_radix(hex, 16).ok())?;
        number.map(|number| Self(number.to_be_bytes()))
    }

    /// Compares all bytes, wherever the first difference is.
    fn is(&self, other: &Self) -> bool {
        let pairs = self.0.iter().zip(&other.0);
        black_box(pairs.fold(0, |differences, (one, two)| black_box(differences | (one ^ two))))
            == 0
    }
}

/// The secrets that a door has given out.
#[derive(Default)]
pub(super) struct Keys {
    links: Mutex<VecDeque<Secret>>,
    sessions: Mutex<VecDeque<Secret>>,
}

fn add(tokens: &Mutex<VecDeque<Secret>>) -> io::Result<String> {
    let token = Secret::draw()?;
    let hex = token.hex();
    let mut tokens = tokens.lock();
    if tokens.len() == TOKENS_MAX {
        tokens.pop_front();
    }
    tokens.push_back(token);
    Ok(hex)
}

/// Returns the place of a token. Compares with all tokens.
fn find(tokens: &VecDeque<Secret>, token: &Secret) -> Option<usize> {
    tokens
        .iter()
        .enumerate()
        .fold(None, |found, (at, known)| found.or(known.is(token).then_some(at)))
}

impl Keys {
    /// Returns the token of a new link.
    pub(super) fn add_link(&self) -> io::Result<String> {
        add(&self.links)
    }

    /// Takes a link, which works once, and returns the secret of a new session.
    fn exchange(&self, hex: &str) -> Option<io::Result<String>> {
        let token = Secret::parse(hex)?;
        let mut links = self.links.lock();
        let at = find(&links, &token)?;
        links.remove(at);
        drop(links);
        Some(add(&self.sessions))
    }

    fn has_session(&self, hex: &str) -> bool {
        Secret::parse(hex).is_some_and(|token| find(&self.sessions.lock(), &token).is_some())
    }
}

/// The way by which a connection came.
#[derive(Clone, Copy, Debug)]
pub(super) enum Way {
    /// A Unix socket. The kernel has named the user.
    Unix,
    /// TCP, at this address of the door.
    Tcp(SocketAddr),
}

/// Returns `true` if a process of user `user` may connect to a door of user `own`.
pub(super) fn may_enter(user: u32, own: u32) -> bool {
    user == own || user == 0
}

/// Checks a request. Returns the response if it is refused, or is the use of a link.
pub(super) fn check(request: &HttpRequest, way: Way, keys: &Keys) -> Result<(), Response> {
    let host = request.one("host")?.unwrap_or_default();
    if !is_this_machine(host, way) {
        return Err(Response::error(
            HttpStatus::Misdirected,
            "the Host of a request must be the address of this door; at a Unix socket, localhost",
        ));
    }
    let is_own = |origin: &str| origin.strip_prefix("http://") == Some(host);
    let is_foreign_site = |site: &str| !matches!(site, "same-origin" | "none");
    if request.all("origin").any(|origin| !is_own(origin))
        || request.all("sec-fetch-site").any(is_foreign_site)
    {
        return Err(Response::error(HttpStatus::Forbidden, "the request comes from another site"));
    }
    match way {
        Way::Unix => Ok(()),
        Way::Tcp(address) => check_session(request, address, keys),
    }
}

/// Returns `true` if the host is a loopback address, with the port of this door if that is known. A
/// Unix socket may be forwarded from any port.
fn is_this_machine(host: &str, way: Way) -> bool {
    let port = ["localhost", "127.0.0.1", "[::1]"].iter().find_map(|name| host.strip_prefix(name));
    let own = match way {
        Way::Unix => None,
        Way::Tcp(address) => Some(address.port()),
    };
    match port {
        None => false,
        Some("") => own.is_none_or(|own| own == 80),
        Some(port) => match port.strip_prefix(':').map(str::parse::<u16>) {
            Some(Ok(port)) => own.is_none_or(|own| own == port),
            _ => false,
        },
    }
}

fn check_session(request: &HttpRequest, address: SocketAddr, keys: &Keys) -> Result<(), Response> {
    // Cookies do not differ by port, so their names do.
    let name = format!("procession_{}", address.port());
    let is_link = request.method == Method::Get && request.path == "/";
    if let Some(token) = request.parameter("token").filter(|_| is_link) {
        return Err(match keys.exchange(token) {
            Some(Ok(session)) => Response::session(&format!("{name}={session}")),
            Some(Err(_)) => {
                Response::error(HttpStatus::Unavailable, "the system has no random bytes")
            }
            None => {
                Response::error(HttpStatus::Unauthorized, "this link is wrong, or was used before")
            }
        });
    }
    let pairs = request.all("cookie").flat_map(|cookie| cookie.split(';'));
    let mut sessions = pairs.filter_map(|pair| pair.trim().strip_prefix(&name)?.strip_prefix('='));
    if sessions.any(|session| keys.has_session(session)) {
        return Ok(());
    }
    Err(Response::error(
        HttpStatus::Unauthorized,
        "a browser needs a link from the program; other clients use the Unix socket",
    ))
}

#[cfg(test)]
mod tests {
    use super::{Keys, Secret, TOKENS_MAX, Way, is_this_machine, may_enter};

    #[test]
    fn only_the_user_and_root_may_enter() {
        assert!(may_enter(1000, 1000) && may_enter(0, 1000));
        assert!(!may_enter(1001, 1000) && !may_enter(1000, 0));
    }

    #[test]
    fn a_link_works_once_and_its_session_stays() {
        let keys = Keys::default();
        let link = keys.add_link().expect("the system has random bytes");
        assert_eq!(link.len(), 32);
        assert!(!keys.has_session(&link), "a link is no session");
        assert!(keys.exchange("0").is_none());
        assert!(keys.exchange(&"0".repeat(32)).is_none());
        let session = keys.exchange(&link).expect("it is new").expect("there are random bytes");
        assert_ne!(session, link);
        assert!(keys.has_session(&session) && keys.has_session(&session));
        assert!(keys.exchange(&link).is_none(), "it was used");
    }

    #[test]
    fn the_oldest_link_is_given_up() {
        let keys = Keys::default();
        let links: Vec<_> = (0..=TOKENS_MAX).filter_map(|_| keys.add_link().ok()).collect();
        assert!(keys.exchange(&links[0]).is_none());
        assert!(keys.exchange(&links[1]).is_some() && keys.exchange(&links[TOKENS_MAX]).is_some());
    }

    #[test]
    fn tokens_differ_in_any_bit() {
        let token = Secret::parse(&"5a".repeat(16)).expect("it has 32 digits");
        assert!(token.is(&token.clone()));
        for bit in 0..128 {
            let mut other = token.clone();
            other.0[bit / 8] ^= 1 << (bit % 8);
            assert!(!token.is(&other), "bit {bit}");
        }
        assert_eq!(token.hex(), "5a".repeat(16));
    }

    #[test]
    fn a_host_is_a_loopback_address_with_the_right_port() {
        let tcp = Way::Tcp(([127, 0, 0, 1], 4000).into());
        for (host, unix, by_tcp) in [
            ("localhost", true, false),
            ("localhost:4000", true, true),
            ("127.0.0.1:4000", true, true),
            ("[::1]:4000", true, true),
            ("127.0.0.1:4001", true, false),
            ("localhost:", false, false),
            ("localhost:x", false, false),
            ("localhost.example.com:4000", false, false),
            ("example.com:4000", false, false),
            ("127.0.0.1.example.com", false, false),
            ("", false, false),
        ] {
            assert_eq!(is_this_machine(host, Way::Unix), unix, "{host:?} by Unix");
            assert_eq!(is_this_machine(host, tcp), by_tcp, "{host:?} by TCP");
        }
    }
}
