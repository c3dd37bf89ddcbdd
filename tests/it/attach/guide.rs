//! The configurations of editors in `docs/guides/editors.md`: each starts a bridge that runs a turn.

use serde_json::Value;

use super::editor::Editor;
use crate::support::Setup;
use crate::support::gateway::{KEY, NO_CONFIG_FILE, command};
use crate::support::places::{fake_agent, gateway_program, project};

/// The JSON blocks of the guide.
fn configurations() -> Vec<Value> {
    let guide = project().join("docs/guides/editors.md");
    let guide = std::fs::read_to_string(guide).expect("the guide");
    let blocks = guide
        .split("```json\n")
        .skip(1)
        .map(|rest| rest.split("```").next().expect("an end"));
    blocks
        .map(|block| serde_json::from_str(block).unwrap_or_else(|error| panic!("{error}: {block}")))
        .collect()
}

#[tokio::test]
async fn configurations_of_the_guide_start_a_bridge() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let remote = folder.path().canonicalize().expect("it exists");
    std::fs::create_dir(remote.join("project")).expect("the folder is ours");
    let remote = remote.to_str().expect("UTF-8");
    let gateway = Setup::default()
        .agent("demo", fake_agent(), &[], "")
        .agent("other", fake_agent(), &[], "")
        .table(&format!("[workspaces]\nallow = [{remote:?}]"))
        .start();
    let key = gateway.path("key-of-the-guide");
    std::fs::write(&key, format!("{KEY}\n")).expect("the folder is ours");
    let configurations = configurations();
    assert_eq!(
        configurations.len(),
        3,
        "Zed, Zed with a remote gateway, and VS Code"
    );
    for configuration in configurations {
        let servers = configuration["agent_servers"]
            .as_object()
            .or(configuration["acp.agents"].as_object());
        let server = servers.expect("agents").values().next().expect("an agent");
        assert_eq!(server["command"], "acp-gateway");
        let args = server["args"]
            .as_array()
            .expect("a list")
            .iter()
            .map(|arg| {
                let arg = arg
                    .as_str()
                    .expect("a text")
                    .replace("https://gateway.example", &gateway.url);
                let arg = arg.replace(
                    "/home/me/.config/acp-gateway.key",
                    key.to_str().expect("UTF-8"),
                );
                arg.replace("/srv/projects", remote)
            });
        let args: Vec<String> = args.collect();
        let is_remote = args.iter().any(|arg| arg == "--url");
        let mut bridge = command(gateway_program());
        bridge
            .env_clear()
            .env(NO_CONFIG_FILE.0, NO_CONFIG_FILE.1)
            .env("HOME", remote)
            .env("ACP_GATEWAY_DATA", gateway.path("data"))
            .args(args);
        let mut editor = Editor::of(bridge);
        let cwd = if is_remote {
            "/home/me/projects/project".to_owned()
        } else {
            format!("{remote}/project")
        };
        let session = editor.new_session(&cwd).await;
        let found = gateway.get(&format!("/v1/sessions/{session}")).await;
        assert_eq!(found["cwd"], format!("{remote}/project"));
        editor.prompt(2, &session, "echo hello").await;
        assert_eq!(editor.response(2).await["result"]["stopReason"], "end_turn");
        assert_eq!(editor.end().await.0, Some(0));
    }
}
