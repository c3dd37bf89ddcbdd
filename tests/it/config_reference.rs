//! The sample file and the reference of the configuration, which are generated from the code.
//!
//! `UPDATE=1 cargo test --test it config_reference` writes them again.

#![expect(clippy::unwrap_used, reason = "a panic fails the test")]

use std::fs;

use acp_gateway::config::{self, Config, Environment, Flags, Shown};
use toml::Table;

use crate::support::generated::{compare, compare_section};

const SAMPLE: &str = "acp-gateway.sample.toml";
const REFERENCE: &str = "docs/reference/configuration.md";

fn load(file: &str) -> Config {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("gateway.toml");
    fs::write(&path, file).unwrap();
    let environment: Environment = [("ACP_GATEWAY_DATA", "/data")].into_iter().collect();
    config::load(
        &Flags {
            config: Some(path),
            ..Flags::default()
        },
        &environment,
        &|_| false,
    )
    .unwrap()
}

/// All values as a table, without the comments.
fn values(config: &Config) -> Table {
    let shown = config::show(config, Shown::All);
    shown.to_string().parse().unwrap()
}

/// Removes `marker` from the lines that begin with it and a key or a header.
fn uncomment(text: &str, marker: &str) -> String {
    let setting = |line: &&str| {
        let rest = line.strip_prefix(marker)?;
        let is_setting = rest.starts_with('[')
            || rest
                .split_once(" = ")
                .is_some_and(|(key, _)| !key.contains(' '));
        is_setting.then(|| rest.to_owned())
    };
    text.lines()
        .map(|line| setting(&line).unwrap_or_else(|| line.to_owned()) + "\n")
        .collect()
}

#[test]
fn sample_file_is_generated() {
    compare(SAMPLE, &config::sample());
}

#[test]
fn reference_is_generated() {
    compare_section(
        REFERENCE,
        &format!("\n{}\n", config::reference().trim_end()),
    );
}

#[test]
fn uncommented_sample_is_the_default_configuration() {
    let defaults = load("");
    let sample = config::sample();
    assert_eq!(values(&load(&sample)), values(&defaults));
    let uncommented = uncomment(&sample, "#");
    assert_ne!(uncommented, sample);
    let loaded = load(&uncommented);
    assert_eq!(values(&loaded), values(&defaults));
    assert_eq!(
        format!("{:?}", loaded.limits),
        format!("{:?}", defaults.limits)
    );
    assert_eq!(
        loaded.changes_that_need_restart(&defaults),
        Vec::<String>::new()
    );
}

#[test]
fn examples_in_the_sample_are_valid() {
    let certificates = tempfile::NamedTempFile::new().unwrap();
    fs::write(&certificates, "-----BEGIN CERTIFICATE-----\n").unwrap();
    let sample = config::sample().replace(
        "/etc/acp-gateway/ca.pem",
        certificates.path().to_str().unwrap(),
    );
    let config = load(&uncomment(&uncomment(&sample, "#"), "# "));
    assert_eq!(config.agents.len(), 2);
    assert_eq!(config.mcp.len(), 2);
    let demo = load("[agents.claude]\ncommand = \"claude-agent-acp\"\n");
    assert_eq!(
        values(&config)["agents"]["claude"],
        values(&demo)["agents"]["claude"]
    );
}

#[test]
fn check_prints_only_set_values_without_all() {
    let config = load(
        "[timeouts]\ndrain_timeout = \"9s\"\n[agents.a]\nbuiltin = \"demo\"\npool = { max_size = 3 }\n",
    );
    let set = config::show(&config, Shown::Set).to_string();
    let lines: Vec<_> = set
        .lines()
        .filter(|line| !line.starts_with('#') && !line.is_empty())
        .collect();
    let values: Vec<_> = lines
        .iter()
        .map(|line| line.split("  # ").next().unwrap())
        .collect();
    assert_eq!(
        values,
        [
            "[server]",
            "data_dir = \"/data\"",
            "[timeouts]",
            "drain_timeout = \"9s\"",
            "[agents.a]",
            "builtin = \"demo\"",
            "pool = { max_size = 3, reserved = 1, min_idle = 1, min_idle_for = \"1d\", idle_timeout = \"10m\", no_load_idle_timeout = \"4h\", no_load_reclaim_timeout = \"10m\" }",
        ]
    );
    let all = config::show(&config, Shown::All).to_string();
    assert!(all.contains("max_streams = 2000  # default\n"), "{all}");
    assert!(
        all.contains("log_filter") == config.log_filter.is_some(),
        "{all}"
    );
    assert!(lines.iter().all(|line| all.contains(line)), "{all}");
}

/// The number of keys outside the entries of agents and MCP servers. The module docs of `src/config` have the reasons.
const KEYS: usize = 55;

/// An operator needs few keys. All other limits are internal.
#[test]
fn number_of_keys_stays_small() {
    let keys = config::reference()
        .lines()
        .filter(|line| line.starts_with("| `"))
        .count();
    assert_eq!(
        keys, KEYS,
        "a new key needs a reason for an operator to change it: see the module docs of `src/config`"
    );
}
