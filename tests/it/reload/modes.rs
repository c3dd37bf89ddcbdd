//! A changed list of denied modes applies at once, also to leased processes and to prompts that wait.

use reqwest::Method;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::{RELOADED, reload, start};
use crate::support::log::{all, one};
use crate::support::places::fake_agent;
use crate::support::{Gateway, Setup};

const MODES: &str = r#"{"currentModeId":"default","availableModes":[{"id":"default","name":"Default"},{"id":"acceptEdits","name":"Accept edits"}]}"#;
/// A slash command that selects the mode.
const COMMAND: &str = "/acceptEdits now";

/// An agent with two modes, and the folder with its answers and its log.
struct Agent(TempDir);

impl Agent {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let answers = format!(
            "session/new {{\"sessionId\":\"$SESSION\",\"modes\":{MODES}}}\nsession/set_mode {{}}\n"
        );
        std::fs::write(folder.path().join("answers"), answers).expect("the folder is ours");
        Self(folder)
    }

    /// The configuration with these denied modes and this number of processes.
    fn denying(&self, modes: &[&str], processes: usize) -> String {
        let folder = self.0.path().display();
        let fake = fake_agent();
        format!(
            "[agents.fake]\ncommand = {fake:?}\nargs = [\"--log\", \"{folder}/received\", \"--answers\", \"{folder}/answers\"]\nisolation = \"off\"\n\
             pool = {{ max_size = {processes}, min_idle = 0 }}\nmodes = {{ deny = {modes:?} }}\n"
        )
    }

    fn received(&self) -> String {
        std::fs::read_to_string(self.0.path().join("received")).unwrap_or_default()
    }
}

async fn set_mode(gateway: &Gateway, session: &str) -> u16 {
    let path = format!("/v1/sessions/{session}/mode");
    let (status, _) = gateway
        .send(Method::PUT, &path, &json!({ "modeId": "acceptEdits" }))
        .await;
    status.as_u16()
}

/// Begins a turn that waits for a permission.
async fn ask(gateway: &Gateway, session: &str) {
    gateway.prompt(session, "permission").await;
    gateway
        .log_until(session, |event| event["type"] == "request.created")
        .await;
}

async fn answer(gateway: &Gateway, session: &str) {
    let path = format!("/v1/sessions/{session}/permissions/r1");
    let (status, problem) = gateway.post(&path, &json!({ "optionId": "allow" })).await;
    assert_eq!(status, 204, "{problem}");
}

fn ends(prompt: &str) -> impl Fn(&Value) -> bool {
    move |event| {
        matches!(
            event["type"].as_str(),
            Some("prompt.completed" | "prompt.failed")
        ) && event["promptId"] == prompt
    }
}

fn assert_denied(events: &[Value]) {
    let failed = one(events, "prompt.failed");
    assert_eq!(failed["problem"]["code"], "forbidden", "{failed}");
    let detail = failed["problem"]["detail"].as_str().expect("a detail");
    assert!(
        detail.contains("acceptEdits") && detail.contains("`modes.deny`"),
        "{detail}"
    );
}

#[tokio::test]
async fn denied_mode_applies_to_a_leased_process_and_to_queued_prompts() {
    let agent = Agent::new();
    let gateway = start(Setup::default().table(&agent.denying(&[], 4)));
    let session = gateway.session("fake").await;
    assert_eq!(set_mode(&gateway, &session).await, 200);
    ask(&gateway, &session).await;
    for prompt in [COMMAND, "hello"] {
        let path = format!("/v1/sessions/{session}/prompts");
        let (status, queued) = gateway
            .post(&path, &json!({ "prompt": prompt, "queue": true }))
            .await;
        assert_eq!(status, 202, "{queued}");
    }
    reload(&gateway, &agent.denying(&["acceptEdits"], 4), RELOADED).await;
    assert_eq!(
        set_mode(&gateway, &session).await,
        403,
        "the process has the previous entry"
    );
    assert_eq!(
        gateway.get_session(&session).await["deniedModes"],
        json!([{ "modeId": "acceptEdits" }])
    );
    answer(&gateway, &session).await;
    let events = gateway.log_until(&session, ends("p3")).await;
    assert_denied(&events);
    assert_eq!(one(&events, "prompt.failed")["promptId"], "p2");
    assert_eq!(
        events.last().expect("an end")["type"],
        "prompt.completed",
        "another prompt runs"
    );
    let reported = all(&events, "session.privileged_mode");
    assert_eq!(reported.len(), 1, "{reported:?}");
    assert_eq!(reported[0]["modeId"], "acceptEdits");
    let received = agent.received();
    assert!(
        received.contains("hello") && !received.contains(COMMAND),
        "{received}"
    );
}

#[tokio::test]
async fn denied_mode_applies_to_a_prompt_that_waits_for_a_process() {
    let agent = Agent::new();
    let gateway = start(Setup::default().table(&agent.denying(&[], 1)));
    let waiting = gateway.session("fake").await;
    let busy = gateway.session("fake").await;
    ask(&gateway, &busy).await;
    gateway.prompt(&waiting, COMMAND).await;
    reload(&gateway, &agent.denying(&["acceptEdits"], 1), RELOADED).await;
    answer(&gateway, &busy).await;
    assert_denied(&gateway.log_until(&waiting, ends("p1")).await);
    assert!(!agent.received().contains(COMMAND), "{}", agent.received());
    assert_eq!(gateway.turn(&waiting, "hello").await["text"], "hello");
}
