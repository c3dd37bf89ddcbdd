//! The folder and the MCP servers of a session that is restored.

use super::*;

fn server(name: &str) -> Value {
    json!({ "name": name, "command": "/bin/mcp", "args": [], "env": [{ "name": "TOKEN", "value": "s3cret" }] })
}

/// The params of the restore after a cut.
fn restored(test: &mut Test) -> Value {
    test.bridge.lost();
    test.collect();
    test.connect();
    let sent = test.sent();
    assert_eq!(sent.len(), 1, "{sent:?}");
    test.result(None, "d.1", &sent[0]["id"], &json!({}));
    assert!(!format!("{:?}", test.bridge.sessions).contains("s3cret"));
    test.bridge.opened("s");
    sent[0]["params"].clone()
}

#[test]
fn restored_session_has_the_folder_and_servers_of_the_editor() {
    let mut test = Test::connected();
    let params = json!({ "cwd": "/w", "mcpServers": [server("a")] });
    test.editor(&json!({ "id": 1, "method": "session/new", "params": params }));
    let created = test.sent();
    test.result(None, "c.1", &created[0]["id"], &json!({ "sessionId": "s" }));
    test.bridge.opened("s");
    let expected = json!({ "sessionId": "s", "cwd": "/w", "mcpServers": [server("a")] });
    for _ in 0..2 {
        assert_eq!(restored(&mut test), expected);
    }
    // A later request of the editor replaces them, if the gateway accepts it.
    for (method, name, is_accepted) in [("session/load", "b", true), ("session/resume", "c", false)]
    {
        let params = json!({ "sessionId": "s", "cwd": "/v", "mcpServers": [server(name)] });
        test.editor(&json!({ "id": name, "method": method, "params": params }));
        let sent = test.sent();
        assert_eq!(sent.len(), 1, "{sent:?}");
        let mut response = json!({ "jsonrpc": "2.0", "id": sent[0]["id"], "result": {} });
        if !is_accepted {
            response = json!({ "jsonrpc": "2.0", "id": sent[0]["id"], "error": { "code": -1, "message": "no" } });
        }
        test.gateway(Some("s"), "k3-1.0/d.2", &response);
        let expected = json!({ "sessionId": "s", "cwd": "/v", "mcpServers": [server("b")] });
        assert_eq!(restored(&mut test), expected, "after {method}");
    }
}

#[test]
fn session_of_the_command_line_is_restored_with_the_servers_of_the_editor() {
    let mut test = Test::connected_with(Settings {
        session: Some("s".into()),
        ..Settings::default()
    });
    let params = json!({ "cwd": "/w", "mcpServers": [server("a")] });
    test.editor(&json!({ "id": 1, "method": "session/new", "params": params }));
    let loaded = test.sent();
    test.result(None, "c.1", &loaded[0]["id"], &json!({}));
    test.bridge.opened("s");
    assert_eq!(
        restored(&mut test),
        json!({ "sessionId": "s", "cwd": "/w", "mcpServers": [server("a")] })
    );
}
