//! Runs: consecutive events of one session, as the frames that readers receive.

use bytes::{Bytes, BytesMut};

use base::types::{Epoch, SessionId, Timestamp, UserId};
use events::event::{self, EventRef};

/// Consecutive events of one session. All runs of a session have the same owner, the user of the session. A run can be
/// split after any event. Splitting shares the bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Run {
    pub owner: UserId,
    pub session: SessionId,
    pub first_seq: u64,
    pub last_seq: u64,
    /// The global position of the last event, 0 until the run is committed. The positions of a run are
    /// consecutive, except in a run that a reader concatenated from several runs.
    pub last_pos: u64,
    pub frames: Bytes,
}

/// A run without its frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunHeader {
    pub session: SessionId,
    pub first_seq: u64,
    pub last_seq: u64,
    pub last_pos: u64,
    pub bytes: u64,
    pub time: Timestamp,
}

impl RunHeader {
    pub(super) fn of(run: &Run, last_pos: u64, bytes: u64, time: Timestamp) -> Self {
        Self {
            session: run.session,
            first_seq: run.first_seq,
            last_seq: run.last_seq,
            last_pos,
            bytes,
            time,
        }
    }
}

impl Run {
    pub fn count(&self) -> u64 {
        self.last_seq + 1 - self.first_seq
    }

    pub fn first_pos(&self) -> u64 {
        self.pos(self.first_seq)
    }

    pub fn pos(&self, seq: u64) -> u64 {
        self.last_pos.saturating_sub(self.last_seq - seq)
    }

    /// The events after `seq`, or `None` if there are none.
    #[must_use]
    pub fn after(&self, seq: u64) -> Option<Self> {
        if seq >= self.last_seq {
            return None;
        }
        if seq < self.first_seq {
            return Some(self.clone());
        }
        let cut = self.end_of(seq);
        Some(Self {
            first_seq: seq + 1,
            frames: self.frames.slice(cut..),
            ..self.clone()
        })
    }

    /// The events after the global position `pos`, or `None` if there are none.
    #[must_use]
    pub fn after_pos(&self, pos: u64) -> Option<Self> {
        if pos < self.first_pos() {
            return Some(self.clone());
        }
        self.after(self.first_seq + (pos - self.first_pos()))
    }

    /// The events up to and including `seq`, or `None` if there are none.
    #[must_use]
    pub fn through(&self, seq: u64) -> Option<Self> {
        if seq < self.first_seq {
            return None;
        }
        if seq >= self.last_seq {
            return Some(self.clone());
        }
        let cut = self.end_of(seq);
        Some(Self {
            last_seq: seq,
            last_pos: self.pos(seq),
            frames: self.frames.slice(..cut),
            ..self.clone()
        })
    }

    /// The first events of at most `max_bytes` together, and at least one. A shortened run copies the bytes,
    /// so that it does not keep the rest in memory.
    #[must_use]
    pub fn truncate_to(self, max_bytes: usize) -> Self {
        if self.frames.len() <= max_bytes {
            return self;
        }
        let ends = event::ends(&self.frames).take_while(|end| *end <= max_bytes);
        let last = self.first_seq + u64::try_from(ends.count().max(1)).unwrap_or(1) - 1;
        match self.through(last) {
            Some(run) if run.last_seq < self.last_seq => Self {
                frames: Bytes::copy_from_slice(&run.frames),
                ..run
            },
            _ => self,
        }
    }

    /// The events, oldest first.
    pub fn events(&self) -> impl Iterator<Item = EventRef<'_>> {
        event::events(&self.frames, self.first_seq)
    }

    /// The same events with another epoch. A restored store uses this, since its epoch differs from that of
    /// the frames.
    #[must_use]
    pub fn with_epoch(&self, epoch: &Epoch) -> Self {
        let mut frames = BytesMut::with_capacity(self.frames.len() + 64);
        for event in self.events() {
            event.write_with_epoch(&mut frames, epoch);
        }
        Self {
            frames: frames.freeze(),
            ..self.clone()
        }
    }

    /// The same events in the log of another session, whose epoch is `epoch`. `None` if the frames are damaged.
    pub(super) fn moved_to(
        &self,
        session: SessionId,
        owner: &UserId,
        epoch: &Epoch,
    ) -> Option<Self> {
        if self.last_seq < self.first_seq {
            return None;
        }
        let frames = event::moved(
            &self.frames,
            self.first_seq,
            self.count(),
            self.session,
            session,
        )?;
        let moved = Self {
            owner: owner.clone(),
            session,
            frames: frames.into(),
            ..self.clone()
        };
        Some(moved.with_epoch(epoch))
    }

    /// The offset in `frames` at which the frame of `seq` ends.
    fn end_of(&self, seq: u64) -> usize {
        let nth = usize::try_from(seq - self.first_seq).unwrap_or(usize::MAX);
        let end = event::ends(&self.frames).nth(nth);
        end.unwrap_or(self.frames.len())
    }
}

#[cfg(test)]
mod tests {
    use super::{Run, SessionId, UserId};
    use crate::store::contract::{run, session};

    #[test]
    fn slices_share_bytes_and_keep_positions() {
        let mut whole = run(1, 5..=9);
        whole.last_pos = 109;
        for cut in 0..=12 {
            let head = whole.through(cut);
            let tail = whole.after(cut);
            let seqs: Vec<u64> = head
                .iter()
                .chain(&tail)
                .flat_map(|part| part.events().map(|e| e.seq()).collect::<Vec<_>>())
                .collect();
            assert_eq!(seqs, [5, 6, 7, 8, 9], "cut at {cut}");
            let bytes: Vec<u8> = head
                .iter()
                .chain(&tail)
                .flat_map(|part| part.frames.to_vec())
                .collect();
            assert_eq!(bytes, whole.frames);
            assert!(
                tail.iter()
                    .all(|part| part.last_pos == 109 && part.first_pos() == 100 + part.first_seq)
            );
            assert!(
                head.iter()
                    .all(|part| part.last_pos == 100 + part.last_seq && part.first_pos() == 105)
            );
        }
        assert_eq!(whole.after_pos(106).unwrap().first_seq, 7);
        assert_eq!(whole.after_pos(3).unwrap(), whole);
        assert!(whole.after_pos(109).is_none());
    }

    #[test]
    fn truncate_to_keeps_at_least_one_event() {
        let whole = run(1, 5..=9);
        let one = whole.through(5).unwrap().frames.len();
        for bytes in 0..=whole.frames.len() + 1 {
            let within = whole.clone().truncate_to(bytes);
            let fit = u64::try_from(bytes / one).unwrap().clamp(1, 5);
            assert_eq!(within.last_seq, 4 + fit, "{bytes} bytes");
            assert_eq!(
                Some(within.frames),
                whole.through(4 + fit).map(|run| run.frames)
            );
        }
    }

    #[test]
    fn frames_equal_written_bytes() {
        let run = run(1, 1..=2);
        let frame = run.events().nth(1).unwrap();
        assert_eq!((frame.seq(), frame.kind()), (2, "test"));
        assert!(frame.raw_json().starts_with(b"{\"id\":\"e-2\",\"seq\":2,"));
        assert!(
            frame
                .raw_frame()
                .starts_with(b"id: e-2\nevent: test\ndata: {")
        );
    }

    #[test]
    fn with_epoch_changes_only_ids() {
        let old = run(1, 1..=3);
        let new = old.with_epoch(&"fresh".parse().unwrap());
        let text = String::from_utf8(new.frames.to_vec()).unwrap();
        assert_eq!(text.replace("fresh-", "e-").as_bytes(), &old.frames[..]);
        assert_eq!(text.matches("fresh-").count(), 6);
        // Frames that the gateway never writes, but whose checksum is valid.
        for data in ["", "{", "{\"id\":\"", "{\"id\":\"e-1"] {
            let frames = format!("id: e-1\nevent: test\ndata: {data}\n\n");
            let odd = Run {
                last_seq: 1,
                frames: frames.into(),
                ..run(1, 1..=1)
            };
            let new = odd.with_epoch(&"fresh".parse().unwrap());
            assert!(
                new.frames.starts_with(b"id: fresh-1\nevent: test\n"),
                "{data}"
            );
        }
    }

    #[test]
    fn moved_run_has_the_other_ids_and_only_whole_frames() {
        let first = session(1);
        let second = session(2);
        let owner = UserId::from_text("other");
        let epoch = "fresh".parse().unwrap();
        let frame = |seq: u64, of: SessionId, epoch: &str| {
            format!(
                "id: {epoch}-{seq}\nevent: test\ndata: {{\"id\":\"{epoch}-{seq}\",\"seq\":{seq},\"type\":\"test\",\"sessionId\":\"{of}\",\"time\":\"x\",\"path\":\"/w/{of}/a\"}}\n\n"
            )
        };
        let of = |frames: String| Run {
            frames: frames.into(),
            ..run(1, 5..=6)
        };
        let whole = [frame(5, first, "e"), frame(6, first, "e")].concat();
        let moved = of(whole.clone()).moved_to(second, &owner, &epoch).unwrap();
        let expected = [frame(5, second, "fresh"), frame(6, second, "fresh")].concat();
        assert_eq!(moved.frames, expected);
        assert_eq!((moved.session, moved.owner), (second, owner.clone()));
        for damaged in [
            frame(5, first, "e"),
            whole.clone() + "\n",
            whole.replace("\"time\"", "\"temp\""),
            whole.replace("/a\"}", "/a}"),
            whole.replace("\"seq\":6", "\"seq\":7"),
            whole.replace("\"type\":\"test\"", "\"type\":\"prompt.started\""),
            whole.replace(
                &format!("\"sessionId\":\"{first}"),
                &format!("\"sessionId\":\"{}", session(3)),
            ),
            whole.replace("\"path\"", "\"\\u0074ype\":\"other\",\"path\""),
            whole.replace("\"path\"", "\r\"path\""),
            whole.replace("event: test\n", "event: test\rdata: x\n"),
        ] {
            assert!(of(damaged).moved_to(second, &owner, &epoch).is_none());
        }
    }
}
