//! Requests to the user: a form, a page to open, a request that ends without an answer, and a request that ACP
//! does not define.

use std::time::Duration;

use agent_client_protocol_schema::v1::Error;
use serde_json::{Value, json};

use super::super::text::{error_text, fenced, number, quoted};
use super::super::turn::{Step, Turn};

/// The maximum number of characters of a value in the answer.
const VALUE_MAX: usize = 80;

pub(super) async fn form(turn: &mut Turn, input: &str) -> Step {
    turn.say("Here is a form; the turn waits until you send it.\n\n")
        .await?;
    let mut schema: Value = serde_json::from_str(include_str!("../form.json"))
        .map_err(|error| Error::internal_error().data(error.to_string()))?;
    if input == "short" {
        let name = &schema["properties"]["name"];
        schema = json!({ "type": "object", "properties": { "name": name }, "required": ["name"] });
    }
    let params = json!({
        "mode": "form",
        "message": "The demo would like to know some things.",
        "requestedSchema": schema,
    });
    let text = match turn.request("elicitation/create", params).await? {
        Ok(answer) => match answer["action"].as_str() {
            Some("accept") => format!("You answered:\n\n{}", listed(&answer["content"])),
            Some("decline") => "You declined to answer.".to_owned(),
            _ => "You cancelled the form.".to_owned(),
        },
        Err(error) => format!("Your client did not ask: {}", error_text(&error)),
    };
    turn.say(&text).await
}

fn listed(values: &Value) -> String {
    let line = |(name, value): (&String, &Value)| {
        let value = match value {
            Value::String(text) => quoted(text, VALUE_MAX),
            Value::Bool(true) => "yes".to_owned(),
            Value::Bool(false) => "no".to_owned(),
            Value::Array(items) => {
                let texts: Vec<&str> = items.iter().filter_map(Value::as_str).collect();
                quoted(&texts.join(", "), VALUE_MAX)
            }
            other => other.to_string(),
        };
        format!("- {}: {value}\n", quoted(name, VALUE_MAX))
    };
    match values.as_object() {
        Some(values) if !values.is_empty() => values.iter().map(line).collect(),
        _ => "nothing at all.".to_owned(),
    }
}

pub(super) async fn link(turn: &mut Turn) -> Step {
    turn.say("Here is a page to open; the turn waits until you say whether you will.\n\n")
        .await?;
    let id = turn.new_id("page-");
    let params = json!({
        "mode": "url",
        "message": "Open the demo's page, where you would sign in with a real agent.",
        "elicitationId": id,
        "url": format!("https://example.com/demo?for={id}"),
    });
    match turn.request("elicitation/create", params).await? {
        Ok(answer) if answer["action"] == "accept" => {
            turn.say("You opened it. I pretend that you complete the sign-in there.\n\n")
                .await?;
            turn.pause(40).await?;
            turn.client
                .notify("elicitation/complete", json!({ "elicitationId": id }))
                .await;
            turn.say("It is complete, and I notified your client.")
                .await
        }
        Ok(answer) if answer["action"] == "decline" => turn.say("You declined to open it.").await,
        Ok(_) => turn.say("You cancelled the question.").await,
        Err(error) => {
            turn.say(&format!("Your client did not ask: {}", error_text(&error)))
                .await
        }
    }
}

/// A permission request that is cancelled after a time without an answer.
pub(super) async fn withdraw(turn: &mut Turn, input: &str) -> Step {
    let seconds = number(input, 5, 600);
    turn.say(&format!(
        "I ask, and cancel the request after {seconds} s.\n\n"
    ))
    .await?;
    let call = json!({ "title": "Think about the folder \"imaginary\"", "kind": "think" });
    let id = turn.call(&call).await?;
    let limit = Duration::from_secs(seconds.into());
    // Dropping the request cancels it at the client.
    if let Ok(answer) = tokio::time::timeout(limit, turn.ask(&id, &call)).await {
        answer?;
        turn.end_call(&id, "completed", "Answered in time.").await?;
        return turn.say("You were quicker.").await;
    }
    turn.end_call(&id, "failed", "The request was cancelled.")
        .await?;
    turn.say("I cancelled the request.").await
}

/// A notification and a request with extension names.
pub(super) async fn extension(turn: &mut Turn) -> Step {
    let note =
        json!({ "sessionId": turn.session().id, "note": "A note that ACP does not define." });
    turn.client.notify("_demo/note", note).await;
    turn.say("I sent the notification `_demo/note`, and ask `_demo/ask` now.\n\n")
        .await?;
    let params = json!({ "question": "What is the answer?", "choices": [41, 42] });
    match turn.request("_demo/ask", params).await? {
        Ok(answer) => {
            turn.say(&format!(
                "The answer is\n\n{}\n",
                fenced("json", &format!("{answer:#}"))
            ))
            .await
        }
        Err(error) => {
            turn.say(&format!("There was no answer: {}", error_text(&error)))
                .await
        }
    }
}
