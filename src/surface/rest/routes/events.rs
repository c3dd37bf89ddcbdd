//! `/events`: the events of one session, of one turn, and of many sessions, as pages or as streams.

use std::collections::{HashMap, HashSet};

use axum::response::{IntoResponse, Response};
use http::{HeaderMap, StatusCode};

use super::operations::Routes;
use crate::stream::{EventTypes, Feed, SharedReads, Source, TurnFilter};
use crate::surface::http::{
    ApiError, ApiRequest, AppState, Authorized, CanAdmin, CanRead, LastEventId, Params, PreferWait,
    Result,
};
use crate::surface::rest::events_query::{EventsQuery, page_response};
use crate::surface::rest::negotiate::{Representation, negotiate};
use base::types::{Epoch, EventId, Position, PromptId, SessionId};
use events::event::{AuditPage, EventPage, ResetReason, SessionEvent};
use log::eventlog::{GlobalScope, Start};
use sessions::session::SessionHandle;

pub(super) fn routes() -> Routes {
    routes![
        session_events,
        session_events_stream,
        prompt_events,
        prompt_events_stream,
        all_events,
        all_events_stream,
        get_audit
    ]
}

type EventsRequest<I> = ApiRequest<CanRead, I, Params>;
const MAX_WAIT_SECONDS: u64 = 60;
const FORMATS: [Representation; 3] = [
    Representation::Json,
    Representation::EventStream,
    Representation::Ndjson,
];

async fn stream_or_page<S, I>(
    request: ApiRequest<S, I, Params>,
    source: Source,
    turn: Option<TurnFilter>,
    query: EventsQuery,
    form: Representation,
    wait: PreferWait,
) -> Result<Response> {
    let app = request.app;
    let by = request.by;
    let encoder = query.encoder(form);
    let feed = Feed {
        types: query.types.unwrap_or(EventTypes::All),
        turn,
        from_tail: query.start == Start::Tail,
        ..app.feed(source)
    };
    if let Some(encoder) = encoder {
        let guard = app.streams.acquire(&by, "events")?;
        return Ok(app.stream_response(by.admission(), guard, feed, encoder, query.follow));
    }
    let wait = wait.duration(MAX_WAIT_SECONDS);
    // A held page counts as a stream.
    let _guard = wait.map(|_| app.streams.acquire(&by, "held")).transpose()?;
    let page = page_response(&app, by.admission(), feed, query.limit, wait);
    // Boxed, because the future of a stream would otherwise reserve the space of a page.
    Box::pin(page).await
}

/// Reads the events of a session, page by page.
///
/// `Accept: text/event-stream` returns the same as `/events/stream`. `Accept: application/x-ndjson` streams
/// the same events, one JSON object on each line. Both formats also accept the parameters `named` and
/// `follow`.
#[utoipa::path(get, path = "/v1/sessions/{session}/events", responses(
    (status = 200, body = EventPage, description = "A page of events."),
))]
async fn session_events(
    request: EventsRequest<SessionId>,
    headers: HeaderMap,
    last: LastEventId,
    wait: PreferWait,
) -> Result<Response> {
    respond_session(request, negotiate(&headers, &FORMATS)?, last, wait).await
}

/// Streams the events of a session as Server-Sent Events, for any `Accept`.
///
/// The `data` of each event is one `SessionEvent`. The stream replays the log from the cursor, then continues
/// with new events. A temporary error (429, 503) is a `problem` event in a stream, so that an `EventSource`
/// reconnects.
#[utoipa::path(get, path = "/v1/sessions/{session}/events/stream", responses(
    (status = 200, content((SessionEvent = "text/event-stream")), description = "The stream of events."),
    (status = 204, description = "With `follow=false`: there are no events after the cursor. An `EventSource` does not reconnect."),
))]
async fn session_events_stream(
    request: EventsRequest<SessionId>,
    last: LastEventId,
) -> Result<Response> {
    let wait = PreferWait::default();
    respond_session(request, Representation::EventStream, last, wait).await
}

async fn respond_session(
    mut request: EventsRequest<SessionId>,
    form: Representation,
    last: LastEventId,
    wait: PreferWait,
) -> Result<Response> {
    let epoch = request.app.epoch().of_session(request.ids);
    let query = EventsQuery::parse::<EventId>(&mut request.params, &last, &epoch)?;
    request.params.finish()?;
    let session = request.open_session().await?;
    if form != Representation::Json && query.ends_at(session.log().committed()) {
        return Ok(StatusCode::NO_CONTENT.into_response());
    }
    let reader = session.log().reader(query.start);
    let source = Source::session(reader, session);
    stream_or_page(request, source, None, query, form, wait).await
}

/// Reads the events of a turn, page by page.
///
/// `Accept: text/event-stream` returns the same as `/events/stream`. `Accept: application/x-ndjson` streams
/// the same events, one JSON object on each line. Both formats also accept the parameters `named` and
/// `follow`.
#[utoipa::path(get, path = "/v1/sessions/{session}/prompts/{prompt}/events", responses(
    (status = 200, body = EventPage, description = "A page of events."),
))]
async fn prompt_events(
    request: EventsRequest<(SessionId, PromptId)>,
    headers: HeaderMap,
    last: LastEventId,
    wait: PreferWait,
) -> Result<Response> {
    respond_turn(request, negotiate(&headers, &FORMATS)?, last, wait).await
}

/// Streams the events of a turn as Server-Sent Events, for any `Accept`. The stream ends with the turn.
///
/// `Last-Event-ID` or `after` continues behind an event. After the end of the turn the stream has `end` and closes. It
/// counts against the streams of the user.
#[utoipa::path(get, path = "/v1/sessions/{session}/prompts/{prompt}/events/stream", responses(
    (status = 200, content((SessionEvent = "text/event-stream")), description = "The stream of events."),
    (status = 204, description = "The cursor is at the end of the turn, or with `follow=false` at the end of the log. An `EventSource` does not reconnect."),
))]
async fn prompt_events_stream(
    request: EventsRequest<(SessionId, PromptId)>,
    last: LastEventId,
) -> Result<Response> {
    let wait = PreferWait::default();
    respond_turn(request, Representation::EventStream, last, wait).await
}

async fn respond_turn(
    mut request: EventsRequest<(SessionId, PromptId)>,
    form: Representation,
    last: LastEventId,
    wait: PreferWait,
) -> Result<Response> {
    let epoch = request.app.epoch().of_session(request.ids.0);
    let mut query = EventsQuery::parse::<EventId>(&mut request.params, &last, &epoch)?;
    request.params.finish()?;
    let session = request.open_session().await?;
    let prompt = request.ids.1;
    let turn = session.query().prompt_range(prompt).await?;
    let turn = turn.ok_or_else(ApiError::not_found)?;
    let committed = session.log().committed();
    let ended = match query.start {
        Start::After(seq) if seq <= committed => {
            turn.last_seq.is_some_and(|last| seq >= last) || !query.follow && seq == committed
        }
        _ => false,
    };
    if ended && form != Representation::Json {
        return Ok(StatusCode::NO_CONTENT.into_response());
    }
    query.start = match query.start {
        Start::Beginning => Start::After(turn.first_seq - 1),
        Start::After(seq) => Start::After(seq.max(turn.first_seq - 1)),
        other => other,
    };
    let reader = session.log().reader(query.start);
    let source = Source::session(reader, session);
    let last_seq = turn.last_seq;
    let turn = Some(TurnFilter { prompt, last_seq });
    stream_or_page(request, source, turn, query, form, wait).await
}

/// Reads the events of many sessions in commit order, page by page.
///
/// Without `session`, the response has the events of all sessions of the user and of those that are shared with the user,
/// including new sessions. It then begins at the end of the log, and contains `session.update`, `terminal.output` and
/// `extension` events only if `types` names them. `Accept: text/event-stream` returns the same as
/// `/v1/events/stream`. `Accept: application/x-ndjson` streams the same events, one JSON object on each line. Both
/// formats also accept `named`, `follow` and `summaries`.
#[utoipa::path(get, path = "/v1/events", responses(
    (status = 200, body = EventPage, description = "A page of events."),
))]
async fn all_events(
    request: EventsRequest<()>,
    headers: HeaderMap,
    last: LastEventId,
    wait: PreferWait,
) -> Result<Response> {
    respond_all(request, negotiate(&headers, &FORMATS)?, last, wait).await
}

/// Streams the events of many sessions in commit order as Server-Sent Events, for any `Accept`.
///
/// Without `session`, the stream has the events of all sessions of the user and of those that are shared with the user,
/// including new sessions. It then begins at the end of the log, and contains `session.update`, `terminal.output` and
/// `extension` events only if `types` names them. `session.shared` and `session.unshared` report a change of the access to
/// a session of another user.
///
/// With `summaries=true`, the stream has the events of the named sessions only, and after `ready` one
/// `session.summary` for each change of any session of the list of sessions.
#[utoipa::path(get, path = "/v1/events/stream", responses(
    (status = 200, content((SessionEvent = "text/event-stream")), description = "The stream of events."),
    (status = 204, description = "With `follow=false`: there are no events after the cursor. An `EventSource` does not reconnect."),
))]
async fn all_events_stream(request: EventsRequest<()>, last: LastEventId) -> Result<Response> {
    let wait = PreferWait::default();
    respond_all(request, Representation::EventStream, last, wait).await
}

async fn respond_all(
    mut request: EventsRequest<()>,
    form: Representation,
    last: LastEventId,
    wait: PreferWait,
) -> Result<Response> {
    let epoch = request.app.epoch();
    let mut query = EventsQuery::parse::<Position>(&mut request.params, &last, &epoch)?;
    let chosen = parse_selected(&request.params.all("session"))?;
    let summaries = request.params.flag("summaries", false)?;
    request.params.finish()?;
    if summaries && form == Representation::Json {
        let detail = "expected a stream: a page has no summaries";
        return Err(ApiError::invalid("summaries", detail));
    }
    let sessions = open_selected(&request.app, &request.by, &chosen).await?;
    if chosen.is_empty() {
        query.types.get_or_insert(EventTypes::NoBulk);
        if query.start == Start::Beginning {
            query.start = Start::Tail;
        }
    }
    let log = request.app.log();
    if form != Representation::Json && query.ends_at(log.position().pos) {
        return Ok(StatusCode::NO_CONTENT.into_response());
    }
    let starts = selected_starts(&epoch, &chosen);
    let start = match query.start {
        Start::Beginning | Start::Tail if starts.is_none() => Start::Reset(ResetReason::NewEpoch),
        // A client with a position in the global log has already received the reset, if there was one.
        start => start,
    };
    let none = || chosen.iter().map(|(id, _)| (*id, None)).collect();
    let starts = starts.unwrap_or_else(none);
    let owner = request.by.user.clone();
    let summaries = summaries.then(|| log.summaries(&owner));
    let selects = summaries.is_some() || !chosen.is_empty();
    let follows_shares = summaries.is_some() || chosen.is_empty();
    let scope = GlobalScope {
        owner: owner.clone(),
        with_shared: true,
        sessions: selects.then_some(starts),
    };
    let reader = log.global_reader(scope, start).await?;
    let reads = SharedReads {
        audit: request.app.audit.clone(),
        author: request.by.author(),
        user: owner.clone(),
    };
    let mut source = Source::merged(reader, sessions, summaries, reads);
    if follows_shares {
        source = source.with_shares(log, &owner);
    }
    stream_or_page(request, source, None, query, form, wait).await
}

/// A session that the client selects, and the event after which it begins.
type SelectedSession = (SessionId, Option<EventId>);

fn parse_selected(texts: &[String]) -> Result<Vec<SelectedSession>> {
    const MAX: usize = 256;
    if texts.len() > MAX {
        let detail = format!("expected at most {MAX} sessions");
        return Err(ApiError::invalid("session", detail));
    }
    let mut seen = HashSet::new();
    let one = |text: &String| {
        let (session, start) = match text.split_once('@') {
            Some((session, start)) => (session, Some(start)),
            None => (text.as_str(), None),
        };
        // As in a path, an invalid id is 404.
        let session = session.parse().map_err(|_| ApiError::not_found())?;
        if !seen.insert(session) {
            let detail = "expected each session at most once";
            return Err(ApiError::invalid("session", detail));
        }
        let start = start.map(str::parse).transpose();
        let expected = "expected the id of an event of the session after @";
        let start = start.map_err(|_| ApiError::invalid("session", expected))?;
        Ok((session, start))
    };
    texts.iter().map(one).collect()
}

async fn open_selected(
    app: &AppState,
    by: &Authorized<CanRead>,
    chosen: &[SelectedSession],
) -> Result<Vec<SessionHandle>> {
    let mut sessions = Vec::with_capacity(chosen.len());
    for (id, _) in chosen {
        sessions.push(app.open_one_session(by, *id).await?);
    }
    Ok(sessions)
}

/// The position after which each selected session begins; `None` if one of them is of another session or store.
fn selected_starts(
    epoch: &Epoch,
    chosen: &[SelectedSession],
) -> Option<HashMap<SessionId, Option<u64>>> {
    let one = |(id, start): &SelectedSession| match start {
        None => Some((*id, None)),
        Some(start) => (start.epoch == epoch.of_session(*id)).then_some((*id, Some(start.seq))),
    };
    chosen.iter().map(one).collect()
}

/// Reads the audit log, page by page.
///
/// The log has changes of keys, sign-ins, permission decisions with their authors, rejected requests and isolation
/// levels. `Accept: text/event-stream` returns a stream of Server-Sent Events. `Accept: application/x-ndjson` streams
/// the same events, one JSON object on each line. A stream replays the log from the cursor, then continues with new
/// events. Both streams also accept the parameters `named` and `follow`.
#[utoipa::path(get, path = "/v1/audit", responses(
    (status = 200, body = AuditPage, description = "A page of events."),
    (status = 204, description = "A stream with `follow=false`: there are no events after the cursor."),
))]
async fn get_audit(
    mut request: ApiRequest<CanAdmin, (), Params>,
    headers: HeaderMap,
    last: LastEventId,
    wait: PreferWait,
) -> Result<Response> {
    let form = negotiate(&headers, &FORMATS)?;
    let epoch = request.app.epoch().of_session(SessionId::AUDIT);
    let query = EventsQuery::parse::<EventId>(&mut request.params, &last, &epoch)?;
    request.params.finish()?;
    let log = request.app.audit.log().clone();
    if form != Representation::Json && query.ends_at(log.committed()) {
        return Ok(StatusCode::NO_CONTENT.into_response());
    }
    let source = Source::log(log.reader(query.start));
    stream_or_page(request, source, None, query, form, wait).await
}
