//! Stock clients with large installations: `scripts/test more_clients` installs them.

use serde_json::json;

use super::clients::run_in;
use super::scenarios::{Client, play_all};
use super::{prompts, sessions};
use crate::support::gateway::KEY;
use crate::support::{Gateway, Setup};

const FOLDER: &str = "more_chat_clients";

const fn python(name: &'static str) -> Client {
    (FOLDER, "python.py", name)
}

const CHAT: [Client; 3] = [python("pydantic-ai"), python("langchain"), python("llm")];
const ALL: [Client; 6] = [
    CHAT[0],
    CHAT[1],
    CHAT[2],
    python("pydantic-ai-responses"),
    python("langchain-responses"),
    python("llm-responses"),
];

#[tokio::test]
async fn clients_in_python_play_all_scenarios() {
    play_all(&ALL, &CHAT).await;
}

fn copilotkit(gateway: &Gateway, scenario: &str, prompt: &str) -> serde_json::Value {
    let url = format!("{}/ag-ui/fake", gateway.url);
    run_in(FOLDER, "copilotkit.mjs", &[&url, KEY, scenario, prompt])
}

#[tokio::test]
async fn runtime_of_copilotkit_keeps_its_thread() {
    let gateway = Setup::fake(&[]).start();
    let shown = copilotkit(
        &gateway,
        "conversation",
        "echo one|error message=quota|echo three",
    );
    assert_eq!(shown["answers"], json!(["one", "three"]), "{shown}");
    let error = shown["errors"][0]["message"].as_str().unwrap_or_default();
    assert!(error.contains("quota"), "{shown}");
    let [session] = &sessions(&gateway).await[..] else {
        panic!("one session: {shown}")
    };
    let sent = prompts(&gateway, session).await;
    assert_eq!(sent, ["echo one", "error message=quota", "echo three"]);
}

#[tokio::test]
async fn runtime_of_copilotkit_answers_an_interrupt() {
    let gateway = Setup::fake(&[]).start();
    for (scenario, answer) in [("approve", "allow"), ("deny", "reject")] {
        let before = sessions(&gateway).await.len();
        let shown = copilotkit(&gateway, scenario, "permission|echo next");
        let answers = json!([format!("permission: {answer}"), "next"]);
        assert_eq!(shown["answers"], answers, "{shown}");
        assert_eq!(shown["errors"], json!([]), "{shown}");
        let all = sessions(&gateway).await;
        assert_eq!(all.len(), before + 1);
        assert_eq!(prompts(&gateway, &all[0]).await.len(), 2);
    }
}

#[tokio::test]
async fn runtime_of_copilotkit_goes_on_after_a_picture() {
    let gateway = Setup::fake(&[]).start();
    let shown = copilotkit(&gateway, "picture", "echo look");
    assert!(
        !shown["errors"].as_array().expect("a list").is_empty(),
        "{shown}"
    );
    let all = sessions(&gateway).await;
    assert_eq!(all.len(), 1, "{shown}");
    assert_eq!(prompts(&gateway, &all[0]).await.len(), 2, "{shown}");
}
