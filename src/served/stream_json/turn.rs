//! Turns: prompts of the client, and the line `result` at the end.

use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::state::{Call, Phase, StreamJson, Turn};
use crate::acp::{RawObject, error_code, method, stop_reason};
use crate::jsonrpc::RpcError;
use crate::served::dialect::Served;
use crate::served::message::{object, raw};

/// The maximum number of prompts that wait.
const MAX_PROMPTS: usize = 64;

/// The text before the message of an internal error.
const INTERNAL: &str = "Internal error: ";

/// The end of a turn in the words of the CLI.
struct TurnEnd {
    subtype: &'static str,
    is_error: bool,
    stop_reason: Option<String>,
    aborted: bool,
    /// The text of an error.
    failure: Option<String>,
    /// The status of the model API.
    status: Option<Box<RawValue>>,
    usage: Value,
}

impl TurnEnd {
    fn of(outcome: &Result<Box<RawValue>, RpcError>) -> Self {
        let end = Self {
            subtype: "success",
            is_error: false,
            stop_reason: None,
            aborted: false,
            failure: None,
            status: None,
            usage: usage(None),
        };
        let result = match outcome {
            Ok(result) => RawObject::parse(result).unwrap_or_else(RawObject::empty),
            Err(error) => return end.failed(error),
        };
        let usage = usage(result.object("usage").as_ref());
        let reason = result.text("stopReason").unwrap_or_default().into_owned();
        let end = Self { usage, ..end };
        match &*reason {
            stop_reason::CANCELLED => Self {
                subtype: "error_during_execution",
                is_error: true,
                aborted: true,
                ..end
            },
            "max_turn_requests" => Self {
                subtype: "error_max_turns",
                ..end
            },
            "refusal" => Self {
                is_error: true,
                stop_reason: Some(reason),
                ..end
            },
            _ => Self {
                stop_reason: Some(reason),
                ..end
            },
        }
    }

    fn failed(self, error: &RpcError) -> Self {
        let data = error.data.as_deref().and_then(RawObject::parse);
        let is_of_model = data.as_ref().is_some_and(|data| {
            ["errorKind", "status"]
                .iter()
                .any(|name| data.get(name).is_some_and(|value| value.get() != "null"))
        });
        let status = data
            .as_ref()
            .and_then(|data| data.get("status"))
            .filter(|status| status.get() != "null");
        let text = match error.code {
            error_code::INTERNAL => error
                .message
                .strip_prefix(INTERNAL)
                .unwrap_or(&error.message),
            _ => &error.message,
        };
        Self {
            subtype: if is_of_model {
                "success"
            } else {
                "error_during_execution"
            },
            is_error: true,
            stop_reason: is_of_model.then(|| "stop_sequence".to_owned()),
            failure: Some(text.to_owned()),
            status: status.map(ToOwned::to_owned),
            ..self
        }
    }
}

/// The tokens of a turn with the names of the CLI.
fn usage(usage: Option<&RawObject<'_>>) -> Value {
    let tokens = |name| -> u64 {
        usage
            .and_then(|usage| usage.get(name))
            .and_then(|tokens| tokens.get().parse().ok())
            .unwrap_or(0)
    };
    json!({
        "input_tokens": tokens("inputTokens"), "output_tokens": tokens("outputTokens"),
        "cache_read_input_tokens": tokens("cachedReadTokens"),
        "cache_creation_input_tokens": tokens("cachedWriteTokens"),
    })
}

impl StreamJson {
    pub(super) fn prompt(&mut self, content: Box<RawValue>, served: &mut Served) {
        if self.prompts.len() >= MAX_PROMPTS || self.phase == Phase::Failed {
            tracing::warn!("dropped a prompt: too many wait, or the session could not be started");
            return;
        }
        self.prompts.push_back(content);
        self.next_prompt(served);
    }

    /// Begins the next turn if none runs.
    pub(super) fn next_prompt(&mut self, served: &mut Served) {
        if self.phase != Phase::Ready || self.turn.is_some() {
            return;
        }
        let Some(content) = self.prompts.pop_front() else {
            return;
        };
        let session = raw(&self.writer.session);
        let params = object(&[("sessionId", session), ("prompt", content)]);
        if !self.call(Call::Prompt, method::SESSION_PROMPT, params, served) {
            tracing::warn!("dropped a prompt: the agent does not answer");
            return;
        }
        self.turn = Some(Turn {
            began: Instant::now(),
            is_interrupted: false,
            context: None,
        });
        self.writer.begin_turn();
        let members = [
            ("subtype", raw("init")),
            ("cwd", raw(&self.context.cwd)),
            ("tools", raw(&json!([]))),
            ("mcp_servers", raw(&json!([]))),
            ("model", raw(self.settings.model())),
            ("permissionMode", raw(self.settings.mode())),
            ("slash_commands", raw(&self.settings.command_names())),
            ("apiKeySource", raw("none")),
            ("output_style", raw("default")),
        ];
        served.to_client.push(self.writer.event("system", &members));
    }

    pub(super) fn turn_ended(
        &mut self,
        outcome: &Result<Box<RawValue>, RpcError>,
        served: &mut Served,
    ) {
        let Some(turn) = self.turn.take() else { return };
        for (request, answer) in self.permissions.cancel_all() {
            served
                .to_client
                .push(super::permission::withdrawal(&request));
            served.to_agent.push(answer);
        }
        self.writer.end_turn(
            turn.context.as_ref().map(|context| context.used),
            &mut served.to_client,
        );
        let mut end = TurnEnd::of(outcome);
        if turn.is_interrupted && outcome.is_err() {
            // An agent may answer a cancelled prompt with an error.
            end = TurnEnd {
                subtype: "error_during_execution",
                aborted: true,
                ..end
            };
        }
        self.write_result(&turn, &end, served);
        self.next_prompt(served);
    }

    fn write_result(&mut self, turn: &Turn, end: &TurnEnd, served: &mut Served) {
        let elapsed = u64::try_from(turn.began.elapsed().as_millis()).unwrap_or(u64::MAX);
        let context = turn.context.as_ref();
        let cost = context
            .and_then(|context| context.cost.clone())
            .unwrap_or_else(|| raw(&0));
        let models = context.map_or_else(
            || json!({}),
            |context| json!({ self.settings.model(): { "contextWindow": context.size } }),
        );
        let mut members = vec![
            ("subtype", raw(end.subtype)),
            ("is_error", raw(&end.is_error)),
            ("duration_ms", raw(&elapsed)),
            ("duration_api_ms", raw(&elapsed)),
            ("num_turns", raw(&self.writer.messages())),
            ("stop_reason", raw(&end.stop_reason)),
            ("total_cost_usd", cost),
            ("usage", raw(&end.usage)),
            ("modelUsage", raw(&models)),
            ("permission_denials", raw(&json!([]))),
        ];
        if end.aborted {
            members.push(("terminal_reason", raw("aborted_streaming")));
        }
        match &end.failure {
            _ if end.aborted => {}
            Some(failure) if end.subtype == "success" => members.push(("result", raw(failure))),
            Some(failure) => members.push(("errors", raw(&[failure]))),
            None => members.push(("result", self.writer.last_text())),
        }
        if let Some(status) = &end.status {
            members.push(("api_error_status", status.clone()));
        }
        served.to_client.push(self.writer.event("result", &members));
    }

    /// The result of a session that could not be started.
    pub(super) fn write_failed_start(&mut self, reason: &str, served: &mut Served) {
        let members = [
            ("subtype", raw("error_during_execution")),
            ("is_error", raw(&true)),
            ("duration_ms", raw(&0)),
            ("duration_api_ms", raw(&0)),
            ("num_turns", raw(&0)),
            ("stop_reason", RawValue::NULL.to_owned()),
            ("total_cost_usd", raw(&0)),
            ("usage", raw(&usage(None))),
            ("modelUsage", raw(&json!({}))),
            ("permission_denials", raw(&json!([]))),
            ("errors", raw(&[reason])),
        ];
        served.to_client.push(self.writer.event("result", &members));
    }
}
