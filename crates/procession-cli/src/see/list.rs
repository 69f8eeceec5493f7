//! Answers of doors as plain text.

use std::collections::BTreeMap;
use std::fmt::Write;

use serde_json::Value;

use crate::format::{
    duration, number, percent, plain, short_location, short_time, state, text, title, wait,
};

/// The columns of a list of processes, with the sides to which they are aligned.
const COLUMNS: [(&str, bool); 8] = [
    ("PID", false),
    ("STATE", false),
    ("CPU%", true),
    ("MAILBOX", true),
    ("GROWTH", true),
    ("STEPS", true),
    ("PROCESS", false),
    ("WAITS FOR", false),
];

fn rows(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// Returns the cells of a row of processes.
pub(super) fn cells(row: &Value) -> [String; 8] {
    let steps = &row["steps_in_window"];
    [
        text(&row["pid"]),
        state(row),
        percent(&row["share"]),
        number(&row["mailbox"]),
        number(&row["growth"]),
        number(if steps.is_null() { &row["steps"] } else { steps }),
        title(row),
        wait_with_location(row),
    ]
}

fn wait_with_location(row: &Value) -> String {
    let said = wait(&row["wait"]);
    match row["wait"]["location"].as_str() {
        Some(_) => format!("{said} at {}", short_location(&row["wait"]["location"])),
        None => said,
    }
}

/// Returns lines with aligned columns.
fn table<const N: usize>(columns: [(&str, bool); N], rows: &[[String; N]]) -> String {
    let mut widths = columns.map(|(name, _)| name.len());
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let mut out = String::new();
    let head = columns.map(|(name, _)| name.to_owned());
    for row in std::iter::once(&head).chain(rows) {
        let mut line = String::new();
        for ((cell, width), (_, is_right)) in row.iter().zip(widths).zip(columns) {
            let padding = " ".repeat(width - cell.chars().count());
            let (before, after) =
                if is_right { (padding, String::new()) } else { (String::new(), padding) };
            // Ignored, here and below: a string takes everything.
            let _ = write!(line, "{before}{cell}{after}  ");
        }
        let _ = writeln!(out, "{}", line.trim_end());
    }
    out
}

/// Returns what a group is about.
pub(super) fn group_title(group: &Value) -> String {
    let reasons = group["reasons"].as_array().map(|reasons| {
        let said = reasons.iter().map(text).collect::<Vec<_>>().join(", ");
        if said.is_empty() { String::from("a waker") } else { said }
    });
    let location = group["location"].is_string().then(|| short_location(&group["location"]));
    let state = group["state"].is_string().then(|| text(&group["state"]));
    let parts: Vec<_> = [state, reasons, location].into_iter().flatten().collect();
    if parts.is_empty() { String::from("does not wait") } else { parts.join(" at ") }
}

/// Returns the cells of a group.
pub(super) fn group_cells(group: &Value) -> [String; 6] {
    [
        number(&group["processes"]),
        number(&group["samples"]),
        number(&group["mailbox"]),
        number(&group["growth"]),
        duration(&group["oldest_wait_ms"]),
        group_title(group),
    ]
}

/// Returns the groups and processes of a view.
pub(super) fn view(view: &Value) -> String {
    let mut out = String::new();
    let groups: Vec<_> = rows(&view["groups"]).iter().map(group_cells).collect();
    if !groups.is_empty() {
        let right = |name| (name, true);
        let figures = ["PROCESSES", "SAMPLES", "MAILBOX", "GROWTH", "OLDEST"].map(right);
        let [one, two, three, four, five] = figures;
        out = table([one, two, three, four, five, ("GROUP", false)], &groups) + "\n";
    }
    let lines: Vec<_> = rows(&view["rows"]).iter().map(cells).collect();
    out.push_str(&table(COLUMNS, &lines));
    let shown = lines.len() as u64;
    let matched = view["matched"].as_u64().unwrap_or(0);
    if matched > shown {
        let _ = writeln!(out, "({shown} of {matched} processes; --top N shows more)");
    }
    out
}

/// Returns the lines above a list: the scheduler, its workers and its stalls.
pub(super) fn head(about: &Value, workers: &Value, view: &Value) -> String {
    let mut out = String::new();
    let [program, name] = ["program", "name"].map(|member| text(&about[member]));
    let _ = writeln!(
        out,
        "{program} (system process {}), scheduler {name}: {} workers, {} processes",
        number(&about["system_pid"]),
        number(&about["workers"]),
        number(&view["processes"])
    );
    let _ = writeln!(out, "{}", stall_line(workers));
    for line in worker_lines(workers) {
        let _ = writeln!(out, "{line}");
    }
    out.push('\n');
    out
}

/// Returns one line about queues and stalls.
pub(super) fn stall_line(workers: &Value) -> String {
    let stalls = &workers["stalls"];
    format!(
        "queue {}, timers {}, descriptors {}; stalls: {} computing, {} blocked; rescues: {}",
        number(&workers["global_queue"]),
        number(&workers["timers"]["pending"]),
        number(&workers["descriptors"]["registered"]),
        number(&stalls["computing"]),
        number(&stalls["blocked"]),
        number(&stalls["replaced"])
    )
}

/// Returns the number of wake-ups of each bucket, with its bound in nanoseconds, since an earlier
/// answer. The last bucket has no bound.
fn wake_buckets(workers: &Value, before: &Value) -> Vec<(Option<u64>, u64)> {
    let count = |bucket: &Value| bucket[1].as_u64().unwrap_or(0);
    let earlier = rows(&before["wake_to_run"]).iter().map(count).chain(std::iter::repeat(0));
    let buckets = rows(&workers["wake_to_run"]).iter().zip(earlier);
    buckets
        .map(|(bucket, before)| (bucket[0].as_u64(), count(bucket).saturating_sub(before)))
        .collect()
}

/// Returns the bound of the bucket that the slowest of this part of the wake-ups is in, in
/// nanoseconds.
fn wake_quantile(buckets: &[(Option<u64>, u64)], part: f64) -> u64 {
    let total: u64 = buckets.iter().map(|bucket| bucket.1).sum();
    let rank = ((total as f64 * part).ceil() as u64).max(1);
    let mut seen = 0;
    let found = buckets.iter().find(|bucket| {
        seen += bucket.1;
        seen >= rank
    });
    found.and_then(|bucket| bucket.0).unwrap_or(u64::MAX)
}

/// Returns the line about the time from a wake-up until the process runs, since an earlier answer.
pub(super) fn wake_line(workers: &Value, before: &Value) -> String {
    let buckets = wake_buckets(workers, before);
    if buckets.iter().all(|bucket| bucket.1 == 0) {
        return String::from("wake to run: no sample");
    }
    let [half, most] = [0.5, 0.99].map(|part| match wake_quantile(&buckets, part) {
        u64::MAX => String::from("more than 8.6 s"),
        bound => short_time(bound),
    });
    format!("wake to run: 50 % within {half}, 99 % within {most}")
}

/// Returns a line for each worker.
pub(super) fn worker_lines(workers: &Value) -> Vec<String> {
    let line = |(worker, value): (usize, &Value)| {
        let state = match value["step_age_ms"].as_u64() {
            None => String::from("in no step"),
            Some(0..10) => String::from("in a step"),
            Some(_) => format!("STALLED for {}", duration(&value["step_age_ms"])),
        };
        format!(
            "worker {worker}: {state}, queue {}, steps {}",
            number(&value["queue"]),
            number(&value["steps"])
        )
    };
    rows(&workers["workers"]).iter().enumerate().map(line).collect()
}

/// Returns the supervision tree.
pub(super) fn tree(answer: &Value) -> String {
    let lines = tree_lines(answer);
    if lines.is_empty() {
        return String::from("no supervisors\n");
    }
    lines.into_iter().map(|line| line + "\n").collect()
}

/// Returns a line for each process of the supervision tree.
pub(super) fn tree_lines(answer: &Value) -> Vec<String> {
    let mut children = BTreeMap::<Option<&str>, Vec<&Value>>::new();
    for node in rows(&answer["nodes"]) {
        children.entry(node["supervisor"].as_str()).or_default().push(node);
    }
    let mut lines = Vec::new();
    // Each with its depth. A process has one supervisor, so each node occurs once.
    let mut next: Vec<(usize, &Value)> = Vec::new();
    let push = |next: &mut Vec<_>, depth, of: Option<&str>| {
        let found = children.get(&of).into_iter().flatten().rev();
        next.extend(found.map(|node| (depth, *node)));
    };
    push(&mut next, 0, None);
    while let Some((depth, node)) = next.pop() {
        let [pid, state, kind] = ["pid", "state", "kind"].map(|member| text(&node[member]));
        let name = match node["name"].as_str() {
            Some(name) => format!(" ({})", plain(name)),
            None => String::new(),
        };
        let indent = "  ".repeat(depth.min(20));
        lines.push(format!("{indent}{pid}  {}{name}  {kind}, {state}", title(node)));
        if let Some(pid) = node["pid"].as_str() {
            push(&mut next, depth + 1, Some(pid));
        }
    }
    lines
}

/// Returns the stacks of a process.
pub(super) fn stacks(answer: &Value) -> String {
    let is_wait = answer["source"].as_str() == Some("wait");
    let state = if is_wait { "waits" } else { "runs a step" };
    let mut out = format!("{} {state}\n", text(&answer["pid"]));
    for stack in rows(&answer["stacks"]) {
        out.push('\n');
        out += &frames(stack);
    }
    out
}

/// Returns a line for each call of a stack.
fn frames(stack: &Value) -> String {
    let mut out = String::new();
    for frame in rows(stack) {
        let name = if frame["function"].is_string() { "function" } else { "address" };
        out.push_str(&text(&frame[name]));
        if frame["file"].is_string() {
            let line = frame["line"].as_u64().unwrap_or(0);
            // Ignored: a string takes everything.
            let _ = write!(out, " at {}:{line}", text(&frame["file"]));
        }
        out.push('\n');
    }
    out
}

/// Returns what a process shows of itself.
pub(super) fn fields(answer: &Value) -> String {
    let mut out = format!("{} shows\n\n", text(&answer["pid"]));
    for field in rows(&answer["fields"]) {
        // Ignored: a string takes everything.
        let _ = writeln!(out, "{}: {}", text(&field["name"]), text(&field["value"]));
    }
    if answer["truncated"].as_bool() == Some(true) {
        out.push_str("(something was cut off)\n");
    }
    out
}

/// Returns a line for each message of a trace.
pub(super) fn messages(answer: &Value) -> String {
    let cells = |message: &Value| {
        let after = message["after_us"].as_u64().unwrap_or(0);
        let is_sent = message["direction"] == "sent";
        [
            format!("{}.{:06}", after / 1_000_000, after % 1_000_000),
            String::from(if is_sent { "to" } else { "from" }),
            text(&message["other"]),
            number(&message["bytes"]),
            text(&message["request"]),
            text(&message["type"]),
        ]
    };
    let lines: Vec<_> = rows(&answer["messages"]).iter().map(cells).collect();
    let columns = [
        ("SECONDS", true),
        ("", false),
        ("PROCESS", false),
        ("BYTES", true),
        ("REQUEST", false),
        ("TYPE", false),
    ];
    let mut out = table(columns, &lines);
    if answer["complete"].as_bool() == Some(false) {
        // Ignored: a string takes everything.
        let _ = writeln!(out, "({} messages in this time; --seconds N waits longer)", lines.len());
    }
    out
}

/// Returns the failed processes.
pub(super) fn crashes(answer: &Value) -> String {
    let lines = crash_lines(answer);
    if lines.is_empty() {
        return String::from("no process has failed\n");
    }
    lines.into_iter().map(|line| line + "\n").collect()
}

/// Returns the cycles of waits, with a line for each process.
pub(super) fn cycles(answer: &Value) -> String {
    let cycles = rows(&answer["cycles"]);
    if cycles.is_empty() {
        return String::from("no processes have waited for one another\n");
    }
    let mut out = String::new();
    for cycle in cycles {
        let waits = rows(&cycle["waits"]);
        // Ignored: a string takes everything.
        let _ = writeln!(out, "a cycle of {}:", waits.len());
        for process in waits {
            let _ = writeln!(out, "  {}", text(&process["text"]));
        }
    }
    out
}

/// Returns the leaks, with a line for each process and each suspected group.
pub(super) fn leaks(answer: &Value) -> String {
    let total = answer["leaked_total"].as_u64().unwrap_or(0);
    let mut out = match total {
        0 => String::from("no process is known to be leaked\n"),
        total => format!("{total} leaked:\n"),
    };
    let leaked = rows(&answer["leaked"]);
    let others = total.saturating_sub(leaked.len() as u64);
    let lines = leaked.iter().map(|leak| text(&leak["text"]).to_owned());
    let lines = lines.chain((others > 0).then(|| format!("and {others} more")));
    out.extend(lines.map(|line| format!("  {line}\n")));
    let suspected = rows(&answer["suspected"]);
    if !suspected.is_empty() {
        out.push_str("suspected:\n");
    }
    out.extend(suspected.iter().map(|group| format!("  {}\n", text(&group["text"]))));
    out
}

/// Returns two lines for each failed process.
pub(super) fn crash_lines(answer: &Value) -> Vec<String> {
    rows(&answer["crashes"]).iter().flat_map(lines_of_crash).collect()
}

/// Returns the report of a failed process, with its backtrace.
pub(super) fn crash(answer: &Value) -> String {
    let crash = &answer["crash"];
    let head = lines_of_crash(crash).map(|line| line + "\n").concat();
    match frames(&crash["backtrace"]) {
        none if none.is_empty() => head,
        backtrace => format!("{head}\n{backtrace}"),
    }
}

fn lines_of_crash(crash: &Value) -> [String; 2] {
    let at = match crash["panicked_at"].as_str() {
        Some(_) => format!(" at {}", text(&crash["panicked_at"])),
        None => String::new(),
    };
    let answer = match crash["answer"].as_str() {
        Some(answer) => format!("; its supervisor: {}", plain(answer)),
        None => String::new(),
    };
    let report = match crash["number"].as_u64() {
        Some(number) => format!("; report {number}"),
        None => String::new(),
    };
    let [pid, exit] = ["pid", "exit"].map(|member| text(&crash[member]));
    [
        format!("{:>8} ago  {pid}  {}: {exit}{at}", duration(&crash["age_ms"]), title(crash)),
        format!(
            "              spawned at {}{answer}; {} steps, {} messages received, {} waiting{report}",
            short_location(&crash["location"]),
            number(&crash["steps"]),
            number(&crash["received"]),
            number(&crash["waiting"])
        ),
    ]
}
