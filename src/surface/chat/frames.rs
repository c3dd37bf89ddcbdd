//! Frames of Server-Sent Events with JSON, and the end of a stream without the end of its turn.

use bytes::BytesMut;
use serde::Serialize;

use crate::api::{Problem, ProblemCode};
use crate::event::{self, ControlFrame};

/// Appends one frame: `data:` and a line of compact JSON.
pub(crate) fn data(out: &mut BytesMut, value: &impl Serialize) {
    let json = serde_json::to_vec(value).expect("frames have string keys");
    event::write_block(out, None, None, &json);
}

/// Appends the last frame of several protocols.
pub(crate) fn done(out: &mut BytesMut) {
    event::write_block(out, None, None, b"[DONE]");
}

/// Why a stream ends before its turn. A client must not take it for the end of the turn.
#[derive(Debug)]
pub(crate) struct Interrupted {
    pub(crate) code: String,
    pub(crate) message: String,
}

/// The reason, if this frame ends a stream before its turn.
pub(crate) fn interruption(frame: &ControlFrame) -> Option<Interrupted> {
    #[derive(serde::Deserialize)]
    struct Frame {
        problem: Problem,
    }
    let (code, message) = match frame.kind() {
        "problem" => {
            let frame: Option<Frame> = serde_json::from_slice(&frame.json()).ok();
            let problem = frame.map_or_else(Problem::internal, |frame| frame.problem);
            (problem.code, problem.detail)
        }
        "shutdown" => (
            ProblemCode::Draining,
            "the gateway is shutting down; the turn continues, so send the request again".into(),
        ),
        "reset" => (ProblemCode::NotFound, "the log no longer has all events of this turn".into()),
        "end" => (ProblemCode::NotFound, "the session was deleted".into()),
        _ => return None,
    };
    Some(Interrupted { code: code.as_str().to_owned(), message })
}
