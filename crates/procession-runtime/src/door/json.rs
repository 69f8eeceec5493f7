//! A writer of JSON with a maximum size of the output.

use std::fmt::{self, Write};

/// The maximum length of a label or another text of the program, in characters.
const TEXT_MAX: usize = 120;

/// The room that is left for one row and for what follows the rows.
const TAIL_BYTES: usize = 64 << 10;

/// JSON that is being written. It is indented by nothing and has no line ends.
#[derive(Debug, Default)]
pub(crate) struct Json {
    text: String,
    /// `true` if the next value follows another value.
    follows: bool,
}

impl Json {
    /// Returns `true` if an answer of at most `max` bytes has no room for another row.
    pub(crate) fn is_over(&self, max: usize) -> bool {
        self.text.len() > max - TAIL_BYTES
    }

    pub(crate) fn into_text(self) -> String {
        self.text
    }

    fn separate(&mut self) {
        if self.follows {
            self.text.push(',');
        }
        self.follows = true;
    }

    fn within(&mut self, open: char, close: char, write: impl FnOnce(&mut Self)) {
        self.separate();
        self.text.push(open);
        self.follows = false;
        write(self);
        self.text.push(close);
        self.follows = true;
    }

    /// Writes an object. `write` writes its members.
    pub(crate) fn object(&mut self, write: impl FnOnce(&mut Self)) {
        self.within('{', '}', write);
    }

    /// Writes an array. `write` writes its elements.
    pub(crate) fn array(&mut self, write: impl FnOnce(&mut Self)) {
        self.within('[', ']', write);
    }

    /// Writes the name of a member. The caller writes its value next.
    pub(crate) fn name(&mut self, name: &str) -> &mut Self {
        self.separate();
        escape(&mut self.text, name, usize::MAX);
        self.text.push(':');
        self.follows = false;
        self
    }

    /// Writes an integer, a fraction that is finite, `true` or `false`.
    pub(crate) fn literal(&mut self, value: impl fmt::Display) {
        self.separate();
        // Ignored: a string takes everything.
        let _ = write!(self.text, "{value}");
    }

    /// Writes a text, shortened to 120 characters.
    pub(crate) fn text(&mut self, value: impl fmt::Display) {
        self.long_text(value, TEXT_MAX);
    }

    /// Writes a text, shortened to `max` characters.
    pub(crate) fn long_text(&mut self, value: impl fmt::Display, max: usize) {
        self.separate();
        escape(&mut self.text, &value.to_string(), max);
    }

    /// Writes a number, or `null` if there is none.
    pub(crate) fn literal_or_null(&mut self, value: Option<impl fmt::Display>) {
        match value {
            Some(value) => self.literal(value),
            None => self.literal("null"),
        }
    }

    /// Writes a text, or `null` if there is none.
    pub(crate) fn text_or_null(&mut self, value: Option<impl fmt::Display>) {
        match value {
            Some(value) => self.text(value),
            None => self.literal("null"),
        }
    }
}

/// Appends a text in quotes. Besides what JSON asks for, escapes what has a meaning in HTML and
/// what changes the order of characters or cannot be seen.
fn escape(out: &mut String, text: &str, max: usize) {
    out.push('"');
    for (count, c) in text.chars().enumerate() {
        if count == max {
            out.push('\u{2026}');
            break;
        }
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            '\n' => out.push_str("\\n"),
            c if is_risky(c) => {
                // Ignored: a string takes everything. All of these are in the basic plane.
                let _ = write!(out, "\\u{:04x}", u32::from(c));
            }
            c => out.push(c),
        }
    }
    out.push('"');
}

fn is_risky(c: char) -> bool {
    c.is_control()
        || matches!(c, '<' | '>' | '&' | '\u{ad}' | '\u{61c}' | '\u{feff}')
        || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}')
}

#[cfg(test)]
mod tests {
    use super::Json;

    #[test]
    fn members_and_elements_are_separated() {
        let mut json = Json::default();
        json.object(|json| {
            json.name("a").literal(1);
            json.name("b").array(|json| {
                json.literal(true);
                json.object(|_| {});
                json.text("x");
            });
            json.name("c").text_or_null(None::<&str>);
        });
        assert_eq!(json.into_text(), r#"{"a":1,"b":[true,{},"x"],"c":null}"#);
    }

    #[test]
    fn a_text_is_escaped_and_shortened() {
        let mut json = Json::default();
        json.text("<a&\"\\\n\x1b\u{202e}\u{9b}é");
        assert_eq!(json.into_text(), r#""\u003ca\u0026\"\\\n\u001b\u202e\u009bé""#);
        let mut json = Json::default();
        json.text("é".repeat(10_000));
        assert_eq!(json.into_text(), format!("\"{}…\"", "é".repeat(120)));
    }
}
