//! Encoder of Protocol Buffers' messages.

/// Wire types.
const VARINT: u64 = 0;
const FIXED64: u64 = 1;
const BYTES: u64 = 2;

/// Encoded fields of one message. A field may be added any number of times.
#[derive(Clone, Debug, Default)]
pub(super) struct Message(Vec<u8>);

impl Message {
    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    fn varint(&mut self, mut value: u64) {
        while value > 0x7f {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }

    fn key(&mut self, field: u32, wire: u64) {
        self.varint(u64::from(field) << 3 | wire);
    }

    /// Add a field of type uint64, int32, int64 or enum. A signed value is given as its two's complement.
    pub(super) fn number(&mut self, field: u32, value: u64) {
        self.key(field, VARINT);
        self.varint(value);
    }

    /// Add a field of type fixed64.
    pub(super) fn fixed(&mut self, field: u32, value: u64) {
        self.key(field, FIXED64);
        self.0.extend(value.to_le_bytes());
    }

    pub(super) fn text(&mut self, field: u32, text: &str) {
        self.bytes(field, text.as_bytes());
    }

    pub(super) fn message(&mut self, field: u32, message: &Message) {
        self.bytes(field, &message.0);
    }

    fn bytes(&mut self, field: u32, bytes: &[u8]) {
        self.key(field, BYTES);
        self.varint(bytes.len() as u64);
        self.0.extend(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_encoded_as_in_the_documentation_of_protocol_buffers() {
        let mut inner = Message::default();
        inner.number(1, 150);
        assert_eq!(inner.as_bytes(), [0x08, 0x96, 0x01]);
        let mut outer = Message::default();
        outer.message(3, &inner);
        outer.text(2, "testing");
        assert_eq!(outer.as_bytes(), b"\x1a\x03\x08\x96\x01\x12\x07testing");
        let mut wide = Message::default();
        wide.number(16, u64::MAX);
        wide.fixed(1, 1);
        let minus_one = [0xff; 9].iter().copied().chain([1]);
        let bytes = [0x80, 0x01].into_iter().chain(minus_one);
        let bytes = bytes.chain([0x09, 1, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(wide.as_bytes(), bytes.collect::<Vec<u8>>());
    }
}
