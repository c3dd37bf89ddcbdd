//! The stock clients of each protocol, with the demo agent.

use std::path::Path;
use std::process::Stdio;

use reqwest::Method;
use serde_json::{Value, json};

use super::scenarios::{Client, play_all};
use super::{sessions, turns};
use crate::support::gateway::{KEY, command};
use crate::support::places::project;
use crate::support::{Gateway, Setup};

fn demo() -> Gateway {
    Setup::default()
        .table("[agents.demo]\nbuiltin = \"demo\"\nisolation = \"off\"\n")
        .start()
}

/// Runs a program of `tests/chat_clients` and returns the JSON that it prints. Blocks the thread.
pub(crate) fn run(program: &str, args: &[&str]) -> Value {
    run_in("chat_clients", program, args)
}

/// The same for a folder below `tests`.
pub(super) fn run_in(folder: &str, program: &str, args: &[&str]) -> Value {
    let folder = project().join("tests").join(folder);
    let python = folder.join(".venv/bin/python");
    let is_python = Path::new(program)
        .extension()
        .is_some_and(|extension| extension == "py");
    let mut command = command(if is_python {
        python.to_str().expect("UTF-8")
    } else {
        "node"
    });
    command
        .arg(program)
        .args(args)
        .current_dir(folder)
        .stdin(Stdio::null())
        .stderr(Stdio::piped());
    let output = command
        .output()
        .expect("`scripts/test clients more_clients` installs the packages");
    let stdout = String::from_utf8_lossy(&output.stdout);
    let stderr = String::from_utf8_lossy(&output.stderr);
    serde_json::from_str(stdout.trim())
        .unwrap_or_else(|error| panic!("{args:?}: {error}\n{stdout}\n{stderr}"))
}

fn ai_sdk(gateway: &Gateway, version: &str, scenario: &str) -> Value {
    run(
        "ai_sdk.mjs",
        &[
            version,
            &format!("{}/ai-sdk/demo", gateway.url),
            KEY,
            scenario,
        ],
    )
}

#[test]
fn ai_sdk_shows_turns_in_each_version() {
    let gateway = demo();
    for version in ["5", "6", "7"] {
        let shown = ai_sdk(&gateway, version, "turn:hello");
        assert_eq!(
            (&shown["status"], &shown["posts"], &shown["errors"]),
            (&json!("ready"), &json!(1), &json!([]))
        );
        assert!(
            shown["text"]
                .as_str()
                .is_some_and(|text| text.contains("demo agent")),
            "{shown}"
        );
        assert!(
            shown["reasoning"]
                .as_str()
                .is_some_and(|text| text.contains("hello")),
            "{shown}"
        );
        let tools = shown["tools"].as_array().expect("tools");
        assert!(
            tools.len() >= 3 && tools.iter().all(|tool| tool["state"] == "output-available"),
            "{shown}"
        );
        assert_eq!(shown["data"], json!(["data-plan"]));
    }
}

#[test]
fn ai_sdk_approves_and_denies_with_two_requests() {
    let gateway = demo();
    for version in ["6", "7"] {
        let shown = ai_sdk(&gateway, version, "approve:/diff");
        assert_eq!(
            (&shown["posts"], &shown["tools"][0]["state"]),
            (&json!(2), &json!("output-available")),
            "{shown}"
        );
        assert_eq!(
            shown["roles"],
            json!(["user", "assistant"]),
            "one message of the assistant: {shown}"
        );
        let shown = ai_sdk(&gateway, version, "deny:/diff");
        assert_eq!(
            (&shown["posts"], &shown["tools"][0]["state"]),
            (&json!(2), &json!("output-error")),
            "{shown}"
        );
        assert!(
            shown["text"]
                .as_str()
                .is_some_and(|text| text.contains("You said no")),
            "{shown}"
        );
    }
}

#[test]
fn ai_sdk_resumes_in_each_version() {
    let gateway = demo();
    for version in ["6", "7"] {
        let whole = ai_sdk(&gateway, version, "turn:hello");
        let shown = ai_sdk(&gateway, version, "resume:hello");
        assert_eq!(shown["lost"], "error", "{shown}");
        for at in ["during", "after"] {
            assert_eq!(
                (&shown[at]["text"], &shown[at]["roles"]),
                (&whole["text"], &json!(["user", "assistant"])),
                "{at}: {shown}"
            );
        }
    }
    // Version 5 adds a replay to the message that it has, so a new page resumes.
    let whole = ai_sdk(&gateway, "5", "turn:hello");
    let shown = ai_sdk(&gateway, "5", "new-page:hello");
    assert_eq!(shown["text"], whole["text"], "{shown}");
    let shown = ai_sdk(&gateway, "7", "other-tab:/diff");
    assert_eq!(
        (&shown["posts"], &shown["tools"][0]["state"]),
        (&json!(2), &json!("output-available")),
        "{shown}"
    );
}

#[test]
fn ai_sdk_stops_regenerates_and_edits() {
    let gateway = demo();
    let stopped = ai_sdk(&gateway, "7", "stop:/slow 30");
    assert_eq!(
        (&stopped["status"], &stopped["errors"]),
        (&json!("ready"), &json!([])),
        "{stopped}"
    );
    let again = ai_sdk(&gateway, "7", "regenerate");
    assert_eq!(
        (&again["same"], &again["roles"]),
        (&json!(false), &json!(["user", "assistant"])),
        "{again}"
    );
    assert!(
        again["data"]
            .as_array()
            .is_some_and(|parts| parts.contains(&json!("data-notice"))),
        "{again}"
    );
    let edited = ai_sdk(&gateway, "6", "edit");
    assert!(
        edited["text"]
            .as_str()
            .is_some_and(|text| text.contains("two") && !text.contains("“one”")),
        "{edited}"
    );
}

#[test]
fn openai_sdk_completes() {
    let gateway = demo();
    let url = format!("{}/openai/v1", gateway.url);
    let client = |scenario: &[&str]| run("openai_chat.mjs", &[&[&*url, KEY], scenario].concat());
    assert_eq!(
        client(&["models"]),
        json!({ "ids": ["demo"], "one": "demo" })
    );
    let streamed = client(&["streamed", "demo", "hello"]);
    let whole = client(&["whole", "demo", "hello"]);
    assert_eq!(
        (&streamed["text"], &streamed["reasoning"]),
        (&whole["text"], &whole["reasoning"])
    );
    assert_eq!(
        (&streamed["ids"], &streamed["roles"]),
        (&json!(1), &json!(["assistant"]))
    );
    assert_eq!(
        (&streamed["finish_reason"], &streamed["usage"]),
        (&json!("stop"), &whole["usage"])
    );
    assert!(streamed["usage"]["total_tokens"].is_u64(), "{streamed}");
    assert!(
        client(&["helper", "demo", "/about"])["text"]
            .as_str()
            .is_some_and(|text| text.contains("ACP"))
    );
    let history = client(&["history", "demo", "again"]);
    let first = history["first"].as_str().expect("an id");
    let second = history["second"].as_str().expect("an id");
    assert_eq!(
        (first.replace("_p1", "_p2").as_str(), &history["history"]),
        (second, &json!(null))
    );
    let error = client(&["error", "nobody", "x"]);
    assert_eq!(
        (&error["name"], &error["status"]),
        (&json!("NotFoundError"), &json!(404))
    );
    let provider = client(&["provider", "demo", "hello"]);
    assert_eq!(
        (&provider["text"], &provider["reasoning"]),
        (&whole["text"], &whole["reasoning"])
    );
}

#[test]
fn ag_ui_runs_in_both_versions() {
    let gateway = demo();
    let url = format!("{}/ag-ui/demo", gateway.url);
    for package in ["@ag-ui/client", "ag-ui-0"] {
        let client =
            |scenario: &[&str]| run("ag_ui.mjs", &[&[package, &*url, KEY], scenario].concat());
        let shown = client(&["turn", "hello"]);
        assert_eq!(
            (&shown["finished"], &shown["errors"]),
            (&json!(1), &json!([])),
            "{shown}"
        );
        assert!(
            shown["text"]
                .as_str()
                .is_some_and(|text| text.contains("demo agent")),
            "{shown}"
        );
        assert_eq!(shown["tools"].as_array().map(Vec::len), Some(3), "{shown}");
        for (scenario, said) in [
            ("approve", "copes with an empty name"),
            ("deny", "You said no"),
        ] {
            let shown = client(&[scenario, "/diff"]);
            assert_eq!(
                shown["first"]["interrupts"][0]["reason"], "tool_call",
                "{shown}"
            );
            assert_eq!(
                (&shown["second"]["interrupts"], &shown["second"]["errors"]),
                (&json!([]), &json!([])),
                "{shown}"
            );
            assert!(
                shown["second"]["text"]
                    .as_str()
                    .is_some_and(|text| text.contains(said)),
                "{shown}"
            );
            assert_eq!(
                shown["second"]["tools"].as_array().map(Vec::len),
                Some(1),
                "{shown}"
            );
        }
        let twice = client(&["twice", "/about"]);
        assert_eq!(twice["one"], twice["two"]);
        assert_eq!(
            client(&["conflict", "/diff"]),
            json!({ "status": 409, "code": "turn_running" })
        );
    }
}

#[test]
fn openai_sdk_follows_responses() {
    let gateway = demo();
    let url = format!("{}/openai/v1", gateway.url);
    let client = |scenario: &[&str]| {
        run(
            "openai_responses.mjs",
            &[&[&*url, KEY, "demo"], scenario].concat(),
        )
    };
    let whole = client(&["whole", "hello"]);
    let helper = client(&["helper", "hello"]);
    assert_eq!(
        (&whole["text"], &whole["items"]),
        (&helper["text"], &helper["items"])
    );
    assert_eq!(
        helper["types"].as_array().and_then(|types| types.first()),
        Some(&json!("response.created"))
    );
    for (scenario, said) in [
        ("approve", "copes with an empty name"),
        ("deny", "You said no"),
    ] {
        let shown = client(&[scenario, "/diff"]);
        let first = &shown["first"];
        let second = &shown["second"];
        assert_eq!(
            format!("{}_2", first["id"].as_str().expect("an id")),
            second["id"],
            "{shown}"
        );
        assert!(
            second["text"]
                .as_str()
                .is_some_and(|text| text.contains(said)),
            "{shown}"
        );
    }
    let next = client(&["next", "again"]);
    assert_eq!(
        next["first"].as_str().expect("an id").replace("_p1", "_p2"),
        next["second"],
        "{next}"
    );
    let resumed = client(&["resume", "hello"]);
    let rest = resumed["rest"].as_array().expect("numbers");
    assert!(
        rest.iter()
            .zip(12..)
            .all(|(number, expected)| *number == json!(expected)),
        "{resumed}"
    );
    assert_eq!(
        (&resumed["last"], &resumed["same"]),
        (&json!("response.completed"), &json!(true))
    );
    let cancelled = client(&["cancel", "/slow 30"]);
    assert_eq!(
        cancelled,
        json!({ "begun": "in_progress", "cancelled": "cancelled", "read": "cancelled" })
    );
    let conversation = client(&["conversation", "hello"]);
    assert_eq!(
        (
            &conversation["conversation"],
            &conversation["input"],
            &conversation["deleted"]
        ),
        (&json!(true), &json!(["hello"]), &json!(true))
    );
    assert!(
        conversation["items"]
            .as_array()
            .is_some_and(|items| items.len() > 4),
        "{conversation}"
    );
    assert_eq!(
        client(&["unknown", "x"]),
        json!({ "name": "NotFoundError", "status": 404 })
    );
    let provider = client(&["provider", "hello"]);
    assert_eq!(
        (&provider["text"], &provider["errors"]),
        (&whole["text"], &json!([])),
        "{provider}"
    );
    assert!(
        provider["reasoning"]
            .as_str()
            .is_some_and(|text| text.contains("hello")),
        "{provider}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn openai_python_completes_and_repeats_a_lost_request_once() {
    let gateway = demo();
    let url = format!("{}/openai/v1", gateway.url);
    let client = |scenario, prompt| run("openai_python.py", &[&url, KEY, scenario, prompt]);
    assert_eq!(
        client("models", ""),
        json!({ "ids": ["demo"], "one": "demo" })
    );
    let whole = client("whole", "hello");
    let streamed = client("streamed", "hello");
    assert!(
        whole["reasoning"]
            .as_str()
            .is_some_and(|text| text.contains("hello")),
        "{whole}"
    );
    assert_eq!(whole, streamed);
    let error = client("error", "hello");
    assert_eq!(
        error,
        json!({ "name": "NotFoundError", "status": 404, "code": "not_found" })
    );
    let retried = client("retried", "once");
    assert_eq!(
        (&retried["requests"], &retried["text"]),
        (&json!(2), &whole_text("once", &whole))
    );
    let session = retried["session"].as_str().expect("a session");
    assert_eq!(
        super::turns(&gateway, session).await,
        1,
        "the log has one prompt"
    );
}

/// The answer of the demo agent, which repeats the prompt.
fn whole_text(prompt: &str, hello: &Value) -> Value {
    json!(
        hello["text"]
            .as_str()
            .expect("a text")
            .replace("hello", prompt)
    )
}

#[test]
fn openai_python_follows_responses() {
    let gateway = demo();
    let url = format!("{}/openai/v1", gateway.url);
    let client = |scenario, prompt| run("openai_python.py", &[&url, KEY, scenario, prompt]);
    let shown = client("response", "hello");
    assert_eq!(
        (&shown["first"], &shown["last"], &shown["status"]),
        (
            &json!("response.created"),
            &json!("response.completed"),
            &json!("completed")
        ),
        "{shown}"
    );
    for (scenario, said) in [
        ("approve", "copes with an empty name"),
        ("deny", "You said no"),
    ] {
        let answered = client(scenario, "/diff");
        assert!(
            answered["text"]
                .as_str()
                .is_some_and(|text| text.contains(said)),
            "{answered}"
        );
        assert!(
            answered["arguments"]["title"].is_string(),
            "the request names its action: {answered}"
        );
    }
    let resumed = client("resumed", "hello");
    let numbers = resumed["numbers"].as_array().expect("numbers");
    assert!(
        numbers
            .iter()
            .zip(0..)
            .all(|(number, expected)| *number == json!(expected)),
        "{resumed}"
    );
    assert_eq!(resumed["last"], "response.completed");
    let cancelled = client("cancelled", "/slow 30");
    assert_eq!(
        cancelled,
        json!({ "begun": "in_progress", "cancelled": "cancelled" })
    );
}

#[test]
fn openai_agents_and_litellm_show_turns() {
    let gateway = demo();
    let url = format!("{}/openai/v1", gateway.url);
    let client = |scenario| run("openai_python.py", &[&url, KEY, scenario, "hello"]);
    let agents = client("agents");
    let litellm = client("litellm");
    let text = &litellm["text"];
    assert!(
        text.as_str()
            .is_some_and(|text| text.contains("demo agent")),
        "{litellm}"
    );
    assert!(
        litellm["reasoning"]
            .as_str()
            .is_some_and(|text| text.contains("hello")),
        "{litellm}"
    );
    assert_eq!((text, &agents["chat"]["text"]), (&litellm["whole"], text));
    let items = agents["responses"]["items"].as_array().expect("items");
    for kind in ["ReasoningItem", "ToolCallItem", "MessageOutputItem"] {
        assert!(items.contains(&json!(kind)), "{agents}");
    }
}

const fn python(name: &'static str) -> Client {
    ("chat_clients", "openai_python.py", name)
}

const CHAT: [Client; 4] = [
    python("openai"),
    python("litellm"),
    python("agents-chat"),
    python("agents-chat-session"),
];
const ALL: [Client; 7] = [
    CHAT[0],
    CHAT[1],
    CHAT[2],
    CHAT[3],
    python("openai-responses"),
    python("agents"),
    python("agents-session"),
];

#[tokio::test]
async fn clients_in_python_play_all_scenarios() {
    play_all(&ALL, &CHAT).await;
}

/// The agents SDK answers a request with its whole history, and without the id of a response.
#[tokio::test]
async fn agents_sdk_answers_a_request_of_its_run() {
    let gateway = Setup::fake(&[]).start();
    let url = format!("{}/openai/v1", gateway.url);
    for (scenario, answer) in [
        ("interrupted", "allow"),
        ("interrupted-streamed", "allow"),
        ("interrupted-session", "allow"),
        ("rejected", "reject"),
        ("decided", "allow"),
        ("decided-streamed", "allow"),
    ] {
        let args = [&*url, KEY, scenario, "permission", "fake"];
        let shown = run("openai_python.py", &args);
        let expected = (json!(format!("permission: {answer}")), json!("next"));
        let texts = (shown["text"].clone(), shown["next"].clone());
        assert_eq!(texts, expected, "{scenario} {shown}");
        let [session] = &sessions(&gateway).await[..] else {
            panic!("one session: {scenario} {shown}")
        };
        assert_eq!(turns(&gateway, session).await, 2, "{scenario}");
        let path = format!("/v1/sessions/{session}");
        gateway.call(Method::DELETE, &path).await;
    }
}
