//! The last frame of several protocols, and the end of a stream without the end of its turn.

use bytes::BytesMut;

use crate::api::{Problem, ProblemCode};
use crate::event::{self, ControlFrame, EndReason};

/// Appends the last frame of several protocols.
pub(crate) fn done(out: &mut BytesMut) {
    event::write_block(out, None, None, b"[DONE]");
}

/// Why a response ends before its turn. A client must not take it for the end of the turn.
#[derive(Debug)]
pub(crate) struct Interrupted {
    pub(crate) code: String,
    pub(crate) message: String,
}

/// The end of a stream before the end of its turn.
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
