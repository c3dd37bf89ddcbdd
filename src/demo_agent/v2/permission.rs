//! The permission request for a tool call or a command.

use agent_client_protocol_schema::v1;
use agent_client_protocol_schema::v2::{
    CommandPermissionSubject, RequestPermissionRequest, RequestPermissionSubject, ToolCallId,
    ToolCallPermissionSubject,
};

use super::super::record::Record;
use super::updates::{call_fields, convert};

pub(in super::super) fn question(
    record: &Record,
    mut call: v1::ToolCallUpdate,
    options: &[v1::PermissionOption],
) -> RequestPermissionRequest {
    let title = call.fields.title.clone().unwrap_or_else(|| "May I?".to_owned());
    let command = call.fields.raw_input.as_ref().and_then(|input| input["command"].as_str());
    let subject = if let Some(command) = command {
        RequestPermissionSubject::Command(
            CommandPermissionSubject::new(command, record.place.cwd.clone())
                .tool_call_id(ToolCallId::new(call.tool_call_id.0.clone())),
        )
    } else {
        let content = call.fields.content.take();
        let call = call_fields(&call, content);
        RequestPermissionSubject::ToolCall(Box::new(ToolCallPermissionSubject::new(call)))
    };
    RequestPermissionRequest::new(record.session_id.0.clone(), title, convert::<_, Vec<_>>(&options))
        .subject(subject)
}
