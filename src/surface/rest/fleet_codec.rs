//! The messages of a member's socket, in both dialects.

use axum::extract::ws::Message;
use bytes::Bytes;

use crate::cca::{CcaConnection, CcaMember};
use crate::fleet::{self, MemberFrame};
use crate::types::QueuedLine;

/// The dialect of a member.
pub(super) enum Codec {
    /// `acp-gateway connect`: each binary message is a frame.
    Frames,
    /// Text messages of the dialect `cca`.
    Cca(CcaConnection),
}

/// The results of a message or a frame.
#[derive(Default)]
pub(super) struct Converted {
    pub(super) for_fleet: Vec<(MemberFrame, Bytes)>,
    pub(super) messages: Vec<Message>,
}

impl Codec {
    /// Whether the socket may be read.
    pub(super) fn has_room(&self) -> bool {
        match self {
            Self::Frames => true,
            Self::Cca(connection) => connection.member().has_room(),
        }
    }

    /// The next message of a client to the member, with its text.
    pub(super) fn next_queued(&self) -> Option<(Message, QueuedLine)> {
        let Self::Cca(connection) = self else {
            return None;
        };
        let queued = connection.member().next_queued()?;
        let text = String::from_utf8_lossy(queued.bytes()).into_owned();
        Some((Message::Text(text.into()), queued))
    }

    /// Converts a frame of the fleet.
    pub(super) fn outgoing(&self, frame: Bytes) -> Result<Converted, String> {
        match self {
            Self::Frames => Ok(Converted {
                for_fleet: Vec::new(),
                messages: vec![Message::Binary(frame)],
            }),
            Self::Cca(connection) => {
                let frame = CcaMember::decode(frame).map_err(|error| error.to_string())?;
                connection
                    .member()
                    .frame(frame)
                    .map(Converted::from)
                    .map_err(|error| error.to_string())
            }
        }
    }

    /// Converts a message of the member. Errors are violations of the protocol.
    pub(super) fn incoming(&self, message: Message) -> Result<Converted, String> {
        match (self, message) {
            (_, Message::Ping(_) | Message::Pong(_)) => Ok(Converted::default()),
            (Self::Frames, Message::Binary(bytes)) => {
                let frame =
                    fleet::decode::<MemberFrame>(bytes).map_err(|error| error.to_string())?;
                Ok(Converted {
                    for_fleet: vec![frame],
                    messages: Vec::new(),
                })
            }
            (Self::Cca(connection), Message::Text(text)) => connection
                .member()
                .message(&text)
                .map(Converted::from)
                .map_err(|error| error.to_string()),
            (Self::Frames, _) => Err("frames are binary messages".to_owned()),
            (Self::Cca(_), _) => Err("messages are text messages".to_owned()),
        }
    }
}

impl From<crate::cca::Output> for Converted {
    fn from(output: crate::cca::Output) -> Self {
        let messages = output
            .messages
            .into_iter()
            .map(|text| Message::Text(text.into()));
        Self {
            for_fleet: output.for_fleet,
            messages: messages.collect(),
        }
    }
}
