//! Views of an agent's messages, with only the members that the gateway routes on.
//!
//! The views reject objects with repeated members, as derived structs do. Otherwise the gateway could route
//! by one `sessionId`, and a client could read the other.

use std::borrow::Cow;

use serde::Deserialize;
use serde::de::Error as _;
use serde_json::value::RawValue;

use super::raw_object::{Members, RawObject, empty_result, text_of};
use super::update::kind_of;
use crate::jsonrpc::present;
use base::types::SessionId;

/// A member that the gateway routes on is missing, repeated or not a string.
#[derive(Debug, thiserror::Error)]
#[error("a member that the message is routed by is missing or malformed")]
pub struct ViewError(#[from] serde_json::Error);

pub fn parse<'a, T: Deserialize<'a>>(raw: &'a RawValue) -> Result<T, ViewError> {
    Ok(serde_json::from_str(raw.get())?)
}

#[derive(Debug)]
pub struct UpdateView<'a> {
    pub session_id: Cow<'a, str>,
    pub update: &'a RawValue,
    pub kind: Cow<'a, str>,
    pub meta: Option<&'a RawValue>,
    /// The other members of the params, which this version of the gateway does not know.
    pub more: Option<Box<RawValue>>,
}

pub fn parse_update(params: &RawValue) -> Result<UpdateView<'_>, ViewError> {
    const KNOWN: [&str; 3] = ["sessionId", "update", "_meta"];
    let Members(members) = parse(params)?;
    let (known, more) = (members.into_iter()).partition(|(name, _)| KNOWN.contains(&&**name));
    let params = RawObject::new(Members(known));
    let params = params.ok_or_else(|| serde_json::Error::custom("repeated member"))?;
    let absent = serde_json::Error::missing_field;
    let member = |name| params.get(name).ok_or_else(|| absent(name));
    let update = member("update")?;
    Ok(UpdateView {
        session_id: text_of(member("sessionId")?)?,
        update,
        kind: kind_of(update)?,
        meta: params.value("_meta"),
        more: Members(more).to_raw(),
    })
}

#[derive(Deserialize)]
struct SessionIdOnly<'a> {
    #[serde(rename = "sessionId", borrow, default, deserialize_with = "present")]
    session_id: Option<&'a RawValue>,
}

/// Returns the `sessionId` of params or of a result; `None` for messages about the whole connection.
pub fn session_id_of(params: &RawValue) -> Result<Option<Cow<'_, str>>, ViewError> {
    Ok(non_null_session_id(params)?.map(text_of).transpose()?)
}

pub fn has_session_id(params: &RawValue) -> bool {
    matches!(session_id_of(params), Ok(Some(_)))
}

/// Replaces the agent's `sessionId` by the id of the gateway and keeps all other bytes. Nested members with
/// this name are unchanged.
pub fn replace_session_id(params: &RawValue, ours: &SessionId) -> Result<Box<RawValue>, ViewError> {
    let Some(theirs) = non_null_session_id(params)? else {
        return Ok(params.to_owned());
    };
    let text = replace_part(params, theirs, &format!("\"{ours}\""));
    Ok(RawValue::from_string(text)?)
}

/// Replaces `requestId` by the JSON value `name`, because clients do not know JSON-RPC ids.
pub fn replace_request_id(params: &RawValue, name: &str) -> Box<RawValue> {
    let theirs = RawObject::parse(params).and_then(|object| object.get("requestId"));
    let text = theirs.map(|theirs| replace_part(params, theirs, name));
    text.and_then(|text| RawValue::from_string(text).ok())
        .unwrap_or_else(|| params.to_owned())
}

/// Replaces `part`, which is borrowed from `whole`, by another text.
pub(super) fn replace_part(whole: &RawValue, part: &RawValue, by: &str) -> String {
    let whole = whole.get();
    let part = part.get();
    // The difference of the addresses is the offset of `part`.
    let start = part.as_ptr().addr() - whole.as_ptr().addr();
    format!("{}{by}{}", &whole[..start], &whole[start + part.len()..])
}

/// Sets a member of an object to a JSON value and keeps all other bytes. `None` if the value is not an object.
pub fn with_member(object: &RawValue, key: &str, value: &str) -> Option<Box<RawValue>> {
    let text = match RawObject::parse(object)?.get(key) {
        Some(old) => replace_part(object, old, value),
        None => with_first_member(object, key, value),
    };
    RawValue::from_string(text).ok()
}

fn with_first_member(object: &RawValue, key: &str, value: &str) -> String {
    let members = &object.get()[1..];
    let is_empty = members.trim_start().starts_with('}');
    let comma = if is_empty { "" } else { "," };
    format!("{{\"{key}\":{value}{comma}{members}")
}

/// Sets `sessionId` in a client's params to the agent's session id and keeps all other bytes. Returns an
/// error if the params are not an object.
pub fn with_session_id(params: &RawValue, theirs: &str) -> Result<Box<RawValue>, ViewError> {
    let id = serde_json::to_string(theirs)?;
    let text = match raw_session_id(params)? {
        Some(ours) => replace_part(params, ours, &id),
        None => with_first_member(params, "sessionId", &id),
    };
    Ok(RawValue::from_string(text)?)
}

/// Returns the `sessionId`; `None` if it is absent or `null`.
fn non_null_session_id(params: &RawValue) -> Result<Option<&RawValue>, ViewError> {
    Ok(raw_session_id(params)?.filter(|id| id.get() != "null"))
}

fn raw_session_id(params: &RawValue) -> Result<Option<&RawValue>, ViewError> {
    if !params.get().starts_with('{') {
        return Ok(None);
    }
    Ok(parse::<SessionIdOnly<'_>>(params)?.session_id)
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CancelRequest<'a> {
    #[serde(borrow)]
    pub request_id: &'a RawValue,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NewSessionResult<'a> {
    #[serde(borrow)]
    pub session_id: Cow<'a, str>,
}

/// The result of `session/prompt`: the end of a turn.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PromptResult<'a> {
    /// Any text, because agents send stop reasons that the schema does not define.
    #[serde(borrow)]
    pub stop_reason: Cow<'a, str>,
    #[serde(borrow)]
    pub usage: Option<&'a RawValue>,
}

/// Returns the complete options in the result of `session/set_config_option`; `None` if the agent sent none.
pub fn config_options_of(result: &RawValue) -> Option<&RawValue> {
    RawObject::parse(result)?.starting("configOptions", '[')
}

/// Replaces the result `null` by `{}`, because some agents send `null` where the schema requires `{}`.
pub fn null_to_empty(result: &RawValue) -> Box<RawValue> {
    match result.get() {
        "null" => empty_result(),
        _ => result.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::acp::raw;

    fn ours() -> SessionId {
        "01938c5e-7a3b-7c4d-8e5f-0123456789ab".parse().unwrap()
    }

    #[test]
    fn an_update_view_keeps_the_bytes() {
        let params = raw(
            r#"{"update":{"content":{"text":"\ud83d","n":1e400},"sessionUpdate":"agent_message_chunk"}, "sessionId":"a\u0062","_meta":{"k":1.10}}"#,
        );
        let view = parse_update(params).unwrap();
        assert_eq!(
            (view.session_id.as_ref(), view.kind.as_ref()),
            ("ab", "agent_message_chunk")
        );
        assert_eq!(view.meta.unwrap().get(), r#"{"k":1.10}"#);
        assert!(view.update.get().contains(r"\ud83d"));
        assert!(view.more.is_none());
    }

    #[test]
    fn unknown_params_members_are_kept() {
        let params = raw(
            r#"{"later":[1.10],"sessionId":"s","_meta":null,"update":{"sessionUpdate":"plan"},"\u0061": {"b" :1e400},"a":2}"#,
        );
        let view = parse_update(params).unwrap();
        assert!(view.meta.is_none());
        assert_eq!(
            view.more.unwrap().get(),
            r#"{"later":[1.10],"a":{"b" :1e400},"a":2}"#
        );
    }

    #[test]
    fn ambiguous_messages_are_rejected() {
        for wrong in [
            "null",
            "[]",
            r#"{"sessionId":"a"}"#,
            r#"{"sessionId":"a","sessionId":"b","update":{"sessionUpdate":"plan"}}"#,
            r#"{"sessionId":"a","session\u0049d":"b","update":{"sessionUpdate":"plan"}}"#,
            r#"{"sessionId":"a","update":{"sessionUpdate":"plan","sessionUpdate":"usage_update"}}"#,
            r#"{"sessionId":"a","update":{"sessionUpdate":"plan"},"update":{"sessionUpdate":"plan"}}"#,
            r#"{"sessionId":"\ud800","update":{"sessionUpdate":"plan"}}"#,
            r#"{"sessionId":1,"update":{"sessionUpdate":"plan"}}"#,
            r#"{"sessionId":"a","update":{}}"#,
            r#"{"sessionId":"a","update":null}"#,
        ] {
            assert!(parse_update(raw(wrong)).is_err(), "{wrong}");
        }
        assert!(session_id_of(raw(r#"{"sessionId":"a","sessionId":"b"}"#)).is_err());
        assert!(session_id_of(raw(r#"{"sessionId":"\udfff"}"#)).is_err());
        assert!(replace_session_id(raw(r#"{"sessionId":"a","sessionId":"b"}"#), &ours()).is_err());
        assert_eq!(session_id_of(raw(r#"{"n":1}"#)).unwrap(), None);
        assert_eq!(session_id_of(raw("null")).unwrap(), None);
    }

    #[test]
    fn results_of_real_agents_are_read() {
        assert_eq!(
            parse::<NewSessionResult<'_>>(raw(r#"{"sessionId":"0","models":{}}"#))
                .unwrap()
                .session_id,
            "0"
        );
        assert!(parse::<NewSessionResult<'_>>(raw("null")).is_err());
        let end =
            parse::<PromptResult<'_>>(raw(r#"{"stopReason":"max_turn_requests","_meta":{}}"#))
                .unwrap();
        assert_eq!(end.stop_reason, "max_turn_requests");
        assert!(end.usage.is_none());
        assert_eq!(null_to_empty(raw("null")).get(), "{}");
        assert_eq!(
            null_to_empty(raw(r#"{"modes":null}"#)).get(),
            r#"{"modes":null}"#
        );
        assert_eq!(
            parse::<CancelRequest<'_>>(raw(r#"{"requestId":0}"#))
                .unwrap()
                .request_id
                .get(),
            "0"
        );
        assert_eq!(
            config_options_of(raw(r#"{"configOptions":[1]}"#))
                .unwrap()
                .get(),
            "[1]"
        );
        assert!(config_options_of(raw("null")).is_none());
    }

    #[test]
    fn only_the_top_level_session_id_is_replaced() {
        let ours = ours();
        let params =
            raw(r#"{ "a" : {"sessionId":"x"}, "sessionId" : "x" ,"b":["x","\ud800",1.10]}"#);
        assert_eq!(
            replace_session_id(params, &ours).unwrap().get(),
            format!(
                r#"{{ "a" : {{"sessionId":"x"}}, "sessionId" : "{ours}" ,"b":["x","\ud800",1.10]}}"#
            )
        );
        let params = raw(r#"{"requestId": 7 ,"x":{"requestId":7}}"#);
        assert_eq!(
            replace_request_id(params, "\"p1\"").get(),
            r#"{"requestId": "p1" ,"x":{"requestId":7}}"#
        );
        for same in ["null", "[1]", r#"{"a":1}"#, r#"{"sessionId":null}"#] {
            assert_eq!(replace_session_id(raw(same), &ours).unwrap().get(), same);
        }
    }

    #[test]
    fn with_session_id_sets_the_agents_session_id() {
        for (params, expected) in [
            ("{}", r#"{"sessionId":"a\"b"}"#),
            ("{ }", r#"{"sessionId":"a\"b" }"#),
            (r#"{"x":1.10}"#, r#"{"sessionId":"a\"b","x":1.10}"#),
            (r#"{"sessionId":null}"#, r#"{"sessionId":"a\"b"}"#),
            (
                r#"{"x":{"sessionId":1}, "sessionId" : "ours"}"#,
                r#"{"x":{"sessionId":1}, "sessionId" : "a\"b"}"#,
            ),
        ] {
            assert_eq!(
                with_session_id(raw(params), "a\"b").unwrap().get(),
                expected
            );
        }
        for wrong in ["[]", "1", r#"{"sessionId":"a","sessionId":"b"}"#] {
            assert!(with_session_id(raw(wrong), "a").is_err(), "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn replace_session_id_keeps_all_other_bytes(
            before in prop::collection::vec(("[a-r]{1,4}", "\\PC*"), 0..4),
            theirs in "\\PC*",
            after in prop::collection::vec(("[A-R]{1,4}", "\\PC*"), 0..4),
            space in "[ \t]{0,3}",
        ) {
            let side = |members: &[(String, String)]| -> Vec<String> {
                let text = |s: &String| serde_json::to_string(s).unwrap();
                members.iter().map(|(k, v)| format!("{space}{}:{space}{}", text(k), text(v))).collect()
            };
            let build = |id: &str| {
                let id = format!("\"sessionId\"{space}:{space}{}{space}", serde_json::to_string(id).unwrap());
                let members: Vec<String> =
                    side(&before).into_iter().chain([id]).chain(side(&after)).collect();
                format!("{{{}}}", members.join(","))
            };
            let given = build(&theirs);
            let expected = build(&ours().to_string());
            let replaced = replace_session_id(raw(&given), &ours()).unwrap();
            prop_assert_eq!(replaced.get(), expected);
        }
    }
}
