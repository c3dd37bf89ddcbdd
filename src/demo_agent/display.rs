//! Simulated commands: their output grows, but nothing runs. In v2 the output is a terminal of the agent.
//!
//! The history stores the output as text in a tool call, which both versions can show.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::text::fenced;
use super::turn::{Step, Turn, text_content, tool_call_update};

impl Turn {
    /// Displays a command line by line, and completes its tool call.
    pub(super) async fn simulate(
        &mut self,
        call: &str,
        command: &str,
        lines: &[String],
        beats: u32,
    ) -> Step {
        let terminal = if self.client.is_v2() {
            let terminal = self.begin_display(command, false).await?;
            let content = json!({ "type": "terminal", "terminalId": terminal });
            let mut chunk = tool_call_update(call, json!({ "content": content }));
            chunk["sessionUpdate"] = json!("tool_call_content_chunk");
            self.show(chunk).await;
            Some(terminal)
        } else {
            None
        };
        let mut output = String::new();
        for line in lines {
            self.pause(beats).await?;
            output.push_str(line);
            let content = text_content(&fenced("console", &output));
            let update = tool_call_update(call, json!({ "content": content }));
            match &terminal {
                None => self.act(update).await?,
                Some(terminal) => {
                    self.record().history.push(&update);
                    self.grow_display(terminal, line).await?;
                }
            }
        }
        if let Some(terminal) = terminal {
            self.end_display(&terminal, json!({ "exitCode": 0 })).await;
        }
        self.progress(
            call,
            json!({ "status": "completed", "rawOutput": { "exitCode": 0 } }),
        )
        .await
    }

    /// Displays a terminal of the agent. The end of the turn ends it, if the scene has not done so.
    pub(super) async fn begin_display(&mut self, command: &str, cancels: bool) -> Step<String> {
        let id = self.new_id("term_");
        self.displays.push(id.clone());
        let cwd = self.record().cwd();
        let mut update = json!({
            "sessionUpdate": "terminal_update", "terminalId": id, "command": command, "cwd": cwd,
        });
        if cancels {
            update["capabilities"] = json!({ "cancel": {} });
        }
        self.act(update).await?;
        Ok(id)
    }

    pub(super) async fn grow_display(&mut self, terminal: &str, text: &str) -> Step {
        let data = STANDARD.encode(text);
        self.act(json!({ "sessionUpdate": "terminal_output_chunk", "terminalId": terminal, "data": data }))
            .await
    }

    pub(super) async fn end_display(&mut self, terminal: &str, status: Value) {
        self.displays.retain(|open| open != terminal);
        self.show(json!({
            "sessionUpdate": "terminal_update",
            "terminalId": terminal,
            "exitStatus": status,
            "capabilities": null,
        }))
        .await;
    }

    /// Reports that a tool call was cancelled, with its turn or by itself. v1 and the history have no such status.
    pub(super) async fn call_cancelled(&mut self, call: &str) {
        self.call_ended(call);
        let members = json!({ "status": "failed", "content": text_content("Cancelled.") });
        let update = tool_call_update(call, members);
        self.record().history.push(&update);
        let update = if self.client.is_v2() {
            tool_call_update(call, json!({ "status": "cancelled", "capabilities": null }))
        } else {
            update
        };
        self.show(update).await;
    }
}
