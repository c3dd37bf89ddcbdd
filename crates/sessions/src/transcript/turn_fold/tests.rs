//! Folds of turns.

use proptest::prelude::*;

use super::*;
use events::api::TurnItemBody;
use events::event::testing::{event, frame};

/// Folds events that are given as type and members.
fn fold(events: &[(&str, String)]) -> TurnFold {
    let mut fold = TurnFold::default();
    for (n, (kind, members)) in events.iter().enumerate() {
        fold.event(&event(&data(n, kind, members)));
    }
    fold
}

fn data(n: usize, kind: &str, members: &str) -> Vec<u8> {
    frame(n as u64, kind, Some(2), &time(n), members)
}

fn time(n: usize) -> String {
    format!("2026-11-21T22:15:{:02}.000Z", n % 60)
}

fn update(members: &str) -> (&'static str, String) {
    ("session.update", format!(r#""update":{{{members}}}"#))
}

fn chunk(kind: &str, id: Option<&str>, text: &str) -> (&'static str, String) {
    let id = id
        .map(|id| format!(r#","messageId":"{id}""#))
        .unwrap_or_default();
    let text = serde_json::to_string(text).unwrap();
    update(&format!(
        r#""sessionUpdate":"{kind}"{id},"content":{{"type":"text","text":{text}}}"#
    ))
}

fn say(text: &str) -> (&'static str, String) {
    chunk("agent_message_chunk", None, text)
}

fn items(events: &[(&str, String)]) -> Vec<String> {
    let turn = fold(events).finish().unwrap();
    turn.items
        .iter()
        .map(|item| serde_json::to_string(item).unwrap())
        .collect()
}

fn started() -> (&'static str, String) {
    (
        "prompt.started",
        r#""prompt":[{"type":"text","text":"hi"}],"by":"alice""#.to_owned(),
    )
}

#[test]
fn edited_prompt_is_shown_with_its_sender() {
    let queued = (
        "prompt.queued",
        r#""prompt":[{"type":"text","text":"a"}],"position":1,"by":"alice""#.to_owned(),
    );
    let edited = (
        "prompt.changed",
        r#""prompt":[{"type":"text","text":"b"}],"by":"bob""#.to_owned(),
    );
    let moved = ("prompt.changed", r#""before":null,"by":"bob""#.to_owned());
    let began = ("prompt.started", r#""by":"alice""#.to_owned());
    for (events, text, status) in [
        (
            &[queued.clone(), moved.clone()][..],
            "a",
            PromptStatus::Queued,
        ),
        (
            &[queued.clone(), edited.clone(), moved.clone()],
            "b",
            PromptStatus::Queued,
        ),
        (&[queued, moved, edited, began], "b", PromptStatus::Running),
    ] {
        let turn = fold(events).finish().unwrap();
        let prompt = format!(r#"[{{"type":"text","text":"{text}"}}]"#);
        assert_eq!(
            (turn.prompt.unwrap().get(), turn.status),
            (&*prompt, status)
        );
        assert_eq!(turn.by.as_deref(), Some("alice"));
    }
}

#[test]
fn complete_turn() {
    let events = [
        ("prompt.queued", r#""prompt":[{"type":"text","text":"\ud83d"}],"position":1,"by":"alice""#.to_owned()),
        ("prompt.started", r#""by":"alice""#.to_owned()),
        say(""),
        chunk("agent_thought_chunk", None, "Hm"),
        say("He"),
        say("llo"),
        update(r#""sessionUpdate":"plan","entries":[{"content":"a"}]"#),
        update(r#""sessionUpdate":"usage_update","used":1,"size":2"#),
        update(r#""sessionUpdate":"available_commands_update","availableCommands":[]"#),
        update(r#""sessionUpdate":"tool_call","toolCallId":"c:1","title":"Run","kind":"execute","status":"pending""#),
        ("request.created", r#""requestId":"r1","method":"session/request_permission","params":{"sessionId":"s","toolCall":{"toolCallId":"c:1","title":"Run it","status":null},"options":[{"optionId":"y","name":"Yes","kind":"allow_once"}]}"#.to_owned()),
        ("request.resolved", r#""requestId":"r1","method":"session/request_permission","resolution":"answered","by":"bob","result":{"outcome":{"outcome":"selected","optionId":"y"}}"#.to_owned()),
        update(r#""sessionUpdate":"tool_call_update","toolCallId":"c:1","status":"completed","content":[{"type":"content","content":{"type":"text","text":"ok"}}],"future":1.10"#),
        say("Done"),
        update(r#""sessionUpdate":"notice","severity":"info","title":"N""#),
        update(r#""sessionUpdate":"of_the_future","x":1e400"#),
        ("prompt.completed", r#""stopReason":"end_turn","result":{"stopReason":"end_turn"},"usage":{"totalTokens":3}"#.to_owned()),
        ("session.update", r#""update":{"sessionUpdate":"tool_call_update","toolCallId":"c2","title":"Late"},"late":true"#.to_owned()),
    ];
    insta::assert_snapshot!(items(&events).join("\n"), @r#"
    {"type":"message","role":"thought","content":[{"type":"text","text":"Hm"}]}
    {"type":"message","role":"agent","content":[{"type":"text","text":"Hello"}]}
    {"type":"tool_call","toolCall":{"toolCallId":"c:1","title":"Run it","kind":"execute","status":"completed","content":[{"type":"content","content":{"type":"text","text":"ok"}}],"future":1.10}}
    {"type":"request","requestId":"r1","method":"session/request_permission","toolCallId":"c:1","options":[{"optionId":"y","name":"Yes","kind":"allow_once"}],"createdAt":"2026-11-21T22:15:10.000Z","resolution":"answered","resolvedAt":"2026-11-21T22:15:11.000Z","by":"bob","result":{"outcome":{"outcome":"selected","optionId":"y"}}}
    {"type":"message","role":"agent","content":[{"type":"text","text":"Done"}]}
    {"type":"notice","notice":{"sessionUpdate":"notice","severity":"info","title":"N"}}
    {"type":"other","sessionUpdate":"of_the_future","update":{"sessionUpdate":"of_the_future","x":1e400}}
    {"type":"tool_call","toolCall":{"toolCallId":"c2","title":"Late"},"late":true}
    "#);
    let mut turn = fold(&events).finish().unwrap();
    turn.items.clear();
    insta::assert_snapshot!(serde_json::to_string_pretty(&turn).unwrap(), @r#"
    {
      "promptId": "p2",
      "status": "completed",
      "stopReason": "end_turn",
      "by": "alice",
      "createdAt": "2026-11-21T22:15:00.000Z",
      "endedAt": "2026-11-21T22:15:16.000Z",
      "prompt": [{"type":"text","text":"\ud83d"}],
      "items": [],
      "plan": {"sessionUpdate":"plan","entries":[{"content":"a"}]},
      "usage": {"totalTokens":3},
      "contextUsage": {"sessionUpdate":"usage_update","used":1,"size":2},
      "error": null,
      "truncated": false
    }
    "#);
}

#[test]
fn interleaved_messages_are_grouped_by_id() {
    let agent = |id, text| chunk("agent_message_chunk", Some(id), text);
    let items = items(&[
        started(),
        agent("a", "1"),
        agent("b", "x"),
        agent("a", "2"),
        chunk("agent_thought_chunk", Some("a"), "t"),
        agent("b", "y"),
    ]);
    assert_eq!(
        items,
        [
            r#"{"type":"message","role":"agent","messageId":"a","content":[{"type":"text","text":"12"}]}"#,
            r#"{"type":"message","role":"agent","messageId":"b","content":[{"type":"text","text":"xy"}]}"#,
            r#"{"type":"message","role":"thought","messageId":"a","content":[{"type":"text","text":"t"}]}"#,
        ]
    );
}

#[test]
fn update_of_known_call_does_not_split_message() {
    let call = |kind| {
        update(&format!(
            r#""sessionUpdate":"{kind}","toolCallId":"c","title":"T""#
        ))
    };
    let fold = fold(&[
        started(),
        call("tool_call"),
        say("He"),
        call("tool_call_update"),
        say("llo"),
    ]);
    assert_eq!(fold.text(), ("Hello".to_owned(), false));
    assert_eq!(fold.finish().unwrap().items.len(), 2);
}

#[test]
fn call_may_start_in_permission_request_or_update() {
    let permission = r#""requestId":"r1","method":"session/request_permission","params":{"toolCall":{"toolCallId":"g","kind":"edit"},"options":[]}"#;
    let items = items(&[
        started(),
        ("request.created", permission.to_owned()),
        update(r#""sessionUpdate":"tool_call_update","toolCallId":"g","status":"failed""#),
        update(r#""sessionUpdate":"tool_call_update","toolCallId":"h""#),
    ]);
    assert_eq!(
        [&items[0], &items[2]],
        [
            r#"{"type":"tool_call","toolCall":{"toolCallId":"g","kind":"edit","status":"failed"}}"#,
            r#"{"type":"tool_call","toolCall":{"toolCallId":"h"}}"#,
        ]
    );
    assert_eq!(items.len(), 3);
}

#[test]
fn id_of_an_ended_call_names_another_call() {
    let called = |kind: &str, title: &str, status: &str| {
        update(&format!(
            r#""sessionUpdate":"{kind}","toolCallId":"c","title":"{title}","status":"{status}""#
        ))
    };
    let permission = r#""requestId":"r1","method":"session/request_permission","params":{"toolCall":{"toolCallId":"c","title":"rm"},"options":[]}"#;
    let items = items(&[
        started(),
        called("tool_call", "ls", "completed"),
        called("tool_call_update", "ls .", "completed"),
        called("tool_call", "cat", "in_progress"),
        update(
            r#""sessionUpdate":"tool_call_update","toolCallId":"c","rawInput":{"command":"cat"}"#,
        ),
        ("request.created", permission.to_owned()),
        called("tool_call_update", "rm", "failed"),
    ]);
    assert_eq!(
        items[..2],
        [
            r#"{"type":"tool_call","toolCall":{"toolCallId":"c","title":"ls .","status":"completed"}}"#,
            // The request does not repeat the input, which is that of another title.
            r#"{"type":"tool_call","toolCall":{"toolCallId":"c","title":"rm","status":"failed"}}"#,
        ]
    );
    assert_eq!(items.len(), 3);
}

#[test]
fn compactions_grow_and_other_requests_keep_params() {
    let items = items(&[
        started(),
        update(r#""sessionUpdate":"compaction_update","compactionId":"k","status":"in_progress""#),
        update(
            r#""sessionUpdate":"compaction_summary_chunk","compactionId":"k","content":{"type":"text","text":"a"}"#,
        ),
        update(
            r#""sessionUpdate":"compaction_summary_chunk","compactionId":"k","content":{"type":"text","text":"b"}"#,
        ),
        update(r#""sessionUpdate":"compaction_update","compactionId":"k","status":"completed""#),
        ("request.created", r#""requestId":"r1","method":"_x/ask","params":[1]"#.to_owned()),
        (
            "request.resolved",
            r#""requestId":"r1","method":"_x/ask","resolution":"withdrawn","error":{"code":-32800}"#
                .to_owned(),
        ),
        ("session.attached", r#""by":"fresh","context":"lost","result":null"#.to_owned()),
    ]);
    assert_eq!(
        items[0],
        r#"{"type":"compaction","compaction":{"compactionId":"k","status":"completed"},"summary":[{"type":"text","text":"ab"}]}"#
    );
    assert_eq!(
        items[1],
        r#"{"type":"request","requestId":"r1","method":"_x/ask","params":[1],"createdAt":"2026-11-21T22:15:05.000Z","resolution":"withdrawn","resolvedAt":"2026-11-21T22:15:06.000Z","error":{"code":-32800}}"#
    );
    assert_eq!(
        items[2],
        r#"{"type":"context_lost","at":"2026-11-21T22:15:07.000Z"}"#
    );
}

#[test]
fn failed_turn_has_problem_and_ignores_other_turns() {
    let mut fold = fold(&[
        started(),
        (
            "prompt.failed",
            r#""problem":{"code":"agent_exited"}"#.to_owned(),
        ),
    ]);
    let update = r#""update":{"sessionUpdate":"notice","title":"x"}"#;
    for prompt in [Some(3), None] {
        fold.event(&event(&frame(
            9,
            "session.update",
            prompt,
            &time(9),
            update,
        )));
    }
    fold.event(&event(b"id: k-9\nevent: session.update\ndata: garbage\n\n"));
    let turn = fold.finish().unwrap();
    assert_eq!(
        (turn.status, turn.items.len(), turn.truncated),
        (PromptStatus::Failed, 0, false)
    );
    assert_eq!(turn.error.unwrap().get(), r#"{"code":"agent_exited"}"#);
    assert!(TurnFold::default().finish().is_none());
}

#[test]
fn turn_is_bounded_and_marked_truncated() {
    const BOUND: usize = 64 << 10;
    let bounded = |make: &dyn Fn(usize) -> (&'static str, String)| {
        let mut fold = TurnFold {
            items: Items::with_budget(BOUND),
            ..TurnFold::default()
        };
        for n in 0..2000 {
            let (kind, members) = if n == 0 { started() } else { make(n) };
            fold.event(&event(&data(n, kind, &members)));
        }
        fold.finish().unwrap()
    };
    let big = "x".repeat(1000);
    let turn = bounded(&|_| say(&big));
    assert!(turn.truncated);
    let held = serde_json::to_string(&turn).unwrap().len();
    assert!((BOUND / 2..BOUND + 4096).contains(&held), "{held}");

    let call = |n| {
        update(&format!(
            r#""sessionUpdate":"tool_call","toolCallId":"{n}""#
        ))
    };
    let turn = bounded(&call);
    assert!(
        turn.truncated && (10..1000).contains(&turn.items.len()),
        "{}",
        turn.items.len()
    );

    let mut fold = TurnFold {
        items: Items::with_budget(BOUND),
        ..TurnFold::default()
    };
    let output = update(&format!(
        r#""sessionUpdate":"tool_call","toolCallId":"c","rawOutput":"{}""#,
        "x".repeat(BOUND - 500)
    ));
    for (n, (kind, members)) in [started(), output, call(1), say("The answer")]
        .into_iter()
        .enumerate()
    {
        fold.event(&event(&data(n, kind, &members)));
    }
    assert_eq!(
        fold.text(),
        ("The answer".to_owned(), false),
        "tool output must not displace the answer"
    );

    let ask = |n| {
        (
            "request.created",
            format!(r#""requestId":"r{n}","method":"_x","params":{n}"#),
        )
    };
    assert!(bounded(&ask).truncated);
    assert!(!bounded(&|_| update(r#""sessionUpdate":"plan","entries":[]"#)).truncated);
}

fn by_child(child: &str, members: &str) -> (&'static str, String) {
    (
        "session.update",
        format!(r#""update":{{{members}}},"subagent":"{child}""#),
    )
}

#[test]
fn subagent_items_are_separate_from_agent_items() {
    let words = |text: &str| {
        format!(
            r#""sessionUpdate":"agent_message_chunk","content":{{"type":"text","text":"{text}"}}"#
        )
    };
    let call = r#""sessionUpdate":"tool_call","toolCallId":"c","title":"T""#;
    let events = [
        started(),
        say("He"),
        update(
            r#""sessionUpdate":"subagent_update","sessionId":"x","title":"Look","state":{"state":"running"}"#,
        ),
        by_child("x", &words("chi")),
        update(call),
        by_child("y", &words("other")),
        by_child("x", &words("ld")),
        by_child("x", &call.replace("\"T\"", "\"U\"")),
        by_child("x", r#""sessionUpdate":"plan","entries":[1]"#),
        by_child("x", r#""sessionUpdate":"usage_update","used":1"#),
        by_child("x", r#""sessionUpdate":"subagent_update","sessionId":"z""#),
        update(
            r#""sessionUpdate":"subagent_update","sessionId":"x","title":null,"state":{"state":"idle"}"#,
        ),
        say("llo"),
    ];
    assert_eq!(
        fold(&events).text().0,
        "He\n\nllo",
        "an item between two chunks starts a new message"
    );
    let turn = fold(&events).finish().unwrap();
    assert!(turn.plan.is_none() && turn.context_usage.is_none());
    insta::assert_snapshot!(items(&events).join("\n"), @r#"
    {"type":"message","role":"agent","content":[{"type":"text","text":"He"}]}
    {"type":"subagent","child":{"sessionId":"x","state":{"state":"idle"}}}
    {"type":"message","role":"agent","content":[{"type":"text","text":"child"}],"subagent":"x"}
    {"type":"tool_call","toolCall":{"toolCallId":"c","title":"T"}}
    {"type":"message","role":"agent","content":[{"type":"text","text":"other"}],"subagent":"y"}
    {"type":"tool_call","toolCall":{"toolCallId":"c","title":"U"},"subagent":"x"}
    {"type":"subagent","child":{"sessionId":"z"},"subagent":"x"}
    {"type":"message","role":"agent","content":[{"type":"text","text":"llo"}]}
    "#);
}

#[test]
fn session_messages_grow_by_id() {
    let chunk = |text: &str| {
        update(&format!(
            r#""sessionUpdate":"session_message_chunk","messageId":"m","content":{{"type":"text","text":"{text}"}},"_meta":{{"chunk":1}}"#
        ))
    };
    let upsert = |members: &str| {
        update(&format!(
            r#""sessionUpdate":"session_message","messageId":"m"{members}"#
        ))
    };
    let one = |events: &[(&'static str, String)]| items(&[&[started()], events].concat()).concat();
    assert_eq!(
        one(&[
            chunk("a"),
            upsert(r#","senderSessionId":"p","recipientSessionId":"c","x":1.10"#),
            chunk("b")
        ]),
        r#"{"type":"session_message","message":{"messageId":"m","senderSessionId":"p","recipientSessionId":"c","x":1.10},"content":[{"type":"text","text":"ab"}]}"#
    );
    assert_eq!(
        one(&[
            upsert(r#","senderSessionId":"p","content":[{"type":"text","text":"old"}]"#),
            upsert(r#","senderSessionId":null,"content":[{"type":"text","text":"new"}]"#),
        ]),
        r#"{"type":"session_message","message":{"messageId":"m"},"content":[{"type":"text","text":"new"}]}"#
    );
    assert_eq!(
        one(&[chunk("a"), upsert(r#","content":null"#)]),
        r#"{"type":"session_message","message":{"messageId":"m"},"content":[]}"#
    );
}

#[test]
fn null_clears_compaction_summary() {
    let compaction = |members: &str| {
        update(&format!(
            r#""sessionUpdate":"compaction_update","compactionId":"k","status":"failed"{members}"#
        ))
    };
    let items = items(&[
        started(),
        compaction(r#","error":"full","summary":[{"type":"text","text":"a"}]"#),
        compaction(r#","error":null,"summary":null"#),
    ]);
    assert_eq!(
        items,
        [
            r#"{"type":"compaction","compaction":{"compactionId":"k","status":"failed"},"summary":[]}"#
        ]
    );
}

#[test]
fn plan_is_the_one_that_changed_last() {
    let plan = |id: &str| {
        update(&format!(
            r#""sessionUpdate":"plan_update","plan":{{"planId":"{id}"}}"#
        ))
    };
    let removed = update(r#""sessionUpdate":"plan_removed","planId":"b""#);
    let shown = |events: &[(&'static str, String)]| {
        let turn = fold(&[&[started()], events].concat()).finish().unwrap();
        turn.plan.map(|plan| plan.get().to_owned())
    };
    assert_eq!(
        shown(&[plan("a"), plan("b")]).as_deref(),
        Some(r#"{"planId":"b"}"#)
    );
    assert_eq!(
        shown(&[plan("a"), plan("b"), removed.clone()]).as_deref(),
        Some(r#"{"planId":"a"}"#)
    );
    assert_eq!(shown(&[plan("b"), removed]), None);
}

proptest! {
    #[test]
    fn chunking_does_not_change_message(
        text in "\\PC{0,40}",
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..6),
    ) {
        let whole: Vec<char> = text.chars().collect();
        let mut places: Vec<usize> = cuts.iter().map(|cut| cut.index(whole.len() + 1)).collect();
        places.extend([0, whole.len()]);
        places.sort_unstable();
        let parts = places.windows(2).map(|ends| whole[ends[0]..ends[1]].iter().collect::<String>());
        let mut events = vec![started()];
        events.extend(parts.map(|part| say(&part)));
        let cut = fold(&events);
        let straight = fold(&[started(), say(&text)]);
        prop_assert_eq!(cut.text().0, text);
        let json = |fold: TurnFold| serde_json::to_string(&fold.finish().unwrap()).unwrap();
        prop_assert_eq!(json(cut), json(straight));
    }

    #[test]
    fn arbitrary_updates_do_not_stop_fold(members in prop::collection::vec(
        ("[a-z_]{1,4}|content|toolCallId|compactionId|summary|messageId|sessionId|entries|plan",
         "[0-9]{1,3}|null|\\[\\]|\\{\\}|\"\\\\\\\\ud800\"|\"a\"|\\[1,\\{\\}\\]"), 0..6),
        kind in "agent_message_chunk|tool_call|tool_call_update|plan|plan_update|compaction_update|notice|subagent_update|session_message|x",
    ) {
        let members: Vec<String> = members.iter().map(|(k, v)| format!("\"{k}\":{v}")).collect();
        let one = update(&[vec![format!(r#""sessionUpdate":"{kind}""#)], members].concat().join(","));
        let turn = fold(&[started(), one.clone(), one]).finish().unwrap();
        prop_assert!(serde_json::from_str::<&RawValue>(&serde_json::to_string(&turn).unwrap()).is_ok());
        let known = turn.items.iter().filter(|item| !matches!(item.body, TurnItemBody::Other(_))).count();
        prop_assert!(known <= 2);
    }
}

fn ended_with(kind: &'static str, members: &str) -> Vec<String> {
    items(&[
        started(),
        update(r#""sessionUpdate":"tool_call","toolCallId":"a","title":"Run","status":"in_progress""#),
        update(r#""sessionUpdate":"tool_call","toolCallId":"b","status":"completed""#),
        update(r#""sessionUpdate":"tool_call","toolCallId":"c","title":"Asked""#),
        (kind, members.to_owned()),
        (
            "session.update",
            r#""update":{"sessionUpdate":"tool_call","toolCallId":"d","status":"pending"},"late":true"#
                .to_owned(),
        ),
    ])
}

#[test]
fn open_tool_calls_are_settled_when_the_turn_ends() {
    let cancelled = ended_with(
        "prompt.completed",
        r#""stopReason":"cancelled","result":{}"#,
    );
    insta::assert_snapshot!(cancelled.join("\n"), @r#"
    {"type":"tool_call","toolCall":{"toolCallId":"a","title":"Run","status":"failed"},"settled":"cancelled"}
    {"type":"tool_call","toolCall":{"toolCallId":"b","status":"completed"}}
    {"type":"tool_call","toolCall":{"toolCallId":"c","title":"Asked","status":"failed"},"settled":"cancelled"}
    {"type":"tool_call","toolCall":{"toolCallId":"d","status":"pending"},"late":true}
    "#);
    let unfinished = ended_with("prompt.failed", r#""problem":{"code":"agent_exited"}"#);
    assert!(
        unfinished[0].contains(r#""status":"failed"},"settled":"unfinished""#),
        "{}",
        unfinished[0]
    );
    let running = ended_with("agent.exited", "");
    assert!(
        running[0].contains(r#""status":"in_progress"}}"#),
        "a running turn settles no call: {}",
        running[0]
    );
}

#[test]
fn late_tool_call_end_outranks_settlement() {
    let late = r#""update":{"sessionUpdate":"tool_call_update","toolCallId":"a","status":"completed"},"late":true"#;
    let items = items(&[
        started(),
        update(r#""sessionUpdate":"tool_call","toolCallId":"a","status":"in_progress""#),
        (
            "prompt.completed",
            r#""stopReason":"cancelled","result":{}"#.to_owned(),
        ),
        ("session.update", late.to_owned()),
    ]);
    assert_eq!(
        items,
        [r#"{"type":"tool_call","toolCall":{"toolCallId":"a","status":"completed"}}"#]
    );
}

#[test]
fn command_output_in_meta_is_folded_into_its_tool_call() {
    let items = items(&[
        started(),
        update(
            r#""sessionUpdate":"tool_call","toolCallId":"a","_meta":{"claudeCode":{"toolName":"Bash"},"terminal_info":{"terminal_id":"a"}}"#,
        ),
        update(
            r#""sessionUpdate":"tool_call_update","toolCallId":"a","_meta":{"terminal_output_delta":{"terminal_id":"a","data":"hi\n"}}"#,
        ),
        update(
            r#""sessionUpdate":"tool_call_update","toolCallId":"a","_meta":{"terminal_output_delta":{"terminal_id":"a","data":"bin\n"}}"#,
        ),
        update(
            r#""sessionUpdate":"tool_call_update","toolCallId":"a","status":"completed","_meta":{"terminal_exit":{"terminal_id":"a","exit_code":0,"signal":null}}"#,
        ),
    ]);
    insta::assert_snapshot!(items.join("\n"), @r#"{"type":"tool_call","toolCall":{"toolCallId":"a","_meta":{"claudeCode":{"toolName":"Bash"}},"status":"completed"},"commands":[{"terminalId":"a","output":"hi\nbin\n","truncated":false,"exitStatus":{"exitCode":0,"signal":null}}]}"#);
}
