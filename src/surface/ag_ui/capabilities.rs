//! `GET /ag-ui/{agent}`: what an agent behind the gateway can do, as `AgentCapabilities` of AG-UI.

use axum::Json;
use axum::extract::{Path, Request, State};
use serde_json::{Value, json};

use crate::surface::authorized::{Authorized, CanRead};
use crate::surface::rest::ApiError;
use crate::surface::state::Gateway;
use crate::types::AgentName;

pub(super) async fn get(
    State(gateway): State<Gateway>,
    Path(agent): Path<AgentName>,
    request: Request,
) -> Result<Json<Value>, ApiError> {
    let by = Authorized::<CanRead>::from_parts(&request.into_parts().0)?;
    gateway
        .catalogue
        .agent(&agent)
        .ok_or_else(ApiError::not_found)?;
    // An agent reports its capabilities at its first start.
    let initialized = gateway
        .pool()
        .agent_stats(&agent, &by.tenant)
        .and_then(|(_, initialized)| initialized);
    let prompt = initialized
        .as_ref()
        .map(|initialized| &initialized.capabilities.prompt);
    Ok(Json(json!({
        "identity": { "name": agent, "type": "acp" },
        "transport": { "streaming": true, "websocket": false, "httpBinary": false, "resumable": true },
        "tools": { "supported": true, "clientProvided": false },
        "state": { "snapshots": true, "deltas": true, "persistentState": true },
        "reasoning": { "supported": true, "streaming": true, "encrypted": false },
        "multimodal": { "input": {
            "image": prompt.is_some_and(|prompt| prompt.image),
            "audio": prompt.is_some_and(|prompt| prompt.audio),
            "file": true,
        } },
        "humanInTheLoop": {
            "supported": true, "approvals": true, "interventions": false, "feedback": false, "interrupts": true,
            "approveWithEdits": false,
        },
    })))
}
