//! The bytes of a connection that are under way: input that was read and not yet used, and output that is held back until an
//! answer is awaited. One piece of memory for both, made by the first use.

use ureq::unversioned::transport::Buffers;

/// Input comes first, output behind it.
#[derive(Debug)]
pub struct Space {
    bytes: Vec<u8>,
    input_size: usize,
    output_size: usize,
    /// Input up to here was used.
    used: usize,
    /// Input up to here was read.
    read: usize,
    /// The last look at the input came to something, so the next may, too.
    is_moving: bool,
    held_back: usize,
}

impl Space {
    /// Room for so much input at a time, and for so much output; when half of that is held back, for so much more.
    pub fn new(input_size: usize, output_size: usize) -> Self {
        Self {
            bytes: Vec::new(),
            input_size,
            output_size,
            used: 0,
            read: 0,
            is_moving: false,
            held_back: 0,
        }
    }

    /// Keeps so much of what was written to [`Buffers::output`].
    pub fn hold_back(&mut self, amount: usize) {
        self.held_back = self.held_back.saturating_add(amount);
    }

    /// What waits to be sent.
    pub fn held_back(&self) -> &[u8] {
        let end = self.input_size.saturating_add(self.held_back);
        self.bytes.get(self.input_size..end).unwrap_or_default()
    }

    /// It was sent.
    pub fn forget_held_back(&mut self) {
        self.held_back = 0;
    }

    /// Free input and free output.
    fn free(&mut self) -> (&mut [u8], &mut [u8]) {
        let used = self.input_size.saturating_add(self.held_back);
        if self.bytes.len() < used.saturating_add(self.output_size.div_ceil(2)) {
            self.bytes.resize(used.saturating_add(self.output_size), 0);
        }
        self.bytes.copy_within(self.used..self.read, 0);
        (self.used, self.read) = (0, self.read.saturating_sub(self.used));
        let (input, output) = self
            .bytes
            .split_at_mut_checked(self.input_size)
            .unwrap_or_default();
        (
            input.get_mut(self.read..).unwrap_or_default(),
            output.get_mut(self.held_back..).unwrap_or_default(),
        )
    }
}

impl Buffers for Space {
    fn output(&mut self) -> &mut [u8] {
        self.free().1
    }

    fn input(&self) -> &[u8] {
        self.bytes.get(self.used..self.read).unwrap_or_default()
    }

    fn input_append_buf(&mut self) -> &mut [u8] {
        self.free().0
    }

    fn input_appended(&mut self, amount: usize) {
        self.read = self.read.saturating_add(amount).min(self.input_size);
    }

    fn input_consume(&mut self, amount: usize) {
        self.is_moving = amount > 0;
        self.used = self.used.saturating_add(amount).min(self.read);
    }

    /// The free input serves as the place where a request's body is read into; no answer is under way at that time.
    fn tmp_and_output(&mut self) -> (&mut [u8], &mut [u8]) {
        self.free()
    }

    fn can_use_input(&self) -> bool {
        self.is_moving && self.used < self.read
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_gathers_and_there_is_always_room_for_more() {
        let mut space = Space::new(4, 3);
        for part in [b"abc", b"def"] {
            assert_eq!(space.output().len(), 3);
            space.output().copy_from_slice(part);
            space.hold_back(3);
        }
        space.output()[..1].copy_from_slice(b"g");
        space.hold_back(1);
        assert_eq!(space.held_back(), b"abcdefg");
        space.forget_held_back();
        assert_eq!(space.held_back(), b"");
    }

    #[test]
    fn input_that_was_used_makes_room_and_what_was_not_stays() {
        let mut space = Space::new(4, 3);
        space.input_append_buf().copy_from_slice(b"wxyz");
        space.input_appended(4);
        assert!(!space.can_use_input(), "nobody has looked at it yet");
        assert!(space.input_append_buf().is_empty());
        space.input_consume(3);
        assert!(space.can_use_input());
        space.tmp_and_output().0[..2].copy_from_slice(b"12");
        space.input_appended(2);
        assert_eq!(space.input(), b"z12");
        space.input_consume(0);
        assert!(!space.can_use_input(), "more is needed first");
        space.input_consume(3);
        assert_eq!(space.input(), b"");
        assert_eq!(space.held_back(), b"");
    }
}
