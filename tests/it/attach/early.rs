//! An editor that speaks the early protocol.

use serde_json::{Value, json};

use super::editor::attach;
use crate::support::Setup;
use crate::translate::client::Client;

fn request(id: u64, method: &str, params: &Value) -> Value {
    json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params })
}

/// Runs a client that knows only the early names, in front of the fake agent.
pub(crate) async fn run_early_client(client: &mut Client) {
    let params =
        json!({ "protocolVersion": "1.0", "clientInfo": { "name": "early", "version": "1" } });
    client.send(&request(1, "initialize", &params)).await;
    let initialized = client.response(1).await;
    assert_eq!(
        initialized["result"]["protocolVersion"], "1.0",
        "{initialized}"
    );
    assert!(
        initialized["result"]["serverInfo"]["name"].is_string(),
        "{initialized}"
    );
    client
        .send(&json!({ "jsonrpc": "2.0", "method": "initialized" }))
        .await;
    let params = json!({ "workspaceDir": "", "environmentVars": {} });
    client
        .send(&request(2, "agent/createSession", &params))
        .await;
    let created = client.response(2).await;
    let session = created["result"]["sessionId"]
        .as_str()
        .unwrap_or_else(|| panic!("{created}"))
        .to_owned();
    let prompt = |text: &str| json!({ "sessionId": session, "prompt": text });
    client
        .send(&request(3, "agent/prompt", &prompt("permission")))
        .await;
    let asked = client
        .until(|line| line["method"] == "session/request_permission")
        .await;
    let options = asked["params"]["options"].as_array().expect("options");
    assert!(
        asked["params"]["title"].is_string() && asked["params"]["message"].is_string(),
        "{asked}"
    );
    let allow = options
        .iter()
        .find(|option| option["kind"] == "allow_once")
        .expect("an option");
    assert!(allow["label"].is_string(), "{asked}");
    let outcome = json!({ "optionId": allow["optionId"] });
    client
        .send(&json!({ "jsonrpc": "2.0", "id": asked["id"], "result": outcome }))
        .await;
    assert_eq!(
        client.response(3).await["result"]["content"],
        "permission: allow"
    );
    let is_response = |line: &Value| line["params"]["updateType"] == "response";
    assert!(client.seen().iter().any(is_response), "{:?}", client.seen());

    client
        .send(&request(
            4,
            "agent/prompt",
            &prompt("slow chunks=1000 ms=20"),
        ))
        .await;
    client.until(is_response).await;
    client
        .send(&request(
            5,
            "agent/cancelSession",
            &json!({ "sessionId": session }),
        ))
        .await;
    assert_eq!(
        client.response(5).await["result"],
        json!({ "cancelled": true })
    );
    assert_eq!(
        client.response(4).await["result"]["stopReason"],
        "cancelled"
    );
    client
        .send(&request(
            6,
            "agent/cancelSession",
            &json!({ "sessionId": session }),
        ))
        .await;
    assert_eq!(
        client.response(6).await["result"],
        json!({ "cancelled": false })
    );
    client.write("{").await;
    let invalid = client.until(|line| line["error"]["code"] == -32700).await;
    assert!(invalid["id"].is_null(), "{invalid}");
    for (id, method, params, code) in [
        (
            7,
            "agent/prompt",
            json!({ "sessionId": session, "prompt": [] }),
            -32602,
        ),
        (8, "session/new", json!({}), -32601),
    ] {
        client.send(&request(id, method, &params)).await;
        assert_eq!(client.response(id).await["error"]["code"], code);
    }
    client.send(&request(9, "shutdown", &Value::Null)).await;
    assert!(client.response(9).await["error"].is_null());
}

#[tokio::test]
async fn editor_with_early_names_drives_attach() {
    let gateway = Setup::fake(&[]).start();
    let mut command = attach();
    command.args(["--url", &gateway.url, "--dialect", "early-acp"]);
    let mut client = Client::start(command);
    run_early_client(&mut client).await;
    let (code, log) = client.ended().await;
    assert_eq!((code, &*log), (Some(0), ""));
}
