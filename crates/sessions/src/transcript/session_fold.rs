//! The snapshot of a session: the agent's latest state and the changes of clients.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::members::{Members, Null};
use super::plans::{Change, Plans};
use super::{Budget, FOLDED_MEMBER_BYTES};
use events::api::TitleBy;
use events::event::{ChangedMembers, EventRef};
use wire::acp::{RawObject, update, with_member};

/// The size in bytes of the agent's id of a subagent. Updates with a longer id are ignored.
pub(crate) const SUBAGENT_ID_BYTES: usize = 1024;
/// The number of subagents in a session's snapshot. Beyond it, the least recently updated subagent is
/// evicted.
const FOLDED_SUBAGENTS: usize = 64;
/// The size in bytes of one subagent in a snapshot. Members beyond it are omitted.
const FOLDED_SUBAGENT_BYTES: usize = 16 << 10;
/// The size in bytes of a title. A longer title is truncated.
const TITLE_BYTES: usize = 2048;

/// The length of the title that a session takes from its first prompt, in characters.
const MAX_PROMPT_TITLE: usize = 60;

/// The folded parts of a session. Stored as a record. Raw members keep the agent's bytes.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SessionFold {
    /// Counts the changes of title, metadata, mode and options.
    pub revision: u64,
    /// The title that a client set. It has priority over the agent's title.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub person_title: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent_title: Option<String>,
    /// The beginning of the first prompt. It is the title of a session without another one.
    #[serde(skip_serializing_if = "Option::is_none")]
    prompt_title: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Box<RawValue>>,
    /// `{currentModeId, availableModes}`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub modes: Option<Box<RawValue>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub config_options: Option<Box<RawValue>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub available_commands: Option<Box<RawValue>>,
    /// The last complete `usage_update`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usage: Option<Box<RawValue>>,
    #[serde(skip_serializing_if = "Plans::is_empty")]
    plans: Plans,
    /// The child sessions that the agent runs now.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub subagents: Vec<Box<RawValue>>,
}

impl SessionFold {
    pub fn title(&self) -> Option<&str> {
        self.titles().map(|(title, _)| title)
    }

    pub fn title_by(&self) -> Option<TitleBy> {
        self.titles().map(|(_, by)| by)
    }

    fn titles(&self) -> Option<(&str, TitleBy)> {
        let all = [
            (&self.person_title, TitleBy::Client),
            (&self.agent_title, TitleBy::Agent),
            (&self.prompt_title, TitleBy::Prompt),
        ];
        all.into_iter()
            .find_map(|(title, by)| Some((title.as_deref()?, by)))
    }

    pub fn prompted(&mut self, blocks: &RawValue) -> bool {
        if self.prompt_title.is_some() {
            return false;
        }
        self.change_title(|fold| {
            fold.prompt_title = prompt_title(blocks);
            fold.prompt_title.is_some()
        })
    }

    /// Counts a change in the revision. Returns whether there was one.
    fn revise(&mut self, changed: bool) -> bool {
        self.revision += u64::from(changed);
        changed
    }

    /// Applies a change of one of the titles. The revision counts only changes of the title that clients see.
    fn change_title(&mut self, change: impl FnOnce(&mut Self) -> bool) -> bool {
        let old = self.title().map(str::to_owned);
        let changed = change(self);
        self.revise(self.title() != old.as_deref());
        changed
    }

    /// The plan that changed last: an update of kind `plan`, or the `plan` of a `plan_update`.
    pub fn plan(&self) -> Option<&RawValue> {
        self.plans.last()
    }

    /// Folds a `session/update` of the session itself, not of a child session. Returns whether the snapshot
    /// changed, so that the caller writes a record only then. Frequent kinds return at once.
    pub fn update(&mut self, kind: &str, raw: &RawValue) -> bool {
        let member = |name| RawObject::parse(raw).and_then(|object| object.get(name));
        match kind {
            update::USAGE => replace_if_changed(&mut self.usage, Some(raw)),
            update::PLAN | update::PLAN_UPDATE | update::PLAN_REMOVED => {
                self.plans.update(kind, raw) != Change::None
            }
            update::CURRENT_MODE => {
                let changed = self.mode_changed(member("currentModeId"));
                self.revise(changed)
            }
            update::CONFIG_OPTION => {
                let options = array(member("configOptions"));
                let changed = replace_if_changed(&mut self.config_options, options);
                self.revise(changed)
            }
            update::AVAILABLE_COMMANDS => replace_if_changed(
                &mut self.available_commands,
                array(member("availableCommands")),
            ),
            update::SESSION_INFO => {
                self.change_title(|fold| set_title(&mut fold.agent_title, member("title")))
            }
            update::SUBAGENT => RawObject::parse(raw)
                .is_some_and(|object| update_subagents(&mut self.subagents, &object)),
            _ => false,
        }
    }

    /// Folds the result of the call that attached the session to a process. Absent and null members stay:
    /// agents answer `null` to `session/load` if nothing changed.
    pub fn attached(&mut self, result: &RawValue) -> bool {
        let Some(result) = RawObject::parse(result) else {
            return false;
        };
        let modes = result
            .get("modes")
            .filter(|modes| modes.get().starts_with('{'));
        let modes = replace_if_changed(&mut self.modes, modes);
        // In ACP v2 the result also contains the available commands.
        let commands = replace_if_changed(
            &mut self.available_commands,
            array(result.get("availableCommands")),
        );
        let options = array(result.get("configOptions"));
        let options = replace_if_changed(&mut self.config_options, options);
        self.revise(options || modes) || commands
    }

    /// Clears the parts that end with the process.
    pub fn detached(&mut self) -> bool {
        !std::mem::take(&mut self.subagents).is_empty()
    }

    /// Folds the members of `session.changed`. A title or metadata of null is cleared.
    pub fn changed(&mut self, new: &ChangedMembers<'_>) -> bool {
        let title = set_title(&mut self.person_title, new.title);
        let metadata = match new.metadata {
            Some(null) if null.get() == "null" => self.metadata.take().is_some(),
            metadata => replace_if_changed(&mut self.metadata, metadata),
        };
        let mode = self.mode_changed(new.current_mode_id);
        let options = replace_if_changed(&mut self.config_options, array(new.config_options));
        self.revise(title || metadata || mode || options)
    }

    /// Folds any event of the log, for recovery and for readers of a transcript.
    pub fn event(&mut self, event: &EventRef<'_>) -> bool {
        match event.kind() {
            "session.update" | "session.attached" | "session.created" => {}
            "prompt.queued" | "prompt.changed" | "prompt.started"
                if self.prompt_title.is_none() => {}
            "session.detached" => return self.detached(),
            "session.changed" => {
                return event
                    .changed_members()
                    .is_some_and(|new| self.changed(&new));
            }
            _ => return false,
        }
        let Some(event) = event.payload() else {
            return false;
        };
        match (event.update, event.result, event.session) {
            (Some(_), ..) if event.subagent.is_some() => false,
            (Some(raw), ..) => update::kind_of(raw).is_ok_and(|kind| self.update(&kind, raw)),
            (_, Some(result), _) => self.attached(result),
            (.., Some(session)) => self.created(session, event.forked_from.is_some()),
            _ => event.prompt.is_some_and(|blocks| self.prompted(blocks)),
        }
    }

    /// Sets the title and metadata of a new session. A fork keeps its parent's title until the agent or a
    /// client sets one.
    fn created(&mut self, session: &RawValue, forked: bool) -> bool {
        let Some(session) = RawObject::parse(session) else {
            return false;
        };
        let metadata = replace_if_changed(
            &mut self.metadata,
            session.get("metadata").filter(|raw| raw.get() != "null"),
        );
        let title = if forked {
            &mut self.agent_title
        } else {
            &mut self.person_title
        };
        set_title(title, session.get("title")) || metadata
    }

    /// Sets `currentModeId` in the modes and keeps all other bytes.
    fn mode_changed(&mut self, mode: Option<&RawValue>) -> bool {
        let Some(mode) = mode.filter(|mode| mode.get().starts_with('"')) else {
            return false;
        };
        let none: &RawValue = serde_json::from_str(r#"{"availableModes":[]}"#).expect("it is JSON");
        let modes = self.modes.as_deref().unwrap_or(none);
        let modes = with_member(modes, "currentModeId", mode.get());
        replace_if_changed(&mut self.modes, modes.as_deref())
    }
}

/// Sets a raw member. A value that is too large is omitted, and the outdated old value is removed.
fn replace_if_changed(member: &mut Option<Box<RawValue>>, new: Option<&RawValue>) -> bool {
    let Some(new) = new else { return false };
    let new = (new.get().len() <= FOLDED_MEMBER_BYTES).then(|| new.to_owned());
    let changed = member.as_deref().map(RawValue::get) != new.as_deref().map(RawValue::get);
    *member = new;
    changed
}

fn array(value: Option<&RawValue>) -> Option<&RawValue> {
    value.filter(|value| value.get().starts_with('['))
}

/// Applies the `title` of an object: an absent title keeps the old one, null clears it, text replaces it.
fn set_title(title: &mut Option<String>, new: Option<&RawValue>) -> bool {
    let Some(Ok(new)) = new.map(|new| serde_json::from_str::<Option<String>>(new.get())) else {
        return false;
    };
    let new = new.map(|text| text[..text.floor_char_boundary(TITLE_BYTES)].to_owned());
    let changed = *title != new;
    *title = new;
    changed
}

/// Folds a `subagent_update` into the child sessions, which are in the order of their first update. If there
/// are too many, the oldest is removed. Omitted members stay, null clears, other values replace. Returns
/// whether anything changed.
fn update_subagents(all: &mut Vec<Box<RawValue>>, update: &RawObject<'_>) -> bool {
    let Some(id) = update
        .text("sessionId")
        .filter(|id| id.len() <= SUBAGENT_ID_BYTES)
    else {
        return false;
    };
    let known = all.iter().position(|known| {
        RawObject::parse(known)
            .is_some_and(|known| known.text("sessionId").as_deref() == Some(&*id))
    });
    let mut budget = Budget::new(FOLDED_SUBAGENT_BYTES);
    let mut members = Members::default();
    if let Some(before) = known.and_then(|at| RawObject::parse(&all[at])) {
        members.merge(&before, &[], Null::Keeps, &mut budget);
    }
    members.merge(update, &[], Null::Clears, &mut budget);
    let merged = members.finish();
    match known {
        Some(at) if all[at].get() == merged.get() => return false,
        Some(at) => all[at] = merged,
        None => all.push(merged),
    }
    if all.len() > FOLDED_SUBAGENTS {
        all.remove(0);
    }
    true
}

/// The first line of the prompt with words, shortened at the end of a word. `None` if the prompt has no text.
fn prompt_title(blocks: &RawValue) -> Option<String> {
    let blocks: Vec<&RawValue> = serde_json::from_str(blocks.get()).ok()?;
    blocks.into_iter().find_map(|block| {
        let text = RawObject::parse(block)?.text("text")?;
        let line = text.lines().map(str::trim).find(|line| !line.is_empty())?;
        Some(shortened(line))
    })
}

fn shortened(line: &str) -> String {
    let end_of = |chars| line.char_indices().nth(chars).map(|(end, _)| end);
    let (Some(_), Some(end)) = (end_of(MAX_PROMPT_TITLE), end_of(MAX_PROMPT_TITLE - 1)) else {
        return line.to_owned();
    };
    let cut = &line[..end];
    let words = cut
        .rsplit_once(char::is_whitespace)
        .map_or(cut, |(words, _)| words.trim_end());
    format!("{words}\u{2026}")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use events::event::testing::{event, frame};

    const TIME: &str = "2026-11-21T22:15:00.000Z";

    fn raw(text: &str) -> &RawValue {
        serde_json::from_str(text).unwrap()
    }

    fn update(fold: &mut SessionFold, text: &str) -> bool {
        fold.update(&wire::acp::update::kind_of(raw(text)).unwrap(), raw(text))
    }

    fn changed(fold: &mut SessionFold, members: &str) -> bool {
        fold.event(&event(&frame(1, "session.changed", None, TIME, members)))
    }

    fn record(fold: &SessionFold) -> String {
        serde_json::to_string(fold).unwrap()
    }

    #[test]
    fn latest_update_of_each_kind_is_shown() {
        let mut fold = SessionFold::default();
        let attached = r#"{"sessionId":"s","models":{},"modes":{"availableModes":[{"id":"a"}] , "currentModeId":"a"},"configOptions":[{"id":"m","n":1.10}]}"#;
        assert!(fold.attached(raw(attached)));
        assert!(
            !fold.attached(raw("null"))
                && !fold.attached(raw(r#"{"modes":null,"configOptions":null}"#))
        );
        assert!(update(
            &mut fold,
            r#"{"sessionUpdate":"current_mode_update","currentModeId":"b\ud800"}"#
        ));
        assert_eq!(
            fold.modes.as_ref().unwrap().get(),
            r#"{"availableModes":[{"id":"a"}] , "currentModeId":"b\ud800"}"#
        );
        assert_eq!(
            fold.config_options.as_ref().unwrap().get(),
            r#"[{"id":"m","n":1.10}]"#
        );
        let usage = r#"{"used":1,"size":2,"sessionUpdate":"usage_update"}"#;
        assert!(
            update(&mut fold, usage) && !update(&mut fold, usage),
            "an equal update is not a change"
        );
        assert_eq!(fold.usage.as_ref().unwrap().get(), usage);
        assert!(update(
            &mut fold,
            r#"{"sessionUpdate":"available_commands_update","availableCommands":[{"name":"memory show"}]}"#
        ));
        assert_eq!(
            fold.available_commands.as_ref().unwrap().get(),
            r#"[{"name":"memory show"}]"#
        );
        assert!(update(
            &mut fold,
            r#"{"sessionUpdate":"config_option_update","configOptions":[]}"#
        ));
        assert_eq!(fold.config_options.as_ref().unwrap().get(), "[]");
        for other in [
            r#"{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"a"}}"#,
            r#"{"sessionUpdate":"config_option_update","configOptions":null}"#,
            r#"{"sessionUpdate":"config_option_update","configOptions":[1],"configOptions":[2]}"#,
            r#"{"sessionUpdate":"current_mode_update","currentModeId":7}"#,
            r#"{"sessionUpdate":"of_the_future"}"#,
        ] {
            assert!(!update(&mut fold, other), "{other}");
        }
    }

    #[test]
    fn mode_without_mode_list_is_shown() {
        let mut fold = SessionFold::default();
        assert!(update(
            &mut fold,
            r#"{"sessionUpdate":"current_mode_update","currentModeId":"a"}"#
        ));
        assert_eq!(
            fold.modes.as_ref().unwrap().get(),
            r#"{"currentModeId":"a","availableModes":[]}"#
        );
        for (before, after) in [
            ("{}", r#"{"currentModeId":"b"}"#),
            (r#"{"x":1}"#, r#"{"currentModeId":"b","x":1}"#),
        ] {
            fold.attached(raw(&format!(r#"{{"modes":{before}}}"#)));
            changed(&mut fold, r#""by":"alice","currentModeId":"b""#);
            assert_eq!(fold.modes.as_ref().unwrap().get(), after);
        }
    }

    #[test]
    fn client_title_outranks_agent_title() {
        let mut fold = SessionFold::default();
        update(
            &mut fold,
            r#"{"sessionUpdate":"session_info_update","title":"Agent"}"#,
        );
        assert_eq!(
            (fold.title(), fold.title_by()),
            (Some("Agent"), Some(TitleBy::Agent))
        );
        assert!(changed(
            &mut fold,
            r#""by":"alice","title":"Mine","metadata":{"a":1}"#
        ));
        update(
            &mut fold,
            r#"{"sessionUpdate":"session_info_update","title":"Other","updatedAt":"2026-01-01"}"#,
        );
        assert_eq!(
            (fold.title(), fold.title_by()),
            (Some("Mine"), Some(TitleBy::Client))
        );
        assert!(
            !changed(&mut fold, r#""by":"alice""#),
            "absent members stay"
        );
        assert!(changed(&mut fold, r#""title":null,"metadata":null"#));
        assert_eq!(
            (fold.title(), fold.metadata.is_none()),
            (Some("Other"), true)
        );
        update(
            &mut fold,
            r#"{"sessionUpdate":"session_info_update","updatedAt":null}"#,
        );
        assert_eq!(fold.title(), Some("Other"));
        update(
            &mut fold,
            r#"{"sessionUpdate":"session_info_update","title":null}"#,
        );
        assert_eq!(fold.title(), None);
        changed(
            &mut fold,
            &format!(r#""title":"{}""#, "é".repeat(TITLE_BYTES)),
        );
        assert_eq!(fold.title().unwrap().len(), TITLE_BYTES);
    }

    #[test]
    fn running_subagents_are_shown_and_change_nothing_else() {
        let mut fold = SessionFold::default();
        let update = r#"{"sessionUpdate":"subagent_update","sessionId":"c","title":"Look"}"#;
        let updated = |members: &str| frame(1, "session.update", None, TIME, members);
        assert!(fold.event(&event(&updated(&format!(r#""update":{update}"#)))));
        for update in [
            r#"{"sessionUpdate":"current_mode_update","currentModeId":"b"}"#,
            r#"{"sessionUpdate":"usage_update","used":1}"#,
            r#"{"sessionUpdate":"plan","entries":[]}"#,
            r#"{"sessionUpdate":"subagent_update","sessionId":"of the child"}"#,
        ] {
            let of_child = updated(&format!(r#""update":{update},"subagent":"c""#));
            assert!(!fold.event(&event(&of_child)), "{update}");
        }
        assert_eq!(
            record(&fold),
            r#"{"revision":0,"subagents":[{"sessionId":"c","title":"Look"}]}"#
        );
        assert_eq!(
            fold.subagents[0].get(),
            r#"{"sessionId":"c","title":"Look"}"#
        );
        let detached = frame(1, "session.detached", None, TIME, r#""reason":"exited""#);
        assert!(fold.event(&event(&detached)));
        assert_eq!(record(&fold), r#"{"revision":0}"#);
    }

    #[test]
    fn oversized_members_are_removed_from_the_snapshot() {
        let mut fold = SessionFold::default();
        update(
            &mut fold,
            r#"{"sessionUpdate":"config_option_update","configOptions":[1]}"#,
        );
        let huge = format!(
            r#"{{"sessionUpdate":"config_option_update","configOptions":["{}"]}}"#,
            "x".repeat(FOLDED_MEMBER_BYTES)
        );
        assert!(update(&mut fold, &huge));
        assert!(fold.config_options.is_none());
    }

    /// Events of a log: type and members.
    fn events() -> impl Strategy<Value = Vec<(&'static str, String)>> {
        let text = || "\\PC{0,6}".prop_map(|text| serde_json::to_string(&text).unwrap());
        let update = |members: String| ("session.update", format!(r#""update":{{{members}}}"#));
        prop::collection::vec(
            prop_oneof![
                text().prop_map(move |t| update(format!(
                    r#""sessionUpdate":"current_mode_update","currentModeId":{t}"#
                ))),
                text().prop_map(move |t| update(format!(
                    r#""sessionUpdate":"config_option_update", "configOptions":[ {t}]"#
                ))),
                text().prop_map(move |t| update(format!(
                    r#""title":{t},"sessionUpdate":"session_info_update""#
                ))),
                text().prop_map(move |t| update(format!(
                    r#""sessionUpdate":"plan_update","plan":{{"planId":{t},"entries":[]}}"#
                ))),
                text().prop_map(move |t| update(format!(r#""sessionUpdate":"plan_removed","planId":{t}"#))),
                text().prop_map(move |t| update(format!(
                    r#""sessionUpdate":"subagent_update","sessionId":"c","title":{t}"#
                ))),
                text().prop_map(move |t| (
                    "session.update",
                    format!(
                        r#""update":{{"sessionUpdate":"session_info_update","title":{t}}},"subagent":"c""#
                    )
                )),
                Just(("session.detached", r#""reason":"idle""#.to_owned())),
                text().prop_map(move |t| update(format!(
                    r#""sessionUpdate":"agent_message_chunk","content":{t}"#
                ))),
                Just(update(r#""sessionUpdate":"usage_update","used":1e400"#.to_owned())),
                text().prop_map(|t| (
                    "session.changed",
                    format!(r#""by":"a","title":{t},"metadata":{{"k":{t}}}"#)
                )),
                text().prop_map(|t| (
                    "session.attached",
                    format!(
                        r#""by":"new","result":{{"modes":{{"currentModeId":{t}}},"configOptions":null}}"#
                    )
                )),
                text().prop_map(|t| (
                    "session.created",
                    format!(r#""session":{{"title":{t},"metadata":{{}}}}"#)
                )),
                Just((
                    "prompt.completed",
                    r#""stopReason":"end_turn","result":{"modes":{"x":1}}"#.to_owned()
                )),
            ],
            0..20,
        )
    }

    proptest! {
        #[test]
        fn save_and_load_preserves_fold(events in events(), at in any::<prop::sample::Index>()) {
            let cut = at.index(events.len() + 1) as u64;
            let mut straight = SessionFold::default();
            let mut restarted = SessionFold::default();
            for (n, (kind, members)) in (0..).zip(&events) {
                if n == cut {
                    restarted = serde_json::from_str(&record(&restarted)).unwrap();
                }
                let frame = frame(n, kind, None, TIME, members);
                let before = record(&straight);
                let changed = straight.event(&event(&frame));
                prop_assert!(changed || before == record(&straight), "a change must be reported");
                restarted.event(&event(&frame));
            }
            prop_assert_eq!(record(&straight), record(&restarted));
        }
    }

    fn update_subagents(subagents: &mut Vec<Box<RawValue>>, text: &str) -> bool {
        super::update_subagents(
            subagents,
            &RawObject::parse(serde_json::from_str(text).unwrap()).unwrap(),
        )
    }

    fn shown(subagents: &[Box<RawValue>]) -> Vec<&str> {
        subagents.iter().map(|raw| raw.get()).collect()
    }

    #[test]
    fn omitted_members_stay_and_null_clears() {
        let mut all = Vec::new();
        let first = r#"{"sessionUpdate":"subagent_update","sessionId":"c","title":"Look","state":{"state":"running"},"cwd":null,"x":1.10}"#;
        assert!(
            update_subagents(&mut all, first) && !update_subagents(&mut all, first),
            "an equal update is not a change"
        );
        assert!(update_subagents(&mut all, r#"{"sessionId":"d"}"#));
        assert!(update_subagents(
            &mut all,
            r#"{"sessionId":"c","title":null,"state":{"state":"idle"}}"#
        ));
        assert_eq!(
            shown(&all),
            [
                r#"{"sessionId":"c","state":{"state":"idle"},"x":1.10}"#,
                r#"{"sessionId":"d"}"#
            ]
        );
        assert!(
            !update_subagents(&mut all, "{}") && !update_subagents(&mut all, r#"{"sessionId":7}"#)
        );
    }

    #[test]
    fn count_and_size_are_bounded() {
        let mut all = Vec::new();
        for id in 0..100 {
            update_subagents(&mut all, &format!(r#"{{"sessionId":"{id}"}}"#));
        }
        assert_eq!(all.len(), FOLDED_SUBAGENTS);
        let big = "x".repeat(FOLDED_SUBAGENT_BYTES);
        assert!(update_subagents(
            &mut all,
            &format!(r#"{{"sessionId":"big","title":"{big}"}}"#)
        ));
        assert_eq!(shown(&all).last(), Some(&r#"{"sessionId":"big"}"#));
        assert!(!update_subagents(
            &mut all,
            &format!(r#"{{"sessionId":"{big}"}}"#)
        ));
    }

    fn title(blocks: &str) -> Option<String> {
        prompt_title(serde_json::from_str(blocks).unwrap())
    }

    #[test]
    fn first_line_with_words_is_the_title() {
        assert_eq!(
            title(r#"[{"type":"text","text":"\n  Fix the \"roof\" \nnow"}]"#).unwrap(),
            r#"Fix the "roof""#
        );
        assert_eq!(
            title(r#"[{"type":"image","data":"AAAA"},{"type":"text","text":"Look"}]"#).unwrap(),
            "Look"
        );
    }

    #[test]
    fn prompt_without_text_has_no_title() {
        for blocks in [
            r#"[{"type":"image","data":"AAAA"}]"#,
            r#"[{"type":"text","text":" \n "}]"#,
            "[]",
            "[1]",
            "{}",
        ] {
            assert_eq!(title(blocks), None, "{blocks}");
        }
        assert_eq!(
            title(r#"[{"type":"text","text":"\ud800"}]"#),
            None,
            "text that is not Unicode"
        );
    }

    #[test]
    fn long_line_ends_after_a_word() {
        let line = "word ".repeat(30);
        let short = title(&format!(r#"[{{"type":"text","text":"{line}"}}]"#)).unwrap();
        assert_eq!(short, format!("{}\u{2026}", "word ".repeat(11).trim_end()));
        let long = title(&format!(
            r#"[{{"type":"text","text":"{}"}}]"#,
            "\u{e9}".repeat(200)
        ))
        .unwrap();
        assert_eq!(
            (long.chars().count(), long.ends_with('\u{2026}')),
            (MAX_PROMPT_TITLE, true)
        );
    }
}
