//! The position of a client in a stream of messages. The SSE id of each message is such a position.

use std::fmt;
use std::str::FromStr;

use crate::types::{Epoch, EventId};

/// A position in the messages of a session: a place in the log, and a place among the responses that are not in
/// the log. Text form: `<event id>.<part>/<connection>.<number>`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Position {
    /// The event of the last message. All messages of earlier events were delivered.
    pub(super) event: EventId,
    /// The number of messages of the event that were delivered. One event can become several messages.
    pub(super) part: usize,
    /// The id of the connection whose responses `response` counts. The log is the same for all connections.
    pub(super) connection: Box<str>,
    /// The number of the last delivered response.
    pub(super) response: u64,
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            event,
            part,
            connection,
            response,
        } = self;
        write!(f, "{event}.{part}/{connection}.{response}")
    }
}

/// The text is no position of this surface.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not an id of this stream")]
pub(super) struct PositionError;

impl FromStr for Position {
    type Err = PositionError;

    fn from_str(text: &str) -> Result<Self, PositionError> {
        let (log, own) = text.split_once('/').ok_or(PositionError)?;
        let (event, part) = log.split_once('.').ok_or(PositionError)?;
        let (connection, response) = own.split_once('.').ok_or(PositionError)?;
        Ok(Self {
            event: event.parse().map_err(|_| PositionError)?,
            part: part.parse().map_err(|_| PositionError)?,
            connection: connection.into(),
            response: response.parse().map_err(|_| PositionError)?,
        })
    }
}

impl Position {
    /// The seq after which a reader of a session with this epoch continues, and the number of messages of the next event that
    /// it skips. `None` for a position of another epoch. The position before the first event has that of the store.
    pub(super) fn resume(&self, epoch: &Epoch) -> Option<(u64, usize)> {
        match self.event.seq.checked_sub(1) {
            Some(before) => (self.event.epoch == *epoch).then_some((before, self.part)),
            None => Some((0, 0)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_round_trip_and_resume_in_the_middle_of_an_event() {
        let position: Position = "k3-42.2/0193.7".parse().unwrap();
        assert_eq!(position.to_string(), "k3-42.2/0193.7");
        assert_eq!(
            (position.part, position.response, &*position.connection),
            (2, 7, "0193")
        );
        assert_eq!(position.resume(&"k3".parse().unwrap()), Some((41, 2)));
        assert_eq!(position.resume(&"k4".parse().unwrap()), None);
        let begin: Position = "k3-0.0/0193.0".parse().unwrap();
        assert_eq!(begin.resume(&"k3".parse().unwrap()), Some((0, 0)));
        for wrong in [
            "",
            "k3-42",
            "k3-42/1.2",
            "k3-42.x/1.2",
            "k3-42.1/1",
            "k3-42.1/1.x",
        ] {
            assert_eq!(wrong.parse::<Position>(), Err(PositionError), "{wrong}");
        }
    }
}
