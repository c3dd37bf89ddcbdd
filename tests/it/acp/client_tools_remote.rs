//! Files of a client for an agent on another host.

use serde_json::json;

use super::raw::{Acp, chunks};
use crate::agents::remote::near;
use crate::support::Setup;
use crate::support::gateway::KEY;

#[tokio::test]
async fn client_of_a_turn_serves_files_for_an_agent_on_another_host() {
    let capabilities = json!({ "fs": { "readTextFile": true, "writeTextFile": true } });
    for scheme in ["ws", "http"] {
        let far = Setup::fake_with(&[], "files = \"client\"").start();
        let url = format!("{scheme}://{}/acp/fake", far.address());
        let near = near(&url, &far, "files = \"client\"").start();
        let mut acp =
            Acp::open_with(&near, KEY, &json!({ "clientCapabilities": capabilities })).await;
        let (session, mut messages) = acp.session().await;
        let prompt = acp
            .prompt(
                &session,
                "read path=/editor/a; write path=/editor/b text=new",
            )
            .await;
        let read = messages.request("fs/read_text_file").await;
        assert_eq!(
            read["params"],
            json!({ "sessionId": session, "path": "/editor/a" }),
            "{scheme}"
        );
        let unsaved = json!({ "content": "unsaved" });
        acp.post(&json!({ "jsonrpc": "2.0", "id": read["id"], "result": unsaved }))
            .await;
        let first = messages
            .until(|message| message["method"] == "fs/write_text_file")
            .await;
        assert_eq!(chunks(&first), ["[unsaved]"]);
        let write = first.last().expect("the request");
        assert_eq!(
            write["params"],
            json!({ "sessionId": session, "path": "/editor/b", "content": "new" })
        );
        acp.post(&json!({ "jsonrpc": "2.0", "id": write["id"], "result": null }))
            .await;
        let seen = messages.until(|message| message["id"] == prompt).await;
        assert_eq!(chunks(&seen), ["[written]"]);
        assert_eq!(
            seen.last().expect("the response")["result"]["stopReason"],
            "end_turn"
        );
        near.lawful(&session).await;
    }
}
