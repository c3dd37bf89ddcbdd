//! The check of one reader: each event once and in order, and optionally the syntax of the stream.

use memchr::memchr;

/// The received numbers.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Tally {
    /// The next expected number.
    pub(crate) next: u64,
    pub(crate) events: u64,
    /// The number of missing events.
    pub(crate) missing: u64,
    /// The number of repeated or late events.
    pub(crate) disordered: u64,
}

impl Tally {
    pub(crate) fn take(&mut self, number: u32) {
        let number = u64::from(number);
        self.events += 1;
        if number < self.next {
            self.disordered += 1;
        } else {
            self.missing += number - self.next;
            self.next = number + 1;
        }
    }

    /// Whether the reader has all events.
    pub(crate) fn done(&self, expected: u64) -> bool {
        self.next >= expected
    }

    /// Whether the reader received each of `expected` events once and in order.
    pub(crate) fn complete(&self, expected: u64) -> bool {
        *self
            == Self {
                next: expected,
                events: expected,
                missing: 0,
                disordered: 0,
            }
    }
}

/// Types of events outside of the log. They have the id of the last event.
const BETWEEN: [&[u8]; 5] = [b"ready", b"reset", b"shutdown", b"position", b"end"];

/// The syntax of Server-Sent Events, and the check that ids increase by one.
#[derive(Debug, Default)]
pub(crate) struct Grammar {
    /// A line without its end.
    line: Vec<u8>,
    id: Option<u64>,
    between: bool,
    /// Whether the block has data.
    data: bool,
    /// The number of the last event.
    last: Option<u64>,
    pub(crate) ids: u64,
    pub(crate) faults: u64,
}

impl Grammar {
    pub(crate) fn feed(&mut self, mut piece: &[u8]) {
        while let Some(end) = memchr(b'\n', piece) {
            self.line.extend_from_slice(&piece[..end]);
            piece = &piece[end + 1..];
            let mut line = std::mem::take(&mut self.line);
            self.whole(line.strip_suffix(b"\r").unwrap_or(&line));
            line.clear();
            self.line = line;
        }
        self.line.extend_from_slice(piece);
    }

    fn whole(&mut self, line: &[u8]) {
        if line.is_empty() {
            self.dispatch();
        } else if let Some(id) = line.strip_prefix(b"id: ") {
            self.id = number(id);
            self.faults += u64::from(self.id.is_none());
        } else if let Some(event) = line.strip_prefix(b"event: ") {
            self.between = BETWEEN.contains(&event);
        } else if line.starts_with(b"data: ") {
            self.data = true;
        } else if ![&b"retry: "[..], b":"]
            .iter()
            .any(|field| line.starts_with(field))
        {
            self.faults += 1;
        }
    }

    /// An empty line ends a block, which must contain data.
    fn dispatch(&mut self) {
        self.faults += u64::from(!std::mem::take(&mut self.data));
        let id = self.id.take();
        let between = std::mem::take(&mut self.between);
        let Some(id) = id else { return };
        let due = self
            .last
            .map_or(id, |last| if between { last } else { last + 1 });
        self.faults += u64::from(id != due);
        self.ids += 1;
        self.last = Some(id);
    }
}

/// The number of an id: the whole id, or the part after the epoch.
fn number(id: &[u8]) -> Option<u64> {
    std::str::from_utf8(id)
        .ok()?
        .rsplit('-')
        .next()?
        .parse()
        .ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tally(numbers: impl IntoIterator<Item = u32>) -> Tally {
        let mut tally = Tally::default();
        numbers.into_iter().for_each(|number| tally.take(number));
        tally
    }

    #[test]
    fn each_event_once_and_in_order_is_complete() {
        assert!(tally(0..10).complete(10));
        assert!(tally(0..10).done(10));
    }

    #[test]
    fn a_lost_a_doubled_and_a_misplaced_event_are_seen() {
        for (what, numbers) in [
            ("the first is lost", vec![1, 2, 3]),
            ("one in the middle is lost", vec![0, 2, 3]),
            ("the last is lost", vec![0, 1, 2]),
            ("one comes twice", vec![0, 1, 1, 2, 3]),
            ("the last comes twice", vec![0, 1, 2, 3, 3]),
            ("two change places", vec![0, 2, 1, 3]),
            ("one is lost and another comes twice", vec![0, 1, 1, 3]),
            ("one is too many", vec![0, 1, 2, 3, 4]),
        ] {
            assert!(!tally(numbers).complete(4), "{what}");
        }
        assert_eq!(
            tally([0, 2, 1, 3]),
            Tally {
                next: 4,
                events: 4,
                missing: 1,
                disordered: 1
            }
        );
        assert!(!tally([0, 1, 2]).done(4));
    }

    fn grammar(stream: &str) -> Vec<(u64, u64)> {
        [1, 7, stream.len()]
            .map(|size| {
                let mut grammar = Grammar::default();
                stream
                    .as_bytes()
                    .chunks(size)
                    .for_each(|piece| grammar.feed(piece));
                (grammar.ids, grammar.faults)
            })
            .to_vec()
    }

    #[test]
    fn a_stream_as_it_must_be_has_no_faults() {
        let stream = "retry: 1000\n:\nid: k3-4\nevent: session.update\ndata: {}\n\n:\n\
            id: k3-4\nevent: ready\ndata: {}\n\nid: k3-5\r\ndata: {}\r\ndata: {}\r\n\r\n\
            id: k3-5\nevent: end\ndata: {}\n\n";
        assert_eq!(grammar(stream), [(4, 0); 3]);
        assert_eq!(grammar("id: 7\ndata: a\n\nid: 8\ndata: b\n\n"), [(2, 0); 3]);
    }

    #[test]
    fn a_block_without_data_is_a_fault() {
        for (stream, ids) in [
            ("retry: 1000\n\n", 0),
            (":\n\n", 0),
            ("id: k-1\n\nid: k-2\ndata: a\n\n", 2),
        ] {
            assert_eq!(grammar(stream), [(ids, 1); 3], "{stream}");
        }
    }

    #[test]
    fn holes_repeated_ids_and_unknown_fields_are_faults() {
        for stream in [
            "id: k-1\ndata: a\n\nid: k-3\ndata: b\n\n",
            "id: k-1\ndata: a\n\nid: k-1\ndata: b\n\n",
            "id: k-2\ndata: a\n\nid: k-1\ndata: b\n\n",
            "id: k-1\ndata: a\n\nid: k-2\nevent: ready\ndata: b\n\n",
            "id: k-x\ndata: a\n\nid: k-1\ndata: b\n\n",
            "id: k-1\ndata: a\n{\"torn\": true}\n\n",
        ] {
            assert!(
                grammar(stream).iter().all(|(_, faults)| *faults == 1),
                "{stream}: {:?}",
                grammar(stream)
            );
        }
    }
}
