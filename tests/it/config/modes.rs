//! `modes.deny`: its default for each agent, and its errors.

use std::fs;
use std::path::PathBuf;

use super::{load, mistake};
use crate::support::places::project;

#[test]
fn denied_modes_depend_on_the_agent_unless_they_are_listed() {
    let denied = |entry: &str| {
        let config = load(&format!("[agents.a]\n{entry}\n"), &[]).unwrap();
        config.agents[&"a".parse().unwrap()]
            .settings
            .denied_modes
            .clone()
    };
    let kimi = "command = \"npx\"\nargs = [\"-y\", \"@moonshot-ai/kimi-code\"]\n";
    for (entry, mode, is_denied) in [
        ("command = \"/opt/wrapper\"", "yolo", true),
        ("command = \"/opt/wrapper\"", "auto", false),
        ("builtin = \"demo\"", "bypassPermissions", true),
        (kimi, "auto", true),
        (
            &format!("{kimi}modes = {{ deny = [\"plan\"] }}"),
            "auto",
            false,
        ),
        (&format!("{kimi}modes.deny = [\"plan\"]"), "plan", true),
        (&format!("{kimi}modes.deny = []"), "yolo", false),
    ] {
        assert_eq!(
            denied(entry).find(mode).is_some(),
            is_denied,
            "{entry} {mode}"
        );
    }
    for (value, reason) in [
        ("{}", "deny"),
        ("{ deny = [\"--\"] }", "must have a letter or a digit"),
        ("{ deny = \"yolo\" }", "deny"),
        ("{ deny = [], allow = [] }", "allow"),
    ] {
        let error = mistake(
            &format!("[agents.a]\ncommand = \"a\"\nmodes = {value}\n"),
            &[],
        );
        assert!(error.contains(reason), "{error}");
    }
}

/// A new mode of an agent fails this test until somebody decides whether it is privileged.
#[test]
fn every_mode_of_a_recorded_agent_is_classified() {
    let folder = project().join("tests/agents/recorded");
    for (agent, denied, allowed) in [
        (
            "claude",
            &[][..],
            &["acceptEdits", "auto", "default", "dontAsk", "plan"][..],
        ),
        (
            "codex",
            &["agent-full-access"],
            &["agent", "read-only", "workspace-write"],
        ),
        ("gemini", &["yolo"], &["autoEdit", "default", "plan"]),
        ("kimi", &["auto", "yolo"], &["default", "plan"]),
    ] {
        let files = fs::read_dir(&folder)
            .unwrap()
            .map(|entry| entry.unwrap().path());
        let starts = |path: &PathBuf| {
            path.file_name()
                .is_some_and(|name| name.to_string_lossy().starts_with(&format!("{agent}-")))
        };
        let recording = fs::read_to_string(files.into_iter().find(starts).unwrap()).unwrap();
        let recording: serde_json::Value = serde_json::from_str(&recording).unwrap();
        let package = recording["package"].as_str().unwrap();
        let modes = recording["modes"].as_array().unwrap();
        let entry = format!("[agents.a]\ncommand = \"npx\"\nargs = [\"-y\", {package:?}]\n");
        let config = load(&entry, &[]).unwrap();
        let list = &config.agents[&"a".parse().unwrap()].settings.denied_modes;
        let mut modes: Vec<&str> = modes.iter().map(|mode| mode.as_str().unwrap()).collect();
        modes.sort_unstable();
        let (found, other): (Vec<&str>, Vec<&str>) =
            modes.iter().partition(|mode| list.find(mode).is_some());
        assert_eq!((&found[..], &other[..]), (denied, allowed), "{agent}");
    }
}
