//! The attacks of `docs/internals/attacks.md`: each names tests that exist. The files beside this one have the tests
//! of attacks that belong to no resource of the API.

mod agents;
mod canary;
mod json;
mod smuggling;
pub(crate) mod surfaces;

use std::collections::{BTreeMap, BTreeSet};

use crate::support::own_tests;
use crate::support::places::project;

/// The attacks of the threat model.
const ATTACKS: std::ops::RangeInclusive<u32> = 1..=50;

/// The rows of the page: the tests by the number of the attack.
fn rows() -> BTreeMap<u32, Vec<String>> {
    let page = include_str!("../../docs/internals/attacks.md");
    let mut rows = BTreeMap::new();
    for line in page
        .lines()
        .filter_map(|line| line.strip_prefix("| ")?.strip_suffix(" |"))
    {
        let cells: Vec<&str> = line.split(" | ").collect();
        let Ok(number) = cells[0].parse::<u32>() else {
            continue;
        };
        let [_, attack, defence, tests] = cells[..] else {
            panic!("a row has four cells: {line}")
        };
        assert!(!attack.is_empty() && !defence.is_empty(), "{line}");
        let tests = tests
            .split('`')
            .skip(1)
            .step_by(2)
            .map(str::to_owned)
            .collect();
        assert!(
            rows.insert(number, tests).is_none(),
            "attack {number} has two rows"
        );
    }
    rows
}

/// The tests of the page in a browser, as `file: title`.
fn browser_tests() -> BTreeSet<String> {
    let folder = project().join("web/tests");
    let mut found = BTreeSet::new();
    for entry in std::fs::read_dir(folder).expect("a folder of ours") {
        let path = entry.expect("a folder of ours").path();
        if path.extension().is_none_or(|extension| extension != "mjs") {
            continue;
        }
        let name = path
            .file_name()
            .and_then(|name| name.to_str())
            .expect("UTF-8")
            .to_owned();
        let source = std::fs::read_to_string(&path).expect("a file of ours");
        let titles = source
            .lines()
            .filter_map(|line| line.trim_start().strip_prefix("test(\""));
        let titles = titles.filter_map(|line| line.split_once("\", "));
        found.extend(titles.map(|(title, _)| format!("web/tests/{name}: {title}")));
    }
    found
}

/// A script that `scripts/test` runs.
fn is_script_of_the_tests(name: &str) -> bool {
    let tests = include_str!("../../scripts/test");
    let file = project().join(name);
    name.starts_with("scripts/") && file.is_file() && tests.contains(name)
}

#[test]
fn every_attack_names_tests_that_exist() {
    let rows = rows();
    let own = own_tests();
    let browser = browser_tests();
    assert!(
        own.len() > 600 && browser.len() > 20,
        "only {} and {} tests",
        own.len(),
        browser.len()
    );
    assert_eq!(
        rows.keys().copied().collect::<Vec<_>>(),
        ATTACKS.collect::<Vec<_>>()
    );
    let mut wrong = Vec::new();
    for (number, tests) in &rows {
        if tests.is_empty() {
            wrong.push(format!("no test: attack {number}"));
        }
        let known = |test: &&String| {
            own.contains(*test) || browser.contains(*test) || is_script_of_the_tests(test)
        };
        wrong.extend(
            tests
                .iter()
                .filter(|test| !known(test))
                .map(|test| format!("attack {number}: unknown {test}")),
        );
    }
    assert!(
        wrong.is_empty(),
        "docs/internals/attacks.md:\n{}",
        wrong.join("\n")
    );
}
