//! An editor that uses the draft of `session/attach` through the bridge.

use serde_json::json;

use super::editor::Editor;
use crate::support::Gateway;
use crate::support::proxy::Proxy;

/// Observes turns of another client before and after a cut, and detaches.
#[tokio::test]
async fn attach_observes_a_session_through_a_cut() {
    let (gateway, proxy): (Gateway, Proxy) = super::behind_a_proxy().await;
    let session = gateway.session("fake").await;
    let mut editor = Editor::start(&format!("http://{}", proxy.address), &[]);
    let params = json!({ "protocolVersion": 1, "_meta": { "acp-gateway": { "attach": true } } });
    editor
        .send(&json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params }))
        .await;
    let capabilities = editor.response(0).await["result"]["agentCapabilities"].clone();
    assert_eq!(
        capabilities["sessionCapabilities"]["attach"]["roles"],
        json!(["controller", "observer"])
    );
    let params = json!({ "sessionId": session, "role": "observer", "historyPolicy": "none" });
    editor
        .send(&json!({ "jsonrpc": "2.0", "id": 1, "method": "session/attach", "params": params }))
        .await;
    assert_eq!(editor.response(1).await["result"]["role"], "observer");
    gateway.turn(&session, "echo one").await;
    editor
        .until(|line| line["params"]["update"]["type"] == "turn_complete")
        .await;
    proxy.refuse(true);
    proxy.cut();
    gateway.turn(&session, "echo two").await;
    proxy.refuse(false);
    editor
        .until(|line| line["params"]["update"]["type"] == "turn_complete")
        .await;
    assert_eq!(editor.texts(), ["one", "two"]);
    editor.prompt(2, &session, "echo no").await;
    let error = editor.response(2).await["error"].clone();
    assert_eq!(
        error["data"]["code"], "forbidden",
        "the role continues after the cut: {error}"
    );
    let params = json!({ "sessionId": session });
    editor
        .send(&json!({ "jsonrpc": "2.0", "id": 3, "method": "session/detach", "params": params }))
        .await;
    assert_eq!(editor.response(3).await["result"]["status"], "detached");
    gateway.turn(&session, "echo unseen").await;
    editor
        .send(&json!({ "jsonrpc": "2.0", "id": 4, "method": "session/list", "params": {} }))
        .await;
    editor.response(4).await;
    assert_eq!(editor.texts(), ["one", "two"]);
    editor.assert_answered_once();
}
