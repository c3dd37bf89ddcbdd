//! Bounds of the state that a translation retains, in bytes.

/// Counts the bytes of one part of the state.
#[derive(Debug)]
pub(super) struct Budget {
    used: usize,
    max: usize,
}

impl Budget {
    pub(super) const fn new(max: usize) -> Self {
        Self { used: 0, max }
    }

    /// Reserves bytes. Returns `false` and reserves none if they do not fit.
    #[must_use]
    pub(super) fn reserve(&mut self, bytes: usize) -> bool {
        let fits = self.fits(bytes);
        if fits {
            self.used += bytes;
        }
        fits
    }

    pub(super) fn fits(&self, bytes: usize) -> bool {
        bytes <= self.max - self.used
    }

    /// Whether the bytes would fit if nothing else were retained.
    pub(super) const fn fits_alone(&self, bytes: usize) -> bool {
        bytes <= self.max
    }

    pub(super) fn release(&mut self, bytes: usize) {
        self.used = self.used.saturating_sub(bytes);
    }

    pub(super) fn release_all(&mut self) {
        self.used = 0;
    }

    #[cfg(test)]
    pub(super) const fn used(&self) -> usize {
        self.used
    }
}

/// The first bytes of a text, up to `max` and to the end of a character.
pub(super) fn cut(text: &str, max: usize) -> &str {
    &text[..text.floor_char_boundary(max)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_above_the_maximum_are_not_reserved() {
        let mut budget = Budget::new(10);
        assert!(budget.reserve(6) && !budget.reserve(5) && budget.reserve(4));
        assert_eq!(budget.used(), 10);
        assert!(!budget.fits(1) && budget.fits_alone(10) && !budget.fits_alone(11));
        budget.release(4);
        assert!(budget.fits(4) && !budget.fits(usize::MAX));
        budget.release_all();
        assert!(budget.reserve(10));
    }

    #[test]
    fn text_is_cut_at_the_end_of_a_character() {
        assert_eq!(
            (cut("aä", 2), cut("aä", 3), cut("aä", 9)),
            ("a", "aä", "aä")
        );
    }
}
