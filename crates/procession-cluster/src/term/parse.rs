//! Terms in the notation of Erlang, as [`Term`]'s `Display` writes them.

use std::str::FromStr;

use crate::term::{Atom, BigInteger, Bits, DEPTH_MAX, ParseTermError, Term};

/// Reads a term in the notation of Erlang: numbers, atoms, strings, binaries, bits, lists, tuples,
/// maps and `fun module:name/arity`. A PID, a reference, a port and any other function have no
/// notation that means them.
///
/// ```
/// use procession_cluster::Term;
///
/// let term: Term = "{error, enoent}".parse()?;
/// assert_eq!(term, Term::tuple([Term::atom("error"), Term::atom("enoent")]));
/// assert_eq!("{error, ".parse::<Term>().unwrap_err().at(), 8);
/// # Ok::<(), procession_cluster::term::ParseTermError>(())
/// ```
impl FromStr for Term {
    type Err = ParseTermError;

    fn from_str(text: &str) -> Result<Self, ParseTermError> {
        let mut parser = Parser { text, at: 0, depth: 0 };
        let term = parser.term();
        parser.skip_spaces();
        match term {
            Some(term) if parser.at == text.len() => Ok(term),
            _ => Err(ParseTermError { at: parser.at }),
        }
    }
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
    depth: usize,
}

impl<'a> Parser<'a> {
    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    fn skip_spaces(&mut self) {
        self.at = self.text.len() - self.rest().trim_start().len();
    }

    /// Takes a sign, and the spaces in front of it.
    fn take(&mut self, sign: &str) -> bool {
        self.skip_spaces();
        let is_there = self.rest().starts_with(sign);
        self.at += if is_there { sign.len() } else { 0 };
        is_there
    }

    fn expect(&mut self, sign: &str) -> Option<()> {
        self.take(sign).then_some(())
    }

    fn take_while(&mut self, is_wanted: impl Fn(char) -> bool) -> &'a str {
        let rest = self.rest();
        let end = rest.find(|char| !is_wanted(char)).unwrap_or(rest.len());
        self.at += end;
        &rest[..end]
    }

    fn next_char(&mut self) -> Option<char> {
        let char = self.rest().chars().next()?;
        self.at += char.len_utf8();
        Some(char)
    }

    fn term(&mut self) -> Option<Term> {
        self.skip_spaces();
        if self.depth == DEPTH_MAX {
            return None;
        }
        self.depth += 1;
        let term = match self.rest().as_bytes() {
            [b'{', ..] => self.tuple(),
            [b'[', ..] => self.list(),
            [b'#', ..] => self.map(),
            [b'<', ..] => self.binary(),
            [b'"', ..] => {
                let text = self.quoted('"')?;
                Some(Term::list(text.chars().map(|char| Term::from(u32::from(char)))))
            }
            [b'-' | b'0'..=b'9', ..] => self.number(),
            _ => self.atom_or_fun(),
        };
        self.depth -= 1;
        term
    }

    /// Reads terms with commas between them, up to a sign.
    fn terms(&mut self, end: &str) -> Option<Vec<Term>> {
        let mut terms = Vec::new();
        if self.take(end) {
            return Some(terms);
        }
        loop {
            terms.push(self.term()?);
            if self.take(end) {
                return Some(terms);
            }
            self.expect(",")?;
        }
    }

    fn tuple(&mut self) -> Option<Term> {
        self.expect("{")?;
        self.terms("}").map(Term::Tuple)
    }

    fn list(&mut self) -> Option<Term> {
        self.expect("[")?;
        let mut items = Vec::new();
        if self.take("]") {
            return Some(Term::List(items));
        }
        loop {
            items.push(self.term()?);
            if self.take("]") {
                return Some(Term::List(items));
            }
            if self.take("|") {
                let tail = self.term()?;
                self.expect("]")?;
                return Some(Term::Improper(items, Box::new(tail)));
            }
            self.expect(",")?;
        }
    }

    fn map(&mut self) -> Option<Term> {
        self.expect("#{")?;
        let mut pairs = Vec::new();
        if self.take("}") {
            return Some(Term::Map(pairs));
        }
        loop {
            let key = self.term()?;
            self.expect("=>")?;
            pairs.push((key, self.term()?));
            if self.take("}") {
                return Some(Term::Map(pairs));
            }
            self.expect(",")?;
        }
    }

    fn binary(&mut self) -> Option<Term> {
        self.expect("<<")?;
        self.skip_spaces();
        if self.rest().starts_with('"') {
            let text = self.quoted('"')?;
            self.expect(">>")?;
            return Some(Term::from(text));
        }
        let mut bytes = Vec::new();
        if self.take(">>") {
            return Some(Term::from(bytes));
        }
        loop {
            self.skip_spaces();
            let value: u8 = self.take_while(|char| char.is_ascii_digit()).parse().ok()?;
            if self.take(":") {
                self.skip_spaces();
                let count: u8 = self.take_while(|char| char.is_ascii_digit()).parse().ok()?;
                self.expect(">>")?;
                if !(1..8).contains(&count) || value >> count != 0 {
                    return None;
                }
                bytes.push(value << (8 - count));
                return Bits::new(bytes, count).map(Term::Bits);
            }
            bytes.push(value);
            if self.take(">>") {
                return Some(Term::from(bytes));
            }
            self.expect(",")?;
        }
    }

    fn number(&mut self) -> Option<Term> {
        let start = self.at;
        let is_negative = self.take("-");
        let digits = self.take_while(|char| char.is_ascii_digit());
        if digits == "16" && self.rest().starts_with('#') {
            self.at += 1;
            let digits = self.take_while(|char| char.is_ascii_hexdigit());
            return hexadecimal(is_negative, digits);
        }
        let is_float =
            |rest: &str| matches!(rest.as_bytes(), [b'.', b'0'..=b'9', ..] | [b'e' | b'E', ..]);
        if !is_float(self.rest()) {
            return self.text[start..self.at].parse().ok().map(Term::Integer);
        }
        self.take_while(|char| {
            char.is_ascii_digit() || matches!(char, '.' | 'e' | 'E' | '-' | '+')
        });
        let value: f64 = self.text[start..self.at].parse().ok()?;
        value.is_finite().then_some(Term::Float(value))
    }

    fn atom(&mut self) -> Option<Atom> {
        self.skip_spaces();
        let text = match self.rest().chars().next()? {
            '\'' => self.quoted('\'')?,
            first if first.is_ascii_lowercase() => {
                let is_part =
                    |char: char| char.is_ascii_alphanumeric() || matches!(char, '_' | '@');
                self.take_while(is_part).to_owned()
            }
            _ => return None,
        };
        Atom::new(text)
    }

    fn atom_or_fun(&mut self) -> Option<Term> {
        let is_name = |char: char| char == '\'' || char.is_ascii_lowercase();
        let rest = self.rest().strip_prefix("fun ");
        if !rest.is_some_and(|rest| rest.trim_start().starts_with(is_name)) {
            return self.atom().map(Term::Atom);
        }
        self.at += "fun".len();
        let module = self.atom()?;
        self.expect(":")?;
        let name = self.atom()?;
        self.expect("/")?;
        let arity = self.take_while(|char| char.is_ascii_digit()).parse().ok()?;
        Some(Term::Export(Box::new((module, name, arity))))
    }

    /// Reads a text between two signs, with the escapes that `Display` writes.
    fn quoted(&mut self, sign: char) -> Option<String> {
        self.next_char()?;
        let mut text = String::new();
        loop {
            match self.next_char()? {
                char if char == sign => return Some(text),
                '\\' => text.push(self.escape()?),
                char => text.push(char),
            }
        }
    }

    fn escape(&mut self) -> Option<char> {
        Some(match self.next_char()? {
            'n' => '\n',
            'r' => '\r',
            't' => '\t',
            '0' => '\0',
            'u' => {
                self.at += usize::from(self.rest().starts_with('{'));
                let digits = self.take_while(|char| char.is_ascii_hexdigit());
                let char = char::from_u32(u32::from_str_radix(digits, 16).ok()?)?;
                self.next_char().filter(|end| *end == '}')?;
                char
            }
            other @ ('\'' | '"' | '\\') => other,
            _ => return None,
        })
    }
}

/// Reads an integer of any length.
fn hexadecimal(is_negative: bool, digits: &str) -> Option<Term> {
    if digits.is_empty() {
        return None;
    }
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    let magnitude = digits.as_bytes().rchunks(2).map(byte).collect::<Option<Vec<_>>>()?;
    let value = BigInteger::new(is_negative, magnitude);
    Some(value.as_i64().map_or_else(|| Term::Big(Box::new(value)), Term::Integer))
}
