//! The table of all routes, and the middleware around them.
//!
//! Each route is registered together with its OpenAPI operation, so the document lists every route.

use axum::Router;
use axum::middleware::from_fn_with_state;
use axum::routing::get;
use tower_http::catch_panic::CatchPanicLayer;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::error::ApiError;
use super::layers;
use super::page;
use super::routes::{
    agents, auth, auth_terminal, bulk, cancellations, docs, events, files, gateway, health, prompts,
    requests, rpc, sessions, settings, terminals, tickets, transcript,
};
use super::state::Gateway;
use crate::api::ProblemCode;

/// The routes that the OpenAPI document describes.
pub(super) fn api_router() -> OpenApiRouter<Gateway> {
    OpenApiRouter::new()
        .routes(routes!(gateway::get_gateway))
        .routes(routes!(agents::list_agents))
        .routes(routes!(agents::get_agent))
        .routes(routes!(agents::list_agent_sessions))
        .routes(routes!(auth::get_auth, auth::sign_in, auth::sign_out))
        .routes(routes!(auth_terminal::open_terminal))
        .routes(routes!(rpc::call_agent))
        .routes(routes!(sessions::list_sessions, sessions::create_session, bulk::delete_sessions))
        .routes(routes!(bulk::close_sessions))
        .routes(routes!(sessions::get_session, sessions::patch_session, sessions::delete_session))
        .routes(routes!(sessions::attach_session))
        .routes(routes!(sessions::close_session))
        .routes(routes!(sessions::fork_session))
        .routes(routes!(settings::call_session))
        .routes(routes!(prompts::list_prompts, prompts::create_prompt))
        .routes(routes!(prompts::create_prompt_stream))
        .routes(routes!(prompts::get_prompt))
        .routes(routes!(prompts::cancel_session))
        .routes(routes!(prompts::cancel_prompt))
        .routes(routes!(cancellations::cancel_tool_call))
        .routes(routes!(cancellations::cancel_agent_terminal))
        .routes(routes!(events::session_events))
        .routes(routes!(events::session_events_stream))
        .routes(routes!(events::prompt_events))
        .routes(routes!(events::prompt_events_stream))
        .routes(routes!(events::all_events))
        .routes(routes!(events::all_events_stream))
        .routes(routes!(requests::list_requests))
        .routes(routes!(requests::answer_request))
        .routes(routes!(requests::answer_permission))
        .routes(routes!(requests::answer_elicitation))
        .routes(routes!(terminals::list_terminals))
        .routes(routes!(terminals::get_terminal))
        .routes(routes!(terminals::kill_terminal))
        .routes(routes!(settings::set_mode))
        .routes(routes!(settings::set_config_option))
        .routes(routes!(files::list_files))
        .routes(routes!(files::read_file, files::write_file, files::delete_file))
        .routes(routes!(transcript::get_transcript))
        .routes(routes!(transcript::get_transcript_markdown))
        .routes(routes!(transcript::get_stderr))
        .routes(routes!(tickets::create_ticket))
        .routes(routes!(health::livez))
        .routes(routes!(health::readyz))
}

/// The complete router. Build it once: its clones share the table.
pub fn router(gateway: Gateway) -> Router {
    let (contract, _) = api_router().split_for_parts();
    contract
        .route("/openapi.json", get(docs::openapi))
        .route("/docs", get(docs::index_without_slash))
        .route("/docs/", get(docs::index))
        .route("/docs/problems", get(docs::problems))
        .route("/docs/{file}", get(docs::file))
        .route("/", get(page::index))
        .route("/assets/{*file}", get(page::asset))
        .route("/favicon.svg", get(page::favicon))
        .fallback(not_found)
        .method_not_allowed_fallback(method_not_allowed)
        .layer(from_fn_with_state(gateway.clone(), layers::admit))
        .layer(CatchPanicLayer::custom(layers::panic_response))
        .layer(from_fn_with_state(gateway.clone(), layers::finish_response))
        .with_state(gateway)
}

async fn not_found() -> ApiError {
    ApiError::new(ProblemCode::NotFound, "no route matches this path")
}

async fn method_not_allowed() -> ApiError {
    ApiError::new(ProblemCode::MethodNotAllowed, "this path supports only the methods in the Allow header")
}
