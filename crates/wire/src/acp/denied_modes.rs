//! The modes of an agent that no client can select (`modes.deny`).

use super::known_agents::privileged_modes;

/// The maximum size in bytes of a name that is compared. No mode has a longer id.
const NAME_BYTES: usize = 256;
/// The maximum number of words in the name of a mode.
const NAME_WORDS: usize = 4;

/// A list of names. A name denies the modes, the values of options and the slash commands with this name.
///
/// Names are equal if their letters and digits are equal without case. A final `mode` is ignored: `full-access` equals
/// `Full Access Mode`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeniedModes(Vec<Entry>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct Entry {
    name: String,
    normalized: String,
}

impl DeniedModes {
    /// Creates the list. A name without a letter or a digit denies nothing.
    pub fn new(names: Vec<String>) -> Self {
        let entry = |name: String| Entry {
            normalized: normalized(&name),
            name,
        };
        Self(names.into_iter().map(entry).collect())
    }

    pub fn names(&self) -> Vec<String> {
        self.0.iter().map(|entry| entry.name.clone()).collect()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the entry that denies this name. An id may contain the name as its last part: `modes#yolo`, `--mode=yolo`.
    pub fn find(&self, name: &str) -> Option<&str> {
        if self.is_empty() {
            return None;
        }
        let last = name.rsplit(['/', '#', ':', '=']).next().unwrap_or(name);
        [name, last]
            .into_iter()
            .filter(|part| part.len() <= NAME_BYTES)
            .find_map(|part| self.entry(&normalized(part)))
    }

    /// Returns the entry whose name occurs in the text as whole words: `Yes, and bypass permissions`.
    pub fn find_in(&self, text: &str) -> Option<&str> {
        if self.is_empty() {
            return None;
        }
        let words: Vec<String> = text
            .split(|c: char| !c.is_alphanumeric())
            .map(normalized_word)
            .collect();
        let words: Vec<&String> = words.iter().filter(|word| !word.is_empty()).collect();
        (0..words.len()).find_map(|start| {
            let mut name = String::new();
            let names = words[start..].iter().take(NAME_WORDS).filter_map(|word| {
                name.push_str(word);
                self.entry(&name)
            });
            // The longest name is the most specific one.
            names.last()
        })
    }

    fn entry(&self, normalized: &str) -> Option<&str> {
        let found = self
            .0
            .iter()
            .find(|entry| !normalized.is_empty() && entry.normalized == normalized);
        found.map(|entry| &*entry.name)
    }
}

impl Default for DeniedModes {
    /// The privileged modes of the known agents.
    fn default() -> Self {
        Self::new(privileged_modes(None))
    }
}

/// Returns the letters and digits of a name in lower case, without a final `mode`.
fn normalized(name: &str) -> String {
    let mut text = normalized_word(name);
    if let Some(rest) = text.strip_suffix("mode").filter(|rest| !rest.is_empty()) {
        text.truncate(rest.len());
    }
    text
}

fn normalized_word(word: &str) -> String {
    word.chars()
        .filter(|c| c.is_alphanumeric())
        .flat_map(char::to_lowercase)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn denied(names: &[&str]) -> DeniedModes {
        DeniedModes::new(names.iter().map(|name| (*name).to_owned()).collect())
    }

    #[test]
    fn names_are_compared_by_letters_and_digits() {
        let denied = denied(&["bypassPermissions", "yolo", "full-access", "auto"]);
        for (name, entry) in [
            ("bypassPermissions", "bypassPermissions"),
            ("BYPASS_PERMISSIONS", "bypassPermissions"),
            ("Bypass Permissions Mode", "bypassPermissions"),
            (" yolo\n", "yolo"),
            ("YOLO-mode", "yolo"),
            ("--yolo", "yolo"),
            ("https://example.com/session-modes#yolo", "yolo"),
            ("--approval-mode=yolo", "yolo"),
            ("agent/full_access", "full-access"),
            ("Auto", "auto"),
        ] {
            assert_eq!(denied.find(name), Some(entry), "{name}");
        }
        for name in [
            "",
            "mode",
            "yolo2",
            "yo",
            "autoEdit",
            "acceptEdits",
            "default",
            "agent-full-access",
            "plan",
        ] {
            assert_eq!(denied.find(name), None, "{name}");
        }
        let long = "x".repeat(100_000);
        assert_eq!(denied.find(&long), None);
        assert_eq!(
            denied.find(&format!("{long}#yolo")),
            Some("yolo"),
            "only the last part is compared"
        );
    }

    #[test]
    fn names_are_found_in_text_as_whole_words() {
        let denied = denied(&["bypass", "bypassPermissions", "full-access"]);
        for (text, entry) in [
            ("Yes, and bypass permissions", "bypassPermissions"),
            (
                "Yes, and use \"bypassPermissions\" mode",
                "bypassPermissions",
            ),
            ("Allow FULL ACCESS for this session", "full-access"),
            ("set full_access", "full-access"),
            ("mode bypass", "bypass"),
        ] {
            assert_eq!(denied.find_in(text), Some(entry), "{text}");
        }
        for text in [
            "",
            "Yes",
            "Allow fuller access",
            "bypassed",
            "full",
            "Allow always",
        ] {
            assert_eq!(denied.find_in(text), None, "{text}");
        }
    }

    #[test]
    fn empty_lists_and_names_deny_nothing() {
        let none = denied(&[]);
        assert!(none.is_empty() && none.find("yolo").is_none() && none.find_in("yolo").is_none());
        assert!(denied(&["--"]).find("-").is_none() && denied(&["--"]).find_in("- -").is_none());
    }
}
