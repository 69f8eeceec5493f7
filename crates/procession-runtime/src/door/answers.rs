//! The parts that answers have in common.

use std::str::FromStr;

use super::json::Json;
use super::request::HttpRequest;
use super::response::{HttpStatus, Response};
use crate::Pid;
use crate::scheduler::shared::Shared;

/// The version of the answers.
pub(super) const VERSION: u32 = 1;

/// Parses the PID of a process of this scheduler.
pub(super) fn own_pid(shared: &Shared, text: &str) -> Result<Pid, Response> {
    let pid = Pid::from_str(text)
        .map_err(|error| Response::error(HttpStatus::BadRequest, &error.to_string()))?;
    if pid.node() != 0 || pid.scheduler() != shared.id() {
        let text = format!("{pid} is not of scheduler {}", shared.id());
        return Err(Response::error(HttpStatus::NotFound, &text));
    }
    Ok(pid)
}

/// Returns an answer with the version and the members that `write` writes.
pub(super) fn object(write: impl FnOnce(&mut Json)) -> Response {
    let mut json = Json::default();
    json.object(|json| {
        json.name("version").literal(VERSION);
        write(json);
    });
    Response::json(json.into_text())
}

/// Returns the parameter `seconds` of a request, from 1 to `max`, if it is there.
pub(super) fn seconds(request: &HttpRequest, max: u64) -> Result<Option<u64>, Response> {
    let Some(text) = request.parameter("seconds") else { return Ok(None) };
    match text.parse() {
        Ok(seconds) if (1..=max).contains(&seconds) => Ok(Some(seconds)),
        _ => {
            let text = format!("seconds must be a whole number from 1 to {max}");
            Err(Response::error(HttpStatus::BadRequest, &text))
        }
    }
}
