//! REST: the API below `/v1`, its event streams and pages, its problem documents, and the documents about it.
//!
//! The module owns the format of requests, responses and errors. It reaches sessions through
//! [`sessions::session`], events through [`log::eventlog`] and [`crate::stream`].
//!
//! Read in this order:
//! 1. `layers`: admission, problem documents, and the compression of responses. `negotiate`: parts of a request
//!    that no other surface reads.
//! 2. `routes`: the handlers and their routes. `events_query`: the responses of the `/events` routes.
//! 3. `sign_in_socket`: the terminal of a sign-in. `fleet_socket`: the connection of a member of the fleet.
//! 4. `openapi`, `docs`: the OpenAPI document and the pages about the API. `wire`: the parsers, for fuzz targets.

mod docs;
mod events_query;
mod fleet_socket;
mod layers;
mod negotiate;
mod openapi;
mod routes;
mod sign_in_socket;
pub mod wire;

use axum::Router;
use axum::routing::get;

use crate::surface::http::AppState;

pub(super) use layers::with_layers;
pub use openapi::document_json;

pub(super) fn routes() -> Router<AppState> {
    routes::api_routes()
        .into_router()
        .route("/openapi.json", get(docs::openapi))
        .route("/docs", get(docs::index_without_slash))
        .route("/docs/", get(docs::index))
        .route("/docs/api", get(docs::api))
        .route("/docs/problems", get(docs::problems))
        .route("/docs/{file}", get(docs::file))
        .route("/docs/guides/{page}", get(docs::guide))
        .route("/docs/reference/{page}", get(docs::reference))
}
