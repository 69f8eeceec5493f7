//! Values as JSON.

use serde_json::{Map, Number, Value as Json};

use crate::value::Value;

/// A table whose keys are 1 to n, in any order, is an array, also an empty one; one whose keys are text is an object.
pub(crate) fn encode(value: &Value) -> Result<String, String> {
    Ok(to_json(value)?.to_string())
}

fn text(bytes: &[u8]) -> Result<String, String> {
    String::from_utf8(bytes.to_vec()).map_err(|_| "JSON has no strings that are not UTF-8".to_owned())
}

fn to_json(value: &Value) -> Result<Json, String> {
    Ok(match value {
        Value::Nil => Json::Null,
        Value::Boolean(boolean) => Json::Bool(*boolean),
        Value::Integer(integer) => Json::from(*integer),
        Value::Float(float) => {
            Json::Number(Number::from_f64(*float).ok_or_else(|| format!("JSON has no number {float}"))?)
        }
        Value::String(bytes) => Json::String(text(bytes)?),
        Value::Pid(pid) => Json::String(pid.to_string()),
        Value::Socket(_) => return Err("JSON has no sockets".to_owned()),
        Value::Table(entries) if entries.iter().all(|(key, _)| matches!(key, Value::Integer(_))) => {
            let mut items = vec![Json::Null; entries.len()];
            for (key, value) in entries {
                let index = if let Value::Integer(index) = key { index.checked_sub(1) } else { None };
                let place = index.and_then(|index| items.get_mut(usize::try_from(index).ok()?));
                *place.ok_or("a table with gaps between its integer keys is no JSON array")? = to_json(value)?;
            }
            Json::Array(items)
        }
        Value::Table(entries) => {
            let mut object = Map::new();
            for (key, value) in entries {
                let Value::String(key) = key else { return Err("the keys of a JSON object are strings".to_owned()) };
                object.insert(text(key)?, to_json(value)?);
            }
            Json::Object(object)
        }
    })
}

pub(crate) fn decode(text: &[u8]) -> Result<Value, String> {
    serde_json::from_slice(text).map(of_json).map_err(|error| format!("this is not JSON: {error}"))
}

/// `null` is `nil`, so that an entry with it is not there.
fn of_json(json: Json) -> Value {
    match json {
        Json::Null => Value::Nil,
        Json::Bool(boolean) => Value::Boolean(boolean),
        Json::Number(number) => {
            number.as_i64().map_or_else(|| Value::Float(number.as_f64().unwrap_or(f64::NAN)), Value::Integer)
        }
        Json::String(text) => Value::string(text),
        Json::Array(items) => {
            let kept = (1..).zip(items).filter(|(_, item)| !item.is_null());
            Value::Table(kept.map(|(index, item)| (Value::Integer(index), of_json(item))).collect())
        }
        Json::Object(object) => {
            let kept = object.into_iter().filter(|(_, item)| !item.is_null());
            Value::Table(kept.map(|(key, item)| (Value::string(key), of_json(item))).collect())
        }
    }
}
