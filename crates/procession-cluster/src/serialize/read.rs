//! Terms as values.

use serde_core::de::value::{MapDeserializer, SeqDeserializer};
use serde_core::de::{
    DeserializeSeed, Deserializer, EnumAccess, Error as _, IntoDeserializer, Unexpected,
    VariantAccess, Visitor,
};
use serde_core::forward_to_deserialize_any;

use crate::serialize::error::ConvertError;
use crate::serialize::terms;
use crate::term::{BigInteger, Term};

/// Reads one term.
#[derive(Debug)]
pub(super) struct Reader(pub(super) Term);

impl IntoDeserializer<'_, ConvertError> for Reader {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

fn unexpected(term: &Term, expected: &dyn serde_core::de::Expected) -> ConvertError {
    let text = crate::reason::bounded(term);
    ConvertError::invalid_type(Unexpected::Other(&text), expected)
}

fn items<'de, V: Visitor<'de>>(
    items: impl IntoIterator<Item = Term>,
    visitor: V,
) -> Result<V::Value, ConvertError> {
    let mut access = SeqDeserializer::new(items.into_iter().map(Reader));
    let value = visitor.visit_seq(&mut access)?;
    access.end()?;
    Ok(value)
}

fn map<'de, V: Visitor<'de>>(
    pairs: Vec<(Term, Term)>,
    visitor: V,
) -> Result<V::Value, ConvertError> {
    let pairs = pairs.into_iter().map(|(key, value)| (Reader(key), Reader(value)));
    let mut access = MapDeserializer::new(pairs);
    let value = visitor.visit_map(&mut access)?;
    access.end()?;
    Ok(value)
}

fn big<'de, V: Visitor<'de>>(value: &BigInteger, visitor: V) -> Result<V::Value, ConvertError> {
    let mut bytes = [0; 16];
    let magnitude = value.magnitude();
    let Some(room) = bytes.get_mut(..magnitude.len()) else {
        return Err(ConvertError::custom("an integer has more than 128 bits"));
    };
    room.copy_from_slice(magnitude);
    let magnitude = u128::from_le_bytes(bytes);
    if !value.is_negative() {
        return match u64::try_from(magnitude) {
            Ok(small) => visitor.visit_u64(small),
            Err(_) => visitor.visit_u128(magnitude),
        };
    }
    match 0_i128.checked_sub_unsigned(magnitude) {
        Some(value) => visitor.visit_i128(value),
        None => Err(ConvertError::custom("an integer has more than 128 bits")),
    }
}

/// Returns the text that a term is read as. Atoms and strings of Erlang also have texts.
fn text(term: &Term) -> Option<String> {
    term.to_text()
}

impl<'de> Deserializer<'de> for Reader {
    type Error = ConvertError;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ConvertError> {
        match self.0 {
            Term::Atom(atom) => match atom.as_str() {
                "true" => visitor.visit_bool(true),
                "false" => visitor.visit_bool(false),
                "undefined" | "nil" => visitor.visit_none(),
                text => visitor.visit_str(text),
            },
            Term::Integer(value) => visitor.visit_i64(value),
            Term::Big(value) => big(&value, visitor),
            Term::Float(value) => visitor.visit_f64(value),
            Term::Binary(bytes) => match std::str::from_utf8(&bytes) {
                Ok(text) => visitor.visit_str(text),
                Err(_) => visitor.visit_bytes(&bytes),
            },
            Term::List(list) | Term::Tuple(list) => items(list, visitor),
            Term::Map(pairs) => map(pairs, visitor),
            other => Err(unexpected(&other, &visitor)),
        }
    }

    fn deserialize_f32<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ConvertError> {
        self.deserialize_f64(visitor)
    }

    fn deserialize_f64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ConvertError> {
        match self.0 {
            Term::Float(value) => visitor.visit_f64(value),
            Term::Integer(value) => visitor.visit_i64(value),
            other => Err(unexpected(&other, &visitor)),
        }
    }

    fn deserialize_char<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ConvertError> {
        self.deserialize_str(visitor)
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ConvertError> {
        match text(&self.0) {
            Some(text) => visitor.visit_string(text),
            None => Err(unexpected(&self.0, &visitor)),
        }
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ConvertError> {
        self.deserialize_str(visitor)
    }

    fn deserialize_identifier<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ConvertError> {
        self.deserialize_str(visitor)
    }

    fn deserialize_bytes<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ConvertError> {
        self.deserialize_byte_buf(visitor)
    }

    fn deserialize_byte_buf<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ConvertError> {
        let byte = |item: &Term| u8::try_from(item.as_integer()?).ok();
        let bytes = match &self.0 {
            Term::Binary(bytes) => Some(bytes.to_vec()),
            Term::List(items) => items.iter().map(byte).collect(),
            _ => None,
        };
        match bytes {
            Some(bytes) => visitor.visit_byte_buf(bytes),
            None => Err(unexpected(&self.0, &visitor)),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ConvertError> {
        match self.0.is_atom("undefined") || self.0.is_atom("nil") {
            true => visitor.visit_none(),
            false => visitor.visit_some(self),
        }
    }

    fn deserialize_unit<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ConvertError> {
        match &self.0 {
            term if term.is_atom("ok") => visitor.visit_unit(),
            Term::Tuple(items) if items.is_empty() => visitor.visit_unit(),
            other => Err(unexpected(other, &visitor)),
        }
    }

    fn deserialize_unit_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, ConvertError> {
        self.deserialize_unit(visitor)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, ConvertError> {
        if name == terms::NAME {
            return visitor.visit_bytes(&terms::encode(&self.0).map_err(ConvertError::custom)?);
        }
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ConvertError> {
        match self.0 {
            Term::List(list) | Term::Tuple(list) => items(list, visitor),
            // One at a time, because a term takes 32 times the memory of a byte.
            Term::Binary(bytes) => items(bytes.iter().map(|&byte| Term::from(byte)), visitor),
            other => Err(unexpected(&other, &visitor)),
        }
    }

    fn deserialize_tuple<V: Visitor<'de>>(
        self,
        _: usize,
        visitor: V,
    ) -> Result<V::Value, ConvertError> {
        self.deserialize_seq(visitor)
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: usize,
        visitor: V,
    ) -> Result<V::Value, ConvertError> {
        self.deserialize_seq(visitor)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, ConvertError> {
        let (variant, rest) = match self.0 {
            Term::Tuple(mut items) if !items.is_empty() => {
                let rest = items.split_off(1);
                (items.remove(0), Some(rest))
            }
            other => (other, None),
        };
        let Some(word) = text(&variant) else { return Err(unexpected(&variant, &visitor)) };
        let word = match (name, word.as_str()) {
            ("Result", "ok") => "Ok".to_owned(),
            ("Result", "error") => "Err".to_owned(),
            _ => word,
        };
        visitor.visit_enum(Variant { word, rest })
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 map struct ignored_any
    }
}

/// A variant of an enum: its name, and what is behind it in a tuple.
struct Variant {
    word: String,
    rest: Option<Vec<Term>>,
}

impl<'de> EnumAccess<'de> for Variant {
    type Error = ConvertError;
    type Variant = Self;

    fn variant_seed<S: DeserializeSeed<'de>>(
        self,
        seed: S,
    ) -> Result<(S::Value, Self), ConvertError> {
        let word: serde_core::de::value::StrDeserializer<'_, ConvertError> =
            self.word.as_str().into_deserializer();
        Ok((seed.deserialize(word)?, self))
    }
}

impl Variant {
    /// Returns the only term behind the name.
    fn only(self) -> Result<Term, ConvertError> {
        let count = self.rest.as_ref().map_or(0, Vec::len);
        match (self.word.as_str(), self.rest) {
            (_, Some(mut rest)) if rest.len() == 1 => Ok(rest.remove(0)),
            // In Erlang, the atom is the whole value.
            ("Ok", None) => Ok(Term::atom("ok")),
            (word, _) => Err(ConvertError::custom(format_args!(
                "{count} terms are behind {word}, and one is expected"
            ))),
        }
    }
}

impl<'de> VariantAccess<'de> for Variant {
    type Error = ConvertError;

    fn unit_variant(self) -> Result<(), ConvertError> {
        match self.rest {
            None => Ok(()),
            Some(rest) => Err(ConvertError::custom(format_args!(
                "{} terms are behind {}, and none is expected",
                rest.len(),
                self.word
            ))),
        }
    }

    fn newtype_variant_seed<S: DeserializeSeed<'de>>(
        self,
        seed: S,
    ) -> Result<S::Value, ConvertError> {
        seed.deserialize(Reader(self.only()?))
    }

    fn tuple_variant<V: Visitor<'de>>(
        self,
        _: usize,
        visitor: V,
    ) -> Result<V::Value, ConvertError> {
        items(self.rest.unwrap_or_default(), visitor)
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, ConvertError> {
        match self.only()? {
            Term::Map(pairs) => map(pairs, visitor),
            other => Err(unexpected(&other, &visitor)),
        }
    }
}
