//! Looks as JSON: the rows and groups of processes.

use std::collections::VecDeque;
use std::panic::Location;
use std::time::Duration;

use procession_sync::Mutex;

use super::json::Json;
use super::request::HttpRequest;
use super::response::RESPONSE_BYTES_MAX;
use crate::observe::look::pass;
use crate::observe::look::query::Query;
use crate::observe::look::view::{ProcessGroup, View};
use crate::observe::process_info::{ProcessInfo, ProcessWait};
use crate::process::wait_reason::Waiting;
use crate::scheduler::shared::Shared;
use crate::sys::World;

/// The number of views that are kept to compute the differences to later views. Enough for eight
/// readers with two views each.
const VIEWS_KEPT: usize = 16;

/// The latest views, by number.
#[derive(Debug, Default)]
pub(super) struct KeptViews(Mutex<NumberedViews>);

#[derive(Debug, Default)]
struct NumberedViews {
    last: u64,
    views: VecDeque<(u64, View)>,
}

impl KeptViews {
    fn keep(&self, view: View) -> u64 {
        let mut kept = self.0.lock();
        kept.last += 1;
        let number = kept.last;
        let oldest = if kept.views.len() == VIEWS_KEPT { kept.views.pop_front() } else { None };
        kept.views.push_back((number, view.without_rows()));
        drop(kept);
        drop(oldest);
        number
    }

    fn find(&self, number: u64) -> Option<View> {
        let kept = self.0.lock();
        kept.views.iter().find(|(known, _)| *known == number).map(|(_, view)| view.clone())
    }
}

/// The parameters of a view, for the error about others.
const PARAMETERS: &[&str] =
    &["sort", "top", "group", "since", "pid", "state", "waiting", "kind", "label", "location"];

/// Returns the query that the parameters of a request ask for, which has `others` as well. `since`
/// is the number of an earlier view; if that is forgotten, there is no window.
pub(super) fn query(
    request: &HttpRequest,
    kept: Option<&KeptViews>,
    others: &[&str],
) -> Result<Query, String> {
    let is_known = |name: &str| PARAMETERS.contains(&name) || others.contains(&name);
    if let Some(name) = request.parameters().find(|name| !is_known(name)) {
        let name: String = name.chars().take(40).collect();
        return Err(format!(
            "unknown parameter {name:?}, expected one of: {}",
            [PARAMETERS, others].concat().join(", ")
        ));
    }
    fn parse<T: std::str::FromStr<Err: std::fmt::Display>>(
        request: &HttpRequest,
        name: &'static str,
    ) -> Result<Option<T>, String> {
        let value = request.parameter(name).filter(|value| !value.is_empty());
        value.map(|value| value.parse().map_err(|error| format!("{name}: {error}"))).transpose()
    }
    let mut query = Query::new();
    if let Some(key) = parse(request, "sort")? {
        query = query.sort(key);
    }
    if let Some(top) = parse(request, "top")? {
        query = query.top(top);
    }
    if let Some(key) = parse(request, "group")? {
        query = query.group_by(key);
    }
    if let Some(number) = parse(request, "since")?
        && let Some(view) = kept.and_then(|kept| kept.find(number))
    {
        query = query.since(&view);
    }
    if let Some(pid) = parse(request, "pid")? {
        query = query.pid(pid);
    }
    if let Some(state) = parse(request, "state")? {
        query = query.state(state);
    }
    if let Some(reason) = parse(request, "waiting")? {
        query = query.waiting_for(reason);
    }
    for (name, add) in [
        ("kind", Query::kind as fn(Query, String) -> Query),
        ("label", Query::label),
        ("location", |query, location| query.location(&location)),
    ] {
        if let Some(text) = parse::<String>(request, name)? {
            query = add(query, text);
        }
    }
    Ok(query)
}

/// Answers `GET /view`.
pub(super) fn view(
    json: &mut Json,
    request: &HttpRequest,
    shared: &Shared,
    kept: &KeptViews,
) -> Result<(), String> {
    let view = write_view(json, shared, &query(request, Some(kept), &[])?);
    json.name("view").literal(kept.keep(view));
    Ok(())
}

/// Looks, and writes the members of the view.
pub(super) fn write_view(json: &mut Json, shared: &Shared, query: &Query) -> View {
    let begin = World::real_now();
    let view = pass::look(shared, query);
    let took = World::real_now().saturating_sub(begin);
    json.name("took_us").literal(took / 1000);
    json.name("window_ms").literal_or_null(view.window.map(milliseconds));
    json.name("processes").literal(view.processes);
    json.name("matched").literal(view.matched);
    json.name("looks").literal(view.looks);
    let mut truncated = false;
    json.name("rows").array(|json| truncated |= each(json, &view.rows, row));
    json.name("groups").array(|json| truncated |= each(json, &view.groups, group));
    json.name("left_off").literal(view.left_off);
    json.name("truncated").literal(truncated);
    view
}

/// Writes items until the answer is full. Returns `true` if some are left out.
pub(super) fn each<T>(
    json: &mut Json,
    items: impl IntoIterator<Item = T>,
    mut write: impl FnMut(&mut Json, T),
) -> bool {
    for item in items {
        if json.is_over(RESPONSE_BYTES_MAX) {
            return true;
        }
        json.object(|json| write(json, item));
    }
    false
}

pub(super) fn milliseconds(duration: Duration) -> u128 {
    duration.as_millis()
}

pub(super) fn location(location: &Location<'_>) -> String {
    format!("{}:{}", location.file(), location.line())
}

fn reasons(json: &mut Json, waiting: Waiting) {
    json.name("reasons").array(|json| {
        for reason in waiting.reasons() {
            json.text(reason.name());
        }
    });
}

/// Writes the members of a row.
pub(super) fn row(json: &mut Json, row: &ProcessInfo) {
    let (samples, memory) = (row.samples.unwrap_or_default(), row.memory.unwrap_or_default());
    json.name("pid").text(row.pid);
    json.name("parent").text_or_null(row.parent);
    json.name("label").text_or_null(row.label.as_deref());
    json.name("location").long_text(location(row.location), LOCATION_MAX);
    json.name("kind").text(row.kind);
    json.name("priority").text(row.priority);
    json.name("state").text(row.state.name());
    json.name("suspended").literal(row.suspended);
    match &row.wait {
        None => json.name("wait").literal("null"),
        Some(found) => json.name("wait").object(|json| wait(json, found)),
    }
    json.name("mailbox").literal(row.mailbox);
    json.name("growth").literal(row.growth);
    json.name("high_water").literal(row.mailbox_high_water);
    json.name("received").literal(row.received);
    json.name("received_in_window").literal_or_null(row.received_in_window);
    json.name("steps").literal(row.steps);
    json.name("steps_in_window").literal_or_null(row.steps_in_window);
    json.name("samples").literal(samples.count);
    json.name("share").literal(fraction(samples.share));
    json.name("error").literal(fraction(samples.error));
    json.name("memory").object(|json| {
        json.name("body").literal(memory.body);
        json.name("mailbox").literal(memory.mailbox);
        json.name("stack").literal(memory.stack);
    });
}

/// The maximum length of a location. Paths are longer than labels, and no secret.
pub(super) const LOCATION_MAX: usize = 300;

/// Returns a number that JSON has.
fn fraction(share: f64) -> f64 {
    if share.is_finite() { share } else { 0.0 }
}

fn wait(json: &mut Json, wait: &ProcessWait) {
    reasons(json, wait.reasons);
    match wait.location {
        None => json.name("location").literal("null"),
        Some(at) => json.name("location").long_text(location(at), LOCATION_MAX),
    }
    json.name("target").text_or_null(wait.target);
    json.name("at_least_ms").literal(milliseconds(wait.at_least));
    json.name("in_cycle").literal(wait.in_cycle);
}

fn group(json: &mut Json, group: &ProcessGroup) {
    match group.location {
        None => json.name("location").literal("null"),
        Some(at) => json.name("location").long_text(location(at), LOCATION_MAX),
    }
    json.name("state").text_or_null(group.state.map(|state| state.name()));
    match group.waiting {
        None => json.name("reasons").literal("null"),
        Some(waiting) => reasons(json, waiting),
    }
    for (name, value) in [
        ("processes", group.processes),
        ("samples", group.samples),
        ("steps", group.steps),
        ("mailbox", group.mailbox),
        ("memory", group.memory),
    ] {
        json.name(name).literal(value);
    }
    json.name("growth").literal(group.growth);
    json.name("oldest_wait_ms").literal(milliseconds(group.oldest_wait));
}

#[cfg(test)]
mod tests {
    use super::each;
    use crate::door::json::Json;
    use crate::door::response::RESPONSE_BYTES_MAX;

    #[test]
    fn a_list_ends_before_the_answer_is_too_long() {
        let label = "x".repeat(100);
        for (count, is_cut) in [(1000, false), (100_000, true)] {
            let mut json = Json::default();
            let items = vec![label.as_str(); count];
            let mut truncated = false;
            json.array(|json| {
                truncated = each(json, &items, |json, label| {
                    json.name("label").text(label);
                });
            });
            let text = json.into_text();
            assert_eq!(truncated, is_cut);
            assert!(text.len() <= RESPONSE_BYTES_MAX && text.ends_with("}]"));
            assert_eq!(text.matches("label").count() == count, !is_cut);
        }
    }
}
