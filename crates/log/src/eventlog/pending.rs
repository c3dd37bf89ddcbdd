//! Appended events of a session that the writer has not dequeued.

use std::collections::VecDeque;

use base::types::{Epoch, SessionId, Timestamp};
use events::event::{Event, Framer};

use super::records::{Changes, Records};
use super::summaries::Summary;

/// One run and the records that belong to its events. The writer dequeues one chunk at a time.
#[derive(Debug)]
pub(super) struct Chunk {
    /// `last_seq` is `first_seq - 1` if the chunk has records but no event.
    pub(super) first_seq: u64,
    pub(super) last_seq: u64,
    pub(super) frames: Vec<u8>,
    pub(super) changes: Changes,
    pub(super) summary: Option<Summary>,
    /// The commit also erases the session's earlier runs.
    pub(super) erase: bool,
    /// The bytes of frames and records that this chunk adds to [`Pending::bytes`].
    pub(super) bytes: usize,
}

/// The chunks of a session, oldest first. A chunk is at most one run long, unless a single event is larger.
#[derive(Debug)]
pub(super) struct Pending {
    framer: Framer,
    appended: u64,
    chunks: VecDeque<Chunk>,
    /// Whether the session is in the writer's queue.
    queued: bool,
    erased: bool,
    /// The number of chunks before the first one of an open group. The writer dequeues only those.
    before_group: Option<usize>,
    /// Bytes that are appended and not committed, including chunks that the writer has dequeued.
    bytes: usize,
}

impl Pending {
    pub(super) fn new(epoch: &Epoch, session: SessionId, committed: u64, erased: bool) -> Self {
        Self {
            framer: Framer::new(epoch, session),
            appended: committed,
            chunks: VecDeque::new(),
            queued: false,
            erased,
            before_group: None,
            bytes: 0,
        }
    }

    pub(super) fn appended(&self) -> u64 {
        self.appended
    }

    pub(super) fn is_erased(&self) -> bool {
        self.erased
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
        self.add_records(records);
        self.appended
    }

    /// Appends several events without records. Allocates each run's buffer once.
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

    /// Frames an event into the last run, or into a new run with a buffer of `capacity` bytes.
    fn push(&mut self, event: &Event<'_>, now: Timestamp, run_bytes: usize, capacity: usize) {
        let size = self.framer.size(event);
        // A group is one chunk, so that it is one commit.
        let fits = match self.before_group {
            Some(before) => self.chunks.len() > before,
            None => self.chunks.back().is_some_and(|chunk| {
                chunk.frames.is_empty() || chunk.frames.len() + size <= run_bytes
            }),
        };
        if !fits {
            self.start_chunk(capacity.max(size));
        }
        self.appended += 1;
        let chunk = self.chunks.back_mut().expect("a chunk was started above");
        let before = chunk.frames.len();
        self.framer
            .frame(&mut chunk.frames, self.appended, event, now);
        chunk.last_seq = self.appended;
        let bytes = chunk.frames.len() - before;
        chunk.bytes += bytes;
        self.bytes += bytes;
    }

    /// Adds records without an event. They are committed with the next event, or alone.
    pub(super) fn put(&mut self, records: Records) {
        if self.erased {
            return;
        }
        if self.chunks.len() <= self.before_group.unwrap_or(0) {
            self.start_chunk(0);
        }
        self.add_records(records);
    }

    /// Begins a group: the writer commits all events and records up to [`end_group`](Self::end_group) together.
    pub(super) fn begin_group(&mut self) {
        self.before_group.get_or_insert(self.chunks.len());
    }

    pub(super) fn end_group(&mut self) {
        self.before_group = None;
    }

    /// Whether the writer may dequeue a chunk.
    fn has_ready_chunk(&self) -> bool {
        self.before_group.unwrap_or(self.chunks.len()) > 0
    }

    fn add_records(&mut self, mut records: Records) {
        let chunk = self.chunks.back_mut();
        let chunk = chunk.expect("the caller has started a chunk");
        chunk.summary = records.summary.take().or_else(|| chunk.summary.take());
        let bytes = chunk.changes.add(records);
        chunk.bytes += bytes;
        self.bytes += bytes;
    }

    /// Appends the last event in a chunk of its own, so that earlier events are committed and published
    /// before the erase.
    pub(super) fn erase(&mut self, last: &Event<'_>, records: Records, now: Timestamp) -> u64 {
        if self.erased {
            return self.appended;
        }
        self.start_chunk(0);
        let seq = self.append(last, records, now, usize::MAX);
        let chunk = self.chunks.back_mut();
        chunk.expect("a chunk was started above").erase = true;
        self.erased = true;
        seq
    }

    /// Returns true if the caller must add the session to the writer's queue.
    pub(super) fn enter_queue(&mut self) -> bool {
        self.has_ready_chunk() && !std::mem::replace(&mut self.queued, true)
    }

    /// Whether the oldest chunk erases the runs before it.
    pub(super) fn erases_next(&self) -> bool {
        self.chunks.front().is_some_and(|chunk| chunk.erase)
    }

    /// Removes the oldest chunk. The flag is true if more chunks remain: the session then stays queued.
    pub(super) fn pop_chunk(&mut self) -> Option<(Chunk, bool)> {
        let ready = self.has_ready_chunk();
        let chunk = self.chunks.pop_front_if(|_| ready);
        if chunk.is_some()
            && let Some(before) = &mut self.before_group
        {
            *before -= 1;
        }
        self.queued = self.has_ready_chunk();
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
            summary: None,
            erase: false,
            bytes: 0,
        });
    }
}
