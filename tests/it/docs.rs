//! The guides keep up with the code where a machine can tell.

use std::path::Path;

fn read(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
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
        "docs/reference/configuration.md",
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
