//! The number of files that a change touches: CONTRIBUTING.md lists the files of an example for each kind of change.

use std::collections::BTreeSet;
use std::path::Path;

use super::{files_below, quoted, read};

/// A row of the table.
struct Recipe {
    change: String,
    at_most: usize,
    names: Vec<String>,
    by_hand: Vec<String>,
    /// Generated files, texts and folders that contain a name too.
    others: Vec<String>,
}

fn recipes() -> Vec<Recipe> {
    let text = read(Path::new("CONTRIBUTING.md"));
    let rows = text
        .lines()
        .skip_while(|line| !line.starts_with("| change | files at most |"))
        .skip(2)
        .take_while(|line| line.starts_with('|'));
    rows.map(|row| {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        let ["", change, at_most, names, by_hand, generated, named_in, ""] = cells[..] else {
            panic!("a row has six columns: {row}")
        };
        let list = |cell| quoted(cell).map(str::to_owned).collect::<Vec<_>>();
        Recipe {
            change: change.to_owned(),
            at_most: at_most.parse().expect("a number"),
            names: list(names),
            by_hand: list(by_hand),
            others: [list(generated), list(named_in)].concat(),
        }
    })
    .collect()
}

/// The source, the documents and the generated files, without tests.
fn files() -> Vec<(String, String)> {
    const FOLDERS: [&str; 6] = [
        "src",
        "crates",
        "openapi",
        "web/packages",
        "web/src",
        "docs",
    ];
    const EXTENSIONS: [&str; 7] = ["rs", "json", "ts", "tsx", "mjs", "md", "toml"];
    let below = FOLDERS
        .iter()
        .flat_map(|folder| files_below(folder, &EXTENSIONS));
    let names = below.map(|file| file.to_str().expect("UTF-8").to_owned());
    let names = names.chain(["acp-gateway.sample.toml".to_owned()]);
    let is_test = |name: &str| {
        let mut parts = name.split('/');
        let file = parts.next_back().expect("a name");
        matches!(file, "tests.rs" | "round_trip.rs") || parts.any(|part| part == "tests")
    };
    names
        .filter(|name| !is_test(name))
        .map(|name| {
            let text = read(Path::new(&name));
            (name, text)
        })
        .collect()
}

#[test]
fn examples_of_changes_touch_exactly_the_listed_files() {
    let files = files();
    let recipes = recipes();
    assert_eq!(recipes.len(), 5, "the table in CONTRIBUTING.md is not read");
    for recipe in recipes {
        let change = &recipe.change;
        let count = recipe.by_hand.len();
        assert!(
            (1..=recipe.at_most).contains(&count),
            "{change}: {count} files by hand"
        );
        let folders: Vec<&String> = recipe
            .others
            .iter()
            .filter(|path| path.ends_with('/'))
            .collect();
        let found: BTreeSet<&str> = files
            .iter()
            .filter(|(_, text)| recipe.names.iter().any(|name| text.contains(name)))
            .map(|(file, _)| file.as_str())
            .filter(|file| !folders.iter().any(|folder| file.starts_with(*folder)))
            .collect();
        let listed = recipe.by_hand.iter().chain(&recipe.others);
        let listed: BTreeSet<&str> = listed
            .map(String::as_str)
            .filter(|path| !path.ends_with('/'))
            .collect();
        assert_eq!(
            found, listed,
            "{change}: left: the files that contain {:?}",
            recipe.names
        );
    }
}
