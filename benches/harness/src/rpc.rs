//! The JSON-RPC messages of an ACP client, for servers that forward them.

use serde_json::json;

pub(crate) fn initialize() -> String {
    let client = json!({ "name": "bench", "version": "0.0.0" });
    let params = json!({ "protocolVersion": 1, "clientCapabilities": {}, "clientInfo": client });
    json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params }).to_string()
}

pub(crate) fn new_session() -> String {
    json!({ "jsonrpc": "2.0", "id": 2, "method": "session/new", "params": { "cwd": "/", "mcpServers": [] } })
        .to_string()
}

/// A prompt for the agent's first session.
pub(crate) fn prompt(text: &str) -> String {
    let params = json!({ "sessionId": "sess-1", "prompt": [{ "type": "text", "text": text }] });
    json!({ "jsonrpc": "2.0", "id": 3, "method": "session/prompt", "params": params }).to_string()
}
