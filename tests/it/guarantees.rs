//! The guarantees of `docs/internals/guarantees.md`: each names a test that exists.

use crate::support::own_tests;

/// The rows of the page: each guarantee with its tests.
fn guarantees() -> Vec<(String, Vec<String>)> {
    let page = include_str!("../../docs/internals/guarantees.md");
    let rows = page.lines().filter_map(|line| {
        line.strip_prefix("| ")?
            .strip_suffix(" |")?
            .rsplit_once(" | ")
    });
    let rows = rows.map(|(guarantee, tests)| {
        (
            guarantee.to_owned(),
            tests
                .split('`')
                .skip(1)
                .step_by(2)
                .map(str::to_owned)
                .collect(),
        )
    });
    // The last table of the page lists runs of the fuzz targets.
    rows.filter(|(guarantee, _)| guarantee != "guarantee" && !guarantee.starts_with(['`', 't']))
        .collect()
}

#[test]
fn every_guarantee_names_a_test_that_exists() {
    let guarantees = guarantees();
    let known = own_tests();
    assert!(known.len() > 600, "only {} tests were found", known.len());
    assert!(
        guarantees.len() > 200,
        "only {} guarantees were found",
        guarantees.len()
    );
    let mut wrong = Vec::new();
    for (guarantee, tests) in &guarantees {
        if tests.is_empty() {
            wrong.push(format!("no test: {guarantee}"));
        }
        wrong.extend(
            tests
                .iter()
                .filter(|test| !known.contains(*test))
                .map(|test| format!("unknown test {test}")),
        );
    }
    assert!(
        wrong.is_empty(),
        "docs/internals/guarantees.md:\n{}",
        wrong.join("\n")
    );
}
