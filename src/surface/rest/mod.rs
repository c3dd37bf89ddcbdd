//! REST: the API below `/v1`, its event streams and pages, its problem documents, and the documents about it.
//!
//! The module owns the format of requests, responses and errors. It reaches sessions through
//! [`crate::session`], events through [`crate::eventlog`] and [`crate::stream`].
//!
//! Read in this order:
//! 1. `error`, `layers`, `compressed`: the error of a request, its problem document, and the compression of responses.
//! 2. `extract`, `negotiate`, `range`: the parts of a request.
//! 3. `routes`: the handlers and the table of routes.
//! 4. `events_query`, `event_page`: the responses of the `/events` routes.
//! 5. `openapi`, `docs`: the OpenAPI document and the pages about the API. `sign_in_socket`: the terminal of
//!    a sign-in. `fleet_socket`: the connection of a member of the fleet. `wire`: the parsers, for fuzz targets.

mod compressed;
mod docs;
mod error;
mod event_page;
mod events_query;
mod extract;
mod fleet_codec;
mod fleet_socket;
mod layers;
mod negotiate;
mod openapi;
mod range;
mod routes;
mod sign_in_socket;
pub mod wire;

use axum::Router;
use axum::routing::get;

use super::state::Gateway;

pub(super) use compressed::accepts_encoding;
pub(super) use error::{ApiError, FailedResponse};
pub(super) use extract::trace_context;
pub(super) use layers::{admit, method_not_allowed, panic_response, with_layers};
pub use openapi::document_json;

/// The routes of the API and of its documents.
pub(super) fn routes() -> Router<Gateway> {
    let (api, _) = routes::api_router().split_for_parts();
    api.route("/openapi.json", get(docs::openapi))
        .route("/docs", get(docs::index_without_slash))
        .route("/docs/", get(docs::index))
        .route("/docs/problems", get(docs::problems))
        .route("/docs/{file}", get(docs::file))
        .route("/docs/guides/{page}", get(docs::guide))
        .route("/docs/reference/{page}", get(docs::reference))
}
