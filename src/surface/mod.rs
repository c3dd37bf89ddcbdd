//! The surfaces: protocols that clients use to reach sessions.
//!
//! A surface translates between its protocol and the session registry and streams. It has its own error
//! format, and stores nothing. It must not know sockets, processes, the store or the configuration.
//!
//! `http` has what all surfaces share, and imports none of them. No surface imports another one. A surface with state of its
//! own (`acp`) wraps the shared state.
//!
//! Read in this order:
//! 1. `http`: the parts of a request, its admission and authorization, and its errors.
//! 2. `rest`: the API below `/v1`, and its documents. `page`: the chat page.
//! 3. `acp`: the remote transport of ACP at `/acp`.
//! 4. `chat`: the parts that chat protocols share. `ai_sdk`: the UI message stream of the Vercel AI
//!    SDK. `openai`: the API of `OpenAI`. `ag_ui`: AG-UI.

mod acp;
mod ag_ui;
mod ai_sdk;
mod chat;
pub mod http;
mod openai;
mod page;
pub mod rest;

use std::sync::Arc;

use axum::Router;
use axum::middleware::from_fn_with_state;

pub use self::http::{AppParts, AppState};
use crate::server;

/// The router of all surfaces. Build it once: its clones share the table.
pub fn router(app: AppState) -> Router {
    let requests = Arc::clone(&app.requests);
    rest::with_layers(rest::routes().merge(page::routes()), &app)
        .merge(acp::router(&app))
        .merge(ag_ui::router(&app))
        .merge(ai_sdk::router(&app))
        .merge(openai::router(&app))
        .layer(from_fn_with_state(requests, server::finish_response))
        .with_state(app)
}
