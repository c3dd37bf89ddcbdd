//! A command that is only displayed: its output grows, but nothing runs.
//!
//! In v1 the output is text in a tool call, in v2 a terminal of the agent. The history stores the text, which
//! both versions can show.

use agent_client_protocol_schema::v1::{
    SessionUpdate, TerminalId, ToolCallContent, ToolCallId, ToolCallStatus, ToolCallUpdate,
    ToolCallUpdateFields,
};
use serde_json::json;

use super::text::fenced;
use super::turn::{Step, Turn};
use super::version::Version;

#[derive(Debug)]
pub(super) struct Display {
    call: ToolCallId,
    output: String,
    /// Set if the version has terminals of the agent.
    terminal: Option<TerminalId>,
}

impl Turn {
    pub(super) async fn display(&mut self, call: &ToolCallId, command: &str) -> Step<Display> {
        let terminal = match self.version() {
            Version::V1 => None,
            Version::V2 => Some(self.begin_display(Some(call), command, false).await?),
        };
        Ok(Display { call: call.clone(), output: String::new(), terminal })
    }

    pub(super) async fn print(&mut self, display: &mut Display, line: &str) -> Step {
        display.output.push_str(line);
        let shown = vec![ToolCallContent::from(fenced("console", &display.output))];
        let fields = ToolCallUpdateFields::new().content(shown);
        let Some(terminal) = &display.terminal else { return self.progress(&display.call, fields).await };
        self.keep(&SessionUpdate::ToolCallUpdate(ToolCallUpdate::new(display.call.clone(), fields)));
        self.grow_display(terminal, line).await
    }

    /// Reports that the command succeeded, and completes its tool call.
    pub(super) async fn printed(&mut self, display: Display) -> Step {
        if let Some(terminal) = &display.terminal {
            self.displays.retain(|open| open != terminal);
            self.end_display(terminal, Ok(0)).await;
        }
        let done = ToolCallUpdateFields::new()
            .status(ToolCallStatus::Completed)
            .raw_output(json!({ "exitCode": 0 }));
        self.progress(&display.call, done).await
    }
}
