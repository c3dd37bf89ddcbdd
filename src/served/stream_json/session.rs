//! The set-up of the session: `initialize` and `session/new` at the agent, before the first request of the client.

use serde_json::json;
use serde_json::value::RawValue;

use super::state::{Call, Phase, StreamJson};
use crate::acp::{AcpVersion, RawObject, method};
use crate::jsonrpc::RpcError;
use crate::served::dialect::Served;
use crate::served::message::raw;

impl StreamJson {
    /// Begins the set-up with the first line of the client.
    pub(super) fn begin_session(&mut self, served: &mut Served) {
        if self.phase != Phase::New {
            return;
        }
        self.phase = Phase::Initializing;
        let params = json!({
            "protocolVersion": AcpVersion::V1.number(),
            "clientCapabilities": { "fs": { "readTextFile": false, "writeTextFile": false }, "terminal": false },
            "clientInfo": { "name": "acp-gateway", "title": "acp-gateway translate", "version": self.context.version },
        });
        self.call(Call::Initialize, method::INITIALIZE, raw(&params), served);
    }

    pub(super) fn initialized(
        &mut self,
        outcome: Result<Box<RawValue>, RpcError>,
        served: &mut Served,
    ) {
        match outcome {
            Ok(_) => {
                self.phase = Phase::Creating;
                let params = json!({ "cwd": self.context.cwd, "mcpServers": [] });
                self.call(Call::NewSession, method::SESSION_NEW, raw(&params), served);
            }
            Err(error) => self.set_up_failed(&error, served),
        }
    }

    pub(super) fn session_created(
        &mut self,
        outcome: &Result<Box<RawValue>, RpcError>,
        served: &mut Served,
    ) {
        let result = match outcome {
            Ok(result) => result,
            Err(error) => return self.set_up_failed(error, served),
        };
        let members = RawObject::parse(result).unwrap_or_else(RawObject::empty);
        self.phase = Phase::Ready;
        self.writer.session = members.text("sessionId").unwrap_or_default().into_owned();
        self.settings.created(&members);
        self.writer.model = self.settings.model().to_owned();
        for (id, control) in std::mem::take(&mut self.controls) {
            self.control(id, control, served);
        }
        self.next_prompt(served);
    }

    /// Reports the failure as the CLI does: as the result of a turn.
    fn set_up_failed(&mut self, error: &RpcError, served: &mut Served) {
        self.phase = Phase::Failed;
        self.prompts.clear();
        self.controls.clear();
        self.write_failed_start(&error.message, served);
    }
}
