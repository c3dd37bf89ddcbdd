//! Checks of the source: import cycles between files, code that knows the bytes of events, and the files that a change
//! touches. A failure names the file and the line. The compiler checks the layers, which are crates.

mod cycles;
mod event_bytes;
mod imports;
mod recipes;
mod tokens;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use self::cycles::Graph;
use crate::support::places::project;

fn root() -> &'static Path {
    project()
}

/// Every Rust file below `folder`, as paths relative to the repository.
fn rust_files(folder: &str) -> Vec<PathBuf> {
    files_below(folder, &["rs"])
}

/// Every file below `folder` with one of these extensions, as paths relative to the repository.
pub(crate) fn files_below(folder: &str, extensions: &[&str]) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut open = vec![root().join(folder)];
    while let Some(next) = open.pop() {
        let Ok(entries) = std::fs::read_dir(&next) else {
            continue;
        };
        for entry in entries {
            let path = entry
                .expect("a folder of the repository can be listed")
                .path();
            let name = path
                .file_name()
                .map(|name| name.to_string_lossy().into_owned())
                .unwrap_or_default();
            // git ignores the output of `scripts/clients` and of the builds of the packages.
            let outputs = [
                "tests/clients/generated",
                "packages/client/dist",
                "packages/react/dist",
            ];
            let is_output =
                name == "node_modules" || outputs.iter().any(|output| path.ends_with(output));
            if path.is_dir() && !name.starts_with('.') && !is_output {
                open.push(path);
            } else if path
                .extension()
                .is_some_and(|found| extensions.iter().any(|extension| found == *extension))
            {
                found.push(
                    path.strip_prefix(root())
                        .expect("it lies below the root")
                        .to_path_buf(),
                );
            }
        }
    }
    found.sort();
    found
}

fn read(path: &Path) -> String {
    let path = root().join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[test]
fn files_do_not_import_each_other_in_cycles() {
    for folder in source_folders() {
        let sources: Vec<(String, String)> = rust_files(&folder)
            .iter()
            .map(|file| (file.display().to_string(), read(file)))
            .collect();
        assert!(!sources.is_empty(), "{folder} has no source");
        let graph = Graph::of(
            sources
                .iter()
                .map(|(file, source)| (file.as_str(), source.as_str())),
        );
        if let Some(cycle) = graph.shortest_cycle() {
            panic!("files import each other in a cycle:\n{cycle}");
        }
    }
}

#[test]
fn only_the_module_event_reads_event_bytes() {
    let read_bytes = |file: &PathBuf| {
        let found = event_bytes::violations(file, &read(file)).into_iter();
        found
            .map(|(line, what)| format!("{}:{line}: {what}", file.display()))
            .collect::<Vec<_>>()
    };
    let files: Vec<PathBuf> = source_folders()
        .iter()
        .flat_map(|folder| rust_files(folder))
        .collect();
    let broken: Vec<String> = files.iter().flat_map(read_bytes).collect();
    assert!(
        broken.is_empty(),
        "other modules know the bytes of events:\n{}",
        broken.join("\n")
    );
}

/// The names of the crates below `crates/`.
fn crates() -> Vec<String> {
    let entries = std::fs::read_dir(root().join("crates")).expect("crates/ can be listed");
    let names = entries.map(|entry| {
        let name = entry.expect("an entry of crates/ can be read").file_name();
        name.into_string().expect("names of crates are ASCII")
    });
    let mut names: Vec<String> = names.collect();
    names.sort();
    names
}

/// The folders with the source of the product.
fn source_folders() -> Vec<String> {
    let crates = crates()
        .into_iter()
        .map(|name| format!("crates/{name}/src"));
    ["src".to_owned()].into_iter().chain(crates).collect()
}

/// The crates of this repository that a manifest names as dependencies.
fn dependencies(manifest: &str) -> BTreeSet<String> {
    let text = read(Path::new(manifest));
    let manifest: toml::Table = text.parse().expect("a manifest is TOML");
    let table = manifest["dependencies"]
        .as_table()
        .expect("a table of dependencies");
    let own = crates();
    table
        .keys()
        .filter(|name| own.contains(name))
        .cloned()
        .collect()
}

#[test]
fn architecture_md_shows_the_crates_and_their_dependencies() {
    let text = read(Path::new("ARCHITECTURE.md"));
    let shown: BTreeMap<String, BTreeSet<String>> = shown_table(&text).into_iter().collect();
    let mut actual: BTreeMap<String, BTreeSet<String>> = crates()
        .into_iter()
        .map(|name| {
            let imports = dependencies(&format!("crates/{name}/Cargo.toml"));
            (name, imports)
        })
        .collect();
    actual.insert("src".to_owned(), dependencies("Cargo.toml"));
    assert_eq!(shown, actual, "left: ARCHITECTURE.md, right: the manifests");
}

#[test]
fn the_map_names_only_existing_paths() {
    let mut maps = vec![("ARCHITECTURE.md".to_owned(), String::new())];
    maps.extend(
        source_folders()
            .into_iter()
            .map(|folder| (format!("{folder}/lib.rs"), format!("{folder}/"))),
    );
    for (file, below) in maps {
        let mut text = read(Path::new(&file));
        if !below.is_empty() {
            let documentation = text.lines().filter(|line| line.starts_with("//!"));
            text = documentation.collect::<Vec<_>>().join("\n");
        }
        let ghosts: Vec<String> = named_paths(&text)
            .into_iter()
            .filter(|path| !root().join(path).exists() && !root().join(&below).join(path).exists())
            .collect();
        assert!(ghosts.is_empty(), "{file} names missing items: {ghosts:?}");
    }
}

#[test]
fn architecture_md_lists_functions_in_the_order_of_their_files() {
    let text = read(Path::new("ARCHITECTURE.md"));
    let tables = path_tables(&text);
    let steps: usize = tables.iter().map(Vec::len).sum();
    assert!(
        tables.len() == 2 && steps >= 18,
        "only {tables:?} were read as steps of the two paths"
    );
    for table in tables {
        let wrong = first_step_out_of_order(&table, |file| read(Path::new(file)));
        assert_eq!(
            wrong, None,
            "ARCHITECTURE.md lists a function that its file does not have at this place"
        );
    }
}

/// A row of a table of steps: the file and the function.
type PathStep = (String, String);

/// The first step whose file does not define the function, or defines it only before the function of an earlier step.
fn first_step_out_of_order(steps: &[PathStep], read: impl Fn(&str) -> String) -> Option<&PathStep> {
    let mut reached = BTreeMap::new();
    steps.iter().find(|(file, function)| {
        let text = read(file);
        let signature = format!("fn {function}");
        let from = reached.get(file).copied().unwrap_or(0);
        let mut definitions = text
            .match_indices(&signature)
            .filter(|(at, name)| text[at + name.len()..].starts_with(['(', '<']));
        let found = definitions.find(|(at, _)| *at >= from);
        found.map(|(at, _)| reached.insert(file, at)).is_none()
    })
}

/// The rows below each header `| step | file | function |`.
fn path_tables(text: &str) -> Vec<Vec<PathStep>> {
    let mut tables = Vec::new();
    let mut lines = text.lines();
    while lines.any(|line| line == "| step | file | function |") {
        let rows = lines
            .by_ref()
            .skip(1)
            .take_while(|line| line.starts_with('|'));
        let steps = rows.map(|row| {
            let names: Vec<&str> = quoted(row).collect();
            let [.., file, function] = names[..] else {
                panic!("no file and function: {row}")
            };
            (file.to_owned(), function.to_owned())
        });
        tables.push(steps.collect());
    }
    tables
}

#[test]
fn steps_out_of_order_are_found() {
    let text = "| step | file | function |\n|---|---|---|\n| x | `a.rs` | `f` |\n| `> ` | `b.rs` | `g` |\n| y | `a.rs` | `h` |\n\n\
        | step | file | function |\n|---|---|---|\n| z | `a.rs` | `f` |\n";
    let tables = path_tables(text);
    assert_eq!(tables.iter().map(Vec::len).collect::<Vec<_>>(), [3, 1]);
    let wrong = |source: &str| {
        let found = first_step_out_of_order(&tables[0], |_| source.to_owned());
        found.map(|(_, function)| function.clone())
    };
    assert_eq!(wrong("fn f() {} fn g<T>() {} fn h() {}"), None);
    assert_eq!(wrong("fn h() {} fn f() {} fn g() {}"), Some("h".to_owned()));
    assert_eq!(wrong("fn h() {} fn f() {} fn g() {} fn h() {}"), None);
    assert_eq!(
        wrong("fn f() {} fn great() {} fn h() {}"),
        Some("g".to_owned())
    );
}

/// Test modules that call the library. All others use a running gateway only, for example the tests of prompts and streams.
/// They do not depend on the names in `src/`.
const USE_THE_LIBRARY: [&str; 25] = [
    "agents",
    "architecture",
    "config",
    "config_reference",
    "cors",
    "coverage",
    "docs",
    "files",
    "fleet",
    "golden",
    "guides",
    "keys",
    "log",
    "metrics",
    "models",
    "openapi",
    "panics",
    "policy",
    "process",
    "recipes",
    "replays",
    "route_walk",
    "scale",
    "store",
    "text_safety",
];

#[test]
fn tests_of_prompts_and_streams_use_a_running_gateway_only() {
    let mut found = BTreeSet::new();
    let mut names = vec![
        "acp_gateway::".to_owned(),
        "acp_gateway_models::".to_owned(),
    ];
    names.extend(crates().iter().map(|name| format!("use {name}::")));
    for file in rust_files("tests/it") {
        let source = read(&file);
        if names.iter().any(|name| source.contains(name)) {
            let below = file.strip_prefix("tests/it").expect("it was listed there");
            let module = below
                .components()
                .next()
                .expect("it has a name")
                .as_os_str()
                .to_string_lossy();
            found.insert(module.trim_end_matches(".rs").to_owned());
        }
    }
    assert_eq!(
        found,
        USE_THE_LIBRARY.map(str::to_owned).into(),
        "left: modules that call the library"
    );
    let allocations =
        read(Path::new("tests/allocations/main.rs")).replace("acp_gateway::cli::main()", "");
    assert!(
        !allocations.contains("acp_gateway::"),
        "the test of allocations starts the gateway and calls nothing"
    );
}

/// The parts of a text between backticks.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

/// The rows below the header `| crate | owns | imports |`.
fn shown_table(text: &str) -> Vec<(String, BTreeSet<String>)> {
    text.lines()
        .skip_while(|line| *line != "| crate | owns | imports |")
        .skip(2)
        .take_while(|line| line.starts_with('|'))
        .map(|line| {
            let cells: Vec<&str> = line.trim_matches('|').split('|').collect();
            let name = quoted(cells[0])
                .next()
                .expect("a row names its crate in backticks");
            let imports = quoted(cells.last().expect("a row has cells"))
                .map(str::to_owned)
                .collect();
            (name.trim_end_matches('/').to_owned(), imports)
        })
        .collect()
}

/// The paths of the repository in a text: in backticks, below a known folder or with a known ending.
fn named_paths(text: &str) -> BTreeSet<String> {
    const FOLDERS: [&str; 10] = [
        "src/", "crates/", "tests/", "web/", "docs/", "scripts/", "openapi/", "benches/", ".ci/",
        ".github/",
    ];
    const ENDINGS: [&str; 6] = [".md", ".toml", ".rs", ".yaml", ".json", "Dockerfile"];
    quoted(text)
        .filter(|piece| !piece.contains(char::is_whitespace) && !piece.starts_with('/'))
        .filter(|piece| {
            FOLDERS.iter().any(|folder| piece.starts_with(folder))
                || ENDINGS.iter().any(|ending| piece.ends_with(ending))
        })
        .map(str::to_owned)
        .collect()
}

#[test]
fn a_table_and_paths_are_read_from_markdown() {
    let text = "See `src/app.rs`, `/v1/events`, `session/update` and `deny.toml`.\n\n\
        | crate | owns | imports |\n|---|---|---|\n| `a/` | x | nothing |\n| `b` | y | `a`, `c` |\n\nend";
    let table: Vec<(String, BTreeSet<String>)> = vec![
        ("a".to_owned(), BTreeSet::new()),
        (
            "b".to_owned(),
            BTreeSet::from(["a".to_owned(), "c".to_owned()]),
        ),
    ];
    assert_eq!(shown_table(text), table);
    let paths = BTreeSet::from(["src/app.rs".to_owned(), "deny.toml".to_owned()]);
    assert_eq!(named_paths(&text.replace("`a`, `c`", "")), paths);
}
