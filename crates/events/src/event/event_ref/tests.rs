//! Tests of events that are read from frames.

use proptest::prelude::*;

use super::super::testing::assert_head;
use super::super::{Event, Framer, Members};
use super::*;

const SESSION: &str = "01938c5e-7a3b-7c4d-8e5f-0123456789ab";

fn frame(data: &str) -> Vec<u8> {
    format!("id: k-1\nevent: session.update\ndata: {data}\n\n").into_bytes()
}

#[test]
fn prompt_id_is_read_from_the_head_only() {
    let prompt = |data: &str| {
        EventRef::parse(1, &frame(data))
            .unwrap()
            .head()?
            .prompt_id()
    };
    let head = format!(
        r#"{{"id":"k-1","seq":1,"type":"session.update","sessionId":"{SESSION}","time":"2026-11-21T22:15:03.123Z""#
    );
    let with = format!(r#"{head},"promptId":"p2","update":{{"promptId":"p9"}}}}"#);
    assert_eq!(prompt(&with), Some(PromptId::new(2)));
    let without = format!(r#"{head},"update":{{"time":"x","promptId":"p9"}}}}"#);
    assert_eq!(prompt(&without), None);
    assert_eq!(prompt(&format!(r#"{head},"x":1,"promptId":"p9"}}"#)), None);
    assert_eq!(prompt(&format!("{head}}}")), None);
    assert_eq!(prompt(&with.replacen("k-1", r#"k\"-1"#, 1)), None);
}

#[test]
fn new_epoch_changes_only_ids() {
    let renamed = |data: &str| {
        let mut out = BytesMut::new();
        EventRef::parse(7, &frame(data))
            .unwrap()
            .write_with_epoch(&mut out, &"fresh".parse().unwrap());
        String::from_utf8(out.to_vec()).unwrap()
    };
    assert_eq!(
        renamed(r#"{"id":"e-7","seq":7,"x":"e-7"}"#),
        "id: fresh-7\nevent: session.update\ndata: {\"id\":\"fresh-7\",\"seq\":7,\"x\":\"e-7\"}\n\n"
    );
    // Damaged data that a checksum did not find.
    for data in ["", "{", "{\"id\":\"", "{\"id\":\"e-1"] {
        assert!(
            renamed(data).starts_with("id: fresh-7\nevent: session.update\ndata: "),
            "{data}"
        );
    }
}

proptest! {
    #[test]
    fn events_read_as_written(
        millis in -62_135_596_800_000_i64..253_402_300_800_000,
        first_seq in 1..u64::MAX - 10,
        events_in in prop::collection::vec(
            ("[a-z]{1,9}(\\.[a-z]{1,9})?", prop::option::of(1..u32::MAX), "\\PC{0,20}"), 1..8),
    ) {
        let mut framer = Framer::new(&"k3".parse().unwrap(), SESSION.parse().unwrap());
        let time = Timestamp::from_millis(millis);
        let mut frames = Vec::new();
        for (seq, (kind, prompt, text)) in (first_seq..).zip(&events_in) {
            // No event type has `promptId` as its first member after the head.
            let members = serde_json::json!({ "member": text, "promptId": text, "time": text }).to_string();
            let members = Members::whole(&members.as_bytes()[1..members.len() - 1]);
            let event = Event { kind, prompt: prompt.map(PromptId::new), members };
            framer.frame(&mut frames, seq, &event, time);
        }
        let read: Vec<EventRef<'_>> = events(&frames, first_seq).collect();
        prop_assert_eq!(read.len(), events_in.len());
        for (seq, (event, (kind, prompt, _))) in (first_seq..).zip(read.iter().zip(&events_in)) {
            let head = event.head().unwrap();
            prop_assert_eq!((event.seq(), event.kind()), (seq, kind.as_str()));
            assert_head(event, "k3", SESSION);
            prop_assert_eq!((head.time(), head.prompt_id()), (Some(time), prompt.map(PromptId::new)));
        }
        prop_assert_eq!(read.iter().flat_map(|event| event.raw_frame().to_vec()).collect::<Vec<_>>(), frames);
    }

    #[test]
    fn arbitrary_bytes_never_panic(bytes: Vec<u8>, data in r#"(\{"id":"[a-z"]?(","seq":[0-9]{0,21})?(,"type":"a")?)?.{0,9}"#) {
        for frames in [bytes, frame(&data)] {
            for event in events(&frames, 1) {
                let _ = (event.head(), event.is_of(PromptId::FIRST), event.payload(), event.changed_members());
                event.write_with_epoch(&mut BytesMut::new(), &"e".parse().unwrap());
            }
        }
    }
}

fn text(members: &str) -> Option<&str> {
    TextChunk::parse(members.as_bytes()).map(|chunk| chunk.text.get())
}

#[test]
fn only_an_update_with_one_text_is_a_chunk() {
    let update = r#"{"sessionUpdate":"agent_message_chunk","messageId":"m","content":{"type":"text","text":"a\ud83d","_meta":{}},"x":[1]}"#;
    assert_eq!(
        text(&format!(r#","update":{update}}}"#)),
        Some(r#""a\ud83d""#)
    );
    for wrong in [
    format!(r#","update":{update},"late":true}}"#),
    format!(r#","update":{update},"subagent":"s"}}"#),
    format!(r#","update":{update}"#),
    format!(r#","by":"k","update":{update}}}"#),
    r#","update":{"sessionUpdate":"plan","content":null}}"#.to_owned(),
    r#","update":{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":7}}}"#
        .to_owned(),
    r#","update":{"sessionUpdate":"agent_message_chunk","content":{"type":"image","text":"a"}}}"#
        .to_owned(),
    r#","update":{"sessionUpdate":"a","sessionUpdate":"b","content":{"type":"text","text":"a"}}}"#
        .to_owned(),
    "}".to_owned(),
] {
    assert_eq!(text(&wrong), None, "{wrong}");
}
}
