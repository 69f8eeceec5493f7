//! The loop of `procession top`: looks, draws, and takes keys.
//!
//! The terminal belongs to whatever runs in it next, so it is restored at each end: at `q`, after
//! an error, in a panic, and when a signal asks for the end. A look may wait for a program that
//! does not answer, so the loop cannot take the signals. A separate process does.

use std::io;
use std::num::NonZero;
use std::time::Duration;

use procession::Scheduler;
use procession::signal::{EndRequest, Signal, SignalKind, end_request, signal};
use procession::sync::Select;
use procession::time::Instant;
use procession_sync::{Arc, Mutex};
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use ratatui::{DefaultTerminal, Frame};
use serde_json::Value;

use super::door::{DoorFile, encode};
use super::screen::{KeyEffect, Screen, Tab};
use crate::see::args::{SeeArgs, view_target};
use crate::see::error::SeeError;
use crate::see::sections;

/// The shortest time between two looks.
const INTERVAL_MIN: Duration = Duration::from_secs(1);
/// The longest time between two looks.
const INTERVAL_MAX: Duration = Duration::from_secs(60);
/// Looking takes at most this part of the processors: one in a hundred.
const SHARE: u32 = 100;

/// The terminal. Whatever writes to it has the lock, so that nothing is drawn after the restore.
#[derive(Clone, Default)]
struct Shown(Arc<Mutex<bool>>);

impl Shown {
    fn init(&self) -> io::Result<DefaultTerminal> {
        let mut is_shown = self.0.lock();
        let terminal = ratatui::try_init()?;
        *is_shown = true;
        Ok(terminal)
    }

    fn draw(&self, terminal: &mut DefaultTerminal, screen: &mut Screen) -> io::Result<()> {
        let _is_shown = self.0.lock();
        terminal.draw(|frame: &mut Frame<'_>| screen.draw(frame)).map(drop)
    }

    fn restore(&self) {
        if std::mem::take(&mut *self.0.lock()) {
            ratatui::restore();
        }
    }

    /// Ends the program, in order, when a signal asks for it. If the terminal takes no more bytes,
    /// a second signal ends the program immediately.
    async fn end_on(self, end: EndRequest, [mut hangup, mut quit]: [Signal; 2]) {
        let asked = Select::new()
            .wait_for(end.asked(), |_| true)
            .wait_for(hangup.recv(), |heard| heard.is_some())
            .wait_for(quit.recv(), |heard| heard.is_some());
        if asked.await {
            let mut is_shown = self.0.lock();
            if std::mem::take(&mut *is_shown) {
                ratatui::restore();
            }
            // The lock is kept, so the loop draws no more.
            std::process::exit(0);
        }
    }
}

/// Runs until the user quits.
pub(super) fn run(door: &DoorFile, args: &SeeArgs) -> Result<(), SeeError> {
    // A program without a door is reported before the screen is cleared.
    let about = door.get_json("/about")?;
    // https://no-color.org
    let has_colours = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    let mut screen = Screen::new(args.sort, args.group, has_colours);
    screen.answers.about = about;
    let shown = Shown::default();
    let scheduler = Scheduler::builder().worker_threads(1).no_door().build();
    let scheduler = scheduler.map_err(|error| SeeError::Terminal(io::Error::other(error)))?;
    let end = end_request().map_err(SeeError::Terminal)?;
    let listen = |kind| signal(kind).map_err(SeeError::Terminal);
    let others = [listen(SignalKind::hangup())?, listen(SignalKind::quit())?];
    drop(scheduler.spawn(shown.clone().end_on(end, others)));
    let mut terminal = shown.init().map_err(SeeError::Terminal)?;
    let result = show(&mut terminal, &shown, &mut screen, door, args);
    shown.restore();
    result.map_err(SeeError::Terminal)
}

fn show(
    terminal: &mut DefaultTerminal,
    shown: &Shown,
    screen: &mut Screen,
    door: &DoorFile,
    args: &SeeArgs,
) -> io::Result<()> {
    let mut next = Instant::now();
    loop {
        if Instant::now() >= next && !screen.is_paused {
            next = Instant::now() + look(screen, door, args);
        }
        shown.draw(terminal, screen)?;
        let wait = if screen.is_paused {
            INTERVAL_MAX
        } else {
            next.saturating_duration_since(Instant::now())
        };
        if !event::poll(wait)? {
            continue;
        }
        // A change of the size is drawn by the next turn.
        let Event::Key(key) = event::read()? else { continue };
        if key.kind == KeyEventKind::Release {
            continue;
        }
        let is_interrupt =
            key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL);
        match screen.take_key(key.code) {
            _ if is_interrupt => return Ok(()),
            KeyEffect::Quit => return Ok(()),
            KeyEffect::Look => next = Instant::now(),
            KeyEffect::Act(action) => act(screen, door, action),
            KeyEffect::Nothing => {}
        }
    }
}

/// Asks the program to act on the process that is shown alone, and shows it again.
fn act(screen: &mut Screen, door: &DoorFile, action: &str) {
    let Some(pid) = screen.process.as_deref().map(encode) else { return };
    let done = door.post(&format!("/process/{pid}/{action}"));
    let shown = done.and_then(|_| door.get_json(&format!("/process/{pid}")));
    match shown {
        Ok(process) => (screen.answers.process, screen.failure) = (process, None),
        Err(error) => screen.failure = Some(error.to_string()),
    }
}

/// Asks for what the screen shows. Returns the time until the next look.
fn look(screen: &mut Screen, door: &DoorFile, args: &SeeArgs) -> Duration {
    let begin = Instant::now();
    let result = ask(screen, door, args);
    screen.failure = result.err().map(|error| error.to_string());
    // The whole time of the answers, as if the program had computed the whole time.
    let took = Instant::now().saturating_duration_since(begin);
    let processors = std::thread::available_parallelism().map_or(1, NonZero::get) as u32;
    let interval = interval(took, processors);
    let share = took.as_secs_f64() / f64::from(processors) / interval.as_secs_f64() * 100.0;
    screen.rate = format!("a look each {:.0} s takes {share:.2} %", interval.as_secs_f64());
    interval
}

/// Returns the time between looks of which each takes `took`.
fn interval(took: Duration, processors: u32) -> Duration {
    (took * SHARE / processors).clamp(INTERVAL_MIN, INTERVAL_MAX)
}

fn ask(screen: &mut Screen, door: &DoorFile, args: &SeeArgs) -> Result<(), SeeError> {
    let mut filters = args.filters.clone();
    if !screen.search.is_empty() {
        filters.push((String::from("label"), screen.search.clone()));
    }
    let asked = SeeArgs {
        sort: screen.sort,
        group: (screen.tab == Tab::Groups).then_some(screen.group),
        top: args.top,
        filters,
        ..SeeArgs::default()
    };
    let since = screen.answers.view.get("view").cloned();
    screen.answers.view = door.get_json(&view_target(&asked, since.as_ref()))?;
    let workers = door.get_json("/workers")?;
    screen.answers.workers_before = std::mem::replace(&mut screen.answers.workers, workers);
    match screen.tab {
        Tab::Workers => {
            let answer = door.get_json(&screen.answers.history.target())?;
            screen.answers.history.add(&answer);
        }
        Tab::Tree => screen.answers.tree = door.get_json("/tree")?,
        Tab::Crashes => screen.answers.crashes = door.get_json("/crashes")?,
        Tab::Sections => {
            // Sections come and go.
            screen.answers.about = door.get_json("/about")?;
            screen.answers.sections = sections::all(door, &screen.answers.about)?;
        }
        _ => {}
    }
    if let Some(pid) = &screen.process {
        screen.answers.process = match door.get_json(&format!("/process/{}", encode(pid))) {
            // The process has ended.
            Err(SeeError::Refused(_)) => Value::Null,
            answer => answer?,
        };
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{INTERVAL_MAX, INTERVAL_MIN, interval};
    use std::time::Duration;

    #[test]
    fn looking_takes_at_most_one_percent() {
        assert_eq!(interval(Duration::from_micros(500), 2), INTERVAL_MIN);
        assert_eq!(interval(Duration::from_millis(40), 2), Duration::from_secs(2));
        assert_eq!(interval(Duration::from_millis(40), 1), Duration::from_secs(4));
        assert_eq!(interval(Duration::from_secs(9), 2), INTERVAL_MAX);
    }
}
