//! The handlers of the API, one file for each resource, and the table of all routes.
//!
//! A handler extracts and checks its input, calls the session registry, the pool or the event log, and
//! encodes the response. The `utoipa` attributes and doc comments of the handlers and
//! `../openapi/document.json` are the OpenAPI document.
//! Routes must not know connections, streams' back-pressure or the store. Begin with `sessions`, then
//! `prompts` and `events`.

mod agents;
mod auth;
mod broadcasts;
mod events;
mod files;
mod fleet;
mod gateway;
mod prompts;
mod requests;
mod sessions;
mod settings;
mod tasks;
mod terminals;
mod tickets;
mod transcript;
mod webhooks;
mod workspaces;

use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::surface::http::Gateway;

/// The routes that the OpenAPI document describes. Each route is registered together with its operation, so
/// the document lists every route.
pub(super) fn api_router() -> OpenApiRouter<Gateway> {
    OpenApiRouter::new()
        .routes(routes!(gateway::get_gateway))
        .routes(routes!(agents::list_agents))
        .routes(routes!(agents::get_agent))
        .routes(routes!(agents::list_agent_sessions))
        .routes(routes!(agents::list_installable_agents))
        .routes(routes!(agents::list_agent_processes))
        .routes(routes!(auth::get_auth, auth::sign_in, auth::sign_out))
        .routes(routes!(auth::open_terminal))
        .routes(routes!(agents::call_agent))
        .routes(routes!(
            sessions::list_sessions,
            sessions::create_session,
            sessions::delete_sessions
        ))
        .routes(routes!(sessions::close_sessions))
        .routes(routes!(
            sessions::get_session,
            sessions::patch_session,
            sessions::delete_session
        ))
        .routes(routes!(sessions::attach_session))
        .routes(routes!(sessions::close_session))
        .routes(routes!(sessions::fork_session))
        .routes(routes!(settings::call_session))
        .routes(routes!(prompts::list_prompts, prompts::create_prompt))
        .routes(routes!(prompts::create_prompt_stream))
        .routes(routes!(prompts::get_prompt, prompts::patch_prompt))
        .routes(routes!(prompts::cancel_session))
        .routes(routes!(prompts::cancel_prompt))
        .routes(routes!(settings::cancel_tool_call))
        .routes(routes!(settings::cancel_agent_terminal))
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
        .routes(routes!(
            files::read_file,
            files::write_file,
            files::delete_file
        ))
        .routes(routes!(files::list_changes))
        .routes(routes!(files::read_change, files::revert_change))
        .routes(routes!(workspaces::list_workspaces))
        .routes(routes!(transcript::get_transcript))
        .routes(routes!(transcript::get_transcript_markdown))
        .routes(routes!(transcript::get_stderr))
        .routes(routes!(tickets::create_ticket))
        .routes(routes!(events::get_audit))
        .routes(routes!(fleet::list_members, fleet::remove_members))
        .routes(routes!(fleet::connect_member))
        .routes(routes!(fleet::drain_member))
        .routes(routes!(fleet::remove_member))
        .routes(routes!(tasks::list_tasks, tasks::create_task))
        .routes(routes!(tasks::get_task))
        .routes(routes!(tasks::cancel_task))
        .routes(routes!(webhooks::list_webhooks, webhooks::create_webhook))
        .routes(routes!(webhooks::get_webhook, webhooks::delete_webhook))
        .routes(routes!(webhooks::get_webhook_secret))
        .routes(routes!(webhooks::list_deliveries))
        .routes(routes!(webhooks::retry_delivery))
        .routes(routes!(fleet::call_member))
        .routes(routes!(broadcasts::create_broadcast))
        .routes(routes!(gateway::livez))
        .routes(routes!(gateway::readyz))
}
