//! Events of keys, tickets, sign-ins, isolation and retention, each caused by a real action.

use reqwest::Method;
use rustix::process::Signal;
use serde_json::{Value, json};

use super::command::{export, serve_link};
use super::{PATIENCE, audit, first, of, settled};
use crate::agents::socket::{Socket, offered};
use crate::key_life::{key, key_command};
use crate::support::gateway::KEY;
use crate::support::{Answer, Gateway, Setup, eventually};

/// The id of the admin key.
async fn key_id(gateway: &Gateway) -> String {
    gateway
        .posted("/v1/tickets", &[], &json!({ "paths": ["/v1/events"] }))
        .await;
    first(gateway, "ticket.created").await["actor"]["keyId"]
        .as_str()
        .expect("an id")
        .to_owned()
}

#[tokio::test]
async fn changes_of_a_key_are_recorded_once_in_their_commit() {
    let mut gateway = Setup::fake(&[]).start();
    key(&gateway, "alice", "read,prompt").await;
    key_command(
        &gateway,
        &["update", "alice", "--scopes", "read", "--max-streams", "3"],
    );
    key_command(&gateway, &["revoke", "alice"]);
    let revoked = settled(&mut gateway, "key.revoked").await;
    let [revoked] = &revoked[..] else {
        panic!("{revoked:?}")
    };
    assert_eq!(revoked["actor"], json!({ "kind": "command_line" }));
    let events = audit(&gateway).await;
    let created = of(&events, "key.created");
    let updated = of(&events, "key.updated");
    let ([created], [updated]) = (&created[..], &updated[..]) else {
        panic!("{events:?}")
    };
    assert_eq!(
        (&created["key"]["name"], &created["key"]["kind"]),
        (&json!("alice"), &json!("named"))
    );
    assert_eq!(created["key"]["scopes"], json!(["read", "prompt"]));
    assert_eq!(updated["key"]["scopes"], json!(["read"]));
    assert_eq!(
        (&updated["previousScopes"], &updated["limitsChanged"]),
        (&json!(["read", "prompt"]), &json!(true))
    );
    assert!(
        [created, updated]
            .iter()
            .all(|event| event["key"]["id"] == revoked["key"]["id"])
    );
}

#[tokio::test]
async fn changes_without_a_running_gateway_are_recorded_at_the_next_start() {
    let mut gateway = Setup::fake(&[]).start();
    gateway.stop();
    key_command(&gateway, &["create", "bob"]);
    assert_eq!(
        of(&export(&gateway, &[]), "key.created").len(),
        1,
        "the export has pending changes"
    );
    gateway.start();
    let created = first(&gateway, "key.created").await;
    assert_eq!(
        (&created["key"]["name"], &created["actor"]["kind"]),
        (&json!("bob"), &json!("command_line"))
    );
    assert_eq!(settled(&mut gateway, "key.created").await.len(), 1);
}

#[tokio::test]
async fn a_printed_link_its_use_and_its_expiry_are_recorded() {
    let mut gateway = Setup::fake(&[])
        .settings("auth.link_key_idle_timeout = \"6s\"")
        .start();
    gateway.stop();
    {
        let link = serve_link(&gateway);
        for _ in 0..2 {
            let request = gateway
                .http
                .get(format!("{}/v1", link.url))
                .bearer_auth(&link.key);
            assert_eq!(request.send().await.expect("an answer").status(), 200);
        }
        eventually("the link key expires", super::PATIENCE, || async {
            let request = gateway.http.get(format!("{}/v1/agents", link.url));
            // An invalid key is a use of no key.
            let unused = tokio::time::sleep(std::time::Duration::from_millis(6500));
            unused.await;
            let answer = request
                .bearer_auth(&link.key)
                .send()
                .await
                .expect("an answer");
            (answer.status() == 401).then_some(())
        })
        .await;
        link.stop();
    }
    let events = export(&gateway, &[]);
    let created = of(&events, "key.created");
    let id = &created[0]["key"]["id"];
    assert_eq!(
        (created.len(), &created[0]["key"]["kind"]),
        (1, &json!("link"))
    );
    assert_eq!(created[0]["actor"]["kind"], "gateway");
    let printed = of(&events, "link.printed");
    let used = of(&events, "key.used_from_new_network");
    let expired = of(&events, "key.expired");
    assert_eq!((printed.len(), &printed[0]["keyId"]), (1, id));
    assert_eq!((used.len(), &used[0]["actor"]["keyId"]), (1, id));
    assert_eq!(
        (&used[0]["actor"]["name"], &used[0]["actor"]["address"]),
        (&json!("owner"), &json!("127.0.0.1"))
    );
    assert_eq!(
        (
            expired.len(),
            &expired[0]["key"]["id"],
            &expired[0]["actor"]["kind"]
        ),
        (1, id, &json!("timeout"))
    );
}

#[tokio::test]
async fn rotation_of_the_operators_key_is_recorded() {
    let mut gateway = Setup::fake(&[]).run_by(&["setsid"]).start();
    let previous = key_id(&gateway).await;
    for (text, count) in [
        ("acpg_another_key_that_is_long_enough_for_an_admin", 1),
        (KEY, 2),
    ] {
        std::fs::write(gateway.path("admin-key"), text).expect("the folder is ours");
        gateway.signal(Signal::HUP);
        eventually("the reload", super::PATIENCE, || async {
            (gateway
                .log()
                .matches("the configuration was reloaded")
                .count()
                == count)
                .then_some(())
        })
        .await;
    }
    let rotated = settled(&mut gateway, "key.rotated").await;
    assert_eq!(
        (
            rotated.len(),
            &rotated[0]["previousKeyId"],
            &rotated[1]["keyId"]
        ),
        (2, &json!(previous), &json!(previous))
    );
    assert_eq!(rotated[0]["keyId"], rotated[1]["previousKeyId"]);
    assert_ne!(rotated[0]["keyId"], json!(previous));
}

#[tokio::test]
async fn tickets_are_recorded_with_their_author() {
    let mut gateway = Setup::fake(&[]).start();
    for _ in 0..3 {
        let ticket = gateway
            .posted("/v1/tickets", &[], &json!({ "paths": ["/v1/events"] }))
            .await;
        assert_eq!(ticket.status, 201);
    }
    let created = settled(&mut gateway, "ticket.created").await;
    assert_eq!(
        created
            .iter()
            .filter_map(|event| event["count"].as_u64())
            .sum::<u64>(),
        3
    );
    let actor = &created[0]["actor"];
    assert_eq!(
        (&actor["kind"], &actor["name"], &actor["address"]),
        (&json!("key"), &json!("owner"), &json!("127.0.0.1"))
    );
}

#[tokio::test]
async fn sign_ins_are_recorded_with_their_outcome() {
    let mut gateway = Setup::fake(&["--auth-required", "--logout"]).start();
    let auth = "/v1/agents/fake/auth";
    assert_eq!(
        gateway
            .posted(auth, &[], &json!({ "methodId": "login" }))
            .await
            .status,
        204
    );
    gateway
        .posted(auth, &[], &json!({ "methodId": "nonsense" }))
        .await
        .problem(422, "invalid");
    assert_eq!(gateway.call(Method::DELETE, auth).await.status, 204);
    let ended = settled(&mut gateway, "sign_in.ended").await;
    let events = audit(&gateway).await;
    let started = of(&events, "sign_in.started");
    let out = of(&events, "sign_in.signed_out");
    assert_eq!(
        (started.len(), ended.len(), out.len()),
        (1, 1, 1),
        "{events:?}"
    );
    assert_eq!(
        (&ended[0]["methodId"], &ended[0]["outcome"]),
        (&json!("login"), &json!("succeeded"))
    );
    for event in [started[0], &ended[0], out[0]] {
        assert_eq!(
            (&event["agent"], &event["actor"]["name"]),
            (&json!("fake"), &json!("owner"))
        );
    }
}

#[tokio::test]
async fn terminal_sign_ins_are_recorded_with_their_outcome() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("signed-in");
    let args = [
        "--auth-required",
        "--auth-file",
        file.to_str().expect("UTF-8"),
    ];
    let mut gateway = Setup::fake_with(&args, "terminal_auth = true").start();
    let unused = offered(&gateway).await;
    assert!(
        of(&audit(&gateway).await, "sign_in.started").is_empty(),
        "the terminal is not open: {unused}"
    );
    for (input, outcome) in [
        (Some("wrong\n"), "failed"),
        (None, "aborted"),
        (Some("sesame\n"), "succeeded"),
    ] {
        let mut socket = Socket::open(&gateway, &offered(&gateway).await).await;
        socket.until("the word: ").await;
        match input {
            Some(input) => {
                socket.types(input).await;
                assert_eq!(socket.next().await.expect("its end")["type"], "exit");
            }
            None => socket.close().await,
        }
        let last = || async {
            let events = audit(&gateway).await;
            of(&events, "sign_in.ended")
                .last()
                .is_some_and(|ended| ended["outcome"] == outcome)
                .then_some(())
        };
        eventually(outcome, PATIENCE, last).await;
    }
    let ended = settled(&mut gateway, "sign_in.ended").await;
    let events = audit(&gateway).await;
    let started = of(&events, "sign_in.started");
    assert_eq!((started.len(), ended.len()), (3, 3), "{events:?}");
    for event in started.into_iter().chain(&ended) {
        assert_eq!(
            (&event["agent"], &event["actor"]["name"]),
            (&json!("fake"), &json!("owner"))
        );
        assert_eq!(
            event["methodId"],
            Value::Null,
            "a terminal has no method: {event}"
        );
        assert!(!event.to_string().contains("sesame"), "{event}");
    }
}

#[tokio::test]
async fn the_isolation_of_each_agent_process_is_recorded() {
    let mut gateway = Setup::fake(&[]).start();
    let session = gateway.session("fake").await;
    let turn = gateway.turn(&session, "pid").await;
    let pid: u32 = turn["text"]
        .as_str()
        .and_then(|text| text.trim().strip_prefix("pid=")?.parse().ok())
        .expect("a pid");
    let applied = settled(&mut gateway, "isolation.applied").await;
    let [applied] = &applied[..] else {
        panic!("{applied:?}")
    };
    assert_eq!(
        (&applied["agent"], &applied["processId"]),
        (&json!("fake"), &json!(pid))
    );
    assert_eq!(
        (&applied["level"], &applied["mechanism"]),
        (&json!("off"), &json!("none"))
    );
    assert_eq!(applied["actor"], json!({ "kind": "gateway" }));
}

#[tokio::test]
async fn retention_prunes_the_oldest_events_and_records_it() {
    let mut gateway = Setup::fake(&[])
        .table("[testing]\naudit_max_bytes = \"1 KiB\"")
        .start();
    for name in ["a", "b", "c", "d", "e"] {
        key_command(&gateway, &["create", name]);
        let created = || async {
            of(&audit(&gateway).await, "key.created")
                .last()
                .map(|event| event["key"]["name"] == name)
        };
        eventually("one run for each key", super::PATIENCE, || async {
            created().await.filter(|is| *is)
        })
        .await;
    }
    // Retention runs at each start.
    gateway.stop();
    gateway.start();
    let events = eventually("the events are pruned", super::PATIENCE, || async {
        let events = audit(&gateway).await;
        let through = of(&events, "audit.pruned").last()?["throughSeq"].as_u64();
        (events[0]["seq"].as_u64() == through.map(|seq| seq + 1)).then_some(events)
    })
    .await;
    assert!(of(&events, "key.created").len() < 5);
    let verified = super::command::audit_command(&gateway, &["verify"]);
    assert!(verified.status.success(), "{verified:?}");
}

#[tokio::test]
async fn rejections_have_their_reason_and_no_secret() {
    let mut gateway = Setup::fake(&[]).start();
    gateway.stop();
    let reader = key_command(&gateway, &["create", "reader", "--scopes", "read"]);
    gateway.start();
    let get = |path: &str| gateway.http.get(format!("{}{path}", gateway.url));
    let canary = "acpg_canary_wrong_key";
    let requests = [
        (get("/v1"), 401),
        (get("/v1").bearer_auth(canary), 401),
        (get("/v1/events?ticket=canary"), 401),
        (
            get("/v1").bearer_auth(KEY).header("host", "canary.example"),
            421,
        ),
        (
            get("/v1")
                .bearer_auth(KEY)
                .header("origin", "http://elsewhere.example"),
            403,
        ),
        (get("/v1/audit").bearer_auth(&reader), 403),
    ];
    for (request, status) in requests {
        assert_eq!(Answer::of(request).await.status, status);
    }
    let rejected = settled(&mut gateway, "request.rejected").await;
    let summary = |event: &Value| {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let actor = &event["actor"];
        assert_eq!(
            (&event["count"], &actor["address"]),
            (&json!(1), &json!("127.0.0.1"))
        );
        (
            text(&event["reason"]),
            text(&actor["kind"]),
            text(&actor["name"]),
        )
    };
    let mut found: Vec<_> = rejected.iter().map(summary).collect();
    found.sort();
    let client = |reason: &str| (reason.to_owned(), "client".to_owned(), String::new());
    let expected = [
        (
            "forbidden".to_owned(),
            "key".to_owned(),
            "reader".to_owned(),
        ),
        client("invalid_key"),
        client("invalid_ticket"),
        client("misdirected_request"),
        client("missing_key"),
        client("origin_forbidden"),
    ];
    assert_eq!(found, expected);
    let everything = format!("{:?}{}", audit(&gateway).await, gateway.log());
    assert!(
        !everything.contains("canary")
            && !everything.contains(&reader)
            && !everything.contains(KEY)
    );
}

#[tokio::test]
async fn messages_at_acp_that_a_key_does_not_permit_are_counted() {
    let mut gateway = Setup::fake(&[]).start();
    let reader = key(&gateway, "reader", "read").await;
    let http = gateway.http.clone();
    let url = format!("{}/acp", gateway.url);
    let post = |message: Value| http.post(&url).bearer_auth(&reader).json(&message);
    let params = json!({ "protocolVersion": 1 });
    let opened =
        post(json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params }));
    let opened = opened.send().await.expect("an answer");
    let connection = opened.headers()["acp-connection-id"].clone();
    // The answer to the POST follows the check.
    let params = json!({ "sessionId": "s", "prompt": [] });
    for message in [
        json!({ "jsonrpc": "2.0", "id": 1, "method": "session/prompt", "params": params }),
        json!({ "jsonrpc": "2.0", "method": "session/cancel", "params": params }),
    ] {
        let sent = post(message)
            .header("acp-connection-id", connection.clone())
            .send()
            .await;
        assert_eq!(sent.expect("an answer").status(), 202);
    }
    let rejected = settled(&mut gateway, "request.rejected").await;
    // The gateway does not accept a new key at once, so other requests were rejected too.
    let forbidden = rejected
        .iter()
        .filter(|event| event["reason"] == "forbidden");
    let number = |event: &Value| {
        assert_eq!(event["actor"]["name"], "owner");
        event["count"].as_u64().expect("a number")
    };
    assert_eq!(forbidden.map(number).sum::<u64>(), 2, "{rejected:?}");
}
