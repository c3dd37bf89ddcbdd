//! Files of the repository that are generated from the code. With the variable `UPDATE`, the tests write them.

use super::places::project;

const BEGIN: &str = "<!-- generated: begin -->\n";
const END: &str = "<!-- generated: end -->\n";

/// The file has this text.
#[expect(clippy::disallowed_methods, reason = "the flag is for developers")]
pub(crate) fn compare(path: &str, expected: &str) {
    let file = project().join(path);
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(&file, expected).expect("the repository is writable");
    }
    let committed = std::fs::read_to_string(&file).expect("the file is committed");
    assert!(
        committed == expected,
        "{path} is out of date: run this test with UPDATE=1"
    );
}

/// The file has this text between its two marks.
pub(crate) fn compare_section(path: &str, section: &str) {
    let text = std::fs::read_to_string(project().join(path)).expect("the file is committed");
    let (head, rest) = text.split_once(BEGIN).expect("the first mark");
    let (_, tail) = rest.split_once(END).expect("the second mark");
    compare(path, &format!("{head}{BEGIN}{section}{END}{tail}"));
}
