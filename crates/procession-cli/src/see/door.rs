//! Finds the doors of programs, and asks them.

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;

use crate::format::plain;
use crate::see::error::SeeError;

/// The time that a door gets for an answer. A trace takes up to ten seconds.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(20);
/// The time that each door of a list gets.
const LIST_TIMEOUT: Duration = Duration::from_secs(2);
/// The maximum size of an answer. A trace has up to 64 MiB.
const ANSWER_BYTES_MAX: u64 = 65 << 20;

/// The socket of a door.
#[derive(Debug)]
pub(super) struct DoorFile(PathBuf);

/// Encodes a text for a path or a query.
pub(super) fn encode(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~/:".contains(&byte);
    text.bytes().fold(String::new(), |mut encoded, byte| {
        if plain(byte) {
            encoded.push(char::from(byte));
        } else {
            encoded.push_str(&format!("%{byte:02X}"));
        }
        encoded
    })
}

impl DoorFile {
    pub(super) fn get(&self, target: &str) -> Result<Vec<u8>, SeeError> {
        self.ask("GET", target, ANSWER_TIMEOUT)
    }

    pub(super) fn post(&self, target: &str) -> Result<Vec<u8>, SeeError> {
        self.ask("POST", target, ANSWER_TIMEOUT)
    }

    pub(super) fn get_json(&self, target: &str) -> Result<Value, SeeError> {
        let bytes = self.get(target)?;
        serde_json::from_slice(&bytes).map_err(|_| SeeError::NoAnswer(self.0.clone()))
    }

    fn ask(&self, method: &str, target: &str, timeout: Duration) -> Result<Vec<u8>, SeeError> {
        let error = |error| SeeError::Connection(self.0.clone(), error);
        let mut stream = UnixStream::connect(&self.0).map_err(error)?;
        stream.set_read_timeout(Some(timeout)).map_err(error)?;
        stream.set_write_timeout(Some(timeout)).map_err(error)?;
        let request = format!("{method} {target} HTTP/1.1\r\nHost: localhost\r\n\r\n");
        stream.write_all(request.as_bytes()).map_err(error)?;
        let mut answer = Vec::new();
        stream.take(ANSWER_BYTES_MAX).read_to_end(&mut answer).map_err(error)?;
        self.body(&answer)
    }

    /// Returns `true` if the program has ended, or opens this door no more.
    pub(super) fn is_gone(&self) -> bool {
        let connected = UnixStream::connect(&self.0);
        connected.is_err_and(|error| {
            matches!(error.kind(), ErrorKind::ConnectionRefused | ErrorKind::NotFound)
        })
    }

    /// Returns the body of a response.
    fn body(&self, answer: &[u8]) -> Result<Vec<u8>, SeeError> {
        let no_answer = || SeeError::NoAnswer(self.0.clone());
        let end = answer.windows(4).position(|end| end == b"\r\n\r\n").ok_or_else(no_answer)?;
        let head = String::from_utf8_lossy(&answer[..end]);
        let body = &answer[end + 4..];
        let is_length = |name: &str| name.eq_ignore_ascii_case("content-length");
        let fields = head.lines().filter_map(|line| line.split_once(':'));
        let mut lengths = fields.filter(|(name, _)| is_length(name)).map(|(_, value)| value.trim());
        if lengths.any(|length| length.parse() != Ok(body.len())) {
            return Err(SeeError::Cut(self.0.clone()));
        }
        let status = head.strip_prefix("HTTP/1.1 ").and_then(|rest| rest.get(..3));
        match status {
            Some("200") => Ok(body.to_vec()),
            Some(_) => Err(SeeError::Refused(plain(String::from_utf8_lossy(body).trim()))),
            None => Err(no_answer()),
        }
    }
}

/// A door that answers.
struct Listed {
    file: DoorFile,
    about: Value,
}

impl Listed {
    fn text(&self, member: &str) -> String {
        match &self.about[member] {
            Value::String(text) => plain(text),
            value => value.to_string(),
        }
    }

    fn line(&self) -> String {
        let [program, number, name] = ["program", "system_pid", "name"].map(|name| self.text(name));
        let file = plain(&self.file.0.display().to_string());
        format!("{number:>7}  {program}  scheduler {name}  {file}")
    }

    fn fits(&self, word: &str) -> bool {
        ["program", "system_pid", "name"].iter().any(|member| self.text(member) == word)
    }
}

/// Returns the directory in which programs of this user open their doors, unless they choose
/// another.
fn directory() -> PathBuf {
    let user = rustix::process::geteuid().as_raw();
    let by_system = || {
        let path = PathBuf::from(format!("/run/user/{user}"));
        path.is_dir().then_some(path)
    };
    let by_variable = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    match by_variable.filter(|path| path.is_absolute()).or_else(by_system) {
        Some(path) => path.join("procession"),
        None => PathBuf::from(format!("/tmp/procession-{user}")),
    }
}

/// Returns the doors that answer.
fn listed() -> Vec<Listed> {
    let files = fs::read_dir(directory()).into_iter().flatten();
    let is_socket = |file: &fs::DirEntry| file.file_type().is_ok_and(|kind| kind.is_socket());
    let mut paths: Vec<_> =
        files.filter_map(Result::ok).filter(is_socket).map(|file| file.path()).collect();
    paths.sort();
    paths
        .into_iter()
        .filter_map(|path| {
            let file = DoorFile(path);
            // Ignored: the program has ended, or is about to.
            let bytes = file.ask("GET", "/about", LIST_TIMEOUT).ok()?;
            Some(Listed { file, about: serde_json::from_slice(&bytes).ok()? })
        })
        .collect()
}

/// Finds the door that a word means, or the only one.
pub(super) fn find(word: Option<&str>) -> Result<DoorFile, SeeError> {
    if let Some(word) = word
        && Path::new(word).metadata().is_ok_and(|found| found.file_type().is_socket())
    {
        return Ok(DoorFile(PathBuf::from(word)));
    }
    let all = listed();
    if all.is_empty() {
        return Err(SeeError::NoDoor(directory()));
    }
    let lines: Vec<_> = all.iter().map(Listed::line).collect();
    let mut fit: Vec<_> =
        all.into_iter().filter(|door| word.is_none_or(|word| door.fits(word))).collect();
    match (fit.pop(), fit.is_empty()) {
        (Some(door), true) => Ok(door.file),
        (Some(last), false) => {
            Err(SeeError::Several(fit.iter().chain([&last]).map(Listed::line).collect()))
        }
        (None, _) => Err(SeeError::Unknown(word.unwrap_or_default().to_owned(), lines)),
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::DoorFile;
    use crate::see::error::SeeError;

    #[test]
    fn an_answer_is_whole_or_an_error() {
        let body = |length: &str, body: &str| {
            let answer = format!("HTTP/1.1 200 OK\r\nA: b\r\n{length}\r\n{body}");
            DoorFile(PathBuf::from("door")).body(answer.as_bytes())
        };
        for length in ["", "Content-Length: 5\r\n", "content-length:5\r\n"] {
            assert_eq!(body(length, "whole").expect("it is whole"), b"whole", "{length}");
        }
        for cut in ["", "whol", "whole."] {
            let cut = body("Content-Length: 5\r\n", cut).expect_err("it is not whole");
            assert!(matches!(cut, SeeError::Cut(_)), "{cut:?}");
        }
    }
}
