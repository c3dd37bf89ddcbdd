//! `/events`: the log of a session, of one turn, and of many sessions.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, StatusCode};

use crate::api::EventPage;
use crate::api::event::SessionEvent;
use crate::auth::Admission;
use crate::eventlog::{GlobalScope, GlobalStart, ResetReason, Start};
use crate::http::error::ApiError;
use crate::http::extract::{Authorized, CanRead, LastEventId, Params, PromptPath, SessionPath, PreferWait};
use crate::http::limits::StreamGuard;
use crate::http::negotiate::{Representation, negotiate};
use crate::http::state::Gateway;
use crate::http::stream::{Cursor, EventsQuery, Feed, Encoder, Source, TurnFilter, EventTypes, page_response, respond};
use crate::session::{AdmittedPrompt, SessionHandle};
use crate::types::{Epoch, EventId, Position, Principal, PromptId, SessionId};

/// The client's cursor, and the longest wait for a page.
type ResumeOptions = (LastEventId, PreferWait);

/// How long an empty page may be held, in seconds.
const MAX_WAIT_SECONDS: u64 = 60;

/// Answers with a stream or a page, as the client asked.
async fn stream_or_page(
    gateway: &Gateway,
    by: &Authorized<CanRead>,
    feed: Feed,
    query: &EventsQuery,
    form: Representation,
    wait: PreferWait,
) -> Result<Response, ApiError> {
    if let Some(shape) = query.encoder(form) {
        let counted = gateway.streams().acquire(by)?;
        return Ok(respond(gateway, by.admission(), counted, feed, shape, query.follow));
    }
    let wait = wait.duration(MAX_WAIT_SECONDS);
    // A page that is held is a stream to those who count.
    let _counted = wait.map(|_| gateway.streams().acquire(by)).transpose()?;
    page_response(gateway, by.admission(), feed, query.limit, wait).await
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

/// The session's log, page by page.
///
/// `Accept: text/event-stream` gives the same as `/events/stream`, and `Accept: application/x-ndjson` the same events one a
/// line. Both take `named` and `follow` too.
#[utoipa::path(
    get,
    path = "/v1/sessions/{session}/events",
    tag = "events",
    params(
        ("Last-Event-ID" = Option<String>, Header, description = "Where to go on; wins over `after`."),
        ("Prefer" = Option<String>, Header, description = "`wait=N`: hold an empty page up to N seconds, 60 at most."),
        ("after" = Option<String>, Query, pattern = "^(tail|[a-z0-9]{1,16}-(0|[1-9][0-9]{0,17}))$", description = "The id of an event, or `tail`; absent: from the beginning."),
        ("types" = Option<String>, Query, pattern = "^[a-z._]+(,[a-z._]+)*$", max_length = 256, description = "Only these types, or prefixes that end with a dot."),
        ("limit" = Option<u16>, Query, minimum = 1, maximum = 1000, description = "Events on a page; 500."),
    ),
    responses((
        status = 200, body = EventPage, description = "A page of events.",
        headers(("Preference-Applied" = String, description = "`wait=N`."))
    ))
)]
pub(in crate::http) async fn session_events(
    State(gateway): State<Gateway>,
    by: Authorized<CanRead>,
    SessionPath(session): SessionPath,
    headers: HeaderMap,
    resume: ResumeOptions,
    params: Params,
) -> Result<Response, ApiError> {
    let form = negotiate(&headers, &[Representation::Json, Representation::EventStream, Representation::Ndjson])?;
    respond_session(&gateway, &by, session, form, resume, params).await
}

/// The session's log as Server-Sent Events, for any `Accept`.
///
/// `data` of each event is one `SessionEvent`. The stream replays the log from the cursor and goes on as the session does.
/// A refusal that may pass (429, 503) is a `problem` event in a stream, so that an EventSource comes back.
#[utoipa::path(
    get,
    path = "/v1/sessions/{session}/events/stream",
    tag = "events",
    params(
        ("Last-Event-ID" = Option<String>, Header, description = "Where to go on; wins over `after`."),
        ("after" = Option<String>, Query, pattern = "^(tail|[a-z0-9]{1,16}-(0|[1-9][0-9]{0,17}))$", description = "The id of an event, or `tail`; absent: from the beginning."),
        ("types" = Option<String>, Query, pattern = "^[a-z._]+(,[a-z._]+)*$", max_length = 256, description = "Only these types, or prefixes that end with a dot."),
        ("named" = Option<bool>, Query, description = "`false` leaves out `event:`."),
        ("follow" = Option<bool>, Query, description = "`false` ends the stream at the log's end."),
    ),
    responses(
        (status = 200, description = "The events.", content((SessionEvent = "text/event-stream"))),
        (status = 204, description = "A finite stream asked again at its end."),
    )
)]
pub(in crate::http) async fn session_events_stream(
    State(gateway): State<Gateway>,
    by: Authorized<CanRead>,
    SessionPath(session): SessionPath,
    last: LastEventId,
    params: Params,
) -> Result<Response, ApiError> {
    respond_session(&gateway, &by, session, Representation::EventStream, (last, PreferWait::default()), params).await
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
    if form != Representation::Json && !query.follow && query.cursor == Cursor::After(session.log().committed()) {
        return Ok(StatusCode::NO_CONTENT.into_response());
    }
    let reader = session.log().reader(reader_start(query.cursor));
    let feed = build_feed(gateway, Source::Session { reader, session }, &query);
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

/// This turn's events, page by page.
///
/// `Accept: text/event-stream` gives the same as `/events/stream`, and `Accept: application/x-ndjson` the same events one a
/// line. Both take `named` and `follow` too.
#[utoipa::path(
    get,
    path = "/v1/sessions/{session}/prompts/{prompt}/events",
    tag = "events",
    params(
        ("Last-Event-ID" = Option<String>, Header, description = "Where to go on; wins over `after`."),
        ("Prefer" = Option<String>, Header, description = "`wait=N`: hold an empty page up to N seconds, 60 at most."),
        ("after" = Option<String>, Query, pattern = "^(tail|[a-z0-9]{1,16}-(0|[1-9][0-9]{0,17}))$", description = "The id of an event, or `tail`; absent: from the turn's beginning."),
        ("types" = Option<String>, Query, pattern = "^[a-z._]+(,[a-z._]+)*$", max_length = 256, description = "Only these types, or prefixes that end with a dot."),
        ("limit" = Option<u16>, Query, minimum = 1, maximum = 1000, description = "Events on a page; 500."),
    ),
    responses((
        status = 200, body = EventPage, description = "A page of events.",
        headers(("Preference-Applied" = String, description = "`wait=N`."))
    ))
)]
pub(in crate::http) async fn prompt_events(
    State(gateway): State<Gateway>,
    by: Authorized<CanRead>,
    PromptPath(session, prompt): PromptPath,
    headers: HeaderMap,
    resume: ResumeOptions,
    params: Params,
) -> Result<Response, ApiError> {
    let form = negotiate(&headers, &[Representation::Json, Representation::EventStream, Representation::Ndjson])?;
    respond_turn(&gateway, &by, (session, prompt), form, resume, params).await
}

/// This turn's events as Server-Sent Events, for any `Accept`. The stream ends with the turn.
#[utoipa::path(
    get,
    path = "/v1/sessions/{session}/prompts/{prompt}/events/stream",
    tag = "events",
    params(
        ("Last-Event-ID" = Option<String>, Header, description = "Where to go on; wins over `after`."),
        ("after" = Option<String>, Query, pattern = "^(tail|[a-z0-9]{1,16}-(0|[1-9][0-9]{0,17}))$", description = "The id of an event, or `tail`; absent: from the turn's beginning."),
        ("types" = Option<String>, Query, pattern = "^[a-z._]+(,[a-z._]+)*$", max_length = 256, description = "Only these types, or prefixes that end with a dot."),
        ("named" = Option<bool>, Query, description = "`false` leaves out `event:`."),
        ("follow" = Option<bool>, Query, description = "`false` ends the stream at the log's end."),
    ),
    responses(
        (status = 200, description = "The events.", content((SessionEvent = "text/event-stream"))),
        (status = 204, description = "Asked again at the turn's end."),
    )
)]
pub(in crate::http) async fn prompt_events_stream(
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
    let turn = session.prompt_range(prompt).await?.ok_or_else(ApiError::not_found)?;
    let committed = session.log().committed();
    let over = match query.cursor {
        Cursor::After(seq) if seq <= committed => {
            turn.last_seq.is_some_and(|last| seq >= last) || !query.follow && seq == committed
        }
        _ => false,
    };
    if over && form != Representation::Json {
        return Ok(StatusCode::NO_CONTENT.into_response());
    }
    query.cursor = match query.cursor {
        Cursor::None => Cursor::After(turn.first_seq - 1),
        Cursor::After(seq) => Cursor::After(seq.max(turn.first_seq - 1)),
        other => other,
    };
    let reader = session.log().reader(reader_start(query.cursor));
    let source = Source::Session { reader, session };
    let turn = Some(TurnFilter { prompt, last_seq: turn.last_seq });
    let feed = Feed { turn, ..build_feed(gateway, source, &query) };
    stream_or_page(gateway, by, feed, &query, form, wait).await
}

/// The stream of a turn that was just admitted, for who posted it.
pub(super) fn stream_new_turn(
    gateway: &Gateway,
    admission: &Arc<Admission>,
    counted: StreamGuard,
    session: SessionHandle,
    admitted: &AdmittedPrompt,
) -> Response {
    let reader = session.log().reader(Start::After(admitted.first_seq - 1));
    let feed = Feed {
        client_cursor: reader.cursor(),
        source: Source::Session { reader, session },
        types: EventTypes::All,
        turn: Some(TurnFilter { prompt: admitted.prompt.prompt_id, last_seq: admitted.last_seq }),
        from_tail: false,
        epoch: gateway.epoch(),
        ids: gateway.ids.clone(),
    };
    respond(gateway, admission, counted, feed, Encoder::Sse { named: true }, true)
}

/// The events of many sessions in commit order, page by page.
///
/// Without `session`: of all that the key may read, new ones included, from now on, and without `session.update`,
/// `terminal.output` and `ext` unless `types` asks for them. `Accept: text/event-stream` gives the same as
/// `/v1/events/stream`, and takes `named` and `follow` too.
#[utoipa::path(
    get,
    path = "/v1/events",
    tag = "events",
    params(
        ("Last-Event-ID" = Option<String>, Header, description = "Where to go on; wins over `after`."),
        ("Prefer" = Option<String>, Header, description = "`wait=N`: hold an empty page up to N seconds, 60 at most."),
        ("session" = Option<Vec<String>>, Query, description = "A session, or `<session>@<event id>` with a start of its own; may be repeated."),
        ("after" = Option<String>, Query, pattern = "^(tail|[a-z0-9]{1,16}-g(0|[1-9][0-9]{0,17}))$", description = "An id of this stream, or `tail`."),
        ("types" = Option<String>, Query, pattern = "^[a-z._]+(,[a-z._]+)*$", max_length = 256, description = "Only these types, or prefixes that end with a dot."),
        ("limit" = Option<u16>, Query, minimum = 1, maximum = 1000, description = "Events on a page; 500."),
    ),
    responses((
        status = 200, body = EventPage, description = "A page of events.",
        headers(("Preference-Applied" = String, description = "`wait=N`."))
    ))
)]
pub(in crate::http) async fn all_events(
    State(gateway): State<Gateway>,
    by: Authorized<CanRead>,
    headers: HeaderMap,
    resume: ResumeOptions,
    params: Params,
) -> Result<Response, ApiError> {
    let form = negotiate(&headers, &[Representation::Json, Representation::EventStream])?;
    respond_all(&gateway, &by, form, resume, params).await
}

/// The events of many sessions in commit order as Server-Sent Events, for any `Accept`.
///
/// Without `session`: of all that the key may read, new ones included, from now on, and without `session.update`,
/// `terminal.output` and `ext` unless `types` asks for them.
#[utoipa::path(
    get,
    path = "/v1/events/stream",
    tag = "events",
    params(
        ("Last-Event-ID" = Option<String>, Header, description = "Where to go on; wins over `after`."),
        ("session" = Option<Vec<String>>, Query, description = "A session, or `<session>@<event id>` with a start of its own; may be repeated."),
        ("after" = Option<String>, Query, pattern = "^(tail|[a-z0-9]{1,16}-g(0|[1-9][0-9]{0,17}))$", description = "An id of this stream, or `tail`."),
        ("types" = Option<String>, Query, pattern = "^[a-z._]+(,[a-z._]+)*$", max_length = 256, description = "Only these types, or prefixes that end with a dot."),
        ("named" = Option<bool>, Query, description = "`false` leaves out `event:`."),
        ("follow" = Option<bool>, Query, description = "`false` ends the stream at the log's end."),
    ),
    responses(
        (status = 200, description = "The events.", content((SessionEvent = "text/event-stream"))),
        (status = 204, description = "A finite stream asked again at its end."),
    )
)]
pub(in crate::http) async fn all_events_stream(
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
        // A place in the whole log says that its client has seen a reset that an own start would bring again.
        Cursor::After(pos) => GlobalStart::After(pos),
        Cursor::None | Cursor::Tail if starts.is_none() => GlobalStart::Reset(ResetReason::NewEpoch),
        Cursor::None => GlobalStart::Beginning,
        Cursor::Tail => GlobalStart::Tail,
        Cursor::Reset(reason) => GlobalStart::Reset(reason),
    };
    let none = || chosen.iter().map(|(id, _)| (*id, None)).collect();
    let sessions_from = starts.unwrap_or_else(none);
    let scope =
        GlobalScope { tenant: by.tenant.clone(), sessions: (!chosen.is_empty()).then_some(sessions_from) };
    let reader = log.global_reader(scope, start).await?;
    let feed = build_feed(gateway, Source::All { reader: Box::new(reader), sessions }, &query);
    stream_or_page(gateway, by, feed, &query, form, wait).await
}

/// A session that a client chose, and its own start.
type SelectedSession = (SessionId, Option<EventId>);

fn parse_selected(texts: &[String]) -> Result<Vec<SelectedSession>, ApiError> {
    const MAX: usize = 256;
    if texts.len() > MAX {
        return Err(ApiError::invalid("session", format!("at most {MAX} sessions")));
    }
    let mut seen = HashSet::new();
    let one = |text: &String| {
        let (session, start) = text.split_once('@').map_or((text.as_str(), None), |(id, at)| (id, Some(at)));
        // What is no id names no session, as in a path.
        let session = session.parse().map_err(|_| ApiError::not_found())?;
        if !seen.insert(session) {
            return Err(ApiError::invalid("session", "a session may be given once"));
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

/// Where each chosen session begins; `None` when a start is of another epoch.
fn selected_starts(epoch: &Epoch, chosen: &[SelectedSession]) -> Option<HashMap<SessionId, Option<u64>>> {
    let one = |(id, start): &SelectedSession| match start {
        None => Some((*id, None)),
        Some(start) => (start.epoch == *epoch).then_some((*id, Some(start.seq))),
    };
    chosen.iter().map(one).collect()
}
