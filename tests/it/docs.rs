//! Checks the parts of the documentation that a program can compare with the code.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use base::telemetry::metrics::{INSTRUMENTS, Kind};
use events::api::ProblemCode;

use crate::support::generated::compare_section;
use crate::support::own_tests;
use crate::support::places::project;

fn root() -> &'static Path {
    project()
}

fn read(path: impl AsRef<Path>) -> String {
    let path = root().join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// `UPDATE=1 cargo test --test it docs::problem_codes` writes the table again.
#[test]
fn problem_codes_of_the_reference_are_generated() {
    let mut table =
        "| code | status | retryable | meaning and action |\n|---|---|---|---|\n".to_owned();
    for code in ProblemCode::ALL {
        let retryable = if code.retryable() { "yes" } else { "no" };
        let name = code.as_str();
        let status = code.status();
        let meaning = code.meaning().trim();
        table += &format!("| `{name}` | {status} | {retryable} | {meaning} |\n");
    }
    compare_section("docs/reference/problems.md", &table);
}

/// `UPDATE=1 cargo test --test it docs::metrics` writes the tables again.
#[test]
fn metrics_of_the_reference_are_generated() {
    let mut tables = String::new();
    for (kind, title) in [
        (Kind::Counter, "Counters"),
        (Kind::Histogram, "Histograms"),
        (Kind::Gauge, "Gauges"),
    ] {
        tables += &format!("\n### {title}\n\n| name | labels | meaning |\n|---|---|---|\n");
        for instrument in INSTRUMENTS.iter().filter(|row| row.kind == kind) {
            let labels = instrument.labels.iter();
            let labels = labels.map(|label| format!("`{}`", label.replace('.', "_")));
            let labels = labels.collect::<Vec<_>>().join(", ");
            let name = instrument.exported_name();
            tables += &format!("| `{name}` | {labels} | {} |\n", instrument.meaning);
        }
    }
    compare_section("docs/reference/metrics.md", &format!("{tables}\n"));
}

/// The members that every event has. A section of the reference describes them together.
const COMMON_MEMBERS: [&str; 6] = ["id", "seq", "type", "sessionId", "time", "promptId"];

#[test]
fn every_event_type_is_in_the_event_reference_with_its_members() {
    let page = read("docs/reference/events.md");
    let document: serde_json::Value =
        serde_json::from_str(&read("openapi/openapi.json")).expect("JSON");
    let schemas = document["components"]["schemas"]
        .as_object()
        .expect("schemas");
    for name in events::event::TYPES.iter().map(|row| row.name) {
        let of_type = |row: &&str| {
            row.strip_prefix("| ").is_some_and(|row| {
                row.split(" | ")
                    .next()
                    .is_some_and(|types| types.contains(&format!("`{name}`")))
            })
        };
        let rows: Vec<&str> = page.lines().filter(of_type).collect();
        assert!(!rows.is_empty(), "no row for {name}");
        let has_type = |schema: &&serde_json::Value| {
            schema["properties"]["type"]["enum"] == serde_json::json!([name])
        };
        let schema = schemas
            .values()
            .find(has_type)
            .unwrap_or_else(|| panic!("no schema for {name}"));
        let members = schema["properties"]
            .as_object()
            .expect("an event is an object")
            .keys();
        for member in members.filter(|member| !COMMON_MEMBERS.contains(&member.as_str())) {
            let forms = [format!("`{member}`"), format!("`{member}: ")];
            let described = rows
                .iter()
                .any(|row| forms.iter().any(|form| row.contains(form)));
            assert!(described, "the row of {name} has no {member}");
        }
    }
}

#[test]
fn every_type_of_the_audit_log_is_in_its_reference() {
    let page = read("docs/reference/audit.md");
    let (_, page) = page.split_once("\n## Event types\n").expect("the section");
    let (section, _) = page.split_once("\n## ").expect("the next section");
    let rows = section
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split_once("` | "));
    let named: Vec<&str> = rows.map(|(name, _)| name).collect();
    let types: Vec<&str> = events::event::AUDIT_TYPES
        .iter()
        .map(|(_, name)| *name)
        .collect();
    assert_eq!(
        named, types,
        "one row for each type, in the order of crates/events/src/event/audit.rs"
    );
}

#[test]
fn every_operation_is_in_the_api_reference() {
    let document: serde_json::Value =
        serde_json::from_str(&read("openapi/openapi.json")).expect("JSON");
    let pages = ["api.md", "sessions.md", "agents.md", "events.md"]
        .map(|page| read(Path::new("docs/reference").join(page)))
        .concat();
    // Paths of the pages are shorter: `{s}` for `{session}`.
    let plain = |text: &str| {
        let mut out = String::new();
        let mut inside = false;
        for letter in text.chars() {
            inside = (inside || letter == '{') && letter != '}';
            if !inside {
                out.push(letter);
            }
        }
        out
    };
    let pages = plain(&pages);
    let paths = document["paths"].as_object().expect("paths");
    // The page abbreviates paths below the session.
    let missing: Vec<&String> = paths
        .keys()
        .filter(|path| {
            let path = plain(path);
            let short = path.strip_prefix("/v1/sessions/}").unwrap_or(&path);
            !pages.contains(&path) && !pages.contains(short)
        })
        .collect();
    assert!(
        missing.is_empty(),
        "docs/reference/ does not describe {missing:?}"
    );
}

/// The Markdown files of the repository, without those of packages.
fn pages() -> Vec<PathBuf> {
    let names = [
        "README.md",
        "ARCHITECTURE.md",
        "CONTRIBUTING.md",
        "SECURITY.md",
        "CHANGELOG.md",
    ];
    let mut pages: Vec<PathBuf> = names.into_iter().map(PathBuf::from).collect();
    let mut folders = vec![PathBuf::from("docs")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(root().join(&folder)).expect("a folder of ours") {
            let path = folder.join(entry.expect("an entry").file_name());
            if root().join(&path).is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "md") {
                pages.push(path);
            }
        }
    }
    pages.sort();
    pages
}

/// The anchors of a page, as GitHub makes them of its headings.
pub(crate) fn anchors(page: &str) -> BTreeSet<String> {
    let mut fenced = false;
    let headings = page.lines().filter(|line| {
        fenced ^= line.starts_with("```");
        !fenced && line.starts_with('#')
    });
    headings
        .map(|heading| {
            let text = heading.trim_start_matches('#').trim().to_lowercase();
            let kept = text
                .chars()
                .filter(|c| c.is_alphanumeric() || [' ', '-', '_'].contains(c));
            kept.map(|c| if c == ' ' { '-' } else { c }).collect()
        })
        .collect()
}

#[test]
fn links_of_the_documentation_lead_to_pages_and_headings() {
    let mut links = 0;
    for page in pages() {
        let text = read(&page);
        let folder = page.parent().expect("a page is in a folder");
        let targets = text
            .split("](")
            .skip(1)
            .filter_map(|rest| rest.split_once(')'));
        for (target, _) in targets {
            let (path, anchor) = target.split_once('#').unwrap_or((target, ""));
            if path.contains("://") {
                continue;
            }
            links += 1;
            let file = if path.is_empty() {
                page.clone()
            } else {
                folder.join(path)
            };
            assert!(
                root().join(&file).exists(),
                "{} links to {target}",
                page.display()
            );
            let found = anchor.is_empty() || anchors(&read(&file)).contains(anchor);
            assert!(
                found,
                "{} links to {target}, and there is no such heading",
                page.display()
            );
        }
    }
    assert!(links > 100, "only {links} links were found");
}

#[test]
fn the_index_links_to_every_page() {
    let index = read("docs/README.md");
    for page in pages() {
        let Ok(name) = page.strip_prefix("docs") else {
            continue;
        };
        let name = name.to_str().expect("UTF-8");
        let linked = name == "README.md" || index.contains(&format!("]({name})"));
        assert!(linked, "docs/README.md does not link to {name}");
    }
}

/// The pages for users, and the README.
fn pages_for_users() -> Vec<PathBuf> {
    let mut pages = vec![PathBuf::from("README.md"), PathBuf::from("SECURITY.md")];
    for folder in ["docs", "docs/guides", "docs/reference"] {
        for entry in std::fs::read_dir(root().join(folder)).expect("a folder") {
            let name = entry.expect("an entry").file_name();
            let page = Path::new(folder).join(name);
            if page.extension().is_some_and(|extension| extension == "md") {
                pages.push(page);
            }
        }
    }
    pages
}

/// The parts of a text between two marks.
fn between<'a>(text: &'a str, begin: &'a str, end: &'a str) -> impl Iterator<Item = &'a str> {
    text.split(begin)
        .skip(1)
        .filter_map(move |rest| Some(rest.split_once(end)?.0))
}

#[test]
fn every_key_of_the_configuration_in_the_documentation_exists() {
    let reference = acp_gateway::config::reference();
    let mut keys: BTreeSet<String> = BTreeSet::new();
    let mut section = String::new();
    for line in reference.lines() {
        if let Some(name) = line.strip_prefix("### `[") {
            section = name.trim_end_matches("]`").to_owned();
        } else if let Some(row) = line.strip_prefix("| `") {
            keys.insert(format!(
                "{section}.{}",
                row.split('`').next().expect("a key")
            ));
        }
    }
    // Events and methods of ACP begin like keys of these sections.
    let sections: BTreeSet<&str> = keys
        .iter()
        .filter_map(|key| Some(key.rsplit_once('.')?.0))
        .filter(|section| !["auth", "isolation"].contains(section))
        .collect();
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("gateway.toml");
    let variables: acp_gateway::config::Environment =
        [("ACP_GATEWAY_DATA", "/data")].into_iter().collect();
    let mut blocks = 0;
    for page in pages_for_users() {
        let text = read(&page);
        for name in text.split('`') {
            let is_key = name.rsplit_once('.').is_some_and(|(section, key)| {
                sections.contains(section)
                    && key
                        .bytes()
                        .all(|byte| byte.is_ascii_lowercase() || byte == b'_')
            });
            assert!(!is_key || keys.contains(name), "{}: {name}", page.display());
        }
        for block in between(&text, "```toml\n", "```") {
            blocks += 1;
            std::fs::write(&file, block).expect("the folder is ours");
            let flags = acp_gateway::config::Flags {
                config: Some(file.clone()),
                ..Default::default()
            };
            let errors = match acp_gateway::config::load(&flags, &variables, &|_| false) {
                Ok(config) => config.errors.join("\n"),
                Err(error) => error.to_string(),
            };
            assert!(
                !errors.contains("unknown key"),
                "{}: {errors}",
                page.display()
            );
        }
    }
    assert!(blocks > 20, "{blocks}");
}

/// A name that no test has would select nothing.
#[test]
fn tests_that_the_script_selects_exist() {
    let own = own_tests();
    let script = read("scripts/test");
    let is_test = |line: &&str| {
        line.contains("::")
            && line
                .chars()
                .all(|character| character.is_alphanumeric() || "_:".contains(character))
    };
    let named: Vec<&str> = script.lines().map(str::trim).filter(is_test).collect();
    assert!(named.len() > 10, "{named:?}");
    for test in named {
        assert!(own.contains(test), "scripts/test names {test}");
    }
}

#[test]
fn each_alert_has_an_entry_in_the_runbook() {
    let alerts = read("deploy/prometheus/alerts.yaml");
    let alerts: Vec<&str> = alerts
        .lines()
        .filter_map(|line| line.trim().strip_prefix("- alert: "))
        .collect();
    assert!(alerts.len() > 10, "{alerts:?}");
    let operations = read("docs/operations.md");
    let entries: Vec<&str> = operations
        .lines()
        .skip_while(|line| !line.starts_with("| alert |"))
        .skip(2)
        .map_while(|line| line.strip_prefix("| `")?.split('`').next())
        .collect();
    assert_eq!(
        entries, alerts,
        "left: docs/operations.md, right: the alerts"
    );
}
