//! Scenarios for the stock clients in Python. Each client keeps its history and repeats requests by its own defaults.

use reqwest::Method;
use serde_json::{Value, json};

use super::clients::run_in;
use super::{prompts, sessions, turns};
use crate::support::gateway::KEY;
use crate::support::{Gateway, Setup};

/// A client: the folder below `tests` and the program, and its name there.
pub(super) type Client = (&'static str, &'static str, &'static str);

/// Two halves of a character in two chunks.
fn halves() -> String {
    let chunk = |text: &str| {
        format!(
            r#"{{"jsonrpc":"2.0","method":"session/update","params":{{"sessionId":"$SESSION","update":{{"sessionUpdate":"agent_message_chunk","content":{{"type":"text","text":"{text}"}}}}}}}}"#
        )
    };
    format!(
        "raw {}\n{}\nend {{\"stopReason\":\"end_turn\"}}",
        chunk(r"a \ud83d"),
        chunk(r"\ude00 b")
    )
}

fn play(gateway: &Gateway, client: Client, scenario: &str, prompt: &str) -> Value {
    let (folder, program, name) = client;
    let url = format!("{}/openai/v1", gateway.url);
    let scenario = format!("{name}:{scenario}");
    run_in(folder, program, &[&url, KEY, &scenario, prompt, "fake"])
}

/// Deletes the sessions that a client made, so that the next client cannot find them. Returns the number of turns of each.
async fn finished(gateway: &Gateway) -> Vec<usize> {
    let mut all = Vec::new();
    for session in sessions(gateway).await {
        all.push(turns(gateway, &session).await);
        let path = format!("/v1/sessions/{session}");
        let deleted = gateway.call(Method::DELETE, &path).await;
        assert!(deleted.status.is_success(), "{deleted:?}");
    }
    all
}

/// Three messages in one conversation, with and without a stream.
async fn keeps_its_conversation(clients: &[Client]) {
    let gateway = Setup::fake(&[]).start();
    for client in clients {
        let answers = ["one", "two", "three"];
        let shown = play(
            &gateway,
            *client,
            "conversation",
            "echo one|echo two|echo three",
        );
        for form in ["whole", "streamed"] {
            assert_eq!(shown[form]["text"], json!(answers), "{client:?} {shown}");
        }
        assert_eq!(finished(&gateway).await, [3, 3], "{client:?}");
    }
}

/// The person learns the reason of a failure, and the agent gets the prompt once.
async fn shows_a_failure_once(clients: &[Client]) {
    let gateway = Setup::fake(&[]).start();
    for client in clients {
        let shown = play(&gateway, *client, "text", "error message=quota");
        for form in ["whole", "streamed"] {
            // It ignores `response.failed`.
            if client.2 == "llm-responses" && form == "streamed" {
                continue;
            }
            let message = shown[form]["message"].as_str().unwrap_or_default();
            assert!(message.contains("quota"), "{client:?} {shown}");
        }
        assert_eq!(finished(&gateway).await, [1, 1], "{client:?}");
    }
}

/// A format of the answer that no agent of ACP knows.
async fn shows_that_a_format_is_not_possible(clients: &[Client]) {
    let gateway = Setup::fake(&[]).start();
    for client in clients {
        let shown = play(&gateway, *client, "structured", "echo x");
        let message = shown["message"].as_str().unwrap_or_default();
        assert!(
            message.contains("an agent answers in text"),
            "{client:?} {shown}"
        );
        assert!(sessions(&gateway).await.is_empty(), "{client:?}");
    }
}

/// A turn that another program cancels says so in the text of a chat completion.
async fn shows_that_the_turn_was_cancelled(clients: &[Client]) {
    let gateway = Setup::fake(&[]).start();
    for client in clients {
        let shown = play(&gateway, *client, "cancelled", "stream n=1;hang");
        for form in ["whole", "streamed"] {
            let text = shown[form]["text"].as_str().unwrap_or_default();
            let expected = "[Cancelled: a client cancelled the turn]";
            assert!(text.ends_with(expected), "{client:?} {shown}");
        }
        assert_eq!(finished(&gateway).await, [1, 1], "{client:?}");
    }
}

/// A picture for an agent without pictures, and a failure, do not end a conversation.
async fn goes_on_after_a_message_that_failed(clients: &[Client]) {
    let gateway = Setup::fake(&[]).start();
    for client in clients {
        let shown = play(&gateway, *client, "picture", "echo look");
        assert_eq!(shown[0]["text"], "look", "{client:?} {shown}");
        let message = shown[1]["message"].as_str().unwrap_or_default();
        assert!(message.contains("image"), "{client:?} {shown}");
        assert!(shown[2]["text"].is_string(), "{client:?} {shown}");
        assert_eq!(finished(&gateway).await, [2], "{client:?} picture");
        let prompt = "echo one|error message=quota|echo three";
        let shown = play(&gateway, *client, "mixed", prompt);
        let texts = (&shown[0]["text"], &shown[2]["text"]);
        assert_eq!(
            texts,
            (&json!("one"), &json!("three")),
            "{client:?} {shown}"
        );
        let [session] = &sessions(&gateway).await[..] else {
            panic!("one session: {client:?} {shown}")
        };
        let sent = prompts(&gateway, session).await;
        let expected: Vec<&str> = prompt.split('|').collect();
        assert_eq!(sent, expected, "{client:?}");
        finished(&gateway).await;
    }
}

fn shows_a_character_of_two_chunks(clients: &[Client]) {
    let gateway = Setup::fake(&[]).start();
    for client in clients {
        let shown = play(&gateway, *client, "text", &halves());
        for form in ["whole", "streamed"] {
            assert_eq!(shown[form]["text"], "a 😀 b", "{client:?} {shown}");
        }
    }
}

/// All scenarios. `completions`: the clients that use chat completions.
pub(super) async fn play_all(clients: &[Client], completions: &[Client]) {
    keeps_its_conversation(clients).await;
    shows_a_failure_once(clients).await;
    shows_that_a_format_is_not_possible(clients).await;
    shows_that_the_turn_was_cancelled(completions).await;
    goes_on_after_a_message_that_failed(clients).await;
    shows_a_character_of_two_chunks(clients);
}
