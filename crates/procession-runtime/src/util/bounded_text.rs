//! Texts of values that a user formats, with a maximum length.

use std::fmt;
use std::fmt::Write as _;

/// A text that takes no more than so many bytes.
struct BoundedText {
    text: String,
    max: usize,
}

impl fmt::Write for BoundedText {
    fn write_str(&mut self, more: &str) -> fmt::Result {
        let room = self.max - self.text.len();
        let fits = cut(more, room);
        self.text.push_str(fits);
        // An error ends the formatting of a value that exceeds the limit.
        if fits.len() == more.len() { Ok(()) } else { Err(fmt::Error) }
    }
}

/// Returns the longest prefix of at most `max` bytes that ends between two characters.
pub(crate) fn cut(text: &str, max: usize) -> &str {
    let mut end = max.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

/// Returns the text of a value, cut to `max` bytes, and whether the text is complete.
pub(crate) fn bounded_text(value: impl fmt::Display, max: usize) -> (String, bool) {
    let mut bounded = BoundedText { text: String::new(), max };
    let is_whole = write!(bounded, "{value}").is_ok();
    (bounded.text, is_whole)
}

#[cfg(test)]
mod tests {
    use std::fmt;

    use super::{bounded_text, cut};

    #[test]
    fn a_text_is_cut_between_characters() {
        assert_eq!(bounded_text("aé", 3), ("aé".to_owned(), true));
        assert_eq!(bounded_text("aé", 2), ("a".to_owned(), false));
    }

    #[test]
    fn a_prefix_ends_between_characters() {
        let prefixes = [0, 1, 2, 3, 4, 5, 6, 7].map(|max| cut("aé€", max));
        assert_eq!(prefixes, ["", "a", "a", "aé", "aé", "aé", "aé€", "aé€"]);
        assert_eq!(cut("", 1), "");
    }

    #[test]
    fn a_value_without_an_end_is_given_up() {
        struct Endless;

        impl fmt::Display for Endless {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                loop {
                    f.write_str("ab")?;
                }
            }
        }

        assert_eq!(bounded_text(Endless, 5), ("ababa".to_owned(), false));
    }
}
