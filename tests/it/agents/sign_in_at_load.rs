//! Agents that open sessions with the key of their environment, and refuse to load one until a sign-in is selected.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::credentials::program;
use crate::support::log::all;
use crate::support::{Gateway, Setup};

const KEY: &str = "sk-test-2b7e151628aed2";

/// A scripted agent under the name of Gemini CLI, with a conversation of one turn that its process no longer has.
struct Scene {
    gateway: Gateway,
    session: String,
    folder: tempfile::TempDir,
}

impl Scene {
    /// `refusals` is the number of loads that need a sign-in, `args` are further arguments of the agent.
    async fn start(refusals: u32, args: &[&str], env: &str) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::write(folder.path().join("refusals"), refusals.to_string())
            .expect("the folder is ours");
        std::fs::write(folder.path().join("signed-in"), "").expect("the folder is ours");
        let path = |name: &str| folder.path().join(name).to_str().expect("UTF-8").to_owned();
        let refusals = path("refusals");
        let file = path("signed-in");
        let state = path("state");
        let log = path("received");
        let methods =
            r#"{"id":"oauth-personal","name":"Google"},{"id":"gemini-api-key","name":"Key"}"#;
        let own = [
            "--auth-at-load",
            &refusals,
            "--auth-file",
            &file,
            "--auth-methods",
            methods,
        ];
        let args: Vec<&str> = own
            .into_iter()
            .chain(["--state", &state, "--log", &log])
            .chain(args.iter().copied())
            .collect();
        let gemini = program(folder.path(), "gemini");
        let mut gateway = Setup::default()
            .agent("gemini", &gemini, &args, env)
            .start();
        let session = gateway.session("gemini").await;
        assert_eq!(
            gateway.turn(&session, "echo banana").await["text"],
            "banana"
        );
        gateway.stop();
        gateway.start();
        std::fs::remove_file(&file).expect("the test wrote it");
        Self {
            gateway,
            session,
            folder,
        }
    }

    fn received(&self, method: &str) -> Vec<Value> {
        let path: PathBuf = self.folder.path().join("received");
        let lines = std::fs::read_to_string(path).expect("the agent wrote it");
        let lines = lines
            .lines()
            .map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
        lines
            .filter(|message| message["method"] == method)
            .collect()
    }

    async fn assert_kept(&self) {
        let events = self.gateway.lawful(&self.session).await;
        let attached = all(&events, "session.attached");
        let last = attached.last().expect("it was attached");
        assert_eq!(
            (&last["by"], &last["context"]),
            (&json!("load"), &json!("kept")),
            "{last}"
        );
    }
}

fn with_key() -> String {
    format!("env = {{ GEMINI_API_KEY = {KEY:?} }}")
}

#[tokio::test]
async fn a_load_that_needs_a_sign_in_is_repeated_with_the_key_of_the_agent() {
    let scene = Scene::start(99, &[], &with_key()).await;
    let turn = scene.gateway.turn(&scene.session, "echo cherry").await;
    assert_eq!(turn["text"], "cherry", "{turn}\n{}", scene.gateway.log());
    scene.assert_kept().await;
    let sign_ins = scene.received("authenticate");
    assert_eq!(sign_ins.len(), 1, "{sign_ins:?}");
    assert_eq!(
        sign_ins[0]["params"],
        json!({ "methodId": "gemini-api-key" })
    );
    let opened = scene.received("session/new");
    let check = &opened.last().expect("the key is checked")["params"];
    let home = scene.gateway.path("data/homes/default/gemini");
    assert_eq!(
        check["cwd"].as_str().map(Path::new),
        Some(&*home),
        "no settings of a project count"
    );
    assert_eq!(check["mcpServers"], json!([]));
    assert_eq!(
        scene.gateway.get("/v1/agents/gemini/auth").await["state"],
        "authenticated"
    );
}

#[tokio::test]
async fn a_load_that_needs_a_sign_in_only_once_changes_no_sign_in() {
    let scene = Scene::start(1, &[], &with_key()).await;
    let turn = scene.gateway.turn(&scene.session, "echo cherry").await;
    assert_eq!(turn["text"], "cherry", "{turn}\n{}", scene.gateway.log());
    scene.assert_kept().await;
    assert_eq!(scene.received("authenticate"), [Value::Null; 0]);
}

#[tokio::test]
async fn no_sign_in_is_replaced_if_the_agent_does_not_use_its_key() {
    let scene = Scene::start(99, &["--auth-required"], &with_key()).await;
    let turn = scene.gateway.turn(&scene.session, "echo cherry").await;
    assert_eq!(turn["error"]["code"], "agent_auth_required", "{turn}");
    let detail = turn["error"]["detail"].as_str().expect("a text");
    let step = "Check GEMINI_API_KEY, which the agent receives but does not accept, or send POST \
                /v1/agents/gemini/auth with {\"methodId\": \"gemini-api-key\", \"apiKey\": \"KEY\"}.";
    assert!(detail.ends_with(step), "{detail}");
    assert_eq!(scene.received("authenticate"), [Value::Null; 0]);
    assert_eq!(scene.received("session/load").len(), 1);
}

#[tokio::test]
async fn without_a_key_a_load_that_needs_a_sign_in_names_the_next_step() {
    let scene = Scene::start(99, &[], "").await;
    let turn = scene.gateway.turn(&scene.session, "echo cherry").await;
    assert_eq!(turn["error"]["code"], "agent_auth_required", "{turn}");
    let detail = turn["error"]["detail"].as_str().expect("a text");
    assert!(
        detail.contains("Set GEMINI_API_KEY in `env` of [agents.gemini], or send POST"),
        "{detail}"
    );
    assert_eq!(
        scene.received("session/new").len(),
        1,
        "there is no key to check"
    );
    assert_eq!(scene.received("authenticate"), [Value::Null; 0]);
    // The conversation is kept for the time after the sign-in.
    let body = json!({ "methodId": "gemini-api-key", "apiKey": KEY });
    assert_eq!(
        scene.gateway.post("/v1/agents/gemini/auth", &body).await.0,
        204
    );
    assert_eq!(
        scene.gateway.turn(&scene.session, "echo cherry").await["text"],
        "cherry"
    );
    scene.assert_kept().await;
}
