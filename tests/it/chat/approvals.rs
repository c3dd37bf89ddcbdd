//! Permission requests: one session through all protocols, and the first answer.

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use super::{
    AG_UI, AI_SDK, COMPLETIONS, RESPONSES, body, completion, frames, post, run_input, text,
    ui_messages,
};
use crate::key_life::key;
use crate::support::wait::{LONGEST, eventually};
use crate::support::{Gateway, Setup};

/// A session whose turn waits for an answer. Returns its id and the name of the option that permits the call.
async fn waiting(gateway: &Gateway) -> String {
    let session = gateway.session("fake").await;
    gateway.prompt(&session, "permission").await;
    eventually("a request", LONGEST, || async {
        let open = gateway
            .get(&format!("/v1/sessions/{session}/requests"))
            .await;
        (open["requests"].as_array().expect("a list").len() == 1).then_some(())
    })
    .await;
    session
}

async fn resume(gateway: &Gateway, session: &str) -> Vec<Value> {
    frames(&body(gateway.request(Method::GET, &format!("{AI_SDK}/{session}/stream"))).await)
}

fn last<'a>(frames: &'a [Value], kind: &str) -> &'a Value {
    frames
        .iter()
        .rfind(|frame| frame["type"] == kind)
        .unwrap_or_else(|| panic!("no {kind}: {frames:?}"))
}

/// The message with the answer, as `useChat` sends it.
fn ui_answer(session: &str, approved: bool) -> Value {
    let part = json!({ "type": "dynamic-tool", "toolCallId": "x", "state": "approval-responded",
        "approval": { "id": format!("{session}_p1_r1"), "approved": approved } });
    json!({ "id": session, "messages": [{ "id": "of the client", "role": "assistant", "parts": [part] }] })
}

fn run_answer(session: &str, payload: &Value) -> Value {
    let mut input = run_input(session, "answer", &[]);
    input["resume"] = json!([{ "interruptId": format!("{session}_p1_r1"), "status": "resolved", "payload": payload }]);
    input
}

fn response_answer(session: &str, approve: bool) -> Value {
    let answer = json!({ "type": "mcp_approval_response", "approval_request_id": format!("mcpr_{session}_p1_r1"), "approve": approve });
    json!({ "model": "fake", "previous_response_id": format!("resp_{session}_p1"), "input": [answer], "stream": true })
}

/// The answers that the agent got.
async fn answers(gateway: &Gateway, session: &str) -> Vec<Value> {
    let events = gateway.all_events(session).await;
    events
        .into_iter()
        .filter(|event| event["type"] == "request.resolved")
        .collect()
}

#[tokio::test]
async fn open_request_is_visible_through_each_protocol_and_answered_through_any() {
    let gateway = Setup::fake(&[]).start();
    for answered_by in ["rest", "ai-sdk", "responses", "ag-ui"] {
        let session = waiting(&gateway).await;
        let shown = resume(&gateway, &session).await;
        let question = format!("{session}_p1_r1");
        let shown_question = &last(&shown, "tool-approval-request")["approvalId"];
        assert_eq!(*shown_question, question);
        assert_eq!(last(&shown, "finish")["finishReason"], "tool-calls");
        let run = frames(&post(&gateway, AG_UI, &run_input(&session, "look", &[])).await);
        let outcome = &last(&run, "RUN_FINISHED")["outcome"];
        assert_eq!(
            (&outcome["type"], &outcome["interrupts"][0]["id"]),
            (&json!("interrupt"), &json!(question))
        );
        let path = format!("{RESPONSES}/resp_{session}_p1");
        let first = gateway.get(&path).await;
        let output = first["output"].as_array().expect("items");
        assert!(
            output
                .iter()
                .any(|item| item["type"] == "mcp_approval_request"),
            "{first}"
        );
        match answered_by {
            "rest" => {
                let path = format!("/v1/sessions/{session}/permissions/r1");
                let option = run[0..].iter().find_map(|frame| {
                    let options =
                        frame["outcome"]["interrupts"][0]["metadata"]["options"].as_array()?;
                    options
                        .iter()
                        .find(|option| option["kind"] == "allow_once")
                        .cloned()
                });
                let option = option.expect("an option")["optionId"].clone();
                let (status, problem) = gateway.post(&path, &json!({ "optionId": option })).await;
                assert_eq!(status, StatusCode::NO_CONTENT, "{problem}");
            }
            "ai-sdk" => {
                let rest = frames(&post(&gateway, AI_SDK, &ui_answer(&session, true)).await);
                assert_eq!(
                    rest[0]["messageId"],
                    format!("{session}_p1"),
                    "the same message continues"
                );
                assert_eq!(last(&rest, "finish")["finishReason"], "stop");
                assert!(text(&rest).starts_with("permission: allow"), "{rest:?}");
            }
            "responses" => {
                let rest =
                    frames(&post(&gateway, RESPONSES, &response_answer(&session, true)).await);
                assert_eq!(rest[0]["response"]["id"], format!("resp_{session}_p1_2"));
                assert_eq!(
                    last(&rest, "response.completed")["response"]["status"],
                    "completed"
                );
                assert!(text(&rest).starts_with("permission: allow"), "{rest:?}");
            }
            _ => {
                let rest = frames(
                    &post(
                        &gateway,
                        AG_UI,
                        &run_answer(&session, &json!({ "approved": true })),
                    )
                    .await,
                );
                assert_eq!(rest[0]["type"], "RUN_STARTED");
                assert_eq!(last(&rest, "RUN_FINISHED")["outcome"]["type"], "success");
                assert!(text(&rest).starts_with("permission: allow"), "{rest:?}");
                let results = rest
                    .iter()
                    .filter(|frame| frame["type"] == "TOOL_CALL_RESULT")
                    .count();
                assert_eq!(results, 1, "{rest:?}");
            }
        }
        // The others end properly, also if they answer too late.
        let late = frames(&post(&gateway, AI_SDK, &ui_answer(&session, false)).await);
        assert_eq!(last(&late, "finish")["finishReason"], "stop");
        let late = frames(
            &post(
                &gateway,
                AG_UI,
                &run_answer(&session, &json!({ "approved": false })),
            )
            .await,
        );
        assert_eq!(last(&late, "RUN_FINISHED")["outcome"]["type"], "success");
        let late = frames(&post(&gateway, RESPONSES, &response_answer(&session, false)).await);
        assert_eq!(
            last(&late, "response.completed")["response"]["status"],
            "completed"
        );
        let answers = answers(&gateway, &session).await;
        assert_eq!(answers.len(), 1, "{answers:?}");
        assert_eq!(answers[0]["result"]["outcome"]["outcome"], "selected");
    }
}

#[tokio::test]
async fn denied_call_ends_and_no_option_that_permits_is_selected() {
    let gateway = Setup::fake(&[]).start();
    let session = waiting(&gateway).await;
    let open = gateway
        .get(&format!("/v1/sessions/{session}/requests"))
        .await;
    let options = open["requests"][0]["params"]["options"]
        .as_array()
        .expect("options")
        .clone();
    let allows = options
        .iter()
        .find(|option| option["kind"] == "allow_once")
        .expect("an option");
    // The text of a no can be the id of an option.
    let mut answer = ui_answer(&session, false);
    answer["messages"][0]["parts"][0]["approval"]["reason"] = allows["optionId"].clone();
    let rest = frames(&post(&gateway, AI_SDK, &answer).await);
    assert!(text(&rest).contains("reject"), "{rest:?}");
    let ended = rest.iter().any(|frame| {
        frame["type"] == "tool-output-error" || frame["type"] == "tool-output-available"
    });
    assert!(ended, "the client would send its answer again: {rest:?}");
}

#[tokio::test]
async fn deadline_answers_and_the_response_goes_on() {
    let gateway = Setup::fake_with(&[], "permissions = { timeout = \"1s\" }").start();
    let request = completion(&["permission"], true);
    let shown = frames(&post(&gateway, COMPLETIONS, &request).await);
    let reasoning: String = shown
        .iter()
        .filter_map(|frame| frame["choices"][0]["delta"]["reasoning_content"].as_str())
        .collect();
    assert!(
        reasoning.contains("asks for permission") && reasoning.contains("/#/s/"),
        "{reasoning}"
    );
    assert!(text(&shown).starts_with("permission: "), "{shown:?}");
    let first = frames(&post(&gateway, AI_SDK, &ui_messages("c", &["permission"])).await);
    let session = first[0]["messageMetadata"]["sessionId"]
        .as_str()
        .expect("an id")
        .to_owned();
    eventually("the end", LONGEST, || async {
        let session = gateway.get(&format!("/v1/sessions/{session}")).await;
        session["promptId"].is_null().then_some(())
    })
    .await;
    let late = frames(&post(&gateway, AI_SDK, &ui_answer(&session, true)).await);
    assert_eq!(last(&late, "finish")["finishReason"], "stop");
}

#[tokio::test]
async fn key_without_the_scope_cannot_answer() {
    let gateway = Setup::fake(&[]).start();
    let session = waiting(&gateway).await;
    let key = key(&gateway, "writer", "read,prompt").await;
    let as_writer = |path: &str| {
        gateway
            .http
            .post(format!("{}{path}", gateway.url))
            .bearer_auth(&key)
    };
    let response = as_writer(AI_SDK)
        .json(&ui_answer(&session, true))
        .send()
        .await
        .expect("an answer");
    assert_eq!(response.status(), StatusCode::FORBIDDEN);
    assert_eq!(
        response.text().await.expect("a body"),
        "this key does not have the scope approve"
    );
    let response = as_writer(AG_UI)
        .json(&run_answer(&session, &json!({ "approved": true })))
        .send()
        .await;
    let response = response.expect("an answer");
    assert_eq!(response.status(), StatusCode::FORBIDDEN);
    assert_eq!(
        response.json::<Value>().await.expect("JSON")["error"]["type"],
        "permission_error"
    );
    assert!(
        answers(&gateway, &session).await.is_empty(),
        "the request stays open"
    );
}

#[tokio::test]
async fn new_message_ends_the_question_or_is_rejected() {
    let gateway = Setup::fake(&[]).start();
    post(&gateway, AI_SDK, &ui_messages("c", &["permission"])).await;
    let next = frames(
        &post(
            &gateway,
            AI_SDK,
            &ui_messages("c", &["permission", "echo on"]),
        )
        .await,
    );
    assert_eq!(text(&next), "on");
    post(&gateway, AG_UI, &run_input("t", "one", &["permission"])).await;
    let (status, problem) = gateway
        .post(AG_UI, &run_input("t", "two", &["permission", "echo on"]))
        .await;
    assert_eq!(
        (status, &problem["error"]["code"]),
        (StatusCode::CONFLICT, &json!("turn_running"))
    );
}

/// An edit of the message that led to the question. The question is that of a session that the client has left.
#[tokio::test]
async fn edit_ends_the_question_of_the_message_before() {
    let gateway = Setup::fake(&[]).start();
    let chat = |word: &str| {
        let part = json!([{ "type": "text", "text": word }]);
        json!({ "id": "c", "messages": [{ "id": "m", "role": "user", "parts": part }] })
    };
    post(&gateway, AI_SDK, &chat("permission")).await;
    let [session] = &super::sessions(&gateway).await[..] else {
        panic!("one session")
    };
    post(&gateway, AI_SDK, &chat("echo on")).await;
    gateway
        .log_until(session, |event| {
            event["type"] == "request.resolved" && event["resolution"] == "cancelled"
        })
        .await;
    post(&gateway, AG_UI, &run_input("t", "one", &["echo first"])).await;
    let asking = run_input("t", "two", &["echo first", "permission"]);
    post(&gateway, AG_UI, &asking).await;
    let edited = run_input("t", "three", &["echo first", "echo on"]);
    let (status, problem) = gateway.post(AG_UI, &edited).await;
    assert_eq!(status, StatusCode::CONFLICT, "{problem}");
}

/// An answer and a new message in one run: neither is lost.
#[tokio::test]
async fn answer_beside_a_new_message_is_rejected() {
    let gateway = Setup::fake(&[]).start();
    post(&gateway, AG_UI, &run_input("t", "one", &["permission"])).await;
    let session = super::sessions(&gateway).await.remove(0);
    let run = |texts: &[&str]| {
        let mut input = run_input("t", "two", texts);
        input["resume"] = json!([{ "interruptId": format!("{session}_p1_r1"), "status": "resolved", "payload": { "approved": true } }]);
        input
    };
    let (status, problem) = gateway.post(AG_UI, &run(&["permission", "echo on"])).await;
    assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY, "{problem}");
    assert!(answers(&gateway, &session).await.is_empty());
    post(&gateway, AG_UI, &run(&["permission"])).await;
    assert_eq!(answers(&gateway, &session).await.len(), 1);
}

/// A message to a session in which the agent waits for an answer to another client would wait without an end.
#[tokio::test]
async fn message_beside_a_question_to_another_client_is_rejected() {
    let gateway = Setup::fake(&[]).start();
    let session = waiting(&gateway).await;
    let send = |protocol: &str, content: &Value| {
        let request = gateway.request(Method::POST, protocol).json(content);
        request.header("x-acp-session-id", &session).send()
    };
    for (protocol, content) in [
        (AI_SDK, ui_messages(&session, &["echo on"])),
        (AG_UI, run_input(&session, "r", &["echo on"])),
        (COMPLETIONS, completion(&["echo on"], false)),
        (
            RESPONSES,
            json!({ "model": "fake", "input": "echo on", "conversation": format!("conv_{session}") }),
        ),
    ] {
        let rejected = send(protocol, &content).await.expect("an answer");
        assert_eq!(rejected.status(), StatusCode::CONFLICT, "{protocol}");
        assert_eq!(rejected.headers()["x-should-retry"], "false", "{protocol}");
        let body = rejected.text().await.expect("a body");
        assert!(body.contains("the agent waits for an answer"), "{body}");
    }
    assert_eq!(super::turns(&gateway, &session).await, 1);
    gateway
        .post(
            &format!("/v1/sessions/{session}/permissions/r1"),
            &json!({ "optionId": "allow" }),
        )
        .await;
    let next = ui_messages(&session, &["echo on"]);
    assert_eq!(text(&frames(&post(&gateway, AI_SDK, &next).await)), "on");
}

/// Each answer must name a question of the turn, and not the newest alone.
#[tokio::test]
async fn each_of_several_answers_needs_its_question() {
    let gateway = Setup::fake(&[]).start();
    let other = waiting(&gateway).await;
    let session = waiting(&gateway).await;
    let cancel = format!("/v1/sessions/{session}/prompts/p1/cancel");
    gateway.call(Method::POST, &cancel).await;
    gateway
        .log_until(&session, |event| event["type"] == "prompt.completed")
        .await;
    gateway.prompt(&session, "permission").await;
    gateway
        .log_until(&session, |event| event["requestId"] == "r2")
        .await;
    let newest = format!("{session}_p2_r2");
    let ui = |ids: [&str; 2]| {
        let part = |id: &str| json!({ "type": "dynamic-tool", "toolCallId": id, "state": "approval-responded", "approval": { "id": id, "approved": true } });
        json!({ "id": session, "messages": [{ "id": "x", "role": "assistant", "parts": ids.map(part) }] })
    };
    let run = |ids: [&str; 2]| {
        let answer = |id: &str| json!({ "interruptId": id, "status": "resolved", "payload": { "approved": true } });
        let mut input = run_input(&session, "answer", &[]);
        input["resume"] = json!(ids.map(answer));
        input
    };
    let response = |ids: [&str; 2]| {
        let answer = |id: &str| json!({ "type": "mcp_approval_response", "approval_request_id": format!("mcpr_{id}"), "approve": true });
        json!({ "model": "fake", "input": ids.map(answer) })
    };
    for (wrong, status) in [
        // It is one of the turn before.
        (format!("{session}_p2_r1"), StatusCode::NOT_FOUND),
        (format!("{session}_p1_r1"), StatusCode::UNPROCESSABLE_ENTITY),
        (format!("{other}_p1_r1"), StatusCode::UNPROCESSABLE_ENTITY),
    ] {
        let ids = [&*wrong, &*newest];
        for (protocol, content) in [
            (AI_SDK, ui(ids)),
            (AG_UI, run(ids)),
            (RESPONSES, response(ids)),
        ] {
            let request = gateway.request(Method::POST, protocol).json(&content);
            let rejected = request.send().await.expect("an answer");
            assert_eq!(rejected.status(), status, "{protocol} {wrong}");
        }
    }
    assert!(answers(&gateway, &other).await.is_empty());
    let resolved = answers(&gateway, &session).await;
    assert_eq!(resolved.len(), 1, "the cancel: {resolved:?}");
}

/// A client with a whole history sends no id of a response, and its own ids of messages.
#[tokio::test]
async fn answer_that_names_its_question_only_never_begins_a_turn() {
    let gateway = Setup::fake(&[]).start();
    let message = json!({ "role": "user", "content": "permission" });
    let first = json!({ "model": "fake", "input": [message], "stream": true });
    let asked = frames(&post(&gateway, RESPONSES, &first).await);
    let items = last(&asked, "response.completed")["response"]["output"].clone();
    let question = items.as_array().expect("items").last().expect("one")["id"].clone();
    let answer = json!({ "type": "mcp_approval_response", "approval_request_id": question, "approve": true });
    let mut history = vec![message];
    history.extend(items.as_array().expect("items").iter().cloned());
    history.push(answer.clone());
    let whole = |items: &[Value]| json!({ "model": "fake", "input": items, "stream": true });
    let rest = frames(&post(&gateway, RESPONSES, &whole(&history)).await);
    assert!(text(&rest).starts_with("permission: allow"), "{rest:?}");
    let [session] = &super::sessions(&gateway).await[..] else {
        panic!("one session")
    };
    assert_eq!(super::turns(&gateway, session).await, 1);
    // Later, the answer is a part of the history.
    history.push(json!({ "role": "assistant", "content": text(&rest) }));
    history.push(json!({ "role": "user", "content": "echo on" }));
    let next = frames(&post(&gateway, RESPONSES, &whole(&history)).await);
    assert_eq!(text(&next), "on");
    assert_eq!(super::turns(&gateway, session).await, 2);
    assert_eq!(answers(&gateway, session).await.len(), 1);
    // A new message after the answer, as the new items of the next response.
    let asking = json!({ "model": "fake", "input": "permission", "conversation": format!("conv_{session}"), "stream": true });
    let asked = frames(&post(&gateway, RESPONSES, &asking).await);
    let response = last(&asked, "response.completed")["response"].clone();
    let output = response["output"].as_array().expect("items");
    let mut answer = answer;
    answer["approval_request_id"] = output.last().expect("one")["id"].clone();
    let both = json!({ "model": "fake", "previous_response_id": response["id"], "stream": true,
        "input": [answer, { "role": "user", "content": "echo more" }] });
    assert_eq!(
        text(&frames(&post(&gateway, RESPONSES, &both).await)),
        "more"
    );
    assert_eq!(answers(&gateway, session).await.len(), 2);
}

#[tokio::test]
async fn answer_without_its_question_is_rejected() {
    let gateway = Setup::fake(&[]).start();
    let session = waiting(&gateway).await;
    let part = json!({ "type": "dynamic-tool", "toolCallId": "call_1", "state": "approval-responded",
        "approval": { "id": "r1", "approved": true } });
    let user =
        json!({ "id": "u", "role": "user", "parts": [{ "type": "text", "text": "permission" }] });
    let chat = json!({ "id": session, "messages": [user, { "id": "own", "role": "assistant", "parts": [part] }] });
    let mut run = run_input(&session, "answer", &["permission"]);
    run["resume"] =
        json!([{ "interruptId": "r1", "status": "resolved", "payload": { "approved": true } }]);
    let answer = json!({ "type": "mcp_approval_response", "approval_request_id": "mcpr_r1", "approve": true });
    let response =
        json!({ "model": "fake", "input": [{ "role": "user", "content": "permission" }, answer] });
    for (protocol, content, expected) in [
        (AI_SDK, chat, "of an approval of this gateway"),
        (AG_UI, run, "of an interrupt of this gateway"),
        (
            RESPONSES,
            response,
            "of an mcp_approval_request of this gateway",
        ),
    ] {
        let request = gateway.request(Method::POST, protocol).json(&content);
        let rejected = request.send().await.expect("an answer");
        assert_eq!(
            rejected.status(),
            StatusCode::UNPROCESSABLE_ENTITY,
            "{protocol}"
        );
        let body = rejected.text().await.expect("a body");
        assert!(body.contains(expected), "{body}");
    }
    // A question that the turn does not have.
    for (protocol, content) in [
        (AI_SDK, ui_answer(&session, true)),
        (AG_UI, run_answer(&session, &json!({ "approved": true }))),
        (RESPONSES, response_answer(&session, true)),
    ] {
        let content = content.to_string().replace("_r1", "_r7");
        let content: Value = serde_json::from_str(&content).expect("JSON");
        let request = gateway.request(Method::POST, protocol).json(&content);
        let status = request.send().await.expect("an answer").status();
        assert_eq!(status, StatusCode::NOT_FOUND, "{protocol}");
    }
    assert_eq!(super::turns(&gateway, &session).await, 1);
    assert!(answers(&gateway, &session).await.is_empty());
}

/// The agent uses the id of an ended call again. Each protocol shows both calls.
#[tokio::test]
async fn id_of_an_ended_call_is_another_call_in_each_protocol() {
    let gateway = Setup::fake(&[]).start();
    let line = |members: &str| {
        format!(
            r#"{{"jsonrpc":"2.0","method":"session/update","params":{{"sessionId":"$SESSION","update":{{"toolCallId":"c",{members}}}}}}}"#
        )
    };
    let call = |title: &str| {
        [
            line(&format!(r#""sessionUpdate":"tool_call","title":"{title}","rawInput":{{"command":"{title}"}}"#)),
            line(r#""sessionUpdate":"tool_call_update","status":"completed""#),
        ]
        .join("\n")
    };
    let prompt = format!("raw {}\n{}", call("ls"), call("rm"));
    for (protocol, content, kind) in [
        (AI_SDK, ui_messages("c", &[&prompt]), "tool-input-start"),
        (AG_UI, run_input("t", "r", &[&prompt]), "TOOL_CALL_START"),
        (
            RESPONSES,
            json!({ "model": "fake", "input": prompt, "stream": true }),
            "response.mcp_call.completed",
        ),
    ] {
        let shown = frames(&post(&gateway, protocol, &content).await);
        let ids: Vec<&Value> = shown
            .iter()
            .filter(|frame| frame["type"] == kind)
            .map(|frame| {
                if frame["toolCallId"].is_null() {
                    &frame["item_id"]
                } else {
                    &frame["toolCallId"]
                }
            })
            .collect();
        assert_eq!(ids.len(), 2, "{protocol}: {shown:?}");
        assert_ne!(ids[0], ids[1], "{protocol}");
    }
    let session = super::sessions(&gateway).await.remove(0);
    let transcript = gateway
        .get(&format!("/v1/sessions/{session}/transcript"))
        .await;
    let titles: Vec<&Value> = transcript["turns"][0]["items"]
        .as_array()
        .expect("items")
        .iter()
        .map(|item| &item["toolCall"]["title"])
        .collect();
    assert_eq!(titles, ["ls", "rm"], "{transcript}");
}
