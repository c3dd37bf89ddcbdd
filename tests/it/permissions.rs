//! Requests of an agent that a person answers.

mod answers;
mod ends;

use serde_json::Value;

use crate::support::{Gateway, Setup};

/// A session whose agent has requested permission. Returns its event.
async fn asking(setup: Setup, text: &str) -> (Gateway, String, Value) {
    let gateway = setup.start();
    let session = gateway.session("fake").await;
    gateway.prompt(&session, text).await;
    let mut events = gateway
        .log_until(&session, |event| event["type"] == "request.created")
        .await;
    (gateway, session, events.pop().expect("the request"))
}
