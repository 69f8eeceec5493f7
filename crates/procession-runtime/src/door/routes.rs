//! The routes of a door.

use std::str::FromStr;
use std::sync::Weak;

use procession_sync::atomic::AtomicUsize;
use std::sync::Arc;

use super::access::{Keys, Way};
use super::actions;
use super::activity;
use super::answers::{object, own_pid};
use super::asks;
use super::details;
use super::history::History;
use super::json::Json;
use super::metrics;
use super::page;
use super::places::DoorPlaces;
use super::request::{HttpRequest, Method};
use super::response::{HttpStatus, Response};
use super::sections;
use super::socket::program_name;
use super::traces::{OneAtATime, trace};
use super::views::{KeptViews, view};
use crate::observe::metrics::MetricsReader;
use crate::observe::section::Sections;
use crate::scheduler::shared::Shared;

/// The scheduler behind a door, and the state of the server.
pub(super) struct Observed {
    shared: Weak<Shared>,
    actions: bool,
    pub(super) keys: Arc<Keys>,
    unix: Arc<DoorPlaces>,
    tcp: Arc<DoorPlaces>,
    /// Number of connections that follow.
    pub(super) followers: Arc<AtomicUsize>,
    metrics: MetricsReader,
    views: KeptViews,
    pub(super) history: Arc<History>,
    pub(super) long: OneAtATime,
}

impl Observed {
    pub(super) fn new(shared: &Arc<Shared>, actions: bool, keys: Arc<Keys>) -> Self {
        Self {
            shared: Arc::downgrade(shared),
            actions,
            keys,
            unix: Arc::default(),
            tcp: Arc::default(),
            followers: Arc::default(),
            metrics: MetricsReader::default(),
            views: KeptViews::default(),
            history: Arc::default(),
            long: OneAtATime::default(),
        }
    }

    /// Returns the connections that came by a way.
    pub(super) fn places(&self, way: Way) -> &Arc<DoorPlaces> {
        match way {
            Way::Unix => &self.unix,
            Way::Tcp(_) => &self.tcp,
        }
    }

    /// Returns the scheduler, if it has not ended.
    pub(super) fn shared(&self) -> Option<Arc<Shared>> {
        self.shared.upgrade()
    }
}

/// Serves a request that has passed all checks.
pub(super) async fn answer(request: &HttpRequest, observed: &Observed) -> Response {
    let Some(shared) = observed.shared() else {
        return Response::error(HttpStatus::Unavailable, "the scheduler has ended");
    };
    let mut parts = request.path.trim_start_matches('/').split('/');
    let path = [parts.next(), parts.next(), parts.next(), parts.next()];
    let result = match (request.method, path) {
        (Method::Post, [Some("process"), Some(pid), Some(action), None]) => {
            actions::act(request, &shared, observed.actions, pid, action)
        }
        (Method::Post, _) => Err(unknown(request)),
        (_, [Some("about"), None, ..]) => Ok(about(&shared, observed.actions)),
        (_, [Some("metrics"), None, ..]) => {
            Ok(Response::metrics(metrics::text(&shared, &observed.metrics)))
        }
        (_, [Some("stalls"), None, ..]) => Ok(object(|json| activity::stalls(json, &shared))),
        (_, [Some("workers"), None, ..]) => Ok(object(|json| activity::workers(json, &shared))),
        (_, [Some("view"), None, ..]) => {
            try_object(|json| view(json, request, &shared, &observed.views))
        }
        (_, [Some("process"), Some(pid), None, _]) => process(&shared, pid),
        (_, [Some("process"), Some(pid), Some("stack"), None]) => {
            asks::stack(request, shared, pid).await
        }
        (_, [Some("process"), Some(pid), Some("inspect"), None]) => {
            asks::inspect(&shared, pid).await
        }
        (_, [Some("process"), Some(pid), Some("messages"), None]) => {
            asks::messages(request, &shared, pid).await
        }
        (_, [Some("processes"), None, ..]) => list(request, &shared),
        (_, [Some("tree"), None, ..]) => Ok(object(|json| details::tree(json, &shared))),
        (_, [Some("crashes"), None, ..]) => {
            Ok(object(|json| details::Crashes::of(&shared).write_all(json)))
        }
        (_, [Some("cycles"), None, ..]) => Ok(object(|json| details::cycles(json, &shared))),
        (_, [Some("leaks"), None, ..]) => Ok(object(|json| details::leaks(json, &shared))),
        (_, [Some("crash"), Some(number), None, _]) => asks::crash(&shared, number).await,
        (_, [Some("pools"), None, ..]) => Ok(object(|json| activity::pools(json, &shared))),
        (_, [Some("timeline"), None, ..]) => timeline(request, &shared),
        (_, [Some("history"), None, ..]) => history(request, observed),
        (_, [Some("trace"), None, ..]) => trace(request, shared, &observed.long).await,
        (_, [Some(name), None, ..]) => page::file(name)
            .or_else(|| sections::section(&shared, name))
            .ok_or_else(|| unknown(request)),
        _ => Err(unknown(request)),
    };
    result.unwrap_or_else(|refused| refused)
}

fn unknown(request: &HttpRequest) -> Response {
    let path: String = request.path.chars().take(120).flat_map(char::escape_default).collect();
    Response::error(HttpStatus::NotFound, &format!("there is nothing at {path} for this method"))
}

/// Like `object`, but refuses the request if `write` returns the reason to.
fn try_object(write: impl FnOnce(&mut Json) -> Result<(), String>) -> Result<Response, Response> {
    let mut result = Ok(());
    let response = object(|json| result = write(json));
    result.map(|()| response).map_err(|reason| Response::error(HttpStatus::BadRequest, &reason))
}

fn process(shared: &Shared, pid: &str) -> Result<Response, Response> {
    let pid = own_pid(shared, pid)?;
    let mut found = None;
    let response = object(|json| found = details::process(json, shared, pid));
    let text = format!("{pid} has ended");
    found.map(|()| response).ok_or_else(|| Response::error(HttpStatus::NotFound, &text))
}

fn list(request: &HttpRequest, shared: &Shared) -> Result<Response, Response> {
    let (skip, count) = (number(request, "skip", 0)?, number(request, "count", 100)?);
    Ok(object(|json| details::list(json, shared, skip, count)))
}

fn timeline(request: &HttpRequest, shared: &Shared) -> Result<Response, Response> {
    let window = activity::window(request)?;
    Ok(object(|json| activity::timeline(json, shared, window)))
}

fn history(request: &HttpRequest, observed: &Observed) -> Result<Response, Response> {
    let after = number(request, "after", 0)?;
    Ok(object(|json| observed.history.write(json, after)))
}

/// Returns a parameter that is a number.
fn number<T: FromStr>(request: &HttpRequest, name: &str, otherwise: T) -> Result<T, Response> {
    match request.parameter(name).map(str::parse) {
        None => Ok(otherwise),
        Some(Ok(number)) => Ok(number),
        Some(Err(_)) => {
            let text = format!("{name} must be a number");
            Err(Response::error(HttpStatus::BadRequest, &text))
        }
    }
}

fn about(shared: &Shared, actions: bool) -> Response {
    object(|json| {
        json.name("procession").text(env!("CARGO_PKG_VERSION"));
        json.name("program").text(program_name());
        json.name("system_pid").literal(std::process::id());
        json.name("scheduler").literal(shared.id());
        json.name("name").text(shared.name());
        json.name("workers").literal(shared.workforce.width());
        json.name("actions").literal(actions);
        json.name("sections").array(|json| {
            for name in Sections::of(shared).names() {
                json.text(name);
            }
        });
    })
}
