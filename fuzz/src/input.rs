//! A reader of fuzz input, from its front.

/// The rest of an input. Zeros follow its end, so that every input is complete.
pub(crate) struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    pub(crate) fn new(data: &'a [u8]) -> Self {
        Self(data)
    }

    pub(crate) fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else {
            return 0;
        };
        self.0 = rest;
        *first
    }

    pub(crate) fn flag(&mut self) -> bool {
        self.byte() & 1 == 1
    }

    pub(crate) fn below(&mut self, end: usize) -> usize {
        usize::from(self.byte()) % end
    }

    pub(crate) fn number(&mut self) -> u64 {
        u64::from_le_bytes(std::array::from_fn(|_| self.byte()))
    }

    /// The bytes up to the next 0xFF, which never occurs in UTF-8. `None` at the end.
    pub(crate) fn piece(&mut self) -> Option<&'a [u8]> {
        if self.0.is_empty() {
            return None;
        }
        let end = self
            .0
            .iter()
            .position(|byte| *byte == 0xff)
            .unwrap_or(self.0.len());
        let piece = &self.0[..end];
        self.0 = self.0.get(end + 1..).unwrap_or_default();
        Some(piece)
    }

    /// The next piece as text. Invalid bytes are replaced.
    pub(crate) fn text(&mut self) -> Option<String> {
        self.piece()
            .map(|piece| String::from_utf8_lossy(piece).into_owned())
    }

    pub(crate) fn rest(self) -> &'a [u8] {
        self.0
    }
}

/// Splits `whole` into pieces of these sizes, cyclically. A size of 0 counts as 1.
pub(crate) fn chunks<'a>(whole: &'a [u8], sizes: &[u8]) -> Vec<&'a [u8]> {
    let mut left = whole;
    let mut chunks = Vec::new();
    for size in sizes.iter().cycle().map(|size| usize::from(*size).max(1)) {
        if left.is_empty() {
            break;
        }
        let (chunk, rest) = left.split_at(size.min(left.len()));
        chunks.push(chunk);
        left = rest;
    }
    if sizes.is_empty() && !whole.is_empty() {
        chunks.push(whole);
    }
    chunks
}
