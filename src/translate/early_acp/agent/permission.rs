//! Permission requests: early agents send `title` and `message` instead of a tool call, and options without a kind.

use std::borrow::Cow;

use serde_json::value::RawValue;

use super::content::{snake_case, text_content, tool_content};
use super::tools::Tools;
use crate::translate::members::Members;
use crate::translate::message::to_raw;
use crate::translate::object::{LineError, Object};

const REQUEST: &str = "session/request_permission";
const KINDS: [&str; 4] = ["allow_once", "allow_always", "reject_once", "reject_always"];
/// Words of options that reject.
const REJECTING: [&str; 15] = [
    "reject", "deny", "denied", "no", "not", "cancel", "decline", "refuse", "disallow", "block",
    "abort", "stop", "never", "skip", "don't",
];
/// Words of options that stay in effect.
const LASTING: [&str; 7] = [
    "always", "never", "remember", "session", "forever", "all", "every",
];
/// Words of options that allow.
const ALLOWING: [&str; 11] = [
    "allow", "approve", "accept", "yes", "ok", "proceed", "continue", "permit", "grant", "confirm",
    "once",
];

/// The params of `session/request_permission` of ACP.
pub(super) fn request(
    params: &RawValue,
    session_id: &str,
    tools: &mut Tools,
) -> Result<Box<RawValue>, LineError> {
    let params = Object::parse(REQUEST, params)?;
    let options = params
        .required_array("options")?
        .into_iter()
        .map(option)
        .collect::<Result<Vec<_>, _>>()?;
    let mut request: Members<'_> = params
        .iter()
        .filter(|(name, _)| matches!(*name, "_meta" | "sessionId"))
        .collect();
    if params.text("sessionId").is_none() {
        request.set("sessionId", to_raw(&session_id));
    }
    let named = params.object("toolCall");
    request.set("toolCall", tool_call(&params, named.as_ref(), tools));
    request.set("options", to_raw(&options));
    Ok(to_raw(&request))
}

/// The tool call that needs the permission. Without one, the title and the message describe it.
fn tool_call(params: &Object<'_>, named: Option<&Object<'_>>, tools: &mut Tools) -> Box<RawValue> {
    let mut call: Members<'_> = named.into_iter().flat_map(Object::iter).collect();
    let id = named
        .into_iter()
        .chain([params])
        .find_map(|object| object.text("toolCallId"));
    let id = id
        .map(Cow::into_owned)
        .or_else(|| tools.only_open().map(ToOwned::to_owned));
    call.set("toolCallId", to_raw(&id.unwrap_or_else(|| tools.new_id())));
    let message = ["message", "description"]
        .iter()
        .find_map(|name| params.text(name));
    if named.is_none_or(|named| named.get("title").is_none()) {
        let title = params.text("title").or_else(|| message.clone());
        call.set(
            "title",
            to_raw(&title.unwrap_or(Cow::Borrowed("Permission"))),
        );
    }
    let content = match named.and_then(|named| named.get("content")) {
        Some(content) => tool_content(content),
        None => message.map(|message| text_content(&message)),
    };
    if let Some(content) = content {
        call.set("content", content);
    }
    to_raw(&call)
}

/// An option with the members of ACP. An option can be a bare text.
fn option(raw: &RawValue) -> Result<Box<RawValue>, LineError> {
    let bare: Option<String> = serde_json::from_str(raw.get()).ok();
    let object = match bare {
        Some(_) => None,
        None => Some(Object::parse("options", raw)?),
    };
    let text = |names: &[&str]| {
        let object = object.as_ref()?;
        names
            .iter()
            .find_map(|name| object.text(name))
            .map(Cow::into_owned)
    };
    let id = text(&["optionId", "id"]).or(bare);
    let id = id.ok_or(LineError::Member {
        object: "options",
        member: "optionId",
    })?;
    let name = text(&["name", "label", "title"]).unwrap_or_else(|| id.clone());
    let given = text(&["kind"]).filter(|kind| KINDS.contains(&&**kind));
    let kind = given.unwrap_or_else(|| kind_of(&id, &name).to_owned());
    let mut option: Members<'_> = object.iter().flat_map(Object::iter).collect();
    option.remove("id");
    option.remove("label");
    option.set("optionId", to_raw(&id));
    option.set("name", to_raw(&name));
    option.set("kind", to_raw(&kind));
    Ok(to_raw(&option))
}

/// The kind of an option without one, by the words of its id and name. An option whose words have no meaning here allows
/// always: no policy of an operator selects that kind, so only a person can.
fn kind_of(id: &str, name: &str) -> &'static str {
    let id = snake_case(id);
    if let Some(kind) = KINDS.iter().find(|kind| **kind == id) {
        return kind;
    }
    let text = format!("{id} {}", snake_case(name));
    let words: Vec<&str> = text
        .split(|char: char| !char.is_alphanumeric() && char != '\'')
        .collect();
    let has = |known: &[&str]| words.iter().any(|word| known.contains(word));
    match (has(&REJECTING), has(&LASTING), has(&ALLOWING)) {
        (true, true, _) => "reject_always",
        (true, false, _) => "reject_once",
        (false, false, true) => "allow_once",
        (false, ..) => "allow_always",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn translated(params: &str, tools: &mut Tools) -> Result<String, LineError> {
        let params = RawValue::from_string(params.to_owned()).unwrap();
        request(&params, "s", tools).map(|request| request.get().to_owned())
    }

    fn tools() -> Tools {
        Tools::new("t".to_owned())
    }

    #[test]
    fn title_and_message_become_a_tool_call() {
        let params = r#"{"title":"Run SQL","message":"SELECT 1","options":[{"optionId":"allow_once","label":"Allow once"}]}"#;
        let expected = concat!(
            r#"{"sessionId":"s","toolCall":{"toolCallId":"t-1","title":"Run SQL","#,
            r#""content":[{"type":"content","content":{"type":"text","text":"SELECT 1"}}]},"#,
            r#""options":[{"optionId":"allow_once","name":"Allow once","kind":"allow_once"}]}"#
        );
        assert_eq!(translated(params, &mut tools()).unwrap(), expected);
    }

    #[test]
    fn permission_of_acp_keeps_its_members() {
        let params = concat!(
            r#"{"sessionId":"s","toolCall":{"toolCallId":"c","title":"T","kind":"edit","rawInput":{"n":1.10}},"#,
            r#""options":[{"optionId":"a","name":"A","kind":"allow_once","_meta":{"x":1}}]}"#
        );
        assert_eq!(translated(params, &mut tools()).unwrap(), params);
        let bare = r#"{"sessionId":"s","toolCall":{"toolCallId":"c","content":"out"},"title":"T","options":["yes"]}"#;
        let expected = concat!(
            r#"{"sessionId":"s","toolCall":{"toolCallId":"c","#,
            r#""content":[{"type":"content","content":{"type":"text","text":"out"}}],"title":"T"},"#,
            r#""options":[{"optionId":"yes","name":"yes","kind":"allow_once"}]}"#
        );
        assert_eq!(translated(bare, &mut tools()).unwrap(), expected);
    }

    #[test]
    fn kind_of_an_option_follows_from_its_words() {
        for (id, name, kind) in [
            ("allow_once", "", "allow_once"),
            ("allowAlways", "", "allow_always"),
            ("1", "Allow", "allow_once"),
            ("1", "Allow for this session", "allow_always"),
            ("deny", "Deny", "reject_once"),
            ("2", "No, keep it", "reject_once"),
            ("2", "Don't allow", "reject_once"),
            ("2", "Do not allow", "reject_once"),
            ("3", "Never allow this", "reject_always"),
            ("4", "Reject always", "reject_always"),
            ("5", "Launch", "allow_always"),
            ("note", "Note", "allow_always"),
        ] {
            assert_eq!(kind_of(id, name), kind, "{id} {name}");
        }
    }

    #[test]
    fn request_without_options_is_a_typed_error() {
        let missing = |object, member| LineError::Member { object, member };
        assert_eq!(
            translated(r#"{"title":"T"}"#, &mut tools()),
            Err(missing(REQUEST, "options"))
        );
        let error = translated(r#"{"options":[{"label":"Allow"}]}"#, &mut tools());
        assert_eq!(error, Err(missing("options", "optionId")));
    }
}
