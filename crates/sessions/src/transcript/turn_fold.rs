//! The fold of one turn.

use serde_json::value::RawValue;

use super::FOLDED_MEMBER_BYTES;
use super::items::{Items, Source};
use super::plans::{Change, Plans};
use super::tool_call::Description;
use base::types::{PromptId, Timestamp};
use events::api::{PromptStatus, Settled, Turn, TurnRequest};
use events::event::{EventRef, Payload};
use wire::acp::{RawObject, method, stop_reason, subject_tool_call, update};

/// Folds the events of one turn, from `prompt.queued` or `prompt.started` to its end, and late updates after
/// the end. Events of other turns are ignored.
#[derive(Debug, Default)]
pub struct TurnFold {
    /// The turn without its items and its plan. `None` before the first event.
    turn: Option<Turn>,
    /// The status at the last begin or end. `None` if retention deleted the beginning of the turn.
    status: Option<PromptStatus>,
    plans: Plans,
    items: Items,
}

impl TurnFold {
    /// Folds the next event of the log. Events that belong to no turn are ignored.
    pub fn event(&mut self, event: &EventRef<'_>) {
        let Some((prompt_id, time)) = event
            .head()
            .and_then(|head| head.prompt_id().zip(head.time()))
        else {
            return;
        };
        let turn = self.turn.get_or_insert_with(|| begun_turn(prompt_id, time));
        if turn.prompt_id != prompt_id {
            return;
        }
        let kind = event.kind();
        let Some(event) = event.payload() else { return };
        match kind {
            "prompt.queued" | "prompt.started" => {
                self.status = Some(match kind {
                    "prompt.queued" => PromptStatus::Queued,
                    _ => PromptStatus::Running,
                });
                turn.by = event.by.map(Into::into).or(turn.by.take());
                turn.prompt = event.prompt.map(ToOwned::to_owned).or(turn.prompt.take());
            }
            "prompt.changed" => {
                turn.prompt = event.prompt.map(ToOwned::to_owned).or(turn.prompt.take());
            }
            "prompt.completed" | "prompt.failed" => {
                self.status = Some(match kind {
                    "prompt.completed" => PromptStatus::Completed,
                    _ => PromptStatus::Failed,
                });
                turn.ended_at = Some(time);
                turn.stop_reason = event.stop_reason.map(Into::into);
                turn.cancel_cause = event.cancel_cause;
                let mut fitting = |raw| within_limit(raw, &mut turn.truncated);
                turn.usage = event.usage.and_then(&mut fitting);
                turn.error = event.problem.and_then(&mut fitting);
            }
            "session.update" if !event.echo => {
                let source = Source {
                    subagent: event.subagent.as_deref(),
                    late: event.late,
                };
                if let Some((Ok(kind), raw)) = event.update.map(|raw| (update::kind_of(raw), raw)) {
                    self.update(&kind, raw, source);
                }
            }
            "request.created" => self.requested(time, &event),
            "request.resolved" => {
                if let Some(id) = event.request_id {
                    self.items.resolved(id, time, event);
                }
            }
            "session.attached" if event.context.as_deref() == Some("lost") => {
                self.items.context_lost(time);
            }
            _ => {}
        }
    }

    fn update(&mut self, kind: &str, raw: &RawValue, source: Source<'_>) {
        let Some(turn) = &mut self.turn else { return };
        match kind {
            // Plans and usage of a child session do not describe the session.
            update::PLAN | update::PLAN_UPDATE | update::PLAN_REMOVED | update::USAGE
                if source.subagent.is_some() => {}
            update::PLAN | update::PLAN_UPDATE | update::PLAN_REMOVED => {
                turn.truncated |= self.plans.update(kind, raw) == Change::TooLarge;
            }
            update::USAGE => turn.context_usage = within_limit(raw, &mut turn.truncated),
            // These describe the session. Its snapshot contains them.
            update::AVAILABLE_COMMANDS
            | update::CURRENT_MODE
            | update::CONFIG_OPTION
            | update::SESSION_INFO => {}
            _ => self.items.update(kind, raw, source),
        }
    }

    fn requested(&mut self, created_at: Timestamp, event: &Payload<'_>) {
        let (Some(request_id), Some(method)) = (event.request_id, &event.method) else {
            return;
        };
        let mut request = TurnRequest {
            request_id,
            method: method.to_string(),
            subagent: event.subagent.as_deref().map(Into::into),
            tool_call_id: None,
            options: None,
            params: event.params.map(ToOwned::to_owned),
            created_at,
            resolution: None,
            resolved_at: None,
            by: None,
            result: None,
            error: None,
        };
        let params = event.params.and_then(RawObject::parse);
        if let Some(params) = params
            && *method == method::SESSION_REQUEST_PERMISSION
        {
            let subject = params.get("subject");
            let call = params
                .get("toolCall")
                .or_else(|| subject_tool_call(subject?));
            if let Some(call) = call.and_then(RawObject::parse) {
                let source = Source {
                    subagent: event.subagent.as_deref(),
                    late: false,
                };
                self.items.tool_call(Description::Requested, &call, source);
                request.tool_call_id = call.text("toolCallId").map(Into::into);
            }
            request.options = params.get("options").map(ToOwned::to_owned);
            // In v2 the request has more details than the tool call, or has no tool call.
            if params.get("title").is_none() && subject.is_none() {
                request.params = None;
            }
        }
        self.items.request(request);
    }

    /// The agent's messages so far, joined, for `Prompt.text`. The flag is true if a part is missing because
    /// it did not fit, or because retention deleted the beginning of the turn.
    pub fn text(&self) -> (String, bool) {
        let (text, exceeded) = self.items.text();
        let lacks_begin = self.turn.is_some() && self.status.is_none();
        (text, exceeded || lacks_begin)
    }

    pub fn finish(self) -> Option<Turn> {
        let mut turn = self.turn?;
        turn.status = self.status.unwrap_or(PromptStatus::Running);
        let (items, truncated) = self.items.finish(settled(&turn));
        turn.truncated |= truncated || turn.prompt.is_none();
        Some(Turn {
            items,
            plan: self.plans.last().map(ToOwned::to_owned),
            ..turn
        })
    }
}

fn begun_turn(prompt_id: PromptId, created_at: Timestamp) -> Turn {
    Turn {
        prompt_id,
        status: PromptStatus::Running,
        stop_reason: None,
        cancel_cause: None,
        by: None,
        created_at,
        ended_at: None,
        prompt: None,
        items: Vec::new(),
        plan: None,
        usage: None,
        context_usage: None,
        error: None,
        truncated: false,
    }
}

/// The raw member. If it is too large, it is omitted and the turn is marked as truncated.
fn within_limit(raw: &RawValue, truncated: &mut bool) -> Option<Box<RawValue>> {
    let fits = raw.get().len() <= FOLDED_MEMBER_BYTES;
    *truncated |= !fits;
    fits.then(|| raw.to_owned())
}

/// The status of tool calls that the agent left open. `None`: the turn has not ended.
fn settled(turn: &Turn) -> Option<Settled> {
    match turn.status {
        PromptStatus::Queued | PromptStatus::Running => None,
        PromptStatus::Completed if turn.stop_reason.as_deref() == Some(stop_reason::CANCELLED) => {
            Some(Settled::Cancelled)
        }
        PromptStatus::Completed | PromptStatus::Failed => Some(Settled::Unfinished),
    }
}

#[cfg(test)]
mod tests;
