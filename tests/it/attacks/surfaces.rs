//! Attacks on parts that the gateway does not have: only one module opens outgoing connections, and the gateway joins no
//! message bus.

use std::path::{Path, PathBuf};
use std::process::Output;

use serde_json::Value;

use crate::architecture::files_below;
use crate::support::gateway::command;
use crate::support::places::{gateway_program, project};

fn read(name: &str) -> String {
    let file = project().join(name);
    std::fs::read_to_string(file).expect("a file of ours")
}

/// `acp-gateway check` with this configuration.
pub(crate) fn check(config: &str) -> Output {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("config.toml");
    std::fs::write(&file, config).expect("the folder is ours");
    let mut check = command(gateway_program());
    check
        .env_clear()
        .env("HOME", folder.path())
        .arg("check")
        .arg("--config")
        .arg(&file);
    check.output().expect("the binary was built")
}

#[test]
fn only_the_module_outgoing_has_a_client_for_http() {
    let manifest: toml::Table = read("Cargo.toml").parse().expect("TOML");
    let dependencies = manifest["dependencies"].as_table().expect("a table");
    assert!(dependencies.len() > 20);
    for name in dependencies.keys() {
        let clients = [
            "reqwest",
            "ureq",
            "curl",
            "isahc",
            "nats",
            "kafka",
            "redis",
            "native-tls",
        ];
        assert!(
            !clients.iter().any(|client| name.contains(client)),
            "{name}"
        );
    }
    let source = |file: &Path| std::fs::read_to_string(file).expect("a file of ours");
    let using = |words: &[&str]| -> Vec<PathBuf> {
        let folders = ["src", "crates"].into_iter();
        folders
            .flat_map(|folder| files_below(folder, &["rs"]))
            .filter(|file| words.iter().any(|word| source(file).contains(word)))
            .collect()
    };
    let clients = using(&[
        "hyper_rustls",
        "rustls::",
        "hyper_util::client",
        "tungstenite::client",
    ]);
    assert!(!clients.is_empty());
    for file in clients {
        assert!(file.starts_with("crates/outgoing/src"), "{file:?}");
    }
    // The modules that open connections. Each gets its targets from the operator or from the user of the command. A key with
    // the scope `admin` names URLs of webhooks on hosts that the operator permits. A registry of the operator names archives,
    // and a key with the scope `admin` selects one of its agents. The operator names the collector of telemetry.
    let opens_connections = |file: &PathBuf| {
        let source = source(file);
        let imports = source.split("use outgoing").skip(1);
        imports
            .filter_map(|rest| rest.split(';').next())
            .any(|names| names.contains("Client") || names.contains("open_websocket"))
    };
    let users = using(&["use outgoing"]).into_iter();
    let users: Vec<PathBuf> = users.filter(opens_connections).collect();
    assert!(users.len() > 5);
    for user in users {
        let allowed = [
            "crates/programs/src/attach",
            "crates/programs/src/connect",
            "src/cli/attach",
            "crates/agents/src/agent/",
            "src/registry/",
            "src/app/otlp.rs",
            "crates/sessions/src/webhooks/",
        ];
        assert!(
            allowed
                .iter()
                .any(|folder| user.to_string_lossy().starts_with(folder)),
            "{user:?}"
        );
    }
    let document: Value = serde_json::from_str(&read("openapi/openapi.json")).expect("JSON");
    for path in document["paths"].as_object().expect("paths").keys() {
        for word in ["callback", "proxy", "remote", "node", "cluster", "peer"] {
            assert!(!path.contains(word), "{path}");
        }
    }
}

#[test]
fn there_is_no_configuration_for_a_bus() {
    let entry = "[agents.a]\ncommand = \"sh\"\n";
    assert!(check(entry).status.success(), "the entry alone is valid");
    for (more, key) in [
        ("host = \"agents.example\"\n", "agents.a.host"),
        ("transport = \"websocket\"\n", "agents.a.transport"),
        ("[nats]\nurl = \"nats://127.0.0.1\"\n", "nats"),
        ("[cluster]\nnode = \"a\"\n", "cluster"),
        (
            "[webhooks]\nallowed_hosts = [\"https://hooks.example\"]\n",
            "webhooks.allowed_hosts",
        ),
    ] {
        let output = check(&format!("{entry}{more}"));
        let text = String::from_utf8_lossy(&output.stderr).into_owned()
            + &String::from_utf8_lossy(&output.stdout);
        assert!(
            !output.status.success() && text.contains(key),
            "{key}: {text}"
        );
    }
}
