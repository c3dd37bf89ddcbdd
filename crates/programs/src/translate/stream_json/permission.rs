//! Permission requests of the CLI (`can_use_tool`): the options of ACP, and the answers.

use std::collections::HashMap;

use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::bounds;
use super::tool::EXIT_PLAN_MODE;
use crate::translate::message::{Budget, LineError, Object};
use wire::acp::{RawObject, to_raw};

/// The maximum number of open requests. The translation answers further ones itself, so that the CLI does not wait.
const MAX_OPEN: usize = 256;
/// The answer to a request that cannot be kept, for the model and for people.
pub(super) const NO_SPACE: &str = "The user was not asked: too many requests are open, or the input is too large. Use a smaller input, or repeat the call later.";

const ALLOW_ALWAYS: &str = "allow_always";
const ALLOW_ONCE: &str = "allow";
const REJECT: &str = "reject";
/// The option that keeps the plan mode.
const KEEP_PLANNING: &str = "plan";

/// The modes after the end of the plan mode, with the names of their options.
const AFTER_PLAN: [(&str, &str, &str); 3] = [
    ("acceptEdits", "Yes, and auto-accept edits", "allow_always"),
    ("default", "Yes, and manually approve edits", "allow_once"),
    (KEEP_PLANNING, "No, keep planning", "reject_once"),
];

#[derive(Debug)]
pub(super) struct Asked {
    pub(super) tool: String,
    pub(super) call_id: String,
    pub(super) input: Box<RawValue>,
    /// The rules that the CLI suggests for "always".
    suggestions: Option<Box<RawValue>>,
}

impl Asked {
    pub(super) fn parse(request: &Object<'_>) -> Result<Self, LineError> {
        let listed = request.array("permission_suggestions");
        let listed = listed.filter(|all| !all.is_empty());
        let suggestions = listed.and_then(|_| request.get("permission_suggestions"));
        Ok(Self {
            tool: request.required_text("tool_name")?.into_owned(),
            call_id: request.required_text("tool_use_id")?.into_owned(),
            input: request.required("input")?.to_owned(),
            suggestions: suggestions.map(ToOwned::to_owned),
        })
    }

    fn bytes(&self) -> usize {
        let suggestions = self.suggestions.as_ref().map_or(0, |raw| raw.get().len());
        self.tool.len() + self.call_id.len() + self.input.get().len() + suggestions
    }

    pub(super) fn options(&self) -> Vec<Value> {
        let option = |id: &str, name: &str, kind: &str| json!({ "optionId": id, "name": name, "kind": kind });
        if self.tool == EXIT_PLAN_MODE {
            let options = AFTER_PLAN.map(|(id, name, kind)| option(id, name, kind));
            return options.to_vec();
        }
        let mut options = Vec::new();
        if let Some(suggestions) = &self.suggestions {
            options.push(option(
                ALLOW_ALWAYS,
                &always_name(suggestions),
                "allow_always",
            ));
        }
        options.push(option(ALLOW_ONCE, "Allow", "allow_once"));
        options.push(option(REJECT, "Reject", "reject_once"));
        options
    }

    /// The answer to the CLI. `outcome` is the result of `session/request_permission`.
    fn answer(&self, outcome: Option<&RawValue>) -> Box<RawValue> {
        let result = outcome.and_then(RawObject::parse);
        let outcome = result.and_then(|result| result.object("outcome"));
        let selected = outcome.and_then(|outcome| outcome.text("optionId"));
        let set_mode =
            |mode: &str| json!([{ "type": "setMode", "mode": mode, "destination": "session" }]);
        let answer = match (selected.as_deref(), &*self.tool) {
            (None, _) => Answer::deny("The request was cancelled", true),
            (Some(KEEP_PLANNING), EXIT_PLAN_MODE) => {
                Answer::deny("User rejected request to exit plan mode.", false)
            }
            (Some(mode), EXIT_PLAN_MODE) if AFTER_PLAN.iter().any(|(id, ..)| *id == mode) => {
                self.allow(Some(to_raw(&set_mode(mode))))
            }
            (Some(ALLOW_ALWAYS), _) => self.allow(self.suggestions.clone()),
            (Some(ALLOW_ONCE), _) => self.allow(None),
            _ => Answer::deny("User refused permission to run tool", false),
        };
        to_raw(&answer)
    }

    fn allow(&self, permissions: Option<Box<RawValue>>) -> Answer<'_> {
        Answer {
            behavior: "allow",
            updated_input: Some(&self.input),
            updated_permissions: permissions,
            ..Answer::default()
        }
    }
}

/// The name of "always" shows the rules. A gateway finds denied modes in the name.
fn always_name(suggestions: &RawValue) -> String {
    let suggestions: Vec<Value> = serde_json::from_str(suggestions.get()).unwrap_or_default();
    let mut rules = Vec::new();
    for suggestion in &suggestions {
        for rule in suggestion["rules"].as_array().into_iter().flatten() {
            match (rule["toolName"].as_str(), rule["ruleContent"].as_str()) {
                (Some(tool), Some(content)) => rules.push(format!("{tool}({content})")),
                (Some(tool), None) => rules.push(tool.to_owned()),
                (None, _) => {}
            }
        }
        if let Some(mode) = suggestion["mode"].as_str() {
            rules.push(format!("mode {mode}"));
        }
    }
    if rules.is_empty() {
        "Always Allow".to_owned()
    } else {
        format!("Always Allow: {}", rules.join(", "))
    }
}

#[derive(Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct Answer<'a> {
    behavior: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    updated_input: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    updated_permissions: Option<Box<RawValue>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<&'static str>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    interrupt: bool,
}

impl Answer<'_> {
    fn deny(message: &'static str, interrupt: bool) -> Self {
        Self {
            behavior: "deny",
            message: Some(message),
            interrupt,
            ..Self::default()
        }
    }
}

/// The answer to the CLI for a request that cannot be kept.
pub(super) fn rejection() -> Box<RawValue> {
    to_raw(&Answer::deny(NO_SPACE, false))
}

/// The requests without an answer, by the id of the CLI as it wrote it. `None`: a control request of another kind.
#[derive(Debug, Default)]
pub(super) struct Permissions {
    open: HashMap<String, Option<Asked>>,
    budget: Budget<{ bounds::PERMISSIONS }>,
}

/// The retained bytes of a request with its id.
fn bytes(id: &str, asked: Option<&Asked>) -> usize {
    id.len() + asked.map_or(0, Asked::bytes)
}

/// The answer to a request of the CLI.
#[derive(Debug)]
pub(super) enum Answered {
    Permission(Box<RawValue>),
    /// The request is not for a permission. The answer passes unchanged.
    Other,
    /// The CLI does not expect an answer.
    Withdrawn,
}

impl Permissions {
    #[must_use]
    pub(super) fn open(&mut self, id: &RawValue, asked: Option<Asked>) -> bool {
        self.remove(id);
        let bytes = bytes(id.get(), asked.as_ref());
        let fits = self.open.len() < MAX_OPEN && self.budget.reserve(bytes);
        if fits {
            self.open.insert(id.get().to_owned(), asked);
        }
        fits
    }

    fn remove(&mut self, id: &RawValue) -> Option<Option<Asked>> {
        let asked = self.open.remove(id.get())?;
        self.budget.release(bytes(id.get(), asked.as_ref()));
        Some(asked)
    }

    /// The CLI withdraws a request. Returns whether it was open.
    pub(super) fn withdraw(&mut self, id: &RawValue) -> bool {
        self.remove(id).is_some()
    }

    /// The answer to a request. `outcome` is the result of `session/request_permission`.
    pub(super) fn answer(&mut self, id: &RawValue, outcome: Option<&RawValue>) -> Answered {
        match self.remove(id) {
            Some(Some(asked)) => Answered::Permission(asked.answer(outcome)),
            Some(None) => Answered::Other,
            None => Answered::Withdrawn,
        }
    }

    pub(super) fn clear(&mut self) {
        self.open.clear();
        self.budget.release_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(text: &str) -> Box<RawValue> {
        RawValue::from_string(text.to_owned()).unwrap()
    }

    fn asked(request: &str) -> Result<Asked, LineError> {
        Asked::parse(&Object::parse("can_use_tool", &raw(request))?)
    }

    fn answers(request: &str, option: &str) -> String {
        let mut open = Permissions::default();
        assert!(open.open(&raw("\"r\""), Some(asked(request).unwrap())));
        let outcome = raw(&format!(
            r#"{{"outcome":{{"outcome":"selected","optionId":"{option}"}}}}"#
        ));
        let Answered::Permission(answer) = open.answer(&raw("\"r\""), Some(&outcome)) else {
            panic!("open")
        };
        assert!(
            matches!(
                open.answer(&raw("\"r\""), Some(&outcome)),
                Answered::Withdrawn
            ),
            "one answer"
        );
        answer.get().to_owned()
    }

    const SUGGESTED: &str = r#"{"subtype":"can_use_tool","tool_name":"Bash","input":{"command":"x","n":1.10},"tool_use_id":"t",
        "permission_suggestions":[{"type":"addRules","rules":[{"toolName":"Bash","ruleContent":"echo *"}],"behavior":"allow"},
        {"type":"setMode","mode":"bypassPermissions","destination":"session"}]}"#;

    #[test]
    fn options_are_always_once_and_reject() {
        let kinds = |request: &str| -> Vec<String> {
            let options = asked(request).unwrap().options();
            options
                .iter()
                .map(|option| format!("{}: {}", option["kind"], option["name"]).replace('"', ""))
                .collect()
        };
        let always = "allow_always: Always Allow: Bash(echo *), mode bypassPermissions";
        assert_eq!(
            kinds(SUGGESTED),
            [always, "allow_once: Allow", "reject_once: Reject"]
        );
        let plain =
            r#"{"tool_name":"Bash","input":{},"tool_use_id":"t","permission_suggestions":[]}"#;
        assert_eq!(kinds(plain), ["allow_once: Allow", "reject_once: Reject"]);
    }

    #[test]
    fn answer_keeps_the_input_and_the_suggestions() {
        assert_eq!(
            answers(SUGGESTED, "allow"),
            r#"{"behavior":"allow","updatedInput":{"command":"x","n":1.10}}"#
        );
        let always = answers(SUGGESTED, "allow_always");
        assert!(
            always.contains(r#""updatedPermissions":[{"type":"addRules""#),
            "{always}"
        );
        let rejected = r#"{"behavior":"deny","message":"User refused permission to run tool"}"#;
        assert_eq!(answers(SUGGESTED, "reject"), rejected);
        assert_eq!(answers(SUGGESTED, "unknown"), rejected);
    }

    #[test]
    fn cancelled_answer_interrupts_the_turn() {
        let mut open = Permissions::default();
        let id = raw("\"r\"");
        for outcome in [Some(raw(r#"{"outcome":{"outcome":"cancelled"}}"#)), None] {
            assert!(open.open(&id, Some(asked(SUGGESTED).unwrap())));
            let Answered::Permission(answer) = open.answer(&id, outcome.as_deref()) else {
                panic!("open")
            };
            assert!(answer.get().ends_with(r#""interrupt":true}"#), "{answer}");
        }
        assert!(open.open(&id, Some(asked(SUGGESTED).unwrap())));
        assert!(open.withdraw(&id) && !open.withdraw(&id));
        assert!(matches!(open.answer(&id, None), Answered::Withdrawn));
        assert!(open.open(&id, None));
        assert!(matches!(open.answer(&id, None), Answered::Other));
    }

    #[test]
    fn end_of_the_plan_mode_selects_a_mode() {
        let plan = r#"{"tool_name":"ExitPlanMode","input":{"plan":"p"},"tool_use_id":"t"}"#;
        assert!(answers(plan, "acceptEdits").contains(
            r#""updatedPermissions":[{"type":"setMode","mode":"acceptEdits","destination":"session"}]"#
        ));
        assert!(answers(plan, "plan").starts_with(r#"{"behavior":"deny""#));
        assert_eq!(asked(plan).unwrap().options().len(), 3);
    }

    #[test]
    fn missing_member_is_a_typed_error() {
        let error = asked(r#"{"tool_name":"Bash","input":{}}"#).unwrap_err();
        assert_eq!(
            error,
            LineError::Member {
                object: "can_use_tool",
                member: "tool_use_id"
            }
        );
        assert_eq!(
            error.to_string(),
            "`can_use_tool` has no valid member `tool_use_id`"
        );
    }

    #[test]
    fn number_of_open_requests_is_bounded() {
        let mut open = Permissions::default();
        for id in 0..MAX_OPEN {
            assert!(open.open(&raw(&id.to_string()), Some(asked(SUGGESTED).unwrap())));
        }
        assert!(
            !open.open(&raw("999"), Some(asked(SUGGESTED).unwrap()))
                && !open.open(&raw("999"), None)
        );
        assert!(
            open.open(&raw("0"), Some(asked(SUGGESTED).unwrap())),
            "a repeated id replaces its request"
        );
        assert_eq!(open.open.len(), MAX_OPEN);
        assert!(open.withdraw(&raw("0")) && open.open(&raw("999"), None));
    }

    fn large(bytes: usize) -> Asked {
        let input = format!(r#"{{"content":"{}"}}"#, "x".repeat(bytes));
        asked(&format!(
            r#"{{"tool_name":"Write","input":{input},"tool_use_id":"t"}}"#
        ))
        .unwrap()
    }

    #[test]
    fn size_of_open_requests_is_bounded() {
        let mut open = Permissions::default();
        let quarter = bounds::PERMISSIONS / 4;
        assert!(!open.open(&raw("0"), Some(large(bounds::PERMISSIONS))));
        let id = format!("\"{}\"", "i".repeat(bounds::PERMISSIONS));
        assert!(!open.open(&raw(&id), None));
        let opened: Vec<bool> = (0..5)
            .map(|id| open.open(&raw(&id.to_string()), Some(large(quarter))))
            .collect();
        assert_eq!(opened, [true, true, true, false, false]);
        let retained: usize = open
            .open
            .iter()
            .map(|(id, asked)| super::bytes(id, asked.as_ref()))
            .sum();
        assert_eq!(open.budget.used(), retained);
        assert!(
            matches!(open.answer(&raw("0"), None), Answered::Permission(_)),
            "the oldest is kept"
        );
        assert!(open.open(&raw("5"), Some(large(quarter))));
        open.clear();
        assert_eq!(open.budget.used(), 0);
    }
}
