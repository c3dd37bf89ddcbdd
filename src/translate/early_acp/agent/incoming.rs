//! The lines of the agent as messages of ACP.

use serde_json::value::RawValue;

use super::permission;
use super::translator::{Notice, Translator};
use crate::acp::{self, error_code, method};
use crate::jsonrpc::{self, Message};
use crate::translate::early_acp::names;
use crate::translate::members::Members;
use crate::translate::message::{error, notification, to_raw};
use crate::translate::object::{LineError, Object};
use crate::translate::protocol::{InvalidLine, Output};

/// Other names of `session/update`.
const SESSION_NOTIFICATION: &str = "session/notification";
/// Other names of `session/request_permission`.
const REQUEST_PERMISSION: [&str; 3] = [
    "session/requestPermission",
    "agent/requestPermission",
    "agent/request_permission",
];

impl Translator {
    /// Translates a line. An error means that the line is skipped.
    pub(super) fn line(
        &mut self,
        line: &[u8],
        max_depth: usize,
        out: &mut Vec<Output>,
    ) -> Result<(), InvalidLine> {
        match jsonrpc::parse(line, max_depth)? {
            Message::Response { id, outcome } => self.answered(id, outcome, out),
            Message::Notification { method, params } => {
                if !self.notification(&method, &params, out)? {
                    out.push(notification(&method, params));
                }
            }
            Message::Request { id, method, params } => {
                self.request_of_agent(id, method, params, out)?;
            }
        }
        Ok(())
    }

    /// Translates a notification that has another form in ACP. Returns false for all others.
    fn notification(
        &mut self,
        method: &str,
        params: &RawValue,
        out: &mut Vec<Output>,
    ) -> Result<bool, LineError> {
        match method {
            // The agent is ready, and does not expect the notification of the client.
            names::INITIALIZED => self.life.initialized = Notice::Sent,
            names::UPDATE => self.early_update(params, out)?,
            names::TOOL_CALL => self.early_tool(names::TOOL_CALL, params, out)?,
            names::TOOL_RESULT => self.early_tool(names::TOOL_RESULT, params, out)?,
            method::SESSION_UPDATE | SESSION_NOTIFICATION => self.session_update(params, out)?,
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn request_of_agent(
        &mut self,
        id: Box<RawValue>,
        method: Box<str>,
        params: Box<RawValue>,
        out: &mut Vec<Output>,
    ) -> Result<(), LineError> {
        let asks = &*method == method::SESSION_REQUEST_PERMISSION
            || REQUEST_PERMISSION.contains(&&*method);
        let translated = if asks {
            self.streamed_other();
            let session = self.session.as_deref().unwrap_or_default();
            permission::request(&params, session, &mut self.tools).map(Some)
        } else {
            self.notification(&method, &params, out)
                .map(|is_update| (!is_update).then_some(params))
        };
        match translated {
            Ok(Some(params)) => {
                let method = if asks {
                    method::SESSION_REQUEST_PERMISSION.into()
                } else {
                    method
                };
                let params = self.with_session(&method, params);
                out.push(Output::ToClient(Message::Request { id, method, params }));
            }
            Ok(None) => out.push(Output::ToAgent(acknowledge(&id, &method))),
            Err(missing) => {
                // Without an answer the agent would wait.
                let error = error(
                    error_code::INVALID_PARAMS,
                    format!("Invalid params: {missing}"),
                );
                out.push(Output::ToAgent(jsonrpc::error(&id, &error)));
                return Err(missing);
            }
        }
        Ok(())
    }

    /// The params of a method for clients with the session, if the agent omits it.
    fn with_session(&self, method: &str, params: Box<RawValue>) -> Box<RawValue> {
        let is_of_session = method.starts_with("fs/")
            || method.starts_with("terminal/")
            || method == method::ELICITATION_CREATE;
        let Some(session) = self.session.as_deref().filter(|_| is_of_session) else {
            return params;
        };
        let has_none =
            Object::parse("params", &params).is_ok_and(|object| object.get("sessionId").is_none());
        let with = has_none
            .then(|| acp::with_session_id(&params, session).ok())
            .flatten();
        with.unwrap_or(params)
    }
}

/// The answer to an update that the agent sent as a request.
fn acknowledge(id: &RawValue, method: &str) -> bytes::Bytes {
    if method == names::TOOL_CALL {
        // A result would mean that the client has run the tool.
        let error = error(
            error_code::METHOD_NOT_FOUND,
            "\"Method not found\": agent/toolCall is a notification; clients run no tools",
        );
        return jsonrpc::error(id, &error);
    }
    jsonrpc::result(id, &to_raw(&Members::default()))
}
