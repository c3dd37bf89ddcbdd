//! The classification and routing of an agent's line. The model reads the line byte by byte.

use std::borrow::Cow;

use base::types::SessionId;
use serde_json::value::RawValue;
use wire::acp::{self, DeniedModes, RawObject, UpdateLine};
use wire::jsonrpc::{self, EnvelopeError, Message};

use super::json::{Member, depth, is_json, members};

const MAX_DEPTH: usize = 16;

/// The input is one line.
pub fn envelope(data: &[u8]) {
    let message = jsonrpc::parse(data, MAX_DEPTH);
    let Ok(line) = std::str::from_utf8(data) else {
        assert!(matches!(message, Err(EnvelopeError::Utf8(_))));
        return;
    };
    let scanned = UpdateLine::scan(data, 0..data.len(), MAX_DEPTH);
    if !is_json(line) {
        assert!(message.is_err() && scanned.is_none(), "{line}");
        return;
    }
    let deep = depth(line) > MAX_DEPTH;
    assert!(!deep || scanned.is_none(), "{line}");
    assert_eq!(
        matches!(message, Err(EnvelopeError::Depth { .. })),
        deep,
        "{line}"
    );
    assert_eq!(
        jsonrpc::check_depth(data, MAX_DEPTH).is_err(),
        deep,
        "{line}"
    );
    if deep {
        return;
    }
    assert_eq!(
        message.as_ref().ok().map(Parts::of),
        Parts::model(line),
        "{line}"
    );
    if let Some(parts) = scanned {
        found(line, &parts);
    }
    let parts = members(line).unwrap_or_default();
    for part in parts
        .iter()
        .filter(|part| matches!(part.name.as_deref(), Some("params" | "result")))
    {
        about_params(&line[part.at.clone()]);
    }
    about_params(line);
}

/// A message, described by the bytes of its parts.
#[derive(Debug, PartialEq, Eq)]
enum Parts<'a> {
    Request {
        id: &'a str,
        method: Cow<'a, str>,
        params: &'a str,
    },
    Notification {
        method: Cow<'a, str>,
        params: &'a str,
    },
    Result {
        id: &'a str,
        result: &'a str,
    },
    Error {
        id: &'a str,
    },
}

impl<'a> Parts<'a> {
    fn of(message: &'a Message) -> Self {
        match message {
            Message::Request { id, method, params } => Self::Request {
                id: id.get(),
                method: (&**method).into(),
                params: params.get(),
            },
            Message::Notification { method, params } => Self::Notification {
                method: (&**method).into(),
                params: params.get(),
            },
            Message::Response {
                id,
                outcome: Ok(result),
            } => Self::Result {
                id: id.get(),
                result: result.get(),
            },
            Message::Response {
                id,
                outcome: Err(_),
            } => Self::Error { id: id.get() },
        }
    }

    /// Parses a line. `None` if it is not a message.
    fn model(line: &'a str) -> Option<Self> {
        let parts = members(line)?;
        let value = |name| {
            once(&parts, name)
                .ok()
                .map(|found| found.map(|member| &line[member.at.clone()]))
        };
        let id = value("id")?;
        let method = value("method")?;
        let params = value("params")?;
        let result = value("result")?;
        let error = value("error")?;
        let params = params.unwrap_or("null");
        let method = match method.filter(|method| *method != "null") {
            Some(text) => Some(Cow::Owned(serde_json::from_str::<String>(text).ok()?)),
            None => None,
        };
        Some(match (id, method) {
            (Some(id), Some(method)) => Self::Request { id, method, params },
            (None, Some(method)) => Self::Notification { method, params },
            (id, None) => {
                let id = id.unwrap_or("null");
                match (error.filter(|error| *error != "null"), result) {
                    (Some(_), _) => Self::Error { id },
                    (None, Some(result)) => Self::Result { id, result },
                    (None, None) => return None,
                }
            }
        })
    }
}

/// A member is duplicated, or a name is not text.
struct Unclear;

/// The member with this name, if there is one.
fn once<'m>(parts: &'m [Member], name: &str) -> Result<Option<&'m Member>, Unclear> {
    if parts.iter().any(|part| part.name.is_none()) {
        return Err(Unclear);
    }
    let mut found = parts
        .iter()
        .filter(|part| part.name.as_deref() == Some(name));
    let first = found.next();
    if found.next().is_some() {
        Err(Unclear)
    } else {
        Ok(first)
    }
}

/// Checks an update that the fast path found against the model.
fn found(line: &str, parts: &UpdateLine) {
    let params = &line[parts.params.clone()];
    assert_eq!(
        Parts::model(line),
        Some(Parts::Notification {
            method: acp::method::SESSION_UPDATE.into(),
            params
        })
    );
    let value = |text: &str, name: &str| -> Option<String> {
        let parts = members(text).expect("it is an object");
        let member = once(&parts, name).ok().expect("it is given once");
        member.map(|member| text[member.at.clone()].to_owned())
    };
    let quoted = |at: &std::ops::Range<usize>| format!("\"{}\"", &line[at.clone()]);
    let update = &line[parts.update.clone()];
    assert_eq!(
        value(params, "sessionId"),
        Some(quoted(&parts.session_id)),
        "{line}"
    );
    assert_eq!(value(params, "update").as_deref(), Some(update), "{line}");
    let meta = value(params, "_meta").filter(|meta| meta != "null");
    assert_eq!(
        meta.as_deref(),
        parts.meta.clone().map(|meta| &line[meta]),
        "{line}"
    );
    let known = ["sessionId", "update", "_meta"];
    let names = members(params).expect("it is an object");
    assert!(
        names
            .iter()
            .all(|part| known.contains(&part.name.as_deref().unwrap_or_default())),
        "{line}"
    );
    assert_eq!(
        value(update, "sessionUpdate"),
        Some(quoted(&parts.kind)),
        "{line}"
    );
    assert_eq!(
        parts.chunk,
        acp::update::is_chunk(line[parts.kind.clone()].as_bytes()),
        "{line}"
    );
}

fn raw(text: &str) -> Box<RawValue> {
    RawValue::from_string(text.to_owned()).expect("it is JSON")
}

/// Checks params or a result.
fn about_params(text: &str) {
    let params = &*raw(text.trim_matches([' ', '\t', '\r', '\n']));
    let text = params.get();
    routed(params);
    update(params);
    object(params);
    let flat = acp::to_one_line(params.to_owned());
    assert_eq!(flat.get(), text.replace(['\n', '\r'], " "));
    let permission = acp::parse_permission(params);
    if let Ok(peek) = &permission {
        assert!(
            peek.validate(&peek.reject()).is_ok(),
            "to say no is always an answer: {text}"
        );
        assert!(
            peek.allow_once(&DeniedModes::default())
                .is_none_or(|answer| peek.validate(&answer).is_ok()),
            "{text}"
        );
    }
    // Only termination is checked here. These functions must accept any params, and read them only if they
    // are an object.
    let read = [
        permission.is_ok(),
        acp::parse_elicitation(params).is_ok(),
        acp::check_form(params).is_ok(),
        acp::completed_elicitation(params).is_some(),
        acp::parse::<acp::CreateTerminal>(params).is_ok(),
        acp::parse::<acp::TerminalParams<'_>>(params).is_ok(),
        acp::parse::<acp::ReadTextFile<'_>>(params).is_ok(),
        acp::parse::<acp::WriteTextFile<'_>>(params).is_ok(),
        acp::parse::<acp::CancelRequest<'_>>(params).is_ok(),
        acp::parse::<acp::NewSessionResult<'_>>(params).is_ok(),
        acp::parse::<acp::PromptResult<'_>>(params).is_ok(),
        acp::config_options_of(params).is_some(),
    ];
    assert!(
        !read.contains(&true) || text.starts_with(['{', '[']),
        "{text}: {read:?}"
    );
    let error = jsonrpc::parse_error(params);
    assert!(
        error.data.is_none_or(|data| text.contains(data.get())),
        "{text}"
    );
}

/// The session in the params, and its replacement by another session.
fn routed(params: &RawValue) {
    let text = params.get();
    let ours: SessionId = "01938c5e-7a3b-7c4d-8e5f-0123456789ab"
        .parse()
        .expect("it is an id");
    let named = acp::session_id_of(params);
    let replaced = acp::replace_session_id(params, &ours);
    let given = acp::with_session_id(params, "a\"b");
    let Some(parts) = members(text) else {
        assert!(matches!(named, Ok(None)), "{text}");
        assert_eq!(replaced.expect("it names none").get(), text);
        assert!(given.is_err(), "{text}");
        return;
    };
    let Ok(found) = once(&parts, "sessionId") else {
        assert!(
            named.is_err() && replaced.is_err() && given.is_err(),
            "{text}"
        );
        return;
    };
    let put = |id: &str, member: &Member| {
        format!("{}{id}{}", &text[..member.at.start], &text[member.at.end..])
    };
    if let Some(member) = found.filter(|member| &text[member.at.clone()] != "null") {
        let id: Option<String> = serde_json::from_str(&text[member.at.clone()]).ok();
        assert_eq!(named.ok().flatten().as_deref(), id.as_deref(), "{text}");
        assert_eq!(
            replaced.expect("it names one").get(),
            put(&format!("\"{ours}\""), member)
        );
    } else {
        assert!(matches!(named, Ok(None)), "{text}");
        assert_eq!(replaced.expect("it names none").get(), text);
    }
    let given = given.expect("they are an object");
    if let Some(member) = found {
        assert_eq!(given.get(), put(r#""a\"b""#, member));
    }
    let again = acp::session_id_of(&given);
    assert_eq!(
        again.expect("one member").as_deref(),
        Some("a\"b"),
        "{text}"
    );
    let others = |parts: &[Member], text: &str| -> Vec<(Option<String>, String)> {
        let others = parts
            .iter()
            .filter(|part| part.name.as_deref() != Some("sessionId"));
        others
            .map(|part| (part.name.clone(), text[part.at.clone()].to_owned()))
            .collect()
    };
    let after = members(given.get()).expect("it is an object");
    assert_eq!(others(&after, given.get()), others(&parts, text), "{text}");
}

fn update(params: &RawValue) {
    let text = params.get();
    let Ok(peek) = acp::parse_update(params) else {
        return;
    };
    let parts = members(text).expect("only an object is an update");
    let value = |name: &str| {
        let mut found = parts
            .iter()
            .filter(|part| part.name.as_deref() == Some(name));
        let first = found.next().map(|part| &text[part.at.clone()]);
        assert!(found.next().is_none(), "{name} is given once: {text}");
        first
    };
    let id: String =
        serde_json::from_str(value("sessionId").expect("it is there")).expect("it is text");
    assert_eq!(peek.session_id, id);
    assert_eq!(Some(peek.update.get()), value("update"));
    assert_eq!(
        peek.meta.map(RawValue::get),
        value("_meta").filter(|meta| *meta != "null")
    );
    let known = ["sessionId", "update", "_meta"];
    let more = |text: &str, parts: &[Member]| -> Vec<(Option<String>, String)> {
        let more = parts
            .iter()
            .filter(|part| !known.contains(&part.name.as_deref().unwrap_or_default()));
        more.map(|part| (part.name.clone(), text[part.at.clone()].to_owned()))
            .collect()
    };
    let got = peek.more.as_deref().map_or("{}", RawValue::get);
    assert_eq!(
        more(got, &members(got).expect("an object")),
        more(text, &parts),
        "{text}"
    );
}

fn object(params: &RawValue) {
    let text = params.get();
    let Some(object) = RawObject::parse(params) else {
        return;
    };
    let parts = members(text).expect("only an object is one");
    let expected = parts.iter().map(|part| {
        (
            part.name.as_deref().expect("a name is text"),
            &text[part.at.clone()],
        )
    });
    assert!(
        object
            .iter()
            .map(|(name, value)| (name, value.get()))
            .eq(expected),
        "{text}"
    );
}
