//! The W3C trace context, which ACP transports in `_meta`.

use serde::Serialize;
use serde_json::value::RawValue;

use super::raw_object::RawObject;
use super::to_raw;
use super::view::replace_part;

const TRACEPARENT: &str = "traceparent";
const TRACESTATE: &str = "tracestate";

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TraceContext {
    traceparent: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    tracestate: Option<String>,
}

impl TraceContext {
    pub fn traceparent(&self) -> &str {
        &self.traceparent
    }

    pub fn tracestate(&self) -> Option<&str> {
        self.tracestate.as_deref()
    }

    /// Parses a trace context. `None` if `traceparent` is malformed; the specification then requires to
    /// ignore it. A `tracestate` that is too long or not printable ASCII is omitted.
    pub fn parse(traceparent: &str, tracestate: Option<&str>) -> Option<Self> {
        let printable = |text: &str| text.bytes().all(|b| matches!(b, b' '..=b'~'));
        let tracestate =
            tracestate.filter(|text| (1..=512).contains(&text.len()) && printable(text));
        is_valid_traceparent(traceparent).then(|| Self {
            traceparent: traceparent.to_owned(),
            tracestate: tracestate.map(str::to_owned),
        })
    }
}

fn is_valid_traceparent(traceparent: &str) -> bool {
    let digit = |b: u8| matches!(b, b'0'..=b'9' | b'a'..=b'f');
    let hex = |text: &str, len| text.len() == len && text.bytes().all(digit);
    let set = |text: &str| text.bytes().any(|b| b != b'0');
    let parts: Vec<&str> = traceparent.split('-').collect();
    // A later version may append parts. Version 00 has exactly four.
    let [version, trace, parent, flags, rest @ ..] = &*parts else {
        return false;
    };
    hex(version, 2)
        && *version != "ff"
        && (rest.is_empty() || *version != "00")
        && traceparent.len() <= 128
        && traceparent.is_ascii()
        && hex(trace, 32)
        && set(trace)
        && hex(parent, 16)
        && set(parent)
        && hex(flags, 2)
}

/// Adds the trace context to `_meta` of params, unless it already has one. All other bytes remain unchanged,
/// and so do params that are not an object.
pub fn with_trace(params: &RawValue, trace: Option<&TraceContext>) -> Box<RawValue> {
    let (Some(trace), Some(object)) = (trace, RawObject::parse(params)) else {
        return params.to_owned();
    };
    let trace = to_raw(trace);
    let Some(meta) = object.get("_meta") else {
        return join_objects(params.get(), &format!("{{\"_meta\":{trace}}}"));
    };
    let joined = match RawObject::parse(meta) {
        Some(object) if object.get(TRACEPARENT).is_none() => join_objects(trace.get(), meta.get()),
        None if meta.get() == "null" => trace,
        _ => return params.to_owned(),
    };
    let text = replace_part(params, meta, joined.get());
    RawValue::from_string(text).expect("one value replaces another")
}

/// Encodes one of the gateway's own messages with the trace context.
pub(super) fn traced(message: &impl Serialize, trace: Option<&TraceContext>) -> Box<RawValue> {
    with_trace(&to_raw(message), trace)
}

fn join_objects(first: &str, second: &str) -> Box<RawValue> {
    let first = &first[..first.len() - 1];
    let second = &second[1..];
    let is_empty = first[1..].trim().is_empty() || second.trim_start() == "}";
    let comma = if is_empty { "" } else { "," };
    let joined = RawValue::from_string(format!("{first}{comma}{second}"));
    joined.expect("the members of two objects are an object")
}

/// The `_meta` at the set-up of a session: the members from the client, then the trace context.
pub(super) fn setup_meta(
    client: Option<&RawValue>,
    trace: Option<&TraceContext>,
) -> Option<Box<RawValue>> {
    match (client.map(ToOwned::to_owned), trace.map(to_raw)) {
        (Some(client), Some(trace)) => Some(join_objects(client.get(), trace.get())),
        (client, trace) => client.or(trace),
    }
}

/// Splits a client's `_meta` into the part that belongs to the session, and the trace context of this
/// request.
pub fn split_meta(meta: &RawValue) -> (Option<Box<RawValue>>, Option<TraceContext>) {
    let Some(object) = RawObject::parse(meta) else {
        return (None, None);
    };
    let state = object.text(TRACESTATE);
    let parent = object.text(TRACEPARENT);
    let trace = parent.and_then(|parent| TraceContext::parse(&parent, state.as_deref()));
    (object.without(&[TRACEPARENT, TRACESTATE]), trace)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::acp::raw;

    const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn params_receive_the_trace_context_unless_present() {
        let trace = TraceContext::parse(PARENT, None);
        let members = format!(r#""traceparent":"{PARENT}""#);
        for (params, expected) in [
            ("{}", format!(r#"{{"_meta":{{{members}}}}}"#)),
            (
                r#"{"a": 1.10 }"#,
                format!(r#"{{"a": 1.10 ,"_meta":{{{members}}}}}"#),
            ),
            (
                r#"{"_meta":null,"a":1}"#,
                format!(r#"{{"_meta":{{{members}}},"a":1}}"#),
            ),
            (
                r#"{"_meta": { },"a":1}"#,
                format!(r#"{{"_meta": {{{members} }},"a":1}}"#),
            ),
            (
                r#"{"a":1,"_meta":{"x":[]}}"#,
                format!(r#"{{"a":1,"_meta":{{{members},"x":[]}}}}"#),
            ),
            (
                r#"{"_meta":{"traceparent":"own"}}"#,
                r#"{"_meta":{"traceparent":"own"}}"#.to_owned(),
            ),
            (r#"{"_meta":1}"#, r#"{"_meta":1}"#.to_owned()),
            ("[1]", "[1]".to_owned()),
        ] {
            let params: &RawValue = serde_json::from_str(params).unwrap();
            assert_eq!(with_trace(params, trace.as_ref()).get(), expected);
            assert_eq!(with_trace(params, None).get(), params.get());
        }
    }

    #[test]
    fn malformed_trace_contexts_are_ignored() {
        let context = TraceContext::parse(PARENT, Some("vendor=1")).unwrap();
        assert_eq!(
            serde_json::to_string(&context).unwrap(),
            format!(r#"{{"traceparent":"{PARENT}","tracestate":"vendor=1"}}"#)
        );
        assert_eq!(
            TraceContext::parse(PARENT, Some("a\nb"))
                .unwrap()
                .tracestate,
            None
        );
        for wrong in [
            "",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7",
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
            "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
            "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-x",
        ] {
            assert_eq!(TraceContext::parse(wrong, None), None, "{wrong}");
        }
    }

    #[test]
    fn session_meta_excludes_the_trace_context() {
        let parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        let trace = TraceContext::parse(parent, Some("v=1"));
        let given = format!(
            r#"{{"a":{{"n":1.10}},"traceparent":"{parent}","b":"\ud800","tracestate":"v=1"}}"#
        );
        let (lasting, parted) = split_meta(raw(&given));
        let lasting = lasting.unwrap();
        assert_eq!(lasting.get(), r#"{"a":{"n":1.10},"b":"\ud800"}"#);
        assert_eq!(parted, trace);
        assert_eq!(
            setup_meta(Some(&lasting), trace.as_ref()).unwrap().get(),
            format!(
                r#"{{"a":{{"n":1.10}},"b":"\ud800","traceparent":"{parent}","tracestate":"v=1"}}"#
            )
        );
        for nothing in ["{}", "null", r#"{"traceparent":"x"}"#] {
            let (lasting, trace) = split_meta(raw(nothing));
            assert!(lasting.is_none() && trace.is_none(), "{nothing}");
        }
    }
}
