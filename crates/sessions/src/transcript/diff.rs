//! Diffs in the content of tool calls, for display.

use super::content::{array, text};
use wire::acp::RawObject;

/// Unchanged lines that are shown on each side.
const CONTEXT: usize = 3;

/// A diff of ACP v1, which is the old and the new text of a file, or of v2, which is the changes of files and
/// perhaps a patch.
#[derive(Debug, PartialEq, Eq)]
pub struct Diff {
    pub files: Vec<ChangedFile>,
    /// Changed lines, with their signs.
    pub lines: Option<String>,
    /// The lines are a patch with a head.
    is_patch: bool,
}

#[derive(Debug, PartialEq, Eq)]
pub struct ChangedFile {
    pub path: String,
    /// `add`, `delete`, ... Of ACP v2.
    pub operation: Option<String>,
    pub old_path: Option<String>,
}

impl Diff {
    /// `None` if the item of the content is not a diff.
    pub fn of(item: &RawObject<'_>) -> Option<Self> {
        if item.text("type").as_deref() != Some("diff") {
            return None;
        }
        let Some(changes) = item.get("changes") else {
            let [path, old, new] =
                ["path", "oldText", "newText"].map(|key| text(item, key).unwrap_or_default());
            return Some(Self {
                files: vec![ChangedFile {
                    path,
                    operation: None,
                    old_path: None,
                }],
                lines: Some(lines(&old, &new)),
                is_patch: false,
            });
        };
        let files = array(changes).into_iter().filter_map(RawObject::parse);
        Some(Self {
            files: files
                .map(|file| ChangedFile {
                    path: text(&file, "path").unwrap_or_default(),
                    operation: text(&file, "operation"),
                    old_path: text(&file, "oldPath"),
                })
                .collect(),
            lines: item.object("patch").and_then(|patch| text(&patch, "text")),
            is_patch: true,
        })
    }

    /// The path of the first file.
    pub fn path(&self) -> &str {
        self.files.first().map_or("", |file| &file.path)
    }

    /// The diff as plain text.
    pub fn text(&self) -> String {
        match &self.lines {
            Some(patch) if self.is_patch => patch.clone(),
            Some(lines) => format!("--- {0}\n+++ {0}\n{lines}", self.path()),
            None => {
                let files = self.files.iter().map(|file| {
                    let operation = file.operation.as_deref().unwrap_or("change");
                    format!("{operation} {}\n", file.path)
                });
                files.collect()
            }
        }
    }
}

/// Returns lines prefixed with ` `, `-` or `+`. The common beginning and end of the texts are omitted. All
/// old lines precede all new lines, which is correct because an agent's edit changes one place.
fn lines(old: &str, new: &str) -> String {
    let old: Vec<&str> = old.lines().collect();
    let new: Vec<&str> = new.lines().collect();
    let head = old.iter().zip(&new).take_while(|(a, b)| a == b).count();
    let most = old.len().min(new.len()) - head;
    let tail = old
        .iter()
        .rev()
        .zip(new.iter().rev())
        .take(most)
        .take_while(|(a, b)| a == b)
        .count();
    let before = &old[head.saturating_sub(CONTEXT)..head];
    let after = &old[old.len() - tail..][..tail.min(CONTEXT)];
    let parts = [
        (' ', before),
        ('-', &old[head..old.len() - tail]),
        ('+', &new[head..new.len() - tail]),
        (' ', after),
    ];
    parts
        .into_iter()
        .flat_map(|(sign, part)| part.iter().map(move |line| format!("{sign}{line}\n")))
        .collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn diffs_of_both_versions_have_files_and_lines() {
        let diff = |item: &str| Diff::of(&RawObject::parse(serde_json::from_str(item).unwrap())?);
        let v1 = diff(r#"{"type":"diff","path":"/a","oldText":"x","newText":"y"}"#).unwrap();
        assert_eq!((v1.path(), &*v1.text()), ("/a", "--- /a\n+++ /a\n-x\n+y\n"));
        let v2 = r#"{"type":"diff","changes":[{"operation":"move","path":"/b","oldPath":"/a"},7]"#;
        let v2 = |rest: &str| diff(&format!("{v2}{rest}}}")).unwrap();
        let patched = v2(r#","patch":{"format":"git_patch","text":"--- a\n"}"#);
        assert_eq!((patched.path(), &*patched.text()), ("/b", "--- a\n"));
        assert_eq!((v2("").files.len(), &*v2("").text()), (1, "move /b\n"));
        assert_eq!(diff(r#"{"type":"content"}"#), None);
    }

    #[test]
    fn change_is_shown_with_context() {
        assert_eq!(
            lines(
                "1\n2\n3\n4\n5\nold\n6\n7\n8\n9\n",
                "1\n2\n3\n4\n5\nnew\n6\n7\n8\n9\n"
            ),
            " 3\n 4\n 5\n-old\n+new\n 6\n 7\n 8\n"
        );
        assert_eq!(lines("", "a\nb"), "+a\n+b\n");
        assert_eq!(lines("a\n", ""), "-a\n");
        assert_eq!(lines("a\na\n", "a\na\na\n"), " a\n a\n+a\n");
        assert_eq!(lines("", ""), "");
    }

    proptest! {
        #[test]
        fn every_changed_line_is_shown(old in "[ab\n]{0,30}", new in "[ab\n]{0,30}") {
            let shown = lines(&old, &new);
            let count = |sign| shown.lines().filter(|line| line.starts_with(sign)).count();
            let olds = old.lines().count();
            let news = new.lines().count();
            prop_assert_eq!(olds - count('-'), news - count('+'), "omitted lines are common to both texts");
            prop_assert!(olds != 0 || news == count('+'));
        }
    }
}
