//! The mark in each event of the synthetic agent: its time and its number.
//!
//! `bench@<nanoseconds, 16 hex digits>@<number, 8 hex digits>`. The scanner finds it in any body. Therefore
//! the same client measures servers that wrap the lines of an agent.

use memchr::memmem::Finder;

use crate::clock;

const PREFIX: &[u8] = b"bench@";
/// The length of a mark in bytes.
pub(crate) const LENGTH: usize = PREFIX.len() + 16 + 1 + 8;
/// The placeholder in a template.
pub(crate) const BLANK: &str = "bench@0000000000000000@00000000";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Marker {
    pub(crate) written: u64,
    pub(crate) number: u32,
}

impl Marker {
    /// Parses the mark at the start of the bytes.
    fn parse(bytes: &[u8]) -> Option<Self> {
        let written = digits(bytes.get(6..22)?)?;
        let number = digits(bytes.get(23..LENGTH)?)?;
        Some(Self {
            written,
            number: u32::try_from(number).ok()?,
        })
    }

    /// Writes the current time and a number into a placeholder.
    pub(crate) fn stamp(blank: &mut [u8], number: u64) {
        hex(clock::now(), &mut blank[6..22]);
        hex(number, &mut blank[23..LENGTH]);
    }
}

fn digits(bytes: &[u8]) -> Option<u64> {
    bytes.iter().try_fold(0, |value, &byte| {
        Some(value << 4 | u64::from(char::from(byte).to_digit(16)?))
    })
}

fn hex(mut value: u64, digits: &mut [u8]) {
    for digit in digits.iter_mut().rev() {
        *digit = b"0123456789abcdef"[usize::try_from(value & 15).unwrap_or_default()];
        value >>= 4;
    }
}

/// Finds marks in a body that arrives in pieces.
#[derive(Debug)]
pub(crate) struct Scanner {
    /// The end of the data, which may contain the start of a mark.
    carry: Vec<u8>,
}

/// The search for marks, shared by all scanners.
#[derive(Debug)]
pub(crate) struct Search(Finder<'static>);

impl Search {
    pub(crate) fn new() -> Self {
        Self(Finder::new(PREFIX))
    }

    /// The position of the first mark, and the mark if it is complete. Skips bytes that only resemble a mark.
    fn first(&self, bytes: &[u8]) -> Option<(usize, Option<Marker>)> {
        let mut from = 0;
        loop {
            let at = from + self.0.find(&bytes[from..])?;
            if at + LENGTH > bytes.len() {
                return Some((at, None));
            }
            match Marker::parse(&bytes[at..]) {
                None => from = at + PREFIX.len(),
                marker => return Some((at, marker)),
            }
        }
    }
}

impl Scanner {
    pub(crate) fn new() -> Self {
        Self { carry: Vec::new() }
    }

    pub(crate) fn feed(&mut self, search: &Search, piece: &[u8], mut found: impl FnMut(Marker)) {
        let mut rest = piece;
        if !self.carry.is_empty() {
            let held = self.carry.len();
            self.carry
                .extend_from_slice(&piece[..piece.len().min(LENGTH - 1)]);
            match search.first(&self.carry) {
                Some((at, Some(marker))) if at < held => {
                    found(marker);
                    rest = &piece[at + LENGTH - held..];
                }
                // The piece is short enough to fit into the carry completely.
                _ if piece.len() < LENGTH - 1 => {
                    self.carry
                        .drain(..self.carry.len().saturating_sub(LENGTH - 1));
                    return;
                }
                _ => {}
            }
            self.carry.clear();
        }
        while let Some((at, Some(marker))) = search.first(rest) {
            found(marker);
            rest = &rest[at + LENGTH..];
        }
        self.carry
            .extend_from_slice(&rest[rest.len().saturating_sub(LENGTH - 1)..]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(pieces: impl Iterator<Item = Vec<u8>>) -> Vec<u32> {
        let search = Search::new();
        let mut scanner = Scanner::new();
        let mut numbers = Vec::new();
        for piece in pieces {
            scanner.feed(&search, &piece, |marker| numbers.push(marker.number));
        }
        numbers
    }

    #[test]
    fn marks_are_found_however_the_body_is_cut() {
        let mut body = Vec::new();
        for number in 0..20 {
            let mut mark = BLANK.as_bytes().to_vec();
            Marker::stamp(&mut mark, number);
            body.extend_from_slice(b"data: {\"bench\":\"");
            body.extend_from_slice(&mark);
            body.extend_from_slice(
                &b"\"} bench@ and no more\n\n"[..usize::try_from(number % 23).unwrap()],
            );
        }
        let expected: Vec<u32> = (0..20).collect();
        for size in 1..=body.len() {
            assert_eq!(
                numbers(body.chunks(size).map(<[u8]>::to_vec)),
                expected,
                "in pieces of {size}"
            );
        }
    }

    #[test]
    fn a_mark_keeps_time_and_number() {
        let before = clock::now();
        let mut mark = BLANK.as_bytes().to_vec();
        Marker::stamp(&mut mark, 0xabc);
        let marker = Marker::parse(&mark).unwrap();
        assert_eq!(marker.number, 0xabc);
        assert!((before..=clock::now()).contains(&marker.written));
        assert_eq!(Marker::parse(b"bench@00000000000000g0@00000000"), None);
    }
}
