//! Bounds of the state that a translation retains, in bytes.

/// Counts the bytes of one part of the state, of which at most `MAX` are retained.
#[derive(Debug, Default)]
pub(super) struct Budget<const MAX: usize> {
    used: usize,
}

impl<const MAX: usize> Budget<MAX> {
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
        bytes <= MAX - self.used
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
        let mut budget = Budget::<10>::default();
        assert!(budget.reserve(6) && !budget.reserve(5) && budget.reserve(4));
        assert_eq!(budget.used(), 10);
        assert!(!budget.fits(1));
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
