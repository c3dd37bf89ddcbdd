//! The list of members, drain and removal, and the scope of the keys of members.

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use super::{Member, PATIENCE, address, ended, session};
use crate::key_life::{key, user_key};
use crate::route_walk::operations::{Needs, operations};
use crate::support::gateway::KEY;
use crate::support::log::all;
use crate::support::{Answer, Gateway, Setup, eventually};

/// The only member of the fleet, as soon as it satisfies the condition.
async fn listed(gateway: &Gateway, condition: impl Fn(&Value) -> bool) -> Value {
    eventually("the member is listed", PATIENCE, || async {
        let members = gateway.get("/v1/fleet").await["members"].clone();
        assert!(members.as_array().expect("members").len() <= 1, "{members}");
        Some(members[0].clone()).filter(&condition)
    })
    .await
}

async fn status(gateway: &Gateway, method: Method, path: &str) -> StatusCode {
    gateway
        .request(method, path)
        .send()
        .await
        .expect("an answer")
        .status()
}

/// Sends a prompt that does not end, and waits until the agent has it.
async fn hanging(gateway: &Gateway, session: &str) -> Value {
    let prompt = gateway.prompt(session, "hang").await;
    eventually("the prompt is sent", PATIENCE, || async {
        let events = gateway.all_events(session).await;
        (!all(&events, "prompt.started").is_empty()).then_some(())
    })
    .await;
    prompt
}

#[tokio::test(flavor = "multi_thread")]
async fn list_has_the_state_the_load_and_the_description_of_a_member() {
    let mut gateway = Setup::fake(&[])
        .settings("testing.member_return_timeout = \"500ms\"")
        .start();
    assert_eq!(
        gateway.get("/v1/fleet").await,
        json!({ "members": [], "nextCursor": null })
    );
    let more = [
        "--capacity",
        "3",
        "--metadata",
        "os=linux",
        "--metadata",
        "note=a=b",
    ];
    let member = Member::start(&address(&gateway), "laptop", KEY, &more);
    session(&gateway, &member, "laptop").await;
    let connected = listed(&gateway, |member| member["latencyMs"].is_u64()).await;
    assert_eq!(connected["name"], "laptop");
    assert_eq!(connected["state"], "connected");
    assert_eq!(connected["draining"], false);
    assert_eq!(
        (&connected["processes"], &connected["capacity"]),
        (&json!(1), &json!(3))
    );
    assert_eq!(
        connected["metadata"],
        json!({ "os": "linux", "note": "a=b" })
    );
    assert_eq!(connected["version"], env!("CARGO_PKG_VERSION"));
    let since = connected["since"].as_str();
    let heard = connected["lastHeartbeatAt"].as_str();
    assert!(
        since.expect("a time") <= heard.expect("a time"),
        "{connected}"
    );

    drop(member);
    let away = listed(&gateway, |member| member["state"] == "disconnected").await;
    assert!(away["since"].as_str() > since, "{away}");
    assert_eq!(
        gateway.get("/v1/agents/laptop").await["status"]["state"],
        "disconnected"
    );
    // The gateway remembers the member.
    gateway.kill();
    gateway.start();
    let restored = listed(&gateway, |member| member["state"] == "disconnected").await;
    assert_eq!(restored["lastHeartbeatAt"], Value::Null);
    assert_eq!(
        (&restored["metadata"], &restored["key"]),
        (&connected["metadata"], &connected["key"])
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn drained_member_keeps_its_processes_and_gets_no_new_ones() {
    // The gateway stops the process of the member after the member has ended, so each step of the stop waits for its timeout.
    let steps = "testing.stop_stdin_timeout = \"100ms\"\ntesting.stop_term_timeout = \"100ms\"\ntesting.stop_kill_timeout = \"100ms\"\ntesting.session_close_timeout = \"100ms\"";
    let mut gateway = Setup::fake(&[]).settings(steps).start();
    let mut member = Member::start(&address(&gateway), "laptop", KEY, &[]);
    let running = session(&gateway, &member, "laptop").await;
    assert_eq!(
        status(&gateway, Method::POST, "/v1/fleet/laptop/drain").await,
        StatusCode::NO_CONTENT
    );
    assert_eq!(listed(&gateway, |_| true).await["draining"], true);
    let status_of_agent = gateway.get("/v1/agents/laptop").await["status"].clone();
    assert_eq!(
        status_of_agent,
        json!({ "state": "draining", "detail": null })
    );
    let (refused, body) = gateway
        .post("/v1/sessions", &json!({ "agent": "laptop" }))
        .await;
    assert_eq!(
        (refused, &body["code"]),
        (
            StatusCode::SERVICE_UNAVAILABLE,
            &json!("member_unavailable")
        ),
        "{body}"
    );
    let prompt = gateway.prompt(&running, "echo still here").await;
    assert_eq!(
        ended(&gateway, &running, &prompt).await["status"],
        "completed"
    );

    // Another start of the program is not drained.
    assert_eq!(member.stop(), Some(0), "{}", member.log());
    gateway.stop();
    gateway.start();
    let member = Member::start(&address(&gateway), "laptop", KEY, &[]);
    listed(&gateway, |member| member["state"] == "connected").await;
    session(&gateway, &member, "laptop").await;
    assert_eq!(listed(&gateway, |_| true).await["draining"], false);
}

#[tokio::test(flavor = "multi_thread")]
async fn removed_member_ends_and_its_turn_fails() {
    let mut gateway = Setup::fake(&[]).start();
    let mut member = Member::start(&address(&gateway), "laptop", KEY, &[]);
    let session_of_it = session(&gateway, &member, "laptop").await;
    let prompt = hanging(&gateway, &session_of_it).await;
    assert_eq!(
        status(&gateway, Method::DELETE, "/v1/fleet/laptop").await,
        StatusCode::NO_CONTENT
    );
    let end = ended(&gateway, &session_of_it, &prompt).await;
    assert_eq!(
        (&end["status"], &end["error"]["code"]),
        (&json!("failed"), &json!("member_unavailable"))
    );
    assert_eq!(
        member.child.wait().expect("the process is ours").code(),
        Some(1),
        "{}",
        member.log()
    );
    assert!(
        member.log().contains("an operator removed this member"),
        "{}",
        member.log()
    );
    eventually("the agent is gone", PATIENCE, || async {
        (status(&gateway, Method::GET, "/v1/agents/laptop").await == 404).then_some(())
    })
    .await;
    gateway.stop();
    gateway.start();
    assert_eq!(
        gateway.get("/v1/fleet").await["members"],
        json!([]),
        "the gateway has forgotten it"
    );

    // The name is free, also for another key, and the session works again.
    let other = user_key(&gateway, "other", "fleet").await;
    let member = Member::start(&address(&gateway), "laptop", &other, &[]);
    assert_eq!(listed(&gateway, Value::is_object).await["key"], "other");
    session(&gateway, &member, "laptop").await;
    let prompt = gateway.prompt(&session_of_it, "echo back").await;
    assert_eq!(
        ended(&gateway, &session_of_it, &prompt).await["status"],
        "completed"
    );
}

#[tokio::test]
async fn unknown_member_is_not_found() {
    let gateway = Setup::fake(&[]).start();
    // An agent of the configuration is no member.
    for name in ["nobody", "fake", "Not-A-Name"] {
        for (method, path) in [
            (Method::DELETE, format!("/v1/fleet/{name}")),
            (Method::POST, format!("/v1/fleet/{name}/drain")),
        ] {
            let answer = Answer::of(gateway.request(method, &path)).await;
            assert_eq!(
                (answer.status, &answer.body["code"]),
                (StatusCode::NOT_FOUND, &json!("not_found"))
            );
        }
    }
    // The path of this name is that of the connections.
    let mut reserved = Member::start(&address(&gateway), "connect", KEY, &["--max-attempts", "1"]);
    assert_eq!(
        reserved.child.wait().expect("the process is ours").code(),
        Some(1),
        "{}",
        reserved.log()
    );
    assert!(
        reserved.log().contains("the name `connect` is reserved"),
        "{}",
        reserved.log()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn scope_fleet_permits_connect_and_nothing_else() {
    let gateway = Setup::fake(&[]).start();
    let fleet = user_key(&gateway, "laptop", "fleet").await;
    let member = Member::start(&address(&gateway), "laptop", &fleet, &[]);
    session(&gateway, &member, "laptop").await;
    assert_eq!(listed(&gateway, |_| true).await["key"], "laptop");
    let mut refused = 0;
    for operation in operations() {
        let Needs::Key(Some(_)) = operation.needs else {
            continue;
        };
        let answer = Answer::of(operation.request(&gateway).bearer_auth(&fleet)).await;
        let name = format!("{} {}", operation.method, operation.template);
        if name == "GET /v1/fleet/connect" {
            assert_eq!(
                (answer.status.as_u16(), &answer.body["code"]),
                (400, &json!("malformed")),
                "no upgrade"
            );
            continue;
        }
        assert_eq!(
            (answer.status.as_u16(), &answer.body["code"]),
            (403, &json!("forbidden")),
            "{name}"
        );
        refused += 1;
    }
    assert!(refused > 40, "only {refused} operations were refused");

    let others = key(&gateway, "person", "read,prompt,approve,files,mcp").await;
    let mut rejected = Member::start(&address(&gateway), "other", &others, &[]);
    assert_eq!(
        rejected.child.wait().expect("the process is ours").code(),
        Some(1),
        "{}",
        rejected.log()
    );
    assert!(rejected.log().contains("403"), "{}", rejected.log());
    assert_eq!(
        gateway.get("/v1/fleet").await["members"]
            .as_array()
            .map(Vec::len),
        Some(1)
    );
}
