//! `elicitation/create`: a form or a page to visit, and the validation of answers. `elicitation/complete`.

use std::borrow::Cow;

use agent_client_protocol_schema::v1;
use serde_json::value::RawValue;

use super::form::{Form, FormError, ValidationError, found};
use super::raw_object::RawObject;
use super::to_raw;

/// The size in bytes of an `elicitationId`. A request with a longer id is rejected with an error to the
/// agent.
const ELICITATION_ID_BYTES: usize = 1024;

/// The params of `elicitation/create` that the gateway uses.
#[derive(Debug)]
pub struct Elicitation<'a> {
    pub mode: ElicitationMode<'a>,
    /// The JSON-RPC id of the gateway's call that the elicitation belongs to.
    pub request_id: Option<&'a RawValue>,
}

#[derive(Debug)]
pub enum ElicitationMode<'a> {
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
    Malformed,
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

pub fn parse_elicitation(params: &RawValue) -> Result<Elicitation<'_>, ElicitationError> {
    let params = RawObject::parse(params).ok_or(ElicitationError::Malformed)?;
    let message = params.starting("message", '"');
    message.ok_or(ElicitationError::Malformed)?;
    let mode = match params.text("mode").as_deref() {
        Some("form") => {
            let schema = params.get("requestedSchema");
            let schema = schema.ok_or(ElicitationError::NoSchema)?;
            ElicitationMode::Form { schema }
        }
        Some("url") => {
            let id = params.text("elicitationId");
            let id = id.filter(|id| (1..=ELICITATION_ID_BYTES).contains(&id.len()));
            let elicitation_id = id.ok_or(ElicitationError::Id)?;
            if !params.text("url").is_some_and(|url| is_web_url(&url)) {
                return Err(ElicitationError::Url);
            }
            ElicitationMode::Url { elicitation_id }
        }
        _ => return Err(ElicitationError::Mode),
    };
    Ok(Elicitation {
        mode,
        request_id: params.get("requestId"),
    })
}

/// Returns true for `http` and `https` URLs with a host. Other schemes could run code in the page or read files.
fn is_web_url(url: &str) -> bool {
    let Some((scheme, rest)) = url.split_once("://") else {
        return false;
    };
    let http = scheme.eq_ignore_ascii_case("http") || scheme.eq_ignore_ascii_case("https");
    let authority = rest.split(['/', '?', '#', '\\']).next().unwrap_or_default();
    let host = authority.rsplit('@').next().unwrap_or_default();
    http && !host.is_empty()
        && !host.starts_with(':')
        && !url.contains(|c: char| c.is_control() || c == ' ')
}

/// Checks that a form can be shown and its answers can be validated. The check may take long for large schemas.
pub fn check_form(params: &RawValue) -> Result<(), ElicitationError> {
    parse_form(params).map(drop)
}

fn parse_form(params: &RawValue) -> Result<Option<Form>, ElicitationError> {
    match parse_elicitation(params)?.mode {
        ElicitationMode::Form { schema } => Ok(Some(Form::parse(schema)?)),
        ElicitationMode::Url { .. } => Ok(None),
    }
}

/// Validates a client's answer to this elicitation. The validation may take long for large schemas.
pub(super) fn validate_answer(
    params: &RawValue,
    result: &RawValue,
) -> Result<(), Vec<ValidationError>> {
    let one = |pointer: &str, detail: &str| Err(vec![ValidationError::new(pointer, detail)]);
    let Some(object) = RawObject::parse(result) else {
        return one("", "expected an object without repeated members");
    };
    let content = object.value("content");
    let action = object.text("action");
    match (action.as_deref(), parse_form(params)) {
        (_, Err(error)) => one("", &error.to_string()),
        (Some("accept"), Ok(Some(form))) => found(form.validate(content)),
        (Some("accept"), Ok(None)) if content.is_some() => one(
            "/content",
            "content is only allowed in the answer to a form",
        ),
        (Some("decline" | "cancel"), Ok(_)) if content.is_some() => {
            one("/content", "content is only allowed with the action accept")
        }
        (Some("accept" | "decline" | "cancel"), Ok(_)) => Ok(()),
        _ => one("/action", "expected accept, decline or cancel"),
    }
}

/// The answer that cancels the elicitation, if no client decides.
pub(super) fn cancelled_result() -> Box<RawValue> {
    let cancel = v1::ElicitationAction::Cancel;
    to_raw(&v1::CreateElicitationResponse::new(cancel))
}

/// Returns the `elicitationId` of `elicitation/complete`, and the other members if there are any.
pub fn completed_elicitation(params: &RawValue) -> Option<(Cow<'_, str>, Option<Box<RawValue>>)> {
    let params = RawObject::parse(params)?;
    let id = params.text("elicitationId")?;
    Some((id, params.without(&["elicitationId"])))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::acp::raw;

    const FORM: &str = r#"{"sessionId":"s","mode":"form","message":"\ud800?","requestedSchema":{"type":"object",
        "properties":{"n":{"type":"integer"}},"required":["n"]}}"#;
    const URL: &str = r#"{"requestId":7,"mode":"url","message":"m","elicitationId":"e","url":"https://a.example"}"#;

    #[test]
    fn only_the_modes_form_and_url_are_parsed() {
        let form = parse_elicitation(raw(FORM)).unwrap();
        assert!(matches!(form.mode, ElicitationMode::Form { .. }) && form.request_id.is_none());
        let url = parse_elicitation(raw(URL)).unwrap();
        assert!(
            matches!(&url.mode, ElicitationMode::Url { elicitation_id } if elicitation_id == "e")
        );
        assert_eq!(url.request_id.unwrap().get(), "7");
        for (wrong, why) in [
            ("null", ElicitationError::Malformed),
            (r#"{"mode":"form"}"#, ElicitationError::Malformed),
            (r#"{"message":"m"}"#, ElicitationError::Mode),
            (r#"{"message":"m","mode":"_mine"}"#, ElicitationError::Mode),
            (
                r#"{"message":"m","mode":"form"}"#,
                ElicitationError::NoSchema,
            ),
            (
                r#"{"message":"m","mode":"url","url":"https://a"}"#,
                ElicitationError::Id,
            ),
            (
                r#"{"message":"m","mode":"url","elicitationId":"","url":"https://a"}"#,
                ElicitationError::Id,
            ),
            (
                r#"{"message":"m","mode":"url","elicitationId":"e"}"#,
                ElicitationError::Url,
            ),
            (
                r#"{"message":"m","mode":"form","mode":"url"}"#,
                ElicitationError::Malformed,
            ),
        ] {
            assert_eq!(parse_elicitation(raw(wrong)).map(drop), Err(why), "{wrong}");
        }
        assert_eq!(check_form(raw(FORM)), Ok(()));
        let unusable = r#"{"message":"m","mode":"form","requestedSchema":{"properties":[]}}"#;
        assert_eq!(
            check_form(raw(unusable)),
            Err(ElicitationError::Form(FormError::Malformed))
        );
    }

    #[test]
    fn only_http_urls_are_accepted() {
        for good in [
            "https://a.example/x?y#z",
            "HTTP://a",
            "http://[::1]:80/",
            "https://u:p@a.example",
        ] {
            assert!(is_web_url(good), "{good}");
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
            assert!(!is_web_url(bad), "{bad}");
        }
    }

    #[test]
    fn answers_are_validated_by_action_and_form() {
        let violations = |params: &str, result: &str| -> Vec<String> {
            let checked = validate_answer(raw(params), raw(result));
            checked
                .err()
                .unwrap_or_default()
                .into_iter()
                .map(|violation| violation.pointer)
                .collect()
        };
        for (result, form, url) in [
            (
                r#"{"action":"accept","content":{"n":1},"x":1}"#,
                None,
                Some("/content"),
            ),
            (r#"{"action":"accept"}"#, Some("/content/n"), None),
            (
                r#"{"action":"accept","content":null}"#,
                Some("/content/n"),
                None,
            ),
            (
                r#"{"action":"accept","content":{"n":"1"}}"#,
                Some("/content/n"),
                Some("/content"),
            ),
            (r#"{"action":"decline"}"#, None, None),
            (r#"{"action":"cancel","_meta":{}}"#, None, None),
            (
                r#"{"action":"cancel","content":{}}"#,
                Some("/content"),
                Some("/content"),
            ),
            (r#"{"action":"_later"}"#, Some("/action"), Some("/action")),
            (r#"{"action":1}"#, Some("/action"), Some("/action")),
            ("{}", Some("/action"), Some("/action")),
            ("null", Some(""), Some("")),
            (
                r#"{"action":"cancel","action":"accept"}"#,
                Some(""),
                Some(""),
            ),
        ] {
            assert_eq!(violations(FORM, result), Vec::from_iter(form), "{result}");
            assert_eq!(violations(URL, result), Vec::from_iter(url), "{result}");
        }
    }
}
