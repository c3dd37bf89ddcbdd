//! The response with the events of a turn.

use axum::response::Response;
use http::{HeaderName, HeaderValue};

use super::chat_turn::{ChatTurn, SESSION_ID, session_header};
use super::turn_encoder::{TurnEncoder, TurnWriter};
use crate::surface::authorized::Authorized;
use crate::surface::state::Gateway;

/// In a request: the policy for a changed history. In a response: what the gateway did.
pub(crate) const HISTORY: HeaderName = HeaderName::from_static("x-acp-history");

/// Streams the turn. `follow`: until its end, and not only its events up to now.
pub(crate) fn respond<S, W: TurnWriter + 'static>(
    gateway: &Gateway,
    by: &Authorized<S>,
    turn: ChatTurn,
    encoder: TurnEncoder<W>,
    follow: bool,
) -> Response {
    let feed = turn.feed(gateway);
    let ChatTurn {
        session,
        notices,
        guard,
        ..
    } = turn;
    let mut response =
        gateway.stream_response(by.admission(), guard, feed, Box::new(encoder), follow);
    let headers = response.headers_mut();
    headers.insert(SESSION_ID, session_header(session.id()));
    for notice in notices {
        headers.append(HISTORY, HeaderValue::from_static(notice.as_str()));
    }
    response
}
