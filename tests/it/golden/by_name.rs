//! Methods of agents that have no route of their own, by name.

use agent_client_protocol_schema::{v1, v2};
use reqwest::Method;
use wire::acp::method_list::route_of;

use super::spelling::odd;
use super::{answering, create, object, received, send};
use crate::coverage::schema::methods;

/// The methods that the schema lists and no route serves.
fn by_name() -> Vec<String> {
    let mut names = [
        methods(&v1::AGENT_METHOD_NAMES),
        methods(&v2::AGENT_METHOD_NAMES),
    ]
    .concat();
    names.extend(["session/set_model", "session/of_the_future"].map(str::to_owned));
    names.retain(|name| route_of(name).is_none());
    names.sort();
    names.dedup();
    names
}

#[tokio::test]
async fn unrouted_method_passes_byte_for_byte() {
    let names = by_name();
    for known in [
        "auth/status",
        "mcp/message",
        "providers/set",
        "session/archive",
        "session/set_title",
    ] {
        assert!(
            names.iter().any(|name| name == known),
            "{known} in {names:?}"
        );
    }
    let result = odd(r#"{"sessionId":"$SESSION","a":[{}]}"#);
    let answers: Vec<(&str, String)> = names.iter().map(|name| (&**name, result.clone())).collect();
    let list = serde_json::to_string(&names).expect("strings are JSON, and TOML");
    let gateway = answering(&answers, &format!("rpc = {list}"));
    let session = create(&gateway).await;
    for name in &names {
        let params = odd(r#"{"n":1,"sessionId":"SESSION"}"#);
        let body = |id: &str| {
            format!(
                r#"{{"method":"{name}","params":{}}}"#,
                params.replace("SESSION", id)
            )
        };
        let path = format!("/v1/sessions/{session}/rpc");
        let (status, answer) = send(&gateway, Method::POST, &path, &body(&session)).await;
        assert_eq!(status, 200, "{name}: {answer}");
        assert_eq!(
            object(&answer).get("result"),
            result.replace("$SESSION", &session),
            "{name}"
        );
        let lines = received(&gateway);
        let line = lines
            .iter()
            .rfind(|line| line.contains(name.as_str()))
            .expect("the agent got it");
        let got = object(object(line).get("params"))
            .get("sessionId")
            .trim_matches('"')
            .to_owned();
        assert_ne!(got, session, "{name}");
        assert_eq!(
            object(line).get("params"),
            params.replace("SESSION", &got),
            "{name}"
        );

        let (status, answer) =
            send(&gateway, Method::POST, "/v1/agents/fake/rpc", &body("any")).await;
        assert_eq!(status, 200, "{name}: {answer}");
        assert_eq!(
            object(&answer).get("result"),
            result.replace("$SESSION", "any"),
            "{name}"
        );
    }
}
