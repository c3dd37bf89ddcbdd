//! `elicitation/create`: a form or a page to visit, and the validation of answers. `elicitation/complete`.

use std::borrow::Cow;

use serde::Serialize;
use serde_json::value::RawValue;

use super::ask::Misfit;
use super::form::{Form, FormError};
use super::object::Object;
use super::own;
use crate::types::limits::ELICITATION_ID_BYTES;

/// The params of `elicitation/create` that the gateway uses.
#[derive(Debug)]
pub struct Elicitation<'a> {
    pub mode: Mode<'a>,
    /// The JSON-RPC id of the gateway's call that the elicitation belongs to.
    pub request_id: Option<&'a RawValue>,
}

#[derive(Debug)]
pub enum Mode<'a> {
    /// The unparsed `requestedSchema`.
    Form {
        schema: &'a RawValue,
    },
    Url {
        elicitation_id: Cow<'a, str>,
    },
}

/// The reason why an elicitation is invalid. The agent receives the message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ElicitationError {
    #[error("expected an object with a message and without repeated members")]
    Shape,
    #[error("mode must be form or url")]
    Mode,
    #[error("mode form requires requestedSchema")]
    NoSchema,
    #[error(transparent)]
    Form(#[from] FormError),
    #[error("mode url requires an elicitationId of 1 to {ELICITATION_ID_BYTES} bytes")]
    Id,
    #[error("url must begin with http:// or https:// and have a host")]
    Url,
}

pub fn peek_elicitation(params: &RawValue) -> Result<Elicitation<'_>, ElicitationError> {
    let params = Object::parse(params).ok_or(ElicitationError::Shape)?;
    if !params.get("message").is_some_and(|message| message.get().starts_with('"')) {
        return Err(ElicitationError::Shape);
    }
    let mode = match params.text("mode").as_deref() {
        Some("form") => {
            Mode::Form { schema: params.get("requestedSchema").ok_or(ElicitationError::NoSchema)? }
        }
        Some("url") => {
            let fits = |id: &Cow<'_, str>| (1..=ELICITATION_ID_BYTES).contains(&id.len());
            let elicitation_id = params.text("elicitationId").filter(fits).ok_or(ElicitationError::Id)?;
            if !params.text("url").is_some_and(|url| can_be_visited(&url)) {
                return Err(ElicitationError::Url);
            }
            Mode::Url { elicitation_id }
        }
        _ => return Err(ElicitationError::Mode),
    };
    Ok(Elicitation { mode, request_id: params.get("requestId") })
}

/// Returns true for `http` and `https` URLs with a host. Other schemes could run code in the page or read
/// files.
fn can_be_visited(url: &str) -> bool {
    let Some((scheme, rest)) = url.split_once("://") else { return false };
    let http = scheme.eq_ignore_ascii_case("http") || scheme.eq_ignore_ascii_case("https");
    let authority = rest.split(['/', '?', '#', '\\']).next().unwrap_or_default();
    let host = authority.rsplit('@').next().unwrap_or_default();
    http && !host.is_empty() && !host.starts_with(':') && !url.contains(|c: char| c.is_control() || c == ' ')
}

/// Checks that a form can be shown and its answers can be validated. The check may take long for large
/// schemas.
pub fn check_form(params: &RawValue) -> Result<(), ElicitationError> {
    match peek_elicitation(params)?.mode {
        Mode::Form { schema } => Ok(Form::parse(schema).map(drop)?),
        Mode::Url { .. } => Ok(()),
    }
}

/// Validates a client's answer to this elicitation. The validation may take long for large schemas.
pub(super) fn check_answer(params: &RawValue, result: &RawValue) -> Result<(), Vec<Misfit>> {
    let one = |pointer: &str, detail: &str| Err(vec![Misfit::new(pointer, detail)]);
    let Some(object) = Object::parse(result) else {
        return one("", "expected an object without repeated members");
    };
    let content = object.get("content").filter(|content| content.get() != "null");
    let action = object.text("action");
    let asked = peek_elicitation(params).and_then(|asked| match asked.mode {
        Mode::Form { schema } => Ok(Some(Form::parse(schema)?)),
        Mode::Url { .. } => Ok(None),
    });
    match (action.as_deref(), asked) {
        (_, Err(error)) => one("", &error.to_string()),
        (Some("accept"), Ok(Some(form))) => {
            let misfits = form.check(content);
            if misfits.is_empty() { Ok(()) } else { Err(misfits) }
        }
        (Some("accept"), Ok(None)) if content.is_some() => {
            one("/content", "content is only allowed in the answer to a form")
        }
        (Some("decline" | "cancel"), Ok(_)) if content.is_some() => {
            one("/content", "content is only allowed with the action accept")
        }
        (Some("accept" | "decline" | "cancel"), Ok(_)) => Ok(()),
        _ => one("/action", "expected accept, decline or cancel"),
    }
}

/// The answer that cancels the elicitation, if no client decides.
pub(super) fn cancelled() -> Box<RawValue> {
    #[derive(Serialize)]
    struct Answer {
        action: &'static str,
    }
    own(&Answer { action: "cancel" })
}

/// Returns the `elicitationId` of `elicitation/complete`, and the other members if there are any.
pub fn completed_elicitation(params: &RawValue) -> Option<(Cow<'_, str>, Option<Box<RawValue>>)> {
    let params = Object::parse(params)?;
    Some((params.text("elicitationId")?, params.without("elicitationId")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(text: &str) -> &RawValue {
        serde_json::from_str(text).unwrap()
    }

    const FORM: &str = r#"{"sessionId":"s","mode":"form","message":"\ud800?","requestedSchema":{"type":"object",
        "properties":{"n":{"type":"integer"}},"required":["n"]}}"#;
    const URL: &str =
        r#"{"requestId":7,"mode":"url","message":"m","elicitationId":"e","url":"https://a.example"}"#;

    #[test]
    fn both_modes_are_read_and_no_other() {
        let form = peek_elicitation(raw(FORM)).unwrap();
        assert!(matches!(form.mode, Mode::Form { .. }) && form.request_id.is_none());
        let url = peek_elicitation(raw(URL)).unwrap();
        assert!(matches!(&url.mode, Mode::Url { elicitation_id } if elicitation_id == "e"));
        assert_eq!(url.request_id.unwrap().get(), "7");
        for (wrong, why) in [
            ("null", ElicitationError::Shape),
            (r#"{"mode":"form"}"#, ElicitationError::Shape),
            (r#"{"message":"m"}"#, ElicitationError::Mode),
            (r#"{"message":"m","mode":"_mine"}"#, ElicitationError::Mode),
            (r#"{"message":"m","mode":"form"}"#, ElicitationError::NoSchema),
            (r#"{"message":"m","mode":"url","url":"https://a"}"#, ElicitationError::Id),
            (r#"{"message":"m","mode":"url","elicitationId":"","url":"https://a"}"#, ElicitationError::Id),
            (r#"{"message":"m","mode":"url","elicitationId":"e"}"#, ElicitationError::Url),
            (r#"{"message":"m","mode":"form","mode":"url"}"#, ElicitationError::Shape),
        ] {
            assert_eq!(peek_elicitation(raw(wrong)).map(drop), Err(why), "{wrong}");
        }
        assert_eq!(check_form(raw(FORM)), Ok(()));
        let unusable = r#"{"message":"m","mode":"form","requestedSchema":{"properties":[]}}"#;
        assert_eq!(check_form(raw(unusable)), Err(ElicitationError::Form(FormError::Shape)));
    }

    #[test]
    fn only_pages_of_the_web_can_be_visited() {
        for good in ["https://a.example/x?y#z", "HTTP://a", "http://[::1]:80/", "https://u:p@a.example"] {
            assert!(can_be_visited(good), "{good}");
        }
        for bad in [
            "javascript:alert(1)",
            "javascript://a.example/%0aalert(1)",
            "data:text/html,x",
            "file:///etc/passwd",
            "https:/a",
            "https://",
            "https:///x",
            "https://:80",
            "https://u@",
            " https://a",
            "https://a\n",
            "//a",
            "a",
        ] {
            assert!(!can_be_visited(bad), "{bad}");
        }
    }

    #[test]
    fn an_answer_has_an_action_and_a_form_its_content() {
        let misfits = |params: &str, result: &str| -> Vec<String> {
            let checked = check_answer(raw(params), raw(result));
            checked.err().unwrap_or_default().into_iter().map(|misfit| misfit.pointer).collect()
        };
        for (result, form, url) in [
            (r#"{"action":"accept","content":{"n":1},"x":1}"#, None, Some("/content")),
            (r#"{"action":"accept"}"#, Some("/content/n"), None),
            (r#"{"action":"accept","content":null}"#, Some("/content/n"), None),
            (r#"{"action":"accept","content":{"n":"1"}}"#, Some("/content/n"), Some("/content")),
            (r#"{"action":"decline"}"#, None, None),
            (r#"{"action":"cancel","_meta":{}}"#, None, None),
            (r#"{"action":"cancel","content":{}}"#, Some("/content"), Some("/content")),
            (r#"{"action":"_later"}"#, Some("/action"), Some("/action")),
            (r#"{"action":1}"#, Some("/action"), Some("/action")),
            ("{}", Some("/action"), Some("/action")),
            ("null", Some(""), Some("")),
            (r#"{"action":"cancel","action":"accept"}"#, Some(""), Some("")),
        ] {
            assert_eq!(misfits(FORM, result), Vec::from_iter(form), "{result}");
            assert_eq!(misfits(URL, result), Vec::from_iter(url), "{result}");
        }
    }
}
