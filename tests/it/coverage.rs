//! The gateway's coverage of ACP: the list of the schema crate against the table of the reference, and a test for each
//! row.

pub(crate) mod schema;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use agent_client_protocol_schema::{v1, v2};
use events::event::TYPES;
use serde_json::Value;

use crate::support::own_tests;
use crate::support::places::project;

/// Rows that the schema does not contain: results of agents, and names for the remaining parts.
const BEYOND_THE_SCHEMA: [&str; 3] = ["session/set_model", "_<anything>", "<unknown>"];

fn read(path: impl AsRef<Path>) -> String {
    let path = project().join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The items that the schema crate lists, by the headings of the reference.
fn listed() -> BTreeMap<&'static str, Vec<String>> {
    use schema::{capabilities, methods, variants};
    let joined = |lists: [Vec<String>; 3]| lists.concat();
    BTreeMap::from([
        (
            "Methods of agents in v1",
            joined([
                methods(&v1::AGENT_METHOD_NAMES),
                methods(&v1::PROTOCOL_LEVEL_METHOD_NAMES),
                methods(&v1::PROXY_METHOD_NAMES),
            ]),
        ),
        (
            "Methods of clients in v1",
            [
                methods(&v1::CLIENT_METHOD_NAMES),
                methods(&v1::PROTOCOL_LEVEL_METHOD_NAMES),
            ]
            .concat(),
        ),
        (
            "Updates in v1",
            variants::<v1::SessionUpdate>("sessionUpdate"),
        ),
        (
            "Capabilities of agents in v1",
            capabilities::<v1::AgentCapabilities>(),
        ),
        (
            "Capabilities of clients in v1",
            capabilities::<v1::ClientCapabilities>(),
        ),
        (
            "Methods of agents in v2",
            joined([
                methods(&v2::AGENT_METHOD_NAMES),
                methods(&v2::PROTOCOL_LEVEL_METHOD_NAMES),
                methods(&v2::PROXY_METHOD_NAMES),
            ]),
        ),
        (
            "Methods of clients in v2",
            [
                methods(&v2::CLIENT_METHOD_NAMES),
                methods(&v2::PROTOCOL_LEVEL_METHOD_NAMES),
            ]
            .concat(),
        ),
        (
            "Updates in v2",
            variants::<v2::SessionUpdate>("sessionUpdate"),
        ),
        (
            "Capabilities of agents in v2",
            capabilities::<v2::AgentCapabilities>(),
        ),
        (
            "Capabilities of clients in v2",
            capabilities::<v2::ClientCapabilities>(),
        ),
    ])
}

/// A row of the guide: the name, and the other cells.
#[derive(Debug)]
struct Row {
    name: String,
    here: String,
}

/// The rows of the guide's tables by their headings.
fn rows() -> BTreeMap<String, Vec<Row>> {
    let mut tables: BTreeMap<String, Vec<Row>> = BTreeMap::new();
    let mut heading = String::new();
    for line in read("docs/reference/acp-coverage.md").lines() {
        if let Some(text) = line.strip_prefix('#') {
            text.trim_start_matches('#').trim().clone_into(&mut heading);
        } else if let Some((name, rest)) = line
            .strip_prefix("| `")
            .and_then(|rest| rest.split_once("` | "))
        {
            let here = rest.trim_end_matches('|').trim().to_owned();
            tables.entry(heading.clone()).or_default().push(Row {
                name: name.to_owned(),
                here,
            });
        }
    }
    tables
}

/// The names of tests by heading and row, as the list beside this file has them.
fn tests_of_rows() -> BTreeMap<(String, String), Vec<String>> {
    let mut tests = BTreeMap::new();
    let mut heading = String::new();
    for line in read("tests/it/coverage/tests.txt")
        .lines()
        .filter(|line| !line.is_empty())
    {
        if let Some(text) = line.strip_prefix("# ") {
            text.clone_into(&mut heading);
            continue;
        }
        let (name, list) = line
            .split_once(": ")
            .unwrap_or_else(|| panic!("not a row: {line}"));
        let list = list.split(", ").map(str::to_owned).collect();
        let before = tests.insert((heading.clone(), name.to_owned()), list);
        assert!(before.is_none(), "{heading}: {name} is there twice");
    }
    tests
}

#[test]
fn table_has_exactly_the_rows_of_the_schema() {
    let rows = rows();
    let mut wrong = Vec::new();
    for (heading, names) in listed() {
        assert!(
            !names.is_empty(),
            "the schema lists nothing under {heading}"
        );
        let empty = Vec::new();
        let table = rows.get(heading).unwrap_or(&empty);
        for name in &names {
            let count = table.iter().filter(|row| row.name == *name).count();
            if count != 1 {
                wrong.push(format!("{heading}: {count} rows for {name}"));
            }
        }
        for row in table {
            let known = names.contains(&row.name) || BEYOND_THE_SCHEMA.contains(&&*row.name);
            if !known {
                wrong.push(format!("{heading}: the schema does not know {}", row.name));
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "docs/reference/acp-coverage.md:\n{}",
        wrong.join("\n")
    );
}

#[test]
fn every_row_has_a_test_that_exists() {
    let headings = listed();
    let rows = rows();
    let of_rows = tests_of_rows();
    let known: BTreeSet<String> = own_tests()
        .iter()
        .filter_map(|test| test.rsplit("::").next().map(str::to_owned))
        .collect();
    assert!(known.len() > 300, "only {} tests were found", known.len());
    let mut wrong = Vec::new();
    let mut used = 0;
    for (heading, table) in rows
        .iter()
        .filter(|(heading, _)| headings.contains_key(heading.as_str()))
    {
        for row in table {
            let Some(tests) = of_rows.get(&(heading.clone(), row.name.clone())) else {
                wrong.push(format!("{heading}: {} has no test", row.name));
                continue;
            };
            used += 1;
            for test in tests.iter().filter(|test| !known.contains(*test)) {
                wrong.push(format!("{heading}: {}: there is no test {test}", row.name));
            }
        }
    }
    if used != of_rows.len() {
        wrong.push(format!(
            "{} rows have tests, and {} are in the table",
            of_rows.len(),
            used
        ));
    }
    assert!(
        wrong.is_empty(),
        "tests/it/coverage/tests.txt:\n{}",
        wrong.join("\n")
    );
}

#[test]
fn routes_and_events_of_the_table_exist() {
    let document: Value = serde_json::from_str(&read("openapi/openapi.json")).expect("JSON");
    let plain = |path: &str| {
        let parts = path
            .split('/')
            .map(|part| if part.starts_with('{') { "{}" } else { part });
        parts.collect::<Vec<_>>().join("/")
    };
    let mut routes = BTreeSet::new();
    for (path, operations) in document["paths"].as_object().expect("paths") {
        for method in operations.as_object().expect("operations").keys() {
            routes.insert(format!("{} {}", method.to_uppercase(), plain(path)));
        }
    }
    let events: Vec<&str> = TYPES.iter().map(|row| row.name).collect();
    let headings = listed();
    let mut named = 0;
    let mut wrong = Vec::new();
    for (heading, table) in rows()
        .iter()
        .filter(|(heading, _)| headings.contains_key(heading.as_str()))
    {
        for row in table {
            for word in row.here.split('`').skip(1).step_by(2) {
                let route = word
                    .split_once(' ')
                    .filter(|(_, path)| path.starts_with("/v1"));
                let known = match route {
                    Some((method, path)) => routes.contains(&format!(
                        "{method} {}",
                        plain(path.split('?').next().unwrap_or(path))
                    )),
                    None if word.contains('.')
                        && word.chars().all(|c| c == '.' || c.is_ascii_lowercase()) =>
                    {
                        events.contains(&word)
                    }
                    None => continue,
                };
                named += 1;
                if !known {
                    wrong.push(format!("{heading}: {}: there is no {word}", row.name));
                }
            }
        }
    }
    assert!(named > 60, "only {named} routes and events are named");
    assert!(
        wrong.is_empty(),
        "docs/reference/acp-coverage.md:\n{}",
        wrong.join("\n")
    );
}
