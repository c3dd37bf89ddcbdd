//! The JSON documents of commands.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use super::{command, folder, run, stderr, stdout};

fn document(data: &Path, args: &[&str]) -> Value {
    let output = run(data, args);
    assert!(output.status.success(), "{args:?}: {}", stderr(&output));
    serde_json::from_str(stdout(&output)).unwrap_or_else(|error| panic!("{args:?}: {error}"))
}

#[test]
fn key_commands_print_one_json_document() {
    let folder = folder();
    let data = folder.path();
    let scopes = "read,prompt";
    let created = document(
        data,
        &["key", "create", "alice", "--scopes", scopes, "--json"],
    );
    let secret = created["key"].as_str().unwrap();
    assert!(
        secret.starts_with("acpg_") && secret.len() == 48,
        "{created}"
    );
    let mut shown = created.clone();
    shown.as_object_mut().unwrap().remove("key");
    let id = created["keyId"].as_str().unwrap();
    assert_eq!(
        shown,
        json!({
            "keyId": id, "name": "alice", "kind": "named", "user": "alice", "tenant": "default",
            "scopes": ["read", "prompt"], "memberNames": [], "folders": [], "limits": {}, "createdAt": created["createdAt"], "expiresAt": null,
            "lastUsedAt": null,
        })
    );
    assert_eq!(
        document(data, &["key", "--json", "list"]),
        json!({ "keys": [shown] })
    );

    let change = [
        "key",
        "update",
        id,
        "--scopes",
        "read",
        "--max-streams",
        "3",
        "--member-names",
        "box",
        "--json",
    ];
    let updated = document(data, &change);
    shown["scopes"] = json!(["read"]);
    shown["limits"] = json!({ "max_streams": 3 });
    shown["memberNames"] = json!(["box"]);
    assert_eq!(updated, json!({ "keys": [shown] }));
    assert_eq!(
        document(data, &["key", "revoke", "alice", "--json"]),
        updated
    );
    assert_eq!(
        document(data, &["key", "list", "--json"]),
        json!({ "keys": [] })
    );

    let args = [
        "key",
        "create",
        "bob",
        "--link",
        "--json",
        "--listen",
        "127.0.0.1:9",
    ];
    let linked = document(data, &args);
    let link = linked["link"].as_str().unwrap();
    assert!(
        link.starts_with("http://127.0.0.1:9/#key=acpg_"),
        "{linked}"
    );
    assert!(linked.get("key").is_none(), "{linked}");

    let failed = run(data, &["key", "revoke", "nobody", "--json"]);
    assert_eq!(
        (failed.status.code(), stdout(&failed), stderr(&failed)),
        (Some(1), "", "acp-gateway: no key has this id or name\n")
    );
}

#[test]
fn check_prints_one_json_document_without_secrets() {
    let data = folder();
    let file = data.path().join("gateway.toml");
    let text =
        "[agents.a]\ncommand = \"no-such-agent\"\nenv = { KEY = { from_env = \"SECRET\" } }\n";
    fs::write(&file, text).unwrap();
    let check = |args: &[&str]| {
        let mut check = command(data.path());
        check
            .args(["check", "--json", "--listen", "127.0.0.1:9", "--config"])
            .arg(&file)
            .args(args)
            .env("SECRET", "canary-7f3a")
            .env("ACP_GATEWAY_ADMIN_KEY_HASH", "0".repeat(64));
        let output = check.output().unwrap();
        assert!(output.status.success(), "{}", stderr(&output));
        assert!(!stdout(&output).contains("canary"), "{}", stdout(&output));
        serde_json::from_str::<Value>(stdout(&output)).unwrap()
    };
    let shown = check(&[]);
    assert_eq!(shown["file"], json!({ "path": file, "places": [] }));
    assert_eq!(shown["adminKey"], true);
    let warnings = shown["warnings"].as_array().unwrap();
    assert!(
        warnings
            .iter()
            .any(|warning| warning.as_str().unwrap().contains("no-such-agent")),
        "{shown}"
    );
    let settings = &shown["settings"];
    assert_eq!(
        settings["server.listen"],
        json!({ "value": "127.0.0.1:9", "origin": "--listen" })
    );
    assert_eq!(
        settings["agents.a.env"],
        json!({ "value": { "KEY": { "from_env": "SECRET" } }, "origin": format!("{}:3", file.display()) })
    );
    assert!(
        settings.get("limits.per_key.max_streams").is_none(),
        "{shown}"
    );
    let all = check(&["--all"]);
    assert_eq!(
        all["settings"]["limits.per_key.max_streams"],
        json!({ "value": 2000, "origin": "default" })
    );
    assert_eq!(all["settings"]["server.listen"], settings["server.listen"]);
}
