//! The steps of events, as text.

use bytes::BytesMut;

use super::*;
use events::event::write_block;

/// Projects events of one turn, each as its type and its members after the head.
fn steps(events: &[(&str, &str)]) -> Vec<String> {
    let mut projector = TurnProjector::default();
    project(&mut projector, events)
}

fn project(projector: &mut TurnProjector, events: &[(&str, &str)]) -> Vec<String> {
    let mut steps = Vec::new();
    each_of(projector, events, &mut |step| steps.push(shown(&step)));
    steps
}

fn each_step(events: &[(&str, &str)], each: &mut dyn FnMut(Step<'_>)) {
    each_of(&mut TurnProjector::default(), events, each);
}

fn each_of(projector: &mut TurnProjector, events: &[(&str, &str)], each: &mut dyn FnMut(Step<'_>)) {
    for (kind, members) in events {
        let mut frame = BytesMut::new();
        let head = r#""id":"k3-1","seq":1,"sessionId":"s","time":"2026-11-28T00:00:00.000Z","promptId":"p1""#;
        write_block(
            &mut frame,
            Some("k3-1"),
            Some(kind),
            format!("{{{head},{members}}}").as_bytes(),
        );
        let event = EventRef::parse(1, &frame).expect("a frame");
        projector.event(&event, each);
    }
}

fn shown(step: &Step<'_>) -> String {
    let block = |block: &Block<'_>| {
        format!(
            "{:?} {} {}",
            block.role,
            block.number,
            block.subagent.unwrap_or("-")
        )
    };
    match step {
        Step::Begun { .. } => "begun".to_owned(),
        Step::BlockBegun(begun) => format!("block {}", block(begun)),
        Step::Text(_, text) => format!("text {text}"),
        Step::BlockEnded(ended) => format!("end of block {}", block(ended)),
        Step::CallBegun(call) => format!("call {} {}", call.id, call.kind()),
        Step::CallDescribed(call) => format!("described {}", call.id),
        Step::CallProgressed(call) => format!("progress {} {}", call.id, call.content().len()),
        Step::CallEnded(call) => {
            format!(
                "end of call {} {}: {}",
                call.id,
                call.status.into_str(),
                call.result_text()
            )
        }
        Step::Requested(request) => format!(
            "asks {} {:?}",
            request.id,
            request.call.map(|call| &*call.id)
        ),
        Step::Resolved { id, allowed, .. } => format!("resolved {id} {allowed}"),
        Step::Ended(End::Completed { stop_reason, .. }) => format!("completed {stop_reason}"),
        Step::Ended(End::Failed { .. }) => "failed".to_owned(),
        other => format!("{other:?}")
            .split([' ', '('])
            .next()
            .unwrap_or_default()
            .to_owned(),
    }
}

fn update(update: &str) -> String {
    format!(r#""update":{update}"#)
}

fn chunk(kind: &str, message: &str, text: &str) -> String {
    let content = format!(r#"{{"type":"text","text":"{text}"}}"#);
    update(&format!(
        r#"{{"sessionUpdate":"{kind}","messageId":"{message}","content":{content}}}"#
    ))
}

#[test]
fn block_ends_when_the_role_or_the_message_changes() {
    let chunks = [
        chunk("agent_thought_chunk", "a", "1"),
        chunk("agent_message_chunk", "a", "2"),
        chunk("agent_message_chunk", "a", "3"),
        chunk("agent_message_chunk", "b", "4"),
    ];
    let events: Vec<(&str, &str)> = chunks
        .iter()
        .map(|chunk| ("session.update", &**chunk))
        .collect();
    let expected = [
        "begun",
        "block Thought 1 -",
        r#"text "1""#,
        "end of block Thought 1 -",
        "block Message 2 -",
        r#"text "2""#,
        r#"text "3""#,
        "end of block Message 2 -",
        "block Message 3 -",
        r#"text "4""#,
    ];
    assert_eq!(steps(&events), expected);
}

#[test]
fn text_of_a_child_session_has_blocks_of_its_own() {
    let own = chunk("agent_message_chunk", "a", "1");
    let child = format!(
        r#"{},"subagent":"child""#,
        chunk("agent_message_chunk", "a", "2")
    );
    let events = [
        ("session.update", &*own),
        ("session.update", &*child),
        ("session.update", &*own),
    ];
    let expected = [
        "begun",
        "block Message 1 -",
        r#"text "1""#,
        "block Message 2 child",
        r#"text "2""#,
        r#"text "1""#,
    ];
    assert_eq!(steps(&events), expected);
}

#[test]
fn whole_message_is_shown_unless_its_chunks_were() {
    let whole = |id: &str| {
        let content = r#"[{"type":"text","text":"whole"}]"#;
        update(&format!(
            r#"{{"sessionUpdate":"agent_message","messageId":"{id}","content":{content}}}"#
        ))
    };
    let chunk = chunk("agent_message_chunk", "a", "part");
    let same = whole("a");
    let other = whole("b");
    let call = update(r#"{"sessionUpdate":"tool_call","toolCallId":"c","status":"completed"}"#);
    let events = [&chunk, &call, &same, &other].map(|members| ("session.update", &**members));
    let texts: Vec<String> = steps(&events)
        .into_iter()
        .filter(|step| step.starts_with("text"))
        .collect();
    assert_eq!(texts, [r#"text "part""#, r#"text "whole""#]);
}

#[test]
fn calls_and_requests_end_with_the_turn() {
    let call =
        update(r#"{"sessionUpdate":"tool_call","toolCallId":"c","kind":"execute","title":null}"#);
    let request = r#""requestId":"r1","method":"session/request_permission","params":{"sessionId":"s",
        "toolCall":{"toolCallId":"d","kind":"edit"},"options":[{"optionId":"y","kind":"allow_once"}]}"#
        .replace('\n', "");
    let late = format!(
        r#"{},"late":true"#,
        chunk("agent_message_chunk", "a", "late")
    );
    let completed = r#""stopReason":"end_turn","result":{}"#;
    let failed = r#""problem":{"code":"interrupted"}"#;
    let events = [
        ("session.update", &*call),
        ("request.created", &*request),
        ("prompt.completed", completed),
        ("session.update", &*late),
        ("prompt.failed", failed),
    ];
    let expected = [
        "begun",
        "call c execute",
        "call d edit",
        r#"asks r1 Some("d")"#,
        "end of call c unfinished: the turn ended before this call",
        "end of call d unfinished: the turn ended before this call",
        "completed end_turn",
    ];
    assert_eq!(steps(&events), expected);
}

#[test]
fn call_of_a_request_has_the_command_of_its_subject() {
    let request = r#""requestId":"r1","method":"session/request_permission","params":{"sessionId":"s","title":"Run","subject":{"type":"command","command":"rm -rf /x","cwd":"/"},"options":[]}"#;
    let mut frame = BytesMut::new();
    let head =
        r#""id":"k3-1","seq":1,"sessionId":"s","time":"2026-11-28T00:00:00.000Z","promptId":"p1""#;
    write_block(
        &mut frame,
        Some("k3-1"),
        Some("request.created"),
        format!("{{{head},{request}}}").as_bytes(),
    );
    let event = EventRef::parse(1, &frame).expect("a frame");
    let mut inputs = Vec::new();
    TurnProjector::default().event(&event, &mut |step| {
        if let Step::CallBegun(call) = step {
            inputs.extend(call.input().map(ToString::to_string));
        }
    });
    assert_eq!(
        inputs,
        [r#"{"type":"command","command":"rm -rf /x","cwd":"/"}"#]
    );
}

#[test]
fn rejected_call_says_so() {
    let request = r#""requestId":"r1","method":"session/request_permission","params":{"sessionId":"s","toolCall":{"toolCallId":"d"},"options":[{"optionId":"n","kind":"reject_once"}]}"#;
    let resolved = r#""requestId":"r1","method":"session/request_permission","resolution":"answered","result":{"outcome":{"outcome":"selected","optionId":"n"}}"#;
    let end = update(r#"{"sessionUpdate":"tool_call_update","toolCallId":"d","status":"failed"}"#);
    let events = [
        ("request.created", request),
        ("request.resolved", resolved),
        ("session.update", &*end),
    ];
    let expected = [
        "begun",
        "call d other",
        r#"asks r1 Some("d")"#,
        "resolved r1 false",
        "end of call d failed: the permission was not granted",
    ];
    assert_eq!(steps(&events), expected);
}

#[test]
fn retained_tool_calls_are_bounded() {
    let mut projector = TurnProjector::default();
    let content = format!(
        r#"[{{"type":"content","content":{{"type":"text","text":"{}"}}}}]"#,
        "x".repeat(900_000)
    );
    for number in 0..40 {
        let call = format!(
            r#"{{"sessionUpdate":"tool_call","toolCallId":"c{number}","content":{content}}}"#
        );
        project(&mut projector, &[("session.update", &update(&call))]);
    }
    let retained: usize = projector.calls.iter().map(|call| call.bytes).sum();
    assert_eq!(retained, projector.call_bytes);
    assert!(
        retained <= MAX_CALL_BYTES && retained > MAX_CALL_BYTES / 2,
        "{retained}"
    );
    project(&mut projector, &[("prompt.failed", r#""problem":{}"#)]);
    assert_eq!(projector.call_bytes, 0);
}

#[test]
fn id_of_an_ended_call_names_another_call() {
    let called = |kind: &str, title: &str, status: &str| {
        update(&format!(
            r#"{{"sessionUpdate":"{kind}","toolCallId":"c","title":"{title}","status":"{status}"}}"#
        ))
    };
    let first = called("tool_call", "first", "pending");
    let ended = called("tool_call_update", "first", "completed");
    let late = called("tool_call_update", "late", "in_progress");
    let again = called("tool_call", "second", "completed");
    let request = r#""requestId":"r1","method":"session/request_permission","params":{"sessionId":"s","toolCall":{"toolCallId":"c","title":"third"},"options":[]}"#;
    let events = [
        ("session.update", &*first),
        ("session.update", &*ended),
        ("session.update", &*late),
        ("session.update", &*again),
        ("request.created", request),
        ("session.update", &*ended),
    ];
    let expected = [
        "begun",
        "call c other",
        "end of call c completed: ",
        "call c~1 other",
        "end of call c~1 completed: ",
        "call c~2 other",
        r#"asks r1 Some("c~2")"#,
        "described c~2",
        "end of call c~2 completed: ",
    ];
    assert_eq!(steps(&events), expected);
}

#[test]
fn request_shows_its_own_call() {
    let call = update(
        r#"{"sessionUpdate":"tool_call","toolCallId":"c","title":"ls","rawInput":{"command":"ls"}}"#,
    );
    for (asked, shown) in [
        (r#""title":"rm -rf build""#, r#"{"title":"rm -rf build"}"#),
        (r#""rawInput":{"command":"rm"}"#, r#"{"command":"rm"}"#),
        (
            r#""rawInput":{"command":"rm"},"status":"completed""#,
            r#"{"command":"rm"}"#,
        ),
        (r#""title":"ls""#, r#"{"command":"ls"}"#),
        (r#""status":"pending""#, r#"{"command":"ls"}"#),
    ] {
        let request = format!(
            r#""requestId":"r1","method":"session/request_permission","params":{{"sessionId":"s","toolCall":{{"toolCallId":"c",{asked}}},"options":[]}}"#
        );
        let mut inputs = Vec::new();
        each_step(
            &[("session.update", &call), ("request.created", &request)],
            &mut |step| {
                if let Step::Requested(request) = step {
                    inputs.extend(request.call.map(|call| call.input_text().into_owned()));
                }
            },
        );
        assert_eq!(inputs, [shown], "{asked}");
    }
}

#[test]
fn halves_of_a_character_are_joined_in_their_block() {
    let chunks = [
        chunk("agent_message_chunk", "a", r"1\ud83d"),
        chunk("agent_message_chunk", "a", r"\ude00"),
        chunk("agent_message_chunk", "a", r"2\ud83d"),
        chunk("agent_thought_chunk", "a", r"\ude00"),
    ];
    let events: Vec<(&str, &str)> = chunks
        .iter()
        .map(|chunk| ("session.update", &**chunk))
        .collect();
    let texts: Vec<String> = steps(&events)
        .into_iter()
        .filter(|step| step.starts_with("text"))
        .collect();
    assert_eq!(
        texts,
        [
            r#"text "1""#,
            r#"text "\ud83d\ude00""#,
            r#"text "2""#,
            r#"text "\ud83d""#,
            r#"text "\ude00""#,
        ]
    );
}

#[test]
fn updates_mean_what_they_mean_in_the_transcript() {
    let shown = |updates: &[&str]| {
        let members: Vec<String> = updates.iter().map(|text| update(text)).collect();
        let events: Vec<(&str, &str)> = members
            .iter()
            .map(|members| ("session.update", &**members))
            .collect();
        let mut shown = Vec::new();
        each_step(&events, &mut |step| match step {
            Step::Plan(plan) => shown.push(plan.to_string()),
            Step::CallDescribed(call) => shown.push(call.input_text().into_owned()),
            Step::CallProgressed(call) => shown.push(format!("{} items", call.content().len())),
            Step::CallEnded(call) => shown.push(call.result_text()),
            _ => {}
        });
        shown
    };
    let call = r#"{"sessionUpdate":"tool_call_update","toolCallId":"c","title":"T","rawInput":1,"content":[{}]}"#;
    let null = r#"{"sessionUpdate":"tool_call_update","toolCallId":"c","title":null,"rawInput":null,"content":null}"#;
    assert_eq!(
        shown(&[call, null]),
        ["1 items"; 1],
        "in v1 null keeps the member"
    );
    let running = r#"{"sessionUpdate":"state_update","state":"running"}"#;
    assert_eq!(shown(&[running, call, null]), ["1 items", "{}", "0 items"]);

    let paused = r#"{"sessionUpdate":"tool_call_update","toolCallId":"c","status":"paused"}"#;
    let diff = r#"{"sessionUpdate":"tool_call_update","toolCallId":"c","status":"completed","content":[{"type":"diff","changes":[{"operation":"delete","path":"/a"}]}]}"#;
    assert_eq!(shown(&[paused, diff]), ["delete /a\n"]);

    let ran = r#"{"sessionUpdate":"tool_call_update","toolCallId":"c","status":"completed","rawOutput":0,"_meta":{"terminal_output":{"terminal_id":"t","data":"ok"}}}"#;
    assert_eq!(shown(&[ran]), ["ok"]);

    let plan = |id: &str| {
        format!(r#"{{"sessionUpdate":"plan_update","plan":{{"planId":"{id}","content":""}}}}"#)
    };
    let gone = |id: &str| format!(r#"{{"sessionUpdate":"plan_removed","planId":"{id}"}}"#);
    let updates = [
        plan("a"),
        plan("b"),
        gone("a"),
        plan("c"),
        gone("c"),
        gone("b"),
    ];
    let expected = [
        r#"{"planId":"a","content":""}"#,
        r#"{"planId":"b","content":""}"#,
        r#"{"planId":"c","content":""}"#,
        r#"{"planId":"b","content":""}"#,
        r#"{"entries":[]}"#,
    ];
    assert_eq!(shown(&updates.each_ref().map(String::as_str)), expected);
}
