//! The start position and the filters of a stream, from headers and query parameters.

use std::str::FromStr;

use super::error::ApiError;
use super::extract::{LastEventId, Params};
use super::negotiate::Representation;
use crate::event::ResetReason;
use crate::stream::{Encoder, EventTypes, Ndjson, Sse};
use crate::types::{Epoch, EventId, Position};

/// A cursor of a client: in one session, or in the whole log.
pub trait CursorId: FromStr {
    /// The epoch and the number in it.
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
    pub fn from_id(id: &impl CursorId, epoch: &Epoch) -> Self {
        let (of_id, number) = id.parts();
        if of_id == epoch {
            Self::After(number)
        } else {
            Self::Reset(ResetReason::NewEpoch)
        }
    }

    /// Parses the start position. `Last-Event-ID` takes precedence, because an EventSource repeats its URL
    /// when it reconnects. Its id may belong to an earlier epoch, so an unknown id causes a reset and not
    /// an error.
    fn parse<P: CursorId>(
        last: &LastEventId,
        after: Option<&str>,
        epoch: &Epoch,
    ) -> Result<Self, ApiError> {
        match (last, after) {
            (LastEventId::Text(id), _) => Ok(id
                .parse::<P>()
                .map_or(Self::Reset(ResetReason::UnknownCursor), |position| {
                    Self::from_id(&position, epoch)
                })),
            (LastEventId::Invalid, _) => Ok(Self::Reset(ResetReason::UnknownCursor)),
            (LastEventId::Absent, None) => Ok(Self::None),
            (LastEventId::Absent, Some("tail")) => Ok(Self::Tail),
            (LastEventId::Absent, Some(id)) => match id.parse::<P>() {
                Ok(position) => Ok(Self::from_id(&position, epoch)),
                Err(_) => Err(ApiError::invalid(
                    "after",
                    "expected the id of an event of this stream, or tail",
                )),
            },
        }
    }
}

/// The parameters that all `/events` routes share.
#[derive(Debug)]
pub struct EventsQuery {
    pub cursor: Cursor,
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
    ) -> Result<Self, ApiError> {
        let after = params.text("after")?;
        Ok(Self {
            cursor: Cursor::parse::<P>(last, after.as_deref(), epoch)?,
            types: params
                .text("types")?
                .as_deref()
                .map(parse_types)
                .transpose()?,
            named: params.flag("named", true)?,
            follow: params.flag("follow", true)?,
            limit: params.limit(500, 1000)?,
        })
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

fn parse_types(text: &str) -> Result<EventTypes, ApiError> {
    EventTypes::parse(text).ok_or_else(|| {
        ApiError::invalid(
            "types",
            "expected types or prefixes such as prompt.,request.created",
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_event_id_wins_and_an_unknown_id_is_a_reset() {
        let epoch: Epoch = "k3".parse().unwrap();
        let header = |text: &str| LastEventId::Text(text.to_owned());
        let read = |last, after| Cursor::parse::<EventId>(&last, after, &epoch).ok();
        assert_eq!(read(LastEventId::Absent, None), Some(Cursor::None));
        assert_eq!(read(LastEventId::Absent, Some("tail")), Some(Cursor::Tail));
        assert_eq!(
            read(LastEventId::Absent, Some("k3-7")),
            Some(Cursor::After(7))
        );
        assert_eq!(read(LastEventId::Absent, Some("k3-g7")), None);
        assert_eq!(read(LastEventId::Absent, Some("")), None);
        assert_eq!(read(header("k3-9"), Some("k3-7")), Some(Cursor::After(9)));
        assert_eq!(
            read(header("k3-9"), Some("nonsense")),
            Some(Cursor::After(9))
        );
        assert_eq!(
            read(header("j1-9"), None),
            Some(Cursor::Reset(ResetReason::NewEpoch))
        );
        for nonsense in ["tail", "9", "k3-g9", "k3-18446744073709551616"] {
            assert_eq!(
                read(header(nonsense), None),
                Some(Cursor::Reset(ResetReason::UnknownCursor)),
                "{nonsense}"
            );
        }
        assert_eq!(
            read(LastEventId::Invalid, None),
            Some(Cursor::Reset(ResetReason::UnknownCursor))
        );
    }
}
