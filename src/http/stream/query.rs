//! The start position and the filters of a stream, from headers and query parameters.

use std::fmt;
use std::str::FromStr;

use super::frame::Shape;
use super::types::Types;
use crate::eventlog::ResetReason;
use crate::http::error::ApiError;
use crate::http::extract::{LastEventId, Params};
use crate::http::negotiate::Form;
use crate::types::{Epoch, EventId, Position};

/// A cursor of a client: in one session, or in the whole log.
pub trait Place: FromStr + fmt::Display {
    fn epoch(&self) -> &Epoch;
    fn number(&self) -> u64;
}

impl Place for EventId {
    fn epoch(&self) -> &Epoch {
        &self.epoch
    }

    fn number(&self) -> u64 {
        self.seq
    }
}

impl Place for Position {
    fn epoch(&self) -> &Epoch {
        &self.epoch
    }

    fn number(&self) -> u64 {
        self.pos
    }
}

/// The start position of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cursor {
    /// The client sent no position.
    None,
    After(u64),
    Tail,
    Reset(ResetReason),
}

impl Cursor {
    pub fn of(place: &impl Place, epoch: &Epoch) -> Self {
        if place.epoch() == epoch { Self::After(place.number()) } else { Self::Reset(ResetReason::NewEpoch) }
    }

    /// Parses the start position. `Last-Event-ID` takes precedence, because an EventSource repeats its URL
    /// when it reconnects. Its id may be older than this store, so an unknown id causes a reset and not an
    /// error.
    fn read<P: Place>(last: &LastEventId, after: Option<&str>, epoch: &Epoch) -> Result<Self, ApiError> {
        match (last, after) {
            (LastEventId::Text(id), _) => Ok(id
                .parse::<P>()
                .map_or(Self::Reset(ResetReason::UnknownCursor), |place| Self::of(&place, epoch))),
            (LastEventId::Unclear, _) => Ok(Self::Reset(ResetReason::UnknownCursor)),
            (LastEventId::Absent, None) => Ok(Self::None),
            (LastEventId::Absent, Some("tail")) => Ok(Self::Tail),
            (LastEventId::Absent, Some(id)) => match id.parse::<P>() {
                Ok(place) => Ok(Self::of(&place, epoch)),
                Err(_) => {
                    Err(ApiError::invalid("after", "expected the id of an event of this stream, or tail"))
                }
            },
        }
    }
}

/// The parameters that all `/events` routes share.
#[derive(Debug)]
pub struct EventsQuery {
    pub cursor: Cursor,
    pub types: Option<Types>,
    pub named: bool,
    pub follow: bool,
    pub limit: usize,
}

impl EventsQuery {
    pub fn read<P: Place>(params: &mut Params, last: &LastEventId, epoch: &Epoch) -> Result<Self, ApiError> {
        let after = params.text("after")?;
        Ok(Self {
            cursor: Cursor::read::<P>(last, after.as_deref(), epoch)?,
            types: params.text("types")?.as_deref().map(Types::parse).transpose()?,
            named: params.flag("named", true)?,
            follow: params.flag("follow", true)?,
            limit: params.limit(500, 1000)?,
        })
    }

    /// The encoder of a stream. `None` for a page.
    pub fn shape(&self, form: Form) -> Option<Shape> {
        match form {
            Form::EventStream => Some(Shape::Sse { named: self.named }),
            Form::Ndjson => Some(Shape::Ndjson),
            Form::Json | Form::Markdown => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_header_wins_and_nonsense_in_it_is_a_reset() {
        let epoch: Epoch = "k3".parse().unwrap();
        let header = |text: &str| LastEventId::Text(text.to_owned());
        let read = |last, after| Cursor::read::<EventId>(&last, after, &epoch).ok();
        assert_eq!(read(LastEventId::Absent, None), Some(Cursor::None));
        assert_eq!(read(LastEventId::Absent, Some("tail")), Some(Cursor::Tail));
        assert_eq!(read(LastEventId::Absent, Some("k3-7")), Some(Cursor::After(7)));
        assert_eq!(read(LastEventId::Absent, Some("k3-g7")), None);
        assert_eq!(read(LastEventId::Absent, Some("")), None);
        assert_eq!(read(header("k3-9"), Some("k3-7")), Some(Cursor::After(9)));
        assert_eq!(read(header("k3-9"), Some("nonsense")), Some(Cursor::After(9)));
        assert_eq!(read(header("j1-9"), None), Some(Cursor::Reset(ResetReason::NewEpoch)));
        for nonsense in ["tail", "9", "k3-g9", "k3-18446744073709551616"] {
            assert_eq!(
                read(header(nonsense), None),
                Some(Cursor::Reset(ResetReason::UnknownCursor)),
                "{nonsense}"
            );
        }
        assert_eq!(read(LastEventId::Unclear, None), Some(Cursor::Reset(ResetReason::UnknownCursor)));
    }
}
