//! The exported spans of a prompt, by the semantic conventions of OpenTelemetry for generative AI: `invoke_agent` from the
//! acceptance of the prompt to the end of its turn, and below it the time in the queue, the tool calls, and the requests that
//! wait for a client.
//!
//! Spans contain ids, kinds and codes. Titles, arguments and results of tool calls are texts of the agent, and are not in them.

use std::collections::HashMap;

use base::telemetry::traces::{SpanKind, TraceSpan};
use base::types::{AgentName, PromptId, SessionId};
use wire::acp::{RawObject, TraceContext, tool_kind};

/// The number of running tool calls with a span.
const MAX_CALLS: usize = 256;

#[derive(Debug)]
pub(crate) struct PromptTrace {
    /// Until an agent gets the prompt.
    queue: Option<TraceSpan>,
    calls: HashMap<Box<str>, TraceSpan>,
    /// The last field, because the spans below it end first.
    span: TraceSpan,
}

impl PromptTrace {
    pub(super) fn begin(
        session: SessionId,
        agent: &AgentName,
        prompt: PromptId,
        client: Option<&TraceContext>,
    ) -> Option<Box<Self>> {
        let client = client.map(|client| (client.traceparent(), client.tracestate()));
        let span = TraceSpan::begin(format!("invoke_agent {agent}"), SpanKind::Client, client)?;
        span.set("gen_ai.operation.name", "invoke_agent");
        span.set("gen_ai.agent.name", agent.to_string());
        span.set("gen_ai.conversation.id", session.to_string());
        span.set("acp_gateway.prompt.id", prompt.to_string());
        Some(Box::new(Self {
            queue: span.child("queue".to_owned()),
            span,
            calls: HashMap::new(),
        }))
    }

    /// The context for the agent.
    pub(super) fn context(&self) -> Option<TraceContext> {
        let state = self.span.tracestate();
        TraceContext::parse(&self.span.traceparent(), state.as_deref())
    }

    pub(super) fn prompt_sent(&mut self) {
        self.queue = None;
    }

    pub(super) fn call_began(&mut self, id: &str, call: &RawObject<'_>) {
        if self.calls.len() >= MAX_CALLS || self.calls.contains_key(id) {
            return;
        }
        let kind = call.text("kind");
        let kind = tool_kind::known(kind.as_deref().unwrap_or_default());
        if let Some(span) = self.span.child(format!("execute_tool {kind}")) {
            span.set("gen_ai.operation.name", "execute_tool");
            span.set("gen_ai.tool.name", kind);
            self.calls.insert(id.into(), span);
        }
    }

    pub(super) fn call_ended(&mut self, id: &str, failed: bool) {
        if let Some(span) = self.calls.remove(id)
            && failed
        {
            span.fail("tool_call_failed");
        }
    }

    /// The span of a request that waits for a client.
    pub(super) fn request(&self, kind: &'static str) -> Option<TraceSpan> {
        self.span.child(format!("wait {kind}"))
    }

    /// Sets the outcome of the turn: a stop reason of ACP, or the code of a problem.
    pub(super) fn set_outcome(&self, outcome: &'static str, failed: bool) {
        if failed {
            self.span.fail(outcome);
        } else {
            self.span
                .set_list("gen_ai.response.finish_reasons", outcome);
        }
    }

    pub(super) fn set_tokens(&self, kind: &str, tokens: u32) {
        let key = match kind {
            "input" => "gen_ai.usage.input_tokens",
            _ => "gen_ai.usage.output_tokens",
        };
        self.span.set(key, i64::from(tokens));
    }
}
