//! A deserializer with limits, around the deserializer of a format without limits.
//!
//! The bytes are from another node, and the formats trust them: a few bytes may claim a sequence of
//! billions of items without bytes, or nest until the stack overflows. Here, the levels, the items
//! and the memory of the items are counted, and no room is made for items before they have arrived.

use std::cell::Cell;
use std::fmt;

use serde_core::de::{
    DeserializeSeed, Deserializer, EnumAccess, Error, MapAccess, SeqAccess, VariantAccess, Visitor,
};

/// The name of the memory of items.
const BYTES: &str = "bytes of items";

/// What the values of one message may still take.
#[derive(Debug)]
pub(super) struct Limits {
    levels: Cell<usize>,
    items: Cell<usize>,
    memory: Cell<usize>,
    /// What exceeded its limit. The errors of a format may have no text.
    exceeded: Cell<Option<&'static str>>,
}

impl Limits {
    /// Creates limits of the levels, of the items of all sequences and maps, and of the bytes of
    /// memory that the items take.
    pub(super) fn new(levels: usize, items: usize, memory: usize) -> Self {
        Self {
            levels: levels.into(),
            items: items.into(),
            memory: memory.into(),
            exceeded: None.into(),
        }
    }

    /// Returns what exceeded its limit in a message.
    pub(super) fn exceeded(&self) -> Option<&'static str> {
        self.exceeded.get()
    }

    /// Returns a part of a format with these limits.
    pub(super) fn limit<T>(&self, inner: T) -> Limited<'_, T> {
        Limited { inner, limits: self, counts: false }
    }

    fn take<E: Error>(
        &self,
        from: &Cell<usize>,
        count: usize,
        what: &'static str,
    ) -> Result<(), E> {
        let Some(left) = from.get().checked_sub(count) else {
            self.exceeded.set(Some(what));
            return Err(E::custom(format_args!("too many {what}")));
        };
        from.set(left);
        Ok(())
    }

    /// Reads what is one level deeper.
    fn deeper<T, E: Error>(&self, read: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
        self.take(&self.levels, 1, "levels")?;
        let value = read();
        self.levels.set(self.levels.get() + 1);
        value
    }

    fn item<T, E: Error>(&self) -> Result<(), E> {
        self.take(&self.items, 1, "items")?;
        self.take(&self.memory, size_of::<T>(), BYTES)
    }
}

/// A deserializer, or another part of a format, with limits.
pub(super) struct Limited<'l, T> {
    inner: T,
    limits: &'l Limits,
    /// Set if the next value has any length, so that its items are counted. For other values, the
    /// type has the number.
    counts: bool,
}

macro_rules! forward {
    ($($counts:literal $method:ident($($argument:ident: $type:ty),*);)*) => {$(
        fn $method<V: Visitor<'de>>(
            self,
            $($argument: $type,)*
            visitor: V,
        ) -> Result<V::Value, D::Error> {
            let visitor = Limited { inner: visitor, limits: self.limits, counts: $counts };
            self.inner.$method($($argument,)* visitor)
        }
    )*};
}

impl<'de, D: Deserializer<'de>> Deserializer<'de> for Limited<'_, D> {
    type Error = D::Error;

    forward! {
        true deserialize_any();
        false deserialize_bool();
        false deserialize_i8();
        false deserialize_i16();
        false deserialize_i32();
        false deserialize_i64();
        false deserialize_i128();
        false deserialize_u8();
        false deserialize_u16();
        false deserialize_u32();
        false deserialize_u64();
        false deserialize_u128();
        false deserialize_f32();
        false deserialize_f64();
        false deserialize_char();
        false deserialize_str();
        false deserialize_string();
        true deserialize_bytes();
        true deserialize_byte_buf();
        false deserialize_option();
        false deserialize_unit();
        false deserialize_unit_struct(name: &'static str);
        false deserialize_newtype_struct(name: &'static str);
        true deserialize_seq();
        false deserialize_tuple(len: usize);
        false deserialize_tuple_struct(name: &'static str, len: usize);
        true deserialize_map();
        false deserialize_struct(name: &'static str, fields: &'static [&'static str]);
        false deserialize_enum(name: &'static str, variants: &'static [&'static str]);
        false deserialize_identifier();
        true deserialize_ignored_any();
    }

    fn is_human_readable(&self) -> bool {
        self.inner.is_human_readable()
    }
}

macro_rules! values {
    ($($method:ident: $type:ty;)*) => {$(
        fn $method<E: Error>(self, value: $type) -> Result<V::Value, E> {
            self.inner.$method(value)
        }
    )*};
}

impl<'de, V: Visitor<'de>> Visitor<'de> for Limited<'_, V> {
    type Value = V::Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.expecting(f)
    }

    values! {
        visit_bool: bool;
        visit_i8: i8;
        visit_i16: i16;
        visit_i32: i32;
        visit_i64: i64;
        visit_i128: i128;
        visit_u8: u8;
        visit_u16: u16;
        visit_u32: u32;
        visit_u64: u64;
        visit_u128: u128;
        visit_f32: f32;
        visit_f64: f64;
        visit_char: char;
        visit_str: &str;
        visit_borrowed_str: &'de str;
        visit_string: String;
        visit_bytes: &[u8];
        visit_borrowed_bytes: &'de [u8];
        visit_byte_buf: Vec<u8>;
    }

    fn visit_none<E: Error>(self) -> Result<V::Value, E> {
        self.inner.visit_none()
    }

    fn visit_unit<E: Error>(self) -> Result<V::Value, E> {
        self.inner.visit_unit()
    }

    fn visit_some<D: Deserializer<'de>>(self, inner: D) -> Result<V::Value, D::Error> {
        self.limits.deeper(|| self.inner.visit_some(self.limits.limit(inner)))
    }

    fn visit_newtype_struct<D: Deserializer<'de>>(self, inner: D) -> Result<V::Value, D::Error> {
        self.limits.deeper(|| self.inner.visit_newtype_struct(self.limits.limit(inner)))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, items: A) -> Result<V::Value, A::Error> {
        let Self { inner, limits, counts } = self;
        limits.deeper(|| inner.visit_seq(Limited { inner: items, limits, counts }))
    }

    fn visit_map<A: MapAccess<'de>>(self, pairs: A) -> Result<V::Value, A::Error> {
        let Self { inner, limits, counts } = self;
        limits.deeper(|| inner.visit_map(Limited { inner: pairs, limits, counts }))
    }

    fn visit_enum<A: EnumAccess<'de>>(self, variant: A) -> Result<V::Value, A::Error> {
        self.limits.deeper(|| self.inner.visit_enum(self.limits.limit(variant)))
    }
}

impl<'de, S: DeserializeSeed<'de>> DeserializeSeed<'de> for Limited<'_, S> {
    type Value = S::Value;

    fn deserialize<D: Deserializer<'de>>(self, inner: D) -> Result<S::Value, D::Error> {
        self.inner.deserialize(self.limits.limit(inner))
    }
}

impl<'de, A: SeqAccess<'de>> SeqAccess<'de> for Limited<'_, A> {
    type Error = A::Error;

    fn next_element_seed<S: DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, A::Error> {
        let item = self.inner.next_element_seed(self.limits.limit(seed))?;
        if item.is_some() && self.counts {
            self.limits.item::<S::Value, A::Error>()?;
        }
        Ok(item)
    }
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for Limited<'_, A> {
    type Error = A::Error;

    fn next_key_seed<S: DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, A::Error> {
        let key = self.inner.next_key_seed(self.limits.limit(seed))?;
        if key.is_some() && self.counts {
            self.limits.item::<S::Value, A::Error>()?;
        }
        Ok(key)
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, A::Error> {
        if self.counts {
            self.limits.take(&self.limits.memory, size_of::<S::Value>(), BYTES)?;
        }
        self.inner.next_value_seed(self.limits.limit(seed))
    }
}

impl<'l, 'de, A: EnumAccess<'de>> EnumAccess<'de> for Limited<'l, A> {
    type Error = A::Error;
    type Variant = Limited<'l, A::Variant>;

    fn variant_seed<S: DeserializeSeed<'de>>(
        self,
        seed: S,
    ) -> Result<(S::Value, Self::Variant), A::Error> {
        let (value, variant) = self.inner.variant_seed(self.limits.limit(seed))?;
        Ok((value, self.limits.limit(variant)))
    }
}

impl<'de, A: VariantAccess<'de>> VariantAccess<'de> for Limited<'_, A> {
    type Error = A::Error;

    fn unit_variant(self) -> Result<(), A::Error> {
        self.inner.unit_variant()
    }

    fn newtype_variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<S::Value, A::Error> {
        self.inner.newtype_variant_seed(self.limits.limit(seed))
    }

    fn tuple_variant<V: Visitor<'de>>(self, len: usize, visitor: V) -> Result<V::Value, A::Error> {
        self.inner.tuple_variant(len, self.limits.limit(visitor))
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, A::Error> {
        self.inner.struct_variant(fields, self.limits.limit(visitor))
    }
}
