//! The screen of `procession top`: its state, its keys, and how it is drawn.

use procession::observe::{GroupKey, SortKey};
use ratatui::Frame;
use ratatui::crossterm::event::KeyCode;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Cell, Paragraph, Row, Table, TableState, Wrap};
use serde_json::Value;

use super::list::{
    cells, crash_lines, group_cells, stall_line, tree_lines, wake_line, worker_lines,
};
use super::sections::lines;
use super::sparks::History;
use crate::format::{duration, number, plain, state, text, title, wait};

/// The width from which on all columns are shown.
const WIDE: u16 = 110;

const HELP: &str = "\
1 to 6, Tab  choose a view: processes, groups, tree, crashes, workers, libraries
Up, Down     select a process
Enter        show the selected process; Esc goes back
z x          suspend the process for 5 s, or let it go on, if that is allowed
c m n s w a  sort by processor, mailbox, its growth, steps, wait, memory
g            group by location, state, or what is waited for
/            show only processes whose label contains a text; Enter ends it
Space        stop looking, and go on
q            quit";

/// A view of the screen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tab {
    Processes,
    Groups,
    Tree,
    Crashes,
    Workers,
    /// The sections of libraries.
    Sections,
}

impl Tab {
    const ALL: [(Self, &str); 6] = [
        (Self::Processes, "1 processes"),
        (Self::Groups, "2 groups"),
        (Self::Tree, "3 tree"),
        (Self::Crashes, "4 crashes"),
        (Self::Workers, "5 workers"),
        (Self::Sections, "6 libraries"),
    ];
}

/// What a key asks for beyond the screen.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum KeyEffect {
    Nothing,
    /// The answers no longer fit what is shown.
    Look,
    /// An action on the process that is shown alone.
    Act(&'static str),
    Quit,
}

/// The answers that the screen shows. Each is null until it is there.
#[derive(Debug, Default)]
pub(super) struct Answers {
    pub(super) about: Value,
    pub(super) workers: Value,
    /// The answer about the workers before.
    pub(super) workers_before: Value,
    /// The last ten minutes.
    pub(super) history: History,
    pub(super) view: Value,
    pub(super) tree: Value,
    pub(super) crashes: Value,
    pub(super) sections: Value,
    pub(super) process: Value,
}

#[derive(Debug)]
pub(super) struct Screen {
    pub(super) tab: Tab,
    pub(super) sort: SortKey,
    pub(super) group: GroupKey,
    /// The part of labels that is searched for.
    pub(super) search: String,
    is_typing: bool,
    shows_help: bool,
    pub(super) is_paused: bool,
    selected: usize,
    /// The process that is shown alone.
    pub(super) process: Option<String>,
    pub(super) answers: Answers,
    /// The failure of the last look.
    pub(super) failure: Option<String>,
    /// How often it looks, and the share of the processors that looking takes.
    pub(super) rate: String,
    has_colours: bool,
}

impl Screen {
    pub(super) fn new(sort: SortKey, group: Option<GroupKey>, has_colours: bool) -> Self {
        Self {
            tab: if group.is_some() { Tab::Groups } else { Tab::Processes },
            sort,
            group: group.unwrap_or(GroupKey::Location),
            search: String::new(),
            is_typing: false,
            shows_help: false,
            is_paused: false,
            selected: 0,
            process: None,
            answers: Answers::default(),
            failure: None,
            rate: String::new(),
            has_colours,
        }
    }

    fn rows(&self) -> &[Value] {
        self.answers.view["rows"].as_array().map_or(&[], Vec::as_slice)
    }

    /// Returns `true` if there is one process to act on, and the program allows it.
    fn can_act(&self) -> bool {
        self.process.is_some() && self.answers.about["actions"] == true
    }

    /// Takes a key.
    pub(super) fn take_key(&mut self, key: KeyCode) -> KeyEffect {
        if self.is_typing {
            return self.take_typed(key);
        }
        if std::mem::take(&mut self.shows_help) {
            return KeyEffect::Nothing;
        }
        let sort = match key {
            KeyCode::Char('c') => Some(SortKey::Samples),
            KeyCode::Char('m') => Some(SortKey::Mailbox),
            KeyCode::Char('n') => Some(SortKey::Growth),
            KeyCode::Char('s') => Some(SortKey::Steps),
            KeyCode::Char('w') => Some(SortKey::WaitAge),
            KeyCode::Char('a') => Some(SortKey::Memory),
            _ => None,
        };
        if let Some(sort) = sort {
            self.sort = sort;
            return KeyEffect::Look;
        }
        match key {
            KeyCode::Char('q') => return KeyEffect::Quit,
            KeyCode::Char('h' | '?') => self.shows_help = true,
            KeyCode::Char(' ') => self.is_paused = !self.is_paused,
            KeyCode::Char('/') => {
                self.is_typing = true;
                self.search.clear();
            }
            KeyCode::Char('g') => {
                if self.tab == Tab::Groups {
                    let keys = GroupKey::ALL;
                    let at = keys.iter().position(|key| *key == self.group).unwrap_or(0);
                    self.group = keys[(at + 1) % keys.len()];
                }
                return self.go_to(Tab::Groups);
            }
            KeyCode::Char(digit @ '1'..='6') => {
                return self.go_to(Tab::ALL[digit as usize - '1' as usize].0);
            }
            KeyCode::Tab => {
                let at = Tab::ALL.iter().position(|(tab, _)| *tab == self.tab).unwrap_or(0);
                return self.go_to(Tab::ALL[(at + 1) % Tab::ALL.len()].0);
            }
            KeyCode::Down => self.selected = self.selected.saturating_add(1),
            KeyCode::Up => self.selected = self.selected.saturating_sub(1),
            KeyCode::PageDown => self.selected = self.selected.saturating_add(10),
            KeyCode::PageUp => self.selected = self.selected.saturating_sub(10),
            KeyCode::Enter if self.tab == Tab::Processes => {
                let row = self.rows().get(self.selected);
                self.process = row.and_then(|row| row["pid"].as_str()).map(str::to_owned);
                return KeyEffect::Look;
            }
            KeyCode::Esc if self.process.is_some() => self.process = None,
            KeyCode::Char('z') if self.can_act() => return KeyEffect::Act("suspend"),
            KeyCode::Char('x') if self.can_act() => return KeyEffect::Act("resume"),
            KeyCode::Esc if !self.search.is_empty() => {
                self.search.clear();
                return KeyEffect::Look;
            }
            _ => {}
        }
        KeyEffect::Nothing
    }

    fn take_typed(&mut self, key: KeyCode) -> KeyEffect {
        match key {
            KeyCode::Enter => self.is_typing = false,
            KeyCode::Esc => {
                self.is_typing = false;
                self.search.clear();
            }
            KeyCode::Backspace => {
                self.search.pop();
            }
            KeyCode::Char(c) => self.search.push(c),
            _ => {}
        }
        if self.is_typing { KeyEffect::Nothing } else { KeyEffect::Look }
    }

    fn go_to(&mut self, tab: Tab) -> KeyEffect {
        (self.tab, self.process, self.selected) = (tab, None, 0);
        KeyEffect::Look
    }

    fn style(&self, colour: Color, modifier: Modifier) -> Style {
        let style = Style::new().add_modifier(modifier);
        if self.has_colours { style.fg(colour) } else { style }
    }

    /// Draws everything.
    pub(super) fn draw(&mut self, frame: &mut Frame<'_>) {
        let [head, body, foot] =
            Layout::vertical([Constraint::Length(3), Constraint::Min(1), Constraint::Length(1)])
                .areas(frame.area());
        self.draw_head(frame, head);
        if self.shows_help {
            frame.render_widget(Paragraph::new(HELP), body);
        } else if self.process.is_some() {
            let lines: Vec<_> =
                detail_lines(&self.answers.process).into_iter().map(Line::from).collect();
            frame.render_widget(Paragraph::new(lines).wrap(Wrap { trim: false }), body);
        } else {
            match self.tab {
                Tab::Processes => self.draw_processes(frame, body),
                Tab::Groups => self.draw_groups(frame, body),
                Tab::Tree => self.draw_lines(frame, body, tree_lines(&self.answers.tree)),
                Tab::Crashes => self.draw_lines(frame, body, crash_lines(&self.answers.crashes)),
                Tab::Workers => {
                    let Answers { workers, workers_before, .. } = &self.answers;
                    let mut lines = vec![wake_line(workers, workers_before)];
                    lines.extend(worker_lines(workers));
                    lines.extend(self.answers.history.lines(body.width.into()));
                    self.draw_lines(frame, body, lines);
                }
                Tab::Sections => self.draw_lines(frame, body, lines(&self.answers.sections)),
            }
        }
        self.draw_foot(frame, foot);
    }

    fn draw_head(&self, frame: &mut Frame<'_>, area: Rect) {
        let Answers { about, view, workers, .. } = &self.answers;
        let first = format!(
            "{} ({}), scheduler {}: {} workers, {} processes",
            text(&about["program"]),
            number(&about["system_pid"]),
            text(&about["name"]),
            number(&about["workers"]),
            number(&view["processes"])
        );
        let tabs = Tab::ALL.iter().map(|(tab, name)| {
            let is_this = *tab == self.tab;
            let marked = if is_this { format!("[{name}]  ") } else { format!(" {name}   ") };
            let modifier = if is_this { Modifier::BOLD } else { Modifier::empty() };
            Span::styled(marked, Style::new().add_modifier(modifier))
        });
        let lines = vec![
            Line::styled(first, Style::new().add_modifier(Modifier::BOLD)),
            Line::from(stall_line(workers)),
            Line::from_iter(tabs),
        ];
        frame.render_widget(Paragraph::new(lines), area);
    }

    fn draw_foot(&self, frame: &mut Frame<'_>, area: Rect) {
        let line = if let Some(failure) = &self.failure {
            Line::styled(
                format!("FAILED: {}", plain(failure)),
                self.style(Color::Red, Modifier::BOLD),
            )
        } else if self.is_typing {
            Line::from(format!("label contains: {}_", plain(&self.search)))
        } else {
            let paused = if self.is_paused { "PAUSED; " } else { "" };
            let search = match self.search.as_str() {
                "" => String::new(),
                search => format!("label contains {:?}; ", search),
            };
            let sort = self.sort.name();
            let search = if self.can_act() { "z suspends, x resumes; " } else { &*search };
            Line::from(format!("{paused}{search}by {sort}; {}; h help, q quit", self.rate))
        };
        frame.render_widget(line, area);
    }

    fn draw_processes(&mut self, frame: &mut Frame<'_>, area: Rect) {
        self.selected = self.selected.min(self.rows().len().saturating_sub(1));
        let is_wide = area.width >= WIDE;
        let shown = |at: usize| is_wide || !matches!(at, 4 | 5);
        let columns = [
            ("PID", Constraint::Length(12)),
            ("STATE", Constraint::Length(9)),
            ("  CPU%", Constraint::Length(6)),
            ("MAILBOX", Constraint::Length(7)),
            (" GROWTH", Constraint::Length(7)),
            ("   STEPS", Constraint::Length(8)),
            ("PROCESS", Constraint::Fill(2)),
            ("WAITS FOR", Constraint::Fill(3)),
        ];
        let pick = |values: Vec<String>| {
            let kept = values.into_iter().enumerate().filter(|(at, _)| shown(*at));
            kept.map(|(_, value)| value).collect::<Vec<_>>()
        };
        let head = pick(columns.iter().map(|(name, _)| (*name).to_owned()).collect());
        let widths =
            columns.iter().enumerate().filter(|(at, _)| shown(*at)).map(|(_, (_, width))| *width);
        let rows = self.rows().iter().map(|row| {
            let [pid, state, cpu, mailbox, growth, steps, title, wait] = cells(row);
            let [cpu, mailbox, growth, steps] = [(cpu, 6), (mailbox, 7), (growth, 7), (steps, 8)]
                .map(|(cell, width)| format!("{cell:>width$}"));
            let is_bad = row["wait"]["in_cycle"] == true;
            let style = if is_bad { self.style(Color::Red, Modifier::BOLD) } else { Style::new() };
            let values = vec![pid, state, cpu, mailbox, growth, steps, title, wait];
            Row::new(pick(values).into_iter().map(Cell::from)).style(style)
        });
        let table = Table::new(rows, widths)
            .header(Row::new(head).style(Style::new().add_modifier(Modifier::BOLD)))
            .row_highlight_style(Style::new().add_modifier(Modifier::REVERSED));
        let mut state = TableState::new().with_selected(self.selected);
        frame.render_stateful_widget(table, area, &mut state);
    }

    fn draw_groups(&self, frame: &mut Frame<'_>, area: Rect) {
        let groups = self.answers.view["groups"].as_array().map_or(&[][..], Vec::as_slice);
        let rows = groups.iter().map(|group| {
            let [processes, samples, mailbox, growth, oldest, title] = group_cells(group);
            let right =
                [processes, samples, mailbox, growth, oldest].map(|cell| format!("{cell:>9}"));
            Row::new(right.into_iter().chain([title]).map(Cell::from))
        });
        let head = ["PROCESSES", "  SAMPLES", "  MAILBOX", "   GROWTH", "   OLDEST"];
        let name = format!("BY {}", self.group.name().to_uppercase());
        let head = head.into_iter().map(str::to_owned).chain([name]);
        let widths =
            [9, 9, 9, 9, 9].map(Constraint::Length).into_iter().chain([Constraint::Fill(1)]);
        let table = Table::new(rows, widths)
            .header(Row::new(head).style(Style::new().add_modifier(Modifier::BOLD)));
        frame.render_widget(table, area);
    }

    /// Draws lines from the selected one on.
    fn draw_lines(&mut self, frame: &mut Frame<'_>, area: Rect, lines: Vec<String>) {
        self.selected = self.selected.min(lines.len().saturating_sub(1));
        let shown = lines.into_iter().skip(self.selected).take(area.height.into());
        let style = |line: &str| {
            let is_bad = line.contains("STALLED");
            if is_bad { self.style(Color::Red, Modifier::BOLD) } else { Style::new() }
        };
        let lines: Vec<_> = shown.map(|line| Line::styled(line.clone(), style(&line))).collect();
        frame.render_widget(Paragraph::new(lines), area);
    }
}

/// Returns the lines about one process.
fn detail_lines(answer: &Value) -> Vec<String> {
    let process = &answer["process"];
    if process.is_null() {
        return vec![String::from("the process has ended")];
    }
    let pids = |value: &Value| {
        let first = value["first"].as_array().map_or(&[][..], Vec::as_slice);
        let total = value["total"].as_u64().unwrap_or(0);
        let listed = first.iter().map(text).collect::<Vec<_>>().join(" ");
        let more = total.saturating_sub(first.len() as u64);
        if more > 0 { format!("{listed} and {more} more") } else { listed }
    };
    let value = |member: &str| text(&process[member]);
    let figure = |member: &str| number(&process[member]);
    let mut lines = vec![
        format!("process     {}  {}", value("pid"), title(process)),
        format!("name        {}", value("name")),
        format!("spawned at  {}", value("location")),
        format!("kind        {}, receives {}", value("kind"), value("message")),
        format!("state       {}", state(process)),
        format!("waits for   {}", wait(&process["wait"])),
        format!("waits at    {}", text(&process["wait"]["location"])),
        format!(
            "mailbox     {} (at most {} so far), received {}",
            figure("mailbox"),
            figure("high_water"),
            figure("received")
        ),
        format!("steps       {}", figure("steps")),
        format!(
            "memory      body {} B, mailbox {} B, stack {} B",
            number(&process["memory"]["body"]),
            number(&process["memory"]["mailbox"]),
            number(&process["memory"]["stack"])
        ),
        format!("parent      {}", value("parent")),
        format!("supervisor  {}", value("supervisor")),
    ];
    for (name, member) in [
        ("links", "links"),
        ("monitors", "monitored"),
        ("watched by", "monitors"),
        ("scope", "scope"),
        ("children", "children"),
    ] {
        lines.push(format!("{name:<11} {}", pids(&process[member])));
    }
    if process["wait"]["in_cycle"] == true {
        let age = duration(&process["wait"]["at_least_ms"]);
        lines.push(format!("It waits for itself, through others, for {age}."));
    }
    lines
}

#[cfg(test)]
mod tests;
