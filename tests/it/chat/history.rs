//! Histories of clients: the next turn, a repetition, and a change.

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use super::{
    AG_UI, AI_SDK, COMPLETIONS, RESPONSES, completion, frames, post, prompts, run_input, sessions,
    text, turns, ui_messages,
};
use crate::key_life::key;
use crate::prompts::changes::change;
use crate::support::Setup;

#[tokio::test]
async fn only_the_new_message_becomes_a_prompt() {
    let gateway = Setup::fake(&[]).start();
    let first = post(&gateway, AI_SDK, &ui_messages("c", &["echo one"])).await;
    let second = post(
        &gateway,
        AI_SDK,
        &ui_messages("c", &["echo one", "echo two"]),
    )
    .await;
    // Clients with a limited context leave out the beginning, and may join messages that were not sent.
    let third = post(
        &gateway,
        AI_SDK,
        &ui_messages("c", &["echo two", "echo three"]),
    )
    .await;
    let fourth = post(
        &gateway,
        AI_SDK,
        &ui_messages("c", &["echo three", "left", "echo four"]),
    )
    .await;
    let texts: Vec<String> = [first, second, third]
        .iter()
        .map(|body| text(&frames(body)))
        .collect();
    assert_eq!(texts, ["one", "two", "three"]);
    let notice = frames(&fourth)
        .into_iter()
        .find(|frame| frame["type"] == "data-notice")
        .expect("a notice");
    assert_eq!(notice["data"]["code"], "joined");
    let [session] = &sessions(&gateway).await[..] else {
        panic!("one session")
    };
    assert_eq!(
        prompts(&gateway, session).await,
        ["echo one", "echo two", "echo three", "left|echo four"]
    );
}

#[tokio::test]
async fn repeated_request_gets_its_turn() {
    let gateway = Setup::fake(&[]).start();
    let first = ui_messages("c", &["echo one"]);
    let (one, two) = tokio::join!(
        post(&gateway, AI_SDK, &first),
        post(&gateway, AI_SDK, &first)
    );
    assert_eq!(
        one, two,
        "two first requests at the same time make one turn"
    );
    let input = run_input("t", "r", &["echo two"]);
    assert_eq!(
        post(&gateway, AG_UI, &input).await,
        post(&gateway, AG_UI, &input).await
    );
    let all = sessions(&gateway).await;
    assert_eq!(all.len(), 2);
    for session in &all {
        assert_eq!(turns(&gateway, session).await, 1);
    }
}

#[tokio::test]
async fn changed_history_begins_a_session_continues_or_fails() {
    let gateway = Setup::fake(&[]).start();
    let send = async |policy: &str, texts: &[&str]| {
        let request = gateway
            .request(Method::POST, AI_SDK)
            .header("x-acp-history", policy);
        request
            .json(&ui_messages("c", texts))
            .send()
            .await
            .expect("an answer")
    };
    for texts in [&["echo one"][..], &["echo one", "echo two"]] {
        assert_eq!(send("reject", texts).await.status(), StatusCode::OK);
    }
    let edited = ["echo one", "echo other"];
    let rejected = send("reject", &edited).await;
    assert_eq!(
        (rejected.status(), &rejected.headers()["x-should-retry"]),
        (StatusCode::CONFLICT, &"false".parse().unwrap())
    );

    let appended = send("append", &edited).await;
    assert_eq!(appended.headers()["x-acp-history"], "appended");
    let appended = frames(&appended.text().await.expect("a body"));
    assert_eq!(text(&appended), "other");
    let [session] = &sessions(&gateway).await[..] else {
        panic!("one session")
    };
    assert_eq!(
        prompts(&gateway, session).await,
        ["echo one", "echo two", "echo other"]
    );
    let next = send("reject", &["echo one", "echo other", "echo next"]).await;
    assert_eq!(
        next.status(),
        StatusCode::OK,
        "the edited history is known now"
    );
    drop(next.text().await);

    let branched = send("new", &["echo one", "echo branch"]).await;
    assert_eq!(branched.headers()["x-acp-history"], "branched");
    let session = branched.headers()["x-acp-session-id"]
        .to_str()
        .expect("an id")
        .to_owned();
    let branched = frames(&branched.text().await.expect("a body"));
    assert_eq!(
        branched
            .iter()
            .find(|frame| frame["type"] == "data-notice")
            .expect("a notice")["data"]["code"],
        "branched"
    );
    assert_eq!(sessions(&gateway).await.len(), 2);
    let expected = "The conversation so far:\n\nUser: echo one\n\nThe next message:|echo branch";
    assert_eq!(prompts(&gateway, &session).await, [expected]);
    let unknown = send("sometimes", &edited).await;
    assert_eq!(unknown.status(), StatusCode::UNPROCESSABLE_ENTITY);
}

#[tokio::test]
async fn history_without_an_id_finds_its_session() {
    let gateway = Setup::fake(&[]).start();
    for texts in [
        &["echo one"][..],
        &["echo one", "echo two"],
        &["echo one", "echo two", "echo three"],
    ] {
        let answer = frames(&post(&gateway, COMPLETIONS, &completion(texts, true)).await);
        assert_eq!(
            Some(&*text(&answer)),
            texts.last().expect("a text").strip_prefix("echo ")
        );
    }
    let [session] = &sessions(&gateway).await[..] else {
        panic!("one session")
    };
    assert_eq!(
        prompts(&gateway, session).await,
        ["echo one", "echo two", "echo three"]
    );
    // The same first message again is another conversation, and an older history is a branch of its own.
    post(&gateway, COMPLETIONS, &completion(&["echo one"], true)).await;
    post(
        &gateway,
        COMPLETIONS,
        &completion(&["echo one", "echo two", "echo other"], true),
    )
    .await;
    assert_eq!(sessions(&gateway).await.len(), 3);
    assert_eq!(turns(&gateway, session).await, 3);
}

#[tokio::test]
async fn request_that_an_sdk_repeats_prompts_once() {
    let gateway = Setup::fake(&[]).start();
    let send = |count: &str| {
        let request = gateway
            .request(Method::POST, COMPLETIONS)
            .header("x-stainless-retry-count", count);
        request
            .json(&completion(&["slow chunks=5 ms=50"], false))
            .send()
    };
    let (first, again) = tokio::join!(send("0"), async {
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        send("1").await
    });
    let mut answers = Vec::new();
    for response in [first, again, send("2").await] {
        answers.push(
            response
                .expect("an answer")
                .json::<Value>()
                .await
                .expect("JSON"),
        );
    }
    assert!(
        answers.iter().all(|answer| *answer == answers[0]),
        "{answers:?}"
    );
    let [session] = &sessions(&gateway).await[..] else {
        panic!("one session")
    };
    assert_eq!(turns(&gateway, session).await, 1);
}

#[tokio::test]
async fn session_of_the_gateway_is_a_conversation() {
    let gateway = Setup::fake(&[]).start();
    let session = gateway.session("fake").await;
    gateway.turn(&session, "echo from REST").await;
    post(
        &gateway,
        AI_SDK,
        &ui_messages(&session, &["echo from a chat"]),
    )
    .await;
    post(
        &gateway,
        AG_UI,
        &run_input(&session, "r", &["echo from a run"]),
    )
    .await;
    let request = gateway
        .request(Method::POST, COMPLETIONS)
        .header("x-acp-session-id", &session);
    super::body(request.json(&completion(&["echo from a completion"], true))).await;
    let expected = [
        "echo from REST",
        "echo from a chat",
        "echo from a run",
        "echo from a completion",
    ];
    assert_eq!(prompts(&gateway, &session).await, expected);
    assert_eq!(sessions(&gateway).await, [session.as_str()]);
    let foreign = json!({ "model": "fake", "messages": [{ "role": "user", "content": "x" }],
        "metadata": { "session_id": "01990000-0000-7000-8000-000000000000" } });
    assert_eq!(
        gateway.post(COMPLETIONS, &foreign).await.0,
        StatusCode::NOT_FOUND
    );
}

#[tokio::test]
async fn key_of_another_principal_has_other_conversations() {
    let gateway = Setup::fake(&[]).start();
    post(&gateway, AI_SDK, &ui_messages("c", &["echo one"])).await;
    let key = key(&gateway, "other", "read,prompt").await;
    let url = format!("{}{AI_SDK}", gateway.url);
    let request = gateway
        .http
        .post(url)
        .bearer_auth(key)
        .json(&ui_messages("c", &["echo one"]));
    super::body(request).await;
    assert_eq!(sessions(&gateway).await.len(), 2);
}

#[tokio::test]
async fn same_text_again_is_a_new_message() {
    let gateway = Setup::fake(&[]).start();
    let message = |id: &str| json!({ "id": id, "role": "user", "parts": [{ "type": "text", "text": "echo yes" }] });
    let send = |messages: &[Value]| {
        let content = json!({ "id": "c", "messages": messages });
        let gateway = &gateway;
        async move { post(gateway, AI_SDK, &content).await }
    };
    send(&[message("1")]).await;
    send(&[message("1"), message("2")]).await;
    // This client sends its newest message only.
    send(&[message("3")]).await;
    send(&[message("3")]).await;
    let [session] = &sessions(&gateway).await[..] else {
        panic!("one session")
    };
    assert_eq!(turns(&gateway, session).await, 3);
}

#[tokio::test]
async fn changed_system_message_is_reported_once() {
    let gateway = Setup::fake(&[]).start();
    let send = async |system: &str, texts: &[&str]| {
        let mut request = completion(texts, true);
        let messages = request["messages"].as_array_mut().expect("messages");
        messages.insert(0, json!({ "role": "system", "content": system }));
        let request = gateway
            .request(Method::POST, COMPLETIONS)
            .header("x-conversation-id", "c")
            .json(&request);
        let response = request.send().await.expect("an answer");
        let notice = response
            .headers()
            .get("x-acp-history")
            .map(|code| code.to_str().expect("ASCII").to_owned());
        let shown = frames(&response.text().await.expect("a body"));
        let reasoning = shown
            .iter()
            .filter_map(|frame| frame["choices"][0]["delta"]["reasoning_content"].as_str())
            .collect();
        (notice, reasoning)
    };
    let none = (None, String::new());
    assert_eq!(send("be brief", &["echo one"]).await, none);
    assert_eq!(send("be brief", &["echo one", "echo two"]).await, none);
    let (notice, reasoning) = send("be long", &["echo one", "echo two", "echo three"]).await;
    assert_eq!(notice.as_deref(), Some("instructions"));
    assert!(
        reasoning.contains("system message had no effect"),
        "{reasoning}"
    );
    assert_eq!(
        send(
            "be long",
            &["echo one", "echo two", "echo three", "echo four"]
        )
        .await,
        none
    );
    let [session] = &sessions(&gateway).await[..] else {
        panic!("one session")
    };
    assert_eq!(
        prompts(&gateway, session).await,
        ["be brief|echo one", "echo two", "echo three", "echo four"]
    );
}

/// The thread of a page that was loaded again.
#[tokio::test]
async fn empty_run_has_the_earlier_messages_of_its_thread() {
    let gateway = Setup::fake(&[]).start();
    post(
        &gateway,
        AG_UI,
        &run_input("t", "one", &["thought; tool; slow chunks=2 ms=1"]),
    )
    .await;
    post(
        &gateway,
        AG_UI,
        &run_input(
            "t",
            "two",
            &["thought; tool; slow chunks=2 ms=1", "echo two"],
        ),
    )
    .await;
    let loaded = frames(&post(&gateway, AG_UI, &run_input("t", "look", &[])).await);
    let snapshot = loaded
        .iter()
        .find(|frame| frame["type"] == "MESSAGES_SNAPSHOT")
        .expect("a snapshot");
    let messages = snapshot["messages"].as_array().expect("messages");
    let roles: Vec<&str> = messages
        .iter()
        .filter_map(|message| message["role"].as_str())
        .collect();
    assert_eq!(
        roles,
        [
            "user",
            "reasoning",
            "assistant",
            "tool",
            "assistant",
            "user"
        ],
        "{snapshot}"
    );
    assert_eq!(text(&loaded), "two", "the newest turn has its events");
    // The client sends what it received.
    let mut next = run_input("t", "three", &[]);
    let mut sent = messages.clone();
    sent.push(json!({ "id": "a", "role": "assistant", "content": "two" }));
    sent.push(json!({ "id": "u", "role": "user", "content": "echo three" }));
    next["messages"] = Value::Array(sent);
    assert_eq!(text(&frames(&post(&gateway, AG_UI, &next).await)), "three");
    let [session] = &sessions(&gateway).await[..] else {
        panic!("one session")
    };
    assert_eq!(turns(&gateway, session).await, 3);

    let capabilities = gateway.get(AG_UI).await;
    assert_eq!(
        (
            &capabilities["identity"]["name"],
            &capabilities["humanInTheLoop"]["interrupts"]
        ),
        (&json!("fake"), &json!(true))
    );
}

/// Another client edits the queued prompt of a chat client. The chat client gets the answer to the edit, and its conversation
/// goes on.
#[tokio::test]
async fn conversation_goes_on_after_an_edit_of_its_queued_prompt() {
    let gateway = Setup::fake(&[]).start();
    let request = |protocol: &str, texts: &[&str]| match protocol {
        AG_UI => run_input("t", texts[texts.len() - 1], texts),
        AI_SDK => ui_messages("c", texts),
        COMPLETIONS => completion(texts, true),
        _ => {
            let input: Vec<Value> = texts
                .iter()
                .map(|text| json!({ "role": "user", "content": text }))
                .collect();
            json!({ "model": "fake", "input": input, "stream": true })
        }
    };
    let send = |protocol: &str, content: &Value| {
        let request = gateway.request(Method::POST, protocol);
        super::body(request.header("x-conversation-id", "chat").json(content))
    };
    for (before, protocol) in [AG_UI, AI_SDK, COMPLETIONS, RESPONSES]
        .into_iter()
        .enumerate()
    {
        send(protocol, &request(protocol, &["echo one"])).await;
        let session = sessions(&gateway)
            .await
            .first()
            .expect("the newest")
            .clone();
        gateway.prompt(&session, "stream n=1 size=8; hang").await;
        gateway
            .log_until(&session, |event| {
                event["type"] == "session.update" && event["promptId"] == "p2"
            })
            .await;
        let mut second = request(protocol, &["echo one", "echo two"]);
        if protocol == RESPONSES {
            // The history finds no session with a newer turn.
            second = json!({ "model": "fake", "input": "echo two", "stream": true, "conversation": format!("conv_{session}") });
        }
        let edit = async {
            gateway
                .log_until(&session, |event| event["type"] == "prompt.queued")
                .await;
            let answer = change(
                &gateway,
                &session,
                "p3",
                &json!({ "prompt": "echo edited" }),
            )
            .await;
            assert_eq!(answer.status, StatusCode::OK, "{answer:?}");
            gateway
                .call(
                    Method::POST,
                    &format!("/v1/sessions/{session}/prompts/p2/cancel"),
                )
                .await;
        };
        let (answer, ()) = tokio::join!(send(protocol, &second), edit);
        assert_eq!(text(&frames(&answer)), "edited", "{protocol}");
        let mut third = request(protocol, &["echo one", "echo two", "echo three"]);
        if protocol == RESPONSES {
            third = json!({ "model": "fake", "input": "echo three", "stream": true, "conversation": format!("conv_{session}") });
            let items = gateway
                .get(&format!("/openai/v1/conversations/conv_{session}/items"))
                .await;
            assert!(items.to_string().contains("echo edited"), "{items}");
        }
        if protocol == AG_UI {
            // The page is loaded again: it has its own text, which it sends with the next message.
            let loaded = frames(&post(&gateway, AG_UI, &run_input("t", "look", &[])).await);
            let snapshot = loaded
                .iter()
                .find(|frame| frame["type"] == "MESSAGES_SNAPSHOT")
                .expect("a snapshot");
            assert_eq!(
                snapshot["messages"]
                    .as_array()
                    .expect("messages")
                    .last()
                    .expect("one")["content"],
                "echo two"
            );
        }
        assert_eq!(
            text(&frames(&send(protocol, &third).await)),
            "three",
            "{protocol}"
        );
        assert_eq!(
            turns(&gateway, &session).await,
            4,
            "{protocol}: the same session"
        );
        assert_eq!(sessions(&gateway).await.len(), before + 1);
    }
}
