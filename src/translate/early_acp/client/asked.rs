//! Permission requests of the agent.

use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::state::EarlyClient;
use super::updates::{contents, text_of};
use crate::acp::{RawObject, error_code, method};
use crate::jsonrpc::Message;
use crate::translate::message::{error, object, to_raw};
use crate::translate::protocol::Served;

impl EarlyClient {
    pub(super) fn permission_requested(
        &mut self,
        id: &RawValue,
        params: &RawValue,
        served: &mut Served,
    ) {
        let params = RawObject::parse(params).unwrap_or_else(RawObject::empty);
        let session = params.text("sessionId").unwrap_or_default().into_owned();
        if !self.permissions.open(id, session.clone()) {
            let error = error(error_code::INTERNAL, "too many requests have no answer");
            served.to_agent.push(Message::Response {
                id: id.to_owned(),
                outcome: Err(error),
            });
            return;
        }
        let call = params.object("toolCall").unwrap_or_else(RawObject::empty);
        let options: Vec<Value> = params
            .get("options")
            .and_then(|options| serde_json::from_str(options.get()).ok())
            .unwrap_or_default();
        let option = |option: &Value| json!({ "optionId": option["optionId"], "label": option["name"], "kind": option["kind"] });
        let options: Vec<_> = options.iter().map(option).collect();
        let shown = contents(&call);
        let title = call.text("title").unwrap_or("Permission".into());
        let mut message = text_of(&shown);
        if message.is_empty() {
            message = title.clone().into_owned();
        }
        // The early protocol has no member for the input, and a title may omit a part of the action. A diff shows its input.
        let is_diff = shown.iter().any(|part| part["type"] == "diff");
        if let Some(input) = call
            .get("rawInput")
            .filter(|input| !is_diff && input.get() != "null")
        {
            message = format!("{message}\n{input}");
        }
        let request = object(&[
            ("sessionId", to_raw(&session)),
            ("title", to_raw(&title)),
            ("message", to_raw(&message)),
            ("toolCallId", to_raw(&call.text("toolCallId"))),
            ("options", to_raw(&options)),
        ]);
        let method = method::SESSION_REQUEST_PERMISSION.into();
        served.to_client.push(
            Message::Request {
                id: id.to_owned(),
                method,
                params: request,
            }
            .line(),
        );
    }
}
