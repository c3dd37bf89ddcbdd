//! The fold of one turn.

use serde_json::value::RawValue;

use super::items::{Items, Source};
use super::plans::{Change, Plans};
use crate::acp::{RawObject, method, stop_reason, subject_tool_call, update};
use crate::api::{PromptStatus, Settled, Turn, TurnRequest};
use crate::event::{EventRef, Payload};
use crate::types::limits::FOLDED_MEMBER_BYTES;
use crate::types::{PromptId, RequestId, Timestamp};

/// Folds the events of one turn, from `prompt.queued` or `prompt.started` to its end, and late updates after
/// the end. Events of other turns are ignored.
#[derive(Debug, Default)]
pub struct TurnFold {
    /// The prompt id of the turn and the time of its first event.
    first: Option<(PromptId, Timestamp)>,
    state: State,
    items: Items,
}

/// The latest state of the turn, without its items.
#[derive(Debug, Default)]
struct State {
    status: Option<PromptStatus>,
    stop_reason: Option<String>,
    by: Option<String>,
    ended_at: Option<Timestamp>,
    prompt: Option<Box<RawValue>>,
    plans: Plans,
    usage: Option<Box<RawValue>>,
    context_usage: Option<Box<RawValue>>,
    error: Option<Box<RawValue>>,
    /// A member was too large and was omitted.
    truncated: bool,
}

impl State {
    /// The raw member, unless it is too large.
    fn within_limit(&mut self, raw: Option<&RawValue>) -> Option<Box<RawValue>> {
        let fits = raw.filter(|raw| raw.get().len() <= FOLDED_MEMBER_BYTES);
        self.truncated |= raw.is_some() && fits.is_none();
        fits.map(ToOwned::to_owned)
    }

    /// The status of tool calls that the agent left open. `None`: the turn has not ended.
    fn settled(&self) -> Option<Settled> {
        match self.status? {
            PromptStatus::Queued | PromptStatus::Running => None,
            PromptStatus::Completed if self.stop_reason.as_deref() == Some(stop_reason::CANCELLED) => {
                Some(Settled::Cancelled)
            }
            PromptStatus::Completed | PromptStatus::Failed => Some(Settled::Unfinished),
        }
    }
}

impl TurnFold {
    pub fn new() -> Self {
        Self::default()
    }

    /// Folds the next event of the log. Events that belong to no turn are ignored.
    pub fn event(&mut self, event: &EventRef<'_>) {
        let Some((prompt_id, time)) = event.head().and_then(|head| head.prompt_id().zip(head.time())) else {
            return;
        };
        if self.first.get_or_insert((prompt_id, time)).0 != prompt_id {
            return;
        }
        let kind = event.kind();
        let Some(event) = event.payload() else { return };
        match kind {
            "prompt.queued" => self.begun(PromptStatus::Queued, event),
            "prompt.started" => self.begun(PromptStatus::Running, event),
            "prompt.completed" | "prompt.failed" => self.ended(kind, time, event),
            "session.update" => {
                if let Some(update) = event.update {
                    self.update(update, Source { subagent: event.subagent.as_deref(), late: event.late });
                }
            }
            "request.created" => self.requested(time, &event),
            "request.resolved" => {
                if let Some(id) = event.request_id {
                    self.items.resolved(id, time, event);
                }
            }
            "session.attached" if event.context.as_deref() == Some("lost") => self.items.context_lost(time),
            _ => {}
        }
    }

    fn begun(&mut self, status: PromptStatus, event: Payload<'_>) {
        self.state.status = Some(status);
        if let Some(by) = event.by {
            self.state.by = Some(by.into_owned());
        }
        if let Some(prompt) = event.prompt {
            self.state.prompt = Some(prompt.to_owned());
        }
    }

    fn ended(&mut self, kind: &str, time: Timestamp, event: Payload<'_>) {
        let completed = kind == "prompt.completed";
        self.state.status = Some(if completed { PromptStatus::Completed } else { PromptStatus::Failed });
        self.state.ended_at = Some(time);
        self.state.stop_reason = event.stop_reason.map(Into::into);
        self.state.usage = self.state.within_limit(event.usage);
        self.state.error = self.state.within_limit(event.problem);
    }

    fn update(&mut self, raw: &RawValue, source: Source<'_>) {
        let Ok(kind) = update::kind_of(raw) else { return };
        match kind.as_ref() {
            // Plans and usage of a child session do not describe the session.
            update::PLAN | update::PLAN_UPDATE | update::PLAN_REMOVED | update::USAGE
                if source.subagent.is_some() => {}
            kind @ (update::PLAN | update::PLAN_UPDATE | update::PLAN_REMOVED) => {
                self.state.truncated |= self.state.plans.update(kind, raw) == Change::TooLarge;
            }
            update::USAGE => self.state.context_usage = self.state.within_limit(Some(raw)),
            // These describe the session. Its snapshot contains them.
            update::AVAILABLE_COMMANDS
            | update::CURRENT_MODE
            | update::CONFIG_OPTION
            | update::SESSION_INFO => {}
            kind => self.items.update(kind, raw, source),
        }
    }

    /// Folds a request. The tool call of a permission request may be its only description, so it is folded
    /// like an update.
    fn requested(&mut self, created_at: Timestamp, event: &Payload<'_>) {
        let (Some(request_id), Some(method)) = (event.request_id, &event.method) else { return };
        let mut request = open_request(request_id, method, created_at);
        request.subagent = event.subagent.as_deref().map(Into::into);
        let params = event.params.and_then(RawObject::parse);
        match params.filter(|_| *method == method::SESSION_REQUEST_PERMISSION) {
            Some(params) => {
                let subject = params.get("subject");
                let call = params.get("toolCall").or_else(|| subject_tool_call(subject?));
                if let Some(call) = call.and_then(RawObject::parse) {
                    let source = Source { subagent: event.subagent.as_deref(), late: false };
                    self.items.tool_call(&call, source);
                    request.tool_call_id = call.text("toolCallId").map(Into::into);
                }
                request.options = params.get("options").map(ToOwned::to_owned);
                // In v2 the request has more details than the tool call, or has no tool call.
                if params.get("title").is_some() || subject.is_some() {
                    request.params = event.params.map(ToOwned::to_owned);
                }
            }
            None => request.params = event.params.map(ToOwned::to_owned),
        }
        self.items.request(request);
    }

    /// The agent's messages so far, joined, for `Prompt.text`. The flag is true if a part is missing because
    /// it did not fit, or because retention deleted the beginning of the turn.
    pub fn text(&self) -> (String, bool) {
        let (text, exceeded) = self.items.text();
        let began = self.first.is_none() || self.state.status.is_some();
        (text, exceeded || !began)
    }

    /// Returns the turn, or `None` if there was no event of a turn.
    pub fn finish(self) -> Option<Turn> {
        let (prompt_id, created_at) = self.first?;
        let (items, truncated) = self.items.finish(self.state.settled());
        let state = self.state;
        Some(Turn {
            prompt_id,
            // A turn without a beginning was partly deleted by retention.
            status: state.status.unwrap_or(PromptStatus::Running),
            stop_reason: state.stop_reason,
            by: state.by,
            created_at,
            ended_at: state.ended_at,
            truncated: truncated || state.truncated || state.prompt.is_none(),
            prompt: state.prompt,
            items,
            plan: state.plans.last().map(ToOwned::to_owned),
            usage: state.usage,
            context_usage: state.context_usage,
            error: state.error,
        })
    }
}

fn open_request(request_id: RequestId, method: &str, created_at: Timestamp) -> TurnRequest {
    TurnRequest {
        request_id,
        method: method.to_owned(),
        subagent: None,
        tool_call_id: None,
        options: None,
        params: None,
        created_at,
        resolution: None,
        resolved_at: None,
        by: None,
        result: None,
        error: None,
    }
}

#[cfg(test)]
mod tests;
