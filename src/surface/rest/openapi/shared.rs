//! The documentation of parameters and responses that several operations share.
//!
//! A route names these types in its `utoipa` attribute. The handlers read their input with `extract`.
#![expect(dead_code, reason = "only the OpenAPI document uses the fields")]

use std::collections::BTreeMap;

use utoipa::{IntoParams, IntoResponses};

use crate::api::{Session, SessionState};
use crate::types::AgentName;

#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
pub(in crate::surface::rest) struct SessionFilter {
    /// Only sessions of this agent.
    agent: Option<AgentName>,
    /// Only sessions in this state.
    state: Option<SessionState>,
    /// Only sessions in this working folder.
    #[param(max_length = 4096)]
    cwd: Option<String>,
    /// Only sessions whose metadata has all of these members: `metadata.user=42` or `metadata[user]=42`. At most 8 members, with keys of 1 to 128 bytes and values of 1 to 512 bytes.
    #[param(style = DeepObject, explode)]
    metadata: Option<BTreeMap<String, String>>,
}

#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
pub(in crate::surface::rest) struct Batch {
    /// The `nextCursor` of the previous batch.
    cursor: Option<String>,
    /// The maximum number of sessions in a batch. The default is 50.
    #[param(minimum = 1, maximum = 100)]
    limit: Option<u16>,
}

#[derive(IntoParams)]
#[into_params(parameter_in = Header)]
pub(in crate::surface::rest) struct Resume {
    /// The id of the last received event; the response begins with the next one. It has precedence over `after`.
    #[param(rename = "Last-Event-ID")]
    last_event_id: Option<String>,
}

#[derive(IntoParams)]
#[into_params(parameter_in = Header)]
pub(in crate::surface::rest) struct WaitForEvent {
    /// `wait=N`: if the page would be empty, wait up to N seconds (at most 60) for an event.
    #[param(rename = "Prefer")]
    prefer: Option<String>,
}

#[derive(IntoParams)]
#[into_params(parameter_in = Header)]
pub(in crate::surface::rest) struct KnownVersions {
    /// The `ETag` values of the versions that the client has.
    #[param(rename = "If-None-Match")]
    if_none_match: Option<String>,
}

#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
pub(in crate::surface::rest) struct EventCursor {
    /// Begin after the event with this id, or with `tail` at the end of the log. The default is the beginning of the log or turn.
    #[param(pattern = "^(tail|[a-z0-9]{1,16}-(0|[1-9][0-9]{0,17}))$")]
    after: Option<String>,
    /// Only events of these types, separated by commas. A type that ends with a dot is a prefix.
    #[param(pattern = "^[a-z._]+(,[a-z._]+)*$", max_length = 256)]
    types: Option<String>,
}

#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
pub(in crate::surface::rest) struct GlobalCursor {
    /// The id of a session, or `<session>@<event id>` to begin after that event of the session. Repeat the parameter for up to 256 sessions.
    session: Option<Vec<String>>,
    /// Begin after the event with this id, an id from this route, or with `tail` at the end of the log.
    #[param(pattern = "^(tail|[a-z0-9]{1,16}-g(0|[1-9][0-9]{0,17}))$")]
    after: Option<String>,
    /// Only events of these types, separated by commas. A type that ends with a dot is a prefix.
    #[param(pattern = "^[a-z._]+(,[a-z._]+)*$", max_length = 256)]
    types: Option<String>,
}

#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
pub(in crate::surface::rest) struct EventPageSize {
    /// The maximum number of events on a page. The default is 500.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<u16>,
}

#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
pub(in crate::surface::rest) struct StreamForm {
    /// `false` omits the `event:` field, so that an `EventSource` receives each event in `onmessage`. The default is `true`.
    named: Option<bool>,
    /// `false` ends the stream at the current end of the log. The default is `true`.
    follow: Option<bool>,
}

#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
pub(in crate::surface::rest) struct EarlierTurns {
    /// The `nextCursor` of the previous page.
    #[param(pattern = "^p[1-9][0-9]{0,8}$")]
    before: Option<String>,
    /// The maximum number of turns on a page. The default is 50.
    #[param(minimum = 1, maximum = 200)]
    limit: Option<u16>,
}

#[derive(IntoResponses)]
#[response(
    status = 201,
    description = "The new session.",
    headers(
        ("Location" = String, description = "The path of the session."),
        ("ETag" = String, description = "The version of the session, for `If-Match`."),
        ("Idempotency-Replayed" = String, description = "`true` if the gateway returns the response of an earlier request with this key."),
    )
)]
pub(in crate::surface::rest) struct NewSession(Session);

#[derive(IntoResponses)]
#[response(
    status = 200,
    description = "The session after the change.",
    headers(("ETag" = String, description = "The version of the session, for `If-Match`."))
)]
pub(in crate::surface::rest) struct ChangedSession(Session);

#[derive(IntoResponses)]
#[response(
    status = 304,
    description = "The page has an ETag from `If-None-Match`.",
    headers(("ETag" = String, description = "The version of the page."))
)]
pub(in crate::surface::rest) struct UnchangedPage;
