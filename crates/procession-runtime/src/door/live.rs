//! `GET /live`: looks as server-sent events, as often as it takes to use at most 1 % of the
//! processors.

use std::num::NonZero;
use std::sync::Arc;
use std::thread::available_parallelism;
use std::time::Duration;

use procession_sync::atomic::AtomicUsize;
use procession_sync::atomic::Ordering::Relaxed;

use super::answers::VERSION;
use super::details::Crashes;
use super::json::Json;
use super::request::{HttpRequest, Method};
use super::response::{HttpStatus, Response};
use super::routes::Observed;
use super::views::{query, write_view};
use super::{activity, details, history, sections};
use crate::observe::look::query::Query;
use crate::observe::look::view::View;
use crate::scheduler::shared::Shared;
use crate::sys::World;

/// The maximum number of connections that follow at the same time, so that other requests find a
/// place.
const FOLLOWERS_MAX: usize = 4;
/// The shortest time between two looks: there are at most four in a second.
const INTERVAL_MIN: Duration = Duration::from_millis(250);
/// The time between two looks, unless the request asks for another.
const INTERVAL_DEFAULT: Duration = Duration::from_secs(1);
/// The longest time between two looks.
const INTERVAL_MAX: Duration = Duration::from_secs(60);
/// Looking takes at most this part of the processors: one in a hundred.
const SHARE: u64 = 100;

/// The parameters that a live view has in addition to the parameters of a view.
const PARAMETERS: &[&str] = &["interval", "with", "ms"];

/// A part of an event that the request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LivePart {
    Crashes,
    Pools,
    Sections,
    Timeline,
    Tree,
}

impl LivePart {
    fn parse(name: &str) -> Option<Self> {
        match name {
            "crashes" => Some(Self::Crashes),
            "pools" => Some(Self::Pools),
            "sections" => Some(Self::Sections),
            "timeline" => Some(Self::Timeline),
            "tree" => Some(Self::Tree),
            _ => None,
        }
    }
}

/// Counts one connection that follows.
struct Follower(Arc<AtomicUsize>);

impl Follower {
    fn new(count: &Arc<AtomicUsize>) -> Option<Self> {
        // Relaxed: only the number matters, and all accesses are on one worker.
        let others = count.fetch_add(1, Relaxed);
        let follower = Self(Arc::clone(count));
        (others < FOLLOWERS_MAX).then_some(follower)
    }

    fn count(&self) -> usize {
        self.0.load(Relaxed)
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

/// The events of one connection.
pub(super) struct Live {
    query: Query,
    parts: Vec<LivePart>,
    window: Duration,
    interval: Duration,
    /// The last view, without its rows.
    last: Option<View>,
    follower: Follower,
}

/// An event, and the time until the next event.
pub(super) struct LiveEvent {
    pub(super) text: String,
    pub(super) next: Duration,
}

impl Live {
    /// Begins to follow.
    pub(super) fn new(request: &HttpRequest, observed: &Observed) -> Result<Self, Response> {
        let refused = |text: &str| Response::error(HttpStatus::BadRequest, text);
        if request.method != Method::Get {
            return Err(HttpStatus::MethodNotAllowed.into());
        }
        let query = query(request, None, PARAMETERS).map_err(|text| refused(&text))?;
        let names = request.parameter("with").unwrap_or_default();
        let names = names.split(',').filter(|name| !name.is_empty());
        let parts = names.map(LivePart::parse).collect::<Option<_>>();
        let parts = parts.ok_or_else(|| {
            refused("with is a list of crashes, pools, sections, timeline and tree, separated by commas")
        })?;
        let interval = match request.parameter("interval").map(str::parse) {
            None => INTERVAL_DEFAULT,
            Some(Ok(milliseconds)) => Duration::from_millis(milliseconds),
            Some(Err(_)) => return Err(refused("interval must be a number of milliseconds")),
        };
        let window = activity::window(request)?;
        let follower = Follower::new(&observed.followers).ok_or_else(|| {
            Response::error(HttpStatus::Unavailable, "the door has 4 followers at once")
        })?;
        let interval = interval.clamp(INTERVAL_MIN, INTERVAL_MAX);
        Ok(Self { query, parts, window, interval, last: None, follower })
    }

    /// Looks once. Returns `None` if the scheduler has ended.
    pub(super) fn event(&mut self, observed: &Observed) -> Option<LiveEvent> {
        let shared = observed.shared()?;
        let before = processor_time(&shared);
        let mut json = Json::default();
        json.object(|json| {
            json.name("version").literal(VERSION);
            self.write(json, &shared);
        });
        let mut text = json.into_text();
        let took = processor_time(&shared).saturating_sub(before);
        let processors = available_parallelism().map_or(1, NonZero::get) as u64;
        let next = interval(took, self.follower.count() as u64, processors, self.interval);
        let share = took as f64 / processors as f64 / next.as_nanos() as f64;
        // The cost is known when all else is written, so its members are written last.
        text.pop();
        text += &format!(
            ",\"took_us\":{},\"interval_ms\":{},\"share\":{share:.6}}}",
            took / 1000,
            next.as_millis()
        );
        Some(LiveEvent { text: format!("data: {text}\n\n"), next })
    }

    fn write(&mut self, json: &mut Json, shared: &Shared) {
        let query = match &self.last {
            Some(view) => self.query.clone().since(view),
            None => self.query.clone(),
        };
        json.name("view").object(|json| {
            let view = write_view(json, shared, &query);
            self.last = Some(view.without_rows());
        });
        json.name("workers").object(|json| activity::workers(json, shared));
        history::point(json.name("point"), shared);
        let crashes = Crashes::of(shared);
        crashes.write_latest(json.name("latest_crash"));
        for part in &self.parts {
            match part {
                LivePart::Crashes => crashes.write_all(json),
                LivePart::Pools => activity::pools(json, shared),
                LivePart::Sections => sections::all(json, shared),
                LivePart::Timeline => activity::timeline(json, shared, self.window),
                LivePart::Tree => {
                    json.name("tree").object(|json| details::tree(json, shared));
                }
            }
        }
    }
}

/// Returns the processor time of this thread. Elapsed time would also count the time that the
/// system grants to other threads.
fn processor_time(shared: &Shared) -> u64 {
    let time = shared.world.processor_time(World::thread_number());
    time.unwrap_or_else(World::real_now)
}

/// Returns the time until the next look of a connection, of which each takes `took` nanoseconds.
/// All connections together use at most 1 % of the processors.
fn interval(took: u64, followers: u64, processors: u64, asked: Duration) -> Duration {
    let least = took.saturating_mul(SHARE).saturating_mul(followers) / processors.max(1);
    Duration::from_nanos(least).clamp(asked, INTERVAL_MAX)
}

#[cfg(test)]
mod tests {
    use super::{INTERVAL_MAX, INTERVAL_MIN, interval};
    use std::time::Duration;

    #[test]
    fn looking_takes_at_most_one_percent() {
        const MILLISECOND: u64 = 1_000_000;
        let second = Duration::from_secs(1);
        assert_eq!(interval(MILLISECOND, 1, 2, INTERVAL_MIN), INTERVAL_MIN);
        assert_eq!(interval(MILLISECOND, 1, 2, second), second, "as asked");
        assert_eq!(interval(40 * MILLISECOND, 1, 2, INTERVAL_MIN), 2 * second);
        assert_eq!(interval(40 * MILLISECOND, 3, 2, INTERVAL_MIN), 6 * second, "of three");
        assert_eq!(interval(u64::MAX, 1, 2, INTERVAL_MIN), INTERVAL_MAX);
    }
}
