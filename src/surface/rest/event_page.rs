//! Pages: events as one JSON object, for clients that poll.

use std::pin::pin;
use std::time::Duration;

use axum::response::{IntoResponse, Response};
use http::{HeaderName, HeaderValue, header};
use tokio::time::Instant;

use super::error::ApiError;
use crate::api::Problem;
use crate::auth::Admission;
use crate::eventlog::Run;
use crate::stream::{Feed, Piece};
use crate::surface::Gateway;

/// Returns a page of at most `limit` events. With `wait`, an empty page is held until an event arrives or
/// the time expires.
pub(crate) async fn page_response(
    gateway: &Gateway,
    admission: &Admission,
    mut feed: Feed,
    limit: usize,
    wait: Option<Duration>,
) -> Result<Response, ApiError> {
    let mut page = Page {
        events: Vec::new(),
        count: 0,
        limit,
        max_bytes: gateway.limits.max_page_bytes,
        scanned: 0,
        cursor: feed.source.cursor(),
    };
    let deadline = wait.map(|wait| Instant::now() + wait);
    let was_draining = gateway.shutdown.is_draining();
    let mut key_ended = pin!(admission.wait_key_ended());
    let mut caught_up = false;
    let more = loop {
        let next = if caught_up {
            let Some(deadline) = deadline.filter(|_| page.count == 0) else { break false };
            tokio::select! {
                biased;
                // The problem has a retry delay. Without it, a client that polls again would loop during the
                // drain.
                () = gateway.shutdown.drain_started(), if was_draining => return Err(ApiError::draining()),
                () = gateway.shutdown.drain_started() => break false,
                () = key_ended.as_mut() => return Err(Problem::key_ended().into()),
                // The timer precedes the events, because events that a filter drops may arrive without a
                // pause.
                () = tokio::time::sleep_until(deadline) => break false,
                next = feed.next() => next,
            }
        } else {
            feed.next().await
        };
        match page.push_pieces(&feed, next?) {
            PageState::Full => break true,
            PageState::Accepted { ready } => caught_up |= ready,
            PageState::Ended => break false,
        }
    };
    let id = feed.source.id(&feed.epoch, page.cursor);
    let mut response = page.finish(&id, more).into_response();
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    if let Some(wait) = wait {
        let applied = HeaderValue::try_from(format!("wait={}", wait.as_secs()))
            .expect("digits are a valid header value");
        response.headers_mut().insert(HeaderName::from_static("preference-applied"), applied);
    }
    Ok(response)
}

struct Page {
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

enum PageState {
    /// The page is full.
    Full,
    Accepted {
        ready: bool,
    },
    Ended,
}

impl Page {
    fn push_pieces(&mut self, feed: &Feed, pieces: Vec<Piece>) -> PageState {
        let mut ready = false;
        for piece in pieces {
            match piece {
                Piece::Events { run, end } => {
                    if !self.push_run(feed, &run) {
                        return PageState::Full;
                    }
                    if end.is_some() {
                        return PageState::Ended;
                    }
                }
                Piece::Control(frame) => {
                    self.push_event(&frame.json());
                    self.cursor = feed.source.cursor();
                }
                Piece::Ready { end, .. } => {
                    self.cursor = feed.source.cursor();
                    if end.is_some() {
                        return PageState::Ended;
                    }
                    ready = true;
                }
                Piece::End(_) => return PageState::Ended,
            }
        }
        PageState::Accepted { ready }
    }

    /// Adds the selected events of a run. Returns false if the page became full.
    fn push_run(&mut self, feed: &Feed, run: &Run) -> bool {
        for event in run.events() {
            let keep = feed.is_selected(&event);
            let full =
                self.count >= self.limit || self.events.len() + event.raw_json().len() > self.max_bytes;
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

    fn finish(self, last_event_id: &str, more: bool) -> Vec<u8> {
        let mut json = Vec::with_capacity(self.events.len() + 80);
        json.extend_from_slice(b"{\"events\":[");
        json.extend_from_slice(&self.events);
        json.extend_from_slice(format!("],\"lastEventId\":\"{last_event_id}\",\"more\":{more}}}").as_bytes());
        json
    }
}
