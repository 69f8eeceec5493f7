//! Conversion of values to JSON and back.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, Read, Write};

use serde_core::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_core::ser::{Error, Serialize, Serializer};

use crate::value::{DEPTH_MAX, Value};
use crate::watch::{VALUE_WORK, Watch};

/// The bytes that a decoded value takes in addition to a string: as an entry of a list, with the
/// list's spare capacity.
const DECODED_BYTES: usize = 4 * size_of::<Value>();
/// The bytes of a string that are escaped at a time.
const ESCAPED_MAX: usize = 16 * 1024;
/// The length of a text from which on it is decoded in pieces, with a check of the watch before
/// each. That is slower, but a single string of the text may have all of its bytes.
const LONG: usize = 1 << 20;

/// Encodes a value in at most `most` bytes. A table is an array if its keys are 1 to n, in any
/// order, or if it is empty. A table with strings as keys is an object.
pub(crate) fn encode(value: &Value, most: usize, watch: Watch) -> Result<String, String> {
    let watch = RefCell::new(watch);
    let mut encoded = Encoded { text: Vec::new(), most, watch: &watch };
    serde_json::to_writer(&mut encoded, &Encoding(value, &watch))
        .map_err(|error| error.to_string())?;
    String::from_utf8(encoded.text).map_err(|error| error.to_string())
}

/// The text of a value, as far as it is encoded.
struct Encoded<'a> {
    text: Vec<u8>,
    most: usize,
    watch: &'a RefCell<Watch>,
}

impl Write for Encoded<'_> {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        if text.len() > self.most - self.text.len() {
            let most = self.most;
            let cause = format!("JSON of more than {most} bytes, the memory that is left");
            return Err(io::Error::other(cause));
        }
        self.watch.borrow_mut().count(text.len()).map_err(io::Error::other)?;
        self.text.extend(text);
        Ok(text.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A value that is written as JSON, and the watch that counts the work.
struct Encoding<'a>(&'a Value, &'a RefCell<Watch>);

impl Encoding<'_> {
    fn array<S: Serializer>(&self, json: S, entries: &[(Value, Value)]) -> Result<S::Ok, S::Error> {
        let mut items = vec![&Value::Nil; entries.len()];
        for (key, value) in entries {
            let index = if let Value::Integer(index) = key { index.checked_sub(1) } else { None };
            let item = index.and_then(|index| items.get_mut(usize::try_from(index).ok()?));
            *item.ok_or_else(|| S::Error::custom("a JSON array must have the keys 1 to n"))? =
                value;
        }
        json.collect_seq(items.into_iter().map(|item| Encoding(item, self.1)))
    }

    fn object<S: Serializer>(
        &self,
        json: S,
        entries: &[(Value, Value)],
    ) -> Result<S::Ok, S::Error> {
        let mut members = BTreeMap::new();
        for (key, value) in entries {
            let Value::String(key) = key else {
                return Err(S::Error::custom("the keys of a JSON object must be strings"));
            };
            // An insert compares some dozen keys.
            self.1.borrow_mut().count(VALUE_WORK).map_err(S::Error::custom)?;
            members.insert(JsonText::new(key)?, value);
        }
        json.collect_map(members.into_iter().map(|(key, value)| (key, Encoding(value, self.1))))
    }
}

impl Serialize for Encoding<'_> {
    fn serialize<S: Serializer>(&self, json: S) -> Result<S::Ok, S::Error> {
        self.1.borrow_mut().count(VALUE_WORK).map_err(S::Error::custom)?;
        match self.0 {
            Value::Nil => json.serialize_unit(),
            Value::Boolean(boolean) => json.serialize_bool(*boolean),
            Value::Integer(integer) => json.serialize_i64(*integer),
            Value::Float(float) if float.is_finite() => json.serialize_f64(*float),
            Value::Float(float) => {
                Err(S::Error::custom(format_args!("{float} is not a JSON number")))
            }
            Value::String(bytes) => JsonText::new::<S::Error>(bytes)?.serialize(json),
            Value::Pid(pid) => json.collect_str(pid),
            Value::Socket(_) => Err(S::Error::custom("a socket has no JSON form")),
            Value::Table(entries)
                if entries.iter().all(|(key, _)| matches!(key, Value::Integer(_))) =>
            {
                self.array(json, entries)
            }
            Value::Table(entries) => self.object(json, entries),
            #[cfg(feature = "cluster")]
            Value::Tuple(items) => {
                json.collect_seq(items.iter().map(|item| Encoding(item, self.1)))
            }
            #[cfg(feature = "cluster")]
            Value::Map(entries) => self.object(json, entries),
            #[cfg(feature = "cluster")]
            Value::Term(procession_cluster::Term::Atom(atom)) => match atom.as_str() {
                "nil" | "undefined" => json.serialize_unit(),
                text => JsonText(text).serialize(json),
            },
            #[cfg(feature = "cluster")]
            Value::Term(procession_cluster::Term::Float(float)) => {
                Encoding(&Value::Float(*float), self.1).serialize(json)
            }
            // Without the text of the term, which may be long.
            #[cfg(feature = "cluster")]
            Value::Term(_) => Err(S::Error::custom(format_args!(
                "a value of the kind '{}' has no JSON form",
                crate::cluster::kind_of(self.0)
            ))),
            #[cfg(feature = "cluster")]
            Value::RemoteCall(_) => Err(S::Error::custom("a call has no JSON form")),
        }
    }
}

/// A string, which is escaped in pieces, with a check of the watch after each.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct JsonText<'a>(&'a str);

impl<'a> JsonText<'a> {
    fn new<E: Error>(bytes: &'a [u8]) -> Result<Self, E> {
        let text = std::str::from_utf8(bytes);
        text.map(Self).map_err(|_| E::custom("a JSON string must be UTF-8"))
    }
}

impl fmt::Display for JsonText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = self.0;
        while !text.is_empty() {
            let mut end = text.len().min(ESCAPED_MAX);
            while !text.is_char_boundary(end) {
                end -= 1;
            }
            let (piece, rest) = text.split_at(end);
            f.write_str(piece)?;
            text = rest;
        }
        Ok(())
    }
}

impl Serialize for JsonText<'_> {
    fn serialize<S: Serializer>(&self, json: S) -> Result<S::Ok, S::Error> {
        json.collect_str(self)
    }
}

/// Decodes a value that takes at most about `most` bytes.
pub(crate) fn decode(text: &[u8], most: usize, watch: Watch) -> Result<Value, String> {
    let mut decoder =
        Decoder { most, left: most, levels: DEPTH_MAX, watch: watch.clone(), refusal: None };
    let decoded = if text.len() < LONG {
        decoder.run(&mut serde_json::Deserializer::from_slice(text))
    } else {
        let pieces = Pieces { text, watch };
        decoder.run(&mut serde_json::Deserializer::from_reader(pieces))
    };
    decoded.map_err(|error| match decoder.refusal {
        Some(refusal) => refusal,
        None => format!("this is not JSON: {error}"),
    })
}

/// Creates values from JSON. `null` becomes `nil`, so an entry with that value does not exist.
struct Decoder {
    /// The bytes that the result may take, and how many are left.
    most: usize,
    left: usize,
    /// The number of levels that the result may still have.
    levels: usize,
    watch: Watch,
    /// The cause of an error that is not one of the text.
    refusal: Option<String>,
}

impl Decoder {
    fn run<'de, R: serde_json::de::Read<'de>>(
        &mut self,
        json: &mut serde_json::Deserializer<R>,
    ) -> serde_json::Result<Value> {
        let value = DeserializeSeed::deserialize(&mut *self, &mut *json)?;
        json.end()?;
        Ok(value)
    }

    fn refuse<E: serde_core::de::Error>(&mut self, cause: impl Into<String>) -> E {
        let cause = cause.into();
        let error = E::custom(&cause);
        self.refusal = Some(cause);
        error
    }

    /// Charges for a value with a string of `bytes`.
    fn charge<E: serde_core::de::Error>(&mut self, bytes: usize) -> Result<(), E> {
        if let Err(terminated) = self.watch.count(VALUE_WORK + bytes) {
            return Err(self.refuse(terminated));
        }
        let Some(left) = self.left.checked_sub(DECODED_BYTES + bytes) else {
            let most = self.most;
            return Err(self.refuse(format!(
                "the value of this JSON needs more than {most} bytes, the memory that is left"
            )));
        };
        self.left = left;
        Ok(())
    }

    /// Enters an array or an object. A program could not copy a value with more levels.
    fn enter<E: serde_core::de::Error>(&mut self) -> Result<(), E> {
        match self.levels.checked_sub(1) {
            Some(left) => self.levels = left,
            None => {
                let cause = format!("this JSON is nested more than {DEPTH_MAX} levels deep");
                return Err(self.refuse(cause));
            }
        }
        Ok(())
    }
}

impl<'de> DeserializeSeed<'de> for &mut Decoder {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<Value, D::Error> {
        self.charge(0)?;
        json.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for &mut Decoder {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Nil)
    }

    fn visit_bool<E>(self, boolean: bool) -> Result<Value, E> {
        Ok(Value::Boolean(boolean))
    }

    fn visit_i64<E>(self, integer: i64) -> Result<Value, E> {
        Ok(Value::Integer(integer))
    }

    fn visit_u64<E>(self, integer: u64) -> Result<Value, E> {
        Ok(i64::try_from(integer).map_or(Value::Float(integer as f64), Value::Integer))
    }

    fn visit_f64<E>(self, float: f64) -> Result<Value, E> {
        Ok(Value::Float(float))
    }

    fn visit_str<E: serde_core::de::Error>(self, text: &str) -> Result<Value, E> {
        self.charge(text.len())?;
        Ok(Value::string(text))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        self.enter()?;
        let mut entries = Vec::new();
        let mut index = 0;
        while let Some(item) = items.next_element_seed(&mut *self)? {
            index += 1;
            if item != Value::Nil {
                entries.push((Value::Integer(index), item));
            }
        }
        self.levels += 1;
        Ok(Value::Table(entries))
    }

    /// The last of several members of a name counts, even if it is `null`.
    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Value, A::Error> {
        self.enter()?;
        let mut entries = Vec::new();
        while let Some(name) = members.next_key_seed(&mut *self)? {
            entries.push((name, members.next_value_seed(&mut *self)?));
        }
        self.levels += 1;
        Ok(Value::Table(entries))
    }
}

/// The bytes of a text. Their reader finds an error once the process is terminated.
struct Pieces<'a> {
    text: &'a [u8],
    watch: Watch,
}

impl Read for Pieces<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.watch.count(buffer.len()).map_err(io::Error::other)?;
        self.text.read(buffer)
    }
}

#[cfg(test)]
mod tests {
    use super::{LONG, decode, encode};
    use crate::value::{self, DEPTH_MAX, Value};
    use crate::watch::{Terminated, Watch};

    const MOST: usize = 64 << 20;

    #[test]
    fn a_long_text_is_decoded_like_a_short_one() {
        let text =
            br#" {"a":[1,-2.5e3,null,"\u00e9\n",{}],"b":null,"a":[true,18446744073709551615]} "#;
        let short = decode(text, MOST, Watch::new());
        let long = [text, " ".repeat(LONG).as_bytes()].concat();
        assert_eq!(short, decode(&long, MOST, Watch::new()));
        let encoded = encode(&short.expect("it is JSON"), MOST, Watch::new());
        assert!(encoded.expect("it has a form").contains("[true,1.8446744073709552e"));
        let wrong = [&long, &b"x"[..]].concat();
        for text in [&b"[1,]"[..], b"[1] 2", b"{\"a\"}", b"", &wrong] {
            let cause = decode(text, MOST, Watch::new()).expect_err("it is none");
            assert!(cause.starts_with("this is not JSON: "), "{cause}");
        }
    }

    /// A program could do nothing with a deeper value: a copy refuses it.
    #[test]
    fn as_many_levels_are_decoded_as_a_copy_may_have() {
        for (open, close) in [("[", "]"), ("{\"a\":", "}")] {
            let nested = |levels: usize| {
                format!("[0,{}1{}]", open.repeat(levels - 1), close.repeat(levels - 1))
            };
            let deepest = decode(nested(DEPTH_MAX).as_bytes(), MOST, Watch::new());
            let lua = mlua::Lua::new();
            let given = value::give(&lua, &deepest.expect("it is not too deep"));
            value::take(&given.expect("there is memory"), MOST).expect("it can be copied");
            let cause = decode(nested(DEPTH_MAX + 1).as_bytes(), MOST, Watch::new());
            assert!(cause.expect_err("it is too deep").contains("nested more than 64 levels"));
        }
        // Only nested levels add up.
        let wide = format!("[{}[]]", "[],{},".repeat(DEPTH_MAX));
        assert!(decode(wide.as_bytes(), MOST, Watch::new()).is_ok());
    }

    #[cfg(feature = "cluster")]
    #[test]
    fn the_refusal_of_a_term_is_short() {
        use procession_cluster::Term;
        let term = Term::Improper(vec![1.into(); 1 << 20], Box::new(2.into()));
        let cause = encode(&Value::Term(term), MOST, Watch::over()).expect_err("it has no form");
        assert_eq!(cause, "a value of the kind 'improper list' has no JSON form");
    }

    #[test]
    fn escapes_are_the_same_wherever_a_string_is_cut() {
        let text = "\u{e9}\n\"x".repeat(20_000);
        let encoded = encode(&Value::string(&text), MOST, Watch::new());
        assert_eq!(encoded.as_deref(), Ok(&*serde_json::Value::from(text).to_string()));
    }

    /// Each of these would take a second or more in a build without optimizations.
    #[test]
    fn both_directions_end_soon_once_the_process_is_terminated() {
        let over = Err(Terminated.to_string());
        let names = (0..1 << 16).map(|n| (Value::string(n.to_string()), Value::Boolean(true)));
        for value in [
            Value::string("\n".repeat(8 << 20)),
            Value::list(vec![1; 1 << 16]),
            Value::Table(names.collect()),
        ] {
            assert_eq!(encode(&value, MOST, Watch::over()), over);
        }
        for text in [
            format!("[{}1]", "1,".repeat(1 << 16)),
            format!("\"{}\"", "\\n".repeat(8 << 20)),
            " ".repeat(8 << 20),
        ] {
            let cause = decode(text.as_bytes(), MOST, Watch::over()).expect_err("it is over");
            assert!(cause.contains("the process is terminated"), "{cause}");
        }
    }
}
