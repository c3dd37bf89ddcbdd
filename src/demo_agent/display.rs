//! A command that is only shown: its output grows while it is play-acted, and nothing runs.
//!
//! In v1 that is text in a tool call, in v2 a terminal of the agent's own. The history keeps the text: it can be shown
//! in both.

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
    /// Where the version has terminals of the agent's.
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

    /// The command has ended well, and its tool call with it.
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
