//! The capabilities of real agents: recorded, compared with the agents, and the source of `docs/internals/agent-support.md`.
//!
//! `UPDATE_AGENT_SUPPORT=1 cargo test --test it offers` records the installed agents and writes the page.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::real::{CLAUDE, CODEX, GEMINI, KIMI, Real};
use crate::support::log::one;
use crate::support::places::project;

const PAGE: &str = "docs/internals/agent-support.md";

/// The scenarios of `scenarios.rs`, with the words for people.
const SCENARIOS: [(&str, &str); 12] = [
    (
        "permissions",
        "A command runs only with permission; a rejected command does not run",
    ),
    (
        "cancel_while_a_tool_runs",
        "Cancel while a command runs; the command ends with its session at the latest",
    ),
    (
        "more_conversations_than_processes",
        "More conversations than processes: each keeps its memory",
    ),
    (
        "idle_timeout",
        "The next prompt after the idle timeout continues the conversation",
    ),
    (
        "kill_of_the_agent",
        "`kill -9` of the agent, idle and during a turn",
    ),
    (
        "kill_of_the_gateway",
        "`kill -9` of the gateway, idle and during a turn",
    ),
    (
        "two_sessions_at_once_in_a_new_home",
        "Two sessions at once in a new HOME",
    ),
    ("fork", "Fork"),
    (
        "adopt",
        "Adoption of a session of the agent, with its history",
    ),
    (
        "workspace_isolation",
        "The isolation level `workspace`: a command with permission, a restore after the idle timeout, and a fork",
    ),
    (
        "unprivileged_gateway",
        "A gateway of an ordinary user, with namespaces and with Landlock only, at `private` and `workspace`",
    ),
    (
        "transient_failure_of_the_model",
        "An overloaded model: the reason is shown, and the problem is `retryable`",
    ),
];

/// Tests of one agent that cover a scenario without its function.
const OWN_TESTS: [(&str, &str, &str); 1] = [("permissions", "claude", "claude_is_refused_a_tool")];

const SOURCES: [(&str, &str); 4] = [
    ("claude", include_str!("claude.rs")),
    ("codex", include_str!("codex.rs")),
    ("gemini", include_str!("gemini.rs")),
    ("kimi", include_str!("kimi.rs")),
];

#[expect(
    clippy::disallowed_methods,
    reason = "the developer asks for new recordings by a variable"
)]
fn updates() -> bool {
    std::env::var_os("UPDATE_AGENT_SUPPORT").is_some()
}

/// Compares a file with its content as generated, or writes the file.
fn compare(path: &Path, generated: &str) {
    if updates() {
        std::fs::create_dir_all(path.parent().expect("a folder"))
            .expect("the project can be written to");
        return std::fs::write(path, generated).expect("the project can be written to");
    }
    let committed = std::fs::read_to_string(path).unwrap_or_default();
    assert_eq!(
        committed,
        generated,
        "{} is out of date: run `UPDATE_AGENT_SUPPORT=1 cargo test --test it offers` twice",
        path.display()
    );
}

/// The `id` of each member of a list.
fn ids(list: &Value) -> Value {
    list.as_array()
        .into_iter()
        .flatten()
        .map(|member| member["id"].clone())
        .collect()
}

async fn assert_recorded(real: &'static Real) {
    let running = real.start("").await;
    let session = running.session().await;
    let agent = running
        .gateway
        .get(&format!("/v1/agents/{}", real.name))
        .await;
    let events = running.gateway.all_events(&session).await;
    let set_up = &one(&events, "session.attached")["result"];
    let packages = std::fs::read_to_string(project().join("tests/agents/package.json"))
        .expect("it can be read");
    let packages: Value = serde_json::from_str(&packages).expect("JSON");
    let version = packages["dependencies"][real.package]
        .as_str()
        .expect("a pinned version");
    let recorded = json!({
        "agent": real.name,
        "package": real.package,
        "version": version,
        "protocolVersion": agent["protocolVersion"],
        "agentInfo": agent["agentInfo"],
        "agentCapabilities": agent["capabilities"],
        "authMethods": ids(&agent["authMethods"]),
        "modes": ids(&set_up["modes"]["availableModes"]),
        "configOptions": ids(&set_up["configOptions"]),
        "models": set_up["models"].is_object(),
    });
    let text = serde_json::to_string_pretty(&recorded).expect("JSON can be written") + "\n";
    compare(
        &project().join(format!(
            "tests/agents/recorded/{}-{version}.json",
            real.name
        )),
        &text,
    );
}

#[tokio::test]
async fn claude_capabilities_match_the_recording() {
    assert_recorded(&CLAUDE).await;
}

#[tokio::test]
async fn codex_capabilities_match_the_recording() {
    assert_recorded(&CODEX).await;
}

#[tokio::test]
async fn gemini_capabilities_match_the_recording() {
    assert_recorded(&GEMINI).await;
}

#[tokio::test]
async fn kimi_capabilities_match_the_recording() {
    assert_recorded(&KIMI).await;
}

fn yes(offered: bool) -> String {
    if offered { "yes" } else { "-" }.to_owned()
}

fn list(ids: &Value) -> String {
    let ids: Vec<_> = ids
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    if ids.is_empty() {
        "-".to_owned()
    } else {
        format!("`{}`", ids.join("`, `"))
    }
}

/// One line of the table of features: the words for people, and the cell of an agent.
type Row = (&'static str, fn(&Value) -> String);

fn at(recorded: &Value, pointer: &str) -> String {
    let value = recorded.pointer(&format!("/agentCapabilities/{pointer}"));
    yes(value.is_some_and(|value| value.is_object() || value == true))
}

const FEATURES: [Row; 20] = [
    ("Version", |agent| {
        agent["version"].as_str().expect("a version").to_owned()
    }),
    ("Package", |agent| {
        format!("`{}`", agent["package"].as_str().expect("a package"))
    }),
    ("ACP version", |agent| agent["protocolVersion"].to_string()),
    ("`session/load`", |agent| at(agent, "loadSession")),
    ("`session/resume`", |agent| {
        at(agent, "sessionCapabilities/resume")
    }),
    ("`session/list`", |agent| {
        at(agent, "sessionCapabilities/list")
    }),
    ("`session/fork`", |agent| {
        at(agent, "sessionCapabilities/fork")
    }),
    ("`session/close`", |agent| {
        at(agent, "sessionCapabilities/close")
    }),
    ("`session/delete`", |agent| {
        at(agent, "sessionCapabilities/delete")
    }),
    ("Additional directories", |agent| {
        at(agent, "sessionCapabilities/additionalDirectories")
    }),
    ("Images in prompts", |agent| {
        at(agent, "promptCapabilities/image")
    }),
    ("Audio in prompts", |agent| {
        at(agent, "promptCapabilities/audio")
    }),
    ("Embedded context in prompts", |agent| {
        at(agent, "promptCapabilities/embeddedContext")
    }),
    ("MCP servers over HTTP", |agent| {
        at(agent, "mcpCapabilities/http")
    }),
    ("MCP servers over SSE", |agent| {
        at(agent, "mcpCapabilities/sse")
    }),
    ("Modes", |agent| list(&agent["modes"])),
    ("Config options", |agent| list(&agent["configOptions"])),
    ("List of models (`models`)", |agent| {
        yes(agent["models"] == true)
    }),
    ("Sign-in methods", |agent| list(&agent["authMethods"])),
    ("Sign-out (`logout`)", |agent| at(agent, "auth/logout")),
];

/// Whether a test runs this scenario with this agent.
fn covers(scenario: &str, agent: &str) -> bool {
    let Some((_, source)) = SOURCES.iter().find(|(name, _)| *name == agent) else {
        return false;
    };
    let own = OWN_TESTS
        .iter()
        .find(|(of, name, _)| (*of, *name) == (scenario, agent));
    own.is_some_and(|(_, _, test)| source.contains(&format!("fn {test}(")))
        || source.contains(&format!("scenarios::{scenario}(&"))
}

fn table(page: &mut String, agents: &[Value], rows: &[(String, Vec<String>)]) {
    let names: Vec<_> = agents
        .iter()
        .filter_map(|agent| agent["agent"].as_str())
        .collect();
    let mut line =
        |cells: String| writeln!(page, "| {cells} |").expect("a string can be written to");
    line(format!("| {}", names.join(" | ")));
    line(vec!["---"; names.len() + 1].join(" | "));
    for (name, cells) in rows {
        line(format!("{name} | {}", cells.join(" | ")));
    }
}

fn recordings() -> Vec<Value> {
    let folder =
        std::fs::read_dir(project().join("tests/agents/recorded")).expect("there are recordings");
    let mut files: Vec<_> = folder
        .map(|entry| entry.expect("the folder can be read").path())
        .collect();
    files.sort();
    let read = |path: PathBuf| std::fs::read_to_string(path).expect("the file can be read");
    files
        .into_iter()
        .map(|path| serde_json::from_str(&read(path)).expect("JSON"))
        .collect()
}

#[test]
fn agent_support_page_matches_recordings_and_tests() {
    let agents = recordings();
    let mut page = "# Agent support\n\n\
        The tests generate this page: change a recording in `tests/agents/recorded` or a test, and run \
        `UPDATE_AGENT_SUPPORT=1 cargo test --test it offers` twice.\n\n\
        ## What each agent offers\n\n\
        The agents report this at `initialize` and `session/new`. The tests compare the recordings with the installed agents. \
        Every agent takes MCP servers over stdio. [Adding agents](../guides/adding-agents.md) describes how the gateway uses each feature.\n\n"
        .to_owned();
    let features = FEATURES
        .iter()
        .map(|(name, cell)| ((*name).to_owned(), agents.iter().map(cell).collect()));
    table(&mut page, &agents, &features.collect::<Vec<_>>());
    page.push_str(
        "\n## What the tests verify\n\n\
        These tests run the real agent behind the gateway, with a mock of its model that reports the history it received. \
        `-` means that no test covers the case with this agent, or that the agent does not offer the feature.\n\n",
    );
    let verified = SCENARIOS.iter().map(|(scenario, name)| {
        let cell = |agent: &Value| yes(covers(scenario, agent["agent"].as_str().expect("a name")));
        (
            (*name).to_owned(),
            agents.iter().map(cell).collect::<Vec<_>>(),
        )
    });
    let verified: Vec<_> = verified.collect();
    for (name, cells) in &verified {
        assert!(
            cells.iter().any(|cell| cell == "yes"),
            "no test covers: {name}"
        );
    }
    table(&mut page, &agents, &verified);
    compare(&project().join(PAGE), &page);
}

#[test]
fn every_scenario_and_own_test_is_known() {
    let functions = include_str!("scenarios.rs")
        .lines()
        .filter_map(|line| line.strip_prefix("pub(super) async fn "));
    let functions: Vec<_> = functions
        .filter_map(|line| line.split('(').next())
        .collect();
    assert_eq!(
        functions,
        SCENARIOS.map(|(scenario, _)| scenario),
        "SCENARIOS lists the functions of scenarios.rs"
    );
    for (scenario, agent, test) in OWN_TESTS {
        assert!(covers(scenario, agent), "{agent} has no test {test}");
    }
}
