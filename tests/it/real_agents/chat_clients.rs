//! Real agents behind the stock clients of the chat protocols.

use serde_json::{Value, json};

use super::real::{CLAUDE, CODEX, Real, Running};
use crate::chat::clients::run;
use crate::support::gateway::KEY;

/// The routes of one agent, and the clients that use them.
struct Clients<'a> {
    running: &'a Running,
}

impl Clients<'_> {
    fn url(&self, path: &str) -> String {
        format!("{}{path}", self.running.gateway.url)
    }

    fn ai_sdk(&self, scenario: &str, prompt: &str) -> Value {
        let url = self.url(&format!("/ai-sdk/{}", self.running.real.name));
        run(
            "ai_sdk.mjs",
            &["7", &url, KEY, &format!("{scenario}:{prompt}")],
        )
    }

    fn ag_ui(&self, package: &str, scenario: &str, prompt: &str) -> Value {
        let url = self.url(&format!("/ag-ui/{}", self.running.real.name));
        run("ag_ui.mjs", &[package, &url, KEY, scenario, prompt])
    }

    fn chat(&self, scenario: &str, prompt: &str) -> Value {
        run(
            "openai_chat.mjs",
            &[
                &self.url("/openai/v1"),
                KEY,
                scenario,
                self.running.real.name,
                prompt,
            ],
        )
    }

    fn responses(&self, scenario: &str, prompt: &str) -> Value {
        let name = self.running.real.name;
        run(
            "openai_responses.mjs",
            &[&self.url("/openai/v1"), KEY, name, scenario, prompt],
        )
    }
}

fn assert_says(shown: &Value, text: &str) {
    assert!(
        shown["text"]
            .as_str()
            .is_some_and(|said| said.contains(text)),
        "no {text:?}: {shown}"
    );
}

/// A text, a permitted call and a refused call through each protocol. The second message of a chat goes to the same session.
async fn works_behind_chat_clients(real: &'static Real) {
    let running = real.start("").await;
    let clients = Clients { running: &running };
    let touch = |file: &str| real.shell(&format!("touch {file}"));

    let shown = clients.ai_sdk("turn", "banana");
    assert_eq!(
        (&shown["status"], &shown["errors"]),
        (&json!("ready"), &json!([])),
        "{shown}"
    );
    assert_says(&shown, "banana comes after");
    for (scenario, state) in [("approve", "output-available"), ("deny", "output-error")] {
        let shown = clients.ai_sdk(scenario, &touch("sdk.txt"));
        assert_eq!(
            (&shown["posts"], &shown["tools"][0]["state"]),
            (&json!(2), &json!(state)),
            "{shown}"
        );
    }

    for package in ["@ag-ui/client", "ag-ui-0"] {
        assert_says(
            &clients.ag_ui(package, "turn", "cherry"),
            "cherry comes after",
        );
        for scenario in ["approve", "deny"] {
            let shown = clients.ag_ui(package, scenario, &touch("run.txt"));
            let first = &shown["first"];
            let second = &shown["second"];
            assert_eq!(first["interrupts"][0]["reason"], "tool_call", "{shown}");
            assert_eq!(
                (&second["interrupts"], &second["errors"]),
                (&json!([]), &json!([])),
                "{shown}"
            );
            if scenario == "approve" {
                assert_says(second, "The tool says:");
            }
        }
    }

    assert_says(&clients.chat("streamed", "date"), "date comes after");
    assert_says(&clients.chat("whole", "fig"), "fig comes after");
    let history = clients.chat("history", "grape");
    let first = history["first"].as_str().expect("an id");
    let second = &history["second"];
    assert_eq!(first.replace("_p1", "_p2"), *second, "{history}");

    assert_says(&clients.responses("helper", "kiwi"), "kiwi comes after");
    let approved = clients.responses("approve", &touch("made.txt"));
    assert_says(&approved["second"], "The tool says:");
    let denied = clients.responses("deny", &touch("refused.txt"));
    assert_eq!(denied["first"]["status"], "completed", "{denied}");
    assert!(denied["second"]["status"] != "failed", "{denied}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn claude_works_behind_chat_clients() {
    works_behind_chat_clients(&CLAUDE).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn codex_works_behind_chat_clients() {
    works_behind_chat_clients(&CODEX).await;
}
