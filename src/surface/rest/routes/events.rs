//! `/events`: the events of one session, of one turn, and of many sessions, as pages or as streams.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, StatusCode};

use crate::auth::Admission;
use crate::event::{EventPage, ResetReason, SessionEvent};
use crate::eventlog::{GlobalScope, Start};
use crate::session::{AdmittedPrompt, SessionHandle};
use crate::stream::{EventTypes, Feed, Source, Sse, StreamGuard, TurnFilter};
use crate::surface::Gateway;
use crate::surface::rest::error::ApiError;
use crate::surface::rest::event_page::page_response;
use crate::surface::rest::event_stream::respond;
use crate::surface::rest::events_query::{Cursor, EventsQuery};
use crate::surface::rest::extract::{
    Authorized, CanRead, LastEventId, Params, PreferWait, PromptPath, SessionPath,
};
use crate::surface::rest::negotiate::{Representation, negotiate};
use crate::surface::rest::openapi::shared::{
    EventCursor, EventPageSize, GlobalCursor, Resume, StreamForm, WaitForEvent,
};
use crate::types::{Epoch, EventId, Position, Principal, PromptId, SessionId};

/// The cursor of the client, and how long it waits for a page.
type ResumeOptions = (LastEventId, PreferWait);

/// The longest wait of `Prefer: wait=N`, in seconds.
const MAX_WAIT_SECONDS: u64 = 60;

/// Responds with a stream or a page, by the negotiated format.
async fn stream_or_page(
    gateway: &Gateway,
    by: &Authorized<CanRead>,
    feed: Feed,
    query: &EventsQuery,
    form: Representation,
    wait: PreferWait,
) -> Result<Response, ApiError> {
    if let Some(encoder) = query.encoder(form) {
        let guard = gateway.streams().acquire(by)?;
        return Ok(respond(gateway, by.admission(), guard, feed, encoder, query.follow));
    }
    let wait = wait.duration(MAX_WAIT_SECONDS);
    // A held page counts as a stream.
    let _guard = wait.map(|_| gateway.streams().acquire(by)).transpose()?;
    // Boxed, because the future of a stream would otherwise reserve the space of a page.
    Box::pin(page_response(gateway, by.admission(), feed, query.limit, wait)).await
}

fn build_feed(gateway: &Gateway, source: Source, query: &EventsQuery) -> Feed {
    Feed {
        client_cursor: source.cursor(),
        source,
        types: query.types.clone().unwrap_or(EventTypes::All),
        turn: None,
        from_tail: query.cursor == Cursor::Tail,
        epoch: gateway.epoch(),
        ids: gateway.ids.clone(),
    }
}

/// Reads the events of a session, page by page.
///
/// `Accept: text/event-stream` returns the same as `/events/stream`. `Accept: application/x-ndjson` streams
/// the same events, one JSON object on each line. Both formats also accept the parameters `named` and
/// `follow`.
#[utoipa::path(
    get,
    path = "/v1/sessions/{session}/events",
    tag = "events",
    params(Resume, WaitForEvent, EventCursor, EventPageSize),
    responses((
        status = 200, body = EventPage, description = "A page of events.",
        headers(("Preference-Applied" = String, description = "`wait=N`, with the wait that applies."))
    ))
)]
pub(super) async fn session_events(
    State(gateway): State<Gateway>,
    by: Authorized<CanRead>,
    SessionPath(session): SessionPath,
    headers: HeaderMap,
    resume: ResumeOptions,
    params: Params,
) -> Result<Response, ApiError> {
    let form =
        negotiate(&headers, &[Representation::Json, Representation::EventStream, Representation::Ndjson])?;
    respond_session(&gateway, &by, session, form, resume, params).await
}

/// Streams the events of a session as Server-Sent Events, for any `Accept`.
///
/// The `data` of each event is one `SessionEvent`. The stream replays the log from the cursor, then continues
/// with new events. A temporary error (429, 503) is a `problem` event in a stream, so that an `EventSource`
/// reconnects.
#[utoipa::path(
    get,
    path = "/v1/sessions/{session}/events/stream",
    tag = "events",
    params(Resume, EventCursor, StreamForm),
    responses(
        (status = 200, description = "The stream of events.", content((SessionEvent = "text/event-stream"))),
        (status = 204, description = "With `follow=false`: there are no events after the cursor. An `EventSource` does not reconnect."),
    )
)]
pub(super) async fn session_events_stream(
    State(gateway): State<Gateway>,
    by: Authorized<CanRead>,
    SessionPath(session): SessionPath,
    last: LastEventId,
    params: Params,
) -> Result<Response, ApiError> {
    respond_session(
        &gateway,
        &by,
        session,
        Representation::EventStream,
        (last, PreferWait::default()),
        params,
    )
    .await
}

async fn respond_session(
    gateway: &Gateway,
    by: &Authorized<CanRead>,
    session: SessionId,
    form: Representation,
    (last, wait): ResumeOptions,
    mut params: Params,
) -> Result<Response, ApiError> {
    let query = EventsQuery::parse::<EventId>(&mut params, &last, &gateway.epoch())?;
    params.finish()?;
    let session = gateway.sessions.open(by, session).await?;
    if form != Representation::Json
        && !query.follow
        && query.cursor == Cursor::After(session.log().committed())
    {
        return Ok(StatusCode::NO_CONTENT.into_response());
    }
    let reader = session.log().reader(reader_start(query.cursor));
    let feed = build_feed(gateway, Source::session(reader, session), &query);
    stream_or_page(gateway, by, feed, &query, form, wait).await
}

const fn reader_start(cursor: Cursor) -> Start {
    match cursor {
        Cursor::None => Start::Beginning,
        Cursor::After(seq) => Start::After(seq),
        Cursor::Tail => Start::Tail,
        Cursor::Reset(reason) => Start::Reset(reason),
    }
}

/// Reads the events of a turn, page by page.
///
/// `Accept: text/event-stream` returns the same as `/events/stream`. `Accept: application/x-ndjson` streams
/// the same events, one JSON object on each line. Both formats also accept the parameters `named` and
/// `follow`.
#[utoipa::path(
    get,
    path = "/v1/sessions/{session}/prompts/{prompt}/events",
    tag = "events",
    params(Resume, WaitForEvent, EventPageSize),
    responses((
        status = 200, body = EventPage, description = "A page of events.",
        headers(("Preference-Applied" = String, description = "`wait=N`, with the wait that applies."))
    ))
)]
pub(super) async fn prompt_events(
    State(gateway): State<Gateway>,
    by: Authorized<CanRead>,
    PromptPath(session, prompt): PromptPath,
    headers: HeaderMap,
    resume: ResumeOptions,
    params: Params,
) -> Result<Response, ApiError> {
    let form =
        negotiate(&headers, &[Representation::Json, Representation::EventStream, Representation::Ndjson])?;
    respond_turn(&gateway, &by, (session, prompt), form, resume, params).await
}

/// Streams the events of a turn as Server-Sent Events, for any `Accept`. The stream ends with the turn.
#[utoipa::path(
    get,
    path = "/v1/sessions/{session}/prompts/{prompt}/events/stream",
    tag = "events",
    params(Resume, StreamForm),
    responses(
        (status = 200, description = "The stream of events.", content((SessionEvent = "text/event-stream"))),
        (status = 204, description = "The cursor is at the end of the turn, or with `follow=false` at the end of the log. An `EventSource` does not reconnect."),
    )
)]
pub(super) async fn prompt_events_stream(
    State(gateway): State<Gateway>,
    by: Authorized<CanRead>,
    PromptPath(session, prompt): PromptPath,
    last: LastEventId,
    params: Params,
) -> Result<Response, ApiError> {
    let resume = (last, PreferWait::default());
    respond_turn(&gateway, &by, (session, prompt), Representation::EventStream, resume, params).await
}

async fn respond_turn(
    gateway: &Gateway,
    by: &Authorized<CanRead>,
    (session, prompt): (SessionId, PromptId),
    form: Representation,
    (last, wait): ResumeOptions,
    mut params: Params,
) -> Result<Response, ApiError> {
    let mut query = EventsQuery::parse::<EventId>(&mut params, &last, &gateway.epoch())?;
    params.finish()?;
    let session = gateway.sessions.open(by, session).await?;
    let turn = session.query().prompt_range(prompt).await?.ok_or_else(ApiError::not_found)?;
    let committed = session.log().committed();
    let ended = match query.cursor {
        Cursor::After(seq) if seq <= committed => {
            turn.last_seq.is_some_and(|last| seq >= last) || !query.follow && seq == committed
        }
        _ => false,
    };
    if ended && form != Representation::Json {
        return Ok(StatusCode::NO_CONTENT.into_response());
    }
    query.cursor = match query.cursor {
        Cursor::None => Cursor::After(turn.first_seq - 1),
        Cursor::After(seq) => Cursor::After(seq.max(turn.first_seq - 1)),
        other => other,
    };
    let reader = session.log().reader(reader_start(query.cursor));
    let source = Source::session(reader, session);
    let turn = Some(TurnFilter { prompt, last_seq: turn.last_seq });
    let feed = Feed { turn, ..build_feed(gateway, source, &query) };
    stream_or_page(gateway, by, feed, &query, form, wait).await
}

/// The stream of a turn that the same request has just started.
pub(super) fn stream_new_turn(
    gateway: &Gateway,
    admission: &Arc<Admission>,
    guard: StreamGuard,
    session: SessionHandle,
    admitted: &AdmittedPrompt,
) -> Response {
    let reader = session.log().reader(Start::After(admitted.first_seq - 1));
    let feed = Feed {
        client_cursor: reader.cursor(),
        source: Source::session(reader, session),
        types: EventTypes::All,
        turn: Some(TurnFilter { prompt: admitted.prompt.prompt_id, last_seq: admitted.last_seq }),
        from_tail: false,
        epoch: gateway.epoch(),
        ids: gateway.ids.clone(),
    };
    respond(gateway, admission, guard, feed, &Sse { named: true }, true)
}

/// Reads the events of many sessions in commit order, page by page.
///
/// Without `session`, the response has the events of all sessions that the key may read, including new
/// sessions. It then begins at the end of the log, and contains `session.update`, `terminal.output` and
/// `extension` events only if `types` names them. `Accept: text/event-stream` returns the same as
/// `/v1/events/stream`, and also accepts `named` and `follow`.
#[utoipa::path(
    get,
    path = "/v1/events",
    tag = "events",
    params(Resume, WaitForEvent, GlobalCursor, EventPageSize),
    responses((
        status = 200, body = EventPage, description = "A page of events.",
        headers(("Preference-Applied" = String, description = "`wait=N`, with the wait that applies."))
    ))
)]
pub(super) async fn all_events(
    State(gateway): State<Gateway>,
    by: Authorized<CanRead>,
    headers: HeaderMap,
    resume: ResumeOptions,
    params: Params,
) -> Result<Response, ApiError> {
    let form = negotiate(&headers, &[Representation::Json, Representation::EventStream])?;
    respond_all(&gateway, &by, form, resume, params).await
}

/// Streams the events of many sessions in commit order as Server-Sent Events, for any `Accept`.
///
/// Without `session`, the stream has the events of all sessions that the key may read, including new
/// sessions. It then begins at the end of the log, and contains `session.update`, `terminal.output` and
/// `extension` events only if `types` names them.
#[utoipa::path(
    get,
    path = "/v1/events/stream",
    tag = "events",
    params(Resume, GlobalCursor, StreamForm),
    responses(
        (status = 200, description = "The stream of events.", content((SessionEvent = "text/event-stream"))),
        (status = 204, description = "With `follow=false`: there are no events after the cursor. An `EventSource` does not reconnect."),
    )
)]
pub(super) async fn all_events_stream(
    State(gateway): State<Gateway>,
    by: Authorized<CanRead>,
    last: LastEventId,
    params: Params,
) -> Result<Response, ApiError> {
    respond_all(&gateway, &by, Representation::EventStream, (last, PreferWait::default()), params).await
}

async fn respond_all(
    gateway: &Gateway,
    by: &Authorized<CanRead>,
    form: Representation,
    (last, wait): ResumeOptions,
    mut params: Params,
) -> Result<Response, ApiError> {
    let mut query = EventsQuery::parse::<Position>(&mut params, &last, &gateway.epoch())?;
    let chosen = parse_selected(&params.all("session"))?;
    params.finish()?;
    let sessions = open_selected(gateway, by, &chosen).await?;
    if chosen.is_empty() {
        query.types.get_or_insert(EventTypes::NoBulk);
        if query.cursor == Cursor::None {
            query.cursor = Cursor::Tail;
        }
    }
    let log = &gateway.log;
    if form != Representation::Json && !query.follow && query.cursor == Cursor::After(log.position().pos) {
        return Ok(StatusCode::NO_CONTENT.into_response());
    }
    let starts = selected_starts(&gateway.epoch(), &chosen);
    let start = match query.cursor {
        // A client with a position in the global log has already received the reset, if there was one.
        Cursor::After(pos) => Start::After(pos),
        Cursor::None | Cursor::Tail if starts.is_none() => Start::Reset(ResetReason::NewEpoch),
        Cursor::None => Start::Beginning,
        Cursor::Tail => Start::Tail,
        Cursor::Reset(reason) => Start::Reset(reason),
    };
    let none = || chosen.iter().map(|(id, _)| (*id, None)).collect();
    let sessions_from = starts.unwrap_or_else(none);
    let scope =
        GlobalScope { tenant: by.tenant.clone(), sessions: (!chosen.is_empty()).then_some(sessions_from) };
    let reader = log.global_reader(scope, start).await?;
    let feed = build_feed(gateway, Source::merged(reader, sessions), &query);
    stream_or_page(gateway, by, feed, &query, form, wait).await
}

/// A session that the client selects, and the event after which it begins.
type SelectedSession = (SessionId, Option<EventId>);

fn parse_selected(texts: &[String]) -> Result<Vec<SelectedSession>, ApiError> {
    const MAX: usize = 256;
    if texts.len() > MAX {
        return Err(ApiError::invalid("session", format!("expected at most {MAX} sessions")));
    }
    let mut seen = HashSet::new();
    let one = |text: &String| {
        let (session, start) = text.split_once('@').map_or((text.as_str(), None), |(id, at)| (id, Some(at)));
        // As in a path, an invalid id is 404.
        let session = session.parse().map_err(|_| ApiError::not_found())?;
        if !seen.insert(session) {
            return Err(ApiError::invalid("session", "expected each session at most once"));
        }
        let expected = |_| ApiError::invalid("session", "expected the id of an event of the session after @");
        Ok((session, start.map(str::parse).transpose().map_err(expected)?))
    };
    texts.iter().map(one).collect()
}

async fn open_selected(
    gateway: &Gateway,
    by: &Principal,
    chosen: &[SelectedSession],
) -> Result<Vec<SessionHandle>, ApiError> {
    let mut sessions = Vec::with_capacity(chosen.len());
    for (id, _) in chosen {
        sessions.push(gateway.sessions.open(by, *id).await?);
    }
    Ok(sessions)
}

/// The position after which each selected session begins; `None` if one of them is of another epoch.
fn selected_starts(epoch: &Epoch, chosen: &[SelectedSession]) -> Option<HashMap<SessionId, Option<u64>>> {
    let one = |(id, start): &SelectedSession| match start {
        None => Some((*id, None)),
        Some(start) => (start.epoch == *epoch).then_some((*id, Some(start.seq))),
    };
    chosen.iter().map(one).collect()
}
