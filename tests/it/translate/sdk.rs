//! The SDK of ACP in front of the Claude Code CLI, which uses a mock of its model.

use serde_json::{Value, json};

use super::client::{Client, translate};
use crate::real_agents::claude_code_before_a_mock;
use crate::support::places::project;

#[tokio::test]
async fn sdk_client_drives_claude_code_with_a_permission_and_an_interrupt() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().canonicalize().expect("it exists");
    let home = path.join("home");
    std::fs::create_dir(&home).expect("the folder is ours");
    let agents = project().join("tests/agents");
    let packages = path.join("node_modules/@agentclientprotocol");
    std::fs::create_dir_all(&packages).expect("the folder is ours");
    std::os::unix::fs::symlink(agents.join("node_modules/acp-sdk-2"), packages.join("sdk"))
        .expect("the folder is ours");
    let script = path.join("translate.mjs");
    std::fs::copy(agents.join("clients/translate.mjs"), &script).expect("the folder is ours");
    let (model, claude, variables) = claude_code_before_a_mock().await;
    let recording = path.join("recording.jsonl");
    let bridge = translate(&["--from", "stream-json", "--to", "acp", "--record"]);
    let words = bridge.get_args().map(|word| word.to_str().expect("UTF-8"));
    let recorded = recording.to_str().expect("UTF-8");
    let words: Vec<&str> = words.chain([recorded, "--", &claude]).collect();
    let mut node = crate::support::gateway::command("node");
    node.arg(&script)
        .arg(bridge.get_program())
        .args(words)
        .current_dir(&path)
        .envs(variables);
    node.env("HOME", &home)
        .env("PATH", "/usr/local/bin:/usr/bin:/bin");
    let mut client = Client::start(node);
    let result = |line: &Value| line["update"].is_null() && line["asked"].is_null();
    let allowed = client.until(result).await;
    assert_eq!(allowed, json!({ "stopReason": "end_turn" }));
    assert!(path.join("made.txt").exists(), "{:?}", client.seen());
    assert_eq!(
        client.until(result).await,
        json!({ "stopReason": "cancelled" })
    );
    let said = client.until(result).await;
    assert_eq!(said, json!({ "stopReason": "end_turn" }));
    let text: String = client
        .seen()
        .iter()
        .filter_map(|line| line["update"]["content"]["text"].as_str())
        .collect();
    assert!(text.contains("banana comes after"), "{text}");
    let (code, log) = client.ended().await;
    assert_eq!(code, Some(0), "{log}");
    let recording = std::fs::read_to_string(recording).expect("it was recorded");
    assert!(
        recording.contains("can_use_tool") && recording.contains("interrupt"),
        "{recording}"
    );
    drop(model);
}
