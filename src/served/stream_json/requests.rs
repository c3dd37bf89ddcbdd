//! Requests of the agent: permissions, and control requests of other kinds.

use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::permission::{Choice, Open};
use super::state::StreamJson;
use super::writer::bare;
use crate::acp::{RawObject, error_code};
use crate::jsonrpc::Message;
use crate::served::dialect::Served;
use crate::served::message::{object, raw, rpc_error};

/// The tool with which the CLI asks for the end of its plan mode.
const EXIT_PLAN_MODE: &str = "ExitPlanMode";

impl StreamJson {
    /// Asks the client for a permission.
    pub(super) fn permission_requested(
        &mut self,
        id: &RawValue,
        params: &RawValue,
        served: &mut Served,
    ) {
        let params = RawObject::parse(params).unwrap_or_else(RawObject::empty);
        let call = params.object("toolCall").unwrap_or_else(RawObject::empty);
        let options: Vec<Value> = params
            .get("options")
            .and_then(|options| serde_json::from_str(options.get()).ok())
            .unwrap_or_default();
        let choice = |option: &Value| {
            let text = |name: &str| option[name].as_str().map(str::to_owned);
            Some(Choice {
                id: text("optionId")?,
                kind: text("kind")?,
            })
        };
        let choices: Vec<_> = options.iter().filter_map(choice).collect();
        let (name, input) = self.tools.asked(&call);
        let title = call.text("title").unwrap_or_default();
        let mut request = vec![
            ("subtype", raw("can_use_tool")),
            ("tool_name", raw(&name)),
            ("display_name", raw(&name)),
            ("input", input),
            ("description", raw(&title)),
            (
                "tool_use_id",
                raw(&call.text("toolCallId").unwrap_or_default()),
            ),
        ];
        let is_lasting = choices.iter().any(|choice| choice.kind == "allow_always");
        if is_lasting && name != EXIT_PLAN_MODE {
            let rule = json!([{
                "type": "addRules", "rules": [{ "toolName": name }], "behavior": "allow", "destination": "session",
            }]);
            request.push(("permission_suggestions", raw(&rule)));
        }
        self.ask(
            Open::Permission {
                id: id.to_owned(),
                choices,
            },
            object(&request),
            served,
        );
    }

    /// Passes on a control request of another kind.
    pub(super) fn extension_requested(
        &mut self,
        id: &RawValue,
        subtype: &str,
        params: &RawValue,
        served: &mut Served,
    ) {
        let members = RawObject::parse(params).unwrap_or_else(RawObject::empty);
        let others = members.iter().filter(|(name, _)| *name != "subtype");
        let mut request = vec![("subtype", raw(subtype))];
        request.extend(others.map(|(name, value)| (name, value.to_owned())));
        self.ask(
            Open::Extension { id: id.to_owned() },
            object(&request),
            served,
        );
    }

    fn ask(&mut self, open: Open, request: Box<RawValue>, served: &mut Served) {
        let id = open.id().to_owned();
        let Some(request_id) = self.permissions.open(open) else {
            let error = rpc_error(error_code::INTERNAL, "too many requests have no answer");
            served.to_agent.push(Message::Response {
                id,
                outcome: Err(error),
            });
            return;
        };
        served.to_client.push(bare(object(&[
            ("type", raw("control_request")),
            ("request_id", request_id),
            ("request", request),
        ])));
    }
}
