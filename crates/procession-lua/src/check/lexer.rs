//! The tokens of Lua. The source has been compiled before, so it has no mistakes.

/// A token, and the place where it begins. Lines and columns count from 1; a column is a byte.
#[derive(Clone, Copy, Debug)]
pub(super) struct Token<'a> {
    pub(super) kind: Kind<'a>,
    pub(super) line: u32,
    pub(super) column: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind<'a> {
    Name(&'a str),
    /// A keyword or an operator.
    Word(&'a str),
    /// A string, with its text if that has no escapes.
    Text(Option<&'a str>),
    Number,
    End,
}

const KEYWORDS: &[&str] = &[
    "and", "break", "do", "else", "elseif", "end", "false", "for", "function", "goto", "if", "in",
    "local", "nil", "not", "or", "repeat", "return", "then", "true", "until", "while",
];
/// The operators of more than one character, the longest first.
const OPERATORS: &[&str] = &["...", "..", "==", "~=", "<=", ">=", "//", "::", "<<", ">>"];

/// Returns the tokens of a source, with [`Kind::End`] as the last.
pub(super) fn tokens(source: &str) -> Vec<Token<'_>> {
    let mut lexer = Lexer { source, at: 0, line: 1, line_start: 0 };
    let mut tokens = Vec::new();
    loop {
        let token = lexer.next();
        tokens.push(token);
        if token.kind == Kind::End {
            return tokens;
        }
    }
}

struct Lexer<'a> {
    source: &'a str,
    at: usize,
    line: u32,
    line_start: usize,
}

impl<'a> Lexer<'a> {
    fn rest(&self) -> &'a str {
        &self.source[self.at..]
    }

    /// Moves forward to the offset `to`.
    fn advance_to(&mut self, to: usize) {
        for (index, _) in self.source[self.at..to].match_indices('\n') {
            self.line += 1;
            self.line_start = self.at + index + 1;
        }
        self.at = to;
    }

    fn skip_while(&mut self, skips: impl Fn(char) -> bool) -> &'a str {
        let rest = self.rest();
        let length = rest.find(|next| !skips(next)).unwrap_or(rest.len());
        self.advance_to(self.at + length);
        &rest[..length]
    }

    fn next(&mut self) -> Token<'a> {
        loop {
            self.skip_while(|next| next.is_ascii_whitespace() || next == '\x0b');
            if !self.rest().starts_with("--") {
                break;
            }
            self.advance_to(self.at + 2);
            if self.long_bracket().is_none() {
                self.skip_while(|next| next != '\n');
            }
        }
        let column = u32::try_from(self.at - self.line_start + 1).unwrap_or(u32::MAX);
        let line = self.line;
        Token { kind: self.kind(), line, column }
    }

    fn kind(&mut self) -> Kind<'a> {
        let rest = self.rest();
        let Some(first) = rest.chars().next() else { return Kind::End };
        if first.is_ascii_alphabetic() || first == '_' {
            let word = self.skip_while(|next| next.is_ascii_alphanumeric() || next == '_');
            return if KEYWORDS.contains(&word) { Kind::Word(word) } else { Kind::Name(word) };
        }
        let second = rest[first.len_utf8()..].chars().next();
        if first.is_ascii_digit()
            || first == '.' && second.is_some_and(|next| next.is_ascii_digit())
        {
            self.number();
            return Kind::Number;
        }
        if first == '"' || first == '\'' {
            return Kind::Text(self.quoted(first));
        }
        if first == '['
            && let Some(text) = self.long_bracket()
        {
            return Kind::Text(Some(text));
        }
        let length = OPERATORS
            .iter()
            .find(|operator| rest.starts_with(**operator))
            .map_or(first.len_utf8(), |operator| operator.len());
        self.advance_to(self.at + length);
        Kind::Word(&rest[..length])
    }

    fn number(&mut self) {
        let rest = self.rest().as_bytes();
        let is_hexadecimal = rest.len() > 1 && rest[1].eq_ignore_ascii_case(&b'x');
        let exponent = if is_hexadecimal { b'p' } else { b'e' };
        let mut length = 0;
        while let Some(&next) = rest.get(length) {
            let is_sign = matches!(next, b'+' | b'-')
                && length > 0
                && rest[length - 1].eq_ignore_ascii_case(&exponent);
            if !(next.is_ascii_alphanumeric() || next == b'.' || is_sign) {
                break;
            }
            length += 1;
        }
        self.advance_to(self.at + length);
    }

    /// Takes a string in quotes. Returns its text if it has no escapes.
    fn quoted(&mut self, quote: char) -> Option<&'a str> {
        let rest = self.rest();
        let (mut escaped, mut has_escapes) = (false, false);
        let end = rest[1..].find(|next| {
            if escaped {
                escaped = false;
                return false;
            }
            escaped = next == '\\';
            has_escapes |= escaped;
            next == quote
        });
        let end = end.map_or(rest.len(), |end| end + 1);
        self.advance_to(self.at + (end + 1).min(rest.len()));
        (!has_escapes).then(|| &rest[1..end])
    }

    /// Takes a long bracket, as in `[==[text]==]`, and returns its text. Returns `None` if there is
    /// none here.
    fn long_bracket(&mut self) -> Option<&'a str> {
        let rest = self.rest();
        let level = rest.strip_prefix('[')?.bytes().take_while(|&next| next == b'=').count();
        let text = rest[1 + level..].strip_prefix('[')?;
        let close = format!("]{}]", "=".repeat(level));
        let end = text.find(&close).unwrap_or(text.len());
        self.advance_to(self.at + (2 + level + end + close.len()).min(rest.len()));
        Some(text[..end].strip_prefix('\n').unwrap_or(&text[..end]))
    }
}
