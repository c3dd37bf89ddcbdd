//! The requests of the client.

use serde_json::json;
use serde_json::value::RawValue;

use super::state::{Call, EarlyClient, Turn, respond};
use crate::acp::{AcpVersion, RawObject, error_code, method, method_not_found};
use crate::jsonrpc::{Message, RpcError, parse_error};
use crate::translate::early_acp::names;
use crate::translate::message::{error, invalid_params, object, to_raw};
use crate::translate::protocol::Served;

/// The maximum number of folders whose warning is remembered.
const MAX_WARNED: usize = 64;

impl EarlyClient {
    pub(super) fn requested(
        &mut self,
        id: Box<RawValue>,
        method: &str,
        params: &RawValue,
        served: &mut Served,
    ) {
        let params = RawObject::parse(params).unwrap_or_else(RawObject::empty);
        let done = match method {
            method::INITIALIZE => self.initialize(id.clone(), &params, served),
            names::CREATE_SESSION => self.create_session(id.clone(), &params, served),
            names::PROMPT => self.prompt(id.clone(), &params, served),
            names::CANCEL_SESSION => self.cancel(id.clone(), &params, served),
            names::SHUTDOWN => {
                self.has_shut_down = true;
                respond(id.clone(), Ok(RawValue::NULL.to_owned()), served);
                Ok(())
            }
            _ => Err(parse_error(&method_not_found(method))),
        };
        if let Err(error) = done {
            respond(id, Err(error), served);
        }
    }

    fn initialize(
        &mut self,
        id: Box<RawValue>,
        params: &RawObject<'_>,
        served: &mut Served,
    ) -> Result<(), RpcError> {
        let version = params.get("protocolVersion");
        if version.is_none_or(|version| !version.get().trim_matches('"').starts_with(['0', '1'])) {
            let detail = format!("protocolVersion must be {:?}", names::PROTOCOL_VERSION);
            return Err(invalid_params(&detail));
        }
        let capabilities =
            json!({ "fs": { "readTextFile": false, "writeTextFile": false }, "terminal": false });
        let mut members = vec![
            ("protocolVersion", to_raw(&AcpVersion::V1.number())),
            ("clientCapabilities", to_raw(&capabilities)),
        ];
        members.extend(
            params
                .get("clientInfo")
                .map(|info| ("clientInfo", info.to_owned())),
        );
        self.call(
            Call::Initialize(id),
            method::INITIALIZE,
            object(&members),
            served,
        )
    }

    fn create_session(
        &mut self,
        id: Box<RawValue>,
        params: &RawObject<'_>,
        served: &mut Served,
    ) -> Result<(), RpcError> {
        let cwd = match params.get("workspaceDir") {
            None => self.cwd.to_string_lossy().into_owned(),
            Some(_) => params
                .text("workspaceDir")
                .ok_or_else(|| invalid_params("workspaceDir must be a text"))?
                .into_owned(),
        };
        let has_variables = params
            .object("environmentVars")
            .is_some_and(|vars| vars.iter().next().is_some());
        if has_variables && self.warned.len() < MAX_WARNED && self.warned.insert(cwd.clone()) {
            tracing::warn!(%cwd, "environmentVars are not used: ACP has no variables of a session");
        }
        let params = to_raw(&json!({ "cwd": cwd, "mcpServers": [] }));
        self.call(Call::CreateSession(id), method::SESSION_NEW, params, served)
    }

    fn prompt(
        &mut self,
        id: Box<RawValue>,
        params: &RawObject<'_>,
        served: &mut Served,
    ) -> Result<(), RpcError> {
        let session = session_id(params)?;
        let text = params
            .get("prompt")
            .filter(|prompt| prompt.get().starts_with('"'));
        let text = text.ok_or_else(|| invalid_params("prompt must be a text"))?;
        if self.turns.contains_key(&session) {
            let detail = "Invalid request: a turn of this session is running";
            return Err(error(error_code::INVALID_REQUEST, detail));
        }
        let block = object(&[("type", to_raw("text")), ("text", text.to_owned())]);
        let params = object(&[
            ("sessionId", to_raw(&session)),
            ("prompt", to_raw(&[block])),
        ]);
        self.call(
            Call::Prompt(id, session.clone()),
            method::SESSION_PROMPT,
            params,
            served,
        )?;
        self.turns.insert(session, Turn::default());
        Ok(())
    }

    /// Cancels the turn of a session. `cancelled` of the answer is true if a turn was running.
    fn cancel(
        &mut self,
        id: Box<RawValue>,
        params: &RawObject<'_>,
        served: &mut Served,
    ) -> Result<(), RpcError> {
        let session = session_id(params)?;
        let is_running = self.turns.contains_key(&session);
        if is_running {
            let params = to_raw(&json!({ "sessionId": session }));
            served.to_agent.push(Message::Notification {
                method: method::SESSION_CANCEL.into(),
                params,
            });
            served.to_agent.extend(self.permissions.cancel(&session));
        }
        respond(id, Ok(to_raw(&json!({ "cancelled": is_running }))), served);
        Ok(())
    }
}

fn session_id(params: &RawObject<'_>) -> Result<String, RpcError> {
    let id = params
        .text("sessionId")
        .ok_or_else(|| invalid_params("sessionId must be a text"))?;
    Ok(id.into_owned())
}
