//! What a session has appended and the writer has not taken yet.

use std::collections::VecDeque;

use crate::types::{Epoch, SessionId, Timestamp};

use super::Event;
use super::event::Framer;
use super::records::{Changes, Records};

/// What one turn of the writer takes: a run, and the records that belong to its events.
#[derive(Debug)]
pub(super) struct Chunk {
    /// `last_seq` is `first_seq - 1` while there is no event, only records.
    pub(super) first_seq: u64,
    pub(super) last_seq: u64,
    pub(super) frames: Vec<u8>,
    pub(super) changes: Changes,
    /// The session's earlier runs go in this commit.
    pub(super) erase: bool,
    /// Bytes of frames and records that it counts in [`Pending::bytes`].
    pub(super) bytes: usize,
}

/// The chunks of a session, oldest first, each but for one large event at most a run.
#[derive(Debug)]
pub(super) struct Pending {
    framer: Framer,
    appended: u64,
    chunks: VecDeque<Chunk>,
    /// The session is in the writer's queue.
    queued: bool,
    erased: bool,
    /// What was appended and is not committed.
    bytes: usize,
}

impl Pending {
    pub(super) fn new(epoch: &Epoch, session: SessionId, committed: u64, erased: bool) -> Self {
        let framer = Framer::new(epoch, session);
        Self { framer, appended: committed, chunks: VecDeque::new(), queued: false, erased, bytes: 0 }
    }

    pub(super) fn appended(&self) -> u64 {
        self.appended
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn append(
        &mut self,
        event: &Event<'_>,
        records: Records,
        now: Timestamp,
        run_bytes: usize,
    ) -> u64 {
        if self.erased {
            return self.appended;
        }
        self.push(event, now, run_bytes, 0);
        if let Some(chunk) = self.chunks.back_mut() {
            let bytes = chunk.changes.add(records);
            chunk.bytes += bytes;
            self.bytes += bytes;
        }
        self.appended
    }

    /// Several events without records. Each run gets its room at once.
    pub(super) fn append_all<'a>(
        &mut self,
        events: impl Iterator<Item = Event<'a>> + Clone,
        now: Timestamp,
        run_bytes: usize,
    ) {
        if self.erased {
            return;
        }
        let mut ahead: usize = events.clone().map(|event| self.framer.size(&event)).sum();
        for event in events {
            self.push(&event, now, run_bytes, ahead.min(run_bytes));
            ahead -= self.framer.size(&event);
        }
    }

    /// Frames an event into the last run, or into a new one with so much room.
    fn push(&mut self, event: &Event<'_>, now: Timestamp, run_bytes: usize, capacity: usize) {
        let size = self.framer.size(event);
        let fits = |chunk: &Chunk| chunk.frames.is_empty() || chunk.frames.len() + size <= run_bytes;
        if !self.chunks.back().is_some_and(fits) {
            self.start_chunk(capacity.max(size));
        }
        self.appended += 1;
        let chunk = self.chunks.back_mut().expect("one was started if there was none");
        let before = chunk.frames.len();
        self.framer.frame(&mut chunk.frames, self.appended, event, now);
        chunk.last_seq = self.appended;
        let bytes = chunk.frames.len() - before;
        chunk.bytes += bytes;
        self.bytes += bytes;
    }

    /// Records without an event, with what is appended next or alone.
    pub(super) fn put(&mut self, records: Records) {
        if self.erased {
            return;
        }
        if self.chunks.is_empty() {
            self.start_chunk(0);
        }
        let chunk = self.chunks.back_mut().expect("one was started if there was none");
        let bytes = chunk.changes.add(records);
        chunk.bytes += bytes;
        self.bytes += bytes;
    }

    /// The last event, alone in its chunk, so that what was appended before is committed and read before it goes.
    pub(super) fn erase(&mut self, last: &Event<'_>, records: Records, now: Timestamp) -> u64 {
        if self.erased {
            return self.appended;
        }
        self.start_chunk(0);
        let seq = self.append(last, records, now, usize::MAX);
        self.chunks.back_mut().expect("it was started above").erase = true;
        self.erased = true;
        seq
    }

    /// True once for each time that the session has to enter the writer's queue.
    pub(super) fn enter_queue(&mut self) -> bool {
        !self.chunks.is_empty() && !std::mem::replace(&mut self.queued, true)
    }

    /// The oldest chunk erases what came before it.
    pub(super) fn erases_next(&self) -> bool {
        self.chunks.front().is_some_and(|chunk| chunk.erase)
    }

    /// The oldest chunk, and whether there is more: then the session stays in the queue.
    pub(super) fn pop_chunk(&mut self) -> Option<(Chunk, bool)> {
        let chunk = self.chunks.pop_front();
        self.queued = !self.chunks.is_empty();
        chunk.map(|chunk| (chunk, self.queued))
    }

    pub(super) fn committed(&mut self, bytes: usize) {
        self.bytes -= bytes;
    }

    fn start_chunk(&mut self, capacity: usize) {
        self.chunks.push_back(Chunk {
            first_seq: self.appended + 1,
            last_seq: self.appended,
            frames: Vec::with_capacity(capacity),
            changes: Changes::default(),
            erase: false,
            bytes: 0,
        });
    }
}
