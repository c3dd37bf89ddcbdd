//! Members that take more than they may: names of others, all names, and names after the end of their key.

use std::collections::BTreeMap;
use std::time::Duration;

use base::types::random_uuid;
use futures_util::{SinkExt as _, StreamExt as _};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;
use tokio_tungstenite::tungstenite::protocol::CloseFrame;
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream, connect_async};
use wire::acp::percent_encode_path;
use wire::fleet::{Hello, MemberFrame, MemberInfo, PROTOCOL, encode};

use super::cca::Worker;
use super::{Member, PATIENCE, address, ended, session};
use crate::key_life::{key, key_command, user_key};
use crate::support::gateway::KEY;
use crate::support::log::all;
use crate::support::{Answer, Gateway, Setup, eventually};

/// A member that speaks the frames of `connect`.
struct Raw(WebSocketStream<MaybeTlsStream<TcpStream>>);

fn info() -> MemberInfo {
    MemberInfo {
        capacity: 1,
        version: "1.0.0".to_owned(),
        dialect: base::types::AgentDialect::Acp,
        roots: vec!["/srv".to_owned()],
        metadata: BTreeMap::new(),
    }
}

impl Raw {
    /// Connects and says hello. The error is the close frame.
    async fn connect(
        gateway: &Gateway,
        key: &str,
        name: &str,
        info: MemberInfo,
    ) -> Result<Self, CloseFrame> {
        let url = format!("ws://{}/v1/fleet/connect", gateway.address());
        let mut request = url.into_client_request().expect("a URL");
        let value = format!("Bearer {key}").parse().expect("a header");
        request.headers_mut().insert("authorization", value);
        let (socket, _) = connect_async(request).await.expect("the key is valid");
        let mut member = Self(socket);
        let hello = Hello {
            protocol: PROTOCOL,
            name: name.parse().expect("a name"),
            instance: random_uuid(),
            info,
            channels: Vec::new(),
            attempt: 0,
            error: None,
        };
        let frame = encode(&MemberFrame::Hello(Box::new(hello)), b"");
        member
            .0
            .send(Message::Binary(frame))
            .await
            .expect("the gateway reads");
        match member.next().await {
            Some(Message::Binary(welcome)) if welcome.starts_with(b"{\"type\":\"welcome\"") => {
                Ok(member)
            }
            Some(Message::Close(Some(frame))) => Err(frame),
            other => panic!("{other:?}"),
        }
    }

    async fn next(&mut self) -> Option<Message> {
        let message = tokio::time::timeout(PATIENCE, self.0.next()).await;
        message.expect("in time")?.ok()
    }

    async fn closed(&mut self) -> Option<CloseFrame> {
        loop {
            match self.next().await {
                Some(Message::Close(frame)) => return frame,
                Some(_) => {}
                None => return None,
            }
        }
    }
}

async fn members(gateway: &Gateway) -> Vec<Value> {
    let list = gateway.get("/v1/fleet").await;
    list["members"].as_array().expect("members").clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn one_key_gets_a_limited_number_of_names() {
    let gateway = Setup::fake(&[])
        .settings("limits.per_key.max_fleet_members = 3")
        .start();
    let greedy = user_key(&gateway, "greedy", "fleet").await;
    let honest = user_key(&gateway, "honest", "fleet").await;
    let mut taken = Vec::new();
    for number in 0..20 {
        match Raw::connect(&gateway, &greedy, &format!("m{number}"), info()).await {
            Ok(member) => taken.push(member),
            Err(frame) => {
                let limit = "limits.per_key.max_fleet_members";
                assert!(frame.reason.contains(limit), "{frame:?}");
            }
        }
    }
    assert_eq!(taken.len(), 3);
    for number in 0..20 {
        // The dialect of programs has the same limit.
        let query = format!("name=w{number}");
        let refused = Worker::connect_with(&gateway, &query, &greedy).await.err();
        assert_eq!(refused.map(|error| error.0), Some(StatusCode::FORBIDDEN));
    }
    let _honest = Raw::connect(&gateway, &honest, "laptop", info())
        .await
        .expect("another key has its own names");
    assert_eq!(members(&gateway).await.len(), 4);

    key_command(&gateway, &["update", "greedy", "--max-fleet-members", "4"]);
    let _fourth = eventually("the key has its own limit", PATIENCE, || async {
        Raw::connect(&gateway, &greedy, "fourth", info()).await.ok()
    })
    .await;
    let frame = Raw::connect(&gateway, &greedy, "fifth", info()).await.err();
    let frame = frame.expect("the limit is 4");
    assert!(
        frame.reason.contains("key update --max-fleet-members"),
        "{frame:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn member_beyond_the_limit_replaces_a_disconnected_one_of_its_key() {
    let gateway = Setup::fake(&[])
        .settings("limits.per_key.max_fleet_members = 2\ntesting.member_return_timeout = \"200ms\"")
        .start();
    let key_of = user_key(&gateway, "one", "fleet").await;
    let other = user_key(&gateway, "other", "fleet").await;
    drop(
        Raw::connect(&gateway, &other, "gone-too", info())
            .await
            .expect("it joins"),
    );
    drop(
        Raw::connect(&gateway, &key_of, "gone", info())
            .await
            .expect("it joins"),
    );
    let _stays = Raw::connect(&gateway, &key_of, "stays", info())
        .await
        .expect("it joins");
    let _later = eventually("the name is free", PATIENCE, || async {
        Raw::connect(&gateway, &key_of, "later", info()).await.ok()
    })
    .await;
    let members = members(&gateway).await;
    let names: Vec<_> = members.iter().map(|member| &member["name"]).collect();
    assert_eq!(names, ["gone-too", "later", "stays"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn members_of_a_revoked_key_end_at_once_and_do_not_return() {
    let mut gateway = Setup::fake(&[]).start();
    let leaked = user_key(&gateway, "leaked", "fleet").await;
    let mut away = Raw::connect(&gateway, &leaked, "away", info())
        .await
        .expect("it joins");
    away.0.close(None).await.expect("it closes");
    let member = Member::start(&address(&gateway), "laptop", &leaked, &[]);
    let mut raw = Raw::connect(&gateway, &leaked, "raw", info())
        .await
        .expect("it joins");
    let on_it = session(&gateway, &member, "laptop").await;
    let prompt = gateway.prompt(&on_it, "hang").await;
    eventually("the prompt is sent", PATIENCE, || async {
        let events = gateway.all_events(&on_it).await;
        (!all(&events, "prompt.started").is_empty()).then_some(())
    })
    .await;
    assert_eq!(members(&gateway).await.len(), 3);

    key_command(&gateway, &["revoke", "leaked"]);
    let frame = raw.closed().await.expect("a reason");
    assert!(frame.reason.contains("the key has ended"), "{frame:?}");
    eventually("its members are gone", Duration::from_secs(10), || async {
        members(&gateway).await.is_empty().then_some(())
    })
    .await;
    let end = ended(&gateway, &on_it, &prompt).await;
    assert_eq!(end["error"]["code"], "member_unavailable", "{end}");

    // The names are free at once, also after a restart.
    let other = user_key(&gateway, "other", "fleet").await;
    for name in ["away", "raw"] {
        Raw::connect(&gateway, &other, name, info())
            .await
            .expect("the name is free");
    }
    // The gateway stores a member before it is in the catalogue.
    eventually("the members are stored", PATIENCE, || async {
        for name in ["away", "raw"] {
            let path = format!("/v1/agents/{name}");
            let known = gateway.request(Method::GET, &path).send().await.ok()?;
            (known.status() == 200).then_some(())?;
        }
        Some(())
    })
    .await;
    drop(member);
    gateway.kill();
    key_command(&gateway, &["revoke", "other"]);
    gateway.start();
    assert_eq!(
        members(&gateway).await,
        Vec::<Value>::new(),
        "revoked while it was down"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn names_of_known_agents_need_a_key_that_permits_them() {
    let gateway = Setup::fake(&[]).start();
    let plain = user_key(&gateway, "plain", "fleet").await;
    for name in ["claude", "codex", "demo", "claude-agent-acp"] {
        let frame = Raw::connect(&gateway, &plain, name, info()).await.err();
        let frame = frame.unwrap_or_else(|| panic!("{name} is reserved"));
        assert!(frame.reason.contains("--member-names"), "{frame:?}");
        let worker = Worker::connect_with(&gateway, &format!("name={name}"), &plain).await;
        assert_eq!(
            worker.err().map(|error| error.0),
            Some(StatusCode::FORBIDDEN),
            "{name}"
        );
    }
    let permitted = key_command(
        &gateway,
        &[
            "create",
            "permitted",
            "--scopes",
            "fleet",
            "--member-names",
            "claude,laptop",
        ],
    );
    let list = key_command(&gateway, &["list"]);
    assert!(list.contains("member-names=claude+laptop"), "{list}");
    let mut claude = Raw::connect(&gateway, &permitted, "claude", info())
        .await
        .expect("permitted");
    let frame = Raw::connect(&gateway, &permitted, "other", info())
        .await
        .err();
    assert!(
        frame
            .expect("not in the list")
            .reason
            .contains("does not permit")
    );

    // A name that the key loses ends.
    key_command(
        &gateway,
        &["update", "permitted", "--member-names", "default"],
    );
    assert!(claude.closed().await.is_some());
    eventually("the member is gone", Duration::from_secs(10), || async {
        members(&gateway).await.is_empty().then_some(())
    })
    .await;
    // The operator's key permits every name.
    Raw::connect(&gateway, KEY, "claude", info())
        .await
        .expect("admin");
}

#[tokio::test(flavor = "multi_thread")]
async fn operator_removes_all_members_of_a_key_in_one_call() {
    let gateway = Setup::fake(&[]).start();
    let one = user_key(&gateway, "one", "fleet").await;
    let two = user_key(&gateway, "two", "fleet").await;
    let mut first = Raw::connect(&gateway, &one, "a", info())
        .await
        .expect("it joins");
    let mut second = Raw::connect(&gateway, &one, "b", info())
        .await
        .expect("it joins");
    let _other = Raw::connect(&gateway, &two, "c", info())
        .await
        .expect("it joins");
    let answer = gateway.call(Method::DELETE, "/v1/fleet?key=one").await;
    assert_eq!(
        (answer.status, &answer.body),
        (StatusCode::OK, &json!({ "members": ["a", "b"] }))
    );
    for member in [&mut first, &mut second] {
        let frame = member.closed().await.expect("a reason");
        assert!(frame.reason.contains("an operator removed"), "{frame:?}");
    }
    let left: Vec<_> = members(&gateway).await;
    assert_eq!((left.len(), &left[0]["name"]), (1, &json!("c")));
    let none = gateway.call(Method::DELETE, "/v1/fleet?key=one").await;
    assert_eq!(
        (none.status, &none.body),
        (StatusCode::OK, &json!({ "members": [] }))
    );
    let problem = gateway
        .call(Method::DELETE, "/v1/fleet")
        .await
        .problem(422, "invalid");
    assert_eq!(problem["errors"][0]["pointer"], "key", "{problem}");
}

#[tokio::test(flavor = "multi_thread")]
async fn descriptions_with_unsafe_characters_are_rejected() {
    let gateway = Setup::fake(&[]).start();
    for text in [
        "\u{202e}",
        "\u{2066}",
        "\u{200b}",
        "\u{e0041}",
        "\n",
        "\u{1b}[31m",
    ] {
        let text = format!("/a{text}b");
        let with = |change: &dyn Fn(&mut MemberInfo)| {
            let mut info = info();
            change(&mut info);
            info
        };
        for (member, info) in [
            ("version", with(&|info| info.version.clone_from(&text))),
            ("roots", with(&|info| info.roots.push(text.clone()))),
            (
                "metadata",
                with(&|info| drop(info.metadata.insert("os".into(), text.clone()))),
            ),
            (
                "metadata",
                with(&|info| drop(info.metadata.insert(text.clone(), "x".into()))),
            ),
        ] {
            let frame = Raw::connect(&gateway, KEY, "laptop", info).await.err();
            let reason = frame.unwrap_or_else(|| panic!("{member} {text:?}")).reason;
            assert!(
                reason.contains(member) && reason.contains("U+"),
                "{member}: {reason}"
            );
        }
        let query = format!("name=worker&root={}", percent_encode_path(&text));
        let mut worker = Worker::connect_with(&gateway, &query, KEY).await.ok();
        if let Some(worker) = &mut worker {
            assert!(worker.closed().await.contains("roots"));
        }
    }
    assert_eq!(members(&gateway).await, Vec::<Value>::new());
}

#[tokio::test]
async fn key_of_a_member_gets_nothing_at_acp() {
    let gateway = Setup::fake(&[]).start();
    let fleet = user_key(&gateway, "laptop", "fleet").await;
    let reader = key(&gateway, "reader", "read").await;
    let initialize = json!({
        "jsonrpc": "2.0", "id": 1, "method": "initialize",
        "params": { "protocolVersion": 1, "clientCapabilities": {} },
    });
    for path in ["/acp", "/acp/fake"] {
        let url = format!("{}{path}", gateway.url);
        let post = |key: &str| gateway.http.post(&url).bearer_auth(key).json(&initialize);
        let refused = Answer::of(post(&fleet)).await;
        assert_eq!(refused.status, StatusCode::FORBIDDEN, "{refused:?}");
        assert_eq!(refused.header("acp-connection-id"), None);
        assert_eq!(Answer::of(post(&reader)).await.status, StatusCode::OK);
        let get = gateway.http.get(&url).bearer_auth(&fleet);
        let get = get.header("accept", "text/event-stream");
        assert_eq!(Answer::of(get).await.status, StatusCode::FORBIDDEN);
        let delete = gateway.http.delete(&url).bearer_auth(&fleet);
        assert_eq!(Answer::of(delete).await.status, StatusCode::FORBIDDEN);
        let mut socket = format!("ws://{}{path}", gateway.address())
            .into_client_request()
            .expect("a URL");
        let offered = format!("acp.v1, bearer.{fleet}").parse().expect("a header");
        socket
            .headers_mut()
            .insert("sec-websocket-protocol", offered);
        let error = connect_async(socket).await.expect_err("it is refused");
        assert!(error.to_string().contains("403"), "{error}");
    }
}
