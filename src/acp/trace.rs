//! The W3C trace context, which ACP transports in `_meta`.

use agent_client_protocol_schema::v1::Meta;
use serde::Serialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::raw_object::RawObject;
use super::to_raw;

/// The `traceparent` and `tracestate` of the HTTP request that caused a message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TraceContext {
    traceparent: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    tracestate: Option<String>,
}

impl TraceContext {
    /// Parses a trace context. `None` if `traceparent` is malformed; the specification then requires to
    /// ignore it. A `tracestate` that is too long or not printable ASCII is omitted.
    pub fn parse(traceparent: &str, tracestate: Option<&str>) -> Option<Self> {
        let printable = |text: &&str| text.len() <= 512 && text.bytes().all(|b| (b' '..=b'~').contains(&b));
        let tracestate = tracestate.filter(printable).filter(|text| !text.is_empty());
        is_valid_traceparent(traceparent)
            .then(|| Self { traceparent: traceparent.to_owned(), tracestate: tracestate.map(str::to_owned) })
    }

    pub fn traceparent(&self) -> &str {
        &self.traceparent
    }

    pub fn tracestate(&self) -> Option<&str> {
        self.tracestate.as_deref()
    }
}

fn is_valid_traceparent(traceparent: &str) -> bool {
    let hex = |text: &str, len| {
        text.len() == len && text.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
    };
    let set = |text: &str| text.bytes().any(|b| b != b'0');
    let mut parts = traceparent.split('-');
    let mut part = || parts.next().unwrap_or_default();
    let (version, trace, parent, flags) = (part(), part(), part(), part());
    // A later version may append parts. Version 00 has exactly four.
    let rest = parts.next().is_some();
    hex(version, 2)
        && version != "ff"
        && !(rest && version == "00")
        && traceparent.len() <= 128
        && traceparent.is_ascii()
        && hex(trace, 32)
        && set(trace)
        && hex(parent, 16)
        && set(parent)
        && hex(flags, 2)
}

/// Adds the trace context to `_meta` of a client's params, unless it already has one. All other bytes remain
/// unchanged, and so do params that are not an object.
pub fn with_trace(params: &RawValue, trace: Option<&TraceContext>) -> Box<RawValue> {
    let (Some(trace), Some(object)) = (trace, RawObject::parse(params)) else { return params.to_owned() };
    let trace = to_raw(trace);
    let members = &trace.get()[1..trace.get().len() - 1];
    let (whole, empty) = (params.get(), object.iter().next().is_none());
    let text = match object.get("_meta") {
        None => {
            let comma = if empty { "" } else { "," };
            format!("{}{comma}\"_meta\":{{{members}}}}}", &whole[..whole.len() - 1])
        }
        Some(meta) => {
            // `meta` is borrowed from `whole`, so the difference of the addresses is its offset.
            let start = meta.get().as_ptr().addr() - whole.as_ptr().addr();
            let (before, after) = (&whole[..start], &whole[start + meta.get().len()..]);
            match RawObject::parse(meta) {
                Some(object) if object.get("traceparent").is_some() => return params.to_owned(),
                Some(object) => {
                    let comma = if object.iter().next().is_none() { "" } else { "," };
                    format!("{before}{{{members}{comma}{}{after}", &meta.get()[1..])
                }
                None if meta.get() == "null" => format!("{before}{{{members}}}{after}"),
                None => return params.to_owned(),
            }
        }
    };
    RawValue::from_string(text).expect("an object with an additional member is valid JSON")
}

/// The `_meta` of the gateway's own messages.
pub(super) fn meta(trace: Option<&TraceContext>) -> Option<Meta> {
    let text = |text: &str| Value::String(text.to_owned());
    let TraceContext { traceparent, tracestate } = trace?;
    let state = tracestate.iter().map(|state| ("tracestate".to_owned(), text(state)));
    Some(std::iter::once(("traceparent".to_owned(), text(traceparent))).chain(state).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn params_receive_the_trace_context_unless_present() {
        let trace = TraceContext::parse(PARENT, None);
        let members = format!(r#""traceparent":"{PARENT}""#);
        for (params, expected) in [
            ("{}", format!(r#"{{"_meta":{{{members}}}}}"#)),
            (r#"{"a": 1.10 }"#, format!(r#"{{"a": 1.10 ,"_meta":{{{members}}}}}"#)),
            (r#"{"_meta":null,"a":1}"#, format!(r#"{{"_meta":{{{members}}},"a":1}}"#)),
            (r#"{"_meta": { },"a":1}"#, format!(r#"{{"_meta": {{{members} }},"a":1}}"#)),
            (r#"{"a":1,"_meta":{"x":[]}}"#, format!(r#"{{"a":1,"_meta":{{{members},"x":[]}}}}"#)),
            (r#"{"_meta":{"traceparent":"own"}}"#, r#"{"_meta":{"traceparent":"own"}}"#.to_owned()),
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
        assert_eq!(TraceContext::parse(PARENT, Some("a\nb")).unwrap().tracestate, None);
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
}
