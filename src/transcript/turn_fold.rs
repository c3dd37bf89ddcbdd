//! The fold of one turn.

use serde_json::value::RawValue;

use super::event_view::EventView;
use super::items::Items;
use crate::acp::{Object, method, update};
use crate::api::{PromptStatus, Turn, TurnRequest};
use crate::types::limits::FOLDED_MEMBER_BYTES;
use crate::types::{PromptId, RequestId, Timestamp};

/// Folds the events of one turn, from `prompt.queued` or `prompt.started` to its end and to what came late.
/// Events of other turns are ignored.
#[derive(Debug, Default)]
pub struct TurnFold {
    /// The turn and the time of its first event.
    first: Option<(PromptId, Timestamp)>,
    state: State,
    items: Items,
}

/// All of the turn but its items: the last word on each.
#[derive(Debug, Default)]
struct State {
    status: Option<PromptStatus>,
    stop_reason: Option<String>,
    by: Option<String>,
    ended_at: Option<Timestamp>,
    prompt: Option<Box<RawValue>>,
    plan: Option<Box<RawValue>>,
    usage: Option<Box<RawValue>>,
    context_usage: Option<Box<RawValue>>,
    error: Option<Box<RawValue>>,
    /// A member was too large.
    truncated: bool,
}

impl State {
    /// A raw member, unless it is too large.
    fn fitting(&mut self, raw: Option<&RawValue>) -> Option<Box<RawValue>> {
        let fits = raw.filter(|raw| raw.get().len() <= FOLDED_MEMBER_BYTES);
        self.truncated |= raw.is_some() && fits.is_none();
        fits.map(ToOwned::to_owned)
    }
}

impl TurnFold {
    pub fn new() -> Self {
        Self::default()
    }

    /// An event of the log, in order. What is no event of a turn is ignored.
    pub fn event(&mut self, kind: &str, data: &[u8]) {
        let Some(event) = EventView::parse(data) else { return };
        let (Some(prompt_id), Some(time)) = (event.prompt_id, event.time) else { return };
        if self.first.get_or_insert((prompt_id, time)).0 != prompt_id {
            return;
        }
        match kind {
            "prompt.queued" => self.begun(PromptStatus::Queued, event),
            "prompt.started" => self.begun(PromptStatus::Running, event),
            "prompt.completed" | "prompt.failed" => self.ended(kind, time, event),
            "session.update" => {
                if let Some(update) = event.update {
                    self.update(update, event.late);
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

    fn begun(&mut self, status: PromptStatus, event: EventView<'_>) {
        self.state.status = Some(status);
        if let Some(by) = event.by {
            self.state.by = Some(by.into_owned());
        }
        if let Some(prompt) = event.prompt {
            self.state.prompt = Some(prompt.to_owned());
        }
    }

    fn ended(&mut self, kind: &str, time: Timestamp, event: EventView<'_>) {
        let completed = kind == "prompt.completed";
        self.state.status = Some(if completed { PromptStatus::Completed } else { PromptStatus::Failed });
        self.state.ended_at = Some(time);
        self.state.stop_reason = event.stop_reason.map(Into::into);
        self.state.usage = self.state.fitting(event.usage);
        self.state.error = self.state.fitting(event.problem);
    }

    fn update(&mut self, raw: &RawValue, late: bool) {
        let Ok(kind) = update::kind_of(raw) else { return };
        match kind.as_ref() {
            update::PLAN => self.state.plan = self.state.fitting(Some(raw)),
            update::PLAN_UPDATE => {
                let plan = Object::parse(raw).and_then(|object| object.get("plan"));
                self.state.plan = self.state.fitting(plan);
            }
            update::USAGE => self.state.context_usage = self.state.fitting(Some(raw)),
            // These tell how the session stands, and its snapshot shows them.
            update::PLAN_REMOVED
            | update::AVAILABLE_COMMANDS
            | update::CURRENT_MODE
            | update::CONFIG_OPTION
            | update::SESSION_INFO => {}
            kind => self.items.update(kind, raw, late),
        }
    }

    /// The tool call of a permission request may be the only word on that call, so it is folded like an update.
    fn requested(&mut self, created_at: Timestamp, event: &EventView<'_>) {
        let (Some(request_id), Some(method)) = (event.request_id, &event.method) else { return };
        let mut request = open_request(request_id, method, created_at);
        let params = event.params.and_then(Object::parse);
        match params.filter(|_| *method == method::SESSION_REQUEST_PERMISSION) {
            Some(params) => {
                if let Some(call) = params.object("toolCall") {
                    self.items.tool_call(&call, false);
                    request.tool_call_id = call.text("toolCallId").map(Into::into);
                }
                request.options = params.get("options").map(ToOwned::to_owned);
            }
            None => request.params = event.params.map(ToOwned::to_owned),
        }
        self.items.request(request);
    }

    /// The agent's messages so far, joined: what `Prompt.text` shows.
    pub fn text(&self) -> String {
        self.items.text()
    }

    /// None: there was no event of a turn.
    pub fn finish(self) -> Option<Turn> {
        let (prompt_id, created_at) = self.first?;
        let (items, truncated) = self.items.finish();
        let state = self.state;
        Some(Turn {
            prompt_id,
            // Retention has taken the beginning of a turn that has none.
            status: state.status.unwrap_or(PromptStatus::Running),
            stop_reason: state.stop_reason,
            by: state.by,
            created_at,
            ended_at: state.ended_at,
            truncated: truncated || state.truncated || state.prompt.is_none(),
            prompt: state.prompt,
            items,
            plan: state.plan,
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
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::api::TurnItem;

    /// Folds events given as their type and the members of their own.
    fn fold(events: &[(&str, String)]) -> TurnFold {
        let mut fold = TurnFold::new();
        for (n, (kind, members)) in events.iter().enumerate() {
            fold.event(kind, data(n, kind, members).as_bytes());
        }
        fold
    }

    fn data(n: usize, kind: &str, members: &str) -> String {
        let comma = if members.is_empty() { "" } else { "," };
        format!(
            r#"{{"id":"k-{n}","seq":{n},"type":"{kind}","sessionId":"s","time":"2026-11-21T22:15:{:02}.000Z","promptId":"p2"{comma}{members}}}"#,
            n % 60
        )
    }

    fn update(members: &str) -> (&'static str, String) {
        ("session.update", format!(r#""update":{{{members}}}"#))
    }

    fn chunk(kind: &str, id: Option<&str>, text: &str) -> (&'static str, String) {
        let id = id.map(|id| format!(r#","messageId":"{id}""#)).unwrap_or_default();
        let text = serde_json::to_string(text).unwrap();
        update(&format!(r#""sessionUpdate":"{kind}"{id},"content":{{"type":"text","text":{text}}}"#))
    }

    fn say(text: &str) -> (&'static str, String) {
        chunk("agent_message_chunk", None, text)
    }

    fn items(events: &[(&str, String)]) -> Vec<String> {
        let turn = fold(events).finish().unwrap();
        turn.items.iter().map(|item| serde_json::to_string(item).unwrap()).collect()
    }

    fn started() -> (&'static str, String) {
        ("prompt.started", r#""prompt":[{"type":"text","text":"hi"}],"by":"alice""#.to_owned())
    }

    #[test]
    fn a_whole_turn() {
        let events = [
            ("prompt.queued", r#""prompt":[{"type":"text","text":"\ud83d"}],"position":1,"by":"alice""#.to_owned()),
            ("prompt.started", r#""by":"alice""#.to_owned()),
            say(""),
            chunk("agent_thought_chunk", None, "Hm"),
            say("He"),
            say("llo"),
            update(r#""sessionUpdate":"plan","entries":[{"content":"a"}]"#),
            update(r#""sessionUpdate":"usage_update","used":1,"size":2"#),
            update(r#""sessionUpdate":"available_commands_update","availableCommands":[]"#),
            update(r#""sessionUpdate":"tool_call","toolCallId":"c:1","title":"Run","kind":"execute","status":"pending""#),
            ("request.created", r#""requestId":"r1","method":"session/request_permission","params":{"sessionId":"s","toolCall":{"toolCallId":"c:1","title":"Run it","status":null},"options":[{"optionId":"y","name":"Yes","kind":"allow_once"}]}"#.to_owned()),
            ("request.resolved", r#""requestId":"r1","method":"session/request_permission","resolution":"answered","by":"bob","result":{"outcome":{"outcome":"selected","optionId":"y"}}"#.to_owned()),
            update(r#""sessionUpdate":"tool_call_update","toolCallId":"c:1","status":"completed","content":[{"type":"content","content":{"type":"text","text":"ok"}}],"future":1.10"#),
            say("Done"),
            update(r#""sessionUpdate":"notice","severity":"info","title":"N""#),
            update(r#""sessionUpdate":"of_the_future","x":1e400"#),
            ("prompt.completed", r#""stopReason":"end_turn","result":{"stopReason":"end_turn"},"usage":{"totalTokens":3}"#.to_owned()),
            ("session.update", r#""update":{"sessionUpdate":"tool_call_update","toolCallId":"c2","title":"Late"},"late":true"#.to_owned()),
        ];
        insta::assert_snapshot!(items(&events).join("\n"), @r#"
        {"type":"message","role":"thought","content":[{"type":"text","text":"Hm"}]}
        {"type":"message","role":"agent","content":[{"type":"text","text":"Hello"}]}
        {"type":"tool_call","toolCall":{"toolCallId":"c:1","title":"Run it","kind":"execute","status":"completed","content":[{"type":"content","content":{"type":"text","text":"ok"}}],"future":1.10}}
        {"type":"request","requestId":"r1","method":"session/request_permission","toolCallId":"c:1","options":[{"optionId":"y","name":"Yes","kind":"allow_once"}],"createdAt":"2026-11-21T22:15:10.000Z","resolution":"answered","resolvedAt":"2026-11-21T22:15:11.000Z","by":"bob","result":{"outcome":{"outcome":"selected","optionId":"y"}}}
        {"type":"message","role":"agent","content":[{"type":"text","text":"Done"}]}
        {"type":"notice","notice":{"sessionUpdate":"notice","severity":"info","title":"N"}}
        {"type":"other","sessionUpdate":"of_the_future","update":{"sessionUpdate":"of_the_future","x":1e400}}
        {"type":"tool_call","toolCall":{"toolCallId":"c2","title":"Late"},"late":true}
        "#);
        let mut turn = fold(&events).finish().unwrap();
        turn.items.clear();
        insta::assert_snapshot!(serde_json::to_string_pretty(&turn).unwrap(), @r#"
        {
          "promptId": "p2",
          "status": "completed",
          "stopReason": "end_turn",
          "by": "alice",
          "createdAt": "2026-11-21T22:15:00.000Z",
          "endedAt": "2026-11-21T22:15:16.000Z",
          "prompt": [{"type":"text","text":"\ud83d"}],
          "items": [],
          "plan": {"sessionUpdate":"plan","entries":[{"content":"a"}]},
          "usage": {"totalTokens":3},
          "contextUsage": {"sessionUpdate":"usage_update","used":1,"size":2},
          "error": null,
          "truncated": false
        }
        "#);
    }

    #[test]
    fn messages_go_by_their_ids_even_if_interleaved() {
        let agent = |id, text| chunk("agent_message_chunk", Some(id), text);
        let items = items(&[
            started(),
            agent("a", "1"),
            agent("b", "x"),
            agent("a", "2"),
            chunk("agent_thought_chunk", Some("a"), "t"),
            agent("b", "y"),
        ]);
        assert_eq!(
            items,
            [
                r#"{"type":"message","role":"agent","messageId":"a","content":[{"type":"text","text":"12"}]}"#,
                r#"{"type":"message","role":"agent","messageId":"b","content":[{"type":"text","text":"xy"}]}"#,
                r#"{"type":"message","role":"thought","messageId":"a","content":[{"type":"text","text":"t"}]}"#,
            ]
        );
    }

    #[test]
    fn an_update_of_a_known_call_does_not_cut_a_message() {
        let call = |kind| update(&format!(r#""sessionUpdate":"{kind}","toolCallId":"c","title":"T""#));
        let fold = fold(&[started(), call("tool_call"), say("He"), call("tool_call_update"), say("llo")]);
        assert_eq!(fold.text(), "Hello");
        assert_eq!(fold.finish().unwrap().items.len(), 2);
    }

    #[test]
    fn a_call_may_be_first_seen_in_a_permission_request_or_an_update() {
        let permission = r#""requestId":"r1","method":"session/request_permission","params":{"toolCall":{"toolCallId":"g","kind":"edit"},"options":[]}"#;
        let items = items(&[
            started(),
            ("request.created", permission.to_owned()),
            update(r#""sessionUpdate":"tool_call_update","toolCallId":"g","status":"failed""#),
            update(r#""sessionUpdate":"tool_call_update","toolCallId":"h""#),
        ]);
        assert_eq!(
            [&items[0], &items[2]],
            [
                r#"{"type":"tool_call","toolCall":{"toolCallId":"g","kind":"edit","status":"failed"}}"#,
                r#"{"type":"tool_call","toolCall":{"toolCallId":"h"}}"#,
            ]
        );
        assert_eq!(items.len(), 3);
    }

    #[test]
    fn compactions_grow_and_other_requests_keep_their_params() {
        let items = items(&[
            started(),
            update(r#""sessionUpdate":"compaction_update","compactionId":"k","status":"in_progress""#),
            update(
                r#""sessionUpdate":"compaction_summary_chunk","compactionId":"k","content":{"type":"text","text":"a"}"#,
            ),
            update(
                r#""sessionUpdate":"compaction_summary_chunk","compactionId":"k","content":{"type":"text","text":"b"}"#,
            ),
            update(r#""sessionUpdate":"compaction_update","compactionId":"k","status":"completed""#),
            ("request.created", r#""requestId":"r1","method":"_x/ask","params":[1]"#.to_owned()),
            (
                "request.resolved",
                r#""requestId":"r1","method":"_x/ask","resolution":"withdrawn","error":{"code":-32800}"#
                    .to_owned(),
            ),
            ("session.attached", r#""by":"fresh","context":"lost","result":null"#.to_owned()),
        ]);
        assert_eq!(
            items[0],
            r#"{"type":"compaction","compaction":{"compactionId":"k","status":"completed"},"summary":[{"type":"text","text":"ab"}]}"#
        );
        assert_eq!(
            items[1],
            r#"{"type":"request","requestId":"r1","method":"_x/ask","params":[1],"createdAt":"2026-11-21T22:15:05.000Z","resolution":"withdrawn","resolvedAt":"2026-11-21T22:15:06.000Z","error":{"code":-32800}}"#
        );
        assert_eq!(items[2], r#"{"type":"context_lost","at":"2026-11-21T22:15:07.000Z"}"#);
    }

    #[test]
    fn failed_turns_have_their_problem_and_foreign_events_are_ignored() {
        let mut fold =
            fold(&[started(), ("prompt.failed", r#""problem":{"code":"agent_exited"}"#.to_owned())]);
        let other = data(9, "session.update", r#""update":{"sessionUpdate":"notice","title":"x"}"#);
        fold.event("session.update", other.replace("\"p2\"", "\"p3\"").as_bytes());
        fold.event("session.update", other.replace("\"promptId\":\"p2\",", "").as_bytes());
        fold.event("session.update", b"garbage");
        let turn = fold.finish().unwrap();
        assert_eq!((turn.status, turn.items.len(), turn.truncated), (PromptStatus::Failed, 0, false));
        assert_eq!(turn.error.unwrap().get(), r#"{"code":"agent_exited"}"#);
        assert!(TurnFold::new().finish().is_none());
    }

    #[test]
    fn a_turn_has_a_bound_and_says_when_it_is_hit() {
        const BOUND: usize = 64 << 10;
        let bounded = |event: &dyn Fn(usize) -> (&'static str, String)| {
            let mut fold = TurnFold { items: Items::with_room(BOUND), ..TurnFold::default() };
            for n in 0..2000 {
                let (kind, members) = if n == 0 { started() } else { event(n) };
                fold.event(kind, data(n, kind, &members).as_bytes());
            }
            fold.finish().unwrap()
        };
        let big = "x".repeat(1000);
        let turn = bounded(&|_| say(&big));
        assert!(turn.truncated);
        let held = serde_json::to_string(&turn).unwrap().len();
        assert!((BOUND / 2..BOUND + 4096).contains(&held), "{held}");

        let call = |n| update(&format!(r#""sessionUpdate":"tool_call","toolCallId":"{n}""#));
        let turn = bounded(&call);
        assert!(turn.truncated && (10..1000).contains(&turn.items.len()), "{}", turn.items.len());

        let ask = |n| ("request.created", format!(r#""requestId":"r{n}","method":"_x","params":{n}"#));
        assert!(bounded(&ask).truncated);
        assert!(!bounded(&|_| update(r#""sessionUpdate":"plan","entries":[]"#)).truncated);
    }

    proptest! {
        #[test]
        fn how_a_message_was_cut_does_not_matter(
            text in "\\PC{0,40}",
            cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..6),
        ) {
            let whole: Vec<char> = text.chars().collect();
            let mut places: Vec<usize> = cuts.iter().map(|cut| cut.index(whole.len() + 1)).collect();
            places.extend([0, whole.len()]);
            places.sort_unstable();
            let parts = places.windows(2).map(|ends| whole[ends[0]..ends[1]].iter().collect::<String>());
            let mut events = vec![started()];
            events.extend(parts.map(|part| say(&part)));
            let (cut, straight) = (fold(&events), fold(&[started(), say(&text)]));
            prop_assert_eq!(cut.text(), text);
            let json = |fold: TurnFold| serde_json::to_string(&fold.finish().unwrap()).unwrap();
            prop_assert_eq!(json(cut), json(straight));
        }

        #[test]
        fn nothing_that_an_agent_sends_stops_the_fold(members in prop::collection::vec(
            ("[a-z_]{1,4}|content|toolCallId|compactionId|summary|messageId|entries|plan",
             "[0-9]{1,3}|null|\\[\\]|\\{\\}|\"\\\\\\\\ud800\"|\"a\"|\\[1,\\{\\}\\]"), 0..6),
            kind in "agent_message_chunk|tool_call|tool_call_update|plan|plan_update|compaction_update|notice|x",
        ) {
            let members: Vec<String> = members.iter().map(|(k, v)| format!("\"{k}\":{v}")).collect();
            let one = update(&[vec![format!(r#""sessionUpdate":"{kind}""#)], members].concat().join(","));
            let turn = fold(&[started(), one.clone(), one]).finish().unwrap();
            prop_assert!(serde_json::from_str::<&RawValue>(&serde_json::to_string(&turn).unwrap()).is_ok());
            let known = turn.items.iter().filter(|item| !matches!(item, TurnItem::Other(_))).count();
            prop_assert!(known <= 2);
        }
    }
}
