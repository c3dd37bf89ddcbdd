//! `/v1/audit`: the audit log, as pages or as a stream.

use axum::response::{IntoResponse, Response};
use http::{HeaderMap, StatusCode};

use super::events::{FORMATS, ResumeOptions, reader_start, stream_or_page};
use crate::event::AuditPage;
use crate::stream::Source;
use crate::surface::authorized::CanAdmin;
use crate::surface::rest::error::ApiError;
use crate::surface::rest::events_query::{Cursor, EventsQuery};
use crate::surface::rest::extract::{ApiRequest, Params};
use crate::surface::rest::negotiate::{Representation, negotiate};
use crate::types::{EventId, SessionId};

/// Reads the audit log, page by page.
///
/// The log has changes of keys, sign-ins, permission decisions with their authors, rejected requests and isolation
/// levels. `Accept: text/event-stream` returns a stream of Server-Sent Events. `Accept: application/x-ndjson` streams
/// the same events, one JSON object on each line. A stream replays the log from the cursor, then continues with new
/// events. Both streams also accept the parameters `named` and `follow`.
#[utoipa::path(
    get,
    path = "/v1/audit",
    responses(
        (status = 200, body = AuditPage, description = "A page of events."),
        (status = 204, description = "A stream with `follow=false`: there are no events after the cursor."),
    )
)]
pub(super) async fn get_audit(
    mut request: ApiRequest<CanAdmin, (), Params>,
    headers: HeaderMap,
    (last, wait): ResumeOptions,
) -> Result<Response, ApiError> {
    let form = negotiate(&headers, &FORMATS)?;
    let epoch = request.gateway.epoch().of_session(SessionId::AUDIT);
    let query = EventsQuery::parse::<EventId>(&mut request.params, &last, &epoch)?;
    request.params.finish()?;
    let log = request.gateway.audit.log().clone();
    let at_end = !query.follow && query.cursor == Cursor::After(log.committed());
    if at_end && form != Representation::Json {
        return Ok(StatusCode::NO_CONTENT.into_response());
    }
    let source = Source::log(log.reader(reader_start(query.cursor)));
    stream_or_page(request, source, None, query, form, wait).await
}
