//! Pages: events as one JSON object, for clients that poll.

use super::feed::{Content, Feed, Piece};
use crate::eventlog::{ReadError, Run};

/// The page that a client receives.
#[derive(Debug)]
pub(crate) struct Page {
    /// The events as JSON objects with commas between them. `finish` adds the text around them.
    events: Vec<u8>,
    count: usize,
    limit: usize,
    max_bytes: usize,
    /// The bytes that were read, selected or not. The limit keeps a filter that selects nothing from reading
    /// the whole log.
    scanned: usize,
    cursor: u64,
}

/// The state after a read.
#[derive(Debug)]
pub(crate) enum PageState {
    /// The page is full.
    Full,
    Accepted {
        ready: bool,
    },
    Ended,
}

impl Page {
    pub(crate) fn new(feed: &Feed, limit: usize, max_bytes: usize) -> Self {
        Self {
            events: Vec::new(),
            count: 0,
            limit,
            max_bytes,
            scanned: 0,
            cursor: feed.source.cursor(),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Adds the next events of the feed. Waits for events at the tail. Dropping the future loses nothing.
    pub(crate) async fn read(&mut self, feed: &mut Feed) -> Result<PageState, ReadError> {
        let pieces = feed.next().await?;
        Ok(self.push_pieces(feed, pieces))
    }

    fn push_pieces(&mut self, feed: &Feed, pieces: Vec<Piece>) -> PageState {
        let mut ready = false;
        for Piece { content, end } in pieces {
            match content {
                Content::Events(run) => {
                    if !self.push_run(feed, &run) {
                        return PageState::Full;
                    }
                }
                Content::Control(frame) => {
                    self.push_event(&frame.json());
                    self.cursor = feed.source.cursor();
                }
                Content::Ready(_) => {
                    self.cursor = feed.source.cursor();
                    ready = true;
                }
                Content::Nothing => {}
            }
            if end.is_some() {
                return PageState::Ended;
            }
        }
        PageState::Accepted { ready }
    }

    /// Adds the selected events of a run. Returns false if the page became full.
    fn push_run(&mut self, feed: &Feed, run: &Run) -> bool {
        for event in run.events() {
            let keep = feed.is_selected(&event);
            let full = self.count >= self.limit
                || self.events.len() + event.raw_json().len() > self.max_bytes;
            if (keep && full && self.count > 0) || self.scanned > 4 * self.max_bytes {
                return false;
            }
            if keep {
                self.push_event(event.raw_json());
            }
            self.scanned += event.raw_frame().len();
            self.cursor = feed.source.cursor_of(run, event.seq());
        }
        true
    }

    fn push_event(&mut self, object: &[u8]) {
        if self.count > 0 {
            self.events.push(b',');
        }
        self.events.extend_from_slice(object);
        self.count += 1;
    }

    /// The page as JSON. `more` reports that further events exist.
    pub(crate) fn finish(self, feed: &Feed, more: bool) -> Vec<u8> {
        let last_event_id = feed.source.id(&feed.epoch, self.cursor);
        let mut json = Vec::with_capacity(self.events.len() + 80);
        json.extend_from_slice(b"{\"events\":[");
        json.extend_from_slice(&self.events);
        json.extend_from_slice(
            format!("],\"lastEventId\":\"{last_event_id}\",\"more\":{more}}}").as_bytes(),
        );
        json
    }
}
