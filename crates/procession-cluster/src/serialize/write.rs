//! Values as terms.

use serde_core::ser::{self, Error as _, Serialize, Serializer};

use crate::serialize::error::ConvertError;
use crate::serialize::terms;
use crate::term::{Atom, BigInteger, Term};

type Written = Result<Term, ConvertError>;

/// Writes one value.
#[derive(Clone, Copy)]
pub(super) struct Writer;

fn atom(text: &'static str) -> Written {
    let too_long = || ConvertError::custom(format_args!("the name {text:?} is no atom"));
    Atom::new(text).map(Term::Atom).ok_or_else(too_long)
}

/// Returns the atom of a variant. The variants of `Result` have the names that Erlang uses.
fn variant_atom(name: &'static str, variant: &'static str) -> Written {
    atom(match (name, variant) {
        ("Result", "Ok") => "ok",
        ("Result", "Err") => "error",
        _ => variant,
    })
}

fn float(value: f64) -> Written {
    match value.is_finite() {
        true => Ok(Term::Float(value)),
        false => Err(ConvertError::custom(format_args!("{value} is no float of Erlang"))),
    }
}

fn big(is_negative: bool, magnitude: u128) -> Term {
    let value = BigInteger::new(is_negative, magnitude.to_le_bytes().to_vec());
    value.as_i64().map_or_else(|| Term::Big(Box::new(value)), Term::Integer)
}

macro_rules! from_values {
    ($($method:ident $type:ty;)*) => {$(
        fn $method(self, value: $type) -> Written {
            Ok(Term::from(value))
        }
    )*};
}

impl Serializer for Writer {
    type Ok = Term;
    type Error = ConvertError;
    type SerializeSeq = Items;
    type SerializeTuple = Items;
    type SerializeTupleStruct = Items;
    type SerializeTupleVariant = Items;
    type SerializeMap = Pairs;
    type SerializeStruct = Pairs;
    type SerializeStructVariant = Pairs;

    from_values! {
        serialize_bool bool;
        serialize_i8 i8;
        serialize_i16 i16;
        serialize_i32 i32;
        serialize_i64 i64;
        serialize_u8 u8;
        serialize_u16 u16;
        serialize_u32 u32;
        serialize_str &str;
    }

    fn serialize_u64(self, value: u64) -> Written {
        Ok(big(false, value.into()))
    }

    fn serialize_i128(self, value: i128) -> Written {
        Ok(big(value < 0, value.unsigned_abs()))
    }

    fn serialize_u128(self, value: u128) -> Written {
        Ok(big(false, value))
    }

    fn serialize_f32(self, value: f32) -> Written {
        float(value.into())
    }

    fn serialize_f64(self, value: f64) -> Written {
        float(value)
    }

    fn serialize_char(self, value: char) -> Written {
        Ok(Term::from(&*value.encode_utf8(&mut [0; 4])))
    }

    fn serialize_bytes(self, bytes: &[u8]) -> Written {
        Ok(Term::from(bytes.to_vec()))
    }

    fn serialize_none(self) -> Written {
        atom("undefined")
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Written {
        value.serialize(self)
    }

    fn serialize_unit(self) -> Written {
        atom("ok")
    }

    fn serialize_unit_struct(self, _: &'static str) -> Written {
        atom("ok")
    }

    fn serialize_unit_variant(self, name: &'static str, _: u32, variant: &'static str) -> Written {
        variant_atom(name, variant)
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(
        self,
        name: &'static str,
        value: &T,
    ) -> Written {
        match (name, value.serialize(self)?) {
            (terms::NAME, Term::Binary(bytes)) => {
                terms::decode(&bytes, usize::MAX).map_err(ConvertError::custom)
            }
            (_, term) => Ok(term),
        }
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        name: &'static str,
        _: u32,
        variant: &'static str,
        value: &T,
    ) -> Written {
        Ok(Term::tuple([variant_atom(name, variant)?, value.serialize(self)?]))
    }

    fn serialize_seq(self, _: Option<usize>) -> Result<Items, ConvertError> {
        Ok(Items { items: Vec::new(), is_list: true })
    }

    fn serialize_tuple(self, _: usize) -> Result<Items, ConvertError> {
        Ok(Items { items: Vec::new(), is_list: false })
    }

    fn serialize_tuple_struct(self, _: &'static str, _: usize) -> Result<Items, ConvertError> {
        Ok(Items { items: Vec::new(), is_list: false })
    }

    fn serialize_tuple_variant(
        self,
        name: &'static str,
        _: u32,
        variant: &'static str,
        _: usize,
    ) -> Result<Items, ConvertError> {
        Ok(Items { items: vec![variant_atom(name, variant)?], is_list: false })
    }

    fn serialize_map(self, _: Option<usize>) -> Result<Pairs, ConvertError> {
        Ok(Pairs::default())
    }

    fn serialize_struct(self, _: &'static str, _: usize) -> Result<Pairs, ConvertError> {
        Ok(Pairs::default())
    }

    fn serialize_struct_variant(
        self,
        name: &'static str,
        _: u32,
        variant: &'static str,
        _: usize,
    ) -> Result<Pairs, ConvertError> {
        Ok(Pairs { variant: Some(variant_atom(name, variant)?), ..Pairs::default() })
    }
}

/// The items of a list or a tuple.
pub(super) struct Items {
    items: Vec<Term>,
    is_list: bool,
}

impl Items {
    fn push<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), ConvertError> {
        self.items.push(value.serialize(Writer)?);
        Ok(())
    }

    fn finish(self) -> Written {
        Ok(if self.is_list { Term::List(self.items) } else { Term::Tuple(self.items) })
    }
}

/// The pairs of a map, and the variant that has it.
#[derive(Default)]
pub(super) struct Pairs {
    variant: Option<Term>,
    key: Option<Term>,
    pairs: Vec<(Term, Term)>,
}

impl Pairs {
    fn push<T: Serialize + ?Sized>(&mut self, key: Term, value: &T) -> Result<(), ConvertError> {
        self.pairs.push((key, value.serialize(Writer)?));
        Ok(())
    }

    fn finish(self) -> Written {
        let map = Term::Map(self.pairs);
        Ok(match self.variant {
            Some(variant) => Term::tuple([variant, map]),
            None => map,
        })
    }
}

macro_rules! sequences {
    ($($trait:ident $method:ident;)*) => {$(
        impl ser::$trait for Items {
            type Ok = Term;
            type Error = ConvertError;

            fn $method<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), ConvertError> {
                self.push(value)
            }

            fn end(self) -> Written {
                self.finish()
            }
        }
    )*};
}

sequences! {
    SerializeSeq serialize_element;
    SerializeTuple serialize_element;
    SerializeTupleStruct serialize_field;
    SerializeTupleVariant serialize_field;
}

macro_rules! structs {
    ($($trait:ident)*) => {$(
        impl ser::$trait for Pairs {
            type Ok = Term;
            type Error = ConvertError;

            fn serialize_field<T: Serialize + ?Sized>(
                &mut self,
                key: &'static str,
                value: &T,
            ) -> Result<(), ConvertError> {
                self.push(atom(key)?, value)
            }

            fn end(self) -> Written {
                self.finish()
            }
        }
    )*};
}

structs!(SerializeStruct SerializeStructVariant);

impl ser::SerializeMap for Pairs {
    type Ok = Term;
    type Error = ConvertError;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Result<(), ConvertError> {
        self.key = Some(key.serialize(Writer)?);
        Ok(())
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), ConvertError> {
        let key = self.key.take().ok_or_else(|| ConvertError::custom("a value has no key"))?;
        self.push(key, value)
    }

    fn end(self) -> Written {
        self.finish()
    }
}
