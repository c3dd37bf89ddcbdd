//! The frames of chat protocols, and the end of a stream without the end of its turn.

use bytes::BytesMut;
use serde::{Serialize, Serializer};
use serde_json::value::RawValue;

use events::api::{Problem, ProblemCode};
use events::event::{self, ControlFrame, EndReason};

#[derive(Debug, Clone, Copy, Serialize, derive_more::From)]
#[serde(untagged)]
pub(crate) enum Member<'a> {
    Text(&'a str),
    Flag(bool),
    Raw(&'a RawValue),
    #[from(skip)]
    Absent,
}

impl<'a, T: Into<Member<'a>>> From<Option<T>> for Member<'a> {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Absent, Into::into)
    }
}

/// The members of a frame in their order. Absent ones are left out, because clients reject null.
#[derive(Debug)]
pub(crate) struct Members<'a>(pub(crate) &'a [(&'a str, Member<'a>)]);

impl Serialize for Members<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let members = self.0.iter().copied();
        serializer.collect_map(members.filter(|(_, value)| !matches!(value, Member::Absent)))
    }
}

/// Writes a frame: its output, its type and its members.
macro_rules! frame {
    ($out:expr, $kind:expr $(, $name:literal: $value:expr)* $(,)?) => {
        events::event::write_json(
            $out,
            &$crate::surface::chat::Members(&[
                ("type", $crate::surface::chat::Member::from($kind)),
                $(($name, $crate::surface::chat::Member::from($value))),*
            ]),
        )
    };
}

/// An object in JSON with these members.
macro_rules! object {
    ($($name:literal: $value:expr),* $(,)?) => {
        wire::acp::to_raw(&$crate::surface::chat::Members(&[
            $(($name, $crate::surface::chat::Member::from($value))),*
        ]))
    };
}

pub(crate) use {frame, object};

pub(crate) fn done(out: &mut BytesMut) {
    event::write_block(out, None, None, b"[DONE]");
}

/// Why a response ends before its turn. A client must not take it for the end of the turn.
#[derive(Debug)]
pub(crate) struct Interrupted {
    pub(crate) code: String,
    pub(crate) message: String,
}

#[derive(Debug)]
pub(super) enum Interruption {
    /// The client does not follow, and has all events up to now.
    CaughtUp,
    Error(Interrupted),
}

impl Interruption {
    /// `None` if the stream continues after this frame.
    pub(super) fn of(frame: &ControlFrame) -> Option<Self> {
        #[derive(serde::Deserialize)]
        struct Problematic {
            problem: Problem,
        }
        #[derive(serde::Deserialize)]
        struct Ended {
            reason: EndReason,
        }
        let (code, message) = match frame.kind() {
            "problem" => {
                let frame: Option<Problematic> = serde_json::from_slice(&frame.json()).ok();
                let problem = frame.map_or_else(Problem::internal, |frame| frame.problem);
                (problem.code, problem.detail)
            }
            "shutdown" => (
                ProblemCode::Draining,
                "the gateway is shutting down; a turn that has started is cancelled after timeouts.drain_timeout, and \
                 a queued one runs after the restart, so send the request again"
                    .into(),
            ),
            "reset" => (
                ProblemCode::NotFound,
                "the log no longer has all events of this turn".into(),
            ),
            "end" => {
                let frame: Option<Ended> = serde_json::from_slice(&frame.json()).ok();
                if frame.is_some_and(|frame| frame.reason == EndReason::CaughtUp) {
                    return Some(Self::CaughtUp);
                }
                (ProblemCode::NotFound, "the session was deleted".into())
            }
            _ => return None,
        };
        Some(Self::Error(Interrupted {
            code: code.as_str().to_owned(),
            message,
        }))
    }
}
