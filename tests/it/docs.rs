//! The guides keep up with the code where a machine can tell.

use std::path::Path;

fn read(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The public fields of the struct that begins with `head`.
fn fields<'a>(source: &'a str, head: &str) -> Vec<&'a str> {
    let (_, body) = source.split_once(head).expect("the struct is there");
    body.lines()
        .take_while(|line| !line.starts_with('}'))
        .filter_map(|line| line.trim().strip_prefix("pub ")?.split_once(':').map(|(name, _)| name))
        .collect()
}

#[test]
fn every_limit_is_in_the_operators_guide() {
    let source = read("src/types/limits.rs");
    let limits = fields(&source, "pub struct Limits {");
    assert!(limits.len() > 50, "only {limits:?}");
    let guide = read("docs/operations.md");
    let missing: Vec<&&str> = limits.iter().filter(|name| !guide.contains(&format!("`{name}`"))).collect();
    assert!(missing.is_empty(), "docs/operations.md says nothing of {missing:?}");
}

#[test]
fn links_between_the_guides_lead_somewhere() {
    let mut links = 0;
    for name in [
        "README.md",
        "CONTRIBUTING.md",
        "SECURITY.md",
        "docs/api.md",
        "docs/agents.md",
        "docs/agent-support.md",
        "docs/operations.md",
        "docs/performance.md",
    ] {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(name);
        let folder = folder.parent().expect("a file lies in a folder");
        for target in
            read(name).split("](").skip(1).filter_map(|rest| rest.split_once(')').map(|(target, _)| target))
        {
            let path = target.split('#').next().unwrap_or_default();
            if path.is_empty() || path.contains("://") {
                continue;
            }
            links += 1;
            assert!(folder.join(path).exists(), "{name} links to {target}");
        }
    }
    assert!(links > 15, "only {links} links were found");
}
