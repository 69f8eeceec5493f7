//! Actions on one process, which the program has to allow.

use std::sync::Arc;
use std::time::Duration;

use super::answers::{object, own_pid, seconds};
use super::asks::refused;
use super::request::HttpRequest;
use super::response::{HttpStatus, Response};
use crate::observe::ask::{self, AskError};
use crate::relations;
use crate::scheduler::shared::Shared;

/// The longest suspension in seconds.
const SUSPENSION_SECONDS_MAX: u64 = 60;

/// Answers `POST /process/PID/ACTION`.
pub(super) fn act(
    request: &HttpRequest,
    shared: &Arc<Shared>,
    is_allowed: bool,
    pid: &str,
    action: &str,
) -> Result<Response, Response> {
    if !["cancel", "kill", "suspend", "resume"].contains(&action) {
        let text = "the actions are cancel, terminate, suspend and resume";
        return Err(Response::error(HttpStatus::NotFound, text));
    }
    if !is_allowed {
        return Err(Response::error(
            HttpStatus::Forbidden,
            "this door is read-only: the program did not call DoorOptions::allow_actions",
        ));
    }
    let pid = own_pid(shared, pid)?;
    let found = |was_found: bool| if was_found { Ok(()) } else { Err(AskError::Ended) };
    let done = match action {
        "cancel" => found(relations::cancel(pid)),
        "kill" => found(relations::kill(pid)),
        "suspend" => {
            let time = seconds(request, SUSPENSION_SECONDS_MAX)?;
            ask::suspend(shared, pid, time.map_or(ask::SUSPENSION, Duration::from_secs))
        }
        _ => {
            ask::find(shared, pid).map_err(|error| refused(pid, &error))?;
            if !ask::resume(shared, pid) {
                let text = format!("{pid} is not suspended");
                return Err(Response::error(HttpStatus::Conflict, &text));
            }
            Ok(())
        }
    };
    done.map_err(|error| refused(pid, &error))?;
    Ok(object(|json| json.name("pid").text(pid)))
}
