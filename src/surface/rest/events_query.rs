//! The start position and the filters of a stream, from headers and query parameters, and pages of events.

use std::pin::pin;
use std::str::FromStr;
use std::time::Duration;

use axum::response::{IntoResponse, Response};
use http::header;
use tokio::time::Instant;

use super::negotiate::Representation;
use crate::auth::Admission;
use crate::stream::{Encoder, EventTypes, Feed, Ndjson, Page, PageState, Sse};
use crate::surface::http::{ApiError, AppState, LastEventId, Params, PreferenceApplied, Result};
use base::types::{Epoch, EventId, Position};
use events::api::Problem;
use events::event::ResetReason;
use log::eventlog::Start;
use sessions::session::SessionHandle;

pub trait CursorId: FromStr {
    fn parts(&self) -> (&Epoch, u64);
}

impl CursorId for EventId {
    fn parts(&self) -> (&Epoch, u64) {
        (&self.epoch, self.seq)
    }
}

impl CursorId for Position {
    fn parts(&self) -> (&Epoch, u64) {
        (&self.epoch, self.pos)
    }
}

fn start_after(id: &impl CursorId, epoch: &Epoch) -> Start {
    let (of_id, number) = id.parts();
    if of_id == epoch {
        Start::After(number)
    } else {
        Start::Reset(ResetReason::NewEpoch)
    }
}

/// Parses the start position: `Beginning` if the client sent none. `Last-Event-ID` takes precedence, because an EventSource
/// repeats its URL when it reconnects. Its id may belong to an earlier epoch, so an unknown id causes a reset and not an
/// error.
fn parse_start<P: CursorId>(
    last: &LastEventId,
    after: Option<&str>,
    epoch: &Epoch,
) -> Result<Start> {
    Ok(match (last, after) {
        (LastEventId::Text(id), _) => match id.parse::<P>() {
            Ok(id) => start_after(&id, epoch),
            Err(_) => Start::Reset(ResetReason::UnknownCursor),
        },
        (LastEventId::Invalid, _) => Start::Reset(ResetReason::UnknownCursor),
        (LastEventId::Absent, None) => Start::Beginning,
        (LastEventId::Absent, Some("tail")) => Start::Tail,
        (LastEventId::Absent, Some(id)) => {
            let detail = "expected the id of an event of this stream, or tail";
            let id: P = id.parse().map_err(|_| ApiError::invalid("after", detail))?;
            start_after(&id, epoch)
        }
    })
}

#[derive(Debug)]
pub struct EventsQuery {
    pub start: Start,
    pub types: Option<EventTypes>,
    pub named: bool,
    pub follow: bool,
    pub limit: usize,
}

impl EventsQuery {
    pub fn parse<P: CursorId>(
        params: &mut Params,
        last: &LastEventId,
        epoch: &Epoch,
    ) -> Result<Self> {
        let after = params.text("after")?;
        let types = params.text("types")?;
        Ok(Self {
            start: parse_start::<P>(last, after.as_deref(), epoch)?,
            types: types.as_deref().map(parse_types).transpose()?,
            named: params.flag("named", true)?,
            follow: params.flag("follow", true)?,
            limit: params.limit(500, 1000)?,
        })
    }

    /// Whether a stream would have no event: it ends at `committed`, the last event of the log, which the client has.
    pub fn ends_at(&self, committed: u64) -> bool {
        !self.follow && self.start == Start::After(committed)
    }

    /// The encoder of a stream. `None` for a page.
    pub fn encoder(&self, form: Representation) -> Option<Box<dyn Encoder>> {
        match form {
            Representation::EventStream if self.named => Some(Box::new(Sse::<true>)),
            Representation::EventStream => Some(Box::new(Sse::<false>)),
            Representation::Ndjson => Some(Box::new(Ndjson)),
            _ => None,
        }
    }
}

fn parse_types(text: &str) -> Result<EventTypes> {
    let detail = "expected types or prefixes such as prompt.,request.created";
    EventTypes::parse(text).ok_or_else(|| ApiError::invalid("types", detail))
}

/// Returns a page of at most `limit` events. With `wait`, an empty page is held until an event passes the
/// filter, the time expires, or a drain starts. Fails if the key ends.
pub(crate) async fn page_response(
    app: &AppState,
    admission: &Admission,
    mut feed: Feed,
    limit: usize,
    wait: Option<Duration>,
) -> Result<Response> {
    let mut page = Page::new(&feed, limit, app.limits.sessions.max_page_bytes);
    let deadline = wait.map(|wait| Instant::now() + wait);
    let was_draining = app.shutdown.is_draining();
    let mut key_ended = pin!(admission.wait_key_ended());
    let sessions = feed.source.sessions();
    let sessions = wait.map(|_| sessions.to_vec()).unwrap_or_default();
    let mut access_ended = pin!(SessionHandle::wait_any_access_ended(&sessions));
    let mut caught_up = false;
    let more = loop {
        let state = if caught_up {
            let Some(deadline) = deadline else {
                break false;
            };
            if !page.is_empty() {
                break false;
            }
            tokio::select! {
                biased;
                // The problem has a retry delay. Without it, a client that polls again would loop during the
                // drain.
                () = app.shutdown.drain_started(), if was_draining => return Err(ApiError::draining()),
                () = app.shutdown.drain_started() => break false,
                () = key_ended.as_mut() => return Err(Problem::key_ended().into()),
                () = access_ended.as_mut() => return Err(Problem::access_ended().into()),
                // The timer precedes the events, because events that a filter drops may arrive without a
                // pause.
                () = tokio::time::sleep_until(deadline) => break false,
                state = page.read(&mut feed) => state,
            }
        } else {
            page.read(&mut feed).await
        };
        match state? {
            PageState::Full => break true,
            PageState::Accepted { ready } => caught_up |= ready,
            PageState::Ended => break false,
        }
    };
    let kind = [(header::CONTENT_TYPE, "application/json")];
    let page = page.finish(&feed, more);
    Ok((kind, PreferenceApplied(wait), page).into_response())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_event_id_wins_and_an_unknown_id_is_a_reset() {
        let epoch: Epoch = "k3".parse().unwrap();
        let header = |text: &str| LastEventId::Text(text.to_owned());
        let read = |last, after| parse_start::<EventId>(&last, after, &epoch).ok();
        assert_eq!(read(LastEventId::Absent, None), Some(Start::Beginning));
        assert_eq!(read(LastEventId::Absent, Some("tail")), Some(Start::Tail));
        assert_eq!(
            read(LastEventId::Absent, Some("k3-7")),
            Some(Start::After(7))
        );
        assert_eq!(read(LastEventId::Absent, Some("k3-g7")), None);
        assert_eq!(read(LastEventId::Absent, Some("")), None);
        assert_eq!(read(header("k3-9"), Some("k3-7")), Some(Start::After(9)));
        assert_eq!(
            read(header("k3-9"), Some("nonsense")),
            Some(Start::After(9))
        );
        assert_eq!(
            read(header("j1-9"), None),
            Some(Start::Reset(ResetReason::NewEpoch))
        );
        for nonsense in ["tail", "9", "k3-g9", "k3-18446744073709551616"] {
            assert_eq!(
                read(header(nonsense), None),
                Some(Start::Reset(ResetReason::UnknownCursor)),
                "{nonsense}"
            );
        }
        assert_eq!(
            read(LastEventId::Invalid, None),
            Some(Start::Reset(ResetReason::UnknownCursor))
        );
    }
}
