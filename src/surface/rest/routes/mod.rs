//! The handlers of the API, one file for each resource, which registers its own routes.
//!
//! A handler extracts and checks its input, calls the session registry, the pool or the event log, and
//! encodes the response. The `utoipa` attributes and doc comments of the handlers and
//! `../openapi/document.json` are the OpenAPI document.
//! Routes must not know connections, streams' back-pressure or the store. Begin with `sessions`, then
//! `prompts` and `events`.

#[macro_use]
mod operations;

mod admin;
mod agents;
mod events;
mod files;
mod fleet;
mod gateway;
mod grants;
mod keys;
mod metrics;
mod prompts;
mod requests;
mod sessions;
mod tasks;
mod transcript;
mod webhooks;

pub(super) use operations::Routes;

/// The routes that the OpenAPI document describes.
pub(super) fn api_routes() -> Routes {
    Routes::default()
        .merge(gateway::routes())
        .merge(metrics::routes())
        .merge(admin::routes())
        .merge(keys::routes())
        .merge(agents::routes())
        .merge(sessions::routes())
        .merge(prompts::routes())
        .merge(events::routes())
        .merge(requests::routes())
        .merge(transcript::routes())
        .merge(grants::routes())
        .merge(files::routes())
        .merge(fleet::routes())
        .merge(tasks::routes())
        .merge(webhooks::routes())
}
