//! A parked stream: its task waits, and direct delivery writes its events.
//!
//! The states of a stream on a socket:
//!
//! | state | events are written by | next state |
//! |---|---|---|
//! | reading | the task: `step` gathers events at the tail, `flush` writes them | `parked` at the tail, `loading`, `ended` |
//! | loading | none: the task waits for the store | `reading` |
//! | parked | the notifier, through a [`DirectSink`](crate::eventlog::DirectSink) | `reading`, `ended` |
//! | ended | none: the socket returns to its owner, or closes | |
//!
//! A stream can park if its client receives the stored bytes of all events. The task moves [`Parked`] to the
//! socket, and removes it when the task wakes. Therefore, the position of the stream has one owner: the task
//! or direct delivery. The task wakes in these cases:
//!
//! - Direct delivery cannot continue: a partial write, an event that only the store has, or the end of the
//!   session.
//! - A signal arrives: a stop, or the end of a key.
//! - A keep-alive is due.
//! - The client disconnects.

use super::chunk::ChunkWriter;
use super::encoder::Encoder;
use super::feed::Feed;
use super::keep_alive::{KeepAlive, Timer};
use crate::eventlog::{NotReady, TailCursor};

/// The position of a parked stream, and its timer.
#[derive(Debug)]
pub(crate) struct Parked {
    pub(super) cursor: TailCursor,
    pub(super) timer: Timer,
}

impl Parked {
    /// `None` if only the task can write the events of the stream.
    pub(super) fn new(feed: &Feed, encoder: &dyn Encoder, keep_alive: &KeepAlive) -> Option<Self> {
        let cursor = feed.tail_cursor(encoder)?;
        Some(Self {
            cursor,
            timer: Timer::clone(keep_alive),
        })
    }

    /// Moves events at the tail to the chunk. Returns the reason why no event follows, or `None` if the chunk
    /// is full.
    pub(super) fn fill(&mut self, chunk: &mut ChunkWriter) -> Option<NotReady> {
        while !chunk.is_full() {
            match self.cursor.try_next() {
                Ok(run) => chunk.push(run.frames),
                Err(reason) => return Some(reason),
            }
        }
        None
    }
}
