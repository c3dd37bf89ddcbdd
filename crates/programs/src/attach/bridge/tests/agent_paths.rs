//! Requests of the agent with paths, in a bridge with `--map`.

use super::*;

fn with_maps() -> Test {
    let mapping: Mapping = "/home/me=/srv/me".parse().unwrap();
    Test::connected_with(Settings {
        paths: vec![mapping].into(),
        ..Settings::default()
    })
}

/// The line that the editor receives for a request with these params.
fn forwarded(test: &mut Test, id: &str, method: &str, params: &str) -> String {
    let request =
        format!(r#"{{"jsonrpc":"2.0","id":"{id}","method":"{method}","params":{params}}}"#);
    test.bridge
        .received(Some("s"), Some("k3-4.1/c.0".to_owned()), &request.into());
    match test.bridge.next_effect() {
        Some(Effect::Write(line)) => String::from_utf8(line.to_vec()).unwrap(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn paths_of_the_agent_are_mapped_and_other_members_keep_their_bytes() {
    let mut test = with_maps();
    for (id, (method, params, expected)) in [
        (
            "fs/read_text_file",
            r#"{"sessionId":"s","path":"/srv/me/a\u0062","limit":1.0,"x":{"path":"/srv/me"}}"#,
            r#"{"sessionId":"s","path":"/home/me/ab","limit":1.0,"x":{"path":"/srv/me"}}"#,
        ),
        (
            "fs/write_text_file",
            r#"{"content":"/srv/me","path":"/srv/me/c","sessionId":"s"}"#,
            r#"{"content":"/srv/me","path":"/home/me/c","sessionId":"s"}"#,
        ),
        (
            "terminal/create",
            r#"{"command":"ls","cwd":"/srv/me","args":["/srv/me"]}"#,
            r#"{"command":"ls","cwd":"/home/me","args":["/srv/me"]}"#,
        ),
        (
            "terminal/create",
            r#"{"command":"ls","cwd":null}"#,
            r#"{"command":"ls","cwd":null}"#,
        ),
        (
            "terminal/create",
            r#"{"command":"ls"}"#,
            r#"{"command":"ls"}"#,
        ),
        (
            "session/request_permission",
            r#"{"path":"/srv/me"}"#,
            r#"{"path":"/srv/me"}"#,
        ),
    ]
    .into_iter()
    .enumerate()
    {
        let id = format!("s:{id}");
        let expected = format!(
            "{{\"jsonrpc\":\"2.0\",\"id\":\"{id}\",\"method\":\"{method}\",\"params\":{expected}}}\n"
        );
        assert_eq!(forwarded(&mut test, &id, method, params), expected);
    }
    assert_eq!(test.sent(), [] as [Value; 0]);
}

#[test]
fn path_outside_of_the_maps_is_an_error_for_the_agent_once() {
    let mut test = with_maps();
    let requests = [
        ("fs/read_text_file", json!({ "path": "/etc/passwd" })),
        ("fs/write_text_file", json!({ "path": "/srv/me/../you" })),
        ("terminal/create", json!({ "cwd": "/srv" })),
    ];
    for (id, (method, params)) in requests.into_iter().enumerate() {
        let request = json!({ "jsonrpc": "2.0", "id": format!("s:{id}"), "method": method, "params": params });
        test.gateway(Some("s"), "k3-4.1/c.0", &request);
        let sent = test.sent();
        assert_eq!(
            (sent.len(), &sent[0]["id"]),
            (1, &request["id"]),
            "{sent:?}"
        );
        assert_eq!(sent[0]["error"]["code"], -32602);
        let detail = sent[0]["error"]["message"].as_str().unwrap();
        let path = params
            .as_object()
            .unwrap()
            .values()
            .next()
            .unwrap()
            .as_str()
            .unwrap();
        assert!(
            detail.contains(path) && detail.contains("add --map"),
            "{detail}"
        );
        test.gateway(Some("s"), "k3-4.1/c.0", &request);
        let cancel =
            json!({ "method": "$/cancel_request", "params": { "requestId": request["id"] } });
        test.gateway(Some("s"), "k3-5.0/c.0", &cancel);
        assert_eq!(test.sent(), [] as [Value; 0], "the request has ended");
    }
    assert_eq!(
        test.lines(),
        [] as [Value; 0],
        "the editor receives nothing"
    );
}

#[test]
fn paths_pass_unchanged_without_maps() {
    let mut test = Test::connected();
    let params = r#"{"path":"/etc/../x", "path2": 1}"#;
    assert!(forwarded(&mut test, "s:1", "fs/read_text_file", params).contains(params));
}
