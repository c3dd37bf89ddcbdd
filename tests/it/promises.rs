//! The promises of the operator's guide, each with a test that exists.

use crate::support::own_tests;

/// The rows of the guide's tables whose last column names tests: promise and tests.
fn promises() -> Vec<(String, Vec<String>)> {
    let guide = include_str!("../../docs/operations.md");
    let (_, part) = guide.split_once("## What is promised").expect("the guide has that heading");
    let part = part.split("\n## ").next().unwrap_or_default();
    let rows =
        part.lines().filter_map(|line| line.strip_prefix("| ")?.strip_suffix(" |")?.rsplit_once(" | "));
    let rows = rows.map(|(promise, tests)| {
        (promise.to_owned(), tests.split('`').skip(1).step_by(2).map(str::to_owned).collect())
    });
    rows.filter(|(promise, _)| !["promise", "fault"].contains(&promise.as_str())).collect()
}

#[test]
fn every_promise_names_a_test_that_exists() {
    let (promises, known) = (promises(), own_tests());
    assert!(known.len() > 600, "only {} tests were found", known.len());
    assert!(promises.len() > 40, "only {} promises were found", promises.len());
    let mut wrong = Vec::new();
    for (promise, tests) in &promises {
        if tests.is_empty() {
            wrong.push(format!("no test: {promise}"));
        }
        wrong.extend(
            tests.iter().filter(|test| !known.contains(*test)).map(|test| format!("there is no {test}")),
        );
    }
    assert!(wrong.is_empty(), "docs/operations.md:\n{}", wrong.join("\n"));
}
