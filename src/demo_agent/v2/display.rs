//! Terminals of the agent, and the parts of a turn that can be cancelled by themselves.

use std::time::Duration;

use agent_client_protocol_schema::v1::{
    self, TerminalId, ToolCall, ToolCallContent as Content, ToolCallId, ToolCallStatus as Status,
    ToolCallUpdateFields, ToolKind,
};
use agent_client_protocol_schema::v2::{
    SessionUpdate, Terminal, TerminalCancelCapabilities, TerminalCapabilities, TerminalExitStatus,
    TerminalOutputChunk, TerminalUpdate, ToolCallCancelCapabilities, ToolCallCapabilities, ToolCallContent,
    ToolCallContentChunk, ToolCallStatus, ToolCallUpdate,
};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::super::turn::{Step, Turn};
use super::super::version::Version;

/// The interval between two updates of a long part.
const TICK: Duration = Duration::from_secs(1);

impl Turn {
    /// Displays a terminal in the tool call that it belongs to.
    pub(in super::super) async fn begin_display(
        &mut self,
        call: Option<&ToolCallId>,
        command: &str,
        cancels: bool,
    ) -> Step<TerminalId> {
        self.step()?;
        let id = TerminalId::new(format!("term_{}", self.record().number()));
        self.displays.push(id.clone());
        let cwd = self.record().place.cwd.clone();
        let mut terminal = TerminalUpdate::new(id.0.clone()).command(command.to_owned()).cwd(cwd);
        if cancels {
            let can = TerminalCapabilities::new().cancel(TerminalCancelCapabilities::new());
            terminal = terminal.capabilities(can);
        }
        self.send_v2(SessionUpdate::TerminalUpdate(terminal)).await;
        if let Some(call) = call {
            let shown = ToolCallContent::Terminal(Terminal::new(id.0.clone()));
            let chunk = ToolCallContentChunk::new(call.0.clone(), shown);
            self.send_v2(SessionUpdate::ToolCallContentChunk(chunk)).await;
        }
        Ok(id)
    }

    pub(in super::super) async fn grow_display(&mut self, terminal: &TerminalId, text: &str) -> Step {
        self.step()?;
        let chunk = TerminalOutputChunk::new(terminal.0.clone(), STANDARD.encode(text));
        self.send_v2(SessionUpdate::TerminalOutputChunk(chunk)).await;
        Ok(())
    }

    /// Ends a terminal with its exit code or its signal.
    pub(in super::super) async fn end_display(&self, terminal: &TerminalId, end: Result<i64, &str>) {
        let status = match end {
            Ok(code) => TerminalExitStatus::new().exit_code(code),
            Err(signal) => TerminalExitStatus::new().signal(signal.to_owned()),
        };
        let update = TerminalUpdate::new(terminal.0.clone()).exit_status(status).capabilities(None);
        self.send_v2(SessionUpdate::TerminalUpdate(update)).await;
    }

    /// Reports that a tool call was cancelled, with its turn or by itself. v1 has no such status.
    pub(in super::super) async fn call_cancelled(&mut self, call: &ToolCallId) {
        self.call_ended(call);
        let fields =
            ToolCallUpdateFields::new().status(Status::Failed).content(vec![Content::from("Cancelled.")]);
        let kept = v1::SessionUpdate::ToolCallUpdate(v1::ToolCallUpdate::new(call.clone(), fields));
        if self.version() == Version::V1 {
            return self.send(kept).await;
        }
        self.keep(&kept);
        let update = ToolCallUpdate::new(call.0.clone()).status(ToolCallStatus::Cancelled).capabilities(None);
        self.send_v2(SessionUpdate::ToolCallUpdate(update)).await;
    }

    /// Runs a tool call that can be cancelled by itself. Returns true if it was.
    pub(in super::super) async fn long_call(&mut self, limit: Duration) -> Step<bool> {
        let call = ToolCall::new("", "Take some time").kind(ToolKind::Other).status(Status::InProgress);
        let call = self.call(call).await?;
        let part = self.session().part(&call.0);
        let can = ToolCallCapabilities::new().cancel(ToolCallCancelCapabilities::new());
        let update = ToolCallUpdate::new(call.0.clone()).capabilities(can);
        self.send_v2(SessionUpdate::ToolCallUpdate(update)).await;
        let cancelled = self.wait_for_part(&part, limit).await;
        self.session().end_part(&call.0);
        if cancelled? {
            self.call_cancelled(&call).await;
            return Ok(true);
        }
        let over = ToolCallUpdate::new(call.0.clone()).capabilities(None);
        self.send_v2(SessionUpdate::ToolCallUpdate(over)).await;
        self.progress(&call, ToolCallUpdateFields::new().status(Status::Completed)).await?;
        Ok(false)
    }

    /// Runs a terminal that can be cancelled by itself. Returns true if it was.
    pub(in super::super) async fn long_terminal(&mut self, limit: Duration) -> Step<bool> {
        let terminal = self.begin_display(None, &format!("sleep {}", limit.as_secs()), true).await?;
        let part = self.session().part(&terminal.0);
        let cancelled = self.tick(&terminal, &part, limit).await;
        self.session().end_part(&terminal.0);
        let cancelled = cancelled?;
        self.displays.retain(|open| *open != terminal);
        self.end_display(&terminal, if cancelled { Err("SIGTERM") } else { Ok(0) }).await;
        Ok(cancelled)
    }

    async fn tick(
        &mut self,
        terminal: &TerminalId,
        part: &tokio_util::sync::CancellationToken,
        limit: Duration,
    ) -> Step<bool> {
        for second in 1..=limit.as_secs() {
            if self.wait_for_part(part, TICK).await? {
                return Ok(true);
            }
            self.grow_display(terminal, &format!("{second}\n")).await?;
        }
        Ok(false)
    }
}
