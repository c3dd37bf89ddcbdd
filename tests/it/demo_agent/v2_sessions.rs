//! Sessions of the demo agent in v2 of ACP, behind the gateway: resume, fork, delete, and sign-in.

use std::path::{Path, PathBuf};
use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};

use super::behind::{played, quicken, updates};
use super::v2::of_v2;
use crate::support::log::{agent_text, all};
use crate::support::{Gateway, Setup, eventually};

#[tokio::test]
async fn a_session_is_resumed_forked_and_remembers_its_options() {
    let (gateway, session) = of_v2("").await;
    played(&gateway, &session, "/remember apple").await;
    let turn = gateway.turn(&session, "/crash").await;
    assert_eq!(turn["error"]["code"], "agent_exited");
    assert_eq!(
        gateway.turn(&session, "/recall").await["text"],
        "The word is “apple”."
    );
    let events = gateway.lawful(&session).await;
    assert_eq!(all(&events, "session.attached")[1]["by"], "resume");
    let fork = gateway
        .posted(&format!("/v1/sessions/{session}/fork"), &[], &json!({}))
        .await;
    assert_eq!(fork.status, 201, "{fork:?}");
    let fork = fork.body["sessionId"].as_str().unwrap().to_owned();
    assert_eq!(
        agent_text(&played(&gateway, &fork, "/recall").await),
        "The word is “apple”."
    );

    let snapshot = gateway.get_session(&session).await;
    let option = |id: &str| {
        let all = snapshot["configOptions"].as_array().unwrap().iter();
        all.clone()
            .find(|option| option["configId"] == id)
            .unwrap_or_else(|| panic!("{snapshot}"))
            .clone()
    };
    assert_eq!(
        (&option("mode")["currentValue"], &option("mode")["category"]),
        (&json!("auto"), &json!("mode"))
    );
    assert_eq!(option("pace")["currentValue"], "instant");
    let commands = snapshot["availableCommands"].as_array().unwrap();
    assert!(
        commands
            .iter()
            .any(|command| command["name"] == "part" && command["type"] == "command")
    );
    let path = format!("/v1/sessions/{session}/config/thoughts");
    let (status, body) = gateway
        .send(Method::PUT, &path, &json!({ "value": false }))
        .await;
    assert_eq!(
        (status.as_u16(), &body["configOptions"][3]["currentValue"]),
        (200, &json!(false))
    );
    let (status, body) = gateway
        .send(Method::PUT, &path, &json!({ "value": "loud" }))
        .await;
    assert_eq!(
        (status.as_u16(), &body["code"]),
        (422, &json!("invalid")),
        "{body}"
    );
}

/// The file in which the agent keeps its newest session in this folder.
fn kept(gateway: &Gateway, cwd: &Path) -> Option<PathBuf> {
    let folder = gateway.path("data/homes/default/demo/.acp-gateway-demo");
    let cwd = cwd.to_str().unwrap();
    let files = std::fs::read_dir(folder)
        .unwrap()
        .map(|file| file.unwrap().path());
    files
        .filter(|file| file.extension().is_some_and(|ending| ending == "json"))
        .find(|file| std::fs::read_to_string(file).is_ok_and(|text| text.contains(cwd)))
}

#[tokio::test]
async fn agent_session_is_listed_adopted_with_history_and_deleted() {
    let (gateway, _) = of_v2("").await;
    let cwd = gateway.path("data/workspaces/left");
    std::fs::create_dir_all(&cwd).unwrap();
    let body = json!({ "agent": "demo", "cwd": cwd });
    let left = gateway.posted("/v1/sessions", &[], &body).await;
    let left = left.body["sessionId"].as_str().unwrap().to_owned();
    quicken(&gateway, &left).await;
    for text in [
        "/remember pear",
        "/terminal",
        "/diff",
        "/plan",
        "/correct",
        "/title Left behind",
    ] {
        played(&gateway, &left, text).await;
    }
    let file = kept(&gateway, &cwd).expect("the agent keeps it");
    let text = std::fs::read(&file).unwrap();
    assert_eq!(
        gateway
            .call(Method::DELETE, &format!("/v1/sessions/{left}"))
            .await
            .status,
        204
    );
    eventually(
        "the agent has deleted it",
        Duration::from_secs(20),
        || async { kept(&gateway, &cwd).is_none().then_some(()) },
    )
    .await;
    // The state after another client of the agent created it.
    std::fs::write(&file, text).unwrap();
    let listed = gateway.get("/v1/agents/demo/sessions").await;
    let all = listed["sessions"].as_array().unwrap();
    let found = all
        .iter()
        .find(|one| one["cwd"] == json!(cwd))
        .unwrap_or_else(|| panic!("{listed}"));
    assert_eq!(found["title"], "Left behind");

    let body = json!({ "agent": "demo", "agentSessionId": found["agentSessionId"], "cwd": cwd });
    let adopted = gateway.posted("/v1/sessions", &[], &body).await;
    assert_eq!(adopted.status, 201, "{adopted:?}");
    let session = adopted.body["sessionId"].as_str().unwrap().to_owned();
    let events = gateway.lawful(&session).await;
    let replayed: Vec<Value> = events
        .into_iter()
        .filter(|event| event["replayed"] == true)
        .collect();
    let of = |kind: &str| updates(&replayed, kind).len();
    assert_eq!(
        (
            of("user_message"),
            of("user_message_chunk"),
            of("agent_message_chunk")
        ),
        (6, 0, 0)
    );
    let texts: Vec<&str> = updates(&replayed, "agent_message")
        .iter()
        .filter_map(|event| event["update"]["content"][0]["text"].as_str())
        .collect();
    assert!(
        texts.contains(&"The capital of Australia is Canberra. (I had said Sydney first.)"),
        "{texts:?}"
    );
    assert!(of("tool_call_update") > 0 && of("plan_update") > 0);
    let shown = gateway.get_session(&session).await;
    assert_eq!(
        (&shown["title"], &shown["state"]),
        (&json!("Left behind"), &json!("idle"))
    );
    assert_eq!(
        gateway.turn(&session, "/recall").await["text"],
        "The word is “pear”."
    );
    assert_eq!(
        gateway
            .call(Method::POST, &format!("/v1/sessions/{session}/close"))
            .await
            .status,
        200
    );
    assert_eq!(
        gateway
            .call(Method::POST, &format!("/v1/sessions/{session}/attach"))
            .await
            .status,
        200
    );
    assert_eq!(
        gateway.turn(&session, "/recall").await["text"],
        "The word is “pear”."
    );
}

#[tokio::test]
async fn a_sign_in_and_a_logout_have_methods_of_their_own() {
    let table = "[agents.demo]\nbuiltin = \"demo\"\nprotocol = 2\npool = { max_size = 2, min_idle = 0 }\nterminal_auth = true\n\
                 env = { ACP_DEMO_SIGN_IN = \"required\" }\n";
    let gateway = Setup::default().table(table).start();
    let client_call = json!({ "agent": "demo" });
    let create = || gateway.posted("/v1/sessions", &[], &client_call);
    let problem = create().await.problem(424, "agent_auth_required");
    let methods = &problem["authMethods"];
    assert_eq!(
        (&methods[0]["methodId"], &methods[0]["type"]),
        (&json!("demo"), &json!("agent"))
    );
    assert_eq!(
        (&methods[1]["methodId"], &methods[1]["type"]),
        (&json!("demo-terminal"), &json!("terminal"))
    );
    assert_eq!(
        methods[1]["env"],
        json!([{ "name": "ACP_DEMO_WORD", "value": "sesame" }])
    );
    let body = json!({ "methodId": "demo" });
    assert_eq!(
        gateway
            .posted("/v1/agents/demo/auth", &[], &body)
            .await
            .status,
        204
    );
    assert_eq!(create().await.status, 201);
    assert_eq!(
        gateway
            .call(Method::DELETE, "/v1/agents/demo/auth")
            .await
            .status,
        204
    );
    eventually(
        "the agent wants a sign-in again",
        Duration::from_secs(10),
        || async { (create().await.status == 424).then_some(()) },
    )
    .await;
}
