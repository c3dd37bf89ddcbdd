//! `session/request_permission`: the request, and the validation of answers.

use std::borrow::Cow;

use agent_client_protocol_schema::v1;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::raw_object::{RawObject, text_of};
use super::to_raw;
use super::view::ViewError;
use crate::acp::DeniedModes;

/// The params of `session/request_permission` that the gateway uses.
#[derive(Debug)]
pub struct PermissionView<'a> {
    /// The agent's session id.
    pub session_id: Cow<'a, str>,
    pub options: Vec<PermissionOption<'a>>,
    /// The value of `toolCall.toolCallId`, in v2 of `subject.toolCall.toolCallId`.
    pub tool_call_id: Option<Cow<'a, str>>,
    pub tool_call: Option<&'a RawValue>,
    /// The `kind` of the same tool call. An absent kind does not mean `other`, because an earlier `tool_call`
    /// may contain it.
    pub tool_kind: Option<Cow<'a, str>>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PermissionOption<'a> {
    #[serde(borrow)]
    pub option_id: Cow<'a, str>,
    /// `allow_once`, `allow_always`, `reject_once`, `reject_always`, or a kind of a later version.
    #[serde(borrow, default)]
    pub kind: Cow<'a, str>,
    /// A string, which is not decoded.
    #[serde(borrow, default)]
    pub name: Option<&'a RawValue>,
}

impl PermissionOption<'_> {
    /// Returns the entry of `denied` whose mode the option selects, by its id or by the words of its name. The name of an
    /// option that rejects may mention a mode.
    fn find_denied<'d>(&self, denied: &'d DeniedModes) -> Option<&'d str> {
        let by_id = denied.find(&self.option_id);
        if by_id.is_some() || self.kind.starts_with("reject") {
            return by_id;
        }
        denied.find_in(&text_of(self.name?).ok()?)
    }
}

pub fn parse_permission(params: &RawValue) -> Result<PermissionView<'_>, ViewError> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Params<'a> {
        #[serde(borrow)]
        session_id: Cow<'a, str>,
        #[serde(borrow)]
        options: Vec<PermissionOption<'a>>,
        #[serde(borrow, default)]
        tool_call: Option<&'a RawValue>,
        /// v2 sends a subject. A tool call is one kind of subject.
        #[serde(borrow, default)]
        subject: Option<&'a RawValue>,
    }
    let Params {
        session_id,
        options,
        tool_call,
        subject,
    } = serde_json::from_str(params.get())?;
    let tool_call = tool_call.or_else(|| subject_tool_call(subject?));
    let call = tool_call.and_then(RawObject::parse);
    let member = |key| call.as_ref().and_then(|call| call.text(key));
    Ok(PermissionView {
        session_id,
        options,
        tool_call_id: member("toolCallId"),
        tool_call,
        tool_kind: member("kind"),
    })
}

/// Returns the tool call in the subject of a v2 permission request.
pub fn subject_tool_call(subject: &RawValue) -> Option<&RawValue> {
    let subject = RawObject::parse(subject)?;
    (subject.text("type")? == "tool_call").then(|| subject.get("toolCall"))?
}

impl PermissionView<'_> {
    pub fn offers(&self, option_id: &str) -> bool {
        self.option(option_id).is_some()
    }

    pub fn option(&self, option_id: &str) -> Option<&PermissionOption<'_>> {
        let mut options = self.options.iter();
        options.find(|option| option.option_id == option_id)
    }

    /// The rejecting answer of a policy: once, if the agent offers it. It never approves.
    pub fn reject(&self) -> Box<RawValue> {
        let of_kind = |kind| self.options.iter().find(|option| option.kind == kind);
        let option = of_kind("reject_once").or_else(|| of_kind("reject_always"));
        option.map_or_else(cancelled, |option| selected(&option.option_id))
    }

    /// The approving answer of a policy, only for this request; `None` if the agent does not offer it. It selects no
    /// denied mode.
    pub fn allow_once(&self, denied: &DeniedModes) -> Option<Box<RawValue>> {
        let options = self.options.iter();
        let mut once = options.filter(|option| option.kind == "allow_once");
        let option = once.find(|option| option.find_denied(denied).is_none())?;
        Some(selected(&option.option_id))
    }

    /// Returns the entry of `denied` whose mode this answer selects.
    pub fn find_denied<'d>(&self, denied: &'d DeniedModes, result: &RawValue) -> Option<&'d str> {
        let outcome = RawObject::parse(result)?.object("outcome")?;
        let id = outcome.text("optionId")?;
        self.option(&id)?.find_denied(denied)
    }

    /// Validates a client's answer to this request.
    pub fn validate(&self, result: &RawValue) -> Result<(), AnswerError> {
        let answer = AnswerOutcome::parse(result).ok_or(AnswerError::Malformed)?;
        match (&*answer.outcome, answer.option_id) {
            ("selected", Some(id)) if self.offers(&id) => Ok(()),
            ("selected", Some(_)) => Err(AnswerError::NotOffered),
            ("cancelled", _) => Ok(()),
            _ => Err(AnswerError::Malformed),
        }
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct AnswerOutcome<'a> {
    #[serde(borrow)]
    outcome: Cow<'a, str>,
    #[serde(borrow)]
    option_id: Option<Cow<'a, str>>,
}

impl<'a> AnswerOutcome<'a> {
    fn parse(result: &'a RawValue) -> Option<Self> {
        #[derive(Deserialize)]
        struct Answer<'a> {
            #[serde(borrow)]
            outcome: AnswerOutcome<'a>,
        }
        let answer: Answer<'_> = serde_json::from_str(result.get()).ok()?;
        Some(answer.outcome)
    }
}

pub fn selected_option(result: &RawValue) -> Option<Cow<'_, str>> {
    let answer = AnswerOutcome::parse(result)?;
    if answer.outcome == "selected" {
        answer.option_id
    } else {
        None
    }
}

/// The reason why a client's result is not a valid answer to a permission request.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum AnswerError {
    #[error(
        "expected `outcome` with `outcome: \"selected\"` and `optionId`, or with `outcome: \"cancelled\"`"
    )]
    Malformed,
    #[error("the agent did not offer this option")]
    NotOffered,
}

pub fn selected(option_id: &str) -> Box<RawValue> {
    let outcome = v1::SelectedPermissionOutcome::new(option_id.to_owned());
    let outcome = v1::RequestPermissionOutcome::Selected(outcome);
    to_raw(&v1::RequestPermissionResponse::new(outcome))
}

/// The result for a cancelled turn, or if no client decides.
pub fn cancelled() -> Box<RawValue> {
    let outcome = v1::RequestPermissionOutcome::Cancelled;
    to_raw(&v1::RequestPermissionResponse::new(outcome))
}

#[cfg(test)]
mod tests {
    use agent_client_protocol_schema::v2;

    use super::*;
    use crate::acp::raw;

    const PARAMS: &str = r#"{"sessionId":"s","toolCall":{"toolCallId":"c:1","kind":"execute","rawInput":{"a":"\ud800"}},
        "options":[{"optionId":"yes","kind":"allow_once","name":"\ud800"},{"optionId":"no!","kind":"reject_always","name":"No"},
        {"optionId":"no","kind":"reject_once","name":"No"}]}"#;

    #[test]
    fn only_offered_options_are_valid_answers() {
        let view = parse_permission(raw(PARAMS)).unwrap();
        assert_eq!(view.session_id, "s");
        assert_eq!(view.tool_call_id.as_deref(), Some("c:1"));
        assert_eq!(view.tool_kind.as_deref(), Some("execute"));
        assert_eq!(view.validate(&selected("yes")), Ok(()));
        assert_eq!(view.validate(&cancelled()), Ok(()));
        assert_eq!(
            view.validate(&selected("allow")),
            Err(AnswerError::NotOffered)
        );
        for wrong in [
            "null",
            "{}",
            r#"{"outcome":"selected"}"#,
            r#"{"outcome":{"outcome":"selected"}}"#,
        ] {
            assert_eq!(
                view.validate(raw(wrong)),
                Err(AnswerError::Malformed),
                "{wrong}"
            );
        }
        let twice = r#"{"outcome":{"outcome":"cancelled","outcome":"selected","optionId":"yes"}}"#;
        assert_eq!(view.validate(raw(twice)), Err(AnswerError::Malformed));
    }

    #[test]
    fn policies_select_by_kind_and_never_approve_unasked() {
        let view = parse_permission(raw(PARAMS)).unwrap();
        assert_eq!(
            view.reject().get(),
            r#"{"outcome":{"outcome":"selected","optionId":"no"}}"#
        );
        let denied = DeniedModes::default();
        assert_eq!(
            view.allow_once(&denied).unwrap().get(),
            selected("yes").get()
        );
        let one = r#"{"sessionId":"s","options":[{"optionId":"a","kind":"allow_always"},{"optionId":"b"}]}"#;
        let view = parse_permission(raw(one)).unwrap();
        assert_eq!(
            view.reject().get(),
            r#"{"outcome":{"outcome":"cancelled"}}"#
        );
        assert!(view.allow_once(&denied).is_none());
        assert!(view.tool_kind.is_none());
    }

    #[test]
    fn v2_permission_requests_have_a_subject() {
        let ask = |subject: &str| {
            format!(
                r#"{{"sessionId":"s","title":"May I?","subject":{subject},"options":[{{"optionId":"y","name":"Yes","kind":"allow_once"}}]}}"#
            )
        };
        let params = ask(r#"{"type":"tool_call","toolCall":{"toolCallId":"c","kind":"edit"}}"#);
        let _: v2::RequestPermissionRequest = serde_json::from_str(&params).unwrap();
        let view = parse_permission(raw(&params)).unwrap();
        assert_eq!(
            (view.tool_call_id.as_deref(), view.tool_kind.as_deref()),
            (Some("c"), Some("edit"))
        );
        for other in [
            r#"{"type":"command","command":"ls","cwd":"/","toolCall":{"kind":"edit"}}"#,
            r#"{"type":"_mine","toolCall":{"kind":"edit"}}"#,
            r#"{"toolCall":{"kind":"edit"}}"#,
            "null",
        ] {
            let params = ask(other);
            let view = parse_permission(raw(&params)).unwrap();
            assert!(view.tool_kind.is_none() && view.offers("y"), "{other}");
        }
        for answer in [selected("y"), cancelled()] {
            let typed: v2::RequestPermissionResponse = serde_json::from_str(answer.get()).unwrap();
            assert!(!matches!(
                typed.outcome,
                v2::RequestPermissionOutcome::Other(_)
            ));
        }
    }

    #[test]
    fn malformed_requests_are_refused() {
        for wrong in [
            r#"{"sessionId":"s"}"#,
            r#"{"sessionId":"s","options":[{"kind":"allow_once"}]}"#,
            r#"{"sessionId":"s","options":[{"optionId":"a","optionId":"b","kind":"allow_once"}]}"#,
            r#"{"sessionId":"s","sessionId":"t","options":[]}"#,
        ] {
            assert!(parse_permission(raw(wrong)).is_err(), "{wrong}");
        }
    }
}
