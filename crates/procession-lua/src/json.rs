//! Conversion of values to JSON and back.

use serde_json::{Map, Number, Value as Json};

use crate::value::{VALUES_MAX, Value};

/// Encodes a value. A table is an array if its keys are 1 to n, in any order, and also if it is
/// empty. A table with strings as keys is an object.
pub(crate) fn encode(value: &Value) -> Result<String, String> {
    Ok(to_json(value)?.to_string())
}

fn text(bytes: &[u8]) -> Result<String, String> {
    String::from_utf8(bytes.to_vec()).map_err(|_| "a JSON string must be UTF-8".to_owned())
}

fn to_json(value: &Value) -> Result<Json, String> {
    Ok(match value {
        Value::Nil => Json::Null,
        Value::Boolean(boolean) => Json::Bool(*boolean),
        Value::Integer(integer) => Json::from(*integer),
        Value::Float(float) => Json::Number(
            Number::from_f64(*float).ok_or_else(|| format!("{float} is not a JSON number"))?,
        ),
        Value::String(bytes) => Json::String(text(bytes)?),
        Value::Pid(pid) => Json::String(pid.to_string()),
        Value::Socket(_) => return Err("a socket has no JSON form".to_owned()),
        Value::Table(entries)
            if entries.iter().all(|(key, _)| matches!(key, Value::Integer(_))) =>
        {
            let mut items = vec![Json::Null; entries.len()];
            for (key, value) in entries {
                let index =
                    if let Value::Integer(index) = key { index.checked_sub(1) } else { None };
                let item = index.and_then(|index| items.get_mut(usize::try_from(index).ok()?));
                *item.ok_or("a JSON array must have the keys 1 to n")? = to_json(value)?;
            }
            Json::Array(items)
        }
        Value::Table(entries) => {
            let mut object = Map::new();
            for (key, value) in entries {
                let Value::String(key) = key else {
                    return Err("the keys of a JSON object must be strings".to_owned());
                };
                object.insert(text(key)?, to_json(value)?);
            }
            Json::Object(object)
        }
    })
}

/// Returns the number of values in a text, or more than that if it is not JSON.
fn count(text: &[u8]) -> usize {
    let (mut count, mut is_string, mut is_escaped) = (1, false, false);
    for byte in text {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' => is_escaped = is_string,
            b'"' => is_string = !is_string,
            b',' | b':' | b'[' | b'{' if !is_string => count += 1,
            _ => {}
        }
    }
    count
}

/// Decodes a value. A text can be much smaller than its values, so their number is bounded.
pub(crate) fn decode(text: &[u8]) -> Result<Value, String> {
    if count(text) > VALUES_MAX {
        return Err(format!("this JSON has more than {VALUES_MAX} values"));
    }
    serde_json::from_slice(text)
        .map(from_json)
        .map_err(|error| format!("this is not JSON: {error}"))
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
