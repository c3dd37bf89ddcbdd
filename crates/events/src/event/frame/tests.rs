//! Tests of the encoding of events.

use super::*;

fn framed(seq: u64, event: &Event<'_>) -> String {
    let session = "01938c5e-7a3b-7c4d-8e5f-0123456789ab".parse().unwrap();
    let mut framer = Framer::new(&"k3".parse().unwrap(), session);
    let mut out = Vec::new();
    framer.frame(
        &mut out,
        seq,
        event,
        Timestamp::from_millis(1_795_299_303_123),
    );
    assert!(out.len() <= framer.size(event));
    String::from_utf8(out).unwrap()
}

#[test]
fn frame_matches_contract_exactly() {
    let members = Members::whole(br#""update":{"sessionUpdate":"plan"}"#);
    let event = Event {
        kind: "session.update",
        prompt: Some(PromptId::new(2)),
        members,
    };
    let id =
        r#""sessionId":"01938c5e-7a3b-7c4d-8e5f-0123456789ab","time":"2026-11-21T22:15:03.123Z""#;
    let update = r#""update":{"sessionUpdate":"plan"}"#;
    assert_eq!(
        framed(42, &event),
        format!(
            "id: k3-42\nevent: session.update\ndata: {{\"id\":\"k3-42\",\"seq\":42,\"type\":\"session.update\",{id},\"promptId\":\"p2\",{update}}}\n\n"
        )
    );
    let event = Event {
        kind: "session.detached",
        prompt: None,
        members: Members::default(),
    };
    assert!(framed(u64::MAX, &event).ends_with("22:15:03.123Z\"}\n\n"));
    assert!(framed(u64::MAX, &event).starts_with("id: k3-18446744073709551615\n"));
}

#[test]
fn line_breaks_from_agent_are_blanked() {
    let members = Members([b"\"params\":", b"{\r\n", b"\n\"a\"", b":\r", b"1}"]);
    let event = Event {
        kind: "ext",
        prompt: None,
        members,
    };
    let frame = framed(1, &event);
    assert!(frame.ends_with("\"params\":{   \"a\": 1}}\n\n"));
    assert_eq!(frame.matches(['\n', '\r']).count(), 4);
}
