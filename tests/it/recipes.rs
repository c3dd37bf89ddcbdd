//! The recipes of docs/guides/adding-agents.md: every entry is valid, and every known agent has one.

use acp_gateway::config::{self, Environment, Flags, Launch};
use wire::acp::known_agents::{KNOWN, KnownAgent};

use crate::support::places::project;

fn guide() -> String {
    let path = project().join("docs/guides/adding-agents.md");
    std::fs::read_to_string(path).expect("the guide is there")
}

/// The TOML blocks of a page.
fn blocks(page: &str) -> Vec<&str> {
    page.split("```toml\n")
        .skip(1)
        .filter_map(|rest| rest.split_once("```").map(|(block, _)| block))
        .collect()
}

fn agents(block: &str) -> Vec<(String, config::Agent)> {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("gateway.toml");
    std::fs::write(&file, block).expect("the folder is ours");
    let named = block
        .split("from_env = \"")
        .skip(1)
        .filter_map(|rest| rest.split_once('"'));
    let variables = named
        .map(|(name, _)| (name, "value"))
        .chain([("ACP_GATEWAY_DATA", "/data")]);
    let environment: Environment = variables.collect();
    let flags = Flags {
        config: Some(file),
        ..Flags::default()
    };
    let config = config::load(&flags, &environment, &|_| false)
        .unwrap_or_else(|error| panic!("{error}\n{block}"));
    config
        .agents
        .into_iter()
        .map(|(name, agent)| (name.to_string(), agent))
        .collect()
}

#[test]
fn every_recipe_is_valid_and_runs_the_known_command() {
    let page = guide();
    assert!(blocks(&page).iter().all(|block| !agents(block).is_empty()));
    let (_, recipes) = page
        .split_once("\n## Recipes\n")
        .expect("the recipes have a part of their own");
    let (recipes, _) = recipes.split_once("\n## ").expect("another part follows");
    let entries: Vec<_> = blocks(recipes).into_iter().flat_map(agents).collect();
    for known in *KNOWN {
        let (_, agent) = entries
            .iter()
            .find(|(name, _)| name == known.name)
            .unwrap_or_else(|| panic!("no {}", known.name));
        let Launch::Command { command, args } = &agent.launch else {
            panic!("{} runs a command", known.name)
        };
        let row = KnownAgent::find(command, args)
            .unwrap_or_else(|| panic!("{command} {args:?} is not known"));
        assert_eq!(row.name, known.name, "{command} {args:?}");
        let own: Vec<&str> = args
            .iter()
            .map(String::as_str)
            .filter(|arg| row.args.contains(arg))
            .collect();
        assert_eq!(own, row.args, "{}: {args:?}", known.name);
        let variable = row.secrets.iter().any(|name| agent.env.contains_key(*name));
        assert!(variable, "the recipe of {} has no key", known.name);
    }
}

#[test]
fn recipes_pin_the_versions_that_the_real_agent_tests_run() {
    let manifest = project().join("tests/agents/package.json");
    let manifest = std::fs::read_to_string(manifest).expect("the manifest is there");
    let manifest: serde_json::Value = serde_json::from_str(&manifest).expect("JSON");
    let page = guide();
    let mut pinned = 0;
    for package in KNOWN.iter().flat_map(|known| &known.packages) {
        if let Some(version) = manifest["dependencies"][package].as_str() {
            assert!(
                page.contains(&format!("\"{package}@{version}\"")),
                "{package} {version}"
            );
            pinned += 1;
        }
    }
    assert!(pinned >= 4, "only {pinned}");
}

#[test]
fn the_guide_lists_every_variable_that_agents_receive() {
    let page = guide();
    let (_, table) = page
        .split_once("\n## Credentials of each agent\n")
        .expect("the table is there");
    for known in *KNOWN {
        let head = format!("| `{}` |", known.name);
        let row = table
            .lines()
            .find(|line| line.starts_with(&head))
            .unwrap_or_else(|| panic!("no {head}"));
        let (_, listed) = row.split_once(&head).expect("it begins so");
        let (secrets, settings) = listed.split_once(" | ").expect("three columns");
        let missing = |names: &[&str], column: &str| {
            names
                .iter()
                .any(|name| !column.contains(&format!("`{name}`")))
        };
        assert!(
            !missing(&known.secrets, secrets) && !missing(&known.settings, settings),
            "{row}"
        );
    }
}
