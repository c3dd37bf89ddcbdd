//! W3C trace context, which ACP carries in `_meta`.

use serde::Serialize;

/// `traceparent` and `tracestate` of the request that caused a message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TraceContext {
    traceparent: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    tracestate: Option<String>,
}

impl TraceContext {
    /// None: `traceparent` is malformed, and then the specification asks to go on without any. A `tracestate` that
    /// is too long or not printable ASCII is left out.
    pub fn parse(traceparent: &str, tracestate: Option<&str>) -> Option<Self> {
        let printable = |text: &&str| text.len() <= 512 && text.bytes().all(|b| (b' '..=b'~').contains(&b));
        let tracestate = tracestate.filter(printable).filter(|text| !text.is_empty());
        valid(traceparent)
            .then(|| Self { traceparent: traceparent.to_owned(), tracestate: tracestate.map(str::to_owned) })
    }

    pub fn traceparent(&self) -> &str {
        &self.traceparent
    }
}

fn valid(traceparent: &str) -> bool {
    let hex = |text: &str, len| {
        text.len() == len && text.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
    };
    let set = |text: &str| text.bytes().any(|b| b != b'0');
    let mut parts = traceparent.split('-');
    let mut part = || parts.next().unwrap_or_default();
    let (version, trace, parent, flags) = (part(), part(), part(), part());
    // A later version may append parts; the first one has exactly four.
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

/// The `_meta` member of our own messages.
pub(super) type Meta<'a> = Option<&'a TraceContext>;

#[cfg(test)]
mod tests {
    use super::*;

    const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn well_formed_contexts_pass_and_others_are_left_out() {
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
