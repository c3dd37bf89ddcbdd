//! `_meta` at the set-up of a session: the members from the client, and the trace context.

use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::value::RawValue;

use super::raw_object::RawObject;
use super::to_raw;
use super::trace::TraceContext;

const TRACEPARENT: &str = "traceparent";
const TRACESTATE: &str = "tracestate";

/// The members of `client` pass through unchanged.
#[derive(Debug, Clone, Copy)]
pub(super) struct SetupMeta<'a> {
    pub(super) client: Option<&'a RawValue>,
    pub(super) trace: Option<&'a TraceContext>,
}

impl SetupMeta<'_> {
    pub(super) fn is_empty(&self) -> bool {
        self.client.is_none() && self.trace.is_none()
    }
}

impl Serialize for SetupMeta<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let own = self.client.and_then(RawObject::parse);
        let mut map = serializer.serialize_map(None)?;
        for (name, value) in own.iter().flat_map(RawObject::iter) {
            map.serialize_entry(name, value)?;
        }
        if let Some(trace) = self.trace {
            map.serialize_entry(TRACEPARENT, trace.traceparent())?;
            if let Some(state) = trace.tracestate() {
                map.serialize_entry(TRACESTATE, state)?;
            }
        }
        map.end()
    }
}

/// Splits a client's `_meta` into the part that belongs to the session, and the trace context of this
/// request.
pub fn split_meta(meta: &RawValue) -> (Option<Box<RawValue>>, Option<TraceContext>) {
    let Some(object) = RawObject::parse(meta) else { return (None, None) };
    let trace = object
        .text(TRACEPARENT)
        .and_then(|parent| TraceContext::parse(&parent, object.text(TRACESTATE).as_deref()));
    let lasting = SessionMembers(&object);
    let lasting = (lasting.members().next().is_some()).then(|| to_raw(&lasting));
    (lasting, trace)
}

struct SessionMembers<'a>(&'a RawObject<'a>);

impl<'a> SessionMembers<'a> {
    fn members(&self) -> impl Iterator<Item = (&str, &'a RawValue)> {
        self.0.iter().filter(|(name, _)| ![TRACEPARENT, TRACESTATE].contains(name))
    }
}

impl Serialize for SessionMembers<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.members())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::acp::raw;

    #[test]
    fn session_meta_excludes_the_trace_context() {
        let parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        let trace = TraceContext::parse(parent, Some("v=1"));
        let given =
            format!(r#"{{"a":{{"n":1.10}},"traceparent":"{parent}","b":"\ud800","tracestate":"v=1"}}"#);
        let (lasting, parted) = split_meta(raw(&given));
        let lasting = lasting.unwrap();
        assert_eq!(lasting.get(), r#"{"a":{"n":1.10},"b":"\ud800"}"#);
        assert_eq!(parted, trace);
        let meta = SetupMeta { client: Some(&lasting), trace: trace.as_ref() };
        assert_eq!(
            serde_json::to_string(&meta).unwrap(),
            format!(r#"{{"a":{{"n":1.10}},"b":"\ud800","traceparent":"{parent}","tracestate":"v=1"}}"#)
        );
        for nothing in ["{}", "null", r#"{"traceparent":"x"}"#] {
            let (lasting, trace) = split_meta(raw(nothing));
            assert!(lasting.is_none() && trace.is_none(), "{nothing}");
        }
    }
}
