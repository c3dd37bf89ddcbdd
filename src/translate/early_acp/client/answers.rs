//! The answers of the agent as answers to the client.

use serde_json::json;
use serde_json::value::RawValue;

use super::state::{Call, EarlyClient, respond};
use crate::acp::RawObject;
use crate::jsonrpc::RpcError;
use crate::translate::early_acp::names;
use crate::translate::message::{object, to_raw};
use crate::translate::protocol::Served;

impl EarlyClient {
    pub(super) fn answered(
        &mut self,
        id: &RawValue,
        outcome: Result<Box<RawValue>, RpcError>,
        served: &mut Served,
    ) {
        let Some(call) = id
            .get()
            .parse()
            .ok()
            .and_then(|id: u64| self.calls.remove(&id))
        else {
            return tracing::debug!("the agent answered an unknown call");
        };
        let (id, outcome) = match call {
            Call::Initialize(id) => (id, outcome.map(|result| self.initialize_result(&result))),
            Call::CreateSession(id) => {
                let session = |result: Box<RawValue>| {
                    let members = RawObject::parse(&result);
                    let session = members
                        .and_then(|members| members.get("sessionId"))
                        .unwrap_or(RawValue::NULL);
                    object(&[("sessionId", session.to_owned())])
                };
                (id, outcome.map(session))
            }
            Call::Prompt(id, session) => {
                served.to_agent.extend(self.permissions.cancel(&session));
                let text = self.turns.remove(&session).unwrap_or_default().text();
                (id, outcome.map(|result| prompt_result(&result, text)))
            }
        };
        respond(id, outcome, served);
    }

    fn initialize_result(&self, result: &RawValue) -> Box<RawValue> {
        let result = RawObject::parse(result).unwrap_or_else(RawObject::empty);
        let own = || to_raw(&json!({ "name": "acp-gateway", "version": self.version }));
        let info = result.get("agentInfo").filter(|info| info.get() != "null");
        object(&[
            ("protocolVersion", to_raw(names::PROTOCOL_VERSION)),
            ("serverInfo", info.map_or_else(own, ToOwned::to_owned)),
            ("capabilities", to_raw(&json!({}))),
        ])
    }
}

/// The text of the turn, with the members of ACP that a client may know.
fn prompt_result(result: &RawValue, text: Box<RawValue>) -> Box<RawValue> {
    let result = RawObject::parse(result).unwrap_or_else(RawObject::empty);
    let mut members = vec![("content", text)];
    for name in ["stopReason", "usage"] {
        members.extend(result.get(name).map(|value| (name, value.to_owned())));
    }
    object(&members)
}
