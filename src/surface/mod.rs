//! The surfaces: protocols that clients use to reach sessions.
//!
//! A surface translates between its protocol and the session registry and streams. It has its own error
//! format, and stores nothing. It must not know sockets, processes, the store or the configuration.
//!
//! Read in this order:
//! 1. `state`: the components that all surfaces share. `authorized`, `turn`: the scope of a request, and the
//!    start of a turn.
//!    `body`, `json`: the body of a request. `sign_in`: the sign-in to an agent.
//! 2. `rest`: the API below `/v1`, and its documents.
//! 3. `acp`: the remote transport of ACP at `/acp`.
//! 4. `chat`: the parts that chat protocols share. `ai_sdk`: the UI message stream of the Vercel AI
//!    SDK. `openai`: the API of `OpenAI`. `ag_ui`: AG-UI.
//! 5. `page`, `embedded`: the chat page.

mod acp;
mod ag_ui;
mod ai_sdk;
mod authorized;
mod body;
mod chat;
mod embedded;
mod json;
mod openai;
mod page;
pub mod rest;
mod sign_in;
mod state;
mod turn;

use std::sync::Arc;

use axum::Router;
use axum::middleware::from_fn_with_state;

use crate::server;

pub use state::{Gateway, GatewayParts};

/// The router of all surfaces. Build it once: its clones share the table.
pub fn router(gateway: Gateway) -> Router {
    let requests = Arc::clone(gateway.requests());
    rest::with_layers(rest::routes().merge(page::routes()), &gateway)
        .merge(acp::router(&gateway))
        .merge(ag_ui::router(&gateway))
        .merge(ai_sdk::router(&gateway))
        .merge(openai::router(&gateway))
        .layer(from_fn_with_state(requests, server::finish_response))
        .with_state(gateway)
}
