//! The API of `OpenAI`, at `/openai/v1`: models, chat completions and responses.
//!
//! An agent is a model. A turn is one completion. Tool calls of the agent never become `tool_calls`, because a client would
//! try to run them. A permission request keeps the response open, with a link to the page where a person answers.
//!
//! Read in this order:
//! 1. `chat`: chat completions, and the headers that name a conversation. `chat_encoder`: steps of a turn to completions.
//! 2. `responses`: the responses API.
//! 3. `models`: the agents.

mod chat;
mod chat_encoder;
mod models;
mod responses;

use axum::Router;
use axum::routing::{get, post};

use self::responses::conversations;
use super::chat::{ErrorFormat, with_layers};
use crate::surface::http::Gateway;

pub(super) fn router(gateway: &Gateway) -> Router<Gateway> {
    let routes = Router::new()
        .route("/openai/v1/models", get(models::list))
        .route("/openai/v1/models/{*model}", get(models::get))
        .route("/openai/v1/chat/completions", post(chat::create))
        .route("/openai/v1/responses", post(responses::create))
        .route("/openai/v1/responses/{response}", get(responses::get))
        .route(
            "/openai/v1/responses/{response}/cancel",
            post(responses::cancel),
        )
        .route(
            "/openai/v1/responses/{response}/input_items",
            get(responses::input_items),
        )
        .route("/openai/v1/conversations", post(conversations::create))
        .route(
            "/openai/v1/conversations/{conversation}",
            get(conversations::get).delete(conversations::delete),
        )
        .route(
            "/openai/v1/conversations/{conversation}/items",
            get(conversations::items),
        );
    with_layers(routes, gateway, ErrorFormat::Json)
}
