//! The sections that libraries show in a door.

use serde_json::{Map, Value};

use super::door::{DoorFile, encode};
use crate::format::{number, plain, text};
use crate::see::error::SeeError;

/// Asks for all sections that a door lists. A section that has gone by then is left out.
pub(super) fn all(door: &DoorFile, about: &Value) -> Result<Value, SeeError> {
    let mut sections = Map::new();
    for name in about["sections"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        match door.get_json(&format!("/{}", encode(name))) {
            Err(SeeError::Refused(_)) => {}
            answer => drop(sections.insert(name.to_owned(), answer?)),
        }
    }
    Ok(Value::Object(sections))
}

/// Returns the tables of all sections, each below a line with its name.
pub(super) fn lines(sections: &Value) -> Vec<String> {
    let mut lines = Vec::new();
    for (section, tables) in sections.as_object().into_iter().flatten() {
        for (table, rows) in tables.as_object().into_iter().flatten() {
            let Some(rows) = rows.as_array().filter(|rows| !rows.is_empty()) else { continue };
            lines.push(String::new());
            lines.push(format!("{}: {}", plain(section), plain(table)));
            lines.extend(aligned(rows));
        }
    }
    lines
}

/// Returns the lines of a table, with the names of its columns first.
fn aligned(rows: &[Value]) -> Vec<String> {
    let mut columns: Vec<_> = rows[0].as_object().into_iter().flatten().collect();
    // The subject of a row is first.
    columns.sort_by_key(|(_, value)| !value.is_string());
    let head = columns.iter().map(|(name, _)| {
        let name = name.strip_suffix("_us").unwrap_or(name);
        plain(name).replace('_', " ")
    });
    let mut cells: Vec<Vec<String>> = vec![head.collect()];
    cells.extend(rows.iter().map(|row| {
        columns.iter().map(|(name, _)| cell(name, &row[name.as_str()])).collect::<Vec<_>>()
    }));
    let widths: Vec<_> = (0..columns.len())
        .map(|at| cells.iter().map(|row| row[at].chars().count()).max().unwrap_or(0))
        .collect();
    let line = |row: &Vec<String>| {
        let padded = row.iter().zip(&widths).zip(&columns).map(|((cell, width), (_, value))| {
            let padding = " ".repeat(width - cell.chars().count());
            if value.is_string() { format!("{cell}{padding}") } else { format!("{padding}{cell}") }
        });
        padded.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    cells.iter().map(line).collect()
}

/// Returns a cell. The names of times end in `_us`.
fn cell(name: &str, value: &Value) -> String {
    match value.as_u64() {
        Some(micros) if name.ends_with("_us") => match micros {
            0..1000 => format!("{micros} us"),
            1000..1_000_000 => format!("{} ms", micros / 1000),
            _ => format!("{} s", micros / 1_000_000),
        },
        Some(_) => number(value),
        None => text(value),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::lines;

    #[test]
    fn a_table_has_a_column_for_each_member() {
        let sections = json!({ "cluster": {
            "version": 1, "truncated": false, "end": [],
            "peer": [
                { "peer": "till@host", "sent": 14, "age_us": 90_000_000, "oldest_wait_us": null },
                { "peer": "b\u{1b}[2J", "sent": 1_000_000, "age_us": 210, "oldest_wait_us": 4000 },
            ],
        }});
        // The figures are in the order of their names.
        let expected = [
            "",
            "cluster: peer",
            "peer           age  oldest wait   sent",
            "till@host     90 s            -     14",
            "b\\u{1b}[2J  210 us         4 ms  1000k",
        ];
        assert_eq!(lines(&sections), expected);
    }
}
