//! Goal: the screen shows what matters at any size, and keys do what the help says. Method: draw
//! given answers into memory.

use procession::observe::{GroupKey, SortKey};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::KeyCode;
use ratatui::style::{Color, Style};
use serde_json::{Value, json};

use super::{KeyEffect, Screen, Tab};

fn row(number: u32, state: &str, share: f64, label: Option<&str>, wait: Value) -> Value {
    json!({
        "pid": format!("p1.{number}.1"), "label": label, "location": "/home/u/bank/src/bank.rs:42",
        "kind": "async", "state": state, "share": share, "mailbox": number * 100, "growth": 3,
        "steps": 1000, "steps_in_window": 10, "wait": wait,
    })
}

fn screen() -> Screen {
    let mut screen = Screen::new(SortKey::Samples, None, true);
    screen.rate = String::from("a look each 1 s takes 0.02 %");
    let reply = json!({
        "reasons": ["reply"], "location": "src/bank.rs:77", "target": "p1.3.1", "at_least_ms": 4200,
        "in_cycle": true
    });
    let message =
        json!({"reasons": ["message"], "location": null, "at_least_ms": 0, "in_cycle": false});
    screen.answers.about = json!({
        "program": "bank", "system_pid": 4711, "name": "procession", "workers": 2
    });
    screen.answers.workers = json!({
        "global_queue": 3, "timers": {"pending": 17}, "descriptors": {"registered": 5},
        "stalls": {"computing": 1, "blocked": 0, "replaced": 1},
        "wake_to_run": [[256, 100], [1024, 97], [65_536, 5], [null, 1]],
        "workers": [
            {"queue": 4, "steps": 120_000, "step_age_ms": 1200}, {"queue": 0, "steps": 7, "step_age_ms": null}
        ],
    });
    screen.answers.workers_before = json!({"wake_to_run": [[256, 100], [1024, 1], [65_536, 1]]});
    screen.answers.view = json!({
        "processes": 3, "matched": 3,
        "rows": [
            row(1, "running", 0.987, Some("hash \u{1b}[2J"), json!(null)),
            row(2, "blocked", 0.0, Some("teller"), reply),
            row(3, "idle", 0.0, None, message),
        ],
        "groups": [{
            "location": "/home/u/bank/src/bank.rs:42", "state": null, "reasons": null, "processes": 3,
            "samples": 400, "mailbox": 600, "growth": 9, "oldest_wait_ms": 4200
        }],
    });
    screen.answers.tree = json!({"nodes": [
        {"pid": "p1.4.1", "supervisor": null, "label": "root", "name": "top", "kind": "async", "state": "idle"},
        {"pid": "p1.5.1", "supervisor": "p1.4.1", "label": "child", "name": null, "kind": "machine", "state": "ready"},
    ]});
    screen.answers.crashes = json!({"crashes": [{
        "age_ms": 65_000, "pid": "p1.9.2", "label": "worker", "exit": "panicked: no disk",
        "panicked_at": "src/disk.rs:9", "location": "src/disk.rs:3", "steps": 4, "received": 2,
        "waiting": 1, "answer": "restart 1 of at most 3"
    }]});
    screen
}

/// Draws the screen, and returns its lines without trailing spaces.
fn drawn(screen: &mut Screen, width: u16, height: u16) -> (String, Vec<Style>) {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("memory has room");
    terminal.draw(|frame| screen.draw(frame)).expect("memory has room");
    let buffer = terminal.backend().buffer();
    let lines = buffer.content.chunks(width.into()).map(|cells| {
        let line: String = cells.iter().map(|cell| cell.symbol()).collect();
        line.trim_end().to_owned() + "\n"
    });
    let text = lines.collect::<String>();
    (text.trim_end().to_owned() + "\n", buffer.content.iter().map(|cell| cell.style()).collect())
}

fn check(name: &str, screen: &mut Screen, size: (u16, u16), expected: &str) {
    let (text, _) = drawn(screen, size.0, size.1);
    assert_eq!(text, expected, "{name} at {size:?}, which is:\n{text}");
}

#[test]
fn processes_at_both_sizes() {
    let mut screen = screen();
    check("processes", &mut screen, (80, 24), include_str!("snapshots/processes_80.txt"));
    check("processes", &mut screen, (200, 50), include_str!("snapshots/processes_200.txt"));
}

#[test]
fn the_other_views() {
    let mut screen = screen();
    for (key, name, expected) in [
        ('2', "groups", include_str!("snapshots/groups_80.txt")),
        ('3', "tree", include_str!("snapshots/tree_80.txt")),
        ('4', "crashes", include_str!("snapshots/crashes_80.txt")),
        ('5', "workers", include_str!("snapshots/workers_80.txt")),
        ('h', "help", include_str!("snapshots/keys_80.txt")),
    ] {
        screen.take_key(KeyCode::Char(key));
        check(name, &mut screen, (80, 24), expected);
    }
}

#[test]
fn a_process_alone() {
    let mut screen = screen();
    screen.take_key(KeyCode::Down);
    assert_eq!(screen.take_key(KeyCode::Enter), KeyEffect::Look);
    assert_eq!(screen.process.as_deref(), Some("p1.2.1"));
    let (text, _) = drawn(&mut screen, 80, 24);
    assert!(text.contains("the process has ended"), "{text}");
    let mut process = screen.answers.view["rows"][1].clone();
    process["links"] = json!({"first": ["p1.3.1"], "total": 18});
    screen.answers.process = json!({ "process": process });
    check("process", &mut screen, (80, 24), include_str!("snapshots/process_80.txt"));
    assert_eq!(screen.take_key(KeyCode::Esc), KeyEffect::Nothing);
    assert_eq!(screen.process, None);
}

#[test]
fn a_process_is_suspended_and_resumed_if_the_program_allows_it() {
    let mut screen = screen();
    screen.take_key(KeyCode::Enter);
    assert_eq!(screen.take_key(KeyCode::Char('z')), KeyEffect::Nothing, "it is not allowed");
    screen.answers.about["actions"] = json!(true);
    let mut process = screen.answers.view["rows"][0].clone();
    process["suspended"] = json!(true);
    screen.answers.view["rows"][0] = process.clone();
    screen.answers.process = json!({ "process": process });
    let (text, _) = drawn(&mut screen, 80, 24);
    assert!(text.contains("state       suspended"), "{text}");
    assert!(text.contains("z suspends, x resumes"), "{text}");
    assert_eq!(screen.take_key(KeyCode::Char('z')), KeyEffect::Act("suspend"));
    assert_eq!(screen.take_key(KeyCode::Char('x')), KeyEffect::Act("resume"));
    screen.take_key(KeyCode::Esc);
    let (text, _) = drawn(&mut screen, 80, 24);
    assert!(text.contains("p1.1.1       suspended "), "{text}");
    assert_eq!(screen.take_key(KeyCode::Char('z')), KeyEffect::Nothing, "no process is chosen");
}

#[test]
fn keys_sort_search_group_and_pause() {
    let mut screen = screen();
    for (key, sort) in [
        ('m', SortKey::Mailbox),
        ('n', SortKey::Growth),
        ('s', SortKey::Steps),
        ('w', SortKey::WaitAge),
        ('a', SortKey::Memory),
        ('c', SortKey::Samples),
    ] {
        assert_eq!(screen.take_key(KeyCode::Char(key)), KeyEffect::Look);
        assert_eq!(screen.sort, sort);
    }
    screen.take_key(KeyCode::Char('/'));
    for c in "qx".chars() {
        assert_eq!(screen.take_key(KeyCode::Char(c)), KeyEffect::Nothing, "it is typed");
    }
    screen.take_key(KeyCode::Backspace);
    assert_eq!(screen.take_key(KeyCode::Enter), KeyEffect::Look);
    assert_eq!(screen.search, "q");
    assert!(drawn(&mut screen, 80, 24).0.contains("label contains \"q\""));
    assert_eq!(screen.take_key(KeyCode::Esc), KeyEffect::Look);
    assert_eq!(screen.search, "");
    screen.take_key(KeyCode::Char('g'));
    assert_eq!((screen.tab, screen.group), (Tab::Groups, GroupKey::Location));
    screen.take_key(KeyCode::Char('g'));
    assert_eq!(screen.group, GroupKey::State);
    screen.take_key(KeyCode::Char(' '));
    assert!(screen.is_paused && drawn(&mut screen, 80, 24).0.contains("PAUSED"));
    screen.take_key(KeyCode::Tab);
    assert_eq!(screen.tab, Tab::Tree);
    assert_eq!(screen.take_key(KeyCode::Char('q')), KeyEffect::Quit);
}

#[test]
fn colour_is_never_alone_and_can_be_off() {
    let mut screen = screen();
    let (text, styles) = drawn(&mut screen, 80, 24);
    let coloured = |styles: &[Style]| {
        styles.iter().any(|style| style.fg.is_some_and(|colour| colour != Color::Reset))
    };
    assert!(coloured(&styles) && text.contains("CYCLE"), "the word says it, too:\n{text}");
    screen.has_colours = false;
    assert!(!coloured(&drawn(&mut screen, 80, 24).1));
}

#[test]
fn nothing_to_show_and_no_room_do_no_harm() {
    let mut empty = Screen::new(SortKey::Samples, None, false);
    for key in "12345h".chars() {
        empty.take_key(KeyCode::Char(key));
        for size in [(1, 1), (20, 4), (80, 24)] {
            drawn(&mut empty, size.0, size.1);
        }
    }
    empty.failure = Some(String::from("gone"));
    assert!(drawn(&mut empty, 80, 24).0.contains("FAILED: gone"));
}
