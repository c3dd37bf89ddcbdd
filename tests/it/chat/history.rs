//! Histories of clients: the next turn, a repetition, and a change.

use reqwest::{Method, RequestBuilder, StatusCode};
use serde_json::{Value, json};

use super::{
    AG_UI, AI_SDK, COMPLETIONS, RESPONSES, completion, frames, post, prompts, run_input, sessions,
    text, turns, ui_messages,
};
use crate::key_life::{by, user_key};
use crate::prompts::changes::change;
use crate::support::wait::{LONGEST, eventually};
use crate::support::{Answer, Gateway, Setup};

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
        eventually("the first has a session", LONGEST, || async {
            (!sessions(&gateway).await.is_empty()).then_some(())
        })
        .await;
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
    for answer in &answers {
        assert_eq!(answer["id"], answers[0]["id"], "{answers:?}");
        let content = &answer["choices"][0]["message"]["content"];
        assert_eq!(*content, answers[0]["choices"][0]["message"]["content"]);
    }
    // After the end of the turn, the words alone could also be those of another request.
    let told = &answers[2]["choices"][0]["message"]["reasoning_content"];
    assert!(
        told.as_str()
            .is_some_and(|told| told.contains("repetition")),
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
async fn other_user_has_other_conversations() {
    let gateway = Setup::fake(&[]).start();
    post(&gateway, AI_SDK, &ui_messages("c", &["echo one"])).await;
    let key = user_key(&gateway, "other", "read,prompt").await;
    let url = format!("{}{AI_SDK}", gateway.url);
    let request = gateway
        .http
        .post(url)
        .bearer_auth(&key)
        .json(&ui_messages("c", &["echo one"]));
    super::body(request).await;
    let own = sessions(&gateway).await;
    assert_eq!(own.len(), 1);
    let list = Answer::of(by(&gateway, &key, Method::GET, "/v1/sessions")).await;
    let theirs = list.body["sessions"].as_array().expect("a list");
    assert_eq!(theirs.len(), 1);
    assert_ne!(theirs[0]["sessionId"], *own[0]);
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

/// Each protocol, the request with these messages, and the headers that name its conversation.
fn requests(gateway: &Gateway, protocol: &str, texts: &[&str], ids: usize) -> RequestBuilder {
    let content = match protocol {
        AG_UI => {
            let mut input = run_input("t", &format!("run{ids}"), texts);
            for (at, message) in input["messages"]
                .as_array_mut()
                .expect("a list")
                .iter_mut()
                .enumerate()
            {
                message["id"] = json!(format!("m{}", ids + at));
            }
            input
        }
        AI_SDK => {
            let mut chat = ui_messages("c", texts);
            for (at, message) in chat["messages"]
                .as_array_mut()
                .expect("a list")
                .iter_mut()
                .enumerate()
            {
                message["id"] = json!(format!("m{}", ids + at));
            }
            chat
        }
        COMPLETIONS => completion(texts, true),
        _ => {
            let item = |text: &&str| json!({ "role": "user", "content": text });
            let input: Vec<Value> = texts.iter().map(item).collect();
            json!({ "model": "fake", "input": input, "stream": true })
        }
    };
    let request = gateway.request(Method::POST, protocol);
    request.header("x-conversation-id", "c").json(&content)
}

#[tokio::test]
async fn client_that_sends_its_newest_message_only_continues() {
    let gateway = Setup::fake(&[]).start();
    for (before, protocol) in [AI_SDK, AG_UI, COMPLETIONS].into_iter().enumerate() {
        // The same words again are a message too.
        for (at, word) in ["one", "two", "two", "three"].into_iter().enumerate() {
            let message = format!("echo {word}");
            let request = requests(&gateway, protocol, &[&message], at);
            let response = request.send().await.expect("an answer");
            let told = response.headers().get("x-acp-history").cloned();
            let told = told.map(|told| told.to_str().expect("ASCII").to_owned());
            // The second one could be an edit of the first. From then on, the client is known.
            let expected = (at == 1).then(|| "continued".to_owned());
            assert_eq!(told, expected, "{protocol} {word}");
            let shown = frames(&response.text().await.expect("a body"));
            assert_eq!(text(&shown), word, "{protocol}");
        }
        let all = sessions(&gateway).await;
        assert_eq!(all.len(), before + 1, "{protocol}");
        let sent = prompts(&gateway, &all[0]).await;
        assert_eq!(sent, ["echo one", "echo two", "echo two", "echo three"]);
    }
    assert!(gateway.log().contains("\"history\":\"continued\""));
}

#[tokio::test]
async fn another_file_of_the_same_size_is_another_message() {
    let gateway = Setup::fake(&["--media"]).start();
    let picture = |data: &str| format!("data:image/png;base64,{data}");
    let contents = |url: &str| {
        let parts = json!([{ "type": "text", "text": "echo look" }, { "type": "image_url", "image_url": { "url": url } }]);
        let completion = json!({ "model": "fake", "stream": true, "messages": [{ "role": "user", "content": parts }] });
        let parts = json!([{ "type": "text", "text": "echo look" }, { "type": "file", "mediaType": "image/png", "url": url }]);
        let chat =
            json!({ "id": "c", "messages": [{ "id": "m", "role": "user", "parts": parts }] });
        let value = url.rsplit(',').next().expect("data");
        let source = json!({ "type": "data", "value": value, "mimeType": "image/png" });
        let parts =
            json!([{ "type": "text", "text": "echo look" }, { "type": "image", "source": source }]);
        let mut run = run_input("t", value, &[]);
        run["messages"] = json!([{ "id": "m", "role": "user", "content": parts }]);
        let parts = json!([{ "type": "input_text", "text": "echo look" }, { "type": "input_image", "image_url": url }]);
        let response = json!({ "model": "fake", "stream": true, "input": [{ "role": "user", "content": parts }] });
        [
            (COMPLETIONS, completion),
            (AI_SDK, chat),
            (AG_UI, run),
            (RESPONSES, response),
        ]
    };
    let mut seen = Vec::new();
    for url in [picture("AAAA"), picture("BBBB"), picture("AAAA")] {
        for (protocol, content) in contents(&url) {
            let request = gateway.request(Method::POST, protocol).json(&content);
            // A repetition of another request is a request of its own.
            let request = request
                .header("x-conversation-id", "c")
                .header("x-stainless-retry-count", "1");
            super::body(request).await;
        }
    }
    for session in sessions(&gateway).await {
        for event in gateway.all_events(&session).await {
            if let Some(blocks) = event["prompt"].as_array() {
                seen.push(blocks.last().expect("a picture")["data"].clone());
            }
        }
    }
    let count = |data: &str| seen.iter().filter(|seen| **seen == data).count();
    // The third request is the first one again for responses, which find their conversation by the whole history.
    assert_eq!((count("AAAA"), count("BBBB")), (7, 4), "{seen:?}");
}

#[tokio::test]
async fn two_chats_of_one_user_with_the_same_first_words_stay_apart() {
    let gateway = Setup::fake(&[]).start();
    let send = async |texts: &[(&str, &str)], newest: &str| {
        let mut messages = Vec::new();
        for (question, answer) in texts {
            messages.push(json!({ "role": "user", "content": question }));
            messages.push(json!({ "role": "assistant", "content": answer }));
        }
        messages.push(json!({ "role": "user", "content": newest }));
        let content =
            json!({ "model": "fake", "stream": true, "user": "alice", "messages": messages });
        let request = gateway.request(Method::POST, COMPLETIONS).json(&content);
        let response = request.send().await.expect("an answer");
        assert!(
            !response.headers().contains_key("x-acp-history"),
            "{newest}"
        );
        let session = response.headers()["x-acp-session-id"].clone();
        (
            session,
            text(&frames(&response.text().await.expect("a body"))),
        )
    };
    let hello = "echo hello";
    let (one, _) = send(&[], hello).await;
    let (two, _) = send(&[], hello).await;
    assert_ne!(one, two, "another chat");
    let mut chats = [vec![(hello, "hello")], vec![(hello, "hello")]];
    let mut of_chats = [None, None];
    for words in [
        ["echo a", "echo b"],
        ["echo c", "echo d"],
        ["echo e", "echo f"],
    ] {
        for (at, word) in words.into_iter().enumerate() {
            let (session, answer) = send(&chats[at], word).await;
            let of_chat = of_chats[at].get_or_insert_with(|| session.clone());
            assert_eq!(session, *of_chat, "{word}");
            assert_eq!(answer, word[5..], "{word}");
            chats[at].push((word, &word[5..]));
        }
    }
    assert_ne!(of_chats[0], of_chats[1]);
    assert_eq!(sessions(&gateway).await.len(), 2);
}

#[tokio::test]
async fn request_with_the_same_idempotency_key_prompts_once() {
    let gateway = Setup::fake(&[]).start();
    for (before, protocol) in [AI_SDK, AG_UI, COMPLETIONS, RESPONSES]
        .into_iter()
        .enumerate()
    {
        let send = async |key: &str, ids: usize| {
            let request = requests(&gateway, protocol, &["echo one"], ids);
            super::body(request.header("idempotency-key", key)).await
        };
        let all_turns = async || {
            let mut all = 0;
            for session in sessions(&gateway).await {
                all += turns(&gateway, &session).await;
            }
            all
        };
        let first = send("k1", 0).await;
        assert_eq!(send("k1", 0).await, first, "{protocol}");
        assert_eq!(all_turns().await, before * 2 + 1, "{protocol}");
        // The same words with another key are another message.
        send("k2", 1).await;
        assert_eq!(all_turns().await, before * 2 + 2, "{protocol}");
    }
}

#[tokio::test]
async fn last_message_must_be_one_of_the_user() {
    let gateway = Setup::fake(&[]).start();
    let messages = json!([{ "id": "1", "role": "user", "content": "echo one" }, { "id": "2", "role": "assistant", "content": "one" }]);
    let mut run = run_input("unknown", "r", &[]);
    run["messages"] = messages.clone();
    for (protocol, content) in [
        (AI_SDK, json!({ "id": "c", "messages": messages })),
        (AG_UI, run),
        (
            COMPLETIONS,
            json!({ "model": "fake", "messages": messages }),
        ),
        (RESPONSES, json!({ "model": "fake", "input": messages })),
    ] {
        let request = gateway.request(Method::POST, protocol).json(&content);
        let response = request.send().await.expect("an answer");
        assert_eq!(
            response.status(),
            StatusCode::UNPROCESSABLE_ENTITY,
            "{protocol}"
        );
        let body = response.text().await.expect("a body");
        assert!(
            body.contains("the last message must be one of the user"),
            "{body}"
        );
    }
    // A role that nobody knows is none of the user.
    let messages =
        json!([{ "role": "user", "content": "echo one" }, { "role": "Human", "content": "x" }]);
    let unknown = json!({ "model": "fake", "messages": messages });
    let (status, _) = gateway.post(COMPLETIONS, &unknown).await;
    assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY);
    let empty = json!({ "model": "fake", "input": "", "previous_response_id": "" });
    let (status, problem) = gateway.post(RESPONSES, &empty).await;
    assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY);
    assert_eq!(problem["error"]["param"], "/input");
    assert!(sessions(&gateway).await.is_empty());
}

/// A picture for an agent without pictures fails. The messages after it do not.
#[tokio::test]
async fn message_that_the_agent_cannot_read_does_not_end_the_conversation() {
    let gateway = Setup::fake(&[]).start();
    for protocol in [AI_SDK, AG_UI, COMPLETIONS, RESPONSES] {
        let picture = match protocol {
            AI_SDK => {
                json!({ "type": "file", "mediaType": "image/png", "url": "data:image/png;base64,AAAA" })
            }
            AG_UI => {
                json!({ "type": "image", "source": { "type": "data", "value": "AAAA", "mimeType": "image/png" } })
            }
            COMPLETIONS => {
                json!({ "type": "image_url", "image_url": { "url": "data:image/png;base64,AAAA" } })
            }
            _ => json!({ "type": "input_image", "image_url": "data:image/png;base64,AAAA" }),
        };
        // Without another text, and of a kind that the protocol does not know.
        for part in [picture, json!({ "type": "odd" })] {
            let kind = part["type"].as_str().expect("a type").to_owned();
            // Without an id, other words are another conversation.
            let zero = format!("echo zero {kind}");
            for first in [&[&*zero][..], &[]] {
                let chat = format!("{kind}-{}", first.len());
                let send = async |messages: &[(&str, bool)]| {
                    let mut all = Vec::new();
                    for (at, (word, is_picture)) in messages.iter().enumerate() {
                        let name = if protocol == RESPONSES {
                            "input_text"
                        } else {
                            "text"
                        };
                        let text = json!({ "type": name, "text": word });
                        let content = if *is_picture {
                            json!([part])
                        } else {
                            json!([text])
                        };
                        let member = if protocol == AI_SDK {
                            "parts"
                        } else {
                            "content"
                        };
                        all.push(json!({ "id": format!("{chat}-{at}"), "role": "user", member: content }));
                    }
                    let content = match protocol {
                        AI_SDK => json!({ "id": chat, "messages": all }),
                        AG_UI => {
                            json!({ "threadId": chat, "runId": format!("{chat}-{}", all.len()), "messages": all, "tools": [], "context": [] })
                        }
                        COMPLETIONS => json!({ "model": "fake", "messages": all, "stream": true }),
                        _ => json!({ "model": "fake", "input": all, "stream": true }),
                    };
                    let request = gateway.request(Method::POST, protocol).json(&content);
                    request
                        .header("x-conversation-id", &chat)
                        .send()
                        .await
                        .expect("an answer")
                };
                let mut messages: Vec<(&str, bool)> =
                    first.iter().map(|word| (*word, false)).collect();
                let mut own = None;
                if !messages.is_empty() {
                    let response = send(&messages).await;
                    assert_eq!(response.status(), StatusCode::OK);
                    own = Some(response.headers()["x-acp-session-id"].clone());
                }
                messages.push(("", true));
                let rejected = send(&messages).await;
                assert_eq!(
                    rejected.status(),
                    StatusCode::UNPROCESSABLE_ENTITY,
                    "{protocol} {kind}"
                );
                for word in ["echo one", "echo two"] {
                    messages.push((word, false));
                    let response = send(&messages).await;
                    let told = response
                        .headers()
                        .get_all("x-acp-history")
                        .into_iter()
                        .count();
                    let status = response.status();
                    let session = response.headers().get("x-acp-session-id").cloned();
                    let body = response.text().await.expect("a body");
                    assert_eq!(status, StatusCode::OK, "{protocol} {kind} {body}");
                    own = own.or_else(|| session.clone());
                    assert_eq!(session, own, "{protocol} {kind} {word}");
                    // The agent does what the first block says.
                    if word == "echo two" {
                        assert_eq!(text(&frames(&body)), "two", "{protocol} {body}");
                    }
                    assert_eq!(
                        told > 0,
                        word == "echo one",
                        "{protocol} {kind}: reported once"
                    );
                }
            }
        }
    }
}

/// A turn that was cancelled because its client left has no answer. A repetition prompts again with all that the prompt
/// contained, and the conversation goes on.
async fn repeat_after_a_lost_connection(gateway: &Gateway, chat: &str, retries: &str) {
    let hang = "slow chunks=1 ms=1; hang";
    let send = |messages: &[(&str, &str)], retries: &str| {
        let of = |(role, content): &(&str, &str)| json!({ "role": role, "content": content });
        let messages: Vec<Value> = messages.iter().map(of).collect();
        let request = gateway.request(Method::POST, COMPLETIONS);
        request
            .header("x-conversation-id", chat)
            .header("x-stainless-retry-count", retries)
            .json(&json!({ "model": "fake", "stream": true, "messages": messages }))
            .send()
    };
    let first = format!("echo one{chat}");
    let mut messages = vec![("user", &*first)];
    let begun = send(&messages, "0").await.expect("an answer");
    let answer = text(&frames(&begun.text().await.expect("a body")));
    messages.extend([("assistant", &*answer), ("user", hang)]);
    // The program has joined another message to it. Without an id, this is another history.
    if !chat.is_empty() {
        messages.push(("user", "more"));
    }
    let mut lost = send(&messages, "0").await.expect("an answer");
    let session = lost.headers()["x-acp-session-id"].to_str();
    let session = session.expect("an id").to_owned();
    lost.chunk().await.expect("a chunk");
    drop(lost);
    eventually("the end of the turn", LONGEST, || async {
        let events = gateway.all_events(&session).await;
        let is_end = |event: &Value| event["cancelCause"] == "disconnect";
        events.iter().any(is_end).then_some(())
    })
    .await;
    let again = send(&messages, retries).await.expect("an answer");
    let told = again.headers().get_all("x-acp-history").into_iter();
    assert!(told.into_iter().any(|told| told == "again"), "{chat}");
    let prompt = gateway.get(&format!("/v1/sessions/{session}")).await["promptId"].clone();
    let path = format!(
        "/v1/sessions/{session}/prompts/{}/cancel",
        prompt.as_str().expect("it runs")
    );
    gateway.call(Method::POST, &path).await;
    again.text().await.expect("a body");
    messages.push(("user", "echo three"));
    let next = send(&messages, "0").await.expect("an answer");
    assert!(!next.headers().contains_key("x-acp-history"), "{chat}");
    assert_eq!(text(&frames(&next.text().await.expect("a body"))), "three");
    let both = if chat.is_empty() {
        hang.to_owned()
    } else {
        format!("{hang}|more")
    };
    assert_eq!(
        prompts(gateway, &session).await,
        [&*first, &*both, &*both, "echo three"]
    );
    // A repetition of a request that did not arrive, with the words of the turn before.
    messages.push(("user", "echo three"));
    let next = send(&messages, "1").await.expect("an answer");
    next.text().await.expect("a body");
    if !chat.is_empty() {
        assert_eq!(turns(gateway, &session).await, 5);
    }
}

#[tokio::test]
async fn repetition_after_a_lost_connection_prompts_again() {
    let gateway = Setup::fake(&[]).start();
    // With a count of repetitions, and by a person; with the id of a chat, and by the history.
    tokio::join!(
        repeat_after_a_lost_connection(&gateway, "c1", "1"),
        repeat_after_a_lost_connection(&gateway, "c2", "0"),
        repeat_after_a_lost_connection(&gateway, "", "0"),
    );
}

/// The first notice, the session and the text of the response to a request.
async fn outcome(request: RequestBuilder) -> (Option<String>, String, String) {
    let response = request.send().await.expect("an answer");
    assert_eq!(response.status(), StatusCode::OK);
    let header = |name: &str| {
        let value = response.headers().get(name)?;
        Some(value.to_str().expect("ASCII").to_owned())
    };
    let told = header("x-acp-history");
    let session = header("x-acp-session-id").expect("an id");
    let shown = text(&frames(&response.text().await.expect("a body")));
    (told, session, shown)
}

/// The body of a request with these messages: a role and a content each.
fn conversation(protocol: &str, chat: &str, messages: &[(&str, Value)]) -> Value {
    let member = if protocol == AI_SDK {
        "parts"
    } else {
        "content"
    };
    let of = |(at, (role, content)): (usize, &(&str, Value))| json!({ "id": format!("{chat}-{at}"), "role": role, member: content });
    let all: Vec<Value> = messages.iter().enumerate().map(of).collect();
    let run = format!("{chat}-{}", all.len());
    match protocol {
        AI_SDK => json!({ "id": chat, "messages": all }),
        AG_UI => {
            json!({ "threadId": chat, "runId": run, "messages": all, "tools": [], "context": [] })
        }
        COMPLETIONS => json!({ "model": "fake", "messages": all, "stream": true }),
        _ => json!({ "model": "fake", "input": all, "stream": true }),
    }
}

fn text_parts(protocol: &str, role: &str, text: &str) -> Value {
    let kind = match (protocol, role) {
        (RESPONSES, "user") => "input_text",
        (RESPONSES, _) => "output_text",
        _ => "text",
    };
    json!([{ "type": kind, "text": text }])
}

#[tokio::test]
async fn part_that_is_no_content_block_is_named_in_the_error() {
    let gateway = Setup::fake(&["--media"]).start();
    let image = |source: Value| json!({ "type": "image", "source": source });
    let odd = json!({ "type": "odd" });
    let cases = [
        (
            AI_SDK,
            vec![
                json!({ "type": "file", "mediaType": "image/png", "url": "data:image/png;base64,!" }),
                json!({ "type": "file", "mediaType": "text/plain", "url": "data:text/plain,hi" }),
                json!({ "type": "file", "mediaType": "image/png" }),
                odd.clone(),
            ],
        ),
        (
            AG_UI,
            vec![
                image(json!({ "type": "data", "value": "!", "mimeType": "image/png" })),
                image(json!({ "type": "other", "value": "AAAA", "mimeType": "image/png" })),
                json!({ "type": "binary", "mimeType": "image/png", "id": "file-1" }),
                odd.clone(),
            ],
        ),
        (
            COMPLETIONS,
            vec![
                json!({ "type": "image_url", "image_url": { "url": "data:image/png;base64,!" } }),
                json!({ "type": "input_audio", "input_audio": { "data": "!", "format": "wav" } }),
                json!({ "type": "file", "file": { "file_id": "file-1" } }),
                odd.clone(),
            ],
        ),
        (
            RESPONSES,
            vec![
                json!({ "type": "input_image", "image_url": "data:image/png;base64,!" }),
                json!({ "type": "input_file", "filename": "a.txt", "file_data": "data:text/plain;base64,/w==" }),
                json!({ "type": "input_image", "file_id": "file-1" }),
                odd,
            ],
        ),
    ];
    for (protocol, parts) in cases {
        let place = match protocol {
            AI_SDK => "/messages/0/parts/1",
            RESPONSES => "/input/0/content/1",
            _ => "/messages/0/content/1",
        };
        for (at, part) in parts.iter().enumerate() {
            let before = sessions(&gateway).await.len();
            let mut content = text_parts(protocol, "user", "echo look");
            let list = content.as_array_mut().expect("a list");
            list.push(part.clone());
            let chat = format!("c{at}");
            let mut messages = vec![("user", content)];
            let send = |messages: &[(&str, Value)]| {
                let body = conversation(protocol, &chat, messages);
                let request = gateway.request(Method::POST, protocol).json(&body);
                request.header("x-conversation-id", &chat).send()
            };
            let rejected = send(&messages).await.expect("an answer");
            let status = rejected.status();
            let body = rejected.text().await.expect("a body");
            assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY, "{part} {body}");
            assert!(body.contains(place), "{protocol} {part} {body}");
            assert_eq!(sessions(&gateway).await.len(), before, "{protocol} {part}");
            // The next message goes on, and the agent learns what is missing.
            messages.push(("user", text_parts(protocol, "user", "echo more")));
            let response = send(&messages).await.expect("an answer");
            assert_eq!(response.status(), StatusCode::OK, "{protocol} {part}");
            let session = response.headers()["x-acp-session-id"].to_str();
            let session = session.expect("an id").to_owned();
            response.text().await.expect("a body");
            let prompt = prompts(&gateway, &session).await.remove(0);
            let kind = part["type"].as_str().expect("a type");
            assert!(prompt.contains(&format!("[{kind}: ")), "{prompt}");
        }
    }
}

/// Parts that an application or the display adds to a message are not for the agent.
#[tokio::test]
async fn parts_of_the_display_are_not_for_the_agent() {
    let gateway = Setup::fake(&[]).start();
    let parts = json!([{ "type": "data-cursor", "data": 1 }, { "type": "step-start" }, { "type": "text", "text": "echo one" }]);
    let body = conversation(AI_SDK, "c", &[("user", parts)]);
    assert_eq!(text(&frames(&post(&gateway, AI_SDK, &body).await)), "one");
}

#[tokio::test]
async fn greeting_before_the_first_message_reaches_the_agent() {
    let gateway = Setup::fake(&[]).start();
    for protocol in [AI_SDK, AG_UI, COMPLETIONS, RESPONSES] {
        let say = |role: &'static str, text: &str| (role, text_parts(protocol, role, text));
        let mut messages = vec![say("assistant", "Welcome!"), say("user", "echo one")];
        let send = |messages: &[(&str, Value)]| {
            let body = conversation(protocol, "c", messages);
            let request = gateway.request(Method::POST, protocol).json(&body);
            outcome(request.header("x-conversation-id", "c"))
        };
        let (told, session, answer) = send(&messages).await;
        assert_eq!(told.expect("a notice"), "seeded", "{protocol}");
        messages.push(say("assistant", &answer));
        messages.push(say("user", "echo two"));
        let expected = (None, session.clone(), "two".to_owned());
        assert_eq!(send(&messages).await, expected, "{protocol}");
        let received = prompts(&gateway, &session).await;
        let first = "The conversation so far:\n\nAssistant: Welcome!\n\nThe next message:|echo one";
        assert_eq!(received, [first, "echo two"], "{protocol}");
    }
}

/// The record of a conversation has 500 turns. A client may have more messages.
#[tokio::test]
async fn conversation_with_more_messages_than_the_record_goes_on() {
    let gateway = Setup::fake(&[]).start();
    for protocol in [AI_SDK, AG_UI, COMPLETIONS, RESPONSES] {
        let say = |at: usize| {
            let text = format!("echo {}", at % 7);
            ("user", text_parts(protocol, "user", &text))
        };
        let mut messages: Vec<(&str, Value)> = (0..510).map(say).collect();
        let mut first = None;
        for at in 510..513 {
            let body = conversation(protocol, "c", &messages);
            let request = gateway.request(Method::POST, protocol).json(&body);
            let request = request.header("x-conversation-id", "c");
            let (told, session, shown) = outcome(request).await;
            if let Some(first) = &first {
                assert_eq!((told, &session), (None, first), "{protocol} {at}");
                assert_eq!(shown, ((at - 1) % 7).to_string(), "{protocol} {at}");
            } else {
                assert_eq!(told.expect("a notice"), "seeded", "{protocol}");
                first = Some(session);
            }
            messages.push(say(at));
        }
    }
}

/// A response has the notices of its request in its metadata.
#[tokio::test]
async fn response_has_the_notices_in_its_metadata() {
    let gateway = Setup::fake(&[]).start();
    let say = |role: &'static str, text: &str| (role, text_parts(RESPONSES, role, text));
    let messages = [
        say("user", "echo one"),
        say("assistant", "one"),
        say("user", "echo two"),
    ];
    let shown = frames(
        &post(
            &gateway,
            RESPONSES,
            &conversation(RESPONSES, "c", &messages),
        )
        .await,
    );
    for kind in ["response.created", "response.completed"] {
        let frame = shown.iter().find(|frame| frame["type"] == kind);
        let metadata = &frame.expect("a frame")["response"]["metadata"];
        assert_eq!(metadata["history"], "seeded");
        let notice = metadata["notice"].as_str().expect("a sentence");
        assert!(notice.starts_with("This conversation began elsewhere."));
    }
    let id = &shown[0]["response"]["id"];
    let again = gateway
        .get(&format!("{RESPONSES}/{}", id.as_str().expect("an id")))
        .await;
    assert_eq!(again["metadata"], json!({}));
}

/// A prompt whose answer is another one in each session.
const OWN_ANSWER: &str = r#"raw {"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"$SESSION","update":{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"I am $SESSION"}}}}"#;

/// Two chats with the same messages of the user and different answers.
#[tokio::test]
async fn chats_with_equal_messages_get_their_own_answers() {
    let gateway = Setup::fake(&[]).start();
    for protocol in [COMPLETIONS, RESPONSES] {
        let send = |messages: &[(&str, Value)], retries: &str| {
            let body = conversation(protocol, "c", messages);
            let request = gateway.request(Method::POST, protocol).json(&body);
            outcome(request.header("x-stainless-retry-count", retries))
        };
        for (newest, second_retries) in [
            // Both run at the same time.
            ("slow chunks=4 ms=200", "0"),
            // The first request of the second chat did not arrive.
            ("echo next", "1"),
        ] {
            let mut chats = Vec::new();
            for _ in 0..2 {
                let mut messages = vec![("user", text_parts(protocol, "user", OWN_ANSWER))];
                let (_, session, answer) = send(&messages, "0").await;
                messages.push(("assistant", text_parts(protocol, "assistant", &answer)));
                messages.push(("user", text_parts(protocol, "user", newest)));
                chats.push((messages, session));
            }
            let [(one, first), (two, second)] = &chats[..] else {
                panic!("two chats")
            };
            assert_ne!(first, second, "{protocol}");
            let shown = if second_retries == "0" {
                <[_; 2]>::from(tokio::join!(send(one, "0"), send(two, "0")))
            } else {
                [send(one, "0").await, send(two, second_retries).await]
            };
            for ((told, session, _), own) in shown.iter().zip([first, second]) {
                assert_eq!((told, session), (&None, own), "{protocol} {newest}");
            }
            assert_eq!(turns(&gateway, second).await, 2, "{protocol} {newest}");
        }
    }
}

/// Responses that refer to answers by their ids, as with stored responses.
#[tokio::test]
async fn ids_of_items_name_the_session() {
    let gateway = Setup::fake(&[]).start();
    let send = async |items: &[Value]| {
        let body = json!({ "model": "fake", "input": items });
        let request = gateway.request(Method::POST, RESPONSES).json(&body);
        let response = request.send().await.expect("an answer");
        assert!(!response.headers().contains_key("x-acp-history"));
        response.json::<Value>().await.expect("JSON")
    };
    let hello = json!({ "role": "user", "content": "echo hello" });
    let one = send(std::slice::from_ref(&hello)).await;
    let two = send(std::slice::from_ref(&hello)).await;
    for first in [one, two] {
        let reference = json!({ "type": "item_reference", "id": first["output"][0]["id"] });
        let next = json!({ "role": "user", "content": "echo next" });
        let second = send(&[hello.clone(), reference, next]).await;
        assert_eq!(second["conversation"], first["conversation"]);
    }
}

#[tokio::test]
async fn all_new_messages_of_a_response_reach_the_agent() {
    let gateway = Setup::fake(&[]).start();
    let first = json!({ "model": "fake", "input": "echo one", "stream": true });
    let first = frames(&post(&gateway, RESPONSES, &first).await);
    let item = |text: &str| json!({ "role": "user", "content": text });
    let next = json!({ "model": "fake", "previous_response_id": first[0]["response"]["id"], "stream": true,
        "input": [item("left"), item("echo two")] });
    let next = frames(&post(&gateway, RESPONSES, &next).await);
    let response = &next.last().expect("a frame")["response"];
    assert_eq!(response["metadata"]["history"], "joined");
    let [session] = &sessions(&gateway).await[..] else {
        panic!("one session")
    };
    assert_eq!(
        prompts(&gateway, session).await,
        ["echo one", "left|echo two"]
    );
    // A conversation that has no turn yet gets the instructions.
    let created = json!({ "metadata": { "model": "fake" } });
    let (status, created) = gateway.post("/openai/v1/conversations", &created).await;
    assert_eq!(status, StatusCode::OK, "{created}");
    let body = json!({ "model": "fake", "conversation": created["id"], "instructions": "be brief", "input": "echo three", "stream": true });
    let shown = frames(&post(&gateway, RESPONSES, &body).await);
    assert_eq!(shown[0]["response"]["metadata"], json!({}));
    let id = created["id"].as_str().expect("an id");
    let sent = prompts(&gateway, id.strip_prefix("conv_").expect("a session")).await;
    assert_eq!(sent, ["be brief|echo three"]);
}

#[tokio::test]
async fn all_instructions_reach_the_agent_in_each_protocol() {
    let gateway = Setup::fake(&[]).start();
    for protocol in [AI_SDK, AG_UI, COMPLETIONS, RESPONSES] {
        let say = |role: &'static str, text: &str| {
            let parts = if role == "assistant" { role } else { "user" };
            (role, text_parts(protocol, parts, text))
        };
        let mut messages = vec![
            say("system", "be brief"),
            say("developer", "be kind"),
            say("user", "echo one"),
        ];
        let send = |messages: &[(&str, Value)]| {
            let body = conversation(protocol, "c", messages);
            let request = gateway.request(Method::POST, protocol).json(&body);
            outcome(request.header("x-conversation-id", "c"))
        };
        let (told, session, _) = send(&messages).await;
        assert_eq!(told, None, "{protocol}");
        assert_eq!(
            prompts(&gateway, &session).await,
            ["be brief\n\nbe kind|echo one"],
            "{protocol}"
        );
        // Another one later has no effect.
        messages.extend([say("assistant", "be brief"), say("system", "be loud")]);
        messages.push(say("user", "echo two"));
        let (told, ..) = send(&messages).await;
        assert_eq!(told.expect("a notice"), "instructions", "{protocol}");
    }
}

#[tokio::test]
async fn message_after_the_delete_of_its_session_is_reported() {
    let gateway = Setup::fake(&[]).start();
    for (at, protocol) in [AI_SDK, AG_UI, COMPLETIONS].into_iter().enumerate() {
        let send = |word: &str, ids: usize| outcome(requests(&gateway, protocol, &[word], ids));
        let (_, session, _) = send("echo one", at).await;
        let path = format!("/v1/sessions/{session}");
        gateway.call(Method::DELETE, &path).await;
        let (told, ..) = send("echo two", at + 10).await;
        assert_eq!(told.expect("a notice"), "forgotten", "{protocol}");
        assert_eq!(
            send("echo three", at + 20).await.0.expect("a notice"),
            "continued"
        );
    }
}

/// The messages that a session received as one prompt have one answer: that of the last.
#[tokio::test]
async fn first_message_of_a_known_history_is_not_answered_with_its_end() {
    let gateway = Setup::fake(&[]).start();
    let both = ui_messages("c", &["echo one", "echo two"]);
    post(&gateway, AI_SDK, &both).await;
    let first = ui_messages("c", &["echo one"]);
    let request = gateway.request(Method::POST, AI_SDK).json(&first);
    let response = request.send().await.expect("an answer");
    assert_eq!(response.headers()["x-acp-history"], "branched");
    assert_eq!(
        text(&frames(&response.text().await.expect("a body"))),
        "one"
    );
}

/// Some clients drop a message whose turn failed. The conversation continues, and the client is told.
#[tokio::test]
async fn history_without_the_failed_message_continues_its_session() {
    let gateway = Setup::fake(&[]).start();
    for protocol in [COMPLETIONS, RESPONSES] {
        let word = if protocol == RESPONSES { "uno" } else { "one" };
        let say = |role: &'static str, text: &str| (role, text_parts(protocol, role, text));
        let send = |messages: &[(&str, Value)]| {
            let body = conversation(protocol, "c", messages);
            outcome(gateway.request(Method::POST, protocol).json(&body))
        };
        let mut messages = vec![say("user", &format!("echo {word}"))];
        let (_, session, _) = send(&messages).await;
        messages.push(say("assistant", word));
        for (newest, told) in [
            ("error message=quota", None),
            // The person tries again, and then something else.
            ("error message=quota", Some("continued")),
            ("echo two", Some("continued")),
        ] {
            messages.push(say("user", newest));
            let (header, of, _) = send(&messages).await;
            assert_eq!(
                (header.as_deref(), &of),
                (told, &session),
                "{protocol} {newest}"
            );
            if newest != "echo two" {
                messages.pop();
            }
        }
        messages.extend([say("assistant", "two"), say("user", "echo three")]);
        let expected = (None, session.clone(), "three".to_owned());
        assert_eq!(send(&messages).await, expected, "{protocol}");
        assert_eq!(turns(&gateway, &session).await, 5, "{protocol}");
    }
}
