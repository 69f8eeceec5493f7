//! Conversion of values to JSON and back.

use serde_json::Value as Json;

use crate::value::Value;

/// The bytes that a value in JSON takes while it is decoded: in serde's tree, in a [`Value`], and
/// for the spare capacity of a list.
const DECODED_BYTES: usize = 4 * (size_of::<Json>() + size_of::<Value>());

/// Encodes a value in at most `most` bytes. A table is an array if its keys are 1 to n, in any
/// order, and also if it is empty. A table with strings as keys is an object.
pub(crate) fn encode(value: &Value, most: usize) -> Result<String, String> {
    let mut encoder = Encoder { text: String::new(), most };
    encoder.value(value)?;
    Ok(encoder.text)
}

struct Encoder {
    text: String,
    most: usize,
}

fn text(bytes: &[u8]) -> Result<&str, String> {
    std::str::from_utf8(bytes).map_err(|_| "a JSON string must be UTF-8".to_owned())
}

impl Encoder {
    fn push(&mut self, text: &str) -> Result<(), String> {
        if text.len() > self.most - self.text.len() {
            let most = self.most;
            return Err(format!("JSON of more than {most} bytes, the memory that is left"));
        }
        self.text.push_str(text);
        Ok(())
    }

    fn string(&mut self, text: &str) -> Result<(), String> {
        // An escape has at most six bytes.
        if text.len() > self.most - self.text.len() {
            return self.push(text);
        }
        self.push(&Json::from(text).to_string())
    }

    fn value(&mut self, value: &Value) -> Result<(), String> {
        match value {
            Value::Nil => self.push("null"),
            Value::Boolean(boolean) => self.push(if *boolean { "true" } else { "false" }),
            Value::Integer(integer) => self.push(&integer.to_string()),
            Value::Float(float) => match serde_json::Number::from_f64(*float) {
                Some(number) => self.push(&number.to_string()),
                None => Err(format!("{float} is not a JSON number")),
            },
            Value::String(bytes) => self.string(text(bytes)?),
            Value::Pid(pid) => self.string(&pid.to_string()),
            Value::Socket(_) => Err("a socket has no JSON form".to_owned()),
            Value::Table(entries)
                if entries.iter().all(|(key, _)| matches!(key, Value::Integer(_))) =>
            {
                self.array(entries)
            }
            Value::Table(entries) => self.object(entries),
            #[cfg(feature = "cluster")]
            Value::Tuple(items) => {
                let entries: Vec<_> =
                    (1..).map(Value::Integer).zip(items.iter().cloned()).collect();
                self.array(&entries)
            }
            #[cfg(feature = "cluster")]
            Value::Map(entries) => self.object(entries),
            #[cfg(feature = "cluster")]
            Value::Term(procession_cluster::Term::Atom(atom)) => match atom.as_str() {
                "nil" | "undefined" => self.push("null"),
                text => self.string(text),
            },
            #[cfg(feature = "cluster")]
            Value::Term(term) => Err(format!("{term} has no JSON form")),
            #[cfg(feature = "cluster")]
            Value::RemoteCall(_) => Err("a call has no JSON form".to_owned()),
        }
    }

    fn array(&mut self, entries: &[(Value, Value)]) -> Result<(), String> {
        let mut items = vec![None; entries.len()];
        for (key, value) in entries {
            let index = if let Value::Integer(index) = key { index.checked_sub(1) } else { None };
            let item = index.and_then(|index| items.get_mut(usize::try_from(index).ok()?));
            *item.ok_or("a JSON array must have the keys 1 to n")? = Some(value);
        }
        self.push("[")?;
        for (index, item) in items.into_iter().enumerate() {
            if index > 0 {
                self.push(",")?;
            }
            self.value(item.unwrap_or(&Value::Nil))?;
        }
        self.push("]")
    }

    fn object(&mut self, entries: &[(Value, Value)]) -> Result<(), String> {
        let mut members = Vec::with_capacity(entries.len());
        for (key, value) in entries {
            let Value::String(key) = key else {
                return Err("the keys of a JSON object must be strings".to_owned());
            };
            members.push((text(key)?, value));
        }
        members.sort_unstable_by_key(|(key, _)| *key);
        self.push("{")?;
        for (index, (key, value)) in members.into_iter().enumerate() {
            if index > 0 {
                self.push(",")?;
            }
            self.string(key)?;
            self.push(":")?;
            self.value(value)?;
        }
        self.push("}")
    }
}

/// Decodes a value that takes at most about `most` bytes.
pub(crate) fn decode(text: &[u8], most: usize) -> Result<Value, String> {
    let needed = text.len().saturating_mul(2).saturating_add(values_in(text) * DECODED_BYTES);
    if needed > most {
        return Err(format!(
            "this JSON may need {needed} bytes of memory, more than the {most} that are left"
        ));
    }
    serde_json::from_slice(text)
        .map(from_json)
        .map_err(|error| format!("this is not JSON: {error}"))
}

/// Returns an upper bound of the number of values in a text.
fn values_in(text: &[u8]) -> usize {
    let (mut count, mut in_string, mut escaped) = (1, false, false);
    for &byte in text {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = in_string,
            b'"' => in_string = !in_string,
            b',' | b'[' | b'{' | b':' if !in_string => count += 1,
            _ => {}
        }
    }
    count
}

/// Converts from JSON. `null` becomes `nil`, so an entry with that value does not exist.
fn from_json(json: Json) -> Value {
    match json {
        Json::Null => Value::Nil,
        Json::Bool(boolean) => Value::Boolean(boolean),
        Json::Number(number) => number
            .as_i64()
            .map_or_else(|| Value::Float(number.as_f64().unwrap_or(f64::NAN)), Value::Integer),
        Json::String(text) => Value::string(text),
        Json::Array(items) => {
            let kept = (1..).zip(items).filter(|(_, item)| !item.is_null());
            Value::Table(
                kept.map(|(index, item)| (Value::Integer(index), from_json(item))).collect(),
            )
        }
        Json::Object(object) => {
            let kept = object.into_iter().filter(|(_, item)| !item.is_null());
            Value::Table(kept.map(|(key, item)| (Value::string(key), from_json(item))).collect())
        }
    }
}
