//! Requests that end without an answer, and requests that ACP does not define.

use std::time::Duration;

use agent_client_protocol_schema::v1::{ToolCall, ToolCallStatus, ToolCallUpdateFields, ToolKind};
use serde_json::{Value, json};

use super::super::text::{error_text, fenced, number};
use super::super::turn::{Step, Turn};
use super::work;

/// A permission request that is cancelled after a time without an answer.
pub(super) async fn withdraw(turn: &mut Turn, input: &str) -> Step {
    let seconds = number(input, 5, 600);
    turn.say(&format!("I ask, and cancel the request after {seconds} s.\n\n")).await?;
    let title = "Think about the folder \"imaginary\"";
    let call = ToolCall::new("", title).kind(ToolKind::Think).status(ToolCallStatus::Pending);
    let call = turn.call(call).await?;
    let fields = ToolCallUpdateFields::new().title(title.to_owned()).kind(ToolKind::Think);
    let limit = Duration::from_secs(seconds.into());
    // Dropping the request cancels it at the client.
    if let Ok(answer) = tokio::time::timeout(limit, turn.ask(&call, fields)).await {
        answer?;
        turn.progress(&call, work::done("Answered in time.")).await?;
        return turn.say("You were quicker.").await;
    }
    turn.progress(&call, work::failed("The request was cancelled.")).await?;
    turn.say("I cancelled the request.").await
}

/// A notification and a request with extension names.
pub(super) async fn extension(turn: &mut Turn) -> Step {
    let session = turn.record().session_id.clone();
    turn.peer
        .notify("_demo/note", json!({ "sessionId": session, "note": "A note that ACP does not define." }))
        .await;
    turn.say("I sent the notification `_demo/note`, and ask `_demo/ask` now.\n\n").await?;
    let params = json!({ "sessionId": session, "question": "What is the answer?", "choices": [41, 42] });
    match turn.request::<_, Value>("_demo/ask", params).await? {
        Ok(answer) => {
            let answer = serde_json::to_string_pretty(&answer).unwrap_or_default();
            turn.say(&format!("The answer is\n\n{}\n", fenced("json", &answer))).await
        }
        Err(error) => turn.say(&format!("There was no answer: {}", error_text(&error))).await,
    }
}
