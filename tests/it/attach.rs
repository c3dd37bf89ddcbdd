//! `acp-gateway attach`: the binary on pipes, in front of a real gateway that is killed, cut off or restarted.

mod early;
mod editor;
mod guide;
mod isolation;
mod local;
mod observer;
mod sdk;
mod sign_in;
pub(crate) mod tls;

use std::process::Stdio;
use std::time::Duration;

use serde_json::{Value, json};

pub(crate) use self::early::run_early_client;
use self::editor::{Editor, attach, initialize};
use crate::support::gateway::{KEY, NO_CONFIG_FILE};
use crate::support::places::gateway_program;
use crate::support::proxy::Proxy;
use crate::support::{Gateway, Setup, figure};

/// The number of lines of a long stream.
const STREAM: usize = 2000;

/// The texts of the agent in the log of a session.
async fn logged(gateway: &Gateway, session: &str) -> Vec<String> {
    let events = gateway.all_events(session).await;
    let updates = events
        .iter()
        .filter(|event| event["type"] == "session.update");
    let chunks = updates.filter(|event| event["update"]["sessionUpdate"] == "agent_message_chunk");
    chunks
        .map(|event| {
            event["update"]["content"]["text"]
                .as_str()
                .expect("a text")
                .to_owned()
        })
        .collect()
}

/// A gateway with a fake agent that keeps its sessions.
fn durable() -> (tempfile::TempDir, Gateway) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let state = folder.path().join("state");
    let state = state.to_str().expect("UTF-8").to_owned();
    let gateway = Setup::fake(&["--resume", "--state", &state])
        .settings("timeouts.drain_timeout = \"300ms\"\ntimeouts.keep_alive_interval = \"100ms\"")
        .start();
    (folder, gateway)
}

/// A gateway that accepts the address of a proxy in front of it.
pub(crate) async fn behind_a_proxy() -> (Gateway, Proxy) {
    let mut gateway = Setup::fake(&[]).start();
    let proxy = Proxy::start(gateway.address()).await;
    set_public_url(&mut gateway, &format!("http://{}", proxy.address));
    (gateway, proxy)
}

/// Starts the gateway again with this public URL.
pub(crate) fn set_public_url(gateway: &mut Gateway, url: &str) {
    assert_eq!(gateway.stop(), Some(0));
    let file = gateway.path("config.toml");
    let config = std::fs::read_to_string(&file).expect("the file is ours");
    std::fs::write(&file, format!("server.public_url = {url:?}\n{config}"))
        .expect("the folder is ours");
    gateway.start();
}

#[tokio::test]
async fn attach_runs_a_turn_with_a_permission() {
    let gateway = Setup::fake(&[]).start();
    let mut editor = Editor::start(&gateway.url, &[]);
    let session = editor.new_session("").await;
    editor.prompt(2, &session, "permission").await;
    let request = editor
        .until(|line| line["method"] == "session/request_permission")
        .await;
    assert_eq!(request["params"]["sessionId"], json!(session));
    let outcome = json!({ "outcome": { "outcome": "selected", "optionId": "allow" } });
    editor
        .send(&json!({ "jsonrpc": "2.0", "id": request["id"], "result": outcome }))
        .await;
    assert_eq!(editor.response(2).await["result"]["stopReason"], "end_turn");
    assert_eq!(editor.texts(), ["permission: allow"]);
    assert_eq!(editor.end().await, (Some(0), String::new()));
}

#[tokio::test]
async fn attach_answers_invalid_lines_and_unknown_methods() {
    let gateway = Setup::fake(&[]).start();
    let mut editor = Editor::start(&gateway.url, &[]);
    editor
        .send(&json!({ "jsonrpc": "2.0", "id": 9, "method": "session/list" }))
        .await;
    assert_eq!(
        editor.response(9).await["error"]["code"],
        -32600,
        "initialize is the first request"
    );
    editor.initialize().await;
    for (line, code) in [
        ("hello", -32700),
        ("[]", -32600),
        ("{\"id\":1", -32700),
        ("{}", -32600),
    ] {
        editor.write(line).await;
        let answer = editor.until(|line| line["id"].is_null()).await;
        assert_eq!(answer["error"]["code"], code, "{line}");
    }
    for (id, method) in [(10, "session/unknown"), (11, "_vendor/unknown")] {
        editor
            .send(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": {} }))
            .await;
        assert_eq!(
            editor.response(id).await["error"]["code"],
            -32601,
            "{method}"
        );
    }
    assert_eq!(editor.end().await.0, Some(0));
}

/// The first turn ends with an error, because its agent was killed too. The queued turn runs after the restart.
#[tokio::test]
async fn attach_survives_a_kill_of_the_gateway_in_a_turn() {
    let (_folder, mut gateway) = durable();
    let mut editor = Editor::start(&gateway.url, &[]);
    let session = editor.new_session("").await;
    editor.prompt(2, &session, "slow chunks=100 ms=200").await;
    editor.prompt(3, &session, "slow chunks=4 ms=20").await;
    editor
        .until(|line| line["method"] == "session/update")
        .await;
    gateway.kill();
    // The bridge notices the kill before the restart.
    tokio::time::sleep(Duration::from_millis(300)).await;
    gateway.start();
    assert!(editor.response(2).await["error"].is_object());
    assert_eq!(editor.response(3).await["result"]["stopReason"], "end_turn");
    editor.prompt(4, &session, "echo after").await;
    assert_eq!(editor.response(4).await["result"]["stopReason"], "end_turn");
    assert_eq!(editor.texts(), logged(&gateway, &session).await);
    assert_eq!(editor.texts().last().map(String::as_str), Some("after"));
    editor.assert_answered_once();
    assert_eq!(editor.end().await.0, Some(0));
}

/// A drain ends the streams and cancels the turn.
#[tokio::test]
async fn attach_survives_drains_of_the_gateway() {
    let (_folder, mut gateway) = durable();
    let mut editor = Editor::start(&gateway.url, &[]);
    let session = editor.new_session("").await;
    for id in [2, 3] {
        editor.prompt(id, &session, "slow chunks=100 ms=200").await;
        editor
            .until(|line| line["method"] == "session/update")
            .await;
        assert_eq!(gateway.stop(), Some(0), "{}", gateway.log());
        gateway.start();
        let ended = editor.response(id).await;
        assert!(
            ended["result"]["stopReason"] == "cancelled" || ended["error"].is_object(),
            "{ended}"
        );
    }
    editor.prompt(4, &session, "echo after").await;
    assert_eq!(editor.response(4).await["result"]["stopReason"], "end_turn");
    assert_eq!(editor.texts(), logged(&gateway, &session).await);
    editor.assert_answered_once();
}

#[tokio::test]
async fn attach_delivers_every_update_once_through_cuts_of_the_network() {
    let (_gateway, proxy) = behind_a_proxy().await;
    let mut editor = Editor::start(&format!("http://{}", proxy.address), &[]);
    let session = editor.new_session("").await;
    editor
        .prompt(2, &session, &format!("stream n={STREAM} rate=500"))
        .await;
    let mut cuts = 0;
    for at in (100..STREAM).step_by(450) {
        editor.until_texts(at).await;
        proxy.refuse(cuts % 2 == 1);
        proxy.cut();
        cuts += 1;
        tokio::time::sleep(Duration::from_millis(50)).await;
        proxy.refuse(false);
    }
    assert_eq!(editor.response(2).await["result"]["stopReason"], "end_turn");
    let texts = editor.texts();
    let numbers: Vec<usize> = texts
        .iter()
        .map(|text| text[..8].parse().expect("a number"))
        .collect();
    assert_eq!(
        numbers,
        (0..STREAM).collect::<Vec<_>>(),
        "once, and in order"
    );
    editor.assert_answered_once();
    figure(&format!("{STREAM} updates through {cuts} cuts"));
}

/// A permission request stays open through a kill of the network, and its answer arrives.
#[tokio::test]
async fn attach_keeps_a_permission_request_through_a_cut() {
    let (_gateway, proxy) = behind_a_proxy().await;
    let mut editor = Editor::start(&format!("http://{}", proxy.address), &[]);
    let session = editor.new_session("").await;
    editor.prompt(2, &session, "permission").await;
    let request = editor
        .until(|line| line["method"] == "session/request_permission")
        .await;
    proxy.refuse(true);
    proxy.cut();
    let outcome = json!({ "outcome": { "outcome": "selected", "optionId": "reject" } });
    editor
        .send(&json!({ "jsonrpc": "2.0", "id": request["id"], "result": outcome }))
        .await;
    tokio::time::sleep(Duration::from_millis(200)).await;
    proxy.refuse(false);
    assert_eq!(editor.response(2).await["result"]["stopReason"], "end_turn");
    assert_eq!(editor.texts(), ["permission: reject"]);
    let requests = editor
        .seen()
        .iter()
        .filter(|line| line["method"] == "session/request_permission");
    assert_eq!(requests.count(), 1);
}

#[tokio::test]
async fn attach_opens_the_session_of_the_command_line() {
    let gateway = Setup::fake(&[]).start();
    let session = gateway.session("fake").await;
    gateway.turn(&session, "echo before").await;
    let mut editor = Editor::start(&gateway.url, &["--session", &session]);
    assert_eq!(editor.new_session("/anywhere").await, session);
    editor.until_texts(1).await;
    editor.prompt(2, &session, "echo mine").await;
    assert_eq!(editor.response(2).await["result"]["stopReason"], "end_turn");
    // Prompts of other clients arrive as messages of the user.
    gateway.turn(&session, "echo theirs").await;
    editor.until_texts(3).await;
    assert_eq!(editor.texts(), ["before", "mine", "theirs"]);
    let user: Vec<_> = editor.updates("user_message_chunk");
    assert_eq!(user, ["echo before", "echo theirs"]);

    let mut editor = Editor::start(
        &gateway.url,
        &["--session", "00000000-0000-7000-8000-000000000000"],
    );
    editor.initialize().await;
    editor
        .send(&json!({ "jsonrpc": "2.0", "id": 1, "method": "session/new", "params": { "cwd": "/" } }))
        .await;
    assert_eq!(editor.response(1).await["error"]["code"], -32002);
}

#[tokio::test]
async fn attach_maps_folders() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let remote = folder.path().canonicalize().expect("it exists");
    let gateway = Setup::fake_with(&[], "files = \"client\"")
        .table(&format!("[workspaces]\nallow = [{remote:?}]"))
        .start();
    let map = format!("/home/me/project={}", remote.display());
    let mut editor = Editor::start(&gateway.url, &["--map", &map]);
    let session = editor.new_session("/home/me/project").await;
    let found = gateway.get(&format!("/v1/sessions/{session}")).await;
    assert_eq!(found["cwd"], json!(remote));
    let params = json!({ "cwd": "/home/me/other", "mcpServers": [] });
    editor
        .send(&json!({ "jsonrpc": "2.0", "id": 3, "method": "session/new", "params": params }))
        .await;
    let error = editor.response(3).await["error"].clone();
    assert_eq!(error["code"], -32602);
    assert!(
        error["message"]
            .as_str()
            .expect("a text")
            .contains("--map /home/me/other="),
        "{error}"
    );
    editor
        .prompt(
            4,
            &session,
            &format!("read path={}", remote.join("a.txt").display()),
        )
        .await;
    let read = editor
        .until(|line| line["method"] == "fs/read_text_file")
        .await;
    assert_eq!(
        read["params"],
        json!({ "sessionId": session, "path": "/home/me/project/a.txt" })
    );
    editor
        .send(&json!({ "jsonrpc": "2.0", "id": read["id"], "result": { "content": "unsaved" } }))
        .await;
    assert_eq!(editor.response(4).await["result"]["stopReason"], "end_turn");
    assert_eq!(editor.texts(), ["[unsaved]"]);
}

#[tokio::test]
async fn attach_ends_with_an_error_if_the_key_is_wrong() {
    let gateway = Setup::fake(&[]).start();
    let mut command = attach();
    command
        .args(["--url", &gateway.url])
        .env("ACP_GATEWAY_KEY", "acpg_wrong_key_of_nobody");
    let mut editor = Editor::of(command);
    editor.send(&initialize()).await;
    let error = editor.response(0).await["error"].clone();
    assert_eq!(error["code"], -32000, "{error}");
    let (code, log) = editor.ended().await;
    assert_eq!(code, Some(1));
    assert!(
        log.contains("ACP_GATEWAY_KEY") && !log.contains("acpg_"),
        "{log}"
    );
}

#[tokio::test]
async fn attach_rejects_a_key_that_ends_in_a_turn() {
    let gateway = Setup::fake(&[]).start();
    let data = gateway.path("data");
    let mut create = attach_command("key", &data);
    let created = create
        .args(["create", "someone"])
        .output()
        .expect("the binary was built");
    let key = String::from_utf8(created.stdout).expect("text");
    until_known(&gateway, key.trim()).await;
    let mut command = attach();
    let file = gateway.path("key");
    std::fs::write(&file, &key).expect("the folder is ours");
    command
        .args(["--url", &gateway.url, "--key-file"])
        .arg(&file);
    let mut editor = Editor::of(command);
    let session = editor.new_session("").await;
    editor.prompt(2, &session, "hang").await;
    let revoked = attach_command("key", &data)
        .args(["revoke", "someone"])
        .output();
    assert!(revoked.expect("the binary was built").status.success());
    assert_eq!(editor.response(2).await["error"]["code"], -32000);
    let (code, log) = editor.ended().await;
    assert_eq!(code, Some(1));
    assert!(!log.contains(key.trim()), "{log}");
}

/// Waits until the gateway has read a new key.
async fn until_known(gateway: &Gateway, key: &str) {
    crate::support::eventually(
        "the gateway knows the key",
        Duration::from_mins(1),
        || async {
            let request = gateway.http.get(format!("{}/v1", gateway.url));
            let answer = request.bearer_auth(key).send().await.expect("an answer");
            (answer.status() == 200).then_some(())
        },
    )
    .await;
}

/// A subcommand beside the gateway of this data folder.
fn attach_command(name: &str, data: &std::path::Path) -> std::process::Command {
    let mut command = crate::support::gateway::command(gateway_program());
    command
        .env_clear()
        .env(NO_CONFIG_FILE.0, NO_CONFIG_FILE.1)
        .env("ACP_GATEWAY_DATA", data)
        .env("HOME", data)
        .arg(name)
        .stdin(Stdio::null());
    command
}

#[tokio::test]
async fn attach_finds_the_gateway_of_the_data_folder_and_revokes_its_key() {
    let (_folder, mut gateway) = durable();
    let data = gateway.path("data");
    let keys = || {
        let listed = attach_command("key", &data)
            .arg("list")
            .output()
            .expect("the binary was built");
        String::from_utf8(listed.stdout)
            .expect("text")
            .matches("attach")
            .count()
    };
    let local = || {
        let mut command = attach_command("attach", &data);
        command.arg("--data").arg(&data);
        command
    };
    let mut editor = Editor::of(local());
    let session = editor.new_session("").await;
    assert_eq!(keys(), 1);
    editor.prompt(2, &session, "echo one").await;
    editor.response(2).await;
    gateway.kill();
    gateway.start();
    editor.prompt(3, &session, "echo two").await;
    assert_eq!(editor.response(3).await["result"]["stopReason"], "end_turn");
    assert_eq!(editor.texts(), ["one", "two"]);
    let (code, log) = editor.end().await;
    assert_eq!(code, Some(0), "{log}");
    assert!(!log.contains("acpg_"), "{log}");
    let ended = || async { (keys() == 0).then_some(()) };
    crate::support::eventually("the key ends", Duration::from_secs(30), ended).await;
}

#[test]
fn attach_takes_no_key_from_its_arguments() {
    for (args, key, said) in [
        (
            &["--url", "http://127.0.0.1:1/#key=acpg_x"][..],
            Some(KEY),
            "must not contain a key",
        ),
        (&["--url", "http://127.0.0.1:1"], None, "ACP_GATEWAY_KEY"),
        (&["--url", "127.0.0.1:1"], Some(KEY), "invalid --url"),
    ] {
        let mut command = attach();
        command
            .args(args)
            .env_remove("ACP_GATEWAY_KEY")
            .envs(key.map(|key| ("ACP_GATEWAY_KEY", key)));
        let failed = command
            .stdin(Stdio::null())
            .output()
            .expect("the binary was built");
        let log = String::from_utf8(failed.stderr).expect("text");
        assert_eq!(failed.status.code(), Some(1), "{log}");
        assert!(log.contains(said), "{log}");
    }
}

/// The gateway rejects a prompt by its size. Longer lines never reach the gateway.
#[tokio::test]
async fn attach_rejects_messages_that_are_too_large() {
    let gateway = Setup::fake(&[]).start();
    let mut editor = Editor::start(&gateway.url, &[]);
    let session = editor.new_session("").await;
    editor.prompt(2, &session, &"x".repeat(12 << 20)).await;
    assert_eq!(editor.response(2).await["error"]["code"], -32600);
    editor.prompt(3, &session, &"x".repeat(17 << 20)).await;
    let error = editor
        .until(|line| line["id"].is_null() && line["method"].is_null())
        .await;
    assert_eq!(error["error"]["code"], -32600);
    editor.prompt(4, &session, "echo small").await;
    assert_eq!(editor.response(4).await["result"]["stopReason"], "end_turn");
    assert_eq!(editor.texts(), ["small"]);
}

/// The gateway starts after the bridge.
#[tokio::test]
async fn attach_waits_for_its_gateway() {
    let (_folder, mut gateway) = durable();
    gateway.kill();
    let mut editor = Editor::start(&gateway.url, &[]);
    editor.send(&initialize()).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    gateway.start();
    assert!(editor.response(0).await["result"]["agentCapabilities"].is_object());
    let ended = Value::from(editor.end().await.0);
    assert_eq!(ended, 0);
}
