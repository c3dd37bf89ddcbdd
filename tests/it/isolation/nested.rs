//! Sandboxes of agents themselves, inside the isolation of the gateway.

use std::path::PathBuf;

use serde_json::json;

use super::ground::{Machine, User, open, order, outside_tmp, run_by, script, setup, start};
use crate::real_agents::file;
use crate::support::log::one;
use crate::support::places::{open_parent, project};
use crate::support::{Setup, figure};

/// The sandbox that Claude Code uses.
const BUBBLEWRAP: [&str; 6] = [
    "bwrap",
    "--ro-bind",
    "/",
    "/",
    "--unshare-all",
    "--die-with-parent",
];

/// Tries to write outside of the sandbox.
const WRITE: [&str; 3] = ["sh", "-c", "echo runs; touch \"$HOME/outside\""];

/// The program of Codex that runs a command in its sandbox.
fn codex() -> PathBuf {
    let packages = project().join("tests/agents/node_modules/@openai");
    let packages = packages
        .read_dir()
        .expect("the packages of the test agents are installed");
    let vendor = packages.map(|entry| entry.expect("an entry").path().join("vendor"));
    let vendor = vendor
        .into_iter()
        .find(|vendor| vendor.is_dir())
        .expect("a package with the program");
    let target = vendor
        .read_dir()
        .expect("a folder")
        .next()
        .expect("a target")
        .expect("an entry");
    target.path().join("bin/codex")
}

/// Runs a program in an isolated agent. Returns its exit code, its stdout and its stderr.
async fn run(user: User, machine: Machine, command: &[&str]) -> (i64, String, String) {
    let packages = format!("folders = [{:?}]\n", file("node_modules"));
    let gateway = start(setup(user, machine, "private", &packages), user);
    let session = open(&gateway, &json!({ "agent": "hostile" })).await;
    let run = json!({ "act": "run", "command": command });
    let ran = order(&gateway, &session, &run, "ran.json").await;
    let text = |index: usize| ran[index].as_str().expect("a text").to_owned();
    (ran[0].as_i64().expect("a code"), text(1), text(2))
}

/// The commands of both sandboxes.
fn sandboxes() -> [Vec<String>; 2] {
    let codex = codex().to_str().expect("a text").to_owned();
    let all = |sandbox: &[&str]| {
        sandbox
            .iter()
            .chain(&WRITE)
            .map(|word| (*word).to_owned())
            .collect()
    };
    [all(&BUBBLEWRAP), all(&[&codex, "sandbox"])]
}

#[tokio::test]
async fn sandboxes_of_agents_work_in_the_namespaces_of_an_ordinary_user() {
    if !User::Unprivileged.can_run() {
        return;
    }
    if open_parent().is_none() {
        // Codex refuses a home below /tmp.
        figure("this test needs a folder that each level shows");
        return;
    }
    for sandbox in sandboxes() {
        let words: Vec<&str> = sandbox.iter().map(String::as_str).collect();
        let (code, output, errors) = run(User::Unprivileged, Machine::Namespaces, &words).await;
        assert_eq!(output, "runs\n", "{sandbox:?} {errors}");
        assert!(
            code != 0 && errors.contains("Read-only file system"),
            "{sandbox:?} {code} {errors}"
        );
    }
}

/// The documentation names these limits.
#[tokio::test]
async fn sandboxes_of_agents_fail_without_namespaces_and_in_those_of_root() {
    let all = User::all()
        .into_iter()
        .map(|user| (user, Machine::LandlockOnly));
    let root = User::all()
        .into_iter()
        .filter(|user| *user == User::Root)
        .map(|user| (user, Machine::Namespaces));
    for (user, machine) in all.chain(root) {
        for sandbox in sandboxes() {
            let words: Vec<&str> = sandbox.iter().map(String::as_str).collect();
            let (code, output, errors) = run(user, machine, &words).await;
            assert!(
                code != 0 && output.is_empty(),
                "{user:?} {machine:?} {sandbox:?} {code} {output} {errors}"
            );
        }
    }
}

#[tokio::test]
async fn own_sandbox_of_an_agent_is_switched_off_only_with_landlock() {
    let user = User::all()[0];
    let off = json!(true);
    for (machine, env, value, reported) in [
        (Machine::LandlockOnly, "", "false\n", Some(&off)),
        (
            Machine::LandlockOnly,
            "env = { GEMINI_SANDBOX = \"docker\" }\n",
            "docker\n",
            None,
        ),
        (Machine::Namespaces, "", "", None),
        (Machine::Bare, "", "", None),
    ] {
        let words = run_by(user, machine);
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        // The argument names the package of a known agent.
        let setup = Setup::default().run_by(&words).below(outside_tmp());
        let gateway = start(
            setup.agent(
                "gemini",
                &script("hostile.py"),
                &["/@google/gemini-cli/"],
                env,
            ),
            user,
        );
        let session = open(&gateway, &json!({ "agent": "gemini" })).await;
        let run = json!({ "act": "run", "command": ["printenv", "GEMINI_SANDBOX"] });
        let ran = order(&gateway, &session, &run, "ran.json").await;
        assert_eq!(ran[1], value, "{machine:?} {ran}");
        let agent = gateway.get("/v1/agents/gemini").await;
        let events = gateway.all_events(&session.id).await;
        for isolation in
            [&session.json, &agent, one(&events, "session.attached")].map(|json| &json["isolation"])
        {
            assert_eq!(
                isolation.get("agentSandboxOff"),
                reported,
                "{machine:?} {isolation}"
            );
        }
    }
}
