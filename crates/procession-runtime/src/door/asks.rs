//! Requests to one process: its stacks, and what it shows of itself; and the report of a failed
//! process.

use std::sync::Arc;
use std::time::Duration;

use super::answers::{object, own_pid, seconds};
use super::details::{self, TYPE_MAX};
use super::json::Json;
use super::request::HttpRequest;
use super::response::{HttpStatus, RESPONSE_BYTES_MAX, Response};
use crate::Pid;
use crate::observe::ask::{ANSWER_TIMEOUT, AskError, inspect as ask_inspect};
use crate::observe::messages::{TRACED_MAX, trace as trace_messages};
use crate::observe::stack::{STACK_SECONDS_MAX, StackSource, stack as ask_stack};
use crate::observe::symbols::StackFrame;
use crate::process::request::{TracedMessage, VALUE_MAX};
use crate::report::kept::Reports;
use crate::scheduler::shared::Shared;
use crate::spawn_blocking;

/// The maximum length of the name of a function, and of the path of a file.
const NAME_MAX: usize = 500;
/// The default number of messages of a trace.
const MESSAGES: usize = 20;
/// The default length of a trace of messages in seconds.
const MESSAGES_SECONDS: u64 = 5;
/// The longest trace of messages in seconds.
const MESSAGES_SECONDS_MAX: u64 = 10;

/// Returns the response to a request that a process did not answer.
pub(super) fn refused(pid: Pid, error: &AskError) -> Response {
    let status = match error {
        AskError::Ended => {
            return Response::error(HttpStatus::NotFound, &format!("{pid} has ended"));
        }
        AskError::Ending | AskError::Itself | AskError::ShowsNothing | AskError::NoStack => {
            HttpStatus::Conflict
        }
        AskError::Busy => HttpStatus::TooManyRequests,
        AskError::TimedOut | AskError::Panicked(_) | AskError::NoTimer => HttpStatus::Unavailable,
    };
    Response::error(status, &format!("{pid}: {error}"))
}

/// Answers `GET /process/PID/stack`.
pub(super) async fn stack(
    request: &HttpRequest,
    shared: Arc<Shared>,
    pid: &str,
) -> Result<Response, Response> {
    let pid = own_pid(&shared, pid)?;
    let timeout = seconds(request, STACK_SECONDS_MAX)?.map_or(ANSWER_TIMEOUT, Duration::from_secs);
    let taken = ask_stack(&shared, pid, timeout).await.map_err(|error| refused(pid, &error))?;
    let source = match taken.source() {
        StackSource::Wait => "wait",
        StackSource::Step => "step",
    };
    let stacks = off_thread(move || taken.stacks()).await?;
    Ok(object(|json| {
        json.name("pid").text(pid);
        json.name("source").text(source);
        let mut truncated = false;
        json.name("stacks").array(|json| {
            for stack in &stacks {
                json.array(|json| truncated |= frames(json, stack));
            }
        });
        json.name("truncated").literal(truncated);
    }))
}

/// Writes the frames of a stack. Returns `true` if some are left out.
fn frames(json: &mut Json, stack: &[StackFrame]) -> bool {
    for frame in stack {
        if json.is_over(RESPONSE_BYTES_MAX) {
            return true;
        }
        let name_or_null = |json: &mut Json, name: &Option<String>| match name {
            Some(name) => json.long_text(name, NAME_MAX),
            None => json.text_or_null(None::<&str>),
        };
        json.object(|json| {
            json.name("address").text(format_args!("{:#x}", frame.address));
            name_or_null(json.name("function"), &frame.function);
            name_or_null(json.name("file"), &frame.file);
            json.name("line").literal_or_null(frame.line);
        });
    }
    false
}

/// Answers `GET /process/PID/messages`.
pub(super) async fn messages(
    request: &HttpRequest,
    shared: &Shared,
    pid: &str,
) -> Result<Response, Response> {
    let pid = own_pid(shared, pid)?;
    let limit = seconds(request, MESSAGES_SECONDS_MAX)?.unwrap_or(MESSAGES_SECONDS);
    let count = match request.parameter("count").map(str::parse) {
        None => MESSAGES,
        Some(Ok(count @ 1..=TRACED_MAX)) => count,
        Some(_) => {
            let text = format!("count must be a whole number from 1 to {TRACED_MAX}");
            return Err(Response::error(HttpStatus::BadRequest, &text));
        }
    };
    let traced = trace_messages(shared, pid, count, Duration::from_secs(limit)).await;
    let traced = traced.map_err(|error| refused(pid, &error))?;
    Ok(object(|json| {
        json.name("pid").text(pid);
        json.name("messages").array(|json| traced.iter().for_each(|found| message(json, found)));
        json.name("complete").literal(traced.len() == count);
    }))
}

fn message(json: &mut Json, traced: &TracedMessage) {
    json.object(|json| {
        json.name("after_us").literal(traced.after.as_micros());
        json.name("direction").text(traced.direction.name());
        json.name("other").text_or_null(traced.other);
        json.name("type").long_text(traced.type_name, TYPE_MAX);
        json.name("bytes").literal(traced.bytes);
        json.name("request").text_or_null(traced.request);
    });
}

/// Answers `GET /crash/NUMBER`.
pub(super) async fn crash(shared: &Shared, number: &str) -> Result<Response, Response> {
    let wanted: u64 = number.parse().map_err(|_| {
        Response::error(HttpStatus::BadRequest, "the number of a crash must be a whole number")
    })?;
    let kept = Reports::of(shared).crashes.all();
    let report = kept.into_iter().find(|report| report.number == wanted).ok_or_else(|| {
        let text = format!("there is no report {wanted}, or it is not kept any more");
        Response::error(HttpStatus::NotFound, &text)
    })?;
    let now = shared.world.now();
    let read = Arc::clone(&report);
    let backtrace = off_thread(move || read.backtrace()).await?;
    Ok(object(|json| {
        json.name("crash").object(|json| {
            details::crash(json, &report, now);
            let mut truncated = false;
            json.name("backtrace").array(|json| truncated = frames(json, &backtrace));
            json.name("truncated").literal(truncated);
        });
    }))
}

/// Reads symbols on another thread, because the first call reads the debug information of the
/// program.
async fn off_thread<T: Send + 'static>(
    read: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Response> {
    let done = spawn_blocking(read).await;
    done.map_err(|error| Response::error(HttpStatus::Unavailable, &error.to_string()))
}

/// Answers `GET /process/PID/inspect`.
pub(super) async fn inspect(shared: &Shared, pid: &str) -> Result<Response, Response> {
    let pid = own_pid(shared, pid)?;
    let shown = ask_inspect(shared, pid).await.map_err(|error| refused(pid, &error))?;
    Ok(object(|json| {
        json.name("pid").text(pid);
        json.name("fields").array(|json| {
            for (name, value) in shown.fields() {
                json.object(|json| {
                    json.name("name").text(name);
                    json.name("value").long_text(value, VALUE_MAX);
                });
            }
        });
        json.name("truncated").literal(shown.is_truncated());
    }))
}
