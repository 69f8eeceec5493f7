//! The encoding of protocol buffers, as far as it is needed here.

/// The bytes of a message.
#[derive(Default)]
pub(crate) struct Message(Vec<u8>);

const VARINT: u64 = 0;
const FIXED: u64 = 1;
const BYTES: u64 = 2;

impl Message {
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0
    }

    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    fn varint(&mut self, mut value: u64) {
        while value >= 1 << 7 {
            self.0.push(value as u8 | 1 << 7);
            value >>= 7;
        }
        self.0.push(value as u8);
    }

    /// Adds a field of a type that is encoded as a varint: integers, enums and `bool`.
    pub(crate) fn number(&mut self, field: u32, value: u64) {
        self.varint(u64::from(field) << 3 | VARINT);
        self.varint(value);
    }

    /// Adds a field of the type `fixed64`.
    pub(crate) fn fixed(&mut self, field: u32, value: u64) {
        self.varint(u64::from(field) << 3 | FIXED);
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    /// Adds a field of the type `string`.
    pub(crate) fn text(&mut self, field: u32, value: &str) {
        self.data(field, value.as_bytes());
    }

    /// Adds a field of the type `bytes`, or a message that is encoded already.
    pub(crate) fn data(&mut self, field: u32, value: &[u8]) {
        self.varint(u64::from(field) << 3 | BYTES);
        self.varint(value.len() as u64);
        self.0.extend_from_slice(value);
    }

    /// Adds a field that is a message.
    pub(crate) fn message(&mut self, field: u32, write: impl FnOnce(&mut Self)) {
        self.varint(u64::from(field) << 3 | BYTES);
        // The length of most messages takes one byte.
        let begin = self.0.len();
        self.0.push(0);
        write(self);
        let length = self.0.len() - begin - 1;
        if length < 1 << 7 {
            self.0[begin] = length as u8;
            return;
        }
        let mut encoded = Self::default();
        encoded.varint(length as u64);
        self.0.splice(begin..=begin, encoded.0);
    }
}

#[cfg(test)]
mod tests {
    use super::Message;

    /// The examples of the documentation of the encoding.
    #[test]
    fn fields_are_encoded_as_documented() {
        let mut message = Message::default();
        message.number(1, 150);
        message.text(2, "testing");
        message.message(3, |inner| inner.number(1, 150));
        message.fixed(4, 0x0102);
        let expected = [
            &[0x08, 0x96, 0x01][..],
            &[0x12, 0x07, 0x74, 0x65, 0x73, 0x74, 0x69, 0x6e, 0x67],
            &[0x1a, 0x03, 0x08, 0x96, 0x01],
            &[0x21, 0x02, 0x01, 0, 0, 0, 0, 0, 0],
        ];
        assert_eq!(message.bytes(), expected.concat());
    }

    #[test]
    fn long_messages_have_long_lengths() {
        let mut message = Message::default();
        let text = "x".repeat(300);
        message.message(1, |inner| inner.message(2, |inner| inner.text(3, &text)));
        let mut expected = vec![0x0a, 0xb2, 0x02, 0x12, 0xaf, 0x02, 0x1a, 0xac, 0x02];
        expected.extend(text.bytes());
        assert_eq!(message.bytes(), expected);
    }
}
