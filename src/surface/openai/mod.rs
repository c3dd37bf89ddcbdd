//! The API of `OpenAI`, at `/openai/v1`: models, chat completions and responses.
//!
//! An agent is a model. A turn is one completion. Tool calls of the agent never become `tool_calls`, because a client would
//! try to run them. A permission request keeps the response open, with a link to the page where a person answers.
//!
//! Read in this order:
//! 1. `chat`: chat completions, and the headers that name a conversation. `chat_encoder`: steps of a turn to completions.
//! 2. `response_encoder`: a response, its id and its items, and steps of a turn to frames. `items`: the items of a turn, for lists.
//!    `responses`, `conversations`: the handlers of responses and conversations.
//! 3. `models`: the agents.
//!
//! A turn is one response, or several: a permission request completes a response, and the next one begins with the answer.
//! The number of a response in its turn is the number of permission requests before it. Therefore the id of a response names
//! its frames, and a client can read them again from any position.

mod chat;
mod chat_encoder;
mod conversations;
mod items;
mod models;
mod response_encoder;
mod responses;

use axum::Router;
use axum::routing::{get, post};

use super::chat::{ErrorFormat, with_layers};
use crate::surface::http::AppState;

pub(super) fn router(app: &AppState) -> Router<AppState> {
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
    with_layers(routes, app, ErrorFormat::Json)
}
