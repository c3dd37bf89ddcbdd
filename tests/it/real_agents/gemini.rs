//! Gemini CLI before a mock of its model.

use std::time::Duration;

use serde_json::json;

use super::file;
use super::model::Model;
use super::real::GEMINI;
use super::scenarios;
use crate::support::Setup;

#[tokio::test]
async fn gemini_runs_a_command_only_with_permission() {
    scenarios::permissions(&GEMINI).await;
}

#[tokio::test]
async fn gemini_is_cancelled_while_a_command_runs() {
    scenarios::cancel_while_a_tool_runs(&GEMINI).await;
}

#[tokio::test]
async fn gemini_keeps_twenty_conversations_on_four_processes() {
    scenarios::more_conversations_than_processes(&GEMINI, 20, 4).await;
}

#[tokio::test]
async fn gemini_loads_after_the_idle_timeout() {
    scenarios::idle_timeout(&GEMINI).await;
}

#[tokio::test]
async fn gemini_loads_after_a_kill_of_the_agent() {
    scenarios::kill_of_the_agent(&GEMINI).await;
}

#[tokio::test]
async fn gemini_loads_after_a_kill_of_the_gateway() {
    scenarios::kill_of_the_gateway(&GEMINI).await;
}

#[tokio::test]
async fn gemini_starts_two_sessions_at_once_in_a_new_home() {
    scenarios::two_sessions_at_once_in_a_new_home(&GEMINI).await;
}

#[tokio::test]
async fn gemini_has_a_conversation_adopted() {
    scenarios::adopt(&GEMINI, "GEMINI_CLI_HOME").await;
}

#[tokio::test]
async fn gemini_reports_a_failure_of_its_model() {
    scenarios::transient_failure_of_the_model(&GEMINI).await;
}

/// With the address of the public API, a new process loads no session until its settings select a sign-in.
#[tokio::test]
async fn gemini_loads_with_its_key_alone() {
    let home = tempfile::tempdir().expect("a temporary folder");
    let settings = home.path().join(".gemini/settings.json");
    std::fs::create_dir(home.path().join(".gemini")).expect("the folder is ours");
    let quiet = json!({ "general": { "enableAutoUpdate": false, "maxAttempts": 1 }, "telemetry": { "enabled": false },
        "privacy": { "usageStatisticsEnabled": false } });
    std::fs::write(&settings, quiet.to_string()).expect("the folder is ours");
    let script = file("node_modules/@google/gemini-cli/bundle/gemini.js");
    let entry = |address: &str| {
        let home = home.path();
        let env =
            format!("GEMINI_API_KEY = \"mock-key-0000\", GEMINI_CLI_HOME = {home:?}, {address}");
        let args = json!([script, "--acp"]);
        format!(
            "[agents.gemini]\ncommand = \"node\"\nargs = {args}\nenv = {{ {env} }}\nisolation = \"off\"\npool = {{ max_size = 8, min_idle = 0 }}\n"
        )
    };
    let model = Model::start().await;
    let mock = format!(
        "GEMINI_MODEL = \"gemini-2.5-flash\", GOOGLE_GEMINI_BASE_URL = {:?}",
        model.url
    );
    let mut gateway = Setup::default().table(&entry(&mock)).start();
    let session = gateway.session("gemini").await;
    assert_eq!(
        gateway.turn(&session, "banana").await["text"],
        "banana comes after "
    );
    gateway.stop();
    let selected = || {
        std::fs::read_to_string(&settings)
            .expect("the test wrote it")
            .contains("selectedType")
    };
    assert!(!selected(), "a new session needs no sign-in");

    // Nothing listens at the proxy: the model is out of reach.
    let unreachable = entry("HTTPS_PROXY = \"http://127.0.0.1:9\"");
    std::fs::write(gateway.path("config.toml"), unreachable).expect("the folder is ours");
    gateway.start();
    let mut stream = gateway
        .events(&format!("/v1/sessions/{session}/events?after=tail"))
        .await;
    gateway.prompt(&session, "cherry").await;
    // Gemini CLI loads no session in the minute in which it began.
    let limit = Duration::from_secs(90);
    let attached = tokio::time::timeout(limit, stream.until("session.attached"))
        .await
        .expect("in time");
    let attached = &attached.last().expect("until gives it").data;
    assert_eq!(
        (&attached["by"], &attached["context"]),
        (&json!("load"), &json!("kept")),
        "{attached}"
    );
    assert!(selected(), "{}", gateway.log());
}

#[tokio::test]
async fn gemini_works_at_the_isolation_level_workspace() {
    scenarios::workspace_isolation(&GEMINI).await;
}

#[tokio::test]
async fn gemini_works_for_an_unprivileged_gateway_with_each_mechanism() {
    scenarios::unprivileged_gateway(&GEMINI).await;
}
