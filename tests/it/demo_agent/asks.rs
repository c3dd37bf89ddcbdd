//! Requests of the agent to its client: forms, pages, files, terminals, and names of its own.

use serde_json::{Value, json};

use super::client::{Demo, everything};

fn refused() -> Value {
    json!({ "code": -32603, "message": "not <today>" })
}

/// Allows each permission request, and answers other requests with `serve`.
fn allowing(
    mut serve: impl FnMut(&str, &Value) -> Result<Value, Value>,
) -> impl FnMut(&str, &Value) -> Result<Value, Value> {
    move |method, params| match method {
        "session/request_permission" => {
            Ok(json!({ "outcome": { "outcome": "selected", "optionId": "allow_once" } }))
        }
        other => serve(other, params),
    }
}

fn methods(asked: &[(String, Value)]) -> Vec<&str> {
    asked.iter().map(|(method, _)| method.as_str()).collect()
}

#[test]
fn a_form_has_a_field_of_every_kind_and_its_answer_is_read() {
    let home = tempfile::tempdir().unwrap();
    let mut demo = Demo::start(home.path());
    let session = demo.session("/w");
    let content = json!({
        "name": "Ada <b>", "email": "ada@example.org", "colour": "blue", "guests": 3, "budget": 12.5,
        "music": false, "toppings": ["olives", "basil"],
    });
    let (result, asked) = demo.played(&session, "/form", |_, _| {
        Ok(json!({ "action": "accept", "content": content }))
    });
    assert_eq!(result["stopReason"], "end_turn");
    let text = demo.agent_text();
    for line in [
        "- “name”: “Ada \\<b\\>”",
        "- “guests”: 3\n",
        "- “budget”: 12.5\n",
        "- “music”: no\n",
        "olives, basil",
    ] {
        assert!(text.contains(line), "{line} is not in {text}");
    }
    assert_eq!(methods(&asked), ["elicitation/create"]);
    let (_, params) = &asked[0];
    assert_eq!(
        (&params["mode"], &params["sessionId"]),
        (&json!("form"), &json!(session))
    );
    let schema = &params["requestedSchema"];
    assert_eq!(schema["required"], json!(["name", "colour", "guests"]));
    let fields = schema["properties"].as_object().unwrap();
    let mut kinds: Vec<String> = fields
        .values()
        .map(|field| {
            let narrowed = [
                "format",
                "pattern",
                "enum",
                "oneOf",
                "minLength",
                "minimum",
                "items",
            ];
            let by: Vec<&str> = narrowed
                .into_iter()
                .filter(|key| field.get(*key).is_some())
                .collect();
            let titled = if field["items"].get("anyOf").is_some() {
                " titled"
            } else {
                ""
            };
            let format = field["format"].as_str().unwrap_or_default();
            format!(
                "{} {}{format}{titled}",
                field["type"].as_str().unwrap(),
                by.join(" ")
            )
        })
        .collect();
    kinds.sort();
    assert_eq!(
        kinds,
        [
            "array items",
            "array items titled",
            "boolean ",
            "integer minimum",
            "number minimum",
            "string enum",
            "string formatdate",
            "string formatdate-time",
            "string formatemail",
            "string formaturi",
            "string minLength",
            "string oneOf",
            "string pattern",
        ]
    );

    for (answer, expected) in [
        (json!({ "action": "decline" }), "You declined"),
        (json!({ "action": "cancel" }), "You cancelled the form"),
        (json!({ "action": "accept" }), "nothing at all"),
    ] {
        demo.played(&session, "/form short", |_, _| Ok(answer.clone()));
        assert!(
            demo.agent_text().contains(expected),
            "{}",
            demo.agent_text()
        );
    }
    demo.played(&session, "/form", |_, _| Err(refused()));
    assert!(
        demo.agent_text()
            .contains("did not ask: “not \\<today\\>” (-32603)"),
        "{}",
        demo.agent_text()
    );
}

#[test]
fn a_page_is_opened_and_done_with() {
    let home = tempfile::tempdir().unwrap();
    let mut demo = Demo::start(home.path());
    let session = demo.session("/w");
    let (_, asked) = demo.played(&session, "/link", |_, _| Ok(json!({ "action": "accept" })));
    let (_, params) = &asked[0];
    assert_eq!(params["mode"], "url");
    assert!(
        params["url"]
            .as_str()
            .unwrap()
            .starts_with("https://example.com/demo?for=page-"),
        "{params}"
    );
    let completed: Vec<&Value> = demo
        .seen
        .iter()
        .filter(|message| message["method"] == "elicitation/complete")
        .collect();
    assert_eq!(completed.len(), 1);
    assert_eq!(
        completed[0]["params"]["elicitationId"],
        params["elicitationId"]
    );

    demo.played(&session, "/link", |_, _| Ok(json!({ "action": "decline" })));
    assert!(
        demo.agent_text().contains("You declined to open it")
            && demo
                .seen
                .iter()
                .all(|m| m["method"] != "elicitation/complete")
    );
}

#[test]
fn files_are_read_and_written_by_the_client() {
    let home = tempfile::tempdir().unwrap();
    let mut demo = Demo::start(home.path());
    let session = demo.session("/w");
    let (_, asked) = demo.played(&session, "/read 'my notes.txt' 3 2", |_, _| {
        Ok(json!({ "content": "c ``` ü\nd\n" }))
    });
    assert_eq!(
        asked,
        [(
            "fs/read_text_file".to_owned(),
            json!({ "sessionId": session, "path": "/w/my notes.txt", "line": 3, "limit": 2 })
        )]
    );
    assert_eq!(
        demo.updates("tool_call")[0]["locations"],
        json!([{ "path": "/w/my notes.txt", "line": 3 }])
    );
    let read = demo.updates("tool_call_update")[0]["content"][0]["content"]["text"].clone();
    assert_eq!(read, "````\nc ``` ü\nd\n````");
    assert!(
        demo.agent_text()
            .contains("10 characters here, and 2 lines"),
        "{}",
        demo.agent_text()
    );

    let (_, asked) = demo.played(
        &session,
        "/write a.txt one  two\nthree",
        allowing(|method, _| match method {
            "fs/read_text_file" => Ok(json!({ "content": "old\n" })),
            _ => Ok(Value::Null),
        }),
    );
    assert_eq!(
        methods(&asked),
        [
            "fs/read_text_file",
            "session/request_permission",
            "fs/write_text_file"
        ]
    );
    let diff = json!([{ "type": "diff", "path": "/w/a.txt", "oldText": "old\n", "newText": "one  two\nthree\n" }]);
    assert_eq!(asked[1].1["toolCall"]["content"], diff);
    assert_eq!(
        asked[2].1,
        json!({ "sessionId": session, "path": "/w/a.txt", "content": "one  two\nthree\n" })
    );
    assert_eq!(
        demo.updates("tool_call_update").last().unwrap()["status"],
        "completed"
    );

    let (_, asked) = demo.played(&session, "/write a.txt x", |method, _| match method {
        "session/request_permission" => {
            Ok(json!({ "outcome": { "outcome": "selected", "optionId": "reject_once" } }))
        }
        _ => Err(refused()),
    });
    assert_eq!(
        methods(&asked),
        ["fs/read_text_file", "session/request_permission"],
        "no means no"
    );
    for text in ["/read gone", "/write gone x"] {
        demo.played(&session, text, allowing(|_, _| Err(refused())));
        let last = demo
            .updates("tool_call_update")
            .last()
            .copied()
            .cloned()
            .unwrap();
        assert_eq!(
            (&last["status"], demo.agent_text().contains("I could not")),
            (&json!("failed"), true),
            "{last}"
        );
    }
}

#[test]
fn a_command_runs_in_a_terminal_of_the_client_until_it_ends() {
    let home = tempfile::tempdir().unwrap();
    let mut demo = Demo::start(home.path());
    let session = demo.session("/w");
    let serve = |method: &str, _: &Value| {
        Ok(match method {
            "terminal/create" => json!({ "terminalId": "t9" }),
            "terminal/wait_for_exit" => json!({ "exitCode": 3 }),
            "terminal/output" => {
                json!({ "output": "hi\n", "truncated": true, "exitStatus": { "exitCode": 3 } })
            }
            _ => Value::Null,
        })
    };
    let (_, asked) = demo.played(&session, "/run sh -c 'echo hi; exit 3'", allowing(serve));
    assert_eq!(
        methods(&asked),
        [
            "session/request_permission",
            "terminal/create",
            "terminal/wait_for_exit",
            "terminal/output",
            "terminal/release"
        ]
    );
    let created = &asked[1].1;
    assert_eq!(
        (&created["command"], &created["args"], &created["cwd"]),
        (
            &json!("sh"),
            &json!(["-c", "echo hi; exit 3"]),
            &json!("/w")
        )
    );
    assert!(
        created["outputByteLimit"].as_u64().unwrap() > 0 && created["env"][0]["name"] == "ACP_DEMO"
    );
    let updates = demo.updates("tool_call_update");
    assert_eq!(
        updates[0]["content"],
        json!([{ "type": "terminal", "terminalId": "t9" }])
    );
    assert_eq!(
        (&updates[1]["status"], &updates[1]["rawOutput"]["exitCode"]),
        (&json!("failed"), &json!(3))
    );
    assert!(
        demo.agent_text()
            .contains("exit code 3, after 3 bytes of output, of which"),
        "{}",
        demo.agent_text()
    );

    let (_, asked) = demo.played(&session, "/run ls", allowing(|_, _| Err(refused())));
    assert_eq!(
        methods(&asked),
        ["session/request_permission", "terminal/create"]
    );
    assert!(
        demo.agent_text().contains("could not be started"),
        "{}",
        demo.agent_text()
    );
}

#[test]
fn command_is_killed_at_its_timeout() {
    let home = tempfile::tempdir().unwrap();
    let mut demo = Demo::start(home.path());
    let session = demo.session("/w");
    demo.call(
        "session/set_mode",
        &json!({ "sessionId": session, "modeId": "auto" }),
    );
    let mut killed = false;
    let (_, asked) = demo.played(&session, "/timeout 1 sleep 60", |method, _| {
        killed |= method == "terminal/kill";
        Ok(match method {
            "terminal/create" => json!({ "terminalId": "t1" }),
            "terminal/output" if killed => {
                json!({ "output": "", "truncated": false, "exitStatus": { "exitCode": null, "signal": "SIGKILL" } })
            }
            "terminal/output" => json!({ "output": "", "truncated": false }),
            "terminal/wait_for_exit" => json!({ "exitCode": null, "signal": "SIGKILL" }),
            _ => json!({}),
        })
    });
    let order: Vec<&str> = methods(&asked)
        .into_iter()
        .filter(|method| *method != "terminal/output")
        .collect();
    assert_eq!(
        order,
        [
            "terminal/create",
            "terminal/kill",
            "terminal/wait_for_exit",
            "terminal/release"
        ]
    );
    assert!(
        demo.agent_text().contains("by the signal SIGKILL"),
        "{}",
        demo.agent_text()
    );
}

#[test]
fn cancelled_turn_withdraws_its_request_and_releases_its_terminal() {
    let home = tempfile::tempdir().unwrap();
    let mut demo = Demo::start(home.path());
    let session = demo.session("/w");
    demo.call(
        "session/set_mode",
        &json!({ "sessionId": session, "modeId": "auto" }),
    );
    let turn = demo.prompt(&session, "/run sleep 60");
    let created = demo.until(|message| message["method"] == "terminal/create");
    demo.line(
        &json!({ "jsonrpc": "2.0", "id": created["id"], "result": { "terminalId": "t1" } })
            .to_string(),
    );
    let waits = demo.until(|message| message["method"] == "terminal/wait_for_exit");
    demo.notify("session/cancel", &json!({ "sessionId": session }));
    let cancel = demo.until(|message| message["method"] == "$/cancel_request");
    assert_eq!(cancel["params"]["requestId"], waits["id"]);
    let release = demo.until(|message| message["method"] == "terminal/release");
    assert_eq!(release["params"]["terminalId"], "t1");
    demo.line(&json!({ "jsonrpc": "2.0", "id": release["id"], "result": null }).to_string());
    assert_eq!(demo.response(turn)["result"]["stopReason"], "cancelled");
}

#[test]
fn request_is_withdrawn_unless_an_answer_is_first() {
    let home = tempfile::tempdir().unwrap();
    let mut demo = Demo::start(home.path());
    let session = demo.session("/w");
    let turn = demo.prompt(&session, "/withdraw 1");
    let question = demo.question();
    let cancel = demo.until(|message| message["method"] == "$/cancel_request");
    assert_eq!(cancel["params"]["requestId"], question["id"]);
    demo.choose(&question, "allow_once");
    assert_eq!(demo.response(turn)["result"]["stopReason"], "end_turn");
    assert!(
        demo.agent_text().contains("I cancelled the request"),
        "{}",
        demo.agent_text()
    );

    let turn = demo.prompt(&session, "/withdraw 60");
    let question = demo.question();
    demo.choose(&question, "reject_once");
    assert_eq!(demo.response(turn)["result"]["stopReason"], "end_turn");
    assert!(
        demo.agent_text().contains("You were quicker"),
        "{}",
        demo.agent_text()
    );
}

#[test]
fn unknown_methods_and_notifications_reach_clients() {
    let home = tempfile::tempdir().unwrap();
    let mut demo = Demo::start(home.path());
    let session = demo.session("/w");
    let (_, asked) = demo.played(&session, "/ext", |_, _| Ok(json!({ "answer": 42 })));
    assert_eq!(methods(&asked), ["_demo/ask"]);
    let noted: Vec<&Value> = demo
        .seen
        .iter()
        .filter(|message| message["method"] == "_demo/note")
        .collect();
    assert_eq!(
        (noted.len(), &noted[0]["params"]["sessionId"]),
        (1, &json!(session))
    );
    assert!(
        demo.agent_text()
            .contains("```json\n{\n  \"answer\": 42\n}\n```"),
        "{}",
        demo.agent_text()
    );
    demo.played(&session, "/ext", |_, _| {
        Err(json!({ "code": -32601, "message": "Method not found" }))
    });
    assert!(
        demo.agent_text().contains("There was no answer") && demo.agent_text().contains("-32601"),
        "{}",
        demo.agent_text()
    );
}

#[test]
fn client_capability_that_is_missing_is_not_used() {
    let home = tempfile::tempdir().unwrap();
    let mut demo = Demo::start(home.path());
    demo.initialize(&json!({}));
    let session = demo.session("/w");
    demo.call(
        "session/set_mode",
        &json!({ "sessionId": session, "modeId": "auto" }),
    );
    for text in [
        "/form",
        "/link",
        "/read a",
        "/write a b",
        "/run ls",
        "/timeout 1 ls",
        "/plans",
        "/notice",
        "/compact",
        "/subagent",
    ] {
        let (result, asked) = demo.played(&session, text, |_, _| Err(refused()));
        assert_eq!(
            (&result["stopReason"], asked.len()),
            (&json!("end_turn"), 0),
            "{text}"
        );
        assert!(
            demo.agent_text().contains("did not offer"),
            "{text}: {}",
            demo.agent_text()
        );
        for kind in [
            "plan_update",
            "notice",
            "compaction_update",
            "subagent_update",
            "tool_call",
        ] {
            assert!(demo.updates(kind).is_empty(), "{text}: {kind}");
        }
    }
    // A mode that exists and is not offered is not used either.
    let mut capabilities = everything();
    capabilities["elicitation"] = json!({ "url": {} });
    demo.initialize(&capabilities);
    let session = demo.session("/w");
    let (_, asked) = demo.played(&session, "/form", |_, _| Err(refused()));
    assert!(asked.is_empty());
}
